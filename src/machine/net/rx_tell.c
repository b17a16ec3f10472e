/* The receiver's end of a lane: messages to the sender. net.h. */
#include "machine/net/net.h"

static struct um_net_head_wire head_of(const struct um_net_rx *rx, enum um_net_kind kind)
{
    return (struct um_net_head_wire){
        .version = UM_NET_VERSION, .kind = (uint8_t)kind, .slot = rx->lane_slot, .id = rx->lane_id};
}

static bool tell(const struct um_net_rx *rx, const void *message, size_t len)
{
    return um_net_tell(rx->port, rx->peer, message, len);
}

static bool tell_grant(struct um_net_rx *rx)
{
    struct um_net_grant_wire grant = {
        .head = head_of(rx, UM_NET_GRANT), .id = rx->id, .slot = rx->slot, .window = rx->window};
    grant.head.number = UM_NET_GRANTED;
    if (!rx->granted)
        rx->granted = tell(rx, &grant, sizeof(grant));
    return rx->granted;
}

static bool tell_answers(struct um_net_rx *rx)
{
    while (rx->answers_in != rx->answers_out) {
        struct um_net_answers_wire batch = {.head = head_of(rx, UM_NET_ANSWERS)};
        uint32_t count = rx->answers_in - rx->answers_out;
        count = count < UM_NET_BATCH ? count : UM_NET_BATCH;
        batch.head.number = rx->answers_out;
        for (uint32_t i = 0; i < count; i++)
            batch.answer[i] = rx->answers[(rx->answers_out + i) % UM_ANSWERS];
        batch.head.len = (uint16_t)count;
        if (!tell(rx, &batch, sizeof(batch.head) + count * sizeof(batch.answer[0])))
            return false;
        rx->answers_out += count;
    }
    return true;
}

/* Sets what CREDIT says; the PROBE of an rx says it, too. */
static void set_credit(const struct um_net_rx *rx, struct um_net_head_wire *head)
{
    head->len = (uint16_t)rx->window;
    head->flags |= (rx->held ? UM_NET_HELD : 0) | (rx->announce ? UM_NET_ANNOUNCE : 0);
    head->op = (uint8_t)(rx->credit_serial + 1);
}

static void credit_was_told(struct um_net_rx *rx)
{
    rx->credit_serial++;
    rx->held_told = rx->held;
    rx->announce_told = rx->announce;
    rx->window_told = rx->window;
    rx->credit_told = rx->credit_due = rx->released;
    rx->bytes = 0;
    um_list_unlink(&rx->lazy);
}

static bool tell_credit(struct um_net_rx *rx)
{
    struct um_net_head_wire head = head_of(rx, UM_NET_CREDIT);
    if (rx->credit_due == rx->credit_told && rx->held == rx->held_told && rx->announce == rx->announce_told)
        return true;
    set_credit(rx, &head);
    head.number = rx->released;
    if (!tell(rx, &head, sizeof(head)))
        return false;
    credit_was_told(rx);
    return true;
}

bool um_net_rx_probe(struct um_net_rx *rx)
{
    struct um_net_probe_wire probe = {
        .head = head_of(rx, UM_NET_PROBE), .slot = rx->slot, .taken = rx->released, .sent = rx->answers_out};
    set_credit(rx, &probe.head);
    probe.head.flags |= UM_NET_OF_RX;
    probe.head.number = rx->arrived;
    um_net_addr_set(rx->port, &probe.origin);
    if (!rx->granted)
        return true;
    if (!tell(rx, &probe, sizeof(probe)))
        return false;
    credit_was_told(rx);
    return true;
}

/* Sends ENDED, behind all answers, if this side refused the lane; and BYE if the sender closed it. */
static bool tell_end(struct um_net_rx *rx)
{
    struct um_net_head_wire ended = head_of(rx, UM_NET_ENDED), bye = head_of(rx, UM_NET_BYE);
    ended.number = rx->answers_out;
    if (rx->refused && !rx->end_told)
        rx->end_told = tell(rx, &ended, sizeof(ended));
    if (rx->refused && !rx->end_told)
        return false;
    if (rx->closed && !rx->bye_told)
        rx->bye_told = tell(rx, &bye, sizeof(bye));
    return !rx->closed || rx->bye_told;
}

void um_net_rx_push(struct um_net_rx *rx)
{
    const bool all = rx->peer->gone || (tell_grant(rx) && tell_answers(rx) && tell_credit(rx) && tell_end(rx));
    if (all && rx->left_told && rx->closed)
        um_net_rx_free(rx);
    else if (all)
        um_list_unlink(&rx->work.link);
    else
        um_net_work_add(rx->port, &rx->work);
}

bool um_net_rx_work(struct um_net_work *work)
{
    struct um_net_rx *rx = UM_CONTAINER(work, struct um_net_rx, work);
    struct um_net_port *port = rx->port;
    const uint64_t sent = port->inner.sent;
    um_net_rx_push(rx);
    return port->inner.sent != sent;
}

void um_net_credit_due(struct um_net_port *port)
{
    for (struct um_list *l = port->lazy.next, *next; l != &port->lazy; l = next) {
        struct um_net_rx *rx = UM_CONTAINER(l, struct um_net_rx, lazy);
        next = l->next;
        rx->credit_due = rx->released;
        um_net_rx_push(rx);
    }
}
