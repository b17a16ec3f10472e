/*
 * The machine over a Unimem board: what its files share. It uses unimem/unimem.h and plain libc, nothing else of a
 * system.
 *
 * A process is one context of the board (process.c), each port has a mailbox (port.c). claim() gives ordinary memory
 * (commit.c). A commit either puts the record into a mailbox message, or copies it to the sender's ring, which is
 * dmable, and writes it from there by DMA to the receiver's ring of the same shape (lane.c). It waits for that, which
 * is to wait for the engine and not for a peer, unless the caller said that more follows: then the copy of the next
 * record goes on beside it. Once the DMA is done a message tells how many records are there; a record is never looked
 * for before. The receiver copies a body out of its ring when it offers it (rx.c).
 *
 * All that must be told is kept as state ("how far was it told"), so a mailbox that is full only delays: push() tries
 * again with every call, a port does not go to sleep over it, and one that is closed waits for it, a second at most.
 *
 * The driver below the ports (drive()) takes messages out of the mailboxes of all ports of the process into memory and
 * pushes what is to be told. Every call that looks for news runs it. So ports of one process meet at once; a peer in
 * another process gives a lane when it next polls, until when lane_open() says -EAGAIN.
 *
 * Threading: one lock for the process (um_board_enter, um_board_leave); no call holds it while waiting for a peer.
 */
#ifndef UM_MACHINE_BOARD_BOARD_H
#define UM_MACHINE_BOARD_BOARD_H

#include "machine/board/config.h"
#include "machine/board/library.h"
#include "machine/machine.h"

#include <assert.h>

enum {
    UM_BOARD_LINE = 64,
    UM_BOARD_LINES = 8192,     /* of a ring; a record takes one, and as many as its body needs */
    UM_BOARD_BODY_MAX = 32768, /* a body may run over the ring's end into this much more */
    UM_BOARD_FLIGHTS = 2,      /* DMAs that a lane has under way */
    UM_BOARD_EMBEDS = 64,      /* records inside messages that a lane has unconsumed */
    UM_BOARD_RING = UM_BOARD_LINES * UM_BOARD_LINE + UM_BOARD_BODY_MAX,
    UM_BOARD_LANES_MAX = 256, /* incoming, by default */
    UM_BOARD_NUMBER_BITS = 16 /* a lane's or rx's number on the wire: slot below, generation above */
};
#define UM_BOARD_ADDR_MAGIC UINT64_C(0x01647261426d6e55) /* "UnmBard", version 1 */

/* ---- on the wire ---- */

/* The head of a record: a line; the body follows in the next ones. Written by the sender, read when a message told of
 * it. */
struct um_board_record_wire {
    uint32_t len;
    uint8_t op;
    uint8_t flags;
    uint16_t body; /* 1: len bytes of body */
    unsigned char head[UM_HEAD_MAX];
};
static_assert(sizeof(struct um_board_record_wire) == UM_BOARD_LINE, "a record begins with a line");

enum um_board_op {
    UM_BOARD_JOIN =
        1,          /* to a port: number of the sender's lane; token: node, value: context, more: mailbox, generation */
    UM_BOARD_DATA,  /* to an rx: value: so many records were written */
    UM_BOARD_CLOSE, /* to an rx: no more come */
    UM_BOARD_GRANT, /* to a lane: value: number of the rx, 0: there is none; more: the ring's address */
    UM_BOARD_CREDIT, /* to a lane: value: records consumed, more: lines consumed */
    UM_BOARD_ANSWER, /* to a lane: token, value: status */
    UM_BOARD_ENDED,  /* to a lane: the receiver ended it */
    UM_BOARD_ASK,    /* to an rx: value: so many records wait at the sender (before UM_BOARD_EAGER) */
    UM_BOARD_GO,     /* to a lane: value: so many records may be written */
    UM_BOARD_RECORD, /* to an rx: a record, struct um_board_embedded_wire */
};

struct um_board_message_wire {
    uint16_t op;
    uint16_t token;
    uint32_t number;
    uint32_t value;
    uint32_t zero;
    uint64_t more;
};
static_assert(sizeof(struct um_board_message_wire) == UNIMEM_MESSAGE_SIZE, "one mailbox message");

/*
 * A record whose head has at most two words that are not zero, and whose len is small: they travel in the message.
 * kind: bits 0-3 UM_BOARD_RECORD, 4-10 which words, 11-15 len.
 */
struct um_board_embedded_wire {
    uint16_t kind;
    uint8_t op;
    uint8_t flags;
    uint32_t number;
    uint64_t word[2];
};
static_assert(sizeof(struct um_board_embedded_wire) == UNIMEM_MESSAGE_SIZE, "one mailbox message");
enum { UM_BOARD_KIND_MASK = 0xf, UM_BOARD_WORDS_SHIFT = 4, UM_BOARD_LEN_SHIFT = 11, UM_BOARD_LEN_MAX = 31 };

