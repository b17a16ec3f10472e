/* Waiting for a lock of base/lock.h. */
#include "base/lock.h"

#include "base/clock.h"
#include "base/log.h"

#include <sched.h>

#define UM_LOCK_LONGEST_NS UINT64_C(1000000000)
#ifndef UM_LOCK_WAIT_NS
#define UM_LOCK_WAIT_NS UINT64_C(30000000000)
#endif
#define UM_LOCK_PAUSE_NS UINT64_C(100000000)

enum {
    UM_LOCK_SPINS = 200, /* looks at the word between two calls of sched_yield() */
    UM_LOCK_YIELDS = 64, /* calls of sched_yield() (microseconds each) between two checks whether the holder lives */
};

/* What a waiter has seen. The times do not count what passes while the waiter itself does not run. */
struct lock_watch {
    uint64_t holder;     /* seen last */
    uint64_t held_ns;    /* in which no look found the lock free or with another holder */
    uint64_t waited_ns;  /* in all */
    uint64_t counted_at; /* time of the last check; 0: there was none */
};

/* Spins for a while. Returns whether the lock was taken. */
static bool lock_spin(struct um_lock_shm *lock, uint64_t self, struct lock_watch *watch)
{
    for (int i = 0; i < UM_LOCK_SPINS; i++) {
        uint64_t seen = um_load_relaxed_u64(&lock->holder);
        bool was_free = seen == 0;
        /* sync: lock-steal (partners lock-take, lock-give): as if it had been free at once */
        if (was_free && um_rmw_acqrel_cas_bits64(&lock->holder, &seen, self))
            return true;
        if (was_free || seen != watch->holder)
            watch->held_ns = 0;
        watch->holder = seen;
        um_cpu_relax();
    }
    return false;
}

/* A waiter that was stopped does not know what the holder did meanwhile: of a long pause it counts the first part. */
static void count_time(struct lock_watch *watch)
{
    uint64_t now = um_clock_ns();
    uint64_t passed = watch->counted_at != 0 ? now - watch->counted_at : 0;
    passed = passed < UM_LOCK_PAUSE_NS ? passed : UM_LOCK_PAUSE_NS;
    watch->held_ns += passed;
    watch->waited_ns += passed;
    watch->counted_at = now;
}

/*
 * Is the holder dead? Or has it held the lock far longer than any correct holder: it was stopped while it held the
 * lock, or no holder wrote the word?
 */
static bool holder_is_gone(const struct um_lock_party *party, const struct lock_watch *watch)
{
    if (watch->held_ns > UM_LOCK_LONGEST_NS) {
        um_log(UM_LOG_WARN,
               "process %u has held a lock of atomic operations for a second (stopped?): its lock is taken over, "
               "its operation on an element of more than 8 bytes may be half done",
               (unsigned)(watch->holder >> 32));
        return true;
    }
    return watch->holder != party->self && !party->alive(watch->holder);
}

/* With correct holders no wait is so long, however many they are: a process must be overwriting the word. */
static bool waited_too_long(const struct lock_watch *watch)
{
    if (watch->waited_ns < UM_LOCK_WAIT_NS)
        return false;
    um_log(UM_LOG_WARN, "a lock of atomic operations had other holders for half a minute: it is taken all the same; a "
                        "peer overwrites it");
    return true;
}

void um_lock_wait(struct um_lock_shm *lock, const struct um_lock_party *party)
{
    struct lock_watch watch = {.holder = 0};
    for (uint32_t turn = 1; !lock_spin(lock, party->self, &watch); turn++) {
        if (turn % UM_LOCK_YIELDS == 0) {
            count_time(&watch);
            if (waited_too_long(&watch)) {
                um_rmw_swap_u64(&lock->holder, party->self); /* sync: lock-steal (partners lock-take, lock-give) */
                return;
            }
            /*
             * sync: lock-steal (partners lock-take, lock-give): a dead holder stores nothing more. The next holder
             * finds the element unchanged, updated, or, if it is wider than a store, half updated.
             */
            uint64_t seen = watch.holder;
            if (holder_is_gone(party, &watch) && um_rmw_acqrel_cas_bits64(&lock->holder, &seen, party->self))
                return;
        }
        sched_yield();
    }
}
