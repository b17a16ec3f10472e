/*
 * Long bodies of a lane, of UM_NONTEMPORAL_MIN bytes or more: where they go, which stores write them, and how their
 * lines come to the sender before.
 *
 * A lone message goes into a cell (cell.c), if there is a block for it. So do streams in both directions. Every other
 * body goes into the ring, or into the front of a wide one, where that is faster (stores.h). What lone messages take,
 * and what the ring takes, is compared with non-temporal stores into the ring, by a struct of its own each (stores.h):
 * what is best for the one may be worst for the other. The two are not compared at the same time, because the receiver
 * tells what all timed bodies took in one word. Bodies of streams in cells are not compared.
 *
 * Owns no struct. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/clock.h"

/* bytes; a shorter body takes ordinary stores unless it follows another long one of its lane without an empty poll. */
enum { LONE_MIN = 4096 };

/* Takes what the receiver told of the bodies of a trial, once it has taken all of them. */
static void loads_take(struct um_mem_lane *lane, struct um_mem_stores *stores)
{
    const uint64_t credit = um_load_acquire_u64(&lane->ctl->credit); /* sync: loads-take (partner credit-publish) */
    if (lane->head - (uint32_t)credit <= lane->head - stores->awaited)
        um_mem_stores_compare(stores, um_load_relaxed_u64(&lane->ctl->loads));
}

/* Returns the stores that are to write a body of this length. Begins to time it if it is to be timed. A body whose
 * lines in the ring were fetched meanwhile (um_mem_lane_fetch_next) takes ordinary stores. If any of them were, its
 * time says nothing of others. */
static enum um_mem_stores_kind stores_begin(struct um_mem_lane *lane, bool in_cell, uint32_t start, uint32_t body_len)
{
    struct um_mem_stores *stores = in_cell ? &lane->cell_stores : &lane->stores;
    struct um_mem_stores *others = in_cell ? &lane->stores : &lane->cell_stores;
    const uint32_t at = start - lane->fetched_from, ring_bytes = in_cell ? UM_CELL_BYTES : lane->ring.byte_count;
    const bool is_begun = at < lane->fetched_len;
    const bool is_fetched = !in_cell && is_begun && body_len <= lane->fetched_len - at;
    if (is_fetched || (body_len < LONE_MIN && um_mem_lane_is_alone(lane))) {
        um_mem_stores_pass(stores, body_len);
        return UM_STORES_CACHED;
    }
    if (in_cell && um_mem_stores_stay(stores, body_len, ring_bytes)) /* for the ring, the caller has looked */
        return UM_STORES_CACHED;
    if (stores->phase == UM_STORES_AWAIT)
        loads_take(lane, stores);
    const enum um_mem_stores_kind kind = um_mem_stores_begin(stores, body_len, ring_bytes);
    if (stores->phase != UM_STORES_USE && others->phase != UM_STORES_USE)
        um_mem_stores_give_up(others);
    const bool is_elsewhere = in_cell && kind == UM_STORES_CACHED;
    if (stores->is_timed && (is_elsewhere || !is_begun) && others->phase == UM_STORES_USE) {
        lane->timed = stores;
        lane->write_began = um_clock_ticks();
    }
    return kind;
}

void um_mem_lane_long_claim(struct um_mem_lane *lane, struct um_mem_cell *cell, uint32_t start, struct um_slot *slot)
{
    lane->timed = NULL;
    lane->claimed = NULL;
    lane->is_lone = cell || lane->lone_goes_on;
    if (lane->lone_goes_on) { /* the rest of a message is written as its first part was */
        um_mem_stores_pass(&lane->cell_stores, slot->body_len);
        slot->is_nontemporal = lane->lone_bypasses;
    } else {
        slot->is_nontemporal =
            lane->has_choice && stores_begin(lane, cell != NULL, start, slot->body_len) == UM_STORES_NONTEMPORAL;
    }
    if (cell && !slot->is_nontemporal)
        um_mem_cell_claim(lane, cell, slot);
    else if (lane->is_fresh && um_mem_lane_touch(lane, start, slot->body_len))
        lane->write_began = um_clock_ticks();
}

/* Ends the timing of a body that was written. Returns the flags of its record. */
static uint8_t stores_end(struct um_mem_lane *lane, const struct um_slot *slot)
{
    const bool is_in_front = um_mem_stores_want_front(&lane->stores) && !lane->claimed;
    const enum um_mem_stores_kind kind = slot->is_nontemporal ? UM_STORES_NONTEMPORAL
                                         : is_in_front        ? UM_STORES_FRONT
                                                              : UM_STORES_CACHED;
    um_mem_stores_end(lane->timed, kind, um_clock_ticks() - lane->write_began, slot->body_len, lane->head + 1);
    return kind == UM_STORES_CACHED ? UM_FLAG_TIMED : UM_FLAG_TIMED | UM_FLAG_KIND;
}

