/*
 * Peers: their addresses and routes, first contact with them, holds, and their loss. The operations that go to them are
 * in op.c, their end is in ended.c.
 *
 * Owns: struct um_core_peer. A peer exists apart from any address vector: it is found by address, made by the first use
 * or by the first contact from it, and lives until nothing is left of it. Threading: core.h.
 */
#include "core/endpoint.h"
#include "core/window.h"
#include "machine/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct um_machine *machine_of(const struct um_core_ep *ep, uint32_t which)
{
    return ep->ports[which].port->machine;
}

static struct um_core_peer **bucket_of(struct um_core_ep *ep, uint32_t which, const struct um_addr *addr)
{
    return &ep->ports[which].hash[um_addr_part_hash(machine_of(ep, which), addr) & ep->peer_hash_mask];
}

/* A peer whose address has no part of that machine is not in the machine's table. */
static void hash_add(struct um_core_ep *ep, uint32_t which, struct um_core_peer *peer)
{
    if (!um_addr_has(machine_of(ep, which), &peer->addr))
        return;
    struct um_core_peer **head = bucket_of(ep, which, &peer->addr);
    peer->hash_next[which] = *head;
    *head = peer;
}

static void hash_remove(struct um_core_ep *ep, uint32_t which, struct um_core_peer *peer)
{
    if (!um_addr_has(machine_of(ep, which), &peer->addr))
        return;
    struct um_core_peer **at = bucket_of(ep, which, &peer->addr);
    while (*at != peer)
        at = &(*at)->hash_next[which];
    *at = peer->hash_next[which];
}

struct um_core_peer *um_core_peer_find(struct um_core_ep *ep, const struct um_addr *addr)
{
    for (uint32_t i = 0; i < ep->port_count; i++) {
        const struct um_machine *machine = machine_of(ep, i);
        if (!ep->ports[i].hash || !um_addr_has(machine, addr))
            continue;
        struct um_core_peer *p = *bucket_of(ep, i, addr);
        while (p && !um_addr_part_is_same(machine, &p->addr, addr))
            p = p->hash_next[i];
        if (p)
            return p;
    }
    return NULL;
}

/* Makes new tables of that many buckets, one for each machine, with all peers. */
static int hash_grow(struct um_core_ep *ep, uint32_t capacity)
{
    struct um_core_peer **hash[UM_MACHINES_MAX] = {0};
    const uint32_t ports = ep->port_count;
    for (uint32_t i = 0; i < ports; i++) {
        hash[i] = calloc(capacity, sizeof(struct um_core_peer *));
        if (!hash[i]) {
            while (i-- > 0)
                free(hash[i]);
            return -ENOMEM;
        }
    }
    ep->peer_hash_mask = capacity - 1;
    for (uint32_t i = 0; i < ports; i++) {
        free(ep->ports[i].hash);
        ep->ports[i].hash = hash[i];
        for (uint32_t p = 0; p < ep->peer_slots; p++) /* no number is free, or there was no need to grow */
            hash_add(ep, i, ep->peers[p]);
    }
    return 0;
}

static int peers_grow(struct um_core_ep *ep)
{
    uint32_t capacity = ep->peer_capacity ? ep->peer_capacity * 2 : 16;
    struct um_core_peer **peers = realloc(ep->peers, capacity * sizeof(struct um_core_peer *));
    if (!peers)
        return -ENOMEM;
    ep->peers = peers;
    uint32_t *numbers = realloc(ep->peer_free, capacity * sizeof(*numbers));
    if (!numbers)
        return -ENOMEM;
    ep->peer_free = numbers;
    if (hash_grow(ep, capacity) != 0)
        return -ENOMEM;
    ep->peer_capacity = capacity;
    return 0;
}

/* Returns a number that is free again, else the lowest that was never used. The caller has made room for one. */
static uint32_t number_take(struct um_core_ep *ep)
{
    if (ep->peer_count < ep->peer_slots)
        return ep->peer_free[ep->peer_slots - ep->peer_count++ - 1];
    ep->peer_count++;
    return ep->peer_slots++;
}

void um_core_peer_free(struct um_core_peer *peer)
{
    struct um_core_ep *ep = peer->ep;
    for (uint32_t i = 0; i < ep->port_count; i++)
        hash_remove(ep, i, peer);
    ep->peers[peer->number] = NULL;
    ep->peer_free[ep->peer_slots - ep->peer_count--] = peer->number;
    um_core_tokens_fini(&peer->tokens);
    ep->protocols->peer_freed(peer);
    free(peer);
}

