/*
 * Completions: from the layers below to completion queues and counters.
 *
 * Owns the rules of what is reported where. Must not know protocols.
 * Threading: called during progress and during posting, under the domain lock.
 */
#include "prov/prov.h"

enum {
    UM_COMPLETE_KINDS =
        UM_OP_SEND | UM_OP_RECV | UM_OP_TAGGED | UM_OP_READ | UM_OP_WRITE | UM_OP_REMOTE_WRITE | UM_OP_ATOMIC,
    UM_COMPLETE_MORE = UM_OP_DATA | UM_OP_MULTI_END,
};
static_assert(UM_COMPLETE_KINDS == 127, "the index of a small table");

/* The flags that fi_cq_read returns for an operation of that kind. */
static const uint64_t um_prov_complete_kinds[UM_COMPLETE_KINDS + 1] = {
    [UM_OP_SEND] = FI_MSG | FI_SEND,
    [UM_OP_SEND | UM_OP_TAGGED] = FI_TAGGED | FI_SEND,
    [UM_OP_RECV] = FI_MSG | FI_RECV,
    [UM_OP_RECV | UM_OP_TAGGED] = FI_TAGGED | FI_RECV,
    [UM_OP_READ] = FI_RMA | FI_READ,
    [UM_OP_WRITE] = FI_RMA | FI_WRITE,
    [UM_OP_REMOTE_WRITE] = FI_RMA | FI_REMOTE_WRITE,
    [UM_OP_ATOMIC | UM_OP_READ] = FI_ATOMIC | FI_READ,
    [UM_OP_ATOMIC | UM_OP_WRITE] = FI_ATOMIC | FI_WRITE,
};

static inline uint64_t um_prov_complete_flags(uint32_t op)
{
    uint64_t flags = um_prov_complete_kinds[op & UM_COMPLETE_KINDS];
    if (op & UM_COMPLETE_MORE) {
        if (op & UM_OP_MULTI_END)
            flags |= FI_MULTI_RECV;
        if (op & UM_OP_DATA && op & (UM_OP_RECV | UM_OP_REMOTE_WRITE))
            flags |= FI_REMOTE_CQ_DATA;
    }
    return flags;
}

static bool um_prov_complete_is_tx(uint32_t op)
{
    return op & (UM_OP_SEND | UM_OP_READ | UM_OP_WRITE);
}

static struct um_prov_cntr *um_prov_complete_cntr(const struct um_prov_ep *ep, uint32_t op)
{
    if (op & UM_OP_SEND)
        return ep->cntr[UM_CNTR_SEND];
    if (op & UM_OP_RECV)
        return ep->cntr[UM_CNTR_RECV];
    if (op & UM_OP_READ)
        return ep->cntr[UM_CNTR_READ];
    return op & UM_OP_WRITE ? ep->cntr[UM_CNTR_WRITE] : NULL;
}

static struct um_prov_cq_entry um_prov_complete_entry(const struct um_core_completion *c, uint64_t flags)
{
    return (struct um_prov_cq_entry){
        .context = c->context,
        .flags = flags,
        .len = c->len,
        .buf = c->buf,
        .data = c->flags & UM_OP_DATA ? c->data : 0,
        .tag = c->tag,
        .source = FI_ADDR_NOTAVAIL,
    };
}

static __attribute__((noinline)) void um_prov_complete_queue(struct um_prov_cq *cq, const struct um_core_completion *c,
                                                             uint64_t flags, fi_addr_t source)
{
    struct um_prov_cq_entry entry = um_prov_complete_entry(c, flags);
    entry.source = source;
    um_prov_cq_unsettle_locked(cq, c->flags);
    um_prov_cq_write_locked(cq, &entry);
}

static inline void um_prov_complete_fill(struct fi_cq_tagged_entry *to, void *context, uint64_t flags, size_t len,
                                         void *buf, uint64_t data, uint64_t tag)
{
    to->op_context = context;
    to->flags = flags;
    to->len = len;
    to->buf = buf;
    to->data = data;
    to->tag = tag;
}

static inline void um_prov_complete_fill_from(struct fi_cq_tagged_entry *to, const struct um_core_completion *c,
                                              uint64_t flags)
{
    um_prov_complete_fill(to, c->context, flags, c->len, c->buf, c->flags & UM_OP_DATA ? c->data : 0, c->tag);
}

/*
 * Writes into the array of a waiting reader, or else into the ring. Field by field: wider copies would stall on store
 * forwarding.
 */
static inline void um_prov_complete_write(struct um_prov_cq *cq, const struct um_core_completion *c, uint64_t flags,
                                          fi_addr_t source)
{
    struct fi_cq_tagged_entry *to = um_prov_cq_direct_locked(cq, source);
    struct um_prov_cq_entry *slot;
    if (__builtin_expect(to != NULL, 1)) {
        um_prov_complete_fill_from(to, c, flags);
        return;
    }
    slot = um_prov_cq_slot_locked(cq);
    if (__builtin_expect(!slot, 0)) {
        um_prov_complete_queue(cq, c, flags, source);
        return;
    }
    um_prov_complete_fill_from((struct fi_cq_tagged_entry *)(void *)slot, c, flags);
    slot->source = source;
    slot->error = NULL;
    um_prov_cq_unsettle_locked(cq, c->flags);
    um_prov_cq_filled_locked(cq);
}

