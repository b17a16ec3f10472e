/*
 * Private structures of the mapped-memory machine: port, link, lane, rx, space, window.
 *
 * Owns: this process's side of what layout.h describes. Must not know where memory comes from (mapper.h) nor what a
 * record means. Threading: one port's structures are serialised by the caller (machine.h).
 */
#ifndef UM_MACHINE_MEM_MEM_H
#define UM_MACHINE_MEM_MEM_H

#include "base/atomic.h"
#include "base/list.h"
#include "machine/mem/gate.h"
#include "machine/mem/layout.h"
#include "machine/mem/mapper.h"
#include "machine/mem/stores.h"

#include <pthread.h>
#include <sys/types.h>

/* A lane's rings at one size. */
struct um_mem_ring {
    struct um_mem_record_shm *records;
    unsigned char *bytes;
    uint32_t record_count;  /* power of two */
    uint32_t byte_count;    /* power of two */
    uint32_t publish_bytes; /* bytes consumed after which the receiver publishes its credit */
    uint32_t body_max;
};

struct um_mem_port {
    struct um_port port;
    const struct um_mem_mapper *mapper;
    void *mapper_state;
    struct um_port_config config;
    struct um_mem_space *space; /* or NULL */
    struct um_addr addr;
    unsigned char *memory; /* um_mem_port_memory_size(lanes) bytes */
    void *coherent;        /* as um_mem_mapping.coherent */
    uint32_t wake;         /* this and nonce_at: as in um_mem_port_shm */
    uint64_t nonce_at;
    struct um_mem_port_shm *shm;
    struct um_mem_common_shm *common;
    uint32_t lanes;         /* private copy: the word in shared memory is for peers only */
    uint32_t wide_max;      /* likewise */
    struct um_mem_rx **rx;  /* by lane number; NULL where no sender is known */
    struct um_mem_rx **hot; /* rx that are polled */
    uint32_t hot_count;
    uint32_t hot_next;
    uint32_t burst; /* records taken in a row from hot[hot_next] */
    uint32_t empty_polls;
    struct um_mem_lane
        *long_lane;        /* to which the last long message went, alone, until all lines of the next are fetched */
    bool long_bypasses;    /* a body of that message took non-temporal stores */
    uint32_t long_len;     /* bytes of that message: its bodies while um_slot.more is set, and the one after */
    uint32_t long_part;    /* bytes of its last body */
    int32_t vain_left;     /* looks in vain at polled lanes before hot_sweep() searches for idle ones */
    struct um_list events; /* rx with an event to report */
    struct um_list lanes_watched;
    struct um_list rx_crowded; /* um_mem_rx.crowded */
    int wait_read, wait_write; /* the wake-up pipe */
    int wait_set;              /* an epoll set: wait_read and all else that ends a sleep; -1: only wait_read does */
    uint32_t lanes_high;       /* lanes at and above this number were never claimed, as far as known */
    bool fence;                /* no membarrier here, or memory is not coherent: each commit and answer fences */
    uint32_t tick_next;
    uint64_t tick_at;          /* ns; time of the last tick */
    uint32_t sleeps;           /* the odd value that was last written to common->sleeping */
    struct um_list of_process; /* all ports of this process */
    struct um_mem_gated gated;
};

/* A cell, as this process sees it (cell.c). */
struct um_mem_cell {
    unsigned char *at; /* UM_CELL_BYTES; NULL: there is none */
    uint8_t here;      /* bit n: this process writes into block n next */
    uint8_t last;      /* the block that came from the peer last */
};

struct um_mem_link {
    struct um_link base;
    struct um_mem_port *port;
    struct um_addr addr;
    struct um_mem_mapping control;    /* the peer's um_mem_port_shm and control blocks; mapped when first needed */
    struct um_mem_common_shm *common; /* of that port */
    struct um_mem_mapping space;      /* the peer's um_mem_space_shm and regions, likewise */
    struct um_mem_frames *frames;     /* of the peer's shareable memory; made when first needed */
    uint32_t lanes;                   /* of the peer, as checked: the peer may change its own word */
    uint64_t nonce_at;                /* likewise */
    uint64_t proven_at;               /* struct um_mem_copy_peer */
    int wake_handle;
    struct um_mem_mark mark;
    bool is_apart;            /* mapper.h */
    bool full_logged;         /* it was logged that the peer has no free lane */
    bool frames_end;          /* a frame could not be mapped: no further one is tried */
    struct um_mem_lane *lane; /* both lanes between this port and the peer, if they are open */
    struct um_mem_rx *rx;
    struct um_mem_cell kept; /* the lane's cell, if the peer had a block of it when the lane was closed */
    struct um_mem_mapping kept_map;
};

