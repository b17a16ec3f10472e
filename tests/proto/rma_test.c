/* RMA: every size both ways, bounds, access, keys, data at the target, regions that close under way. */
#include "world.h"

#include "base/atomic.h"

#include <pthread.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { MEMORY = 4 * MIB, KEY = 7 };

static unsigned char memory[MEMORY], local[MEMORY];

static struct um_core_region region_make(uint32_t access, uint64_t origin)
{
    return (struct um_core_region){
        .key = KEY, .base = (uintptr_t)memory, .len = MEMORY, .origin = origin, .access = access};
}

/* Executes one operation. Returns its completion. */
static struct um_core_completion rma_do(struct world *w, uint64_t key, uint64_t addr, size_t len, uint32_t flags)
{
    struct iovec iov = {.iov_base = local, .iov_len = len};
    struct um_proto_rma op = {.iov = &iov,
                              .count = 1,
                              .peer = peer_of(w, 0, 1),
                              .addr = addr,
                              .key = key,
                              .data = 0xdadadada,
                              .context = CTX(1),
                              .flags = flags};
    rma(w, 0, &op);
    return done_of(w, 0, CTX(1));
}

static void writes_and_reads_of_every_size_move_the_bytes(void **state)
{
    (void)state;
    const uint64_t origins[] = {0, (uintptr_t)memory, 0x123456789000};
    for (int o = 0; o < 3; o++) {
        struct world w;
        struct um_core_region region = region_make(UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE, origins[o]);
        world_open(&w, 2);
        um_core_regions_add(w.node[1].regions, &region);
        for (size_t s = 0; s < sizes_count; s++) {
            size_t len = sizes[s], at = s * 13 + 1;
            memset(memory, 0, sizeof(memory));
            fill(local, len, (uint32_t)s);
            struct um_core_completion c = rma_do(&w, KEY, origins[o] + at, len, UM_OP_WRITE);
            assert_int_equal(c.error, 0);
            assert_true(c.flags & UM_OP_WRITE);
            assert_true(is_filled(memory + at, len, (uint32_t)s)); /* in place at completion */
            assert_true(is_all(memory, at, 0));
            assert_true(is_all(memory + at + len, 100, 0));
            memset(local, 0, len + 100);
            assert_int_equal(rma_do(&w, KEY, origins[o] + at, len, UM_OP_READ).error, 0);
            assert_true(is_filled(local, len, (uint32_t)s));
            assert_true(is_all(local + len, 100, 0));
        }
        assert_int_equal(w.node[1].count, 0); /* the target gets no completion */
        um_core_regions_remove(w.node[1].regions, &region);
        world_close(&w);
    }
}

/* Registers anew with another access. */
static void region_change(struct world *w, struct um_core_region *region, uint32_t access)
{
    um_core_regions_remove(w->node[1].regions, region);
    region->access = access;
    assert_int_equal(um_core_regions_add(w->node[1].regions, region), 0);
}

