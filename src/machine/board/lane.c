/* Sending: asking for a lane, claim and commit, what comes back. board.h. */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is told to the receiver ---- */

/* Sends a message about the lane. A peer that is gone ends it. */
static bool tell(struct um_board_lane *lane, const struct um_board_message_wire *message)
{
    int ret = um_board_api.mailbox_send(um_board_handle(), &lane->peer, message, sizeof(*message));
    if (ret && ret != -EAGAIN)
        lane->ended = true;
    return ret == 0;
}

static bool tell_join(struct um_board_lane *lane)
{
    const struct unimem_mailbox_address *own = &lane->port->address;
    struct um_board_message_wire message = {.op = UM_BOARD_JOIN,
                                            .token = (uint16_t)own->node,
                                            .number = lane->number,
                                            .value = own->context,
                                            .more = (uint64_t)own->generation << 32 | own->mailbox};
    lane->asked = tell(lane, &message);
    return lane->asked;
}

static bool tell_data(struct um_board_lane *lane)
{
    struct um_board_message_wire message = {.op = UM_BOARD_DATA, .number = lane->rx, .value = lane->moved};
    if (!tell(lane, &message))
        return false;
    lane->told = lane->moved;
    return true;
}

/* Before UM_BOARD_EAGER the receiver is asked for every record. */
static bool tell_ask(struct um_board_lane *lane)
{
    struct um_board_message_wire message = {.op = UM_BOARD_ASK, .number = lane->rx, .value = lane->started + 1};
    if (!tell(lane, &message))
        return false;
    lane->asked_for = lane->started + 1;
    return true;
}

/* ---- records on their way ---- */

void um_board_lane_forget_ring(const struct um_board_lane *lane)
{
    struct um_board_reach *reach = lane->rx ? um_board_reach_find(&lane->ring, UM_BOARD_RING) : NULL;
    if (reach)
        um_board_reach_drop(reach);
}

/* Ends the DMA of the oldest record if it is done. Returns whether anything came of it. */
static bool flight_land(struct um_board_lane *lane)
{
    uint32_t place = lane->moved % UM_BOARD_FLIGHTS;
    int ret = um_board_dma_end(lane->flight_by[place], lane->flight[place]);
    if (ret == -EINPROGRESS)
        return false;
    lane->ended |= ret != 0;
    lane->moved++;
    if (um_board_step() == UM_BOARD_NAIVE)
        um_board_lane_forget_ring(lane);
    return true;
}

void um_board_lane_settle(struct um_board_lane *lane)
{
    while (lane->moved != lane->started)
        flight_land(lane);
}

void um_board_lanes_settle(void)
{
    for (struct um_board_lane *lane = um_board_lane_next(NULL); lane; lane = um_board_lane_next(lane))
        um_board_lane_settle(lane);
}

/* NULL: it has to wait for a place in the engine's table, or the lane has ended. */
static struct um_board_reach *ring_register(struct um_board_lane *lane)
{
    struct um_board_reach *reach = um_board_reach_again(&lane->hint, &lane->ring, UM_BOARD_RING);
    if (reach)
        return reach;
    int ret = um_board_reach_get(&lane->ring, UM_BOARD_RING, &reach);
    um_board_reach_remember(&lane->hint, reach);
    lane->ended |= ret && ret != -EAGAIN && ret != -ENOMEM;
    return reach;
}

/* Begins the DMA of the next record. False: it has to wait, or the lane has ended. */
static bool flight_start(struct um_board_lane *lane)
{
    struct um_board_record_wire *record = um_board_lane_staged(lane, lane->lines_started);
    uint32_t body = record->body ? record->len : 0, place = lane->started % UM_BOARD_FLIGHTS;
    struct um_board_transfer what = {.reach = ring_register(lane),
                                     .address = lane->ring.address + ((uintptr_t)record - (uintptr_t)lane->staging),
                                     .local = record,
                                     .len = sizeof(*record) + body,
                                     .write = true};
    int ret = what.reach ? um_board_dma_begin(&what, &lane->flight[place]) : -EAGAIN;
    lane->ended |= ret && ret != -EAGAIN;
    if (ret)
        return false;
    lane->flight_by[place] = what.reach;
    lane->started++;
    lane->lines_started += um_board_lines(body);
    return true;
}

