/*
 * Endpoints: opening, flushing, closing, sleeping. Owns: struct um_core_ep and its port. Threading: core.h.
 */
#include "core/endpoint.h"
#include "core/window.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    UM_SLEEP_TICK_MS = 200, /* a peer that dies does not wake a sleeper */
    UM_SLEEP_LOOK_MS = 2,   /* on machines that do not wake a sleeper: a look takes 10 us, so 0.5 % of a processor */
    UM_SLEEP_FLUSH_MS = 50,
};

/* A flush gives up on peers that take nothing for this time. */
#define UM_FLUSH_NS UINT64_C(5000000000)

/* Makes one fd for the ports of all machines that wake a sleeper. */
static int wait_set_open(struct um_core_ep *ep)
{
    ep->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; ep->wait_fd >= 0 && i < ep->port_count; i++) {
        struct um_port *port = ep->ports[i].port;
        if (!port->machine->wakes)
            continue;
        struct epoll_event readable = {.events = EPOLLIN};
        if (epoll_ctl(ep->wait_fd, EPOLL_CTL_ADD, port->machine->wait_fd(port), &readable) != 0) {
            close(ep->wait_fd);
            ep->wait_fd = -1;
        }
    }
    if (ep->wait_fd >= 0)
        return 0;
    int error = errno;
    um_log(UM_LOG_WARN, "no descriptor to wait on several machines: %s; raise the limit of open files (ulimit -n)",
           strerror(error));
    return -error;
}

static void ports_close(struct um_core_ep *ep)
{
    if (ep->wait_fd >= 0)
        close(ep->wait_fd);
    while (ep->port_count > 0) {
        struct um_port *port = ep->ports[--ep->port_count].port;
        port->machine->port_close(port);
    }
}

/* Opens the ports of all machines, or none. */
static int ports_open(struct um_core_ep *ep)
{
    const struct um_machines *machines = &ep->config.machines;
    int ret = 0;
    ep->wait_fd = -1;
    for (uint32_t i = 0; ret == 0 && i < machines->count; i++) {
        ep->config.port.space = um_core_regions_space(ep->config.regions, i);
        ep->config.port.alone = machines->count == 1;
        ret = machines->at[i]->port_open(&ep->config.port, &ep->ports[i].port);
        if (ret == 0 && i > 0)
            ep->ports[i].port->left = &ep->left_out; /* polls may skip any port but the first */
        ep->port_count += ret == 0;
    }
    if (ret == 0 && ep->port_count > 1)
        ret = wait_set_open(ep);
    if (ret)
        ports_close(ep);
    return ret;
}

int um_core_ep_open(const struct um_core_ep_config *config, const struct um_core_protocols *protocols,
                    struct um_core_ep **ep_p)
{
    struct um_core_ep *ep = calloc(1, sizeof(*ep) + protocols->ep_size);
    if (!ep)
        return -ENOMEM;
    ep->config = *config;
    ep->protocols = protocols;
    ep->calls_counted = 1;
    ep->unexpected_left = UINT32_MAX;
    um_list_init(&ep->awaiting);
    um_list_init(&ep->expected);
    um_list_init(&ep->held);
    um_list_init(&ep->announcing);
    um_list_init(&ep->jobs);
    um_list_init(&ep->leaving);
    um_list_init(&ep->ended);
    um_pool_init(&ep->ops, sizeof(struct um_core_op));
    int ret = um_core_peer_gone_open(ep);
    if (ret == 0)
        ret = ports_open(ep);
    if (ret) {
        free(ep->gone);
        free(ep);
        return ret;
    }
    *ep_p = ep;
    return 0;
}

/* What a flush waits for, and how far it is. */
struct unsent {
    uint32_t ops;   /* accepted operations that have not ended */
    uint64_t moved; /* bytes of them that have moved, and parts that this side has copied for their receivers */
    bool owes;      /* answers wait for a place */
};

/* Operations that await the progress of the other side and no call of its program: those with a bounded token. */
static uint32_t bounded_used(const struct um_core_tokens *tokens)
{
    return UM_TOKENS - (uint32_t)__builtin_popcountll(tokens->bounded_free);
}

