/* Messages that are longer than a record: which ones go unasked, in segments, and which ones are announced. */
#include "segments.h"

#include "core/endpoint.h"
#include "proto/receive.h"

#define CTX(n) ((void *)(uintptr_t)(n))

static void lone_messages_go_unasked_once_one_was_pushed(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    assert_true(exchange(&w, 20000, true, 1));
    const size_t lens[] = {16385, 20000, 32768, 65535, 65536, MIDDLE - 1, MIDDLE, MIDDLE + 1, MOST - 1, MOST};
    get_permission(&w);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        for (int is_posted = 0; is_posted < 2; is_posted++) {
            int unasked = 0;
            for (uint32_t n = 1; n <= 20; n++)
                unasked += !exchange(&w, lens[i], is_posted, n);
            assert_true(unasked >= (variant.stall_percent ? 5 : 17));
        }
        assert_true(exchange(&w, MOST + 1, true, 5));
    }
    world_close(&w);
}

/* The reason for the permission can change, so some messages are announced in spite of it. */
static void some_are_announced_all_the_same(void **state)
{
    (void)state;
    struct world w;
    int count = 0;
    open_permitted(&w);
    for (uint32_t n = 0; n < 600; n++)
        count += exchange(&w, 20000, n % 2, n);
    assert_true(count >= 2);
    if (!variant.stall_percent)
        assert_true(count <= 3);
    world_close(&w);
}

/* Each class is measured apart, so none may be left out for ever. */
static void some_of_each_class_are_announced(void **state)
{
    (void)state;
    struct world w;
    const size_t len[] = {20000, 40000};
    int count[2] = {0};
    open_permitted(&w);
    for (uint32_t n = 0; n < 1100; n++)
        count[n % 2] += exchange(&w, len[n % 2], true, n);
    for (int i = 0; i < 2; i++) {
        assert_true(count[i] >= 2);
        if (!variant.stall_percent)
            assert_true(count[i] <= 3);
    }
    world_close(&w);
}

/* The receiver dropped the message, so it was not pushed. */
static void what_is_not_pushed_takes_the_permission_back(void **state)
{
    (void)state;
    struct world w;
    struct iovec iov;
    open_permitted(&w);
    struct um_proto_msg msg = whole(&w, &iov, MIDDLE, 1, UM_OP_MATCH);
    send_msg(&w, 0, &msg);
    world_settle(&w);
    struct um_core_completion found;
    const struct um_proto_msg drop = {.tag = 1, .flags = UM_OP_TAGGED | UM_OP_DISCARD};
    assert_int_equal(um_proto_peek(w.node[1].ep, &drop, &found), 0);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    assert_true(exchange(&w, MIDDLE, true, 2));
    get_permission(&w);
    world_close(&w);
}

/* A message whose size never goes in segments changes no permission, though it is announced (UM_OP_MATCH), pushed or
 * not. */
static void what_would_never_go_in_segments_permits_nothing(void **state)
{
    (void)state;
    const size_t len[] = {0, 8, 16384, MOST + 1};
    for (int is_permitted = 0; is_permitted < 2; is_permitted++) {
        struct world w;
        world_open(&w, 2);
        if (is_permitted)
            get_permission(&w);
        for (size_t i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
            const struct iovec iov = {.iov_base = from, .iov_len = len[i]};
            const struct um_proto_msg msg = {.iov = &iov,
                                             .count = 1,
                                             .peer = peer_of(&w, 0, 1),
                                             .tag = 1,
                                             .context = CTX(2),
                                             .flags = UM_OP_TAGGED | UM_OP_MATCH};
            recv_buf(&w, 1, NULL, to, len[i], 1, 0, UM_OP_TAGGED, CTX(1));
            send_msg(&w, 0, &msg);
            assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
            assert_int_equal(receiver_of(&w)->unasked, is_permitted ? ALL : 0);
        }
        world_close(&w);
    }
}

static void who_must_know_of_the_match_or_is_not_alone_announces(void **state)
{
    (void)state;
    struct world w;
    struct iovec iov;
    open_permitted(&w);
    uint64_t before = announced(&w);
    recv_buf(&w, 1, NULL, to, MOST, 1, 0, UM_OP_TAGGED, CTX(1));
    world_settle(&w);
    struct um_proto_msg msg = whole(&w, &iov, MOST, 1, UM_OP_MATCH);
    send_msg(&w, 0, &msg);
    assert_int_equal(announced(&w), before + 1);
    assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    for (int i = 0; i < 3; i++) {
        recv_buf(&w, 1, NULL, to, MOST, 2, 0, UM_OP_TAGGED, CTX(1 + i));
        world_settle(&w);
    }
    msg = whole(&w, &iov, MOST, 2, 0);
    before = announced(&w);
    for (int i = 0; i < 3; i++) { /* no call of progress in between, unless the lane is stalled */
        msg.context = CTX(10 + i);
        send_msg(&w, 0, &msg);
    }
    if (!variant.stall_percent)
        assert_true(announced(&w) >= before + 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(done_of(&w, 1, CTX(1 + i)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(10 + i)).error, 0);
    }
    world_close(&w);
}

