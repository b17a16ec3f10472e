/* Messages: order, matching, truncation, unexpected, peek, claim, discard, cancel, injects, first contact, self. */
#include "world.h"

#include "machine/address.h"

#define CTX(n) ((void *)(uintptr_t)(n))

static void every_size_arrives(struct world *w, uint32_t flags, bool posted_first)
{
    for (size_t s = 0; s < sizes_count; s++) {
        size_t len = sizes[s];
        unsigned char *from = malloc(len + 1), *to = calloc(1, len + 64);
        fill(from, len, (uint32_t)s);
        if (posted_first)
            recv_buf(w, 1, NULL, to, len + 64, s, 0, flags & UM_OP_TAGGED, CTX(1000 + s));
        send_buf(w, 0, 1, from, len, s, flags, CTX(2000 + s));
        if (!posted_first) {
            world_settle(w);
            recv_buf(w, 1, NULL, to, len + 64, s, 0, flags & UM_OP_TAGGED, CTX(1000 + s));
        }
        struct um_core_completion got = done_of(w, 1, CTX(1000 + s));
        assert_int_equal(got.error, 0);
        assert_int_equal(got.len, len);
        assert_ptr_equal(got.source, peer_of(w, 1, 0));
        if (flags & UM_OP_TAGGED)
            assert_int_equal(got.tag, s);
        assert_int_equal(!!(got.flags & UM_OP_DATA), !!(flags & UM_OP_DATA));
        if (flags & UM_OP_DATA)
            assert_int_equal(got.data, s ^ 0x5555);
        assert_true(is_filled(to, len, (uint32_t)s));
        assert_true(is_all(to + len, 64, 0)); /* nothing behind the message */
        struct um_core_completion sent = done_of(w, 0, CTX(2000 + s));
        assert_int_equal(sent.error, 0);
        assert_true(sent.flags & UM_OP_SEND);
        free(from);
        free(to);
    }
    assert_int_equal(untaken(w, 0) + untaken(w, 1), 0);
}

static void posted_receives_take_messages_of_every_size(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    every_size_arrives(&w, UM_OP_TAGGED, true);
    every_size_arrives(&w, UM_OP_TAGGED | UM_OP_DATA, true);
    every_size_arrives(&w, 0, true);
    every_size_arrives(&w, UM_OP_DATA | UM_OP_DELIVERY, true);
    world_close(&w);
}

static void unexpected_messages_of_every_size_are_kept(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    every_size_arrives(&w, UM_OP_TAGGED, false);
    every_size_arrives(&w, UM_OP_DATA, false);
    world_close(&w);
}

/* Receives of one tag complete in the order of the sends, whatever protocol carries each. */
static void messages_of_one_tag_match_in_the_order_of_their_sends(void **state)
{
    (void)state;
    enum { N = 60 };
    struct world w;
    static unsigned char from[N][20000], to[N][20000];
    for (int posted_first = 0; posted_first < 2; posted_first++) {
        world_open(&w, 2);
        for (int pass = 0; pass < 2; pass++) {
            if ((pass == 0) == (posted_first != 0)) {
                for (uintptr_t i = 0; i < N; i++)
                    recv_buf(&w, 1, NULL, to[i], sizeof(to[i]), 7, 0, UM_OP_TAGGED, CTX(i + 1));
            } else {
                for (int i = 0; i < N; i++) {
                    size_t len = i % 3 == 0 ? 20000 : i % 3 == 1 ? 12 : 3000;
                    fill(from[i], len, (uint32_t)i);
                    send_buf(&w, 0, 1, from[i], len, 7, UM_OP_TAGGED, NULL);
                }
                world_settle(&w);
            }
        }
        for (int i = 0; i < N; i++) {
            struct um_core_completion c = done_of(&w, 1, CTX(i + 1));
            assert_int_equal(c.len, i % 3 == 0 ? 20000 : i % 3 == 1 ? 12 : 3000);
            assert_true(is_filled(to[i], c.len, (uint32_t)i));
        }
        world_close(&w);
    }
}

