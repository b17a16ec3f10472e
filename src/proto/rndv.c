/*
 * Rendezvous: a body that waits at its owner until the other side knows where it goes.
 *
 *   sender                                        receiver
 *   RTS {pieces, total, token}      ──────→       match (now, or when a receive is posted)
 *                                                 ├ reads the pieces (transfer), ≤ 1 MiB a step
 *   complete                        ←── answer ── └ DONE
 *                                                 ├ reading is refused:
 *   push job                        ←── answer ── ├ PUSH
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

enum {
    UM_COPY_STEP = 1 << 20, /* bytes one step of a copy moves */
    UM_PUSH_STEP = 8,       /* records one step of a push fills */
};

void um_rndv_describe(const struct iovec *iov, size_t count, struct um_piece *piece, void *body)
{
    struct um_piece *to = count > 1 ? body : piece;
    for (size_t i = 0; i < count; i++)
        to[i] = (struct um_piece){.addr = (uint64_t)(uintptr_t)iov[i].iov_base, .len = iov[i].iov_len};
}

int um_rndv_keep(struct um_op *op, const struct iovec *iov, size_t count, size_t len)
{
    if (!(op->flags & UM_OP_INJECT))
        return um_buffers_set(&op->buffers, iov, count);
    op->copy = malloc(len ? len : 1);
    if (!op->copy)
        return -ENOMEM;
    struct um_iov_cursor cursor = um_iov_begin(iov, count);
    um_iov_gather(&cursor, op->copy, len);
    struct iovec whole = {.iov_base = op->copy, .iov_len = len};
    return um_buffers_set(&op->buffers, &whole, 1);
}

int um_rndv_send(struct um_ep *ep, const struct um_msg *msg, size_t len)
{
    struct um_peer *peer = msg->peer;
    struct um_op *op = um_op_alloc(peer, &um_rndv_body, msg->context, msg->flags | UM_OP_SEND);
    if (!op)
        return -ENOMEM;
    op->len = len;
    op->tag = msg->tag;
    struct um_slot slot;
    int ret = um_rndv_keep(op, msg->iov, msg->count, len);
    if (ret == 0)
        ret = um_op_take_unbounded_token(op);
    if (ret == 0) {
        uint32_t count = op->buffers.count;
        ret = peer->lane->machine->claim_message(peer->lane, count > 1 ? count * (uint32_t)sizeof(struct um_piece) : 0,
                                                 &slot);
    }
    if (ret) {
        um_op_free(op);
        return um_peer_claim_failed(peer, ret);
    }
    struct um_rts_wire *head = slot.head;
    *head = (struct um_rts_wire){
        .tag = msg->tag, .data = msg->data, .total = len, .token = op->token, .count = (uint16_t)op->buffers.count};
    um_rndv_describe(op->buffers.iov, op->buffers.count, &head->piece, slot.body);
    uint8_t flags = um_wire_flags(msg->flags);
    peer->out->sent++;
    ep->stats.rendezvous++;
    peer->out->bytes_sent += len;
    peer->lane->machine->commit(peer->lane, &slot, UM_WIRE_RTS, flags, 0);
    um_op_await_answer(op);
    return 0;
}

static bool push_step(struct um_ep *ep, struct um_job *job)
{
    struct um_op *op = UM_CONTAINER(job, struct um_op, job);
    struct um_lane *lane = op->peer->lane;
    bool moved = false;
    for (int i = 0; i < UM_PUSH_STEP; i++) {
        uint32_t most = lane->machine->lane_body_max(lane, lane->body_max);
        uint64_t left = op->len - op->moved;
        uint32_t part = left < most ? (uint32_t)left : most;
        struct um_slot slot;
        int ret = lane->machine->claim(lane, part, &slot);
        if (ret) {
            um_peer_claim_failed(op->peer, ret); /* -EPIPE ends the operation, and with it this job */
            return moved;
        }
        *(struct um_part_wire *)slot.head = (struct um_part_wire){.offset = op->moved, .token = op->token};
        um_iov_gather(&op->buffers.cursor, slot.body, part);
        slot.more = part < left || um_job_is_followed(ep, job);
        lane->machine->commit(lane, &slot, UM_WIRE_PUSH, 0, part);
        op->moved += part;
        moved = true;
        if (op->moved == op->len) {
            um_list_unlink(&job->link);
            break;
        }
    }
    return moved;
}

