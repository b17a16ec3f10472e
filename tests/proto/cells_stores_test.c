/* The choice of stores for bodies in cells: it is apart from that for bodies in the ring, and does not disturb it. */
#include "cells.h"

#include "proto/wire.h"

static void who_wants_non_temporal_stores_has_no_streams_in_cells(void **state)
{
    (void)state;
    struct world w;
    assert_int_equal(um_mem_set_stores("nontemporal"), 0);
    world_open(&w, 2);
    for (uint32_t i = 0; i < 4; i++) {
        stream_bodies(&w, i % 2 ? 1 : 0, i % 2 ? 0 : 1);
        world_settle(&w);
        for (int node = 0; node < 2; node++)
            assert_true(!lane_of(&w, node) || !lane_of(&w, node)->exchanges);
    }
    assert_int_equal(send_alone(&w, 0, LONG, 1), RING);
    take(&w, 1, LONG, 1);
    assert_int_equal(um_mem_set_stores(NULL), 0);
    world_close(&w);
}

/* What is best for a stream may be worst for a lone message. */
static void bodies_in_cells_have_a_choice_of_their_own(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    struct um_mem_lane *lane = lane_of(&w, 0);
    use(&lane->stores, UM_STORES_NONTEMPORAL, UM_WIDE_BYTES);
    assert_int_equal(send_alone(&w, 0, LONG, 1), OWN_CELL);
    take(&w, 1, LONG, 1);
    assert_int_equal(send_alone(&w, 1, LONG, 2), OTHER_CELL);
    take(&w, 0, LONG, 2);
    use(&lane->cell_stores, UM_STORES_NONTEMPORAL, UM_CELL_BYTES);
    assert_int_equal(send_alone(&w, 0, LONG, 3), RING);
    assert_int_equal(send_alone(&w, 0, 4095, 4), OWN_CELL); /* a shorter one always takes ordinary stores */
    take(&w, 1, LONG, 3);
    take(&w, 1, 4095, 4);
    world_close(&w);
}

static bool is_timed(struct world *w, int node)
{
    const struct um_mem_lane *lane = lane_of(w, node);
    return lane->ring.records[(lane->head - 1) & (lane->ring.record_count - 1)].word >> 40 & UM_FLAG_TIMED;
}

/* The stream's stores have nothing to do with the cell that a record before it passed. */
static void a_timed_record_in_the_ring_passes_no_cell(void **state)
{
    (void)state;
    struct world w;
    struct um_slot slot;
    open_wide(&w);
    struct um_mem_lane *lane = lane_of(&w, 0);
    for (int i = 0; i < 2; i++) { /* one body of a message that goes on, then one that bypasses the cell */
        assert_int_equal(lane->base.machine->claim_message(&lane->base, LONG, &slot), 0);
        fill(slot.body, LONG, (uint32_t)i);
        *(struct um_proto_eager_wire *)slot.header = (struct um_proto_eager_wire){.tag = (uint64_t)i};
        slot.more = true;
        if (i == 1) {
            lane->claimed = NULL;
            slot.body = memcpy(lane->ring.bytes + (lane->bytes_head & (lane->ring.byte_count - 1)), slot.body, LONG);
            lane->claim_bytes_end = lane->bytes_head + LONG;
            slot.is_nontemporal = true;
            lane->timed = &lane->stores;
        }
        lane->base.machine->commit(&lane->base, &slot, UM_WIRE_EAGER, UM_WIRE_TAGGED, LONG);
    }
    assert_int_equal(place_of_last(&w, 0), RING);
    take(&w, 1, LONG, 0);
    take(&w, 1, LONG, 1);
    assert_false(((struct um_mem_rx *)peer_of(&w, 1, 0)->rx)->cell.here);
    world_close(&w);
}

