/* Operations of machine.h on lanes: opening, closing, and what is known of a lane. commit.c has those on records.
 * board.h. */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>

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
        struct um_board_lane *lane = um_board_lane_new(link->base.machine);
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
        answers[count++] = lane->answers[lane->answers_out++ % UM_ANSWERS];
    if (um_board_lane_taken_is_due(lane))
        um_board_lane_push(lane);
    if (!count && lane->ended)
        count = -EPIPE;
    lane->ended_seen |= count == -EPIPE;
    um_board_leave();
    return count;
}

/* Every message wakes a sleeping port, so a watch matters only for news that came before the port sleeps. */
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
