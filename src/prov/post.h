/*
 * Posting an operation: what msg.c, tagged.c, rma.c, atomic.c and atomic_post.c share: the checks of flags and sizes,
 * the fence, the count of pending operations, what is done after a refusal. Inline: these are the hot paths.
 *
 * Owns nothing. Threading: um_prov_post_send, um_prov_post_inject, um_prov_post_recv and um_prov_post_peek take the
 * domain lock. The callers of those named *_locked, of um_prov_post_is_fenced_off and of um_prov_post_source hold it.
 * The others need no lock.
 */
#ifndef UM_PROV_POST_H
#define UM_PROV_POST_H

#include "prov/prov.h"

#include "base/iov.h"

static inline struct um_prov_ep *um_prov_post_ep(struct fid_ep *fid)
{
    return UM_CONTAINER(fid, struct um_prov_ep, fid);
}

/* A fenced operation is refused (-EAGAIN) until all operations before it have completed. */
static inline bool um_prov_post_is_fenced_off(const struct um_prov_ep *ep, uint64_t fi_flags)
{
    return __builtin_expect(fi_flags & FI_FENCE, 0) && ep->pending;
}

/* Counts a one-sided operation that was executed at once. */
static inline void um_prov_post_executed_locked(struct um_prov_ep *ep, uint32_t what, size_t len)
{
    struct um_prov_cntr *cntr = ep->cntr[what & UM_OP_READ ? UM_CNTR_READ : UM_CNTR_WRITE];
    um_prov_cq_stop_lingering(ep->tx_cq);
    if (cntr)
        um_prov_cntr_count_locked(cntr, len);
}

/*
 * Finishes posting a one-sided operation that was not executed at once: it was accepted (started is 0) or refused.
 * Returns the result of the posting function.
 */
int um_prov_post_started_locked(struct um_prov_ep *ep, int started);

/*
 * The flags that calls take: fi_msg(3), fi_tagged(3), fi_rma(3), fi_atomic(3). FI_MORE, FI_PRIORITY and FI_AFFINITY are
 * hints and change nothing.
 */
#define UM_HINT_FLAGS (FI_MORE | FI_PRIORITY | FI_AFFINITY)
#define UM_RMA_FLAGS                                                                                                   \
    (UM_HINT_FLAGS | FI_COMPLETION | FI_INJECT | FI_REMOTE_CQ_DATA | FI_FENCE | FI_INJECT_COMPLETE |                   \
     FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)
#define UM_SEND_FLAGS (UM_RMA_FLAGS | FI_MATCH_COMPLETE)
/* The completion levels of a receive are all the same. */
#define UM_RECV_FLAGS                                                                                                  \
    (UM_HINT_FLAGS | FI_COMPLETION | FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD | FI_INJECT_COMPLETE |            \
     FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)

/* 0; -FI_EOPNOTSUPP: a completion level that is not supported; -FI_EBADFLAGS: a flag that this call does not have. */
static inline int um_prov_post_check_flags(uint64_t fi_flags, uint64_t known)
{
    if (__builtin_expect(!(fi_flags & ~known), 1))
        return 0;
    return fi_flags & ~known & ~(FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE) ? -FI_EBADFLAGS : -FI_EOPNOTSUPP;
}

/* The same for receives. -FI_EINVAL: FI_DISCARD alone, which would drop any message; a buffer for many messages that is
 * to take the one that was claimed. */
static inline int um_prov_post_check_recv(uint64_t fi_flags, uint64_t known)
{
    if (__builtin_expect((fi_flags & (FI_DISCARD | FI_MULTI_RECV)) != 0, 0)) {
        const bool drops_any = fi_flags & FI_DISCARD && !(fi_flags & (FI_PEEK | FI_CLAIM));
        if (drops_any || (fi_flags & FI_CLAIM && fi_flags & FI_MULTI_RECV))
            return -FI_EINVAL;
    }
    return um_prov_post_check_flags(fi_flags, known);
}

/* 0; -FI_EINVAL: too many pieces, or too large to inject; the errors of um_prov_post_check_flags(). */
static inline int um_prov_post_check_size(const struct um_prov_ep *ep, size_t count, size_t len, uint64_t fi_flags,
                                          uint64_t known)
{
    if (__builtin_expect(count > ep->domain->limits.iov_max, 0))
        return -FI_EINVAL;
    if (__builtin_expect(fi_flags & FI_INJECT && len > ep->domain->limits.inject_max, 0))
        return -FI_EINVAL;
    return um_prov_post_check_flags(fi_flags, known);
}

static inline int um_prov_post_check(const struct um_prov_ep *ep, const struct iovec *iov, size_t count,
                                     uint64_t fi_flags, uint64_t known)
{
    return um_prov_post_check_size(ep, count, fi_flags & FI_INJECT ? um_iov_length(iov, count) : 0, fi_flags, known);
}

static inline ssize_t um_prov_post_send(struct um_prov_ep *ep, struct um_proto_msg *msg, fi_addr_t dest,
                                        uint64_t fi_flags)
{
    if (__builtin_expect(!ep->tx_cq, 0))
        return -FI_EOPNOTSUPP; /* the endpoint was opened without FI_SEND */
    um_prov_domain_lock(&ep->domain->lock);
    int ret = um_prov_ep_peer(ep, dest, &msg->peer);
    if (ret == 0) {
        const bool waits = um_prov_post_is_fenced_off(ep, fi_flags);
        ep->pending++; /* beforehand: the completion may come before um_proto_send() returns */
        int sent = waits ? -EAGAIN : um_proto_send(ep->core, msg);
        if (__builtin_expect(sent == 0, 1)) {
            um_prov_ep_touch_locked(ep);
        } else {
            ep->pending--;
            ret = um_prov_ep_refused(ep, sent);
        }
    }
    um_prov_domain_unlock(&ep->domain->lock);
    return ret;
}

