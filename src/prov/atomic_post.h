/*
 * Posting an atomic operation: what the calls of atomic.c share. The fast path of a few elements is inline; every other
 * operation takes the slow path (atomic_post.c).
 *
 * Owns nothing. Threading: see post.h.
 */
#ifndef UM_PROV_ATOMIC_POST_H
#define UM_PROV_ATOMIC_POST_H

#include "prov/post.h"

#include <rdma/fi_atomic.h>

/* What every variant of a call gives: the operation and its target. With lists, `one` has no buffers. */
struct um_prov_atomic_where {
    struct um_proto_atomic_one
        one; /* its count means nothing if there are too many; type and op as the caller gave them */
    fi_addr_t dest;
    void *context;
    uint32_t flags; /* um_core_op_flag */
    uint64_t fi_flags;
};

/* Lists as the application has them. */
struct um_prov_atomic_lists {
    const struct fi_ioc *operand, *compare, *result;
    size_t operand_count, compare_count, result_count;
};

/* The slow path: one buffer of each kind; lists; lists and a message. */
ssize_t um_prov_atomic_post_buffers(struct um_prov_ep *ep, const struct um_prov_atomic_where *to, size_t count);
ssize_t um_prov_atomic_post_lists(struct um_prov_ep *ep, const struct um_prov_atomic_lists *l,
                                  const struct um_prov_atomic_where *to, size_t count);
ssize_t um_prov_atomic_post_msg_lists(struct um_prov_ep *ep, const struct fi_msg_atomic *m,
                                      enum um_proto_atomic_kind kind, const struct um_prov_atomic_lists *l,
                                      uint64_t flags);

/*
 * The fast path for a few elements of a valid operation. True: done, with its completion. False: not done (they may
 * have been updated if its registration ended meanwhile); the slow path, to be called next, executes it or finds the
 * error. kind: that of `a`, a constant.
 */
static inline bool um_prov_atomic_post_one(struct um_prov_ep *ep, enum um_proto_atomic_kind kind,
                                           const struct um_proto_atomic_one *a, fi_addr_t dest, bool event,
                                           void *context)
{
    struct um_core_peer *peer;
    um_prov_domain_lock(&ep->domain->lock);
    const size_t len = um_prov_ep_peer(ep, dest, &peer) == 0 ? um_proto_atomic_now(ep->core, peer, a) : 0;
    if (__builtin_expect(len != 0, 1))
        um_prov_post_executed_locked(ep, UM_OP_ATOMIC | (kind == UM_ATOMIC_BASE ? UM_OP_WRITE : UM_OP_READ), len, event,
                                     context);
    um_prov_domain_unlock(&ep->domain->lock);
    return len != 0;
}

static inline ssize_t um_prov_atomic_post_flat(struct um_prov_ep *ep, enum um_proto_atomic_kind kind,
                                               const struct um_prov_atomic_where *to, size_t count)
{
    if (__builtin_expect(
            count - 1 < UM_ATOMIC_AT_ONCE && um_proto_atomic_is_valid(kind, to->one.type, to->one.op) &&
                um_prov_atomic_post_one(ep, kind, &to->one, to->dest, !(to->flags & UM_OP_NO_EVENT), to->context),
            1))
        return 0;
    return um_prov_atomic_post_buffers(ep, to, count);
}

static inline bool um_prov_ioc_is_one(const struct fi_ioc *ioc, size_t pieces, size_t count)
{
    return pieces == 1 && ioc->count == count;
}

/* Has the operation few elements, each list of them in one piece, and no flag that needs the slow path? */
static inline bool um_prov_atomic_msg_is_one(const struct fi_msg_atomic *m, enum um_proto_atomic_kind kind,
                                             const struct um_prov_atomic_lists *l, uint64_t flags)
{
    return !(flags & ~(UM_RMA_FLAGS & ~FI_FENCE)) &&
           um_proto_atomic_is_valid(kind, (uint32_t)m->datatype, (uint32_t)m->op) && m->rma_iov_count == 1 &&
           m->rma_iov[0].count - 1 < UM_ATOMIC_AT_ONCE &&
           (m->op == FI_ATOMIC_READ || um_prov_ioc_is_one(l->operand, l->operand_count, m->rma_iov[0].count)) &&
           (kind != UM_ATOMIC_COMPARE || um_prov_ioc_is_one(l->compare, l->compare_count, m->rma_iov[0].count)) &&
           (kind == UM_ATOMIC_BASE || um_prov_ioc_is_one(l->result, l->result_count, m->rma_iov[0].count));
}

static inline ssize_t um_prov_atomic_post_msg(struct um_prov_ep *ep, const struct fi_msg_atomic *m,
                                              enum um_proto_atomic_kind kind, const struct um_prov_atomic_lists *l,
                                              uint64_t flags)
{
    if (__builtin_expect(um_prov_atomic_msg_is_one(m, kind, l, flags), 1)) {
        const struct um_proto_atomic_one one = {.operand = m->op == FI_ATOMIC_READ ? NULL : l->operand->addr,
                                                .compare = kind == UM_ATOMIC_COMPARE ? l->compare->addr : NULL,
                                                .result = kind == UM_ATOMIC_BASE ? NULL : l->result->addr,
                                                .addr = m->rma_iov[0].addr,
                                                .key = m->rma_iov[0].key,
                                                .type = m->datatype,
                                                .op = m->op,
                                                .kind = (uint8_t)kind,
                                                .count = (uint8_t)m->rma_iov[0].count};
        if (__builtin_expect(um_prov_atomic_post_one(ep, kind, &one, m->addr,
                                                     !ep->tx_selective || flags & FI_COMPLETION, m->context),
                             1))
            return 0;
    }
    return um_prov_atomic_post_msg_lists(ep, m, kind, l, flags);
}

#endif
