/*
 * The shareable heap: libunimem-heap.so, preloaded by `unimem run --heap`, and what the provider asks it.
 *
 * Blocks of more than 32 KiB lie in a memory file, the page at virtual address X at file offset X, so that a peer finds
 * them in the file by the owner's addresses, and registering them moves nothing. Smaller blocks, and the allocator's
 * own data, are ordinary memory. Why, and what it costs: docs/heap.md.
 *
 * The two functions are exported. The provider finds them with dlsym(RTLD_DEFAULT): neither library links the other.
 * Threading: any thread at any time. A forked child has copies of the blocks, in a file of its own.
 */
#ifndef UM_MACHINE_SHM_HEAP_ABI_H
#define UM_MACHINE_SHM_HEAP_ABI_H

#include <stdbool.h>
#include <stdint.h>

#define UM_HEAP_FD   "unimem_heap_fd"
#define UM_HEAP_NEXT "unimem_heap_next"

/*
 * The memory file: sealed (F_SEAL_SHRINK, GROW, SEAL), as large as the address space, sparse. The caller may put pages
 * of its own at offsets that are not the heap's, and must not close it. A negative errno: there is none.
 */
typedef int unimem_heap_fd_fn(void);

/* The first run of shareable heap that ends after an address, in whole pages. False: there is none. */
typedef bool unimem_heap_next_fn(uintptr_t at, uintptr_t *start_p, uintptr_t *end_p);

__attribute__((visibility("default"))) unimem_heap_fd_fn unimem_heap_fd;
__attribute__((visibility("default"))) unimem_heap_next_fn unimem_heap_next;

#endif
