/*
 * How the bodies of a lane are written: with ordinary stores, with non-temporal ones, which bypass the caches, or with
 * ordinary ones into the front of its wide ring only.
 *
 * Where the sender's and the receiver's processor share a cache, ordinary stores take half the time: the receiver finds
 * the lines there. Where they do not, each line is fetched from the receiver's cache before it is written, and from the
 * sender's when it is read, and memory is the faster way for both. A wide ring is as long as two L2 caches or more. It
 * is the faster one while the last-level cache holds its lines. If that does not, every line comes from memory: after
 * the ring's first rounds, and where the program's buffers fill the cache. The front of the ring, a quarter of an L2
 * cache, stays near its processors then. A process cannot see any of that: a virtual machine does not tell where the
 * two are, and threads move. So it is measured. The sender times some of the copies into records. The receiver times
 * how long it takes to move the same bodies away, and stores that in the lane's control block. The kind with the
 * smaller sum is in use. From time to time a trial compares it with another kind: ordinary stores into the whole ring
 * in turn with the two others, these with it.
 *
 * Owns: what the two ends of a lane have learned, and the user's choice. Must not know lanes, records nor the clock.
 * Threading: a struct is its caller's; the choice is made before lanes are open.
 */
#ifndef UM_MACHINE_MEM_STORES_H
#define UM_MACHINE_MEM_STORES_H

#include "machine/machine.h"

/* The last one: ordinary stores, too, but into the front of a wide ring only. */
enum um_mem_stores_kind { UM_STORES_CACHED, UM_STORES_NONTEMPORAL, UM_STORES_FRONT, UM_STORES_KINDS };

enum {
    UM_STORES_UNIT = 4096, /* bytes that a cost is for */
    UM_STORES_SAMPLES = 4, /* timed bodies of either kind that a comparison takes */
    UM_STORES_EVERY = 64,  /* between comparisons one body in so many is timed, if it has the size of those compared */
};

/* The cost of the last timed bodies at one end, with one kind of stores: ticks (base/clock.h) for UM_STORES_UNIT bytes.
 * All zero at first. */
struct um_mem_stores_cost {
    uint32_t last[UM_STORES_SAMPLES];
    uint32_t count; /* bodies added; from 2 UM_STORES_SAMPLES - 1 on to UM_STORES_SAMPLES again */
};

void um_mem_stores_cost_add(struct um_mem_stores_cost *cost, uint64_t ticks, uint32_t len);
/* Returns the second best of the last costs: a body that lost a time slice, or touched memory for the first time, does
 * not count. 0: there are fewer than UM_STORES_SAMPLES. */
uint32_t um_mem_stores_cost_usual(const struct um_mem_stores_cost *cost);

enum um_mem_stores_phase {
    UM_STORES_USE,   /* between comparisons */
    UM_STORES_BASE,  /* bodies with the kind in use, to compare with */
    UM_STORES_TRIAL, /* bodies with the other kind */
    UM_STORES_AWAIT, /* the trial is over; the receiver has not taken all of its bodies */
};

/* What the sender has learned. All zero at first. */
struct um_mem_stores {
    struct um_mem_stores_cost cost[UM_STORES_KINDS];
    uint64_t bytes_left;  /* bytes of bodies until the next comparison; in a trial: until the first timed body */
    uint32_t usual_then;  /* the usual cost of the kind in use at the last comparison; 0: there was none */
    uint32_t awaited;     /* the count of consumed records at which the receiver has taken all of the trial */
    uint32_t ring_bytes;  /* bytes of the ring, or of the cell, that the last body went into or might have */
    uint64_t front_left;  /* bytes of bodies until the front may be compared; counted when a comparison ends */
    uint64_t front_every; /* bytes between two such comparisons; 0: there was none yet */
    uint32_t front_bytes; /* set by the lane: bytes of the front; 0: it has no wide ring */
    uint32_t compared;  /* bit n: bodies of 2^n bytes or more, but less than twice as many, have brought a comparison */
    uint32_t rounds;    /* rounds of that ring, or as many bytes, from one comparison to the next */
    uint8_t phase;      /* enum um_mem_stores_phase */
    uint8_t in_use;     /* enum um_mem_stores_kind */
    uint8_t size_class; /* log2 of the length of the bodies that were compared last; 0: there were none */
    uint8_t skipped;    /* bodies of a comparison that could not be timed, or were written with the other kind */
    uint8_t untimed;    /* bodies since one was timed */
    uint8_t wins;       /* comparisons in a row that the other kind has won */
    bool tries_front;   /* ordinary stores are compared with the front, not with non-temporal ones */
    bool is_timed;      /* the body that is written now */
};

