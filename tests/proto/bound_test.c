/* The bound on unexpected messages: which senders it holds, and that it never causes a deadlock. */
#include "world.h"

#include "base/clock.h"
#include "core/endpoint.h"
#include "machine/net/wire.h"
#include "proto/receive.h"

#define CTX(n) ((void *)(uintptr_t)(n))

enum { BOUND = 256 * KIB, LANE = 168 * KIB };

static size_t kept(const struct world *w, int node)
{
    return um_proto_ep_of(w->node[node].ep)->receive->kept;
}

/* Returns how many bytes may still come after senders were asked to stop: all that their lanes hold. */
static size_t on_its_way(void)
{
    const struct um_machine *net = variant.second == &um_machine_net ? variant.second : variant.machine;
    return 4 * LANE + (net == &um_machine_net ? (size_t)UM_NET_KEPT_MAX + net->body_max : 0);
}

/* Opens a lane from each node to each other node, so that a flood does not wait for connections. */
static void connect_all(struct world *w)
{
    uint32_t in, out = 1;
    for (int i = 0; i < w->nodes * w->nodes; i++) {
        const int from = i / w->nodes, to = i % w->nodes;
        if (from == to)
            continue;
        recv_buf(w, to, NULL, &in, sizeof(in), 99, 0, UM_OP_TAGGED, CTX(99));
        inject_buf(w, from, to, &out, sizeof(out), 99, UM_OP_TAGGED);
        assert_int_equal(done_of(w, to, CTX(99)).error, 0);
    }
    world_settle(w);
}

/* Opens the world with the bound BOUND. */
static void open_bounded(struct world *w, int nodes)
{
    variant.unexpected_max = BOUND;
    world_open(w, nodes);
    variant.unexpected_max = 0;
    if (variant.machine == &um_machine_net || variant.second == &um_machine_net)
        connect_all(w);
}

/* Sends messages with that tag, at most `most`, until sends have been refused for long. The receiver makes progress.
 * Returns how many were sent. */
static uint32_t flood(struct world *w, int from, int to, size_t len, uint64_t tag, uint32_t most)
{
    static unsigned char body[16384];
    uint32_t sent = 0;
    uint64_t taken = um_clock_ns();
    for (int refused = 0; (refused < 2000 || !is_quiet_long(taken)) && sent < most;) {
        int ret = um_proto_inject(w->node[from].ep, peer_of(w, from, to), body, len, tag, 0, UM_OP_TAGGED);
        assert_true(ret == 0 || ret == 1 || ret == -EAGAIN);
        refused = ret == -EAGAIN ? refused + 1 : 0;
        sent += ret >= 0;
        taken = ret >= 0 ? um_clock_ns() : taken;
        world_progress(w);
    }
    return sent;
}

static void drain(struct world *w, int node, uint32_t count, uint64_t tag)
{
    static unsigned char to[16384];
    for (uint32_t i = 0; i < count; i++) {
        recv_buf(w, node, NULL, to, sizeof(to), tag, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(w, node, CTX(1)).error, 0);
    }
}

/* The receiver has nothing posted or pending, so it may hold the sender, whose sends are then refused. */
static void a_receiver_that_posts_nothing_keeps_a_bounded_amount(void **state)
{
    (void)state;
    const size_t lens[] = {8, 200, 5000, 16384};
    for (size_t l = 0; l < 4; l++) {
        struct world w;
        open_bounded(&w, 2);
        uint32_t sent = flood(&w, 0, 1, lens[l], 1, 100000);
        assert_true(sent < 100000);
        if (kept(&w, 1) <= BOUND || kept(&w, 1) > BOUND + on_its_way())
            fail_msg("%u messages of %zu bytes: %zu bytes are kept", sent, lens[l], kept(&w, 1));
        drain(&w, 1, sent, 1);
        assert_int_equal(kept(&w, 1), 0);
        sent = flood(&w, 0, 1, lens[l], 2, 1000); /* and the sender goes on */
        drain(&w, 1, sent, 2);
        world_close(&w);
    }
}

