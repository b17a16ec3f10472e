/* The driver: hands messages that came to their lanes and rx, and sends what is due. net.h. */
#include "machine/net/net.h"

#include "machine/address.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>

enum { EVENTS = 16, ROUNDS = 64, CUTS_MAX = 64, DRIVES_MAX = 64, PROBE_NS = 450000000 };

/* ---- what came ---- */

static struct um_net_lane *lane_of(const struct um_net_port *port, uint32_t slot, uint64_t id)
{
    struct um_net_lane *lane = um_net_slot(&port->lanes, slot);
    return lane && lane->id == id ? lane : NULL;
}

static struct um_net_rx *rx_of(const struct um_net_port *port, uint32_t slot, uint64_t id)
{
    struct um_net_rx *rx = um_net_slot(&port->rxs, slot);
    return rx && rx->id == id ? rx : NULL;
}

/* Answers a PROBE whose lane or rx is not here by UNKNOWN. */
static void deny(struct um_net_port *port, const struct um_net_probe_wire *probe)
{
    const struct um_net_head_wire *head = &probe->head;
    struct um_net_peer *peer;
    if (um_net_addr_check(&port->base, &probe->origin, false) != 0 || um_net_peer_get(port, &probe->origin, &peer) != 0)
        return;
    um_net_peer_revive(peer);
    const struct um_net_head_wire unknown = {.version = UM_NET_VERSION,
                                             .kind = UM_NET_UNKNOWN,
                                             .flags = head->flags & UM_NET_OF_RX,
                                             .slot = probe->slot,
                                             .id = head->id};
    um_net_deny(port, peer, &unknown, sizeof(unknown));
    um_net_peer_put(port, peer);
}

static void take_probe(struct um_net_port *port, const struct um_net_buffer *buffer)
{
    const struct um_net_probe_wire *probe = (const void *)buffer->message;
    const struct um_net_head_wire *head = &probe->head;
    if (buffer->len != sizeof(*probe)) {
        port->strays++;
        return;
    }
    struct um_net_lane *lane = head->flags & UM_NET_OF_RX ? lane_of(port, head->slot, head->id) : NULL;
    struct um_net_rx *rx = head->flags & UM_NET_OF_RX ? NULL : rx_of(port, head->slot, head->id);
    if ((lane && lane->ended) || (!lane && !rx)) {
        deny(port, probe);
        return;
    }
    um_net_peer_heard(lane ? lane->peer : rx->peer);
    port->heard_at = um_clock_coarse_ns();
    if (lane)
        um_net_lane_take_probe(lane, probe);
    else
        um_net_rx_take_probe(rx, probe);
}

/* UNKNOWN came: another port is in the place of the peer, or the peer has given up its side of the lane or rx. */
static void take_unknown(struct um_net_port *port, const struct um_net_head_wire *head)
{
    struct um_net_lane *lane = head->flags & UM_NET_OF_RX ? NULL : um_net_slot(&port->lanes, head->slot);
    struct um_net_rx *rx = head->flags & UM_NET_OF_RX ? um_net_slot(&port->rxs, head->slot) : NULL;
    if (lane && lane->state == UM_NET_OPEN && lane->rx_id == head->id)
        um_net_lane_fall(lane);
    else if (rx && rx->lane_id == head->id)
        um_net_rx_fall(rx, rx->arrived ? ECONNRESET : 0); /* a sender of no record may have sent JOIN twice */
    else
        port->strays++;
}

/* True: the buffer is kept. */
static bool take_message(struct um_net_port *port, struct um_net_buffer *buffer)
{
    const struct um_net_head_wire *head = (const void *)buffer->message;
    struct um_net_lane *lane = NULL;
    struct um_net_rx *rx = NULL;
    if (buffer->len < sizeof(*head) || head->version != UM_NET_VERSION) {
        port->strays++;
        return false;
    }
    switch (head->kind) {
    case UM_NET_JOIN:
        um_net_rx_join(port, buffer);
        return false;
    case UM_NET_PROBE:
        take_probe(port, buffer);
        return false;
    case UM_NET_UNKNOWN:
        take_unknown(port, head);
        return false;
    case UM_NET_BODIES:
        rx = rx_of(port, head->slot, head->id);
        port->strays += !rx;
        if (rx)
            um_net_bodies_take(port, rx->peer, buffer);
        return false;
    case UM_NET_RECORD:
    case UM_NET_TAKEN:
    case UM_NET_CLOSE:
        rx = rx_of(port, head->slot, head->id);
        break;
    default:
        lane = lane_of(port, head->slot, head->id);
    }
    if (!rx && !lane) {
        port->strays++;
        return false;
    }
    port->look_ns = 0;
    if (rx)
        return um_net_rx_take(rx, buffer);
    um_net_lane_take(lane, buffer);
    return false;
}

