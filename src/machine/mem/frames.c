/*
 * The mapped frames of a peer's shareable memory, found by number; at most UM_FRAMES of them. None is unmapped before
 * the link closes: so the frames that a body needs stay until it has moved.
 *
 * Page faults would make the first bodies in new memory several times as slow as later ones, so that a trial of this
 * way says little. (Here a store takes 1.2 us in a page that is not mapped yet, a load .33 us, because Linux then maps
 * neighbours, too; MADV_POPULATE_READ .37 us, after which a store does not fault.) Therefore memory is populated before
 * its first use, by granules; a bit notes that. That is a hint: where it fails, or Linux takes the pages away again,
 * pages fault.
 *
 * Owns: struct um_mem_frames. Must not know how a frame is mapped: link.c. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

enum {
    UM_FRAMES = 256,
    UM_GRANULE_SHIFT = 16,    /* log2 of the bytes of a granule */
    UM_GRANULES_AT_ONCE = 16, /* the most that one call populates: it takes about 100 us */
    UM_GRANULES = 1 << (UM_FRAME_SHIFT - UM_GRANULE_SHIFT),
};

struct um_mem_frames {
    uint32_t count;
    struct {
        uint64_t number;
        struct um_mem_mapping map;
        uint64_t populated[UM_GRANULES / 64]; /* bits of the granules */
    } frame[UM_FRAMES];
};

static bool is_populated(const uint64_t *bits, uint32_t granule)
{
    return bits[granule / 64] >> granule % 64 & 1;
}

static void populate(const struct um_mem_mapping *map, uint64_t *bits, size_t offset, size_t len)
{
    uint32_t granule = (uint32_t)(offset >> UM_GRANULE_SHIFT);
    uint32_t end = (uint32_t)((offset + len - 1) >> UM_GRANULE_SHIFT) + 1;
    end = end - granule > UM_GRANULES_AT_ONCE ? granule + UM_GRANULES_AT_ONCE : end;
    while (granule < end && is_populated(bits, granule))
        granule++;
    if (granule == end)
        return;
    (void)madvise((unsigned char *)map->base + ((size_t)granule << UM_GRANULE_SHIFT),
                  (size_t)(end - granule) << UM_GRANULE_SHIFT, MADV_POPULATE_READ);
    for (; granule < end; granule++)
        bits[granule / 64] |= UINT64_C(1) << granule % 64;
}

unsigned char *um_mem_frames_find(struct um_mem_frames *f, uint64_t number, size_t offset, size_t used)
{
    for (uint32_t i = 0; f && i < f->count; i++) {
        if (f->frame[i].number == number) {
            if (used)
                populate(&f->frame[i].map, f->frame[i].populated, offset, used);
            return f->frame[i].map.base;
        }
    }
    return NULL;
}

int um_mem_frames_add(struct um_mem_frames **frames_p, uint64_t number, const struct um_mem_mapping *map)
{
    if (!*frames_p && !(*frames_p = calloc(1, sizeof(**frames_p))))
        return -ENOMEM;
    struct um_mem_frames *f = *frames_p;
    if (f->count == UM_FRAMES)
        return -ENOSPC;
    f->frame[f->count].number = number;
    f->frame[f->count].map = *map;
    f->count++;
    return 0;
}

void um_mem_frames_close(struct um_mem_frames *f, const struct um_mem_mapper *mapper)
{
    for (uint32_t i = 0; f && i < f->count; i++)
        mapper->detach(&f->frame[i].map);
    free(f);
}
