/*
 * Other contexts of the board: where they have dmable memory. board.h.
 *
 * A context lists its dmable memory in a directory, which is dmable, too. Messages tell the directory's address and
 * version; its content is read by DMA when no registration covers the memory that is looked for. Owns: um_board.others.
 * Threading: under the process's lock.
 */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>

enum { CONTEXTS = 4096 };

/* Another context, which has told of its directory. */
struct context {
    struct um_list link;
    uint32_t node, context;
    uint64_t directory;
    uint32_t version, known;            /* the version that was told; that of the copy, 0: no copy */
    struct um_board_arena_wire arena[]; /* UM_BOARD_ARENAS_MAX */
};

static struct context *context_find(uint32_t node, uint32_t number)
{
    for (struct um_list *l = um_board.others.list.next; l != &um_board.others.list; l = l->next) {
        struct context *context = UM_CONTAINER(l, struct context, link);
        if (context->context == number && context->node == node)
            return context;
    }
    return NULL;
}

static void context_free(struct context *context)
{
    um_list_unlink(&context->link);
    um_board.others.count--;
    free(context);
}

/* Frees the contexts that have ended. Called when there are many. */
static void contexts_sweep(void)
{
    for (struct um_list *l = um_board.others.list.next, *next; l != &um_board.others.list; l = next) {
        struct context *context = UM_CONTAINER(l, struct context, link);
        next = l->next;
        if (um_board_api.context_alive(um_board_handle(), context->node, context->context) != 1)
            context_free(context);
    }
}

void um_board_reach_told(uint32_t node, uint32_t number, uint64_t directory, uint32_t version)
{
    struct context *context = context_find(node, number);
    if (!version)
        return;
    if (!context) {
        if (um_board.others.count == CONTEXTS)
            contexts_sweep();
        if (um_board.others.count < CONTEXTS)
            context = calloc(1, sizeof(*context) + UM_BOARD_DIRECTORY);
        if (!context)
            return; /* bodies in its memory go through lanes */
        context->node = node;
        context->context = number;
        um_list_append(&um_board.others.list, &context->link);
        um_board.others.count++;
    }
    context->known = context->directory == directory ? context->known : 0;
    context->directory = directory;
    context->version = version;
}

void um_board_reach_doubt(uint32_t node, uint32_t number)
{
    struct context *context = context_find(node, number);
    if (context)
        context->known = 0;
}

void um_board_directory_forget(uint32_t node, uint32_t number)
{
    struct context *context = context_find(node, number);
    if (context)
        context_free(context);
}

/* Reads the context's directory, if it has changed. */
static int context_read(struct context *context)
{
    struct unimem_remote at = {context->node, context->context, context->directory};
    struct um_board_scratch *scratch = um_board_scratch_get();
    struct um_board_reach *reach;
    if (context->known == context->version)
        return 0;
    if (!scratch)
        return -ENOMEM;
    int ret = um_board_reach_get(&at, UM_BOARD_DIRECTORY, &reach);
    if (ret == 0)
        ret = um_board_dma_now(&(struct um_board_transfer){
            .reach = reach, .address = at.address, .local = scratch->directory, .len = UM_BOARD_DIRECTORY});
    if (ret)
        return ret;
    um_board_api.copy(um_board_handle(), context->arena, scratch->directory, UM_BOARD_DIRECTORY);
    context->known = context->version;
    return 0;
}

/* Finds the piece of a context's memory that contains this memory. -EPERM: none does. */
static int arena_find(const struct unimem_remote *at, size_t len, struct um_board_arena_wire *arena_p)
{
    struct unimem_info own;
    um_board_api.get_info(um_board_handle(), &own);
    if (at->context == own.context && at->node == own.node) {
        const struct um_board_arena *arena = um_board_arena_of((const void *)(uintptr_t)at->address, len);
        if (arena)
            *arena_p = (struct um_board_arena_wire){.base = (uintptr_t)arena->base, .len = arena->len};
        return arena ? 0 : -EPERM;
    }
    struct context *context = context_find(at->node, at->context);
    if (!context)
        return -EPERM;
    int ret = context_read(context);
    for (unsigned i = 0; ret == 0 && i < UM_BOARD_ARENAS_MAX; i++) {
        const struct um_board_arena_wire *arena = &context->arena[i];
        uint64_t offset = at->address - arena->base;
        if (!arena->len || arena->check != um_board_check(arena, 3) || offset > arena->len || len > arena->len - offset)
            continue;
        *arena_p = *arena;
        return 0;
    }
    return ret ? ret : -EPERM;
}

int um_board_reach_peer(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p)
{
    struct um_board_arena_wire arena;
    struct unimem_remote base = *at;
    struct um_board_reach *reach = um_board_reach_find(at, len);
    if (reach) {
        *reach_p = reach;
        return 0;
    }
    int ret = arena_find(at, len, &arena);
    if (ret)
        return ret;
    base.address = arena.base;
    return um_board_reach_get(&base, arena.len, reach_p);
}

void um_board_others_forget(void)
{
    struct um_list *first;
    while ((first = um_list_first(&um_board.others.list)) != NULL)
        context_free(UM_CONTAINER(first, struct context, link));
}