/* Whatever the choice of the stream, which its later parts would find. */
static void a_message_in_parts_is_written_in_one_way(void **state)
{
    enum { PARTS = 2 };
    (void)state;
    for (int kind = UM_STORES_CACHED; kind <= UM_STORES_NONTEMPORAL; kind++) {
        struct world w;
        open_wide(&w);
        struct um_mem_lane *lane = lane_of(&w, 0);
        use(&lane->cell_stores, (enum um_mem_stores_kind)kind, UM_CELL_BYTES);
        use(&lane->stores, (enum um_mem_stores_kind)(1 - kind), UM_WIDE_BYTES);
        const uint64_t before = lane->stores.bytes_left;
        const uint32_t first = lane->head;
        (void)send_alone(&w, 0, UM_SPLIT_MIN, 1);
        assert_int_equal(lane->head - first, PARTS);
        for (uint32_t i = first; i < first + PARTS; i++) {
            const uint64_t word = lane->ring.records[i & (lane->ring.record_count - 1)].word;
            assert_int_equal(word >> 48 & UM_LEN_CELL, kind == UM_STORES_CACHED ? UM_LEN_CELL : 0);
        }
        assert_int_equal(lane->stores.bytes_left, before);
        assert_int_equal(lane->lone_bypasses, kind == UM_STORES_NONTEMPORAL);
        take(&w, 1, UM_SPLIT_MIN, 1);
        world_close(&w);
    }
}

/* Sends lone messages back and forth until the lane from 0 to 1 has compared the stores for them. */
static void bodies_in_cells_are_compared(void **state)
{
    (void)state;
    struct world w;
    int timed = 0, in_ring = 0;
    uint32_t i = 0;
    open_wide(&w);
    const struct um_mem_stores *stores = &lane_of(&w, 0)->cell_stores;
    use(&lane_of(&w, 1)->cell_stores, UM_STORES_CACHED, UM_CELL_BYTES);
    for (; !stores->usual_then; i++) {
        assert_true(i < 1000);
        const enum place place = send_alone(&w, 0, LONG, i);
        timed += is_timed(&w, 0);
        in_ring += place == RING;
        assert_true(place != RING || is_timed(&w, 0) || stores->phase == UM_STORES_TRIAL);
        take(&w, 1, LONG, i);
        (void)send_alone(&w, 1, LONG, i);
        take(&w, 0, LONG, i);
    }
    assert_int_equal(timed, 2 * UM_STORES_SAMPLES);
    assert_in_range(in_ring, UM_STORES_SAMPLES, UM_STORES_SAMPLES + 2);
    world_close(&w);
}

/* The receiver tells the times of all timed bodies in one word. */
static void only_one_of_the_two_choices_is_compared_at_a_time(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    struct um_mem_lane *lane = lane_of(&w, 0);
    assert_int_equal(send_alone(&w, 0, LONG, 1), OWN_CELL); /* the choice begins */
    lane->stores.phase = UM_STORES_AWAIT;
    lane->cell_stores.untimed = UM_STORES_EVERY - 1;
    lane->cell_stores.size_class = 13;
    take(&w, 1, LONG, 1);
    (void)send_alone(&w, 1, LONG, 2);
    take(&w, 0, LONG, 2);
    assert_int_equal(send_alone(&w, 0, LONG, 3), OWN_CELL);
    assert_false(is_timed(&w, 0));
    take(&w, 1, LONG, 3);
    (void)send_alone(&w, 1, LONG, 4);
    take(&w, 0, LONG, 4);
    assert_int_equal(lane->stores.phase, UM_STORES_AWAIT);
    lane->cell_stores.bytes_left = 1;
    assert_int_equal(send_alone(&w, 0, LONG, 5), OWN_CELL);
    assert_true(is_timed(&w, 0));
    assert_int_equal(lane->cell_stores.phase, UM_STORES_BASE);
    assert_int_equal(lane->stores.phase, UM_STORES_USE);
    take(&w, 1, LONG, 5);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(who_wants_non_temporal_stores_has_no_streams_in_cells),
    cmocka_unit_test(a_timed_record_in_the_ring_passes_no_cell),
    cmocka_unit_test(a_message_in_parts_is_written_in_one_way),
    cmocka_unit_test(bodies_in_cells_have_a_choice_of_their_own),
    cmocka_unit_test(bodies_in_cells_are_compared),
    cmocka_unit_test(only_one_of_the_two_choices_is_compared_at_a_time),
};
WORLD_MAIN("cells_stores", tests)
