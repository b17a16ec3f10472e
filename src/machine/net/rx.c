/* The receiver's end of a lane: what it tells the sender, and what it is told. net.h. */
#include "machine/net/net.h"

#include "machine/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that a sender keeps in vain: of records that were consumed, before it knows. */
enum { KEPT_MAX = 512 << 10 };

/* ---- what is told to the sender ---- */

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
    grant.head.number = rx->denied;
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

/* What CREDIT says, and PROBE does by the way. */
static void set_credit(const struct um_net_rx *rx, struct um_net_head_wire *head)
{
    head->len = (uint16_t)rx->window;
    head->flags |= rx->held ? UM_NET_HELD : 0;
    head->op = (uint8_t)(rx->credit_serial + 1);
}

static void credit_was_told(struct um_net_rx *rx)
{
    rx->credit_serial++;
    rx->held_told = rx->held;
    rx->window_told = rx->window;
    rx->credit_told = rx->credit_due = rx->released;
    rx->bytes = 0;
    um_list_unlink(&rx->lazy);
}

static bool tell_credit(struct um_net_rx *rx)
{
    struct um_net_head_wire head = head_of(rx, UM_NET_CREDIT);
    if (rx->credit_due == rx->credit_told && rx->held == rx->held_told)
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

/* All answers before the end; BYE to who closed it. */
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

static bool push(struct um_net_work *work)
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

/* ---- its life ---- */

/* denied: it is only to tell that. Takes a reference of the peer. NULL: no memory. */
static struct um_net_rx *rx_new(struct um_net_port *port, struct um_net_peer *peer, enum um_net_grant denied)
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
    rx->work.push = push;
    um_list_init(&rx->work.link);
    um_list_init(&rx->ready);
    um_list_init(&rx->lazy);
    rx->port = port;
    rx->peer = peer;
    rx->denied = denied;
    rx->left_told = rx->closed = rx->bye_told = denied != UM_NET_GRANTED; /* nothing is offered, nothing comes */
    rx->window = rx->window_told = rx->grows_at = UM_NET_WINDOW;
    peer->refs++;
    um_list_append(&peer->rxs, &rx->of_peer);
    *(denied ? &port->denials : &port->rx_used) += 1;
    return rx;
}

static void drop(struct um_net_rx *rx, struct um_net_buffer **list)
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
    drop(rx, &rx->first);
    drop(rx, &rx->ahead);
    um_net_slot_free(&port->rxs, rx->slot);
    um_list_unlink(&rx->work.link);
    um_list_unlink(&rx->ready);
    um_list_unlink(&rx->lazy);
    um_list_unlink(&rx->of_peer);
    um_net_peer_put(port, rx->peer);
    port->windows -= rx->window - UM_NET_WINDOW;
    *(rx->denied ? &port->denials : &port->rx_used) -= 1;
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

void um_net_rx_fall(struct um_net_rx *rx, int error)
{
    if (!rx->closed && !rx->refused)
        rx->error = error;
    rx->closed = true;
    drop(rx, &rx->ahead);
    um_net_rx_offers(rx);
    if (rx->left_told)
        um_net_rx_free(rx);
}

void um_net_rx_fail(struct um_net_rx *rx, int error)
{
    if (rx->refused)
        return;
    rx->refused = true;
    rx->error = error;
    drop(rx, &rx->ahead);
    um_net_rx_offers(rx);
    um_net_work_add(rx->port, &rx->work);
}

/* Of a refused lane there is nothing that is told in the end but BYE. */
static void end_if_all_came(struct um_net_rx *rx)
{
    if (!rx->closing || rx->closed || (!rx->refused && rx->arrived != rx->close_at))
        return;
    rx->closed = true;
    um_net_rx_offers(rx);
    um_net_work_add(rx->port, &rx->work);
}

/* ---- who opens a lane ---- */

