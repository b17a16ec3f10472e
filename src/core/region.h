/*
 * The memory that peers may read and write: key → base, length, access. One table per domain.
 *
 * Owns: the table, and a space of each machine that tells its peers of it. Locks and counters are those of one
 * machine, the domain's home, whoever executes: one lock table, one value of each counter, however many machines there
 * are. It is the machine whose locks peers take (um_machine.shares_locks), else the first. Must not know fi_* types or
 * protocols. Threading: the caller serialises. Every access that this process executes for a peer goes
 * through um_core_regions_resolve(), which checks key, bounds and access.
 */
#ifndef UM_CORE_REGION_H
#define UM_CORE_REGION_H

#include "base/list.h"
#include "machine/machines.h"

#include <stddef.h>
#include <stdint.h>

struct um_core_region;

/* Bytes of a region that a peer reads by the machine's key: until it says that it has, or the registration ends. */
struct um_core_offer {
    struct um_shown *shown; /* NULL: there is no offer, and the other members mean nothing */
    struct um_list link;    /* in um_core_region.offers */
    /* The registration has ended: the bytes are hidden. */
    void (*withdrawn)(struct um_core_offer *offer);
};
void um_core_offer_begin(struct um_core_offer *offer, struct um_core_region *region, struct um_shown *shown,
                         void (*withdrawn)(struct um_core_offer *offer));
/* If there is one: hides the bytes. */
void um_core_offer_end(struct um_core_offer *offer, enum um_hide why);

struct um_core_region {
    uint64_t key;
    uintptr_t base;    /* start in this process */
    uint64_t len;      /* bytes; UINT64_MAX with base 0 is all memory */
    uint64_t origin;   /* the address a peer gives for the first byte: base (virtual addressing) or 0 (offsets) */
    uint32_t access;   /* enum um_access */
    uint32_t counters; /* enum um_counters, of the machine's space */
    struct um_core_region *next;                   /* hash chain */
    struct um_list copying;                        /* transfers that write to its memory */
    struct um_list offers;                         /* um_core_offer */
    struct um_exported *exported[UM_MACHINES_MAX]; /* what each machine made of it */
};

struct um_core_regions;

/* -ENOMEM, machine space_open's errors. */
int um_core_regions_open(const struct um_machines *machines, const struct um_space_config *config,
                         struct um_core_regions **t_p);
void um_core_regions_close(struct um_core_regions *t);
/* Adds a region (the caller owns the struct). -EEXIST: the key is in use; -ENOMEM. */
int um_core_regions_add(struct um_core_regions *t, struct um_core_region *region);
/* The level at which peers reach it by the home's machine. */
enum um_level um_core_regions_level(const struct um_core_regions *t, const struct um_core_region *region);
/* No peer's operation that starts after the return reaches it, and no transfer that is under way here. */
void um_core_regions_remove(struct um_core_regions *t, struct um_core_region *region);
/* Sets the counters for peers' accesses to it. */
void um_core_regions_set_counters(struct um_core_regions *t, struct um_core_region *region, uint32_t counters);
/* The space of each machine that ports of the domain belong to. */
struct um_space *um_core_regions_space(const struct um_core_regions *t, uint32_t machine);
/* Counters that peers add to: machine.h. */
int um_core_regions_counter_open(struct um_core_regions *t, uint32_t *number_p, const uint64_t **value_p);
void um_core_regions_counter_close(struct um_core_regions *t, uint32_t number);
/* The locks of wide and misaligned atomics, which peers with a mapped window take, too. */
struct um_locks_shm *um_core_regions_locks(const struct um_core_regions *t);
/* Memory that one of the machines moves best, as machine.h memory_alloc and memory_free; have: is there such a machine?
 */
bool um_core_regions_have_memory(const struct um_core_regions *t);
int um_core_regions_memory_alloc(struct um_core_regions *t, size_t len, void **memory_p);
int um_core_regions_memory_free(struct um_core_regions *t, void *memory);
struct um_core_region *um_core_regions_find(const struct um_core_regions *t, uint64_t key);
/* -EKEYREJECTED: no such key; -EACCES: not that access; -ERANGE: out of bounds; -EFAULT: nothing there. *ptr_p: the
 * first byte. */
int um_core_regions_resolve(const struct um_core_regions *t, uint64_t key, uint64_t addr, uint64_t len, uint32_t access,
                            void **ptr_p);
/* Counts an access of any region: enum um_counters. */
void um_core_regions_count_any(struct um_core_regions *t, uint32_t counters, unsigned shift);
/* Counts an access under that key that was executed here: UM_COUNT_*_SHIFT. */
void um_core_regions_count(struct um_core_regions *t, uint64_t key, unsigned shift);

#endif
