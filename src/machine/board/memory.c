/*
 * Dmable memory: the application's pieces and the directory in which peers find them; rings; and scratch for the
 * machine's own DMAs. board.h.
 *
 * Each piece is one allocation of the board, and one registration at each peer that uses it. Owns: um_board.memory.
 * Threading: under the process's lock.
 */
#include "machine/board/board.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- pieces and the directory ---- */

uint64_t um_board_directory(uint32_t *version_p)
{
    *version_p = um_board.memory.directory ? um_board.memory.version : 0;
    return (uintptr_t)um_board.memory.directory;
}

struct um_board_arena *um_board_arena_of(const void *memory, size_t len)
{
    for (struct um_list *l = um_board.memory.arenas.next; l != &um_board.memory.arenas; l = l->next) {
        struct um_board_arena *arena = UM_CONTAINER(l, struct um_board_arena, link);
        uint64_t offset = (uintptr_t)memory - (uintptr_t)arena->base;
        if (offset <= arena->len && len <= arena->len - offset)
            return arena;
    }
    return NULL;
}

/* Gives the directory a new version, never 0. */
static void directory_changed(void)
{
    um_board.memory.version = um_board.memory.version == UINT32_MAX ? 1 : um_board.memory.version + 1;
}

/* Lists a piece in the directory. The owner can use a piece that finds no place there, but peers do not reach it by
 * DMA. */
static void directory_add(struct um_board_arena *arena)
{
    void *memory;
    if (!um_board.memory.directory && um_board_api.alloc_dmable(um_board_handle(), UM_BOARD_DIRECTORY, &memory) == 0)
        um_board.memory.directory = memory;
    arena->slot = 0;
    while (um_board.memory.directory && arena->slot < UM_BOARD_ARENAS_MAX && um_board.memory.directory[arena->slot].len)
        arena->slot++;
    if (!um_board.memory.directory || arena->slot == UM_BOARD_ARENAS_MAX) {
        arena->slot = UM_BOARD_ARENAS_MAX;
        return;
    }
    struct um_board_arena_wire entry = {.base = (uintptr_t)arena->base, .len = arena->len};
    entry.check = um_board_check(&entry, 3);
    um_board.memory.directory[arena->slot] = entry;
    directory_changed();
}

void um_board_arena_remove(struct um_board_arena *arena)
{
    if (arena->slot < UM_BOARD_ARENAS_MAX) {
        um_board.memory.directory[arena->slot] = (struct um_board_arena_wire){0};
        directory_changed();
    }
    um_list_unlink(&arena->link);
    if (!arena->regions)
        free(arena);
    else
        arena->base = NULL; /* freed with its last region */
}

void um_board_arena_region_end(struct um_board_arena *arena)
{
    if (--arena->regions == 0 && !arena->base)
        free(arena);
}

int um_board_arena_add(struct um_board_space *space, size_t len, struct um_board_arena **arena_p)
{
    void *memory;
    struct um_board_arena *arena = calloc(1, sizeof(*arena));
    if (!arena)
        return -ENOMEM;
    int ret = um_board_api.alloc_dmable(um_board_handle(), len, &memory);
    if (ret) {
        free(arena);
        return ret;
    }
    *arena = (struct um_board_arena){.space = space, .base = memory, .len = len};
    um_list_append(&um_board.memory.arenas, &arena->link);
    directory_add(arena);
    *arena_p = arena;
    return 0;
}

struct um_board_arena *um_board_arena_at(const struct um_board_space *space, const void *memory)
{
    for (struct um_list *l = um_board.memory.arenas.next; l != &um_board.memory.arenas; l = l->next) {
        struct um_board_arena *arena = UM_CONTAINER(l, struct um_board_arena, link);
        if (arena->base == memory && arena->space == space)
            return arena;
    }
    return NULL;
}

void um_board_arenas_end(struct um_board_space *space)
{
    for (struct um_list *l = um_board.memory.arenas.next, *next; l != &um_board.memory.arenas; l = next) {
        struct um_board_arena *arena = UM_CONTAINER(l, struct um_board_arena, link);
        next = l->next;
        if (arena->space != space)
            continue;
        um_board_api.free_dmable(um_board_handle(), arena->base);
        um_board_arena_remove(arena);
    }
}

/* ---- rings and scratch ---- */

struct um_board_ring {
    struct um_board_ring *next;
};

unsigned char *um_board_ring_get(void)
{
    static struct um_log_limit no_memory;
    void *memory = um_board.memory.rings;
    if (memory) {
        um_board.memory.rings = um_board.memory.rings->next;
        return memory;
    }
    int ret = um_board_api.alloc_dmable(um_board_handle(), UM_BOARD_RING, &memory);
    if (ret == 0)
        return memory;
    um_log_limited(&no_memory, UM_LOG_WARN,
                   "the Unimem board has no memory for a lane (%d KiB): %s; messages that need it wait or fail: start "
                   "fewer processes, or let each send to fewer others",
                   UM_BOARD_RING / 1024, strerror(-ret));
    return NULL;
}

void um_board_ring_put(unsigned char *memory, bool lost)
{
    struct um_board_ring *ring = (struct um_board_ring *)(void *)memory;
    if (lost) {
        um_board_api.free_dmable(um_board_handle(), memory);
        return;
    }
    ring->next = um_board.memory.rings;
    um_board.memory.rings = ring;
}

struct um_board_scratch *um_board_scratch_get(void)
{
    void *memory;
    if (!um_board.memory.scratch &&
        um_board_api.alloc_dmable(um_board_handle(), sizeof(*um_board.memory.scratch), &memory) == 0)
        um_board.memory.scratch = memory;
    return um_board.memory.scratch;
}

void um_board_memory_forget(void)
{
    um_board.memory.directory = NULL;
    um_board.memory.version = 0;
    um_board.memory.rings = NULL;
    um_board.memory.scratch = NULL;
}

void um_board_arenas_forget(void)
{
    um_list_init(&um_board.memory.arenas);
}
