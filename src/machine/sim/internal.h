/*
 * What the files of the simulated machine share. Threading: the functions named *_locked want the registry's lock held.
 */
#ifndef UM_MACHINE_SIM_INTERNAL_H
#define UM_MACHINE_SIM_INTERNAL_H

#include "base/list.h"
#include "machine/mem/mem.h"

#include <stdbool.h>
#include <stdint.h>

/* What the mapper keeps for a port. */
struct sim_port {
    struct sim_memory *memory;
    uint64_t random;
    unsigned stall_percent;
    bool is_slow, evicts;
    struct um_list transfers; /* under way */
    struct um_list views;     /* if memory is not coherent: of its own memory, and of its peers' memory */
    struct um_sim_view *own;
    const struct um_lane *promised_lane; /* said that it has room: its next `promised` claims are not stalled */
    uint32_t promised;
};

/* Returns a number from 0 to limit - 1, by the port's seed. */
static inline uint32_t um_sim_random(struct sim_port *state, uint32_t limit)
{
    state->random ^= state->random << 13;
    state->random ^= state->random >> 7;
    state->random ^= state->random << 17;
    return (uint32_t)(state->random % limit);
}

/* ---- sim.c: the memories of all ports ---- */
void um_sim_lock(void);
void um_sim_unlock(void);
enum um_sim_life { UM_SIM_ALIVE, UM_SIM_DEAD, UM_SIM_CLOSED };
enum um_sim_life um_sim_life_locked(const struct um_addr *addr);
/* Returns the mapper for the modes that are configured now. */
const struct um_mem_mapper *um_sim_mapper(void);

/* ---- slow.c: transfers that take their time ---- */
int um_sim_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p);
int um_sim_transfer_poll(struct um_transfer *transfer);
void um_sim_transfer_cancel(struct um_transfer *transfer);
/* Moves some parts of the transfers under way. */
void um_sim_transfers_advance(struct um_mem_port *port);
void um_sim_unexport(struct um_space *space, struct um_exported *exported);

/* ---- stale.c: memory that is not coherent ---- */
struct um_sim_view;
/* A part of the memory of a port. */
struct um_sim_part {
    unsigned char *memory; /* its bytes */
    size_t offset, len;    /* where the part lies in the memory of the port */
    size_t size;           /* of the whole memory of the port */
    bool is_own;           /* the memory of this port itself: its view is zero at first, as the memory is */
};
/* Publish and observe memory of the port itself, or of a peer, through the port's views. */
void um_sim_publish(struct um_mem_port *port, const void *at, size_t len);
void um_sim_observe(struct um_mem_port *port, const void *at, size_t len);
/* Makes a view. NULL: no memory. */
struct um_sim_view *um_sim_view_new(struct sim_port *state, const struct um_sim_part *part);
void *um_sim_view_base(const struct um_sim_view *view);
void um_sim_view_end(struct um_sim_view *view);
/* Zeroes a part of the memory and of the view. */
void um_sim_view_clear(struct um_sim_view *view, size_t offset, size_t len);

#endif
