/* The receiver's end of a lane: making and freeing the object. net.h. */
#include "machine/net/net.h"

#include <stdlib.h>

struct um_net_rx *um_net_rx_new(struct um_net_port *port, struct um_net_peer *peer)
{
    struct um_net_rx *rx = calloc(1, sizeof(*rx));
    if (!rx)
        return NULL;
    rx->id = um_net_secret();
    if (!rx->id || um_net_slot_take(&port->rxs, rx, &rx->slot) != 0) {
        free(rx);
        return NULL;
    }
    rx->base.machine = port->base.machine;
    um_list_init(&rx->work.link);
    um_list_init(&rx->ready);
    um_list_init(&rx->lazy);
    rx->port = port;
    rx->peer = peer;
    rx->window = rx->window_told = rx->grows_at = UM_NET_WINDOW;
    peer->refs++;
    um_net_peer_admit(port, peer);
    um_list_append(&peer->rxs, &rx->of_peer);
    port->rx_used++;
    return rx;
}

void um_net_rx_drop(struct um_net_rx *rx, struct um_net_buffer **list)
{
    while (*list) {
        struct um_net_buffer *buffer = *list;
        *list = buffer->next;
        um_net_buffer_put(&rx->port->inner, buffer);
    }
}

void um_net_rx_free(struct um_net_rx *rx)
{
    struct um_net_port *port = rx->port;
    um_net_rx_drop(rx, &rx->first);
    um_net_rx_drop(rx, &rx->ahead);
    um_net_slot_free(&port->rxs, rx->slot);
    um_list_unlink(&rx->work.link);
    um_list_unlink(&rx->ready);
    um_list_unlink(&rx->lazy);
    um_list_unlink(&rx->of_peer);
    um_net_peer_put(port, rx->peer);
    port->windows -= rx->window - UM_NET_WINDOW;
    port->rx_used--;
    free(rx);
}

void um_net_rx_offers(struct um_net_rx *rx)
{
    const bool offers = !rx->left_told && (!rx->joined_told || rx->first || rx->refused || rx->closed);
    if (!offers)
        um_list_unlink(&rx->ready);
    else if (um_list_is_empty(&rx->ready))
        um_list_append(&rx->port->ready, &rx->ready);
    um_port_stir(&rx->port->base);
}
