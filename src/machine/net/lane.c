/* The sender's end of a lane: its messages to the receiver, and the receiver's to it. net.h. */
#include "machine/net/net.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages to the receiver ---- */

static struct um_net_head_wire head_of(const struct um_net_lane *lane, enum um_net_kind kind)
{
    return (struct um_net_head_wire){
        .version = UM_NET_VERSION, .kind = (uint8_t)kind, .slot = lane->rx_slot, .id = lane->rx_id};
}

static bool tell_join(struct um_net_lane *lane)
{
    struct um_net_join_wire join = {
        .head = {.version = UM_NET_VERSION, .kind = UM_NET_JOIN, .number = lane->peer->nonce},
        .id = lane->id,
        .slot = lane->slot};
    um_net_addr_set(lane->port, &join.origin);
    const bool is_told = um_net_tell(lane->port, lane->peer, &join, sizeof(join));
    lane->asked = lane->asked || is_told;
    return is_told;
}

/* Sends committed records in order. The inner provider may still own the buffer of a record that must be sent again; it
 * is skipped. */
static bool tell_records(struct um_net_lane *lane)
{
    for (; lane->unsent; lane->unsent = lane->unsent->next) {
        if (!lane->unsent->is_sending && !um_net_tell_buffer(lane->port, lane->peer, lane->unsent))
            return false;
    }
    return true;
}

bool um_net_lane_taken_is_due(const struct um_net_lane *lane)
{
    return lane->answers_out - lane->answers_told >= UM_ANSWERS / 4;
}

static bool tell_taken(struct um_net_lane *lane)
{
    struct um_net_head_wire head = head_of(lane, UM_NET_TAKEN);
    head.number = lane->answers_out;
    if (!um_net_lane_taken_is_due(lane))
        return true;
    if (!um_net_tell(lane->port, lane->peer, &head, sizeof(head)))
        return false;
    lane->answers_told = lane->answers_out;
    return true;
}

static bool tell_close(struct um_net_lane *lane)
{
    struct um_net_head_wire head = head_of(lane, UM_NET_CLOSE);
    head.number = lane->committed;
    if (!lane->closed || lane->close_told)
        return true;
    lane->close_told = um_net_tell(lane->port, lane->peer, &head, sizeof(head));
    return lane->close_told;
}

/* True if the lane can be freed. One closed between JOIN and GRANT waits for the GRANT, and sends CLOSE then. */
static bool is_done(const struct um_net_lane *lane)
{
    if (!lane->closed)
        return false;
    if (lane->peer->gone || lane->state == UM_NET_DENIED ||
        (lane->state == UM_NET_ASKING && (!lane->asked || lane->ended)))
        return true;
    return lane->close_told && (lane->bye || lane->ended);
}

void um_net_lane_push(struct um_net_lane *lane)
{
    bool all = lane->peer->gone;
    if (!all && !lane->asked && !lane->closed)
        all = tell_join(lane);
    else if (!all && lane->state == UM_NET_OPEN) /* an rx that ended the lane keeps its place until CLOSE comes */
        all = (lane->ended || (tell_records(lane) && tell_taken(lane))) && tell_close(lane);
    else if (!all)
        all = true;
    if (is_done(lane))
        um_net_lane_free(lane);
    else if (all)
        um_list_unlink(&lane->work.link);
    else
        um_net_work_add(lane->port, &lane->work);
}

static bool push(struct um_net_work *work)
{
    struct um_net_lane *lane = UM_CONTAINER(work, struct um_net_lane, work);
    const uint64_t sent = lane->port->inner.sent;
    struct um_net_port *port = lane->port;
    um_net_lane_push(lane);
    return port->inner.sent != sent;
}

/* ---- its life ---- */

struct um_net_lane *um_net_lane_new(struct um_net_port *port, struct um_net_peer *peer)
{
    struct um_net_lane *lane = calloc(1, sizeof(*lane));
    if (!lane)
        return NULL;
    lane->id = um_net_secret();
    if (!lane->id || um_net_slot_take(&port->lanes, lane, &lane->slot) != 0) {
        free(lane);
        return NULL;
    }
    lane->base = (struct um_lane){.machine = port->base.machine, .body_max = port->inner.body_max};
    lane->work.push = push;
    um_list_init(&lane->work.link);
    lane->port = port;
    lane->peer = peer;
    peer->refs++;
    um_list_append(&peer->lanes, &lane->of_peer);
    return lane;
}

