/*
 * Atomics: fi_atomic, fi_fetch_atomic, fi_compare_atomic and their variants, as calls of proto; what is supported.
 *
 * Owns: the correspondence of libfabric's datatypes and operations with proto's (the numbers are the same). Threading:
 * see post.h. Descriptors of local memory are ignored: none is needed, NULL is fine. So is the data of a message: an
 * atomic reports nothing at the target.
 */
#include "prov/atomic_post.h"

#include <rdma/fi_atomic.h>

static_assert((int)UM_TYPE_INT8 == FI_INT8 && (int)UM_TYPE_UINT8 == FI_UINT8 && (int)UM_TYPE_INT16 == FI_INT16 &&
                  (int)UM_TYPE_UINT16 == FI_UINT16 && (int)UM_TYPE_INT32 == FI_INT32 &&
                  (int)UM_TYPE_UINT32 == FI_UINT32 && (int)UM_TYPE_INT64 == FI_INT64 &&
                  (int)UM_TYPE_UINT64 == FI_UINT64,
              "integers");
static_assert((int)UM_TYPE_FLOAT == FI_FLOAT && (int)UM_TYPE_DOUBLE == FI_DOUBLE &&
                  (int)UM_TYPE_FLOAT_COMPLEX == FI_FLOAT_COMPLEX && (int)UM_TYPE_DOUBLE_COMPLEX == FI_DOUBLE_COMPLEX &&
                  (int)UM_TYPE_LONG_DOUBLE == FI_LONG_DOUBLE &&
                  (int)UM_TYPE_LONG_DOUBLE_COMPLEX == FI_LONG_DOUBLE_COMPLEX,
              "reals and complex numbers");
static_assert((int)UM_TYPE_INT128 == FI_INT128 && (int)UM_TYPE_UINT128 == FI_UINT128, "integers of 128 bits");
static_assert((int)UM_ATOMIC_MIN == FI_MIN && (int)UM_ATOMIC_MAX == FI_MAX && (int)UM_ATOMIC_SUM == FI_SUM &&
                  (int)UM_ATOMIC_PROD == FI_PROD && (int)UM_ATOMIC_LOR == FI_LOR && (int)UM_ATOMIC_LAND == FI_LAND &&
                  (int)UM_ATOMIC_BOR == FI_BOR && (int)UM_ATOMIC_BAND == FI_BAND && (int)UM_ATOMIC_LXOR == FI_LXOR &&
                  (int)UM_ATOMIC_BXOR == FI_BXOR && (int)UM_ATOMIC_READ == FI_ATOMIC_READ &&
                  (int)UM_ATOMIC_WRITE == FI_ATOMIC_WRITE,
              "operations");
static_assert((int)UM_ATOMIC_CSWAP == FI_CSWAP && (int)UM_ATOMIC_CSWAP_NE == FI_CSWAP_NE &&
                  (int)UM_ATOMIC_CSWAP_LE == FI_CSWAP_LE && (int)UM_ATOMIC_CSWAP_LT == FI_CSWAP_LT &&
                  (int)UM_ATOMIC_CSWAP_GE == FI_CSWAP_GE && (int)UM_ATOMIC_CSWAP_GT == FI_CSWAP_GT &&
                  (int)UM_ATOMIC_MSWAP == FI_MSWAP && (int)UM_ATOMIC_DIFF == UM_FI_DIFF,
              "operations that compare, and the one that 2.x added");

/* ---- what is supported ---- */

/*
 * Returns 0 and the most elements of one call, or -FI_EOPNOTSUPP.
 *
 * FI_UNIMEM_MPICH_ATOMICS: MPICH 5.0 fills a table by libfabric's numbers of operations, but reads it by its own
 * numbers when it asks whether all accumulates of a window can be native (load_acc_hint): under MIN it looks for a
 * compare-and-swap, under ATOMIC_READ for BXOR. With exact answers MPICH therefore uses active messages. It never calls
 * an operation that is missing.
 */
static int um_prov_atomic_check(const struct um_prov_domain *d, enum um_proto_atomic_kind kind, enum fi_datatype type,
                                enum fi_op op, size_t *count_p)
{
    bool valid = um_proto_atomic_is_valid(kind, (uint32_t)type, (uint32_t)op);
    for (int any = UM_ATOMIC_BASE; d->env.mpich_atomics && !valid && any <= UM_ATOMIC_COMPARE; any++)
        valid = um_proto_atomic_is_valid((enum um_proto_atomic_kind)any, (uint32_t)type, (uint32_t)op);
    if (!valid)
        return -FI_EOPNOTSUPP;
    *count_p = um_proto_atomic_count_max((uint8_t)type);
    return 0;
}

