/*
 * The machine over a Unimem board: what its files share. It uses unimem/unimem.h and plain libc, nothing else of a
 * system.
 *
 * A process is one context of the board (context.c), each port has a mailbox (port.c). claim() gives ordinary memory
 * (commit.c). A commit either puts the record into a mailbox message, or copies it to the sender's ring, which is
 * dmable, and writes it from there by DMA to the receiver's ring of the same shape (dma.c). It waits for that, which is
 * to wait for the engine and not for a peer, unless the caller said that more follows: then the copy of the next record
 * goes on beside it. Once the DMA is done a message tells how many records are there (lane.c); a record is never looked
 * for before. The receiver copies a body out of its ring when it offers it (poll.c).
 *
 * What a peer must be told is kept as state ("told up to here"), so a full mailbox only delays: push() retries with
 * every call, a port with something to tell does not sleep, and a closing port waits for it, a second at most.
 *
 * Memory that the application has from memory_alloc() (memory.c) is dmable: transfers reach it by
 * DMA (move.c), regions that lie in it are shown to peers in a table (space.c), which they read by DMA, too (window.c).
 * What is registered for that stays so while there is room (reach.c).
 *
 * The driver (drive.c) takes messages out of the mailboxes of all ports of the process into memory and pushes what is
 * to be told. Every call that looks for news runs it. So ports of one process connect at once. A peer in another
 * process grants a lane when it polls next; until then lane_open() returns -EAGAIN.
 *
 * The files, from the lowest one up; none calls one above it (tests/unit/circles_test.py):
 *
 *   process  config  library  address          the process's one object; what the user chose
 *   slots  reach  memory                       ports, lanes, rx by number; registrations; dmable memory
 *   dma  others                                DMAs that take time; where other contexts have memory
 *   lane  rx  view  seek                       what is told to peers and what they tell, each about its kind of object
 *   drive  context                             all of these at once: messages; the end of the context
 *   send  commit  poll  move  space  window    the calls of machine.h, which drive
 *   port  board                                the rest of them; their table
 *
 * Threading: one lock for the process (process.h); no call holds it while waiting for a peer. What machine.h calls
 * takes it, the rest is between um_board_enter() and um_board_leave().
 */
#ifndef UM_MACHINE_BOARD_BOARD_H
#define UM_MACHINE_BOARD_BOARD_H

#include "machine/board/library.h"
#include "machine/board/process.h"
#include "machine/board/reach.h"
#include "machine/owner/counts.h"

/* ---- objects ---- */

struct um_board_port {
    struct um_port base;
    struct unimem_mailbox *mailbox;
    struct unimem_mailbox_address address;
    struct um_board_space *space; /* or NULL */
    uint32_t counters;            /* port_set_counters() */
    bool copies;                  /* private memory of peers may be accessed, and they may learn of this port's */
    uint32_t rx_max, rx_used;
    uint32_t idle;   /* polls since the last record */
    uint32_t cursor; /* the slot of the rx that poll() looks at first */
    int wait_fd;     /* epoll: the mailbox's interrupt and kick_fd */
    int kick_fd;
    struct um_board_port *next;
};

struct um_board_link {
    struct um_link base;
    struct um_board_port *port;
    struct unimem_mailbox_address peer;
    struct um_board_lane *opening; /* asked for, and not granted yet */
    struct um_board_seek *seek;    /* or NULL */
    struct um_board_hint hint;     /* of the peer's memory */
};

enum um_board_lane_state { UM_LANE_ASKING = 0, UM_LANE_DENIED, UM_LANE_OPEN };

struct um_board_lane {
    struct um_lane base;
    struct um_board_port *port; /* NULL: the port was closed, there is something to tell yet */
    struct unimem_mailbox_address peer;
    uint32_t number, rx;
    enum um_board_lane_state state;
    bool asked;  /* JOIN was sent */
    bool closed; /* by lane_close() */
    bool ended;  /* by the peer, or it is gone */
    bool watched;
    bool ended_seen;        /* lane_reap() told */
    unsigned char *staging; /* dmable: what is committed and not embedded */
    unsigned char *scratch; /* what is claimed: a line and a body in ordinary memory */
    struct unimem_remote ring;
    struct um_board_hint hint; /* of the ring */
    uint32_t arenas_told;      /* version of the directory */
    uint32_t claimed;          /* lines */
    /* Records, each at most the one before: in staging, their DMA begun, done, told of; consumed by the receiver. */
    uint32_t committed, started, moved, told, consumed;
    uint32_t lines_committed, lines_started, lines_consumed;
    uint64_t flight[UM_BOARD_FLIGHTS]; /* of record n: n modulo UM_BOARD_FLIGHTS */
    struct um_board_reach *flight_by[UM_BOARD_FLIGHTS];
    uint32_t asked_for, allowed; /* before UM_BOARD_EAGER: records */
    bool more;                   /* the next commit comes soon: nobody waits for what is in flight */
    uint32_t committed_seen;     /* at the last poll */
    struct um_answer answers[UM_ANSWERS];
    uint32_t answers_in, answers_out, answers_told; /* received; reaped; reaped ones that the receiver knows of */
    bool held;                                      /* the receiver wants no messages now */
    bool was_held;                                  /* a claim failed because of it */
    uint32_t consumed_seen;                         /* what lane_consumed() told last */
};

