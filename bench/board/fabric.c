/*
 * fabric: what a put and a message take at libfabric's level over the board in software, by the board's own clock.
 *
 *   fabric [--check] [--max BYTES]
 *
 * Two processes. Prints a line for each size: bytes; a put (fi_write, to its completion: the bytes are in the target's
 * memory) and a message (half a round trip), both in us from and in dmable memory; then MB/s of 16 puts, of 16 messages
 * from dmable memory in dmable memory, and of 16 messages between ordinary buffers, each answered by one message.
 *
 * UNIMEM_EMU_TIMING is virtual unless it is set: the figures are the model's. FI_UNIMEM_BOARD_LIBRARY names the
 * library.
 * --check: ends with status 1 unless every put takes less than the message, and the largest size has 95 % of the DMA's
 * bandwidth from dmable memory, and 90 % of the processor's from other (puts and messages). Every byte is checked in
 * either case.
 */
#include "emu/params.h"
#include "team.h"

#include <rdma/fi_tagged.h>
#include <unimem/fi_ext_unimem.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM = 20, TURNS = 100, BATCHES = 4, WINDOW = 16 };
/* Bounds for the largest messages, MB/s: of the engine; of a processor that copies 32 KiB, begins and ends their DMA,
 * and sends a message. */
static double dma_bound, copy_bound;

static size_t max = 4 << 20;
static bool checks;
static uint64_t (*emu_now)(void *board);
static uint64_t (*emu_given_up)(void *board);
static unsigned char *dmable, *target, *plain; /* each 2 * max */

static void clock_find(struct team *t)
{
    void *library = dlopen(getenv("FI_UNIMEM_BOARD_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    TEAM_DEMAND(t, library, "FI_UNIMEM_BOARD_LIBRARY does not name the library that the provider has loaded");
    *(void **)&emu_now = dlsym(library, "unimem_emu_now");
    *(void **)&emu_given_up = dlsym(library, "unimem_emu_given_up");
    void (*get_params)(const void *board, struct emu_params *params_p);
    struct emu_params params;
    *(void **)&get_params = dlsym(library, "unimem_emu_get_params");
    TEAM_DEMAND(t, emu_now && emu_given_up && get_params, "it has no clock");
    get_params(NULL, &params);
    dma_bound = (double)params.dma_bandwidth / 1e6;
    copy_bound = 32768 * 1e3 / (32768 * 1e9 / (double)params.cpu_copy_bandwidth + 4.0 * (double)params.cpu_call_ns);
}

static void memory_get(struct team *t)
{
    struct fi_unimem_memory_ops *memory;
    void *ops, *got[2];
    TEAM_CALL(t, fi_open_ops(&t->domain->fid, FI_UNIMEM_MEMORY_OPS, 0, &ops, NULL));
    memory = ops;
    for (int i = 0; i < 2; i++)
        TEAM_CALL(t, memory->alloc(t->domain, 2 * max, &got[i]));
    dmable = got[0];
    target = got[1];
    plain = calloc(2, max);
    TEAM_DEMAND(t, plain, "no memory");
    TEAM_CALL(t, fi_mr_reg(t->domain, target, 2 * max, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &t->mr, NULL));
    t->shared->member[t->rank].key = fi_mr_key(t->mr);
}

static void open_all(struct team *t)
{
    struct fi_info *hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("unimem");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_RMA | FI_ATOMIC | FI_TAGGED;
    TEAM_CALL(t, fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &t->info));
    fi_freeinfo(hints);
    team_endpoint_open(t, FI_CQ_FORMAT_MSG, 0);
    memory_get(t);
    clock_find(t);
}

/* Returns when `count` more operations have completed. */
static void await(struct team *t, int count)
{
    while (count > 0) {
        struct fi_cq_msg_entry entries[WINDOW];
        ssize_t ret = fi_cq_read(t->cq, entries, (size_t)count < WINDOW ? (size_t)count : WINDOW);
        TEAM_DEMAND(t, ret > 0 || ret == -FI_EAGAIN, "fi_cq_read: %s", fi_strerror((int)-ret));
        count -= ret > 0 ? (int)ret : 0;
    }
}

static void fill(unsigned char *buf, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = (unsigned char)(i * 7 + (i >> 9) + seed);
}

static void check(const struct team *t, const unsigned char *buf, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        TEAM_DEMAND(t, buf[i] == (unsigned char)(i * 7 + (i >> 9) + seed), "byte %zu of %zu is wrong", i, len);
}

static void post_recv(struct team *t, unsigned char *in, size_t len)
{
    TEAM_POST(t, fi_trecv(t->ep, in, len, NULL, t->peer[1 - t->rank], 3, 0, NULL));
}

static void post_send(struct team *t, const unsigned char *out, size_t len)
{
    TEAM_POST(t, fi_tsend(t->ep, out, len, NULL, t->peer[1 - t->rank], 3, NULL));
}

static void post_put(struct team *t, const unsigned char *out, size_t len)
{
    TEAM_POST(t, fi_write(t->ep, out, len, NULL, t->peer[1 - t->rank], 0, team_key(t, 1 - t->rank), NULL));
    t->put_count++;
}

/* ---- us ---- */

static double put_latency(struct team *t, size_t len)
{
    uint64_t begin = 0;
    for (int i = -WARM; i < TURNS && t->rank == 0; i++) {
        if (i == 0)
            begin = emu_now(NULL);
        post_put(t, dmable, len);
        await(t, 1);
    }
    uint64_t end = emu_now(NULL);
    TEAM_DEMAND(t, t->rank || end > begin, "no time passes: UNIMEM_EMU_TIMING=virtual or real is needed");
    team_barrier(t);
    return (double)(end - begin) / (1e3 * TURNS);
}

static double send_latency(struct team *t, size_t len)
{
    uint64_t begin = 0;
    for (int i = -WARM; i < TURNS; i++) {
        if (i == 0)
            begin = emu_now(NULL);
        post_recv(t, target, len);
        if (t->rank == 0)
            post_send(t, dmable, len);
        await(t, 1 + (t->rank == 0));
        if (t->rank == 1) {
            post_send(t, dmable, len);
            await(t, 1);
        }
    }
    uint64_t end = emu_now(NULL);
    team_barrier(t);
    return (double)(end - begin) / (2e3 * TURNS);
}

/* ---- MB/s; of the best window ---- */

/* Ends a window: rank 1 tells rank 0 that it has received all. */
static void answer(struct team *t)
{
    if (t->rank == 0)
        post_recv(t, target + max, 1);
    else
        post_send(t, dmable + max, 1);
    await(t, 1);
}

static double put_bandwidth(struct team *t, const unsigned char *out, size_t len)
{
    double best = 0;
    for (int batch = 0; batch < BATCHES && t->rank == 0; batch++) {
        uint64_t begin = emu_now(NULL);
        for (int i = 0; i < WINDOW; i++)
            post_put(t, out, len);
        await(t, WINDOW);
        double each = (double)len * WINDOW * 1e3 / (double)(emu_now(NULL) - begin);
        best = each > best ? each : best;
    }
    team_barrier(t);
    return best;
}

static double send_bandwidth(struct team *t, const unsigned char *out, unsigned char *in, size_t len)
{
    double best = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int i = 0; i < WINDOW && t->rank == 1; i++)
            post_recv(t, in, len);
        team_barrier(t);
        uint64_t begin = emu_now(NULL);
        for (int i = 0; i < WINDOW && t->rank == 0; i++)
            post_send(t, out, len);
        await(t, WINDOW);
        answer(t);
        double each = (double)len * WINDOW * 1e3 / (double)(emu_now(NULL) - begin);
        best = each > best ? each : best;
    }
    team_barrier(t);
    return best;
}

