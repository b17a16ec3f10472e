/*
 * Seeks: a link asks a peer for a notice of what it exports. board.h; view.c is the other side, and has a diagram.
 *
 * When the user of a link asks for a window, the link asks its peer to write a notice, a line in our dmable memory. The
 * line is reused only after the peer has said that it does not write it any more, or is gone. So a line may outlive its
 * link.
 *
 * Owns: um_board.seeks. Threading: under the process's lock.
 */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool has_to_say(const struct um_board_seek *seek)
{
    return !seek->asked || (seek->closed && seek->shown && !seek->withdrawn);
}

static void seek_free(struct um_board_seek *seek)
{
    um_board.seeks.seek[seek->place] = NULL;
    free(seek);
    while (um_board.seeks.end && !um_board.seeks.seek[um_board.seeks.end - 1])
        um_board.seeks.end--;
}

/* Frees the closed seeks whose lines nobody writes any more, because the peer's context has ended. */
static void seeks_sweep(void)
{
    for (uint32_t i = 0; i < UM_BOARD_NOTICES; i++)
        if (um_board.seeks.seek[i] && um_board.seeks.seek[i]->closed &&
            um_board_api.context_alive(um_board_handle(), um_board.seeks.seek[i]->peer.node,
                                       um_board.seeks.seek[i]->peer.context) != 1)
            seek_free(um_board.seeks.seek[i]);
}

struct um_board_seek *um_board_seek_new(const struct um_board_link *link)
{
    void *memory;
    if (!um_board.seeks.area && um_board_api.alloc_dmable(um_board_handle(), UM_BOARD_NOTICE_AREA, &memory) == 0)
        um_board.seeks.area = memory;
    uint32_t place = 0;
    for (int round = 0; round < 2; round++) {
        for (place = 0; place < UM_BOARD_NOTICES && um_board.seeks.seek[place];)
            place++;
        if (place < UM_BOARD_NOTICES)
            break;
        seeks_sweep();
    }
    struct um_board_seek *seek = um_board.seeks.area && place < UM_BOARD_NOTICES ? calloc(1, sizeof(*seek)) : NULL;
    if (!seek)
        return NULL;
    *seek = (struct um_board_seek){
        .port = link->port, .peer = link->peer, .notice = &um_board.seeks.area[place], .place = place};
    memset(seek->notice, 0, sizeof(*seek->notice));
    um_board.seeks.seek[place] = seek;
    um_board.seeks.end = place + 1 > um_board.seeks.end ? place + 1 : um_board.seeks.end;
    um_board.seeks.unsaid++;
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
    um_board.seeks.unsaid--;
    seek->withdrawn = seek->asked;
    seek->asked = true;
    if (ret) { /* the peer is gone: nobody writes the line, and no message comes */
        seek->shown = seek->withdrawn = true;
        if (seek->closed)
            seek_free(seek);
    }
    return true;
}

bool um_board_seeks_push(void)
{
    bool any = false;
    for (uint32_t i = 0; i < um_board.seeks.end && um_board.seeks.unsaid; i++)
        if (um_board.seeks.seek[i] && has_to_say(um_board.seeks.seek[i]))
            any |= seek_push(um_board.seeks.seek[i]);
    return any;
}

bool um_board_seeks_hold_back(const struct um_board_port *port)
{
    for (uint32_t i = 0; i < um_board.seeks.end && um_board.seeks.unsaid; i++)
        if (um_board.seeks.seek[i] && um_board.seeks.seek[i]->port == port && has_to_say(um_board.seeks.seek[i]))
            return true;
    return false;
}

void um_board_seek_close(struct um_board_seek *seek)
{
    seek->closed = true;
    if (!seek->asked) {
        um_board.seeks.unsaid--;
        seek_free(seek);
    } else if (seek->shown && seek->withdrawn) {
        seek_free(seek);
    } else if (seek->shown) {
        um_board.seeks.unsaid++;
    }
}

void um_board_seek_take(struct um_board_port *port, const struct um_board_message_wire *message)
{
    struct um_board_seek *seek = message->number < um_board.seeks.end ? um_board.seeks.seek[message->number] : NULL;
    if (!seek || seek->port != port || !seek->asked)
        return;
    if (message->op == UM_BOARD_SHOWN && !seek->shown) {
        seek->shown = true;
        seek->view = message->value;
        seek->withdrawn = message->value <= UM_BOARD_NO_ROOM; /* there is no view */
        um_board.seeks.unsaid += seek->closed && !seek->withdrawn;
        if (seek->closed && seek->withdrawn)
            seek_free(seek);
    } else if (message->op == UM_BOARD_GONE && seek->closed && seek->withdrawn) {
        seek_free(seek);
    }
}

/* Drops unsent messages. The lines are not reused while their writers live. */
void um_board_seeks_end(const struct um_board_port *port)
{
    for (uint32_t i = 0; i < um_board.seeks.end; i++) {
        if (!um_board.seeks.seek[i] || um_board.seeks.seek[i]->port != port)
            continue;
        um_board.seeks.unsaid -= has_to_say(um_board.seeks.seek[i]);
        um_board.seeks.seek[i]->port = NULL;
        um_board.seeks.seek[i]->asked = um_board.seeks.seek[i]->withdrawn = true;
    }
}

void um_board_seeks_forget(void)
{
    for (uint32_t i = 0; i < UM_BOARD_NOTICES; i++) {
        free(um_board.seeks.seek[i]);
        um_board.seeks.seek[i] = NULL;
    }
    um_board.seeks.end = um_board.seeks.unsaid = 0;
    um_board.seeks.area = NULL;
}
