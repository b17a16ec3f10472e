/*
 * The simulated machine: the operations of mem/ over the mapper of sim.c, with seeded stalls, and with transfers that
 * take several polls (slow.c). Threading: machine.h.
 */
#include "machine/sim/sim.h"

#include "machine/machines.h"
#include "machine/mem/mem.h"
#include "machine/sim/internal.h"

#include <errno.h>

/* True if this call is to behave as if the lane were full, or empty. */
static bool sim_stall(struct um_mem_port *port)
{
    struct sim_port *state = port->mapper_state;
    return state->stall_percent && um_sim_random(state, 100) < state->stall_percent;
}

static struct sim_port *state_of(const struct um_lane *lane)
{
    return ((const struct um_mem_lane *)lane)->link->port->mapper_state;
}

/* True if sim_lane_has_room() has promised room for this record. Counts the claim. */
static bool is_promised(const struct um_lane *lane)
{
    struct sim_port *state = state_of(lane);
    if (state->promised_lane != lane || state->promised == 0)
        return false;
    state->promised--;
    return true;
}

static int sim_claimed(struct um_lane *lane, const struct um_slot *slot, int ret)
{
    if (ret || is_promised(lane) || !sim_stall(((struct um_mem_lane *)lane)->link->port))
        return ret;
    um_mem_abort(lane, slot);
    return -EAGAIN;
}

static bool is_stale(const struct um_mem_port *port)
{
    return port->mapper->observe != NULL;
}

static bool lane_is_stale(const struct um_lane *lane)
{
    return is_stale(((const struct um_mem_lane *)lane)->link->port);
}

static int sim_claim(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p)
{
    int ret =
        lane_is_stale(lane) ? um_mem_claim_observed(lane, body_len, slot_p) : um_mem_claim(lane, body_len, slot_p);
    return sim_claimed(lane, slot_p, ret);
}

static int sim_claim_message(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p)
{
    int ret = lane_is_stale(lane) ? um_mem_claim_message_observed(lane, body_len, slot_p)
                                  : um_mem_claim_message(lane, body_len, slot_p);
    return sim_claimed(lane, slot_p, ret);
}

static bool sim_lane_has_room(struct um_lane *lane, uint32_t records, uint32_t body_len)
{
    struct sim_port *state = state_of(lane);
    const bool has =
        !sim_stall(((struct um_mem_lane *)lane)->link->port) && um_mem_lane_has_room(lane, records, body_len);
    state->promised_lane = lane;
    state->promised = has ? records : 0;
    return has;
}

static uint32_t sim_lane_consumed(const struct um_lane *lane)
{
    return lane_is_stale(lane) ? um_mem_lane_consumed_observed(lane) : um_mem_lane_consumed(lane);
}

static int sim_lane_reap(struct um_lane *lane, struct um_answer *answers, int max)
{
    return lane_is_stale(lane) ? um_mem_lane_reap_observed(lane, answers, max) : um_mem_lane_reap(lane, answers, max);
}

/* Stalls do not hide UM_REC_JOINED and UM_REC_LEFT. */
static int sim_poll(struct um_port *base, struct um_record *rec_p)
{
    struct um_mem_port *port = (struct um_mem_port *)base;
    um_sim_transfers_advance(port);
    int ret = is_stale(port) ? um_mem_poll_observed(base, rec_p) : um_mem_poll(base, rec_p);
    return ret && rec_p->op < UM_OPCODE_MACHINE && sim_stall(port) ? 0 : ret;
}

/* All memory of a port really exists in this machine, so a port has few lanes unless more are asked for. */
static int port_open(const struct um_machine *machine, const struct um_port_config *config, struct um_port **port_p)
{
    struct um_port_config own = *config;
    if (own.lanes_max == 0)
        own.lanes_max = 16;
    return um_mem_port_open(machine, um_sim_mapper(), &own, port_p);
}

static int sim_port_open(const struct um_port_config *config, struct um_port **port_p)
{
    return port_open(&um_machine_sim, config, port_p);
}

static int sim_space_open(const struct um_space_config *config, struct um_space **space_p)
{
    return um_mem_space_open(&um_machine_sim, um_sim_mapper(), config, space_p);
}

static int unwoken_port_open(const struct um_port_config *config, struct um_port **port_p)
{
    return port_open(&um_machine_sim_unwoken, config, port_p);
}

static int unwoken_space_open(const struct um_space_config *config, struct um_space **space_p)
{
    return um_mem_space_open(&um_machine_sim_unwoken, um_sim_mapper(), config, space_p);
}

#define SIM_OPS                                                                                                        \
    .addr_kind = UM_ADDR_SIM, .claim = sim_claim, .claim_message = sim_claim_message, .poll = sim_poll,                \
    .lane_has_room = sim_lane_has_room, .lane_consumed = sim_lane_consumed, .lane_reap = sim_lane_reap,                \
    .unexport = um_sim_unexport, .transfer_start = um_sim_transfer_start, .transfer_poll = um_sim_transfer_poll,       \
    .transfer_cancel = um_sim_transfer_cancel, UM_MEM_MACHINE_OPS

const struct um_machine um_machine_sim = {
    .name = "sim",
    .space_open = sim_space_open,
    .port_open = sim_port_open,
    SIM_OPS,
    UM_MEM_WAKE_OPS,
};

const struct um_machine um_machine_sim_unwoken = {
    .name = "unwoken",
    .about = "the memory of one process, for tests: nobody wakes a sleeper",
    .space_open = unwoken_space_open,
    .port_open = unwoken_port_open,
    SIM_OPS,
};
