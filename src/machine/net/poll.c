/*
 * Receiving as machine.h has it: records, answers, holds. net.h.
 *
 * A look at the inner queue costs a system call if that is tcp's. A port on which nothing happens lets its caller skip
 * polls (um_port.patience): the more the longer it has been quiet, and at most as many as the caller makes in LOOK_NS.
 * That number is measured from one tick of the coarse clock to the next.
 */
#include "machine/net/net.h"

#include "base/clock.h"

#include <errno.h>

enum {
    IDLE_POLLS = 256,
    OWED_MIN = 32 << 10, /* bytes; to copy a body of this size takes as long as to send credit for it */
    OWED_MAX = 2,        /* such records whose credit may be put off */
    LOOK_NS = 100000,    /* ns between two looks, at most: a look at tcp's queue takes a microsecond */
    SHOWN_PART = 10,     /* LOOK_NS is divided by that while memory is shown: no event reports that a peer reads it */
    TICK_NS = 4000000,   /* ns between two ticks of the kernel's clock, often */
    PATIENCE_MAX = 4096,
    DELAY = 16, /* to skip polls makes the wait for a message longer by this fraction (1/16) at most */
};

/* ---- records ---- */

static const unsigned char nothing[UM_HEADER_MAX];

static void record_view(struct um_net_rx *rx, struct um_record *rec_p)
{
    const struct um_net_record_wire *record = (const void *)rx->first->message;
    const bool has_body = record->head.flags & UM_FLAG_MACHINE;
    *rec_p = (struct um_record){.rx = &rx->base,
                                .header = record->header,
                                .body = has_body ? record + 1 : NULL,
                                .len = has_body ? rx->first->len - (uint32_t)sizeof(*record) : record->head.len,
                                .op = record->head.op,
                                .flags = record->head.flags & (UM_FLAG_MASK | UM_FLAG_ACK)};
}

/* Upon UM_REC_LEFT with an error core ends the operations with the peer: the program gets lent bodies back, and they
 * must not be sent any more, not even if the peer asks for them again. */
static void left(const struct um_net_rx *rx)
{
    struct um_list *next;
    for (struct um_list *l = rx->peer->lanes.next; rx->error && !rx->declined && l != &rx->peer->lanes; l = next) {
        next = l->next;
        um_net_lane_give_back(UM_CONTAINER(l, struct um_net_lane, of_peer));
    }
}

/* Offers what the first rx in the list `ready` has; returns 0 if the list is empty. */
static int offer(struct um_net_port *port, struct um_record *rec_p)
{
    struct um_list *first = um_list_first(&port->ready);
    port->given = first ? UM_NET_OFFERED : UM_NET_NOTHING;
    if (!first)
        return 0;
    struct um_net_rx *rx = UM_CONTAINER(first, struct um_net_rx, ready);
    if (!rx->joined_told) {
        *rec_p = (struct um_record){.rx = &rx->base, .header = nothing, .op = UM_REC_JOINED};
    } else if (rx->first && !rx->refused) {
        record_view(rx, rec_p);
    } else {
        left(rx);
        *rec_p = (struct um_record){.rx = &rx->base, .header = nothing, .op = UM_REC_LEFT, .len = (uint32_t)rx->error};
    }
    return 1;
}

/*
 * Sets how many polls the caller may skip after this look. That the caller polls less often than before is noticed when
 * the kernel's clock ticks; that it polls more often, at once.
 */
static void patience_after(struct um_net_port *port, bool moved)
{
    const uint64_t now = um_clock_coarse_ns(), passed = now - port->ticked_at_coarse;
    const uint64_t fit = (uint64_t)port->polls * LOOK_NS / (passed ? passed : TICK_NS);
    if (passed || fit > port->fit)
        port->fit = fit < PATIENCE_MAX ? (uint32_t)fit : PATIENCE_MAX;
    if (passed) {
        port->ticked_at_coarse = now;
        port->polls = 0;
    }
    port->quiet = moved ? 0 : port->quiet;
    const uint32_t wish = port->quiet / DELAY, most = port->bodies.shown ? port->fit / SHOWN_PART : port->fit;
    port->base.patience = wish < most ? wish : most;
}

