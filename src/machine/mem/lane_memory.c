/*
 * What a lane may take of its receiver's memory besides its small rings: a share for its big ones, a wide ring.
 *
 * Owns nothing. The receiver gives back what a lane has taken when it frees the lane (rx_life.c), also after its sender
 * died. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/cancel.h"

#include <errno.h>

/*
 * Takes a share of the memory that grown lanes may take together: sets this lane's bit, and clears it again if too many
 * are set then. If the sender dies in between, the receiver knows whose bit it is.
 */
bool um_mem_lane_take_share(struct um_mem_lane *lane)
{
    struct um_mem_common_shm *peer = lane->link->common;
    uint64_t *word = &peer->grown[lane->number / 64], bit = (uint64_t)1 << lane->number % 64;
    uint64_t grown = 0;
    um_rmw_or_u64(word, bit); /* sync: grown-take (partner grown-give) */
    um_fence_full();          /* set before the count: if two take the last share at once, one of them counts both */
    for (uint32_t w = 0; w < (lane->link->lanes + 63) / 64; w++)
        grown += (uint64_t)__builtin_popcountll(um_load_relaxed_u64(&peer->grown[w]));
    if (grown <= um_load_relaxed_u64(&lane->peer->grown_max))
        return true;
    um_rmw_and_u64(word, ~bit);
    return false;
}

/* Claims a free wide ring for this lane; *ring_p: its number. -ENOSPC: all are taken. */
static int wide_claim(struct um_mem_lane *lane, uint32_t *ring_p)
{
    uint32_t *wide = lane->link->common->wide;
    const uint32_t told = um_load_relaxed_u32(&lane->peer->wide_max);
    const uint32_t most = told < UM_WIDE_RINGS ? told : UM_WIDE_RINGS;
    for (uint32_t i = 0; i < most; i++) {
        /* sync: wide-take (partner wide-give) */
        if (um_load_relaxed_u32(&wide[i]) == 0 && um_rmw_cas_u32(&wide[i], 0, lane->number + 1)) {
            *ring_p = i;
            return 0;
        }
    }
    return -ENOSPC;
}

static void wide_release(const struct um_mem_lane *lane, uint32_t ring)
{
    um_store_relaxed_u32(&lane->link->common->wide[ring], 0); /* nothing was written to it */
}

/* Maps the ring. The peer's file is looked up again for that, so it may be another one by now. A port stores that it is
 * closed before that can happen: the state is checked after the mapping. */
static int wide_map(struct um_mem_lane *lane, uint32_t ring, struct um_mem_mapping *map_p)
{
    struct um_mem_link *link = lane->link;
    int ret = link->port->mapper->attach(link->port, &link->addr, um_mem_port_wide_offset(link->lanes, ring),
                                         UM_WIDE_SPACE, map_p);
    if (ret)
        return ret;
    um_mem_page_observe(link->port, lane->peer);
    /* sync: port-seen (partner port-ready) */
    if (um_load_acquire_u32(&lane->peer->state) == UM_PORT_OPEN && um_mem_link_alive(&link->base))
        return 0;
    link->port->mapper->detach(map_p);
    return -ECONNREFUSED;
}

int um_mem_lane_take_wide(struct um_mem_lane *lane, uint32_t *ring_p)
{
    UM_UNCANCELLED;
    struct um_mem_mapping map;
    uint32_t ring;
    int ret = wide_claim(lane, &ring);
    if (ret)
        return ret;
    ret = wide_map(lane, ring, &map);
    if (ret) {
        wide_release(lane, ring);
        return ret;
    }
    lane->wide_map = map;
    *ring_p = ring;
    return 0;
}

/* ---- the memory of a wide ring ---- */

/* bytes that are touched at once for a lone body */
enum { TOUCH_STEP = 262144 };

void um_mem_lane_touch_begin(struct um_mem_lane *lane)
{
    lane->is_fresh = !lane->link->port->mapper->observe; /* else what is stored here might be published later */
    lane->touched_to = lane->bytes_head;
    lane->fresh_to = lane->bytes_head + UM_WIDE_BYTES;
}

void um_mem_lane_touch_end(struct um_mem_lane *lane)
{
    if (lane->bytes_head - (lane->fresh_to - UM_WIDE_BYTES) >= UM_WIDE_BYTES)
        lane->is_fresh = false;
}

/* Returns whether count a comes after count b. */
static bool is_after(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

bool um_mem_lane_touch(struct um_mem_lane *lane, uint32_t start, uint32_t body_len)
{
    const uint32_t end = start + body_len;
    if (!is_after(end, lane->touched_to))
        return false;
    const uint32_t from = is_after(start, lane->touched_to) ? start : lane->touched_to;
    uint32_t to = lane->is_lone ? from + TOUCH_STEP : lane->fresh_to;
    to = is_after(to, lane->fresh_to) ? lane->fresh_to : to;
    for (uint32_t at = from; is_after(to, at); at = (at | (UM_PAGE - 1)) + 1)
        *(volatile unsigned char *)(lane->ring.bytes + (at & (UM_WIDE_BYTES - 1))) = 0;
    lane->touched_to = to;
    lane->is_fresh = to != lane->fresh_to;
    return true;
}
