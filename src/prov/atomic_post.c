/* Posting an atomic operation: many elements, and buffers in pieces. See atomic_post.h. */
#include "prov/atomic_post.h"

int um_prov_atomic_check_count(const struct um_prov_ep *ep, const struct um_proto_atomic *a, uint64_t fi_flags)
{
    if (a->count == 0 || a->count > um_proto_atomic_count_max(a->type))
        return -FI_EINVAL;
    if (fi_flags & FI_INJECT && a->op != UM_ATOMIC_READ &&
        a->count * um_proto_atomic_size(a->type) > ep->domain->limits.inject_max)
        return -FI_EINVAL;
    return 0;
}

/*
 * Turns a list of the application into a buffer list. -FI_EINVAL: it has too many pieces, or not as many elements as
 * the operation.
 */
static int um_prov_atomic_list(const struct um_prov_ep *ep, const struct fi_ioc *ioc, size_t pieces,
                               const struct um_proto_atomic *a, struct iovec *iov)
{
    size_t size = um_proto_atomic_size(a->type), sum = 0;
    if (pieces > ep->domain->limits.iov_max)
        return -FI_EINVAL;
    for (size_t i = 0; i < pieces; i++) {
        if (ioc[i].count > a->count - sum)
            return -FI_EINVAL;
        sum += ioc[i].count;
        iov[i] = (struct iovec){.iov_base = ioc[i].addr, .iov_len = ioc[i].count * size};
    }
    return sum == a->count ? 0 : -FI_EINVAL;
}

ssize_t um_prov_atomic_post_pieces(struct um_prov_ep *ep, struct um_proto_atomic *a,
                                   const struct um_prov_atomic_lists *l, const struct um_prov_atomic_call *call)
{
    struct iovec operand[UM_IOV_LIMIT], compare[UM_IOV_LIMIT], result[UM_IOV_LIMIT];
    struct um_proto_atomic_lists lists = {.operand = operand, .compare = compare, .result = result};
    if (!um_proto_atomic_is_valid(call->kind, call->type, call->op))
        return -FI_EOPNOTSUPP;
    a->kind = (uint8_t)call->kind;
    a->type = (uint8_t)call->type;
    a->op = (uint8_t)call->op;
    a->lists = &lists;
    int ret = um_prov_atomic_check_count(ep, a, call->fi_flags);
    if (ret == 0 && a->op != UM_ATOMIC_READ) {
        ret = um_prov_atomic_list(ep, l->operand, l->operand_count, a, operand);
        lists.operand_count = l->operand_count;
    }
    if (ret == 0 && a->kind == UM_ATOMIC_COMPARE) {
        ret = um_prov_atomic_list(ep, l->compare, l->compare_count, a, compare);
        lists.compare_count = l->compare_count;
    }
    if (ret == 0 && a->kind != UM_ATOMIC_BASE) {
        ret = um_prov_atomic_list(ep, l->result, l->result_count, a, result);
        lists.result_count = l->result_count;
    }
    return ret ? ret : um_prov_atomic_post(ep, a, call->kind, call->dest, call->fi_flags);
}
