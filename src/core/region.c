/* Hash table of core/region.h: separate chaining, grows at one region per bucket. */
#include "core/region.h"

#include <errno.h>
#include <stdlib.h>

struct um_regions {
    struct um_region **bucket;
    size_t mask;
    size_t count;
};

static size_t key_hash(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key >> 20);
}

struct um_regions *um_regions_open(void)
{
    struct um_regions *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->mask = 63;
    t->bucket = calloc(t->mask + 1, sizeof(struct um_region *));
    if (!t->bucket) {
        free(t);
        return NULL;
    }
    return t;
}

void um_regions_close(struct um_regions *t)
{
    free(t->bucket);
    free(t);
}

static void table_grow(struct um_regions *t)
{
    size_t mask = t->mask * 2 + 1;
    struct um_region **bucket = calloc(mask + 1, sizeof(struct um_region *));
    if (!bucket)
        return; /* slower, not wrong */
    for (size_t i = 0; i <= t->mask; i++) {
        while (t->bucket[i]) {
            struct um_region *r = t->bucket[i];
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

struct um_region *um_regions_find(const struct um_regions *t, uint64_t key)
{
    struct um_region *r = t->bucket[key_hash(key) & t->mask];
    while (r && r->key != key)
        r = r->next;
    return r;
}

int um_regions_add(struct um_regions *t, struct um_region *region)
{
    if (um_regions_find(t, region->key))
        return -EEXIST;
    if (++t->count > t->mask)
        table_grow(t);
    size_t at = key_hash(region->key) & t->mask;
    region->next = t->bucket[at];
    t->bucket[at] = region;
    return 0;
}

void um_regions_remove(struct um_regions *t, struct um_region *region)
{
    struct um_region **link = &t->bucket[key_hash(region->key) & t->mask];
    while (*link && *link != region)
        link = &(*link)->next;
    if (*link) {
        *link = region->next;
        t->count--;
    }
}

int um_regions_resolve(const struct um_regions *t, uint64_t key, uint64_t addr, uint64_t len, uint32_t access,
                       void **ptr_p)
{
    const struct um_region *r = um_regions_find(t, key);
    if (!r)
        return -EKEYREJECTED;
    if ((r->access & access) != access)
        return -EACCES;
    if (addr < r->origin)
        return -ERANGE;
    uint64_t offset = addr - r->origin;
    if (offset > r->len || len > r->len - offset)
        return -ERANGE;
    *ptr_p = (void *)(r->base + (uintptr_t)offset);
    return 0;
}
