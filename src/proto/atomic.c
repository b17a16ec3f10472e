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
 * operation through a window waits (-EAGAIN) while the peer has not answered the operations that it executes. An
 * operation that the owner executes waits while the records of an earlier one are still going out. This file is what
 * the initiator executes itself, atomic_remote.c the initiator's side of what the owner executes, atomic_owner.c the
 * owner's side. Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include "core/window.h"

#include <errno.h>

enum {
    UM_ATOMIC_AT_ONCE = 4, /* elements, at most, of an operation on the fast path */
    UM_PAGE_LEAST = 4096,  /* bytes of a page, at least */
};

/* ---- by a window ---- */

/* Returns how many bytes, at most max, are contiguous in all used lists at their cursors. Moves the cursors past them,
 * and sets at. */
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

/* Applies the operation to the target of the call, with the buffers of the lists, piece by piece. */
static void apply_lists(const struct um_proto_atomic *a, struct um_proto_atomic_call *call)
{
    struct um_iov_cursor operand = um_iov_begin(a->lists->operand, a->lists->operand_count);
    struct um_iov_cursor compare = um_iov_begin(a->lists->compare, a->lists->compare_count);
    struct um_iov_cursor result = um_iov_begin(a->lists->result, a->lists->result_count);
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

static void apply_buffers(const struct um_proto_atomic *a, struct um_proto_atomic_call *call)
{
    call->operand = a->operand;
    call->compare = a->compare;
    call->result = a->result;
    call->count = a->count;
    um_proto_atomic_execute(call);
}

/* Does the processor update such an element itself? docs/protocol.md section 6.8. */
static bool is_lockless(uint64_t owners_addr, size_t size)
{
    return size <= 8 && (owners_addr & (size - 1)) == 0;
}

/* Does the access lie in one page? If that is missing when the access begins, it is missing for all elements. */
static bool is_in_one_page(const void *target, size_t len)
{
    return ((uintptr_t)target & (UM_PAGE_LEAST - 1)) + len <= UM_PAGE_LEAST;
}

/* Counts an operation that was executed here, for both sides. */
static inline __attribute__((always_inline)) int atomic_executed(struct um_core_ep *ep, const struct um_proto_atomic *a,
                                                                 struct um_window *w, size_t len)
{
    ep->stats.mapped++;
#if !defined(__x86_64__)
    ep->stored = true;  /* on other processors an update may be delayed behind later loads */
    um_fence_release(); /* sync: none (a later store through a window is not visible before the update) */
#endif
    a->peer->out->sent++;
    a->peer->out->bytes_sent += len;
    ep->reported = true;
    if (__builtin_expect(!um_core_window_has_counters(w), 1))
        return UM_EXECUTED;
    if (a->kind != UM_ATOMIC_BASE)
        um_core_window_count(w, UM_COUNT_READ_SHIFT);
    if (a->op != UM_ATOMIC_READ)
        um_core_window_count(w, UM_COUNT_WRITE_SHIFT);
    return UM_EXECUTED;
}

/* Completes an accepted operation with this error. */
static int atomic_fail(struct um_core_ep *ep, const struct um_proto_atomic *a, int error)
{
    const size_t len = a->count * um_proto_atomic_size(a->type);
    const struct um_core_completion c = {
        .context = a->context,
        .flags = a->flags | UM_OP_ATOMIC | (a->kind != UM_ATOMIC_BASE ? UM_OP_READ : UM_OP_WRITE),
        .error = error,
        .len = len,
    };
    a->peer->out->sent++;
    a->peer->out->bytes_sent += len;
    ep->reported = true;
    ep->config.complete(ep->config.arg, &c);
    return 0;
}

/* Returns the call for that offset of the window, all of it but the buffers and the count. */
static struct um_proto_atomic_call window_call(const struct um_proto_atomic *a, const struct um_window *w,
                                               uint64_t offset)
{
    return (struct um_proto_atomic_call){.type = a->type,
                                         .op = a->op,
                                         .target = w->base + offset,
                                         .lock_key = w->region.base + offset,
                                         .locks = w->locks};
}

/* Executes the operation here. -EAGAIN: the peer still has operations to execute, which this one would overtake. */
static int atomic_by_window(struct um_core_ep *ep, const struct um_proto_atomic *a, struct um_window *w)
{
    const size_t len = a->count * um_proto_atomic_size(a->type);
    const bool own = w->level == UM_LEVEL_OWN;
    uint64_t offset;
    if (__builtin_expect(a->peer->unfinished != 0, 0))
        return -EAGAIN;
    int ret = um_core_window_check(w, a->addr, len, um_proto_atomic_access(a->op, a->kind != UM_ATOMIC_BASE), &offset);
    if (ret)
        return atomic_fail(ep, a, -ret);
    struct um_proto_atomic_call call = window_call(a, w, offset);
    um_core_ep_settle(ep); /* an atomic that only reads, or whose comparison fails, is no barrier */
    if (own)
        um_fault_guard_begin(w->guard, call.target, len);
    if (__builtin_expect(!a->lists, 1))
        apply_buffers(a, &call);
    else
        apply_lists(a, &call);
    if (__builtin_expect(own ? um_fault_guard_end(w->guard) : !um_core_window_was_current(w), 0)) {
        const bool gone = own || um_core_window_is_gone(w);
        w = um_core_window_renewed(a->peer, w);
        if (!w) /* some elements may have been updated and must not be updated twice */
            return atomic_fail(ep, a, gone ? EFAULT : EKEYREJECTED);
    }
    return atomic_executed(ep, a, w, len);
}

/* Executes the call once. False: the memory is gone, or does not permit the access, or the region has changed. */
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
    return um_core_window_was_current(w);
}