static void tags_and_ignore_masks_choose_the_receive(void **state)
{
    (void)state;
    struct world w;
    uint32_t value, got[4] = {0};
    world_open(&w, 2);
    recv_buf(&w, 1, NULL, &got[0], 4, 0x10, 0, UM_OP_TAGGED, CTX(1));
    recv_buf(&w, 1, NULL, &got[1], 4, 0x20, 0x0f, UM_OP_TAGGED, CTX(2));
    recv_buf(&w, 1, NULL, &got[2], 4, 0, UINT64_MAX, UM_OP_TAGGED, CTX(3));
    recv_buf(&w, 1, NULL, &got[3], 4, 0, 0, 0, CTX(4)); /* untagged messages match untagged receives alone */
    uint64_t tags[] = {0x2f, 0x30, 0x10};
    for (uint32_t i = 0; i < 3; i++) {
        value = 100 + i;
        inject_buf(&w, 0, 1, &value, 4, tags[i], UM_OP_TAGGED);
    }
    value = 200;
    inject_buf(&w, 0, 1, &value, 4, 0, 0);
    for (uintptr_t c = 1; c <= 4; c++)
        assert_int_equal(done_of(&w, 1, CTX(c)).error, 0);
    assert_int_equal(got[1], 100);
    assert_int_equal(got[2], 101);
    assert_int_equal(got[0], 102);
    assert_int_equal(got[3], 200);
    world_close(&w);
}

static void a_directed_receive_takes_only_its_source(void **state)
{
    (void)state;
    struct world w;
    uint32_t value, got[4] = {0};
    world_open(&w, 3);
    for (int late = 0; late < 2; late++) {
        for (uint32_t i = 0; late && i < 2; i++) {
            value = i;
            inject_buf(&w, (int)i, 2, &value, 4, 5, UM_OP_TAGGED);
            world_settle(&w);
        }
        recv_buf(&w, 2, peer_of(&w, 2, 1), &got[1], 4, 5, 0, UM_OP_TAGGED, CTX(1));
        recv_buf(&w, 2, peer_of(&w, 2, 0), &got[0], 4, 5, 0, UM_OP_TAGGED, CTX(2));
        for (uint32_t i = 0; !late && i < 2; i++) {
            value = i;
            inject_buf(&w, (int)i, 2, &value, 4, 5, UM_OP_TAGGED);
            world_settle(&w);
        }
        assert_ptr_equal(done_of(&w, 2, CTX(1)).source, peer_of(&w, 2, 1));
        assert_ptr_equal(done_of(&w, 2, CTX(2)).source, peer_of(&w, 2, 0));
        assert_int_equal(got[0], 0);
        assert_int_equal(got[1], 1);
    }
    world_close(&w);
}

static void a_message_that_does_not_fit_is_truncated_and_says_by_how_much(void **state)
{
    (void)state;
    struct world w;
    static unsigned char from[2 * MIB], to[MIB + 64];
    const size_t lens[] = {1, 40, 41, 900, 5000, 16384, 16385, 100000, 2 * MIB};
    world_open(&w, 2);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        for (int late = 0; late < 2; late++) {
            size_t room = late ? lens[i] / 2 : 0;
            memset(to, 0, sizeof(to));
            fill(from, lens[i], 3);
            if (!late)
                recv_buf(&w, 1, NULL, to, room, 1, 0, UM_OP_TAGGED, CTX(1));
            send_buf(&w, 0, 1, from, lens[i], 1, UM_OP_TAGGED, CTX(2));
            world_settle(&w);
            if (late)
                recv_buf(&w, 1, NULL, to, room, 1, 0, UM_OP_TAGGED, CTX(1));
            struct um_core_completion c = done_of(&w, 1, CTX(1));
            assert_int_equal(c.error, EMSGSIZE);
            assert_int_equal(c.len, room);
            assert_int_equal(c.olen, lens[i] - room);
            assert_true(is_filled(to, room, 3));
            assert_true(is_all(to + room, 64, 0));
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0); /* the sender is not to blame */
        }
    }
    world_close(&w);
}

