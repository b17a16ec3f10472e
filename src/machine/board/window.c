/*
 * Windows: looking at what a peer exposes. board.h; view.c is the other side, where the picture is.
 *
 * A link that is asked for a window asks its peer for a notice, a line in our dmable memory. Until the peer has written
 * it there are windows at level remote only, and they are not current any more once it did. From then on the table is
 * read by DMA, a bucket for a key, and a window is current while the notice's changes are the same.
 *
 * A line is another's only after the peer said that it writes it no more, or is gone: so lines outlive their links.
 * Owns: the area of notices, the seeks. Threading: the calls of machine.h take the process's lock, the rest is under
 * it.
 */
#include "machine/board/board.h"

#include "base/atomic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct um_board_seek {
    struct um_board_port *port; /* NULL: it was closed */
    struct unimem_mailbox_address peer;
    struct um_board_notice_wire *notice;
    uint32_t place; /* of the notice in its area */
    uint32_t view;  /* the peer's number, once it was shown */
    bool asked, shown, closed, unasked;
};

static struct um_board_notice_wire *area; /* UM_BOARD_NOTICES, dmable */
static struct um_board_seek *seeks[UM_BOARD_NOTICES];
static uint32_t seeks_end; /* above the last one */
static uint32_t unsaid;    /* those that have something to tell */

static const uint64_t never; /* changes of what stays as it is */
static const uint32_t no_counters;

/* ---- asking for a notice ---- */

static bool has_to_say(const struct um_board_seek *seek)
{
    return !seek->asked || (seek->closed && seek->shown && !seek->unasked);
}

static void seek_free(struct um_board_seek *seek)
{
    seeks[seek->place] = NULL;
    free(seek);
    while (seeks_end && !seeks[seeks_end - 1])
        seeks_end--;
}

/* Lines whose writer has ended. */
static void seeks_sweep(void)
{
    for (uint32_t i = 0; i < UM_BOARD_NOTICES; i++)
        if (seeks[i] && seeks[i]->closed &&
            um_board_api.context_alive(um_board_handle(), seeks[i]->peer.node, seeks[i]->peer.context) != 1)
            seek_free(seeks[i]);
}

static struct um_board_seek *seek_new(const struct um_board_link *link)
{
    void *memory;
    if (!area && um_board_api.alloc_dmable(um_board_handle(), UM_BOARD_NOTICE_AREA, &memory) == 0)
        area = memory;
    uint32_t place = 0;
    for (int round = 0; round < 2; round++) {
        for (place = 0; place < UM_BOARD_NOTICES && seeks[place];)
            place++;
        if (place < UM_BOARD_NOTICES)
            break;
        seeks_sweep();
    }
    struct um_board_seek *seek = area && place < UM_BOARD_NOTICES ? calloc(1, sizeof(*seek)) : NULL;
    if (!seek)
        return NULL;
    *seek = (struct um_board_seek){.port = link->port, .peer = link->peer, .notice = &area[place], .place = place};
    memset(seek->notice, 0, sizeof(*seek->notice));
    seeks[place] = seek;
    seeks_end = place + 1 > seeks_end ? place + 1 : seeks_end;
    unsaid++;
    return seek;
}

/* Sends what is to be told. May free the seek. */
static bool seek_push(struct um_board_seek *seek)
{
    const struct unimem_mailbox_address *own = seek->port ? &seek->port->address : &seek->peer;
    struct um_board_seek_wire ask = {.kind = (uint16_t)(UM_BOARD_SEEK | seek->place << 4),
                                     .node = (uint16_t)own->node,
                                     .context = own->context,
                                     .mailbox = own->mailbox,
                                     .generation = own->generation,
                                     .notice = (uintptr_t)seek->notice};
    struct um_board_message_wire end = {.op = UM_BOARD_UNSEEK, .number = seek->view, .more = (uintptr_t)seek->notice};
    const void *message = seek->asked ? (const void *)&end : &ask;
    int ret = um_board_api.mailbox_send(um_board_handle(), &seek->peer, message, UNIMEM_MESSAGE_SIZE);
    if (ret == -EAGAIN)
        return false;
    unsaid--;
    seek->unasked = seek->asked;
    seek->asked = true;
    if (ret) { /* nobody is there, so nobody writes the line: nothing else comes */
        seek->shown = seek->unasked = true;
        if (seek->closed)
            seek_free(seek);
    }
    return true;
}

