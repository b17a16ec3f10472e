/* emu/timing.h. */
#include "emu/timing.h"

#include <errno.h>
#include <stdbool.h>

#define SECOND UINT64_C(1000000000)

/* Returns the time in nanoseconds for len bytes at so many bytes a second, rounded up. */
static uint64_t duration(uint64_t len, uint64_t bandwidth)
{
    return (uint64_t)(((unsigned __int128)len * SECOND + bandwidth - 1) / bandwidth);
}

uint64_t emu_cost_of(const struct emu_params *params, int result)
{
    bool nothing_yet = result == -EAGAIN || result == -EINPROGRESS;
    if (nothing_yet)
        return params->timing == EMU_TIMING_VIRTUAL ? params->cpu_poll_ns : 0;
    return result ? 0 : params->cpu_call_ns;
}

uint64_t emu_cost_copy(const struct emu_params *params, uint64_t len)
{
    return params->cpu_call_ns + duration(len, params->cpu_copy_bandwidth);
}

/* Occupies a piece of hardware for `busy` nanoseconds, from now on or as soon as it is free. Returns the start. */
static uint64_t occupy(struct emu_node_shm *node, uint64_t *free_at, uint64_t now, uint64_t busy)
{
    emu_lock_take(&node->lock);
    uint64_t begin = *free_at > now ? *free_at : now;
    *free_at = begin + busy;
    emu_lock_give(&node->lock);
    return begin;
}

uint64_t emu_node_send(struct emu_node_shm *node, const struct emu_params *params, uint64_t at)
{
    if (params->timing == EMU_TIMING_OFF)
        return 0;
    return occupy(node, &node->mailbox_free, at, params->mailbox_gap_ns) + params->mailbox_latency_ns;
}

uint64_t emu_node_dma(struct emu_node_shm *node, const struct emu_params *params, uint64_t at, uint64_t len)
{
    if (params->timing == EMU_TIMING_OFF)
        return 0;
    uint64_t busy = params->dma_setup_ns + duration(len, params->dma_bandwidth);
    return occupy(node, &node->engine_free, at, busy) + busy;
}
