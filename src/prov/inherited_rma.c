/*
 * What endpoints of a parent answer in its child: RMA, atomics. See inherited.h.
 *
 * Owns nothing, and looks at nothing: no lock is taken, no shared memory touched. Threading: any.
 */
#include "prov/inherited.h"

#include <rdma/fi_atomic.h>

static ssize_t um_prov_inherited_rma_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                                          uint64_t addr, uint64_t key, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)src_addr, (void)addr, (void)key, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_rma_readv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                                           fi_addr_t src_addr, uint64_t addr, uint64_t key, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)src_addr, (void)addr, (void)key, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_rma_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    (void)ep, (void)msg, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_rma_write(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                                           fi_addr_t dest_addr, uint64_t addr, uint64_t key, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)dest_addr, (void)addr, (void)key, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_rma_writev(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                                            fi_addr_t dest_addr, uint64_t addr, uint64_t key, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)dest_addr, (void)addr, (void)key, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_rma_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    (void)ep, (void)msg, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_rma_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr,
                                            uint64_t addr, uint64_t key)
{
    (void)ep, (void)buf, (void)len, (void)dest_addr, (void)addr, (void)key;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_rma_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                                               uint64_t data, fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                               void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)data, (void)dest_addr, (void)addr, (void)key, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_rma_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                                                fi_addr_t dest_addr, uint64_t addr, uint64_t key)
{
    (void)ep, (void)buf, (void)len, (void)data, (void)dest_addr, (void)addr, (void)key;
    return UM_INHERITED;
}

struct fi_ops_rma um_prov_inherited_rma_ops = {
    .size = sizeof(struct fi_ops_rma),
    .read = um_prov_inherited_rma_read,
    .readv = um_prov_inherited_rma_readv,
    .readmsg = um_prov_inherited_rma_readmsg,
    .write = um_prov_inherited_rma_write,
    .writev = um_prov_inherited_rma_writev,
    .writemsg = um_prov_inherited_rma_writemsg,
    .inject = um_prov_inherited_rma_inject,
    .writedata = um_prov_inherited_rma_writedata,
    .injectdata = um_prov_inherited_rma_injectdata,
};

static ssize_t um_prov_inherited_atomic_write(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                              fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                              enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)dest_addr, (void)addr, (void)key, (void)datatype, (void)op,
        (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_atomic_writev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
                                               fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                               enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)dest_addr, (void)addr, (void)key, (void)datatype, (void)op,
        (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_atomic_writemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags)
{
    (void)ep, (void)msg, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_atomic_inject(struct fid_ep *ep, const void *buf, size_t count, fi_addr_t dest_addr,
                                               uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op)
{
    (void)ep, (void)buf, (void)count, (void)dest_addr, (void)addr, (void)key, (void)datatype, (void)op;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_atomic_readwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                                  void *result, void *result_desc, fi_addr_t dest_addr, uint64_t addr,
                                                  uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)dest_addr, (void)addr,
        (void)key, (void)datatype, (void)op, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_atomic_readwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                                   size_t count, struct fi_ioc *resultv, void **result_desc,
                                                   size_t result_count, fi_addr_t dest_addr, uint64_t addr,
                                                   uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                                   void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)resultv, (void)result_desc, (void)result_count, (void)dest_addr,
        (void)addr, (void)key, (void)datatype, (void)op, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_atomic_readwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                                     struct fi_ioc *resultv, void **result_desc, size_t result_count,
                                                     uint64_t flags)
{
    (void)ep, (void)msg, (void)resultv, (void)result_desc, (void)result_count, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_atomic_compwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                                  const void *compare, void *compare_desc, void *result,
                                                  void *result_desc, fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                                  enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)ep, (void)buf, (void)count, (void)desc, (void)compare, (void)compare_desc, (void)result, (void)result_desc,
        (void)dest_addr, (void)addr, (void)key, (void)datatype, (void)op, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_atomic_compwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                                   size_t count, const struct fi_ioc *comparev, void **compare_desc,
                                                   size_t compare_count, struct fi_ioc *resultv, void **result_desc,
                                                   size_t result_count, fi_addr_t dest_addr, uint64_t addr,
                                                   uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                                   void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)comparev, (void)compare_desc, (void)compare_count,
        (void)resultv, (void)result_desc, (void)result_count, (void)dest_addr, (void)addr, (void)key, (void)datatype,
        (void)op, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_atomic_compwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                                     const struct fi_ioc *comparev, void **compare_desc,
                                                     size_t compare_count, struct fi_ioc *resultv, void **result_desc,
                                                     size_t result_count, uint64_t flags)
{
    (void)ep, (void)msg, (void)comparev, (void)compare_desc, (void)compare_count, (void)resultv, (void)result_desc,
        (void)result_count, (void)flags;
    return UM_INHERITED;
}

static int um_prov_inherited_atomic_writevalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                               size_t *count)
{
    (void)ep, (void)datatype, (void)op, (void)count;
    return UM_INHERITED;
}

static int um_prov_inherited_atomic_readwritevalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                                   size_t *count)
{
    (void)ep, (void)datatype, (void)op, (void)count;
    return UM_INHERITED;
}

static int um_prov_inherited_atomic_compwritevalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                                   size_t *count)
{
    (void)ep, (void)datatype, (void)op, (void)count;
    return UM_INHERITED;
}

struct fi_ops_atomic um_prov_inherited_atomic_ops = {
    .size = sizeof(struct fi_ops_atomic),
    .write = um_prov_inherited_atomic_write,
    .writev = um_prov_inherited_atomic_writev,
    .writemsg = um_prov_inherited_atomic_writemsg,
    .inject = um_prov_inherited_atomic_inject,
    .readwrite = um_prov_inherited_atomic_readwrite,
    .readwritev = um_prov_inherited_atomic_readwritev,
    .readwritemsg = um_prov_inherited_atomic_readwritemsg,
    .compwrite = um_prov_inherited_atomic_compwrite,
    .compwritev = um_prov_inherited_atomic_compwritev,
    .compwritemsg = um_prov_inherited_atomic_compwritemsg,
    .writevalid = um_prov_inherited_atomic_writevalid,
    .readwritevalid = um_prov_inherited_atomic_readwritevalid,
    .compwritevalid = um_prov_inherited_atomic_compwritevalid,
};
