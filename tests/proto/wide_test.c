/* Wide rings: which lanes get one, how much of its memory is touched, and when it is given back. */
#include "mem_lane.h"

#include "core/endpoint.h"
#include "machine/mem/mem.h"

#include <sys/mman.h>

#define CTX(n) ((void *)(uintptr_t)(n))

static bool is_wide(struct world *w, int from, int to)
{
    return mem_lane(peer_of(w, from, to))->wide_map.base != NULL;
}

static void a_lane_that_streams_goes_on_in_a_wide_ring(void **state)
{
    (void)state;
    struct world w;
    open_lane(&w);
    assert_false(is_wide(&w, 1, 0));
    stream_bodies(&w, 1, 0);
    assert_true(is_wide(&w, 1, 0));
    stream_bodies(&w, 1, 0);
    struct um_lane *lane = peer_of(&w, 1, 0)->lane;
    assert_true(lane->machine->lane_has_room(lane, UM_ROOM_MAX / UM_BIG_BODY, UM_BIG_BODY));
    assert_false(lane->machine->lane_has_room(lane, UM_ROOM_MAX / UM_BIG_BODY + 1, UM_BIG_BODY));
    world_close(&w);
}

/* Sends short bodies from node 1 to node 0, `together` at a time, until the lane has a wide ring, or its byte ring was
 * filled 80 times. */
static void short_bodies(struct world *w, int together)
{
    enum { LEN = UM_NONTEMPORAL_MIN - 1, ROUNDS = 80 };
    static unsigned char body[LEN], to[LEN];
    for (int sent = 0; sent < ROUNDS * (UM_BIG_BYTES / UM_NONTEMPORAL_MIN) && !is_wide(w, 1, 0); sent += together) {
        um_core_ep_progress(w->node[1].ep);
        for (int i = 0; i < together; i++)
            inject_buf(w, 1, 0, body, LEN, 1, UM_OP_TAGGED);
        for (int i = 0; i < together; i++) {
            recv_buf(w, 0, NULL, to, LEN, 1, 0, UM_OP_TAGGED, CTX(1));
            assert_int_equal(done_of(w, 0, CTX(1)).error, 0);
        }
    }
}

static void short_bodies_that_come_alone_do_not_widen_a_lane(void **state)
{
    (void)state;
    struct world w;
    open_lane(&w);
    short_bodies(&w, 1);
    assert_true(mem_lane(peer_of(&w, 1, 0))->grown);
    assert_false(is_wide(&w, 1, 0));
    short_bodies(&w, 4);
    assert_true(is_wide(&w, 1, 0));
    world_close(&w);
}

/* Who waits for each acknowledgement always knows the newest credit. */
static void a_lane_of_acknowledged_messages_goes_on_in_a_wide_ring(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[UM_BIG_BODY], to[UM_BIG_BODY];
    open_lane(&w);
    for (int i = 0; i < 400; i++) {
        recv_buf(&w, 0, NULL, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(1));
        send_buf(&w, 1, 0, body, sizeof(body), 1, UM_OP_TAGGED | UM_OP_DELIVERY, CTX(2));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
    }
    assert_true(is_wide(&w, 1, 0));
    world_close(&w);
}

/* A message that finds no room though nothing lies in the ring is a reason for a wide one. One that finds no room
 * because the receiver takes nothing is not. */