struct um_mem_lane {
    struct um_lane base;
    struct um_mem_record_shm *next; /* where the next record goes */
    struct um_mem_lane_shm *ctl;
    uint32_t head;       /* records committed */
    uint32_t bytes_head; /* body bytes committed, including those skipped at the end of the ring */
    uint32_t consumed;   /* records consumed, as last known */
    uint32_t bytes_consumed;
    uint32_t incarnation;
    uint32_t claim_bytes_end; /* bytes_head after the commit of the present claim */
    uint32_t polls;           /* the port's empty_polls at the last commit */
    bool has_streamed;   /* since the last look for credit that counted (wide_reasons), a record followed another one
                          * without an empty poll in between */
    uint32_t long_polls; /* the same at the last commit of a long body */
    bool long_goes_on;   /* um_slot.more was set then */
    struct um_mem_ring ring;
    bool grown;
    bool grow_denied;
    bool widen_tried;
    bool is_fresh; /* a part of its wide ring was never touched */
    bool fence;    /* um_mem_port.fence of this port, or the peer's want_fence */
    struct um_mem_link *link;
    struct um_mem_port_shm *peer;
    unsigned char *area;
    struct um_mem_mapping area_map;
    struct um_mem_mapping wide_map; /* its wide ring, if it has one */
    uint32_t touched_to, fresh_to;  /* as bytes_head: the ends of what was touched, and of the ring's first round */
    uint32_t wide_reasons;          /* counted since the lane grew: lane_count_reason() */
    uint32_t number;                /* of the lane in the peer's port */
    uint32_t answers_seen, answers_told; /* answers taken; how many of them the peer was told of */
    bool was_held;                       /* a claim failed because the peer holds the lane */
    uint32_t consumed_reported;          /* what lane_consumed() said last */
    struct um_list watched;
    struct um_mem_stores stores;      /* of bodies in the ring */
    struct um_mem_stores cell_stores; /* of bodies that a cell may take */
    struct um_mem_stores *timed;      /* of the present claim with a long body: the one that it is timed for, or NULL */
    uint32_t fetched_from, fetched_len; /* the place whose lines were fetched, as bytes_head */
    bool has_choice;                    /* of stores; false if memory is not coherent, or there is only one kind */
    struct um_mem_cell cell;            /* of its wide ring */
    struct um_mem_cell *claimed;        /* of the present claim with a long body: the cell that it lies in, or NULL */
    struct um_mem_cell *writes;         /* the cell that its last body went into, if more may follow there */
    uint32_t promised_from;             /* head before the records that lane_has_room() gave room for last, */
    uint32_t promised_to;               /* and when all of them are committed */
    uint32_t promised_len;              /* the longest body of these */
    uint32_t cell_used;                 /* bytes of that block */
    uint32_t cell_head;                 /* head when a body went into a cell last */
    uint8_t block;                      /* of `writes`, or else of `claimed` */
    bool exchanges;                     /* long bodies go both ways, and a block is here, as far as known */
    bool goes_front;      /* the present claim with a long body lies at the front of the ring: UM_FLAG_FRONT */
    bool is_lone;         /* the present claim with a long body belongs to a lone message for which there was a cell */
    bool lone_goes_on;    /* so did the last one, and more of that message follows */
    bool lone_bypasses;   /* that message takes non-temporal stores */
    bool cell_came_last;  /* its own cell came back after the other one came */
    uint64_t write_began; /* ticks; when the body that is being written was claimed, if it is timed */
};

enum um_mem_rx_state { UM_RX_JOINING, UM_RX_LIVE, UM_RX_LEAVING, UM_RX_ZOMBIE };

struct um_mem_rx {
    struct um_rx base;
    struct um_mem_record_shm *next; /* where the next record is expected */
    uint32_t head;                  /* records consumed */
    uint32_t bytes_head;            /* body bytes consumed */
    uint32_t published;             /* head and bytes_head as the sender knows them */
    uint32_t bytes_published;
    uint32_t idle;     /* empty polls in a row */
    uint32_t idle_due; /* the value of idle at which the next empty poll does more than count */
    uint32_t hot_index;
    bool is_hot;
    bool grown;
    unsigned char *wide; /* its wide ring; NULL: it has none */
    bool expects_body;   /* the last body was short: a prefetch of the next one's lines is worth while */
    enum um_mem_rx_state state;
    int error; /* positive errno of its end; 0: an orderly one */
    struct um_mem_lane_shm *ctl;
    const unsigned char *body_next; /* lines to prefetch: those of the next short body, or the ring's first records */
    struct um_mem_ring ring;
    struct um_mem_port *port;
    uint32_t number;
    uint32_t answers;
    bool held;              /* the sender is asked to send no messages */
    bool wants_announced;   /* the sender is asked to announce messages of several records */
    struct um_list crowded; /* in rx_crowded: the last answer to an unbounded token found no place */
    uint32_t record_end;    /* bytes_head after the record on offer is released */
    uint32_t front_at;      /* the same for the last one that went to the begin of a wide ring though there was room */
    uint64_t offered_at;    /* ticks; when the record on offer was last offered, if it is timed */
    struct um_mem_loads loads;
    struct um_mem_cell cell;    /* of its wide ring */
    struct um_mem_link *link;   /* to its peer; NULL: not known */
    struct um_mem_cell *reads;  /* the cell that the last body was in, if more may follow there */
    uint32_t cell_at, cell_len; /* where that body is in the block, bytes */
    uint32_t cell_record;       /* head when it was offered */
    uint8_t block;              /* of `reads` */
    struct um_addr origin;
    struct um_mem_mark mark;
    int wake_handle;
    struct um_list event;
};

