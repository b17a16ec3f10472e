/*
 * The memory that peers may read and write: key → base, length, access. One table per domain.
 *
 * Owns: the table, and one space per machine, which exports the table's regions to peers. Whoever executes, locks and
 * counters are those of one machine, the domain's home: there is one lock table, and each counter has one value,
 * however many machines there are. Home is the machine whose locks peers take (um_machine.shares_locks), else the
 * first. Must not know fi_* types or protocols. Threading: the caller serialises. Every access that this process
 * executes for a peer goes through um_core_regions_resolve(), which checks key, bounds and access.
 */
#ifndef UM_CORE_REGION_H
#define UM_CORE_REGION_H

#include "base/list.h"
#include "machine/machines.h"

#include <stddef.h>
#include <stdint.h>

struct um_core_region;

/* Bytes of a region that a peer may read by the machine's key, until the peer says that it has read them, or the
 * registration ends. */
struct um_core_offer {
    struct um_shown *shown; /* NULL: there is no offer, and the other members mean nothing */
    struct um_list link;    /* in um_core_region.offers */
    /* Called when the registration has ended and the bytes are hidden. */
    void (*withdrawn)(struct um_core_offer *offer);
};
void um_core_offer_begin(struct um_core_offer *offer, struct um_core_region *region, struct um_shown *shown,
                         void (*withdrawn)(struct um_core_offer *offer));
/* Hides the bytes, if there is an offer. */
void um_core_offer_end(struct um_core_offer *offer, enum um_hide why);

struct um_core_region {
    uint64_t key;
    uintptr_t base;    /* start in this process */
    uint64_t len;      /* bytes; UINT64_MAX with base 0 is all memory */
    uint64_t origin;   /* the address a peer gives for the first byte: base (virtual addressing) or 0 (offsets) */
    uint32_t access;   /* enum um_access */
    uint32_t counters; /* enum um_counters, of the home's space */
    struct um_core_region *next;                   /* hash chain */
    struct um_list copying;                        /* um_core_copying: transfers that write to its memory */
    struct um_list offers;                         /* um_core_offer */
    struct um_exported *exported[UM_MACHINES_MAX]; /* the region as each machine exports it */
};

struct um_core_regions;

/* -ENOMEM, machine space_open's errors. */
int um_core_regions_open(const struct um_machines *machines, const struct um_space_config *config,
                         struct um_core_regions **t_p);
void um_core_regions_close(struct um_core_regions *t);
/* Adds a region (the caller owns the struct). -EEXIST: the key is in use; -ENOMEM. */
int um_core_regions_add(struct um_core_regions *t, struct um_core_region *region);
/* Returns the level at which peers reach the region on the domain's home. */
enum um_level um_core_regions_level(const struct um_core_regions *t, const struct um_core_region *region);
/* Removes a region. No operation that a peer starts after the return reaches it; transfers of this process that are
 * under way write no more to it. */
void um_core_regions_remove(struct um_core_regions *t, struct um_core_region *region);
/* Sets the counters for peers' accesses to the region. */
void um_core_regions_set_counters(struct um_core_regions *t, struct um_core_region *region, uint32_t counters);
/* Returns the space of that machine, which ports of the domain belong to. */
struct um_space *um_core_regions_space(const struct um_core_regions *t, uint32_t machine);
/* Counters that peers add to: machine.h. */
int um_core_regions_counter_open(struct um_core_regions *t, uint32_t *number_p, const uint64_t **value_p);
void um_core_regions_counter_close(struct um_core_regions *t, uint32_t number);
/* Returns the locks of wide and misaligned atomics. Peers with a mapped window take the same locks. */
struct um_locks_shm *um_core_regions_locks(const struct um_core_regions *t);
/* Memory that one of the machines transfers best (machine.h, memory_alloc and memory_free). have: is there such a
 * machine? */
bool um_core_regions_have_memory(const struct um_core_regions *t);
int um_core_regions_memory_alloc(struct um_core_regions *t, size_t len, void **memory_p);
int um_core_regions_memory_free(struct um_core_regions *t, void *memory);
struct um_core_region *um_core_regions_find(const struct um_core_regions *t, uint64_t key);
/* Finds the first byte (*ptr_p). -EKEYREJECTED: no such key; -EACCES: not that access; -ERANGE: out of bounds; -EFAULT:
 * no memory is mapped there that permits it. */
int um_core_regions_resolve(const struct um_core_regions *t, uint64_t key, uint64_t addr, uint64_t len, uint32_t access,
                            void **ptr_p);
/* The same, but of memory that may be missing (a region that is all memory) only the first part bytes must be there.
 * That check takes time in proportion to them. */
int um_core_regions_resolve_part(const struct um_core_regions *t, uint64_t key, uint64_t addr, uint64_t len,
                                 uint64_t part, uint32_t access, void **ptr_p);
/* Counts an access to any region: at counters (enum um_counters), with UM_COUNT_*_SHIFT. */
void um_core_regions_count_any(struct um_core_regions *t, uint32_t counters, unsigned shift);
/* Counts an access under that key that this process executed: with UM_COUNT_*_SHIFT. */
void um_core_regions_count(struct um_core_regions *t, uint64_t key, unsigned shift);

#endif