/* What the receiver has learned. All zero at first. */
struct um_mem_loads {
    struct um_mem_stores_cost cost[2]; /* of bodies written as UM_STORES_CACHED says, and in other ways */
};

/*
 * A body of len bytes, at least UM_NONTEMPORAL_MIN, is about to be written into a ring of ring_bytes. Returns the kind
 * of stores that is to write it. If that sets is_timed, um_mem_stores_end() is to follow.
 */
enum um_mem_stores_kind um_mem_stores_begin(struct um_mem_stores *stores, uint32_t len, uint32_t ring_bytes);

/* True if such a body takes ordinary stores, and is neither timed nor begins a comparison; it is counted then, as
 * above. False: um_mem_stores_begin() or um_mem_stores_pass() is to be called. */
static inline bool um_mem_stores_stay(struct um_mem_stores *stores, uint32_t len, uint32_t ring_bytes)
{
    if (stores->phase != UM_STORES_USE || stores->in_use == UM_STORES_NONTEMPORAL || stores->bytes_left <= len ||
        stores->untimed + 1 >= UM_STORES_EVERY || ring_bytes != stores->ring_bytes)
        return false;
    stores->bytes_left -= len;
    stores->untimed++;
    stores->is_timed = false;
    return true;
}

/* Shall the next bodies lie in the front? A body that would leave it goes to its begin as soon as there is room. */
static inline bool um_mem_stores_want_front(const struct um_mem_stores *stores)
{
    return stores->phase == UM_STORES_TRIAL ? stores->in_use == UM_STORES_CACHED && stores->tries_front
                                            : stores->in_use == UM_STORES_FRONT;
}

/* True if the user chose non-temporal stores. */
bool um_mem_stores_are_nontemporal(void);
/* Counts a body of len bytes, at least UM_NONTEMPORAL_MIN, that is not timed, and whose stores were not chosen by
 * um_mem_stores_begin(). */
void um_mem_stores_pass(struct um_mem_stores *stores, uint32_t len);
/* Called after um_mem_stores_begin() has set is_timed, in the place of um_mem_stores_end(): the body is not timed. */
void um_mem_stores_miss(struct um_mem_stores *stores);
/* True if um_mem_stores_begin() may time the next body, of len bytes, at least UM_NONTEMPORAL_MIN. */
bool um_mem_stores_next_is_timed(const struct um_mem_stores *stores, uint32_t len);
/* Adds the ticks that a timed body took, written with that kind, whatever um_mem_stores_begin() returned. consumed: the
 * receiver's count of records once it has taken this one. */
void um_mem_stores_end(struct um_mem_stores *stores, enum um_mem_stores_kind kind, uint64_t ticks, uint32_t len,
                       uint32_t consumed);
/* Ends a comparison without a result, if there is one. */
void um_mem_stores_give_up(struct um_mem_stores *stores);
/* Ends a trial: to be called in phase UM_STORES_AWAIT, when the receiver's count has reached `awaited`. loads: as the
 * receiver published it, which may be anything. */
void um_mem_stores_compare(struct um_mem_stores *stores, uint64_t loads);

/* Adds the ticks that the receiver took to move a timed body away. is_other: it was not written as UM_STORES_CACHED
 * says. Returns what it is to publish. */
uint64_t um_mem_loads_add(struct um_mem_loads *loads, bool is_other, uint64_t ticks, uint32_t len);

/* Chooses for the process: auto, cached or nontemporal; NULL: auto. machine.h, um_machine_param.set. */
int um_mem_set_stores(const char *value);

#endif
