/* reach.h. */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXTS = 4096 };

/* Another context, of which something was told. */
struct context {
    struct um_list link;
    uint32_t node, context;
    uint64_t directory;
    uint32_t version, known;            /* told; of the copy, 0: there is none */
    struct um_board_arena_wire arena[]; /* UM_BOARD_ARENAS_MAX */
};

static struct um_list reaches = {&reaches, &reaches}, contexts = {&contexts, &contexts};
static uint32_t pinned, contexts_count;
static uint64_t ends; /* registrations that have ended */
static struct um_board_scratch *scratch;

/* ---- registrations ---- */

static bool same_context(const struct unimem_remote *a, const struct unimem_remote *b)
{
    return a->context == b->context && a->node == b->node;
}

static void to_front(struct um_board_reach *reach)
{
    um_list_unlink(&reach->link);
    reach->link = (struct um_list){reaches.next, &reaches};
    reaches.next->prev = &reach->link;
    reaches.next = &reach->link;
}

static bool covers(const struct um_board_reach *reach, const struct unimem_remote *at, size_t len)
{
    uint64_t offset = at->address - reach->at.address;
    return !reach->stale && same_context(&reach->at, at) && offset <= reach->len && len <= reach->len - offset;
}

struct um_board_reach *um_board_reach_find(const struct unimem_remote *at, size_t len)
{
    for (struct um_list *l = reaches.next; l != &reaches; l = l->next) {
        struct um_board_reach *reach = UM_CONTAINER(l, struct um_board_reach, link);
        if (!covers(reach, at, len))
            continue;
        to_front(reach);
        return reach;
    }
    return NULL;
}

void um_board_reach_remember(struct um_board_hint *hint, struct um_board_reach *reach)
{
    *hint = (struct um_board_hint){.reach = reach, .ends = ends};
}

struct um_board_reach *um_board_reach_again(const struct um_board_hint *hint, const struct unimem_remote *at,
                                            size_t len)
{
    if (!hint->reach || hint->ends != ends || !covers(hint->reach, at, len))
        return NULL;
    to_front(hint->reach);
    return hint->reach;
}

void um_board_reach_drop(struct um_board_reach *reach)
{
    reach->stale = true;
    if (reach->flights)
        return;
    um_board_api.deregister(um_board_handle(), &reach->at);
    um_list_unlink(&reach->link);
    ends++;
    free(reach);
}

void um_board_reach_hold(struct um_board_reach *reach)
{
    reach->flights++;
}

void um_board_reach_release(struct um_board_reach *reach)
{
    reach->flights--;
    if (reach->stale)
        um_board_reach_drop(reach);
}

/* Ends those that nothing uses: the one used longest ago, or all that overlap this. */
static bool make_room(const struct unimem_remote *at, uint64_t len, bool overlap)
{
    bool any = false;
    struct um_list *before;
    for (struct um_list *l = reaches.prev; l != &reaches && (overlap || !any); l = before) {
        struct um_board_reach *reach = UM_CONTAINER(l, struct um_board_reach, link);
        before = l->prev;
        bool overlaps = same_context(&reach->at, at) &&
                        (at->address - reach->at.address < reach->len || reach->at.address - at->address < len);
        if (reach->flights || (overlap && !overlaps))
            continue;
        um_board_reach_drop(reach);
        any = true;
    }
    return any;
}

/* Registers, with the room that can be made. */
static int reach_enter(const struct unimem_remote *at, size_t len)
{
    bool settled = false;
    for (;;) {
        int ret = um_board_api.enter(um_board_handle(), at, len);
        if (ret != -EEXIST && ret != -ENOSPC)
            return ret;
        if (make_room(at, len, ret == -EEXIST))
            continue;
        if (settled)
            return -EAGAIN;
        um_board_lanes_settle();
        settled = true;
    }
}

int um_board_reach_get(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p)
{
    struct um_board_reach *reach = um_board_reach_find(at, len);
    if (!reach) {
        reach = calloc(1, sizeof(*reach));
        if (!reach)
            return -ENOMEM;
        int ret = reach_enter(at, len);
        if (ret) {
            free(reach);
            return ret;
        }
        reach->at = *at;
        reach->len = len;
        um_list_init(&reach->link);
        to_front(reach);
    }
    *reach_p = reach;
    return 0;
}

