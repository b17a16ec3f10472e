/*
 * Messages that came before their receive: queue, peek, claim, discard, delivery.
 *
 * They take memory. Beyond a bound their senders are held (machine rx_hold), unless this endpoint waits for something:
 * a posted receive or a peek that found nothing may need a message behind these, and the hold might block a peer that
 * this endpoint waits for. So a hold is never part of a deadlock. A sender that ignores a hold loses its lane. At a
 * quarter of the bound, senders are asked to announce large bodies, and to send none in segments (rx_announce). That
 * request cannot deadlock, so it has no condition.
 * Owns: struct um_proto_unexpected. receive.c has the diagram. Threading: core.h.
 */
#include "proto/receive.h"

#include <errno.h>
#include <string.h>

/* Counts a message from a held sender; len bytes of its body are here. -EPROTO: the sender has sent more than it can
 * have claimed before it saw the hold. */
static int unexpected_past_hold(const struct um_proto_arrival *arrival, size_t len)
{
    struct um_core_peer *sender = arrival->peer;
    const struct um_machine *machine = sender->rx->machine;
    sender->past_hold++;
    sender->past_hold_bytes += um_proto_eager_is_inline(len, arrival->flags) ? 0 : (uint32_t)len;
    const bool may_be =
        sender->past_hold <= machine->unconsumed_max + 1 && sender->past_hold_bytes <= machine->unconsumed_bytes;
    return may_be ? 0 : -EPROTO;
}

/* Would its sender announce such a body on request (rx_announce)? */
static bool is_long(const struct um_core_peer *sender, size_t len)
{
    return len > UM_ANNOUNCED_MIN || len > sender->rx->machine->body_max;
}

/* Applies the bounds after one more unexpected message; len bytes of its body are here. 0; -EPROTO. */
static int unexpected_bound(struct um_core_ep *ep, struct um_proto_receive *r, const struct um_proto_arrival *arrival,
                            size_t len)
{
    struct um_core_peer *sender = arrival->peer;
    if (__builtin_expect(r->kept > r->kept_max / 4, 0) && is_long(sender, len))
        um_core_peer_announce_on(sender);
    if (__builtin_expect(r->kept <= r->kept_max, 1))
        return 0;
    if (um_core_peer_is_held(sender))
        return unexpected_past_hold(arrival, len);
    if (r->peek_looks > 0)
        r->peek_looks--;
    else if (um_proto_receive_is_idle(r) && um_list_is_empty(&ep->awaiting))
        um_core_peer_hold(sender);
    return 0;
}

void um_proto_unexpected_free(struct um_core_ep *ep, struct um_proto_unexpected *u)
{
    struct um_proto_receive *r = um_proto_ep_of(ep)->receive;
    r->kept -= u->size;
    if (__builtin_expect(!um_list_is_empty(&ep->held), 0) && r->kept < r->kept_max / 2)
        um_core_ep_lift(ep);
    if (__builtin_expect(!um_list_is_empty(&ep->announcing), 0) && r->kept < r->kept_max / 8)
        um_core_ep_announce_off(ep);
    if (u->segmented)
        u->segmented->waiting = NULL;
    um_core_peer_release(u->arrival.peer);
    if (u->body != u->small)
        um_spares_release(&r->bodies, u->body, (size_t)u->arrival.len);
    um_pool_release(&r->unexpected, u);
}

int um_proto_receive_unexpected(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                                struct um_proto_inbound *inbound, struct um_proto_unexpected **u_p)
{
    struct um_proto_receive *r = um_proto_ep_of(ep)->receive;
    if (ep->reported || ep->unexpected_left == 0)
        return -EAGAIN; /* upon what was just reported the application may post the receive, which saves the copy */
    struct um_proto_unexpected *u = um_pool_alloc(&r->unexpected);
    if (!u)
        return -ENOMEM;
    u->body = u->small;
    u->inbound = inbound;
    u->segmented = NULL;
    u->error = 0;
    u->size = sizeof(*u) + UM_INDEX_SIZE + (inbound ? UM_INBOUND_SIZE : 0);
    u->arrival = *arrival;
    um_list_init(&u->link);
    if (!inbound && arrival->len > UM_UNEXPECTED_INLINE) {
        u->body = um_spares_alloc(&r->bodies, (size_t)arrival->len);
        if (!u->body) {
            um_pool_release(&r->unexpected, u);
            return -ENOMEM;
        }
        u->size += um_spares_size((size_t)arrival->len);
    }
    um_core_peer_retain(arrival->peer);
    r->kept += u->size;
    int ret = unexpected_bound(ep, r, arrival, inbound ? 0 : (size_t)arrival->len);
    if (__builtin_expect(ret != 0, 0)) {
        um_proto_unexpected_free(ep, u);
        return ret;
    }
    u->match.tag = arrival->tag;
    u->match.source = arrival->peer->number;
    um_match_enqueue(um_proto_receive_engine(ep, arrival->flags), &u->match);
    ep->stats.unexpected++;
    ep->unexpected_left--;
    *u_p = u;
    return 0;
}