enum { UM_IDLE_EXPECT = 4 }; /* empty polls before the next body is prefetched: then no stream is under way */

static inline void um_mem_rx_not_idle(struct um_mem_rx *rx)
{
    rx->idle_due = UM_IDLE_EXPECT;
    rx->idle = 0;
}

/* The cost of moving memory for registrations that ended soon: budget.c. */
struct um_mem_budget {
    uint64_t debt_ns;
    uint64_t at_ns;             /* the time at which debt_ns was computed */
    uint64_t cost_ns, cost_len; /* of the last registration that was not worth moving */
    struct um_list waiting;     /* um_mem_exported that may be worth moving later; looked at in turn */
};

/* Regions that become mapped when peers make enough use of them, and the thread that does it: deferred.c. */
struct um_mem_deferred {
    pthread_mutex_t lock; /* guards the table's entries, too: um_mem_region_write() */
    pthread_cond_t idle;  /* a part has moved */
    struct um_list regions;
    pthread_t thread;
    pid_t pid; /* the process that has the thread (a forked child has none); 0: there is no thread */
    bool stop;
    uint32_t next; /* the next use number, modulo UM_USES */
};

struct um_mem_space {
    struct um_space base;
    const struct um_mem_mapper *mapper;
    void *mapper_state;
    unsigned char *memory; /* UM_SPACE_SIZE bytes */
    struct um_mem_space_shm *shm;
    uint32_t handle; /* what peers need to map it */
    uint64_t nonce;
    bool adopt;
    uint64_t counters_used[UM_COUNTERS / 64]; /* bit n % 64 of word n / 64; counter 0 is none */
    uint64_t changes;                         /* what was last written to shm->changes; even */
    struct um_mem_exported *
        *place[UM_SEGMENTS];   /* the region in each entry of the table; a segment is allocated when first used */
    struct um_list of_process; /* all spaces of this process */
    uint16_t births;
    struct um_mem_budget budget;
    struct um_mem_deferred deferred;
};

struct um_mem_exported {
    struct um_exported base;
    struct um_mem_region_shm *region; /* NULL: there was no place in the table */
    struct um_mem_exported **place;   /* its slot in um_mem_space.place */
    struct um_region_desc what;       /* private copy: the entry in shared memory is for peers only */
    uint32_t level;                   /* enum um_level; changes under the lock of the process (own.c) */
    struct um_mem_place at;           /* level mapped */
    bool adopted, shared;
    uint64_t since_ns, cost_ns; /* when it was exported, and what moving its memory took */
    struct um_list waiting;     /* in um_mem_budget.waiting */
    struct um_list deferred;    /* in um_mem_deferred.regions; the lock there guards the members below */
    struct um_mem_partial partial;
    bool is_deferred, moving; /* moving: a part is being moved, without the lock */
    uint16_t birth;           /* which of the space's registrations it is, modulo 2^16 */
    uint32_t use, tries;      /* its use number; how often a part was busy (-EBUSY) */
    uint64_t use_from, needs; /* ns; the sum of its use number at first; by how much it must grow (0: unknown) */
};

/* The most mappings that the windows of a process have: far below vm.max_map_count (65530), which is the program's.
 * Further windows are at level copy. */
enum { UM_WINDOW_MAPPINGS = 1 << 14 };

struct um_mem_window {
    struct um_window window;
    struct um_mem_link *link;
    struct um_mem_mapping map; /* the mapping that window.base points into; map.base NULL: there is none */
};

/*
 * The adoption budget (budget.c). allows: may memory be moved for a new registration now? ended: a registration whose
 * memory was moved has ended. ripe: takes out a waiting registration that has lived long enough to be worth moving, or
 * NULL.
 */
void um_mem_budget_init(struct um_mem_budget *budget, uint64_t now_ns);
bool um_mem_budget_allows(struct um_mem_budget *budget, uint64_t now_ns);
void um_mem_budget_ended(struct um_mem_budget *budget, const struct um_mem_exported *exported, uint64_t end_ns,
                         uint64_t cost_ns);
struct um_mem_exported *um_mem_budget_ripe(struct um_mem_budget *budget, uint64_t now_ns);