/* Ends the peer: the message, if sent again, would break the connection again. */
static void cannot_read(struct um_net_port *port, struct um_net_peer *peer)
{
    static struct um_log_limit hole;
    um_log_limited(&hole, UM_LOG_WARN,
                   "the buffer of a message to another host cannot be read to its end (was it unmapped while it was "
                   "sent?): operations with that peer end");
    um_net_peer_fall(port, peer, ECONNRESET);
}

static void complete(struct um_net_port *port, const struct um_net_event *event)
{
    struct um_net_peer *peer = event->buffer->peer;
    if (!peer) {
        if (!take_message(port, event->buffer))
            um_net_buffer_put(&port->inner, event->buffer);
        return;
    }
    if (__builtin_expect(event->error == EFAULT && event->buffer->lent.iov_len, 0))
        cannot_read(port, peer);
    else if (__builtin_expect(event->error, 0))
        um_net_peer_failed(port, peer, event->error);
    else if (__builtin_expect(peer->is_broken, 0))
        peer->is_broken = false;
    if (((const struct um_net_head_wire *)(const void *)event->buffer->message)->kind != UM_NET_PROBE)
        port->look_ns = 0;
    event->buffer->is_sending = false; /* only now: an event before it may have dropped the record */
    peer->telling -= event->buffer->is_told;
    if (__builtin_expect(!event->error && !um_list_is_empty(&peer->stranger), 0))
        um_net_peer_admit(port, peer);
    if (event->buffer->lane)
        um_net_lane_sent(event->buffer, event->error != 0);
    else
        um_net_buffer_put(&port->inner, event->buffer);
    um_net_peer_put(port, peer);
}

/* True if a look may end here: there is something to offer. That should not wait for the next look, a system call, and
 * should stay in the cache; the rest stays with the inner provider. While the list `fallen` has a peer, looks go on, so
 * that all that it sent is taken. */
static bool is_enough(const struct um_net_port *port)
{
    return !um_list_is_empty(&port->ready) && um_list_is_empty(&port->fallen);
}

/* all: does not stop when there is something to offer. True: an operation has completed. */
static bool take(struct um_net_port *port, bool all)
{
    struct um_net_event events[EVENTS];
    int count, rounds = 0;
    bool any = false;
    do {
        count = um_net_inner_read(&port->inner, events, EVENTS);
        for (int i = 0; i < count; i++)
            complete(port, &events[i]);
        any |= count > 0;
    } while (count >= 0 && ++rounds < ROUNDS && (all || !is_enough(port)));
    port->cuts = count >= 0 ? port->cuts + 1 : 0;
    return any;
}

/* ---- what is to be told ---- */

/* Runs each entry of the list once; an entry with something left goes to the end. True: a message was sent. */
static bool push_all(struct um_net_port *port)
{
    struct um_list now;
    bool any = false;
    if (um_list_is_empty(&port->work))
        return false;
    um_list_init(&now);
    um_list_append(&port->work, &now); /* marks the end of the present entries */
    for (struct um_list *first; (first = um_list_first(&port->work)) != &now;) {
        um_list_unlink(first);
        any |= UM_CONTAINER(first, struct um_net_work, link)->push(UM_CONTAINER(first, struct um_net_work, link));
    }
    um_list_unlink(&now);
    return any;
}

static void end_peer(struct um_net_port *port, struct um_net_peer *peer)
{
    um_list_unlink(&peer->fallen);
    peer->refs++;
    for (struct um_list *l = peer->lanes.next, *next; l != &peer->lanes; l = next) {
        next = l->next;
        um_net_lane_fall(UM_CONTAINER(l, struct um_net_lane, of_peer));
    }
    for (struct um_list *l = peer->rxs.next, *next; l != &peer->rxs; l = next) {
        next = l->next;
        um_net_rx_fall(UM_CONTAINER(l, struct um_net_rx, of_peer), ECONNRESET);
    }
    um_net_peer_admit(port, peer);
    um_net_peer_put(port, peer);
}

/* Ends the lanes and rx of peers that are gone. Comes after a look and before anything is sent: a peer found gone while
 * something is sent may have sent messages since the look. Waits until a look has emptied the inner queue, because then
 * all that these peers sent before is taken; but for CUTS_MAX looks at most, because others may send without end. */
static void end_fallen(struct um_net_port *port)
{
    for (struct um_list *l = port->fallen.next, *next; l != &port->fallen; l = next) {
        struct um_net_peer *peer = UM_CONTAINER(l, struct um_net_peer, fallen);
        next = l->next;
        if (!port->cuts || ++peer->cuts >= CUTS_MAX)
            end_peer(port, peer);
    }
}

