/*
 * The mapped frames of a peer's shareable memory, found by number; at most UM_FRAMES of them. None is unmapped before
 * the link closes: so the frames that a body needs stay until it has moved.
 *
 * The first stores into a frame would fault in each page (1.2 us here), so that the first bodies are several times as
 * slow as later ones and say little about this way. Pages that are about to be stored to are therefore populated
 * (.37 us); a bit of each page notes that. Loads need none of that: Linux maps neighbours with a page that is loaded
 * from (.33 us). Only the body's own pages are populated: a page that the peer has never touched would be allocated,
 * and the peer's heap could not share memory there any more. Populating is a hint. Where it fails, and where the peer
 * has given pages back since, pages fault.
 *
 * Owns: struct um_mem_frames. Must not know how a frame is mapped: link.c. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { UM_FRAMES = 256 };

/* bytes; the most that one call populates: it takes about 100 us */
#define UM_POPULATED_AT_ONCE ((size_t)1 << 20)

struct frame {
    uint64_t number;
    struct um_mem_mapping map;
    uint64_t *populated; /* a bit for each page; NULL: there was no memory for them, so nothing is populated */
};

struct um_mem_frames {
    uint32_t count;
    struct frame frame[UM_FRAMES];
};

static const struct frame *frame_of(const struct um_mem_frames *f, uint64_t number)
{
    for (uint32_t i = 0; f && i < f->count; i++) {
        if (f->frame[i].number == number)
            return &f->frame[i];
    }
    return NULL;
}

unsigned char *um_mem_frames_find(const struct um_mem_frames *f, uint64_t number)
{
    const struct frame *frame = frame_of(f, number);
    return frame ? frame->map.base : NULL;
}

static bool is_populated(const uint64_t *bits, size_t page)
{
    return bits[page / 64] >> page % 64 & 1;
}

void um_mem_frames_populate(const struct um_mem_frames *f, uint64_t number, size_t offset, size_t len)
{
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    const size_t most = len < UM_POPULATED_AT_ONCE ? len : UM_POPULATED_AT_ONCE;
    const struct frame *frame = frame_of(f, number);
    uint64_t *bits = frame->populated;
    size_t page = offset / size;
    const size_t end = (offset + most + size - 1) / size;
    while (bits && page < end && is_populated(bits, page))
        page++;
    if (!bits || page == end)
        return;
    if (madvise((unsigned char *)frame->map.base + page * size, (end - page) * size, MADV_POPULATE_READ) != 0)
        return;
    for (; page < end; page++)
        bits[page / 64] |= UINT64_C(1) << page % 64;
}

int um_mem_frames_add(struct um_mem_frames **frames_p, uint64_t number, const struct um_mem_mapping *map)
{
    const size_t pages = ((size_t)1 << UM_FRAME_SHIFT) / (size_t)sysconf(_SC_PAGESIZE);
    if (!*frames_p && !(*frames_p = calloc(1, sizeof(**frames_p))))
        return -ENOMEM;
    struct um_mem_frames *f = *frames_p;
    if (f->count == UM_FRAMES)
        return -ENOSPC;
    f->frame[f->count++] =
        (struct frame){.number = number, .map = *map, .populated = calloc(pages / 64, sizeof(uint64_t))};
    return 0;
}

void um_mem_frames_close(struct um_mem_frames *f, const struct um_mem_mapper *mapper)
{
    for (uint32_t i = 0; f && i < f->count; i++) {
        mapper->detach(&f->frame[i].map);
        free(f->frame[i].populated);
    }
    free(f);
}