/* ---- deferred.c: regions that are adopted after peers have used them enough ---- */
/* Begin and end space->deferred. fini ends the thread. */
void um_mem_deferred_init(struct um_mem_space *space);
void um_mem_deferred_fini(struct um_mem_space *space);
/* True if the region begins at level copy and is adopted later: it has a use number then, and there is a thread. */
bool um_mem_deferred_take(struct um_mem_space *space, struct um_mem_exported *exported);
/* Adds the region, whose entry is in the table now, to those that the thread looks at, if it is deferred. The caller
 * has the lock of space->deferred. */
void um_mem_deferred_begin(struct um_mem_space *space, struct um_mem_exported *exported);
/* Takes the region from the thread: after the return no part of it moves any more. */
void um_mem_deferred_end(struct um_mem_space *space, struct um_mem_exported *exported);
/* Moves back the parts of a region of which only some have moved. */
void um_mem_deferred_give_back(struct um_mem_space *space, struct um_mem_exported *exported);
/* Ends the thread until um_mem_deferred_resume(). False: there is none. */
bool um_mem_deferred_pause(struct um_mem_space *space);
/* Starts the thread again, if a region waits for it. */
void um_mem_deferred_resume(struct um_mem_space *space);

/* Writes the table's entry of a region, or empties it. The caller has the lock of space->deferred. */
void um_mem_region_write(struct um_mem_space *space, const struct um_mem_exported *exported, bool is_there);
/* The same; takes the lock. */
void um_mem_region_show(struct um_mem_space *space, const struct um_mem_exported *exported, bool is_there);
void um_mem_exported_log(const struct um_mem_exported *exported, const char *why);

/* Opens a space over a mapper; the machines' space_open is a call of this. */
int um_mem_space_open(const struct um_machine *machine, const struct um_mem_mapper *mapper,
                      const struct um_space_config *config, struct um_space **space_p);

/* Opens or closes a port over a mapper; the machines' port_open is a call of this. */
int um_mem_port_open(const struct um_machine *machine, const struct um_mem_mapper *mapper,
                     const struct um_port_config *config, struct um_port **port_p);
void um_mem_port_close(struct um_port *base);

enum { UM_FRAME_SHIFT = 28 /* log2 of the bytes of a frame */ };

/* Mapped frames of a peer's shareable memory (frames.c). find: NULL if that frame is not mapped. populate: the frame is
 * mapped, and these bytes of it, at least one, are stored to next. add takes over the mapping; -ENOMEM, -ENOSPC. */
unsigned char *um_mem_frames_find(const struct um_mem_frames *f, uint64_t number);
void um_mem_frames_populate(const struct um_mem_frames *f, uint64_t number, size_t offset, size_t len);
int um_mem_frames_add(struct um_mem_frames **frames_p, uint64_t number, const struct um_mem_mapping *map);
void um_mem_frames_close(struct um_mem_frames *f, const struct um_mem_mapper *mapper);