/* Why there is no lane for it, or UM_NET_GRANTED. */
static enum um_net_grant denial(const struct um_net_port *port, const struct um_net_join_wire *join)
{
    if (join->head.number != port->name.nonce)
        return UM_NET_NOT_HERE;
    return port->rx_used < port->rx_max ? UM_NET_GRANTED : UM_NET_NONE_FREE;
}

/* It has asked before, and perhaps not heard. True: it is told again. */
static bool is_known(const struct um_net_peer *peer, const struct um_net_join_wire *join)
{
    for (struct um_list *l = peer->rxs.next; l != &peer->rxs; l = l->next) {
        struct um_net_rx *rx = UM_CONTAINER(l, struct um_net_rx, of_peer);
        if (rx->lane_id != join->id || rx->lane_slot != join->slot)
            continue;
        rx->granted = false;
        um_net_work_add(rx->port, &rx->work);
        return true;
    }
    return false;
}

void um_net_rx_join(struct um_net_port *port, const struct um_net_buffer *buffer)
{
    const struct um_net_join_wire *join = (const void *)buffer->message;
    struct um_net_peer *peer;
    if (buffer->len != sizeof(*join) || um_net_addr_check(&port->base, &join->origin, false) != 0 ||
        um_net_peer_get(port, &join->origin, &peer) != 0) {
        port->strays++;
        return;
    }
    um_net_peer_revive(peer);
    const enum um_net_grant denied = denial(port, join);
    struct um_net_rx *rx = NULL;
    if (!peer->gone && !is_known(peer, join) && (!denied || port->denials < UM_NET_DENIALS_MAX))
        rx = rx_new(port, peer, denied);
    if (rx) {
        rx->lane_id = join->id;
        rx->lane_slot = join->slot;
        um_net_rx_offers(rx);
        um_net_rx_push(rx);
    }
    um_net_peer_put(port, peer);
}

/* ---- records ---- */

/* Is it one that its sender may have sent? */
static bool is_good(const struct um_net_rx *rx, const struct um_net_buffer *buffer)
{
    const struct um_net_head_wire *head = (const void *)buffer->message;
    const uint32_t body = buffer->len - (uint32_t)sizeof(struct um_net_record_wire);
    if (buffer->len < sizeof(struct um_net_record_wire) || head->op >= UM_OPCODE_MACHINE)
        return false;
    if (head->flags & UM_FLAG_MACHINE ? !body || head->len != body : body)
        return false;
    return head->number - rx->arrived - 1 < rx->window_told - (rx->arrived - rx->released);
}

static uint32_t number_of(const struct um_net_buffer *buffer)
{
    return ((const struct um_net_head_wire *)(const void *)buffer->message)->number;
}

static void append(struct um_net_rx *rx, struct um_net_buffer *buffer)
{
    buffer->next = NULL;
    if (rx->first)
        rx->last->next = buffer;
    else
        rx->first = buffer;
    rx->last = buffer;
    rx->arrived++;
}

/* It was told again, and once would have done. */
static bool is_old(const struct um_net_rx *rx, uint32_t number)
{
    return (int32_t)(number - rx->arrived) <= 0;
}

/* Keeps it behind those with lower numbers; false: it is there already. */
static bool keep_ahead(struct um_net_rx *rx, struct um_net_buffer *buffer)
{
    struct um_net_buffer **at = &rx->ahead;
    while (*at && number_of(*at) - rx->arrived < number_of(buffer) - rx->arrived)
        at = &(*at)->next;
    if (*at && number_of(*at) == number_of(buffer))
        return false;
    buffer->next = *at;
    *at = buffer;
    return true;
}

/* Not more than were sent, and not backwards. */
static void take_taken(struct um_net_rx *rx, uint32_t taken)
{
    if (taken - rx->answers_taken <= rx->answers_out - rx->answers_taken)
        rx->answers_taken = taken;
}