/*
 * A body of 2 KiB or more waits for its lines, which the receiver read a round ago: two thirds of what half a round
 * trip of 4 KiB takes. A processor fetches them itself, ahead of a sequence of stores, but not beyond a page. So while
 * the sender of a lone message waits for an answer, it writes a byte into each line of the place where the next message
 * of that length will lie: all at once up to FETCH_WHOLE bytes, else FETCH_STEP bytes in each empty poll, as far as
 * FETCH_MAX. Nobody reads there. (A prefetch for writing gains nothing here.) A body whose lines were fetched then
 * takes ordinary stores: up to FETCH_WHOLE bytes they are faster whatever cache the two share. Nothing is fetched for a
 * message that goes into a cell, nor after one: the answer may bring the cell back.
 */
enum { FETCH_WHOLE = 8192, FETCH_STEP = 4096, FETCH_MAX = UM_WIDE_BYTES / 8 };

/* Notes what is to be fetched after this body. */
static void fetch_note(struct um_mem_lane *lane, const struct um_slot *slot)
{
    struct um_mem_port *port = lane->link->port;
    const bool follows = !um_mem_lane_is_alone(lane);
    if (!follows || !lane->long_goes_on) {
        port->long_len = 0;
        port->long_bypasses = false;
        port->long_lane = follows || lane->claimed || port->mapper->observe ? NULL : lane;
    }
    lane->long_polls = port->empty_polls;
    lane->long_goes_on = slot->more;
    if (port->long_lane == lane) {
        port->long_bypasses |= slot->is_nontemporal;
        port->long_len += slot->body_len < FETCH_MAX - port->long_len ? slot->body_len : FETCH_MAX - port->long_len;
        port->long_part = slot->body_len;
    }
}

uint32_t um_mem_lane_long_commit(struct um_mem_lane *lane, const struct um_slot *slot)
{
    fetch_note(lane, slot);
    lane->lone_goes_on = lane->is_lone && slot->more;
    lane->lone_bypasses = slot->is_nontemporal;
    const uint32_t flags = lane->timed ? stores_end(lane, slot) : lane->goes_front ? UM_FLAG_FRONT : 0;
    if (lane->claimed)
        return flags | um_mem_cell_commit(lane, slot);
    const uint32_t low = slot->body_len & ((1 << UM_LEN_BITS) - 1), high = slot->body_len >> UM_LEN_BITS;
    return flags | low << 8 | high << (24 + UM_OP_UPPER_SHIFT);
}

/* A message of more than FETCH_WHOLE bytes is not fetched if it may take non-temporal stores, nor when its next body is
 * timed: what is compared is how long a body takes without this. */
static bool longer_is_not_fetched(const struct um_mem_lane *lane)
{
    const struct um_mem_port *port = lane->link->port;
    return port->long_bypasses || (lane->has_choice && um_mem_stores_next_is_timed(&lane->stores, port->long_part));
}

bool um_mem_lane_fetch_next(struct um_mem_port *port)
{
    struct um_mem_lane *lane = port->long_lane;
    port->long_lane = NULL;
    if (!lane || (um_mem_cell_is_here(lane) && port->long_len < FETCH_MAX) || um_mem_lane_is_ended(lane))
        return false;
    const bool is_whole = port->long_len <= FETCH_WHOLE;
    if (is_whole ? um_mem_stores_are_nontemporal() : longer_is_not_fetched(lane))
        return false;
    uint32_t from = um_mem_body_start(&lane->ring, lane->bytes_head, port->long_part);
    if (um_mem_stores_want_front(&lane->stores) && um_mem_lane_is_to_go_front(lane, from, port->long_len))
        from = um_mem_ring_next_round(&lane->ring, from);
    if (lane->fetched_from != from || lane->fetched_len >= port->long_len) {
        lane->fetched_from = from;
        lane->fetched_len = 0;
    }
    const uint32_t start = from + lane->fetched_len, left = port->long_len - lane->fetched_len;
    const uint32_t len = is_whole || left < FETCH_STEP ? left : FETCH_STEP;
    if (!um_mem_lane_body_fits(lane, start, len))
        return false;
    for (uint32_t at = 0; at < len; at += UM_LINE)
        *(volatile unsigned char *)(lane->ring.bytes + ((start + at) & (lane->ring.byte_count - 1))) = 0;
    lane->fetched_len += len;
    if (len < left)
        port->long_lane = lane;
    return len < left;
}