struct um_board_rx {
    struct um_rx base;
    struct um_board_port *port;
    struct unimem_mailbox_address peer; /* the sender's port */
    uint32_t number, lane;              /* lane: the sender's number */
    unsigned char *ring;                /* NULL: the lane is only to be refused */
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
    struct um_answer answers[UM_ANSWERS];
    uint32_t answers_in, answers_out, answers_taken; /* given, sent, known to be taken */
    bool crowded;                                    /* an answer found no place */
    bool held, held_told;                            /* the sender is to send no messages; knows it */
};

struct um_board_space {
    struct um_space base;
    struct um_owner_counts counts;
    bool holds; /* the process's context */
    struct um_board_entry_wire *table;
    uint64_t buckets, count;
    uint64_t changes;
};

struct um_board_seek {
    struct um_board_port *port; /* NULL: it was closed */
    struct unimem_mailbox_address peer;
    struct um_board_notice_wire *notice;
    uint32_t place; /* of the notice in its area */
    uint32_t view;  /* the peer's number, once it was shown */
    bool asked, shown, closed, withdrawn;
};

/* What one memory_alloc() gave. */
struct um_board_arena {
    struct um_list link;
    struct um_board_space *space;
    unsigned char *base;
    size_t len;
    uint32_t slot;    /* in the directory; UM_BOARD_ARENAS_MAX: it is full */
    uint32_t regions; /* that lie in it */
};

/* ---- address.c ---- */

/* A port's address by its mailbox, and back. */
struct um_addr um_board_addr(const struct unimem_mailbox_address *address);
struct unimem_mailbox_address um_board_mailbox(const struct um_addr *addr);
void um_board_port_addr(const struct um_port *port, struct um_addr *addr_p);
int um_board_addr_check(const struct um_port *port, const struct um_addr *addr, bool is_last);

/* ---- slots.c ---- */

struct um_board_port *um_board_ports(void);
void um_board_ports_add(struct um_board_port *port);
void um_board_ports_remove(struct um_board_port *port);

/* Lanes and rx have numbers that are not used again soon. NULL: none is free, or no such number. */
struct um_board_lane *um_board_lane_new(const struct um_machine *machine);
struct um_board_lane *um_board_lane_of(uint32_t number);
void um_board_lane_delete(struct um_board_lane *lane);
struct um_board_rx *um_board_rx_new(const struct um_machine *machine);
struct um_board_rx *um_board_rx_of(uint32_t number);
void um_board_rx_delete(struct um_board_rx *rx);
/* The ones after it; from NULL: the first. */
struct um_board_lane *um_board_lane_next(const struct um_board_lane *lane);
struct um_board_rx *um_board_rx_next(const struct um_board_rx *rx);
/* In a forked child: what there is is its parent's. */
void um_board_slots_forget(void);

/* ---- memory.c: dmable memory ---- */

/* A piece for the application. The errors of memory_alloc(). */
int um_board_arena_add(struct um_board_space *space, size_t len, struct um_board_arena **arena_p);
/* Its memory was freed. */
void um_board_arena_remove(struct um_board_arena *arena);
/* All of a space, with their memory. */
void um_board_arenas_end(struct um_board_space *space);
/* The piece that begins there; NULL: none of that space does. */
struct um_board_arena *um_board_arena_at(const struct um_board_space *space, const void *memory);
/* The piece in which all of it lies; NULL: it is not such memory. */
struct um_board_arena *um_board_arena_of(const void *memory, size_t len);
/* A region in it has ended. */
void um_board_arena_region_end(struct um_board_arena *arena);
/* The directory's address and version; version 0: there is none. */
uint64_t um_board_directory(uint32_t *version_p);
/* In a forked child: the pieces are its parent's. */
void um_board_arenas_forget(void);

/* UM_BOARD_RING bytes, kept for the next one; lost: it may still be written by a peer. */
unsigned char *um_board_ring_get(void);
void um_board_ring_put(unsigned char *memory, bool lost);

