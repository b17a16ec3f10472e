/*
 * Receiving as machine.h has it: records, answers, holds. net.h.
 *
 * To look at the inner queue costs a system call where that is tcp's. A port on which nothing happens lets polls pass
 * (um_port.patience): the more the longer it has been quiet, and at most as many as the caller makes in LOOK_NS, which
 * the kernel's clock tells from one tick to the next.
 */
#include "machine/net/net.h"

#include "base/clock.h"

#include <errno.h>

enum {
    IDLE_POLLS = 256,
    OWED_MIN = 32 << 10, /* bytes of a record: to copy it takes as long as to tell that it is consumed */
    OWED_MAX = 2,        /* such records of which that is put off */
    LOOK_NS = 100000,    /* between two looks, at most: a look at tcp's queue takes a microsecond */
    SHOWN_PART = 10,     /* it is divided by that while something is shown: nothing says that a peer reads it */
    TICK_NS = 4000000,   /* between two ticks of the kernel's clock, often */
    PATIENCE_MAX = 4096,
    DELAY = 16, /* the time waited for a message becomes longer by a part of that, at most */
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

/* What the first rx in the list has. */
static int offer(struct um_net_port *port, struct um_record *rec_p)
{
    struct um_list *first = um_list_first(&port->ready);
    port->given = first ? UM_NET_OFFERED : UM_NET_NOTHING;
    if (!first)
        return 0;
    struct um_net_rx *rx = UM_CONTAINER(first, struct um_net_rx, ready);
    if (!rx->joined_told)
        *rec_p = (struct um_record){.rx = &rx->base, .header = nothing, .op = UM_REC_JOINED};
    else if (rx->first && !rx->refused)
        record_view(rx, rec_p);
    else
        *rec_p = (struct um_record){.rx = &rx->base, .header = nothing, .op = UM_REC_LEFT, .len = (uint32_t)rx->error};
    return 1;
}

/*
 * How many polls to leave out after this look. A caller that polls less often than before is noticed when the kernel's
 * clock ticks, one that polls more often at once.
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
    if (moved)
        port->quiet = 0;
    const uint32_t wish = port->quiet / DELAY, most = port->bodies.shown ? port->fit / SHOWN_PART : port->fit;
    port->base.patience = wish < most ? wish : most;
}

int um_net_poll_now(struct um_net_port *port, struct um_record *rec_p)
{
    const uint32_t polls = 1 + (port->base.left ? port->base.patience : 0);
    port->polls += polls;
    port->quiet += port->quiet < UINT32_MAX / 2 ? polls : 0;
    /* What came is dealt with before there is more of it, unless the caller cannot. */
    const bool moved = (um_list_is_empty(&port->ready) || port->given == UM_NET_OFFERED) && um_net_drive(port);
    int ret = offer(port, rec_p);
    patience_after(port, moved || ret || !um_list_is_empty(&port->work) || !um_list_is_empty(&port->bodies.reads));
    if (ret) {
        port->idle = 0;
    } else if ((port->idle += polls) >= IDLE_POLLS && !um_list_is_empty(&port->lazy)) {
        port->idle = 0; /* not at once: an answer to what was just taken may be on its way */
        um_net_credit_due(port);
    }
    return ret;
}

/* Behind the last record that a look found, a caller has something to do that should not wait for another look. But if
 * its sender is owed credit for a large one, the look costs less than to tell of that one alone when more have come. */
int um_net_poll(struct um_port *base, struct um_record *rec_p)
{
    struct um_net_port *port = (struct um_net_port *)base;
    if (port->given != UM_NET_NOTHING && um_list_is_empty(&port->ready) && !port->owed) {
        port->given = UM_NET_NOTHING;
        return 0;
    }
    return um_net_poll_now(port, rec_p);
}

/* A sender that opens a lane is known as soon as the inner queue is read, to its end. */
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
    um_list_unlink(&rx->ready); /* behind the others */
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

/* ---- answers, refusal, who sends ---- */

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
    if (rx->answers_in - rx->answers_taken == UM_ANSWERS) { /* it names tokens anew whose answers it has not taken */
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
    um_net_rx_fail(rx, EPROTO);
    um_net_rx_push(rx);
}

void um_net_rx_origin(const struct um_rx *base, struct um_addr *addr_p)
{
    *addr_p = ((const struct um_net_rx *)base)->peer->addr;
}
