/*
 * RMA: fi_read, fi_write and their variants, as calls of proto.
 *
 * Owns nothing. Threading: see post.h. Descriptors of local memory are ignored: none is needed, NULL is fine.
 */
#include "prov/post.h"

/* The function of proto that starts the operation of a call. */
typedef int (*um_prov_rma_start)(struct um_core_ep *ep, const struct um_proto_rma *rma);

/*
 * Posts an operation. what is a constant: UM_OP_READ or UM_OP_WRITE, with UM_OP_NO_EVENT if no event is wanted whatever
 * rma->flags say.
 */
static inline __attribute__((always_inline)) ssize_t um_prov_rma_post(struct um_prov_ep *ep, struct um_proto_rma *rma,
                                                                      size_t len, fi_addr_t dest, uint64_t fi_flags,
                                                                      const uint32_t what,
                                                                      const um_prov_rma_start start)
{
    um_prov_domain_lock(&ep->domain->lock);
    int ret = um_prov_ep_peer(ep, dest, &rma->peer);
    if (__builtin_expect(ret == 0, 1)) {
        ret = um_prov_post_is_fenced_off(ep, fi_flags) ? -EAGAIN : start(ep->core, rma);
        if (__builtin_expect(ret == UM_EXECUTED, 1)) {
            um_prov_post_executed_locked(ep, what, len);
            if (!((what | rma->flags) & UM_OP_NO_EVENT))
                um_prov_ep_executed_locked(ep, what, len, rma->context);
            ret = 0;
        } else {
            ret = um_prov_post_started_locked(ep, ret);
        }
    }
    um_prov_domain_unlock(&ep->domain->lock);
    return ret;
}

/* Sets all but the peer and the data, which is used only with UM_OP_DATA. */
static inline void um_prov_rma_set(struct um_proto_rma *rma, const struct iovec *iov, size_t count, uint64_t addr,
                                   uint64_t key, void *context, uint32_t flags)
{
    rma->iov = iov;
    rma->count = count;
    rma->addr = addr;
    rma->key = key;
    rma->context = context;
    rma->flags = flags;
}

/* ---- one buffer ---- */

static ssize_t um_prov_rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source, uint64_t addr,
                                uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct iovec iov = {.iov_base = buf, .iov_len = len};
    struct um_proto_rma rma;
    um_prov_rma_set(&rma, &iov, 1, addr, key, context, ep->tx_flags);
    (void)desc;
    return um_prov_rma_post(ep, &rma, len, source, 0, UM_OP_READ, um_proto_rma_read);
}

static ssize_t um_prov_rma_write(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest,
                                 uint64_t addr, uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_rma rma;
    um_prov_rma_set(&rma, &iov, 1, addr, key, context, ep->tx_flags);
    (void)desc;
    return um_prov_rma_post(ep, &rma, len, dest, 0, UM_OP_WRITE, um_proto_rma_write);
}

static ssize_t um_prov_rma_writedata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data,
                                     fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_rma rma = {.data = data};
    um_prov_rma_set(&rma, &iov, 1, addr, key, context, ep->tx_flags | UM_OP_DATA);
    (void)desc;
    return um_prov_rma_post(ep, &rma, len, dest, 0, UM_OP_WRITE, um_proto_rma_write);
}

/*
 * Posts an inject, which reports no event. The counter counts when the operation has ended, at the endpoint's
 * completion level: MPI flushes by waiting for that counter.
 */
static inline __attribute__((always_inline)) ssize_t
um_prov_rma_inject_any(struct um_prov_ep *ep, struct um_proto_rma *rma, size_t len, fi_addr_t dest)
{
    if (__builtin_expect(len > ep->domain->limits.inject_max, 0))
        return -FI_EINVAL;
    rma->flags |= (ep->tx_flags & UM_OP_DELIVERY) | UM_OP_INJECT | UM_OP_NO_EVENT;
    return um_prov_rma_post(ep, rma, len, dest, 0, UM_OP_WRITE | UM_OP_NO_EVENT, um_proto_rma_write);
}

static ssize_t um_prov_rma_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest, uint64_t addr,
                                  uint64_t key)
{
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_rma rma;
    um_prov_rma_set(&rma, &iov, 1, addr, key, NULL, 0);
    return um_prov_rma_inject_any(um_prov_post_ep(fid), &rma, len, dest);
}

