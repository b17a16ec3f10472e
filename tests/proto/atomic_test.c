/* Atomics: every datatype and operation through the protocol, one record and many, order, errors, both ways at once. */
#include "world.h"

#include "base/clock.h"
#include "proto/wire.h"

#define CTX(n) ((void *)(uintptr_t)(n))

enum { MEMORY = 2 * MIB, KEY = 7, BOTH = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE };

static unsigned char memory[MEMORY] __attribute__((aligned(64))), expected[MEMORY] __attribute__((aligned(64)));
static unsigned char operand[MEMORY], compare[MEMORY], result[MEMORY], before[MEMORY];

static struct um_core_region region_make(uint32_t access)
{
    return (struct um_core_region){.key = KEY, .base = (uintptr_t)memory, .len = MEMORY, .access = access};
}

static void atomic_start(struct world *w, int from, const struct um_proto_atomic *a)
{
    uint64_t start = um_clock_ns();
    int ret;
    while ((ret = start_atomic(&w->node[from], a)) == -EAGAIN) {
        if (!world_progress(w) && um_clock_ns() - start > UINT64_C(30000000000))
            fail_msg("refused with EAGAIN for ever");
    }
    assert_int_equal(ret, 0);
}

static const uint8_t kind_of[] = {UM_ATOMIC_BASE, UM_ATOMIC_FETCH, UM_ATOMIC_COMPARE};

/* One operation with one piece in each list, from node 0 to node `to`. */
static struct um_core_completion atomic_do(struct world *w, int to, uint8_t kind, uint8_t type, uint8_t op,
                                           size_t count, uint64_t addr)
{
    size_t len = count * um_proto_atomic_size(type);
    struct um_proto_atomic a = {.operand = operand,
                                .compare = compare,
                                .result = result,
                                .peer = peer_of(w, 0, to),
                                .addr = addr,
                                .key = KEY,
                                .count = count,
                                .type = type,
                                .op = op,
                                .kind = kind,
                                .context = CTX(1)};
    atomic_start(w, 0, &a);
    struct um_core_completion c = done_of(w, 0, CTX(1));
    assert_true(c.flags & UM_OP_ATOMIC);
    assert_true(c.flags & (kind == UM_ATOMIC_BASE ? UM_OP_WRITE : UM_OP_READ));
    assert_int_equal(c.len, len);
    return c;
}

static void apply_expected(uint8_t type, uint8_t op, size_t count, uint64_t addr)
{
    static struct um_locks_shm locks;
    const struct um_lock_party party = {.self = 1};
    um_proto_atomic_apply(&(struct um_proto_atomic_call){.type = type,
                                                         .op = op,
                                                         .count = count,
                                                         .target = expected + addr,
                                                         .operand = operand,
                                                         .compare = compare,
                                                         .lock_key = (uintptr_t)memory + addr,
                                                         .locks = &locks,
                                                         .party = &party});
}

/* Writes numbers of that datatype that are so small that operations on them are exact. */
static void numbers(uint8_t type, unsigned char *to, size_t count, uint64_t *r)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = um_proto_atomic_size(type);
        float f[2] = {(float)(int)rnd(r, 7) - 3, 1};
        double d[2] = {f[0], 1};
        long double l[2] = {f[0], 1};
        uint64_t u[2] = {rnd(r, 5) ? rnd(r, 100) : UINT64_MAX - rnd(r, 100), 0};
        const void *from = u;
        if (type == UM_TYPE_FLOAT || type == UM_TYPE_FLOAT_COMPLEX)
            from = f;
        else if (type == UM_TYPE_DOUBLE || type == UM_TYPE_DOUBLE_COMPLEX)
            from = d;
        else if (type == UM_TYPE_LONG_DOUBLE || type == UM_TYPE_LONG_DOUBLE_COMPLEX)
            from = l;
        memcpy(to + i * size, from, size);
    }
}

