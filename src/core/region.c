/* Hash table of core/region.h: separate chaining, grows at one region per bucket. */
#include "core/region.h"

#include "base/memory.h"
#include "core/copying.h"

#include <errno.h>
#include <stdlib.h>

struct um_core_regions {
    struct um_space *space[UM_MACHINES_MAX];
    uint32_t spaces;
    uint32_t home; /* the machine whose locks and counters are the domain's */
    struct um_core_region **bucket;
    size_t mask;
    size_t count;
};

static size_t key_hash(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key >> 20);
}

/* Returns the first machine whose locks peers take themselves: such peers have no other locks. If there is none, the
 * first machine. */
static uint32_t home_of(const struct um_machines *machines)
{
    for (uint32_t i = 0; i < machines->count; i++) {
        if (machines->at[i]->shares_locks)
            return i;
    }
    return 0;
}

static struct um_space *home(const struct um_core_regions *t)
{
    return t->space[t->home];
}

static void spaces_close(struct um_core_regions *t)
{
    while (t->spaces > 0) {
        struct um_space *space = t->space[--t->spaces];
        space->machine->space_close(space);
    }
}

int um_core_regions_open(const struct um_machines *machines, const struct um_space_config *config,
                         struct um_core_regions **t_p)
{
    struct um_core_regions *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->mask = 63;
    t->home = home_of(machines);
    t->bucket = calloc(t->mask + 1, sizeof(struct um_core_region *));
    int ret = t->bucket ? 0 : -ENOMEM;
    for (uint32_t i = 0; ret == 0 && i < machines->count; i++) {
        ret = machines->at[i]->space_open(config, &t->space[i]);
        t->spaces += ret == 0;
    }
    if (ret) {
        spaces_close(t);
        free(t->bucket);
        free(t);
        return ret;
    }
    *t_p = t;
    return 0;
}

void um_core_regions_close(struct um_core_regions *t)
{
    spaces_close(t);
    free(t->bucket);
    free(t);
}

struct um_space *um_core_regions_space(const struct um_core_regions *t, uint32_t machine)
{
    return t->space[machine];
}

struct um_locks_shm *um_core_regions_locks(const struct um_core_regions *t)
{
    return home(t)->machine->space_locks(home(t));
}

int um_core_regions_counter_open(struct um_core_regions *t, uint32_t *number_p, const uint64_t **value_p)
{
    return home(t)->machine->counter_open(home(t), number_p, value_p);
}

void um_core_regions_counter_close(struct um_core_regions *t, uint32_t number)
{
    home(t)->machine->counter_close(home(t), number);
}

/* Returns the space of the first machine with memory_alloc; NULL: none has it. */
static struct um_space *giver(const struct um_core_regions *t)
{
    for (uint32_t i = 0; i < t->spaces; i++) {
        if (t->space[i]->machine->memory_alloc)
            return t->space[i];
    }
    return NULL;
}

bool um_core_regions_have_memory(const struct um_core_regions *t)
{
    return giver(t) != NULL;
}

int um_core_regions_memory_alloc(struct um_core_regions *t, size_t len, void **memory_p)
{
    struct um_space *space = giver(t);
    return space ? space->machine->memory_alloc(space, len, memory_p) : -ENOSYS;
}

int um_core_regions_memory_free(struct um_core_regions *t, void *memory)
{
    struct um_space *space = giver(t);
    return space ? space->machine->memory_free(space, memory) : -ENOSYS;
}

static void table_grow(struct um_core_regions *t)
{
    size_t mask = t->mask * 2 + 1;
    struct um_core_region **bucket = calloc(mask + 1, sizeof(struct um_core_region *));
    if (!bucket)
        return; /* slower, but correct */
    for (size_t i = 0; i <= t->mask; i++) {
        while (t->bucket[i]) {
            struct um_core_region *r = t->bucket[i];
            t->bucket[i] = r->next;
            size_t at = key_hash(r->key) & mask;
            r->next = bucket[at];
            bucket[at] = r;
        }
    }
    free(t->bucket);
    t->bucket = bucket;
    t->mask = mask;
}

struct um_core_region *um_core_regions_find(const struct um_core_regions *t, uint64_t key)
{
    struct um_core_region *r = t->bucket[key_hash(key) & t->mask];
    while (r && r->key != key)
        r = r->next;
    return r;
}

/* Unexports the region on the first `machines` machines. */
static void region_unexport(struct um_core_regions *t, struct um_core_region *region, uint32_t machines)
{
    for (uint32_t i = 0; i < machines; i++)
        t->space[i]->machine->unexport(t->space[i], region->exported[i]);
}

