/* world.h. */
#include "world.h"

#include "needs.h"

#include "base/clock.h"
#include "core/endpoint.h"
#include "machine/board/config.h"
#include "machine/net/config.h"
#include "machine/sim/sim.h"

#include <stdio.h>
#include <unistd.h>

#define HANG_NS    UINT64_C(30000000000)
#define CONNECT_NS UINT64_C(150000000) /* several times what an inner provider needs to connect */

struct variant variant;

const size_t sizes[] = {0,    1,    7,    8,    16,    17,    40,    41,    48,    49,      64,  1000,    1023,
                        1024, 1025, 4096, 8191, 16383, 16384, 16385, 65536, 65537, 1000000, MIB, MIB + 1, 3 * MIB + 7};
const size_t sizes_count = sizeof(sizes) / sizeof(sizes[0]);

static void on_complete(void *arg, const struct um_core_completion *c)
{
    struct node *n = arg;
    if (c->flags & UM_OP_INJECT && c->flags & UM_OP_NO_EVENT && !c->error && !c->context)
        return; /* of a um_proto_inject() that returned 1 */
    if (n->count == n->capacity) {
        n->capacity = n->capacity ? n->capacity * 2 : 64;
        n->done = realloc(n->done, n->capacity * sizeof(*n->done));
        if (!n->done)
            abort();
    }
    n->done[n->count++] = *c;
}

struct um_machines variant_machines(void)
{
    return (struct um_machines){{variant.machine, variant.second}, variant.second ? 2 : 1};
}

void node_open(struct node *n, size_t multi_min)
{
    static uint16_t opened;
    const struct um_space_config space = {.adopt = variant.adopt};
    const struct um_machines machines = variant_machines();
    *n = (struct node){0};
    assert_int_equal(um_core_regions_open(&machines, &space, &n->regions), 0);
    struct um_core_ep_config config = {
        .machines = machines,
        .port = {.private_copy = variant.private_copy,
                 .partition = variant.second ? opened++ % 2 : 0,
                 .memory_max = variant.memory_max,
                 .lanes_max = variant.lanes_max ? variant.lanes_max : 16},
        .regions = n->regions,
        .complete = on_complete,
        .arg = n,
        .multi_min = multi_min,
        .unexpected_max = variant.unexpected_max,
        .bodies = variant.bodies,
        .mapped = variant.sim_modes & UM_SIM_SHAREABLE && !variant.maps_by_choice ? UM_MAPPED_ALWAYS : UM_MAPPED_LEARN,
    };
    if (variant.attach)
        snprintf(config.port.attach, sizeof(config.port.attach), "%s", variant.attach);
    assert_int_equal(um_proto_ep_open(&config, &n->ep), 0);
    um_core_ep_addr(n->ep, &n->addr);
}

void node_close(struct node *n)
{
    if (n->ep)
        um_proto_ep_close(n->ep);
    if (n->regions)
        um_core_regions_close(n->regions);
    free(n->done);
    *n = (struct node){0};
}

void world_open_multi(struct world *w, int nodes, size_t multi_min)
{
    static uint32_t seed;
    *w = (struct world){.nodes = nodes};
    um_sim_configure(++seed, variant.stall_percent, variant.sim_modes);
    for (int i = 0; i < nodes; i++)
        node_open(&w->node[i], multi_min);
}

uint32_t many(uint32_t count)
{
    return variant.machine == &um_machine_board || variant.second ? count / 5 : count;
}

void world_open(struct world *w, int nodes)
{
    world_open_multi(w, nodes, 64);
}

void world_close(struct world *w)
{
    world_settle(w);
    for (int i = 0; i < w->nodes; i++)
        node_close(&w->node[i]);
}

int world_progress(struct world *w)
{
    int moved = 0;
    for (int i = 0; i < w->nodes; i++) {
        if (w->node[i].ep)
            moved += um_core_ep_progress(w->node[i].ep);
    }
    return moved;
}

bool is_quiet_long(uint64_t since)
{
    const bool is_net = variant.machine == &um_machine_net || variant.second == &um_machine_net;
    return !is_net || um_clock_ns() - since > CONNECT_NS;
}

