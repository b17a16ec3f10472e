/*
 * Which stores write the bodies of a lane: ordinary ones, or non-temporal ones, which bypass the caches.
 *
 * Where the sender's and the receiver's processor share a cache, ordinary stores are better by half: the receiver finds
 * the lines there. Where they do not, each line is fetched from the receiver's cache before it is written, and from the
 * sender's when it is read, and memory is the faster way for both. A process cannot see where the two are: a virtual
 * machine does not tell, and threads move. So it is measured: the sender times some of the copies into records, the
 * receiver times how long it takes the bodies of these, and says so in the lane's control block. The sum of both
 * decides. Time and again a trial writes some bodies with the other kind.
 *
 * Owns: what the two ends of a lane have learned, and the user's choice. Must not know lanes, records nor the clock.
 * Threading: a struct is its caller's; the choice is made before lanes are open.
 */
#ifndef UM_MACHINE_MEM_STORES_H
#define UM_MACHINE_MEM_STORES_H

#include "machine/machine.h"

enum um_mem_stores_kind { UM_STORES_CACHED, UM_STORES_NONTEMPORAL, UM_STORES_KINDS };

enum {
    UM_STORES_TRIES = 4,  /* timed bodies of a trial, and of those before it */
    UM_STORES_EVERY = 16, /* in use, one of so many bodies is timed */
    UM_STORES_SOON = 16,  /* bodies from one trial of non-temporal stores to the next, at least; at most: */
    UM_STORES_LATE = 4096,
    UM_STORES_ROUNDS = 64, /* the same for trials of ordinary stores, in rounds of the ring; at most: */
    UM_STORES_ROUNDS_LATE = 512,
};

/* What the last bodies that were timed cost one end with one kind of stores, in ns for UM_NONTEMPORAL_MIN bytes. All
 * zero at first. */
struct um_mem_stores_cost {
    uint32_t last[UM_STORES_TRIES];
    uint32_t told; /* bodies since it was zero, up to 2 UM_STORES_TRIES - 1 */
};

void um_mem_stores_cost_add(struct um_mem_stores_cost *cost, uint64_t ns, uint32_t len);
/* The second best of them: one that lost a time slice, or touched memory for the first time, is no rule. 0: there are
 * fewer than UM_STORES_TRIES. */
uint32_t um_mem_stores_cost_usual(const struct um_mem_stores_cost *cost);

/* The sender's. All zero at first. */
struct um_mem_stores {
    struct um_mem_stores_cost cost[UM_STORES_KINDS];
    uint64_t bytes_left; /* of bodies, until the next trial; in a trial: until the first body that is timed */
    uint32_t was;        /* the usual cost of the kind in use when the last trial ended */
    uint32_t awaited;    /* the record behind the last one of the trial */
    uint32_t ring_bytes; /* of the ring that the last body went into */
    uint32_t interval;   /* between two trials: bodies, or rounds of the ring */
    uint8_t phase;       /* enum um_mem_stores_phase */
    uint8_t in_use;      /* enum um_mem_stores_kind */
    uint8_t untimed;     /* bodies since one was timed */
    bool is_timed;       /* the body that is written now */
};
enum um_mem_stores_phase { UM_STORES_USE, UM_STORES_TRIAL, UM_STORES_AWAIT };

/* The receiver's. All zero at first. */
struct um_mem_loads {
    struct um_mem_stores_cost cost[UM_STORES_KINDS];
};

/*
 * A body of len bytes, at least UM_NONTEMPORAL_MIN, is about to be written into a ring of ring_bytes. Returns which
 * stores are to write it, and sets is_timed: tell what it took.
 */
enum um_mem_stores_kind um_mem_stores_begin(struct um_mem_stores *stores, uint32_t len, uint32_t ring_bytes);
/* It was written, with that kind whatever um_mem_stores_begin() said, in ns (if it was timed), as the record before
 * number `next`. */
void um_mem_stores_end(struct um_mem_stores *stores, enum um_mem_stores_kind kind, uint64_t ns, uint32_t len,
                       uint32_t next);
/* In phase UM_STORES_AWAIT, when the receiver has consumed what is before record `awaited`. loads: as it published
 * them, which may be anything. */
void um_mem_stores_compare(struct um_mem_stores *stores, uint64_t loads);

/* A timed body of that kind took the receiver so long. Returns what it publishes. */
uint64_t um_mem_loads_add(struct um_mem_loads *loads, enum um_mem_stores_kind kind, uint64_t ns, uint32_t len);

/* Chooses for the process: auto, cached or nontemporal; NULL: auto. machine.h, um_machine_param.set. */
int um_mem_set_stores(const char *value);

#endif