int um_core_regions_add(struct um_core_regions *t, struct um_core_region *region)
{
    const struct um_region_desc what = {.key = region->key,
                                        .base = region->base,
                                        .len = region->len,
                                        .origin = region->origin,
                                        .access = region->access,
                                        .counters = region->counters};
    if (um_core_regions_find(t, region->key))
        return -EEXIST;
    um_list_init(&region->copying);
    um_list_init(&region->offers);
    for (uint32_t i = 0; i < t->spaces; i++) {
        int ret = t->space[i]->machine->export(t->space[i], &what, &region->exported[i]);
        if (ret) {
            region_unexport(t, region, i);
            return ret;
        }
    }
    if (++t->count > t->mask)
        table_grow(t);
    size_t at = key_hash(region->key) & t->mask;
    region->next = t->bucket[at];
    t->bucket[at] = region;
    return 0;
}

void um_core_regions_remove(struct um_core_regions *t, struct um_core_region *region)
{
    struct um_core_region **link = &t->bucket[key_hash(region->key) & t->mask];
    while (*link && *link != region)
        link = &(*link)->next;
    if (!*link)
        return;
    *link = region->next;
    t->count--;
    for (struct um_list *first; (first = um_list_first(&region->copying)) != NULL;)
        um_core_copying_cancel(UM_CONTAINER(first, struct um_core_copying, link));
    for (struct um_list *first; (first = um_list_first(&region->offers)) != NULL;) {
        struct um_core_offer *offer = UM_CONTAINER(first, struct um_core_offer, link);
        um_core_offer_end(offer, UM_HIDE_GIVEN_UP);
        offer->withdrawn(offer);
    }
    region_unexport(t, region, t->spaces);
}

void um_core_offer_begin(struct um_core_offer *offer, struct um_core_region *region, struct um_shown *shown,
                         void (*withdrawn)(struct um_core_offer *offer))
{
    offer->shown = shown;
    offer->withdrawn = withdrawn;
    um_list_init(&offer->link);
    um_list_append(&region->offers, &offer->link);
}

void um_core_offer_end(struct um_core_offer *offer, enum um_hide why)
{
    if (!offer->shown)
        return;
    offer->shown->machine->hide(offer->shown, why);
    offer->shown = NULL;
    um_list_unlink(&offer->link);
}

int um_core_regions_resolve(const struct um_core_regions *t, uint64_t key, uint64_t addr, uint64_t len, uint32_t access,
                            void **ptr_p)
{
    return um_core_regions_resolve_part(t, key, addr, len, len, access, ptr_p);
}

int um_core_regions_resolve_part(const struct um_core_regions *t, uint64_t key, uint64_t addr, uint64_t len,
                                 uint64_t part, uint32_t access, void **ptr_p)
{
    const struct um_core_region *r = um_core_regions_find(t, key);
    if (!r)
        return -EKEYREJECTED;
    if ((r->access & access) != access)
        return -EACCES;
    if (addr < r->origin)
        return -ERANGE;
    uint64_t offset = addr - r->origin;
    if (offset > r->len || len > r->len - offset)
        return -ERANGE;
    uintptr_t at = r->base + (uintptr_t)offset;
    /* The region is all memory: a wrong address of a peer must not crash this process. */
    if (r->len == UINT64_MAX && !um_memory_is_there(at, (size_t)part, access & UM_ACCESS_REMOTE_WRITE))
        return -EFAULT;
    *ptr_p = (void *)at;
    return 0;
}

enum um_level um_core_regions_level(const struct um_core_regions *t, const struct um_core_region *region)
{
    const struct um_exported *exported = region->exported[t->home];
    return exported ? exported->machine->exported_level(exported) : UM_LEVEL_REMOTE;
}

void um_core_regions_set_counters(struct um_core_regions *t, struct um_core_region *region, uint32_t counters)
{
    region->counters = counters;
    for (uint32_t i = 0; i < t->spaces; i++)
        t->space[i]->machine->exported_set_counters(t->space[i], region->exported[i], counters);
}

void um_core_regions_count_any(struct um_core_regions *t, uint32_t counters, unsigned shift)
{
    home(t)->machine->space_count(home(t), counters, shift);
}

void um_core_regions_count(struct um_core_regions *t, uint64_t key, unsigned shift)
{
    const struct um_core_region *r = um_core_regions_find(t, key);
    if (r && r->counters)
        home(t)->machine->space_count(home(t), r->counters, shift);
}
