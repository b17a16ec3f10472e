/*
 * The call that receives: it takes the unexpected message that matches, or posts the receive. receive.c has the
 * diagram.
 *
 * Owns: struct um_proto_receive, with the two match engines (tagged, untagged). Threading: core.h.
 */
#include "proto/receive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int um_proto_receive_open(struct um_core_ep *ep)
{
    struct um_proto_receive *r = calloc(1, sizeof(*r));
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
    um_list_init(&r->claimed);
    um_pool_init(&r->recvs, sizeof(struct um_proto_posted_recv));
    um_pool_init(&r->unexpected, sizeof(struct um_proto_unexpected));
    r->kept_max = ep->config.unexpected_max ? ep->config.unexpected_max : UM_UNEXPECTED_DEFAULT;
    um_spares_init(&r->bodies, r->kept_max / UM_UNEXPECTED_SPARE);
    um_proto_ep_of(ep)->receive = r;
    return 0;
}

void um_proto_receive_close(struct um_core_ep *ep)
{
    struct um_proto_receive *r = um_proto_ep_of(ep)->receive;
    struct um_list *first;
    while ((first = um_list_first(&r->claimed)) != NULL) {
        struct um_proto_unexpected *u = UM_CONTAINER(first, struct um_proto_unexpected, link);
        um_list_unlink(first);
        free(u->inbound); /* NOLINT(clang-analyzer-unix.Malloc): what is unlinked does not come again */
        um_proto_unexpected_free(ep, u);
    }
    for (int i = 0; i < 2; i++) {
        struct um_match_msg *msg;
        while ((msg = um_match_any_msg(r->engine[i])) != NULL) {
            struct um_proto_unexpected *u = UM_CONTAINER(msg, struct um_proto_unexpected, match);
            um_match_dequeue(r->engine[i], msg);
            free(u->inbound);
            um_proto_unexpected_free(ep, u);
        }
        um_match_close(r->engine[i]);
    }
    um_pool_fini(&r->recvs);
    um_pool_fini(&r->unexpected);
    um_spares_fini(&r->bodies);
    free(r);
    um_proto_ep_of(ep)->receive = NULL;
}

/* Fills a new multi-receive buffer with the unexpected messages that match. */
static void multi_fill(struct um_core_ep *ep, struct um_proto_posted_recv *recv, const struct um_proto_msg *msg)
{
    struct um_proto_unexpected *u;
    recv->in_flight++; /* keeps the receive while it is filled */
    while (!recv->spent && (u = um_proto_unexpected_find(ep, msg)) != NULL) {
        struct um_proto_destination local;
        struct um_proto_destination *dest = um_proto_unexpected_dest(u, &local);
        if (!um_proto_receive_match(ep, &u->arrival, dest))
            break; /* the message does not fit, and there is no other receive */
        um_match_dequeue(um_proto_receive_engine(ep, msg->flags), &u->match);
        um_proto_unexpected_deliver(ep, u, dest);
    }
    recv->in_flight--;
    if (recv->spent)
        um_proto_posted_recv_end(ep, recv);
}

/* Receives a message that is here with all of its body: the receive need not be posted. */
static void recv_now(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_proto_unexpected *u)
{
    const size_t room = msg->count == 1 ? msg->iov->iov_len : um_iov_length(msg->iov, msg->count);
    const size_t len = u->arrival.len < room ? (size_t)u->arrival.len : room;
    um_match_dequeue(um_proto_receive_engine(ep, msg->flags), &u->match);
    if (msg->count == 1 && len) {
        um_bytes_copy(msg->iov->iov_base, u->body, len);
    } else if (len) {
        struct um_iov_cursor cursor = um_iov_begin(msg->iov, msg->count);
        um_iov_scatter(&cursor, u->body, len);
    }
    const uint32_t flags = msg->flags | UM_OP_RECV;
    if (__builtin_expect(u->arrival.len <= room && ep->config.received, 1)) {
        um_proto_arrival_count(ep, u->arrival.peer, len);
        ep->config.received(ep->config.arg, u->arrival.peer, msg->context, flags | u->arrival.flags, len,
                            u->arrival.tag, u->arrival.data);
    } else {
        struct um_core_completion c = um_proto_arrival_end(ep, &u->arrival, room, 0);
        c.context = msg->context;
        c.flags |= flags;
        ep->config.complete(ep->config.arg, &c);
    }
    um_proto_unexpected_free(ep, u);
}

static inline void recv_post(struct um_core_ep *ep, struct um_proto_posted_recv *recv, struct um_core_peer *peer)
{
    um_match_post(um_proto_receive_engine(ep, recv->flags), &recv->match);
    um_proto_unexpected_lift(ep);
    if (peer)
        um_core_peer_expect(peer);
}

int um_proto_recv(struct um_core_ep *ep, const struct um_proto_msg *msg)
{
    if (msg->flags & UM_OP_CLAIM)
        return um_proto_unexpected_receive_claimed(ep, msg);
    if ((msg->flags & UM_OP_MULTI) && msg->count != 1)
        return -EINVAL;
    struct um_proto_unexpected *u = msg->flags & UM_OP_MULTI ? NULL : um_proto_unexpected_find(ep, msg);
    if (u && um_proto_unexpected_is_whole(u)) {
        recv_now(ep, msg, u);
        return 0;
    }
    struct um_proto_posted_recv *recv = um_proto_posted_recv_alloc(ep, msg);
    if (!recv)
        return -ENOMEM;
    if (u) {
        um_match_dequeue(um_proto_receive_engine(ep, msg->flags), &u->match);
        um_proto_unexpected_give(ep, recv, u);
        return 0;
    }
    recv_post(ep, recv, msg->peer);
    if (msg->flags & UM_OP_MULTI)
        multi_fill(ep, recv, msg);
    return 0;
}

/* NOLINTNEXTLINE(readability-function-size): what um_proto_recv_one() was called with */
static __attribute__((noinline)) int recv_other(struct um_core_ep *ep, struct um_core_peer *peer, void *buf, size_t len,
                                                uint64_t tag, uint64_t ignore, void *context, uint32_t flags)
{
    const struct iovec iov = {.iov_base = buf, .iov_len = len};
    const struct um_proto_msg msg = {
        .iov = &iov, .count = 1, .peer = peer, .tag = tag, .ignore = ignore, .context = context, .flags = flags};
    return um_proto_recv(ep, &msg);
}

/* Posts the receive here while no message waits for any receive and no sender is held. No variable is live across a
 * call, so no registers are saved. */
/* NOLINTNEXTLINE(readability-function-size): what libfabric's call brings, by values */
int um_proto_recv_one(struct um_core_ep *ep, struct um_core_peer *peer, void *buf, size_t len, uint64_t tag,
                      uint64_t ignore, void *context, uint32_t flags)
{
    struct um_proto_receive *r = um_proto_ep_of(ep)->receive;
    if (__builtin_expect(r->unexpected.in_use || !r->recvs.free || !um_list_is_empty(&ep->held) || len > INT32_MAX, 0))
        return recv_other(ep, peer, buf, len, tag, ignore, context, flags);
    struct um_proto_posted_recv *recv = um_pool_alloc(&r->recvs);
    um_proto_posted_recv_init(recv, peer, context, flags, tag, ignore);
    recv->base = buf;
    recv->room = (int32_t)len;
    if (peer)
        um_core_peer_expect(peer);
    um_match_post(r->engine[!!(flags & UM_OP_TAGGED)], &recv->match);
    return 0;
}
