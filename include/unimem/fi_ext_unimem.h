/*
 * What the libfabric provider unimem offers beyond libfabric's interface: memory that the machine transfers best.
 *
 * Over a Unimem board that is dmable memory: large messages from and to it go by DMA without a copy, and a region
 * registered in it (fi_mr_reg and its kin) is read and written by peers by DMA, without any progress of its owner's.
 * All other memory can be used and registered, too, and is slower. On other machines there is no such memory:
 * fi_open_ops() returns -FI_ENOSYS, and a program uses malloc().
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

/* For fi_open_ops() on a domain, with flags 0. -FI_ENOSYS: another name, or a machine without such memory. */
#define FI_UNIMEM_MEMORY_OPS "fi_unimem_memory_ops 1"

/* size: bytes of this structure as the provider has it; new members are added at the end only. Errors: 0 or a negative
 * FI_E*. */
struct fi_unimem_memory_ops {
    size_t size;
    /*
     * len bytes, zeroed, aligned to pages; *memory_p is set only on success. Each is an allocation and, at every peer
     * that uses it, a registration of the board's (microseconds): take a large one and divide it. -FI_EINVAL: len is 0;
     * -FI_ENOSPC: the board gives no more; -FI_ENOMEM; what fi_enable() returns when the board cannot be opened.
     */
    int (*alloc)(struct fid_domain *domain, size_t len, void **memory_p);
    /*
     * memory: what alloc() returned for this domain. What is left when the domain closes is freed with it. No operation
     * may use it any more. -FI_EINVAL: it is not such memory; -FI_EBUSY: a registration lies in it.
     */
    int (*free)(struct fid_domain *domain, void *memory);
};

#ifdef __cplusplus
}
#endif

#endif
