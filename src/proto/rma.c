/*
 * RMA. The initiator executes an operation wherever it reaches the region (a window at level mapped or copy): the
 * operation is done at return, or when its transfer has ended, and the target's process takes no part. Otherwise the
 * target's progress executes it (level remote):
 *
 *   initiator                                     target
 *   loads, stores, or a transfer (rma_copy.c)     -
 *   NOTIFY {data, len}               ──────→      completion (only a write with data)
 *
 *   WRITE {key, addr, token} + body  ──────→      check key, bounds, access → copy        answer DONE or the error
 *   WRITE_RTS {pieces}               ──────→      check → transfer, or answer PUSH         answer DONE
 *   READ {key, addr, total, token}   ──────→      check → RETURN parts through the target's own lane, or an offer
 *                                                 (rma_offer.c)
 *
 * At level remote the region is looked up again before every step: a registration that was closed is not used. An error
 * while parts are under way follows them: the remaining PUSH parts are taken and dropped, and the answer follows the
 * last one; after the RETURN parts comes one without a body, whose len is the errno.
 * Order: operations to one peer take effect in the order of their calls: an operation through a window waits (-EAGAIN)
 * while the peer has not answered the operations that it executes. This file is the initiator's side, rma_owner.c the
 * target's. Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include "core/window.h"

#include <errno.h>
#include <string.h>

/* ---- by a window ---- */

/* What copying by system calls costs beyond loads and stores: ns for each call, of which a write takes two; and bytes
 * that take 1 ns. */
enum { COPY_CALL_NS = 512, COPY_BYTES_A_NS = 16 };

/* Copies 8 aligned bytes in one access, because peers may poll them. */
static inline __attribute__((always_inline)) void mapped_copy(unsigned char *to, const unsigned char *from, size_t len)
{
    if (len == 8 && !(((uintptr_t)to | (uintptr_t)from) & 7))
        um_store_relaxed_u64((uint64_t *)(void *)to, um_load_relaxed_u64((const uint64_t *)(const void *)from));
    else
        um_bytes_copy(to, from, len);
}

/* Copies between buffers and mapped memory; the flags say in which direction. */
static inline __attribute__((always_inline)) void
mapped_move(struct um_core_ep *ep, uint32_t flags, const struct iovec *iov, size_t count, unsigned char *there)
{
    if (flags & UM_OP_READ)
        um_core_ep_settle(ep);
    else
        ep->stored = true;
    um_fence_acquire(); /* sync: rma-order (partner rma-order): earlier loads of the peer's memory stay before */
    for (size_t i = 0; i < count; i++) {
        unsigned char *here = iov[i].iov_base;
        size_t len = iov[i].iov_len;
        if (flags & UM_OP_READ)
            mapped_copy(here, there, len);
        else
            mapped_copy(there, here, len);
        there += len;
    }
    um_fence_release(); /* sync: rma-order (partner rma-order): later stores of the caller stay behind */
    ep->stats.mapped++;
}

static inline unsigned count_shift(uint32_t flags)
{
    return flags & UM_OP_READ ? UM_COUNT_READ_SHIFT : UM_COUNT_WRITE_SHIFT;
}

static inline uint32_t access_wanted(uint32_t flags)
{
    return flags & UM_OP_READ ? UM_ACCESS_REMOTE_READ : UM_ACCESS_REMOTE_WRITE;
}

/* Executes the operation by loads and stores. False: the memory is gone or does not permit the access, the region has
 * changed, or there are more bytes than a fault guard covers. */
static inline __attribute__((always_inline)) bool window_access(struct um_core_ep *ep, struct um_window *w,
                                                                uint64_t offset, uint32_t flags,
                                                                const struct iovec *iov, size_t count)
{
    /* in locals: for the compiler, a store through the window may change the window */
    unsigned char *const there = w->base + offset;
    struct um_fault_guard *const guard = w->guard;
    if (guard) {
        size_t len = count == 1 ? iov->iov_len : um_iov_length(iov, count);
        if (len > UM_FAULT_GUARD_MOST)
            return false;
        um_fault_guard_begin(guard, there, len);
        mapped_move(ep, flags, iov, count, there);
        return !um_fault_guard_end(guard);
    }
    mapped_move(ep, flags, iov, count, there);
    return um_core_window_was_current(w);
}

/* Copies more bytes than a fault guard covers, in pieces, which count as one access. False: the memory is gone or does
 * not permit the access. */
