/*
 * Dmable memory and the translation table.
 *
 * An area is a memfd of the server, which its owner maps. With the local engine a registration maps its part of an area
 * into this process, read and write; with the server's engine this process never has a peer's memory mapped.
 */
#include "emu/board.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- areas ---- */

struct emu_area *emu_area_find(struct unimem_board *board, const void *local, size_t len)
{
    uintptr_t address = (uintptr_t)local;
    for (uint32_t i = 0; i < board->areas_end; i++) {
        struct emu_area *area = &board->areas[i];
        uintptr_t base = (uintptr_t)area->base;
        if (area->base && address >= base && address - base <= area->len && len <= area->len - (address - base))
            return area;
    }
    return NULL;
}

static struct emu_area *area_place(struct unimem_board *board)
{
    for (uint32_t i = 0; i < EMU_AREAS; i++) {
        if (board->areas[i].base)
            continue;
        if (i >= board->areas_end)
            board->areas_end = i + 1;
        return &board->areas[i];
    }
    return NULL;
}

/* Lets the server make an area for reserved addresses, and maps the area there. Under the lock. */
static int area_make(struct unimem_board *board, void *base, size_t len)
{
    struct emu_request_wire request = {.op = EMU_OP_ALLOC, .address = (uintptr_t)base, .len = len};
    struct emu_reply_wire reply;
    struct emu_area *area = area_place(board);
    int passed;
    if (!area)
        return -ENOSPC;
    int ret = emu_request(board, &request, &reply, &passed);
    if (!ret)
        ret = reply.status;
    if (ret)
        return ret;
    void *map = MAP_FAILED; /* the kernel drops a descriptor for which this process has no place */
    if (passed >= 0) {
        map = mmap(base, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, passed, 0);
        close(passed);
    }
    if (map == MAP_FAILED) {
        request = (struct emu_request_wire){.op = EMU_OP_FREE, .first = reply.first, .second = reply.second};
        emu_request(board, &request, &reply, &passed);
        return -ENOMEM;
    }
    madvise(base, len, MADV_DONTFORK);
    *area = (struct emu_area){.base = base, .len = len, .slot = reply.first, .generation = reply.second};
    return 0;
}

int unimem_alloc_dmable(struct unimem_board *board, size_t len, void **memory_p)
{
    size_t page = (size_t)getpagesize();
    if (!len)
        return -EINVAL;
    if (len > board->params->dmable_max)
        return -ENOSPC;
    len = (len + page - 1) / page * page;
    void *base = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return -ENOMEM;
    pthread_mutex_lock(&board->lock);
    int ret = area_make(board, base, len);
    pthread_mutex_unlock(&board->lock);
    if (ret)
        munmap(base, len);
    else
        *memory_p = base;
    return ret;
}

/* Under the lock. */
static int area_free(struct unimem_board *board, struct emu_area *area)
{
    struct emu_request_wire request = {.op = EMU_OP_FREE, .first = area->slot, .second = area->generation};
    struct emu_reply_wire reply;
    int passed;
    if (area->flights)
        return -EBUSY;
    int ret = emu_request(board, &request, &reply, &passed);
    munmap(area->base, area->len);
    *area = (struct emu_area){0};
    return ret;
}

int unimem_free_dmable(struct unimem_board *board, void *memory)
{
    int ret = -EINVAL;
    pthread_mutex_lock(&board->lock);
    for (uint32_t i = 0; i < board->areas_end && memory; i++) {
        if (board->areas[i].base != memory)
            continue;
        ret = area_free(board, &board->areas[i]);
        break;
    }
    pthread_mutex_unlock(&board->lock);
    return ret;
}

void unimem_copy(struct unimem_board *board, void *to, const void *from, size_t len)
{
    uint64_t begin = emu_clock_begin(&board->clock);
    if (len)
        memcpy(to, from, len);
    emu_clock_end(&board->clock, begin, emu_cost_copy(board->params, len));
}

/* ---- registrations ---- */

static bool same_memory(const struct emu_registration *registration, const struct unimem_remote *at)
{
    return registration->len && registration->at.context == at->context && registration->at.node == at->node;
}

struct emu_registration *emu_registration_find(struct unimem_board *board, const struct unimem_remote *at, size_t len)
{
    for (uint32_t i = 0; i < board->registrations_end; i++) {
        struct emu_registration *registration = &board->registrations[i];
        uint64_t base = registration->at.address;
        if (same_memory(registration, at) && at->address >= base && at->address - base <= registration->len &&
            len <= registration->len - (at->address - base))
            return registration;
    }
    return NULL;
}

