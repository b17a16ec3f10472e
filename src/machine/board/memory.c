/*
 * Dmable memory of the application, and the directory in which peers find it. board.h.
 *
 * Each piece is an allocation of the board's, and one registration for a peer that uses it. Owns: the pieces and the
 * directory. Threading: memory_alloc and memory_free take the process's lock, the rest is under it.
 */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>

static struct um_list arenas = {&arenas, &arenas};
static struct um_board_arena_wire *directory; /* dmable, zero at the start; NULL: none yet */
static uint32_t version;

uint64_t um_board_directory(uint32_t *version_p)
{
    *version_p = directory ? version : 0;
    return (uintptr_t)directory;
}

void um_board_directory_forget(void)
{
    directory = NULL;
    version = 0;
}

struct um_board_arena *um_board_arena_of(const void *memory, size_t len)
{
    for (struct um_list *l = arenas.next; l != &arenas; l = l->next) {
        struct um_board_arena *arena = UM_CONTAINER(l, struct um_board_arena, link);
        uint64_t offset = (uintptr_t)memory - (uintptr_t)arena->base;
        if (offset <= arena->len && len <= arena->len - offset)
            return arena;
    }
    return NULL;
}

/* A version is never 0. */
static void directory_changed(void)
{
    version = version == UINT32_MAX ? 1 : version + 1;
}

/* What does not fit into the directory is still the owner's to use; peers do not reach it by DMA. */
static void directory_add(struct um_board_arena *arena)
{
    void *memory;
    if (!directory && um_board_api.alloc_dmable(um_board_handle(), UM_BOARD_DIRECTORY, &memory) == 0)
        directory = memory;
    arena->slot = 0;
    while (directory && arena->slot < UM_BOARD_ARENAS_MAX && directory[arena->slot].len)
        arena->slot++;
    if (!directory || arena->slot == UM_BOARD_ARENAS_MAX) {
        arena->slot = UM_BOARD_ARENAS_MAX;
        return;
    }
    struct um_board_arena_wire entry = {.base = (uintptr_t)arena->base, .len = arena->len};
    entry.check = um_board_check(&entry, 3);
    directory[arena->slot] = entry;
    directory_changed();
}

static void arena_remove(struct um_board_arena *arena)
{
    if (arena->slot < UM_BOARD_ARENAS_MAX) {
        directory[arena->slot] = (struct um_board_arena_wire){0};
        directory_changed();
    }
    um_list_unlink(&arena->link);
    if (!arena->regions)
        free(arena);
    else
        arena->base = NULL; /* the last region frees it */
}

void um_board_arena_region_end(struct um_board_arena *arena)
{
    if (--arena->regions == 0 && !arena->base)
        free(arena);
}

int um_board_memory_alloc(struct um_space *base, size_t len, void **memory_p)
{
    struct um_board_space *space = (struct um_board_space *)base;
    void *memory = NULL;
    if (!len)
        return -EINVAL;
    struct um_board_arena *arena = calloc(1, sizeof(*arena));
    if (!arena)
        return -ENOMEM;
    um_board_enter();
    int ret = um_board_space_hold(space);
    if (ret == 0)
        ret = um_board_api.alloc_dmable(um_board_handle(), len, &memory);
    if (ret == 0) {
        *arena = (struct um_board_arena){.space = space, .base = memory, .len = len};
        um_list_append(&arenas, &arena->link);
        directory_add(arena);
        um_board_drive(); /* peers hear of it */
    }
    um_board_leave();
    if (ret) {
        free(arena);
        return ret;
    }
    *memory_p = memory;
    return 0;
}

static struct um_board_arena *arena_at(const struct um_board_space *space, const void *memory)
{
    for (struct um_list *l = arenas.next; l != &arenas; l = l->next) {
        struct um_board_arena *arena = UM_CONTAINER(l, struct um_board_arena, link);
        if (arena->base == memory && arena->space == space)
            return arena;
    }
    return NULL;
}

int um_board_memory_free(struct um_space *base, void *memory)
{
    struct um_board_space *space = (struct um_board_space *)base;
    um_board_enter();
    struct um_board_arena *arena = arena_at(space, memory);
    int ret = !arena ? -EINVAL : arena->regions ? -EBUSY : um_board_api.free_dmable(um_board_handle(), memory);
    if (arena && ret != -EBUSY) {
        arena_remove(arena);
        um_board_drive();
    }
    um_board_leave();
    return ret;
}

void um_board_memory_forget(void)
{
    um_list_init(&arenas);
}

void um_board_memory_end(struct um_board_space *space)
{
    for (struct um_list *l = arenas.next, *next; l != &arenas; l = next) {
        struct um_board_arena *arena = UM_CONTAINER(l, struct um_board_arena, link);
        next = l->next;
        if (arena->space != space)
            continue;
        um_board_api.free_dmable(um_board_handle(), arena->base);
        arena_remove(arena);
    }
}