static bool own_access_large(struct um_core_ep *ep, const struct um_proto_rma *rma, struct um_window *w,
                             uint64_t offset)
{
    const struct iovec *iov = rma->iov;
    const uint64_t mapped = ep->stats.mapped + 1;
    bool there = true;
    for (size_t i = 0; i < rma->count; i++) {
        for (size_t done = 0, n; there && done < iov[i].iov_len; done += n) {
            n = iov[i].iov_len - done < UM_FAULT_GUARD_MOST ? iov[i].iov_len - done : UM_FAULT_GUARD_MOST;
            const struct iovec part = {.iov_base = (char *)iov[i].iov_base + done, .iov_len = n};
            um_fault_guard_begin(w->guard, w->base + offset, n);
            mapped_move(ep, rma->flags, &part, 1, w->base + offset);
            there = !um_fault_guard_end(w->guard);
            offset += n;
        }
    }
    ep->stats.mapped = mapped;
    return there;
}

/* Moves the bytes of an operation through its window. 0; -EPERM: this level cannot be had; -EINPROGRESS: the operation
 * will complete; -EAGAIN, -ENOMEM: try again; another error: the operation ends with it. */
static int window_move(struct um_core_ep *ep, const struct um_proto_rma *rma, struct um_window *w, uint64_t offset,
                       size_t len)
{
    const unsigned shift = count_shift(rma->flags);
    if (__builtin_expect(w->level >= UM_LEVEL_MAPPED, 1)) {
        if (__builtin_expect(window_access(ep, w, offset, rma->flags, rma->iov, rma->count), 1) ||
            (w->level == UM_LEVEL_OWN && len > UM_FAULT_GUARD_MOST && own_access_large(ep, rma, w, offset))) {
            um_core_window_count(w, shift);
            return 0;
        }
        if (w->level != UM_LEVEL_OWN && !um_core_window_is_gone(w)) {
            w = um_core_window_renewed(rma->peer, w);
            if (w)
                um_core_window_count(w, shift);
            return w ? 0 : -EAGAIN; /* the registration has ended: the next look-up finds that, or a new one */
        }
        /* A system call comes next: it fails cleanly where memory is missing. A new window might fault again and
         * again. */
    }
    int ret = um_proto_rma_copy(ep, rma, w, offset, len);
    if (ret == 0) {
        if (w->use)
            w->machine->window_use(w,
                                   (rma->flags & UM_OP_READ ? COPY_CALL_NS : 2 * COPY_CALL_NS) + len / COPY_BYTES_A_NS);
        ep->stats.copied++;
        um_core_window_count(w, shift);
    }
    return ret == -EPERM && w->level == UM_LEVEL_OWN ? -EFAULT : ret; /* own memory: there is no other way */
}

/* Completes an accepted operation with this error. */
static void rma_fail(struct um_core_ep *ep, const struct um_proto_rma *rma, size_t len, int error)
{
    const struct um_core_completion c = {.context = rma->context, .flags = rma->flags, .error = error, .len = len};
    ep->reported = true;
    ep->config.complete(ep->config.arg, &c);
}

static int rma_executed(struct um_core_ep *ep, struct um_core_peer *peer, size_t len)
{
    peer->out->sent++;
    peer->out->bytes_sent += len;
    ep->reported = true;
    return UM_EXECUTED;
}

/*
 * Executes a write with data. Its NOTIFY record is claimed before the bytes move, and aborted if they do not move in
 * this call. w is NULL for a write of no bytes. UM_EXECUTED; 0: the operation completes when the record is consumed;
 * else as window_move().
 */
static int window_notify(struct um_core_ep *ep, const struct um_proto_rma *rma, struct um_window *w, uint64_t offset,
                         size_t len)
{
    struct um_lane *lane;
    struct um_slot slot;
    struct um_core_op *op = NULL;
    int ret = um_core_peer_lane(rma->peer, &lane);
    if (ret)
        return ret;
    if (rma->flags & UM_OP_DELIVERY && !(op = um_core_op_alloc(rma->peer, NULL, rma->context, rma->flags)))
        return -ENOMEM;
    ret = lane->machine->claim(lane, 0, &slot);
    if (ret) {
        if (op)
            um_core_op_free(op);
        return um_core_peer_claim_failed(rma->peer, ret);
    }
    ret = w ? window_move(ep, rma, w, offset, len) : 0;
    if (ret) {
        lane->machine->abort(lane, &slot);
        if (op)
            um_core_op_free(op);
        return ret;
    }
    *(struct um_proto_notify_wire *)slot.header = (struct um_proto_notify_wire){.data = rma->data, .len = len};
    lane->machine->commit(lane, &slot, UM_WIRE_NOTIFY, (uint8_t)(UM_WIRE_DATA | (op ? UM_FLAG_ACK : 0)), 0);
    if (!op)
        return UM_EXECUTED;
    op->len = len;
    um_core_op_await_ack(op);
    return 0;
}

