/*
 * RMA: fi_read, fi_write and their variants, as calls of proto.
 *
 * Owns nothing. Threading: see post.h. Descriptors of local memory are ignored: none is needed, NULL is fine.
 */
#include "prov/post.h"

static inline ssize_t um_prov_post_rma_by(struct um_prov_ep *ep, struct um_proto_rma *rma, fi_addr_t dest,
                                          uint64_t fi_flags,
                                          int (*start)(struct um_core_ep *ep, const struct um_proto_rma *rma))
{
    int ret = um_prov_post_check(ep, rma->iov, rma->count, fi_flags, UM_RMA_FLAGS);
    if (ret)
        return ret;
    um_prov_domain_lock(&ep->domain->lock);
    ret = um_prov_ep_peer(ep, dest, &rma->peer);
    if (ret == 0) {
        ret = um_prov_post_begin_locked(ep, fi_flags);
        if (ret == 0)
            ret = um_prov_post_started_locked(ep, start(ep->core, rma));
    }
    um_prov_domain_unlock(&ep->domain->lock);
    return ret;
}

static ssize_t um_prov_post_rma(struct um_prov_ep *ep, struct um_proto_rma *rma, fi_addr_t dest, uint64_t fi_flags)
{
    return um_prov_post_rma_by(ep, rma, dest, fi_flags, um_proto_rma_start);
}

/* The fast path for one buffer. True: done, with its completion. False: not done (bytes may have moved); take the slow
 * path. */
static inline bool um_prov_rma_post_one(struct um_prov_ep *ep, const struct um_proto_rma_one *r, fi_addr_t dest,
                                        bool event, void *context)
{
    struct um_core_peer *peer;
    um_prov_domain_lock(&ep->domain->lock);
    bool done = um_prov_ep_peer(ep, dest, &peer) == 0 && um_proto_rma_now(ep->core, peer, r);
    if (__builtin_expect(done, 1))
        um_prov_post_executed_locked(ep, r->flags, r->iov.iov_len, event, context);
    um_prov_domain_unlock(&ep->domain->lock);
    return done;
}

static ssize_t um_prov_rma_readv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                                 fi_addr_t source, uint64_t addr, uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_rma rma = {
        .iov = iov, .count = count, .addr = addr, .key = key, .context = context, .flags = ep->tx_flags | UM_OP_READ};
    (void)desc;
    return um_prov_post_rma(ep, &rma, source, 0);
}

static ssize_t um_prov_rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source, uint64_t addr,
                                uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct um_proto_rma_one one = {.iov = {buf, len}, .addr = addr, .key = key, .flags = UM_OP_READ};
    (void)desc;
    if (__builtin_expect(um_prov_rma_post_one(ep, &one, source, !(ep->tx_flags & UM_OP_NO_EVENT), context), 1))
        return 0;
    return um_prov_rma_readv(fid, &one.iov, NULL, 1, source, addr, key, context);
}

static ssize_t um_prov_rma_writev(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                                  fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_rma rma = {
        .iov = iov, .count = count, .addr = addr, .key = key, .context = context, .flags = ep->tx_flags | UM_OP_WRITE};
    (void)desc;
    return um_prov_post_rma(ep, &rma, dest, 0);
}

static ssize_t um_prov_rma_write(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest,
                                 uint64_t addr, uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct um_proto_rma_one one = {.iov = {(void *)buf, len}, .addr = addr, .key = key, .flags = UM_OP_WRITE};
    (void)desc;
    if (__builtin_expect(um_prov_rma_post_one(ep, &one, dest, !(ep->tx_flags & UM_OP_NO_EVENT), context), 1))
        return 0;
    return um_prov_rma_writev(fid, &one.iov, NULL, 1, dest, addr, key, context);
}

/* Has the operation one buffer and one target address, and no flag that needs the slow path? */
static inline bool um_prov_rma_msg_is_one(const struct um_prov_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
    return !(flags & ~(UM_RMA_FLAGS & ~(FI_FENCE | FI_REMOTE_CQ_DATA))) && m->iov_count == 1 && m->rma_iov_count == 1 &&
           m->rma_iov[0].len == m->msg_iov[0].iov_len &&
           (!(flags & FI_INJECT) || m->msg_iov[0].iov_len <= ep->domain->limits.inject_max);
}

