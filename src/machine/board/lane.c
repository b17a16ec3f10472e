/* The sending end of a lane: what it tells the receiver, and what the receiver tells it. board.h. */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>

static const uint64_t PROBE_FIRST_NS = UINT64_C(1000000000);

/* ---- what is told to the receiver ---- */

/* Sends a message about the lane; true if it was sent. The lane ends if the peer is gone. */
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

/* Below UM_BOARD_EAGER the receiver is asked for every record. */
static bool tell_ask(struct um_board_lane *lane)
{
    struct um_board_message_wire message = {.op = UM_BOARD_ASK, .number = lane->rx, .value = lane->started + 1};
    if (!tell(lane, &message))
        return false;
    lane->asked_for = lane->started + 1;
    return true;
}

/* Moves committed records on: asks the receiver, begins DMAs and waits for their ends, tells the receiver. */
static bool push_records(struct um_board_lane *lane)
{
    bool any = false, eager = um_board_step_get() >= UM_BOARD_EAGER;
    if (!lane->more)
        um_board_lane_settle(lane);
    while (lane->started != lane->committed && !lane->ended) {
        if (!eager && lane->allowed == lane->started) {
            if (lane->asked_for == lane->started)
                any |= tell_ask(lane);
            break;
        }
        if (lane->started - lane->moved == UM_BOARD_FLIGHTS || (!eager && lane->started != lane->moved)) {
            while (!um_board_lane_land(lane))
                ;
            continue;
        }
        if (!um_board_lane_start(lane))
            break;
        any = true;
    }
    if (!lane->more)
        um_board_lane_settle(lane);
    if (lane->told != lane->moved && !lane->ended)
        any |= tell_data(lane);
    return any;
}

bool um_board_lane_taken_is_due(const struct um_board_lane *lane)
{
    return lane->answers_out - lane->answers_told >= UM_ANSWERS / 4;
}

bool um_board_lane_holds_back(const struct um_board_lane *lane)
{
    if (lane->ended)
        return lane->closed && lane->state == UM_LANE_OPEN;
    return !lane->asked || (lane->state == UM_LANE_OPEN &&
                            (lane->closed || lane->told != lane->committed || um_board_lane_taken_is_due(lane)));
}

/* Sends CLOSE: until then the receiver keeps the ring, even if it has ended the lane itself. False: not sent yet. */
static bool push_close(struct um_board_lane *lane)
{
    struct um_board_message_wire message = {.op = UM_BOARD_CLOSE, .number = lane->rx};
    if (lane->told != lane->committed && !lane->ended)
        return false;
    um_board_lane_settle(lane);
    return um_board_api.mailbox_send(um_board_handle(), &lane->peer, &message, sizeof(message)) != -EAGAIN;
}

/* Tells the peer where the directory of our dmable memory is, before anything refers to such memory. */
static bool tell_arenas(struct um_board_lane *lane)
{
    uint32_t version;
    struct um_board_message_wire message = {.op = UM_BOARD_ARENAS, .number = lane->rx};
    message.more = um_board_directory(&version);
    message.value = version;
    if (version == lane->arenas_told || um_board_step_get() < UM_BOARD_DIRECT || !tell(lane, &message))
        return false;
    lane->arenas_told = version;
    return true;
}

static bool tell_taken(struct um_board_lane *lane)
{
    struct um_board_message_wire message = {.op = UM_BOARD_TAKEN, .number = lane->rx, .value = lane->answers_out};
    if (!um_board_lane_taken_is_due(lane) || !tell(lane, &message))
        return false;
    lane->answers_told = lane->answers_out;
    return true;
}

/*
 * A lane that is asked for hears nothing of a port that closes, or of a process that ends, before it took JOIN. So the
 * peer is sent a message that it ignores, after times that double: it may compute for long, and its mailbox is small.
 */
void um_board_lane_probe(struct um_board_lane *lane, uint64_t now)
{
    const struct um_board_message_wire message = {.op = UM_BOARD_TAKEN};
    if (lane->state != UM_LANE_ASKING || !lane->asked || lane->ended || now < lane->probe_at)
        return;
    if (lane->probe_after) /* not at the first look */
        (void)tell(lane, &message);
    lane->probe_after = lane->probe_after ? 2 * lane->probe_after : PROBE_FIRST_NS;
    lane->probe_at = now + lane->probe_after;
}

void um_board_lane_free(struct um_board_lane *lane)
{
    if (!lane)
        return;
    um_board_lane_settle(lane);
    um_board_lane_forget_ring(lane); /* the peer may soon use its memory for another ring */
    if (lane->staging)
        um_board_ring_put(lane->staging, false);
    free(lane->scratch);
    um_board_lane_delete(lane);
}

bool um_board_lane_push(struct um_board_lane *lane)
{
    bool any = false;
    if (!lane->asked && !lane->ended)
        any = tell_join(lane);
    if (lane->state == UM_LANE_OPEN && !lane->ended)
        any |= tell_arenas(lane);
    if (lane->state == UM_LANE_OPEN && !lane->ended)
        any |= tell_taken(lane);
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
    um_board_lane_forget_ring(lane); /* it may be of an earlier ring at that address, which was freed */
    if (um_board_step_get() != UM_BOARD_NAIVE)
        um_board_lane_register(lane);
}

static void take_credit(struct um_board_lane *lane, const struct um_board_message_wire *message)
{
    uint32_t lines = (uint32_t)message->more;
    if (lane->committed - message->value > lane->committed - lane->consumed ||
        lane->lines_committed - lines > lane->lines_committed - lane->lines_consumed)
        return; /* more than was sent, or less than before */
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
    else if (message->op == UM_BOARD_ANSWER && lane->answers_in - lane->answers_out < UM_ANSWERS)
        lane->answers[lane->answers_in++ % UM_ANSWERS] =
            (struct um_answer){(uint32_t)message->more, (int32_t)message->value};
}