static ssize_t um_prov_rma_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
                                      uint64_t addr, uint64_t key)
{
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_rma rma = {.data = data};
    um_prov_rma_set(&rma, &iov, 1, addr, key, NULL, UM_OP_DATA);
    return um_prov_rma_inject_any(um_prov_post_ep(fid), &rma, len, dest);
}

/* ---- many buffers ---- */

static ssize_t um_prov_rma_postv(struct um_prov_ep *ep, struct um_proto_rma *rma, fi_addr_t dest, const uint32_t what,
                                 const um_prov_rma_start start)
{
    int ret = um_prov_post_check(ep, rma->iov, rma->count, 0, UM_RMA_FLAGS);
    return ret ? ret : um_prov_rma_post(ep, rma, um_iov_length(rma->iov, rma->count), dest, 0, what, start);
}

static ssize_t um_prov_rma_readv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                                 fi_addr_t source, uint64_t addr, uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_rma rma;
    um_prov_rma_set(&rma, iov, count, addr, key, context, ep->tx_flags);
    (void)desc;
    return um_prov_rma_postv(ep, &rma, source, UM_OP_READ, um_proto_rma_read);
}

static ssize_t um_prov_rma_writev(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                                  fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_rma rma;
    um_prov_rma_set(&rma, iov, count, addr, key, context, ep->tx_flags);
    (void)desc;
    return um_prov_rma_postv(ep, &rma, dest, UM_OP_WRITE, um_proto_rma_write);
}

/*
 * Posts a message without a target. -FI_EINVAL: the target has another length than the buffers, or there is something
 * to move.
 */
static __attribute__((noinline)) ssize_t um_prov_rma_msg_empty(struct um_prov_ep *ep, const struct fi_msg_rma *m,
                                                               size_t len, uint64_t flags, uint32_t what)
{
    struct um_proto_rma rma = {.data = m->data};
    int ret = m->rma_iov_count || len ? -FI_EINVAL : um_prov_post_check_size(ep, m->iov_count, 0, flags, UM_RMA_FLAGS);
    if (ret)
        return ret;
    um_prov_rma_set(&rma, NULL, 0, 0, 0, m->context, um_prov_ep_tx_flags(ep, flags) | what);
    return um_prov_rma_post(ep, &rma, 0, m->addr, flags, what, um_proto_rma_empty);
}

/* Posts a message. Its target has one piece at most (rma_iov_limit), and none only when there is nothing to move. */
static inline __attribute__((always_inline)) ssize_t um_prov_rma_msg(struct um_prov_ep *ep, const struct fi_msg_rma *m,
                                                                     uint64_t flags, const uint32_t what,
                                                                     const um_prov_rma_start start)
{
    const size_t len =
        __builtin_expect(m->iov_count == 1, 1) ? m->msg_iov->iov_len : um_iov_length(m->msg_iov, m->iov_count);
    struct um_proto_rma rma;
    if (__builtin_expect(m->rma_iov_count != 1 || m->rma_iov->len != len, 0))
        return um_prov_rma_msg_empty(ep, m, len, flags, what);
    int ret = um_prov_post_check_size(ep, m->iov_count, len, flags, UM_RMA_FLAGS);
    if (__builtin_expect(ret != 0, 0))
        return ret;
    rma.data = m->data;
    um_prov_rma_set(&rma, m->msg_iov, m->iov_count, m->rma_iov->addr, m->rma_iov->key, m->context,
                    um_prov_ep_tx_flags(ep, flags));
    return um_prov_rma_post(ep, &rma, len, m->addr, flags, what, start);
}

static ssize_t um_prov_rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags)
{
    return um_prov_rma_msg(um_prov_post_ep(fid), m, flags & ~(FI_INJECT | FI_REMOTE_CQ_DATA), UM_OP_READ,
                           um_proto_rma_read);
}

static ssize_t um_prov_rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags)
{
    return um_prov_rma_msg(um_prov_post_ep(fid), m, flags, UM_OP_WRITE, um_proto_rma_write);
}

struct fi_ops_rma um_prov_rma_ops = {
    .size = sizeof(struct fi_ops_rma),
    .read = um_prov_rma_read,
    .readv = um_prov_rma_readv,
    .readmsg = um_prov_rma_readmsg,
    .write = um_prov_rma_write,
    .writev = um_prov_rma_writev,
    .writemsg = um_prov_rma_writemsg,
    .inject = um_prov_rma_inject,
    .writedata = um_prov_rma_writedata,
    .injectdata = um_prov_rma_injectdata,
};
