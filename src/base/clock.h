/* Monotonic time in nanoseconds, for slow paths (timeouts, liveness): about 20 ns a call. */
#ifndef UM_BASE_CLOCK_H
#define UM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t um_clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
