/*
 * Bodies that their receiver reads by the inner provider's RMA: memory that is shown, and reads of what peers show.
 * net.h.
 *
 * Both use a second endpoint (rma.h), opened when the first body is shown or read. A read that is given up may still
 * write into the program's buffer at any later time (the peer's host has vanished, and comes back). So the endpoint is
 * stopped when a read, or memory that is shown, is given up, which is seldom. All other reads over it fail then, here
 * and at peers, and those bodies come in records. The next body that is shown or read opens a new endpoint; BODIES
 * tells its name to the peers to which memory is shown.
 *
 * A body can always come in records instead. It does so when the peer has not sent the name of its endpoint, when that
 * cannot be reached (a firewall), when a read fails, and when a read does not move on while the peer is heard. A port
 * whose bodies a peer refuses time and again shows that peer nothing for a while.
 * Owns: struct um_net_bodies, struct read, struct shown. Threading: as the port's calls.
 */
#include "machine/net/net.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* After this time, what has failed is tried again. */
#define AGAIN_NS UINT64_C(10000000000)
/* For this time each call tries to connect; after it, one call for each tick of the coarse clock: a connection that is
 * refused is made anew by each try. */
#define TRY_NS   UINT64_C(20000000)
/* A try that comes more than this after the one before begins a new series. */
#define FIRST_NS UINT64_C(1000000000)

enum {
    REFUSED_MAX = 8,         /* occasions in turn */
    SHOWN_MIN = 64 << 10,    /* bytes; a shorter body comes as soon in records */
    HEARD_CONNECTS = 4,      /* a peer heard so often would have accepted a connection: 2 s of its calls */
    HEARD_MOVES = 40,        /* a peer heard so often would have ended a read: 10 s of its calls or more; */
    HEARD_BYTES = 512 << 10, /* heard once more for each so many bytes under way */
};

/* A read of memory that a peer shows. */
struct read {
    struct um_net_rma_context context; /* first */
    struct um_transfer base;
    struct um_net_port *port;
    struct um_net_peer *peer;
    size_t len;
    struct um_list link; /* in bodies.reads, while it is under way */
    int result;          /* -EINPROGRESS while it is under way */
};

struct shown {
    struct um_shown base;
    struct um_net_port *port;
    struct um_net_peer *peer;
    struct um_net_rma *rma;
    struct fid_mr *mr;
    uint32_t refused; /* um_net_peer.refused when it was shown: bodies that fail together count once */
};

/* ---- the endpoint ---- */

/* Adds the descriptor of the endpoint's queue to those that wake a sleeper, or removes it. If that fails, or there is
 * none, sleepers look by the clock. */
static void wake_by(const struct um_net_port *port, int op)
{
    struct epoll_event readable = {.events = EPOLLIN};
    (void)epoll_ctl(port->wait_fd, op, port->bodies.rma->own.fd, &readable);
}

static bool open_endpoint(struct um_net_port *port)
{
    struct um_net_bodies *bodies = &port->bodies;
    if (bodies->rma)
        return true;
    if (bodies->is_off || !port->inner.has_rma || um_clock_coarse_ns() < bodies->open_at)
        return false;
    bodies->rma = um_net_rma_open(&port->inner);
    if (!bodies->rma) {
        bodies->open_at = um_clock_coarse_ns() + AGAIN_NS;
        return false;
    }
    bodies->serial++;
    wake_by(port, EPOLL_CTL_ADD);
    return true;
}

static void read_end(struct read *read, int result)
{
    struct um_net_from *from = &read->peer->from;
    read->result = result;
    from->reading -= read->len;
    from->heard = 0;
    um_list_unlink(&read->link);
    read->port->bodies.ended++; /* its owner does not know that yet */
}

/* Reads that have not ended fail. */
void um_net_bodies_stop(struct um_net_port *port)
{
    struct um_net_bodies *bodies = &port->bodies;
    if (!bodies->rma)
        return;
    wake_by(port, EPOLL_CTL_DEL);
    bodies->is_off = !um_net_rma_stop(bodies->rma) || bodies->is_off;
    bodies->rma = NULL;
    for (struct um_list *l; (l = um_list_first(&bodies->reads)) != NULL;)
        read_end(UM_CONTAINER(l, struct read, link), -EPERM);
}

/* Takes the reads that have ended. After a failure other than the end of the connection (FI_ECANCELED) the provider may
 * still use the buffer, so the endpoint is stopped. */
bool um_net_bodies_look(struct um_net_port *port)
{
    struct um_net_rma_context *context;
    int error;
    bool any = false;
    while (port->bodies.rma && um_net_rma_ended(port->bodies.rma, &context, &error)) {
        read_end((struct read *)context, error ? -EPERM : 0);
        any = true;
        if (error && error != FI_ECANCELED)
            um_net_bodies_stop(port);
    }
    if (port->bodies.tried_at && um_clock_coarse_ns() - port->bodies.tried_at > FIRST_NS)
        port->bodies.tried_at = 0; /* no caller wants that read any more */
    return any;
}

