/*
 * The machine over a Unimem board: what its files share. It uses unimem/unimem.h and plain libc, and nothing else of
 * the system.
 *
 * A process is one context of the board (context.c), each port has a mailbox (port.c). claim() gives ordinary memory
 * (commit.c). A commit either puts the record into a mailbox message, or copies it to the sender's ring, which is
 * dmable, and writes it from there by DMA to the receiver's ring of the same shape (dma.c). The commit waits for the
 * DMA (for the engine, not for a peer), unless the caller said that more records follow: then the next record is copied
 * while the DMA runs. Once the DMA is done a message tells how many records are there (lane.c); the receiver never
 * looks for a record before. It copies a body out of its ring when it offers the record (poll.c).
 *
 * What a peer must be told is kept as state ("told up to here"), so a full mailbox only delays it: the driver retries
 * with every call, a port with something to tell does not sleep, and a closing port waits until it is told, a second at
 * most.
 *
 * Memory that the application has from memory_alloc() (memory.c) is dmable: transfers reach it by DMA (move.c). Regions
 * in it are listed in a table (space.c), which peers read by DMA, too (window.c). Registrations with the engine are
 * kept while there is room for them (reach.c).
 *
 * The driver (drive.c) takes messages out of the mailboxes of all ports of the process into memory, and sends what is
 * to be told. Every call that looks for news runs it. So two ports of one process connect at once. A peer in another
 * process grants a lane when it polls next; until then lane_open() returns -EAGAIN.
 *
 * The files, from the lowest one up; no file calls one above it (tests/unit/circles_test.py):
 *
 *   process  config  library  address          the process's one object; what the user chose
 *   slots  reach  memory                       ports, lanes, rx by number; registrations; dmable memory
 *   dma  others                                DMAs that take time; where other contexts have memory
 *   lane  rx  view  seek                       what is told to peers and what they tell, each about its kind of object
 *   drive  context                             all of these at once: messages; the end of the context
 *   send  commit  poll  move  space  window    the calls of machine.h, which drive
 *   port  board                                the rest of them; their table
 *
 * Threading: one lock for the process (process.h); no call holds it while it waits for a peer. The operations of
 * machine.h take it; all other functions are called between um_board_enter() and um_board_leave().
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
    uint32_t counters;            /* as port_set_counters() set them */
    bool copies; /* private_copy: transfers may reach memory of peers, and peers may learn of memory of this port */
    uint32_t rx_max, rx_used;
    bool full_logged; /* that all lanes into it were taken */
    bool closing;     /* no lane into it is granted any more */
    uint32_t idle;    /* polls since the last record */
    uint32_t cursor;  /* the slot of the rx that poll() looks at first */
    int wait_fd;      /* epoll: the mailbox's interrupt and kick_fd */
    int kick_fd;
    struct um_board_port *next;
};

struct um_board_link {
    struct um_link base;
    struct um_board_port *port;
    struct unimem_mailbox_address peer;
    struct um_board_lane *opening; /* the lane that was asked for and is not granted yet, or NULL */
    struct um_board_seek *seek;    /* or NULL */
    struct um_board_hint hint;     /* the registration of the peer's memory used last */
};

enum um_board_lane_state { UM_LANE_ASKING = 0, UM_LANE_DENIED, UM_LANE_OPEN };

struct um_board_lane {
    struct um_lane base;
    struct um_board_port *port; /* NULL: the port was closed; there is still something to tell */
    struct unimem_mailbox_address peer;
    uint32_t number, rx;
    enum um_board_lane_state state;
    bool asked;           /* JOIN was sent */
    uint64_t probe_at;    /* ns; while the lane is asked for: when the peer is probed next */
    uint64_t probe_after; /* ns; the time from that probe to the next; 0: none yet */
    bool closed;          /* lane_close() was called */
    bool ended;           /* the peer ended it, or is gone */
    bool watched;
    bool ended_seen;        /* lane_reap() returned -EPIPE */
    unsigned char *staging; /* dmable: the records that are committed and not embedded */
    unsigned char *scratch; /* ordinary memory for the claimed record: a line and a body */
    struct unimem_remote ring;
    struct um_board_hint hint; /* the registration of the ring */
    uint32_t arenas_told;      /* version of the directory that the receiver was told of */
    uint32_t claimed;          /* lines of the claimed record */
    /* Records since the lane began, each count at most the one before: committed, their DMA started, their DMA done
     * (moved), told to the receiver; consumed by the receiver. */
    uint32_t committed, started, moved, told, consumed;
    uint32_t lines_committed, lines_started, lines_consumed;
    uint64_t flight[UM_BOARD_FLIGHTS]; /* the DMA of record n is at n modulo UM_BOARD_FLIGHTS */
    struct um_board_reach *flight_by[UM_BOARD_FLIGHTS];
    uint32_t asked_for, allowed; /* below UM_BOARD_EAGER: records that the receiver was asked for, that it allowed */
    bool more;                   /* the next commit comes soon: do not wait for DMAs under way */
    uint32_t committed_seen;     /* committed at the last poll */
    struct um_answer answers[UM_ANSWERS];
    uint32_t answers_in, answers_out, answers_told; /* received; reaped; reaped, and the receiver was told */
    bool held;                                      /* the receiver wants no messages now */
    bool was_held;                                  /* a claim failed because of the hold */
    uint32_t consumed_seen;                         /* what lane_consumed() returned last */
};

