/*
 * Atomic operations.
 *
 *   initiator                                      owner
 *   has the memory mapped (a window): applies it there, complete at return
 *   else:
 *   ATOMIC {key, addr, op, token} + operands ───→  check, apply
 *   (ATOMIC_MORE {offset, token} + operands  ───→  check, apply)*
 *   complete                      ←── answer ───   nothing fetched, or an error
 *   complete                  ←── RESULT {…}* ───  fetched: through the owner's own lane, after the last part
 *
 * At level copy the owner executes, too. Order: operations to one peer take effect in the order of their calls: what
 * goes by a window waits (-EAGAIN) while the peer has not answered what it executes, and so does what follows an
 * operation of several records while those are going out. What fits one record is one record. This file is the
 * initiator's side, atomic_owner.c the owner's. Owns: operands on their way. Threading: core.h.
 */
#include "proto/internal.h"

#include "core/window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- by a window ---- */

/* The bytes that all lists have in one piece from here on, at most max. */
static size_t common_piece(struct um_iov_cursor *const lists[3], const bool used[3], size_t max, void *at[3])
{
    for (int i = 0; i < 3; i++) {
        struct um_iov_cursor look = *lists[i];
        struct iovec piece;
        if (used[i] && um_iov_take(&look, max, &piece, 1) == 1)
            max = piece.iov_len;
    }
    for (int i = 0; i < 3; i++) {
        struct iovec piece = {.iov_base = NULL};
        if (used[i])
            (void)um_iov_take(lists[i], max, &piece, 1);
        at[i] = piece.iov_base;
    }
    return max;
}

static void apply_lists(const struct um_atomic *a, const struct um_atomic_place *whole)
{
    struct um_atomic_place place = *whole;
    struct um_iov_cursor operand = um_iov_begin(a->operand, a->operand_count);
    struct um_iov_cursor compare = um_iov_begin(a->compare, a->compare_count);
    struct um_iov_cursor result = um_iov_begin(a->result, a->result_count);
    struct um_iov_cursor *const lists[3] = {&operand, &compare, &result};
    const bool used[3] = {a->op != UM_ATOMIC_READ, a->kind == UM_ATOMIC_COMPARE, a->kind != UM_ATOMIC_BASE};
    size_t size = um_atomic_size(a->type);
    for (size_t left = a->count * size; left > 0;) {
        void *at[3];
        size_t len = common_piece(lists, used, left, at);
        const struct um_atomic_operands o = {.operand = at[0], .compare = at[1], .result = at[2]};
        um_atomic_apply_at(a->type, a->op, &o, &place, len / size);
        place.at += len;
        place.lock_key += len;
        left -= len;
    }
}

/* One piece in each list, or none: the usual case. */
static void apply_pieces(const struct um_atomic *a, const struct um_atomic_place *place)
{
    const struct um_atomic_operands o = {
        .operand = a->operand_count ? a->operand->iov_base : NULL,
        .compare = a->compare_count ? a->compare->iov_base : NULL,
        .result = a->result_count ? a->result->iov_base : NULL,
    };
    um_atomic_apply_at(a->type, a->op, &o, place, a->count);
}

/* An element that the processor updates itself: docs/protocol.md section 6.8. */
static bool is_lockless(uint64_t owners_addr, size_t size)
{
    return size <= 8 && (owners_addr & (size - 1)) == 0;
}

static inline void executed(struct um_ep *ep, struct um_window *w, uint8_t kind, uint32_t op)
{
    ep->stats.mapped++;
#if !defined(__x86_64__)
    ep->stored = true; /* elsewhere an update may wait while later loads go ahead */
#endif
    if (__builtin_expect(!um_window_has_counters(w), 1))
        return;
    if (kind != UM_ATOMIC_BASE)
        um_window_count(w, UM_COUNT_READ_SHIFT);
    if (op != UM_ATOMIC_READ)
        um_window_count(w, UM_COUNT_WRITE_SHIFT);
}

static void atomic_complete(struct um_ep *ep, const struct um_atomic *a, int ret)
{
    const size_t len = a->count * um_atomic_size(a->type);
    a->peer->out->sent++;
    a->peer->out->bytes_sent += len;
    ep->reported = true;
    const struct um_completion c = {
        .context = a->context,
        .flags = a->flags | UM_OP_ATOMIC | (a->kind != UM_ATOMIC_BASE ? UM_OP_READ : UM_OP_WRITE),
        .error = -ret,
        .len = len,
    };
    ep->config.complete(ep->config.arg, &c);
}