static void body_answered(struct um_ep *ep, struct um_op *op, int32_t status)
{
    if (status != UM_STATUS_PUSH) {
        um_op_answered(ep, op, status);
        return;
    }
    if (op->len == 0 || op->moved != 0 || !um_list_is_empty(&op->job.link))
        return; /* there is none, or it was asked for twice: the peer errs */
    op->job.step = push_step;
    um_job_start(ep, &op->job);
}

const struct um_op_class um_rndv_body = {.answered = body_answered};

void um_inbound_finish(struct um_ep *ep, struct um_inbound *in, int error)
{
    bool returned = in->op == UM_WIRE_READ && in->moved > 0 && (!error || in->failed); /* the last part told */
    if (in->pushed)
        ep->stats.bounced++;
    else
        ep->stats.copied++;
    if (in->ask.way != UM_WAY_NONE && !error)
        um_ask_learn(ep, in);
    if (in->op == UM_WIRE_RTS)
        um_receive_finish(ep, &in->target, &in->arrival, error);
    else
        um_rma_inbound_end(ep, in, error);
    um_inbound_end(ep, in, -error, !returned);
}

/* The next part of the source, from moved on, and as much of the target: at most UM_COPY_STEP bytes. */
static size_t copy_plan(const struct um_inbound *in, uint64_t left, struct um_piece *remote, size_t *remote_count_p)
{
    uint64_t skip = in->moved;
    size_t count = 0;
    size_t bytes = 0;
    size_t most = left < UM_COPY_STEP ? (size_t)left : (size_t)UM_COPY_STEP;
    for (uint32_t i = 0; i < in->count && bytes < most; i++) {
        struct um_piece p = in->piece[i];
        if (skip >= p.len) {
            skip -= p.len;
            continue;
        }
        p.addr += skip;
        p.len -= skip;
        skip = 0;
        if (p.len > most - bytes)
            p.len = most - bytes;
        remote[count++] = p;
        bytes += (size_t)p.len;
    }
    *remote_count_p = count;
    return bytes;
}

/* What comes of a copy's result: it moved; not now, or in records from now on; ended. */
enum copied { COPY_MOVED, COPY_NOT_NOW, COPY_ENDED };

static enum copied copy_result(struct um_ep *ep, struct um_inbound *in, int ret)
{
    if (ret == -EAGAIN || ret == -EINPROGRESS)
        return COPY_NOT_NOW;
    if (ret == -EPERM && in->ask.is_taken_back) {
        if (um_ask_resume(ep, in))
            return COPY_NOT_NOW;
        um_inbound_finish(ep, in, EIO); /* parts of it came and were not kept */
        return COPY_ENDED;
    }
    if (ret == -EPERM) { /* all of it comes in records, from the first byte on */
        in->ask.way = UM_WAY_NONE;
        um_proto_peer_of(in->peer)->asked.is_unreadable = true;
        in->moved = 0;
        in->target.cursor = in->start;
        in->pushed = true;
        (void)um_inbound_ask(in);
        return COPY_NOT_NOW;
    }
    if (ret) {
        um_inbound_finish(ep, in, ret == -ESRCH ? ECONNRESET : ret == -EFAULT ? EFAULT : EIO);
        return COPY_ENDED;
    }
    return COPY_MOVED;
}

int um_inbound_copy(struct um_ep *ep, struct um_inbound *in, void *here, size_t len)
{
    int ret;
    if (in->copying.transfer) {
        len = in->copying.len;
        ret = um_copying_poll(&in->copying);
    } else {
        struct um_piece remote[UM_IOV_LIMIT];
        const struct iovec local = {.iov_base = here, .iov_len = len};
        struct um_copy copy = {.remote = remote, .local = &local, .local_count = 1};
        len = copy.len = copy_plan(in, len, remote, &copy.remote_count);
        ret = um_copying_start(&in->copying, in->peer->link, &copy, um_regions_find(ep->config.regions, in->key));
    }
    enum copied copied = copy_result(ep, in, ret);
    if (copied == COPY_MOVED)
        in->moved += len;
    return copied == COPY_ENDED ? -1 : 0;
}

