/* The receiver's end of a lane: messages from the sender. net.h. */
#include "machine/net/net.h"

#include "machine/address.h"

#include <errno.h>
#include <string.h>

/* Bytes of consumed records from which on credit is due: until it comes, the sender keeps these records in vain. */
enum { UNTOLD_MAX = 256 << 10 };
/* Records of a lane that may wait before long ones, too, are copied out of the buffers that they were received into. */
enum { LARGE_MAX = 16 };
static_assert((int)UNTOLD_MAX <= (int)UM_NET_KEPT_MAX,
              "a sender that may keep no more is told without waiting for idle polls");

/* ---- its end ---- */

void um_net_rx_fall(struct um_net_rx *rx, int error)
{
    if (!rx->closed && !rx->refused)
        rx->error = error;
    rx->closed = true;
    um_net_rx_drop(rx, &rx->ahead);
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
    um_net_rx_drop(rx, &rx->ahead);
    um_net_rx_offers(rx);
    um_net_work_add(rx->port, &rx->work);
}

/* Closes the rx if CLOSE and all records have come. A refused rx does not wait for records: it only sends BYE. */
static void end_if_all_came(struct um_net_rx *rx)
{
    if (!rx->closing || rx->closed || (!rx->refused && rx->arrived != rx->close_at))
        return;
    rx->closed = true;
    um_net_rx_offers(rx);
    um_net_work_add(rx->port, &rx->work);
}

/* ---- who opens a lane ---- */

/* Returns UM_NET_GRANTED, or why the sender gets no lane. */
static enum um_net_grant grant_for(const struct um_net_port *port, const struct um_net_join_wire *join)
{
    if (join->head.number != port->name.nonce)
        return UM_NET_NOT_HERE;
    return port->rx_used < port->rx_max ? UM_NET_GRANTED : UM_NET_NONE_FREE;
}

/* True if the sender has asked for this lane before. GRANT is sent again then: the first one may be lost. */
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

static void join_new(struct um_net_port *port, struct um_net_peer *peer, const struct um_net_join_wire *join)
{
    struct um_net_rx *rx = um_net_rx_new(port, peer);
    if (!rx)
        return;
    rx->work.push = um_net_rx_work;
    rx->lane_id = join->id;
    rx->lane_slot = join->slot;
    um_net_rx_offers(rx);
    um_net_rx_push(rx);
}

static void deny(struct um_net_port *port, struct um_net_peer *peer, const struct um_net_join_wire *join,
                 enum um_net_grant denial)
{
    const struct um_net_grant_wire grant = {
        .head = {
            .version = UM_NET_VERSION, .kind = UM_NET_GRANT, .number = denial, .slot = join->slot, .id = join->id}};
    um_net_deny(port, peer, &grant, sizeof(grant));
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
    if (!peer->gone && !is_known(peer, join)) {
        const enum um_net_grant grant = grant_for(port, join);
        if (grant == UM_NET_GRANTED)
            join_new(port, peer, join);
        else
            deny(port, peer, join, grant);
    }
    um_net_peer_put(port, peer);
}

/* ---- records ---- */

/* True if a correct sender may have sent this record. */
static bool is_good(const struct um_net_rx *rx, const struct um_net_buffer *buffer)
{
    const struct um_net_head_wire *head = (const void *)buffer->message;
    const uint32_t body = buffer->len - (uint32_t)sizeof(struct um_net_record_wire);
    if (buffer->len < sizeof(struct um_net_record_wire) || head->op >= UM_OPCODE_MACHINE)
        return false;
    const bool has_body = head->flags & UM_FLAG_MACHINE;
    const uint32_t seal = has_body ? head->len : 0;
    if (has_body ? body <= seal || (seal && seal != UM_NET_SEAL) || body - seal > UM_NET_BODY_MAX : body)
        return false;
    if (rx->unreleased >= UM_NET_KEPT_MAX + UM_NET_LARGE)
        return false;
    return head->number - rx->arrived - 1 < rx->window_told - (rx->arrived - rx->released);
}