/*
 * Executes it here: complete at return. -EAGAIN: the peer still has operations to execute, which this would overtake.
 */
static int atomic_by_window(struct um_ep *ep, const struct um_atomic *a, struct um_window *w)
{
    size_t len = a->count * um_atomic_size(a->type);
    bool fetch = a->kind != UM_ATOMIC_BASE;
    uint64_t offset;
    if (__builtin_expect(a->peer->unfinished != 0, 0))
        return -EAGAIN;
    int ret = um_window_check(w, a->addr, len, um_atomic_access(a->op, fetch), &offset);
    if (ret == 0) {
        const struct um_atomic_place place = {
            .at = w->base + offset, .lock_key = w->region.base + offset, .locks = w->locks};
        bool own = w->level == UM_LEVEL_OWN;
        um_core_ep_settle(ep); /* one that only reads, or whose comparison fails, is no barrier */
        if (own)
            um_fault_guard_begin(w->guard, place.at, len);
        if (__builtin_expect(a->operand_count <= 1 && a->compare_count <= 1 && a->result_count <= 1, 1))
            apply_pieces(a, &place);
        else
            apply_lists(a, &place);
        if (__builtin_expect(own ? um_fault_guard_end(w->guard) : !um_window_is_held(w), 0)) {
            bool gone = own || um_window_is_gone(w);
            w = um_window_renewed(a->peer, w);
            ret = w ? 0 : gone ? -EFAULT : -EKEYREJECTED; /* some may have been updated, and shall not be twice */
        }
        if (ret == 0)
            executed(ep, w, a->kind, a->op);
    }
    atomic_complete(ep, a, ret);
    return 0;
}

/* False: there was no memory, or not for this. */
static inline __attribute__((always_inline)) bool apply_once(struct um_window *w, const struct um_atomic_call *call,
                                                             size_t size)
{
    struct um_fault_guard *const guard = w->guard;
    if (guard) {
        um_fault_guard_begin(guard, call->target, size);
        um_atomic_apply_lockless(call);
        return !um_fault_guard_end(guard);
    }
    um_atomic_apply_lockless(call);
    return um_window_is_held(w);
}

/*
 * As um_window_renewed(). The registration ended: whether the update was in time nobody knows. It shall not be made
 * twice: um_atomic(), which is called next, ends it.
 */
static __attribute__((noinline)) struct um_window *late_renewed(struct um_peer *peer, const struct um_window *w,
                                                                const struct um_atomic_one *a)
{
    const bool late = w->level != UM_LEVEL_OWN && !um_window_is_gone(w);
    struct um_window *now = um_window_renewed(peer, w);
    if (late && !now)
        um_proto_ep_of(peer->ep)->late = (struct um_late){.peer = peer, .key = a->key, .addr = a->addr};
    return now;
}

static bool is_late(struct um_ep *ep, const struct um_atomic *a)
{
    const struct um_late *late = &um_proto_ep_of(ep)->late;
    if (late->peer != a->peer || late->key != a->key || late->addr != a->addr)
        return false; /* another thread's, which comes for it */
    um_proto_ep_of(ep)->late.peer = NULL;
    return true;
}

bool um_atomic_now(struct um_ep *ep, struct um_peer *peer, const struct um_atomic_one *a)
{
    if (um_core_ep_is_due(ep))
        um_core_ep_look(ep); /* may end the peer, and its windows */
    const size_t size = um_atomic_size_of(a->type);
    const uint32_t access = um_atomic_access(a->op, a->kind != UM_ATOMIC_BASE);
    struct um_window *w = um_window_find(peer, a->key);
    uint64_t offset;
    if (!um_window_check_at_once(peer, w, a->addr, size, access, &offset) ||
        !is_lockless(w->region.base + offset, size))
        return false;
    struct um_atomic_call call; /* without what does not matter: locks and so on */
    call.type = (uint8_t)a->type;
    call.op = (uint8_t)a->op;
    call.count = 1;
    call.target = w->base + offset;
    call.operand = a->operand;
    call.compare = a->compare;
    call.result = a->result;
    um_core_ep_settle(ep);
    if (__builtin_expect(!apply_once(w, &call, size), 0) && !(w = late_renewed(peer, w, a)))
        return false;
    executed(ep, w, a->kind, a->op);
    peer->out->sent++;
    peer->out->bytes_sent += size;
    ep->reported = true;
    return true;
}

