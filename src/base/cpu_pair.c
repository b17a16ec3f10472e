/* See cpu_pair.h. */
#include "base/cpu_pair.h"

#include "base/atomic.h"

#if defined(__x86_64__) && !UM_THREAD_SANITIZER /* ThreadSanitizer does not see stores in assembler */
#include <cpuid.h>

enum { UM_CX16_BIT = 13 }; /* Intel SDM volume 2, CPUID 1, ecx */

static bool cpu_pairs_read(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c >> UM_CX16_BIT & 1;
}
#else
static bool cpu_pairs_read(void)
{
    return false;
}
#endif

static uint32_t known; /* 1 + the answer; 0: not known yet. Threads that race find the same answer */

bool um_cpu_has_pairs(void)
{
    uint32_t own = um_load_relaxed_u32(&known);
    if (!own) {
        own = 1 + (uint32_t)cpu_pairs_read();
        um_store_relaxed_u32(&known, own);
    }
    return own - 1;
}

void um_cpu_pairs_forbid(bool forbidden)
{
    um_store_relaxed_u32(&known, 1 + (uint32_t)(!forbidden && cpu_pairs_read()));
}
