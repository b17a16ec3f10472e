/*
 * Receiving: posted receives, multi-receive buffers, cancel. Messages that wait for a receive are in unexpected.c, the
 * call that receives is in recv.c.
 *
 *   message arrives → match → posted receive? → destination → body moves → finish: completion
 *                       └ none → unexpected → um_proto_recv finds it, or um_proto_peek reserves or drops it
 *
 * A multi-receive buffer takes messages one behind the other until less than multi_min bytes are left, or a message
 * does not fit into what is left; its last completion carries UM_OP_MULTI_END.
 * Owns: struct um_proto_posted_recv. Threading: core.h.
 */
#include "proto/receive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void um_proto_posted_recv_free(struct um_core_ep *ep, struct um_proto_posted_recv *recv)
{
    if (recv->room < 0)
        um_core_buffers_fini(&recv->buffers);
    um_pool_release(&um_proto_ep_of(ep)->receive->recvs, recv);
}

static void recv_complete(struct um_core_ep *ep, const struct um_proto_posted_recv *recv, uint32_t flags, int error)
{
    struct um_core_completion c = {.context = recv->context, .flags = recv->flags | flags, .error = error};
    ep->config.complete(ep->config.arg, &c);
}

static void recv_unpost(struct um_core_ep *ep, struct um_proto_posted_recv *recv)
{
    um_match_unpost(um_proto_receive_engine(ep, recv->flags), &recv->match);
}

void um_proto_posted_recv_end(struct um_core_ep *ep, struct um_proto_posted_recv *recv)
{
    if (recv->in_flight > 0)
        return;
    recv_complete(ep, recv, UM_OP_MULTI_END, 0);
    um_proto_posted_recv_free(ep, recv);
}

/* Unposts a multi-receive buffer, which takes no more messages. */
static void multi_spend(struct um_core_ep *ep, struct um_proto_posted_recv *recv)
{
    recv_unpost(ep, recv);
    recv->spent = true;
    um_proto_posted_recv_end(ep, recv);
}

static void multi_take(struct um_core_ep *ep, struct um_proto_posted_recv *recv, uint64_t len,
                       struct um_proto_destination *dest)
{
    size_t taken = len < recv->len ? (size_t)len : recv->len;
    dest->base = recv->buffers.small[0].iov_base;
    dest->piece = (struct iovec){.iov_base = dest->base, .iov_len = taken};
    dest->cursor = um_iov_begin(&dest->piece, 1);
    dest->len = taken;
    /* the next message begins 8-byte aligned */
    size_t space = (taken + 7) & ~(size_t)7;
    if (space > recv->len)
        space = recv->len;
    recv->buffers.small[0].iov_base = (char *)dest->base + space;
    recv->len -= space;
    recv->in_flight++;
    if (recv->len < ep->config.multi_min || recv->len == 0) {
        recv_unpost(ep, recv);
        recv->spent = true;
    }
}

static struct um_proto_posted_recv *recv_take(struct um_core_ep *ep, const struct um_proto_arrival *arrival)
{
    return um_proto_receive_take(um_proto_receive_engine(ep, arrival->flags), arrival->tag, arrival->peer);
}

void um_proto_posted_recv_destine(struct um_proto_posted_recv *recv, struct um_proto_destination *dest)
{
    dest->recv = recv;
    if (recv->room < 0) {
        dest->cursor = recv->buffers.cursor;
        dest->len = recv->len;
    } else {
        dest->len = (size_t)recv->room;
        recv->buffers.small[0] = (struct iovec){.iov_base = recv->base, .iov_len = dest->len};
        dest->cursor = um_iov_begin(recv->buffers.small, 1);
    }
    dest->base = NULL;
}

/* Sets the destination of a message for which recv was taken. False: recv was NULL, or a multi-receive without room
 * behind which there is no other receive. */
static bool receive_place(struct um_core_ep *ep, struct um_proto_posted_recv *recv,
                          const struct um_proto_arrival *arrival, struct um_proto_destination *dest)
{
    while (recv && recv->flags & UM_OP_MULTI) {
        bool untouched = recv->len == recv->buffers.small[0].iov_len;
        if (arrival->len <= recv->len || untouched) {
            dest->recv = recv;
            multi_take(ep, recv, arrival->len, dest);
            return true;
        }
        multi_spend(ep, recv);
        recv = recv_take(ep, arrival);
    }
    if (recv)
        um_proto_posted_recv_destine(recv, dest);
    return recv != NULL;
}

bool um_proto_receive_match(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                            struct um_proto_destination *dest_p)
{
    return receive_place(ep, recv_take(ep, arrival), arrival, dest_p);
}

