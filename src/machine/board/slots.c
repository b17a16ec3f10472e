/*
 * The objects of the process on the board: its ports, and its lanes and rx by number. board.h.
 *
 * Owns: um_board.slots. Threading: under the process's lock.
 */
#include "machine/board/board.h"

#include <stdlib.h>
#include <string.h>

struct um_board_port *um_board_ports(void)
{
    return um_board.slots.ports;
}

void um_board_ports_add(struct um_board_port *port)
{
    port->next = um_board.slots.ports;
    um_board.slots.ports = port;
}

void um_board_ports_remove(struct um_board_port *port)
{
    struct um_board_port **link = &um_board.slots.ports;
    while (*link != port)
        link = &(*link)->next;
    *link = port->next;
}

/* Returns a new number for a slot: never 0, and not reused soon. */
static uint32_t number_for(uint32_t slot)
{
    um_board.slots.generation = um_board.slots.generation % 0xfffe + 1;
    return um_board.slots.generation << UM_BOARD_NUMBER_BITS | slot;
}

static uint32_t slot_of(uint32_t number)
{
    return number & ((1u << UM_BOARD_NUMBER_BITS) - 1);
}

struct um_board_lane *um_board_lane_new(const struct um_machine *machine)
{
    uint32_t slot = 0;
    while (slot < um_board.slots.lanes_end && um_board.slots.lane[slot])
        slot++;
    struct um_board_lane *lane = slot < UM_BOARD_SLOTS ? calloc(1, sizeof(*lane)) : NULL;
    if (!lane)
        return NULL;
    lane->base = (struct um_lane){.machine = machine, .body_max = UM_BOARD_BODY_MAX};
    lane->number = number_for(slot);
    um_board.slots.lane[slot] = lane;
    if (slot == um_board.slots.lanes_end)
        um_board.slots.lanes_end++;
    return lane;
}

struct um_board_lane *um_board_lane_of(uint32_t number)
{
    struct um_board_lane *lane =
        slot_of(number) < um_board.slots.lanes_end ? um_board.slots.lane[slot_of(number)] : NULL;
    return lane && lane->number == number ? lane : NULL;
}

void um_board_lane_delete(struct um_board_lane *lane)
{
    um_board.slots.lane[slot_of(lane->number)] = NULL;
    free(lane);
    while (um_board.slots.lanes_end && !um_board.slots.lane[um_board.slots.lanes_end - 1])
        um_board.slots.lanes_end--;
}

struct um_board_lane *um_board_lane_next(const struct um_board_lane *lane)
{
    for (uint32_t slot = lane ? slot_of(lane->number) + 1 : 0; slot < um_board.slots.lanes_end; slot++)
        if (um_board.slots.lane[slot])
            return um_board.slots.lane[slot];
    return NULL;
}

struct um_board_rx *um_board_rx_new(const struct um_machine *machine)
{
    uint32_t slot = 0;
    while (slot < um_board.slots.rxs_end && um_board.slots.rx[slot])
        slot++;
    struct um_board_rx *rx = slot < UM_BOARD_SLOTS ? calloc(1, sizeof(*rx)) : NULL;
    if (!rx)
        return NULL;
    rx->base.machine = machine;
    rx->number = number_for(slot);
    um_board.slots.rx[slot] = rx;
    if (slot == um_board.slots.rxs_end)
        um_board.slots.rxs_end++;
    return rx;
}

struct um_board_rx *um_board_rx_of(uint32_t number)
{
    struct um_board_rx *rx = slot_of(number) < um_board.slots.rxs_end ? um_board.slots.rx[slot_of(number)] : NULL;
    return rx && rx->number == number ? rx : NULL;
}

void um_board_rx_delete(struct um_board_rx *rx)
{
    um_board.slots.rx[slot_of(rx->number)] = NULL;
    free(rx);
    while (um_board.slots.rxs_end && !um_board.slots.rx[um_board.slots.rxs_end - 1])
        um_board.slots.rxs_end--;
}

struct um_board_rx *um_board_rx_next(const struct um_board_rx *rx)
{
    for (uint32_t slot = rx ? slot_of(rx->number) + 1 : 0; slot < um_board.slots.rxs_end; slot++)
        if (um_board.slots.rx[slot])
            return um_board.slots.rx[slot];
    return NULL;
}

void um_board_slots_forget(void)
{
    const uint32_t generation = um_board.slots.generation;
    memset(&um_board.slots, 0, sizeof(um_board.slots));
    um_board.slots.generation = generation;
}
