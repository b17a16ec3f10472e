/*
 * What endpoints of a parent answer in its child: options, names, messages. See inherited.h.
 *
 * Owns nothing, and looks at nothing: no lock is taken, no shared memory touched. Threading: any.
 */
#include "prov/inherited.h"

static ssize_t um_prov_inherited_ep_cancel(fid_t fid, void *context)
{
    (void)fid, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen)
{
    (void)fid, (void)level, (void)optname, (void)optval, (void)optlen;
    return UM_INHERITED;
}

static int um_prov_inherited_ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen)
{
    (void)fid, (void)level, (void)optname, (void)optval, (void)optlen;
    return UM_INHERITED;
}

static int um_prov_inherited_ep_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr, struct fid_ep **tx_ep,
                                       void *context)
{
    (void)sep, (void)index, (void)attr, (void)tx_ep, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_ep_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr, struct fid_ep **rx_ep,
                                       void *context)
{
    (void)sep, (void)index, (void)attr, (void)rx_ep, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_ep_rx_size_left(struct fid_ep *ep)
{
    (void)ep;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_ep_tx_size_left(struct fid_ep *ep)
{
    (void)ep;
    return UM_INHERITED;
}

struct fi_ops_ep um_prov_inherited_ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = um_prov_inherited_ep_cancel,
    .getopt = um_prov_inherited_ep_getopt,
    .setopt = um_prov_inherited_ep_setopt,
    .tx_ctx = um_prov_inherited_ep_tx_ctx,
    .rx_ctx = um_prov_inherited_ep_rx_ctx,
    .rx_size_left = um_prov_inherited_ep_rx_size_left,
    .tx_size_left = um_prov_inherited_ep_tx_size_left,
};

static int um_prov_inherited_cm_setname(fid_t fid, void *addr, size_t addrlen)
{
    (void)fid, (void)addr, (void)addrlen;
    return UM_INHERITED;
}

static int um_prov_inherited_cm_getname(fid_t fid, void *addr, size_t *addrlen)
{
    (void)fid, (void)addr, (void)addrlen;
    return UM_INHERITED;
}

static int um_prov_inherited_cm_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen)
{
    (void)ep, (void)addr, (void)addrlen;
    return UM_INHERITED;
}

static int um_prov_inherited_cm_connect(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen)
{
    (void)ep, (void)addr, (void)param, (void)paramlen;
    return UM_INHERITED;
}

static int um_prov_inherited_cm_listen(struct fid_pep *pep)
{
    (void)pep;
    return UM_INHERITED;
}

static int um_prov_inherited_cm_accept(struct fid_ep *ep, const void *param, size_t paramlen)
{
    (void)ep, (void)param, (void)paramlen;
    return UM_INHERITED;
}

static int um_prov_inherited_cm_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen)
{
    (void)pep, (void)handle, (void)param, (void)paramlen;
    return UM_INHERITED;
}

static int um_prov_inherited_cm_shutdown(struct fid_ep *ep, uint64_t flags)
{
    (void)ep, (void)flags;
    return UM_INHERITED;
}

static int um_prov_inherited_cm_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc,
                                     void *context)
{
    (void)ep, (void)addr, (void)flags, (void)mc, (void)context;
    return UM_INHERITED;
}

struct fi_ops_cm um_prov_inherited_cm_ops = {
    .size = sizeof(struct fi_ops_cm),
    .setname = um_prov_inherited_cm_setname,
    .getname = um_prov_inherited_cm_getname,
    .getpeer = um_prov_inherited_cm_getpeer,
    .connect = um_prov_inherited_cm_connect,
    .listen = um_prov_inherited_cm_listen,
    .accept = um_prov_inherited_cm_accept,
    .reject = um_prov_inherited_cm_reject,
    .shutdown = um_prov_inherited_cm_shutdown,
    .join = um_prov_inherited_cm_join,
};

static ssize_t um_prov_inherited_msg_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                                          void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)src_addr, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_msg_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                                           fi_addr_t src_addr, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)src_addr, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_msg_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    (void)ep, (void)msg, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_msg_send(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                                          fi_addr_t dest_addr, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)dest_addr, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_msg_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                                           fi_addr_t dest_addr, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)dest_addr, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_msg_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    (void)ep, (void)msg, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_msg_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr)
{
    (void)ep, (void)buf, (void)len, (void)dest_addr;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_msg_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                                              fi_addr_t dest_addr, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)data, (void)dest_addr, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_msg_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                                                fi_addr_t dest_addr)
{
    (void)ep, (void)buf, (void)len, (void)data, (void)dest_addr;
    return UM_INHERITED;
}

struct fi_ops_msg um_prov_inherited_msg_ops = {
    .size = sizeof(struct fi_ops_msg),
    .recv = um_prov_inherited_msg_recv,
    .recvv = um_prov_inherited_msg_recvv,
    .recvmsg = um_prov_inherited_msg_recvmsg,
    .send = um_prov_inherited_msg_send,
    .sendv = um_prov_inherited_msg_sendv,
    .sendmsg = um_prov_inherited_msg_sendmsg,
    .inject = um_prov_inherited_msg_inject,
    .senddata = um_prov_inherited_msg_senddata,
    .injectdata = um_prov_inherited_msg_injectdata,
};

static ssize_t um_prov_inherited_tagged_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                                             uint64_t tag, uint64_t ignore, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)src_addr, (void)tag, (void)ignore, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_tagged_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                                              fi_addr_t src_addr, uint64_t tag, uint64_t ignore, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)src_addr, (void)tag, (void)ignore, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_tagged_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
    (void)ep, (void)msg, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_tagged_send(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                                             fi_addr_t dest_addr, uint64_t tag, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)dest_addr, (void)tag, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_tagged_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                                              fi_addr_t dest_addr, uint64_t tag, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)dest_addr, (void)tag, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_tagged_sendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
    (void)ep, (void)msg, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_tagged_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr,
                                               uint64_t tag)
{
    (void)ep, (void)buf, (void)len, (void)dest_addr, (void)tag;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_tagged_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                                                 uint64_t data, fi_addr_t dest_addr, uint64_t tag, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)data, (void)dest_addr, (void)tag, (void)context;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_tagged_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                                                   fi_addr_t dest_addr, uint64_t tag)
{
    (void)ep, (void)buf, (void)len, (void)data, (void)dest_addr, (void)tag;
    return UM_INHERITED;
}

struct fi_ops_tagged um_prov_inherited_tagged_ops = {
    .size = sizeof(struct fi_ops_tagged),
    .recv = um_prov_inherited_tagged_recv,
    .recvv = um_prov_inherited_tagged_recvv,
    .recvmsg = um_prov_inherited_tagged_recvmsg,
    .send = um_prov_inherited_tagged_send,
    .sendv = um_prov_inherited_tagged_sendv,
    .sendmsg = um_prov_inherited_tagged_sendmsg,
    .inject = um_prov_inherited_tagged_inject,
    .senddata = um_prov_inherited_tagged_senddata,
    .injectdata = um_prov_inherited_tagged_injectdata,
};
