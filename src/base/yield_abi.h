/*
 * What libunimem-yield.so (src/yield), preloaded by `unimem run` into the processes of an MPICH job, exports to the
 * provider. The provider finds it with dlsym(RTLD_DEFAULT): neither library links the other. Threading: any thread, any
 * time.
 */
#ifndef UM_BASE_YIELD_ABI_H
#define UM_BASE_YIELD_ABI_H

#include <stdint.h>

#define UM_YIELD_FOUND "unimem_yield_found"

/* 1: a read of a completion queue has returned completions, in any thread. The provider writes that, and sched_yield()
 * writes 0 at the next call that it does not leave out by its count. */
__attribute__((visibility("default"))) extern uint32_t unimem_yield_found;

#endif