/* Compares the bytes that have a meaning: 10 of the 16 of a long double. */
static bool is_equal(uint8_t type, const unsigned char *a, const unsigned char *b, size_t count)
{
    bool wide = type == UM_TYPE_LONG_DOUBLE || type == UM_TYPE_LONG_DOUBLE_COMPLEX;
    size_t len = count * um_proto_atomic_size(type);
    for (size_t i = 0; i < len; i++) {
        if (a[i] != b[i] && !(wide && i % sizeof(long double) >= 10))
            return false;
    }
    return true;
}

static void every_datatype_and_operation_arrives(void **state)
{
    static const size_t counts[] = {1, 2, 3, 5, 40, 700};
    struct world w;
    struct um_core_region region = region_make(BOTH);
    uint64_t r = 99;
    (void)state;
    world_open(&w, 2);
    um_core_regions_add(w.node[1].regions, &region);
    for (unsigned n = 0; n < UM_TYPES * UM_ATOMIC_OPS * 3; n++) {
        uint8_t type = (uint8_t)(n / 3 / UM_ATOMIC_OPS), op = (uint8_t)(n / 3 % UM_ATOMIC_OPS), kind = kind_of[n % 3];
        if (!um_proto_atomic_is_valid(kind, type, op))
            continue;
        size_t count = counts[n % 6], size = um_proto_atomic_size(type);
        uint64_t addr = n % 4 == 3 ? 64 + 3 : 64; /* aligned and not */
        memset(memory, 0x77, 64 + 3);
        memset(memory + addr + count * size, 0x77, 64);
        numbers(type, memory + addr, count, &r);
        numbers(type, operand, count, &r);
        numbers(type, compare, count, &r);
        memcpy(compare, memory + addr, size); /* something equal */
        memcpy(before, memory + addr, count * size);
        memcpy(expected, memory, addr + count * size + 64);
        apply_expected(type, op, count, addr);
        assert_int_equal(atomic_do(&w, 1, kind, type, op, count, addr).error, 0);
        if (!is_equal(type, memory + addr, expected + addr, count))
            fail_msg("kind %u type %u op %u count %zu", kind, type, op, count);
        assert_true(is_all(memory, 64, 0x77));
        assert_true(is_all(memory + addr + count * size, 64, 0x77));
        if (kind != UM_ATOMIC_BASE)
            assert_memory_equal(result, before, count * size);
    }
    assert_int_equal(w.node[1].count, 0); /* the owner gets no completion */
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

/* Cuts a buffer into pieces of whole elements. */
static void cut_elements(void *buf, size_t count, size_t size, struct iovec *iov, size_t pieces, uint64_t *r)
{
    cut(buf, count, iov, pieces, r);
    unsigned char *at = buf;
    for (size_t i = 0; i < pieces; i++) {
        iov[i] = (struct iovec){at, iov[i].iov_len * size};
        at += iov[i].iov_len;
    }
}

/* Lengths around the largest body of a new and of a grown lane, up to the longest operation; from lists, into lists. */
static void operations_of_every_length_arrive(void **state)
{
    static const size_t lens[] = {8,    32,   40,    48,    512,    1016,   1024,   1032,
                                  2048, 8192, 16384, 16392, 100000, 200008, 500000, UM_ATOMIC_BYTES};
    struct world w;
    struct um_core_region region = region_make(BOTH);
    uint64_t r = 5;
    (void)state;
    for (int to = 0; to < 2; to++) {
        world_open(&w, 2);
        um_core_regions_add(w.node[to].regions, &region);
        for (size_t n = 0; n < 16 * 6; n++) {
            const uint8_t op = n % 6 < 2   ? UM_ATOMIC_SUM
                               : n % 6 < 4 ? UM_ATOMIC_MSWAP
                               : n % 6 < 5 ? UM_ATOMIC_READ
                                           : UM_ATOMIC_WRITE;
            uint8_t kind = op == UM_ATOMIC_MSWAP ? UM_ATOMIC_COMPARE : n % 6 % 2 ? UM_ATOMIC_BASE : UM_ATOMIC_FETCH;
            size_t len = lens[n / 6], count = len / 8, pieces = n % 2 ? 1 : 1 + rnd(&r, 32);
            struct iovec in[32], cmp[32], out[32];
            fill(memory, MEMORY, (uint32_t)n);
            fill(operand, len, (uint32_t)n + 1);
            fill(compare, len, (uint32_t)n + 2);
            memset(result, 0, len + 8);
            memcpy(before, memory, MEMORY);
            memcpy(expected, memory, MEMORY);
            apply_expected(UM_TYPE_UINT64, op, count, 8);
            cut_elements(operand, count, 8, in, pieces, &r);
            cut_elements(compare, count, 8, cmp, pieces == 1 ? 1 : 1 + rnd(&r, 32), &r);
            size_t out_pieces = pieces == 1 ? 1 : 32, cmp_pieces = pieces == 1 ? 1 : 0;
            if (!cmp_pieces) {
                cmp_pieces = 7;
                cut_elements(compare, count, 8, cmp, cmp_pieces, &r);
            }
            cut_elements(result, count, 8, out, out_pieces, &r);
            const struct um_proto_atomic_lists lists = {.operand = in,
                                                        .operand_count = op == UM_ATOMIC_READ ? 0 : pieces,
                                                        .compare = cmp,
                                                        .compare_count = kind == UM_ATOMIC_COMPARE ? cmp_pieces : 0,
                                                        .result = out,
                                                        .result_count = kind == UM_ATOMIC_BASE ? 0 : out_pieces};
            struct um_proto_atomic a = {.lists = &lists,
                                        .peer = peer_of(&w, 0, to),
                                        .addr = 8,
                                        .key = KEY,
                                        .count = count,
                                        .type = UM_TYPE_UINT64,
                                        .op = op,
                                        .kind = kind,
                                        .context = CTX(1)};
            atomic_start(&w, 0, &a);
            memset(operand, 0xee, len); /* the caller's again: copied, or used */
            assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
            assert_memory_equal(memory, expected, MEMORY);
            if (kind != UM_ATOMIC_BASE)
                assert_memory_equal(result, before + 8, len);
            assert_true(is_all(result + len, 8, 0));
        }
        um_core_regions_remove(w.node[to].regions, &region);
        world_close(&w);
    }
}

/* Registers the region anew: peers learn the access when a registration is made. */
static void set_access(struct world *w, int node, struct um_core_region *region, uint32_t access)
{
    um_core_regions_remove(w->node[node].regions, region);
    region->access = access;
    assert_int_equal(um_core_regions_add(w->node[node].regions, region), 0);
}

static void what_the_registration_does_not_allow_is_an_error_and_changes_nothing(void **state)
{
    static const size_t counts[] = {1, 4, 100, 20000};
    (void)state;
    for (int to = 0; to < 2; to++) {
        struct world w;
        struct um_core_region region = region_make(0);
        world_open(&w, 2);
        um_core_regions_add(w.node[to].regions, &region);
        memset(memory, 0x11, MEMORY);
        memset(operand, 0x22, MEMORY);
        for (size_t i = 0; i < 4; i++) {
            size_t count = counts[i];
            for (uint8_t kind = 0; kind < 3; kind++) {
                uint8_t op = kind == UM_ATOMIC_COMPARE ? UM_ATOMIC_CSWAP_NE : UM_ATOMIC_WRITE;
                memset(result, 0x33, count * 8);
                set_access(&w, to, &region, kind == UM_ATOMIC_BASE ? UM_ACCESS_REMOTE_READ : UM_ACCESS_REMOTE_WRITE);
                assert_int_equal(atomic_do(&w, to, kind, UM_TYPE_INT64, op, count, 0).error, EACCES);
                set_access(&w, to, &region, kind == UM_ATOMIC_BASE ? 0 : UM_ACCESS_REMOTE_READ);
                assert_int_equal(atomic_do(&w, to, kind, UM_TYPE_INT64, op, count, 0).error, EACCES);
                set_access(&w, to, &region, BOTH);
                assert_int_equal(atomic_do(&w, to, kind, UM_TYPE_INT64, op, count, MEMORY - count * 8 + 1).error,
                                 ERANGE);
                assert_int_equal(atomic_do(&w, to, kind, UM_TYPE_INT64, op, count, UINT64_MAX - 7).error, ERANGE);
                um_core_regions_remove(w.node[to].regions, &region);
                assert_int_equal(atomic_do(&w, to, kind, UM_TYPE_INT64, op, count, 0).error, EKEYREJECTED);
                um_core_regions_add(w.node[to].regions, &region);
                assert_true(is_all(memory, MEMORY, 0x11));
                assert_true(is_all(result, count * 8, 0x33));
            }
            set_access(&w, to, &region, UM_ACCESS_REMOTE_READ); /* reading alone is enough to read */
            assert_int_equal(atomic_do(&w, to, UM_ATOMIC_FETCH, UM_TYPE_INT64, UM_ATOMIC_READ, count, 0).error, 0);
            assert_true(is_all(result, count * 8, 0x11));
        }
        um_core_regions_remove(w.node[to].regions, &region);
        world_close(&w);
    }
}

/* A long operation is on its way in many records when short ones to the same place follow, and then a long one. */
static void operations_take_effect_in_the_order_of_the_calls(void **state)
{
    enum { LONG = 60000, ROUNDS = 60 };
    static uint64_t values[ROUNDS][LONG], fetched[ROUNDS];
    struct world w;
    struct um_core_region region = region_make(BOTH);
    uint64_t *words = (uint64_t *)(void *)memory;
    (void)state;
    world_open(&w, 2);
    um_core_regions_add(w.node[1].regions, &region);
    memset(memory, 0, MEMORY);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        bool is_long = i % 3 == 0;
        for (size_t k = 0; k < LONG; k++)
            values[i][k] = i + 1;
        struct um_proto_atomic a = {.operand = values[i],
                                    .result = is_long ? NULL : &fetched[i],
                                    .peer = peer_of(&w, 0, 1),
                                    .addr = is_long ? 0 : (LONG - 1) * 8, /* the last word of the long ones */
                                    .key = KEY,
                                    .count = is_long ? LONG : 1,
                                    .type = UM_TYPE_UINT64,
                                    .op = UM_ATOMIC_WRITE,
                                    .kind = is_long ? UM_ATOMIC_BASE : UM_ATOMIC_FETCH,
                                    .context = CTX(i + 1)};
        atomic_start(&w, 0, &a);
    }
    for (uint64_t i = 0; i < ROUNDS; i++)
        assert_int_equal(done_of(&w, 0, CTX(i + 1)).error, 0);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        if (i % 3)
            assert_int_equal(fetched[i], i); /* what the call before wrote */
    }
    assert_int_equal(words[LONG - 1], ROUNDS);
    assert_int_equal(words[0], ROUNDS - 2);
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