static void a_lane_that_is_too_short_for_a_message_gets_a_wide_ring(void **state)
{
    enum { LEN = UM_BIG_BODY, TRIES = 100, RECORDS = UM_BIG_BYTES / LEN };
    (void)state;
    struct world w;
    static unsigned char body[LEN], to[LEN];
    open_lane(&w);
    struct um_lane *lane = peer_of(&w, 1, 0)->lane;
    for (uint32_t i = 0; i < RECORDS - 1; i++)
        inject_buf(&w, 1, 0, body, LEN, i, UM_OP_TAGGED);
    for (int i = 0; i < TRIES; i++)
        assert_false(lane->machine->lane_has_room(lane, RECORDS, LEN));
    assert_false(is_wide(&w, 1, 0));
    for (uint32_t i = 0; i < RECORDS - 1; i++) {
        recv_buf(&w, 0, NULL, to, LEN, i, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    }
    world_settle(&w); /* the receiver tells all that it has taken */
    for (int i = 0; i < TRIES && !is_wide(&w, 1, 0); i++)
        (void)lane->machine->lane_has_room(lane, RECORDS, LEN);
    assert_true(is_wide(&w, 1, 0));
    assert_true(lane->machine->lane_has_room(lane, RECORDS, LEN));
    world_close(&w);
}

static void no_more_lanes_have_wide_rings_than_the_memory_allows(void **state)
{
    (void)state;
    struct world w;
    variant.memory_max = 2 * UM_WIDE_BYTES * 2;
    world_open(&w, 4);
    for (int i = 1; i < 4; i++)
        stream_bodies(&w, i, 0);
    assert_int_equal(is_wide(&w, 1, 0) + is_wide(&w, 2, 0) + is_wide(&w, 3, 0), 2);
    world_close(&w);
    variant.memory_max = 0;
}

static void a_lane_that_ends_gives_its_wide_ring_back(void **state)
{
    (void)state;
    struct world w;
    variant.memory_max = 2 * UM_WIDE_BYTES;
    world_open(&w, 2);
    for (int generation = 0; generation < 3; generation++) {
        stream_bodies(&w, 1, 0);
        assert_true(is_wide(&w, 1, 0));
        node_close(&w.node[1]);
        world_settle(&w);
        node_open(&w.node[1], 64);
    }
    world_close(&w);
    variant.memory_max = 0;
}

/* The sender took the ring, and ended before it could commit WIDEN. */
static void a_wide_ring_that_was_never_told_of_is_given_back(void **state)
{
    (void)state;
    struct world w;
    uint32_t ring;
    variant.memory_max = 2 * UM_WIDE_BYTES;
    open_lane(&w);
    assert_int_equal(um_mem_lane_take_wide(mem_lane(peer_of(&w, 1, 0)), &ring), 0);
    node_close(&w.node[1]);
    world_settle(&w);
    node_open(&w.node[1], 64);
    stream_bodies(&w, 1, 0);
    assert_true(is_wide(&w, 1, 0));
    world_close(&w);
    variant.memory_max = 0;
}

static int refuse_attach(struct um_mem_port *port, const struct um_addr *addr, size_t offset, size_t len,
                         struct um_mem_mapping *map_p)
{
    (void)port, (void)addr, (void)offset, (void)len, (void)map_p;
    return -ENOMEM;
}

/* The lane stays in its big ring, and another lane may take the wide one. */
static void a_lane_whose_wide_ring_cannot_be_mapped_goes_on_without(void **state)
{
    (void)state;
    struct world w;
    struct um_mem_mapper refusing;
    uint32_t value = 3;
    variant.memory_max = 2 * UM_WIDE_BYTES;
    world_open(&w, 3);
    struct um_core_peer *peer = peer_of(&w, 1, 0);
    inject_buf(&w, 1, 0, &value, sizeof(value), 1u << 20, UM_OP_TAGGED);
    struct um_mem_port *port = mem_lane(peer)->link->port;
    const struct um_mem_mapper *mapper = port->mapper;
    refusing = *mapper;
    refusing.attach = refuse_attach;
    port->mapper = &refusing;
    stream_bodies(&w, 1, 0);
    assert_true(mem_lane(peer)->widen_tried);
    assert_false(is_wide(&w, 1, 0));
    port->mapper = mapper;
    stream_bodies(&w, 2, 0);
    assert_true(is_wide(&w, 2, 0));
    stream_bodies(&w, 1, 0);
    world_close(&w);
    variant.memory_max = 0;
}

/* ---- memory ---- */

enum { LONG = 16384, STEP = 262144 };

/* Sends a long body from 1 to 0. */
static void send_long(struct world *w, uint32_t len, uint32_t tag)
{
    static unsigned char body[LONG];
    fill(body, len, tag);
    inject_buf(w, 1, 0, body, len, tag, UM_OP_TAGGED);
}

static void take_long(struct world *w, uint32_t len, uint32_t tag)
{
    static unsigned char got[LONG];
    memset(got, 0, len);
    recv_buf(w, 0, NULL, got, len, tag, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(w, 0, CTX(1)).error, 0);
    assert_true(is_filled(got, len, tag));
}

/* Returns the lane from 1 to 0, which has just got a wide ring: the last message went into its cell. */
static struct um_mem_lane *open_widened(struct world *w)
{
    open_lane(w);
    for (uint32_t tag = 1; !is_wide(w, 1, 0); tag++) {
        send_long(w, LONG, tag);
        take_long(w, LONG, tag);
    }
    return mem_lane(peer_of(w, 1, 0));
}

/* Returns how many pages of the ring have memory. */
static uint32_t pages_of(const struct um_mem_lane *lane)
{
    unsigned char present[UM_WIDE_BYTES / UM_PAGE];
    uint32_t pages = 0;
    assert_int_equal(mincore(lane->ring.bytes, UM_WIDE_BYTES, present), 0);
    for (size_t i = 0; i < sizeof(present); i++)
        pages += present[i] & 1;
    return pages;
}

static void the_first_long_body_in_a_wide_ring_touches_all_of_it(void **state)
{
    (void)state;
    struct world w;
    struct um_mem_lane *lane = open_widened(&w);
    const uint32_t begin = lane->bytes_head;
    lane->cell.here = 0; /* the peer has it */
    for (uint32_t i = 0; i < 20; i++) {
        send_long(&w, 1000, i);
        take_long(&w, 1000, i);
    }
    assert_true(pages_of(lane) <= (lane->bytes_head - begin) / UM_PAGE + 2);
    send_long(&w, LONG, 1);
    assert_int_equal(pages_of(lane), UM_WIDE_BYTES / UM_PAGE);
    assert_false(lane->is_fresh);
    take_long(&w, LONG, 1);
    world_close(&w);
}

/* Lone bodies that could lie in a cell, and are written into the ring with other stores. */
static void bodies_that_compare_stores_touch_a_wide_ring_in_steps(void **state)
{
    (void)state;
    struct world w;
    struct um_mem_lane *lane = open_widened(&w);
    send_long(&w, 1000, 1); /* the others begin within a page */
    take_long(&w, 1000, 1);
    const uint32_t begin = lane->bytes_head;
    lane->cell.here = UINT8_MAX;
    lane->has_choice = true; /* even where both kinds of stores are the same */
    lane->cell_stores = (struct um_mem_stores){.bytes_left = UINT64_MAX,
                                               .ring_bytes = UM_CELL_BYTES,
                                               .compared = UINT32_MAX,
                                               .phase = UM_STORES_USE,
                                               .in_use = UM_STORES_NONTEMPORAL};
    for (uint32_t n = 0; lane->bytes_head - begin < 2 * UM_WIDE_BYTES; n++) {
        const uint32_t bytes = lane->bytes_head - begin < UM_WIDE_BYTES ? lane->bytes_head - begin : UM_WIDE_BYTES;
        const uint32_t steps = (bytes + STEP - 1) / STEP;
        const uint32_t pages = steps * (STEP / UM_PAGE) + (steps < UM_WIDE_BYTES / STEP);
        assert_int_equal(pages_of(lane), pages);
        assert_int_equal(lane->is_fresh, steps < UM_WIDE_BYTES / STEP);
        world_settle(&w);
        send_long(&w, LONG, n);
        take_long(&w, LONG, n);
    }
    world_close(&w);
}

static void where_messages_lie_in_cells_the_ring_gets_no_memory(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[LONG], got[LONG];
    const struct um_mem_lane *lane = open_widened(&w);
    for (int i = 0; i < 100; i++) { /* later ones are sent to compare stores */
        world_settle(&w);           /* each message is alone */
        inject_buf(&w, i % 2, 1 - i % 2, body, LONG, 1, UM_OP_TAGGED);
        recv_buf(&w, 1 - i % 2, NULL, got, LONG, 1, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 1 - i % 2, CTX(1)).error, 0);
    }
    assert_int_equal(pages_of(lane), 0);
    world_close(&w);
}