/* Dmable memory for DMAs of the machine itself: each part by itself is free between two calls. NULL: there is none. */
enum { UM_BOARD_BOUNCES = 4, UM_BOARD_BOUNCE = 1 << 18, UM_BOARD_SCRATCH = 1 << 12 };
struct um_board_scratch {
    unsigned char notice[64];
    _Alignas(64) unsigned char small[UM_BOARD_SCRATCH];
    _Alignas(64) unsigned char directory[UM_BOARD_DIRECTORY];
    _Alignas(4096) unsigned char bounce[UM_BOARD_BOUNCES][UM_BOARD_BOUNCE];
};
struct um_board_scratch *um_board_scratch_get(void);
/* The context was closed: directory, rings and scratch are gone. */
void um_board_memory_forget(void);

/* ---- dma.c ---- */

static inline uint32_t um_board_lines(uint32_t body_len)
{
    return 1 + (body_len + UM_BOARD_LINE - 1) / UM_BOARD_LINE;
}

/* The place in staging memory of the record that begins with this line. */
static inline struct um_board_record_wire *um_board_lane_staged(const struct um_board_lane *lane, uint32_t line)
{
    return (void *)(lane->staging + (size_t)(line % UM_BOARD_LINES) * UM_BOARD_LINE);
}

/* As um_board_reach_try(), but what lanes have under way may have to end for it. */
int um_board_reach_get(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p);
/* One DMA, to its end. 0; -EAGAIN; -ENXIO, -EFAULT: gone, and the registration with it; -EIO. */
int um_board_dma_now(const struct um_board_transfer *what);

/* The registration of the receiver's ring. NULL: it has to wait for a place, or the lane has ended. */
struct um_board_reach *um_board_lane_register(struct um_board_lane *lane);
/* Ends it, if there is one. */
void um_board_lane_forget_ring(const struct um_board_lane *lane);
/* Begins the DMA of the next record. False: it has to wait, or the lane has ended. */
bool um_board_lane_start(struct um_board_lane *lane);
/* Ends the DMA of the oldest record if it is done. Returns whether anything changed. */
bool um_board_lane_land(struct um_board_lane *lane);
/* Waits for what its DMAs, or those of all lanes, have under way: for the engine, not for a peer. */
void um_board_lane_settle(struct um_board_lane *lane);
void um_board_lanes_settle(void);

/* ---- others.c: other contexts ---- */

/* A registration that covers this memory of a peer, which its directory tells of. -EPERM: none does. */
int um_board_reach_peer(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p);
/* Where a context, by its number, has its directory, and that it has changed. */
void um_board_reach_told(uint32_t node, uint32_t number, uint64_t directory, uint32_t version);
/* The known directory of a context may be outdated: read it again. */
void um_board_reach_doubt(uint32_t node, uint32_t number);
/* The context was closed. */
void um_board_others_forget(void);

/* ---- lane.c ---- */

/* Sends what is to be told: true if something went. May free the lane. */
bool um_board_lane_push(struct um_board_lane *lane);
bool um_board_lane_holds_back(const struct um_board_lane *lane);
/* The receiver keeps places for answers: it is told by quarters of them which are free again. */
bool um_board_lane_taken_is_due(const struct um_board_lane *lane);
void um_board_lane_take(struct um_board_port *port, const struct um_board_message_wire *message);
void um_board_lane_free(struct um_board_lane *lane);

/* ---- rx.c ---- */

bool um_board_rx_push(struct um_board_rx *rx);
bool um_board_rx_holds_back(const struct um_board_rx *rx);
void um_board_rx_join(struct um_board_port *port, const struct um_board_message_wire *message);
void um_board_rx_take(struct um_board_port *port, const struct um_board_message_wire *message);
void um_board_rx_embedded(struct um_board_port *port, const struct um_board_embedded_wire *message);
/* Its sender broke the format: it ends with that error. */
void um_board_rx_fail(struct um_board_rx *rx, int error);
/* Lazy credit is due. */
void um_board_credit_due(struct um_board_port *port);
void um_board_rx_free(struct um_board_rx *rx);

/* ---- view.c: peers that look at a space ---- */

void um_board_view_seek(struct um_board_port *port, const struct um_board_seek_wire *message);
void um_board_view_take(struct um_board_port *port, const struct um_board_message_wire *message);
/* Writes the notices of all who look at it, or at it by way of a port: they are told when this returns. */
void um_board_views_tell(const struct um_board_space *space, const struct um_board_port *port);
/* The same, for the last time. */
void um_board_views_end(const struct um_board_port *port);
bool um_board_views_push(void);
bool um_board_views_hold_back(const struct um_board_port *port);
void um_board_views_forget(void);

/* ---- seek.c: asking to look at the spaces of others ---- */