/* Both sides fetch as fast as they can: lanes fill with requests and with results, and nobody waits for ever. */
static void fetching_both_ways_at_once_never_stops(void **state)
{
    enum { N = 4000, WIDE = 200 };
    struct world w;
    struct um_core_region region[2] = {region_make(BOTH), region_make(BOTH)};
    static uint64_t got[2][N], wide[2][WIDE], one = 1, ones[WIDE], seen[N];
    uint64_t *counter[2] = {(uint64_t *)(void *)memory, (uint64_t *)(void *)(memory + 4096)};
    uint64_t sent[2] = {0, 0}, start = um_clock_ns();
    (void)state;
    world_open(&w, 2);
    memset(memory, 0, MEMORY);
    for (int i = 0; i < WIDE; i++)
        ones[i] = 1;
    for (int i = 0; i < 2; i++)
        um_core_regions_add(w.node[i].regions, &region[i]);
    while (sent[0] < N || sent[1] < N) {
        bool moved = false;
        for (int from = 0; from < 2; from++) {
            uint64_t n = sent[from];
            bool is_wide = n % 5 == 4;
            struct um_proto_atomic a = {.operand = is_wide ? ones : &one,
                                        .result = is_wide ? (void *)wide[from] : &got[from][n],
                                        .peer = peer_of(&w, from, 1 - from),
                                        .addr = (uint64_t)(1 - from) * 4096 + (is_wide ? 8 : 0),
                                        .key = KEY,
                                        .count = is_wide ? sizeof(ones) / 8 : 1,
                                        .type = UM_TYPE_UINT64,
                                        .op = UM_ATOMIC_SUM,
                                        .kind = UM_ATOMIC_FETCH,
                                        .context = CTX(1)};
            int ret = n < N ? start_atomic(&w.node[from], &a) : -EAGAIN;
            assert_true(ret == 0 || ret == -EAGAIN);
            sent[from] += ret == 0;
            moved = moved || ret == 0;
        }
        if (!moved && !world_progress(&w) && um_clock_ns() - start > UINT64_C(60000000000))
            fail_msg("both sides wait for each other");
    }
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < N; k++)
            assert_int_equal(done_of(&w, i, CTX(1)).error, 0);
        assert_int_equal(*counter[1 - i], N - N / 5);
        for (int k = 0; k < WIDE; k++)
            assert_int_equal(counter[1 - i][1 + k], N / 5);
        memset(seen, 0, sizeof(seen));
        for (int k = 0; k < N; k++) {
            if (k % 5 != 4)
                assert_int_equal(seen[got[i][k]]++, 0); /* each value was fetched once */
        }
    }
    for (int i = 0; i < 2; i++)
        um_core_regions_remove(w.node[i].regions, &region[i]);
    world_close(&w);
}