/* Short bodies touch their own pages; the first long one behind them, what lies from there on. */
static void bodies_of_all_lengths_arrive_while_the_ring_gets_its_memory(void **state)
{
    static const uint32_t lens[] = {LONG, 300, 2048, 1000, 2047, 5000, 16000, 100};
    enum { LENS = sizeof(lens) / sizeof(lens[0]), BURST = 300 /* nearly fill the ring */, UNREAD = 100 };
    (void)state;
    for (uint32_t shorts = UNREAD; shorts <= UM_WIDE_BYTES / 1024 * 3 / 2; shorts += 100) {
        struct world w;
        const struct um_mem_lane *lane = open_widened(&w);
        for (uint32_t i = 0; i < shorts; i++) {
            send_long(&w, 1024, BURST + i);
            if (i < shorts - UNREAD)
                take_long(&w, 1024, BURST + i);
        }
        for (int burst = 0; burst < 3; burst++) {
            for (uint32_t i = 0; i < BURST; i++)
                send_long(&w, lens[i % LENS], i);
            for (uint32_t i = shorts - UNREAD; burst == 0 && i < shorts; i++)
                take_long(&w, 1024, BURST + i);
            for (uint32_t i = 0; i < BURST; i++)
                take_long(&w, lens[i % LENS], i);
        }
        assert_false(lane->is_fresh);
        assert_true(pages_of(lane) >= UM_WIDE_BYTES / UM_PAGE - 1); /* no body may have lain at the ring's end */
        world_close(&w);
    }
}