bool um_board_reach_pin(struct um_board_reach *reach)
{
    struct unimem_info info;
    um_board_api.get_info(um_board_handle(), &info);
    if (!reach->pins && (pinned + 1) * 2 > info.registrations_max)
        return false;
    pinned += !reach->pins++;
    um_board_reach_hold(reach);
    return true;
}

void um_board_reach_unpin(struct um_board_reach *reach)
{
    pinned -= !--reach->pins;
    um_board_reach_release(reach);
}

/* ---- one DMA ---- */

int um_board_dma_begin(const struct um_board_transfer *what, uint64_t *dma_p)
{
    struct unimem_remote at = what->reach->at;
    at.address = what->address;
    int ret = what->write ? um_board_api.dma_write(um_board_handle(), &at, what->local, what->len, dma_p)
                          : um_board_api.dma_read(um_board_handle(), what->local, &at, what->len, dma_p);
    what->reach->flights += ret == 0;
    return ret;
}

int um_board_dma_end(struct um_board_reach *reach, uint64_t dma)
{
    int ret = um_board_api.dma_poll(um_board_handle(), dma);
    if (ret == -EINPROGRESS)
        return ret;
    reach->stale |= ret == -EFAULT || ret == -ENXIO;
    um_board_reach_release(reach);
    return ret;
}

int um_board_dma_now(const struct um_board_transfer *what)
{
    uint64_t dma;
    um_board_reach_hold(what->reach); /* while lanes settle, which may find that it is stale */
    int ret = um_board_dma_begin(what, &dma);
    if (ret == -EAGAIN) {
        um_board_lanes_settle();
        ret = um_board_dma_begin(what, &dma);
    }
    if (ret == 0)
        while ((ret = um_board_dma_end(what->reach, dma)) == -EINPROGRESS)
            ;
    um_board_reach_release(what->reach);
    return ret;
}

/* ---- other contexts ---- */

static struct context *context_find(uint32_t node, uint32_t number)
{
    for (struct um_list *l = contexts.next; l != &contexts; l = l->next) {
        struct context *context = UM_CONTAINER(l, struct context, link);
        if (context->context == number && context->node == node)
            return context;
    }
    return NULL;
}

static void context_free(struct context *context)
{
    um_list_unlink(&context->link);
    contexts_count--;
    free(context);
}

/* Those that have ended, when there are many. */
static void contexts_sweep(void)
{
    for (struct um_list *l = contexts.next, *next; l != &contexts; l = next) {
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
        if (contexts_count == CONTEXTS)
            contexts_sweep();
        if (contexts_count < CONTEXTS)
            context = calloc(1, sizeof(*context) + UM_BOARD_DIRECTORY);
        if (!context)
            return; /* its memory goes through lanes */
        context->node = node;
        context->context = number;
        um_list_append(&contexts, &context->link);
        contexts_count++;
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

/* Reads the directory, if it has changed. */
static int context_read(struct context *context)
{
    struct unimem_remote at = {context->node, context->context, context->directory};
    struct um_board_reach *reach;
    if (context->known == context->version)
        return 0;
    if (!um_board_scratch())
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

/* The piece of a context's memory in which it lies. -EPERM: none. */
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

/* ---- memory for the machine's own DMAs ---- */

struct um_board_scratch *um_board_scratch(void)
{
    void *memory;
    if (!scratch && um_board_api.alloc_dmable(um_board_handle(), sizeof(*scratch), &memory) == 0)
        scratch = memory;
    return scratch;
}

void um_board_reaches_forget(void)
{
    struct um_list *first;
    ends++;
    while ((first = um_list_first(&reaches)) != NULL) {
        um_list_unlink(first);
        free(UM_CONTAINER(first, struct um_board_reach, link));
    }
    while ((first = um_list_first(&contexts)) != NULL)
        context_free(UM_CONTAINER(first, struct context, link));
    pinned = 0;
    scratch = NULL;
}
