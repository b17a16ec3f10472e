/*
 * Private to the shm mapper: mappings of files that their owner can shrink. What was cut off, or finds no room on a
 * full file system, raises SIGBUS at a load or store; the process is not to die of a peer's mistake.
 *
 * Threading: any thread; calls for one mapping are serialised by the caller.
 */
#ifndef UM_MACHINE_SHM_FAULT_H
#define UM_MACHINE_SHM_FAULT_H

#include <stddef.h>
#include <stdint.h>

/*
 * From now on such a fault in [base, base + len), whole pages, puts memory of this process in the place of all of it,
 * and UINT64_MAX into *stale. 0; -ENOMEM; sigaction's errors.
 */
int um_fault_guard(void *base, size_t len, uint64_t *stale);
/* Before the mapping ends. */
void um_fault_forget(const void *base);

#endif
