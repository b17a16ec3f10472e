/* Cells: which messages go into them, into which of them, and that their bytes are right. */
#include "cells.h"

#include "proto/wire.h"

#define CTX(n) ((void *)(uintptr_t)(n))

static void an_answer_goes_into_the_cell_of_its_message(void **state)
{
    (void)state;
    struct world w;
    static const uint32_t lens[] = {2048, 4096, 10000, LONG, UM_SPLIT_MIN};
    open_wide(&w);
    for (uint32_t i = 0; i < 40; i++) {
        const int node = (int)(i % 2);
        const uint32_t bytes_head = lane_of(&w, node)->bytes_head, len = lens[i / 2 % 5];
        assert_int_equal(send_alone(&w, node, len, i), node == 0 ? OWN_CELL : OTHER_CELL);
        assert_int_equal(lane_of(&w, node)->bytes_head, bytes_head);
        take(&w, 1 - node, len, i);
    }
    assert_int_equal(send_alone(&w, 0, 2047, 50), RING);
    take(&w, 1, 2047, 50);
    world_close(&w);
}

/* Each of the two cells goes back and forth. */
static void two_messages_that_cross_go_into_two_cells(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    for (uint32_t i = 0; i < 20; i++) {
        world_settle(&w);
        for (int node = 0; node < 2; node++)
            assert_int_equal(send_now(&w, node, LONG, 2 * i + (uint32_t)node), i % 2 ? OTHER_CELL : OWN_CELL);
        take(&w, 1, LONG, 2 * i);
        take(&w, 0, LONG, 2 * i + 1);
    }
    world_close(&w);
}

static void the_cell_that_came_last_is_taken_first(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    assert_int_equal(send_alone(&w, 0, LONG, 1), OWN_CELL);
    take(&w, 1, LONG, 1);
    assert_int_equal(send_alone(&w, 1, LONG, 2), OTHER_CELL);
    assert_int_equal(send_alone(&w, 1, LONG, 3), OWN_CELL);
    assert_int_equal(send_alone(&w, 1, LONG, 4), RING);
    for (uint32_t tag = 2; tag <= 4; tag++)
        take(&w, 0, LONG, tag);
    assert_int_equal(send_alone(&w, 0, LONG, 5), OTHER_CELL);
    assert_int_equal(send_alone(&w, 0, LONG, 6), OWN_CELL);
    assert_int_equal(send_alone(&w, 0, LONG, 7), RING);
    for (uint32_t tag = 5; tag <= 7; tag++)
        take(&w, 1, LONG, tag);
    world_close(&w);
}

static void the_block_that_came_last_is_taken_first(void **state)
{
    enum { BODIES = 3 };
    (void)state;
    struct world w;
    uint32_t blocks = 0, last = 0;
    open_wide(&w);
    lane_of(&w, 0)->cell.here = UINT8_MAX;
    for (uint32_t i = 0; i < BODIES; i++) {
        assert_int_equal(send_alone(&w, 0, LONG, i), OWN_CELL);
        last = block_of_last(&w, 0);
        assert_false(blocks >> last & 1);
        blocks |= UINT32_C(1) << last;
    }
    for (uint32_t i = 0; i < BODIES; i++)
        take(&w, 1, LONG, i);
    for (uint32_t i = 0; i < 20; i++) {
        const int node = i % 2 ? 0 : 1;
        assert_int_equal(send_alone(&w, node, LONG, i), node ? OTHER_CELL : OWN_CELL);
        assert_int_equal(block_of_last(&w, node), last);
        take(&w, 1 - node, LONG, i);
    }
    world_close(&w);
}

/* It would have to wait for its blocks. A short answer brings none back. */
static void a_stream_in_one_direction_goes_into_the_ring(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 3;
    open_wide(&w);
    lane_of(&w, 0)->cell.here = 3;
    assert_int_equal(send_alone(&w, 0, LONG, 1), OWN_CELL);
    for (uint32_t tag = 2; tag < 10; tag++)
        assert_int_equal(send_now(&w, 0, LONG, tag), RING);
    for (uint32_t tag = 1; tag < 10; tag++)
        take(&w, 1, LONG, tag);
    for (uint32_t tag = 10; tag < 13; tag++) {
        inject_buf(&w, 1, 0, &value, sizeof(value), 100, UM_OP_TAGGED);
        assert_int_equal(send_alone(&w, 0, LONG, tag), tag == 10 ? OWN_CELL : RING);
        take(&w, 1, LONG, tag);
    }
    assert_int_equal(send_alone(&w, 1, LONG, 1), OTHER_CELL);
    for (uint32_t tag = 2; tag < 10; tag++)
        assert_int_equal(send_now(&w, 1, LONG, tag), RING);
    for (uint32_t tag = 1; tag < 10; tag++)
        take(&w, 0, LONG, tag);
    world_close(&w);
}

