/* Waiting for a lock of base/lock.h. */
#include "base/lock.h"

#include "base/clock.h"
#include "base/log.h"

#include <sched.h>

#define UM_LOCK_LONGEST_NS UINT64_C(1000000000)
#ifndef UM_LOCK_WAIT_NS
#define UM_LOCK_WAIT_NS UINT64_C(30000000000)
#endif

enum {
    UM_LOCK_SPINS = 200, /* looks at the word between two calls of sched_yield() */
    UM_LOCK_YIELDS = 64, /* calls of sched_yield() (microseconds each) between two checks whether the holder lives */
};

/* Spins for a while. Returns whether the lock was taken. *seen_p: the holder seen last. */
static bool lock_spin(struct um_lock_shm *lock, uint64_t self, uint64_t *seen_p)
{
    for (int i = 0; i < UM_LOCK_SPINS; i++) {
        *seen_p = um_load_relaxed_u64(&lock->holder);
        /* sync: lock-steal (partners lock-take, lock-give): as if it had been free at once */
        if (*seen_p == 0 && um_rmw_acqrel_cas_bits64(&lock->holder, seen_p, self))
            return true;
        um_cpu_relax();
    }
    return false;
}

/*
 * Is the holder dead? Or has it held the lock far longer than any correct holder: it was stopped while it held the
 * lock, or no holder wrote the word?
 */
static bool holder_is_gone(const struct um_lock_party *party, uint64_t holder, uint64_t since)
{
    if (um_clock_ns() - since > UM_LOCK_LONGEST_NS) {
        um_log(UM_LOG_WARN,
               "process %u has held a lock of atomic operations for a second (stopped?): its lock is taken over, "
               "its operation on an element of more than 8 bytes may be half done",
               (unsigned)(holder >> 32));
        return true;
    }
    return holder != party->self && !party->alive(holder);
}

/* With correct holders no wait is so long, however many they are: a process must be overwriting the word. */
static bool waited_too_long(uint64_t begun)
{
    if (um_clock_ns() - begun < UM_LOCK_WAIT_NS)
        return false;
    um_log(UM_LOG_WARN, "a lock of atomic operations had other holders for half a minute: it is taken all the same; a "
                        "peer overwrites it");
    return true;
}

void um_lock_wait(struct um_lock_shm *lock, const struct um_lock_party *party)
{
    uint64_t seen = 0, before = 0, since = 0, begun = 0;
    for (uint32_t turn = 1; !lock_spin(lock, party->self, &seen); turn++) {
        if (turn % UM_LOCK_YIELDS == 0 && seen != before) {
            before = seen;
            since = um_clock_ns();
            begun = begun ? begun : since;
            if (waited_too_long(begun)) {
                um_rmw_swap_u64(&lock->holder, party->self); /* sync: lock-steal (partners lock-take, lock-give) */
                return;
            }
        }
        /*
         * sync: lock-steal (partners lock-take, lock-give): a dead holder stores nothing more. The next holder finds
         * the element unchanged, updated, or, if it is wider than a store, half updated.
         */
        if (turn % UM_LOCK_YIELDS == 0 && seen != 0 && holder_is_gone(party, seen, since) &&
            um_rmw_acqrel_cas_bits64(&lock->holder, &seen, party->self))
            return;
        sched_yield();
    }
}
