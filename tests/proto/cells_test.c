/* Cells: which messages go into them, that their bytes are right, and what becomes of them at the end of a lane. */
#include "world.h"

#include "core/endpoint.h"
#include "machine/mem/mem.h"
#include "proto/internal.h"
#include "proto/wire.h"

#define CTX(n) ((void *)(uintptr_t)(n))

enum { LONG = 8192, MOST = UM_SEGMENTED_MAX };

static unsigned char from[MOST], to[MOST];

static struct um_mem_lane *lane_of(struct world *w, int node)
{
    return (struct um_mem_lane *)peer_of(w, node, 1 - node)->lane;
}

static struct um_mem_rx *rx_of(struct world *w, int node)
{
    return (struct um_mem_rx *)peer_of(w, node, 1 - node)->rx;
}

/* That kind is in use for good. */
static void use(struct um_mem_stores *stores, enum um_mem_stores_kind kind, uint32_t round)
{
    stores->in_use = (uint8_t)kind;
    stores->bytes_left = UINT64_MAX;
    stores->ring_bytes = round;
    stores->phase = UM_STORES_USE;
    stores->compared = UINT32_MAX;
}

/* Widens the rings of both lanes. Then each node has the first block of its lane's cell, streams go into the rings, and
 * ordinary stores are in use there. */
static void widen(struct world *w)
{
    stream_bodies(w, 0, 1);
    stream_bodies(w, 1, 0);
    world_settle(w);
    for (int i = 0; i < 2; i++) {
        assert_non_null(lane_of(w, i)->cell.at);
        assert_null(lane_of(w, i)->writes);
        assert_ptr_equal(lane_of(w, i)->link->rx, rx_of(w, i));
        lane_of(w, i)->cell.here = 1;
        rx_of(w, i)->cell.here = 0;
        lane_of(w, i)->cell_came_last = false;
        lane_of(w, i)->exchanges = false;
        use(&lane_of(w, i)->stores, UM_STORES_CACHED, UM_WIDE_BYTES);
    }
}

static void open_wide(struct world *w)
{
    world_open(w, 2);
    widen(w);
}

enum place { RING, OWN_CELL, OTHER_CELL };

/* Returns the first word of the last record that the node has sent. */
static uint64_t word_of_last(struct world *w, int node)
{
    const struct um_mem_lane *lane = lane_of(w, node);
    return lane->ring.records[(lane->head - 1) & (lane->ring.record_count - 1)].word;
}

/* Tells where the last body that the node has sent lies. */
static enum place place_of_last(struct world *w, int node)
{
    const uint64_t word = word_of_last(w, node);
    return !(word >> 40 & UM_FLAG_MACHINE) || !(word >> 48 & UM_LEN_CELL) ? RING
           : word >> 48 & UM_LEN_OTHER                                    ? OTHER_CELL
                                                                          : OWN_CELL;
}

/* Sends a message and tells where it lies. The node has made no call of progress since its last one. */
static enum place send_now(struct world *w, int node, uint32_t len, uint32_t tag)
{
    fill(from, len, tag);
    inject_buf(w, node, 1 - node, from, len, tag, UM_OP_TAGGED);
    return place_of_last(w, node);
}

/* The same for a message that is alone. */
static enum place send_alone(struct world *w, int node, uint32_t len, uint32_t tag)
{
    world_settle(w);
    return send_now(w, node, len, tag);
}

static void take(struct world *w, int node, uint32_t len, uint32_t tag)
{
    memset(to, 0x5b, len);
    recv_buf(w, node, NULL, to, len, tag, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(w, node, CTX(1)).error, 0);
    assert_true(is_filled(to, len, tag));
}

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

/* Returns the number of the block that the last body which the node has sent lies in. */
static uint32_t block_of_last(struct world *w, int node)
{
    assert_int_not_equal(place_of_last(w, node), RING);
    return (uint8_t)(word_of_last(w, node) >> 32) >> UM_OP_BLOCK_SHIFT;
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
    assert_false(lane_of(&w, 0)->lone_goes_on);
    world_close(&w);
}

/* ---- the end of a lane ---- */

/* Sends a message and its answer. The answer lies in the cell of the lane from 0 to 1, and 0 has not looked at it. */
static void leave_an_answer(struct world *w)
{
    open_wide(w);
    lane_of(w, 0)->cell.here = 0x2c;
    lane_of(w, 0)->cell.last = 3;
    assert_int_equal(send_alone(w, 0, LONG, 1), OWN_CELL);
    assert_int_equal(block_of_last(w, 0), 3);
    take(w, 1, LONG, 1);
    world_settle(w);
    assert_int_equal(send_now(w, 1, LONG, 2), OTHER_CELL);
    assert_int_equal(block_of_last(w, 1), 3);
    assert_int_equal(lane_of(w, 0)->cell.here, 0x24);
}