bool um_net_bodies_may_sleep(struct um_net_port *port)
{
    return !port->bodies.ended && (!port->bodies.rma || um_net_objects_may_sleep(&port->inner, &port->bodies.rma->own));
}

/* ---- what is shown ---- */

/* Sends BODIES if the peer does not know this endpoint yet. True: the peer knows it, or will. */
static bool tell_endpoint(struct um_net_lane *lane)
{
    struct um_net_port *port = lane->port;
    struct um_net_bodies_wire message = {
        .head = {.version = UM_NET_VERSION, .kind = UM_NET_BODIES, .slot = lane->rx_slot, .id = lane->rx_id},
        .at = port->bodies.rma->name};
    if (lane->peer->told_serial == port->bodies.serial)
        return true;
    if (!um_net_tell(port, lane->peer, &message, sizeof(message)))
        return false;
    lane->peer->told_serial = port->bodies.serial;
    return true;
}

static bool may_show(const struct um_net_peer *peer)
{
    return peer->refused < REFUSED_MAX || um_clock_coarse_ns() - peer->refused_at > AGAIN_NS;
}

struct um_shown *um_net_show(struct um_lane *base, const struct iovec *piece, uint64_t *key_p)
{
    struct um_net_lane *lane = (struct um_net_lane *)base;
    struct um_net_port *port = lane->port;
    struct um_net_peer *peer = lane->peer;
    if (piece->iov_len < SHOWN_MIN || !may_show(peer) || !open_endpoint(port) || !tell_endpoint(lane))
        return NULL;
    const uint64_t key = um_net_secret();
    struct shown *shown = key ? malloc(sizeof(*shown)) : NULL;
    if (!shown)
        return NULL;
    *shown = (struct shown){.base.machine = port->base.machine,
                            .port = port,
                            .peer = peer,
                            .rma = port->bodies.rma,
                            .refused = peer->refused};
    if (um_net_rma_register(shown->rma, piece, key, &shown->mr) != 0) {
        free(shown);
        return NULL;
    }
    peer->refs++;
    port->bodies.shown++;
    um_net_stir(port);
    *key_p = key;
    return &shown->base;
}

/* The peer has refused to read. Perhaps BODIES did not reach it, so it is sent again. */
static void was_refused(const struct shown *shown)
{
    struct um_net_peer *peer = shown->peer;
    peer->told_serial = 0;
    if (shown->rma != shown->port->bodies.rma || shown->refused != peer->refused)
        return;
    peer->refused += peer->refused < REFUSED_MAX;
    peer->refused_at = um_clock_coarse_ns();
}

void um_net_hide(struct um_shown *base, enum um_hide why)
{
    struct shown *shown = (struct shown *)base;
    struct um_net_port *port = shown->port;
    if (why == UM_HIDE_REFUSED)
        was_refused(shown);
    else if (why == UM_HIDE_READ)
        shown->peer->refused = 0;
    else if (shown->rma == port->bodies.rma)
        um_net_bodies_stop(port);
    um_net_rma_unregister(shown->rma, shown->mr);
    port->bodies.shown--;
    um_net_peer_put(port, shown->peer);
    free(shown);
}

/* ---- what peers show ---- */

/* True if that is a name for a peer's second endpoint: the address of its first one, except for the TCP port. */
static bool is_beside(const struct um_net_peer *peer, const struct um_net_name_wire *at)
{
    static const unsigned char zero[UM_NET_NAME_MAX];
    const struct um_net_addr_wire first = um_net_addr_part(&peer->addr);
    enum { PORT = 2, BEHIND = 4 }; /* of sockaddr_in and sockaddr_in6 */
    return at->len == first.len && memcmp(at->name + at->len, zero, sizeof(zero) - at->len) == 0 &&
           memcmp(at->name, first.name, PORT) == 0 &&
           memcmp(at->name + BEHIND, first.name + BEHIND, sizeof(first.name) - BEHIND) == 0;
}

void um_net_bodies_take(struct um_net_port *port, struct um_net_peer *peer, const struct um_net_buffer *buffer)
{
    const struct um_net_bodies_wire *message = (const void *)buffer->message;
    struct um_net_from *from = &peer->from;
    if (buffer->len != sizeof(*message) || !port->inner.has_rma || !is_beside(peer, &message->at) ||
        memcmp(&from->name, &message->at, sizeof(from->name)) == 0)
        return;
    um_net_peer_forget_from(port, peer);
    from->name = message->at;
    from->unreached_at = 0;
}

/* True if nothing can be read now from the peer: its endpoint is not known, or was not reached lately. */
static bool is_closed_to(const struct um_net_from *from)
{
    return !from->name.len || (from->unreached_at && um_clock_coarse_ns() - from->unreached_at < AGAIN_NS);
}

static bool can_read(const struct um_net_link *link, const struct um_copy *copy)
{
    const struct fi_info *info = link->port->inner.info;
    return copy->key && !copy->write && !copy->window && copy->local_count <= um_net_rma_iov_max(&link->port->inner) &&
           copy->len <= info->ep_attr->max_msg_size - UM_NET_LEAD && !is_closed_to(&link->peer->from);
}