/* ---- objects ---- */

struct um_board_port {
    struct um_port base;
    struct unimem_mailbox *mailbox;
    struct unimem_mailbox_address address;
    uint32_t rx_max, rx_used;
    uint32_t idle;   /* polls since the last record */
    uint32_t cursor; /* the slot of the rx that poll() looks at first */
    int wait_fd;     /* epoll: the mailbox's interrupt and kick_fd */
    int kick_fd;
    struct um_board_port *next;
};

struct um_link {
    struct um_board_port *port;
    struct unimem_mailbox_address peer;
    struct um_lane *opening; /* asked for, and not granted yet */
};

enum um_lane_state { UM_LANE_ASKING = 0, UM_LANE_DENIED, UM_LANE_OPEN };

struct um_lane {
    struct um_board_port *port; /* NULL: the port was closed, there is something to tell yet */
    struct unimem_mailbox_address peer;
    uint32_t number, rx;
    enum um_lane_state state;
    bool asked;  /* JOIN was sent */
    bool closed; /* by lane_close() */
    bool ended;  /* by the peer, or it is gone */
    bool watched;
    bool ended_seen;        /* lane_reap() told */
    unsigned char *staging; /* dmable: what is committed and not embedded */
    unsigned char *scratch; /* what is claimed: a line and a body in ordinary memory */
    struct unimem_remote ring;
    bool registered;
    uint32_t claimed; /* lines */
    /* Records, each at most the one before: in staging, their DMA begun, done, told of; consumed by the receiver. */
    uint32_t committed, started, moved, told, consumed;
    uint32_t lines_committed, lines_started, lines_consumed;
    uint64_t flight[UM_BOARD_FLIGHTS]; /* of record n: n modulo UM_BOARD_FLIGHTS */
    uint32_t asked_for, allowed;       /* before UM_BOARD_EAGER: records */
    bool more;                         /* the next commit comes soon: nobody waits for what is in flight */
    uint32_t committed_seen;           /* at the last poll */
    struct um_answer answers[UM_TOKENS];
    uint32_t answers_in, answers_out;
    uint32_t consumed_seen; /* what lane_consumed() told last */
};

struct um_rx {
    struct um_board_port *port;
    struct unimem_mailbox_address peer; /* the sender's port */
    uint32_t number, lane;              /* lane: the sender's number */
    unsigned char *ring;                /* NULL: the lane is to be denied, nothing else */
    bool granted;                       /* GRANT was sent */
    bool joined_told;                   /* UM_REC_JOINED was released */
    bool closed;                        /* CLOSE came, or the sender is gone: nothing more comes */
    bool left_told;                     /* UM_REC_LEFT was released: only CLOSE is waited for */
    bool refused, end_told;             /* ENDED is to be sent, was sent */
    int error;                          /* what UM_REC_LEFT tells */
    uint32_t arrived, released, lines_released;
    unsigned char *scratch;      /* a body, copied out of the ring */
    uint32_t copied;             /* record whose body lies there, counted from 1 */
    uint32_t ask_seen, ask_told; /* records that the sender asked for, that it was told to write */
    uint32_t embeds_in, embeds_out;
    _Alignas(8) struct um_board_record_wire embed[UM_BOARD_EMBEDS]; /* len holds the record's number, body its len */
    uint32_t credit_due, credit_told;                               /* released records: to be told, told */
    struct um_answer answers[UM_TOKENS];
    uint32_t answers_in, answers_out;
    void *user;
};

/* ---- process.c ---- */

void um_board_enter(void);
void um_board_leave(void);

/* Everything below: between these two. */

/* 0: there is a library; else why not, which was logged. */
int um_board_probe(void);
/* The process's context is opened with its first port and closed with its last. */
int um_board_begin(struct unimem_board **board_p);
void um_board_end(void);
struct unimem_board *um_board_handle(void);

struct um_board_port *um_board_ports(void);
void um_board_ports_add(struct um_board_port *port);
void um_board_ports_remove(struct um_board_port *port);

/* Slots of lanes and of rx: numbers that are not used again soon. NULL: none is free, or no such number. */
struct um_lane *um_board_lane_new(void);
struct um_lane *um_board_lane_of(uint32_t number);
void um_board_lane_free(struct um_lane *lane);
struct um_rx *um_board_rx_new(void);
struct um_rx *um_board_rx_of(uint32_t number);
void um_board_rx_free(struct um_rx *rx);
/* The ones after it; from NULL: the first. */
struct um_lane *um_board_lane_next(const struct um_lane *lane);
struct um_rx *um_board_rx_next(const struct um_rx *rx);