struct um_core_peer *um_core_peer_new(struct um_core_ep *ep)
{
    struct um_core_peer *peer = calloc(1, sizeof(*peer) + ep->protocols->peer_size);
    if (!peer)
        return NULL;
    peer->ep = ep;
    peer->name = UM_PEER_UNNAMED;
    peer->out = peer->in = &ep->stats.traffic[0];
    um_core_tokens_init(&peer->tokens);
    um_list_init(&peer->acks);
    um_list_init(&peer->copies);
    um_list_init(&peer->awaiting);
    um_list_init(&peer->expected);
    um_list_init(&peer->ended);
    um_list_init(&peer->held);
    um_list_init(&peer->announcing);
    ep->protocols->peer_opened(peer);
    return peer;
}

/*
 * Finds the first machine that reaches the address, in the order of the configuration. The errors of addr_check; only
 * the last machine that is asked logs why not.
 */
static int route(const struct um_core_ep *ep, const struct um_addr *addr, uint32_t *which_p)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < ep->port_count; i++)
        last = um_addr_has(machine_of(ep, i), addr) ? i : last;
    for (uint32_t i = 0; i < last; i++) {
        if (um_addr_has(machine_of(ep, i), addr) &&
            machine_of(ep, i)->addr_check(ep->ports[i].port, addr, false) == 0) {
            *which_p = i;
            return 0;
        }
    }
    int ret = machine_of(ep, last)->addr_check(ep->ports[last].port, addr, true);
    if (ret == 0)
        *which_p = last;
    return ret;
}

int um_core_ep_addr_check(const struct um_core_ep *ep, const struct um_addr *addr)
{
    uint32_t which;
    return route(ep, addr, &which);
}

/*
 * The peer may be known only from a lane that it opened, which names one machine. Adds the parts that the address has
 * for other machines. If nothing was sent to the peer yet, chooses the better route that the address may offer.
 */
static void peer_learn(struct um_core_peer *peer, const struct um_addr *addr)
{
    struct um_core_ep *ep = peer->ep;
    uint32_t which = 0;
    for (uint32_t i = 0; i < ep->port_count; i++) {
        const struct um_machine *machine = machine_of(ep, i);
        if (um_addr_has(machine, &peer->addr) || !um_addr_has(machine, addr))
            continue;
        um_addr_set_part(machine, addr, &peer->addr);
        hash_add(ep, i, peer);
    }
    struct um_link *link;
    if (!peer->link || peer->lane || peer->lost || route(ep, &peer->addr, &which) != 0 ||
        machine_of(ep, which) == peer->link->machine ||
        machine_of(ep, which)->link_open(ep->ports[which].port, &peer->addr, &link) != 0)
        return;
    um_core_windows_close(peer);
    peer->link->machine->link_close(peer->link);
    peer->link = link;
    ep->protocols->peer_rerouted(peer);
    peer->out = &ep->stats.traffic[which];
}

int um_core_peer_get(struct um_core_ep *ep, const struct um_addr *addr, struct um_core_peer **peer_p)
{
    struct um_core_peer *peer = um_core_peer_find(ep, addr);
    uint32_t which = 0;
    if (peer) {
        if (__builtin_expect(ep->port_count > 1, 0))
            peer_learn(peer, addr);
        *peer_p = peer;
        return 0;
    }
    if (ep->peer_count == ep->peer_capacity && peers_grow(ep) != 0)
        return -ENOMEM;
    int ret = route(ep, addr, &which);
    if (ret)
        return ret;
    peer = um_core_peer_new(ep);
    if (!peer)
        return -ENOMEM;
    ret = machine_of(ep, which)->link_open(ep->ports[which].port, addr, &peer->link);
    if (ret) {
        free(peer);
        return ret;
    }
    peer->out = &ep->stats.traffic[which];
    peer->addr = *addr;
    peer->number = number_take(ep);
    ep->peers[peer->number] = peer;
    for (uint32_t i = 0; i < ep->port_count; i++)
        hash_add(ep, i, peer);
    *peer_p = peer;
    return 0;
}

void um_core_peer_addr(const struct um_core_peer *peer, struct um_addr *addr_p)
{
    *addr_p = peer->addr;
}

uint64_t um_core_peer_name(const struct um_core_peer *peer)
{
    return peer->name;
}

void um_core_peer_set_name(struct um_core_peer *peer, uint64_t name)
{
    peer->name = name;
}