/* Delivers the message to *dest, which is set. The part of the message that has not come yet will go there, too. */
void um_proto_unexpected_deliver(struct um_core_ep *ep, struct um_proto_unexpected *u,
                                 struct um_proto_destination *dest)
{
    struct um_proto_inbound *in = u->inbound;
    if (in) {
        in->matched = true;
        um_proto_inbound_start(ep, in);
    } else {
        const size_t whole = u->error ? 0 : (size_t)u->arrival.len; /* nothing of a message that failed is copied */
        const size_t here = u->segmented ? u->segmented->moved : whole;
        um_iov_scatter(&dest->cursor, u->body, here < dest->len ? here : dest->len);
        if (!u->segmented)
            um_proto_receive_finish(ep, dest, &u->arrival, u->error);
    }
    um_proto_unexpected_free(ep, u);
}

/* Gives an unexpected message to a receive that is not posted. */
void um_proto_unexpected_give(struct um_core_ep *ep, struct um_proto_posted_recv *recv, struct um_proto_unexpected *u)
{
    struct um_proto_destination local;
    struct um_proto_destination *dest = um_proto_unexpected_dest(u, &local);
    um_proto_posted_recv_destine(recv, dest);
    um_proto_unexpected_deliver(ep, u, dest);
}

struct um_proto_unexpected *um_proto_unexpected_find(struct um_core_ep *ep, const struct um_proto_msg *msg)
{
    uint32_t source = msg->peer ? msg->peer->number : UM_MATCH_ANY;
    struct um_match_msg *found =
        um_match_find_msg(um_proto_receive_engine(ep, msg->flags), msg->tag, msg->ignore, source);
    return found ? UM_CONTAINER(found, struct um_proto_unexpected, match) : NULL;
}

static struct um_proto_unexpected *claimed_find(struct um_core_ep *ep, const void *context)
{
    struct um_proto_receive *r = um_proto_ep_of(ep)->receive;
    for (struct um_list *l = r->claimed.next; l != &r->claimed; l = l->next) {
        struct um_proto_unexpected *u = UM_CONTAINER(l, struct um_proto_unexpected, link);
        if (u->claimed_by == context)
            return u;
    }
    return NULL;
}

static void unexpected_discard(struct um_core_ep *ep, struct um_proto_unexpected *u)
{
    if (u->inbound)
        um_proto_inbound_end(ep, u->inbound, UM_STATUS_DONE, true);
    um_proto_unexpected_free(ep, u);
}

/* Receives or drops a message that a peek reserved. */
int um_proto_unexpected_receive_claimed(struct um_core_ep *ep, const struct um_proto_msg *msg)
{
    struct um_proto_unexpected *u = claimed_find(ep, msg->context);
    if (!u)
        return -ENOMSG;
    if (msg->flags & UM_OP_DISCARD) {
        struct um_core_completion c = {.context = msg->context,
                                       .flags = msg->flags | UM_OP_RECV | u->arrival.flags,
                                       .tag = u->arrival.tag,
                                       .data = u->arrival.data,
                                       .source = u->arrival.peer,
                                       .name = u->arrival.peer->name};
        um_list_unlink(&u->link);
        unexpected_discard(ep, u);
        ep->config.complete(ep->config.arg, &c);
        return 0;
    }
    struct um_proto_posted_recv *recv = um_proto_posted_recv_alloc(ep, msg);
    if (!recv)
        return -ENOMEM;
    um_list_unlink(&u->link);
    um_proto_unexpected_give(ep, recv, u);
    return 0;
}

int um_proto_peek(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_core_completion *found_p)
{
    struct um_proto_receive *r = um_proto_ep_of(ep)->receive;
    struct um_proto_unexpected *u = um_proto_unexpected_find(ep, msg);
    if (!u) {
        r->peek_looks = UM_PEEK_LOOKS;
        um_proto_unexpected_lift(ep);
        return -ENOMSG;
    }
    *found_p = (struct um_core_completion){
        .context = msg->context,
        .flags = msg->flags | UM_OP_RECV | u->arrival.flags,
        .len = (size_t)u->arrival.len,
        .tag = u->arrival.tag,
        .data = u->arrival.data,
        .source = u->arrival.peer,
        .name = u->arrival.peer->name,
    };
    if (msg->flags & (UM_OP_CLAIM | UM_OP_DISCARD))
        um_match_dequeue(um_proto_receive_engine(ep, msg->flags), &u->match);
    if (msg->flags & UM_OP_DISCARD) {
        unexpected_discard(ep, u);
    } else if (msg->flags & UM_OP_CLAIM) {
        u->claimed_by = msg->context;
        um_list_append(&r->claimed, &u->link);
    }
    return 0;
}
