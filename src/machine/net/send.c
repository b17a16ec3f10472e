/* Lanes as machine.h has them. net.h. */
#include "machine/net/net.h"

#include <errno.h>
#include <string.h>

/* ---- open and close ---- */

static int opening_result(struct um_net_link *link, struct um_lane **lane_p)
{
    struct um_net_lane *lane = link->opening;
    if (lane->state == UM_NET_ASKING && !lane->ended)
        return -EAGAIN; /* the peer has not answered */
    link->opening = NULL;
    if (lane->state == UM_NET_OPEN && !lane->ended) {
        *lane_p = &lane->base;
        return 0;
    }
    const int ret = lane->ended ? -ECONNREFUSED : lane->error;
    lane->closed = true;
    um_net_lane_push(lane);
    return ret;
}

int um_net_lane_open(struct um_link *base, struct um_lane **lane_p)
{
    struct um_net_link *link = (struct um_net_link *)base;
    struct um_net_port *port = link->port;
    if (!link->opening) {
        if (link->peer->gone)
            return -ECONNREFUSED;
        link->opening = um_net_lane_new(port, link->peer);
        if (!link->opening)
            return -ENOMEM;
        um_net_lane_push(link->opening);
    }
    um_net_stir(port);
    um_net_drive(port);
    return opening_result(link, lane_p);
}

void um_net_lane_close(struct um_lane *base)
{
    struct um_net_lane *lane = (struct um_net_lane *)base;
    lane->closed = true;
    um_net_lane_push(lane);
}

/* ---- records ---- */

static bool has_room(const struct um_net_lane *lane)
{
    return lane->committed - lane->consumed < lane->window && lane->kept < UM_NET_KEPT_MAX;
}

/* in_buffer: bytes that the buffer has behind the record's header: for the body, or for the seal of a lent one. */
static int claim(struct um_lane *base, uint32_t body_len, uint32_t in_buffer, struct um_slot *slot_p)
{
    struct um_net_lane *lane = (struct um_net_lane *)base;
    struct um_net_port *port = lane->port;
    if (body_len > base->body_max)
        return -EMSGSIZE;
    if (!has_room(lane) && !lane->ended)
        um_net_drive(port);
    if (lane->ended)
        return -EPIPE;
    if (!has_room(lane))
        return -EAGAIN;
    struct um_net_buffer *buffer = um_net_buffer_get(&port->inner, sizeof(struct um_net_record_wire) + in_buffer);
    if (!buffer)
        return -EAGAIN;
    struct um_net_record_wire *record = (void *)buffer->message;
    lane->claimed = buffer;
    *slot_p = (struct um_slot){.header = record->header, .body = in_buffer ? record + 1 : NULL, .body_len = body_len};
    return 0;
}

int um_net_claim(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p)
{
    return claim(base, body_len, body_len, slot_p);
}

static bool is_held(struct um_net_lane *lane)
{
    if (lane->held)
        um_net_drive(lane->port);
    lane->was_held = lane->held;
    return lane->held && !lane->ended;
}

int um_net_claim_message(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p)
{
    return is_held((struct um_net_lane *)base) ? -EAGAIN : claim(base, body_len, body_len, slot_p);
}

/* The buffer has the record's head, header and seal; the inner provider takes the body out of the caller's memory. */
int um_net_claim_lent(struct um_lane *base, const struct iovec *body, struct um_slot *slot_p)
{
    struct um_net_lane *lane = (struct um_net_lane *)base;
    const uint32_t len = (uint32_t)body->iov_len;
    const bool can_lend = lane->port->inner.can_lend;
    int ret = is_held(lane) ? -EAGAIN : claim(base, len, can_lend ? UM_NET_SEAL : len, slot_p);
    if (ret)
        return ret;
    if (can_lend)
        lane->claimed->lent = *body;
    else
        memcpy(slot_p->body, body->iov_base, len);
    slot_p->body = NULL;
    return 0;
}

