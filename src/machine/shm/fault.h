/*
 * Private to the shm mapper: mappings of files that their owner can shrink. A load or store beyond a truncated file, or
 * without room on a full file system, raises SIGBUS; the process must survive a peer's mistake.
 *
 * Threading: any thread; calls for one mapping are serialised by the caller.
 */
#ifndef UM_MACHINE_SHM_FAULT_H
#define UM_MACHINE_SHM_FAULT_H

#include <stddef.h>
#include <stdint.h>

/*
 * From now on such a fault in [base, base + len), whole pages, replaces the whole range by memory of this process and
 * sets *stale to UINT64_MAX. 0; -ENOMEM; sigaction's errors.
 */
int um_shm_shrink_guard(void *base, size_t len, uint64_t *stale);
/* To be called before the mapping is unmapped. */
void um_shm_shrink_forget(const void *base);

#endif
