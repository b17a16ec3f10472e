/* emu/timing.h. */
#include "emu/timing.h"

#include <time.h>

#define SECOND UINT64_C(1000000000)

void emu_clock_init(struct emu_clock *clock, const struct emu_params *params)
{
    *clock = (struct emu_clock){.params = params};
    pthread_mutex_init(&clock->lock, NULL);
}

void emu_clock_fini(struct emu_clock *clock)
{
    pthread_mutex_destroy(&clock->lock);
}

static uint64_t monotonic(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

uint64_t emu_clock_now(struct emu_clock *clock)
{
    if (clock->params->timing == EMU_TIMING_OFF)
        return 0;
    if (clock->params->timing == EMU_TIMING_REAL)
        return monotonic();
    pthread_mutex_lock(&clock->lock);
    uint64_t now = clock->now;
    pthread_mutex_unlock(&clock->lock);
    return now;
}

bool emu_clock_reached(struct emu_clock *clock, uint64_t when)
{
    if (clock->params->timing == EMU_TIMING_OFF)
        return true;
    if (clock->params->timing == EMU_TIMING_REAL)
        return monotonic() >= when;
    pthread_mutex_lock(&clock->lock);
    bool reached = clock->now >= when || clock->waited++ >= clock->params->virtual_patience;
    if (reached)
        clock->waited = 0;
    if (reached && clock->now < when)
        clock->now = when;
    pthread_mutex_unlock(&clock->lock);
    return reached;
}

void emu_clock_spend(struct emu_clock *clock, uint64_t begin, uint64_t cost)
{
    if (clock->params->timing == EMU_TIMING_REAL) {
        while (monotonic() < begin + cost)
            ;
    } else if (clock->params->timing == EMU_TIMING_VIRTUAL) {
        pthread_mutex_lock(&clock->lock);
        clock->now += cost;
        clock->waited = 0;
        pthread_mutex_unlock(&clock->lock);
    }
}

/* Of len bytes at so many a second, rounded up. */
static uint64_t duration(uint64_t len, uint64_t bandwidth)
{
    return (uint64_t)(((unsigned __int128)len * SECOND + bandwidth - 1) / bandwidth);
}

uint64_t emu_cost_call(const struct emu_params *params)
{
    return params->cpu_call_ns;
}

uint64_t emu_cost_copy(const struct emu_params *params, uint64_t len)
{
    return params->cpu_call_ns + duration(len, params->cpu_copy_bandwidth);
}

/* Takes a piece of hardware for a while from now on, or from when it is free; returns when that begins. */
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