/* True: the buffer is kept. */
static bool take_record(struct um_net_rx *rx, struct um_net_buffer *buffer)
{
    const struct um_net_head_wire *head = (const void *)buffer->message;
    const bool is_next = head->number == rx->arrived + 1;
    if (rx->refused || rx->closed || (!is_next && is_old(rx, head->number)))
        return false;
    if (!is_good(rx, buffer)) {
        um_net_rx_fail(rx, EPROTO);
        return false;
    }
    take_taken(rx, rx->answers_taken + (uint16_t)(head->taken - rx->answers_taken));
    if (!is_next)
        return keep_ahead(rx, buffer);
    append(rx, buffer);
    while (rx->ahead && number_of(rx->ahead) == rx->arrived + 1) {
        struct um_net_buffer *next = rx->ahead;
        rx->ahead = next->next;
        append(rx, next);
    }
    um_net_rx_offers(rx);
    return true;
}

/* It tells how many records there are: no more than it may have sent. */
static void take_close(struct um_net_rx *rx, uint32_t number)
{
    if (rx->closing)
        return;
    if (number - rx->arrived > rx->window_told - (rx->arrived - rx->released))
        um_net_rx_fail(rx, EPROTO);
    rx->closing = true;
    rx->close_at = number;
}

/* Sends the answers from that one on again: they have their places until they are taken. */
static void send_again(struct um_net_rx *rx, uint32_t from)
{
    rx->answers_out = from;
    um_net_work_add(rx->port, &rx->work);
}

void um_net_rx_take_probe(struct um_net_rx *rx, const struct um_net_probe_wire *probe)
{
    const uint32_t has = probe->head.number, told = rx->answers_out;
    take_taken(rx, probe->taken);
    if (has - rx->answers_taken <= told - rx->answers_taken && um_net_is_lost(&rx->gap, has, told))
        send_again(rx, has);
    if (probe->head.flags & UM_NET_CLOSED)
        take_close(rx, probe->sent);
    end_if_all_came(rx);
    if (rx->end_told || rx->bye_told) { /* which the lane does not know */
        rx->end_told = rx->bye_told = false;
        um_net_rx_push(rx);
    }
}

bool um_net_rx_take(struct um_net_rx *rx, struct um_net_buffer *buffer)
{
    const struct um_net_head_wire *head = (const void *)buffer->message;
    const bool is_bare = buffer->len == sizeof(*head);
    bool is_kept = false;
    if (head->kind == UM_NET_RECORD) {
        is_kept = take_record(rx, buffer);
    } else if (head->kind == UM_NET_TAKEN && is_bare) {
        take_taken(rx, head->number);
    } else if (head->kind == UM_NET_CLOSE && is_bare) {
        take_close(rx, head->number);
    }
    end_if_all_came(rx);
    return is_kept;
}

/* A lane that is used gets a larger window, while there is memory for it. */
static void grow(struct um_net_rx *rx)
{
    struct um_net_port *port = rx->port;
    rx->grows_at = rx->released + rx->window;
    if (rx->window * 2 > UM_NET_WINDOW_MAX || port->windows_max - port->windows < rx->window)
        return;
    port->windows += rx->window;
    rx->window *= 2;
    rx->grows_at = rx->released + rx->window;
}

void um_net_rx_released(struct um_net_rx *rx, uint8_t flags)
{
    struct um_net_buffer *buffer = rx->first;
    rx->first = buffer->next;
    rx->bytes += buffer->len;
    um_net_buffer_put(&rx->port->inner, buffer);
    rx->released++;
    if (rx->released == rx->grows_at)
        grow(rx);
    if ((flags & UM_FLAG_ACK) || rx->released - rx->credit_told >= rx->window_told / 2 || rx->bytes >= KEPT_MAX) {
        rx->credit_due = rx->released;
        um_net_work_add(rx->port, &rx->work);
    } else if (um_list_is_empty(&rx->lazy)) {
        um_list_append(&rx->port->lazy, &rx->lazy);
    }
}