/* The target is one piece at most (rma_iov_limit), and none only when there is nothing to move. */
static ssize_t um_prov_rma_msg(struct um_prov_ep *ep, const struct fi_msg_rma *m, uint64_t flags, uint32_t direction)
{
    if (__builtin_expect(um_prov_rma_msg_is_one(ep, m, flags), 1)) {
        const struct um_proto_rma_one one = {
            .iov = m->msg_iov[0], .addr = m->rma_iov[0].addr, .key = m->rma_iov[0].key, .flags = direction};
        if (__builtin_expect(
                um_prov_rma_post_one(ep, &one, m->addr, !ep->tx_selective || flags & FI_COMPLETION, m->context), 1))
            return 0;
    }
    struct um_proto_rma rma = {.iov = m->msg_iov,
                               .count = m->iov_count,
                               .data = m->data,
                               .context = m->context,
                               .flags = um_prov_ep_tx_flags(ep, flags) | direction};
    size_t len = um_iov_length(m->msg_iov, m->iov_count);
    if (m->rma_iov_count > 1 || (m->rma_iov_count ? m->rma_iov[0].len : 0) != len)
        return -FI_EINVAL;
    if (!m->rma_iov_count)
        return um_prov_post_rma_by(ep, &rma, m->addr, flags, um_proto_rma_start_empty);
    rma.addr = m->rma_iov[0].addr;
    rma.key = m->rma_iov[0].key;
    return um_prov_post_rma(ep, &rma, m->addr, flags);
}

static ssize_t um_prov_rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags)
{
    return um_prov_rma_msg(um_prov_post_ep(fid), m, flags & ~(FI_INJECT | FI_REMOTE_CQ_DATA), UM_OP_READ);
}

static ssize_t um_prov_rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags)
{
    return um_prov_rma_msg(um_prov_post_ep(fid), m, flags, UM_OP_WRITE);
}

static ssize_t um_prov_rma_writedata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data,
                                     fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_rma rma = {.iov = &iov,
                               .count = 1,
                               .addr = addr,
                               .key = key,
                               .data = data,
                               .context = context,
                               .flags = ep->tx_flags | UM_OP_WRITE | UM_OP_DATA};
    (void)desc;
    return um_prov_post_rma(ep, &rma, dest, 0);
}

/*
 * No event. The counter counts when the operation has ended, at the endpoint's completion level: MPI flushes by waiting
 * for that counter.
 */
static ssize_t um_prov_rma_inject_any(struct fid_ep *fid, const struct um_proto_rma *what, const void *buf, size_t len,
                                      fi_addr_t dest)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_rma rma = *what;
    rma.iov = &iov;
    rma.count = 1;
    rma.flags |= (ep->tx_flags & UM_OP_DELIVERY) | UM_OP_WRITE | UM_OP_INJECT | UM_OP_NO_EVENT;
    return um_prov_post_rma(ep, &rma, dest, FI_INJECT);
}

static ssize_t um_prov_rma_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest, uint64_t addr,
                                  uint64_t key)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct um_proto_rma_one one = {.iov = {(void *)buf, len}, .addr = addr, .key = key, .flags = UM_OP_WRITE};
    if (__builtin_expect(len <= ep->domain->limits.inject_max && um_prov_rma_post_one(ep, &one, dest, false, NULL), 1))
        return 0;
    struct um_proto_rma rma = {.addr = addr, .key = key};
    return um_prov_rma_inject_any(fid, &rma, buf, len, dest);
}

static ssize_t um_prov_rma_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
                                      uint64_t addr, uint64_t key)
{
    struct um_proto_rma rma = {.addr = addr, .key = key, .data = data, .flags = UM_OP_DATA};
    return um_prov_rma_inject_any(fid, &rma, buf, len, dest);
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