/* Once a block came from the peer, each further body goes into a block as long as there is one; none is waited for. */
static void streams_in_both_directions_go_into_cells(void **state)
{
    enum { BLOCKS = 3, BODIES = BLOCKS + 2 };
    (void)state;
    struct world w;
    open_wide(&w);
    lane_of(&w, 0)->cell.here = (1 << BLOCKS) - 1;
    lane_of(&w, 1)->cell.here = 0;
    lane_of(&w, 0)->exchanges = true;
    for (uint32_t round = 0; round < 20; round++) {
        const int node = (int)(round % 2);
        for (uint32_t i = 0; i < BODIES; i++)
            assert_int_equal(send_now(&w, node, UM_BIG_BODY, i), i >= BLOCKS ? RING
                                                                 : node == 0 ? OWN_CELL
                                                                             : OTHER_CELL);
        assert_int_equal(lane_of(&w, node)->exchanges, false);
        for (uint32_t i = 0; i < BODIES; i++)
            take(&w, 1 - node, UM_BIG_BODY, i);
        assert_int_equal(lane_of(&w, 1 - node)->exchanges, true);
    }
    assert_int_equal(send_now(&w, 0, UM_BIG_BODY, 1), OWN_CELL);
    assert_int_equal(send_now(&w, 0, UM_BIG_BODY - 1, 2), RING); /* it would take a whole block */
    take(&w, 1, UM_BIG_BODY, 1);
    take(&w, 1, UM_BIG_BODY - 1, 2);
    world_close(&w);
}

/* Opens lanes in both directions, of which only that of the node `wide` has a wide ring. */
static void open_one_wide(struct world *w, int wide)
{
    world_open(w, 2);
    (void)send_alone(w, 0, 8, 1u << 20);
    (void)send_alone(w, 1, 8, 1u << 20);
    stream_bodies(w, wide, 1 - wide);
    assert_non_null(lane_of(w, wide)->cell.at);
    assert_null(lane_of(w, 1 - wide)->cell.at);
    world_settle(w);
}

/* When a lane gets a wide ring and the other one has one, there are streams in both directions. */
static void the_second_wide_ring_begins_an_exchange(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct world w;
        open_one_wide(&w, first);
        assert_false(lane_of(&w, first)->exchanges);
        lane_of(&w, 1 - first)->exchanges = false;
        lane_of(&w, first)->cell.here = rx_of(&w, 1 - first)->cell.here = 0; /* no block comes or goes */
        uint32_t sent = 0, taken = 0;
        while (!lane_of(&w, 1 - first)->cell.at) {
            assert_in_range(sent, 0, 1000);
            if (sent - taken == 6)
                take(&w, first, UM_BIG_BODY, taken++);
            (void)send_now(&w, 1 - first, UM_BIG_BODY, sent++);
        }
        assert_true(lane_of(&w, 1 - first)->exchanges);
        while (taken < sent)
            take(&w, first, UM_BIG_BODY, taken++);
        world_close(&w);
    }
}

/* Nobody reads where the next message will lie, but lines of the ring need not be fetched for one that goes elsewhere,
 * nor while the cell may come back. */
static void who_waits_for_a_cell_fetches_no_lines(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    const struct um_mem_port *port = lane_of(&w, 0)->link->port;
    assert_int_equal(send_alone(&w, 0, LONG, 1), OWN_CELL);
    assert_null(port->long_lane);
    take(&w, 1, LONG, 1);
    assert_int_equal(send_alone(&w, 0, LONG, 2), RING);
    assert_ptr_equal(port->long_lane, lane_of(&w, 0));
    assert_int_equal(send_now(&w, 1, LONG, 3), OTHER_CELL);
    for (int i = 0; i < 20; i++)
        um_core_ep_progress(w.node[0].ep);
    assert_null(port->long_lane);
    assert_int_equal(lane_of(&w, 0)->fetched_len, 0); /* the cell was there before */
    take(&w, 1, LONG, 2);
    take(&w, 0, LONG, 3);
    world_close(&w);
}

/* Of an endpoint to itself: the cell is one for both ends of the lane. */
static void a_lane_to_oneself_has_one_cell(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 1);
    stream_bodies(&w, 0, 0);
    const struct um_mem_lane *lane = (struct um_mem_lane *)peer_of(&w, 0, 0)->lane;
    int in_cell = 0;
    for (uint32_t i = 0; i < 20; i++) {
        world_settle(&w);
        fill(from, LONG, i);
        inject_buf(&w, 0, 0, from, LONG, i, UM_OP_TAGGED);
        in_cell += lane->claimed != NULL;
        take(&w, 0, LONG, i);
    }
    assert_true(in_cell >= 10);
    world_close(&w);
}

