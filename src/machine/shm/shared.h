/*
 * Private to the shm mapper: memory that the program itself maps from a file and shares (MAP_SHARED: memfd, shm_open,
 * System V, anonymous). Peers map the same file; nothing is moved.
 *
 * Threading: any thread.
 */
#ifndef UM_MACHINE_SHM_SHARED_H
#define UM_MACHINE_SHM_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Finds the file that [base, base + len) is a shared mapping of, and keeps a descriptor of it until
 * um_shm_shared_drop(). 0, the descriptor and the offset of the byte at base; -ENOENT: it is no shared mapping of one
 * file of the program, adopted memory neither (*why_p is not set). Other errors with the reason in *why_p: -EPERM: only
 * peers that map the file themselves can reach it (um_shm_shared_join(); the offset is set); -EACCES: peers cannot
 * reach it.
 */
int um_shm_shared_find(uintptr_t base, size_t len, bool writable, int *fd_p, uint64_t *offset_p, const char **why_p);
void um_shm_shared_drop(int fd);

/*
 * Makes another mapping of the shared file that process pid has at [base, base + len), whole pages, if this process
 * maps the same part of the file already. NULL: it does not. The caller ends the mapping with munmap().
 */
void *um_shm_shared_join(uint32_t pid, uintptr_t base, size_t len, bool writable);

#endif
