/*
 * RMA, executed by the target's progress (window level "remote"; private copies by the target where permitted).
 *
 *   initiator                                     target
 *   WRITE {key, addr, token} + body  ──────→      check key, bounds, access → copy        answer DONE or the error
 *   WRITE_RTS {pieces}               ──────→      check → link_read, or answer PUSH        answer DONE
 *   READ {pieces}                    ──────→      check → link_write                       answer DONE
 *                                                 or, where that is refused, RETURN parts through the target's own lane
 *
 * The region is looked up again before every step: a registration that was closed is not used. An error while parts are
 * under way is told behind them: PUSH parts are taken and dropped, the answer follows the last; the RETURN parts are
 * followed by one without a body, whose len is the errno.
 * Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include <errno.h>
#include <string.h>

enum { UM_RMA_STEP = 1 << 20, UM_RETURN_STEP = 8 };

/* The body travels in the record. */
static int write_eager(struct um_ep *ep, const struct um_rma *rma, struct um_op *op)
{
    struct um_slot slot;
    uint32_t body_len = op->len > UM_WRITE_INLINE ? (uint32_t)op->len : 0;
    int ret = ep->machine->claim(op->peer->lane, body_len, &slot);
    if (ret)
        return ret;
    struct um_write_wire *head = slot.head;
    head->key = rma->key;
    head->addr = rma->addr;
    head->data = rma->data;
    head->token = op->token;
    struct um_iov_cursor cursor = um_iov_begin(rma->iov, rma->count);
    um_iov_gather(&cursor, body_len ? slot.body : head->body, op->len);
    ep->machine->commit(op->peer->lane, &slot, UM_WIRE_WRITE, um_wire_flags(rma->flags), (uint32_t)op->len);
    ep->stats.eager++;
    return 0;
}

/* The record tells where the body is (write) or goes (read). */
static int rma_announce(struct um_ep *ep, const struct um_rma *rma, struct um_op *op)
{
    struct um_slot slot;
    int ret = um_rndv_keep(op, rma->iov, rma->count, op->len);
    uint32_t count = op->buffers.count;
    if (ret == 0)
        ret = ep->machine->claim(op->peer->lane, count > 1 ? count * (uint32_t)sizeof(struct um_piece) : 0, &slot);
    if (ret)
        return ret;
    struct um_rma_wire *head = slot.head;
    *head = (struct um_rma_wire){.key = rma->key,
                                 .addr = rma->addr,
                                 .data = rma->data,
                                 .total = op->len,
                                 .token = op->token,
                                 .count = (uint16_t)count};
    um_rndv_describe(op->buffers.iov, count, &head->piece, slot.body);
    uint8_t op_code = rma->flags & UM_OP_READ ? UM_WIRE_READ : UM_WIRE_WRITE_RTS;
    ep->machine->commit(op->peer->lane, &slot, op_code, um_wire_flags(rma->flags), 0);
    ep->stats.rendezvous++;
    return 0;
}

int um_rma(struct um_ep *ep, const struct um_rma *rma)
{
    struct um_lane *lane;
    int ret = um_peer_lane(rma->peer, &lane);
    if (ret)
        return ret;
    struct um_op *op = um_op_alloc(rma->peer, rma->context, rma->flags);
    if (!op)
        return -ENOMEM;
    op->len = um_iov_length(rma->iov, rma->count);
    bool eager = !(rma->flags & UM_OP_READ) &&
                 (op->len <= UM_WRITE_INLINE ||
                  (op->len <= ep->body_max && op->len <= ep->machine->lane_body_max(lane, (uint32_t)op->len)));
    uint64_t len = op->len;
    ret = um_op_take_token(op);
    if (ret == 0)
        ret = eager ? write_eager(ep, rma, op) : rma_announce(ep, rma, op);
    if (ret) {
        um_op_free(op);
        return um_peer_claim_failed(rma->peer, ret);
    }
    ep->stats.sent++;
    ep->stats.bytes_sent += len;
    um_op_await_answer(op);
    return 0;
}

/* ---- the target's side ---- */

/* The target hears of a write only when it carried data. */
static void write_announce(struct um_ep *ep, struct um_peer *peer, uint64_t len, uint64_t data, bool with_data)
{
    ep->stats.received++;
    ep->stats.bytes_received += len;
    if (!with_data)
        return;
    struct um_completion c = {
        .flags = UM_OP_REMOTE_WRITE | UM_OP_DATA, .len = (size_t)len, .data = data, .source = peer};
    ep->config.complete(ep->config.arg, &c);
}

int um_rma_write_arrived(struct um_ep *ep, struct um_peer *peer, const struct um_record *rec)
{
    const struct um_write_wire *head = rec->head;
    uint16_t token = head->token;
    void *to;
    if (token >= UM_TOKENS || (!rec->body && rec->len > UM_WRITE_INLINE))
        return -EPROTO;
    int ret =
        um_regions_resolve(ep->config.regions, head->key, head->addr, rec->len, UM_ACCESS_REMOTE_WRITE, &to);
    if (ret == 0) {
        memcpy(to, rec->body ? rec->body : head->body, rec->len);
        write_announce(ep, peer, rec->len, head->data, rec->flags & UM_WIRE_DATA);
    }
    ep->machine->answer(rec->rx, token, ret);
    return 0;
}