static bool is_lent_and_sending(const struct um_net_buffer *buffer)
{
    return buffer->lent.iov_len && buffer->is_sending;
}

/* Drops the first record. A buffer that the inner provider still owns comes back to the port when its send completes.
 * The program gets the memory of a lent body back now; so the seal, which is sent last, becomes a wrong one. */
static void drop_first(struct um_net_lane *lane)
{
    struct um_net_buffer *buffer = lane->first;
    if (is_lent_and_sending(buffer))
        um_net_buffer_seal(buffer, false);
    lane->first = buffer->next;
    lane->kept -= buffer->len;
    if (lane->unsent == buffer)
        lane->unsent = buffer->next;
    buffer->lane = NULL;
    if (!buffer->is_sending)
        um_net_buffer_put(&lane->port->inner, buffer);
}

static void drop_records(struct um_net_lane *lane)
{
    while (lane->first)
        drop_first(lane);
}

static uint32_t number_of(const struct um_net_buffer *buffer)
{
    return ((const struct um_net_head_wire *)(const void *)buffer->message)->number;
}

/* Lets this record and those behind it be sent again. The receiver drops those that it has. */
static void send_again(struct um_net_lane *lane, struct um_net_buffer *buffer)
{
    if (lane->unsent && (int32_t)(number_of(lane->unsent) - number_of(buffer)) <= 0)
        return;
    lane->unsent = buffer;
    um_net_work_add(lane->port, &lane->work);
}

/* Drops the records that the receiver has consumed, but stops at a lent body that is being sent a second time: the
 * inner provider still reads it. */
static void advance(struct um_net_lane *lane)
{
    while (lane->first && (int32_t)(number_of(lane->first) - lane->credited) <= 0) {
        if (is_lent_and_sending(lane->first))
            return;
        lane->consumed = number_of(lane->first);
        drop_first(lane);
    }
    lane->consumed = lane->credited;
}

void um_net_lane_sent(struct um_net_buffer *buffer, bool failed)
{
    struct um_net_lane *lane = buffer->lane;
    if (failed)
        send_again(lane, buffer);
    if (lane->consumed != lane->credited)
        advance(lane);
}

void um_net_lane_free(struct um_net_lane *lane)
{
    struct um_net_port *port = lane->port;
    drop_records(lane);
    if (lane->claimed)
        um_net_buffer_put(&port->inner, lane->claimed);
    um_net_slot_free(&port->lanes, lane->slot);
    um_list_unlink(&lane->work.link);
    um_list_unlink(&lane->of_peer);
    um_net_peer_put(port, lane->peer);
    free(lane);
}

void um_net_lane_fall(struct um_net_lane *lane)
{
    lane->ended = true;
    drop_records(lane);
    if (is_done(lane))
        um_net_lane_free(lane);
}

void um_net_lane_give_back(struct um_net_lane *lane)
{
    for (const struct um_net_buffer *b = lane->first; b; b = b->next) {
        if (b->lent.iov_len) {
            um_net_lane_fall(lane);
            return;
        }
    }
}

/* ---- messages from the receiver ---- */

static void warn_full(struct um_net_peer *peer)
{
    static struct um_log_limit limit;
    if (!peer->full_logged)
        um_log_limited(&limit, UM_LOG_WARN,
                       "the machine net: all lanes into a peer are taken: messages to it wait until another sender "
                       "leaves; set FI_UNIMEM_LANES to at least the number of processes");
    peer->full_logged = true; /* later tries fail for the same reason */
}

static void take_grant(struct um_net_lane *lane, const struct um_net_buffer *buffer)
{
    const struct um_net_grant_wire *grant = (const void *)buffer->message;
    if (buffer->len != sizeof(*grant) || lane->state != UM_NET_ASKING || !lane->asked)
        return;
    const uint32_t window = grant->window < UM_NET_WINDOW_MAX ? grant->window : UM_NET_WINDOW_MAX;
    lane->state = grant->head.number == UM_NET_GRANTED && window ? UM_NET_OPEN : UM_NET_DENIED;
    lane->error = grant->head.number == UM_NET_NONE_FREE ? -EAGAIN : -ECONNREFUSED;
    if (lane->state == UM_NET_DENIED && lane->error != -EAGAIN)
        um_net_peer_not_found(lane->peer);
    else if (lane->state == UM_NET_DENIED && !lane->closed)
        warn_full(lane->peer);
    lane->rx_id = grant->id;
    lane->rx_slot = grant->slot;
    lane->window = window;
}

