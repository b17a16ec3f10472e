/*
 * Can the processor compare and swap two words (16 bytes) at once?
 *
 * On x86 the instruction is CMPXCHG16B, which the first 64-bit processors lacked. Elsewhere the answer is no: AArch64
 * has such an instruction only since ARMv8.1. Owns: the answer, found once. Threading: any.
 */
#ifndef UM_BASE_CPU_PAIR_H
#define UM_BASE_CPU_PAIR_H

#include <stdbool.h>

bool um_cpu_has_pairs(void);
/* For tests. True: um_cpu_has_pairs() returns false from now on; false: it returns what the processor can do. */
void um_cpu_pairs_forbid(bool forbidden);

#endif
