/*
 * What the libfabric provider unimem offers beyond libfabric's interface: memory that its machine transfers best.
 *
 * Over a Unimem board this is dmable memory: large messages from and to it go by DMA without a copy, and peers read and
 * write regions registered in it (fi_mr_reg() and related calls) by DMA, without progress of the owner. All other
 * memory can be used and registered, too, but is slower. Other machines have no such memory: fi_open_ops() returns
 * -FI_ENOSYS, and a program uses malloc().
 *
 *   struct fi_unimem_memory_ops *memory;
 *   if (fi_open_ops(&domain->fid, FI_UNIMEM_MEMORY_OPS, 0, (void **)&memory, NULL) == 0)
 *       ret = memory->alloc(domain, len, &buffer);
 *
 * Source: man page fi_unimem(7), "MEMORY OF A BOARD".
 */
#ifndef UNIMEM_FI_EXT_UNIMEM_H
#define UNIMEM_FI_EXT_UNIMEM_H

#include <rdma/fi_domain.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The name for fi_open_ops() on a domain, with flags 0. -FI_ENOSYS: the name is unknown, or the machine has no such
 * memory. */
#define FI_UNIMEM_MEMORY_OPS "fi_unimem_memory_ops 1"

/* size: bytes of this structure in the provider; new members are only added at the end. The functions return 0 or a
 * negative FI_E* error. */
struct fi_unimem_memory_ops {
    size_t size;
    /*
     * Allocates len bytes, zeroed, aligned to pages; *memory_p is set only on success. Each piece is an allocation of
     * the board and, at every peer that uses it, a registration with the board's engine (microseconds): allocate a
     * large piece and divide it. -FI_EINVAL: len is 0; -FI_ENOSPC: the board has no more; -FI_ENOMEM; the errors of
     * fi_enable() when the board cannot be opened.
     */
    int (*alloc)(struct fid_domain *domain, size_t len, void **memory_p);
    /*
     * Frees memory that alloc() returned for this domain. No operation may use it any more. The memory that is left
     * when the domain is closed is freed then. -FI_EINVAL: not memory that alloc() returned; -FI_EBUSY: a registration
     * lies in it.
     */
    int (*free)(struct fid_domain *domain, void *memory);
};

#ifdef __cplusplus
}
#endif

#endif
