/*
 * Waiting for a store to one cache line with the processor's own instruction for it: UMWAIT (WAITPKG) or MWAITX
 * (MONITORX) on x86, WFE upon a load-exclusive on Arm. The processor pauses until the line is written; the system
 * counts it as busy.
 *
 * Owns: the choice of the instruction, made once from what the processor says of itself. Must not know what the line
 * means: the caller reads it again, with the ordering that its protocol needs. Threading: any.
 */
#ifndef UM_BASE_CPU_WAIT_H
#define UM_BASE_CPU_WAIT_H

#include <stdbool.h>
#include <stdint.h>

enum um_cpu_wait {
    UM_CPU_WAIT_NONE,   /* no such instruction, or none whose wait is bounded */
    UM_CPU_WAIT_UMWAIT, /* Intel SDM volume 2, UMONITOR and UMWAIT: until a deadline of the time stamp counter */
    UM_CPU_WAIT_MWAITX, /* AMD APM volume 3, MONITORX and MWAITX: for a number of its cycles */
    UM_CPU_WAIT_WFE,    /* Arm ARM section D1.6 (wait for event): until the kernel's event stream, 100 us by default */
};

/* What the choice depends on; members of another architecture are 0. */
struct um_cpu_features {
    uint32_t max_basic, max_extended; /* x86: eax of CPUID 0 and 0x80000000, the highest leaves there are */
    uint32_t basic7_ecx;              /* x86: CPUID 7, subleaf 0: bit 5 WAITPKG */
    uint32_t extended1_ecx;           /* x86: CPUID 0x80000001: bit 29 MONITORX */
    uint64_t hwcap;                   /* Arm: AT_HWCAP: bit 2 EVTSTRM */
};

struct um_cpu_features um_cpu_features_read(void);
enum um_cpu_wait um_cpu_wait_choose(const struct um_cpu_features *f);

/* Returns the choice for this processor. */
enum um_cpu_wait um_cpu_wait_own(void);

/* Does the wait end by itself within a few microseconds? If not, it is usable only where that line is the only source
 * of events. */
static inline bool um_cpu_wait_is_short(enum um_cpu_wait how)
{
    return how == UM_CPU_WAIT_UMWAIT || how == UM_CPU_WAIT_MWAITX;
}

/*
 * Waits once, until *line differs from value, an interrupt comes, or the bound of the instruction is reached. Returns
 * at once if *line differs already. May return spuriously. UM_CPU_WAIT_NONE: returns at once.
 */
void um_cpu_wait_for(enum um_cpu_wait how, const uint64_t *line, uint64_t value);

#endif
