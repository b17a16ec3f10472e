/* Cells at the end of a lane: what lies in them is still taken, unless their memory is somebody else's by then. */
#include "cells.h"

#define CTX(n) ((void *)(uintptr_t)(n))

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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_message_in_a_cell_outlives_its_sender),
    cmocka_unit_test(a_message_in_a_cell_outlives_the_lane_that_has_the_cell),
    cmocka_unit_test(a_first_message_in_a_cell_outlives_the_lane_that_has_the_cell),
    cmocka_unit_test(a_record_on_offer_outlives_the_lane_that_has_the_cell),
    cmocka_unit_test(a_lane_that_has_its_cell_keeps_nothing),
    cmocka_unit_test(what_lies_in_the_cell_of_a_refused_lane_is_not_taken),
    cmocka_unit_test(what_lies_in_a_cell_that_passed_to_another_sender_is_not_taken),
    cmocka_unit_test(a_peer_that_comes_back_has_new_cells),
};
WORLD_MAIN("cells_end", tests)
