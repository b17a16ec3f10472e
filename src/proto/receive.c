/*
 * Receiving: posted receives, unexpected messages, multi-receive buffers, peek, claim, discard, cancel.
 *
 *   message arrives → match → posted receive? → target → body moves → finish: completion
 *                       └ none → unexpected → um_recv finds it, or um_peek reserves or drops it
 *
 * A multi-receive buffer takes messages one behind the other until less than multi_min bytes are left, or a message
 * does not fit into what is left; its last completion carries UM_OP_MULTI_END.
 * Owns: the two match engines (tagged, untagged) and their objects. Threading: core.h.
 */
#include "proto/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { UM_UNEXPECTED_INLINE = 128 };

struct um_unexpected {
    struct um_match_msg match;
    struct um_list link; /* in claimed */
    void *claimed_by;    /* context */
    struct um_arrival arrival;
    struct um_inbound *inbound; /* a rendezvous; else the body is below */
    void *body;
    unsigned char small[UM_UNEXPECTED_INLINE];
};

struct um_receive {
    struct um_match *engine[2]; /* untagged, tagged */
    struct um_list posted;      /* um_recv, by age */
    struct um_list claimed;     /* um_unexpected */
    struct um_pool recvs;
    struct um_pool unexpected;
};

static struct um_match *engine_of(const struct um_ep *ep, uint32_t flags)
{
    return ((const struct um_receive *)ep->receive)->engine[!!(flags & UM_OP_TAGGED)];
}

int um_receive_open(struct um_ep *ep)
{
    struct um_receive *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->engine[0] = um_match_open();
    r->engine[1] = um_match_open();
    if (!r->engine[0] || !r->engine[1]) {
        if (r->engine[0])
            um_match_close(r->engine[0]);
        free(r);
        return -ENOMEM;
    }
    um_list_init(&r->posted);
    um_list_init(&r->claimed);
    um_pool_init(&r->recvs, sizeof(struct um_recv));
    um_pool_init(&r->unexpected, sizeof(struct um_unexpected));
    ep->receive = r;
    return 0;
}

static void recv_free(struct um_ep *ep, struct um_recv *recv)
{
    um_buffers_fini(&recv->buffers);
    um_pool_release(&((struct um_receive *)ep->receive)->recvs, recv);
}

static void unexpected_free(struct um_ep *ep, struct um_unexpected *u)
{
    if (u->body != u->small)
        free(u->body);
    um_pool_release(&((struct um_receive *)ep->receive)->unexpected, u);
}

void um_receive_close(struct um_ep *ep)
{
    struct um_receive *r = ep->receive;
    struct um_list *first;
    while ((first = um_list_first(&r->posted)) != NULL) {
        um_list_unlink(first);
        recv_free(ep, UM_CONTAINER(first, struct um_recv, link));
    }
    while ((first = um_list_first(&r->claimed)) != NULL) {
        struct um_unexpected *u = UM_CONTAINER(first, struct um_unexpected, link);
        um_list_unlink(first);
        free(u->inbound); /* NOLINT(clang-analyzer-unix.Malloc): what is unlinked does not come again */
        unexpected_free(ep, u);
    }
    for (int i = 0; i < 2; i++) {
        struct um_match_msg *msg;
        while ((msg = um_match_any_msg(r->engine[i])) != NULL) {
            struct um_unexpected *u = UM_CONTAINER(msg, struct um_unexpected, match);
            um_match_dequeue(r->engine[i], msg);
            free(u->inbound);
            unexpected_free(ep, u);
        }
        um_match_close(r->engine[i]);
    }
    um_pool_fini(&r->recvs);
    um_pool_fini(&r->unexpected);
    free(r);
    ep->receive = NULL;
}

static void recv_complete(struct um_ep *ep, const struct um_recv *recv, uint32_t flags, int error)
{
    struct um_completion c = {.context = recv->context, .flags = recv->flags | flags, .error = error};
    ep->config.complete(ep->config.arg, &c);
}

static void recv_unpost(struct um_ep *ep, struct um_recv *recv)
{
    um_match_unpost(engine_of(ep, recv->flags), &recv->match);
    um_list_unlink(&recv->link);
}

