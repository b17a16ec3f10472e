/*
 * Posting an atomic operation: what the calls of atomic.c share. With one buffer of each kind it is inline, with many
 * elements or pieces in atomic_post.c.
 *
 * Owns nothing. Threading: see post.h.
 */
#ifndef UM_PROV_ATOMIC_POST_H
#define UM_PROV_ATOMIC_POST_H

#include "prov/post.h"

#include <rdma/fi_atomic.h>

/* The lists that the application passed. */
struct um_prov_atomic_lists {
    const struct fi_ioc *operand, *compare, *result;
    size_t operand_count, compare_count, result_count;
};

/* The arguments of a call besides its buffers. */
struct um_prov_atomic_call {
    enum um_proto_atomic_kind kind;
    enum fi_datatype type;
    enum fi_op op;
    fi_addr_t dest;
    uint64_t fi_flags;
};

/* 0; -FI_EINVAL: no elements, too many of them, or too many to inject. */
int um_prov_atomic_check_count(const struct um_prov_ep *ep, const struct um_proto_atomic *a, uint64_t fi_flags);
/* Checks the lists, and posts the operation with them. */
ssize_t um_prov_atomic_post_pieces(struct um_prov_ep *ep, struct um_proto_atomic *a,
                                   const struct um_prov_atomic_lists *l, const struct um_prov_atomic_call *call);

/* Posts an operation whose buffers have been checked. kind is a->kind, as a constant. */
static inline __attribute__((always_inline)) ssize_t um_prov_atomic_post(struct um_prov_ep *ep,
                                                                         struct um_proto_atomic *a,
                                                                         const enum um_proto_atomic_kind kind,
                                                                         fi_addr_t dest, uint64_t fi_flags)
{
    int ret = um_prov_post_check_flags(fi_flags, UM_RMA_FLAGS);
    if (__builtin_expect(ret != 0, 0))
        return ret;
    um_prov_domain_lock(&ep->domain->lock);
    ret = um_prov_ep_peer(ep, dest, &a->peer);
    if (__builtin_expect(ret == 0, 1)) {
        ret = um_prov_post_is_fenced_off(ep, fi_flags) ? -EAGAIN : um_proto_atomic_start(ep->core, a);
        if (__builtin_expect(ret == UM_EXECUTED, 1)) {
            const uint32_t what = UM_OP_ATOMIC | (kind == UM_ATOMIC_BASE ? UM_OP_WRITE : UM_OP_READ);
            const size_t len = a->count << um_proto_atomic_shift[a->type];
            um_prov_post_executed_locked(ep, what, len);
            if (!(a->flags & UM_OP_NO_EVENT))
                um_prov_ep_executed_locked(ep, what, len, a->context);
            ret = 0;
        } else {
            ret = um_prov_post_started_locked(ep, ret);
        }
    }
    um_prov_domain_unlock(&ep->domain->lock);
    return ret;
}

/* Posts an operation with one buffer of each kind. `a` has all that `call` does not say. */
static inline __attribute__((always_inline)) ssize_t
um_prov_atomic_post_buffers(struct um_prov_ep *ep, struct um_proto_atomic *a, const struct um_prov_atomic_call call)
{
    int ret;
    if (__builtin_expect(!um_proto_atomic_is_valid(call.kind, call.type, call.op), 0))
        return -FI_EOPNOTSUPP;
    a->kind = (uint8_t)call.kind;
    a->type = (uint8_t)call.type;
    a->op = (uint8_t)call.op;
    if (__builtin_expect(a->count != 1, 0) && (ret = um_prov_atomic_check_count(ep, a, call.fi_flags)) != 0)
        return ret;
    return um_prov_atomic_post(ep, a, call.kind, call.dest, call.fi_flags);
}

static inline bool um_prov_ioc_is_one(const struct fi_ioc *ioc, size_t pieces, size_t count)
{
    return pieces == 1 && ioc->count == count;
}

/* Posts an operation with lists, which often have one piece each. */
static inline __attribute__((always_inline)) ssize_t um_prov_atomic_post_lists(struct um_prov_ep *ep,
                                                                               struct um_proto_atomic *a,
                                                                               const struct um_prov_atomic_lists *l,
                                                                               const struct um_prov_atomic_call call)
{
    if (__builtin_expect(
            (call.op != FI_ATOMIC_READ && !um_prov_ioc_is_one(l->operand, l->operand_count, a->count)) ||
                (call.kind == UM_ATOMIC_COMPARE && !um_prov_ioc_is_one(l->compare, l->compare_count, a->count)) ||
                (call.kind != UM_ATOMIC_BASE && !um_prov_ioc_is_one(l->result, l->result_count, a->count)),
            0))
        return um_prov_atomic_post_pieces(ep, a, l, &call);
    a->operand = call.op == FI_ATOMIC_READ ? NULL : l->operand->addr;
    a->compare = call.kind == UM_ATOMIC_COMPARE ? l->compare->addr : NULL;
    a->result = call.kind == UM_ATOMIC_BASE ? NULL : l->result->addr;
    return um_prov_atomic_post_buffers(ep, a, call);
}

static inline __attribute__((always_inline)) ssize_t
um_prov_atomic_post_msg(struct um_prov_ep *ep, const struct fi_msg_atomic *m, const enum um_proto_atomic_kind kind,
                        const struct um_prov_atomic_lists *l, uint64_t flags)
{
    if (__builtin_expect(m->rma_iov_count != 1, 0)) /* rma_iov_limit is 1; the operation gives the length */
        return -FI_EINVAL;
    struct um_proto_atomic a; /* the rest is set with the lists */
    a.lists = NULL;
    a.addr = m->rma_iov->addr;
    a.key = m->rma_iov->key;
    a.count = m->rma_iov->count;
    a.context = m->context;
    a.flags = um_prov_ep_tx_flags(ep, flags & ~FI_REMOTE_CQ_DATA);
    return um_prov_atomic_post_lists(ep, &a, l, (struct um_prov_atomic_call){kind, m->datatype, m->op, m->addr, flags});
}

#endif
