/*
 * The memory that peers may read and write: key → base, length, access. One table per domain.
 *
 * Owns: the table. Must not know fi_* types or protocols. Threading: the caller serialises.
 * Every access by a peer goes through um_regions_resolve(), which checks key, bounds and access.
 */
#ifndef UM_CORE_REGION_H
#define UM_CORE_REGION_H

#include <stddef.h>
#include <stdint.h>

enum um_access { UM_ACCESS_REMOTE_READ = 1, UM_ACCESS_REMOTE_WRITE = 2 };

struct um_region {
    uint64_t key;
    uintptr_t base;    /* start in this process */
    uint64_t len;      /* bytes; UINT64_MAX with base 0 is all memory */
    uint64_t origin;   /* the address a peer gives for the first byte: base (virtual addressing) or 0 (offsets) */
    uint32_t access;   /* enum um_access */
    void *user;
    struct um_region *next; /* hash chain */
};

struct um_regions;

struct um_regions *um_regions_open(void); /* NULL: out of memory */
void um_regions_close(struct um_regions *t);
/* Adds a region (the caller owns the struct). -EEXIST: the key is in use; -ENOMEM. */
int um_regions_add(struct um_regions *t, struct um_region *region);
void um_regions_remove(struct um_regions *t, struct um_region *region);
struct um_region *um_regions_find(const struct um_regions *t, uint64_t key);
/* -EKEYREJECTED: no such key; -EACCES: not that access; -ERANGE: out of bounds. *ptr_p: the first byte. */
int um_regions_resolve(const struct um_regions *t, uint64_t key, uint64_t addr, uint64_t len, uint32_t access,
                       void **ptr_p);

#endif