/* Looks up the fi_addr_t of a sender that has none yet, and stores it with the peer. */
static __attribute__((noinline)) fi_addr_t um_prov_complete_find(struct um_prov_ep *ep, struct um_core_peer *peer)
{
    struct um_addr addr;
    um_core_peer_addr(peer, &addr);
    /* A peer may know the name of an endpoint to which no address vector is bound yet. */
    fi_addr_t name = ep->av ? um_prov_av_find_locked(ep->av, &addr) : FI_ADDR_NOTAVAIL;
    if (name != FI_ADDR_NOTAVAIL)
        um_core_peer_set_name(peer, name);
    return name;
}

/* Reports a message from an address that is not in the address vector as an error (FI_SOURCE_ERR). */
static __attribute__((noinline)) void um_prov_complete_stranger(struct um_prov_ep *ep,
                                                                const struct um_core_completion *c, uint64_t flags)
{
    struct um_prov_cq_entry entry = um_prov_complete_entry(c, flags);
    struct um_prov_cq_error error = {.err = FI_EADDRNOTAVAIL, .prov_errno = EADDRNOTAVAIL, .has_addr = true};
    um_core_peer_addr(c->source, &error.addr);
    um_prov_cq_write_error_locked(ep->rx_cq, &entry, &error);
}

static __attribute__((noinline)) void um_prov_complete_failed(struct um_prov_ep *ep, const struct um_core_completion *c)
{
    struct um_prov_cq *cq = um_prov_complete_is_tx(c->flags) ? ep->tx_cq : ep->rx_cq;
    struct um_prov_cntr *cntr = um_prov_complete_cntr(ep, c->flags);
    struct um_prov_cq_entry entry = um_prov_complete_entry(c, um_prov_complete_flags(c->flags));
    const struct um_prov_cq_error error = {
        .olen = c->olen, .err = um_prov_error_to_fi(c->error), .prov_errno = c->error};
    if (cntr)
        um_prov_cntr_fail_locked(cntr);
    if (cq)
        um_prov_cq_write_error_locked(cq, &entry, &error);
}

/* Reports a received message, or data that arrived with an RMA write. */
static __attribute__((noinline)) void
um_prov_complete_received(struct um_prov_ep *ep, const struct um_core_completion *c, struct um_prov_cntr *cntr)
{
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    uint64_t flags = um_prov_complete_flags(c->flags);
    if (cntr)
        um_prov_cntr_count_locked(cntr, c->len);
    if (!ep->rx_cq || (c->flags & UM_OP_NO_EVENT && !(c->flags & UM_OP_MULTI_END)))
        return;
    if (ep->wants_source) {
        source = c->name;
        if (__builtin_expect(source == UM_PEER_UNNAMED, 0))
            source = um_prov_complete_find(ep, c->source);
        if (__builtin_expect(source == FI_ADDR_NOTAVAIL && ep->wants_source_err, 0)) {
            um_prov_complete_stranger(ep, c, flags);
            return;
        }
    }
    um_prov_complete_write(ep->rx_cq, c, flags, source);
}

static __attribute__((noinline)) void um_prov_received_other(struct um_prov_ep *ep, struct um_core_peer *source,
                                                             void *context, uint32_t flags, size_t len, uint64_t tag,
                                                             uint64_t data)
{
    const struct um_core_completion c = {
        .context = context,
        .flags = flags,
        .len = len,
        .tag = tag,
        .data = data,
        .source = source,
        .name = um_core_peer_name(source),
    };
    um_prov_complete_received(ep, &c, ep->cntr[UM_CNTR_RECV]);
}

static inline void um_prov_received_fill(struct fi_cq_tagged_entry *to, void *context, uint32_t flags, size_t len,
                                         uint64_t tag, uint64_t data)
{
    um_prov_complete_fill(
        to, context, um_prov_complete_kinds[flags & UM_COMPLETE_KINDS] | (flags & UM_OP_DATA ? FI_REMOTE_CQ_DATA : 0),
        len, NULL, flags & UM_OP_DATA ? data : 0, tag);
}