/* Finds a free place for a registration of len bytes, which must overlap no other one. Under the lock. */
static int place_find(struct unimem_board *board, const struct unimem_remote *at, uint64_t len, uint32_t *place_p)
{
    uint32_t place = UINT32_MAX;
    for (uint32_t i = 0; i < board->registrations_end; i++) {
        const struct emu_registration *other = &board->registrations[i];
        if (!other->len && place == UINT32_MAX)
            place = i;
        if (same_memory(other, at) && at->address - other->at.address < other->len)
            return -EEXIST;
        if (same_memory(other, at) && other->at.address - at->address < len)
            return -EEXIST;
    }
    if (place == UINT32_MAX && board->registrations_end == board->params->registrations_max)
        return -ENOSPC;
    *place_p = place == UINT32_MAX ? board->registrations_end : place;
    return 0;
}

/* Maps the memory that a registration covers: from its offset in the area's file on. */
static int registration_map(struct emu_registration *registration, int fd)
{
    uint64_t page = (uint64_t)getpagesize(), lead = registration->offset % page;
    unsigned char *map = mmap(NULL, registration->len + lead, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                              (off_t)(registration->offset - lead));
    if (map == MAP_FAILED)
        return -ENOMEM;
    madvise(map, registration->len + lead, MADV_DONTFORK);
    registration->base = map + lead;
    return 0;
}

static void registration_unmap(const struct emu_registration *registration)
{
    uint64_t lead = registration->offset % (uint64_t)getpagesize();
    if (registration->base)
        munmap(registration->base - lead, registration->len + lead);
}

/* Under the lock. */
static int registration_make(struct unimem_board *board, const struct unimem_remote *remote, uint64_t len)
{
    struct emu_request_wire request = {
        .op = EMU_OP_FIND, .node = remote->node, .context = remote->context, .address = remote->address, .len = len};
    struct emu_reply_wire reply;
    uint32_t place;
    int passed, ret = place_find(board, remote, len, &place);
    if (!ret)
        ret = emu_request(board, &request, &reply, &passed);
    if (ret || reply.status)
        return ret ? ret : reply.status;
    struct emu_registration made = {
        .at = *remote, .len = len, .slot = reply.first, .generation = reply.second, .offset = reply.offset};
    if (passed >= 0) {
        ret = registration_map(&made, passed);
        close(passed);
    } else if (board->params->engine == EMU_ENGINE_LOCAL) {
        ret = -ENOMEM; /* this process had no place for the descriptor */
    }
    if (ret)
        return ret;
    board->registrations[place] = made;
    if (place == board->registrations_end)
        board->registrations_end++;
    return 0;
}

int unimem_register(struct unimem_board *board, const struct unimem_remote *remote, size_t len)
{
    if (!len)
        return -EINVAL;
    uint64_t begin = emu_clock_begin(&board->clock);
    pthread_mutex_lock(&board->lock);
    int ret = registration_make(board, remote, len);
    pthread_mutex_unlock(&board->lock);
    emu_clock_end(&board->clock, begin, ret ? 0 : board->params->register_ns);
    return ret;
}

int unimem_deregister(struct unimem_board *board, const struct unimem_remote *remote)
{
    uint64_t begin = emu_clock_begin(&board->clock);
    int ret = -ENOENT;
    pthread_mutex_lock(&board->lock);
    for (uint32_t i = 0; i < board->registrations_end; i++) {
        struct emu_registration *registration = &board->registrations[i];
        if (!same_memory(registration, remote) || registration->at.address != remote->address)
            continue;
        ret = registration->flights ? -EBUSY : 0;
        if (!ret) {
            registration_unmap(registration);
            *registration = (struct emu_registration){0};
        }
        break;
    }
    pthread_mutex_unlock(&board->lock);
    emu_clock_end(&board->clock, begin, ret ? 0 : board->params->deregister_ns);
    return ret;
}

void emu_memory_fini(struct unimem_board *board)
{
    for (uint32_t i = 0; i < board->registrations_end; i++)
        if (board->registrations[i].len)
            registration_unmap(&board->registrations[i]);
    for (uint32_t i = 0; i < board->areas_end; i++)
        if (board->areas[i].base)
            munmap(board->areas[i].base, board->areas[i].len);
}