/* A multi-receive buffer takes no more: it is the caller's again once nothing is on its way into it. */
static void multi_spend(struct um_ep *ep, struct um_recv *recv)
{
    recv_unpost(ep, recv);
    recv->spent = true;
    if (recv->in_flight == 0) {
        recv_complete(ep, recv, UM_OP_MULTI_END, 0);
        recv_free(ep, recv);
    }
}

static void multi_take(struct um_ep *ep, struct um_recv *recv, uint64_t len, struct um_target *target)
{
    size_t taken = len < recv->len ? (size_t)len : recv->len;
    target->base = recv->buffers.small[0].iov_base;
    target->piece = (struct iovec){.iov_base = target->base, .iov_len = taken};
    target->cursor = um_iov_begin(&target->piece, 1);
    target->len = taken;
    /* the next message begins 8-byte aligned */
    size_t space = (taken + 7) & ~(size_t)7;
    if (space > recv->len)
        space = recv->len;
    recv->buffers.small[0].iov_base = (char *)target->base + space;
    recv->len -= space;
    recv->in_flight++;
    if (recv->len < ep->config.multi_min || recv->len == 0) {
        recv_unpost(ep, recv);
        recv->spent = true;
    }
}

bool um_receive_match(struct um_ep *ep, const struct um_arrival *arrival, struct um_target *target_p)
{
    struct um_match *engine = engine_of(ep, arrival->flags);
    for (;;) {
        struct um_match_recv *found = um_match_find_recv(engine, arrival->tag, arrival->peer->number);
        if (!found)
            return false;
        struct um_recv *recv = UM_CONTAINER(found, struct um_recv, match);
        target_p->recv = recv;
        if (!(recv->flags & UM_OP_MULTI)) {
            recv_unpost(ep, recv);
            target_p->cursor = recv->buffers.cursor;
            target_p->len = recv->len;
            target_p->base = NULL;
            return true;
        }
        bool untouched = recv->len == recv->buffers.small[0].iov_len;
        if (arrival->len <= recv->len || untouched) {
            multi_take(ep, recv, arrival->len, target_p);
            return true;
        }
        multi_spend(ep, recv);
    }
}

void um_receive_finish(struct um_ep *ep, struct um_target *target, const struct um_arrival *arrival, int error)
{
    struct um_recv *recv = target->recv;
    bool truncated = arrival->len > target->len;
    int lost = truncated ? EMSGSIZE : 0;
    struct um_completion c = {
        .context = recv->context,
        .flags = recv->flags | arrival->flags,
        .error = error ? error : lost,
        .len = truncated ? target->len : (size_t)arrival->len,
        .olen = truncated ? (size_t)(arrival->len - target->len) : 0,
        .buf = target->base,
        .tag = arrival->tag,
        .data = arrival->data,
        .source = arrival->peer,
    };
    ep->stats.received++;
    ep->stats.bytes_received += c.len;
    ep->reported = true;
    if (recv->flags & UM_OP_MULTI) {
        recv->in_flight--;
        if (recv->spent && recv->in_flight == 0) {
            c.flags |= UM_OP_MULTI_END;
            recv_free(ep, recv);
        }
    } else {
        recv_free(ep, recv);
    }
    ep->config.complete(ep->config.arg, &c);
}

int um_receive_unexpected(struct um_ep *ep, const struct um_arrival *arrival, const void *body,
                          struct um_inbound *inbound)
{
    struct um_receive *r = ep->receive;
    if (ep->reported)
        return -EAGAIN; /* what was just reported may post the receive for it, and save the copy */
    struct um_unexpected *u = um_pool_alloc(&r->unexpected);
    if (!u)
        return -ENOMEM;
    u->body = u->small;
    u->inbound = inbound;
    u->arrival = *arrival;
    um_list_init(&u->link);
    if (!inbound && arrival->len > UM_UNEXPECTED_INLINE) {
        u->body = malloc(arrival->len);
        if (!u->body) {
            um_pool_release(&r->unexpected, u);
            return -ENOMEM;
        }
    }
    if (!inbound)
        memcpy(u->body, body, arrival->len);
    u->match.tag = arrival->tag;
    u->match.source = arrival->peer->number;
    um_match_enqueue(engine_of(ep, arrival->flags), &u->match);
    ep->stats.unexpected++;
    return 0;
}

