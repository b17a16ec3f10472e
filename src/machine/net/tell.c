/* Sends one message to a peer; decides whether what was sent is lost. net.h. */
#include "machine/net/net.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

/* ns; how long a gap stays before it counts as lost: the first time, and 2^GAP_SLOW_MAX times that at most */
enum { LOST_NS = 400000000, GAP_SLOW_MAX = 4 };

bool um_net_tell_buffer(struct um_net_port *port, struct um_net_peer *peer, struct um_net_buffer *buffer)
{
    if (!um_net_peer_may_try(peer))
        return false;
    buffer->peer = peer;
    int ret = um_net_inner_send(&port->inner, buffer, peer->at);
    if (ret == 0) {
        peer->refs++; /* until it completes */
        um_net_peer_took(peer);
        return true;
    }
    const bool is_without_fd = ret == -EMFILE || ret == -ENFILE;
    if (ret == -FI_EAGAIN || ret == -FI_ENOMEM || (is_without_fd && um_net_descriptors_look(port)))
        um_net_peer_took_not(port, peer);
    else
        um_net_peer_failed(port, peer, -ret);
    return false;
}

bool um_net_tell(struct um_net_port *port, struct um_net_peer *peer, const void *message, size_t len)
{
    if (!um_net_peer_may_try(peer))
        return false;
    struct um_net_buffer *buffer = um_net_buffer_get(&port->inner, len);
    if (!buffer)
        return false;
    memcpy(buffer->message, message, len);
    buffer->lane = NULL;
    buffer->len = (uint32_t)len;
    buffer->is_told = true;
    if (um_net_tell_buffer(port, peer, buffer)) {
        peer->telling++;
        return true;
    }
    um_net_buffer_put(&port->inner, buffer);
    return false;
}

void um_net_deny(struct um_net_port *port, struct um_net_peer *peer, const void *message, size_t len)
{
    if (um_net_peer_claim_answer(port, peer) && !um_net_peer_is_behind(peer))
        (void)um_net_tell(port, peer, message, len);
}

/*
 * The time counts by this side's clock, when it takes a PROBE: a process that did not run takes several old ones at
 * once. Over a slow link, what is only late looks lost: so the time doubles each time, and halves when a PROBE
 * reports more before.
 */
bool um_net_is_lost(struct um_net_gap *gap, uint32_t has, uint32_t told)
{
    const uint64_t now = um_clock_coarse_ns();
    if (gap->has != has) {
        gap->slow -= !gap->was_lost && gap->slow > 0;
        gap->was_lost = false;
    }
    if (gap->has != has || gap->told == has) {
        gap->has = has;
        gap->told = told;
        gap->since = now;
        return false;
    }
    if (now - gap->since < (uint64_t)LOST_NS << gap->slow)
        return false;
    gap->told = has; /* once: what is told now is another matter */
    gap->was_lost = true;
    gap->slow += gap->slow < GAP_SLOW_MAX;
    return true;
}
