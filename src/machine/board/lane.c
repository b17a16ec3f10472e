/* Sending: asking for a lane, claim and commit, what comes back. board.h. */
#include "machine/board/board.h"

#include <errno.h>
#include <string.h>

/* ---- what is told to the receiver ---- */

/* Sends a message about the lane. A peer that is gone ends it. */
static bool tell(struct um_lane *lane, const struct um_board_message_wire *message)
{
    int ret = um_board_api.mailbox_send(um_board_handle(), &lane->peer, message, sizeof(*message));
    if (ret && ret != -EAGAIN)
        lane->ended = true;
    return ret == 0;
}

static bool tell_join(struct um_lane *lane)
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

static bool tell_data(struct um_lane *lane)
{
    struct um_board_message_wire message = {.op = UM_BOARD_DATA, .number = lane->rx, .value = lane->committed};
    if (!tell(lane, &message))
        return false;
    lane->told = lane->committed;
    return true;
}

bool um_board_lane_holds_back(const struct um_lane *lane)
{
    if (lane->ended)
        return lane->closed && lane->state == UM_LANE_OPEN;
    return !lane->asked || (lane->state == UM_LANE_OPEN && (lane->closed || lane->told != lane->committed));
}

bool um_board_lane_push(struct um_lane *lane)
{
    bool any = false;
    if (!lane->asked && !lane->ended)
        any = tell_join(lane);
    if (lane->state == UM_LANE_OPEN && lane->told != lane->committed && !lane->ended)
        any |= tell_data(lane);
    if (!lane->closed || (lane->state == UM_LANE_ASKING && !lane->ended))
        return any;
    /* The receiver keeps the ring for us until it hears this, even if it has ended the lane itself. */
    if (lane->state == UM_LANE_OPEN && (lane->told == lane->committed || lane->ended)) {
        struct um_board_message_wire message = {.op = UM_BOARD_CLOSE, .number = lane->rx};
        int ret = um_board_api.mailbox_send(um_board_handle(), &lane->peer, &message, sizeof(message));
        if (ret == -EAGAIN)
            return any;
    } else if (lane->state == UM_LANE_OPEN) {
        return any;
    }
    um_board_lane_free(lane);
    return true;
}

/* ---- what the receiver tells ---- */

static void take_grant(struct um_lane *lane, const struct um_board_message_wire *message)
{
    if (lane->state != UM_LANE_ASKING)
        return;
    lane->state = message->value ? UM_LANE_OPEN : UM_LANE_DENIED;
    if (!message->value)
        return;
    lane->rx = message->value;
    lane->ring = (struct unimem_remote){lane->peer.node, lane->peer.context, message->more};
    lane->registered = um_board_api.enter(um_board_handle(), &lane->ring, UM_BOARD_RING) == 0;
    if (!lane->registered)
        lane->ended = true;
}

static void take_credit(struct um_lane *lane, const struct um_board_message_wire *message)
{
    uint32_t lines = (uint32_t)message->more;
    if (lane->committed - message->value > lane->committed - lane->consumed ||
        lane->lines_committed - lines > lane->lines_committed - lane->lines_consumed)
        return; /* not more than was sent, not backwards */
    lane->consumed = message->value;
    lane->lines_consumed = lines;
}

void um_board_lane_take(struct um_board_port *port, const struct um_board_message_wire *message)
{
    struct um_lane *lane = um_board_lane_of(message->number);
    if (!lane || lane->port != port)
        return;
    if (message->op == UM_BOARD_GRANT)
        take_grant(lane, message);
    else if (message->op == UM_BOARD_CREDIT)
        take_credit(lane, message);
    else if (message->op == UM_BOARD_ENDED)
        lane->ended = true;
    else if (message->op == UM_BOARD_ANSWER && lane->answers_in - lane->answers_out < UM_TOKENS)
        lane->answers[lane->answers_in++ % UM_TOKENS] =
            (struct um_answer){message->token % UM_TOKENS, (int32_t)message->value};
}

/* ---- open and close ---- */