/* The peer has the cell of a lane whose ring it has, whether its own lane has a wide ring or not. */
static void one_wide_ring_is_enough_for_a_cell(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        struct world w;
        open_one_wide(&w, wide);
        lane_of(&w, wide)->cell.here = 1;
        rx_of(&w, 1 - wide)->cell.here = 0;
        for (uint32_t i = 0; i < 20; i++) {
            const int node = i % 2 ? 1 - wide : wide;
            assert_int_equal(send_alone(&w, node, LONG, i), node == wide ? OWN_CELL : OTHER_CELL);
            take(&w, 1 - node, LONG, i);
        }
        world_close(&w);
    }
}

/* Messages of all lengths, in both directions, received at once or later. */
static void bytes_are_right_whatever_goes_back_and_forth(void **state)
{
    enum { KEPT = 6 };
    (void)state;
    struct world w;
    uint64_t random = 7;
    struct {
        uint32_t len, tag;
    } waiting[2][KEPT];
    uint32_t count[2] = {0}, in_cell = 0, in_ring = 0;
    open_wide(&w);
    for (uint32_t i = 0; i < many(4000); i++) {
        if (i == many(2000)) { /* from now on with several blocks, and in streams */
            for (int n = 0; n < 2; n++) {
                lane_of(&w, n)->cell.here |= 0x2a & (uint8_t)~rx_of(&w, 1 - n)->cell.here;
                lane_of(&w, n)->exchanges = true;
            }
        }
        const int node = (int)rnd(&random, 2), taker = (int)rnd(&random, 2);
        const uint32_t len = 2048 + rnd(&random, rnd(&random, 4) ? 20000 : MOST - 2048);
        if (rnd(&random, 3))
            um_core_ep_progress(w.node[node].ep);
        if (count[1 - node] < KEPT) {
            fill(from, len, i);
            send_buf(&w, node, 1 - node, from, len, i, UM_OP_TAGGED, CTX(2));
            if (lane_of(&w, node)->claimed)
                in_cell++;
            else
                in_ring++;
            waiting[1 - node][count[1 - node]].len = len;
            waiting[1 - node][count[1 - node]++].tag = i;
            if (len > UM_BIG_BODY) { /* its buffer is in use */
                take(&w, 1 - node, len, i);
                count[1 - node]--;
            }
            assert_int_equal(done_of(&w, node, CTX(2)).error, 0);
        }
        if (count[taker] > 0) {
            const uint32_t which = rnd(&random, count[taker]);
            take(&w, taker, waiting[taker][which].len, waiting[taker][which].tag);
            waiting[taker][which] = waiting[taker][--count[taker]];
        }
    }
    assert_true(in_cell > many(4000) / 10 && in_ring > many(4000) / 10);
    for (int node = 0; node < 2; node++) {
        while (count[node]-- > 0)
            take(&w, node, waiting[node][count[node]].len, waiting[node][count[node]].tag);
    }
    world_close(&w);
}

/* It goes from block to block: one passes when the next record may not fit. */
static void a_message_that_is_longer_than_a_cell_goes_on_in_the_ring(void **state)
{
    enum { IN_BLOCK = UM_BLOCK_BYTES / UM_BIG_BODY, RECORDS = UM_CELL_BLOCKS * IN_BLOCK };
    (void)state;
    struct world w;
    struct um_slot slot;
    open_wide(&w);
    struct um_lane *lane = peer_of(&w, 0, 1)->lane;
    lane_of(&w, 0)->cell.here = UINT8_MAX;
    for (uint32_t i = 0; i < RECORDS + 2; i++) {
        assert_int_equal(lane->machine->claim_message(lane, UM_BIG_BODY, &slot), 0);
        fill(slot.body, UM_BIG_BODY, i);
        *(struct um_proto_eager_wire *)slot.header = (struct um_proto_eager_wire){.tag = i};
        slot.more = true;
        lane->machine->commit(lane, &slot, UM_WIRE_EAGER, UM_WIRE_TAGGED, UM_BIG_BODY);
        assert_int_equal(place_of_last(&w, 0), i < RECORDS ? OWN_CELL : RING);
        const uint32_t passed = i < RECORDS ? (i + 1) / IN_BLOCK : UM_CELL_BLOCKS;
        assert_int_equal(__builtin_popcount(lane_of(&w, 0)->cell.here), UM_CELL_BLOCKS - passed);
    }
    for (uint32_t i = 0; i < RECORDS + 2; i++)
        take(&w, 1, UM_BIG_BODY, i);
    world_close(&w);
}