/* ---- by the owner ---- */

/* Operands on their way: all of them, then all values to compare with. In um_op.copy. */
struct um_atomic_rest {
    uint32_t count, sent; /* elements */
    uint32_t size;        /* bytes of an element */
    bool compares;
    unsigned char bytes[];
};

/* Elements that the lane takes in one record, at most count. unit: bytes each needs there. */
static uint32_t record_elements(struct um_lane *lane, uint32_t unit, uint32_t count)
{
    uint64_t wanted = (uint64_t)unit * count;
    if (wanted <= UM_ATOMIC_INLINE)
        return count;
    uint32_t most = lane->machine->lane_body_max(lane, wanted < lane->body_max ? (uint32_t)wanted : lane->body_max);
    return wanted <= most ? count : most / unit;
}

static bool rest_step(struct um_ep *ep, struct um_job *job)
{
    (void)ep;
    struct um_op *op = UM_CONTAINER(job, struct um_op, job);
    struct um_atomic_rest *rest = op->copy;
    struct um_lane *lane = op->peer->lane;
    uint32_t size = rest->size, unit = size << rest->compares;
    bool moved = false;
    for (int i = 0; i < UM_ATOMIC_STEP && rest->sent < rest->count; i++) {
        uint32_t most = lane->machine->lane_body_max(lane, lane->body_max) / unit;
        uint32_t n = rest->count - rest->sent < most ? rest->count - rest->sent : most;
        struct um_slot slot;
        int ret = lane->machine->claim(lane, n * unit, &slot);
        if (ret) {
            um_peer_claim_failed(op->peer, ret); /* -EPIPE ends the operation, and with it this job */
            return moved;
        }
        const unsigned char *from = rest->bytes + (size_t)rest->sent * size;
        *(struct um_part_wire *)slot.head =
            (struct um_part_wire){.offset = (uint64_t)rest->sent * size, .token = op->token};
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

/* Keeps what does not go out with the first record. */
static int rest_keep(struct um_op *op, const struct um_atomic *a, uint32_t size, uint32_t sent)
{
    size_t len = a->count * size;
    bool compares = a->kind == UM_ATOMIC_COMPARE;
    struct um_atomic_rest *rest = malloc(sizeof(*rest) + (len << compares));
    if (!rest)
        return -ENOMEM;
    *rest = (struct um_atomic_rest){.count = (uint32_t)a->count, .sent = sent, .size = size, .compares = compares};
    struct um_iov_cursor operand = um_iov_begin(a->operand, a->operand_count);
    um_iov_gather(&operand, rest->bytes, len);
    if (compares) {
        struct um_iov_cursor compare = um_iov_begin(a->compare, a->compare_count);
        um_iov_gather(&compare, rest->bytes + len, len);
    }
    op->copy = rest;
    op->job.step = rest_step;
    return 0;
}

static int atomic_record(struct um_ep *ep, const struct um_atomic *a, struct um_op *op)
{
    struct um_lane *lane = op->peer->lane;
    uint32_t size = (uint32_t)um_atomic_size(a->type), count = (uint32_t)a->count;
    uint32_t unit = a->op == UM_ATOMIC_READ ? 0 : a->kind == UM_ATOMIC_COMPARE ? 2 * size : size;
    uint32_t n = record_elements(lane, unit, count), len = n * unit;
    struct um_slot slot;
    int ret = n < count ? rest_keep(op, a, size, n) : 0;
    if (ret == 0)
        ret = lane->machine->claim(lane, len > UM_ATOMIC_INLINE ? len : 0, &slot);
    if (ret)
        return ret;
    struct um_atomic_wire *head = slot.head;
    head->key = a->key;
    head->addr = a->addr;
    head->count = count;
    head->token = op->token;
    head->type = a->type;
    head->op = a->op;
    unsigned char *body = len > UM_ATOMIC_INLINE ? slot.body : head->body;
    if (unit) {
        struct um_iov_cursor operand = um_iov_begin(a->operand, a->operand_count);
        um_iov_gather(&operand, body, (size_t)n * size);
    }
    if (a->kind == UM_ATOMIC_COMPARE) {
        struct um_iov_cursor compare = um_iov_begin(a->compare, a->compare_count);
        um_iov_gather(&compare, body + (size_t)n * size, (size_t)n * size);
    }
    lane->machine->commit(lane, &slot, UM_WIRE_ATOMIC, a->kind == UM_ATOMIC_BASE ? 0 : UM_WIRE_FETCH, len);
    if (n < count) {
        um_job_start(ep, &op->job);
        um_proto_peer_of(op->peer)->sending = op;
    }
    return 0;
}

/* An error may come while the rest still goes out. */
static void atomic_answered(struct um_ep *ep, struct um_op *op, int32_t status)
{
    struct um_proto_peer *own = um_proto_peer_of(op->peer);
    if (own->sending == op && status <= 0)
        own->sending = NULL;
    um_op_answered(ep, op, status);
}

static void base_answered(struct um_ep *ep, struct um_op *op, int32_t status)
{
    const bool is_whole = um_list_is_empty(&op->job.link);
    atomic_answered(ep, op, status == UM_STATUS_DONE && !is_whole ? -EPROTO : status); /* not all of it is out */
}

/* What is fetched comes in records. */
static void fetch_answered(struct um_ep *ep, struct um_op *op, int32_t status)
{
    atomic_answered(ep, op, status == UM_STATUS_DONE ? -EPROTO : status);
}

static const struct um_op_class base_op = {.answered = base_answered}, fetch_op = {.answered = fetch_answered};

static int atomic_by_owner(struct um_ep *ep, const struct um_atomic *a)
{
    struct um_lane *lane;
    if (um_proto_peer_of(a->peer)->sending)
        return -EAGAIN;
    int ret = um_peer_lane(a->peer, &lane);
    if (ret)
        return ret;
    bool fetch = a->kind != UM_ATOMIC_BASE;
    struct um_op *op = um_op_alloc(a->peer, fetch ? &fetch_op : &base_op, a->context,
                                   a->flags | UM_OP_ATOMIC | (fetch ? UM_OP_READ : UM_OP_WRITE));
    if (!op)
        return -ENOMEM;
    op->len = a->count * um_atomic_size(a->type);
    if (fetch)
        ret = um_buffers_set(&op->buffers, a->result, a->result_count);
    if (ret == 0)
        ret = um_op_take_token(op);
    if (ret == 0)
        ret = atomic_record(ep, a, op);
    if (ret) {
        um_op_free(op);
        return um_peer_claim_failed(a->peer, ret);
    }
    a->peer->out->sent++;
    ep->stats.eager++;
    a->peer->out->bytes_sent += a->count * um_atomic_size(a->type);
    um_op_set_unfinished(op);
    um_op_await_answer(op);
    return 0;
}

int um_atomic(struct um_ep *ep, const struct um_atomic *a)
{
    if (um_core_ep_is_due(ep))
        um_core_ep_look(ep);
    if (__builtin_expect(a->peer->lost, 0))
        return -EPIPE;
    if (__builtin_expect(um_proto_ep_of(ep)->late.peer != NULL, 0) && is_late(ep, a)) {
        atomic_complete(ep, a, -EKEYREJECTED);
        return 0;
    }
    struct um_window *w = um_window_find(a->peer, a->key);
    if (__builtin_expect(
            w && w->level >= UM_LEVEL_MAPPED &&
                (w->locks || is_lockless(w->region.base + (a->addr - w->region.origin), um_atomic_size(a->type))),
            1))
        return atomic_by_window(ep, a, w);
    int ret = um_window_await(w);
    return ret ? ret : atomic_by_owner(ep, a);
}

int um_atomic_result_arrived(struct um_ep *ep, struct um_peer *peer, const struct um_record *rec)
{
    const struct um_result_wire *head = rec->head;
    struct um_op *op = um_peer_op(peer, head->token);
    (void)ep;
    if (!op && peer->lost)
        return 0; /* the operation ended with its peer; what else that one committed is still taken */
    if (!op || op->class != &fetch_op || !um_list_is_empty(&op->job.link) || head->offset != op->moved)
        return -EPROTO;
    if (rec->len == 0 || rec->len > op->len - op->moved || (!rec->body && rec->len > UM_RESULT_INLINE))
        return -EPROTO;
    um_iov_scatter(&op->buffers.cursor, rec->body ? rec->body : head->body, rec->len);
    op->moved += rec->len;
    if (op->moved == op->len)
        um_op_complete(op, 0);
    return 0;
}
