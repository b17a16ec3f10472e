/*
 * Endpoints: opening, enabling, closing, and the way from an fi_addr_t to a peer.
 *
 * Owns: struct um_prov_ep. Must not know protocols.
 * Threading: under the domain lock.
 */
#include "prov/info.h"
#include "prov/post.h"

#include "base/atomic.h"
#include "base/cancel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- addresses and peers ---- */

enum { UM_PEERS_FIRST = 64 };

/* Makes room for an index of the address vector. Memory of calloc: unused parts take none. */
static int um_prov_ep_peers_grow(struct um_prov_ep *ep, fi_addr_t index)
{
    uint64_t room = ep->peers_room ? ep->peers_room : UM_PEERS_FIRST;
    while (room <= index)
        room *= 2;
    struct um_core_peer **peers = calloc(room, sizeof(struct um_core_peer *));
    if (!peers)
        return -FI_ENOMEM;
    if (ep->peers)
        memcpy(peers, ep->peers, ep->peers_room * sizeof(struct um_core_peer *));
    free(ep->peers);
    ep->peers = peers;
    ep->peers_room = room;
    return 0;
}

int um_prov_ep_peer_slow(struct um_prov_ep *ep, fi_addr_t index, struct um_core_peer **peer_p)
{
    if (!ep->enabled)
        return -FI_EOPBADSTATE;
    struct um_addr addr;
    if (!um_prov_av_addr_locked(ep->av, index, &addr))
        return -FI_EINVAL;
    if (index >= ep->peers_room && um_prov_ep_peers_grow(ep, index) != 0)
        return -FI_ENOMEM;
    int ret = um_core_peer_get(ep->core, &addr, &ep->peers[index]);
    if (ret)
        return um_prov_error_result(ret);
    *peer_p = ep->peers[index];
    return 0;
}

/* Replaces a peer that is gone: operations that are posted to any of its addresses fail from now on. */
static void um_prov_ep_end_peer(void *arg, struct um_core_peer *peer)
{
    const struct um_prov_ep *ep = arg;
    struct um_addr addr;
    um_core_peer_addr(peer, &addr);
    for (uint32_t m = 0; ep->av && m < ep->domain->env.machines.count;
         m++) { /* an entry may have one machine's part only */
        for (fi_addr_t at = um_prov_av_find_part_locked(ep->av, m, &addr); at != FI_ADDR_NOTAVAIL;
             at = um_prov_av_next_part_locked(ep->av, m, at)) {
            if (at < ep->peers_room && ep->peers[at] == peer)
                ep->peers[at] = um_core_peer_gone(ep->core);
        }
    }
}

void um_prov_ep_forget_locked(struct um_prov_ep *ep, fi_addr_t index, const struct um_addr *addr)
{
    if (index < ep->peers_room)
        ep->peers[index] = NULL;
    struct um_core_peer *peer = ep->core ? um_core_peer_find(ep->core, addr) : NULL;
    if (peer && um_core_peer_name(peer) == index)
        um_core_peer_set_name(peer, UM_PEER_UNNAMED);
}

/* ---- sleeping ---- */

int um_prov_ep_arm_locked(struct um_prov_ep *ep)
{
    ep->arms++;
    if (!ep->core || (ep->armed && !ep->stale))
        return 0;
    if (ep->armed)
        um_core_ep_disarm(ep->core);
    int ret = um_core_ep_arm(ep->core);
    ep->armed = ret == 0;
    ep->stale = false;
    ep->kicked = false;
    ep->sleep_max = um_core_ep_sleep_max(ep->core);
    return ret;
}

void um_prov_ep_disarm_locked(struct um_prov_ep *ep)
{
    if (!ep->arms)
        return;
    ep->arms--;
    if (ep->arms && ep->armed) {
        ep->stale = true;
    } else if (ep->arms && ep->core) {
        um_core_ep_kick(ep->core); /* otherwise a thread that still sleeps would never wake up */
    } else if (ep->armed) {
        um_core_ep_disarm(ep->core);
        ep->armed = false;
        ep->stale = false;
        ep->kicked = false;
    }
}