static void a_posted_receive_is_reached_past_the_bound(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 0, mark = 77;
    open_bounded(&w, 2);
    uint32_t sent = flood(&w, 0, 1, 8, 1, 100000);
    assert_true(sent < 100000);
    recv_buf(&w, 1, NULL, &value, 4, 2, 0, UM_OP_TAGGED, CTX(5));
    sent += flood(&w, 0, 1, 8, 1, many(20000));
    assert_true(sent >= many(20000));
    inject_buf(&w, 0, 1, &mark, 4, 2, UM_OP_TAGGED);
    assert_int_equal(done_of(&w, 1, CTX(5)).error, 0);
    assert_int_equal(value, 77);
    assert_true(flood(&w, 0, 1, 8, 3, 100000) < 100000); /* no receive is posted any more */
    world_close(&w);
}

static void a_peek_is_answered_past_the_bound(void **state)
{
    (void)state;
    struct world w;
    uint32_t mark = 77;
    struct um_core_completion found;
    const struct um_proto_msg peek = {.tag = 2, .flags = UM_OP_TAGGED, .context = CTX(1)};
    open_bounded(&w, 2);
    uint32_t sent = 0;
    while (sent < many(50000)) { /* far more than one peek lets through */
        sent += flood(&w, 0, 1, 8, 1, 1000);
        assert_int_equal(um_proto_peek(w.node[1].ep, &peek, &found), -ENOMSG);
    }
    inject_buf(&w, 0, 1, &mark, 4, 2, UM_OP_TAGGED);
    world_settle(&w);
    assert_int_equal(um_proto_peek(w.node[1].ep, &peek, &found), 0);
    assert_true(flood(&w, 0, 1, 8, 1, 100000) < 100000);
    world_close(&w);
}

/* Both send far beyond the bound before either receives: each waits for the other, so neither may stay held. A side
 * that has sent everything waits for the last message of the other side. */
static void two_that_flood_each_other_go_on(void **state)
{
    (void)state;
    const uint32_t n = many(20000);
    struct world w;
    uint32_t sent[2] = {0, 0};
    static unsigned char body[64], last[2][4];
    open_bounded(&w, 2);
    for (uint64_t turn = 0; sent[0] < n || sent[1] < n; turn++) {
        assert_true(turn < 100 * (uint64_t)n);
        for (int i = 0; i < 2; i++) {
            if (sent[i] == n)
                continue;
            int ret = um_proto_inject(w.node[i].ep, peer_of(&w, i, 1 - i), body, 64, 1, 0, UM_OP_TAGGED);
            assert_true(ret == 0 || ret == -EAGAIN);
            sent[i] += ret == 0;
            if (sent[i] == n)
                recv_buf(&w, i, NULL, last[i], 4, 2, 0, UM_OP_TAGGED, CTX(7));
        }
        world_progress(&w);
    }
    for (int i = 0; i < 2; i++)
        inject_buf(&w, i, 1 - i, body, 4, 2, UM_OP_TAGGED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(done_of(&w, i, CTX(7)).error, 0);
        drain(&w, i, n, 1);
    }
    world_close(&w);
}

