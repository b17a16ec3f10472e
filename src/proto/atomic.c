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
 * At level copy the owner executes, too. Order: operations to one peer take effect in the order of their calls: an
 * operation through a window waits (-EAGAIN) while the peer has not answered the operations that it executes, and so
 * does an operation behind one of several records while those are going out. This file is what the initiator does
 * itself, atomic_remote.c its side of the rest, atomic_owner.c the owner's. Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include "core/window.h"

#include <errno.h>

/* ---- by a window ---- */

/* The number of bytes, at most max, that are contiguous in all lists at their cursors. */
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

/* call says where; the lists, what. */
static void apply_lists(const struct um_proto_atomic *a, struct um_proto_atomic_call *call)
{
    struct um_iov_cursor operand = um_iov_begin(a->operand, a->operand_count);
    struct um_iov_cursor compare = um_iov_begin(a->compare, a->compare_count);
    struct um_iov_cursor result = um_iov_begin(a->result, a->result_count);
    struct um_iov_cursor *const lists[3] = {&operand, &compare, &result};
    const bool used[3] = {a->op != UM_ATOMIC_READ, a->kind == UM_ATOMIC_COMPARE, a->kind != UM_ATOMIC_BASE};
    size_t size = um_proto_atomic_size(a->type);
    for (size_t left = a->count * size; left > 0;) {
        void *at[3];
        size_t len = common_piece(lists, used, left, at);
        call->operand = at[0];
        call->compare = at[1];
        call->result = at[2];
        call->count = len / size;
        um_proto_atomic_execute(call);
        call->target = (unsigned char *)call->target + len;
        call->lock_key += len;
        left -= len;
    }
}

/* One piece in each list, or none: the usual case. */
static void apply_pieces(const struct um_proto_atomic *a, struct um_proto_atomic_call *call)
{
    call->operand = a->operand_count ? a->operand->iov_base : NULL;
    call->compare = a->compare_count ? a->compare->iov_base : NULL;
    call->result = a->result_count ? a->result->iov_base : NULL;
    call->count = a->count;
    um_proto_atomic_execute(call);
}

/* Does the processor update such an element itself? docs/protocol.md section 6.8. */
static bool is_lockless(uint64_t owners_addr, size_t size)
{
    return size <= 8 && (owners_addr & (size - 1)) == 0;
}

static inline void executed(struct um_core_ep *ep, struct um_window *w, uint8_t kind, uint32_t op)
{
    ep->stats.mapped++;
#if !defined(__x86_64__)
    ep->stored = true; /* on other processors an update may be delayed behind later loads */
#endif
    if (__builtin_expect(!um_core_window_has_counters(w), 1))
        return;
    if (kind != UM_ATOMIC_BASE)
        um_core_window_count(w, UM_COUNT_READ_SHIFT);
    if (op != UM_ATOMIC_READ)
        um_core_window_count(w, UM_COUNT_WRITE_SHIFT);
}

