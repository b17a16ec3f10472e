/*
 * Rendezvous: a body that waits at its owner until the other side knows where it goes.
 *
 *   sender                                        receiver
 *   RTS {pieces, total, token}      ──────→       match (now, or when a receive is posted)
 *                                                 ├ reads the pieces (link_read), ≤ 1 MiB a step
 *   complete                        ←── answer ── └ DONE
 *                                                 ├ reading is refused:
 *   push job                        ←── answer ── ├ PUSH
 *   PUSH {offset} + body, in order  ──────→       │ scatter
 *   complete                        ←── answer ── └ DONE
 *
 * States of an inbound body: announced → matched → moving (job) or pushed → finished. A sender that leaves ends it in
 * any state. RMA bodies (rma.c) are announced by their own records and share the rest.
 * Owns: struct um_inbound. Threading: core.h.
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
    struct um_op *op = um_op_alloc(peer, msg->context, msg->flags | UM_OP_SEND);
    if (!op)
        return -ENOMEM;
    op->len = len;
    op->tag = msg->tag;
    struct um_slot slot;
    int ret = um_rndv_keep(op, msg->iov, msg->count, len);
    if (ret == 0)
        ret = um_op_take_token(op);
    if (ret == 0) {
        uint32_t count = op->buffers.count;
        ret = ep->machine->claim(peer->lane, count > 1 ? count * (uint32_t)sizeof(struct um_piece) : 0, &slot);
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
    ep->stats.sent++;
    ep->stats.rendezvous++;
    ep->stats.bytes_sent += len;
    ep->machine->commit(peer->lane, &slot, UM_WIRE_RTS, flags, 0);
    um_op_await_answer(op);
    return 0;
}

static bool push_step(struct um_ep *ep, struct um_job *job)
{
    struct um_op *op = UM_CONTAINER(job, struct um_op, job);
    struct um_lane *lane = op->peer->lane;
    bool moved = false;
    for (int i = 0; i < UM_PUSH_STEP; i++) {
        uint32_t most = ep->machine->lane_body_max(lane, ep->body_max);
        uint64_t left = op->len - op->moved;
        uint32_t part = left < most ? (uint32_t)left : most;
        struct um_slot slot;
        int ret = ep->machine->claim(lane, part, &slot);
        if (ret) {
            um_peer_claim_failed(op->peer, ret); /* -EPIPE ends the operation, and with it this job */
            return moved;
        }
        *(struct um_part_wire *)slot.head = (struct um_part_wire){.offset = op->moved, .token = op->token};
        um_iov_gather(&op->buffers.cursor, slot.body, part);
        slot.more = part < left || um_job_is_followed(ep, job);
        ep->machine->commit(lane, &slot, UM_WIRE_PUSH, 0, part);
        op->moved += part;
        moved = true;
        if (op->moved == op->len) {
            um_list_unlink(&job->link);
            break;
        }
    }
    return moved;
}

void um_rndv_push_start(struct um_ep *ep, struct um_op *op)
{
    if (op->moved != 0)
        return; /* asked for twice: the peer errs, the body is on its way */
    op->job.step = push_step;
    um_job_start(ep, &op->job);
}

/* Copies the pieces out of an announcement and checks that they make up the total. */
static int pieces_take(struct um_inbound *in, const struct um_record *rec, const struct um_piece *one, uint64_t total)
{
    uint64_t sum = 0;
    if (in->count == 1)
        memcpy(in->piece, one, sizeof(*one));
    else if (in->count > 1)
        memcpy(in->piece, rec->body, in->count * sizeof(struct um_piece));
    for (uint32_t i = 0; i < in->count; i++) {
        if (in->piece[i].len > total - sum)
            return -EPROTO;
        sum += in->piece[i].len;
    }
    return sum == total ? 0 : -EPROTO;
}

struct um_inbound *um_inbound_open(struct um_peer *peer, const struct um_record *rec, int *error_p)
{
    bool is_rts = rec->op == UM_WIRE_RTS;
    const struct um_rts_wire *rts = rec->head;
    const struct um_rma_wire *rma = rec->head;
    uint16_t token = is_rts ? rts->token : rma->token;
    uint16_t count = is_rts ? rts->count : rma->count;
    uint64_t total = is_rts ? rts->total : rma->total;
    *error_p = -EPROTO;
    if (token >= UM_TOKENS || count > UM_IOV_LIMIT || (peer->inbound && peer->inbound[token]) ||
        (count > 1 && (!rec->body || rec->len != count * sizeof(struct um_piece))) ||
        (rec->op == UM_WIRE_READ && count != 0))
        return NULL;
    *error_p = -ENOMEM;
    if (!peer->inbound)
        peer->inbound = calloc(UM_TOKENS, sizeof(struct um_inbound *));
    struct um_inbound *in = malloc(sizeof(*in) + count * sizeof(struct um_piece));
    if (!peer->inbound || !in) {
        free(in);
        return NULL;
    }
    *in = (struct um_inbound){.peer = peer, .token = token, .op = rec->op, .count = count, .ask = {.way = UM_WAY_NONE}};
    in->pushed = rec->op == UM_WIRE_READ;
    um_list_init(&in->job.link);
    in->arrival = (struct um_arrival){
        .peer = peer,
        .tag = is_rts ? rts->tag : 0,
        .data = is_rts ? rts->data : rma->data,
        .len = total,
        .flags = um_wire_op_flags(rec->flags),
    };
    if (!is_rts) {
        in->key = rma->key;
        in->addr = rma->addr;
    }
    if (rec->op != UM_WIRE_READ && pieces_take(in, rec, is_rts ? &rts->piece : &rma->piece, total) != 0) {
        *error_p = -EPROTO;
        free(in);
        return NULL;
    }
    peer->inbound[token] = in;
    return in;
}