/* The message goes to the target, which lies in target (eager) or is set in the inbound's own. */
static void unexpected_deliver(struct um_ep *ep, struct um_unexpected *u, struct um_target *target)
{
    struct um_inbound *in = u->inbound;
    if (in) {
        in->matched = true;
        um_inbound_start(ep, in);
    } else {
        um_iov_scatter(&target->cursor, u->body, u->arrival.len < target->len ? (size_t)u->arrival.len : target->len);
        um_receive_finish(ep, target, &u->arrival, 0);
    }
    unexpected_free(ep, u);
}

/* Gives an unexpected message to a receive that is not posted. */
static void recv_take(struct um_ep *ep, struct um_recv *recv, struct um_unexpected *u)
{
    struct um_target local;
    struct um_target *target = u->inbound ? &u->inbound->target : &local;
    target->recv = recv;
    target->cursor = recv->buffers.cursor;
    target->len = recv->len;
    target->base = NULL;
    unexpected_deliver(ep, u, target);
}

static struct um_unexpected *unexpected_find(struct um_ep *ep, const struct um_msg *msg)
{
    uint32_t source = msg->peer ? msg->peer->number : UM_MATCH_ANY;
    struct um_match_msg *found = um_match_find_msg(engine_of(ep, msg->flags), msg->tag, msg->ignore, source);
    return found ? UM_CONTAINER(found, struct um_unexpected, match) : NULL;
}

/* A fresh multi-receive buffer takes what is waiting. */
static void multi_fill(struct um_ep *ep, struct um_recv *recv, const struct um_msg *msg)
{
    struct um_unexpected *u;
    recv->in_flight++; /* keeps it while it fills */
    while (!recv->spent && (u = unexpected_find(ep, msg)) != NULL) {
        struct um_target local;
        struct um_target *target = u->inbound ? &u->inbound->target : &local;
        if (!um_receive_match(ep, &u->arrival, target))
            break; /* this buffer was spent on it, and there is no other */
        um_match_dequeue(engine_of(ep, msg->flags), &u->match);
        unexpected_deliver(ep, u, target);
    }
    recv->in_flight--;
    if (recv->spent && recv->in_flight == 0) {
        recv_complete(ep, recv, UM_OP_MULTI_END, 0);
        recv_free(ep, recv);
    }
}

static struct um_unexpected *claimed_find(struct um_ep *ep, const void *context)
{
    struct um_receive *r = ep->receive;
    for (struct um_list *l = r->claimed.next; l != &r->claimed; l = l->next) {
        struct um_unexpected *u = UM_CONTAINER(l, struct um_unexpected, link);
        if (u->claimed_by == context)
            return u;
    }
    return NULL;
}

static void unexpected_discard(struct um_ep *ep, struct um_unexpected *u)
{
    if (u->inbound)
        um_inbound_discard(ep, u->inbound);
    unexpected_free(ep, u);
}

static struct um_recv *recv_alloc(struct um_ep *ep, const struct um_msg *msg)
{
    struct um_recv *recv = um_pool_alloc(&((struct um_receive *)ep->receive)->recvs);
    if (!recv)
        return NULL;
    if (um_buffers_set(&recv->buffers, msg->iov, msg->count) != 0) {
        um_pool_release(&((struct um_receive *)ep->receive)->recvs, recv);
        return NULL;
    }
    recv->context = msg->context;
    recv->flags = msg->flags | UM_OP_RECV;
    recv->in_flight = 0;
    recv->spent = false;
    recv->len = um_iov_length(msg->iov, msg->count);
    recv->match.tag = msg->tag;
    recv->match.ignore = msg->ignore;
    recv->match.source = msg->peer ? msg->peer->number : UM_MATCH_ANY;
    um_list_init(&recv->link);
    return recv;
}