static void measure(struct team *t, size_t len, double *put_us, double *send_us)
{
    unsigned seed = (unsigned)len;
    fill(dmable, len, seed);
    fill(plain, len, seed + 1);
    memset(target, 0, len);
    memset(plain + max, 0, len);
    team_barrier(t);
    *put_us = put_latency(t, len);
    double put_mbs = put_bandwidth(t, dmable, len);
    if (t->rank == 1)
        check(t, target, len, seed);
    team_barrier(t);
    double plain_put_mbs = put_bandwidth(t, plain, len);
    if (t->rank == 1)
        check(t, target, len, seed + 1);
    memset(target, 0, len);
    team_barrier(t);
    *send_us = send_latency(t, len);
    check(t, target, len, seed);
    memset(target, 0, len);
    double send_mbs = send_bandwidth(t, dmable, target, len);
    double plain_mbs = send_bandwidth(t, plain, plain + max, len);
    if (t->rank == 1) {
        check(t, target, len, seed);
        check(t, plain + max, len, seed + 1);
        return;
    }
    printf("%zu %.3f %.3f %.2f %.2f %.2f\n", len, *put_us, *send_us, put_mbs, send_mbs, plain_mbs);
    TEAM_DEMAND(t, !checks || *put_us < *send_us, "a put of %zu bytes takes %.3f us, a message %.3f", len, *put_us,
                *send_us);
    if (!checks || len < max)
        return;
    TEAM_DEMAND(t, put_mbs >= 0.95 * dma_bound && send_mbs >= 0.95 * dma_bound,
                "%.1f and %.1f MB/s are less than 95 %% of the DMA's bandwidth", put_mbs, send_mbs);
    TEAM_DEMAND(t, plain_put_mbs >= 0.90 * copy_bound && plain_mbs >= 0.90 * copy_bound,
                "%.1f and %.1f MB/s are less than 90 %% of what a processor can copy", plain_put_mbs, plain_mbs);
}

static void body(struct team *t, void *arg)
{
    double put_us, send_us;
    (void)arg;
    team_barrier(t);
    uint64_t given_up = emu_given_up(NULL);
    for (size_t len = 1; len <= max; len *= 2)
        measure(t, len, &put_us, &send_us);
    TEAM_DEMAND(t, emu_given_up(NULL) == given_up,
                "the host left a process without a processor for so long that the other one went on: not exact");
    free(plain);
}

int main(int argc, char **argv)
{
    const struct team_config config = {.provider = "unimem", .size = 2, .open = open_all};
    char name[40];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--check") == 0)
            checks = true;
        else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc)
            max = strtoull(argv[++i], NULL, 0);
    }
    snprintf(name, sizeof(name), "fabric-%d", (int)getpid());
    setenv("UNIMEM_BOARD", name, 1);
    setenv("FI_UNIMEM_MACHINE", "board", 1);
    setenv("UNIMEM_EMU_TIMING", "virtual", 0);
    if (!getenv("FI_UNIMEM_BOARD_LIBRARY") || !max) {
        fprintf(stderr, "usage: FI_UNIMEM_BOARD_LIBRARY=.../libunimem.so.1 fabric [--check] [--max BYTES]\n");
        return 2;
    }
    return team_run(&config, NULL, body, NULL);
}
