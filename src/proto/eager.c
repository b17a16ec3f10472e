/*
 * Eager: a message with its body in one record.
 *
 *   sender                                   receiver
 *   claim, write in place, commit  ──────→   match → copy into the posted buffer → completion
 *   complete: at commit, or when               └ no receive: copy aside (unexpected) → later receive → completion
 *   consumed (UM_OP_DELIVERY)      ←──────   release; with UM_FLAG_ACK the credit is published at once
 *
 * Delivered means: taken by the receiver's endpoint, into the posted buffer or into the receiver's own memory. Until
 * then the application leaves the buffer alone, so the machine can send a large body from there without a copy
 * (claim_lent). Owns no state. Threading: core.h.
 */
#include "proto/receive.h"

#include "base/atomic.h"

#include <errno.h>
#include <string.h>

void um_proto_eager_end(struct um_core_ep *ep, const struct um_proto_msg *msg, size_t len, struct um_core_op *op)
{
    if (op) {
        um_core_op_await_ack(op);
        return;
    }
    struct um_core_completion c = {
        .context = msg->context,
        .flags = msg->flags | UM_OP_SEND,
        .len = len,
        .tag = msg->tag,
        .data = msg->data,
    };
    ep->config.complete(ep->config.arg, &c);
}

enum { LENT_MIN = 64 << 10 /* bytes; copying a shorter body costs no more */ };

static inline bool is_lent(const struct um_proto_msg *msg, const struct um_lane *lane, const struct um_core_op *op,
                           uint32_t len)
{
    return op && len >= LENT_MIN && msg->count == 1 && !(msg->flags & UM_OP_INJECT) && lane->machine->claim_lent;
}

static inline void body_write(const struct um_proto_msg *msg, const struct um_slot *slot, size_t len)
{
    struct um_iov_cursor cursor = um_iov_begin(msg->iov, msg->count);
    if (msg->count == 1 && len)
        um_proto_slot_copy(slot, msg->iov[0].iov_base, len);
    else if (um_proto_slot_is_nontemporal(slot, len))
        um_iov_gather_nontemporal(&cursor, slot->body, len);
    else
        um_iov_flatten(msg->iov, msg->count, slot->body, len);
}

/* Writes a body that lies in the header, in the line of the record. */
static inline void inline_write(const struct um_proto_msg *msg, void *body, size_t len)
{
    if (msg->count == 1)
        um_iov_copy_short(body, msg->iov[0].iov_base, len);
    else
        um_iov_flatten(msg->iov, msg->count, body, len);
}

int um_proto_eager_send(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane, size_t len)
{
    struct um_core_op *op;
    struct um_slot slot;
    uint32_t body_len = um_proto_eager_is_inline(len, msg->flags) ? 0 : (uint32_t)len;
    if (um_proto_eager_begin(msg, len, &op) != 0)
        return -ENOMEM;
    const bool lent = is_lent(msg, lane, op, body_len);
    int ret =
        lent ? lane->machine->claim_lent(lane, msg->iov, &slot) : lane->machine->claim_message(lane, body_len, &slot);
    if (__builtin_expect(ret != 0, 0))
        return um_proto_eager_refused(msg, op, ret);
    struct um_proto_eager_wire *header = slot.header;
    const bool body_goes_first = body_len && !lent && um_proto_body_goes_first(ep, msg->peer);
    if (body_goes_first)
        body_write(msg, &slot, len);
    um_proto_eager_header(header, msg->tag, msg->data);
    if (body_len == 0)
        inline_write(msg, header->body, len);
    else if (!body_goes_first && !lent)
        body_write(msg, &slot, len);
    um_proto_eager_count(ep, msg->peer, len);
    uint8_t flags = (uint8_t)(um_proto_wire_flags(msg->flags) | (op ? UM_FLAG_ACK : 0));
    lane->machine->commit(lane, &slot, UM_WIRE_EAGER, flags, (uint32_t)len);
    um_proto_eager_end(ep, msg, len, op);
    return 0;
}

/* The message has been copied into the receive's buffers, which had room for it. */
static inline void eager_received(struct um_core_ep *ep, struct um_core_peer *peer, struct um_proto_posted_recv *recv,
                                  uint32_t flags, uint32_t len, uint64_t tag, const struct um_proto_eager_wire *header)
{
    um_proto_arrival_count(ep, peer, len);
    void *context = recv->context;
    const uint32_t all = flags | recv->flags;
    um_pool_release(&um_proto_ep_of(ep)->receive->recvs, recv);
    ep->config.received(ep->config.arg, peer, context, all, len, tag, header->data);
}

/* Is it a receive with a list of buffers that has room for so many bytes, and no multi-receive? */
static inline bool is_list(const struct um_core_ep *ep, const struct um_proto_posted_recv *recv, uint32_t len)
{
    return recv && recv->room < 0 && !(recv->flags & UM_OP_MULTI) && len <= recv->len && ep->config.received;
}

/* Takes a message that is not the usual one: it goes to a multi-receive or a list of buffers, is too long for its
 * receive, or has no receive. */
static __attribute__((noinline)) int eager_other(struct um_core_ep *ep, struct um_core_peer *peer,
                                                 const struct um_record *rec, uint64_t tag, const void *body,
                                                 struct um_proto_posted_recv *recv)
{
    if (is_list(ep, recv, rec->len)) {
        um_iov_spread(recv->buffers.iov, body, rec->len);
        um_core_buffers_fini(&recv->buffers);
        eager_received(ep, peer, recv, um_proto_wire_op_flags(rec->flags), rec->len, tag, rec->header);
        return 0;
    }
    const struct um_proto_arrival arrival = {
        .peer = peer,
        .tag = tag,
        .data = ((const struct um_proto_eager_wire *)rec->header)->data,
        .len = rec->len,
        .flags = um_proto_wire_op_flags(rec->flags),
    };
    struct um_proto_unexpected *u;
    if (recv && um_proto_receive_body(ep, recv, &arrival, body))
        return 0;
    const int ret = um_proto_receive_unexpected(ep, &arrival, NULL, &u);
    if (ret == 0)
        um_bytes_copy(u->body, body, arrival.len);
    return ret;
}

int um_proto_eager_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_eager_wire *header = rec->header;
    const void *body = rec->body ? rec->body : header->body;
    const uint32_t len = rec->len, flags = um_proto_wire_op_flags(rec->flags);
    const uint64_t tag = um_load_relaxed_u64(&header->tag);
    if (!rec->body && !um_proto_eager_is_inline(len, flags))
        return -EPROTO;
    struct um_proto_posted_recv *recv = um_proto_receive_take(um_proto_receive_engine(ep, flags), tag, peer);
    if (__builtin_expect(!recv || (int32_t)len > recv->room || !ep->config.received, 0))
        return eager_other(ep, peer, rec, tag, body, recv);
    if (rec->body)
        um_bytes_copy(recv->base, body, len);
    else
        um_iov_copy_short(recv->base, body, len);
    eager_received(ep, peer, recv, flags, len, tag, header);
    return 0;
}