/* The next bytes of a message, at most limit in all; how many, once they have moved. */
static int message_copy(struct um_ep *ep, struct um_inbound *in, uint64_t limit, size_t *len_p)
{
    if (in->copying.transfer) {
        *len_p = in->copying.len;
        return um_ask_read_on(ep, in);
    }
    struct um_piece remote[UM_IOV_LIMIT];
    struct iovec local[UM_IOV_LIMIT];
    struct um_copy copy = {.remote = remote, .local = local};
    struct um_iov_cursor next = in->target.cursor;
    size_t len = copy_plan(in, limit - in->moved, remote, &copy.remote_count);
    copy.local_count = um_iov_take(&next, len, local, UM_IOV_LIMIT);
    *len_p = copy.len = um_iov_length(local, copy.local_count);
    return um_ask_read(ep, in, &copy);
}

/* One step; returns whether the body still lives. */
static bool message_step(struct um_ep *ep, struct um_inbound *in)
{
    uint64_t limit = in->arrival.len < in->target.len ? in->arrival.len : in->target.len;
    if (in->ask.way == UM_WAY_NONE && !in->copying.transfer && um_ask(ep, in))
        return true;
    if (in->moved < limit) {
        size_t len;
        enum copied copied = copy_result(ep, in, message_copy(ep, in, limit, &len));
        if (copied != COPY_MOVED)
            return copied == COPY_NOT_NOW;
        um_iov_skip(&in->target.cursor, len);
        in->moved += len;
    }
    if (in->moved < limit)
        return true;
    um_inbound_finish(ep, in, 0);
    return false;
}

bool um_inbound_step(struct um_ep *ep, struct um_job *job)
{
    struct um_inbound *in = UM_CONTAINER(job, struct um_inbound, job);
    uint64_t before = in->moved;
    bool was_pushed = in->pushed;
    if (in->pushed && in->op != UM_WIRE_READ)
        return um_inbound_ask(in);
    bool lives = in->op == UM_WIRE_RTS ? message_step(ep, in) : um_rma_inbound_step(ep, in);
    return !lives || in->moved != before || in->pushed != was_pushed;
}

void um_inbound_start(struct um_ep *ep, struct um_inbound *in)
{
    if (in->left) {
        um_inbound_finish(ep, in, in->left);
        return;
    }
    in->job.step = um_inbound_step;
    in->start = in->target.cursor;
    bool lives = in->op == UM_WIRE_RTS ? message_step(ep, in) : um_rma_inbound_step(ep, in);
    if (lives && (!in->asked || in->op == UM_WIRE_READ))
        um_job_start(ep, &in->job);
}

int um_rndv_rts(struct um_ep *ep, struct um_peer *peer, const struct um_record *rec)
{
    int error;
    struct um_inbound *in = um_inbound_open(peer, rec, &error);
    if (!in)
        return error;
    if (um_receive_match(ep, &in->arrival, &in->target)) {
        in->matched = true;
        um_inbound_start(ep, in);
        return 0;
    }
    error = um_receive_unexpected(ep, &in->arrival, NULL, in);
    if (error)
        um_inbound_drop(in);
    return error;
}

int um_rndv_push(struct um_ep *ep, struct um_peer *peer, const struct um_record *rec)
{
    const struct um_part_wire *head = rec->head;
    struct um_inbound *in = um_inbound_find(peer, head->token);
    if (__builtin_expect(um_proto_peer_of(peer)->asked.drops, 0) && um_ask_drops(in))
        return 0;
    if (!in || !in->asked || in->op == UM_WIRE_READ || !rec->body || head->offset != in->moved ||
        rec->len > in->arrival.len - in->moved)
        return -EPROTO;
    if (in->op == UM_WIRE_RTS) {
        uint64_t limit = in->arrival.len < in->target.len ? in->arrival.len : in->target.len;
        uint64_t room = in->moved < limit ? limit - in->moved : 0;
        um_iov_scatter(&in->target.cursor, rec->body, rec->len < room ? rec->len : (size_t)room);
    } else {
        void *to;
        int ret = um_regions_resolve(ep->config.regions, in->key, in->addr + in->moved, rec->len,
                                     UM_ACCESS_REMOTE_WRITE, &to);
        if (ret == 0 && !in->failed && (ret = um_core_ep_guard(ep, to, rec->len)) == 0) {
            memcpy(to, rec->body, rec->len);
            ret = um_core_ep_unguard(ep);
        }
        if (ret && !in->failed)
            in->failed = -ret;
    }
    in->moved += rec->len;
    if (in->ask.way == UM_WAY_PUSH)
        um_ask_came(ep, in, rec->len);
    if (in->moved == in->arrival.len)
        um_inbound_finish(ep, in, in->failed);
    return 0;
}