void um_proto_receive_finish(struct um_core_ep *ep, struct um_proto_destination *dest,
                             const struct um_proto_arrival *arrival, int error)
{
    struct um_proto_posted_recv *recv = dest->recv;
    struct um_core_completion c = um_proto_arrival_end(ep, arrival, dest->len, error);
    c.context = recv->context;
    c.flags |= recv->flags;
    c.buf = dest->base;
    if (recv->flags & UM_OP_MULTI) {
        recv->in_flight--;
        if (recv->spent && recv->in_flight == 0) {
            c.flags |= UM_OP_MULTI_END;
            um_proto_posted_recv_free(ep, recv);
        }
    } else {
        um_proto_posted_recv_free(ep, recv);
    }
    ep->config.complete(ep->config.arg, &c);
}

bool um_proto_receive_body(struct um_core_ep *ep, struct um_proto_posted_recv *recv,
                           const struct um_proto_arrival *arrival, const void *body)
{
    struct um_proto_destination dest;
    if (!receive_place(ep, recv, arrival, &dest))
        return false;
    um_iov_scatter(&dest.cursor, body, arrival->len < dest.len ? (size_t)arrival->len : dest.len);
    um_proto_receive_finish(ep, &dest, arrival, 0);
    return true;
}

struct um_proto_posted_recv *um_proto_posted_recv_alloc(struct um_core_ep *ep, const struct um_proto_msg *msg)
{
    struct um_proto_posted_recv *recv = um_pool_alloc(&um_proto_ep_of(ep)->receive->recvs);
    if (!recv)
        return NULL;
    if (um_core_buffers_set(&recv->buffers, msg->iov, msg->count) != 0) {
        um_pool_release(&um_proto_ep_of(ep)->receive->recvs, recv);
        return NULL;
    }
    um_proto_posted_recv_init(recv, msg->peer, msg->context, msg->flags, msg->tag, msg->ignore);
    recv->in_flight = 0;
    recv->spent = false;
    recv->len = um_iov_length(msg->iov, msg->count);
    recv->base = msg->count ? msg->iov->iov_base : NULL;
    recv->room = msg->count == 1 && !(msg->flags & UM_OP_MULTI) && recv->len <= INT32_MAX ? (int32_t)recv->len : -1;
    return recv;
}

/* Ends a posted receive with an error. */
static void recv_abandon(struct um_core_ep *ep, struct um_proto_posted_recv *recv, int error)
{
    recv_unpost(ep, recv);
    if (recv->flags & UM_OP_MULTI) {
        recv->spent = true;
        if (recv->in_flight > 0)
            return; /* the last message on its way completes it */
    }
    recv_complete(ep, recv, recv->flags & UM_OP_MULTI ? (uint32_t)UM_OP_MULTI_END : 0, error);
    um_proto_posted_recv_free(ep, recv);
}

/* Walks the posted receives of an engine, oldest first. Returns the one behind recv (NULL: the first one). */
static struct um_proto_posted_recv *posted_next(struct um_match *engine, struct um_proto_posted_recv *recv)
{
    struct um_match_recv *next = recv ? um_match_next_recv(engine, &recv->match) : um_match_any_recv(engine);
    return next ? UM_CONTAINER(next, struct um_proto_posted_recv, match) : NULL;
}

int um_proto_cancel(struct um_core_ep *ep, void *context)
{
    for (int i = 0; i < 2; i++) {
        struct um_match *engine = um_proto_ep_of(ep)->receive->engine[i];
        struct um_proto_posted_recv *recv = NULL;
        while ((recv = posted_next(engine, recv)) != NULL) {
            if (recv->context == context) {
                recv_abandon(ep, recv, ECANCELED);
                return 0;
            }
        }
    }
    return -ENOENT;
}

void um_proto_receive_cancel_all(struct um_core_ep *ep)
{
    for (int i = 0; i < 2; i++) {
        struct um_match *engine = um_proto_ep_of(ep)->receive->engine[i];
        struct um_proto_posted_recv *first;
        while ((first = posted_next(engine, NULL)) != NULL)
            recv_abandon(ep, first, ECANCELED);
    }
}

void um_proto_receive_peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error)
{
    for (int i = 0; i < 2; i++) {
        struct um_match *engine = um_proto_ep_of(ep)->receive->engine[i];
        struct um_proto_posted_recv *next;
        for (struct um_proto_posted_recv *recv = posted_next(engine, NULL); recv; recv = next) {
            next = posted_next(engine, recv);
            if (recv->match.source == peer->number)
                recv_abandon(ep, recv, error);
        }
    }
}