/* Moves on what is committed: asks, begins DMAs, sees their ends, tells. */
static bool push_records(struct um_board_lane *lane)
{
    bool any = false, eager = um_board_step() >= UM_BOARD_EAGER;
    if (!lane->more)
        um_board_lane_settle(lane);
    while (lane->started != lane->committed && !lane->ended) {
        if (!eager && lane->allowed == lane->started) {
            if (lane->asked_for == lane->started)
                any |= tell_ask(lane);
            break;
        }
        if (lane->started - lane->moved == UM_BOARD_FLIGHTS || (!eager && lane->started != lane->moved)) {
            while (!flight_land(lane))
                ;
            continue;
        }
        if (!flight_start(lane))
            break;
        any = true;
    }
    if (!lane->more)
        um_board_lane_settle(lane);
    if (lane->told != lane->moved && !lane->ended)
        any |= tell_data(lane);
    return any;
}

/* The receiver keeps places for answers: it is told by quarters of them which are free again. */
static bool taken_is_due(const struct um_board_lane *lane)
{
    return lane->answers_out - lane->answers_told >= UM_BOARD_ANSWERS / 4;
}

bool um_board_lane_holds_back(const struct um_board_lane *lane)
{
    if (lane->ended)
        return lane->closed && lane->state == UM_LANE_OPEN;
    return !lane->asked ||
           (lane->state == UM_LANE_OPEN && (lane->closed || lane->told != lane->committed || taken_is_due(lane)));
}

/* The receiver keeps the ring for us until it hears this, even if it has ended the lane itself. False: it does not yet.
 */
static bool push_close(struct um_board_lane *lane)
{
    struct um_board_message_wire message = {.op = UM_BOARD_CLOSE, .number = lane->rx};
    if (lane->told != lane->committed && !lane->ended)
        return false;
    um_board_lane_settle(lane);
    return um_board_api.mailbox_send(um_board_handle(), &lane->peer, &message, sizeof(message)) != -EAGAIN;
}

/* Where the peer finds our dmable memory, before it hears of any. */
static bool tell_arenas(struct um_board_lane *lane)
{
    uint32_t version;
    struct um_board_message_wire message = {.op = UM_BOARD_ARENAS, .number = lane->rx};
    message.more = um_board_directory(&version);
    message.value = version;
    if (version == lane->arenas_told || um_board_step() < UM_BOARD_DIRECT || !tell(lane, &message))
        return false;
    lane->arenas_told = version;
    return true;
}

static bool tell_taken(struct um_board_lane *lane)
{
    struct um_board_message_wire message = {.op = UM_BOARD_TAKEN, .number = lane->rx, .value = lane->answers_out};
    if (!taken_is_due(lane) || !tell(lane, &message))
        return false;
    lane->answers_told = lane->answers_out;
    return true;
}

bool um_board_lane_push(struct um_board_lane *lane)
{
    bool any = false;
    if (!lane->asked && !lane->ended)
        any = tell_join(lane);
    if (lane->state == UM_LANE_OPEN && !lane->ended)
        any |= tell_arenas(lane) | tell_taken(lane);
    if (lane->state == UM_LANE_OPEN && lane->told != lane->committed && !lane->ended)
        any |= push_records(lane);
    if (!lane->closed || (lane->state == UM_LANE_ASKING && !lane->ended))
        return any;
    if (lane->state == UM_LANE_OPEN && !push_close(lane))
        return any;
    um_board_lane_free(lane);
    return true;
}

/* ---- what the receiver tells ---- */

static void take_grant(struct um_board_lane *lane, const struct um_board_message_wire *message)
{
    if (lane->state != UM_LANE_ASKING)
        return;
    lane->state = message->value ? UM_LANE_OPEN : UM_LANE_DENIED;
    if (!message->value)
        return;
    lane->rx = message->value;
    lane->ring = (struct unimem_remote){lane->peer.node, lane->peer.context, message->more};
    if (um_board_step() != UM_BOARD_NAIVE)
        ring_register(lane);
}

static void take_credit(struct um_board_lane *lane, const struct um_board_message_wire *message)
{
    uint32_t lines = (uint32_t)message->more;
    if (lane->committed - message->value > lane->committed - lane->consumed ||
        lane->lines_committed - lines > lane->lines_committed - lane->lines_consumed)
        return; /* not more than was sent, not backwards */
    lane->held = message->held;
    lane->consumed = message->value;
    lane->lines_consumed = lines;
}