/* The operation ends in an error or was complete; the endpoints go on. */
static void a_region_closed_under_way_ends_the_operation_alone(void **state)
{
    enum { COUNT = UM_ATOMIC_BYTES / 8 };
    (void)state;
    for (int rounds = 0; rounds < 30; rounds++) {
        for (uint8_t kind = 0; kind < 3; kind++) {
            struct world w;
            struct um_core_region region = region_make(BOTH);
            struct um_proto_atomic a = {.operand = operand,
                                        .compare = compare,
                                        .result = result,
                                        .key = KEY,
                                        .count = COUNT,
                                        .type = UM_TYPE_UINT64,
                                        .op = kind == UM_ATOMIC_COMPARE ? UM_ATOMIC_MSWAP : UM_ATOMIC_WRITE,
                                        .kind = kind,
                                        .context = CTX(1)};
            world_open(&w, 2);
            a.peer = peer_of(&w, 0, 1);
            um_core_regions_add(w.node[1].regions, &region);
            atomic_start(&w, 0, &a);
            for (int i = 0; i < rounds; i++)
                world_progress(&w);
            um_core_regions_remove(w.node[1].regions, &region);
            memset(memory, 0x11, sizeof(memory)); /* the owner's memory is its own again */
            struct um_core_completion c = done_of(&w, 0, CTX(1));
            assert_true(c.error == 0 || c.error == EKEYREJECTED);
            assert_true(is_all(memory, MEMORY, 0x11));
            um_core_regions_add(w.node[1].regions, &region);
            memset(operand, 0, 8);
            assert_int_equal(atomic_do(&w, 1, UM_ATOMIC_FETCH, UM_TYPE_UINT64, UM_ATOMIC_SUM, 1, 0).error, 0);
            assert_true(is_all(result, 8, 0x11));
            um_core_regions_remove(w.node[1].regions, &region);
            world_close(&w);
        }
    }
}