bool um_board_seeks_push(void)
{
    bool any = false;
    for (uint32_t i = 0; i < seeks_end && unsaid; i++)
        if (seeks[i] && has_to_say(seeks[i]))
            any |= seek_push(seeks[i]);
    return any;
}

bool um_board_seeks_hold_back(const struct um_board_port *port)
{
    for (uint32_t i = 0; i < seeks_end && unsaid; i++)
        if (seeks[i] && seeks[i]->port == port && has_to_say(seeks[i]))
            return true;
    return false;
}

void um_board_seek_close(struct um_board_seek *seek)
{
    seek->closed = true;
    if (!seek->asked) {
        unsaid--;
        seek_free(seek);
    } else if (seek->shown && seek->unasked) {
        seek_free(seek);
    } else if (seek->shown) {
        unsaid++;
    }
}

void um_board_seek_take(struct um_board_port *port, const struct um_board_message_wire *message)
{
    struct um_board_seek *seek = message->number < seeks_end ? seeks[message->number] : NULL;
    if (!seek || seek->port != port || !seek->asked)
        return;
    if (message->op == UM_BOARD_SHOWN && !seek->shown) {
        seek->shown = true;
        seek->view = message->value;
        seek->unasked = message->value <= UM_BOARD_NO_ROOM; /* there is no view */
        unsaid += seek->closed && !seek->unasked;
        if (seek->closed && seek->unasked)
            seek_free(seek);
    } else if (message->op == UM_BOARD_GONE && seek->closed && seek->unasked) {
        seek_free(seek);
    }
}

/* What it has not told goes to nobody; its line is not used again while the writer lives. */
void um_board_seeks_end(const struct um_board_port *port)
{
    for (uint32_t i = 0; i < seeks_end; i++) {
        if (!seeks[i] || seeks[i]->port != port)
            continue;
        unsaid -= has_to_say(seeks[i]);
        seeks[i]->port = NULL;
        seeks[i]->asked = seeks[i]->unasked = true;
    }
}

void um_board_seeks_forget(void)
{
    for (uint32_t i = 0; i < UM_BOARD_NOTICES; i++) {
        free(seeks[i]);
        seeks[i] = NULL;
    }
    seeks_end = unsaid = 0;
    area = NULL;
}

/* ---- windows ---- */

/* False: it says that there is nothing, or it is not all there: then changes is what it was before, at the latest. */
static bool notice_read(const struct um_board_seek *seek, struct um_board_notice_wire *notice_p)
{
    memcpy(notice_p, seek->notice, sizeof(*notice_p));
    bool whole = notice_p->check == um_board_check(notice_p, 7);
    notice_p->changes -= !whole && notice_p->changes;
    return whole && notice_p->table && notice_p->buckets && notice_p->buckets <= UM_BOARD_BUCKETS_MAX &&
           (notice_p->buckets & (notice_p->buckets - 1)) == 0;
}

/* Reads the key's bucket, into the scratch. */
static const struct um_board_entry_wire *bucket_read(const struct um_board_link *link,
                                                     const struct um_board_notice_wire *notice, uint64_t key)
{
    const struct unimem_remote at = {link->peer.node, link->peer.context, notice->table};
    struct um_board_scratch *scratch = um_board_scratch();
    int ret = scratch ? -EFAULT : -ENOMEM;
    for (int tries = 0; tries < 2 && ret == -EFAULT; tries++) { /* what was registered may be a table of before */
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

/* What the peer says of the key now; the window stays at level remote if that is nothing. */
static void window_fill(const struct um_board_link *link, struct um_window *w)
{
    const struct um_board_seek *seek = link->seek;
    struct um_board_notice_wire notice;
    bool told = notice_read(seek, &notice);
    if (notice.changes == UINT64_MAX)
        return; /* no owner says so: core/window.h has another meaning for it */
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
    if (!link->port->copies || um_board_step() < UM_BOARD_NATIVE)
        return -ENOENT;
    struct um_window *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->machine = &um_machine_board;
    w->region.key = key;
    w->port_counters = &no_counters;
    w->changes_at = &never;
    um_board_enter();
    if (!link->seek)
        link->seek = seek_new(link);
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

/* What counts has no windows. */
void um_board_window_count(struct um_window *window, unsigned shift)
{
    (void)window, (void)shift;
}