static void what_the_registration_does_not_allow_is_an_error_and_moves_nothing(void **state)
{
    (void)state;
    struct world w;
    const size_t lens[] = {0, 8, 300, 100000};
    struct um_core_region region = region_make(0, 0);
    world_open(&w, 2);
    um_core_regions_add(w.node[1].regions, &region);
    memset(memory, 0, sizeof(memory));
    memset(local, 0xaa, sizeof(local));
    for (size_t i = 0; i < 4; i++) {
        size_t len = lens[i];
        for (uint32_t op = UM_OP_READ; op <= UM_OP_WRITE; op *= 2) {
            region_change(&w, &region, UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE);
            assert_int_equal(rma_do(&w, KEY + 1, 0, len, op).error, EKEYREJECTED);
            assert_int_equal(rma_do(&w, KEY, MEMORY - len + 1, len, op).error, ERANGE);
            assert_int_equal(rma_do(&w, KEY, UINT64_MAX, len, op).error, ERANGE);
            assert_int_equal(rma_do(&w, KEY, UINT64_MAX - len, len, op).error, ERANGE);
            assert_int_equal(rma_do(&w, KEY, MEMORY - len, len, op).error, 0); /* the last bytes there are */
            region_change(&w, &region, op == UM_OP_READ ? UM_ACCESS_REMOTE_WRITE : UM_ACCESS_REMOTE_READ);
            assert_int_equal(rma_do(&w, KEY, 0, len, op).error, EACCES);
        }
        assert_true(is_all(memory, MEMORY / 2, 0));
    }
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

static void a_write_with_data_completes_at_the_target_too(void **state)
{
    (void)state;
    struct world w;
    const size_t lens[] = {0, 8, 16, 17, 5000, 100000, 2 * MIB};
    struct um_core_region region = region_make(UM_ACCESS_REMOTE_WRITE, 0);
    world_open(&w, 2);
    um_core_regions_add(w.node[1].regions, &region);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        fill(local, lens[i], (uint32_t)i);
        assert_int_equal(rma_do(&w, KEY, 64, lens[i], UM_OP_WRITE | UM_OP_DATA).error, 0);
        const struct um_core_completion *c = next_of(&w, 1);
        assert_int_equal(c->flags & (UM_OP_REMOTE_WRITE | UM_OP_DATA), UM_OP_REMOTE_WRITE | UM_OP_DATA);
        assert_int_equal(c->data, 0xdadadada);
        assert_int_equal(c->len, lens[i]);
        assert_ptr_equal(c->source, peer_of(&w, 1, 0));
        assert_true(is_filled(memory + 64, lens[i], (uint32_t)i));
    }
    assert_int_equal(rma_do(&w, KEY + 1, 64, 8, UM_OP_WRITE | UM_OP_DATA).error, EKEYREJECTED);
    assert_int_equal(untaken(&w, 1), 0); /* a refused one does not complete there */
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

static void buffer_lists_are_gathered_and_scattered(void **state)
{
    (void)state;
    struct world w;
    uint64_t r = 17;
    struct um_core_region region = region_make(UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE, 0);
    const size_t lens[] = {10, 300, 10000, 60000, 2 * MIB + 3};
    world_open(&w, 2);
    um_core_regions_add(w.node[1].regions, &region);
    for (size_t l = 0; l < 5; l++) {
        for (size_t count = 1; count <= 32; count += 1 + count / 4) {
            struct iovec iov[32];
            struct um_proto_rma op = {
                .iov = iov, .count = count, .peer = peer_of(&w, 0, 1), .addr = 3, .key = KEY, .context = CTX(1)};
            for (int read = 0; read < 2; read++) {
                cut(local, lens[l], iov, count, &r);
                if (read)
                    memset(local, 0, lens[l]);
                else
                    fill(local, lens[l], (uint32_t)count);
                op.flags = read ? UM_OP_READ : UM_OP_WRITE;
                rma(&w, 0, &op);
                assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
                assert_true(is_filled(read ? local : memory + 3, lens[l], (uint32_t)count));
            }
        }
    }
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

/* Many at once, more than there are tokens. */
static void many_operations_at_once_all_complete(void **state)
{
    (void)state;
    enum { N = 300, LEN = 9000 };
    struct world w;
    struct um_core_region region = region_make(UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE, 0);
    world_open(&w, 2);
    um_core_regions_add(w.node[1].regions, &region);
    for (int read = 0; read < 2; read++) {
        if (read)
            memset(local, 0, sizeof(local));
        for (uint32_t i = 0; i < N; i++) {
            struct iovec iov = {.iov_base = local + i * LEN, .iov_len = LEN};
            struct um_proto_rma op = {.iov = &iov,
                                      .count = 1,
                                      .peer = peer_of(&w, 0, 1),
                                      .addr = i * LEN,
                                      .key = KEY,
                                      .context = CTX(i + 1),
                                      .flags = read ? UM_OP_READ : UM_OP_WRITE};
            if (!read)
                fill(local + i * LEN, LEN, i);
            rma(&w, 0, &op);
        }
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(done_of(&w, 0, CTX(i + 1)).error, 0);
            assert_true(is_filled((read ? local : memory) + i * LEN, LEN, i));
        }
    }
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

/* The operation ends in an error or was complete; the two endpoints go on either way. */
static void a_region_closed_under_way_ends_the_operation_alone(void **state)
{
    (void)state;
    for (int rounds = 0; rounds < 40; rounds++) {
        for (int read = 0; read < 2; read++) {
            struct world w;
            struct um_core_region region = region_make(UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE, 0);
            uint32_t value = 5, got = 0;
            world_open(&w, 2);
            um_core_regions_add(w.node[1].regions, &region);
            struct iovec iov = {.iov_base = local, .iov_len = MEMORY};
            struct um_proto_rma op = {.iov = &iov,
                                      .count = 1,
                                      .peer = peer_of(&w, 0, 1),
                                      .key = KEY,
                                      .context = CTX(1),
                                      .flags = read ? UM_OP_READ : UM_OP_WRITE};
            rma(&w, 0, &op);
            for (int i = 0; i < rounds; i++)
                world_progress(&w);
            um_core_regions_remove(w.node[1].regions, &region);
            memset(memory, 0x11, sizeof(memory)); /* the target's memory is its own again */
            struct um_core_completion c = done_of(&w, 0, CTX(1));
            assert_true(c.error == 0 || c.error == EKEYREJECTED);
            assert_true(is_all(memory, MEMORY, 0x11));
            /* messages, and operations under the same token, still work in both directions */
            um_core_regions_add(w.node[1].regions, &region);
            fill(local, 30000, 2);
            assert_int_equal(rma_do(&w, KEY, 9, 30000, UM_OP_WRITE).error, 0);
            assert_true(is_filled(memory + 9, 30000, 2));
            memset(local, 0, 30000);
            assert_int_equal(rma_do(&w, KEY, 9, 30000, UM_OP_READ).error, 0);
            assert_true(is_filled(local, 30000, 2));
            for (int i = 0; i < 2; i++) {
                recv_buf(&w, i, NULL, &got, 4, 1, 0, UM_OP_TAGGED, CTX(2));
                inject_buf(&w, 1 - i, i, &value, 4, 1, UM_OP_TAGGED);
                assert_int_equal(done_of(&w, i, CTX(2)).error, 0);
            }
            um_core_regions_remove(w.node[1].regions, &region);
            world_close(&w);
        }
    }
}

static void what_has_failed_is_not_counted_as_moved(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    assert_int_equal(rma_do(&w, KEY, 0, 100000, UM_OP_WRITE).error, EKEYREJECTED);
    assert_int_equal(rma_do(&w, KEY, 0, 100000, UM_OP_READ).error, EKEYREJECTED);
    const struct um_core_stats *stats = um_core_ep_stats(w.node[1].ep);
    assert_int_equal(stats->copied + stats->bounced + stats->mapped, 0);
    world_close(&w);
}

/* A peer that keeps so many long reads under way that their target never comes to the end of all. */
struct reader {
    struct node *node;
    struct um_core_peer *target;
    uint32_t begun, ended; /* reads; um_load_acquire_u32() */
    uint32_t stop;
};
enum { READS_AT_ONCE = 32, READS_MOST = 1000 };

static void *reader_run(void *arg)
{
    struct reader *r = arg;
    const struct iovec iov = {.iov_base = local, .iov_len = MEMORY};
    const struct um_proto_rma op = {
        .iov = &iov, .count = 1, .peer = r->target, .key = KEY, .context = CTX(1), .flags = UM_OP_READ};
    while (r->begun < READS_MOST && !um_load_acquire_u32(&r->stop)) {
        if (r->begun - r->node->count < READS_AT_ONCE)
            r->begun += start_rma(r->node, &op) == 0;
        um_core_ep_progress(r->node->ep);
        um_store_release_u32(&r->ended, (uint32_t)r->node->count);
    }
    return NULL;
}

/* Without the peer's reads the endpoint has nothing to do, so its end must not wait for theirs. */
static void a_peer_that_goes_on_reading_does_not_keep_an_endpoint_open(void **state)
{
    struct world w;
    struct um_core_region region = region_make(UM_ACCESS_REMOTE_READ, 0);
    pthread_t thread;
    (void)state;
    if (variant.machine != &um_machine_shm || variant.private_copy || variant.second)
        return; /* over the others peers read at once, or take part in each other's end */
    world_open(&w, 2);
    um_core_regions_add(w.node[0].regions, &region);
    struct reader r = {.node = &w.node[1], .target = peer_of(&w, 1, 0)};
    assert_int_equal(pthread_create(&thread, NULL, reader_run, &r), 0);
    while (um_load_acquire_u32(&r.ended) == 0)
        um_core_ep_progress(w.node[0].ep);
    um_proto_ep_close(w.node[0].ep);
    w.node[0].ep = NULL;
    um_store_release_u32(&r.stop, 1);
    pthread_join(thread, NULL);
    assert_true(r.begun < READS_MOST);
    um_core_regions_remove(w.node[0].regions, &region);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(writes_and_reads_of_every_size_move_the_bytes),
    cmocka_unit_test(what_the_registration_does_not_allow_is_an_error_and_moves_nothing),
    cmocka_unit_test(a_write_with_data_completes_at_the_target_too),
    cmocka_unit_test(buffer_lists_are_gathered_and_scattered),
    cmocka_unit_test(many_operations_at_once_all_complete),
    cmocka_unit_test(a_region_closed_under_way_ends_the_operation_alone),
    cmocka_unit_test(what_has_failed_is_not_counted_as_moved),
    cmocka_unit_test(a_peer_that_goes_on_reading_does_not_keep_an_endpoint_open),
};
WORLD_MAIN("rma", tests)