/* True if the caller itself executes the operation, without the owner's progress. */
static bool is_mapped(void)
{
    return variant.adopt && !variant.second; /* over the second machine only the owner reaches it */
}

static void an_operation_on_mapped_memory_is_complete_at_return(void **state)
{
    (void)state;
    for (int to = 0; to < 2; to++) {
        struct world w;
        struct um_core_region region = region_make(BOTH);
        uint64_t *word = (uint64_t *)(void *)memory, one = 1, old = 0;
        world_open(&w, 2);
        um_core_regions_add(w.node[to].regions, &region);
        *word = 41;
        struct um_proto_atomic a = {.operand = &one,
                                    .result = &old,
                                    .peer = peer_of(&w, 0, to),
                                    .key = KEY,
                                    .count = 1,
                                    .type = UM_TYPE_UINT64,
                                    .op = UM_ATOMIC_SUM,
                                    .kind = UM_ATOMIC_FETCH,
                                    .context = CTX(1)};
        atomic_start(&w, 0, &a);
        if (is_mapped()) {
            assert_int_equal(w.node[0].count, 1); /* without a call of progress on either side */
            assert_int_equal(*word, 42);
            assert_int_equal(old, 41);
            assert_int_equal(um_core_ep_stats(w.node[0].ep)->mapped, 1);
        }
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_int_equal(*word, 42);
        um_core_regions_remove(w.node[to].regions, &region);
        world_close(&w);
    }
}

