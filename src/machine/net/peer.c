/*
 * Peers: one object for all links, lanes and rx of an address. net.h.
 *
 * Owns: struct um_net_peer, the tables of them, and the process's list of ports, by which a port knows that a peer is
 * a port of its own process. Threading: as the port's calls; the list has a lock.
 */
#include "machine/net/net.h"

#include "machine/net/config.h"

#include "machine/address.h"

#include "base/clock.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FAILING_NS UINT64_C(10000000000)
#define STRANGE_NS UINT64_C(130000000000) /* Linux gives up an attempt to connect after 127 s */
#define SILENT_MIN UINT64_C(1000000000)
#define SILENT_MAX UINT64_C(10000000000)

enum { STALL_NS = 10000000, SILENCE_NS = 50000000, RETRY_NS = 2000000 };

/* ---- the ports of this process ---- */

static pthread_mutex_t ports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct um_list ports = {&ports, &ports};

/* In a forked child: the ports are the parent's, and another thread of the parent may have held the lock. */
static void ports_forget(void)
{
    ports_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    um_list_init(&ports);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, ports_forget);
}

void um_net_port_enter(struct um_net_port *port)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&ports_lock);
    um_list_append(&ports, &port->open);
    pthread_mutex_unlock(&ports_lock);
}

void um_net_port_leave(struct um_net_port *port)
{
    pthread_mutex_lock(&ports_lock);
    um_list_unlink(&port->open);
    pthread_mutex_unlock(&ports_lock);
}

static bool is_here(uint32_t nonce)
{
    bool is = false;
    pthread_mutex_lock(&ports_lock);
    for (const struct um_list *l = ports.next; l != &ports && !is; l = l->next)
        is = UM_CONTAINER(l, struct um_net_port, open)->name.nonce == nonce;
    pthread_mutex_unlock(&ports_lock);
    return is;
}

/* ---- peers ---- */

static struct um_net_peer **bucket_of(struct um_net_port *port, const struct um_addr *addr)
{
    return &port->peers[um_addr_part_hash(port->base.machine, addr) % UM_NET_BUCKETS];
}

static int peer_new(struct um_net_port *port, const struct um_addr *addr, struct um_net_peer **peer_p)
{
    const struct um_net_addr_wire part = um_net_addr_part(addr);
    struct um_net_peer *peer = calloc(1, sizeof(*peer));
    if (!peer)
        return -ENOMEM;
    int ret = um_net_inner_insert(&port->inner, &part, &peer->at);
    if (ret) {
        free(peer);
        return ret;
    }
    um_addr_part(port->base.machine, addr, &peer->addr);
    peer->nonce = part.nonce;
    peer->is_here = is_here(part.nonce);
    peer->heard_at = um_clock_coarse_ns();
    peer->knock.port.fd = peer->knock.host.fd = -1;
    um_list_init(&peer->fallen);
    um_list_init(&peer->stranger);
    um_list_init(&peer->lanes);
    um_list_init(&peer->rxs);
    *peer_p = peer;
    return 0;
}

int um_net_peer_get(struct um_net_port *port, const struct um_addr *addr, struct um_net_peer **peer_p)
{
    struct um_net_peer **head = bucket_of(port, addr), *peer = *head;
    while (peer && !um_addr_part_is_same(port->base.machine, &peer->addr, addr))
        peer = peer->next;
    if (!peer) {
        int ret = peer_new(port, addr, &peer);
        if (ret)
            return ret;
        peer->next = *head;
        *head = peer;
    }
    peer->refs++;
    *peer_p = peer;
    return 0;
}

void um_net_peer_forget_from(struct um_net_port *port, struct um_net_peer *peer)
{
    if (peer->from.serial && peer->from.serial == port->bodies.serial && port->bodies.rma)
        um_net_rma_remove(port->bodies.rma, peer->from.at);
    peer->from.serial = 0;
}

static void peer_free(struct um_net_port *port, struct um_net_peer *peer)
{
    struct um_net_peer **at = bucket_of(port, &peer->addr);
    while (*at != peer) /* NOLINT(clang-analyzer-core.NullDereference): the peer is in its bucket */
        at = &(*at)->next;
    *at = peer->next;
    um_list_unlink(&peer->fallen);
    um_list_unlink(&peer->stranger);
    um_net_knock_end(&peer->knock);
    um_net_peer_forget_from(port, peer);
    um_net_inner_remove(&port->inner, peer->at);
    free(peer);
}

void um_net_peer_put(struct um_net_port *port, struct um_net_peer *peer)
{
    if (--peer->refs == 0)
        peer_free(port, peer);
}

bool um_net_peer_claim_answer(struct um_net_port *port, struct um_net_peer *peer)
{
    const uint64_t now = um_clock_coarse_ns();
    struct um_net_peer *oldest = UM_CONTAINER(port->strangers.next, struct um_net_peer, stranger);
    if (peer->refs > 1)
        return true;
    if (port->stranger_count >= UM_NET_STRANGERS_MAX && now - oldest->strange_since < STRANGE_NS)
        return false;
    if (port->stranger_count >= UM_NET_STRANGERS_MAX)
        um_net_peer_admit(port, oldest);
    peer->refs++;
    peer->strange_since = now;
    um_list_append(&port->strangers, &peer->stranger);
    port->stranger_count++;
    return true;
}

void um_net_peer_admit(struct um_net_port *port, struct um_net_peer *peer)
{
    if (um_list_is_empty(&peer->stranger))
        return;
    um_list_unlink(&peer->stranger);
    port->stranger_count--;
    um_net_peer_put(port, peer);
}