static int um_prov_atomic_writevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
    return um_prov_atomic_check(um_prov_post_ep(ep)->domain, UM_ATOMIC_BASE, type, op, count);
}

static int um_prov_atomic_readwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
    return um_prov_atomic_check(um_prov_post_ep(ep)->domain, UM_ATOMIC_FETCH, type, op, count);
}

static int um_prov_atomic_compwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
    return um_prov_atomic_check(um_prov_post_ep(ep)->domain, UM_ATOMIC_COMPARE, type, op, count);
}

/* FI_TAGGED asks for atomics on receive buffers, which are not supported. */
int um_prov_atomic_query(struct fid_domain *d, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr,
                         uint64_t flags)
{
    if (flags & FI_TAGGED)
        return -FI_EOPNOTSUPP;
    if (flags & ~(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) || flags == (FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC))
        return -FI_EINVAL;
    enum um_proto_atomic_kind kind = flags & FI_COMPARE_ATOMIC ? UM_ATOMIC_COMPARE
                                     : flags & FI_FETCH_ATOMIC ? UM_ATOMIC_FETCH
                                                               : UM_ATOMIC_BASE;
    int ret = um_prov_atomic_check(UM_CONTAINER(d, struct um_prov_domain, fid), kind, type, op, &attr->count);
    if (ret == 0)
        attr->size = um_proto_atomic_size((uint32_t)type);
    return ret;
}

/* ---- base ---- */

static size_t um_prov_ioc_elements(const struct fi_ioc *ioc, size_t pieces)
{
    size_t sum = 0;
    for (size_t i = 0; i < pieces; i++)
        sum += ioc[i].count;
    return sum;
}

static ssize_t um_prov_atomic_write(struct fid_ep *fid, const void *buf, size_t count, void *desc, fi_addr_t dest,
                                    uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_atomic a = {
        .operand = buf, .addr = addr, .key = key, .count = count, .context = context, .flags = ep->tx_flags};
    (void)desc;
    return um_prov_atomic_post_buffers(ep, &a, (struct um_prov_atomic_call){UM_ATOMIC_BASE, type, op, dest, 0});
}

static ssize_t um_prov_atomic_writev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count,
                                     fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op,
                                     void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct um_prov_atomic_lists l = {.operand = iov, .operand_count = count};
    struct um_proto_atomic a = {
        .addr = addr, .key = key, .count = um_prov_ioc_elements(iov, count), .context = context, .flags = ep->tx_flags};
    (void)desc;
    return um_prov_atomic_post_lists(ep, &a, &l, (struct um_prov_atomic_call){UM_ATOMIC_BASE, type, op, dest, 0});
}

static ssize_t um_prov_atomic_writemsg(struct fid_ep *fid, const struct fi_msg_atomic *m, uint64_t flags)
{
    const struct um_prov_atomic_lists l = {.operand = m->msg_iov, .operand_count = m->iov_count};
    return um_prov_atomic_post_msg(um_prov_post_ep(fid), m, UM_ATOMIC_BASE, &l, flags);
}

/* Reports no event. The counter counts when the operation has ended, at the endpoint's completion level. */
static ssize_t um_prov_atomic_inject(struct fid_ep *fid, const void *buf, size_t count, fi_addr_t dest, uint64_t addr,
                                     uint64_t key, enum fi_datatype type, enum fi_op op)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_atomic a = {.operand = buf,
                                .addr = addr,
                                .key = key,
                                .count = count,
                                .flags = (ep->tx_flags & UM_OP_DELIVERY) | UM_OP_INJECT | UM_OP_NO_EVENT};
    return um_prov_atomic_post_buffers(ep, &a, (struct um_prov_atomic_call){UM_ATOMIC_BASE, type, op, dest, FI_INJECT});
}

/* ---- fetch ---- */

static ssize_t um_prov_atomic_readwrite(struct fid_ep *fid, const void *buf, size_t count, void *desc, void *result,
                                        void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key,
                                        enum fi_datatype type, enum fi_op op, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_atomic a = {.operand = buf,
                                .result = result,
                                .addr = addr,
                                .key = key,
                                .count = count,
                                .context = context,
                                .flags = ep->tx_flags};
    (void)desc, (void)result_desc;
    return um_prov_atomic_post_buffers(ep, &a, (struct um_prov_atomic_call){UM_ATOMIC_FETCH, type, op, dest, 0});
}