void um_prov_ep_wake_locked(struct um_prov_ep *ep)
{
    if (ep->kicked)
        return; /* woken already */
    ep->kicked = true;
    ep->stale = true;
    um_core_ep_kick(ep->core);
}

/* ---- life ---- */

/* Opens the core endpoint. Peers can reach it from now on. */
int um_prov_ep_start_locked(struct um_prov_ep *ep)
{
    const struct um_prov_domain *d = ep->domain;
    struct um_core_ep_config config = {
        .machines = d->env.machines,
        .port = d->env.port,
        .regions = d->regions,
        .complete = um_prov_ep_complete,
        .received = um_prov_ep_received,
        .forget = um_prov_ep_end_peer,
        .takes_data = um_prov_ep_takes_data,
        .arg = ep,
        .multi_min = ep->multi_min,
        .unexpected_max = d->env.unexpected_max,
        .bodies = d->env.bodies,
        .mapped = d->env.mapped,
    };
    if (ep->core)
        return 0;
    config.port.wait_none = (ep->tx_cq || ep->rx_cq) && !um_load_relaxed_u32(&d->wait_objects);
    int ret = um_prov_error_result(um_proto_ep_open(&config, &ep->core));
    if (ret == 0)
        um_core_ep_set_counters(ep->core, ep->remote_counters);
    return ret;
}

/* Lists the queues and counters that this endpoint feeds. Returns their number; some may be listed twice. */
static size_t um_prov_ep_sources(struct um_prov_ep *ep,
                                 struct um_prov_event_source *out[2 + UM_CNTR_KINDS + UM_REMOTE_KINDS])
{
    size_t n = 0;
    if (ep->tx_cq)
        out[n++] = &ep->tx_cq->source;
    if (ep->rx_cq)
        out[n++] = &ep->rx_cq->source;
    for (int i = 0; i < UM_CNTR_KINDS; i++) {
        if (ep->cntr[i])
            out[n++] = &ep->cntr[i]->source;
    }
    for (int i = 0; i < UM_REMOTE_KINDS; i++) {
        if (ep->remote_cntr[i])
            out[n++] = &ep->remote_cntr[i]->source;
    }
    return n;
}

bool um_prov_ep_feeds(struct um_prov_ep *ep, const struct um_prov_event_source *source)
{
    struct um_prov_event_source *sources[2 + UM_CNTR_KINDS + UM_REMOTE_KINDS];
    size_t n = um_prov_ep_sources(ep, sources);
    while (n > 0 && sources[n - 1] != source)
        n--;
    return n > 0;
}

static int um_prov_ep_check_bindings(const struct um_prov_ep *ep)
{
    bool sends = ep->caps & (FI_SEND | FI_READ | FI_WRITE);
    bool receives = ep->caps & FI_RECV;
    if (!ep->av)
        return -FI_ENOAV;
    return (sends && !ep->tx_cq) || (receives && !ep->rx_cq) ? -FI_ENOCQ : 0;
}

static int um_prov_ep_enable(struct um_prov_ep *ep)
{
    UM_UNCANCELLED;
    struct um_prov_event_source *sources[2 + UM_CNTR_KINDS + UM_REMOTE_KINDS];
    int ret = um_prov_ep_check_bindings(ep);
    if (ret || ep->enabled)
        return ret;
    um_prov_control_lock(&ep->domain->lock);
    ret = um_prov_ep_start_locked(ep);
    if (ret == 0)
        ret = um_prov_progress_add_locked(ep->domain, ep);
    if (ret == 0)
        ret = um_prov_cntrs_add_ep_locked(ep->domain, ep);
    if (ret == 0) {
        ep->enabled = true;
        size_t n = um_prov_ep_sources(ep, sources);
        for (size_t i = 0; i < n; i++)
            um_prov_source_enabled_locked(sources[i], ep);
        if (ep->arms)
            ep->armed = um_core_ep_arm(ep->core) == 0;
    }
    um_prov_control_unlock(&ep->domain->lock);
    return ret;
}