/* Posts an inject after um_prov_domain_enter(), whatever that returned. */
ssize_t um_prov_post_inject_other(struct um_prov_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
                                  uint64_t tag, uint32_t flags);
/*
 * Finishes an inject, under the domain lock. sent is the result of um_proto_inject(). A message that was sent has no
 * completion, so its counter counts now.
 */
ssize_t um_prov_post_inject_done_locked(struct um_prov_ep *ep, size_t len, int sent);
/*
 * Posts an inject. Inline if nothing is in the way (um_prov_domain_enter()) and the peer was used before, with
 * um_prov_post_inject_done_locked() if a counter is bound; else um_prov_post_inject_other() does it.
 */
static inline ssize_t um_prov_post_inject(struct um_prov_ep *ep, const void *buf, size_t len, uint64_t data,
                                          fi_addr_t dest, uint64_t tag, uint32_t flags)
{
    struct um_prov_domain *d = ep->domain;
    struct um_core_peer *peer;
    if (__builtin_expect(!um_prov_domain_enter(&d->lock) || dest >= ep->peers_room || !(peer = ep->peers[dest]) ||
                             len > d->limits.inject_max,
                         0))
        return um_prov_post_inject_other(ep, buf, len, data, dest, tag, flags);
    ssize_t ret = um_proto_inject(ep->core, peer, buf, len, tag, data, flags);
    if (__builtin_expect(ret || ep->armed || ep->cntr[UM_CNTR_SEND], 0))
        ret = um_prov_post_inject_done_locked(ep, len, (int)ret);
    um_prov_domain_leave(&d->lock);
    return ret;
}

/* Finds the source of a receive. *peer_p: a peer, or NULL for any. */
static inline int um_prov_post_source(struct um_prov_ep *ep, bool directed, fi_addr_t source,
                                      struct um_core_peer **peer_p)
{
    *peer_p = NULL;
    if (directed && source != FI_ADDR_UNSPEC)
        return um_prov_ep_peer(ep, source, peer_p);
    return __builtin_expect(ep->enabled, 1) ? 0 : -FI_EOPBADSTATE;
}

static inline ssize_t um_prov_post_recv(struct um_prov_ep *ep, struct um_proto_msg *msg, bool directed,
                                        fi_addr_t source)
{
    if (__builtin_expect(msg->count > ep->domain->limits.iov_max, 0))
        return -FI_EINVAL;
    um_prov_domain_lock(&ep->domain->lock);
    int ret = um_prov_post_source(ep, directed, source, &msg->peer);
    if (ret == 0)
        ret = um_prov_error_result(um_proto_recv(ep->core, msg));
    um_prov_ep_touch_locked(ep);
    um_prov_domain_unlock(&ep->domain->lock);
    return ret;
}

/* Posts a receive after um_prov_domain_enter(), whatever that returned. */
ssize_t um_prov_post_recv_other(struct um_prov_ep *ep, void *buf, size_t len, uint64_t tag, uint64_t ignore,
                                void *context, uint32_t flags, bool directed, fi_addr_t source);
/* Finishes a receive, under the domain lock. ret is the result of um_proto_recv_one(). */
ssize_t um_prov_post_recv_done_locked(struct um_prov_ep *ep, int ret);
/*
 * Posts a receive of one buffer, for a call that takes no flags. Inline if nothing is in the way and the receive is
 * from any source or from a peer that was used before.
 */
static inline ssize_t um_prov_post_recv_one(struct um_prov_ep *ep, void *buf, size_t len, uint64_t tag, uint64_t ignore,
                                            void *context, uint32_t flags, bool directed, fi_addr_t source)
{
    const bool any = !directed || source == FI_ADDR_UNSPEC;
    struct um_prov_domain_mutex *g = &ep->domain->lock;
    struct um_core_peer *peer = NULL;
    if (__builtin_expect(!um_prov_domain_enter(g) ||
                             (any ? !ep->enabled : source >= ep->peers_room || !(peer = ep->peers[source])),
                         0))
        return um_prov_post_recv_other(ep, buf, len, tag, ignore, context, flags, directed, source);
    ssize_t ret = um_proto_recv_one(ep->core, peer, buf, len, tag, ignore, context, flags);
    if (__builtin_expect(ret || ep->armed, 0))
        ret = um_prov_post_recv_done_locked(ep, (int)ret);
    um_prov_domain_leave(g);
    return ret;
}

/* Executes FI_PEEK with the call's other flags. The result goes to the completion queue. */
ssize_t um_prov_post_peek(struct um_prov_ep *ep, struct um_proto_msg *msg, bool directed, fi_addr_t source);

/* Returns the um_core_op_flag of a receive that was posted with fi_flags. */
static inline uint32_t um_prov_post_recv_flags(const struct um_prov_ep *ep, uint64_t fi_flags)
{
    uint32_t flags = 0;
    if (ep->rx_selective && !(fi_flags & FI_COMPLETION))
        flags |= UM_OP_NO_EVENT;
    if (fi_flags & FI_CLAIM)
        flags |= UM_OP_CLAIM;
    if (fi_flags & FI_DISCARD)
        flags |= UM_OP_DISCARD;
    return flags;
}

#endif
