/*
 * Endpoints: options, names, cancelling. Calls for connected endpoints are refused here.
 *
 * Owns nothing. Threading: under the domain lock.
 */
#include "prov/prov.h"

#include "base/cancel.h"
#include "machine/address.h"

#include <string.h>

/* ---- options ---- */

static size_t um_prov_opt_size(const struct um_prov_ep *ep, int optname)
{
    switch (optname) {
    case FI_OPT_MIN_MULTI_RECV:
        return ep->multi_min;
    case UM_FI_OPT_MAX_MSG_SIZE:
    case UM_FI_OPT_MAX_TAGGED_SIZE:
    case UM_FI_OPT_MAX_RMA_SIZE:
        return SIZE_MAX;
    case UM_FI_OPT_INJECT_MSG_SIZE:
    case UM_FI_OPT_INJECT_TAGGED_SIZE:
    case UM_FI_OPT_INJECT_RMA_SIZE:
        return ep->domain->limits.inject_max;
    default:
        return 0; /* FI_OPT_CM_DATA_SIZE: no connection management, no data with it */
    }
}

static bool um_prov_opt_known(int optname)
{
    return optname == FI_OPT_MIN_MULTI_RECV || optname == FI_OPT_CM_DATA_SIZE ||
           (optname >= UM_FI_OPT_MAX_MSG_SIZE && optname <= UM_FI_OPT_MAX_RMA_SIZE) ||
           (optname >= UM_FI_OPT_INJECT_MSG_SIZE && optname <= UM_FI_OPT_INJECT_RMA_SIZE);
}

static int um_prov_ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen)
{
    struct um_prov_ep *ep = UM_CONTAINER(fid, struct um_prov_ep, fid.fid);
    if (level != FI_OPT_ENDPOINT || !um_prov_opt_known(optname))
        return -FI_ENOPROTOOPT;
    if (*optlen < sizeof(size_t)) {
        *optlen = sizeof(size_t);
        return -FI_ETOOSMALL;
    }
    size_t value = um_prov_opt_size(ep, optname);
    memcpy(optval, &value, sizeof(value));
    *optlen = sizeof(value);
    return 0;
}

static int um_prov_opt_set_multi_min(struct um_prov_ep *ep, size_t bytes)
{
    um_prov_control_lock(&ep->domain->lock);
    ep->multi_min = bytes;
    if (ep->core)
        um_core_ep_set_multi_min(ep->core, bytes);
    um_prov_control_unlock(&ep->domain->lock);
    return 0;
}

static int um_prov_ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen)
{
    struct um_prov_ep *ep = UM_CONTAINER(fid, struct um_prov_ep, fid.fid);
    size_t value = 0;
    if (level != FI_OPT_ENDPOINT)
        return -FI_ENOPROTOOPT;
    if (optname == UM_FI_OPT_SHARED_MEMORY_PERMITTED) /* a bool; only true is granted: no machine is left out */
        return optlen && *(const char *)optval ? 0 : -FI_EOPNOTSUPP;
    if (!um_prov_opt_known(optname))
        return -FI_ENOPROTOOPT;
    if (optlen != sizeof(value))
        return -FI_EINVAL;
    memcpy(&value, optval, sizeof(value));
    if (optname == FI_OPT_MIN_MULTI_RECV)
        return um_prov_opt_set_multi_min(ep, value);
    return value <= um_prov_opt_size(ep, optname) ? 0 : -FI_EINVAL; /* already granted, or too large */
}

/* ---- the rest of fi_ops_ep ---- */

static ssize_t um_prov_ep_cancel(fid_t fid, void *context)
{
    struct um_prov_ep *ep = UM_CONTAINER(fid, struct um_prov_ep, fid.fid);
    um_prov_domain_lock(&ep->domain->lock);
    int ret = ep->core ? um_prov_error_result(um_proto_cancel(ep->core, context)) : -FI_EOPBADSTATE;
    um_prov_domain_unlock(&ep->domain->lock);
    return ret;
}

static int um_prov_ep_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr, struct fid_ep **tx, void *context)
{
    (void)sep, (void)index, (void)attr, (void)tx, (void)context;
    return -FI_ENOSYS;
}