int um_core_peer_lane_open(struct um_core_peer *peer)
{
    if (peer->lost)
        return -EPIPE;
    int ret = peer->link->machine->lane_open(peer->link, &peer->lane);
    if (ret == 0 && !um_list_is_empty(&peer->awaiting))
        peer->lane->machine->lane_watch(peer->lane, true); /* an operation waits already */
    if (ret == 0 || ret == -ECONNREFUSED || ret == -EHOSTUNREACH)
        um_core_peer_expect(peer); /* there may be nothing else that reports its end */
    return ret ? um_core_peer_claim_failed(peer, ret) : 0;
}

int um_core_peer_claim_failed(struct um_core_peer *peer, int error)
{
    if (error == -EAGAIN) {
        peer->starved = true; /* the next tick checks whether the peer still lives */
        um_core_peer_await(peer);
    } else if (error == -EPIPE) {
        um_core_peer_lose(peer, ECONNRESET);
    }
    return error;
}

void um_core_peer_hold(struct um_core_peer *peer)
{
    if (!peer->rx || !um_list_is_empty(&peer->held))
        return;
    um_list_append(&peer->ep->held, &peer->held);
    peer->past_hold = peer->past_hold_bytes = 0;
    peer->rx->machine->rx_hold(peer->rx, true);
}

void um_core_ep_lift(struct um_core_ep *ep)
{
    struct um_list *first;
    while ((first = um_list_first(&ep->held)) != NULL) {
        um_list_unlink(first);
        struct um_rx *rx = UM_CONTAINER(first, struct um_core_peer, held)->rx;
        rx->machine->rx_hold(rx, false);
    }
}

void um_core_peer_announce_on(struct um_core_peer *peer)
{
    if (!peer->rx || !peer->rx->machine->rx_announce || !um_list_is_empty(&peer->announcing))
        return;
    um_list_append(&peer->ep->announcing, &peer->announcing);
    peer->rx->machine->rx_announce(peer->rx, true);
}

void um_core_ep_announce_off(struct um_core_ep *ep)
{
    struct um_list *first;
    while ((first = um_list_first(&ep->announcing)) != NULL) {
        um_list_unlink(first);
        struct um_rx *rx = UM_CONTAINER(first, struct um_core_peer, announcing)->rx;
        rx->machine->rx_announce(rx, false);
    }
}

void um_core_peer_watch_leaving(struct um_core_peer *peer)
{
    if (um_list_is_empty(&peer->ended))
        um_list_append(&peer->ep->leaving, &peer->ended);
}

void um_core_peer_lose(struct um_core_peer *peer, int error)
{
    struct um_core_ep *ep = peer->ep;
    if (peer->lost)
        return;
    peer->lost = true;
    peer->banned = error == EPROTO;
    ep->stats.peers_lost += error != 0;
    error = error ? error : ECONNRESET;
    um_list_unlink(&peer->awaiting);
    /* Reaps no more often than there are tokens in use: a hostile peer may answer without end. */
    for (uint32_t left = peer->tokens.used; peer->lane && um_core_peer_reap(peer) > 0 && left > 0; left--)
        ;
    struct um_list *first;
    while ((first = um_list_first(&peer->acks)) != NULL)
        um_core_op_complete(UM_CONTAINER(first, struct um_core_op, link), error);
    while ((first = um_list_first(&peer->copies)) != NULL)
        um_core_op_complete(UM_CONTAINER(first, struct um_core_op, link), error);
    for (uint32_t t = 0; t < peer->tokens.capacity; t++) {
        if (peer->tokens.slot[t].op)
            um_core_op_complete(peer->tokens.slot[t].op, error);
    }
    if (peer->lane) {
        peer->lane->machine->lane_close(peer->lane);
        peer->lane = NULL;
    }
    um_core_windows_close(peer);
    if (!peer->rx) /* else records that the peer committed are still to come; the end of its lane reports the loss */
        um_core_peer_watch_leaving(peer);
}

bool um_core_peer_is_shareable(const struct um_core_peer *peer, const struct iovec *iov, size_t count)
{
    const struct um_core_ep *ep = peer->ep;
    const struct um_machine *machine = peer->link->machine;
    struct um_space *space = NULL;
    for (uint32_t i = 0; i < ep->port_count && machine->is_shareable && ep->config.mapped != UM_MAPPED_NEVER; i++) {
        if (ep->ports[i].port->machine == machine)
            space = um_core_regions_space(ep->config.regions, i);
    }
    for (size_t i = 0; i < count && space; i++) {
        if (iov[i].iov_len && !machine->is_shareable(space, iov[i].iov_base, iov[i].iov_len))
            space = NULL;
    }
    return space != NULL;
}
