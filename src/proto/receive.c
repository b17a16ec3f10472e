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

/* A multi-receive buffer takes no more messages. */
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

static struct um_proto_posted_recv *recv_find(struct um_core_ep *ep, const struct um_proto_arrival *arrival)
{
    struct um_match *engine = um_proto_receive_engine(ep, arrival->flags);
    struct um_match_recv *found = um_match_find_recv(engine, arrival->tag, arrival->peer->number);
    return found ? UM_CONTAINER(found, struct um_proto_posted_recv, match) : NULL;
}

static void single_take(struct um_core_ep *ep, struct um_proto_posted_recv *recv, struct um_proto_destination *dest)
{
    recv_unpost(ep, recv);
    dest->cursor = recv->buffers.cursor;
    dest->len = recv->len;
    dest->base = NULL;
}

/* Takes a message into the multi-receive that was found. */
static __attribute__((noinline)) bool multi_match(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                                                  struct um_proto_destination *dest)
{
    struct um_proto_posted_recv *recv = dest->recv;
    while (recv && recv->flags & UM_OP_MULTI) {
        bool untouched = recv->len == recv->buffers.small[0].iov_len;
        if (arrival->len <= recv->len || untouched) {
            multi_take(ep, recv, arrival->len, dest);
            return true;
        }
        multi_spend(ep, recv);
        dest->recv = recv = recv_find(ep, arrival);
    }
    if (recv)
        single_take(ep, recv, dest);
    return recv != NULL;
}

bool um_proto_receive_match(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                            struct um_proto_destination *dest_p)
{
    struct um_proto_posted_recv *recv = recv_find(ep, arrival);
    if (!recv)
        return false;
    dest_p->recv = recv;
    if (recv->flags & UM_OP_MULTI)
        return multi_match(ep, arrival, dest_p);
    single_take(ep, recv, dest_p);
    return true;
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

/* As um_proto_receive_body, for a message that is not the usual one: a multi-receive takes it, or a list of buffers. */
static __attribute__((noinline)) bool receive_body_any(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                                                       const void *body)
{
    struct um_proto_destination dest;
    if (!um_proto_receive_match(ep, arrival, &dest))
        return false;
    um_iov_scatter(&dest.cursor, body, arrival->len < dest.len ? (size_t)arrival->len : dest.len);
    um_proto_receive_finish(ep, &dest, arrival, 0);
    return true;
}

bool um_proto_receive_body(struct um_core_ep *ep, const struct um_proto_arrival *arrival, const void *body)
{
    struct um_proto_posted_recv *recv = recv_find(ep, arrival);
    if (__builtin_expect(!recv, 0))
        return false;
    if (__builtin_expect(recv->flags & UM_OP_MULTI || recv->buffers.count != 1, 0))
        return receive_body_any(ep, arrival, body);
    um_match_unpost(um_proto_receive_engine(ep, recv->flags), &recv->match);
    const size_t len = arrival->len < recv->len ? (size_t)arrival->len : recv->len;
    if (len)
        memcpy(recv->buffers.small[0].iov_base, body, len);
    struct um_core_completion c = um_proto_arrival_end(ep, arrival, recv->len, 0);
    c.context = recv->context;
    c.flags |= recv->flags;
    um_pool_release(&um_proto_ep_of(ep)->receive->recvs, recv);
    ep->config.complete(ep->config.arg, &c);
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
    um_proto_posted_recv_init(recv, msg, um_iov_length(msg->iov, msg->count));
    return recv;
}

/* Ends a posted receive with an error. */
static void recv_abandon(struct um_core_ep *ep, struct um_proto_posted_recv *recv, int error)
{
    recv_unpost(ep, recv);
    if (recv->flags & UM_OP_MULTI) {
        recv->spent = true;
        if (recv->in_flight > 0)
            return; /* the last message on its way ends it */
    }
    recv_complete(ep, recv, recv->flags & UM_OP_MULTI ? (uint32_t)UM_OP_MULTI_END : 0, error);
    um_proto_posted_recv_free(ep, recv);
}

/* The posted receives of an engine one by one, oldest first: the one behind recv, at first NULL. */
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
