/*
 * Spaces of the machine over a board: the table of regions that peers read by DMA. board.h.
 *
 * A region in dmable memory of the application has an entry in the table, and peers read and write it by DMA. The owner
 * executes accesses to all other regions, and to those that count accesses (a DMA does not notify the owner). The table
 * is made with the first entry, and doubled when a bucket is full and the table is not nearly empty. The owner also
 * executes accesses to a region that finds no place in the table.
 *
 * unexport() first empties the entry, then tells the peers that something has changed (view.c), then returns: a peer
 * that reads the table later does not find the entry, and a peer that has read it before sees the change.
 *
 * Owns: struct um_board_space: the table, the application's memory of the space, and the counters and locks that only
 * the owner uses (machine/owner). Threading: machine.h; the table is under the process's lock.
 */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>

struct um_board_exported {
    struct um_exported base;
    struct um_region_desc what;
    struct um_board_arena *arena; /* the piece of dmable memory that it lies in; NULL: none */
    bool shown;
};

int um_board_space_open(const struct um_machine *machine, struct um_space **space_p)
{
    struct um_board_space *space = calloc(1, sizeof(*space));
    if (!space)
        return -ENOMEM;
    space->changes = 1;
    space->base.machine = machine;
    *space_p = &space->base;
    return 0;
}

void um_board_space_close(struct um_space *base)
{
    struct um_board_space *space = (struct um_board_space *)base;
    um_board_enter();
    if (space->holds) {
        um_board_arenas_end(space);
        if (space->table)
            um_board_api.free_dmable(um_board_handle(), space->table);
        um_board_end();
    }
    um_board_leave();
    free(space);
}

/* Keeps the context open until the space is closed. */
static int space_hold(struct um_board_space *space)
{
    struct unimem_board *board;
    int ret = space->holds ? 0 : um_board_begin(&board);
    space->holds |= ret == 0;
    return ret;
}

/* ---- memory of the application ---- */

int um_board_memory_alloc(struct um_space *base, size_t len, void **memory_p)
{
    struct um_board_space *space = (struct um_board_space *)base;
    struct um_board_arena *arena;
    if (!len)
        return -EINVAL;
    um_board_enter();
    int ret = space_hold(space);
    if (ret == 0)
        ret = um_board_arena_add(space, len, &arena);
    if (ret == 0) {
        *memory_p = arena->base;
        um_board_drive(); /* tells peers of it */
    }
    um_board_leave();
    return ret;
}

int um_board_memory_free(struct um_space *base, void *memory)
{
    struct um_board_space *space = (struct um_board_space *)base;
    um_board_enter();
    struct um_board_arena *arena = um_board_arena_at(space, memory);
    int ret = !arena ? -EINVAL : arena->regions ? -EBUSY : um_board_api.free_dmable(um_board_handle(), memory);
    if (arena && ret != -EBUSY) {
        um_board_arena_remove(arena);
        um_board_drive();
    }
    um_board_leave();
    return ret;
}

/* ---- the table ---- */

static struct um_board_entry_wire *entry_find(const struct um_board_space *space, uint64_t key)
{
    struct um_board_entry_wire *bucket = space->table + um_board_bucket_of(key, space->buckets) * UM_BOARD_BUCKET;
    for (unsigned i = 0; i < UM_BOARD_BUCKET; i++)
        if (bucket[i].check && bucket[i].key == key)
            return &bucket[i];
    return NULL;
}

/* False: the bucket is full. */
static bool entry_put(struct um_board_entry_wire *table, uint64_t buckets, const struct um_board_entry_wire *entry)
{
    struct um_board_entry_wire *bucket = table + um_board_bucket_of(entry->key, buckets) * UM_BOARD_BUCKET;
    for (unsigned i = 0; i < UM_BOARD_BUCKET; i++) {
        if (bucket[i].check)
            continue;
        bucket[i] = *entry;
        return true;
    }
    return false;
}

/* Doubles the number of buckets, or makes the first ones. The old table stays for peers that read it now: the caller
 * frees *old_p when all peers have been told. False: the table cannot grow, or is nearly empty. */
static bool table_grow(struct um_board_space *space, void **old_p)
{
    uint64_t buckets = space->buckets ? space->buckets * 2 : 2;
    void *memory;
    if (buckets > UM_BOARD_BUCKETS_MAX || space->count * 2 < space->buckets ||
        um_board_api.alloc_dmable(um_board_handle(), buckets * UM_BOARD_BUCKET_BYTES, &memory))
        return false;
    for (uint64_t i = 0; space->table && i < space->buckets * UM_BOARD_BUCKET; i++)
        if (space->table[i].check)
            entry_put(memory, buckets, &space->table[i]); /* its entries were in one bucket: there is room */
    if (*old_p)
        um_board_api.free_dmable(um_board_handle(), space->table); /* no peer was told of it */
    else
        *old_p = space->table;
    space->table = memory;
    space->buckets = buckets;
    return true;
}