/* The receive of a message that a peek reserved. */
static int recv_claimed(struct um_ep *ep, const struct um_msg *msg)
{
    struct um_unexpected *u = claimed_find(ep, msg->context);
    if (!u)
        return -ENOMSG;
    if (msg->flags & UM_OP_DISCARD) {
        struct um_completion c = {.context = msg->context,
                                  .flags = msg->flags | UM_OP_RECV | u->arrival.flags,
                                  .tag = u->arrival.tag,
                                  .data = u->arrival.data,
                                  .source = u->arrival.peer};
        um_list_unlink(&u->link);
        unexpected_discard(ep, u);
        ep->config.complete(ep->config.arg, &c);
        return 0;
    }
    struct um_recv *recv = recv_alloc(ep, msg);
    if (!recv)
        return -ENOMEM;
    um_list_unlink(&u->link);
    recv_take(ep, recv, u);
    return 0;
}

int um_recv(struct um_ep *ep, const struct um_msg *msg)
{
    struct um_receive *r = ep->receive;
    if (msg->flags & UM_OP_CLAIM)
        return recv_claimed(ep, msg);
    if ((msg->flags & UM_OP_MULTI) && msg->count != 1)
        return -EINVAL;
    struct um_recv *recv = recv_alloc(ep, msg);
    if (!recv)
        return -ENOMEM;
    if (!(msg->flags & UM_OP_MULTI)) {
        struct um_unexpected *u = unexpected_find(ep, msg);
        if (u) {
            um_match_dequeue(engine_of(ep, msg->flags), &u->match);
            recv_take(ep, recv, u);
            return 0;
        }
    }
    um_match_post(engine_of(ep, msg->flags), &recv->match);
    um_list_append(&r->posted, &recv->link);
    if (msg->peer)
        um_peer_expect(msg->peer);
    if (msg->flags & UM_OP_MULTI)
        multi_fill(ep, recv, msg);
    return 0;
}

int um_peek(struct um_ep *ep, const struct um_msg *msg, struct um_completion *found_p)
{
    struct um_receive *r = ep->receive;
    struct um_unexpected *u = unexpected_find(ep, msg);
    if (!u)
        return -ENOMSG;
    *found_p = (struct um_completion){
        .context = msg->context,
        .flags = msg->flags | UM_OP_RECV | u->arrival.flags,
        .len = (size_t)u->arrival.len,
        .tag = u->arrival.tag,
        .data = u->arrival.data,
        .source = u->arrival.peer,
    };
    if (msg->flags & (UM_OP_CLAIM | UM_OP_DISCARD))
        um_match_dequeue(engine_of(ep, msg->flags), &u->match);
    if (msg->flags & UM_OP_DISCARD) {
        unexpected_discard(ep, u);
    } else if (msg->flags & UM_OP_CLAIM) {
        u->claimed_by = msg->context;
        um_list_append(&r->claimed, &u->link);
    }
    return 0;
}

/* Ends a posted receive with an error. */
static void recv_abandon(struct um_ep *ep, struct um_recv *recv, int error)
{
    recv_unpost(ep, recv);
    if (recv->flags & UM_OP_MULTI) {
        recv->spent = true;
        if (recv->in_flight > 0)
            return; /* the last message on its way brings the end */
    }
    recv_complete(ep, recv, recv->flags & UM_OP_MULTI ? (uint32_t)UM_OP_MULTI_END : 0, error);
    recv_free(ep, recv);
}

int um_cancel(struct um_ep *ep, void *context)
{
    struct um_receive *r = ep->receive;
    for (struct um_list *l = r->posted.next; l != &r->posted; l = l->next) {
        struct um_recv *recv = UM_CONTAINER(l, struct um_recv, link);
        if (recv->context == context) {
            recv_abandon(ep, recv, ECANCELED);
            return 0;
        }
    }
    return -ENOENT;
}

void um_receive_peer_left(struct um_ep *ep, struct um_peer *peer, int error)
{
    struct um_receive *r = ep->receive;
    struct um_list *next;
    for (struct um_list *l = r->posted.next; l != &r->posted; l = next) {
        struct um_recv *recv = UM_CONTAINER(l, struct um_recv, link);
        next = l->next;
        if (recv->match.source == peer->number)
            recv_abandon(ep, recv, error);
    }
}