static void peek_tells_of_a_message_and_claim_and_discard_end_it(void **state)
{
    (void)state;
    struct world w;
    static unsigned char from[100000], to[100000];
    struct um_core_completion found;
    world_open(&w, 2);
    for (int large = 0; large < 2; large++) {
        size_t len = large ? sizeof(from) : 333;
        struct um_proto_msg look = {.tag = 9, .context = CTX(77), .flags = UM_OP_TAGGED};
        struct um_core_ep *ep = w.node[1].ep;
        assert_int_equal(um_proto_peek(ep, &look, &found), -ENOMSG);
        for (uint32_t i = 0; i < 3; i++) {
            fill(from, len, 40);
            send_buf(&w, 0, 1, from, len, 9, UM_OP_TAGGED | UM_OP_DATA, CTX(i + 1));
        }
        world_settle(&w);
        look.tag = 8;
        assert_int_equal(um_proto_peek(ep, &look, &found), -ENOMSG);
        look.tag = 9;
        assert_int_equal(um_proto_peek(ep, &look, &found), 0); /* looks only */
        assert_int_equal(found.len, len);
        assert_int_equal(found.tag, 9);
        assert_int_equal(found.data, 9 ^ 0x5555);
        assert_ptr_equal(found.source, peer_of(&w, 1, 0));
        look.flags = UM_OP_TAGGED | UM_OP_CLAIM;
        assert_int_equal(um_proto_peek(ep, &look, &found), 0); /* reserves the first */
        look.flags = UM_OP_TAGGED | UM_OP_DISCARD;
        assert_int_equal(um_proto_peek(ep, &look, &found), 0); /* drops the second */
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
        recv_buf(&w, 1, NULL, to, sizeof(to), 9, 0, UM_OP_TAGGED, CTX(5)); /* takes the third */
        assert_int_equal(done_of(&w, 1, CTX(5)).len, len);
        memset(to, 0, sizeof(to));
        recv_buf(&w, 1, NULL, to, sizeof(to), 9, 0, UM_OP_TAGGED | UM_OP_CLAIM, CTX(77));
        assert_int_equal(done_of(&w, 1, CTX(77)).len, len);
        assert_true(is_filled(to, len, 40));
        struct um_proto_msg again = {.context = CTX(77), .flags = UM_OP_TAGGED | UM_OP_CLAIM};
        assert_int_equal(um_proto_recv(ep, &again), -ENOMSG);
        /* claimed, then dropped */
        send_buf(&w, 0, 1, from, len, 9, UM_OP_TAGGED, CTX(4));
        world_settle(&w);
        look.flags = UM_OP_TAGGED | UM_OP_CLAIM;
        assert_int_equal(um_proto_peek(ep, &look, &found), 0);
        again.flags |= UM_OP_DISCARD;
        assert_int_equal(um_proto_recv(ep, &again), 0);
        assert_int_equal(done_of(&w, 1, CTX(77)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(1)).error + done_of(&w, 0, CTX(3)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(4)).error, 0);
    }
    world_close(&w);
}

static void a_cancelled_receive_completes_once_and_takes_nothing(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 1, got[2] = {0};
    world_open(&w, 2);
    assert_int_equal(um_proto_cancel(w.node[1].ep, CTX(1)), -ENOENT);
    recv_buf(&w, 1, NULL, &got[0], 4, 3, 0, UM_OP_TAGGED, CTX(1));
    recv_buf(&w, 1, NULL, &got[1], 4, 3, 0, UM_OP_TAGGED, CTX(2));
    assert_int_equal(um_proto_cancel(w.node[1].ep, CTX(1)), 0);
    assert_int_equal(um_proto_cancel(w.node[1].ep, CTX(1)), -ENOENT);
    assert_int_equal(done_of(&w, 1, CTX(1)).error, ECANCELED);
    inject_buf(&w, 0, 1, &value, 4, 3, UM_OP_TAGGED);
    assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
    assert_int_equal(got[0], 0);
    assert_int_equal(got[1], 1);
    assert_int_equal(untaken(&w, 1), 0);
    world_close(&w);
}

