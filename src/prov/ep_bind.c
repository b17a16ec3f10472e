/*
 * Endpoints: what they are bound to.
 *
 * Owns nothing but the references. Threading: under the domain lock.
 */
#include "prov/prov.h"

#include "base/cancel.h"

static int um_prov_bind_cq_locked(struct um_prov_ep *ep, struct um_prov_cq *cq, uint64_t flags)
{
    if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
        return -FI_EBADFLAGS;
    if (!(flags & (FI_TRANSMIT | FI_RECV)) || ep->enabled)
        return flags & (FI_TRANSMIT | FI_RECV) ? -FI_EOPBADSTATE : -FI_EINVAL;
    if ((flags & FI_TRANSMIT && ep->tx_cq) || (flags & FI_RECV && ep->rx_cq))
        return -FI_EINVAL;
    int ret = um_prov_source_add_locked(&cq->source, ep);
    if (ret)
        return ret;
    if (flags & FI_TRANSMIT) {
        ep->tx_cq = cq;
        ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
        cq->refs++;
    }
    if (flags & FI_RECV) {
        ep->rx_cq = cq;
        ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
        cq->refs++;
    }
    um_prov_ep_set_flags(ep);
    return 0;
}

/* Binds a counter, also after the endpoint was enabled: Sandia OpenSHMEM does that. */
static int um_prov_bind_cntr_locked(struct um_prov_ep *ep, struct um_prov_cntr *cntr, uint64_t flags)
{
    static const uint64_t kinds[UM_CNTR_KINDS] = {
        [UM_CNTR_SEND] = FI_SEND, [UM_CNTR_RECV] = FI_RECV, [UM_CNTR_READ] = FI_READ, [UM_CNTR_WRITE] = FI_WRITE};
    uint64_t known = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
    uint64_t remote = flags & (FI_REMOTE_READ | FI_REMOTE_WRITE);
    if (flags & ~(known | remote))
        return -FI_EBADFLAGS;
    if (!flags)
        return 0; /* it counts nothing; some programs bind one so */
    for (int i = 0; i < UM_CNTR_KINDS; i++) {
        if (flags & kinds[i] && ep->cntr[i])
            return -FI_EINVAL;
    }
    int ret = remote ? um_prov_cntr_bind_remote_locked(cntr, remote, ep->remote_cntr, &ep->remote_counters) : 0;
    if (ret == 0 && ep->core)
        um_core_ep_set_counters(ep->core, ep->remote_counters);
    if (ret == 0)
        ret = um_prov_source_add_locked(&cntr->source, ep);
    for (int i = 0; ret == 0 && i < UM_CNTR_KINDS; i++) {
        if (flags & kinds[i]) {
            ep->cntr[i] = cntr;
            cntr->refs++;
        }
    }
    return ret;
}

static int um_prov_bind_av_locked(struct um_prov_ep *ep, struct um_prov_av *av)
{
    if (ep->av || ep->enabled)
        return -FI_EINVAL;
    ep->av = av;
    av->refs++;
    um_list_append(&av->eps, &ep->av_link);
    return 0;
}

static int um_prov_bind_eq(struct um_prov_ep *ep, struct um_prov_eq *eq)
{
    if (ep->eq || um_prov_fork_is_inherited(&eq->fid.fid))
        return -FI_EINVAL;
    ep->eq = eq; /* a connectionless endpoint reports no event there, but binding is allowed */
    um_prov_eq_hold(eq);
    return 0;
}

int um_prov_ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    UM_UNCANCELLED;
    struct um_prov_ep *ep = UM_CONTAINER(fid, struct um_prov_ep, fid.fid);
    struct um_prov_cq *cq;
    struct um_prov_cntr *cntr;
    struct um_prov_av *av;
    int ret = -FI_EINVAL;
    um_prov_control_lock(&ep->domain->lock);
    switch (bfid->fclass) {
    case FI_CLASS_CQ:
        cq = UM_CONTAINER(bfid, struct um_prov_cq, fid.fid);
        if (cq->source.domain == ep->domain)
            ret = um_prov_bind_cq_locked(ep, cq, flags);
        break;
    case FI_CLASS_CNTR:
        cntr = UM_CONTAINER(bfid, struct um_prov_cntr, fid.fid);
        if (cntr->source.domain == ep->domain)
            ret = um_prov_bind_cntr_locked(ep, cntr, flags);
        break;
    case FI_CLASS_AV:
        av = UM_CONTAINER(bfid, struct um_prov_av, fid.fid);
        if (av->domain == ep->domain)
            ret = um_prov_bind_av_locked(ep, av);
        break;
    case FI_CLASS_EQ:
        ret = um_prov_bind_eq(ep, UM_CONTAINER(bfid, struct um_prov_eq, fid.fid));
        break;
    case FI_CLASS_MR: /* every endpoint of the domain reaches every region */
        ret = 0;
        break;
    case FI_CLASS_STX_CTX:
    case FI_CLASS_SRX_CTX:
        ret = -FI_ENOSYS;
        break;
    default:
        break;
    }
    um_prov_control_unlock(&ep->domain->lock);
    return ret;
}
