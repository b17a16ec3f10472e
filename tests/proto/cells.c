/* cells.h. */
#include "cells.h"

#define CTX(n) ((void *)(uintptr_t)(n))

unsigned char from[MOST], to[MOST];

struct um_mem_lane *lane_of(struct world *w, int node)
{
    return mem_lane(peer_of(w, node, 1 - node));
}

struct um_mem_rx *rx_of(struct world *w, int node)
{
    return (struct um_mem_rx *)peer_of(w, node, 1 - node)->rx;
}

void use(struct um_mem_stores *stores, enum um_mem_stores_kind kind, uint32_t round)
{
    stores->in_use = (uint8_t)kind;
    stores->bytes_left = UINT64_MAX;
    stores->ring_bytes = round;
    stores->phase = UM_STORES_USE;
    stores->compared = UINT32_MAX;
}

void widen(struct world *w)
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

void open_wide(struct world *w)
{
    world_open(w, 2);
    widen(w);
}

uint64_t word_of_last(struct world *w, int node)
{
    const struct um_mem_lane *lane = lane_of(w, node);
    return lane->ring.records[(lane->head - 1) & (lane->ring.record_count - 1)].word;
}

enum place place_of_last(struct world *w, int node)
{
    const uint64_t word = word_of_last(w, node);
    return !(word >> 40 & UM_FLAG_MACHINE) || !(word >> 48 & UM_LEN_CELL) ? RING
           : word >> 48 & UM_LEN_OTHER                                    ? OTHER_CELL
                                                                          : OWN_CELL;
}

uint32_t block_of_last(struct world *w, int node)
{
    assert_int_not_equal(place_of_last(w, node), RING);
    return (uint8_t)(word_of_last(w, node) >> 32) >> UM_OP_UPPER_SHIFT;
}

enum place send_now(struct world *w, int node, uint32_t len, uint32_t tag)
{
    fill(from, len, tag);
    inject_buf(w, node, 1 - node, from, len, tag, UM_OP_TAGGED);
    return place_of_last(w, node);
}

enum place send_alone(struct world *w, int node, uint32_t len, uint32_t tag)
{
    world_settle(w);
    return send_now(w, node, len, tag);
}

void take(struct world *w, int node, uint32_t len, uint32_t tag)
{
    memset(to, 0x5b, len);
    recv_buf(w, node, NULL, to, len, tag, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(w, node, CTX(1)).error, 0);
    assert_true(is_filled(to, len, tag));
}