/* Executes the operation here. -EPERM: that is not possible, and nothing happened. */
static int rma_by_window(struct um_core_ep *ep, const struct um_proto_rma *rma, struct um_window *w)
{
    const size_t len = um_iov_length(rma->iov, rma->count);
    const bool tells = rma->flags & UM_OP_DATA && !(rma->flags & UM_OP_READ);
    uint64_t offset;
    if (__builtin_expect(rma->peer->unfinished != 0, 0))
        return -EAGAIN;
    int ret = um_core_window_check(w, rma->addr, len, access_wanted(rma->flags), &offset);
    if (ret == 0 && __builtin_expect(tells, 0)) {
        ret = window_notify(ep, rma, w, offset, len);
        if (ret == -EPIPE || ret == -ECONNREFUSED || ret == -EHOSTUNREACH)
            return ret;
    } else if (ret == 0) {
        ret = window_move(ep, rma, w, offset, len);
        ret = ret == 0 ? UM_EXECUTED : ret;
    }
    if (ret == UM_EXECUTED)
        return rma_executed(ep, rma->peer, len);
    if (ret == -EPERM) {
        um_core_window_set_level(w, UM_LEVEL_REMOTE);
        return ret;
    }
    if (ret == -EAGAIN || ret == -ENOMEM)
        return ret;
    rma->peer->out->sent++;
    rma->peer->out->bytes_sent += len;
    if (ret == -ESRCH)
        um_core_peer_lose(rma->peer, ECONNRESET);
    if (ret && ret != -EINPROGRESS)
        rma_fail(ep, rma, len, ret == -ESRCH ? ECONNRESET : -ret);
    return 0;
}

/* ---- by the target ---- */

/* Sends a write whose body travels in the record. */
static int write_eager(struct um_core_ep *ep, const struct um_proto_rma *rma, struct um_core_op *op)
{
    struct um_slot slot;
    uint32_t body_len = op->len > UM_WRITE_INLINE ? (uint32_t)op->len : 0;
    int ret = op->peer->lane->machine->claim(op->peer->lane, body_len, &slot);
    if (ret)
        return ret;
    struct um_proto_write_wire *header = slot.header;
    header->key = rma->key;
    header->addr = rma->addr;
    header->data = rma->data;
    header->token = op->token;
    struct um_iov_cursor cursor = um_iov_begin(rma->iov, rma->count);
    um_proto_slot_gather(&slot, &cursor, body_len ? slot.body : header->body, op->len);
    op->peer->lane->machine->commit(op->peer->lane, &slot, UM_WIRE_WRITE, um_proto_wire_flags(rma->flags),
                                    (uint32_t)op->len);
    ep->stats.eager++;
    return 0;
}

/* Sends the record that announces the body (write) or asks for it (read). */
static int rma_announce(struct um_core_ep *ep, const struct um_proto_rma *rma, struct um_core_op *op)
{
    struct um_slot slot;
    int ret = um_proto_rndv_keep(op, rma->iov, rma->count, op->len);
    uint32_t count = rma->flags & UM_OP_READ ? 0 : op->buffers.count;
    if (ret == 0)
        ret = op->peer->lane->machine->claim(op->peer->lane, count > 1 ? count * (uint32_t)sizeof(struct um_piece) : 0,
                                             &slot);
    if (ret)
        return ret;
    struct um_proto_rma_wire *header = slot.header;
    *header = (struct um_proto_rma_wire){.key = rma->key,
                                         .addr = rma->addr,
                                         .data = rma->data,
                                         .total = op->len,
                                         .token = op->token,
                                         .count = (uint16_t)count};
    um_proto_describe(op->buffers.iov, count, &header->piece, slot.body);
    if ((count == 1 && um_proto_shows(op->peer->lane) && um_proto_rndv_show(op, &header->piece)) ||
        (count == 0 && um_proto_rma_may_take(op)))
        header->reach = UM_REACH_SHOWN;
    uint8_t op_code = rma->flags & UM_OP_READ ? UM_WIRE_READ : UM_WIRE_WRITE_RTS;
    op->peer->lane->machine->commit(op->peer->lane, &slot, op_code, um_proto_wire_flags(rma->flags), 0);
    ep->stats.rendezvous++;
    return 0;
}

static const struct um_core_op_class write_op = {.answered = um_proto_op_answered};

static int rma_by_target(struct um_core_ep *ep, const struct um_proto_rma *rma)
{
    struct um_lane *lane;
    int ret = um_core_peer_lane(rma->peer, &lane);
    if (ret)
        return ret;
    const uint64_t len = um_iov_length(rma->iov, rma->count);
    const bool is_read = rma->flags & UM_OP_READ;
    const bool eager =
        !is_read &&
        (len <= UM_WRITE_INLINE || (len <= lane->body_max && len <= lane->machine->lane_body_max(lane, (uint32_t)len)));
    const struct um_core_op_class *class = is_read ? &um_proto_read_op : eager ? &write_op : &um_proto_rndv_body;
    struct um_core_op *op = um_core_op_alloc(rma->peer, class, rma->context, rma->flags);
    if (!op)
        return -ENOMEM;
    op->len = len;
    op->offer = UM_OFFER_NONE;
    ret = um_core_op_take_token(op);
    if (ret == 0)
        ret = eager ? write_eager(ep, rma, op) : rma_announce(ep, rma, op);
    if (ret) {
        um_core_op_free(op);
        return um_core_peer_claim_failed(rma->peer, ret);
    }
    rma->peer->out->sent++;
    rma->peer->out->bytes_sent += len;
    um_core_op_set_unfinished(op);
    um_core_op_await_answer(op);
    return 0;
}

