/* The slow path of posting an atomic operation. See atomic_post.h. */
#include "prov/atomic_post.h"

static ssize_t um_prov_post_atomic(struct um_prov_ep *ep, struct um_proto_atomic *a, fi_addr_t dest, uint64_t fi_flags)
{
    int ret = um_prov_post_check(ep, a->operand, a->operand_count, fi_flags, UM_RMA_FLAGS);
    if (ret)
        return ret;
    if (a->count == 0 || a->count > um_proto_atomic_count_max(a->type))
        return -FI_EINVAL;
    um_prov_domain_lock(&ep->domain->lock);
    ret = um_prov_ep_peer(ep, dest, &a->peer);
    if (ret == 0) {
        ret = um_prov_post_begin_locked(ep, fi_flags);
        if (ret == 0)
            ret = um_prov_post_started_locked(ep, um_proto_atomic_start(ep->core, a));
    }
    um_prov_domain_unlock(&ep->domain->lock);
    return ret;
}

static struct um_proto_atomic um_prov_atomic_make(const struct um_prov_atomic_where *to, size_t count)
{
    return (struct um_proto_atomic){.kind = to->one.kind,
                                    .type = (uint8_t)to->one.type,
                                    .op = (uint8_t)to->one.op,
                                    .addr = to->one.addr,
                                    .key = to->one.key,
                                    .count = count,
                                    .context = to->context,
                                    .flags = to->flags};
}

ssize_t um_prov_atomic_post_buffers(struct um_prov_ep *ep, const struct um_prov_atomic_where *to, size_t count)
{
    const struct um_proto_atomic_one *b = &to->one;
    struct um_proto_atomic a = um_prov_atomic_make(to, count);
    if (!um_proto_atomic_is_valid((enum um_proto_atomic_kind)b->kind, b->type, b->op))
        return -FI_EOPNOTSUPP;
    size_t len = count <= um_proto_atomic_count_max(a.type) ? count * um_proto_atomic_size(a.type) : 0;
    const struct iovec operand = {.iov_base = (void *)b->operand, .iov_len = len};
    const struct iovec compare = {.iov_base = (void *)b->compare, .iov_len = len};
    const struct iovec result = {.iov_base = b->result, .iov_len = len};
    a.operand = &operand;
    a.operand_count = a.op != UM_ATOMIC_READ;
    a.compare = &compare;
    a.compare_count = a.kind == UM_ATOMIC_COMPARE;
    a.result = &result;
    a.result_count = a.kind != UM_ATOMIC_BASE;
    return um_prov_post_atomic(ep, &a, to->dest, to->fi_flags);
}

/* -FI_EINVAL: too many pieces, or not as many elements as the operation has. */
static int um_prov_atomic_list(const struct um_prov_ep *ep, const struct fi_ioc *ioc, size_t pieces,
                               const struct um_proto_atomic *a, struct iovec *iov)
{
    size_t size = um_proto_atomic_size(a->type), sum = 0;
    if (pieces > ep->domain->limits.iov_max || a->count > um_proto_atomic_count_max(a->type))
        return -FI_EINVAL;
    for (size_t i = 0; i < pieces; i++) {
        if (ioc[i].count > a->count - sum)
            return -FI_EINVAL;
        sum += ioc[i].count;
        iov[i] = (struct iovec){.iov_base = ioc[i].addr, .iov_len = ioc[i].count * size};
    }
    return sum == a->count ? 0 : -FI_EINVAL;
}

ssize_t um_prov_atomic_post_lists(struct um_prov_ep *ep, const struct um_prov_atomic_lists *l,
                                  const struct um_prov_atomic_where *to, size_t count)
{
    struct iovec operand[UM_IOV_LIMIT], compare[UM_IOV_LIMIT], result[UM_IOV_LIMIT];
    const enum um_proto_atomic_kind kind = (enum um_proto_atomic_kind)to->one.kind;
    struct um_proto_atomic a = um_prov_atomic_make(to, count);
    if (!um_proto_atomic_is_valid(kind, to->one.type, to->one.op))
        return -FI_EOPNOTSUPP;
    int ret = 0;
    if (a.op != UM_ATOMIC_READ) {
        ret = um_prov_atomic_list(ep, l->operand, l->operand_count, &a, operand);
        a.operand = operand;
        a.operand_count = l->operand_count;
    }
    if (ret == 0 && kind == UM_ATOMIC_COMPARE) {
        ret = um_prov_atomic_list(ep, l->compare, l->compare_count, &a, compare);
        a.compare = compare;
        a.compare_count = l->compare_count;
    }
    if (ret == 0 && kind != UM_ATOMIC_BASE) {
        ret = um_prov_atomic_list(ep, l->result, l->result_count, &a, result);
        a.result = result;
        a.result_count = l->result_count;
    }
    return ret ? ret : um_prov_post_atomic(ep, &a, to->dest, to->fi_flags);
}

ssize_t um_prov_atomic_post_msg_lists(struct um_prov_ep *ep, const struct fi_msg_atomic *m,
                                      enum um_proto_atomic_kind kind, const struct um_prov_atomic_lists *l,
                                      uint64_t flags)
{
    if (m->rma_iov_count != 1) /* rma_iov_limit is 1; the operation gives the length */
        return -FI_EINVAL;
    const struct um_prov_atomic_where to = {
        .one = {.addr = m->rma_iov[0].addr,
                .key = m->rma_iov[0].key,
                .type = m->datatype,
                .op = m->op,
                .kind = (uint8_t)kind},
        .dest = m->addr,
        .context = m->context,
        .flags = um_prov_ep_tx_flags(ep, flags & ~FI_REMOTE_CQ_DATA),
        .fi_flags = flags,
    };
    return um_prov_atomic_post_lists(ep, l, &to, m->rma_iov[0].count);
}
