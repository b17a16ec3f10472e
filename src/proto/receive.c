/*
 * Receiving: posted receives, unexpected messages, multi-receive buffers, peek, claim, discard, cancel.
 *
 *   message arrives → match → posted receive? → destination → body moves → finish: completion
 *                       └ none → unexpected → um_proto_recv finds it, or um_proto_peek reserves or drops it
 *
 * A multi-receive buffer takes messages one behind the other until less than multi_min bytes are left, or a message
 * does not fit into what is left; its last completion carries UM_OP_MULTI_END.
 * Owns: the two match engines (tagged, untagged) and struct um_proto_posted_recv. Threading: core.h.
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
    um_proto_ep_of(ep)->receive = r;
    return 0;
}

void um_proto_posted_recv_free(struct um_core_ep *ep, struct um_proto_posted_recv *recv)
{
    um_core_buffers_fini(&recv->buffers);
    um_pool_release(&um_proto_ep_of(ep)->receive->recvs, recv);
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
    free(r);
    um_proto_ep_of(ep)->receive = NULL;
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

/* A multi-receive buffer takes no more messages. The caller gets it back when no body is on its way into it. */
static void multi_spend(struct um_core_ep *ep, struct um_proto_posted_recv *recv)
{
    recv_unpost(ep, recv);
    recv->spent = true;
    if (recv->in_flight == 0) {
        recv_complete(ep, recv, UM_OP_MULTI_END, 0);
        um_proto_posted_recv_free(ep, recv);
    }
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

/* The completion of a message's receive, without context and flags. room: bytes that had a place. */
static inline struct um_core_completion arrival_end(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                                                    size_t room, int error)
{
    bool truncated = arrival->len > room;
    int lost = truncated ? EMSGSIZE : 0;
    struct um_core_completion c = {
        .flags = arrival->flags,
        .error = error ? error : lost,
        .len = truncated ? room : (size_t)arrival->len,
        .olen = truncated ? (size_t)(arrival->len - room) : 0,
        .tag = arrival->tag,
        .data = arrival->data,
        .source = arrival->peer,
        .name = arrival->peer->name,
    };
    arrival->peer->in->received++;
    arrival->peer->in->bytes_received += c.len;
    ep->reported = true;
    return c;
}

void um_proto_receive_finish(struct um_core_ep *ep, struct um_proto_destination *dest,
                             const struct um_proto_arrival *arrival, int error)
{
    struct um_proto_posted_recv *recv = dest->recv;
    struct um_core_completion c = arrival_end(ep, arrival, dest->len, error);
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
    struct um_core_completion c = arrival_end(ep, arrival, recv->len, 0);
    c.context = recv->context;
    c.flags |= recv->flags;
    um_pool_release(&um_proto_ep_of(ep)->receive->recvs, recv);
    ep->config.complete(ep->config.arg, &c);
    return true;
}

/* A new multi-receive buffer takes the messages that wait. */
static void multi_fill(struct um_core_ep *ep, struct um_proto_posted_recv *recv, const struct um_proto_msg *msg)
{
    struct um_proto_unexpected *u;
    recv->in_flight++; /* keeps it while it fills */
    while (!recv->spent && (u = um_proto_unexpected_find(ep, msg)) != NULL) {
        struct um_proto_destination local;
        struct um_proto_destination *dest = u->inbound ? &u->inbound->dest : &local;
        if (!um_proto_receive_match(ep, &u->arrival, dest))
            break; /* the message used up this buffer, and there is no other one */
        um_match_dequeue(um_proto_receive_engine(ep, msg->flags), &u->match);
        um_proto_unexpected_deliver(ep, u, dest);
    }
    recv->in_flight--;
    if (recv->spent && recv->in_flight == 0) {
        recv_complete(ep, recv, UM_OP_MULTI_END, 0);
        um_proto_posted_recv_free(ep, recv);
    }
}

static inline void posted_recv_init(struct um_proto_posted_recv *recv, const struct um_proto_msg *msg, size_t len)
{
    recv->context = msg->context;
    recv->flags = msg->flags | UM_OP_RECV;
    recv->in_flight = 0;
    recv->spent = false;
    recv->len = len;
    recv->match.tag = msg->tag;
    recv->match.ignore = msg->ignore;
    recv->match.source = msg->peer ? msg->peer->number : UM_MATCH_ANY;
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
    posted_recv_init(recv, msg, um_iov_length(msg->iov, msg->count));
    return recv;
}

/* The message is here with its body: its receive need not be posted. */
static void recv_now(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_proto_unexpected *u)
{
    const size_t room = msg->count == 1 ? msg->iov->iov_len : um_iov_length(msg->iov, msg->count);
    const size_t len = u->arrival.len < room ? (size_t)u->arrival.len : room;
    um_match_dequeue(um_proto_receive_engine(ep, msg->flags), &u->match);
    if (msg->count == 1 && len) {
        memcpy(msg->iov->iov_base, u->body, len);
    } else if (len) {
        struct um_iov_cursor cursor = um_iov_begin(msg->iov, msg->count);
        um_iov_scatter(&cursor, u->body, len);
    }
    struct um_core_completion c = arrival_end(ep, &u->arrival, room, 0);
    c.context = msg->context;
    c.flags |= msg->flags | UM_OP_RECV;
    ep->config.complete(ep->config.arg, &c);
    um_proto_unexpected_free(ep, u);
}

static inline void recv_post(struct um_core_ep *ep, struct um_proto_posted_recv *recv, const struct um_proto_msg *msg)
{
    um_match_post(um_proto_receive_engine(ep, msg->flags), &recv->match);
    um_proto_unexpected_lift(ep);
    if (msg->peer)
        um_core_peer_expect(msg->peer);
}

static __attribute__((noinline)) int recv_any(struct um_core_ep *ep, const struct um_proto_msg *msg)
{
    if (msg->flags & UM_OP_CLAIM)
        return um_proto_unexpected_receive_claimed(ep, msg);
    if ((msg->flags & UM_OP_MULTI) && msg->count != 1)
        return -EINVAL;
    struct um_proto_unexpected *u = msg->flags & UM_OP_MULTI ? NULL : um_proto_unexpected_find(ep, msg);
    if (u && !u->inbound) {
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
    recv_post(ep, recv, msg);
    if (msg->flags & UM_OP_MULTI)
        multi_fill(ep, recv, msg);
    return 0;
}

/* Here: the usual receive, of one buffer, while no message waits for any. */
int um_proto_recv(struct um_core_ep *ep, const struct um_proto_msg *msg)
{
    struct um_proto_receive *r = um_proto_ep_of(ep)->receive;
    if (msg->flags & (UM_OP_CLAIM | UM_OP_MULTI) || msg->count != 1 || r->unexpected.in_use)
        return recv_any(ep, msg);
    struct um_proto_posted_recv *recv = um_pool_alloc(&r->recvs);
    if (__builtin_expect(!recv, 0))
        return -ENOMEM;
    (void)um_core_buffers_set(&recv->buffers, msg->iov, 1);
    posted_recv_init(recv, msg, msg->iov->iov_len);
    recv_post(ep, recv, msg);
    return 0;
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