struct um_board_rx {
    struct um_rx base;
    struct um_board_port *port;
    struct unimem_mailbox_address peer; /* the sender's port */
    uint32_t number, lane;              /* lane: the sender's number for it */
    unsigned char *ring;                /* NULL: the lane will be denied */
    bool granted;                       /* GRANT was sent */
    bool joined_told;                   /* UM_REC_JOINED was released */
    bool gone;                          /* the sender was found gone: what it sent before may still come */
    bool closed;                        /* CLOSE came, or the sender is gone: nothing more comes */
    bool left_told;                     /* UM_REC_LEFT was released: the rx only waits for CLOSE */
    bool refused, end_told;             /* ENDED is to be sent; ENDED was sent, or the sender is gone */
    int error;                          /* the errno for UM_REC_LEFT */
    uint32_t arrived, released, lines_released;
    unsigned char *scratch;      /* for a body copied out of the ring */
    uint32_t copied;             /* number of the record whose body is in scratch, counted from 1 */
    uint32_t ask_seen, ask_told; /* records that the sender asked to write, that it was told to write */
    uint32_t embeds_in, embeds_out;
    _Alignas(8) struct um_board_record_wire embed[UM_BOARD_EMBEDS]; /* len: the record's number; body: its len */
    uint32_t credit_due, credit_told; /* released records: the sender should be told, was told */
    struct um_answer answers[UM_ANSWERS];
    uint32_t answers_in, answers_out, answers_taken; /* given, sent, known to be taken */
    bool crowded;                                    /* an answer found no place */
    bool held, held_told;                            /* the sender is to send no messages; it was told so */
};

struct um_board_space {
    struct um_space base;
    struct um_owner_counts counts;
    bool holds; /* it is a user of the process's context */
    struct um_board_entry_wire *table;
    uint64_t buckets, count;
    uint64_t changes;
};

struct um_board_seek {
    struct um_board_port *port; /* NULL: the port was closed */
    struct unimem_mailbox_address peer;
    struct um_board_notice_wire *notice;
    uint32_t place; /* index of the notice in its area */
    uint32_t view;  /* what SHOWN said: the peer's number of the view, UM_BOARD_NO_SPACE or UM_BOARD_NO_ROOM */
    /* SEEK was sent; SHOWN came; the link closed it; UNSEEK was sent, or is not needed */
    bool asked, shown, closed, withdrawn;
};

/* The memory of one memory_alloc() call. */
struct um_board_arena {
    struct um_list link;
    struct um_board_space *space;
    unsigned char *base;
    size_t len;
    uint32_t slot;    /* index in the directory; UM_BOARD_ARENAS_MAX: not listed */
    uint32_t regions; /* number of regions that lie in it */
};

/* ---- address.c ---- */

/* Converts the address of a mailbox into that of a port, and back. */
struct um_addr um_board_addr(const struct unimem_mailbox_address *address);
struct unimem_mailbox_address um_board_mailbox(const struct um_addr *addr);
void um_board_port_addr(const struct um_port *port, struct um_addr *addr_p);
int um_board_addr_check(const struct um_port *port, const struct um_addr *addr, bool is_last);

/* ---- slots.c ---- */

struct um_board_port *um_board_ports(void);
void um_board_ports_add(struct um_board_port *port);
void um_board_ports_remove(struct um_board_port *port);

