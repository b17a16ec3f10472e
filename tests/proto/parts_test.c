/* Long messages that fit into one record: which ones go in several all the same, so that both sides copy at once. */
#include "segments.h"

#include "core/endpoint.h"
#include "machine/mem/mem.h"

#define CTX(n) ((void *)(uintptr_t)(n))

/* Sends a message from node 0 to node 1, alone or right behind another one. Returns the records that it took. */
static uint32_t records_of(struct world *w, size_t len, bool is_injected, bool is_alone, uint32_t seed)
{
    const struct um_lane *lane = peer_of(w, 0, 1)->lane;
    fill(from, len, seed);
    if (is_alone)
        world_settle(w);
    const uint32_t before = lane->machine->lane_committed(lane);
    if (is_injected)
        inject_buf(w, 0, 1, from, len, seed, UM_OP_TAGGED);
    else
        send_buf(w, 0, 1, from, len, seed, UM_OP_TAGGED, CTX(2));
    return lane->machine->lane_committed(lane) - before;
}

static void receive(struct world *w, size_t len, uint32_t seed)
{
    memset(to, 0x5b, sizeof(to));
    recv_buf(w, 1, NULL, to, len, seed, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(w, 1, CTX(1)).error, 0);
    assert_true(is_filled(to, len, seed));
    assert_true(is_all(to + len, sizeof(to) - len, 0x5b));
}

/* The lane has grown, and does not go on in a wide ring: each of these takes a record. */
static void open_grown(struct world *w)
{
    world_open(w, 2);
    (void)exchange(w, 16384, true, 1);
    ((struct um_mem_lane *)peer_of(w, 0, 1)->lane)->widen_tried = true;
}

static void a_long_message_that_is_alone_goes_in_parts_of_8_KiB(void **state)
{
    static const struct {
        size_t len;
        uint32_t parts;
    } sizes[] = {{8192, 1}, {14000, 1}, {UM_SPLIT_MIN - 1, 1}, {UM_SPLIT_MIN, 2}};
    (void)state;
    struct world w;
    open_grown(&w);
    for (uint32_t n = 0; n < 4 * sizeof(sizes) / sizeof(sizes[0]); n++) {
        const size_t len = sizes[n / 4].len;
        const bool is_injected = n & 1, is_posted = n & 2;
        const uint64_t before = um_core_ep_stats(w.node[0].ep)->eager;
        if (is_posted)
            recv_buf(&w, 1, NULL, to, len, n, 0, UM_OP_TAGGED, CTX(1));
        const uint32_t records = records_of(&w, len, is_injected, true, n);
        if (!variant.stall_percent)
            assert_int_equal(records, sizes[n / 4].parts);
        assert_int_equal(um_core_ep_stats(w.node[0].ep)->eager, before + 1);
        if (is_posted) {
            assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
            assert_true(is_filled(to, len, n));
        } else {
            world_settle(&w);
            receive(&w, len, n);
        }
        if (!is_injected)
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    world_close(&w);
}

/* So does one for whose parts there is no room. */
static void a_long_message_behind_another_one_goes_in_one_record(void **state)
{
    enum { LEN = 16384 };
    (void)state;
    struct world w;
    open_grown(&w);
    for (uint32_t n = 0; n < 20; n++) {
        (void)records_of(&w, LEN, n % 2, true, 100);
        const uint32_t records = records_of(&w, LEN, n % 2, false, 101);
        if (!variant.stall_percent)
            assert_int_equal(records, 1);
        receive(&w, LEN, 100);
        receive(&w, LEN, 101);
        for (int i = 0; n % 2 == 0 && i < 2; i++)
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    const struct um_mem_lane *lane = (const struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    uint32_t sent = 0;
    for (int ret = 0; ret == 0; sent += ret == 0) { /* the receiver makes no call */
        const uint32_t head = lane->head, bytes_head = lane->bytes_head;
        fill(from, LEN, 102);
        um_core_ep_progress(w.node[0].ep);
        ret = um_proto_inject(w.node[0].ep, peer_of(&w, 0, 1), from, LEN, 102, 0, UM_OP_TAGGED);
        assert_true(ret == 0 || ret == -EAGAIN);
        const uint32_t left = lane->ring.byte_count - (bytes_head - lane->bytes_consumed);
        if (ret == 0 && !variant.stall_percent)
            assert_int_equal(lane->head - head, left >= 3 * LEN / 2 ? 2 : 1);
    }
    assert_true(sent >= 2 || variant.stall_percent);
    for (; sent; sent--)
        receive(&w, LEN, 102);
    world_close(&w);
}

static bool wants_ack(const struct um_mem_lane *lane, uint32_t number)
{
    return lane->ring.records[number & (lane->ring.record_count - 1)].word >> 40 & UM_FLAG_ACK;
}

static void a_message_in_parts_tells_of_its_delivery_when_the_last_one_is_taken(void **state)
{
    (void)state;
    struct world w;
    struct iovec iov;
    open_grown(&w);
    const struct um_mem_lane *lane = (const struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    for (uint64_t n = 1; n <= 20; n++) {
        const struct um_proto_msg msg = whole(&w, &iov, 16384, n, UM_OP_DELIVERY);
        world_settle(&w);
        const uint32_t first = lane->head;
        send_msg(&w, 0, &msg);
        for (uint32_t i = first; i != lane->head; i++)
            assert_int_equal(wants_ack(lane, i), i + 1 == lane->head);
        for (int i = 0; i < 100; i++)
            um_core_ep_progress(w.node[0].ep);
        assert_int_equal(untaken(&w, 0), 0);
        receive(&w, 16384, (uint32_t)n);
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    world_close(&w);
}

/* A receiver that holds its senders gets nothing; one that wants announcements gets it in one record. */
static void a_long_message_goes_in_no_parts_that_its_receiver_does_not_want(void **state)
{
    enum { LEN = 16384 };
    (void)state;
    struct world w;
    open_grown(&w);
    struct um_rx *rx = peer_of(&w, 1, 0)->rx;
    const struct um_machine *machine = peer_of(&w, 0, 1)->lane->machine;
    machine->rx_announce(rx, true);
    assert_int_equal(records_of(&w, LEN, true, true, 1), 1);
    receive(&w, LEN, 1);
    assert_int_equal(records_of(&w, LEN, false, true, 2), 1);
    receive(&w, LEN, 2);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    machine->rx_announce(rx, false);
    machine->rx_hold(rx, true);
    world_settle(&w);
    fill(from, LEN, 3);
    assert_int_equal(um_proto_inject(w.node[0].ep, peer_of(&w, 0, 1), from, LEN, 3, 0, UM_OP_TAGGED), -EAGAIN);
    machine->rx_hold(rx, false);
    const uint32_t records = records_of(&w, LEN, true, true, 3);
    if (!variant.stall_percent)
        assert_int_equal(records, 2);
    receive(&w, LEN, 3);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_long_message_that_is_alone_goes_in_parts_of_8_KiB),
    cmocka_unit_test(a_long_message_behind_another_one_goes_in_one_record),
    cmocka_unit_test(a_long_message_goes_in_no_parts_that_its_receiver_does_not_want),
    cmocka_unit_test(a_message_in_parts_tells_of_its_delivery_when_the_last_one_is_taken),
};
WORLD_MAIN("parts", tests)
