/*
 * Cells: memory in which two peers send long bodies back and forth.
 *
 * A processor that stores into a line waits for it. It waits longest for a line that it wrote itself and that another
 * one has read since, and least for a line that it has just read. So who answers a long message does best to write the
 * answer into the very lines in which the message came. Behind each wide ring lies a cell for that, of eight blocks.
 * One of the two peers has a block: at first the lane's sender, who writes a message into it; with its last record, or
 * when it is full, the block passes to the receiver, who may send a message to that peer in it later, and so passes it
 * back. So two peers share the blocks of two cells, one for each of their lanes. A message for which there is none goes
 * into the ring. So does a stream, unless there is one in the other direction as well.
 *
 * A cell lies in the memory of the lane's receiver. When a lane closes, there may be messages in its cell that are
 * still to come: the link keeps the mapping then.
 *
 * Owns: which side has a block. Only a record passes it. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"

static_assert((int)UM_BIG_BODY == (int)UM_LEN_MASK + 1, "a cell takes the bodies that a ring takes");
static_assert((int)UM_OPCODE_MAX <= (int)UM_OP_MASK && (UM_OP_MASK + 1) * UM_CELL_BLOCKS == 256,
              "a record's op names its block, too");
static_assert((UM_LEN_MASK + 1) * UM_CELL_WORD >= UM_BLOCK_BYTES && (int)UM_LONG_BODY <= (int)UM_BLOCK_BYTES,
              "a block takes a long body");
static_assert(UM_BLOCK_BYTES % UM_BODY_ALIGN == 0 && UM_BLOCK_BYTES >= UM_BIG_BODY, "a block takes any body");

/* ---- where cells are ---- */

/* Memory that is not coherent has no cells. */
static unsigned char *cell_behind(const struct um_mem_port *port, const struct um_mem_ring *wide)
{
    return port->mapper->observe ? NULL : wide->bytes + UM_WIDE_BYTES + UM_CELL_OFFSET;
}

/* Long bodies go both ways. A user who wants non-temporal stores wants no streams in cells. */
static void exchange(struct um_mem_lane *lane)
{
    lane->exchanges = !um_mem_stores_are_nontemporal();
}

void um_mem_lane_cell_begin(struct um_mem_lane *lane)
{
    lane->cell.at = cell_behind(lane->link->port, &lane->ring);
    lane->cell.here = lane->cell.at ? UINT8_MAX : 0;
    if (lane->link->rx && lane->link->rx->cell.at)
        exchange(lane);
}

void um_mem_rx_cell_begin(struct um_mem_rx *rx)
{
    rx->cell.at = cell_behind(rx->port, &rx->ring);
}

void um_mem_link_joined(struct um_link *base, struct um_rx *rx_base)
{
    struct um_mem_link *link = (struct um_mem_link *)base;
    struct um_mem_rx *rx = (struct um_mem_rx *)rx_base;
    if (link->rx)
        um_mem_rx_cell_end(link->rx);
    link->rx = rx;
    rx->link = link;
}

/* Has the peer given the memory of the lane's cell back, because it takes this process for dead? */
static bool is_given_back(const struct um_mem_lane *lane)
{
    /* sync: none (it tells no more than that; a peer that takes a living process for dead may do so at any time) */
    return um_load_relaxed_u32(&lane->ctl->state) >> UM_LANE_INC_SHIFT != lane->incarnation;
}

/* Will it do so, once the lane is closed? A port that has closed does not. */
static bool is_to_be_given_back(const struct um_mem_lane *lane)
{
    return um_load_relaxed_u32(&lane->ctl->state) & UM_LANE_REFUSED;
}

void um_mem_lane_cell_end(struct um_mem_lane *lane)
{
    struct um_mem_link *link = lane->link;
    if (link->lane != lane)
        return;
    link->lane = NULL;
    if (link->rx && link->rx->reads == &lane->cell)
        link->rx->reads = &link->kept;
    if (!lane->cell.at || lane->cell.here == UINT8_MAX || link->kept_map.base)
        return;
    link->kept_map = lane->wide_map; /* in any case, for a record that is on offer now */
    lane->wide_map.base = NULL;
    link->kept = lane->cell;
    if (is_given_back(lane) || is_to_be_given_back(lane))
        link->kept.at = NULL;
}

void um_mem_rx_cell_end(struct um_mem_rx *rx)
{
    struct um_mem_link *link = rx->link;
    if (!link)
        return;
    if (link->lane && link->lane->writes == &rx->cell)
        link->lane->writes = NULL;
    if (rx->reads != &rx->cell)
        rx->reads = NULL;
    link->rx = NULL;
    rx->link = NULL;
}

void um_mem_link_cell_end(struct um_mem_link *link)
{
    if (link->rx)
        um_mem_rx_cell_end(link->rx);
    if (link->kept_map.base)
        link->port->mapper->detach(&link->kept_map);
}

/* ---- the sender ---- */

