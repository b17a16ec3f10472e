/* Monotonic time in nanoseconds, for slow paths (timeouts, liveness): about 20 ns a call. */
#ifndef UM_BASE_CLOCK_H
#define UM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* The value of the same clock at the kernel's last timer tick: some milliseconds old, at a quarter of the cost. */
static inline uint64_t um_clock_coarse_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t um_clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* For short times on data paths, in the same unit in all processes of a host: the processor's time-stamp counter where
 * there is one, at a third of the cost; else nanoseconds. */
static inline uint64_t um_clock_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return um_clock_ns();
#endif
}

/* Each of `things` is to be checked once a second. Returns how many to check now, passed_ns after the last call. */
static inline uint32_t um_clock_share(uint32_t things, uint64_t passed_ns)
{
    const uint64_t second = 1000000000;
    return passed_ns < second ? (uint32_t)(things * passed_ns / second) + 1 : things;
}

#endif
