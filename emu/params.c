/* emu/params.h: the table, and what the environment changes in it. */
#include "emu/params.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB    UINT64_C(1024)
#define MIB    (1024 * KIB)
#define GIB    (1024 * MIB)
#define SECOND UINT64_C(1000000000)

/*
 * "paper 1" is the poster "An OFI provider for the Unimem architecture". It gives bounds, not values; the bound itself
 * is the default. "assumed" is a guess of the right order of magnitude. docs/unimem-board.md discusses each parameter.
 */
static const struct emu_param table[] = {
    {"mailbox_latency_ns", offsetof(struct emu_params, mailbox_latency_ns), 1000, 0, SECOND,
     "paper 1: raw mailbox below 1 us; the bound"},
    {"mailbox_gap_ns", offsetof(struct emu_params, mailbox_gap_ns), 125, 0, SECOND,
     "assumed: 8 million messages a second leave a node"},
    {"dma_setup_ns", offsetof(struct emu_params, dma_setup_ns), 1000, 0, SECOND,
     "assumed: as a mailbox message, for descriptor and completion"},
    {"dma_bandwidth", offsetof(struct emu_params, dma_bandwidth), 1000000000, 1000, UINT64_C(1000000000000),
     "paper 1: DMA above 1 GB/s; the bound"},
    {"register_ns", offsetof(struct emu_params, register_ns), 10000, 0, SECOND,
     "paper 1: registration above 10 us each; the bound"},
    {"deregister_ns", offsetof(struct emu_params, deregister_ns), 2000, 0, SECOND,
     "assumed: a table entry is cleared, no address is looked up"},
    {"cpu_call_ns", offsetof(struct emu_params, cpu_call_ns), 546, 0, SECOND,
     "to be fitted to paper 1's 23.41 us (naive, 0 bytes): bench/board does that, this is what it found"},
    {"cpu_copy_bandwidth", offsetof(struct emu_params, cpu_copy_bandwidth), 1000000000, 1000, UINT64_C(1000000000000),
     "assumed: 1 GB/s, an in-order core of the board's time"},
    {"cpu_poll_ns", offsetof(struct emu_params, cpu_poll_ns), 100, 1, SECOND,
     "assumed: a register of a device is read; who polls for something must not stop the virtual clock"},
    {"nodes", offsetof(struct emu_params, nodes), 64, 1, 64, "assumed"},
    {"mailbox_depth", offsetof(struct emu_params, mailbox_depth), 64, 1, 4096,
     "assumed: 64 messages are 1.5 KiB of block RAM a mailbox"},
    {"dma_depth", offsetof(struct emu_params, dma_depth), 64, 1, 4096, "assumed"},
    {"dma_size_max", offsetof(struct emu_params, dma_size_max), 16 * MIB, 64, GIB, "assumed"},
    {"registrations_max", offsetof(struct emu_params, registrations_max), 1024, 1, 65536, "assumed"},
    {"dmable_max", offsetof(struct emu_params, dmable_max), GIB, 4 * KIB, 1024 * GIB, "assumed"},
};

const struct emu_param *emu_param_table(size_t *count_p)
{
    *count_p = sizeof(table) / sizeof(table[0]);
    return table;
}

static uint64_t *value_of(struct emu_params *params, const struct emu_param *param)
{
    return (uint64_t *)(void *)((char *)params + param->offset);
}

void emu_params_default(struct emu_params *params)
{
    *params = (struct emu_params){.timing = EMU_TIMING_REAL, .engine = EMU_ENGINE_LOCAL};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        *value_of(params, &table[i]) = table[i].value;
}

/* Returns the index of text among the words, or -1. */
static int choice(const char *text, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

/* Parses one "name=value" of len characters. */
static int parse_one(struct emu_params *params, const char *text, size_t len, char why[128])
{
    char item[80], *end;
    if (len >= sizeof(item))
        len = sizeof(item) - 1;
    memcpy(item, text, len);
    item[len] = 0;
    char *equals = strchr(item, '=');
    if (equals)
        *equals = 0;
    for (size_t i = 0; equals && i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(item, table[i].name) != 0)
            continue;
        errno = 0;
        unsigned long long value = strtoull(equals + 1, &end, 10);
        if (errno || end == equals + 1 || *end || equals[1] == '-' || value < table[i].min || value > table[i].max) {
            snprintf(why, 128, "%s must be from %llu to %llu", table[i].name, (unsigned long long)table[i].min,
                     (unsigned long long)table[i].max);
            return -EINVAL;
        }
        *value_of(params, &table[i]) = value;
        return 0;
    }
    snprintf(why, 128, "'%s' is no parameter with a value", item);
    return -EINVAL;
}

int emu_params_parse(struct emu_params *params, const char *timing, const char *engine, const char *values,
                     char why[128])
{
    static const char *const timings[] = {"off", "virtual", "real"}, *const engines[] = {"local", "server"};
    int timing_no = timing ? choice(timing, timings, 3) : (int)params->timing;
    int engine_no = engine ? choice(engine, engines, 2) : (int)params->engine;
    if (timing_no < 0 || engine_no < 0) {
        snprintf(why, 128, "%s must be one of %s", timing_no < 0 ? "UNIMEM_EMU_TIMING" : "UNIMEM_EMU_ENGINE",
                 timing_no < 0 ? "off, virtual, real" : "local, server");
        return -EINVAL;
    }
    params->timing = (uint64_t)timing_no;
    params->engine = (uint64_t)engine_no;
    while (values && *values) {
        size_t len = strcspn(values, ",");
        int ret = len ? parse_one(params, values, len, why) : 0;
        if (ret)
            return ret;
        values += len + (values[len] == ',');
    }
    return 0;
}