/* The usual case comes first: no counter of receives, no wish for sources, and the largest format if a reader waits. */
void um_prov_ep_received(void *arg, struct um_core_peer *source, void *context, uint32_t flags, size_t len,
                         uint64_t tag, uint64_t data)
{
    struct um_prov_ep *ep = arg;
    struct um_prov_cq *cq = ep->rx_cq;
    if (__builtin_expect(!cq || ep->cntr[UM_CNTR_RECV] || ep->wants_source || flags & UM_OP_NO_EVENT, 0)) {
        um_prov_received_other(ep, source, context, flags, len, tag, data);
        return;
    }
    struct fi_cq_tagged_entry *to = um_prov_cq_direct_locked(cq, FI_ADDR_NOTAVAIL);
    if (__builtin_expect(to != NULL, 1)) {
        um_prov_received_fill(to, context, flags, len, tag, data);
        return;
    }
    struct um_prov_cq_entry *slot = um_prov_cq_slot_locked(cq);
    if (__builtin_expect(!slot, 0)) {
        um_prov_received_other(ep, source, context, flags, len, tag, data);
        return;
    }
    um_prov_received_fill((struct fi_cq_tagged_entry *)(void *)slot, context, flags, len, tag, data);
    slot->source = FI_ADDR_NOTAVAIL;
    slot->error = NULL;
    um_prov_cq_filled_locked(cq);
}

/* Reports operations that this side posted: sends, reads, writes, atomics. */
static __attribute__((noinline)) void um_prov_complete_posted(struct um_prov_ep *ep, const struct um_core_completion *c)
{
    struct um_prov_cntr *cntr = um_prov_complete_cntr(ep, c->flags);
    ep->pending--;
    if (__builtin_expect(ep->closing, 0))
        return;
    if (__builtin_expect(c->error != 0, 0)) {
        um_prov_complete_failed(ep, c);
        return;
    }
    if (cntr)
        um_prov_cntr_count_locked(cntr, c->len);
    if (!(c->flags & UM_OP_NO_EVENT) && ep->tx_cq) /* NULL: opened without the capability */
        um_prov_complete_write(ep->tx_cq, c, um_prov_complete_flags(c->flags), FI_ADDR_NOTAVAIL);
}

void um_prov_ep_complete(void *arg, const struct um_core_completion *c)
{
    struct um_prov_ep *ep = arg;
    if (um_prov_complete_is_tx(c->flags))
        um_prov_complete_posted(ep, c);
    else if (__builtin_expect(c->error != 0, 0))
        um_prov_complete_failed(ep, c);
    else if (__builtin_expect(c->source != NULL, 1))
        um_prov_complete_received(ep, c, um_prov_complete_cntr(ep, c->flags));
    else if (ep->rx_cq) /* only the end of a multi-receive buffer */
        um_prov_complete_queue(ep->rx_cq, c, FI_MULTI_RECV, FI_ADDR_NOTAVAIL);
}

/*
 * Peers' writes with data are what fills a queue without a bound of this process's own. So they wait while the queue is
 * very full, whoever makes progress: the progress thread, or a caller that reads another queue. An endpoint that closes
 * waits for none: nobody reads then.
 */
bool um_prov_ep_takes_data(void *arg)
{
    const struct um_prov_ep *ep = arg;
    return !ep->rx_cq || ep->closing || !um_prov_cq_is_full_locked(ep->rx_cq);
}

static __attribute__((noinline)) void um_prov_complete_executed_queue(struct um_prov_cq *cq, uint32_t what, size_t len,
                                                                      void *context)
{
    const struct um_core_completion c = {.context = context, .flags = what, .len = len};
    um_prov_complete_queue(cq, &c, um_prov_complete_flags(what), FI_ADDR_NOTAVAIL);
}

/* As um_prov_complete_write(), without a struct um_core_completion. No reader waits while an operation is posted. */
void um_prov_ep_executed_locked(struct um_prov_ep *ep, uint32_t what, size_t len, void *context)
{
    struct um_prov_cq *cq = ep->tx_cq;
    if (__builtin_expect(!cq, 0))
        return;
    struct um_prov_cq_entry *slot = um_prov_cq_slot_locked(cq);
    if (__builtin_expect(!slot, 0)) {
        um_prov_complete_executed_queue(cq, what, len, context);
        return;
    }
    slot->context = context;
    slot->flags = um_prov_complete_flags(what);
    slot->len = len;
    slot->buf = NULL;
    slot->data = 0;
    slot->tag = 0;
    slot->source = FI_ADDR_NOTAVAIL;
    slot->error = NULL;
    um_prov_cq_unsettle_locked(cq, what);
    um_prov_cq_filled_locked(cq);
}

/* A peek always reports, also with FI_SELECTIVE_COMPLETION, and is not counted. */
void um_prov_ep_peek_done(struct um_prov_ep *ep, const struct um_core_completion *c)
{
    if (c->error) {
        struct um_prov_cq_entry entry = um_prov_complete_entry(c, um_prov_complete_flags(c->flags));
        const struct um_prov_cq_error error = {.err = um_prov_error_to_fi(c->error), .prov_errno = c->error};
        if (ep->rx_cq)
            um_prov_cq_write_error_locked(ep->rx_cq, &entry, &error);
        return;
    }
    struct um_core_completion seen = *c;
    seen.flags &= ~(uint32_t)(UM_OP_NO_EVENT | UM_OP_MULTI_END);
    um_prov_complete_received(ep, &seen, NULL);
}