/* Lanes and rx have numbers, which are not reused soon. NULL: no slot or no memory (new), no such number (of). */
struct um_board_lane *um_board_lane_new(const struct um_machine *machine);
struct um_board_lane *um_board_lane_of(uint32_t number);
void um_board_lane_delete(struct um_board_lane *lane);
struct um_board_rx *um_board_rx_new(const struct um_machine *machine);
struct um_board_rx *um_board_rx_of(uint32_t number);
void um_board_rx_delete(struct um_board_rx *rx);
/* Return the one after it; after NULL: the first one. */
struct um_board_lane *um_board_lane_next(const struct um_board_lane *lane);
struct um_board_rx *um_board_rx_next(const struct um_board_rx *rx);
/* For a forked child: forgets all of it, which belongs to the parent. */
void um_board_slots_forget(void);

/* ---- memory.c: dmable memory ---- */

/* Allocates a piece for the application. The errors of memory_alloc(). */
int um_board_arena_add(struct um_board_space *space, size_t len, struct um_board_arena **arena_p);
/* Removes a piece whose memory was freed. */
void um_board_arena_remove(struct um_board_arena *arena);
/* Removes all pieces of a space and frees their memory. */
void um_board_arenas_end(struct um_board_space *space);
/* Returns the piece of that space that begins there; NULL: none. */
struct um_board_arena *um_board_arena_at(const struct um_board_space *space, const void *memory);
/* Returns the piece that contains all of this memory; NULL: none. */
struct um_board_arena *um_board_arena_of(const void *memory, size_t len);
/* Tells that a region in the piece has ended. */
void um_board_arena_region_end(struct um_board_arena *arena);
/* Returns the address of the directory, and its version; version 0: there is no directory. */
uint64_t um_board_directory(uint32_t *version_p);
/* For a forked child: forgets the pieces, which belong to the parent. */
void um_board_arenas_forget(void);

/* A ring of UM_BOARD_RING bytes; put() keeps it for the next get(). lost: a peer may still write it, so it is freed. */
unsigned char *um_board_ring_get(void);
void um_board_ring_put(unsigned char *memory, bool lost);

/* Dmable memory for DMAs of the machine itself. No part is in use between two calls. get() returns NULL if there is
 * none. */
enum { UM_BOARD_BOUNCES = 4, UM_BOARD_BOUNCE = 1 << 18, UM_BOARD_SCRATCH = 1 << 12 };
struct um_board_scratch {
    unsigned char notice[64];
    _Alignas(64) unsigned char small[UM_BOARD_SCRATCH];
    _Alignas(64) unsigned char directory[UM_BOARD_DIRECTORY];
    _Alignas(4096) unsigned char bounce[UM_BOARD_BOUNCES][UM_BOARD_BOUNCE];
};
struct um_board_scratch *um_board_scratch_get(void);
/* Forgets directory, rings and scratch, after the context was closed. */
void um_board_memory_forget(void);

/* ---- dma.c ---- */

static inline uint32_t um_board_lines(uint32_t body_len)
{
    return 1 + (body_len + UM_BOARD_LINE - 1) / UM_BOARD_LINE;
}

/* Returns where the record that begins with this line lies in staging memory. */
static inline struct um_board_record_wire *um_board_lane_staged(const struct um_board_lane *lane, uint32_t line)
{
    return (void *)(lane->staging + (size_t)(line % UM_BOARD_LINES) * UM_BOARD_LINE);
}

/* As um_board_reach_try(), but waits for the DMAs of lanes if it needs their place. */
int um_board_reach_get(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p);
/* Does one DMA and waits for its end. 0; -EAGAIN; -ENXIO, -EFAULT: the memory is gone, and the registration has become
 * stale; -EIO. */
int um_board_dma_now(const struct um_board_transfer *what);

/* Returns the registration of the receiver's ring, made if needed. NULL: there is no place for it now, or the lane has
 * ended. */
struct um_board_reach *um_board_lane_register(struct um_board_lane *lane);
/* Ends that registration, if there is one. */
void um_board_lane_forget_ring(const struct um_board_lane *lane);
/* Begins the DMA of the next record. False: not possible now, or the lane has ended. */
bool um_board_lane_start(struct um_board_lane *lane);
/* Ends the DMA of the oldest record if it is done. True if it was done. */
bool um_board_lane_land(struct um_board_lane *lane);
/* Wait for the DMAs of one lane, of all lanes: for the engine, not for a peer. */
void um_board_lane_settle(struct um_board_lane *lane);
void um_board_lanes_settle(void);

/* ---- others.c: other contexts ---- */

/* Returns a registration that covers this memory of a peer; registers a piece of the peer's directory if needed.
 * -EPERM: the memory lies in no piece. */