/* A lane may have nothing but short bodies for as long as its counts take to come round again. */
static void nothing_is_touched_after_the_first_round(void **state)
{
    enum { SHORT = 1024, BODIES = 2 * UM_WIDE_BYTES / SHORT };
    (void)state;
    struct world w;
    const struct um_mem_lane *lane = open_widened(&w);
    for (uint32_t i = 0; i < BODIES; i++) {
        send_long(&w, SHORT, i);
        take_long(&w, SHORT, i);
    }
    assert_false(lane->is_fresh);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_lane_that_streams_goes_on_in_a_wide_ring),
    cmocka_unit_test(short_bodies_that_come_alone_do_not_widen_a_lane),
    cmocka_unit_test(a_lane_of_acknowledged_messages_goes_on_in_a_wide_ring),
    cmocka_unit_test(a_lane_that_is_too_short_for_a_message_gets_a_wide_ring),
    cmocka_unit_test(no_more_lanes_have_wide_rings_than_the_memory_allows),
    cmocka_unit_test(a_lane_that_ends_gives_its_wide_ring_back),
    cmocka_unit_test(a_wide_ring_that_was_never_told_of_is_given_back),
    cmocka_unit_test(a_lane_whose_wide_ring_cannot_be_mapped_goes_on_without),
    cmocka_unit_test(the_first_long_body_in_a_wide_ring_touches_all_of_it),
    cmocka_unit_test(bodies_that_compare_stores_touch_a_wide_ring_in_steps),
    cmocka_unit_test(where_messages_lie_in_cells_the_ring_gets_no_memory),
    cmocka_unit_test(bodies_of_all_lengths_arrive_while_the_ring_gets_its_memory),
    cmocka_unit_test(nothing_is_touched_after_the_first_round),
};
WORLD_MAIN("wide", tests)