void world_settle(struct world *w)
{
    uint64_t start = um_clock_ns(), moved = start;
    for (int quiet = 0; quiet < 300 || !is_quiet_long(moved);) {
        quiet = world_progress(w) ? 0 : quiet + 1;
        moved = quiet ? moved : um_clock_ns();
        if (um_clock_ns() - start > HANG_NS)
            fail_msg("the endpoints never come to rest");
    }
}

struct um_core_peer *peer_of(struct world *w, int from, int to)
{
    struct um_core_peer *peer = NULL;
    assert_int_equal(um_core_peer_get(w->node[from].ep, &w->node[to].addr, &peer), 0);
    return peer;
}

const struct um_core_completion *next_of(struct world *w, int node)
{
    struct node *n = &w->node[node];
    uint64_t start = um_clock_ns();
    while (n->taken == n->count) {
        if (!world_progress(w) && um_clock_ns() - start > HANG_NS)
            fail_msg("node %d hangs: no further completion after %zu", node, n->count);
    }
    return &n->done[n->taken++];
}

struct um_core_completion done_of(struct world *w, int node, const void *context)
{
    struct node *n = &w->node[node];
    uint64_t start = um_clock_ns();
    for (size_t at = n->taken;;) {
        for (; at < n->count; at++) {
            if (n->done[at].context != context)
                continue;
            struct um_core_completion found = n->done[at];
            n->done[at] = n->done[n->taken++];
            return found;
        }
        if (!world_progress(w) && um_clock_ns() - start > HANG_NS)
            fail_msg("node %d hangs: operation %p does not complete", node, context);
    }
}

size_t untaken(const struct world *w, int node)
{
    return w->node[node].count - w->node[node].taken;
}

/* Makes progress after a call that returned -EAGAIN. Fails when that has lasted too long. */
static void again(struct world *w, uint64_t *start)
{
    if (*start == 0)
        *start = um_clock_ns();
    if (!world_progress(w) && um_clock_ns() - *start > HANG_NS)
        fail_msg("refused with EAGAIN for ever");
}

void send_msg(struct world *w, int from, const struct um_proto_msg *msg)
{
    uint64_t start = 0;
    int ret;
    while ((ret = um_proto_send(w->node[from].ep, msg)) == -EAGAIN)
        again(w, &start);
    assert_int_equal(ret, 0);
}

void send_buf(struct world *w, int from, int to, const void *buf, size_t len, uint64_t tag, uint32_t flags,
              void *context)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
    struct um_proto_msg msg = {.iov = &iov,
                               .count = 1,
                               .peer = peer_of(w, from, to),
                               .tag = tag,
                               .data = tag ^ 0x5555,
                               .context = context,
                               .flags = flags};
    send_msg(w, from, &msg);
}

void inject_buf(struct world *w, int from, int to, const void *buf, size_t len, uint64_t tag, uint32_t flags)
{
    uint64_t start = 0;
    int ret;
    while ((ret = um_proto_inject(w->node[from].ep, peer_of(w, from, to), buf, len, tag, tag ^ 0x5555, flags)) ==
           -EAGAIN)
        again(w, &start);
    assert_true(ret == 0 || ret == 1);
}

void recv_buf(struct world *w, int node, struct um_core_peer *source, void *buf, size_t len, uint64_t tag,
              uint64_t ignore, uint32_t flags, void *context)
{
    struct iovec iov = {.iov_base = buf, .iov_len = len};
    struct um_proto_msg msg = {
        .iov = &iov, .count = 1, .peer = source, .tag = tag, .ignore = ignore, .context = context, .flags = flags};
    assert_int_equal(um_proto_recv(w->node[node].ep, &msg), 0);
}

/* Reports the completion that proto leaves to its caller (UM_EXECUTED). */
static int executed(struct um_core_ep *ep, void *context, uint32_t flags, size_t len)
{
    const struct um_core_completion c = {.context = context, .flags = flags, .len = len};
    ep->config.complete(ep->config.arg, &c);
    return 0;
}

