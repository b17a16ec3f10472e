/*
 * Windows: a link's view of what a peer exports. board.h.
 *
 * Until the peer has written the notice that the link asked for (seek.c), all windows are at level remote, and once it
 * has written the notice they are not current any more. From then on the bucket of a key is read by DMA out of the
 * peer's table, and a window is current while `changes` of the notice stays the same.
 *
 * Threading: the calls of machine.h take the process's lock.
 */
#include "machine/board/board.h"

#include "base/atomic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t never; /* `changes` of a window that is always current */
static const uint32_t no_counters;

/* Copies the notice. False: it names no usable table, or is incomplete; `changes` of an incomplete copy is one less, so
 * that no window made of it is current. */
static bool notice_read(const struct um_board_seek *seek, struct um_board_notice_wire *notice_p)
{
    memcpy(notice_p, seek->notice, sizeof(*notice_p));
    bool whole = notice_p->check == um_board_check(notice_p, 7);
    notice_p->changes -= !whole && notice_p->changes;
    return whole && notice_p->table && notice_p->buckets && notice_p->buckets <= UM_BOARD_BUCKETS_MAX &&
           (notice_p->buckets & (notice_p->buckets - 1)) == 0;
}

/* Reads the bucket of the key into scratch memory; NULL: not possible. */
static const struct um_board_entry_wire *bucket_read(const struct um_board_link *link,
                                                     const struct um_board_notice_wire *notice, uint64_t key)
{
    const struct unimem_remote at = {link->peer.node, link->peer.context, notice->table};
    struct um_board_scratch *scratch = um_board_scratch_get();
    int ret = scratch ? -EFAULT : -ENOMEM;
    /* Twice, because a registration may be of an older table, which was freed. */
    for (int tries = 0; tries < 2 && ret == -EFAULT; tries++) {
        struct um_board_transfer what = {.local = scratch->small, .len = UM_BOARD_BUCKET_BYTES};
        what.address = at.address + um_board_bucket_of(key, notice->buckets) * UM_BOARD_BUCKET_BYTES;
        ret = um_board_reach_get(&at, (size_t)notice->buckets * UM_BOARD_BUCKET_BYTES, &what.reach);
        if (ret == 0)
            ret = um_board_dma_now(&what);
    }
    return ret ? NULL : (const void *)scratch->small;
}

static bool entry_is_good(const struct um_board_entry_wire *entry, uint64_t key)
{
    return entry->check == um_board_check(entry, 7) && entry->key == key && entry->len <= UINT64_MAX - entry->base &&
           entry->access <= (UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE);
}

/* Fills the window with the peer's entry for the key; without one it stays at level remote. */
static void window_fill(const struct um_board_link *link, struct um_window *w)
{
    const struct um_board_seek *seek = link->seek;
    struct um_board_notice_wire notice;
    bool told = notice_read(seek, &notice);
    if (notice.changes == UINT64_MAX)
        return; /* no owner writes this value, and core/window.h uses it for something else */
    w->changes = notice.changes;
    w->changes_at = &seek->notice->changes;
    const struct um_board_entry_wire *bucket = told ? bucket_read(link, &notice, w->region.key) : NULL;
    for (unsigned i = 0; bucket && i < UM_BOARD_BUCKET; i++) {
        const struct um_board_entry_wire *entry = &bucket[i];
        if (!entry_is_good(entry, w->region.key))
            continue;
        um_board_reach_told(link->peer.node, link->peer.context, notice.directory, (uint32_t)notice.version);
        w->region.base = entry->base;
        w->region.len = entry->len;
        w->region.origin = entry->origin;
        w->region.access = (uint32_t)entry->access;
        w->level = UM_LEVEL_COPY;
        return;
    }
}

int um_board_window_open(struct um_link *base, uint64_t key, struct um_window **window_p)
{
    struct um_board_link *link = (struct um_board_link *)base;
    int ret = 0;
    if (!link->port->copies || um_board_step_get() < UM_BOARD_NATIVE)
        return -ENOENT;
    struct um_window *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->machine = link->base.machine;
    w->region.key = key;
    w->port_counters = &no_counters;
    w->changes_at = &never;
    um_board_enter();
    if (!link->seek)
        link->seek = um_board_seek_new(link);
    um_board_drive();
    if (link->seek && link->seek->shown && link->seek->view == UM_BOARD_NO_SPACE)
        ret = -ENOENT;
    else if (link->seek)
        window_fill(link, w);
    um_board_leave();
    if (ret) {
        free(w);
        return ret;
    }
    *window_p = w;
    return 0;
}

void um_board_window_close(struct um_window *window)
{
    free(window);
}

/* Nothing to count: regions and ports that count accesses have no windows above level remote. */
void um_board_window_count(struct um_window *window, unsigned shift)
{
    (void)window, (void)shift;
}
