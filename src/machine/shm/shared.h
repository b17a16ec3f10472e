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
 * Finds the file that [base, base + len) is a shared mapping of, and holds a descriptor of it until
 * um_shm_shared_drop(). 0, the descriptor and the offset of the byte at base; -ENOENT: it is no such mapping (*why_p
 * stays). Else *why_p in words: -EPERM it is one, but only peers that map it themselves can have it
 * (um_shm_shared_join(); the offset is set); -EACCES peers cannot have it.
 */
int um_shm_shared_find(uintptr_t base, size_t len, bool writable, int *fd_p, uint64_t *offset_p, const char **why_p);
void um_shm_shared_drop(int fd);

/*
 * A mapping of its own, of what process pid has at [base, base + len), whole pages, if this process maps the same file
 * there already, by whatever way it came to it. NULL: it does not. The caller ends it with munmap().
 */
void *um_shm_shared_join(uint32_t pid, uintptr_t base, size_t len, bool writable);

#endif