/* Counts whether the peer was heard since the last call; returns the count. */
static uint32_t heard(struct um_net_peer *peer)
{
    if (peer->heard_at != peer->from.heard_at) {
        peer->from.heard_at = peer->heard_at;
        peer->from.heard++;
    }
    return peer->from.heard;
}

/* True if it is time to try; notes the time of this try, and that of the first one of a series. */
static bool may_try(struct um_net_peer *peer, uint64_t now)
{
    struct um_net_from *from = &peer->from;
    if (!from->first_at || now - from->tried_at > FIRST_NS) {
        from->first_at = now;
        from->heard = 0;
    } else if (now - from->first_at > TRY_NS && from->tried_at == now) {
        return false; /* one try for each tick of the coarse clock */
    }
    from->tried_at = now;
    return true;
}

/*
 * The inner provider does not accept a read now: it is connecting, or too many are under way. Returns -EAGAIN; or
 * -EPERM: the peer's endpoint cannot be reached. A connection needs calls on both sides, so the latter is concluded
 * only of a peer that is heard.
 */
static int not_now(struct um_net_port *port, struct um_net_peer *peer)
{
    static struct um_log_limit unreached;
    port->bodies.tried_at = um_clock_coarse_ns();
    if (heard(peer) < HEARD_CONNECTS || peer->from.reading)
        return -EAGAIN;
    peer->from.first_at = 0;
    peer->from.unreached_at = port->bodies.tried_at;
    um_log_limited(
        &unreached, UM_LOG_WARN,
        "long messages of another host come in pieces, which is slower: connections to its port for them fail; if "
        "there is a firewall between the hosts, let it permit all ports of a job");
    return -EPERM;
}

static int try_read(struct um_net_port *port, struct um_net_peer *peer, const struct um_copy *copy, struct read *read)
{
    struct um_net_from *from = &peer->from;
    if (from->serial != port->bodies.serial) {
        if (um_net_rma_insert(port->bodies.rma, &from->name, &from->at) != 0)
            return -EPERM;
        from->serial = port->bodies.serial;
    }
    const struct um_net_reading reading = {.local = copy->local,
                                           .count = copy->local_count,
                                           .len = copy->len,
                                           .from = from->at,
                                           .key = copy->key,
                                           .offset = copy->offset};
    int ret = um_net_rma_read(port->bodies.rma, &reading, &read->context);
    return ret == -FI_EAGAIN || ret == -FI_ENOMEM ? not_now(port, peer) : ret ? -EPERM : 0;
}

int um_net_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    struct um_net_link *link = (struct um_net_link *)base;
    struct um_net_port *port = link->port;
    struct um_net_peer *peer = link->peer;
    if (peer->gone)
        return -ESRCH;
    if (!can_read(link, copy) || !open_endpoint(port))
        return -EPERM; /* the body comes in records */
    const uint64_t now = um_clock_coarse_ns();
    if (!may_try(peer, now)) {
        port->bodies.tried_at = now;
        return -EAGAIN;
    }
    struct read *read = malloc(sizeof(*read));
    if (!read)
        return -ENOMEM;
    *read = (struct read){
        .base.machine = base->machine, .port = port, .peer = peer, .len = copy->len, .result = -EINPROGRESS};
    um_net_stir(port);
    int ret = try_read(port, peer, copy, read);
    if (ret) {
        free(read);
        return ret;
    }
    port->bodies.tried_at = peer->from.first_at = 0;
    if (!peer->from.reading)
        peer->from.heard = 0;
    peer->from.reading += copy->len;
    um_list_append(&port->bodies.reads, &read->link);
    *transfer_p = &read->base;
    return -EINPROGRESS;
}

/* Stops the endpoint if no read of the peer has ended though the peer was heard often enough: a dead connection may
 * report nothing (a firewall has forgotten it). */
static void look_after(struct read *read)
{
    static struct um_log_limit stuck;
    if (heard(read->peer) < HEARD_MOVES + read->peer->from.reading / HEARD_BYTES)
        return;
    um_log_limited(
        &stuck, UM_LOG_WARN,
        "a long message of another host does not come, though its sender is there: it is sent anew, in pieces");
    um_net_bodies_stop(read->port);
}

int um_net_transfer_poll(struct um_transfer *base)
{
    struct read *read = UM_CONTAINER(base, struct read, base);
    if (read->result == -EINPROGRESS)
        look_after(read);
    const int result = read->result;
    if (result == -EINPROGRESS)
        return result;
    read->port->bodies.ended--;
    free(read);
    return result;
}

void um_net_transfer_cancel(struct um_transfer *base)
{
    struct read *read = UM_CONTAINER(base, struct read, base);
    if (read->result == -EINPROGRESS)
        um_net_bodies_stop(read->port);
    read->port->bodies.ended--;
    free(read);
}