static void um_prov_ep_print_stats(const struct um_prov_ep *ep)
{
    const struct um_core_stats *s = um_core_ep_stats(ep->core);
    const struct um_core_traffic t = um_core_ep_traffic(ep->core);
    const struct um_machines *machines = &ep->domain->env.machines;
    fprintf(stderr,
            "unimem: stats: pid=%d sent=%" PRIu64 " received=%" PRIu64 " eager=%" PRIu64 " rendezvous=%" PRIu64
            " copied=%" PRIu64 " mapped=%" PRIu64 " bounced=%" PRIu64 " unexpected=%" PRIu64 " bytes_sent=%" PRIu64
            " bytes_received=%" PRIu64 " peers_lost=%" PRIu64 " retaken=%" PRIu64 " joint=%" PRIu64 " batched=%" PRIu64
            "\n",
            (int)getpid(), t.sent, t.received, s->eager, s->rendezvous, s->copied, s->mapped, s->bounced, s->unexpected,
            t.bytes_sent, t.bytes_received, s->peers_lost, s->retaken, s->joint, s->batched);
    for (uint32_t i = 0; machines->count > 1 && i < machines->count; i++)
        fprintf(stderr,
                "unimem: stats: pid=%d machine=%s sent=%" PRIu64 " received=%" PRIu64 " bytes_sent=%" PRIu64
                " bytes_received=%" PRIu64 "\n",
                (int)getpid(), machines->at[i]->name, s->traffic[i].sent, s->traffic[i].received,
                s->traffic[i].bytes_sent, s->traffic[i].bytes_received);
}

/* Releases everything that was bound. */
static void um_prov_ep_unbind_locked(struct um_prov_ep *ep)
{
    struct um_prov_event_source *sources[2 + UM_CNTR_KINDS + UM_REMOTE_KINDS];
    size_t n = um_prov_ep_sources(ep, sources);
    for (size_t i = 0; i < n; i++)
        um_prov_source_remove_locked(sources[i], ep);
    um_prov_cntrs_remove_ep_locked(ep->domain, ep);
    um_prov_progress_remove_locked(ep->domain, ep);
    if (ep->tx_cq)
        ep->tx_cq->refs--;
    if (ep->rx_cq)
        ep->rx_cq->refs--;
    for (int i = 0; i < UM_CNTR_KINDS; i++) {
        if (ep->cntr[i])
            ep->cntr[i]->refs--;
    }
    for (int i = 0; i < UM_REMOTE_KINDS; i++) {
        if (ep->remote_cntr[i])
            ep->remote_cntr[i]->refs--;
    }
    if (ep->av)
        ep->av->refs--;
    um_list_unlink(&ep->av_link);
}

static int um_prov_ep_close(struct fid *fid)
{
    UM_UNCANCELLED;
    struct um_prov_ep *ep = UM_CONTAINER(fid, struct um_prov_ep, fid.fid);
    struct um_prov_domain *d = ep->domain;
    um_prov_live_remove(&ep->live);
    um_prov_control_lock(&d->lock);
    ep->closing = true; /* sends that are discarded now are not reported; receives are, as canceled */
    um_prov_ep_unbind_locked(ep);
    if (ep->core) {
        if (ep->armed)
            um_core_ep_disarm(ep->core);
        if (d->env.stats)
            um_prov_ep_print_stats(ep);
        um_proto_ep_close(ep->core);
    }
    d->refs--;
    um_prov_control_unlock(&d->lock);
    if (ep->eq)
        um_prov_eq_drop(ep->eq);
    free(ep->peers);
    free(ep);
    return 0;
}

static int um_prov_ep_ops_flag(struct um_prov_ep *ep, bool set, uint64_t *flags)
{
    uint64_t which = *flags & (FI_TRANSMIT | FI_RECV);
    if (which != FI_TRANSMIT && which != FI_RECV)
        return -FI_EINVAL;
    uint64_t *mine = which == FI_TRANSMIT ? &ep->tx_op_flags : &ep->rx_op_flags;
    if (!set) {
        *flags = *mine;
        return 0;
    }
    int ret = um_prov_post_check_flags(*flags & ~which, which == FI_TRANSMIT ? UM_TX_OP_FLAGS : UM_RX_OP_FLAGS);
    if (ret)
        return ret;
    um_prov_control_lock(&ep->domain->lock);
    *mine = *flags & ~which;
    um_prov_ep_set_flags(ep);
    um_prov_control_unlock(&ep->domain->lock);
    return 0;
}

