/*
 * The model of time. Only the emulator's entry points consult it; a program that uses the API takes no part in it.
 *
 * Off: no time passes. Virtual: each context has a clock of its own that only the model moves: by the cost of its
 * calls, and to the arrival of what it takes (a message, a completion). Nobody waits for real; the result does not
 * depend on the machine, and tests read it. Real: the clock is CLOCK_MONOTONIC; calls spin until their cost is over
 * (the emulator's own work counts towards it), and what has not arrived yet is not seen.
 *
 * The processor:  each call that does something costs cpu_call_ns; unimem_copy() len / cpu_copy_bandwidth besides.
 *                 A receive that finds nothing and a poll that finds no end are free in the model.
 * A message:      leaves its sender's node mailbox_gap_ns after the one before at the earliest, arrives
 * mailbox_latency_ns later. A DMA:          occupies the engine of its beginner's node for dma_setup_ns + len /
 * dma_bandwidth; one at a time. Registration:   register_ns, deregister_ns of the caller's time instead of cpu_call_ns.
 *
 * Durations are rounded up to nanoseconds. Owns: a clock per context. Threading: any (a clock has a lock).
 */
#ifndef UNIMEM_EMU_TIMING_H
#define UNIMEM_EMU_TIMING_H

#include "emu/layout.h"

#include <pthread.h>
#include <stdbool.h>

struct emu_clock {
    const struct emu_params *params;
    pthread_mutex_t lock; /* of now */
    uint64_t now;         /* virtual */
    uint64_t waited;      /* virtual: polls in a row that found nothing yet */
};

void emu_clock_init(struct emu_clock *clock, const struct emu_params *params);
void emu_clock_fini(struct emu_clock *clock);

/* Nanoseconds: virtual, or CLOCK_MONOTONIC, or always 0. */
uint64_t emu_clock_now(struct emu_clock *clock);

/*
 * Is it that late? The virtual clock is moved there, as if the caller had waited; with virtual_patience only when it
 * has asked so often and spent no time in between, so who has something else to do does that first.
 */
bool emu_clock_reached(struct emu_clock *clock, uint64_t when);

/* The call that began at begin (emu_clock_now()) costs so much processor time. Real: returns when that is over. */
void emu_clock_spend(struct emu_clock *clock, uint64_t begin, uint64_t cost);

/* What a call costs, and a copy of len bytes. */
uint64_t emu_cost_call(const struct emu_params *params);
uint64_t emu_cost_copy(const struct emu_params *params, uint64_t len);

/* A message leaves the node at this time, or when the node can: when it arrives. */
uint64_t emu_node_send(struct emu_node_shm *node, const struct emu_params *params, uint64_t at);

/* A DMA of len bytes is given to the node's engine at this time: when it is done. */
uint64_t emu_node_dma(struct emu_node_shm *node, const struct emu_params *params, uint64_t at, uint64_t len);

#endif