/*
 * Looks what this side has accepted and not sent yet. A peer that only waits for room (starved) does not count: nothing
 * was accepted. Nor does an eager message whose delivery is awaited: it lies in the lane to the peer and needs nothing
 * more from this side. Nor does what peers want of this side, reads above all: they may want more without end. Nor does
 * a message to this endpoint itself that may need a receive: the program closes the endpoint and posts no more.
 */
static struct unsent ep_unsent(struct um_core_ep *ep)
{
    struct unsent u = {.moved = ep->helped};
    struct um_addr addr;
    um_core_ep_addr(ep, &addr);
    const struct um_core_peer *self = um_core_peer_find(ep, &addr);
    for (uint32_t i = 0; i < ep->peer_slots; i++) {
        const struct um_core_peer *peer = ep->peers[i];
        if (!peer || peer->lost)
            continue;
        u.ops += peer == self ? bounded_used(&peer->tokens) : peer->tokens.used;
        for (uint32_t t = 0; t < peer->tokens.capacity; t++)
            u.moved += peer->tokens.slot[t].op ? peer->tokens.slot[t].op->moved : 0;
        for (const struct um_list *l = peer->copies.next; l != &peer->copies; l = l->next)
            u.ops++;
        u.owes = u.owes || ep->protocols->peer_owes(peer);
    }
    return u;
}

void um_core_ep_flush(struct um_core_ep *ep)
{
    uint64_t last = um_clock_ns();
    struct unsent before = {0}, u;
    while ((u = ep_unsent(ep)).ops > 0 || u.owes) {
        if (u.ops != before.ops || u.moved != before.moved)
            last = um_clock_ns();
        before = u;
        if (um_core_ep_progress(ep) > 0 && um_clock_ns() - last <= UM_FLUSH_NS)
            continue;
        if (um_clock_ns() - last > UM_FLUSH_NS) {
            um_log(UM_LOG_WARN, "closing an endpoint with operations that their peers did not take for 5 s");
            return;
        }
        const int most = um_core_ep_sleep_max(ep);
        struct pollfd fd = {.fd = um_core_ep_wait_fd(ep), .events = POLLIN}; /* -1: poll() only waits for the time */
        if (um_core_ep_arm(ep) == 0) {
            poll(&fd, 1, most < 0 || most > UM_SLEEP_FLUSH_MS ? UM_SLEEP_FLUSH_MS : most);
            um_core_ep_disarm(ep);
        }
    }
}

void um_core_ep_close(struct um_core_ep *ep)
{
    for (uint32_t i = 0; i < ep->peer_slots; i++) {
        struct um_core_peer *peer = ep->peers[i];
        if (!peer)
            continue;
        for (uint32_t t = 0; t < peer->tokens.capacity; t++) {
            if (peer->tokens.slot[t].op)
                um_core_op_free(peer->tokens.slot[t].op);
        }
        struct um_list *first;
        while ((first = um_list_first(&peer->acks)) != NULL)
            um_core_op_free(UM_CONTAINER(first, struct um_core_op, link));
        while ((first = um_list_first(&peer->copies)) != NULL)
            um_core_op_free(UM_CONTAINER(first, struct um_core_op, link));
        /* from here on no operation copies into a receive's buffer: the peer relies on that */
        if (peer->lane)
            peer->lane->machine->lane_close(peer->lane);
        um_core_windows_close(peer);
        if (peer->link)
            peer->link->machine->link_close(peer->link);
        um_core_tokens_fini(&peer->tokens);
        free(peer);
    }
    for (uint32_t i = 0; i < ep->port_count; i++)
        free(ep->ports[i].hash);
    ports_close(ep);
    um_fault_guard_close(ep->guard);
    um_pool_fini(&ep->ops);
    free(ep->peers);
    free(ep->peer_free);
    free(ep->gone);
    free(ep);
}