static int um_prov_ep_control(struct fid *fid, int command, void *arg)
{
    struct um_prov_ep *ep = UM_CONTAINER(fid, struct um_prov_ep, fid.fid);
    switch (command) {
    case FI_ENABLE:
        return um_prov_ep_enable(ep);
    case FI_GETOPSFLAG:
        return um_prov_ep_ops_flag(ep, false, arg);
    case FI_SETOPSFLAG:
        return um_prov_ep_ops_flag(ep, true, arg);
    default:
        return -FI_ENOSYS;
    }
}

static int um_prov_ep_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops um_prov_ep_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_prov_ep_close,
    .bind = um_prov_ep_bind,
    .control = um_prov_ep_control,
    .ops_open = um_prov_ep_ops_open,
};

/* Sets the flags for calls that take no flags, from the defaults and the bindings. */
void um_prov_ep_set_flags(struct um_prov_ep *ep)
{
    ep->tx_flags = um_prov_ep_level_flags(ep->tx_op_flags) |
                   (ep->tx_selective && !(ep->tx_op_flags & FI_COMPLETION) ? UM_OP_NO_EVENT : 0);
    ep->rx_flags = (ep->rx_selective && !(ep->rx_op_flags & FI_COMPLETION) ? UM_OP_NO_EVENT : 0) |
                   (ep->rx_op_flags & FI_MULTI_RECV ? UM_OP_MULTI : 0);
}

static void um_prov_ep_configure(struct um_prov_ep *ep, const struct fi_info *info)
{
    ep->caps = info->caps ? info->caps : ~0ULL;
    ep->directed = ep->caps & FI_DIRECTED_RECV;
    ep->tagged_directed = ep->directed;
    if (um_prov_domain_api(ep->domain) >= FI_VERSION(2, 0) && ep->caps & UM_FI_TAGGED_DIRECTED_RECV)
        ep->tagged_directed = true;
    ep->wants_source = ep->caps & FI_SOURCE;
    ep->wants_source_err = info->caps & FI_SOURCE_ERR;
    ep->tx_op_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
    ep->rx_op_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
    ep->tx_size = info->tx_attr ? info->tx_attr->size : 0;
    ep->rx_size = info->rx_attr ? info->rx_attr->size : 0;
    um_prov_ep_set_flags(ep);
}

int um_prov_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep_p, void *context)
{
    struct um_prov_domain *d = UM_CONTAINER(domain, struct um_prov_domain, fid);
    const struct fi_ep_attr *attr = info->ep_attr;
    if (attr && attr->type != FI_EP_RDM && attr->type != FI_EP_UNSPEC)
        return -FI_EINVAL;
    if (attr && (attr->tx_ctx_cnt > 1 || attr->rx_ctx_cnt > 1)) /* FI_SHARED_CONTEXT is one of these values */
        return -FI_ENOSYS;
    struct um_prov_ep *ep = calloc(1, sizeof(*ep));
    if (!ep)
        return -FI_ENOMEM;
    ep->domain = d;
    ep->multi_min = UM_MULTI_MIN;
    um_list_init(&ep->av_link);
    um_list_init(&ep->domain_link);
    um_prov_ep_configure(ep, info);
    ep->fid.fid.fclass = FI_CLASS_EP;
    ep->fid.fid.context = context;
    ep->fid.fid.ops = &um_prov_ep_fid_ops;
    ep->fid.ops = &um_prov_ep_ops;
    ep->fid.cm = &um_prov_cm_ops;
    ep->fid.msg = &um_prov_msg_ops;
    ep->fid.tagged = &um_prov_tagged_ops;
    ep->fid.rma = &um_prov_rma_ops;
    ep->fid.atomic = &um_prov_atomic_ops;
    um_prov_domain_hold(d);
    um_prov_live_add(&ep->live, &ep->fid.fid);
    *ep_p = &ep->fid;
    return 0;
}
