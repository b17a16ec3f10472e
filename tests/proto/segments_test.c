/* Messages in segments: how they are cut and how they arrive, also when one end stops in the middle. */
#include "segments.h"

#include "core/endpoint.h"
#include "machine/mem/mem.h"
#include "proto/receive.h"
#include "proto/wire.h"

#define CTX(n) ((void *)(uintptr_t)(n))

/* They look for room beforehand, so no claim ever runs out of it. */
static void a_lane_of_lone_messages_goes_on_in_a_wide_ring(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    for (uint32_t n = 0; n < 600; n++)
        (void)exchange(&w, 20000, true, n);
    const struct um_mem_lane *lane = (const struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    assert_non_null(lane->wide_map.base);
    assert_int_equal(lane->cell.at == NULL, lane->link->port->mapper->observe != NULL);
    world_close(&w);
}

/* Returns the bytes of the last body that was sent, in the ring or in a cell. */
static uint32_t last_part(const struct um_mem_lane *lane)
{
    const uint64_t word = lane->ring.records[(lane->head - 1) & (lane->ring.record_count - 1)].word;
    const uint32_t len = (uint32_t)(word >> 48);
    return len & UM_LEN_CELL ? (len & UM_LEN_MASK) + 1 : len;
}

/* The receiver copies the last one when all others are there. */
static void segments_are_about_equal(void **state)
{
    (void)state;
    struct world w;
    static const struct {
        size_t len;
        uint32_t last;
    } sizes[] = {{16385, 8065}, {20000, 9888}, {65537, 12801}, {66000, 12752}, {100000, 13984}, {MOST, UM_BIG_BODY}};
    open_permitted(&w);
    const struct um_mem_lane *lane = (const struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int unasked = 0;
        for (uint32_t n = 0; n < 40; n++) {
            if (exchange(&w, sizes[i].len, true, n))
                continue;
            assert_int_equal(last_part(lane), sizes[i].last);
            unasked++;
        }
        assert_true(unasked > 0 || variant.stall_percent);
    }
    world_close(&w);
}

static void delivery_is_told_when_the_last_segment_is_taken(void **state)
{
    (void)state;
    struct world w;
    struct iovec iov;
    open_permitted(&w);
    for (uint64_t n = 1; n <= 20; n++) {
        struct um_proto_msg msg = whole(&w, &iov, MOST, n, UM_OP_DELIVERY);
        const uint64_t before = announced(&w);
        world_settle(&w);
        send_msg(&w, 0, &msg);
        if (announced(&w) == before) {
            for (int i = 0; i < 100; i++)
                um_core_ep_progress(w.node[0].ep);
            assert_int_equal(untaken(&w, 0), 0);
        }
        recv_buf(&w, 1, NULL, to, MOST, n, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
        assert_true(is_filled(to, MOST, (uint32_t)n));
    }
    world_close(&w);
}

/* Lists of pieces on both sides, receives that are too short, and several messages into one multi-receive buffer. */
static void buffers_of_all_kinds(void **state)
{
    (void)state;
    struct world w;
    uint64_t seed = 3;
    open_permitted(&w);
    for (uint32_t n = 1; n <= 60; n++) {
        const size_t len = 16385 + rnd(&seed, MOST - 16385), room = n % 3 ? len : rnd(&seed, (uint32_t)len);
        struct iovec piece[2][6];
        fill(from, len, n);
        memset(to, 0x5b, sizeof(to));
        cut(from, len, piece[0], 6, &seed);
        cut(to, room, piece[1], 6, &seed);
        const struct um_proto_msg send = {
            .iov = piece[0], .count = 6, .peer = peer_of(&w, 0, 1), .tag = n, .context = CTX(2), .flags = UM_OP_TAGGED};
        const struct um_proto_msg receive = {
            .iov = piece[1], .count = 6, .tag = n, .context = CTX(1), .flags = UM_OP_TAGGED};
        if (n % 2)
            assert_int_equal(um_proto_recv(w.node[1].ep, &receive), 0);
        world_settle(&w);
        send_msg(&w, 0, &send);
        if (n % 2 == 0) {
            world_settle(&w);
            assert_int_equal(um_proto_recv(w.node[1].ep, &receive), 0);
        }
        const struct um_core_completion c = done_of(&w, 1, CTX(1));
        assert_int_equal(c.error, room < len ? EMSGSIZE : 0);
        assert_int_equal(c.len, room);
        assert_int_equal(c.olen, len - room);
        assert_memory_equal(to, from, room);
        assert_true(is_all(to + room, sizeof(to) - room, 0x5b));
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    enum { ROOM = 400000 };
    unsigned char *multi = malloc(ROOM);
    const struct iovec all = {.iov_base = multi, .iov_len = ROOM};
    const struct um_proto_msg receive = {.iov = &all, .count = 1, .context = CTX(1), .flags = UM_OP_MULTI};
    assert_int_equal(um_proto_recv(w.node[1].ep, &receive), 0);
    for (uint32_t n = 1; n <= 5; n++) {
        fill(from, 50000, n);
        world_settle(&w);
        send_buf(&w, 0, 1, from, 50000, 0, 0, CTX(2));
        const struct um_core_completion c = done_of(&w, 1, CTX(1));
        assert_int_equal(c.error, 0);
        assert_int_equal(c.len, 50000);
        assert_true(is_filled(c.buf, 50000, n));
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    world_close(&w);
    free(multi);
}

/* When the receiver publishes a wrong credit, lane_has_room() says no, so that no message stops in the middle. */
static void a_wrong_credit_makes_no_room(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    uint32_t value = 1;
    inject_buf(&w, 0, 1, &value, 4, 1, UM_OP_TAGGED); /* the lane has not grown yet */
    struct um_mem_lane *lane = (struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    const uint64_t credit = lane->ctl->credit;
    assert_false(um_mem_lane_has_room(&lane->base, 20, 1024));
    lane->ctl->credit = (uint64_t)(uint32_t)(lane->bytes_head - 100000) << 32 | lane->head;
    assert_false(um_mem_lane_has_room(&lane->base, 20, 1024));
    lane->ctl->credit = credit;
    lane->bytes_consumed = (uint32_t)(credit >> 32);
    world_close(&w);
}

/* ---- the tests commit the sender's records themselves: it stops between two segments ---- */

static void claim_commit(struct world *w, uint8_t op, const void *header, size_t header_len, const void *body,
                         uint32_t len)
{
    struct um_lane *lane = peer_of(w, 0, 1)->lane;
    struct um_slot slot;
    int ret;
    while ((ret = lane->machine->claim(lane, len, &slot)) == -EAGAIN)
        um_core_ep_progress(w->node[0].ep);
    assert_int_equal(ret, 0);
    memcpy(slot.header, header, header_len);
    memcpy(slot.body, body, len);
    lane->machine->commit(lane, &slot, op, UM_WIRE_TAGGED, len);
}

static void first_by_hand(struct world *w, uint64_t tag, uint32_t total, uint32_t len)
{
    const struct um_proto_first_wire header = {.tag = tag, .data = 0, .total = total};
    fill(from, sizeof(from), (uint32_t)tag);
    claim_commit(w, UM_WIRE_FIRST, &header, sizeof(header), from, len);
}

static void next_by_hand(struct world *w, uint32_t offset, uint32_t len)
{
    const struct um_proto_next_wire header = {.offset = offset};
    claim_commit(w, UM_WIRE_NEXT, &header, sizeof(header), from + offset, len);
}

enum { TOTAL = 40000, PART = 10000 };

static void a_receive_takes_over_what_has_begun_to_come(void **state)
{
    (void)state;
    struct world w;
    open_permitted(&w);
    for (uint32_t before = 1; before <= 4; before++) {
        memset(to, 0, sizeof(to));
        first_by_hand(&w, before, TOTAL, PART);
        for (uint32_t i = 1; i < before; i++)
            next_by_hand(&w, i * PART, PART);
        world_settle(&w);
        recv_buf(&w, 1, NULL, to, TOTAL, before, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(untaken(&w, 1), before == 4);
        for (uint32_t i = before; i < 4; i++) {
            next_by_hand(&w, i * PART, PART);
            world_settle(&w);
            assert_int_equal(untaken(&w, 1), i == 3);
        }
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_true(is_filled(to, TOTAL, before));
    }
    world_close(&w);
}

/* The same for a receive with room for only a part of the message. */
static void a_receive_that_is_too_short_takes_over(void **state)
{
    (void)state;
    struct world w;
    open_permitted(&w);
    for (uint32_t room = 0; room < TOTAL; room += 5000) {
        for (uint32_t before = 1; before <= 3; before++) {
            memset(to, 0x5b, sizeof(to));
            first_by_hand(&w, 9, TOTAL, PART);
            for (uint32_t i = 1; i < before; i++)
                next_by_hand(&w, i * PART, PART);
            world_settle(&w);
            recv_buf(&w, 1, NULL, to, room, 9, 0, UM_OP_TAGGED, CTX(1));
            for (uint32_t i = before; i < 4; i++) {
                next_by_hand(&w, i * PART, PART);
                world_settle(&w);
            }
            const struct um_core_completion c = done_of(&w, 1, CTX(1));
            assert_int_equal(c.error, EMSGSIZE);
            assert_int_equal(c.len, room);
            assert_memory_equal(to, from, room);
            assert_true(is_all(to + room, sizeof(to) - room, 0x5b));
        }
    }
    world_close(&w);
}

static void peeked(struct world *w, uint32_t flags, void *context, bool is_there)
{
    struct um_core_completion found;
    const struct um_proto_msg msg = {.tag = 9, .context = context, .flags = UM_OP_TAGGED | flags};
    assert_int_equal(um_proto_peek(w->node[1].ep, &msg, &found), is_there ? 0 : -ENOMSG);
    if (is_there)
        assert_int_equal(found.len, TOTAL);
}

/* A peek reports, drops or reserves a message that has not completely come. */
static void a_peek_finds_what_has_begun_to_come(void **state)
{
    (void)state;
    struct world w;
    open_permitted(&w);
    for (int how = 0; how < 4; how++) {
        memset(to, 0, sizeof(to));
        first_by_hand(&w, 9, TOTAL, PART);
        world_settle(&w);
        peeked(&w, 0, NULL, true);
        struct iovec iov = {.iov_base = to, .iov_len = TOTAL};
        struct um_proto_msg claim = {
            .iov = &iov, .count = 1, .tag = 9, .context = CTX(5), .flags = UM_OP_TAGGED | UM_OP_CLAIM};
        if (how == 0) {
            peeked(&w, UM_OP_DISCARD, NULL, true);
        } else {
            peeked(&w, UM_OP_CLAIM, CTX(5), true);
            claim.flags |= how == 1 ? UM_OP_DISCARD : 0;
            if (how < 3)
                assert_int_equal(um_proto_recv(w.node[1].ep, &claim), 0);
        }
        peeked(&w, 0, NULL, false);
        static unsigned char own[16000];
        fill(own, sizeof(own), 3);
        inject_buf(&w, 1, 1, own, sizeof(own), 8, UM_OP_TAGGED); /* may take the memory of what was dropped */
        world_settle(&w);
        for (uint32_t i = 1; i < 4; i++)
            next_by_hand(&w, i * PART, PART);
        world_settle(&w);
        if (how == 3)
            assert_int_equal(um_proto_recv(w.node[1].ep, &claim), 0);
        if (how > 0)
            assert_int_equal(done_of(&w, 1, CTX(5)).error, 0);
        if (how > 1)
            assert_true(is_filled(to, TOTAL, 9));
        else
            assert_true(is_all(to, TOTAL, 0));
        memset(own, 0, sizeof(own));
        recv_buf(&w, 1, NULL, own, sizeof(own), 8, 0, UM_OP_TAGGED, CTX(6));
        assert_int_equal(done_of(&w, 1, CTX(6)).error, 0);
        assert_true(is_filled(own, sizeof(own), 3));
        assert_int_equal(untaken(&w, 1), 0);
        assert_int_equal(um_proto_ep_of(w.node[1].ep)->receive->kept, 0);
        (void)exchange(&w, MOST, true, 4); /* the lane goes on */
    }
    world_close(&w);
}

/* If the sender does not complete a message, the receive ends with an error, whenever it is posted. */
static void a_sender_that_leaves_in_the_middle_is_an_error(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct world w;
        open_permitted(&w);
        if (how == 0)
            recv_buf(&w, 1, NULL, to, TOTAL, 1, 0, UM_OP_TAGGED, CTX(1));
        first_by_hand(&w, 1, TOTAL, PART);
        world_settle(&w);
        if (how == 1)
            recv_buf(&w, 1, NULL, to, TOTAL, 1, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(untaken(&w, 1), 0);
        um_core_ep_flush(w.node[0].ep);
        node_close(&w.node[0]);
        w.node[0].ep = NULL;
        for (int i = 0; i < 10000; i++)
            um_core_ep_progress(w.node[1].ep);
        if (how == 2) {
            memset(to, 0x5b, sizeof(to));
            struct iovec iov = {.iov_base = to, .iov_len = TOTAL};
            const struct um_proto_msg msg = {
                .iov = &iov, .count = 1, .tag = 1, .context = CTX(1), .flags = UM_OP_TAGGED};
            assert_int_equal(um_proto_recv(w.node[1].ep, &msg), 0);
        }
        assert_int_equal(untaken(&w, 1), 1);
        assert_int_equal(w.node[1].done[w.node[1].taken].error, ECONNRESET);
        if (how == 2)
            assert_true(is_all(to + PART, sizeof(to) - PART, 0x5b)); /* this part never came */
        node_close(&w.node[1]);
    }
}

/* The receiver closes before the last segment: the receive is cancelled, and nothing is left. */
static void a_receiver_that_closes_in_the_middle(void **state)
{
    (void)state;
    for (int is_posted = 0; is_posted < 2; is_posted++) {
        struct world w;
        open_permitted(&w);
        if (is_posted)
            recv_buf(&w, 1, NULL, to, TOTAL, 1, 0, UM_OP_TAGGED, CTX(1));
        first_by_hand(&w, 1, TOTAL, PART);
        world_settle(&w);
        const size_t before = w.node[1].count;
        um_proto_ep_close(w.node[1].ep);
        w.node[1].ep = NULL;
        assert_int_equal(w.node[1].count, before + (size_t)is_posted);
        if (is_posted)
            assert_int_equal(w.node[1].done[before].error, ECANCELED);
        world_close(&w);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_wrong_credit_makes_no_room),
    cmocka_unit_test(a_lane_of_lone_messages_goes_on_in_a_wide_ring),
    cmocka_unit_test(segments_are_about_equal),
    cmocka_unit_test(delivery_is_told_when_the_last_segment_is_taken),
    cmocka_unit_test(buffers_of_all_kinds),
    cmocka_unit_test(a_receive_takes_over_what_has_begun_to_come),
    cmocka_unit_test(a_receive_that_is_too_short_takes_over),
    cmocka_unit_test(a_peek_finds_what_has_begun_to_come),
    cmocka_unit_test(a_sender_that_leaves_in_the_middle_is_an_error),
    cmocka_unit_test(a_receiver_that_closes_in_the_middle),
};
WORLD_MAIN("segments", tests)