/* Keeps a record until it is consumed. */
static void keep(struct um_net_lane *lane, struct um_net_buffer *buffer)
{
    lane->kept += buffer->len;
    buffer->lane = lane;
    buffer->is_sending = false;
    buffer->next = NULL;
    if (lane->first)
        lane->last->next = buffer;
    else
        lane->first = buffer;
    lane->last = buffer;
}

void um_net_commit(struct um_lane *base, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len)
{
    struct um_net_lane *lane = (struct um_net_lane *)base;
    struct um_net_buffer *buffer = lane->claimed;
    struct um_net_record_wire *record = (void *)buffer->message;
    const uint32_t seal = buffer->lent.iov_len ? UM_NET_SEAL : 0;
    lane->claimed = NULL;
    buffer->len = (uint32_t)sizeof(*record) + slot->body_len + seal;
    record->head = (struct um_net_head_wire){.version = UM_NET_VERSION,
                                             .kind = UM_NET_RECORD,
                                             .op = op,
                                             .flags = (uint8_t)(flags | (slot->body_len ? UM_FLAG_MACHINE : 0)),
                                             .slot = lane->rx_slot,
                                             .id = lane->rx_id,
                                             .number = ++lane->committed,
                                             .len = (uint16_t)(slot->body_len ? seal : len),
                                             .taken = (uint16_t)lane->answers_out};
    if (seal)
        um_net_buffer_seal(buffer, true);
    lane->answers_told = lane->answers_out;
    um_net_stir(lane->port);
    if (lane->ended) {
        um_net_buffer_put(&lane->port->inner, buffer);
        return;
    }
    keep(lane, buffer);
    if (lane->unsent || um_net_tell_buffer(lane->port, lane->peer, buffer))
        return;
    lane->unsent = buffer;
    um_net_work_add(lane->port, &lane->work);
}

void um_net_abort(struct um_lane *base, const struct um_slot *slot)
{
    struct um_net_lane *lane = (struct um_net_lane *)base;
    (void)slot;
    um_net_buffer_put(&lane->port->inner, lane->claimed);
    lane->claimed = NULL;
}

/* ---- state, as of the last drive ---- */

uint32_t um_net_lane_body_max(struct um_lane *base, uint32_t wanted)
{
    (void)wanted;
    return base->body_max;
}

bool um_net_prefers_rndv(struct um_lane *base, const struct iovec *iov, size_t count, size_t len)
{
    (void)iov, (void)count;
    return ((const struct um_net_lane *)base)->announces && len > UM_ANNOUNCED_MIN;
}

uint32_t um_net_lane_committed(const struct um_lane *base)
{
    return ((const struct um_net_lane *)base)->committed;
}

uint32_t um_net_lane_consumed(const struct um_lane *base)
{
    struct um_net_lane *lane = (struct um_net_lane *)(uintptr_t)base;
    lane->consumed_seen = lane->consumed;
    lane->was_held = lane->was_held && lane->held;
    return lane->consumed;
}

int um_net_lane_reap(struct um_lane *base, struct um_answer *answers, int max)
{
    struct um_net_lane *lane = (struct um_net_lane *)base;
    int count = 0;
    while (count < max && lane->answers_in != lane->answers_out)
        answers[count++] = lane->answers[lane->answers_out++ % UM_ANSWERS];
    if (count && um_net_lane_taken_is_due(lane))
        um_net_lane_push(lane);
    if (count || !lane->ended || lane->answers_in != lane->answers_out)
        return count;
    lane->ended_seen = true;
    return -EPIPE;
}

/* Every message wakes a sleeping port. A watch only makes arm() refuse when news came before. */
void um_net_lane_watch(struct um_lane *base, bool on)
{
    ((struct um_net_lane *)base)->watched = on;
}

bool um_net_lanes_news(const struct um_net_port *port)
{
    for (uint32_t i = 0; i < port->lanes.end; i++) {
        const struct um_net_lane *lane = port->lanes.at[i];
        if (lane && lane->watched && !lane->closed &&
            (lane->answers_in != lane->answers_out || lane->consumed != lane->consumed_seen ||
             (lane->ended && !lane->ended_seen) || (lane->was_held && !lane->held)))
            return true;
    }
    return false;
}
