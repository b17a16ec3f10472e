/* Bodies that their receiver can map: copied by it alone or by both sides, and by nobody once they have ended. */
#include "world.h"

#define CTX(n) ((void *)(uintptr_t)(n))

enum { LEN = 1500001 };

static unsigned char from[LEN], to[LEN];

/* Only that node makes calls, until it has so many completions. */
static void alone_until(struct world *w, int node, size_t completions)
{
    for (int i = 0; w->node[node].count < completions; i++) {
        assert_true(i < 1000000);
        um_core_ep_progress(w->node[node].ep);
    }
}

/* The lanes are open in both directions. */
static void open_lanes(struct world *w)
{
    const uint64_t value = 7;
    world_open(w, 2);
    inject_buf(w, 0, 1, &value, 8, 999, UM_OP_TAGGED);
    inject_buf(w, 1, 0, &value, 8, 999, UM_OP_TAGGED);
    world_settle(w);
}

static void a_sender_that_makes_no_call_is_not_waited_for(void **state)
{
    (void)state;
    enum { N = 9 }; /* more than there are words */
    struct world w;
    open_lanes(&w);
    for (int i = 0; i < N; i++) {
        fill(from, LEN, (uint32_t)i);
        send_buf(&w, 0, 1, from, LEN, (uint64_t)i, UM_OP_TAGGED, CTX(10 + i));
        size_t before = w.node[1].count;
        recv_buf(&w, 1, NULL, to, LEN, (uint64_t)i, 0, UM_OP_TAGGED, CTX(i + 1));
        alone_until(&w, 1, before + 1);
        assert_int_equal(done_of(&w, 1, CTX(i + 1)).error, 0);
        assert_true(is_filled(to, LEN, (uint32_t)i));
        memset(to, 0x5b, LEN);
        if (i % 2)
            continue; /* it finds two invitations at a time */
        world_settle(&w);
        assert_true(is_all(to, LEN, 0x5b)); /* the invitation was late */
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(done_of(&w, 0, CTX(10 + i)).error, 0);
    assert_int_equal(um_core_ep_stats(w.node[1].ep)->joint, 0);
    assert_int_equal(um_core_ep_stats(w.node[1].ep)->mapped, N);
    world_close(&w);
}

/* However the calls of the two fall: every byte comes once, and none later. */
static void both_sides_copy(void **state)
{
    (void)state;
    struct world w;
    uint64_t seed = 5;
    uint64_t joint = 0;
    open_lanes(&w);
    for (uint32_t round = 0; round < 300; round++) {
        const size_t len = 100000 + rnd(&seed, LEN - 100000);
        const uint32_t often = rnd(&seed, 3);
        struct iovec piece[2][5];
        cut(from, len, piece[0], 5, &seed);
        cut(to, len, piece[1], 5, &seed);
        fill(from, len, round);
        memset(to, 0, LEN);
        const struct um_proto_msg send = {.iov = piece[0],
                                          .count = 5,
                                          .peer = peer_of(&w, 0, 1),
                                          .context = CTX(1),
                                          .flags = UM_OP_TAGGED | UM_OP_DELIVERY};
        send_msg(&w, 0, &send);
        const struct um_proto_msg receive = {.iov = piece[1], .count = 5, .context = CTX(2), .flags = UM_OP_TAGGED};
        assert_int_equal(um_proto_recv(w.node[1].ep, &receive), 0);
        while (untaken(&w, 1) == 0)
            um_core_ep_progress(w.node[rnd(&seed, often + 2) ? 1 : 0].ep);
        assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
        assert_true(is_filled(to, len, round));
        memset(to, 0x5b, LEN);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        world_settle(&w);
        assert_true(is_all(to, LEN, 0x5b));
    }
    joint = um_core_ep_stats(w.node[1].ep)->joint;
    assert_true(joint > 50);
    world_close(&w);
}

/* A receive that is too short takes what fits, and a body of several senders at a time its own words. */
static void many_bodies_at_a_time(void **state)
{
    (void)state;
    enum { N = 12, EACH = 200000 };
    struct world w;
    unsigned char *many_to = malloc((size_t)N * EACH);
    open_lanes(&w);
    fill(from, LEN, 3);
    for (int i = 0; i < N; i++)
        recv_buf(&w, 1, NULL, many_to + (size_t)i * EACH, i == 5 ? EACH / 2 : EACH, (uint64_t)i, 0, UM_OP_TAGGED, CTX(i + 1));
    for (int i = 0; i < N; i++)
        send_buf(&w, 0, 1, from + i, EACH, (uint64_t)i, UM_OP_TAGGED, CTX(100 + i));
    for (int i = 0; i < N; i++) {
        assert_int_equal(done_of(&w, 1, CTX(i + 1)).error, i == 5 ? EMSGSIZE : 0);
        assert_memory_equal(many_to + (size_t)i * EACH, from + i, i == 5 ? EACH / 2 : EACH);
        assert_int_equal(done_of(&w, 0, CTX(100 + i)).error, 0);
    }
    world_close(&w);
    free(many_to);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_sender_that_makes_no_call_is_not_waited_for),
    cmocka_unit_test(both_sides_copy),
    cmocka_unit_test(many_bodies_at_a_time),
};
WORLD_MAIN("both", tests)
