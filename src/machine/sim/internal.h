/*
 * Between the files of the simulated machine. Threading: the functions named *_locked want the registry's lock held.
 */
#ifndef UM_MACHINE_SIM_INTERNAL_H
#define UM_MACHINE_SIM_INTERNAL_H

#include "base/list.h"
#include "machine/mem/mem.h"

#include <stdbool.h>
#include <stdint.h>

/* A port's. */
struct sim_port {
    struct sim_memory *memory;
    uint64_t random;
    unsigned stall_percent;
    bool is_slow;
    struct um_list transfers; /* under way */
};

/* 0 .. limit - 1, by the port's seed. */
uint32_t um_sim_random(struct sim_port *state, uint32_t limit);

/* ---- sim.c: the memories of all ports ---- */
void um_sim_lock(void);
void um_sim_unlock(void);
enum um_sim_life { UM_SIM_ALIVE, UM_SIM_DEAD, UM_SIM_CLOSED };
enum um_sim_life um_sim_life_locked(const struct um_addr *addr);

/* ---- slow.c: transfers that take their time ---- */
int um_sim_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p);
int um_sim_transfer_poll(struct um_transfer *transfer);
void um_sim_transfer_cancel(struct um_transfer *transfer);
/* Some parts of what is under way move. */
void um_sim_transfers_advance(struct um_mem_port *port);
void um_sim_unexport(struct um_space *space, struct um_exported *exported);

#endif
