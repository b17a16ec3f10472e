/* See cpu_wait.h. */
#include "base/cpu_wait.h"

#include "base/atomic.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

enum {
    UM_WAITPKG_BIT = 5,
    UM_MONITORX_BIT = 29,
    UM_EVTSTRM_BIT = 2,
    UM_WAIT_CYCLES = 10000,   /* cycles of the time stamp counter: 2 to 10 us at 1 to 5 GHz */
    UM_UMWAIT_SHALLOW = 1,    /* C0.1, the state with the fastest wake-up */
    UM_MWAITX_TIMER = 2,      /* ecx: ebx holds a bound */
    UM_MWAITX_SHALLOW = 0xf0, /* eax: no deeper state than C0 */
};

struct um_cpu_features um_cpu_features_read(void)
{
    struct um_cpu_features f = {0};
#if defined(__x86_64__)
    uint32_t a, b, c, d;
    f.max_basic = __get_cpuid_max(0, NULL);
    f.max_extended = __get_cpuid_max(0x80000000u, NULL);
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
        f.basic7_ecx = c;
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d))
        f.extended1_ecx = c;
#elif defined(__aarch64__)
    f.hwcap = getauxval(AT_HWCAP);
#endif
    return f;
}

/* Prefers UMWAIT: its bound is a deadline. No known processor has both. */
enum um_cpu_wait um_cpu_wait_choose(const struct um_cpu_features *f)
{
    if (f->max_basic >= 7 && f->basic7_ecx >> UM_WAITPKG_BIT & 1)
        return UM_CPU_WAIT_UMWAIT;
    if (f->max_extended >= 0x80000001u && f->extended1_ecx >> UM_MONITORX_BIT & 1)
        return UM_CPU_WAIT_MWAITX;
    if (f->hwcap >> UM_EVTSTRM_BIT & 1)
        return UM_CPU_WAIT_WFE; /* without the event stream it might wait for ever */
    return UM_CPU_WAIT_NONE;
}

enum um_cpu_wait um_cpu_wait_own(void)
{
    static uint32_t known; /* 1 + the choice; 0: not made yet. Threads that race make the same choice */
    uint32_t own = um_load_relaxed_u32(&known);
    if (!own) {
        struct um_cpu_features f = um_cpu_features_read();
        own = 1 + (uint32_t)um_cpu_wait_choose(&f);
        um_store_relaxed_u32(&known, own);
    }
    return (enum um_cpu_wait)(own - 1);
}

#if defined(__x86_64__)

/*
 * The line is read after the monitor is set: a store before that is seen by the read, a store after it ends the wait.
 * sync: none (the caller reads the line again with its own ordering)
 */
__attribute__((target("waitpkg"))) static void wait_umwait(const uint64_t *line, uint64_t value)
{
    _umonitor((void *)(uintptr_t)line);
    um_fence_compiler();
    if (um_load_relaxed_u64(line) == value)
        _umwait(UM_UMWAIT_SHALLOW, __rdtsc() + UM_WAIT_CYCLES);
}

/* sync: none (the same) */
__attribute__((target("mwaitx"))) static void wait_mwaitx(const uint64_t *line, uint64_t value)
{
    _mm_monitorx((void *)(uintptr_t)line, 0, 0);
    um_fence_compiler();
    if (um_load_relaxed_u64(line) == value)
        _mm_mwaitx(UM_MWAITX_TIMER, UM_MWAITX_SHALLOW, UM_WAIT_CYCLES);
}

#elif defined(__aarch64__)

/* The first WFE consumes an event that is left over. A store by another processor clears the monitor, which is an
 * event.
 */
static void wait_wfe(const uint64_t *line, uint64_t value)
{
    uint64_t seen;
    __asm__ volatile("sevl\n\t"
                     "wfe\n\t"
                     "ldxr %0, %1\n\t"
                     "cmp %0, %2\n\t"
                     "b.ne 1f\n\t"
                     "wfe\n"
                     "1:"
                     : "=&r"(seen)
                     : "Q"(*line), "r"(value)
                     : "cc", "memory");
}

#endif

void um_cpu_wait_for(enum um_cpu_wait how, const uint64_t *line, uint64_t value)
{
    switch (how) {
#if defined(__x86_64__)
    case UM_CPU_WAIT_UMWAIT:
        wait_umwait(line, value);
        return;
    case UM_CPU_WAIT_MWAITX:
        wait_mwaitx(line, value);
        return;
#elif defined(__aarch64__)
    case UM_CPU_WAIT_WFE:
        wait_wfe(line, value);
        return;
#endif
    default:
        (void)line;
        (void)value;
        return;
    }
}
