/*
 * Can the processor compare and swap two words (16 bytes) at once?
 *
 * On x86 it is CMPXCHG16B, which the first 64-bit processors lacked. Elsewhere one word has to do: what AArch64 has for
 * it came with ARMv8.1. Owns: the answer, found once. Threading: any.
 */
#ifndef UM_BASE_CPU_PAIR_H
#define UM_BASE_CPU_PAIR_H

#include <stdbool.h>

bool um_cpu_has_pairs(void);
/* For tests: from now on the processor is taken for one that cannot, or for what it is. */
void um_cpu_pairs_forbid(bool forbidden);

#endif