/* Leaves the operation to the owner: makes lists of operands and results, which um_proto_atomic_by_owner() takes. */
static int atomic_by_owner(struct um_core_ep *ep, const struct um_proto_atomic *a)
{
    if (a->lists)
        return um_proto_atomic_by_owner(ep, a);
    const size_t len = a->count * um_proto_atomic_size(a->type);
    const struct iovec operand = {.iov_base = (void *)(uintptr_t)a->operand, .iov_len = len};
    const struct iovec compare = {.iov_base = (void *)(uintptr_t)a->compare, .iov_len = len};
    const struct iovec result = {.iov_base = a->result, .iov_len = len};
    const struct um_proto_atomic_lists lists = {.operand = &operand,
                                                .operand_count = a->op != UM_ATOMIC_READ,
                                                .compare = &compare,
                                                .compare_count = a->kind == UM_ATOMIC_COMPARE,
                                                .result = &result,
                                                .result_count = a->kind != UM_ATOMIC_BASE};
    struct um_proto_atomic listed = *a;
    listed.lists = &lists;
    return um_proto_atomic_by_owner(ep, &listed);
}

/* Handles what was not executed at once. */
static __attribute__((noinline)) int atomic_slow(struct um_core_ep *ep, const struct um_proto_atomic *a)
{
    if (__builtin_expect(a->peer->lost, 0))
        return -EPIPE;
    struct um_window *w = um_core_window_find(a->peer, a->key);
    if (__builtin_expect(
            w && w->level >= UM_LEVEL_MAPPED &&
                (w->locks || is_lockless(w->region.base + (a->addr - w->region.origin), um_proto_atomic_size(a->type))),
            1))
        return atomic_by_window(ep, a, w);
    int ret = um_core_window_await(w);
    return ret ? ret : atomic_by_owner(ep, a);
}

/*
 * Called when the access found its memory missing, or the region has changed meanwhile. No element may be updated
 * twice. Elements whose memory was missing were not updated: the slow path tries again, or finds the error. But of
 * several elements in this process's own memory the first ones may have been updated before the page went: the
 * operation fails. If the registration still lives, the operation was in time. If it has ended, it is unknown whether
 * the update came before that: the operation fails.
 */
static __attribute__((noinline)) int atomic_late(struct um_core_ep *ep, const struct um_proto_atomic *a,
                                                 struct um_window *w)
{
    const bool again = w->level == UM_LEVEL_OWN || um_core_window_is_gone(w);
    if (w->level == UM_LEVEL_OWN && a->count > 1)
        return atomic_fail(ep, a, EFAULT);
    w = um_core_window_renewed(a->peer, w);
    if (!w)
        return again ? atomic_slow(ep, a) : atomic_fail(ep, a, EKEYREJECTED);
    return atomic_executed(ep, a, w, a->count * um_proto_atomic_size_of(a->type));
}

/* The fast path: a few elements that the processor updates itself, with nothing in their way, are executed at once. */
int um_proto_atomic_start(struct um_core_ep *ep, const struct um_proto_atomic *a)
{
    if (um_core_ep_is_due(ep))
        um_core_ep_look(ep); /* may end the peer, and its windows */
    if (__builtin_expect(a->count - 1 >= UM_ATOMIC_AT_ONCE || a->lists, 0))
        return atomic_slow(ep, a);
    struct um_core_peer *const peer = a->peer;
    const size_t size = um_proto_atomic_size_of(a->type), len = size * a->count;
    const uint32_t access = um_proto_atomic_access(a->op, a->kind != UM_ATOMIC_BASE);
    struct um_window *const w = um_core_window_find(peer, a->key);
    uint64_t offset;
    if (__builtin_expect(!um_core_window_check_at_once(peer, w, a->addr, len, access, &offset) ||
                             !is_lockless(w->region.base + offset, size) ||
                             (a->count > 1 && !is_in_one_page(w->base + offset, len)),
                         0))
        return atomic_slow(ep, a);
    struct um_proto_atomic_call call; /* the fields for locks stay unset */
    call.type = a->type;
    call.op = a->op;
    call.count = a->count;
    call.target = w->base + offset;
    call.operand = a->operand;
    call.compare = a->compare;
    call.result = a->result;
    um_core_ep_settle(ep);
    if (__builtin_expect(!apply_once(w, &call, len), 0))
        return atomic_late(ep, a, w);
    return atomic_executed(ep, a, w, len);
}
