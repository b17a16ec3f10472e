/*
 * Posting an operation: the slow parts of post.h.
 *
 * Owns nothing. Threading: as each function says.
 */
#include "prov/post.h"

/*
 * Under the domain lock. -FI_EAGAIN means "make progress"; many callers only call again, so some progress is made here.
 * Sleepers are woken only if there is something for them: a caller that repeats its call until it is accepted would
 * wake the progress thread each time, and the two would take the processor from the peer that has to make room.
 */
int um_prov_ep_refused(struct um_prov_ep *ep, int ret)
{
    const bool has_moved = ret != -EAGAIN || um_core_ep_progress(ep->core) > 0;
    if (has_moved || (ep->armed && um_core_ep_sleep_max(ep->core) != ep->sleep_max))
        um_prov_ep_touch_locked(ep);
    return um_prov_error_result(ret);
}

/*
 * An operation that was executed at once does not come here: it changes nothing that a sleeper waits for, so it wakes
 * none. With automatic progress, every put would otherwise wake the progress thread.
 */
int um_prov_post_started_locked(struct um_prov_ep *ep, int started)
{
    um_prov_cq_stop_lingering(ep->tx_cq);
    if (started)
        return um_prov_ep_refused(ep, started);
    ep->pending++; /* its completion undoes this, or has done so already if the call found an error */
    um_prov_ep_touch_locked(ep);
    return 0;
}

ssize_t um_prov_post_inject_done_locked(struct um_prov_ep *ep, size_t len, int sent)
{
    if (__builtin_expect(sent < 0, 0))
        return um_prov_ep_refused(ep, sent);
    if (__builtin_expect(sent > 0, 0))
        ep->pending++; /* its completion undoes this */
    else if (ep->cntr[UM_CNTR_SEND])
        um_prov_cntr_count_locked(ep->cntr[UM_CNTR_SEND], len);
    um_prov_ep_touch_locked(ep);
    return 0;
}

ssize_t um_prov_post_inject_other(struct um_prov_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
                                  uint64_t tag, uint32_t flags)
{
    struct um_core_peer *peer;
    um_prov_domain_lock(&ep->domain->lock);
    ssize_t ret = len > ep->domain->limits.inject_max ? -FI_EINVAL : um_prov_ep_peer(ep, dest, &peer);
    if (ret == 0)
        ret = um_prov_post_inject_done_locked(ep, len, um_proto_inject(ep->core, peer, buf, len, tag, data, flags));
    um_prov_domain_unlock(&ep->domain->lock);
    return ret;
}

ssize_t um_prov_post_recv_other(struct um_prov_ep *ep, void *buf, size_t len, uint64_t tag, uint64_t ignore,
                                void *context, uint32_t flags, bool directed, fi_addr_t source)
{
    const struct iovec iov = {.iov_base = buf, .iov_len = len};
    struct um_proto_msg msg = {
        .iov = &iov, .count = 1, .tag = tag, .ignore = ignore, .context = context, .flags = flags};
    return um_prov_post_recv(ep, &msg, directed, source);
}

ssize_t um_prov_post_recv_done_locked(struct um_prov_ep *ep, int ret)
{
    um_prov_ep_touch_locked(ep);
    return um_prov_error_result(ret);
}

static int um_prov_post_peek_locked(struct um_prov_ep *ep, const struct um_proto_msg *msg)
{
    struct um_core_completion found = {0};
    int ret = um_proto_peek(ep->core, msg, &found);
    /*
     * No progress here: the read of the answer makes it (um_prov_cq_drain). MPICH searches its own queues (a message to
     * self), then peeks. A peek that made progress would put messages of other sources before one that was already
     * there.
     */
    if (ret && ret != -ENOMSG)
        return ret;
    if (ret == -ENOMSG)
        found = (struct um_core_completion){.error = ENOMSG, .tag = msg->tag};
    found.context = msg->context;
    found.flags |= UM_OP_RECV | (msg->flags & UM_OP_TAGGED);
    um_prov_ep_peek_done(ep, &found);
    return 0;
}

ssize_t um_prov_post_peek(struct um_prov_ep *ep, struct um_proto_msg *msg, bool directed, fi_addr_t source)
{
    um_prov_domain_lock(&ep->domain->lock);
    int ret = um_prov_post_source(ep, directed, source, &msg->peer);
    if (ret == 0)
        ret = um_prov_error_result(um_prov_post_peek_locked(ep, msg));
    um_prov_ep_touch_locked(ep);
    um_prov_domain_unlock(&ep->domain->lock);
    return ret;
}
