/*
 * Views: peers that look at the space of a port, and the notices that tell them of its changes. board.h.
 *
 *   link (window.c)                       port
 *   SEEK {address of the notice}  ──────→ view: writes the notice, by DMA
 *                                 ←────── SHOWN {number of the view}
 *   reads the table by DMA                a change of the table: writes the notice, by DMA
 *   UNSEEK {number}               ──────→ view ends
 *                                 ←────── GONE: the notice may be another's
 *
 * A notice lies in the memory of the peer that looks, so that the peer sees a change by a load. The owner writes it by
 * DMA, and so knows without the peer's help when it has arrived. The area of a peer's notices stays registered while
 * the peer has a view. If the engine's table has no place for that, the peer gets NO_ROOM, and the owner executes its
 * operations.
 *
 * Owns: um_board.views. Threading: under the process's lock.
 */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { VIEWS = 4096 };

struct view {
    struct um_list link;
    struct um_board_port *port; /* NULL: the view has ended; only GONE or SHOWN is still to be sent */
    struct unimem_mailbox_address peer;
    uint32_t number, seek;
    uint64_t notice;
    struct um_board_reach *reach;
    uint64_t dma;
    bool telling;      /* its notice is under way */
    uint16_t to_send;  /* op of the message that is to be sent; 0: none */
    uint32_t to_value; /* value of that message */
};

static void view_free(struct view *view)
{
    um_list_unlink(&view->link);
    um_board.views.count--;
    um_board.views.unsent -= view->to_send != 0;
    if (view->reach)
        um_board_reach_unpin(view->reach);
    free(view);
}

static void view_send(struct view *view, uint16_t op, uint32_t value)
{
    um_board.views.unsent += !view->to_send;
    view->to_send = op;
    view->to_value = value;
}

/* ---- notices ---- */

/* Composes the notice for peers that look through the port, in memory that the engine reaches. */
static void notice_compose(const struct um_board_port *port)
{
    const struct um_board_space *space = port->space;
    uint32_t version;
    uint64_t directory = um_board_directory(&version);
    struct um_board_notice_wire notice = {.changes = space->changes,
                                          .table = space->count ? (uintptr_t)space->table : 0,
                                          .buckets = space->buckets,
                                          .directory = directory,
                                          .version = version};
    if (port->counters)
        notice.table = 0; /* the owner executes accesses that count */
    notice.check = um_board_check(&notice, 7);
    memcpy(um_board_scratch_get()->notice, &notice, sizeof(notice));
}

/* -ENXIO, -EFAULT: the peer is gone. */
static int notice_write(struct view *view)
{
    return um_board_dma_now(&(struct um_board_transfer){.reach = view->reach,
                                                        .address = view->notice,
                                                        .local = um_board_scratch_get()->notice,
                                                        .len = UM_BOARD_LINE,
                                                        .write = true});
}

void um_board_views_tell(const struct um_board_space *space, const struct um_board_port *port)
{
    for (struct um_list *l = um_board.views.list.next, *next; l != &um_board.views.list; l = next) {
        struct view *view = UM_CONTAINER(l, struct view, link);
        next = l->next;
        if (!view->port || !view->reach || view->port->space != space || (port && view->port != port))
            continue;
        notice_compose(view->port);
        if (notice_write(view))
            view_free(view);
    }
}

/* ---- who looks ---- */

/* Frees the views of contexts that have ended. Called when there is no room for another one. */
static void views_sweep(void)
{
    for (struct um_list *l = um_board.views.list.next, *next; l != &um_board.views.list; l = next) {
        struct view *view = UM_CONTAINER(l, struct view, link);
        next = l->next;
        if (um_board_api.context_alive(um_board_handle(), view->peer.node, view->peer.context) != 1)
            view_free(view);
    }
}

void um_board_views_gone(uint32_t node, uint32_t context)
{
    for (struct um_list *l = um_board.views.list.next, *next; l != &um_board.views.list; l = next) {
        struct view *view = UM_CONTAINER(l, struct view, link);
        next = l->next;
        if (view->peer.node == node && view->peer.context == context)
            view_free(view);
    }
}

