/*
 * Counters and locks of a space whose owner executes all operations that need them: plain words of the owner.
 *
 * For machines whose peers map nothing (board, net): the owner executes accesses that count, and atomics that take
 * locks. Threading: the caller serialises; a counter may be read at any time.
 */
#ifndef UM_MACHINE_OWNER_COUNTS_H
#define UM_MACHINE_OWNER_COUNTS_H

#include "base/atomic.h"
#include "base/lock.h"
#include "machine/machine.h"

#include <errno.h>

enum { UM_OWNER_COUNTERS = 256 };

/* All zero at first. */
struct um_owner_counts {
    struct um_locks_shm locks;
    uint64_t counts[UM_OWNER_COUNTERS + 1]; /* number 0: no counter */
    bool used[UM_OWNER_COUNTERS + 1];
};

/* machine.h, counter_open. */
static inline int um_owner_counter_open(struct um_owner_counts *c, uint32_t *number_p, const uint64_t **value_p)
{
    for (uint32_t number = 1; number <= UM_OWNER_COUNTERS; number++) {
        if (c->used[number])
            continue;
        c->used[number] = true;
        c->counts[number] = 0;
        *number_p = number;
        *value_p = &c->counts[number];
        return 0;
    }
    return -ENOSPC;
}

static inline void um_owner_counter_close(struct um_owner_counts *c, uint32_t number)
{
    c->used[number] = false;
}

/* machine.h, space_count. */
static inline void um_owner_count(struct um_owner_counts *c, uint32_t counters, unsigned shift)
{
    const uint32_t number = counters >> shift & UM_COUNT_MASK;
    if (number && number <= UM_OWNER_COUNTERS)
        um_store_relaxed_u64(&c->counts[number], um_load_relaxed_u64(&c->counts[number]) + 1);
}

#endif