static void atomic_complete(struct um_core_ep *ep, const struct um_proto_atomic *a, int ret)
{
    const size_t len = a->count * um_proto_atomic_size(a->type);
    a->peer->out->sent++;
    a->peer->out->bytes_sent += len;
    ep->reported = true;
    const struct um_core_completion c = {
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
static int atomic_by_window(struct um_core_ep *ep, const struct um_proto_atomic *a, struct um_window *w)
{
    size_t len = a->count * um_proto_atomic_size(a->type);
    bool fetch = a->kind != UM_ATOMIC_BASE;
    uint64_t offset;
    if (__builtin_expect(a->peer->unfinished != 0, 0))
        return -EAGAIN;
    int ret = um_core_window_check(w, a->addr, len, um_proto_atomic_access(a->op, fetch), &offset);
    if (ret == 0) {
        struct um_proto_atomic_call call = {.type = (uint8_t)a->type,
                                            .op = (uint8_t)a->op,
                                            .target = w->base + offset,
                                            .lock_key = w->region.base + offset,
                                            .locks = w->locks};
        bool own = w->level == UM_LEVEL_OWN;
        um_core_ep_settle(ep); /* one that only reads, or whose comparison fails, is no barrier */
        if (own)
            um_fault_guard_begin(w->guard, call.target, len);
        if (__builtin_expect(a->operand_count <= 1 && a->compare_count <= 1 && a->result_count <= 1, 1))
            apply_pieces(a, &call);
        else
            apply_lists(a, &call);
        if (__builtin_expect(own ? um_fault_guard_end(w->guard) : !um_core_window_is_held(w), 0)) {
            bool gone = own || um_core_window_is_gone(w);
            w = um_core_window_renewed(a->peer, w);
            ret = w      ? 0
                  : gone ? -EFAULT
                         : -EKEYREJECTED; /* some elements may have been updated and must not be updated twice */
        }
        if (ret == 0)
            executed(ep, w, a->kind, a->op);
    }
    atomic_complete(ep, a, ret);
    return 0;
}

/* False: the memory is gone, or does not permit the access. */
static inline __attribute__((always_inline)) bool apply_once(struct um_window *w,
                                                             const struct um_proto_atomic_call *call, size_t len)
{
    struct um_fault_guard *const guard = w->guard;
    if (guard) {
        um_fault_guard_begin(guard, call->target, len);
        um_proto_atomic_apply_lockless(call);
        return !um_fault_guard_end(guard);
    }
    um_proto_atomic_apply_lockless(call);
    return um_core_window_is_held(w);
}

/*
 * As um_core_window_renewed(). The registration ended, and it is unknown whether the update was in time. It must not be
 * made twice: um_proto_atomic_start(), which is called next, ends the operation.
 */
static __attribute__((noinline)) struct um_window *late_renewed(struct um_core_peer *peer, const struct um_window *w,
                                                                const struct um_proto_atomic_one *a)
{
    const bool late = w->level != UM_LEVEL_OWN && !um_core_window_is_gone(w);
    struct um_window *now = um_core_window_renewed(peer, w);
    if (late && !now)
        um_proto_ep_of(peer->ep)->late = (struct um_proto_late){.peer = peer, .key = a->key, .addr = a->addr};
    return now;
}

static bool is_late(struct um_core_ep *ep, const struct um_proto_atomic *a)
{
    const struct um_proto_late *late = &um_proto_ep_of(ep)->late;
    if (late->peer != a->peer || late->key != a->key || late->addr != a->addr)
        return false; /* it belongs to another thread, which will come for it */
    um_proto_ep_of(ep)->late.peer = NULL;
    return true;
}

size_t um_proto_atomic_now(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_proto_atomic_one *a)
{
    if (um_core_ep_is_due(ep))
        um_core_ep_look(ep); /* may end the peer, and its windows */
    const size_t size = um_proto_atomic_size_of(a->type), len = size * a->count;
    const uint32_t access = um_proto_atomic_access(a->op, a->kind != UM_ATOMIC_BASE);
    struct um_window *w = um_core_window_find(peer, a->key);
    uint64_t offset;
    if (!um_core_window_check_at_once(peer, w, a->addr, len, access, &offset) ||
        !is_lockless(w->region.base + offset, size))
        return 0;
    struct um_proto_atomic_call call; /* the fields for locks stay unset */
    call.type = (uint8_t)a->type;
    call.op = (uint8_t)a->op;
    call.count = a->count;
    call.target = w->base + offset;
    call.operand = a->operand;
    call.compare = a->compare;
    call.result = a->result;
    um_core_ep_settle(ep);
    if (__builtin_expect(!apply_once(w, &call, len), 0) && !(w = late_renewed(peer, w, a)))
        return 0;
    executed(ep, w, a->kind, a->op);
    peer->out->sent++;
    peer->out->bytes_sent += len;
    ep->reported = true;
    return len;
}

int um_proto_atomic_start(struct um_core_ep *ep, const struct um_proto_atomic *a)
{
    if (um_core_ep_is_due(ep))
        um_core_ep_look(ep);
    if (__builtin_expect(a->peer->lost, 0))
        return -EPIPE;
    if (__builtin_expect(um_proto_ep_of(ep)->late.peer != NULL, 0) && is_late(ep, a)) {
        atomic_complete(ep, a, -EKEYREJECTED);
        return 0;
    }
    struct um_window *w = um_core_window_find(a->peer, a->key);
    if (__builtin_expect(
            w && w->level >= UM_LEVEL_MAPPED &&
                (w->locks || is_lockless(w->region.base + (a->addr - w->region.origin), um_proto_atomic_size(a->type))),
            1))
        return atomic_by_window(ep, a, w);
    int ret = um_core_window_await(w);
    return ret ? ret : um_proto_atomic_by_owner(ep, a);
}