/* They are not worth an announcement each. */
static void short_messages_of_a_stream_go_unasked(void **state)
{
    (void)state;
    struct world w;
    enum { N = 8, LEN = 40000 };
    static unsigned char got[N][LEN];
    open_permitted(&w);
    for (int i = 0; i < N; i++)
        recv_buf(&w, 1, NULL, got[i], LEN, 1, 0, UM_OP_TAGGED, CTX(1 + i));
    world_settle(&w);
    const uint64_t before = announced(&w);
    struct iovec iov;
    struct um_proto_msg msg = whole(&w, &iov, LEN, 1, 0);
    for (int i = 0; i < N; i++) { /* no call of progress in between, unless the lane is stalled */
        msg.context = CTX(100 + i);
        send_msg(&w, 0, &msg);
    }
    if (!variant.stall_percent)
        assert_true(announced(&w) <= before + 1);
    for (int i = 0; i < N; i++) {
        assert_int_equal(done_of(&w, 1, CTX(1 + i)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(100 + i)).error, 0);
        assert_true(is_filled(got[i], LEN, 1));
    }
    world_close(&w);
}

/* The receiver makes no call: what finds no room in the lane is announced, and later refused. */
static void what_finds_no_room_is_announced(void **state)
{
    (void)state;
    struct world w;
    enum { N = 40 };
    open_permitted(&w);
    const uint64_t before = announced(&w);
    int sent = 0;
    struct iovec iov;
    for (uint32_t i = 0; i < N; i++) {
        struct um_proto_msg msg = whole(&w, &iov, MOST, 100, 0);
        msg.context = CTX(100 + i);
        um_core_ep_progress(w.node[0].ep); /* each is alone */
        const int ret = um_proto_send(w.node[0].ep, &msg);
        assert_true(ret == 0 || ret == -EAGAIN);
        sent += ret == 0;
    }
    assert_true(announced(&w) > before);
    for (int i = 0; i < sent; i++) {
        memset(to, 0, MOST);
        recv_buf(&w, 1, NULL, to, MOST, 100, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_true(is_filled(to, MOST, 100));
    }
    world_close(&w);
}

/* Above a quarter of the bound on unexpected messages, messages are announced, and bodies stay with the sender. */
static void many_that_nobody_receives_are_announced(void **state)
{
    (void)state;
    static const size_t lens[] = {40000, MIDDLE}; /* shorter and longer than UM_ANNOUNCED_MIN */
    enum { BOUND = 2 * MIB, N = 100 };
    struct world w;
    variant.unexpected_max = BOUND;
    open_permitted(&w);
    variant.unexpected_max = 0;
    for (int round = 0; round < 4; round++) {
        const size_t len = lens[round % 2];
        const uint64_t before = announced(&w);
        for (uint32_t n = 0; n < N; n++) {
            world_settle(&w);
            fill(from, len, 3);
            send_buf(&w, 0, 1, from, len, 3, UM_OP_TAGGED, CTX(2));
        }
        world_settle(&w);
        assert_true(um_proto_ep_of(w.node[1].ep)->receive->kept < BOUND / 2);
        assert_true(announced(&w) - before > N - BOUND / len / 2);
        for (uint32_t n = 0; n < N; n++) {
            memset(to, 0, sizeof(to));
            recv_buf(&w, 1, NULL, to, len, 3, 0, UM_OP_TAGGED, CTX(1));
            assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
            assert_true(is_filled(to, len, 3));
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
        }
        int unasked = 0;
        for (uint32_t n = 1; n <= 20; n++)
            unasked += !exchange(&w, len, true, n);
        assert_true(unasked >= 5);
    }
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lone_messages_go_unasked_once_one_was_pushed),
    cmocka_unit_test(some_are_announced_all_the_same),
    cmocka_unit_test(some_of_each_class_are_announced),
    cmocka_unit_test(what_is_not_pushed_takes_the_permission_back),
    cmocka_unit_test(what_would_never_go_in_segments_permits_nothing),
    cmocka_unit_test(who_must_know_of_the_match_or_is_not_alone_announces),
    cmocka_unit_test(short_messages_of_a_stream_go_unasked),
    cmocka_unit_test(what_finds_no_room_is_announced),
    cmocka_unit_test(many_that_nobody_receives_are_announced),
};
WORLD_MAIN("unasked", tests)
