/* Chunk handling of base/pool.h. */
#include "base/pool.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>

enum { UM_POOL_CHUNK_BYTES = 32768, UM_POOL_LINE = 64 };

struct um_pool_chunk {
    struct um_pool_chunk *next;
    alignas(UM_POOL_LINE) unsigned char bytes[];
};

void um_pool_init(struct um_pool *pool, size_t size)
{
    const size_t align = size % UM_POOL_LINE ? alignof(max_align_t) : UM_POOL_LINE;
    if (size < sizeof(struct um_pool_item))
        size = sizeof(struct um_pool_item);
    *pool = (struct um_pool){.item_size = (size + align - 1) / align * align};
}

int um_pool_grow(struct um_pool *pool)
{
    size_t count = UM_POOL_CHUNK_BYTES / pool->item_size;
    if (count == 0)
        count = 1;
    size_t bytes = sizeof(struct um_pool_chunk) + count * pool->item_size;
    bytes = (bytes + UM_POOL_LINE - 1) / UM_POOL_LINE * UM_POOL_LINE;
    struct um_pool_chunk *chunk = aligned_alloc(UM_POOL_LINE, bytes);
    if (!chunk)
        return -ENOMEM;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    for (size_t i = count; i-- > 0;) {
        struct um_pool_item *item = (void *)(chunk->bytes + i * pool->item_size);
        item->next = pool->free;
        pool->free = item;
    }
    return 0;
}

void um_pool_fini(struct um_pool *pool)
{
    while (pool->chunks) {
        struct um_pool_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        free(chunk);
    }
    pool->free = NULL;
    pool->in_use = 0;
}