/* Removes the seal, if there is one. True: there is none, or it is right. */
static bool is_whole(struct um_net_buffer *buffer)
{
    const struct um_net_head_wire *head = (const void *)buffer->message;
    uint64_t seal;
    if (!(head->flags & UM_FLAG_MACHINE) || !head->len)
        return true;
    buffer->len -= UM_NET_SEAL;
    memcpy(&seal, buffer->message + buffer->len, sizeof(seal));
    return seal == um_net_seal(head);
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

/* Copies a record that has to wait behind others into a buffer of its size. To copy a long one costs more than it is
 * worth, unless many wait. */
static struct um_net_buffer *fit(struct um_net_rx *rx, struct um_net_buffer *buffer)
{
    const bool is_one_of_many = rx->arrived - rx->released >= LARGE_MAX;
    return um_net_buffer_fit(&rx->port->inner, buffer, is_one_of_many ? UM_NET_LARGE : UM_NET_MIDDLE);
}

/* True if the record has come before: it was sent again. */
static bool is_old(const struct um_net_rx *rx, uint32_t number)
{
    return (int32_t)(number - rx->arrived) <= 0;
}

/* Keeps a record that came before earlier ones, sorted by number. The sender decides how long it waits, so it is always
 * copied into a buffer of its size. False: it is there already. */
static bool keep_ahead(struct um_net_rx *rx, struct um_net_buffer *buffer)
{
    struct um_net_buffer **at = &rx->ahead;
    while (*at && number_of(*at) - rx->arrived < number_of(buffer) - rx->arrived)
        at = &(*at)->next;
    if (*at && number_of(*at) == number_of(buffer))
        return false;
    rx->unreleased += buffer->len;
    buffer = um_net_buffer_fit(&rx->port->inner, buffer, UM_NET_LARGE);
    buffer->next = *at;
    *at = buffer;
    return true;
}

/* Takes the number of answers that the sender has taken. Drops one beyond those sent, or lower than before. */
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
    if (!is_whole(buffer)) { /* the sender gave up the body, and the lane with it; or its memory has a hole */
        um_net_rx_fail(rx, ECONNRESET);
        return false;
    }
    take_taken(rx, rx->answers_taken + (uint16_t)(head->taken - rx->answers_taken));
    if (!is_next)
        return keep_ahead(rx, buffer);
    rx->unreleased += buffer->len;
    append(rx, rx->first ? fit(rx, buffer) : buffer);
    while (rx->ahead && number_of(rx->ahead) == rx->arrived + 1) {
        struct um_net_buffer *next = rx->ahead;
        rx->ahead = next->next;
        append(rx, next);
    }
    um_net_rx_offers(rx);
    return true;
}

/* Takes CLOSE: the number of records in all, which must not exceed what the sender may have sent. */
static void take_close(struct um_net_rx *rx, uint32_t number)
{
    if (rx->closing)
        return;
    if (number - rx->arrived > rx->window_told - (rx->arrived - rx->released))
        um_net_rx_fail(rx, EPROTO);
    rx->closing = true;
    rx->close_at = number;
}

/* Lets the answers from that one on be sent again: they keep their places until they are taken. */
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
    if (rx->end_told || rx->bye_told) { /* the lane did not learn that */
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

bool um_net_rx_may_owe(const struct um_net_rx *rx)
{
    return !um_list_is_empty(&rx->work.link) && !rx->left_told && rx->bytes < UNTOLD_MAX;
}

void um_net_rx_released(struct um_net_rx *rx, uint8_t flags)
{
    struct um_net_buffer *buffer = rx->first;
    rx->first = buffer->next;
    rx->bytes += buffer->len;
    rx->unreleased -= buffer->len;
    um_net_buffer_put(&rx->port->inner, buffer);
    rx->released++;
    if (rx->released == rx->grows_at)
        grow(rx);
    if ((flags & UM_FLAG_ACK) || rx->released - rx->credit_told >= rx->window_told / 2 || rx->bytes >= UNTOLD_MAX) {
        rx->credit_due = rx->released;
        um_net_work_add(rx->port, &rx->work);
    } else if (um_list_is_empty(&rx->lazy)) {
        um_list_append(&rx->port->lazy, &rx->lazy);
    }
}
