/* Long parts of streams both ways: where they lie. */
#include "cells.h"

#define CTX(n) ((void *)(uintptr_t)(n))

/* Opens two nodes with streams both ways: each has one block, and may send long messages unasked. */
static void open_streams(struct world *w)
{
    open_wide(w);
    for (int i = 0; i < 2; i++) {
        lane_of(w, i)->exchanges = true;
        um_proto_peer_of(peer_of(w, i, 1 - i))->unasked = UINT16_MAX;
    }
}

/* Node 0 sends a message that is not alone, without a call of progress. Returns its last record's first word. */
static uint64_t send_next(struct world *w, uint32_t len, uint32_t seed)
{
    struct um_mem_lane *lane = lane_of(w, 0);
    lane->long_polls = lane->link->port->empty_polls;
    um_proto_peer_of(peer_of(w, 0, 1))->body_sent_in = w->node[0].ep->turns;
    fill(from, len, seed);
    send_buf(w, 0, 1, from, len, seed, UM_OP_TAGGED, CTX(2));
    assert_int_equal(done_of(w, 0, CTX(2)).error, 0);
    return word_of_last(w, 0);
}

/* What is no whole number of words lies in the ring. */
static void long_parts_lie_in_blocks(void **state)
{
    (void)state;
    static const struct {
        uint32_t len;
        enum place last;
    } cases[] = {{65536, OWN_CELL}, {100000, OWN_CELL}, {100001, RING}, {70000, OWN_CELL},
                 {70001, OWN_CELL}, {131072, OWN_CELL}, {131068, RING}, {UM_LONG_BODY + 8 + UM_BIG_BODY, OWN_CELL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        open_streams(&w);
        const uint32_t head = lane_of(&w, 0)->head, len = cases[i].len;
        const uint64_t word = send_next(&w, len, 1);
        const uint32_t last = (len - 1) % UM_LONG_BODY + 1;
        assert_int_equal(lane_of(&w, 0)->head - head, len > UM_LONG_BODY ? 2 : 1);
        assert_int_equal(place_of_last(&w, 0), cases[i].last);
        if (cases[i].last == OWN_CELL)
            assert_int_equal((word >> 48 & UM_LEN_MASK) + 1, last > UM_BIG_BODY ? last / UM_CELL_WORD : last);
        take(&w, 1, len, 1);
        world_close(&w);
    }
}

/* Messages of other lengths between long parts, and blocks that have no room for the next one. */
static void bytes_are_right_whatever_the_lengths(void **state)
{
    (void)state;
    struct world w;
    uint64_t seed = 9;
    unsigned in_cells = 0;
    open_streams(&w);
    for (uint32_t n = 1; n <= 400; n++) {
        const uint32_t kind = rnd(&seed, 3);
        uint32_t len = 1 + rnd(&seed, kind == 0 ? 40000 : 262144);
        if (kind == 2)
            len = (len + 7) & ~7u;
        (void)send_next(&w, len, n);
        in_cells += place_of_last(&w, 0) != RING;
        take(&w, 1, len, n);
        lane_of(&w, 1)->exchanges = lane_of(&w, 0)->exchanges = true;
        um_proto_peer_of(peer_of(&w, 0, 1))->unasked = UINT16_MAX;
        (void)send_now(&w, 1, UM_BIG_BODY, n); /* in a block that came */
        take(&w, 0, UM_BIG_BODY, n);
    }
    assert_true(in_cells > 40);
    world_close(&w);
}

/* Another message's parts fill a block as far as the next long part does not fit. */
static void a_long_part_goes_into_the_ring_if_the_block_has_no_room(void **state)
{
    enum { PARTS = 5 };
    (void)state;
    struct world w;
    struct um_slot slot;
    open_streams(&w);
    struct um_lane *lane = peer_of(&w, 0, 1)->lane;
    for (uint32_t i = 0; i < PARTS + 2; i++) {
        const uint32_t len = i == PARTS ? UM_LONG_BODY : UM_BIG_BODY;
        lane_of(&w, 0)->long_polls = lane_of(&w, 0)->link->port->empty_polls;
        assert_int_equal(lane->machine->claim(lane, len, &slot), 0);
        fill(slot.body, len, i);
        *(struct um_proto_eager_wire *)slot.header = (struct um_proto_eager_wire){.tag = i};
        slot.more = true;
        lane->machine->commit(lane, &slot, UM_WIRE_EAGER, UM_WIRE_TAGGED, len);
        assert_int_equal(place_of_last(&w, 0), i == PARTS ? RING : OWN_CELL);
    }
    for (uint32_t i = 0; i < PARTS + 2; i++)
        take(&w, 1, i == PARTS ? UM_LONG_BODY : UM_BIG_BODY, i);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(long_parts_lie_in_blocks),
    cmocka_unit_test(bytes_are_right_whatever_the_lengths),
    cmocka_unit_test(a_long_part_goes_into_the_ring_if_the_block_has_no_room),
};
WORLD_MAIN("cells_long", tests)