static void a_message_in_a_cell_outlives_its_sender(void **state)
{
    (void)state;
    struct world w;
    leave_an_answer(&w);
    node_close(&w.node[1]);
    take(&w, 0, LONG, 2);
    world_close(&w);
}

/* The receiver closes its lane, behind whose ring the cell lies, before it takes the message. */
static void a_message_in_a_cell_outlives_the_lane_that_has_the_cell(void **state)
{
    (void)state;
    struct world w;
    leave_an_answer(&w);
    struct um_core_peer *peer = peer_of(&w, 0, 1);
    const struct um_mem_link *link = lane_of(&w, 0)->link;
    node_close(&w.node[1]);
    assert_int_not_equal(um_proto_inject(w.node[0].ep, peer, from, 8, 3, 0, UM_OP_TAGGED), 0);
    assert_null(peer->lane);
    assert_non_null(link->kept.at);
    take(&w, 0, LONG, 2);
    world_close(&w);
}

/* It is the first message of its sender, so its receiver has not heard of that lane when it closes its own. */
static void a_first_message_in_a_cell_outlives_the_lane_that_has_the_cell(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    stream_bodies(&w, 0, 1);
    struct um_core_peer *peer = peer_of(&w, 0, 1);
    while (lane_of(&w, 0)->cell.here) {
        (void)send_alone(&w, 0, LONG, 1);
        take(&w, 1, LONG, 1);
    }
    world_settle(&w);
    assert_null(peer->rx);
    inject_buf(&w, 1, 0, from, 8, 3, UM_OP_TAGGED); /* the small rings take no long body */
    fill(from, LONG, 2);
    inject_buf(&w, 1, 0, from, LONG, 2, UM_OP_TAGGED);
    assert_int_equal(place_of_last(&w, 1), OTHER_CELL);
    node_close(&w.node[1]);
    assert_int_not_equal(um_proto_inject(w.node[0].ep, peer, from, 8, 3, 0, UM_OP_TAGGED), 0);
    assert_null(peer->lane);
    assert_null(peer->rx);
    take(&w, 0, LONG, 2);
    world_close(&w);
}

/* The lane closes while its receiver has a record from the cell in hand. */
static void a_record_on_offer_outlives_the_lane_that_has_the_cell(void **state)
{
    (void)state;
    struct world w;
    struct um_record rec;
    leave_an_answer(&w);
    struct um_core_peer *peer = peer_of(&w, 0, 1);
    struct um_port *port = w.node[0].ep->ports[0].port;
    while (!port->machine->poll(port, &rec))
        ;
    assert_int_equal(rec.len, LONG);
    const void *body = rec.body;
    node_close(&w.node[1]);
    assert_int_not_equal(um_proto_inject(w.node[0].ep, peer, from, 8, 3, 0, UM_OP_TAGGED), 0);
    assert_null(peer->lane);
    assert_true(is_filled(body, LONG, 2));
    assert_int_equal(port->machine->poll(port, &rec), 1); /* offered again */
    assert_int_equal(rec.len, LONG);
    assert_true(is_filled(rec.body, LONG, 2));
    take(&w, 0, LONG, 2);
    world_close(&w);
}

