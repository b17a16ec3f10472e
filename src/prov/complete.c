/*
 * The end of operations: from the layers below to completion queues and counters.
 *
 * Owns the rules of what is reported where. Must not know protocols.
 * Threading: called during progress and during posting, under the guard of the domain.
 */
#include "prov/prov.h"

/* What fi_cq_read tells about an operation. */
static uint64_t um_complete_flags(uint32_t op)
{
    uint64_t flags = 0;
    if (op & (UM_OP_SEND | UM_OP_RECV))
        flags |= (op & UM_OP_SEND ? FI_SEND : FI_RECV) | (op & UM_OP_TAGGED ? FI_TAGGED : FI_MSG);
    if (op & UM_OP_READ)
        flags |= FI_RMA | FI_READ;
    if (op & UM_OP_WRITE)
        flags |= FI_RMA | FI_WRITE;
    if (op & UM_OP_REMOTE_WRITE)
        flags |= FI_RMA | FI_REMOTE_WRITE;
    if (op & UM_OP_REMOTE_READ)
        flags |= FI_RMA | FI_REMOTE_READ;
    if (op & UM_OP_MULTI_END)
        flags |= FI_MULTI_RECV;
    if (op & UM_OP_DATA && !(op & (UM_OP_SEND | UM_OP_READ | UM_OP_WRITE)))
        flags |= FI_REMOTE_CQ_DATA;
    return flags;
}

static bool um_complete_is_tx(uint32_t op)
{
    return op & (UM_OP_SEND | UM_OP_READ | UM_OP_WRITE);
}

static struct um_cntr *um_complete_cntr(const struct um_prov_ep *ep, uint32_t op)
{
    if (op & UM_OP_SEND)
        return ep->cntr[UM_CNTR_SEND];
    if (op & UM_OP_RECV)
        return ep->cntr[UM_CNTR_RECV];
    if (op & UM_OP_READ)
        return ep->cntr[UM_CNTR_READ];
    return op & UM_OP_WRITE ? ep->cntr[UM_CNTR_WRITE] : NULL;
}

static struct um_cq_entry um_complete_entry(const struct um_completion *c)
{
    return (struct um_cq_entry){
        .context = c->context,
        .flags = um_complete_flags(c->flags),
        .len = c->len,
        .buf = c->buf,
        .data = c->flags & UM_OP_DATA ? c->data : 0,
        .tag = c->tag,
        .source = FI_ADDR_NOTAVAIL,
    };
}

/* The sender as the application knows it. A sender is looked up once; then its peer carries the name. */
static fi_addr_t um_complete_source(struct um_prov_ep *ep, struct um_peer *peer, struct um_addr *addr_p)
{
    uint64_t name = um_peer_name(peer);
    if (__builtin_expect(name != UM_PEER_UNNAMED, 1))
        return name;
    um_peer_addr(peer, addr_p);
    name = um_av_find_locked(ep->av, addr_p);
    if (name != FI_ADDR_NOTAVAIL)
        um_peer_set_name(peer, name);
    return name;
}

static void um_complete_failed(struct um_prov_ep *ep, const struct um_completion *c)
{
    struct um_cq *cq = um_complete_is_tx(c->flags) ? ep->tx_cq : ep->rx_cq;
    struct um_cntr *cntr = um_complete_cntr(ep, c->flags);
    struct um_cq_entry entry = um_complete_entry(c);
    const struct um_cq_error error = {.olen = c->olen, .err = um_error_to_fi(c->error), .prov_errno = c->error};
    if (cntr)
        um_cntr_fail_locked(cntr);
    if (cq)
        um_cq_write_error_locked(cq, &entry, &error);
}

/* A message, or RMA data that arrived, or the bare end of a multi-receive buffer. */
static void um_complete_received(struct um_prov_ep *ep, const struct um_completion *c, struct um_cntr *cntr)
{
    struct um_cq_entry entry = um_complete_entry(c);
    bool bare_end = c->flags & UM_OP_MULTI_END && !c->source;
    struct um_addr addr;
    if (cntr && !bare_end)
        um_cntr_count_locked(cntr, c->len);
    if (bare_end)
        entry.flags = FI_MULTI_RECV;
    if (!ep->rx_cq || (c->flags & UM_OP_NO_EVENT && !(c->flags & UM_OP_MULTI_END)))
        return;
    if (c->source && ep->wants_source) {
        entry.source = um_complete_source(ep, c->source, &addr);
        if (entry.source == FI_ADDR_NOTAVAIL && ep->wants_source_err) {
            struct um_cq_error error = {.err = FI_EADDRNOTAVAIL, .prov_errno = EADDRNOTAVAIL, .has_addr = true};
            error.addr = addr;
            um_cq_write_error_locked(ep->rx_cq, &entry, &error);
            return;
        }
    }
    um_cq_write_locked(ep->rx_cq, &entry);
}

void um_prov_ep_complete(void *arg, const struct um_completion *c)
{
    struct um_prov_ep *ep = arg;
    bool tx = um_complete_is_tx(c->flags);
    ep->pending -= tx;
    if (ep->closing)
        return;
    if (__builtin_expect(c->error != 0, 0)) {
        um_complete_failed(ep, c);
    } else if (!tx) {
        um_complete_received(ep, c, um_complete_cntr(ep, c->flags));
    } else {
        struct um_cntr *cntr = um_complete_cntr(ep, c->flags);
        if (cntr)
            um_cntr_count_locked(cntr, c->len);
        if (!(c->flags & UM_OP_NO_EVENT)) {
            const struct um_cq_entry entry = um_complete_entry(c);
            um_cq_write_locked(ep->tx_cq, &entry);
        }
    }
}

/* A peek always reports, also with FI_SELECTIVE_COMPLETION, and is not counted. */
void um_prov_ep_peek_done(struct um_prov_ep *ep, const struct um_completion *c)
{
    if (c->error) {
        struct um_cq_entry entry = um_complete_entry(c);
        const struct um_cq_error error = {.err = um_error_to_fi(c->error), .prov_errno = c->error};
        if (ep->rx_cq)
            um_cq_write_error_locked(ep->rx_cq, &entry, &error);
        return;
    }
    struct um_completion seen = *c;
    seen.flags &= ~(uint32_t)(UM_OP_NO_EVENT | UM_OP_MULTI_END);
    um_complete_received(ep, &seen, NULL);
}