/* The functions that every machine of mapped memory has in its table. */
void um_mem_port_addr(const struct um_port *base, struct um_addr *addr_p);
int um_mem_addr_check(const struct um_port *base, const struct um_addr *addr, bool is_last);
int um_mem_link_open(struct um_port *base, const struct um_addr *addr, struct um_link **link_p);
void um_mem_link_close(struct um_link *base);
bool um_mem_link_alive(struct um_link *base);
int um_mem_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p);
void um_mem_space_close(struct um_space *base);
bool um_mem_is_shareable(struct um_space *base, const void *memory, size_t len);
void *um_mem_peer_memory(struct um_link *base, uint64_t addr, bool is_stored, size_t *len_p);
int um_mem_export(struct um_space *base, const struct um_region_desc *what, struct um_exported **exported_p);
void um_mem_unexport(struct um_space *space_base, struct um_exported *exported_base);
enum um_level um_mem_exported_level(const struct um_exported *base);
int um_mem_window_open(struct um_link *base, uint64_t key, struct um_window **window_p);
void um_mem_window_close(struct um_window *window);
void um_mem_window_count(struct um_window *window, unsigned shift);
void um_mem_window_use(struct um_window *window, uint64_t saved_ns);
int um_mem_counter_open(struct um_space *base, uint32_t *number_p, const uint64_t **value_p);
void um_mem_counter_close(struct um_space *base, uint32_t number);
void um_mem_exported_set_counters(struct um_space *space_base, struct um_exported *exported_base, uint32_t counters);
void um_mem_port_set_counters(struct um_port *base, uint32_t counters);
void um_mem_space_count(struct um_space *base, uint32_t counters, unsigned shift);
struct um_locks_shm *um_mem_space_locks(struct um_space *base);
int um_mem_lane_open(struct um_link *base, struct um_lane **lane_p);
void um_mem_lane_close(struct um_lane *base);
int um_mem_claim(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
int um_mem_claim_message(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
void um_mem_commit(struct um_lane *base, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len);
void um_mem_abort(struct um_lane *base, const struct um_slot *slot);
uint32_t um_mem_lane_body_max(struct um_lane *base, uint32_t wanted);
uint32_t um_mem_lane_part_max(struct um_lane *base, bool goes_on);
bool um_mem_lane_has_room(struct um_lane *base, uint32_t records, uint32_t body_len);
uint32_t um_mem_lane_committed(const struct um_lane *base);
uint32_t um_mem_lane_consumed(const struct um_lane *base);
int um_mem_lane_reap(struct um_lane *base, struct um_answer *answers, int max);
void um_mem_lane_watch(struct um_lane *base, bool on);
struct um_progress_words *um_mem_lane_progress(struct um_lane *base);
struct um_progress_words *um_mem_rx_progress(struct um_rx *base);
bool um_mem_rx_is_closing(struct um_rx *base);
int um_mem_poll(struct um_port *base, struct um_record *rec_p);
/* Forms of these operations for memory that is not coherent: they observe what the plain forms look at. */
int um_mem_claim_observed(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
int um_mem_claim_message_observed(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
uint32_t um_mem_lane_consumed_observed(const struct um_lane *base);
int um_mem_lane_reap_observed(struct um_lane *base, struct um_answer *answers, int max);
int um_mem_poll_observed(struct um_port *base, struct um_record *rec_p);
bool um_mem_gather(struct um_port *base);
void um_mem_release(struct um_port *base, const struct um_record *rec);
int um_mem_answer(struct um_rx *base, uint32_t token, int32_t status);
void um_mem_rx_hold(struct um_rx *base, bool on);
void um_mem_rx_announce(struct um_rx *base, bool on);
/* True if an answer to an unbounded token has a place: the sender has taken enough earlier ones. */
bool um_mem_rx_has_room(const struct um_mem_rx *rx);
void um_mem_rx_refuse(struct um_rx *base);
void um_mem_rx_origin(const struct um_rx *base, struct um_addr *addr_p);
int um_mem_wait_fd(const struct um_port *base);
int um_mem_arm(struct um_port *base);
void um_mem_disarm(struct um_port *base);
void um_mem_kick(struct um_port *base);
int um_mem_watch_line(const struct um_port *base, const uint64_t **line_p, uint64_t *value_p);
void um_mem_tick(struct um_port *base);

/* Between the files of mem/. */
void um_mem_lane_ring_bell(struct um_mem_lane *lane);
void um_mem_ring_set(struct um_mem_ring *ring, unsigned char *area, bool grown);
/* ---- lane_room.c ---- */
/* Reads the credit of records and bodies again. False: the peer wrote an impossible value. */
bool um_mem_lane_refresh_credit(struct um_mem_lane *lane);
/* Bytes of a wide ring that are its front. */
uint32_t um_mem_lane_front_bytes(void);
/* Would so many bytes from there on leave the front, and is there room for them, and more, at its begin? */
bool um_mem_lane_is_to_go_front(struct um_mem_lane *lane, uint32_t start, uint32_t bytes);
/* If that is so, moves a claim with a long body there. The slot's body is its place in the ring, which begins at start.
 */
void um_mem_lane_claim_in_front(struct um_mem_lane *lane, uint32_t start, struct um_slot *slot);
/* Returns the bytes of the longest body that the next claim may ask for, if that is more than the ring's body_max; else
 * that much or less. */
uint32_t um_mem_lane_long_max(const struct um_mem_lane *lane, bool goes_on);
/* ---- lane_long.c ---- */
/* Chooses which stores write a claimed body of UM_NONTEMPORAL_MIN bytes or more, and whether it goes into the cell, if
 * there is one for it. The slot's body is its place in the ring, which begins at start. */
void um_mem_lane_long_claim(struct um_mem_lane *lane, struct um_mem_cell *cell, uint32_t start, struct um_slot *slot);
/* That body is about to be committed. Returns flags of its record, the record's len << 8, and bits of its op << 24. */
uint32_t um_mem_lane_long_commit(struct um_mem_lane *lane, const struct um_slot *slot);
/* Fetches lines of the next long message of the port, for writing. Returns whether there are more of them. */
bool um_mem_lane_fetch_next(struct um_mem_port *port);
/* ---- cell.c ---- */
/* The lane, or the rx, has a wide ring now, and so a cell. */
void um_mem_lane_cell_begin(struct um_mem_lane *lane);
void um_mem_rx_cell_begin(struct um_mem_rx *rx);
/* The lane is about to close, the rx ends, the link is about to close. */
void um_mem_lane_cell_end(struct um_mem_lane *lane);
void um_mem_rx_cell_end(struct um_mem_rx *rx);
void um_mem_link_cell_end(struct um_mem_link *link);
void um_mem_link_joined(struct um_link *base, struct um_rx *rx_base);
/* Returns the cell of the block that the next body may go into, and notes the block: the one that came last from the
 * peer, if it is here, or another one. NULL: none is here; this is noted, too. */
struct um_mem_cell *um_mem_cell_pick(struct um_mem_lane *lane);
/* May a body of more than a record go into the block that is being written, or a new one? Only in streams both ways, if
 * its length is one of words. */
bool um_mem_cell_takes_long(const struct um_mem_lane *lane, uint32_t body_len);
/* Puts the body of a claim into that cell. */
void um_mem_cell_claim(struct um_mem_lane *lane, struct um_mem_cell *cell, struct um_slot *slot);
/* As um_mem_lane_long_commit(), for a body in a cell. */
uint32_t um_mem_cell_commit(struct um_mem_lane *lane, const struct um_slot *slot);
/* True if a record whose len has UM_LEN_CELL is valid as far as its first word tells. */
bool um_mem_cell_is_good(struct um_mem_rx *rx, uint8_t op, uint32_t len);
/* Returns the body of a good record. *len_p: in, the record's len; out, the body's. */
const void *um_mem_cell_offer(struct um_mem_rx *rx, uint8_t op, uint32_t *len_p);
/* That record is released. */
void um_mem_cell_release(struct um_mem_rx *rx, uint8_t flags);

/* From now on bodies go into the wide ring at bytes. */
void um_mem_ring_widen(struct um_mem_ring *ring, unsigned char *bytes);
bool um_mem_lane_take_share(struct um_mem_lane *lane);
/* Takes a wide ring for the lane and fills in wide_map. -ENOSPC: all are taken; -ECONNREFUSED: the peer is gone; the
 * errors of um_mem_mapper.attach. */
int um_mem_lane_take_wide(struct um_mem_lane *lane, uint32_t *ring_p);
/* Called once the lane's bodies go into its wide ring. */
void um_mem_lane_touch_begin(struct um_mem_lane *lane);
/*
 * Called with is_fresh set, before a long body is written into the ring. Touches what nobody has touched: all of it, or
 * a step of it for a lone body that could lie in a cell, and is sent to compare stores; returns whether it did. If
 * bodies touched their own pages, those of the first round would seem to take long when ways to move a body are
 * compared. Where all messages lie in cells, the ring takes no memory.
 */
bool um_mem_lane_touch(struct um_mem_lane *lane, uint32_t start, uint32_t body_len);
/* Called with is_fresh set, at least once in each round: nothing is touched after the first one. */
void um_mem_lane_touch_end(struct um_mem_lane *lane);
struct um_mem_lane_shm *um_mem_lane_ctl(void *control, uint32_t number);
/* The word that names the sender of a lane, in the coherent view of a port's memory. */
uint64_t *um_mem_lane_sender(void *coherent, uint32_t number);
/* Maps the control blocks of the link's peer, unless they are mapped already. The errors of lane_open. */
int um_mem_link_map_control(struct um_mem_link *link);
/* The same for the peer's space. -ENOENT: the peer has none. */
int um_mem_link_map_space(struct um_mem_link *link);
/* ---- own.c: what this process exports, in private memory ---- */
void um_mem_own_port_add(struct um_mem_port *port);
void um_mem_own_port_remove(struct um_mem_port *port);
void um_mem_own_space_add(struct um_mem_space *space);
void um_mem_own_space_remove(struct um_mem_space *space);
/* The handle of the space of a port of this process. -ENOENT: the port has none, or there is no such port. */
int um_mem_own_space_handle(const struct um_addr *addr, uint32_t *handle_p);
/* Sets place and region to a free place for what.key; if the table has none, they stay NULL. -ENOMEM. */
int um_mem_own_place(struct um_mem_space *space, struct um_mem_exported *exported);
/* list: from now on this process finds the region at this level, with these counters. unlist: it finds it no more. */
void um_mem_own_list(struct um_mem_exported *exported, enum um_level level, uint32_t counters);
void um_mem_own_unlist(struct um_mem_exported *exported);
/* Fills in w with the region of its key that the port at addr, of this process, exports; level remote: there is none.
 */
void um_mem_own_find(const struct um_addr *addr, struct um_window *w);
/* To be called before and after everything that moves pages of this process. */
void um_mem_own_move_begin(void);
void um_mem_own_move_end(void);

/* Adds 1 to the counter with that number in a space's memory; does nothing if there is no such counter. */
void um_mem_count(void *space_memory, uint32_t number);
/* Makes the wait fd of the port at addr readable. *handle: as wake_open() of the mapper gave it, -1 at first. False:
 * there is none, and it could not be opened. */
bool um_mem_wake(struct um_mem_port *port, const struct um_addr *addr, int *handle);
/* Wakes the link's peer if it sleeps. What the peer is to find must have been written before. */
void um_mem_link_wake(struct um_mem_link *link);
/* Takes the bells that rang: cold lanes become hot, new senders join. */
void um_mem_bells_collect(struct um_mem_port *port);
void um_mem_rx_set_hot(struct um_mem_rx *rx);
/* Makes the rx of a lane whose sender has introduced itself; does nothing if it has not. -ENOMEM. */
int um_mem_rx_join(struct um_mem_port *port, uint32_t number);
/* Stops polling the rx; the caller issues the barrier and then checks um_mem_rx_has_record(). */
void um_mem_rx_set_cold(struct um_mem_rx *rx);
bool um_mem_rx_has_record(const struct um_mem_rx *rx);
void um_mem_rx_publish(struct um_mem_rx *rx);
/* Makes what was just written into the receiver's line visible to the sender, and wakes the sender if it sleeps and
 * waits for that. */
void um_mem_rx_tell_sender(struct um_mem_rx *rx);
/* If the sender has closed its lane: lets the rx leave once its ring is empty, or frees the lane if its end was
 * reported. */
void um_mem_rx_check_closing(struct um_mem_rx *rx);
/* The sender's process is gone: ends the rx once all records that it committed are taken, or frees the lane if the end
 * was reported. */
void um_mem_rx_sender_died(struct um_mem_rx *rx);
/* offer: UM_REC_JOINED or UM_REC_LEFT of the first rx that has an event. release: that record is dealt with. */
int um_mem_event_offer(struct um_mem_port *port, struct um_record *rec_p);
void um_mem_event_release(struct um_mem_port *port, const struct um_record *rec);
/* Ends an rx: UM_REC_LEFT will be offered. */
void um_mem_rx_leave(struct um_mem_rx *rx, int error);
void um_mem_port_barrier(struct um_mem_port *port);
bool um_mem_lane_has_news(const struct um_mem_lane *lane);

/*
 * Publish what this process wrote, observe what a peer wrote, by whole lines; both do nothing on coherent memory.
 * Publish data before the word that tells of it: a body before its record, answers before their number. Observe a word
 * before each look at it, then the data that it tells of.
 */
static inline void um_mem_publish(struct um_mem_port *port, const void *at, size_t len)
{
    if (__builtin_expect(port->mapper->publish != NULL, 0))
        port->mapper->publish(port, at, len);
}

static inline void um_mem_observe(struct um_mem_port *port, const void *at, size_t len)
{
    if (__builtin_expect(port->mapper->observe != NULL, 0))
        port->mapper->observe(port, at, len);
}

/* The line of a control block that the sender writes, and the one that the receiver writes. */
static inline void um_mem_sender_publish(struct um_mem_port *port, const struct um_mem_lane_shm *ctl)
{
    um_mem_publish(port, &ctl->closing, UM_LINE);
}

static inline void um_mem_sender_observe(struct um_mem_port *port, const struct um_mem_lane_shm *ctl)
{
    um_mem_observe(port, &ctl->closing, UM_LINE);
}

static inline void um_mem_receiver_publish(struct um_mem_port *port, const struct um_mem_lane_shm *ctl)
{
    um_mem_publish(port, &ctl->credit, UM_LINE);
}

static inline void um_mem_receiver_observe(struct um_mem_port *port, const struct um_mem_lane_shm *ctl)
{
    um_mem_observe(port, &ctl->credit, UM_LINE);
}

/* Observes all that is not coherent of a port's first page. */
static inline void um_mem_page_observe(struct um_mem_port *port, const struct um_mem_port_shm *peer)
{
    um_mem_observe(port, peer, offsetof(struct um_mem_port_shm, common));
}

static inline void *um_mem_coherent(const struct um_mem_mapping *map)
{
    return map->coherent ? map->coherent : map->base;
}

static inline bool um_mem_is_own(const struct um_mem_link *link)
{
    const struct um_mem_mapper *mapper = link->port->mapper;
    return mapper->is_own && mapper->is_own(link->port, &link->addr);
}

/* The number that distinguishes this port from every other one, also from an earlier port of the same process. */
static inline uint64_t um_mem_nonce(const struct um_addr *addr)
{
    return addr->word[2];
}

/* True if this is the first word of the record with that number. The 0 of memory that was never written is no record,
 * whatever the number. */
static inline bool um_mem_is_record(uint64_t word, uint32_t number)
{
    return (uint32_t)word == number && word != 0;
}

/* Is the port gone, was the lane refused, or does it belong to another sender now? */
static inline bool um_mem_lane_is_ended(const struct um_mem_lane *lane)
{
    const uint32_t state = um_load_relaxed_u32(&lane->ctl->state);
    return (state & ~(uint32_t)UM_LANE_LIVE) != lane->incarnation << UM_LANE_INC_SHIFT;
}

/* True if an empty poll came after the last long body of the lane. */
static inline bool um_mem_lane_is_alone(const struct um_mem_lane *lane)
{
    return lane->long_polls != lane->link->port->empty_polls;
}

/* Records still to be claimed that lane_has_room() gave room for. */
static inline uint32_t um_mem_lane_promised(const struct um_mem_lane *lane)
{
    const uint32_t records = lane->promised_to - lane->head;
    return records <= UM_BIG_RECORDS ? records : 0;
}

/* Is the next record to be claimed the first of these? */
static inline bool um_mem_lane_begins_promised(const struct um_mem_lane *lane)
{
    return lane->head == lane->promised_from && um_mem_lane_promised(lane);
}

/* Is a block of a cell here? */
static inline bool um_mem_cell_is_here(const struct um_mem_lane *lane)
{
    const struct um_mem_rx *rx = lane->link->rx;
    return lane->cell.here || (rx && rx->cell.here);
}

/* Body bytes take whole pairs of lines. */
static inline uint32_t um_mem_body_space(uint32_t len)
{
    return (len + (UM_BODY_ALIGN - 1)) & ~(uint32_t)(UM_BODY_ALIGN - 1);
}

/* Where the ring begins again behind that position. */
static inline uint32_t um_mem_ring_next_round(const struct um_mem_ring *ring, uint32_t pos)
{
    return (pos | (ring->byte_count - 1)) + 1;
}

/* Where a body of len bytes begins when the ring's position is pos: a body never wraps. */
static inline uint32_t um_mem_body_start(const struct um_mem_ring *ring, uint32_t pos, uint32_t len)
{
    uint32_t offset = pos & (ring->byte_count - 1);
    return offset + len <= ring->byte_count ? pos : um_mem_ring_next_round(ring, pos);
}

/* True if the ring has room for a body that begins at start. */
static inline bool um_mem_lane_body_fits(const struct um_mem_lane *lane, uint32_t start, uint32_t body_len)
{
    return start + um_mem_body_space(body_len) - lane->bytes_consumed <= lane->ring.byte_count;
}

/*
 * All members except: name, about, params, addr_kind, probe; port_open and space_open, which name the mapper; claim,
 * claim_message, lane_consumed, lane_reap and poll, which have an observed form; lane_has_room, unexport and the three
 * of transfers, which a machine may wrap or lack; memory_alloc, memory_free, prefers_rndv, claim_lent, show, hide,
 * catch_up and transfers_whole, which memory that processors copy does not need; those of UM_MEM_WAKE_OPS.
 */
#define UM_MEM_MACHINE_OPS                                                                                             \
    .addr_first = 0, .addr_words = UM_ADDR_LOCAL_WORDS, .body_max = UM_BIG_BODY, .depth = UM_BIG_RECORDS,              \
    .shares_locks = true, .either_way = true, .unconsumed_max = UM_BIG_RECORDS,                                        \
    .unconsumed_bytes = UM_WIDE_BYTES + 2 * UM_CELL_BYTES + UM_ROOM_MAX, .link_joined = um_mem_link_joined,            \
    .port_close = um_mem_port_close, .port_addr = um_mem_port_addr, .addr_check = um_mem_addr_check,                   \
    .link_open = um_mem_link_open, .link_close = um_mem_link_close, .link_alive = um_mem_link_alive,                   \
    .space_close = um_mem_space_close, .is_shareable = um_mem_is_shareable, .peer_memory = um_mem_peer_memory,         \
    .lane_progress = um_mem_lane_progress, .rx_progress = um_mem_rx_progress, .rx_is_closing = um_mem_rx_is_closing,   \
    .export = um_mem_export, .exported_level = um_mem_exported_level, .window_open = um_mem_window_open,               \
    .window_close = um_mem_window_close, .window_count = um_mem_window_count, .window_use = um_mem_window_use,         \
    .counter_open = um_mem_counter_open, .counter_close = um_mem_counter_close,                                        \
    .exported_set_counters = um_mem_exported_set_counters, .port_set_counters = um_mem_port_set_counters,              \
    .space_count = um_mem_space_count, .space_locks = um_mem_space_locks, .lane_open = um_mem_lane_open,               \
    .lane_close = um_mem_lane_close, .commit = um_mem_commit, .abort = um_mem_abort, .rx_hold = um_mem_rx_hold,        \
    .rx_announce = um_mem_rx_announce, .lane_body_max = um_mem_lane_body_max, .lane_part_max = um_mem_lane_part_max,   \
    .lane_committed = um_mem_lane_committed, .lane_watch = um_mem_lane_watch, .gather = um_mem_gather,                 \
    .release = um_mem_release, .answer = um_mem_answer, .rx_refuse = um_mem_rx_refuse, .rx_origin = um_mem_rx_origin,  \
    .tick = um_mem_tick, .watch_line = um_mem_watch_line
/* The same for a machine whose peers can wake a sleeper. */
#define UM_MEM_WAKE_OPS                                                                                                \
    .wakes = true, .wait_fd = um_mem_wait_fd, .arm = um_mem_arm, .disarm = um_mem_disarm, .kick = um_mem_kick

#endif
