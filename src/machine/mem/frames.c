/*
 * The mapped frames of a peer's shareable memory, found by number; at most UM_FRAMES of them. None is unmapped before
 * the link closes: so the frames that a body needs stay until it has moved.
 *
 * Owns: struct um_mem_frames. Must not know how a frame is mapped: link.c. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include <errno.h>
#include <stdlib.h>

enum { UM_FRAMES = 256 };

struct um_mem_frames {
    uint32_t count;
    struct {
        uint64_t number;
        struct um_mem_mapping map;
    } frame[UM_FRAMES];
};

unsigned char *um_mem_frames_find(const struct um_mem_frames *f, uint64_t number)
{
    for (uint32_t i = 0; f && i < f->count; i++) {
        if (f->frame[i].number == number)
            return f->frame[i].map.base;
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
