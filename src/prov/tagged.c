/*
 * Tagged messages: fi_tsend, fi_trecv and their variants, as calls of proto.
 *
 * Owns nothing. Threading: see post.h. Descriptors of local memory are ignored: none is needed, NULL is fine.
 */
#include "prov/post.h"

static ssize_t um_prov_tagged_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                                    fi_addr_t source, uint64_t tag, uint64_t ignore, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_msg msg = {.iov = iov,
                               .count = count,
                               .tag = tag,
                               .ignore = ignore,
                               .context = context,
                               .flags = (ep->rx_flags & UM_OP_NO_EVENT) | UM_OP_TAGGED};
    (void)desc;
    return um_prov_post_recv(ep, &msg, ep->tagged_directed, source);
}

static ssize_t um_prov_tagged_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source,
                                   uint64_t tag, uint64_t ignore, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const uint32_t flags = (ep->rx_flags & UM_OP_NO_EVENT) | UM_OP_TAGGED; /* FI_MULTI_RECV is for untagged messages */
    (void)desc;
    return um_prov_post_recv_one(ep, buf, len, tag, ignore, context, flags, ep->tagged_directed, source);
}

static ssize_t um_prov_tagged_recvmsg(struct fid_ep *fid, const struct fi_msg_tagged *m, uint64_t flags)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_msg msg = {.iov = m->msg_iov,
                               .count = m->iov_count,
                               .tag = m->tag,
                               .ignore = m->ignore,
                               .context = m->context,
                               .flags = um_prov_post_recv_flags(ep, flags) | UM_OP_TAGGED};
    /* FI_TAGGED_MULTI_RECV is not offered */
    int ret = um_prov_post_check_recv(flags, UM_RECV_FLAGS & ~FI_MULTI_RECV);
    if (__builtin_expect(ret != 0, 0))
        return ret;
    if (flags & FI_PEEK)
        return um_prov_post_peek(ep, &msg, ep->tagged_directed, m->addr);
    return um_prov_post_recv(ep, &msg, ep->tagged_directed, m->addr);
}

static ssize_t um_prov_tagged_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                                    fi_addr_t dest, uint64_t tag, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_msg msg = {
        .iov = iov, .count = count, .tag = tag, .context = context, .flags = ep->tx_flags | UM_OP_TAGGED};
    int ret = um_prov_post_check(ep, iov, count, 0, UM_SEND_FLAGS);
    (void)desc;
    return ret ? ret : um_prov_post_send(ep, &msg, dest, 0);
}

static ssize_t um_prov_tagged_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest,
                                   uint64_t tag, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_msg msg = {
        .iov = &iov, .count = 1, .tag = tag, .context = context, .flags = ep->tx_flags | UM_OP_TAGGED};
    (void)desc;
    return um_prov_post_send(ep, &msg, dest, 0);
}

static ssize_t um_prov_tagged_sendmsg(struct fid_ep *fid, const struct fi_msg_tagged *m, uint64_t flags)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_msg msg = {.iov = m->msg_iov,
                               .count = m->iov_count,
                               .tag = m->tag,
                               .data = m->data,
                               .context = m->context,
                               .flags = um_prov_ep_tx_flags(ep, flags) | UM_OP_TAGGED};
    int ret = um_prov_post_check(ep, m->msg_iov, m->iov_count, flags, UM_SEND_FLAGS);
    return ret ? ret : um_prov_post_send(ep, &msg, m->addr, flags);
}

static ssize_t um_prov_tagged_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest, uint64_t tag)
{
    return um_prov_post_inject(um_prov_post_ep(fid), buf, len, 0, dest, tag, UM_OP_TAGGED);
}

static ssize_t um_prov_tagged_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data,
                                       fi_addr_t dest, uint64_t tag, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_msg msg = {.iov = &iov,
                               .count = 1,
                               .tag = tag,
                               .data = data,
                               .context = context,
                               .flags = ep->tx_flags | UM_OP_TAGGED | UM_OP_DATA};
    (void)desc;
    return um_prov_post_send(ep, &msg, dest, 0);
}

static ssize_t um_prov_tagged_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
                                         uint64_t tag)
{
    return um_prov_post_inject(um_prov_post_ep(fid), buf, len, data, dest, tag, UM_OP_TAGGED | UM_OP_DATA);
}

struct fi_ops_tagged um_prov_tagged_ops = {
    .size = sizeof(struct fi_ops_tagged),
    .recv = um_prov_tagged_recv,
    .recvv = um_prov_tagged_recvv,
    .recvmsg = um_prov_tagged_recvmsg,
    .send = um_prov_tagged_send,
    .sendv = um_prov_tagged_sendv,
    .sendmsg = um_prov_tagged_sendmsg,
    .inject = um_prov_tagged_inject,
    .senddata = um_prov_tagged_senddata,
    .injectdata = um_prov_tagged_injectdata,
};
