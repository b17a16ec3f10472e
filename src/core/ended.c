/*
 * The end of a peer: frees its resources, then the peer itself.
 *
 *   lost          no operation goes to it any more (um_core_peer_lose): its windows and its lane are closed
 *   and silent    nothing comes from it any more: its link is closed, and with it every mapping and descriptor
 *   not retained  no message from it waits to be received: struct um_core_peer is freed, its number is used again
 *
 * A peer that left in good order is lost when its port has closed. A peer that broke the protocol is kept as long as
 * its process lives, so that it cannot come back under another number. ep->gone replaces a freed peer: every operation
 * to it fails. Threading: core.h.
 */
#include "core/window.h"

#include <errno.h>
#include <stdlib.h>

/* The number of ep->gone, which no peer in ep->peers has. */
enum { UM_PEER_GONE = UINT32_MAX - 1 };
static_assert(UM_PEER_GONE != UINT32_MAX, "which receives from anybody have");

int um_core_peer_gone_open(struct um_core_ep *ep)
{
    ep->gone = um_core_peer_new(ep);
    if (!ep->gone)
        return -ENOMEM;
    ep->gone->number = UM_PEER_GONE;
    ep->gone->lost = ep->gone->left = true;
    return 0;
}

struct um_core_peer *um_core_peer_gone(struct um_core_ep *ep)
{
    return ep->gone;
}

void um_core_peer_settle(struct um_core_peer *peer)
{
    struct um_core_ep *ep = peer->ep;
    if (!peer->lost || peer->rx || !peer->link)
        return;
    if (peer->banned && peer->link->machine->link_alive(peer->link)) {
        um_core_peer_watch_leaving(peer);
        return;
    }
    um_list_unlink(&peer->ended);
    peer->link->machine->link_close(peer->link);
    peer->link = NULL;
    if (peer->retained == 0)
        um_list_append(&ep->ended, &peer->ended);
}

/* Calls machine gather() of all ports. True if one of the calls returns true. */
static bool ports_gather(struct um_core_ep *ep)
{
    bool news = false;
    for (uint32_t i = 0; i < ep->port_count; i++)
        news = ep->ports[i].port->machine->gather(ep->ports[i].port) || news;
    return news;
}

void um_core_peer_leaving_tick(struct um_core_ep *ep, struct um_list *ended)
{
    struct um_core_peer *peer = UM_CONTAINER(ended, struct um_core_peer, ended);
    if (peer->rx) { /* the peer opened a lane again, or its last messages came late */
        um_list_unlink(&peer->ended);
    } else if (peer->lost && !peer->left) {
        if (ports_gather(ep))
            return; /* take its messages first, then report its loss */
        um_list_unlink(&peer->ended);
        peer->left = true;
        ep->protocols->peer_left(ep, peer, ECONNRESET);
        um_core_peer_settle(peer);
    } else if (!peer->link->machine->link_alive(peer->link)) {
        um_list_unlink(&peer->ended);
        um_core_peer_lose(peer, 0);
        um_core_peer_settle(peer);
    }
}

void um_core_peers_free_ended(struct um_core_ep *ep)
{
    struct um_list *next;
    for (struct um_list *l = ep->ended.next; ep->config.forget && l != &ep->ended; l = next) {
        struct um_core_peer *peer = UM_CONTAINER(l, struct um_core_peer, ended);
        next = l->next;
        if (!um_list_is_empty(&peer->expected))
            continue; /* a receive waits for this peer; the next tick ends the receive */
        um_list_unlink(&peer->ended);
        ep->config.forget(ep->config.arg, peer);
        um_core_peer_free(peer);
    }
}
