/*
 * Atomics: not offered yet (FI_ATOMIC is not among the capabilities). Each call refuses, so that a client that calls
 * without asking gets an answer instead of a null pointer.
 *
 * Owns nothing. Threading: any.
 */
#include "prov/prov.h"

#include <rdma/fi_atomic.h>

static ssize_t um_atomic_write(struct fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t dest,
                               uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)dest, (void)addr, (void)key, (void)type, (void)op,
        (void)context;
    return -FI_EOPNOTSUPP;
}

static ssize_t um_atomic_writev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t dest,
                                uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)dest, (void)addr, (void)key, (void)type, (void)op,
        (void)context;
    return -FI_EOPNOTSUPP;
}

static ssize_t um_atomic_writemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags)
{
    (void)ep, (void)msg, (void)flags;
    return -FI_EOPNOTSUPP;
}

static ssize_t um_atomic_inject(struct fid_ep *ep, const void *buf, size_t count, fi_addr_t dest, uint64_t addr,
                                uint64_t key, enum fi_datatype type, enum fi_op op)
{
    (void)ep, (void)buf, (void)count, (void)dest, (void)addr, (void)key, (void)type, (void)op;
    return -FI_EOPNOTSUPP;
}

static ssize_t um_atomic_readwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                                   void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key,
                                   enum fi_datatype type, enum fi_op op, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)dest, (void)addr, (void)key,
        (void)type, (void)op, (void)context;
    return -FI_EOPNOTSUPP;
}

static ssize_t um_atomic_readwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
                                    struct fi_ioc *resultv, void **result_desc, size_t result_count, fi_addr_t dest,
                                    uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)resultv, (void)result_desc, (void)result_count, (void)dest,
        (void)addr, (void)key, (void)type, (void)op, (void)context;
    return -FI_EOPNOTSUPP;
}

static ssize_t um_atomic_readwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, struct fi_ioc *resultv,
                                      void **result_desc, size_t result_count, uint64_t flags)
{
    (void)ep, (void)msg, (void)resultv, (void)result_desc, (void)result_count, (void)flags;
    return -FI_EOPNOTSUPP;
}

static ssize_t um_atomic_compwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc, const void *compare,
                                   void *compare_desc, void *result, void *result_desc, fi_addr_t dest, uint64_t addr,
                                   uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)compare, (void)compare_desc, (void)result, (void)result_desc,
        (void)dest, (void)addr, (void)key, (void)type, (void)op, (void)context;
    return -FI_EOPNOTSUPP;
}

static ssize_t um_atomic_compwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
                                    const struct fi_ioc *comparev, void **compare_desc, size_t compare_count,
                                    struct fi_ioc *resultv, void **result_desc, size_t result_count, fi_addr_t dest,
                                    uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)comparev, (void)compare_desc, (void)compare_count,
        (void)resultv, (void)result_desc, (void)result_count, (void)dest, (void)addr, (void)key, (void)type, (void)op,
        (void)context;
    return -FI_EOPNOTSUPP;
}

static ssize_t um_atomic_compwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, const struct fi_ioc *comparev,
                                      void **compare_desc, size_t compare_count, struct fi_ioc *resultv,
                                      void **result_desc, size_t result_count, uint64_t flags)
{
    (void)ep, (void)msg, (void)comparev, (void)compare_desc, (void)compare_count, (void)resultv, (void)result_desc,
        (void)result_count, (void)flags;
    return -FI_EOPNOTSUPP;
}

static int um_atomic_writevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
    (void)ep, (void)type, (void)op, (void)count;
    return -FI_EOPNOTSUPP;
}

static int um_atomic_readwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
    (void)ep, (void)type, (void)op, (void)count;
    return -FI_EOPNOTSUPP;
}

static int um_atomic_compwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
    (void)ep, (void)type, (void)op, (void)count;
    return -FI_EOPNOTSUPP;
}

struct fi_ops_atomic um_prov_atomic_ops = {
    .size = sizeof(struct fi_ops_atomic),
    .write = um_atomic_write,
    .writev = um_atomic_writev,
    .writemsg = um_atomic_writemsg,
    .inject = um_atomic_inject,
    .readwrite = um_atomic_readwrite,
    .readwritev = um_atomic_readwritev,
    .readwritemsg = um_atomic_readwritemsg,
    .compwrite = um_atomic_compwrite,
    .compwritev = um_atomic_compwritev,
    .compwritemsg = um_atomic_compwritemsg,
    .writevalid = um_atomic_writevalid,
    .readwritevalid = um_atomic_readwritevalid,
    .compwritevalid = um_atomic_compwritevalid,
};