static bool entry_add(struct um_board_space *space, const struct um_region_desc *what, void **old_p)
{
    struct um_board_entry_wire entry = {
        .key = what->key, .base = what->base, .len = what->len, .origin = what->origin, .access = what->access};
    entry.check = um_board_check(&entry, 7);
    while (!space->table || !entry_put(space->table, space->buckets, &entry))
        if (!table_grow(space, old_p))
            return false;
    space->count++;
    return true;
}

/* Lists the region in the table if peers may reach it by DMA: it lies in dmable memory, and no accesses to it are
 * counted. */
static void show(struct um_board_space *space, struct um_board_exported *exported)
{
    void *old = NULL;
    if (!exported->arena || exported->what.counters || um_board_step_get() < UM_BOARD_NATIVE)
        return;
    exported->shown = entry_add(space, &exported->what, &old);
    if (exported->shown || old) {
        space->changes++;
        um_board_views_tell(space, NULL);
    }
    if (old)
        um_board_api.free_dmable(um_board_handle(), old);
}

static void hide(struct um_board_space *space, struct um_board_exported *exported)
{
    struct um_board_entry_wire *entry = exported->shown ? entry_find(space, exported->what.key) : NULL;
    exported->shown = false;
    if (!entry)
        return;
    *entry = (struct um_board_entry_wire){0};
    space->count--;
    space->changes++;
    um_board_views_tell(space, NULL);
}

int um_board_export(struct um_space *base, const struct um_region_desc *what, struct um_exported **exported_p)
{
    struct um_board_space *space = (struct um_board_space *)base;
    struct um_board_exported *exported = calloc(1, sizeof(*exported));
    if (!exported)
        return -ENOMEM;
    exported->what = *what;
    um_board_enter();
    if (what->len < UINT64_MAX)
        exported->arena = um_board_arena_of((const void *)(uintptr_t)what->base, what->len);
    if (exported->arena && space_hold(space) == 0) {
        exported->arena->regions++;
        show(space, exported);
    } else {
        exported->arena = NULL;
    }
    um_board_leave();
    exported->base.machine = base->machine;
    *exported_p = &exported->base;
    return 0;
}

void um_board_unexport(struct um_space *space_base, struct um_exported *exported_base)
{
    struct um_board_space *space = (struct um_board_space *)space_base;
    struct um_board_exported *exported = (struct um_board_exported *)exported_base;
    um_board_enter();
    hide(space, exported);
    if (exported->arena)
        um_board_arena_region_end(exported->arena);
    um_board_leave();
    free(exported);
}

enum um_level um_board_exported_level(const struct um_exported *base)
{
    const struct um_board_exported *exported = (const struct um_board_exported *)base;
    return exported->shown ? UM_LEVEL_COPY : UM_LEVEL_REMOTE;
}

/* ---- counters, locks: for the owner alone ---- */

int um_board_counter_open(struct um_space *base, uint32_t *number_p, const uint64_t **value_p)
{
    return um_owner_counter_open(&((struct um_board_space *)base)->counts, number_p, value_p);
}

void um_board_counter_close(struct um_space *base, uint32_t number)
{
    um_owner_counter_close(&((struct um_board_space *)base)->counts, number);
}

/* While a region has counters it is not listed: the owner executes accesses that count. */
void um_board_exported_set_counters(struct um_space *space_base, struct um_exported *exported_base, uint32_t counters)
{
    struct um_board_space *space = (struct um_board_space *)space_base;
    struct um_board_exported *exported = (struct um_board_exported *)exported_base;
    um_board_enter();
    exported->what.counters = counters;
    if (counters)
        hide(space, exported);
    else if (!exported->shown)
        show(space, exported);
    um_board_leave();
}

void um_board_port_set_counters(struct um_port *base, uint32_t counters)
{
    struct um_board_port *port = (struct um_board_port *)base;
    um_board_enter();
    bool same = !port->counters == !counters;
    port->counters = counters;
    if (port->space && !same) {
        port->space->changes++;
        um_board_views_tell(port->space, NULL);
    }
    um_board_leave();
}

void um_board_space_count(struct um_space *base, uint32_t counters, unsigned shift)
{
    um_owner_count(&((struct um_board_space *)base)->counts, counters, shift);
}

struct um_locks_shm *um_board_space_locks(struct um_space *base)
{
    return &((struct um_board_space *)base)->counts.locks;
}