/* The sender had the cell: nothing of it is kept. */
static void a_lane_that_has_its_cell_keeps_nothing(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    lane_of(&w, 0)->cell.here = UINT8_MAX;
    struct um_core_peer *peer = peer_of(&w, 0, 1);
    uint32_t value = 3;
    inject_buf(&w, 1, 0, &value, 4, 2, UM_OP_TAGGED);
    const struct um_mem_link *link = lane_of(&w, 0)->link;
    node_close(&w.node[1]);
    assert_int_not_equal(um_proto_inject(w.node[0].ep, peer, from, 8, 3, 0, UM_OP_TAGGED), 0);
    assert_null(peer->lane);
    assert_null(link->kept_map.base);
    recv_buf(&w, 0, NULL, to, 4, 2, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    world_close(&w);
}

/* A receiver that refuses a lane gives its memory to other senders as soon as the lane is closed. */
static void what_lies_in_the_cell_of_a_refused_lane_is_not_taken(void **state)
{
    (void)state;
    struct world w;
    leave_an_answer(&w);
    struct um_core_peer *peer = peer_of(&w, 0, 1);
    const struct um_mem_link *link = lane_of(&w, 0)->link;
    um_mem_rx_refuse(&rx_of(&w, 1)->base);
    assert_int_equal(um_proto_inject(w.node[0].ep, peer, from, 8, 3, 0, UM_OP_TAGGED), -EPIPE);
    assert_non_null(link->kept_map.base);
    assert_null(link->kept.at);
    recv_buf(&w, 0, NULL, to, LONG, 2, 0, UM_OP_TAGGED, CTX(1));
    world_settle(&w);
    assert_int_equal(untaken(&w, 0), 0);
    world_close(&w);
}

/* So does one that took the sender for dead. */
static void what_lies_in_a_cell_that_passed_to_another_sender_is_not_taken(void **state)
{
    (void)state;
    struct world w;
    leave_an_answer(&w);
    lane_of(&w, 0)->ctl->state += 1u << UM_LANE_INC_SHIFT;
    recv_buf(&w, 0, NULL, to, LONG, 2, 0, UM_OP_TAGGED, CTX(1));
    for (int i = 0; i < 20; i++)
        um_core_ep_progress(w.node[0].ep);
    assert_int_equal(untaken(&w, 0), 0);
    assert_true(peer_of(&w, 0, 1)->banned);
    world_close(&w);
}

static void a_peer_that_comes_back_has_new_cells(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    for (uint32_t generation = 0; generation < 3; generation++) {
        assert_int_equal(send_alone(&w, 1, LONG, 1), OWN_CELL);
        take(&w, 0, LONG, 1);
        assert_int_equal(send_alone(&w, 0, LONG, 2), OTHER_CELL);
        node_close(&w.node[1]);
        world_settle(&w);
        node_open(&w.node[1], 64);
        widen(&w);
    }
    world_close(&w);
}

/* ---- records that cannot be ---- */

/* Commits a record whose body lies in a cell, as its word says. */
static void commit_op(struct world *w, uint8_t op, uint32_t len, uint8_t flags)
{
    struct um_mem_lane *lane = lane_of(w, 0);
    *(struct um_proto_eager_wire *)(void *)lane->next->header = (struct um_proto_eager_wire){.tag = 5};
    lane->head++;
    um_store_release_u64(&lane->next->word, (uint64_t)lane->head | (uint64_t)op << 32 |
                                                (uint64_t)(uint8_t)(flags | UM_FLAG_MACHINE) << 40 |
                                                (uint64_t)len << 48);
    lane->next = &lane->ring.records[lane->head & (lane->ring.record_count - 1)];
}

static void commit_word(struct world *w, uint32_t len, uint8_t flags)
{
    commit_op(w, UM_WIRE_EAGER, len, flags);
}

static bool is_refused(struct world *w)
{
    world_settle(w);
    return peer_of(w, 1, 0)->banned;
}

enum { ALL = UM_LEN_MASK }; /* the length of a body of 16 KiB */

static void a_cell_that_the_sender_has_not_is_refused(void **state)
{
    (void)state;
    for (int attack = 0; attack < 5; attack++) {
        struct world w;
        if (attack < 2) { /* there are none yet */
            world_open(&w, 2);
            inject_buf(&w, 0, 1, from, LONG, 9, UM_OP_TAGGED);
            if (attack == 1)
                inject_buf(&w, 1, 0, from, LONG, 9, UM_OP_TAGGED);
            world_settle(&w);
            commit_word(&w, UM_LEN_CELL | (attack ? UM_LEN_OTHER : 0) | ALL, UM_FLAG_PASS);
        } else {
            open_wide(&w);
            commit_word(&w, UM_LEN_CELL | ALL, attack == 3 ? 0 : UM_FLAG_PASS);
            if (attack == 2)
                commit_word(&w, UM_LEN_CELL | ALL, UM_FLAG_PASS); /* it has passed */
            else
                commit_word(&w, UM_LEN_CELL | UM_LEN_OTHER | ALL, UM_FLAG_PASS); /* never came */
        }
        assert_true(is_refused(&w));
        world_close(&w);
    }
}

static void one_message_lies_in_one_cell(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    assert_int_equal(send_alone(&w, 1, LONG, 1), OWN_CELL);
    take(&w, 0, LONG, 1); /* node 0 has both cells */
    commit_word(&w, UM_LEN_CELL | ALL, 0);
    world_settle(&w);
    assert_false(is_refused(&w));
    commit_word(&w, UM_LEN_CELL | UM_LEN_OTHER | ALL, UM_FLAG_PASS);
    assert_true(is_refused(&w));
    world_close(&w);
}

static void blocks_are_passed_one_by_one(void **state)
{
    enum { FIRST = UM_WIRE_EAGER, LAST = UM_WIRE_EAGER | (UM_CELL_BLOCKS - 1) << UM_OP_BLOCK_SHIFT };
    (void)state;
    static const struct {
        uint8_t op[2], flags;
        bool is_good;
    } cases[] = {
        {{FIRST, FIRST}, 0, true},
        {{FIRST, LAST}, UM_FLAG_PASS, true},
        {{LAST, FIRST}, UM_FLAG_PASS, true},
        {{FIRST, LAST}, 0, false}, /* the first one goes on */
        {{LAST, FIRST}, 0, false},
        {{LAST, LAST}, UM_FLAG_PASS, false},                /* it has passed */
        {{FIRST, LAST & ~UM_OP_MASK}, UM_FLAG_PASS, false}, /* no op */
        {{FIRST, LAST | UM_OP_MASK}, UM_FLAG_PASS, false},  /* an op that nobody has */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        open_wide(&w);
        commit_op(&w, cases[i].op[0], UM_LEN_CELL | ALL, cases[i].flags);
        assert_false(is_refused(&w));
        commit_op(&w, cases[i].op[1], UM_LEN_CELL | ALL, UM_FLAG_PASS);
        assert_int_equal(is_refused(&w), !cases[i].is_good);
        if (cases[i].is_good)
            assert_int_equal(rx_of(&w, 1)->cell.here, cases[i].op[0] == cases[i].op[1] ? 1 : 0x81);
        world_close(&w);
    }
}

static void no_message_is_longer_than_a_block(void **state)
{
    (void)state;
    for (int excess = 0; excess < 2; excess++) {
        struct world w;
        open_wide(&w);
        for (int i = 0; i < UM_BLOCK_BYTES / UM_BIG_BODY - 1; i++)
            commit_word(&w, UM_LEN_CELL | ALL, 0);
        commit_word(&w, UM_LEN_CELL | (ALL - UM_BODY_ALIGN), 0);
        assert_false(is_refused(&w));
        commit_word(&w, UM_LEN_CELL | (uint32_t)(UM_BODY_ALIGN - 1 + excess), UM_FLAG_PASS);
        assert_int_equal(is_refused(&w), excess);
        world_close(&w);
    }
}

/* ---- the choice of stores ---- */

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
    cmocka_unit_test(an_answer_goes_into_the_cell_of_its_message),
    cmocka_unit_test(two_messages_that_cross_go_into_two_cells),
    cmocka_unit_test(the_cell_that_came_last_is_taken_first),
    cmocka_unit_test(a_stream_in_one_direction_goes_into_the_ring),
    cmocka_unit_test(the_block_that_came_last_is_taken_first),
    cmocka_unit_test(who_wants_non_temporal_stores_has_no_streams_in_cells),
    cmocka_unit_test(streams_in_both_directions_go_into_cells),
    cmocka_unit_test(the_second_wide_ring_begins_an_exchange),
    cmocka_unit_test(blocks_are_passed_one_by_one),
    cmocka_unit_test(who_waits_for_a_cell_fetches_no_lines),
    cmocka_unit_test(bytes_are_right_whatever_goes_back_and_forth),
    cmocka_unit_test(a_message_that_is_longer_than_a_cell_goes_on_in_the_ring),
    cmocka_unit_test(a_body_that_is_pushed_goes_where_a_message_in_segments_would),
    cmocka_unit_test(the_second_of_two_bodies_that_are_pushed_goes_into_the_ring),
    cmocka_unit_test(a_delivery_out_of_a_cell_is_acknowledged_in_the_call_that_takes_it),
    cmocka_unit_test(a_timed_record_in_the_ring_passes_no_cell),
    cmocka_unit_test(a_message_in_a_cell_outlives_its_sender),
    cmocka_unit_test(a_message_in_a_cell_outlives_the_lane_that_has_the_cell),
    cmocka_unit_test(a_first_message_in_a_cell_outlives_the_lane_that_has_the_cell),
    cmocka_unit_test(a_record_on_offer_outlives_the_lane_that_has_the_cell),
    cmocka_unit_test(a_lane_to_oneself_has_one_cell),
    cmocka_unit_test(one_wide_ring_is_enough_for_a_cell),
    cmocka_unit_test(a_message_in_parts_is_written_in_one_way),
    cmocka_unit_test(a_lane_that_has_its_cell_keeps_nothing),
    cmocka_unit_test(what_lies_in_the_cell_of_a_refused_lane_is_not_taken),
    cmocka_unit_test(what_lies_in_a_cell_that_passed_to_another_sender_is_not_taken),
    cmocka_unit_test(a_peer_that_comes_back_has_new_cells),
    cmocka_unit_test(a_cell_that_the_sender_has_not_is_refused),
    cmocka_unit_test(one_message_lies_in_one_cell),
    cmocka_unit_test(no_message_is_longer_than_a_block),
    cmocka_unit_test(bodies_in_cells_have_a_choice_of_their_own),
    cmocka_unit_test(bodies_in_cells_are_compared),
    cmocka_unit_test(only_one_of_the_two_choices_is_compared_at_a_time),
};
WORLD_MAIN("cells", tests)
