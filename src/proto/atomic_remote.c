/*
 * Atomic operations that the owner of the memory executes: the initiator's side of atomic.c, which has the diagram.
 *
 * Owns: operands that are still to be sent. Threading: core.h.
 */
#include "proto/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Operands of an operation of several records: all operands, then all values to compare with. In um_core_op.copy. */
struct um_proto_atomic_rest {
    uint32_t count, sent; /* elements */
    uint32_t size;        /* bytes of an element */
    bool compares;
    unsigned char bytes[];
};

/* Returns how many elements, at most count, the lane takes in one record. unit: bytes that each element needs there. */
static uint32_t record_elements(struct um_lane *lane, uint32_t unit, uint32_t count)
{
    uint64_t wanted = (uint64_t)unit * count;
    if (wanted <= UM_ATOMIC_INLINE)
        return count;
    uint32_t most = lane->machine->lane_body_max(lane, wanted < lane->body_max ? (uint32_t)wanted : lane->body_max);
    return wanted <= most ? count : most / unit;
}

static bool rest_step(struct um_core_ep *ep, struct um_core_job *job)
{
    (void)ep;
    struct um_core_op *op = UM_CONTAINER(job, struct um_core_op, job);
    struct um_proto_atomic_rest *rest = op->copy;
    struct um_lane *lane = op->peer->lane;
    uint32_t size = rest->size, unit = size << rest->compares;
    bool moved = false;
    for (int i = 0; i < UM_ATOMIC_STEP && rest->sent < rest->count; i++) {
        uint32_t most = lane->machine->lane_body_max(lane, lane->body_max) / unit;
        uint32_t n = rest->count - rest->sent < most ? rest->count - rest->sent : most;
        struct um_slot slot;
        int ret = lane->machine->claim(lane, n * unit, &slot);
        if (ret) {
            um_core_peer_claim_failed(op->peer, ret); /* -EPIPE ends the operation, and with it this job */
            return moved;
        }
        const unsigned char *from = rest->bytes + (size_t)rest->sent * size;
        *(struct um_proto_part_wire *)slot.header =
            (struct um_proto_part_wire){.offset = (uint64_t)rest->sent * size, .token = op->token};
        slot.is_nontemporal = false;
        memcpy(slot.body, from, (size_t)n * size);
        if (rest->compares)
            memcpy((char *)slot.body + (size_t)n * size, from + (size_t)rest->count * size, (size_t)n * size);
        lane->machine->commit(lane, &slot, UM_WIRE_ATOMIC_MORE, 0, n * unit);
        rest->sent += n;
        moved = true;
    }
    if (rest->sent == rest->count) {
        um_list_unlink(&job->link);
        um_proto_peer_of(op->peer)->sending = NULL;
    }
    return moved;
}

/* Keeps the operands that do not fit the first record. */
static int rest_keep(struct um_core_op *op, const struct um_proto_atomic *a, uint32_t size, uint32_t sent)
{
    size_t len = a->count * size;
    bool compares = a->kind == UM_ATOMIC_COMPARE;
    struct um_proto_atomic_rest *rest = malloc(sizeof(*rest) + (len << compares));
    if (!rest)
        return -ENOMEM;
    *rest =
        (struct um_proto_atomic_rest){.count = (uint32_t)a->count, .sent = sent, .size = size, .compares = compares};
    struct um_iov_cursor operand = um_iov_begin(a->lists->operand, a->lists->operand_count);
    um_iov_gather(&operand, rest->bytes, len);
    if (compares) {
        struct um_iov_cursor compare = um_iov_begin(a->lists->compare, a->lists->compare_count);
        um_iov_gather(&compare, rest->bytes + len, len);
    }
    op->copy = rest;
    op->job.step = rest_step;
    return 0;
}