int start_rma(struct node *n, const struct um_proto_rma *op)
{
    int ret = op->flags & UM_OP_READ ? um_proto_rma_read(n->ep, op) : um_proto_rma_write(n->ep, op);
    return ret == UM_EXECUTED ? executed(n->ep, op->context, op->flags, um_iov_length(op->iov, op->count)) : ret;
}

int start_atomic(struct node *n, const struct um_proto_atomic *op)
{
    int ret = um_proto_atomic_start(n->ep, op);
    uint32_t flags = op->flags | UM_OP_ATOMIC | (op->kind == UM_ATOMIC_BASE ? UM_OP_WRITE : UM_OP_READ);
    return ret == UM_EXECUTED ? executed(n->ep, op->context, flags, op->count * um_proto_atomic_size(op->type)) : ret;
}

void rma(struct world *w, int from, const struct um_proto_rma *op)
{
    uint64_t start = 0;
    int ret;
    while ((ret = start_rma(&w->node[from], op)) == -EAGAIN)
        again(w, &start);
    assert_int_equal(ret, 0);
}

/* The pattern: in a block of 256 bytes each byte is 31 more than the one before, modulo 256. So each block is the part
 * of one table that begins with the first byte of the block. */
#define STEP_1(i)  (unsigned char)((i)*31)
#define STEP_4(i)  STEP_1(i), STEP_1((i) + 1), STEP_1((i) + 2), STEP_1((i) + 3)
#define STEP_16(i) STEP_4(i), STEP_4((i) + 4), STEP_4((i) + 8), STEP_4((i) + 12)
#define STEP_64(i) STEP_16(i), STEP_16((i) + 16), STEP_16((i) + 32), STEP_16((i) + 48)
#define STEP_256   STEP_64(0), STEP_64(64), STEP_64(128), STEP_64(192)

enum { BLOCK = 256, INVERSE = 223 /* of 31, modulo 256 */ };

/* Returns the block that begins at byte i of a buffer. */
static const unsigned char *pattern_block(size_t i, uint32_t seed)
{
    static const unsigned char table[2 * BLOCK] = {STEP_256, STEP_256};
    const size_t first = (i >> 8) * 7 + (i >> 16) * 3 + seed * 101 + 1;
    return table + (unsigned char)(first * INVERSE);
}

void fill(void *buf, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i += BLOCK)
        memcpy((unsigned char *)buf + i, pattern_block(i, seed), len - i < BLOCK ? len - i : BLOCK);
}

bool is_filled(const void *buf, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i += BLOCK) {
        const unsigned char *got = (const unsigned char *)buf + i, *wanted = pattern_block(i, seed);
        const size_t n = len - i < BLOCK ? len - i : BLOCK;
        if (!memcmp(got, wanted, n))
            continue;
        size_t j = 0;
        while (got[j] == wanted[j])
            j++;
        print_error("byte %zu of %zu is %u, not %u\n", i + j, len, got[j], wanted[j]);
        return false;
    }
    return true;
}

bool is_all(const void *buf, size_t len, unsigned char value)
{
    const unsigned char *bytes = buf;
    return len == 0 || (bytes[0] == value && !memcmp(bytes, bytes + 1, len - 1));
}

uint32_t rnd(uint64_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 16) % n);
}

void cut(void *buf, size_t len, struct iovec *iov, size_t count, uint64_t *state)
{
    unsigned char *at = buf;
    for (size_t i = 0; i < count; i++) {
        size_t part = len;
        if (i + 1 < count)
            part = rnd(state, 5) == 0 ? 0 : rnd(state, (uint32_t)(len / (count - i) * 2 + 1));
        if (part > len)
            part = len;
        iov[i] = (struct iovec){.iov_base = at, .iov_len = part};
        at += part;
        len -= part;
    }
}

/* Chooses a board of its own for this process, without timing. */
static const struct um_machine *board_choose(const char *step)
{
    static char name[64];
    snprintf(name, sizeof(name), "proto-%d", (int)getpid());
    setenv("UNIMEM_BOARD", name, 1);
    setenv("UNIMEM_EMU_TIMING", "off", 1);
    assert_int_equal(um_board_set_library(getenv("FI_UNIMEM_BOARD_LIBRARY")), 0);
    assert_int_equal(um_board_set_step(step), 0);
    return &um_machine_board;
}

