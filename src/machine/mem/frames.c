/*
 * A peer's shareable memory as it is reached from here: frames of it, mapped when first needed, a bounded number of
 * them per peer.
 *
 * Owns: struct um_mem_frames. Such memory lies in the file that the peer's space names, each page at its own address.
 * What the peer says of an address is only that: a page that is none of its memory reads as zero, and is nobody
 * else's. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"

#include <stdlib.h>

enum { UM_FRAME_SHIFT = 28, UM_FRAMES = 64 };

struct um_mem_frames {
    uint32_t count, next; /* mapped; to be given up next, once all places are taken */
    struct {
        uint64_t number;
        struct um_mem_mapping map;
    } frame[UM_FRAMES];
};

void um_mem_frames_close(struct um_mem_link *link)
{
    for (uint32_t i = 0; link->frames && i < link->frames->count; i++)
        link->port->mapper->detach(&link->frames->frame[i].map);
    free(link->frames);
    link->frames = NULL;
}

static unsigned char *frame_map(struct um_mem_link *link, uint64_t number)
{
    const struct um_mem_mapper *mapper = link->port->mapper;
    struct um_mem_frames *f = link->frames;
    const struct um_mem_space_shm *shm = link->space.base;
    struct um_mem_mapping map;
    if (mapper->memory_attach(link->port, &link->addr, um_load_relaxed_u32(&shm->memory), number << UM_FRAME_SHIFT,
                              (size_t)1 << UM_FRAME_SHIFT, &map) != 0)
        return NULL;
    if (!um_mem_link_alive(&link->base)) { /* then it may be the file of another process */
        mapper->detach(&map);
        return NULL;
    }
    uint32_t at = f->count;
    if (at == UM_FRAMES) {
        at = f->next++ % UM_FRAMES;
        mapper->detach(&f->frame[at].map);
    } else {
        f->count++;
    }
    f->frame[at].number = number;
    f->frame[at].map = map;
    return map.base;
}

static unsigned char *frame_find(const struct um_mem_frames *f, uint64_t number)
{
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->frame[i].number == number)
            return f->frame[i].map.base;
    }
    return NULL;
}

void *um_mem_peer_memory(struct um_link *base, uint64_t addr, size_t *len_p)
{
    struct um_mem_link *link = (struct um_mem_link *)base;
    const uint64_t number = addr >> UM_FRAME_SHIFT, offset = addr - (number << UM_FRAME_SHIFT);
    if (!link->port->mapper->memory_attach || um_mem_link_map_space(link) != 0)
        return NULL;
    if (!link->frames && !(link->frames = calloc(1, sizeof(*link->frames))))
        return NULL;
    unsigned char *frame = frame_find(link->frames, number);
    if (!frame && !(frame = frame_map(link, number)))
        return NULL;
    const uint64_t left = (UINT64_C(1) << UM_FRAME_SHIFT) - offset;
    if (*len_p > left)
        *len_p = (size_t)left;
    return frame + offset;
}

bool um_mem_is_shareable(struct um_space *base, const void *memory, size_t len)
{
    struct um_mem_space *space = (struct um_mem_space *)base;
    struct um_mem_place place;
    return space->mapper->is_shareable && space->mapper->memory_attach &&
           space->mapper->is_shareable(space, (uint64_t)(uintptr_t)memory, len, &place);
}
