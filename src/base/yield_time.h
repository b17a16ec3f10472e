/*
 * How long a sched_yield() took tells whether another thread has run meanwhile: a call that finds no one to run takes
 * about as long each time. Owns nothing: the caller keeps the shortest time. Threading: the caller's.
 */
#ifndef UM_BASE_YIELD_TIME_H
#define UM_BASE_YIELD_TIME_H

#include <stdbool.h>
#include <stdint.h>

enum {
    UM_YIELD_LEAST_NS = 2000, /* the shortest call takes no longer; else another thread ran in all of them */
    UM_YIELD_SLACK_NS = 1000, /* a call longer than twice the shortest plus this has let another thread run */
};

/* Has a call that took so long let another thread run? *least_ns: the shortest so far; UM_YIELD_LEAST_NS at first. */
static inline bool um_yield_has_switched(uint64_t *least_ns, uint64_t took)
{
    if (took < *least_ns)
        *least_ns = took;
    return took > 2 * *least_ns + UM_YIELD_SLACK_NS;
}

#endif
