/* Multi-receive: one buffer for many messages, and when it is the caller's again. */
#include "world.h"

#define CTX(n) ((void *)(uintptr_t)(n))

static const uint32_t MULTI = UM_OP_MULTI;

static void messages_lie_one_behind_the_other_until_the_buffer_is_full(void **state)
{
    (void)state;
    struct world w;
    unsigned char from[64];
    _Alignas(8) unsigned char buf[64 * 4];
    world_open_multi(&w, 2, 8);
    recv_buf(&w, 1, NULL, buf, sizeof(buf), 0, 0, MULTI, CTX(1));
    for (uint32_t i = 0; i < 4; i++) {
        fill(from, 64, i);
        inject_buf(&w, 0, 1, from, 64, 0, 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        const struct um_core_completion *c = next_of(&w, 1);
        assert_ptr_equal(c->context, CTX(1));
        assert_ptr_equal(c->buf, buf + 64 * i);
        assert_int_equal(c->len, 64);
        assert_int_equal(!!(c->flags & UM_OP_MULTI_END), i == 3); /* filled exactly */
        assert_true(is_filled(c->buf, 64, i));
    }
    inject_buf(&w, 0, 1, from, 64, 0, 0);
    world_settle(&w);
    assert_int_equal(untaken(&w, 1), 0); /* the buffer takes no more */
    world_close(&w);
}

static void the_buffer_ends_below_its_least_free_space(void **state)
{
    (void)state;
    struct world w;
    unsigned char from[100] = {0};
    _Alignas(8) unsigned char buf[1000];
    world_open_multi(&w, 2, 700);
    recv_buf(&w, 1, NULL, buf, sizeof(buf), 0, 0, MULTI, CTX(1));
    for (int i = 0; i < 3; i++)
        inject_buf(&w, 0, 1, from, 96, 0, 0);
    assert_false(next_of(&w, 1)->flags & UM_OP_MULTI_END);
    assert_false(next_of(&w, 1)->flags & UM_OP_MULTI_END);
    assert_false(next_of(&w, 1)->flags & UM_OP_MULTI_END); /* 712 left */
    inject_buf(&w, 0, 1, from, 96, 0, 0);
    assert_true(next_of(&w, 1)->flags & UM_OP_MULTI_END);
    world_close(&w);
}

static void a_message_larger_than_the_rest_goes_to_the_next_buffer(void **state)
{
    (void)state;
    const size_t lens[] = {600, 12000, 40000};
    for (size_t i = 0; i < 3; i++) {
        struct world w;
        size_t len = lens[i], size = len + len / 2;
        unsigned char *from = malloc(len), *a = aligned_alloc(64, (size + 63) & ~(size_t)63),
                      *b = aligned_alloc(64, (size + 63) & ~(size_t)63);
        world_open_multi(&w, 2, 8);
        recv_buf(&w, 1, NULL, a, size, 0, 0, MULTI, CTX(1));
        recv_buf(&w, 1, NULL, b, size, 0, 0, MULTI, CTX(2));
        fill(from, len, 1);
        for (int k = 0; k < 2; k++)
            send_buf(&w, 0, 1, from, len, 0, UM_OP_DELIVERY, NULL);
        bool ended = false;
        int messages = 0;
        const void *taken = NULL;
        while (messages < 2 || !ended) {
            const struct um_core_completion *c = next_of(&w, 1);
            assert_int_equal(c->error, 0);
            if (c->flags & UM_OP_MULTI_END) {
                assert_ptr_equal(c->context, CTX(1));
                ended = true;
            }
            if (c->len == 0)
                continue;
            assert_int_equal(c->len, len);
            assert_true(c->buf == a || c->buf == b); /* bodies that were asked for may end in another order */
            assert_true(messages == 0 || c->buf != taken);
            taken = c->buf;
            assert_true(is_filled(c->buf, len, 1));
            messages++;
        }
        world_close(&w);
        free(from);
        free(a);
        free(b);
    }
}

static void a_message_larger_than_an_untouched_buffer_is_truncated(void **state)
{
    (void)state;
    struct world w;
    static unsigned char from[50000];
    _Alignas(8) unsigned char buf[256];
    const size_t lens[] = {300, 50000};
    world_open_multi(&w, 2, 8);
    for (size_t i = 0; i < 2; i++) {
        fill(from, lens[i], 4);
        recv_buf(&w, 1, NULL, buf, sizeof(buf), 0, 0, MULTI, CTX(1));
        send_buf(&w, 0, 1, from, lens[i], 0, 0, NULL);
        const struct um_core_completion *c = next_of(&w, 1);
        assert_int_equal(c->error, EMSGSIZE);
        assert_int_equal(c->len, 256);
        assert_int_equal(c->olen, lens[i] - 256);
        assert_true(c->flags & UM_OP_MULTI_END);
        assert_true(is_filled(buf, 256, 4));
    }
    world_close(&w);
}

/* The end comes with the last body, in whatever order the bodies end. */
static void bodies_under_way_keep_the_buffer_until_the_last_has_come(void **state)
{
    (void)state;
    enum { N = 5, LEN = 3 * MIB / 2 };
    struct world w;
    unsigned char *from[N], *buf = aligned_alloc(64, (size_t)N * LEN);
    for (int cancel = 0; cancel < 2; cancel++) {
        world_open_multi(&w, 2, 8);
        recv_buf(&w, 1, NULL, buf, (size_t)N * LEN, 0, 0, MULTI, CTX(1));
        for (uint32_t i = 0; i < N; i++) {
            from[i] = malloc(LEN);
            fill(from[i], LEN - i * 8, i);
            send_buf(&w, 0, 1, from[i], LEN - i * 8, 0, 0, CTX(10 + i));
        }
        if (cancel) {
            const struct um_core_stats *s = um_core_ep_stats(w.node[1].ep);
            while (s->copied + s->bounced + s->mapped == 0)
                world_progress(&w);
            assert_int_equal(um_proto_cancel(w.node[1].ep, CTX(1)), 0);
            assert_int_equal(um_proto_cancel(w.node[1].ep, CTX(1)), -ENOENT);
        }
        int ends = 0, bodies = 0;
        for (bool over = false; !over;) {
            const struct um_core_completion *c = next_of(&w, 1);
            if (c->error == 0 && c->len) {
                uint32_t i = (uint32_t)((LEN - c->len) / 8);
                assert_true(is_filled(c->buf, c->len, i));
                bodies++;
            }
            ends += !!(c->flags & UM_OP_MULTI_END);
            over = ends > 0 || (!cancel && bodies == N);
        }
        if (cancel)
            assert_int_equal(ends, 1);
        else
            assert_int_equal(bodies, N);
        world_settle(&w);
        assert_int_equal(untaken(&w, 1), 0); /* nothing after the end */
        for (int i = bodies; i < N; i++) {   /* what the cancelled buffer did not take is still there */
            recv_buf(&w, 1, NULL, buf, LEN, 0, 0, 0, CTX(50));
            assert_int_equal(done_of(&w, 1, CTX(50)).error, 0);
        }
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(done_of(&w, 0, CTX(10 + i)).error, 0);
            free(from[i]);
        }
        world_close(&w);
    }
    free(buf);
}