/* Chooses net on the loopback, over tcp or tcp;ofi_rxm. */
static const struct um_machine *net_choose(void)
{
    assert_int_equal(um_net_set_use("on"), 0);
    assert_int_equal(um_net_set_address("127.0.0.1"), 0);
    return &um_machine_net;
}

static void variant_parse(const char *word)
{
    unsigned value = 0;
    if (strcmp(word, "sim") == 0)
        variant.machine = &um_machine_sim;
    else if (strcmp(word, "unwoken") == 0)
        variant.machine = &um_machine_sim_unwoken;
    else if (strcmp(word, "shm") == 0)
        variant.machine = &um_machine_shm;
    else if (strcmp(word, "board") == 0)
        variant.machine = board_choose(NULL);
    else if (strcmp(word, "board=naive") == 0)
        variant.machine = board_choose("naive");
    else if (strcmp(word, "net") == 0)
        variant.machine = net_choose();
    else if (strcmp(word, "and-net") == 0)
        variant.second = net_choose();
    else if (strcmp(word, "and-board") == 0)
        variant.second = board_choose(NULL);
    else if (strcmp(word, "and-shm") == 0)
        variant.second = &um_machine_shm;
    else if (strcmp(word, "copy=no") == 0)
        variant.private_copy = variant.adopt = false;
    else if (strcmp(word, "private=no") == 0)
        variant.private_copy = false;
    else if (strcmp(word, "adopt=no") == 0)
        variant.adopt = false;
    else if (sscanf(word, "stall=%u", &value) == 1)
        variant.stall_percent = value;
    else if (strcmp(word, "slow") == 0)
        variant.sim_modes |= UM_SIM_SLOW;
    else if (strcmp(word, "stale") == 0)
        variant.sim_modes |= UM_SIM_STALE;
    else if (strcmp(word, "mapped") == 0)
        variant.sim_modes |= UM_SIM_SHAREABLE;
    else if (strcmp(word, "evict") == 0)
        variant.sim_modes |= UM_SIM_STALE | UM_SIM_EVICT;
    else if (sscanf(word, "memory=%u", &value) == 1)
        variant.memory_max = value;
    else if (sscanf(word, "lanes=%u", &value) == 1)
        variant.lanes_max = value;
    else if (strcmp(word, "bodies=learn") == 0)
        variant.bodies = UM_BODIES_LEARN;
    else if (strcmp(word, "bodies=both") == 0)
        variant.bodies = UM_BODIES_BOTH;
    else if (strcmp(word, "bodies=push") == 0)
        variant.bodies = UM_BODIES_PUSH;
    else if (strncmp(word, "attach=", 7) == 0)
        variant.attach = word + 7;
    else {
        fprintf(stderr, "unknown variant: %s\n", word);
        exit(2);
    }
}

int world_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t count)
{
    variant = (struct variant){.machine = &um_machine_sim, .private_copy = true, .adopt = true};
    for (int i = 1; i < argc; i++)
        variant_parse(argv[i]);
    return needs_status(_cmocka_run_group_tests(name, tests, count, NULL, NULL));
}

void stream_bodies(struct world *w, int from, int to)
{
    enum { BODY = 16 << 10, COUNT = 160, UNDER_WAY = 6 };
    static unsigned char body[BODY], got[BODY];
    for (uint32_t i = 0; i < COUNT + UNDER_WAY; i++) {
        if (i < COUNT) {
            fill(body, BODY - i % 100, i);
            inject_buf(w, from, to, body, BODY - i % 100, i, UM_OP_TAGGED);
        }
        if (i < UNDER_WAY)
            continue;
        const uint32_t old = i - UNDER_WAY;
        memset(got, 0, BODY);
        recv_buf(w, to, NULL, got, BODY, old, 0, UM_OP_TAGGED, w);
        assert_int_equal(done_of(w, to, w).error, 0);
        assert_true(is_filled(got, BODY - old % 100, old));
    }
}
