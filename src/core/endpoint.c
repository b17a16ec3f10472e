/*
 * Endpoints: opening, flushing, closing, sleeping. Owns: struct um_ep and its port. Threading: core.h.
 */
#include "core/endpoint.h"
#include "core/window.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

/* A flush gives up on peers that take nothing for so long. */
#define UM_FLUSH_NS UINT64_C(5000000000)

int um_core_ep_open(const struct um_ep_config *config, const struct um_protocols *protocols, struct um_ep **ep_p)
{
    struct um_ep *ep = calloc(1, sizeof(*ep));
    if (!ep)
        return -ENOMEM;
    struct um_machine_caps caps;
    ep->config = *config;
    ep->machine = config->machine;
    ep->protocols = protocols;
    ep->machine->caps(&caps);
    ep->body_max = caps.body_max;
    ep->unconsumed_max = caps.unconsumed_max;
    ep->config.port.space = um_regions_space(config->regions);
    ep->calls_counted = 1;
    um_list_init(&ep->awaiting);
    um_list_init(&ep->expected);
    um_list_init(&ep->held);
    um_list_init(&ep->jobs);
    um_peer_gone_init(ep);
    um_pool_init(&ep->ops, sizeof(struct um_op));
    int ret = ep->machine->port_open(&ep->config.port, &ep->port);
    if (ret) {
        free(ep);
        return ret;
    }
    *ep_p = ep;
    return 0;
}

/*
 * How much is accepted and not yet out? Waiting for room alone (starved) is not: nothing was accepted. Nor is an eager
 * message whose delivery is awaited: it lies in the peer's lane and will be taken there without us.
 */
static uint32_t ep_pending(const struct um_ep *ep)
{
    uint32_t pending = !um_list_is_empty(&ep->jobs);
    for (uint32_t i = 0; i < ep->peer_slots; i++) {
        const struct um_peer *peer = ep->peers[i];
        if (peer && !peer->lost)
            pending += peer->tokens.used;
    }
    return pending;
}

void um_core_ep_flush(struct um_ep *ep)
{
    uint64_t last = um_clock_ns();
    uint32_t before = 0;
    uint32_t pending;
    while ((pending = ep_pending(ep)) > 0) {
        /* Only what goes out counts: other peers may send to us for ever. */
        if (um_core_ep_jobs(ep) > 0 || pending != before)
            last = um_clock_ns();
        before = pending;
        if (um_ep_progress(ep) > 0 && um_clock_ns() - last <= UM_FLUSH_NS)
            continue;
        if (um_clock_ns() - last > UM_FLUSH_NS) {
            um_log(UM_LOG_WARN, "closing an endpoint with operations that their peers did not take for 5 s");
            return;
        }
        struct pollfd fd = {.fd = um_ep_wait_fd(ep), .events = POLLIN};
        if (um_ep_arm(ep) == 0) {
            poll(&fd, 1, 50);
            um_ep_disarm(ep);
        }
    }
}

void um_core_ep_close(struct um_ep *ep)
{
    const struct um_machine *m = ep->machine;
    for (uint32_t i = 0; i < ep->peer_slots; i++) {
        struct um_peer *peer = ep->peers[i];
        if (!peer)
            continue;
        if (peer->lane)
            m->lane_close(peer->lane);
        for (uint32_t t = 0; t < peer->tokens.capacity; t++) {
            if (peer->tokens.slot[t].op)
                um_op_free(peer->tokens.slot[t].op);
        }
        struct um_list *first;
        while ((first = um_list_first(&peer->acks)) != NULL)
            um_op_free(UM_CONTAINER(first, struct um_op, link));
        um_windows_close(peer);
        if (peer->link)
            m->link_close(peer->link);
        um_tokens_fini(&peer->tokens);
        free(peer);
    }
    m->port_close(ep->port);
    um_fault_guard_close(ep->guard);
    um_pool_fini(&ep->ops);
    free(ep->peers);
    free(ep->peer_free);
    free(ep->peer_hash);
    free(ep);
}

void um_ep_addr(const struct um_ep *ep, struct um_addr *addr_p)
{
    ep->machine->port_addr(ep->port, addr_p);
}

int um_ep_addr_check(const struct um_ep *ep, const struct um_addr *addr)
{
    return ep->machine->addr_check(ep->port, addr);
}

void um_ep_set_multi_min(struct um_ep *ep, size_t bytes)
{
    ep->config.multi_min = bytes;
}

const struct um_stats *um_ep_stats(const struct um_ep *ep)
{
    return &ep->stats;
}

int um_ep_wait_fd(const struct um_ep *ep)
{
    return ep->machine->wait_fd(ep->port);
}

int um_ep_arm(struct um_ep *ep)
{
    if (!um_list_is_empty(&ep->jobs) && um_core_ep_jobs(ep) > 0)
        return -EAGAIN; /* there is work that no peer will announce; what did not move waits for credit, which wakes */
    if (ep->soon)
        return -EAGAIN;
    return ep->machine->arm(ep->port);
}

void um_ep_disarm(struct um_ep *ep)
{
    ep->machine->disarm(ep->port);
    ep->calls = 0; /* a sleeper makes few calls: the next one looks at the clock */
}

void um_ep_kick(struct um_ep *ep)
{
    ep->machine->kick(ep->port);
}

int um_ep_watch_line(const struct um_ep *ep, const uint64_t **line_p, uint64_t *value_p)
{
    if (!um_list_is_empty(&ep->jobs) || !um_list_is_empty(&ep->awaiting))
        return -EAGAIN;
    return ep->machine->watch_line(ep->port, line_p, value_p);
}

bool um_ep_is_waiting_for_peers(const struct um_ep *ep)
{
    return ep->rx_count > 0 || !um_list_is_empty(&ep->awaiting) || !um_list_is_empty(&ep->expected) ||
           !um_list_is_empty(&ep->leaving);
}

void um_ep_set_counters(struct um_ep *ep, uint32_t counters)
{
    ep->counters = counters;
    ep->machine->port_set_counters(ep->port, counters);
}

void um_core_ep_count(struct um_ep *ep, uint64_t key, unsigned shift)
{
    um_regions_count(ep->config.regions, key, shift);
    if (ep->counters)
        ep->machine->space_count(um_regions_space(ep->config.regions), ep->counters, shift);
}