static int um_prov_ep_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr, struct fid_ep **rx, void *context)
{
    (void)sep, (void)index, (void)attr, (void)rx, (void)context;
    return -FI_ENOSYS;
}

static ssize_t um_prov_ep_rx_size_left(struct fid_ep *fid)
{
    const struct um_prov_ep *ep = UM_CONTAINER(fid, struct um_prov_ep, fid);
    return ep->enabled ? (ssize_t)ep->rx_size : -FI_EOPBADSTATE; /* receives are limited by memory alone */
}

static ssize_t um_prov_ep_tx_size_left(struct fid_ep *fid)
{
    const struct um_prov_ep *ep = UM_CONTAINER(fid, struct um_prov_ep, fid);
    if (!ep->enabled)
        return -FI_EOPBADSTATE;
    return ep->pending < ep->tx_size ? (ssize_t)(ep->tx_size - ep->pending) : 0;
}

struct fi_ops_ep um_prov_ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = um_prov_ep_cancel,
    .getopt = um_prov_ep_getopt,
    .setopt = um_prov_ep_setopt,
    .tx_ctx = um_prov_ep_tx_ctx,
    .rx_ctx = um_prov_ep_rx_ctx,
    .rx_size_left = um_prov_ep_rx_size_left,
    .tx_size_left = um_prov_ep_tx_size_left,
};

/* ---- names ---- */

static int um_prov_ep_setname(fid_t fid, void *addr, size_t addrlen)
{
    (void)fid, (void)addr, (void)addrlen;
    return -FI_ENOSYS; /* the machine makes addresses */
}

/* Works before the endpoint is enabled, too: programs exchange names first. */
static int um_prov_ep_getname(fid_t fid, void *addr, size_t *addrlen)
{
    UM_UNCANCELLED;
    struct um_prov_ep *ep = UM_CONTAINER(fid, struct um_prov_ep, fid.fid);
    struct um_addr mine;
    um_prov_control_lock(&ep->domain->lock);
    int ret = um_prov_ep_start_locked(ep);
    if (ret == 0)
        um_core_ep_addr(ep->core, &mine);
    um_prov_control_unlock(&ep->domain->lock);
    if (ret)
        return ret;
    const size_t len = um_addr_len(&ep->domain->env.machines), room = *addrlen;
    *addrlen = len;
    memcpy(addr, &mine, room < len ? room : len);
    return room < len ? -FI_ETOOSMALL : 0;
}

static int um_prov_ep_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen)
{
    (void)ep, (void)addr, (void)addrlen;
    return -FI_ENOSYS;
}

static int um_prov_ep_connect(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen)
{
    (void)ep, (void)addr, (void)param, (void)paramlen;
    return -FI_ENOSYS;
}

static int um_prov_ep_listen(struct fid_pep *pep)
{
    (void)pep;
    return -FI_ENOSYS;
}

static int um_prov_ep_accept(struct fid_ep *ep, const void *param, size_t paramlen)
{
    (void)ep, (void)param, (void)paramlen;
    return -FI_ENOSYS;
}

static int um_prov_ep_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen)
{
    (void)pep, (void)handle, (void)param, (void)paramlen;
    return -FI_ENOSYS;
}

static int um_prov_ep_shutdown(struct fid_ep *ep, uint64_t flags)
{
    (void)ep, (void)flags;
    return -FI_ENOSYS;
}

static int um_prov_ep_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context)
{
    (void)ep, (void)addr, (void)flags, (void)mc, (void)context;
    return -FI_ENOSYS;
}

struct fi_ops_cm um_prov_cm_ops = {
    .size = sizeof(struct fi_ops_cm),
    .setname = um_prov_ep_setname,
    .getname = um_prov_ep_getname,
    .getpeer = um_prov_ep_getpeer,
    .connect = um_prov_ep_connect,
    .listen = um_prov_ep_listen,
    .accept = um_prov_ep_accept,
    .reject = um_prov_ep_reject,
    .shutdown = um_prov_ep_shutdown,
    .join = um_prov_ep_join,
};