void um_net_peers_end(struct um_net_port *port)
{
    for (uint32_t i = 0; i < UM_NET_BUCKETS; i++) {
        while (port->peers[i])
            peer_free(port, port->peers[i]);
    }
}

/* ---- is it there? ---- */

void um_net_peer_fall(struct um_net_port *port, struct um_net_peer *peer, int error)
{
    if (peer->gone)
        return;
    peer->gone = true;
    peer->error = error == EPROTO || error == ECONNREFUSED ? error : ECONNRESET; /* libfabric has numbers of its own */
    peer->cuts = 0;
    um_net_knock_end(&peer->knock);
    um_list_append(&port->fallen, &peer->fallen);
}

void um_net_peer_revive(struct um_net_peer *peer)
{
    if (!peer->gone || !um_list_is_empty(&peer->fallen))
        return;
    peer->gone = peer->is_broken = false;
    peer->error = 0;
    um_net_peer_heard(peer);
    um_net_peer_took(peer);
}

/* Over tcp the kernel of the peer's host is asked whether the port still listens: at the first failure at once, not
 * after the pause from earlier answers. */
void um_net_peer_failed(struct um_net_port *port, struct um_net_peer *peer, int error)
{
    const uint64_t now = um_clock_coarse_ns();
    if (!peer->failed_since || now - peer->failed_at > FAILING_NS)
        peer->failed_since = now;
    peer->failed_at = now;
    if (!port->inner.is_tcp || now - peer->failed_since > FAILING_NS) {
        um_net_peer_fall(port, peer, error);
        return;
    }
    if (!peer->is_broken)
        peer->knock.at = 0;
    peer->is_broken = true;
    um_net_peer_took_not(port, peer);
    peer->retry_at = now + RETRY_NS;
    um_net_peer_doubt(port, peer);
}

bool um_net_peer_may_try(struct um_net_peer *peer)
{
    return !peer->gone && (!peer->retry_at || um_clock_coarse_ns() >= peer->retry_at);
}

void um_net_peer_took(struct um_net_peer *peer)
{
    if (!peer->again_since)
        return;
    peer->again_since = peer->retry_at = 0;
    peer->knock.pause = peer->knock.at = 0; /* the next silence starts afresh */
}

static bool is_loopback(const struct um_net_addr_wire *name)
{
    struct sockaddr_storage at = {0};
    const struct sockaddr_in *in = (const struct sockaddr_in *)&at;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&at;
    memcpy(&at, name->name, sizeof(name->name));
    if (name->format == FI_SOCKADDR_IN)
        return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return name->format == FI_SOCKADDR_IN6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/* True if a lane to the peer is asked for, and none was granted. A stranger's invention has no lane. */
static bool is_sought(const struct um_net_peer *peer)
{
    for (const struct um_list *l = peer->lanes.next; l != &peer->lanes; l = l->next) {
        if (UM_CONTAINER(l, struct um_net_lane, of_peer)->state == UM_NET_OPEN)
            return false;
    }
    return !um_list_is_empty(&peer->lanes);
}

void um_net_peer_not_found(const struct um_net_peer *peer)
{
    static struct um_log_limit limit;
    const struct um_net_addr_wire name = um_net_addr_part(&peer->addr);
    char at[UM_NET_NAME_TEXT];
    if (!is_loopback(&name) || !is_sought(peer))
        return;
    um_net_name_text(&name, at);
    um_log_limited(&limit, UM_LOG_WARN,
                   "the machine net: a peer is not found at its address, %s. If it is on another host, let it take an "
                   "address that reaches this one: FI_UNIMEM_NET_ADDRESS, FI_TCP_IFACE",
                   at);
}

/* The peer is tried at each call for STALL_NS, then each RETRY_NS; after SILENCE_NS its TCP port is asked, too. */
void um_net_peer_took_not(struct um_net_port *port, struct um_net_peer *peer)
{
    const uint64_t now = um_clock_coarse_ns();
    if (!peer->again_since)
        peer->again_since = now;
    if (peer->is_here && !is_here(peer->nonce))
        um_net_peer_fall(port, peer, ECONNREFUSED);
    if (now - peer->again_since > STALL_NS)
        peer->retry_at = now + RETRY_NS;
    if (now - peer->again_since > SILENCE_NS)
        um_net_peer_doubt(port, peer);
}

void um_net_peer_heard(struct um_net_peer *peer)
{
    peer->heard_at = um_clock_coarse_ns();
    peer->failed_since = 0;
    um_net_knock_forget(&peer->knock);
}

/* The limit is a sixth of the time-out, from SILENT_MIN to SILENT_MAX; without a time-out SILENT_MAX. */
bool um_net_is_silent(uint64_t heard_at, uint64_t now)
{
    const uint64_t timeout = um_net_chosen_timeout_ns(), part = timeout / 6;
    const uint64_t most = !timeout || part > SILENT_MAX ? SILENT_MAX : part < SILENT_MIN ? SILENT_MIN : part;
    return now - heard_at > most;
}

void um_net_peer_doubt(struct um_net_port *port, struct um_net_peer *peer)
{
    if (peer->gone || !port->inner.is_tcp || !um_net_knock(peer, um_clock_coarse_ns()))
        return;
    um_net_peer_not_found(peer);
    um_net_peer_fall(port, peer, ECONNREFUSED);
}