/* Prepares to write the notice, and writes it. False: it cannot be written. */
static bool view_begin(struct view *view, const struct um_board_seek_wire *message)
{
    uint64_t offset = (uint64_t)(message->kind >> 4) * UM_BOARD_LINE;
    const struct unimem_remote area = {view->peer.node, view->peer.context, message->notice - offset};
    struct um_board_reach *reach;
    if (!um_board_scratch_get() || um_board_reach_get(&area, UM_BOARD_NOTICE_AREA, &reach))
        return false;
    if (!um_board_reach_pin(reach))
        return false;
    view->reach = reach;
    notice_compose(view->port);
    return notice_write(view) == 0;
}

void um_board_view_seek(struct um_board_port *port, const struct um_board_seek_wire *message)
{
    if (um_board.views.count == VIEWS || um_board_reach_pins_full())
        views_sweep();
    struct view *view = um_board.views.count < VIEWS ? calloc(1, sizeof(*view)) : NULL;
    if (!view)
        return; /* the peer goes on without a view */
    view->port = port;
    view->peer = (struct unimem_mailbox_address){.node = message->node,
                                                 .context = message->context,
                                                 .mailbox = message->mailbox,
                                                 .generation = message->generation};
    view->seek = message->kind >> 4;
    view->notice = message->notice;
    um_board.views.number = um_board.views.number > UM_BOARD_NO_ROOM ? um_board.views.number + 1 : UM_BOARD_NO_ROOM + 1;
    view->number = um_board.views.number;
    um_list_append(&um_board.views.list, &view->link);
    um_board.views.count++;
    uint32_t value = !port->space || !port->copies || um_board_step_get() < UM_BOARD_NATIVE ? UM_BOARD_NO_SPACE
                     : view_begin(view, message)                                            ? view->number
                                                                                            : UM_BOARD_NO_ROOM;
    if (value != view->number)
        view->port = NULL;
    view_send(view, UM_BOARD_SHOWN, value);
}

void um_board_view_take(struct um_board_port *port, const struct um_board_message_wire *message)
{
    for (struct um_list *l = um_board.views.list.next; l != &um_board.views.list; l = l->next) {
        struct view *view = UM_CONTAINER(l, struct view, link);
        if (view->number != message->number || view->port != port || view->notice != message->more)
            continue;
        view->port = NULL;
        view_send(view, UM_BOARD_GONE, 0);
        return;
    }
}

bool um_board_views_push(void)
{
    bool any = false;
    for (struct um_list *l = um_board.views.list.next, *next; l != &um_board.views.list && um_board.views.unsent;
         l = next) {
        struct view *view = UM_CONTAINER(l, struct view, link);
        next = l->next;
        struct um_board_message_wire message = {.op = view->to_send, .number = view->seek, .value = view->to_value};
        if (!view->to_send)
            continue;
        int ret = um_board_api.mailbox_send(um_board_handle(), &view->peer, &message, sizeof(message));
        if (ret == -EAGAIN)
            continue;
        any = true;
        view->to_send = 0;
        um_board.views.unsent--;
        if (ret || !view->port)
            view_free(view);
    }
    return any;
}

bool um_board_views_hold_back(const struct um_board_port *port)
{
    for (struct um_list *l = um_board.views.list.next; l != &um_board.views.list && um_board.views.unsent;
         l = l->next) {
        const struct view *view = UM_CONTAINER(l, const struct view, link);
        if (view->to_send && (view->port == port || !view->port))
            return true;
    }
    return false;
}

void um_board_views_end(const struct um_board_port *port)
{
    for (struct um_list *l = um_board.views.list.next, *next; l != &um_board.views.list; l = next) {
        struct view *view = UM_CONTAINER(l, struct view, link);
        next = l->next;
        if (view->port != port)
            continue;
        struct um_board_notice_wire *notice = (void *)um_board_scratch_get()->notice;
        notice_compose(port);
        notice->changes++;
        notice->table = 0;
        notice->check = um_board_check(notice, 7);
        notice_write(view);
        view_free(view);
    }
}

void um_board_views_forget(void)
{
    struct um_list *first;
    while ((first = um_list_first(&um_board.views.list)) != NULL) {
        struct view *view = UM_CONTAINER(first, struct view, link);
        view->reach = NULL; /* gone with the context */
        view_free(view);
    }
}