/* Takes credit. Drops credit for more than was committed, and older credit that comes late: for fewer records, or, of
 * the same records, with an older serial. (More records are newer whatever the serial: many messages may be lost with a
 * connection, and the serial has 8 bits.) */
static void take_credit(struct um_net_lane *lane, const struct um_net_head_wire *head, uint32_t consumed)
{
    const bool is_late = (uint8_t)(head->op - lane->credit_serial - 1) > INT8_MAX;
    if (lane->committed - consumed > lane->committed - lane->credited || (consumed == lane->credited && is_late))
        return;
    lane->credit_serial = head->op;
    lane->held = head->flags & UM_NET_HELD;
    lane->announces = head->flags & UM_NET_ANNOUNCE;
    lane->credited = consumed;
    advance(lane);
    if (head->len > lane->window)
        lane->window = head->len < UM_NET_WINDOW_MAX ? head->len : UM_NET_WINDOW_MAX;
}

static void end_if_all_came(struct um_net_lane *lane)
{
    if (lane->ends_is_known && lane->answers_in == lane->ends_at)
        lane->ended = true;
}

/* Takes the answers that follow those that have come, and drops those that have come before. A receiver that sends more
 * than there are places for only loses its own answers. */
static void take_answers(struct um_net_lane *lane, const struct um_net_buffer *buffer)
{
    const struct um_net_answers_wire *answers = (const void *)buffer->message;
    const uint32_t count = answers->head.len;
    const uint32_t again = lane->answers_in - answers->head.number;
    if (count > UM_NET_BATCH || buffer->len != sizeof(answers->head) + count * sizeof(answers->answer[0]) ||
        again > UM_ANSWERS)
        return;
    for (uint32_t i = again; i < count && lane->answers_in - lane->answers_out < UM_ANSWERS; i++)
        lane->answers[lane->answers_in++ % UM_ANSWERS] = answers->answer[i];
}

void um_net_lane_take(struct um_net_lane *lane, const struct um_net_buffer *buffer)
{
    const struct um_net_head_wire *head = (const void *)buffer->message;
    const bool is_bare = buffer->len == sizeof(*head);
    if (head->kind == UM_NET_GRANT) {
        take_grant(lane, buffer);
    } else if (head->kind == UM_NET_CREDIT && is_bare) {
        take_credit(lane, head, head->number);
    } else if (head->kind == UM_NET_ANSWERS) {
        take_answers(lane, buffer);
    } else if (head->kind == UM_NET_ENDED && is_bare) {
        lane->ends_is_known = true;
        lane->ends_at = head->number;
    } else if (head->kind == UM_NET_BYE && is_bare) {
        lane->bye = lane->close_told;
    }
    end_if_all_came(lane);
    if (lane->ended)
        drop_records(lane);
    if (lane->closed)
        um_net_lane_push(lane);
}

/* ---- what each side has ---- */

void um_net_lane_take_probe(struct um_net_lane *lane, const struct um_net_probe_wire *probe)
{
    const uint32_t has = probe->head.number, told = lane->unsent ? number_of(lane->unsent) - 1 : lane->committed;
    take_credit(lane, &probe->head, probe->taken);
    if (has - lane->consumed <= lane->committed - lane->consumed && um_net_is_lost(&lane->gap, has, told)) {
        struct um_net_buffer *buffer = lane->first;
        while (buffer && (int32_t)(number_of(buffer) - has) <= 0)
            buffer = buffer->next;
        if (buffer)
            send_again(lane, buffer);
    }
    if (lane->closed)
        um_net_lane_push(lane);
}

bool um_net_lane_probe(struct um_net_lane *lane)
{
    if (lane->state != UM_NET_OPEN)
        return lane->state == UM_NET_DENIED || (lane->asked && tell_join(lane));
    struct um_net_probe_wire probe = {
        .head = head_of(lane, UM_NET_PROBE), .slot = lane->slot, .taken = lane->answers_out, .sent = lane->committed};
    probe.head.number = lane->answers_in;
    probe.head.flags = lane->close_told ? UM_NET_CLOSED : 0;
    um_net_addr_set(lane->port, &probe.origin);
    return um_net_tell(lane->port, lane->peer, &probe, sizeof(probe));
}