struct um_mem_cell *um_mem_cell_pick(struct um_mem_lane *lane)
{
    struct um_mem_rx *rx = lane->link->rx;
    struct um_mem_cell *own = &lane->cell, *theirs = rx ? &rx->cell : own;
    struct um_mem_cell *first = lane->cell_came_last ? own : theirs, *second = first == own ? theirs : own;
    struct um_mem_cell *cell = first->here ? first : second;
    if (!cell->here) {
        lane->exchanges = false;
        return NULL;
    }
    lane->block = cell->here >> cell->last & 1 ? cell->last : (uint8_t)__builtin_ctz(cell->here);
    return cell;
}

/* Returns the bytes in use of the block that is being written; 0: a new one begins. */
static uint32_t used_of(const struct um_mem_lane *lane)
{
    return lane->writes ? lane->cell_used : 0;
}

bool um_mem_cell_takes_long(const struct um_mem_lane *lane, uint32_t body_len)
{
    return lane->exchanges && body_len % UM_CELL_WORD == 0 && used_of(lane) + body_len <= UM_BLOCK_BYTES;
}

void um_mem_cell_claim(struct um_mem_lane *lane, struct um_mem_cell *cell, struct um_slot *slot)
{
    lane->claimed = cell;
    lane->claim_bytes_end = lane->bytes_head;
    slot->body = cell->at + lane->block * (size_t)UM_BLOCK_BYTES + used_of(lane);
}

uint32_t um_mem_cell_commit(struct um_mem_lane *lane, const struct um_slot *slot)
{
    uint32_t flags = 0;
    struct um_mem_cell *cell = lane->claimed;
    const bool is_long = slot->body_len > lane->ring.body_max;
    const uint32_t next_len = is_long ? slot->body_len : lane->ring.body_max;
    lane->cell_used = used_of(lane) + um_mem_body_space(slot->body_len);
    lane->writes = cell;
    lane->cell_head = lane->head;
    if (!slot->more || UM_BLOCK_BYTES - lane->cell_used < next_len) {
        flags = UM_FLAG_PASS;
        cell->here &= (uint8_t) ~(1 << lane->block);
        lane->writes = NULL;
    }
    const uint32_t length = is_long ? slot->body_len / UM_CELL_WORD : slot->body_len;
    const uint32_t len = UM_LEN_CELL | (cell == &lane->cell ? 0 : UM_LEN_OTHER) | (length - 1);
    const uint32_t op = (uint32_t)lane->block << UM_OP_UPPER_SHIFT | (is_long ? UM_OP_WORDS : 0);
    return flags | len << 8 | op << 24;
}

/* ---- the receiver ---- */

/* Returns the cell that a record names, or NULL. */
static struct um_mem_cell *cell_of(struct um_mem_rx *rx, uint32_t len)
{
    if (!(len & UM_LEN_OTHER))
        return &rx->cell;
    if (!rx->link)
        return NULL;
    return rx->link->lane ? &rx->link->lane->cell : &rx->link->kept;
}

/* Returns the bytes of the body that a record names. */
static uint32_t len_of(uint8_t op, uint32_t len)
{
    return ((len & UM_LEN_MASK) + 1) * (op & UM_OP_WORDS ? UM_CELL_WORD : 1);
}

/* Returns where the next body in that block begins. */
static uint32_t body_at(const struct um_mem_rx *rx)
{
    if (!rx->reads)
        return 0;
    return rx->cell_record == rx->head ? rx->cell_at : rx->cell_at + um_mem_body_space(rx->cell_len);
}

bool um_mem_cell_is_good(struct um_mem_rx *rx, uint8_t op, uint32_t len)
{
    const struct um_mem_cell *cell = cell_of(rx, len);
    const uint8_t block = op >> UM_OP_UPPER_SHIFT;
    if (!cell || !cell->at || cell->here >> block & 1 || (rx->reads && (rx->reads != cell || rx->block != block)))
        return false;
    if (cell != &rx->cell && rx->link->lane && is_given_back(rx->link->lane))
        return false;
    return len_of(op, len) <= UM_LONG_BODY && body_at(rx) + len_of(op, len) <= UM_BLOCK_BYTES;
}

const void *um_mem_cell_offer(struct um_mem_rx *rx, uint8_t op, uint32_t *len_p)
{
    const uint32_t at = body_at(rx);
    rx->reads = cell_of(rx, *len_p);
    rx->block = op >> UM_OP_UPPER_SHIFT;
    rx->cell_at = at;
    rx->cell_len = *len_p = len_of(op, *len_p);
    rx->cell_record = rx->head;
    return rx->reads->at + rx->block * (size_t)UM_BLOCK_BYTES + at;
}

void um_mem_cell_release(struct um_mem_rx *rx, uint8_t flags)
{
    if (!(flags & UM_FLAG_PASS))
        return;
    struct um_mem_cell *cell = rx->reads;
    cell->here |= (uint8_t)(1 << rx->block);
    cell->last = rx->block;
    if (rx->link && rx->link->lane) {
        rx->link->lane->cell_came_last = cell != &rx->cell;
        exchange(rx->link->lane);
    }
    rx->reads = NULL;
}