/* One region is mapped, the other one is left to its owner: no operation on the first overtakes one on the second. */
static void an_operation_at_once_overtakes_none_on_its_way(void **state)
{
    struct world w;
    struct um_core_region mapped = region_make(BOTH), remote = region_make(UM_ACCESS_REMOTE_READ);
    uint64_t one = 1, old = 0;
    (void)state;
    world_open(&w, 2);
    remote.key = KEY + 1;
    um_core_regions_add(w.node[1].regions, &mapped);
    um_core_regions_add(w.node[1].regions, &remote);
    memset(memory, 5, MEMORY);
    struct um_proto_atomic a = {.operand = &one,
                                .result = &old,
                                .peer = peer_of(&w, 0, 1),
                                .key = KEY,
                                .count = 1,
                                .type = UM_TYPE_UINT64,
                                .op = UM_ATOMIC_WRITE,
                                .kind = UM_ATOMIC_FETCH,
                                .context = CTX(1)};
    /* a fetch that only the owner can execute, also at level copy: a region for reading alone is not adopted */
    struct um_proto_atomic slow = a;
    slow.result = result;
    slow.key = KEY + 1;
    slow.count = MIB / 8;
    slow.op = UM_ATOMIC_READ;
    slow.context = CTX(2);
    atomic_start(&w, 0, &slow);
    if (w.node[0].count == 0 && is_mapped())
        assert_int_equal(start_atomic(&w.node[0], &a), -EAGAIN);
    atomic_start(&w, 0, &a);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    assert_true(is_all(result, MIB, 5));
    assert_true(is_all(&old, 8, 5));
    um_core_regions_remove(w.node[1].regions, &mapped);
    um_core_regions_remove(w.node[1].regions, &remote);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_datatype_and_operation_arrives),
    cmocka_unit_test(operations_of_every_length_arrive),
    cmocka_unit_test(what_the_registration_does_not_allow_is_an_error_and_changes_nothing),
    cmocka_unit_test(operations_take_effect_in_the_order_of_the_calls),
    cmocka_unit_test(fetching_both_ways_at_once_never_stops),
    cmocka_unit_test(a_region_closed_under_way_ends_the_operation_alone),
    cmocka_unit_test(an_operation_on_mapped_memory_is_complete_at_return),
    cmocka_unit_test(an_operation_at_once_overtakes_none_on_its_way),
};
WORLD_MAIN("atomic", tests)
