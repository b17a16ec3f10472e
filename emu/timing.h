/*
 * The model of time: what calls cost, and how long the hardware is busy. Only the emulator's entry points use it; a
 * program that uses the API takes no part in it. Clocks: emu/clock.h.
 *
 * The processor:  each call that does something costs cpu_call_ns; unimem_copy() len / cpu_copy_bandwidth besides.
 *                 A receive that finds nothing, a poll that finds no end, a send that finds the queue full cost
 *                 cpu_poll_ns in virtual time, or less if what they look for comes meanwhile. In real time they take
 *                 what they take.
 * A message:      leaves its sender's node mailbox_gap_ns after the one before at the earliest, arrives
 *                 mailbox_latency_ns later.
 * A DMA:          occupies the engine of its beginner's node for dma_setup_ns + len / dma_bandwidth; one at a time.
 * Registration:   register_ns, deregister_ns of the caller's time instead of cpu_call_ns.
 *
 * Durations are rounded up to nanoseconds. Threading: any.
 */
#ifndef UNIMEM_EMU_TIMING_H
#define UNIMEM_EMU_TIMING_H

#include "emu/layout.h"

/* Return the cost in nanoseconds of a call with this result, of unimem_copy() of len bytes. Errors cost nothing. */
uint64_t emu_cost_of(const struct emu_params *params, int result);
uint64_t emu_cost_copy(const struct emu_params *params, uint64_t len);

/* Sends a message from the node at this time, or as soon as the node can. Returns when the message arrives. */
uint64_t emu_node_send(struct emu_node_shm *node, const struct emu_params *params, uint64_t at);

/* Gives a DMA of len bytes to the node's engine at this time. Returns when the DMA is done. */
uint64_t emu_node_dma(struct emu_node_shm *node, const struct emu_params *params, uint64_t at, uint64_t len);

#endif
