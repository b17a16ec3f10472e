/*
 * Bodies that their receiver reads by the inner provider's RMA: memory that is shown, and reads of what peers show.
 * net.h.
 *
 * Both go by an inner endpoint of their own, opened when the first body is shown or read. A peer's bytes may be on
 * their way into the program's buffer for ever (its host has vanished, and comes back later), and no call of libfabric
 * ends that for certain but to close the endpoint. So it is closed when a read, or what is shown, is given up, which is
 * seldom; all other reads over it fail then, here or at peers, and those bodies come in records. The next one that is
 * shown opens a new endpoint, of which peers are told by BODIES.
 *
 * A body can always come in records instead: where a peer has not told its endpoint, or that cannot be reached (a
 * firewall), and when a read fails. Who is refused time and again shows nothing more.
 * Owns: struct um_net_bodies, struct read, struct shown. Threading: as the port's calls.
 */
#include "machine/net/net.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How long the inner provider may take no read for a peer before its bodies are asked for in records. */
#define WAIT_NS UINT64_C(2000000000)

enum {
    REFUSED_MAX = 8,      /* in turn */
    SHOWN_MIN = 64 << 10, /* bytes: a shorter body comes as soon in records */
};

/* Of what a peer shows. It is freed when neither its owner nor the inner provider has it. */
struct read {
    struct um_net_context context; /* first */
    struct um_transfer base;
    struct um_net_port *port;
    struct um_list link; /* in bodies.reads, while the inner provider may have it */
    bool is_owned;       /* transfer_poll() was not the last one, nor transfer_cancel() called */
    bool is_inner;       /* no event came */
    int result;          /* -EINPROGRESS: it is under way */
};

struct shown {
    struct um_shown base;
    struct um_net_port *port;
    struct um_net_peer *peer;
    struct fid_mr *mr;
};

/* ---- the endpoint ---- */

static bool open_endpoint(struct um_net_port *port)
{
    struct um_net_bodies *bodies = &port->bodies;
    if (bodies->ep)
        return true;
    if (bodies->is_off || !port->inner.has_rma)
        return false;
    if (um_net_inner_open_bodies(&port->inner, &bodies->ep, &bodies->name) != 0) {
        bodies->is_off = true; /* logged */
        return false;
    }
    bodies->serial++;
    return true;
}

static void read_free(struct read *read)
{
    um_list_unlink(&read->link);
    free(read);
}

/* Every read fails that has not ended. */
static void close_endpoint(struct um_net_port *port)
{
    struct um_net_bodies *bodies = &port->bodies;
    if (!bodies->ep)
        return;
    um_net_inner_close_bodies(bodies->ep);
    bodies->ep = NULL;
    for (struct um_list *l = bodies->reads.next; l != &bodies->reads; l = l->next) {
        struct read *read = UM_CONTAINER(l, struct read, link);
        bodies->ended += read->is_owned && read->result == -EINPROGRESS;
        bodies->reading -= read->result == -EINPROGRESS;
        read->result = read->result == -EINPROGRESS ? -EPERM : read->result;
    }
}

void um_net_bodies_close(struct um_net_port *port)
{
    close_endpoint(port);
    for (struct um_list *l; (l = um_list_first(&port->bodies.reads)) != NULL;)
        read_free(UM_CONTAINER(l, struct read, link));
}

/* ---- what is shown ---- */

/* The peer knows by which endpoint. */
static bool tell_endpoint(struct um_net_lane *lane)
{
    struct um_net_port *port = lane->port;
    struct um_net_bodies_wire message = {
        .head = {.version = UM_NET_VERSION, .kind = UM_NET_BODIES, .slot = lane->rx_slot, .id = lane->rx_id},
        .at = port->bodies.name};
    if (lane->peer->told_serial == port->bodies.serial)
        return true;
    if (!um_net_tell(port, lane->peer, &message, sizeof(message)))
        return false;
    lane->peer->told_serial = port->bodies.serial;
    return true;
}

static bool can_show(const struct um_net_lane *lane)
{
    const struct um_net_port *port = lane->port;
    return port->inner.has_rma && !port->bodies.is_off && lane->peer->refused < REFUSED_MAX;
}

struct um_shown *um_net_show(struct um_lane *base, const struct iovec *piece, uint64_t *key_p)
{
    struct um_net_lane *lane = (struct um_net_lane *)base;
    struct um_net_port *port = lane->port;
    const uint64_t key = piece->iov_len >= SHOWN_MIN && can_show(lane) ? um_net_secret() : 0;
    if (!key || !open_endpoint(port) || !tell_endpoint(lane))
        return NULL;
    struct shown *shown = malloc(sizeof(*shown));
    if (!shown)
        return NULL;
    *shown = (struct shown){.base.machine = port->base.machine, .port = port, .peer = lane->peer};
    if (um_net_inner_register(&port->inner, piece, key, &shown->mr) != 0) {
        free(shown);
        return NULL;
    }
    shown->peer->refs++;
    port->bodies.shown++;
    um_net_stir(port);
    *key_p = key;
    return &shown->base;
}

