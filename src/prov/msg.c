/*
 * Untagged messages: fi_send, fi_recv and their variants, as calls of proto.
 *
 * Owns nothing. Threading: see post.h. Descriptors of local memory are ignored: none is needed, NULL is fine.
 */
#include "prov/post.h"

static ssize_t um_prov_msg_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                                 fi_addr_t source, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_msg msg = {.iov = iov, .count = count, .context = context, .flags = ep->rx_flags};
    (void)desc;
    return um_prov_post_recv(ep, &msg, ep->directed, source);
}

static ssize_t um_prov_msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    (void)desc;
    if (__builtin_expect(ep->rx_flags & UM_OP_MULTI, 0))
        return um_prov_post_recv_other(ep, buf, len, 0, 0, context, ep->rx_flags, ep->directed, source);
    return um_prov_post_recv_one(ep, buf, len, 0, 0, context, ep->rx_flags, ep->directed, source);
}

static ssize_t um_prov_msg_recvmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_msg msg = {.iov = m->msg_iov,
                               .count = m->iov_count,
                               .context = m->context,
                               .flags = um_prov_post_recv_flags(ep, flags) | (flags & FI_MULTI_RECV ? UM_OP_MULTI : 0)};
    int ret = um_prov_post_check_recv(flags, UM_RECV_FLAGS);
    if (__builtin_expect(ret != 0, 0))
        return ret;
    if (flags & FI_PEEK)
        return um_prov_post_peek(ep, &msg, ep->directed, m->addr);
    return um_prov_post_recv(ep, &msg, ep->directed, m->addr);
}

static ssize_t um_prov_msg_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
                                 void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_msg msg = {.iov = iov, .count = count, .context = context, .flags = ep->tx_flags};
    int ret = um_prov_post_check(ep, iov, count, 0, UM_SEND_FLAGS);
    (void)desc;
    return ret ? ret : um_prov_post_send(ep, &msg, dest, 0);
}

static ssize_t um_prov_msg_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest,
                                void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_msg msg = {.iov = &iov, .count = 1, .context = context, .flags = ep->tx_flags};
    (void)desc;
    return um_prov_post_send(ep, &msg, dest, 0);
}

static ssize_t um_prov_msg_sendmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    struct um_proto_msg msg = {.iov = m->msg_iov,
                               .count = m->iov_count,
                               .data = m->data,
                               .context = m->context,
                               .flags = um_prov_ep_tx_flags(ep, flags)};
    int ret = um_prov_post_check(ep, m->msg_iov, m->iov_count, flags, UM_SEND_FLAGS);
    return ret ? ret : um_prov_post_send(ep, &msg, m->addr, flags);
}

static ssize_t um_prov_msg_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data,
                                    fi_addr_t dest, void *context)
{
    struct um_prov_ep *ep = um_prov_post_ep(fid);
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    struct um_proto_msg msg = {
        .iov = &iov, .count = 1, .data = data, .context = context, .flags = ep->tx_flags | UM_OP_DATA};
    (void)desc;
    return um_prov_post_send(ep, &msg, dest, 0);
}

static ssize_t um_prov_msg_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest)
{
    return um_prov_post_inject(um_prov_post_ep(fid), buf, len, 0, dest, 0, 0);
}

static ssize_t um_prov_msg_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest)
{
    return um_prov_post_inject(um_prov_post_ep(fid), buf, len, data, dest, 0, UM_OP_DATA);
}

struct fi_ops_msg um_prov_msg_ops = {
    .size = sizeof(struct fi_ops_msg),
    .recv = um_prov_msg_recv,
    .recvv = um_prov_msg_recvv,
    .recvmsg = um_prov_msg_recvmsg,
    .send = um_prov_msg_send,
    .sendv = um_prov_msg_sendv,
    .sendmsg = um_prov_msg_sendmsg,
    .inject = um_prov_msg_inject,
    .senddata = um_prov_msg_senddata,
    .injectdata = um_prov_msg_injectdata,
};