void um_board_lane_take(struct um_board_port *port, const struct um_board_message_wire *message)
{
    struct um_board_lane *lane = um_board_lane_of(message->number);
    if (!lane || lane->port != port)
        return;
    if (message->op == UM_BOARD_GRANT)
        take_grant(lane, message);
    else if (message->op == UM_BOARD_CREDIT)
        take_credit(lane, message);
    else if (message->op == UM_BOARD_ENDED)
        lane->ended = true;
    else if (message->op == UM_BOARD_GO && message->value == lane->asked_for)
        lane->allowed = message->value;
    else if (message->op == UM_BOARD_ANSWER && lane->answers_in - lane->answers_out < UM_BOARD_ANSWERS)
        lane->answers[lane->answers_in++ % UM_BOARD_ANSWERS] =
            (struct um_answer){(uint32_t)message->more, (int32_t)message->value};
}

/* ---- open and close ---- */

static int opening_result(struct um_board_link *link, struct um_lane **lane_p)
{
    struct um_board_lane *lane = link->opening;
    if (lane->state == UM_LANE_OPEN && !lane->ended) {
        link->opening = NULL;
        *lane_p = &lane->base;
        return 0;
    }
    if (lane->state == UM_LANE_ASKING && !lane->ended)
        return -EAGAIN; /* the peer's driver has not answered */
    int ret = lane->ended ? -ECONNREFUSED : -EAGAIN;
    link->opening = NULL;
    lane->closed = true;
    um_board_lane_push(lane);
    return ret;
}

int um_board_lane_open(struct um_link *base, struct um_lane **lane_p)
{
    struct um_board_link *link = (struct um_board_link *)base;
    int ret = -ENOMEM;
    um_board_enter();
    if (!link->opening) {
        struct um_board_lane *lane = um_board_lane_new();
        if (lane) {
            lane->staging = um_board_ring_get();
            lane->scratch = aligned_alloc(UM_BOARD_LINE, UM_BOARD_LINE + UM_BOARD_BODY_MAX);
        }
        if (!lane || !lane->staging || !lane->scratch) {
            um_board_lane_free(lane);
            goto leave;
        }
        lane->port = link->port;
        lane->peer = link->peer;
        link->opening = lane;
    }
    um_board_drive();
    ret = opening_result(link, lane_p);
leave:
    um_board_leave();
    return ret;
}

void um_board_lane_close(struct um_lane *base)
{
    struct um_board_lane *lane = (struct um_board_lane *)base;
    um_board_enter();
    lane->closed = true;
    um_board_drive();
    um_board_leave();
}

/* ---- what is known ---- */

uint32_t um_board_lane_body_max(struct um_lane *base, uint32_t wanted)
{
    struct um_board_lane *lane = (struct um_board_lane *)base;
    (void)lane;
    (void)wanted;
    return UM_BOARD_BODY_MAX;
}

uint32_t um_board_lane_committed(const struct um_lane *base)
{
    const struct um_board_lane *lane = (const struct um_board_lane *)base;
    return lane->committed;
}

uint32_t um_board_lane_consumed(const struct um_lane *base)
{
    const struct um_board_lane *lane = (const struct um_board_lane *)base;
    um_board_enter();
    um_board_drive();
    uint32_t consumed = lane->consumed;
    ((struct um_board_lane *)(uintptr_t)lane)->consumed_seen = consumed;
    ((struct um_board_lane *)(uintptr_t)lane)->was_held = lane->was_held && lane->held;
    um_board_leave();
    return consumed;
}

int um_board_lane_reap(struct um_lane *base, struct um_answer *answers, int max)
{
    struct um_board_lane *lane = (struct um_board_lane *)base;
    int count = 0;
    um_board_enter();
    um_board_drive();
    while (count < max && lane->answers_in != lane->answers_out)
        answers[count++] = lane->answers[lane->answers_out++ % UM_BOARD_ANSWERS];
    if (taken_is_due(lane))
        um_board_lane_push(lane);
    if (!count && lane->ended)
        count = -EPIPE;
    lane->ended_seen |= count == -EPIPE;
    um_board_leave();
    return count;
}

/* Every message wakes a sleeping port; this is about what came before it sleeps. */
void um_board_lane_watch(struct um_lane *base, bool on)
{
    struct um_board_lane *lane = (struct um_board_lane *)base;
    um_board_enter();
    lane->watched = on;
    um_board_leave();
}

bool um_board_lanes_news(const struct um_board_port *port)
{
    for (const struct um_board_lane *lane = um_board_lane_next(NULL); lane; lane = um_board_lane_next(lane))
        if (lane->port == port && lane->watched && !lane->closed &&
            (lane->answers_in != lane->answers_out || lane->consumed != lane->consumed_seen ||
             (lane->ended && !lane->ended_seen) || (lane->was_held && !lane->held)))
            return true;
    return false;
}
