/*
 * The room of a lane: its credit, as far as the sender knows it, the front of its wide ring, and how long a body may
 * be.
 *
 * A ring is longer than the caches of the two processors, and the front is not (stores.h). While bodies are to lie in
 * the front, a long one that would leave it goes to the begin of the ring, though there is room behind the last one.
 * Its record tells that. What is skipped counts as bytes of the ring until it is consumed. So a sender that is ahead of
 * its receiver goes on behind the front: nothing waits for the front.
 *
 * Owns no struct. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"

#include <unistd.h>

bool um_mem_lane_refresh_credit(struct um_mem_lane *lane)
{
    uint64_t credit = um_load_acquire_u64(&lane->ctl->credit); /* sync: credit-take (partner credit-publish) */
    uint32_t consumed = (uint32_t)credit;
    uint32_t bytes = (uint32_t)(credit >> 32);
    if (lane->head - consumed > UM_BIG_RECORDS + UM_SMALL_RECORDS ||
        lane->bytes_head - bytes > (lane->wide_map.base ? UM_WIDE_BYTES : UM_BIG_BYTES))
        return false;
    lane->consumed = consumed;
    lane->bytes_consumed = bytes;
    return true;
}

uint32_t um_mem_lane_front_bytes(void)
{
    enum { LEAST = 131072, USUAL = 262144, MOST = 524288 };
    long cache = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    const long share = cache > 0 ? cache / 4 : USUAL;
    return share < LEAST ? LEAST : share > MOST ? MOST : (uint32_t)share;
}

bool um_mem_lane_is_to_go_front(struct um_mem_lane *lane, uint32_t start, uint32_t bytes)
{
    const uint32_t offset = start & (lane->ring.byte_count - 1), least = lane->stores.front_bytes / 2;
    if (lane->is_fresh || offset == 0 || offset + bytes <= lane->stores.front_bytes)
        return false;
    const uint32_t front = um_mem_ring_next_round(&lane->ring, start), room = bytes > least ? bytes : least;
    return um_mem_lane_body_fits(lane, front, room) ||
           (um_mem_lane_refresh_credit(lane) && um_mem_lane_body_fits(lane, front, room));
}

void um_mem_lane_claim_in_front(struct um_mem_lane *lane, uint32_t start, struct um_slot *slot)
{
    const uint32_t space = um_mem_body_space(slot->body_len), records = um_mem_lane_promised(lane);
    if (records && !um_mem_lane_begins_promised(lane))
        return;
    const uint32_t bytes = records ? records * um_mem_body_space(lane->promised_len) : space;
    if (!um_mem_lane_is_to_go_front(lane, start, bytes))
        return;
    if (lane->timed)
        um_mem_stores_miss(lane->timed);
    lane->timed = NULL;
    lane->goes_front = true;
    lane->claim_bytes_end = um_mem_ring_next_round(&lane->ring, start) + space;
    slot->body = lane->ring.bytes;
}

uint32_t um_mem_lane_long_max(const struct um_mem_lane *lane, bool goes_on)
{
    enum { RECORDS = 32 }; /* without a body in a cell: so many, and no block has come back, is a stream one way */
    if (um_mem_lane_promised(lane))
        return lane->promised_len;
    const bool takes_long = lane->wide_map.base && !lane->is_fresh && !lane->link->port->mapper->observe;
    const bool is_lone = lane->lone_goes_on || (!goes_on && um_mem_lane_is_alone(lane));
    return takes_long && !is_lone && (lane->exchanges || lane->head - lane->cell_head > RECORDS) ? UM_LONG_BODY : 0;
}
