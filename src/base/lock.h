/*
 * Locks in memory that several processes map: for updates that the processor cannot do in one access.
 *
 * Owns: the layout and the rule. A lock's word is 0 (free) or names its holder, so that a waiter can find out that the
 * holder is gone and take the lock over. Uncontended: one compare and swap, one release store. Not recursive. Must not
 * know how to find out whether a holder lives: the caller passes that in struct um_lock_party (base/process.h has it
 * for one host). Threading: any number of threads and processes.
 */
#ifndef UM_BASE_LOCK_H
#define UM_BASE_LOCK_H

#include "base/atomic.h"

#include <stddef.h>

enum { UM_LOCKS = 64, UM_LOCK_LINE = 64 };

/* Normative text: docs/protocol.md section 6.8. */
struct um_lock_shm {
    uint64_t holder; /* 0 → holder by compare and swap; holder → 0 by the holder; dead holder → next holder by compare
                        and swap */
    uint64_t reserved[7];
};
static_assert(sizeof(struct um_lock_shm) == UM_LOCK_LINE, "each lock has its own cache line");

/* Zero memory is a set of free locks. */
struct um_locks_shm {
    struct um_lock_shm lock[UM_LOCKS];
};
static_assert(sizeof(struct um_locks_shm) == 4096, "docs/protocol.md section 6.8");
static_assert(offsetof(struct um_lock_shm, holder) == 0, "docs/protocol.md section 6.8");

/* A process, or a thread, that takes locks. */
struct um_lock_party {
    uint64_t self;                  /* not 0; threads of one process may share it */
    bool (*alive)(uint64_t holder); /* returns false only if that holder is certainly gone. Slow path */
};

/* Takes the lock when its holder gives it back, is gone, or has held it for a second; after half a minute of changing
 * holders in any case. Slow path of um_lock_take(). */
void um_lock_wait(struct um_lock_shm *lock, const struct um_lock_party *party);

static inline void um_lock_take(struct um_lock_shm *lock, const struct um_lock_party *party)
{
    uint64_t seen = 0;
    /* sync: lock-take (partners lock-give, lock-steal) */
    if (__builtin_expect(!um_rmw_acqrel_cas_bits64(&lock->holder, &seen, party->self), 0))
        um_lock_wait(lock, party);
}

static inline void um_lock_give(struct um_lock_shm *lock)
{
    um_store_release_u64(&lock->holder, 0); /* sync: lock-give (partners lock-take, lock-steal) */
}

/* Returns the lock for a number. Users of the same element must pass the same number. */
static inline struct um_lock_shm *um_lock_of(struct um_locks_shm *locks, uint64_t number)
{
    return &locks->lock[(number * UINT64_C(0x9e3779b97f4a7c15)) >> 58];
}
static_assert(UM_LOCKS == 1 << (64 - 58), "the hash takes the upper 6 bits");

#endif
