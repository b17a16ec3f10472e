/* Ports and links. net.h. */
#include "machine/net/net.h"

#include "machine/net/config.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long a port that closes waits: until its peers have what it sent; until they know that it ends. */
#define FLUSH_NS   UINT64_C(5000000000)
#define GOODBYE_NS UINT64_C(1000000000)

enum { MEMORY_MAX = 64 << 20 };

/* ---- ports ---- */

static int port_begin(struct um_net_port *port, const struct um_port_config *config)
{
    if (um_net_is_wanted(config->alone)) {
        int ret = um_net_inner_open(&port->inner, config->wait_none);
        if (ret)
            return ret;
        port->is_open = true;
        ret = um_net_inner_name(&port->inner, &port->name);
        if (ret)
            return ret;
        port->name.nonce = (uint32_t)(um_net_secret() >> 32) | 1;
    }
    int ret = um_net_wait_init(port);
    if (ret)
        um_log(UM_LOG_WARN,
               "an endpoint of the machine net cannot sleep: %s; raise the limit of open files (ulimit -n)",
               strerror(-ret));
    return ret;
}

int um_net_port_open(const struct um_machine *machine, const struct um_port_config *config, struct um_port **port_p)
{
    UM_UNCANCELLED;
    const uint64_t memory_max = config->memory_max ? config->memory_max : MEMORY_MAX;
    struct um_net_port *port = calloc(1, sizeof(*port));
    if (!port)
        return -ENOMEM;
    port->base.machine = machine;
    port->rx_max = config->lanes_max ? config->lanes_max : UM_NET_LANES_MAX;
    const uint64_t windows_max = memory_max / (UM_NET_KEPT_MAX / UM_NET_WINDOW);
    port->windows_max = windows_max < UINT32_MAX ? (uint32_t)windows_max : UINT32_MAX;
    um_list_init(&port->work);
    um_list_init(&port->ready);
    um_list_init(&port->lazy);
    um_list_init(&port->fallen);
    um_list_init(&port->strangers);
    um_list_init(&port->open);
    um_list_init(&port->bodies.reads);
    port->bodies.is_off = !config->private_copy;
    int ret = port_begin(port, config);
    if (ret) {
        if (port->is_open)
            um_net_inner_close(&port->inner);
        free(port);
        return ret;
    }
    port->ticked_at = port->heard_at = um_clock_coarse_ns();
    um_net_port_enter(port);
    *port_p = &port->base;
    return 0;
}

void um_net_port_addr(const struct um_port *base, struct um_addr *addr_p)
{
    const struct um_net_port *port = (const struct um_net_port *)base;
    if (port->is_open)
        um_net_addr_set(port, addr_p);
}

/* Returns what to wait for: 0: nothing; 1: that the peer learns of the end; 2: that it gets what was sent. A peer in
 * this process is not waited for: its thread may be this one. */
static int lane_flush_state(const struct um_net_lane *lane)
{
    if (lane->peer->gone || lane->ended || lane->peer->is_here || lane->state != UM_NET_OPEN)
        return 0;
    return lane->committed != lane->consumed ? 2 : 1;
}

static int flush_state(const struct um_net_port *port)
{
    int state = port->inner.sending > 0 || !um_list_is_empty(&port->work) ? 2 : 0;
    for (uint32_t i = 0; i < port->lanes.end && state < 2; i++) {
        const struct um_net_lane *lane = port->lanes.at[i];
        const int own = lane && lane->closed ? lane_flush_state(lane) : 0;
        state = own > state ? own : state;
    }
    return state;
}

static void port_flush(struct um_net_port *port)
{
    UM_UNCANCELLED;
    const struct timespec pause = {.tv_nsec = 50000};
    const uint64_t start = um_clock_ns();
    int state;
    um_net_drive(port);
    while ((state = flush_state(port)) > 0) {
        const uint64_t now = um_clock_ns();
        if (now - start > (state == 1 ? GOODBYE_NS : FLUSH_NS))
            return;
        if (now - port->ticked_at > GOODBYE_NS / 4)
            um_net_probe(port, um_clock_coarse_ns());
        if (!um_net_drive(port))
            nanosleep(&pause, NULL);
    }
}

/* Ends all rx: each sends the answers that were given, then ENDED. */
static void port_end_rxs(struct um_net_port *port)
{
    um_net_credit_due(port);
    for (uint32_t i = 0; i < port->rxs.end; i++) {
        struct um_net_rx *rx = port->rxs.at[i];
        if (!rx)
            continue;
        rx->left_told = false;
        um_net_rx_fail(rx, 0);
    }
}

void um_net_port_close(struct um_port *base)
{
    UM_UNCANCELLED;
    struct um_net_port *port = (struct um_net_port *)base;
    if (port->is_open) {
        port_end_rxs(port);
        port_flush(port);
        um_net_bodies_stop(port);
        for (uint32_t i = port->lanes.end; i-- > 0;) {
            if (i < port->lanes.end && port->lanes.at[i])
                um_net_lane_free(port->lanes.at[i]);
        }
        for (uint32_t i = port->rxs.end; i-- > 0;) {
            if (i < port->rxs.end && port->rxs.at[i])
                um_net_rx_free(port->rxs.at[i]);
        }
    }
    um_net_port_leave(port);
    um_net_peers_end(port);
    um_net_wait_fini(port);
    if (port->is_open)
        um_net_inner_close(&port->inner);
    um_net_slots_end(&port->lanes);
    um_net_slots_end(&port->rxs);
    free(port);
}

/* ---- links ---- */

int um_net_link_open(struct um_port *base, const struct um_addr *addr, struct um_link **link_p)
{
    struct um_net_port *port = (struct um_net_port *)base;
    int ret = um_net_addr_check(base, addr, true);
    if (ret)
        return ret;
    struct um_net_link *link = calloc(1, sizeof(*link));
    if (!link)
        return -ENOMEM;
    ret = um_net_peer_get(port, addr, &link->peer);
    if (ret) {
        free(link);
        return ret;
    }
    um_net_peer_admit(port, link->peer);
    link->port = port;
    link->base.machine = base->machine;
    *link_p = &link->base;
    return 0;
}

void um_net_link_close(struct um_link *base)
{
    struct um_net_link *link = (struct um_net_link *)base;
    if (link->opening)
        um_net_lane_close(&link->opening->base);
    um_net_peer_put(link->port, link->peer);
    free(link);
}

/* True if tick() sends it PROBEs: there is a lane to it that has not ended, or an rx. */
static bool is_probed(const struct um_net_peer *peer)
{
    for (const struct um_list *l = peer->lanes.next; l != &peer->lanes; l = l->next) {
        if (!UM_CONTAINER(l, const struct um_net_lane, of_peer)->ended)
            return true;
    }
    return !um_list_is_empty(&peer->rxs);
}

/* A peer that is not sent PROBEs is checked here. */
bool um_net_link_alive(struct um_link *base)
{
    UM_UNCANCELLED;
    struct um_net_link *link = (struct um_net_link *)base;
    if (!is_probed(link->peer))
        um_net_peer_doubt(link->port, link->peer);
    return !link->peer->gone;
}

void um_net_tick(struct um_port *base)
{
    UM_UNCANCELLED;
    struct um_net_port *port = (struct um_net_port *)base;
    if (!port->is_open)
        return;
    um_net_drive_all(port); /* first: the peer sends again what a PROBE does not report as received */
    um_net_probe(port, um_clock_coarse_ns());
    if (port->inner.is_tcp)
        (void)um_net_descriptors_look(port);
}
