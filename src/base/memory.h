/*
 * Is memory there? For addresses that come from a peer. Also names the advice of madvise(2) that makes it so, for older
 * headers. Owns nothing. Threading: any.
 */
#ifndef UM_BASE_MEMORY_H
#define UM_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/*
 * Can this process read (write: also write) len bytes at the address? System calls: for slow paths. The answer may be
 * outdated at once if another thread unmaps memory.
 */
bool um_memory_is_there(uintptr_t addr, size_t len, bool write);

#endif