static ssize_t um_prov_atomic_readwritev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count,
                                         struct fi_ioc *resultv, void **result_desc, size_t result_count,
                                         fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type,
                                         enum fi_op op, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct um_prov_atomic_lists l = {
        .operand = iov, .operand_count = count, .result = resultv, .result_count = result_count};
    struct um_proto_atomic a = {.addr = addr,
                                .key = key,
                                .count = um_prov_ioc_elements(resultv, result_count), /* a read has no operands */
                                .context = context,
                                .flags = ep->tx_flags};
    (void)desc, (void)result_desc;
    return um_prov_atomic_post_lists(ep, &a, &l, (struct um_prov_atomic_call){UM_ATOMIC_FETCH, type, op, dest, 0});
}

static ssize_t um_prov_atomic_readwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *m, struct fi_ioc *resultv,
                                           void **result_desc, size_t result_count, uint64_t flags)
{
    const struct um_prov_atomic_lists l = {
        .operand = m->msg_iov, .operand_count = m->iov_count, .result = resultv, .result_count = result_count};
    (void)result_desc;
    return um_prov_atomic_post_msg(um_prov_post_ep(fid), m, UM_ATOMIC_FETCH, &l, flags);
}

/* ---- compare ---- */

static ssize_t um_prov_atomic_compwrite(struct fid_ep *fid, const void *buf, size_t count, void *desc,
                                        const void *compare, void *compare_desc, void *result, void *result_desc,
                                        fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type,
                                        enum fi_op op, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_atomic a = {.operand = buf,
                                .compare = compare,
                                .result = result,
                                .addr = addr,
                                .key = key,
                                .count = count,
                                .context = context,
                                .flags = ep->tx_flags};
    (void)desc, (void)compare_desc, (void)result_desc;
    return um_prov_atomic_post_buffers(ep, &a, (struct um_prov_atomic_call){UM_ATOMIC_COMPARE, type, op, dest, 0});
}

static ssize_t um_prov_atomic_compwritev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count,
                                         const struct fi_ioc *comparev, void **compare_desc, size_t compare_count,
                                         struct fi_ioc *resultv, void **result_desc, size_t result_count,
                                         fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type,
                                         enum fi_op op, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct um_prov_atomic_lists l = {.operand = iov,
                                           .operand_count = count,
                                           .compare = comparev,
                                           .compare_count = compare_count,
                                           .result = resultv,
                                           .result_count = result_count};
    struct um_proto_atomic a = {
        .addr = addr, .key = key, .count = um_prov_ioc_elements(iov, count), .context = context, .flags = ep->tx_flags};
    (void)desc, (void)compare_desc, (void)result_desc;
    return um_prov_atomic_post_lists(ep, &a, &l, (struct um_prov_atomic_call){UM_ATOMIC_COMPARE, type, op, dest, 0});
}

static ssize_t um_prov_atomic_compwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *m,
                                           const struct fi_ioc *comparev, void **compare_desc, size_t compare_count,
                                           struct fi_ioc *resultv, void **result_desc, size_t result_count,
                                           uint64_t flags)
{
    const struct um_prov_atomic_lists l = {.operand = m->msg_iov,
                                           .operand_count = m->iov_count,
                                           .compare = comparev,
                                           .compare_count = compare_count,
                                           .result = resultv,
                                           .result_count = result_count};
    (void)compare_desc, (void)result_desc;
    return um_prov_atomic_post_msg(um_prov_post_ep(fid), m, UM_ATOMIC_COMPARE, &l, flags);
}

struct fi_ops_atomic um_prov_atomic_ops = {
    .size = sizeof(struct fi_ops_atomic),
    .write = um_prov_atomic_write,
    .writev = um_prov_atomic_writev,
    .writemsg = um_prov_atomic_writemsg,
    .inject = um_prov_atomic_inject,
    .readwrite = um_prov_atomic_readwrite,
    .readwritev = um_prov_atomic_readwritev,
    .readwritemsg = um_prov_atomic_readwritemsg,
    .compwrite = um_prov_atomic_compwrite,
    .compwritev = um_prov_atomic_compwritev,
    .compwritemsg = um_prov_atomic_compwritemsg,
    .writevalid = um_prov_atomic_writevalid,
    .readwritevalid = um_prov_atomic_readwritevalid,
    .compwritevalid = um_prov_atomic_compwritevalid,
};
