/*
 * The shareable heap as the provider sees it: a library of its own (heap_abi.h), which may be absent.
 *
 * Its blocks lie in the memory file of adoption, each page at the offset of its address: peers map them, nothing moves,
 * and adoption leaves them alone. Threading: any.
 */
#ifndef UM_MACHINE_SHM_HEAP_H
#define UM_MACHINE_SHM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The heap's memory file, which the caller must not close. A negative errno: there is none. */
int um_shm_heap_fd(void);
/* Is every byte of the range the heap's? */
bool um_shm_heap_holds(uintptr_t base, size_t len);
/* Is any byte of it? */
bool um_shm_heap_touches(uintptr_t start, uintptr_t end);
/* The first part of [at, end) that is not the heap's. False: there is none. */
bool um_shm_heap_gap(uintptr_t at, uintptr_t end, uintptr_t *start_p, uintptr_t *end_p);

#endif
