/*
 * Rendezvous: a body that waits at its sender until the receiver knows its destination. This file is the announcement,
 * at the sender and at the receiver. The receiver then chooses the body's way (way.c): it reads the body (rndv_read.c),
 * asks for it in records (ask.c, rndv_push.c), or copies it from a mapping (rndv_both.c). The sender may copy parts of
 * a long body that is read or mapped (rndv_both.c, rndv_help.c).
 *
 *   sender                                        receiver
 *   RTS {pieces, total, token}      ──────→       match (now, or when a receive is posted)
 *                                                 ├ read: takes the pieces by transfers, ≤ 2 MiB a step
 *   complete                        ←── answer ── └ DONE
 *                                                 ├ push: reading is refused, or records are faster here:
 *   a job                           ←── answer ── ├ PUSH
 *   PUSH {offset} + body, in order  ──────→       │ scatter
 *   complete                        ←── answer ── └ DONE
 *
 * A body that waits for its match takes memory and nothing else: tokens have no bound, and the answer waits for a place
 * when there is none (inbound.c). RMA bodies (rma.c) are announced by their own records and share the rest.
 * Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int um_proto_rndv_keep(struct um_core_op *op, const struct iovec *iov, size_t count, size_t len)
{
    op->job.step = NULL;
    op->is_helped = false;
    if (!(op->flags & UM_OP_INJECT))
        return um_core_buffers_set(&op->buffers, iov, count);
    op->copy = malloc(len ? len : 1);
    if (!op->copy)
        return -ENOMEM;
    struct um_iov_cursor cursor = um_iov_begin(iov, count);
    um_iov_gather(&cursor, op->copy, len);
    struct iovec whole = {.iov_base = op->copy, .iov_len = len};
    return um_core_buffers_set(&op->buffers, &whole, 1);
}

bool um_proto_rndv_show(struct um_core_op *op, struct um_piece *piece)
{
    struct um_lane *lane = op->peer->lane;
    uint64_t key = 0;
    if (op->buffers.count == 1)
        op->shown = lane->machine->show(lane, op->buffers.iov, &key);
    if (op->shown)
        piece->addr = key;
    return op->shown != NULL;
}

int um_proto_rndv_send(struct um_core_ep *ep, const struct um_proto_msg *msg, size_t len)
{
    struct um_core_peer *peer = msg->peer;
    struct um_core_op *op = um_core_op_alloc(peer, &um_proto_rndv_body, msg->context, msg->flags | UM_OP_SEND);
    if (!op)
        return -ENOMEM;
    op->len = len;
    op->tag = msg->tag;
    struct um_slot slot;
    int ret = um_proto_rndv_keep(op, msg->iov, msg->count, len);
    if (ret == 0)
        ret = um_core_op_take_unbounded_token(op);
    if (ret == 0) {
        uint32_t count = op->buffers.count;
        ret = peer->lane->machine->claim_message(peer->lane, count > 1 ? count * (uint32_t)sizeof(struct um_piece) : 0,
                                                 &slot);
    }
    if (ret) {
        um_core_op_free(op);
        return um_core_peer_claim_failed(peer, ret);
    }
    struct um_proto_rts_wire *header = slot.header;
    *header = (struct um_proto_rts_wire){
        .tag = msg->tag, .data = msg->data, .total = len, .token = op->token, .count = (uint16_t)op->buffers.count};
    um_proto_describe(op->buffers.iov, op->buffers.count, &header->piece, slot.body);
    if (!op->copy && um_core_peer_is_shareable(peer, op->buffers.iov, op->buffers.count))
        header->reach = UM_REACH_MAPPED;
    else if (um_proto_shows(peer->lane) && um_proto_rndv_show(op, &header->piece))
        header->reach = UM_REACH_SHOWN;
    uint8_t flags = um_proto_wire_flags(msg->flags);
    peer->out->sent++;
    ep->stats.rendezvous++;
    um_proto_ep_of(ep)->bodies_sent += len;
    peer->out->bytes_sent += len;
    peer->lane->machine->commit(peer->lane, &slot, UM_WIRE_RTS, flags, 0);
    um_core_op_await_answer(op);
    return 0;
}

int um_proto_rndv_rts_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    int error;
    struct um_proto_inbound *in = um_proto_inbound_open(peer, rec, &um_proto_message_body, &error);
    if (!in)
        return error;
    if (um_proto_receive_match(ep, &in->arrival, &in->dest)) {
        in->matched = in->may_wait = true;
        um_proto_inbound_start(ep, in);
        return 0;
    }
    struct um_proto_unexpected *u;
    error = um_proto_receive_unexpected(ep, &in->arrival, in, &u);
    if (error)
        um_proto_inbound_drop(in);
    return error;
}