static int atomic_record(struct um_core_ep *ep, const struct um_proto_atomic *a, struct um_core_op *op)
{
    struct um_lane *lane = op->peer->lane;
    uint32_t size = (uint32_t)um_proto_atomic_size(a->type), count = (uint32_t)a->count;
    uint32_t unit = a->op == UM_ATOMIC_READ ? 0 : a->kind == UM_ATOMIC_COMPARE ? 2 * size : size;
    uint32_t n = record_elements(lane, unit, count), len = n * unit;
    struct um_slot slot;
    int ret = n < count ? rest_keep(op, a, size, n) : 0;
    if (ret == 0)
        ret = lane->machine->claim(lane, len > UM_ATOMIC_INLINE ? len : 0, &slot);
    if (ret)
        return ret;
    struct um_proto_atomic_wire *header = slot.header;
    header->key = a->key;
    header->addr = a->addr;
    header->count = count;
    header->token = op->token;
    header->type = a->type;
    header->op = a->op;
    slot.is_nontemporal = false;
    unsigned char *body = len > UM_ATOMIC_INLINE ? slot.body : header->body;
    if (unit) {
        struct um_iov_cursor operand = um_iov_begin(a->lists->operand, a->lists->operand_count);
        um_iov_gather(&operand, body, (size_t)n * size);
    }
    if (a->kind == UM_ATOMIC_COMPARE) {
        struct um_iov_cursor compare = um_iov_begin(a->lists->compare, a->lists->compare_count);
        um_iov_gather(&compare, body + (size_t)n * size, (size_t)n * size);
    }
    lane->machine->commit(lane, &slot, UM_WIRE_ATOMIC, a->kind == UM_ATOMIC_BASE ? 0 : UM_WIRE_FETCH, len);
    if (n < count) {
        um_core_job_start(ep, &op->job);
        um_proto_peer_of(op->peer)->sending = op;
    }
    return 0;
}

/* An error may come while the other operands are still going out. */
static void atomic_answered(struct um_core_ep *ep, struct um_core_op *op, int32_t status)
{
    struct um_proto_peer *own = um_proto_peer_of(op->peer);
    if (own->sending == op && status <= 0)
        own->sending = NULL;
    um_proto_op_answered(ep, op, status);
}

static void base_answered(struct um_core_ep *ep, struct um_core_op *op, int32_t status)
{
    const bool is_whole = um_list_is_empty(&op->job.link);
    atomic_answered(ep, op, status == UM_STATUS_DONE && !is_whole ? -EPROTO : status); /* not all operands are out */
}

/* Fetched values come in records: an answer DONE is wrong. */
static void fetch_answered(struct um_core_ep *ep, struct um_core_op *op, int32_t status)
{
    atomic_answered(ep, op, status == UM_STATUS_DONE ? -EPROTO : status);
}

static const struct um_core_op_class base_op = {.answered = base_answered}, fetch_op = {.answered = fetch_answered};

int um_proto_atomic_by_owner(struct um_core_ep *ep, const struct um_proto_atomic *a)
{
    struct um_lane *lane;
    if (um_proto_peer_of(a->peer)->sending)
        return -EAGAIN;
    int ret = um_core_peer_lane(a->peer, &lane);
    if (ret)
        return ret;
    bool fetch = a->kind != UM_ATOMIC_BASE;
    struct um_core_op *op = um_core_op_alloc(a->peer, fetch ? &fetch_op : &base_op, a->context,
                                             a->flags | UM_OP_ATOMIC | (fetch ? UM_OP_READ : UM_OP_WRITE));
    if (!op)
        return -ENOMEM;
    op->len = a->count * um_proto_atomic_size(a->type);
    if (fetch)
        ret = um_core_buffers_set(&op->buffers, a->lists->result, a->lists->result_count);
    if (ret == 0)
        ret = um_core_op_take_token(op);
    if (ret == 0)
        ret = atomic_record(ep, a, op);
    if (ret) {
        um_core_op_free(op);
        return um_core_peer_claim_failed(a->peer, ret);
    }
    a->peer->out->sent++;
    ep->stats.eager++;
    a->peer->out->bytes_sent += a->count * um_proto_atomic_size(a->type);
    um_core_op_set_unfinished(op);
    um_core_op_await_answer(op);
    return 0;
}

int um_proto_atomic_result_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_result_wire *header = rec->header;
    struct um_core_op *op;
    int ret = um_proto_op_of_part(peer, &fetch_op, header->token, header->offset, &op);
    (void)ep;
    if (ret || !op)
        return ret;
    if (!um_list_is_empty(&op->job.link) || (!rec->body && rec->len > UM_RESULT_INLINE))
        return -EPROTO;
    return um_proto_op_part_arrived(op, rec->body ? rec->body : header->body, rec->len);
}