static int opening_result(struct um_link *link, struct um_lane **lane_p)
{
    struct um_lane *lane = link->opening;
    if (lane->state == UM_LANE_OPEN && lane->registered) {
        link->opening = NULL;
        *lane_p = lane;
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

int um_board_lane_open(struct um_link *link, struct um_lane **lane_p)
{
    int ret = -ENOMEM;
    um_board_enter();
    if (!link->opening) {
        struct um_lane *lane = um_board_lane_new();
        if (lane)
            lane->staging = um_board_ring_get();
        if (!lane || !lane->staging) {
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

void um_board_lane_close(struct um_lane *lane)
{
    um_board_enter();
    lane->closed = true;
    um_board_drive();
    um_board_leave();
}

/* ---- claim and commit ---- */

static uint32_t lines_of(uint32_t body_len)
{
    return 1 + (body_len + UM_BOARD_LINE - 1) / UM_BOARD_LINE;
}

static size_t offset_of(const struct um_lane *lane)
{
    return (size_t)(lane->lines_committed % UM_BOARD_LINES) * UM_BOARD_LINE;
}

static bool has_room(const struct um_lane *lane, uint32_t lines)
{
    return lane->lines_committed - lane->lines_consumed + lines <= UM_BOARD_LINES;
}

int um_board_claim(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p)
{
    int ret = 0;
    if (body_len > UM_BOARD_BODY_MAX)
        return -EMSGSIZE;
    uint32_t lines = lines_of(body_len);
    um_board_enter();
    um_board_drive();
    if (lane->ended)
        ret = -EPIPE;
    else if (!has_room(lane, lines))
        ret = -EAGAIN;
    um_board_leave();
    if (ret)
        return ret;
    struct um_board_record_wire *record = (void *)(lane->staging + offset_of(lane));
    lane->claimed = lines;
    *slot_p = (struct um_slot){record->head, body_len ? record + 1 : NULL, body_len};
    return 0;
}

/* Moves the record, and waits for that: the engine is ours, no peer is waited for. */
static int record_write(struct um_lane *lane, size_t len)
{
    struct unimem_remote to = lane->ring;
    uint64_t dma;
    int ret;
    to.address += offset_of(lane);
    ret = um_board_api.dma_write(um_board_handle(), &to, lane->staging + offset_of(lane), len, &dma);
    if (ret)
        return ret;
    do
        ret = um_board_api.dma_poll(um_board_handle(), dma);
    while (ret == -EINPROGRESS);
    return ret;
}

void um_board_commit(struct um_lane *lane, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len)
{
    struct um_board_record_wire *record = (void *)(lane->staging + offset_of(lane));
    record->len = slot->body_len ? slot->body_len : len;
    record->op = op;
    record->flags = flags;
    record->body = slot->body_len != 0;
    um_board_enter();
    if (!lane->ended && record_write(lane, sizeof(*record) + slot->body_len))
        lane->ended = true;
    lane->lines_committed += lane->claimed;
    lane->committed++;
    lane->claimed = 0;
    um_board_drive();
    um_board_leave();
}

void um_board_abort(struct um_lane *lane, const struct um_slot *slot)
{
    (void)slot;
    lane->claimed = 0;
}

uint32_t um_board_lane_body_max(struct um_lane *lane, uint32_t wanted)
{
    (void)lane;
    (void)wanted;
    return UM_BOARD_BODY_MAX;
}

/* ---- what is known of consumption ---- */

uint32_t um_board_lane_committed(const struct um_lane *lane)
{
    return lane->committed;
}

uint32_t um_board_lane_consumed(const struct um_lane *lane)
{
    um_board_enter();
    um_board_drive();
    uint32_t consumed = lane->consumed;
    ((struct um_lane *)(uintptr_t)lane)->consumed_seen = consumed;
    um_board_leave();
    return consumed;
}

int um_board_lane_reap(struct um_lane *lane, struct um_answer *answers, int max)
{
    int count = 0;
    um_board_enter();
    um_board_drive();
    while (count < max && lane->answers_in != lane->answers_out)
        answers[count++] = lane->answers[lane->answers_out++ % UM_TOKENS];
    if (!count && lane->ended)
        count = -EPIPE;
    lane->ended_seen |= count == -EPIPE;
    um_board_leave();
    return count;
}

/* Every message wakes a sleeping port; this is about what came before it sleeps. */
void um_board_lane_watch(struct um_lane *lane, bool on)
{
    um_board_enter();
    lane->watched = on;
    um_board_leave();
}

bool um_board_lanes_news(const struct um_board_port *port)
{
    for (const struct um_lane *lane = um_board_lane_next(NULL); lane; lane = um_board_lane_next(lane))
        if (lane->port == port && lane->watched && !lane->closed &&
            (lane->answers_in != lane->answers_out || lane->consumed != lane->consumed_seen ||
             (lane->ended && !lane->ended_seen)))
            return true;
    return false;
}