/* Dmable memory of UM_BOARD_RING bytes, kept for the next one; lost: it may still be written by a peer. */
unsigned char *um_board_ring_get(void);
void um_board_ring_put(unsigned char *memory, bool lost);

/* What the user chose. */
enum um_board_step um_board_step(void);
/* Takes and pushes until nothing moves any more. */
void um_board_drive(void);
/* Is something to be told, from this port or one that was closed, that a full mailbox does not take? */
bool um_board_holds_back(const struct um_board_port *port);

/* ---- lane.c, commit.c ---- */

static inline uint32_t um_board_lines(uint32_t body_len)
{
    return 1 + (body_len + UM_BOARD_LINE - 1) / UM_BOARD_LINE;
}

/* The place in staging memory of the record that begins with this line. */
static inline struct um_board_record_wire *um_board_lane_staged(const struct um_lane *lane, uint32_t line)
{
    return (void *)(lane->staging + (size_t)(line % UM_BOARD_LINES) * UM_BOARD_LINE);
}

/* Sends what is to be told: true if something went. May free the lane. */
bool um_board_lane_push(struct um_lane *lane);
/* Waits for what its DMAs have under way: for the engine, not for a peer. */
void um_board_lane_settle(struct um_lane *lane);
bool um_board_lane_holds_back(const struct um_lane *lane);
void um_board_lane_take(struct um_board_port *port, const struct um_board_message_wire *message);

/* Is there news of a lane that is watched? */
bool um_board_lanes_news(const struct um_board_port *port);

int um_board_lane_open(struct um_link *link, struct um_lane **lane_p);
void um_board_lane_close(struct um_lane *lane);
int um_board_claim(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p);
void um_board_commit(struct um_lane *lane, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len);
void um_board_abort(struct um_lane *lane, const struct um_slot *slot);
uint32_t um_board_lane_body_max(struct um_lane *lane, uint32_t wanted);
uint32_t um_board_lane_committed(const struct um_lane *lane);
uint32_t um_board_lane_consumed(const struct um_lane *lane);
int um_board_lane_reap(struct um_lane *lane, struct um_answer *answers, int max);
void um_board_lane_watch(struct um_lane *lane, bool on);

/* ---- rx.c ---- */

bool um_board_rx_push(struct um_rx *rx);
bool um_board_rx_holds_back(const struct um_rx *rx);
void um_board_rx_join(struct um_board_port *port, const struct um_board_message_wire *message);
void um_board_rx_take(struct um_board_port *port, const struct um_board_message_wire *message);
void um_board_rx_embedded(struct um_board_port *port, const struct um_board_embedded_wire *message);

int um_board_poll(struct um_port *base, struct um_record *rec_p);
void um_board_release(struct um_port *base, const struct um_record *rec);
void um_board_answer(struct um_rx *rx, uint16_t token, int32_t status);
void um_board_rx_refuse(struct um_rx *rx);
void um_board_rx_origin(const struct um_rx *rx, struct um_addr *addr_p);
void um_board_rx_set_user(struct um_rx *rx, void *user);
void *um_board_rx_user(const struct um_rx *rx);
/* The next record of a port, driver and lazy credit included: what um_board_poll() does. */
int um_board_poll_now(struct um_board_port *port, struct um_record *rec_p);
/* What is told lazily is due. */
void um_board_credit_due(struct um_board_port *port);

/* ---- space.c: what a domain exposes is left to its owner ---- */

int um_board_space_open(const struct um_space_config *config, struct um_space **space_p);
void um_board_space_close(struct um_space *space);
int um_board_expose(struct um_space *space, const struct um_exposure *what, struct um_exposed **exposed_p);
void um_board_conceal(struct um_space *space, struct um_exposed *exposed);
enum um_level um_board_exposed_level(const struct um_exposed *exposed);
int um_board_counter_open(struct um_space *space, uint32_t *number_p, const uint64_t **value_p);
void um_board_counter_close(struct um_space *space, uint32_t number);
void um_board_exposed_set_counters(struct um_space *space, struct um_exposed *exposed, uint32_t counters);
void um_board_port_set_counters(struct um_port *port, uint32_t counters);
void um_board_space_count(struct um_space *space, uint32_t counters, unsigned shift);
struct um_locks_shm *um_board_space_locks(struct um_space *space);
int um_board_window_open(struct um_link *link, uint64_t key, struct um_window **window_p);
void um_board_window_close(struct um_window *window);
void um_board_window_count(struct um_window *window, unsigned shift);

/* ---- port.c ---- */

struct um_addr um_board_addr(const struct unimem_mailbox_address *address);

#endif