static void inbound_end(struct um_ep *ep, struct um_inbound *in, int32_t status, bool answer)
{
    struct um_peer *peer = in->peer;
    um_ask_forget(ep, in);
    um_list_unlink(&in->job.link);
    if (peer->inbound[in->token] == in)
        peer->inbound[in->token] = NULL;
    if (answer && peer->rx && !in->left)
        ep->machine->answer(peer->rx, in->token, status);
    free(in);
}

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
    inbound_end(ep, in, -error, !returned);
}

void um_inbound_discard(struct um_ep *ep, struct um_inbound *in)
{
    inbound_end(ep, in, UM_STATUS_DONE, true);
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
    if (ret == -EAGAIN)
        return COPY_NOT_NOW;
    if (ret == -EPERM && in->ask.is_taken_back) {
        if (um_ask_resume(ep, in))
            return COPY_NOT_NOW;
        um_inbound_finish(ep, in, EIO); /* parts of it came and were not kept */
        return COPY_ENDED;
    }
    if (ret == -EPERM) { /* all of it comes in records, from the first byte on */
        in->ask.way = UM_WAY_NONE;
        in->peer->asked.is_unreadable = true;
        in->moved = 0;
        in->target.cursor = in->start;
        in->pushed = true;
        um_list_unlink(&in->job.link);
        ep->machine->answer(in->peer->rx, in->token, UM_STATUS_PUSH);
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
    struct um_piece remote[UM_IOV_LIMIT];
    struct iovec local = {.iov_base = here, .iov_len = len};
    size_t remote_count;
    size_t planned = copy_plan(in, len, remote, &remote_count);
    int ret = um_ask_read(ep, in, &(struct um_reading){remote, remote_count, &local, 1, planned});
    enum copied copied = copy_result(ep, in, ret);
    if (copied == COPY_MOVED)
        in->moved += planned;
    return copied == COPY_ENDED ? -1 : 0;
}

/* One step; returns whether the body still lives. */
static bool message_step(struct um_ep *ep, struct um_inbound *in)
{
    uint64_t limit = in->arrival.len < in->target.len ? in->arrival.len : in->target.len;
    struct um_piece remote[UM_IOV_LIMIT];
    struct iovec local[UM_IOV_LIMIT];
    size_t remote_count;
    if (in->ask.way == UM_WAY_NONE && um_ask(ep, in))
        return true;
    if (in->moved < limit) {
        size_t len = copy_plan(in, limit - in->moved, remote, &remote_count);
        struct um_iov_cursor next = in->target.cursor;
        size_t local_count = um_iov_take(&next, len, local, UM_IOV_LIMIT);
        len = um_iov_length(local, local_count);
        int ret = um_ask_read(ep, in, &(struct um_reading){remote, remote_count, local, local_count, len});
        enum copied copied = copy_result(ep, in, ret);
        if (copied != COPY_MOVED)
            return copied == COPY_NOT_NOW;
        in->target.cursor = next;
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
    if (lives && (!in->pushed || in->op == UM_WIRE_READ))
        um_job_start(ep, &in->job);
}

void um_inbound_peer_left(struct um_ep *ep, struct um_peer *peer, int error)
{
    for (uint16_t t = 0; peer->inbound && t < UM_TOKENS; t++) {
        struct um_inbound *in = peer->inbound[t];
        if (!in)
            continue;
        in->left = error;
        peer->inbound[t] = NULL;
        if (in->op != UM_WIRE_RTS || in->matched)
            um_inbound_finish(ep, in, error);
    }
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
    if (error) {
        peer->inbound[in->token] = NULL;
        free(in);
    }
    return error;
}

int um_rndv_push(struct um_ep *ep, struct um_peer *peer, const struct um_record *rec)
{
    const struct um_part_wire *head = rec->head;
    uint16_t token = head->token;
    struct um_inbound *in = peer->inbound && token < UM_TOKENS ? peer->inbound[token] : NULL;
    if (peer->asked.drops && (!in || in->ask.is_taken_back)) {
        if (in)
            in->ask.went_on = true;
        return 0; /* it was asked for, and then not waited for */
    }
    if (!in || !in->pushed || in->op == UM_WIRE_READ || !rec->body || head->offset != in->moved ||
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
        if (ret && !in->failed)
            in->failed = -ret;
        if (!in->failed)
            memcpy(to, rec->body, rec->len);
    }
    in->moved += rec->len;
    if (in->ask.way == UM_WAY_PUSH)
        um_ask_came(ep, in, rec->len);
    if (in->moved == in->arrival.len)
        um_inbound_finish(ep, in, in->failed);
    return 0;
}