/* True if credit for a large record waits to go with that for the next one, which is offered now. */
static bool is_put_off(const struct um_net_port *port)
{
    return port->owed && !um_list_is_empty(&port->ready);
}

static bool tell_all(struct um_net_port *port)
{
    port->owed = 0;
    return push_all(port);
}

void um_net_catch_up(struct um_port *base)
{
    struct um_net_port *port = (struct um_net_port *)base;
    if (port->owed)
        (void)tell_all(port);
}

/* A function of its own, so that the compiler inlines into it what it calls. */
static __attribute__((noinline)) bool drive(struct um_net_port *port, bool all)
{
    if (!port->is_open)
        return false;
    bool any = take(port, all);
    if (um_net_bodies_are_due(port))
        any |= um_net_bodies_look(port);
    end_fallen(port);
    if (all || !is_put_off(port))
        any |= tell_all(port);
    return any;
}

bool um_net_drive(struct um_net_port *port)
{
    return drive(port, false);
}

void um_net_drive_all(struct um_net_port *port)
{
    for (int i = 0; i < DRIVES_MAX && (drive(port, true), port->cuts); i++)
        ;
}

/* ---- who is there? ---- */

/* True if a PROBE is due: once in PROBE_NS, however often tick() is called, because a peer that does not run takes
 * nothing out of its sockets. While the inner provider accepts nothing for the peer, each call tries. */
static bool is_due(const struct um_net_peer *peer, uint64_t *probed_at, uint64_t now)
{
    if (!peer->again_since && now - *probed_at < PROBE_NS)
        return false;
    *probed_at = now;
    return true;
}

/* Checks by other means a peer that is silent, or for which the inner provider accepts nothing. True: it is silent. */
static bool probe_peer(struct um_net_port *port, struct um_net_peer *peer, bool is_told, uint64_t now)
{
    const bool is_silent = um_net_is_silent(peer->heard_at, now);
    if ((!is_told && peer->again_since) || is_silent)
        um_net_peer_doubt(port, peer);
    return is_silent;
}

static bool probe_lane(struct um_net_port *port, struct um_net_lane *lane, uint64_t now)
{
    return !lane->ended && lane->state != UM_NET_DENIED && is_due(lane->peer, &lane->probed_at, now) &&
           probe_peer(port, lane->peer, um_net_peer_is_behind(lane->peer) || um_net_lane_probe(lane), now);
}

static bool probe_rx(struct um_net_port *port, struct um_net_rx *rx, uint64_t now)
{
    return !rx->closed && is_due(rx->peer, &rx->probed_at, now) &&
           probe_peer(port, rx->peer, um_net_peer_is_behind(rx->peer) || um_net_rx_probe(rx), now);
}

/* No peer is heard. Perhaps incomplete messages of strangers or of vanished peers occupy all receives. Posts some more;
 * if a message comes then, as many stay posted from now on. */
static void look_with_more(struct um_net_port *port)
{
    const uint32_t receives = um_net_inner_more(&port->inner), posted = port->inner.posted;
    if (receives)
        (void)drive(port, true);
    const bool was_taken = port->inner.posted < posted; /* a receive, and none was posted in its place */
    if (was_taken && receives > port->inner.receives)
        port->inner.receives = receives;
}

void um_net_probe(struct um_net_port *port, uint64_t now)
{
    const uint64_t passed = (now - port->ticked_at) * 2; /* each slot is looked at twice a second */
    uint32_t lanes = um_clock_share(port->lanes.end, passed), rxs = um_clock_share(port->rxs.end, passed);
    bool is_silent = !port->lanes.end && !port->rxs.end; /* there is no peer that could send a PROBE */
    port->ticked_at = now;
    for (; lanes && port->lanes.end; lanes--) {
        port->probe_lane = port->probe_lane + 1 < port->lanes.end ? port->probe_lane + 1 : 0;
        if (port->lanes.at[port->probe_lane])
            is_silent |= probe_lane(port, port->lanes.at[port->probe_lane], now);
    }
    for (; rxs && port->rxs.end; rxs--) {
        port->probe_rx = port->probe_rx + 1 < port->rxs.end ? port->probe_rx + 1 : 0;
        if (port->rxs.at[port->probe_rx])
            is_silent |= probe_rx(port, port->rxs.at[port->probe_rx], now);
    }
    if (!is_silent || !um_net_is_silent(port->heard_at, now))
        return;
    port->heard_at = now;
    look_with_more(port);
}