/* ---- the calls ---- */

/* Handles what was not executed at once. direction: UM_OP_READ or UM_OP_WRITE. */
static __attribute__((noinline)) int rma_slow(struct um_core_ep *ep, const struct um_proto_rma *what,
                                              uint32_t direction)
{
    struct um_proto_rma rma = *what;
    rma.flags |= direction;
    rma.data = rma.flags & UM_OP_DATA ? rma.data : 0;
    if (__builtin_expect(rma.peer->lost, 0))
        return -EPIPE;
    struct um_window *w = um_core_window_find(rma.peer, rma.key);
    if (__builtin_expect(w && w->level != UM_LEVEL_REMOTE, 1)) {
        int ret = rma_by_window(ep, &rma, w);
        if (__builtin_expect(ret != -EPERM, 1))
            return ret;
    }
    int ret = um_core_window_await(w);
    return ret ? ret : rma_by_target(ep, &rma);
}

/*
 * The fast path: one buffer, by loads and stores, executed at once. What does not qualify goes to rma_slow(). So does
 * an operation whose registration ended during the copy: the slow path copies the bytes again, or reports the error.
 * direction: a constant, so that the compiler leaves out the code for the other direction.
 */
static inline __attribute__((always_inline)) int rma_start(struct um_core_ep *ep, const struct um_proto_rma *rma,
                                                           const uint32_t direction)
{
    if (um_core_ep_is_due(ep))
        um_core_ep_look(ep); /* may end the peer, and its windows */
    if (__builtin_expect(rma->count != 1 || (direction == UM_OP_WRITE && rma->flags & UM_OP_DATA), 0))
        return rma_slow(ep, rma, direction);
    /* rma->peer: read again after the access, which leaves a register free for what the access needs */
    struct um_window *w = um_core_window_find(rma->peer, rma->key);
    const struct iovec iov = *rma->iov;
    uint64_t offset;
    if (__builtin_expect(
            !um_core_window_check_at_once(rma->peer, w, rma->addr, iov.iov_len, access_wanted(direction), &offset), 0))
        return rma_slow(ep, rma, direction);
    if (__builtin_expect(!window_access(ep, w, offset, direction, &iov, 1), 0) &&
        !(w = um_core_window_renewed(rma->peer, w)))
        return rma_slow(ep, rma, direction);
    um_core_window_count(w, count_shift(direction));
    return rma_executed(ep, rma->peer, iov.iov_len);
}

int um_proto_rma_read(struct um_core_ep *ep, const struct um_proto_rma *rma)
{
    return rma_start(ep, rma, UM_OP_READ);
}

int um_proto_rma_write(struct um_core_ep *ep, const struct um_proto_rma *rma)
{
    return rma_start(ep, rma, UM_OP_WRITE);
}

int um_proto_rma_empty(struct um_core_ep *ep, const struct um_proto_rma *rma)
{
    int ret = UM_EXECUTED;
    if (um_core_ep_is_due(ep))
        um_core_ep_look(ep);
    if (rma->peer->lost)
        return -EPIPE;
    if (rma->peer->unfinished)
        return -EAGAIN;
    if (rma->flags & UM_OP_DATA && !(rma->flags & UM_OP_READ))
        ret = window_notify(ep, rma, NULL, 0, 0);
    if (ret == UM_EXECUTED)
        return rma_executed(ep, rma->peer, 0);
    if (ret == 0)
        rma->peer->out->sent++;
    return ret;
}

/* ---- the initiator's side of a returned read ---- */

int um_proto_rma_return_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_part_wire *header = rec->header;
    struct um_core_op *op;
    int ret = um_proto_op_of_part(peer, &um_proto_read_op, header->token, header->offset, &op);
    (void)ep;
    if (ret || !op)
        return ret;
    if (rec->body && (op->offer == UM_OFFER_COMING || op->offer == UM_OFFER_TAKEN))
        return -EPROTO;
    if (!rec->body && rec->len > 0 && rec->len <= UM_ERRNO_MAX) {
        um_core_op_complete(op, (int)rec->len);
        return 0;
    }
    return rec->body ? um_proto_op_part_arrived(op, rec->body, rec->len) : -EPROTO;
}