static void an_injected_buffer_is_free_at_return(void **state)
{
    (void)state;
    struct um_proto_limits limits;
    const struct um_machines machines = variant_machines();
    um_proto_limits_get(&machines, &limits);
    struct world w;
    unsigned char *from = malloc(limits.inject_max), *to = malloc(limits.inject_max);
    world_open(&w, 2);
    size_t step = getenv("UM_TEST_LONG") ? 1 : 37;
    for (size_t len = 0; len <= limits.inject_max; len += len < 1100 ? 1 : step) {
        fill(from, len, (uint32_t)len);
        inject_buf(&w, 0, 1, from, len, len, UM_OP_TAGGED);
        memset(from, 0xee, len);
        recv_buf(&w, 1, NULL, to, limits.inject_max, len, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 1, CTX(1)).len, len);
        assert_true(is_filled(to, len, (uint32_t)len));
    }
    assert_int_equal(w.node[0].count, 0); /* no completion of an inject */
    free(from);
    free(to);
    world_close(&w);
}

static void empty_messages_need_no_buffer(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    recv_buf(&w, 1, NULL, NULL, 0, 1, 0, UM_OP_TAGGED, CTX(1));
    recv_buf(&w, 1, NULL, NULL, 0, 1, 0, UM_OP_TAGGED, CTX(2));
    recv_buf(&w, 1, NULL, NULL, 0, 1, 0, UM_OP_TAGGED, CTX(3));
    send_buf(&w, 0, 1, NULL, 0, 1, UM_OP_TAGGED, CTX(9));
    inject_buf(&w, 0, 1, NULL, 0, 1, UM_OP_TAGGED);
    struct um_proto_msg none = {.peer = peer_of(&w, 0, 1), .tag = 1, .context = CTX(8), .flags = UM_OP_TAGGED};
    send_msg(&w, 0, &none);
    for (uintptr_t c = 1; c <= 3; c++) {
        struct um_core_completion got = done_of(&w, 1, CTX(c));
        assert_int_equal(got.error, 0);
        assert_int_equal(got.len, 0);
    }
    world_close(&w);
}

/*
 * A message without a receive stays in its lane while a call of progress completes something else, but not for ever: an
 * endpoint that streams to the sender of that message completes something in every call.
 */
static void a_stream_of_sends_holds_up_no_message_of_its_receiver(void **state)
{
    (void)state;
    struct world w;
    char to;
    size_t seen = 0;
    world_open(&w, 2);
    recv_buf(&w, 0, NULL, &to, 1, 2, 0, UM_OP_TAGGED, CTX(9));
    send_buf(&w, 0, 1, "s", 1, 5, UM_OP_TAGGED, NULL); /* opens the lane */
    world_settle(&w);                                  /* the first tick comes at once */
    inject_buf(&w, 1, 0, "x", 1, 1, UM_OP_TAGGED);     /* no receive is posted for it */
    inject_buf(&w, 1, 0, "y", 1, 2, UM_OP_TAGGED);
    for (int i = 0; i < 100 && seen == 0; i++) {
        const struct iovec iov = {"s", 1};
        const struct um_proto_msg msg = {
            .iov = &iov, .count = 1, .peer = peer_of(&w, 0, 1), .tag = 5, .flags = UM_OP_TAGGED | UM_OP_DELIVERY};
        (void)um_proto_send(w.node[0].ep, &msg);
        for (int k = 0; k < 10; k++)
            um_core_ep_progress(w.node[1].ep);
        um_core_ep_progress(w.node[0].ep);
        for (size_t n = 0; n < w.node[0].count; n++)
            seen += w.node[0].done[n].context == CTX(9);
    }
    assert_int_equal(seen, 1);
    world_close(&w);
}