void um_core_ep_addr(const struct um_core_ep *ep, struct um_addr *addr_p)
{
    *addr_p = (struct um_addr){{0}};
    for (uint32_t i = 0; i < ep->port_count; i++)
        ep->ports[i].port->machine->port_addr(ep->ports[i].port, addr_p);
}

void um_core_ep_set_multi_min(struct um_core_ep *ep, size_t bytes)
{
    ep->config.multi_min = bytes;
}

const struct um_core_stats *um_core_ep_stats(const struct um_core_ep *ep)
{
    return &ep->stats;
}

struct um_core_traffic um_core_ep_traffic(const struct um_core_ep *ep)
{
    struct um_core_traffic sum = {0};
    for (uint32_t i = 0; i < ep->port_count; i++) {
        const struct um_core_traffic *t = &ep->stats.traffic[i];
        sum.sent += t->sent;
        sum.received += t->received;
        sum.bytes_sent += t->bytes_sent;
        sum.bytes_received += t->bytes_received;
    }
    return sum;
}

/* Returns the first port whose machine wakes a sleeper, or NULL. */
static struct um_port *port_that_wakes(const struct um_core_ep *ep)
{
    for (uint32_t i = 0; i < ep->port_count; i++) {
        if (ep->ports[i].port->machine->wakes)
            return ep->ports[i].port;
    }
    return NULL;
}

int um_core_ep_wait_fd(const struct um_core_ep *ep)
{
    struct um_port *port = port_that_wakes(ep);
    return ep->wait_fd >= 0 ? ep->wait_fd : port ? port->machine->wait_fd(port) : -1;
}

static void ports_disarm(struct um_core_ep *ep, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ep->ports[i].port->machine->wakes)
            ep->ports[i].port->machine->disarm(ep->ports[i].port);
    }
}

int um_core_ep_arm(struct um_core_ep *ep)
{
    if (um_core_ep_jobs_move(ep))
        return -EAGAIN; /* there is work left that no event announces; other jobs wait for credit, which wakes the
                           sleeper */
    if (ep->soon)
        return -EAGAIN;
    for (uint32_t i = 0; i < ep->port_count; i++) {
        struct um_port *port = ep->ports[i].port;
        int ret = port->machine->wakes ? port->machine->arm(port) : 0;
        if (ret) {
            ports_disarm(ep, i);
            return ret;
        }
    }
    return 0;
}

void um_core_ep_disarm(struct um_core_ep *ep)
{
    ports_disarm(ep, ep->port_count);
    ep->calls = 0; /* a sleeper makes few calls: the next one reads the clock */
}

void um_core_ep_kick(struct um_core_ep *ep)
{
    struct um_port *port = port_that_wakes(ep);
    if (port)
        port->machine->kick(port);
}

int um_core_ep_watch_line(const struct um_core_ep *ep, const uint64_t **line_p, uint64_t *value_p)
{
    if (!um_list_is_empty(&ep->jobs) || !um_list_is_empty(&ep->awaiting) || ep->port_count > 1)
        return -EAGAIN;
    return ep->ports[0].port->machine->watch_line(ep->ports[0].port, line_p, value_p);
}

int um_core_ep_sleep_max(const struct um_core_ep *ep)
{
    for (uint32_t i = 0; i < ep->port_count; i++) {
        if (!ep->ports[i].port->machine->wakes)
            return UM_SLEEP_LOOK_MS;
    }
    return ep->rx_count > 0 || !um_list_is_empty(&ep->awaiting) || !um_list_is_empty(&ep->expected) ||
                   !um_list_is_empty(&ep->leaving)
               ? UM_SLEEP_TICK_MS
               : -1;
}

void um_core_ep_set_counters(struct um_core_ep *ep, uint32_t counters)
{
    ep->counters = counters;
    for (uint32_t i = 0; i < ep->port_count; i++)
        ep->ports[i].port->machine->port_set_counters(ep->ports[i].port, counters);
}

void um_core_ep_count(struct um_core_ep *ep, uint64_t key, unsigned shift)
{
    um_core_regions_count(ep->config.regions, key, shift);
    if (ep->counters)
        um_core_regions_count_any(ep->config.regions, ep->counters, shift);
}