int um_board_reach_peer(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p);
/* Tells where a context has its directory, and its version. */
void um_board_reach_told(uint32_t node, uint32_t number, uint64_t directory, uint32_t version);
/* Lets the directory of a context be read again: the copy may be outdated. */
void um_board_reach_doubt(uint32_t node, uint32_t number);
/* Forgets the directory of a context that has ended. */
void um_board_directory_forget(uint32_t node, uint32_t number);
/* Forgets all other contexts, after this process's context was closed. */
void um_board_others_forget(void);

/* ---- lane.c ---- */

/* Sends what is to be told. True if a message was sent or a DMA begun. May free the lane. */
bool um_board_lane_push(struct um_board_lane *lane);
/* True if the lane has something to tell that is not sent yet. */
bool um_board_lane_holds_back(const struct um_board_lane *lane);
/* True if a quarter of the places for answers was reaped since the receiver was told last: it is told by quarters. */
bool um_board_lane_taken_is_due(const struct um_board_lane *lane);
void um_board_lane_take(struct um_board_port *port, const struct um_board_message_wire *message);
void um_board_lane_free(struct um_board_lane *lane);
/* Looks whether the peer that was asked for the lane is still there. */
void um_board_lane_probe(struct um_board_lane *lane, uint64_t now);

/* ---- rx.c ---- */

bool um_board_rx_push(struct um_board_rx *rx);
bool um_board_rx_holds_back(const struct um_board_rx *rx);
void um_board_rx_join(struct um_board_port *port, const struct um_board_message_wire *message);
void um_board_rx_take(struct um_board_port *port, const struct um_board_message_wire *message);
void um_board_rx_embedded(struct um_board_port *port, const struct um_board_embedded_wire *message);
/* Ends an rx with that error, because its sender broke the format. */
void um_board_rx_fail(struct um_board_rx *rx, int error);
/* Makes the credit of all rx of the port due. */
void um_board_credit_due(struct um_board_port *port);
void um_board_rx_free(struct um_board_rx *rx);

/* ---- view.c: peers that look at a space ---- */

void um_board_view_seek(struct um_board_port *port, const struct um_board_seek_wire *message);
void um_board_view_take(struct um_board_port *port, const struct um_board_message_wire *message);
/* Writes the notices of all peers that look at the space (port not NULL: through that port only). The peers can see
 * them when this returns. */
void um_board_views_tell(const struct um_board_space *space, const struct um_board_port *port);
/* Writes the notices of all peers that look through the port for the last time, and ends their views. */
void um_board_views_end(const struct um_board_port *port);
/* Ends the views of a context that has ended. */
void um_board_views_gone(uint32_t node, uint32_t context);
bool um_board_views_push(void);
bool um_board_views_hold_back(const struct um_board_port *port);
void um_board_views_forget(void);

/* ---- seek.c: asking to look at the spaces of others ---- */

/* Begins a seek. NULL: no memory, or no line is free. */
struct um_board_seek *um_board_seek_new(const struct um_board_link *link);
void um_board_seek_close(struct um_board_seek *seek);
void um_board_seek_take(struct um_board_port *port, const struct um_board_message_wire *message);
bool um_board_seeks_push(void);
bool um_board_seeks_hold_back(const struct um_board_port *port);
/* Ends the seeks of a port that is closed. */
void um_board_seeks_end(const struct um_board_port *port);
void um_board_seeks_forget(void);

/* ---- drive.c ---- */

/* Runs the driver: takes and sends messages until nothing moves any more. */
void um_board_drive(void);
/* True if a full mailbox holds back a message of this port, or of a port that was closed. */
bool um_board_holds_back(const struct um_board_port *port);

/* ---- context.c ---- */

/* Returns 0 if there is a library, else an errno; the reason was logged. */
int um_board_probe(void);
/* Add and remove a user of the context, which is opened with its first user and closed with its last. */
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
/* True if there is news of a watched lane. */
bool um_board_lanes_news(const struct um_board_port *port);

int um_board_claim(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
int um_board_claim_message(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
void um_board_commit(struct um_lane *base, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len);
void um_board_abort(struct um_lane *base, const struct um_slot *slot);

/* ---- poll.c ---- */

int um_board_poll(struct um_port *base, struct um_record *rec_p);
/* The same, with the lock held. */
int um_board_poll_now(struct um_board_port *port, struct um_record *rec_p);
void um_board_release(struct um_port *base, const struct um_record *rec);
int um_board_answer(struct um_rx *base, uint32_t token, int32_t status);
void um_board_rx_hold(struct um_rx *base, bool on);
bool um_board_gather(struct um_port *base);
/* True if a sender has made room for an answer that found no place before. */
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