static void a_fresh_buffer_takes_what_is_waiting(void **state)
{
    (void)state;
    struct world w;
    static unsigned char from[8][30000];
    _Alignas(8) static unsigned char buf[200000];
    world_open_multi(&w, 2, 8);
    for (uint32_t i = 0; i < 8; i++) {
        size_t len = i % 2 ? 30000 : 200;
        fill(from[i], len, i);
        send_buf(&w, 0, 1, from[i], len, 0, 0, NULL);
    }
    world_settle(&w);
    recv_buf(&w, 1, NULL, buf, sizeof(buf), 0, 0, MULTI, CTX(1));
    uint32_t seen = 0;
    while (seen != 0xff) {
        const struct um_core_completion *c = next_of(&w, 1);
        assert_int_equal(c->error, 0);
        uint32_t i = 0;
        while (i < 8 &&
               ((seen & 1u << i) || !(c->len == (i % 2 ? 30000u : 200u)) || ((unsigned char *)c->buf)[1] != from[i][1]))
            i++;
        assert_true(i < 8);
        assert_true(is_filled(c->buf, c->len, i));
        seen |= 1u << i;
    }
    world_close(&w);
}

/* A long run through buffers posted again and again: every message exactly once, in order. */
static void a_stream_through_two_buffers_loses_nothing(void **state)
{
    (void)state;
    enum { N = 3000, SIZE = 40000 };
    struct world w;
    uint64_t r = 99;
    unsigned char from[600], *buf[2] = {aligned_alloc(64, SIZE), aligned_alloc(64, SIZE)};
    world_open_multi(&w, 2, 512);
    recv_buf(&w, 1, NULL, buf[0], SIZE, 0, 0, MULTI, CTX(0));
    recv_buf(&w, 1, NULL, buf[1], SIZE, 0, 0, MULTI, CTX(1));
    uint32_t sent = 0, got = 0;
    while (got < N) {
        for (int k = 0; k < 8 && sent < N; k++, sent++) {
            fill(from, sent % 600, sent);
            inject_buf(&w, 0, 1, from, sent % 600, 0, rnd(&r, 2) ? UM_OP_DATA : 0);
        }
        world_progress(&w);
        while (untaken(&w, 1)) {
            struct um_core_completion c = *next_of(&w, 1);
            assert_int_equal(c.error, 0);
            if (c.buf) {
                assert_int_equal(c.len, got % 600);
                assert_true(is_filled(c.buf, c.len, got));
                got++;
            }
            if (c.flags & UM_OP_MULTI_END)
                recv_buf(&w, 1, NULL, buf[(uintptr_t)c.context], SIZE, 0, 0, MULTI, c.context);
        }
    }
    world_close(&w);
    free(buf[0]);
    free(buf[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(messages_lie_one_behind_the_other_until_the_buffer_is_full),
    cmocka_unit_test(the_buffer_ends_below_its_least_free_space),
    cmocka_unit_test(a_message_larger_than_the_rest_goes_to_the_next_buffer),
    cmocka_unit_test(a_message_larger_than_an_untouched_buffer_is_truncated),
    cmocka_unit_test(bodies_under_way_keep_the_buffer_until_the_last_has_come),
    cmocka_unit_test(a_fresh_buffer_takes_what_is_waiting),
    cmocka_unit_test(a_stream_through_two_buffers_loses_nothing),
};
WORLD_MAIN("multi-receive", tests)