/* A sender that is held can still write, and its announced bodies still move. */
static void a_hold_stops_neither_rma_nor_bodies(void **state)
{
    (void)state;
    enum { LEN = 300000 };
    struct world w;
    static unsigned char memory[4096], from[LEN], to[LEN];
    struct um_core_region region = {.key = 5,
                                    .base = (uintptr_t)memory,
                                    .len = sizeof(memory),
                                    .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    open_bounded(&w, 2);
    assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
    fill(from, LEN, 3);
    send_buf(&w, 0, 1, from, LEN, 9, UM_OP_TAGGED, CTX(9));
    assert_true(flood(&w, 0, 1, 8, 1, 100000) < 100000);
    for (int i = 0; i < 100; i++) {
        struct iovec iov = {.iov_base = from, .iov_len = 1000};
        const struct um_proto_rma put = {.iov = &iov,
                                         .count = 1,
                                         .peer = peer_of(&w, 0, 1),
                                         .key = 5,
                                         .context = CTX(10),
                                         .flags = UM_OP_WRITE | UM_OP_DELIVERY};
        rma(&w, 0, &put);
        assert_int_equal(done_of(&w, 0, CTX(10)).error, 0);
    }
    assert_memory_equal(memory, from, 1000);
    recv_buf(&w, 1, NULL, to, LEN, 9, 0, UM_OP_TAGGED, CTX(11));
    assert_int_equal(done_of(&w, 1, CTX(11)).error, 0);
    assert_true(is_filled(to, LEN, 3));
    assert_int_equal(done_of(&w, 0, CTX(9)).error, 0);
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

/* All records that lie in a lane when its sender is first held were sent rightfully: the receiver takes them all. */
static void a_hold_finds_a_full_lane(void **state)
{
    (void)state;
    const size_t lens[] = {8, 200};
    const struct um_proto_msg peek = {.tag = 9, .flags = UM_OP_TAGGED, .context = CTX(1)};
    static unsigned char body[200];
    for (size_t l = 0; l < 2; l++) {
        struct world w;
        struct um_core_completion found;
        variant.unexpected_max = 1;
        world_open(&w, 2);
        variant.unexpected_max = 0;
        for (int round = 0; round < 20; round++) {
            uint32_t sent = 0;
            assert_int_equal(um_proto_peek(w.node[1].ep, &peek, &found), -ENOMSG); /* the sender goes on */
            for (int refused = 0; refused < 300;) { /* the receiver makes no progress meanwhile */
                int ret = um_proto_inject(w.node[0].ep, peer_of(&w, 0, 1), body, lens[l], 1, 0, UM_OP_TAGGED);
                refused = ret == -EAGAIN ? refused + 1 : 0;
                sent += ret >= 0;
                um_core_ep_progress(w.node[0].ep);
            }
            um_proto_ep_of(w.node[1].ep)->receive->peek_looks = 0;
            world_settle(&w);
            drain(&w, 1, sent, 1);
        }
        world_close(&w);
    }
}

/* A receive is posted, so the bound stops no sender: but all bodies except some stay with their sender. */
static void large_bodies_wait_at_their_sender(void **state)
{
    (void)state;
    enum { LEN = 100000, COUNT = 60 };
    static unsigned char from[COUNT][LEN], to[LEN];
    struct world w;
    uint32_t value;
    open_bounded(&w, 2);
    recv_buf(&w, 1, NULL, &value, sizeof(value), COUNT, 0, UM_OP_TAGGED, CTX(3));
    for (uint32_t i = 0; i < COUNT; i++) {
        fill(from[i], LEN, i);
        send_buf(&w, 0, 1, from[i], LEN, i, UM_OP_TAGGED, CTX(100 + i));
    }
    world_settle(&w);
    if (kept(&w, 1) > BOUND + on_its_way())
        fail_msg("%d messages of %d bytes: %zu bytes are kept", COUNT, LEN, kept(&w, 1));
    for (uint32_t i = COUNT; i-- > 0;) {
        recv_buf(&w, 1, NULL, to, LEN, i, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_true(is_filled(to, LEN, i));
        assert_int_equal(done_of(&w, 0, CTX(100 + i)).error, 0);
    }
    assert_int_equal(kept(&w, 1), 0);
    world_close(&w);
}

static void a_held_sender_that_leaves_or_dies_leaves_nothing(void **state)
{
    (void)state;
    struct world w;
    open_bounded(&w, 3);
    for (int i = 0; i < 20; i++) {
        uint32_t sent = flood(&w, 0, 1, 8, 1, 100000);
        node_close(&w.node[0]);
        world_settle(&w);
        assert_true(um_list_is_empty(&w.node[1].ep->held));
        drain(&w, 1, sent, 1);
        node_open(&w.node[0], 64);
        assert_int_equal(kept(&w, 1), 0);
    }
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_receiver_that_posts_nothing_keeps_a_bounded_amount),
    cmocka_unit_test(a_posted_receive_is_reached_past_the_bound),
    cmocka_unit_test(a_peek_is_answered_past_the_bound),
    cmocka_unit_test(two_that_flood_each_other_go_on),
    cmocka_unit_test(a_hold_stops_neither_rma_nor_bodies),
    cmocka_unit_test(a_hold_finds_a_full_lane),
    cmocka_unit_test(large_bodies_wait_at_their_sender),
    cmocka_unit_test(a_held_sender_that_leaves_or_dies_leaves_nothing),
};
WORLD_MAIN("bound", tests)