/* NULL: there is no memory, or no line is free. */
struct um_board_seek *um_board_seek_new(const struct um_board_link *link);
void um_board_seek_close(struct um_board_seek *seek);
void um_board_seek_take(struct um_board_port *port, const struct um_board_message_wire *message);
bool um_board_seeks_push(void);
bool um_board_seeks_hold_back(const struct um_board_port *port);
/* The port is closed. */
void um_board_seeks_end(const struct um_board_port *port);
void um_board_seeks_forget(void);

/* ---- drive.c ---- */

/* Takes and pushes until nothing moves any more. */
void um_board_drive(void);
/* Does a full mailbox hold back a message of this port, or of one that was closed? */
bool um_board_holds_back(const struct um_board_port *port);

/* ---- context.c ---- */

/* 0: there is a library; else why not, which was logged. */
int um_board_probe(void);
/* The context is opened with its first user and closed with its last. */
int um_board_begin(struct unimem_board **board_p);
void um_board_end(void);

/* ---- send.c, commit.c ---- */

int um_board_lane_open(struct um_link *base, struct um_lane **lane_p);
void um_board_lane_close(struct um_lane *base);
uint32_t um_board_lane_body_max(struct um_lane *base, uint32_t wanted);
uint32_t um_board_lane_committed(const struct um_lane *base);
uint32_t um_board_lane_consumed(const struct um_lane *base);
int um_board_lane_reap(struct um_lane *base, struct um_answer *answers, int max);
void um_board_lane_watch(struct um_lane *base, bool on);
/* Is there news of a lane that is watched? */
bool um_board_lanes_news(const struct um_board_port *port);

int um_board_claim(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
int um_board_claim_message(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
void um_board_commit(struct um_lane *base, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len);
void um_board_abort(struct um_lane *base, const struct um_slot *slot);

/* ---- poll.c ---- */

int um_board_poll(struct um_port *base, struct um_record *rec_p);
/* The same under the lock. */
int um_board_poll_now(struct um_board_port *port, struct um_record *rec_p);
void um_board_release(struct um_port *base, const struct um_record *rec);
int um_board_answer(struct um_rx *base, uint32_t token, int32_t status);
void um_board_rx_hold(struct um_rx *base, bool on);
bool um_board_gather(struct um_port *base);
/* Has a sender for whom an answer found no place made room? */
bool um_board_rx_news(const struct um_board_port *port);
void um_board_rx_refuse(struct um_rx *base);
void um_board_rx_origin(const struct um_rx *base, struct um_addr *addr_p);

/* ---- move.c ---- */

int um_board_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p);
bool um_board_waits_better(struct um_lane *base, const struct iovec *iov, size_t count, size_t len);

/* ---- space.c: what a domain exports ---- */

int um_board_space_open(const struct um_machine *machine, struct um_space **space_p);
void um_board_space_close(struct um_space *base);
int um_board_memory_alloc(struct um_space *base, size_t len, void **memory_p);
int um_board_memory_free(struct um_space *base, void *memory);
int um_board_export(struct um_space *base, const struct um_region_desc *what, struct um_exported **exported_p);
void um_board_unexport(struct um_space *space_base, struct um_exported *exported_base);
enum um_level um_board_exported_level(const struct um_exported *base);
int um_board_counter_open(struct um_space *base, uint32_t *number_p, const uint64_t **value_p);
void um_board_counter_close(struct um_space *base, uint32_t number);
void um_board_exported_set_counters(struct um_space *space_base, struct um_exported *exported_base, uint32_t counters);
void um_board_port_set_counters(struct um_port *base, uint32_t counters);
void um_board_space_count(struct um_space *base, uint32_t counters, unsigned shift);
struct um_locks_shm *um_board_space_locks(struct um_space *base);

/* ---- window.c: looking at the spaces of others ---- */

int um_board_window_open(struct um_link *base, uint64_t key, struct um_window **window_p);
void um_board_window_close(struct um_window *window);
void um_board_window_count(struct um_window *window, unsigned shift);

/* ---- port.c: ports, links, sleeping ---- */

int um_board_port_open(const struct um_machine *machine, const struct um_port_config *config, struct um_port **port_p);
void um_board_port_close(struct um_port *base);
int um_board_link_open(struct um_port *base, const struct um_addr *addr, struct um_link **link_p);
void um_board_link_close(struct um_link *base);
bool um_board_link_alive(struct um_link *base);
int um_board_wait_fd(const struct um_port *port);
int um_board_arm(struct um_port *base);
void um_board_disarm(struct um_port *base);
void um_board_kick(struct um_port *port);
int um_board_watch_line(const struct um_port *port, const uint64_t **line_p, uint64_t *value_p);
void um_board_tick(struct um_port *base);

#endif