/* The one is compared with the other. */
static void a_body_that_is_pushed_goes_where_a_message_in_segments_would(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    for (int i = 0; i < 2; i++) {
        const uint32_t len = i ? MOST + 1 : 100000;
        static unsigned char longer[MOST + 1], got[MOST + 1];
        const uint64_t before = um_core_ep_stats(w.node[i].ep)->rendezvous;
        fill(longer, len, 5);
        recv_buf(&w, 1 - i, NULL, got, len, 5, 0, UM_OP_TAGGED, CTX(1));
        world_settle(&w);
        send_buf(&w, i, 1 - i, longer, len, 5, UM_OP_TAGGED, CTX(2));
        assert_int_equal(done_of(&w, 1 - i, CTX(1)).error, 0);
        assert_int_equal(done_of(&w, i, CTX(2)).error, 0);
        assert_true(is_filled(got, len, 5));
        assert_int_equal(um_core_ep_stats(w.node[i].ep)->rendezvous, before + 1);
        assert_int_equal(place_of_last(&w, i), i ? RING : OWN_CELL);
    }
    world_close(&w);
}

static void a_delivery_out_of_a_cell_is_acknowledged_in_the_call_that_takes_it(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    for (uint32_t i = 0; i < 20; i++) {
        const int node = (int)(i % 2);
        recv_buf(&w, 1 - node, NULL, to, LONG, i, 0, UM_OP_TAGGED, CTX(1));
        world_settle(&w);
        fill(from, LONG, i);
        send_buf(&w, node, 1 - node, from, LONG, i, UM_OP_TAGGED | UM_OP_DELIVERY, CTX(2));
        assert_int_not_equal(place_of_last(&w, node), RING);
        um_core_ep_progress(w.node[1 - node].ep);
        um_core_ep_progress(w.node[node].ep);
        assert_int_equal(done_of(&w, 1 - node, CTX(1)).error, 0);
        assert_int_equal(untaken(&w, node), 1);
        assert_int_equal(done_of(&w, node, CTX(2)).error, 0);
    }
    world_close(&w);
}

/* The cell passes with the first one. */
static void the_second_of_two_bodies_that_are_pushed_goes_into_the_ring(void **state)
{
    enum { LEN = 100000, BODIES = 2 };
    (void)state;
    struct world w;
    static unsigned char body[LEN], got[BODIES][LEN];
    open_wide(&w);
    fill(body, LEN, 5);
    world_settle(&w);
    for (uintptr_t i = 0; i < BODIES; i++) {
        recv_buf(&w, 1, NULL, got[i], LEN, i, 0, UM_OP_TAGGED, CTX(1 + i));
        send_buf(&w, 0, 1, body, LEN, i, UM_OP_TAGGED, CTX(10 + i));
    }
    for (uintptr_t i = 0; i < BODIES; i++) {
        assert_int_equal(done_of(&w, 1, CTX(1 + i)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(10 + i)).error, 0);
        assert_true(is_filled(got[i], LEN, 5));
    }
    assert_int_equal(place_of_last(&w, 0), RING);
    assert_false(lane_of(&w, 0)->cell.here);
    assert_false(lane_of(&w, 0)->is_lone || lane_of(&w, 0)->lone_goes_on);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_answer_goes_into_the_cell_of_its_message),
    cmocka_unit_test(two_messages_that_cross_go_into_two_cells),
    cmocka_unit_test(the_cell_that_came_last_is_taken_first),
    cmocka_unit_test(a_stream_in_one_direction_goes_into_the_ring),
    cmocka_unit_test(the_block_that_came_last_is_taken_first),
    cmocka_unit_test(streams_in_both_directions_go_into_cells),
    cmocka_unit_test(the_second_wide_ring_begins_an_exchange),
    cmocka_unit_test(who_waits_for_a_cell_fetches_no_lines),
    cmocka_unit_test(bytes_are_right_whatever_goes_back_and_forth),
    cmocka_unit_test(a_message_that_is_longer_than_a_cell_goes_on_in_the_ring),
    cmocka_unit_test(a_body_that_is_pushed_goes_where_a_message_in_segments_would),
    cmocka_unit_test(the_second_of_two_bodies_that_are_pushed_goes_into_the_ring),
    cmocka_unit_test(a_delivery_out_of_a_cell_is_acknowledged_in_the_call_that_takes_it),
    cmocka_unit_test(a_lane_to_oneself_has_one_cell),
    cmocka_unit_test(one_wide_ring_is_enough_for_a_cell),
};
WORLD_MAIN("cells", tests)
