/* reach.h. */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>

static bool same_context(const struct unimem_remote *a, const struct unimem_remote *b)
{
    return a->context == b->context && a->node == b->node;
}

static void to_front(struct um_board_reach *reach)
{
    um_list_unlink(&reach->link);
    reach->link = (struct um_list){um_board.reaches.list.next, &um_board.reaches.list};
    um_board.reaches.list.next->prev = &reach->link;
    um_board.reaches.list.next = &reach->link;
}

static bool covers(const struct um_board_reach *reach, const struct unimem_remote *at, size_t len)
{
    uint64_t offset = at->address - reach->at.address;
    return !reach->stale && same_context(&reach->at, at) && offset <= reach->len && len <= reach->len - offset;
}

struct um_board_reach *um_board_reach_find(const struct unimem_remote *at, size_t len)
{
    for (struct um_list *l = um_board.reaches.list.next; l != &um_board.reaches.list; l = l->next) {
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
    *hint = (struct um_board_hint){.reach = reach, .ends = um_board.reaches.ends};
}

struct um_board_reach *um_board_reach_again(const struct um_board_hint *hint, const struct unimem_remote *at,
                                            size_t len)
{
    if (!hint->reach || hint->ends != um_board.reaches.ends || !covers(hint->reach, at, len))
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
    um_board.reaches.ends++;
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

/* Ends registrations that nothing uses: the one used longest ago, or (overlap) all that overlap this memory. True if
 * any ended. */
static bool make_room(const struct unimem_remote *at, uint64_t len, bool overlap)
{
    bool any = false;
    struct um_list *before;
    for (struct um_list *l = um_board.reaches.list.prev; l != &um_board.reaches.list && (overlap || !any); l = before) {
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

void um_board_reaches_gone(uint32_t node, uint32_t context)
{
    for (struct um_list *l = um_board.reaches.list.next, *next; l != &um_board.reaches.list; l = next) {
        struct um_board_reach *reach = UM_CONTAINER(l, struct um_board_reach, link);
        next = l->next;
        if (reach->at.node == node && reach->at.context == context)
            um_board_reach_drop(reach);
    }
}

/* Registers the memory, and makes room for that if needed. */
static int reach_enter(const struct unimem_remote *at, size_t len)
{
    for (;;) {
        int ret = um_board_api.enter(um_board_handle(), at, len);
        if (ret != -EEXIST && ret != -ENOSPC)
            return ret;
        if (!make_room(at, len, ret == -EEXIST))
            return -EAGAIN;
    }
}

int um_board_reach_try(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p)
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

bool um_board_reach_pins_full(void)
{
    struct unimem_info info;
    um_board_api.get_info(um_board_handle(), &info);
    return (um_board.reaches.pinned + 1) * 2 > info.registrations_max;
}

bool um_board_reach_pin(struct um_board_reach *reach)
{
    if (!reach->pins && um_board_reach_pins_full())
        return false;
    um_board.reaches.pinned += !reach->pins++;
    um_board_reach_hold(reach);
    return true;
}

void um_board_reach_unpin(struct um_board_reach *reach)
{
    um_board.reaches.pinned -= !--reach->pins;
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

void um_board_reaches_forget(void)
{
    struct um_list *first;
    um_board.reaches.ends++;
    while ((first = um_list_first(&um_board.reaches.list)) != NULL) {
        um_list_unlink(first);
        free(UM_CONTAINER(first, struct um_board_reach, link));
    }
    um_board.reaches.pinned = 0;
}
