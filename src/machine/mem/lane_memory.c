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

/* Touches each page of the ring, in which there is nothing yet. Otherwise the first bodies to go there would, and would
 * seem to take long when ways to move a body are compared. */
static void wide_touch(const struct um_mem_mapping *map)
{
    for (uint32_t at = 0; at < UM_WIDE_SPACE; at += UM_PAGE)
        *((volatile unsigned char *)map->base + at) = 0;
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
    if (!lane->link->port->mapper->observe) /* else these stores might be published later */
        wide_touch(&map);
    lane->wide_map = map;
    *ring_p = ring;
    return 0;
}