static void a_receiver_that_never_inserted_its_sender_can_receive_and_reply(void **state)
{
    (void)state;
    struct world w;
    static unsigned char from[50000], to[50000];
    const size_t lens[] = {5, 50000};
    for (size_t i = 0; i < 2; i++) {
        world_open(&w, 2);
        fill(from, lens[i], 1);
        recv_buf(&w, 1, NULL, to, lens[i], 1, 0, UM_OP_TAGGED, CTX(1));
        assert_null(um_core_peer_find(w.node[1].ep, &w.node[0].addr));
        send_buf(&w, 0, 1, from, lens[i], 1, UM_OP_TAGGED, CTX(2));
        struct um_core_completion c = done_of(&w, 1, CTX(1));
        assert_true(is_filled(to, lens[i], 1));
        assert_non_null(c.source);
        assert_int_equal(um_core_peer_name(c.source), UM_PEER_UNNAMED);
        struct um_addr addr;
        um_core_peer_addr(c.source, &addr);
        struct um_addr known = w.node[0].addr;
        if (variant.second) /* only the part of the machine by which it came is known */
            (void)um_addr_part(variant.second, &w.node[0].addr, &known);
        assert_memory_equal(&addr, &known, sizeof(addr));
        /* insertion afterwards finds the same peer, and what it sent */
        assert_ptr_equal(peer_of(&w, 1, 0), c.source);
        send_buf(&w, 0, 1, from, 3, 2, UM_OP_TAGGED, CTX(3));
        world_settle(&w);
        recv_buf(&w, 1, peer_of(&w, 1, 0), to, 3, 2, 0, UM_OP_TAGGED, CTX(4));
        assert_int_equal(done_of(&w, 1, CTX(4)).len, 3);
        recv_buf(&w, 0, NULL, to, lens[i], 1, 0, UM_OP_TAGGED, CTX(5));
        send_buf(&w, 1, 0, from, lens[i], 1, UM_OP_TAGGED, CTX(6));
        assert_int_equal(done_of(&w, 0, CTX(5)).len, lens[i]);
        world_close(&w);
    }
}

/* Many times the bytes that a lane's ring holds: the lane may go on in another ring meanwhile. */
static void a_stream_of_bodies_comes_whole(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    stream_bodies(&w, 1, 0);
    stream_bodies(&w, 0, 1);
    world_close(&w);
}

static void an_endpoint_can_send_to_itself(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    static unsigned char from[3 * MIB + 7], to[3 * MIB + 7];
    for (size_t s = 0; s < sizes_count; s++) {
        fill(from, sizes[s], (uint32_t)s + 9);
        recv_buf(&w, 0, s % 2 ? NULL : peer_of(&w, 0, 0), to, sizes[s], s, 0, UM_OP_TAGGED, CTX(1));
        send_buf(&w, 0, 0, from, sizes[s], s, UM_OP_TAGGED | (s % 3 ? 0 : UM_OP_DELIVERY), CTX(2));
        assert_int_equal(done_of(&w, 0, CTX(1)).len, sizes[s]);
        assert_true(is_filled(to, sizes[s], (uint32_t)s + 9));
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(posted_receives_take_messages_of_every_size),
    cmocka_unit_test(unexpected_messages_of_every_size_are_kept),
    cmocka_unit_test(messages_of_one_tag_match_in_the_order_of_their_sends),
    cmocka_unit_test(tags_and_ignore_masks_choose_the_receive),
    cmocka_unit_test(a_directed_receive_takes_only_its_source),
    cmocka_unit_test(a_message_that_does_not_fit_is_truncated_and_says_by_how_much),
    cmocka_unit_test(peek_tells_of_a_message_and_claim_and_discard_end_it),
    cmocka_unit_test(a_cancelled_receive_completes_once_and_takes_nothing),
    cmocka_unit_test(an_injected_buffer_is_free_at_return),
    cmocka_unit_test(empty_messages_need_no_buffer),
    cmocka_unit_test(a_stream_of_sends_holds_up_no_message_of_its_receiver),
    cmocka_unit_test(a_receiver_that_never_inserted_its_sender_can_receive_and_reply),
    cmocka_unit_test(a_stream_of_bodies_comes_whole),
    cmocka_unit_test(an_endpoint_can_send_to_itself),
};
WORLD_MAIN("messages", tests)