int um_net_poll_now(struct um_net_port *port, struct um_record *rec_p)
{
    const uint32_t polls = 1 + (port->base.left ? port->base.patience : 0);
    port->polls += polls;
    port->quiet += port->quiet < UINT32_MAX / 2 ? polls : 0;
    /* What came is offered before more is taken, unless the caller did not release the last record. */
    const bool moved = (um_list_is_empty(&port->ready) || port->given == UM_NET_OFFERED) && um_net_drive(port);
    int ret = offer(port, rec_p);
    patience_after(port, moved || ret || !um_list_is_empty(&port->work) || !um_list_is_empty(&port->bodies.reads));
    if (ret) {
        port->idle = 0;
    } else if ((port->idle += polls) >= IDLE_POLLS && !um_list_is_empty(&port->lazy)) {
        port->idle = 0; /* not earlier: an answer to the record that was just taken may be on its way */
        um_net_credit_due(port);
    }
    return ret;
}

/* After the last record that a look found, returns 0 without another look: the caller has something to do that should
 * not wait. But if credit for a large record was put off, it looks: a look costs less than to send credit for that
 * record alone, if more records have come. */
int um_net_poll(struct um_port *base, struct um_record *rec_p)
{
    struct um_net_port *port = (struct um_net_port *)base;
    if (port->given != UM_NET_NOTHING && um_list_is_empty(&port->ready) && !port->owed) {
        port->given = UM_NET_NOTHING;
        return 0;
    }
    return um_net_poll_now(port, rec_p);
}

/* Reads the inner queue to its end: then all senders are known that opened a lane. */
bool um_net_gather(struct um_port *base)
{
    struct um_net_port *port = (struct um_net_port *)base;
    um_net_drive_all(port);
    for (const struct um_list *l = port->ready.next; l != &port->ready; l = l->next) {
        const struct um_net_rx *rx = UM_CONTAINER(l, const struct um_net_rx, ready);
        if (!rx->joined_told || (!rx->first && (rx->closed || rx->refused)))
            return true;
    }
    return false;
}

void um_net_release(struct um_port *base, const struct um_record *rec)
{
    struct um_net_port *port = (struct um_net_port *)base;
    struct um_net_rx *rx = (struct um_net_rx *)rec->rx;
    const bool is_large = rec->body && rec->len >= OWED_MIN;
    port->given = UM_NET_RELEASED;
    if (rec->op == UM_REC_JOINED)
        rx->joined_told = true;
    else if (rec->op == UM_REC_LEFT)
        rx->left_told = true;
    else
        um_net_rx_released(rx, rec->flags);
    um_list_unlink(&rx->ready); /* to go behind the others */
    um_net_rx_offers(rx);
    if (is_large && port->owed < OWED_MAX && um_net_rx_may_owe(rx)) {
        port->owed++;
        return;
    }
    if (!um_list_is_empty(&rx->work.link) || rx->left_told)
        um_net_rx_push(rx);
    if (port->owed)
        um_net_catch_up(base);
}

/* ---- answers, refusal, origin ---- */

static bool has_room(const struct um_net_rx *rx)
{
    return rx->answers_in - rx->answers_taken < UM_ANSWERS - UM_TOKENS;
}

int um_net_answer(struct um_rx *base, uint32_t token, int32_t status)
{
    struct um_net_rx *rx = (struct um_net_rx *)base;
    if (token >= UM_TOKENS && !has_room(rx))
        um_net_drive(rx->port);
    rx->crowded = token >= UM_TOKENS && !has_room(rx);
    if (rx->crowded)
        return -EAGAIN;
    if (rx->answers_in - rx->answers_taken == UM_ANSWERS) { /* the sender reused tokens before it took their answers */
        um_net_rx_refuse(base);
        return 0;
    }
    rx->answers[rx->answers_in++ % UM_ANSWERS] = (struct um_answer){token, status};
    um_net_rx_push(rx);
    return 0;
}

bool um_net_rxs_news(const struct um_net_port *port)
{
    for (uint32_t i = 0; i < port->rxs.end; i++) {
        const struct um_net_rx *rx = port->rxs.at[i];
        if (rx && rx->crowded && has_room(rx))
            return true;
    }
    return false;
}

void um_net_rx_hold(struct um_rx *base, bool on)
{
    struct um_net_rx *rx = (struct um_net_rx *)base;
    rx->held = on;
    um_net_rx_push(rx);
}

void um_net_rx_announce(struct um_rx *base, bool on)
{
    struct um_net_rx *rx = (struct um_net_rx *)base;
    rx->announce = on;
    um_net_rx_push(rx);
}

void um_net_rx_refuse(struct um_rx *base)
{
    struct um_net_rx *rx = (struct um_net_rx *)base;
    rx->declined = rx->declined || !rx->joined_told;
    um_net_rx_fail(rx, EPROTO);
    um_net_rx_push(rx);
}

void um_net_rx_origin(const struct um_rx *base, struct um_addr *addr_p)
{
    *addr_p = ((const struct um_net_rx *)base)->peer->addr;
}