int um_rma_rts_arrived(struct um_ep *ep, struct um_peer *peer, const struct um_record *rec)
{
    int error;
    struct um_inbound *in = um_inbound_open(peer, rec, &error);
    if (!in)
        return error;
    um_inbound_start(ep, in);
    return 0;
}

/* Parts were returned already: the error goes behind them. Returns whether the body still lives. */
static bool return_fail(struct um_ep *ep, struct um_inbound *in, int error)
{
    struct um_lane *lane;
    struct um_slot slot;
    in->failed = error;
    int ret = um_peer_lane(in->peer, &lane);
    if (ret == 0)
        ret = ep->machine->claim(lane, 0, &slot);
    if (ret == -EAGAIN) {
        um_peer_claim_failed(in->peer, ret);
        return true;
    }
    if (ret == 0) {
        *(struct um_part_wire *)slot.head = (struct um_part_wire){.offset = in->moved, .token = in->token};
        ep->machine->commit(lane, &slot, UM_WIRE_RETURN, 0, (uint32_t)error);
    }
    um_inbound_finish(ep, in, error);
    return false;
}

/* Sends parts of what is read as records, as credit allows. Returns whether the body still lives. */
static bool return_step(struct um_ep *ep, struct um_inbound *in, const unsigned char *from, uint64_t left)
{
    struct um_lane *lane;
    int ret = um_peer_lane(in->peer, &lane);
    for (int i = 0; ret == 0 && left > 0 && i < UM_RETURN_STEP; i++) {
        uint32_t most = ep->machine->lane_body_max(lane, ep->body_max);
        uint32_t part = left < most ? (uint32_t)left : most;
        struct um_slot slot;
        ret = ep->machine->claim(lane, part, &slot);
        if (ret)
            break;
        *(struct um_part_wire *)slot.head = (struct um_part_wire){.offset = in->moved, .token = in->token};
        memcpy(slot.body, from, part);
        ep->machine->commit(lane, &slot, UM_WIRE_RETURN, 0, part);
        in->moved += part;
        from += part;
        left -= part;
    }
    if (ret == -EAGAIN) {
        if (in->peer->lane)
            um_peer_claim_failed(in->peer, ret);
        return true;
    }
    if (ret == 0 && left > 0)
        return true;
    um_inbound_finish(ep, in, ret ? ECONNRESET : 0);
    return false;
}

bool um_rma_inbound_step(struct um_ep *ep, struct um_inbound *in)
{
    bool read = in->op == UM_WIRE_READ;
    uint64_t left = in->arrival.len - in->moved;
    void *here;
    int ret = um_regions_resolve(ep->config.regions, in->key, in->addr + in->moved, left,
                                 read ? UM_ACCESS_REMOTE_READ : UM_ACCESS_REMOTE_WRITE, &here);
    if (in->failed || (ret && read && in->pushed && in->moved > 0))
        return return_fail(ep, in, in->failed ? in->failed : -ret);
    if (ret) {
        um_inbound_finish(ep, in, -ret);
        return false;
    }
    if (in->pushed)
        return return_step(ep, in, here, left);
    if (left > 0) {
        ret = um_inbound_copy(ep, in, here, left < UM_RMA_STEP ? (size_t)left : (size_t)UM_RMA_STEP);
        if (ret < 0)
            return false;
        if (in->pushed)
            return true;
    }
    if (in->moved < in->arrival.len)
        return true;
    um_inbound_finish(ep, in, 0);
    return false;
}

void um_rma_inbound_end(struct um_ep *ep, const struct um_inbound *in, int error)
{
    if (error)
        return;
    if (in->op == UM_WIRE_WRITE_RTS) {
        write_announce(ep, in->peer, in->arrival.len, in->arrival.data, in->arrival.flags & UM_OP_DATA);
    } else {
        ep->stats.received++;
        ep->stats.bytes_received += in->arrival.len;
    }
}

/* ---- the initiator's side of a returned read ---- */

int um_rma_return_arrived(struct um_ep *ep, struct um_peer *peer, const struct um_record *rec)
{
    const struct um_part_wire *head = rec->head;
    struct um_op *op = um_peer_op(peer, head->token);
    (void)ep;
    if (!op && peer->lost)
        return 0; /* the read ended with its peer; what else that one committed is still taken */
    if (!op || !(op->flags & UM_OP_READ) || head->offset != op->moved)
        return -EPROTO;
    if (!rec->body && rec->len > 0 && rec->len <= UM_ERRNO_MAX) {
        um_op_complete(op, (int)rec->len);
        return 0;
    }
    if (!rec->body || rec->len > op->len - op->moved)
        return -EPROTO;
    um_iov_scatter(&op->buffers.cursor, rec->body, rec->len);
    op->moved += rec->len;
    if (op->moved == op->len)
        um_op_complete(op, 0);
    return 0;
}