void um_net_hide(struct um_shown *base, enum um_hide why)
{
    struct shown *shown = (struct shown *)base;
    struct um_net_port *port = shown->port;
    struct um_net_peer *peer = shown->peer;
    um_net_inner_unregister(shown->mr);
    if (why == UM_HIDE_GIVEN_UP)
        close_endpoint(port);
    if (why == UM_HIDE_REFUSED)
        peer->told_serial = 0; /* perhaps it was not heard */
    peer->refused = why == UM_HIDE_REFUSED ? peer->refused + 1 : 0;
    port->bodies.shown--;
    um_net_peer_put(port, peer);
    free(shown);
}

/* ---- what peers show ---- */

/* A peer's other endpoint is at the address of its first one: only the port of TCP differs. */
static bool is_beside(const struct um_net_port *port, const struct um_net_peer *peer, const struct um_net_name_wire *at)
{
    static const unsigned char zero[UM_NET_NAME_MAX];
    const struct um_net_addr_wire first = um_net_addr_part(&peer->addr);
    enum { PORT = 2, BEHIND = 4 }; /* of sockaddr_in and sockaddr_in6 */
    if (at->len != first.len || memcmp(at->name + at->len, zero, sizeof(zero) - at->len) != 0)
        return false;
    return !port->inner.is_tcp || (memcmp(at->name, first.name, PORT) == 0 &&
                                   memcmp(at->name + BEHIND, first.name + BEHIND, sizeof(first.name) - BEHIND) == 0);
}

void um_net_bodies_take(struct um_net_port *port, struct um_net_peer *peer, const struct um_net_buffer *buffer)
{
    const struct um_net_bodies_wire *message = (const void *)buffer->message;
    struct um_net_from *from = &peer->from;
    if (buffer->len != sizeof(*message) || !is_beside(port, peer, &message->at) || !port->inner.has_rma ||
        (from->is_known && memcmp(&from->name, &message->at, sizeof(from->name)) == 0))
        return;
    um_net_peer_forget_from(port, peer);
    from->is_known = um_net_inner_insert_bodies(&port->inner, &message->at, &from->at) == 0;
    from->name = message->at;
}

/* The inner provider takes no read now: while it connects, and when there are too many. */
static int not_now(struct um_net_from *from)
{
    static struct um_log_limit unreached;
    const uint64_t now = um_clock_coarse_ns();
    if (!from->again_since)
        from->again_since = now;
    if (now - from->again_since < WAIT_NS)
        return -EAGAIN;
    from->again_since = 0;
    from->is_unreached = !from->is_reached;
    if (from->is_unreached)
        um_log_limited(&unreached, UM_LOG_WARN,
                       "the machine net cannot connect to the port of a peer by which it shows long messages, only to "
                       "its first one: they come in pieces, which is slower; let the firewall permit all ports between "
                       "the hosts of a job");
    return -EPERM;
}

static bool can_read(const struct um_net_link *link, const struct um_copy *copy)
{
    return copy->key && !copy->write && !copy->window && link->peer->from.is_known && !link->peer->from.is_unreached &&
           copy->local_count <= um_net_inner_iov_max(&link->port->inner) &&
           copy->len <= link->port->inner.info->ep_attr->max_msg_size;
}

int um_net_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    struct um_net_link *link = (struct um_net_link *)base;
    struct um_net_port *port = link->port;
    struct um_net_from *from = &link->peer->from;
    if (link->peer->gone)
        return -ESRCH;
    if (!can_read(link, copy) || !open_endpoint(port))
        return -EPERM; /* it comes in records */
    struct read *read = malloc(sizeof(*read));
    if (!read)
        return -ENOMEM;
    *read = (struct read){.base.machine = base->machine, .port = port, .is_owned = true, .is_inner = true};
    const struct um_net_reading reading = {
        .local = copy->local, .count = copy->local_count, .from = from->at, .key = copy->key, .offset = copy->offset};
    int ret = um_net_inner_readv(&port->inner, port->bodies.ep, &reading, &read->context);
    um_net_stir(port);
    if (ret) {
        free(read);
        return ret == -FI_EAGAIN || ret == -FI_ENOMEM ? not_now(from) : -EPERM;
    }
    from->is_reached = true;
    from->again_since = 0;
    read->result = -EINPROGRESS;
    um_list_append(&port->bodies.reads, &read->link);
    port->bodies.reading++;
    *transfer_p = &read->base;
    return -EINPROGRESS;
}

void um_net_read_ended(struct um_net_port *port, struct um_net_context *context, int error)
{
    struct read *read = (struct read *)context;
    read->is_inner = false;
    um_list_unlink(&read->link);
    if (read->result == -EINPROGRESS) {
        read->result = error ? -EPERM : 0;
        port->bodies.reading--;
        port->bodies.ended++;
    }
    if (!read->is_owned)
        free(read);
}

/* Its owner lets it go. */
static void let_go(struct read *read)
{
    read->is_owned = false;
    if (!read->is_inner)
        free(read);
}

int um_net_transfer_poll(struct um_transfer *base)
{
    struct read *read = UM_CONTAINER(base, struct read, base);
    const int result = read->result;
    if (result == -EINPROGRESS)
        return result;
    read->port->bodies.ended--;
    let_go(read);
    return result;
}

void um_net_transfer_cancel(struct um_transfer *base)
{
    struct read *read = UM_CONTAINER(base, struct read, base);
    if (read->result == -EINPROGRESS)
        close_endpoint(read->port);
    read->port->bodies.ended--;
    let_go(read);
}
