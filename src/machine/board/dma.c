/*
 * DMAs under way: the records of lanes, and transfers that a caller waits for. board.h.
 *
 * Owns: which records of a lane are in flight (started, moved). A caller that needs a place in the engine's tables
 * waits here for the lanes' DMAs to end: for the engine, not for a peer. Threading: under the process's lock.
 */
#include "machine/board/board.h"

#include <errno.h>

void um_board_lane_forget_ring(const struct um_board_lane *lane)
{
    struct um_board_reach *reach = lane->rx ? um_board_reach_find(&lane->ring, UM_BOARD_RING) : NULL;
    if (reach)
        um_board_reach_drop(reach);
}

bool um_board_lane_land(struct um_board_lane *lane)
{
    uint32_t place = lane->moved % UM_BOARD_FLIGHTS;
    int ret = um_board_dma_end(lane->flight_by[place], lane->flight[place]);
    if (ret == -EINPROGRESS)
        return false;
    lane->ended |= ret != 0;
    lane->moved++;
    if (um_board_step_get() == UM_BOARD_NAIVE)
        um_board_lane_forget_ring(lane);
    return true;
}

void um_board_lane_settle(struct um_board_lane *lane)
{
    while (lane->moved != lane->started)
        um_board_lane_land(lane);
}

void um_board_lanes_settle(void)
{
    for (struct um_board_lane *lane = um_board_lane_next(NULL); lane; lane = um_board_lane_next(lane))
        um_board_lane_settle(lane);
}

int um_board_reach_get(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p)
{
    int ret = um_board_reach_try(at, len, reach_p);
    if (ret != -EAGAIN)
        return ret;
    um_board_lanes_settle();
    return um_board_reach_try(at, len, reach_p);
}

struct um_board_reach *um_board_lane_register(struct um_board_lane *lane)
{
    struct um_board_reach *reach = um_board_reach_again(&lane->hint, &lane->ring, UM_BOARD_RING);
    if (reach)
        return reach;
    int ret = um_board_reach_get(&lane->ring, UM_BOARD_RING, &reach);
    um_board_reach_remember(&lane->hint, reach);
    lane->ended |= ret && ret != -EAGAIN && ret != -ENOMEM;
    return reach;
}

bool um_board_lane_start(struct um_board_lane *lane)
{
    struct um_board_record_wire *record = um_board_lane_staged(lane, lane->lines_started);
    uint32_t body = record->body ? record->len : 0, place = lane->started % UM_BOARD_FLIGHTS;
    struct um_board_transfer what = {.reach = um_board_lane_register(lane),
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

int um_board_dma_now(const struct um_board_transfer *what)
{
    uint64_t dma;
    um_board_reach_hold(what->reach); /* lanes that settle may find that it is stale */
    int ret = um_board_dma_begin(what, &dma);
    if (ret == -EAGAIN) {
        um_board_lanes_settle();
        ret = um_board_dma_begin(what, &dma);
    }
    if (ret == 0)
        while ((ret = um_board_dma_end(what->reach, dma)) == -EINPROGRESS)
            ;
    um_board_reach_release(what->reach);
    return ret;
}
