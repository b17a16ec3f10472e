/*
 * The parameters of the emulated board: those of its model of time, and its capacities.
 *
 * One table (params.c) has, for each parameter, its name with the unit, its default, its bounds, and the source of the
 * default. The process that starts the board reads the environment once; the values then lie in the board's memory and
 * are the same for every process. Owns nothing. Threading: any.
 *
 * Environment
 *   UNIMEM_EMU_TIMING  real (default), virtual, off: emu/timing.h
 *   UNIMEM_EMU_ENGINE  local (default): the process that begins a DMA moves the bytes; server: the board's process
 *                      does, and no other process has the memory of a peer mapped
 *   UNIMEM_EMU_PARAMS  name=value,name=value
 */
#ifndef UNIMEM_EMU_PARAMS_H
#define UNIMEM_EMU_PARAMS_H

#include <stddef.h>
#include <stdint.h>

enum emu_timing { EMU_TIMING_OFF = 0, EMU_TIMING_VIRTUAL = 1, EMU_TIMING_REAL = 2 };
enum emu_engine { EMU_ENGINE_LOCAL = 0, EMU_ENGINE_SERVER = 1 };

/* Lies in the board's memory; written before anybody maps it, read-only afterwards. */
struct emu_params {
    uint64_t timing; /* enum emu_timing */
    uint64_t engine; /* enum emu_engine */
    /* the model of time: nanoseconds, and bytes a second */
    uint64_t mailbox_latency_ns;
    uint64_t mailbox_gap_ns;
    uint64_t dma_setup_ns;
    uint64_t dma_bandwidth;
    uint64_t register_ns;
    uint64_t deregister_ns;
    uint64_t cpu_call_ns;
    uint64_t cpu_copy_bandwidth;
    uint64_t cpu_poll_ns;
    /* capacities */
    uint64_t nodes;
    uint64_t mailbox_depth;
    uint64_t dma_depth;
    uint64_t dma_size_max;
    uint64_t registrations_max;
    uint64_t dmable_max;
};

struct emu_param {
    const char *name;
    size_t offset; /* in struct emu_params */
    uint64_t value, min, max;
    const char *source; /* why this value: "paper 1: ...", "assumed: ...", "to be fitted: ..." */
};

/* Returns the table of all parameters, in the order of the structure. */
const struct emu_param *emu_param_table(size_t *count_p);

void emu_params_default(struct emu_params *params);

/*
 * Sets values from texts as in the environment variables; NULL: not set. -EINVAL: an unknown name, not a number, out of
 * bounds; why says what is wrong, and params is unspecified.
 */
int emu_params_parse(struct emu_params *params, const char *timing, const char *engine, const char *values,
                     char why[128]);

#endif
