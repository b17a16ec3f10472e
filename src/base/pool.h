/*
 * Pool of objects of one size. Allocation and release move a pointer; memory is taken from the C library in chunks and
 * returned when the pool ends.
 *
 * Owns: the chunks. Must not know what the objects are. Threading: the caller serialises.
 */
#ifndef UM_BASE_POOL_H
#define UM_BASE_POOL_H

#include <stddef.h>

struct um_pool_item {
    struct um_pool_item *next;
};

struct um_pool_chunk;

struct um_pool {
    struct um_pool_item *free;
    struct um_pool_chunk *chunks;
    size_t item_size;
    size_t in_use;
};

/* size: bytes of one object; any value > 0. Objects are aligned for max_align_t, or, if their size is a multiple of 64,
 * to cache lines. */
void um_pool_init(struct um_pool *pool, size_t size);
void um_pool_fini(struct um_pool *pool);

/* Takes a new chunk; 0 or -ENOMEM. */
int um_pool_grow(struct um_pool *pool);

/* Returns an object of undefined content; NULL: no memory. */
static inline void *um_pool_alloc(struct um_pool *pool)
{
    if (!pool->free && um_pool_grow(pool) != 0)
        return NULL;
    struct um_pool_item *item = pool->free;
    pool->free = item->next;
    pool->in_use++;
    return item;
}

static inline void um_pool_release(struct um_pool *pool, void *object)
{
    struct um_pool_item *item = object;
    item->next = pool->free;
    pool->free = item;
    pool->in_use--;
}

#endif
