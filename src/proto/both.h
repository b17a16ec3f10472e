/*
 * What the two sides of a body that both copy have in common (rndv_both.c has the diagram): the progress words by which
 * they claim parts, and the copying of a part. Threading: core.h.
 */
#ifndef UM_PROTO_BOTH_H
#define UM_PROTO_BOTH_H

#include "base/atomic.h"
#include "base/iov.h"
#include "core/copying.h"
#include "machine/machine.h"

enum { UM_PARTS_MAX = 0xffffff /* the most parts that a word can count */ };

/* What a progress word says: how many parts a side has claimed, and how many of these it has copied. */
struct um_proto_claims {
    uint32_t claimed, copied;
};

/* round (bits 48 to 63), claimed (24 to 47), copied (0 to 23) */
static inline uint64_t um_proto_claims_word(uint16_t round, uint32_t claimed, uint32_t copied)
{
    return (uint64_t)round << 48 | (uint64_t)claimed << 24 | copied;
}

/* Reads a word of a body of that round with so many parts. The other process may have written anything: a word of
 * another round, or an impossible one, counts as 0 and 0. */
static inline struct um_proto_claims um_proto_claims_read(const uint64_t *word, uint16_t round, uint32_t parts)
{
    uint64_t w = um_load_acquire_u64(word); /* sync: part-seen (partner part-copied) */
    struct um_proto_claims c = {(uint32_t)(w >> 24) & UM_PARTS_MAX, (uint32_t)w & UM_PARTS_MAX};
    if ((uint16_t)(w >> 48) != round || c.claimed > parts || c.copied > c.claimed)
        return (struct um_proto_claims){0, 0};
    return c;
}

static inline uint32_t um_proto_parts_of(uint64_t len, uint8_t shift)
{
    return (uint32_t)((len + (UINT64_C(1) << shift) - 1) >> shift);
}

/* The memory of both sides: pieces of the peer, buffers here. */
struct um_proto_sides {
    struct um_link *link;
    const struct um_piece *piece;
    uint32_t count;
    struct um_iov_cursor local;      /* from the first byte on */
    struct um_core_copying *copying; /* the transfer of a part that has not ended yet */
    bool to_peer;
    bool is_mapped; /* the peer's memory is mapped here; else transfers reach it */
};

/* Moves a part of the body, or continues its transfer. Results as transfer_start() and transfer_poll(); -EPERM also:
 * some of the part cannot be mapped now. */
int um_proto_part_move(const struct um_proto_sides *sides, uint32_t part, uint8_t shift, uint64_t total);
/* Cuts len bytes, from an offset on, out of a body of count pieces. Returns how many pieces that are (at most count),
 * described in cut. */
uint32_t um_proto_pieces_cut(const struct um_piece *piece, uint32_t count, uint64_t offset, uint64_t len,
                             struct um_piece *cut);
/* Can all of the pieces be mapped here? */
bool um_proto_can_map(struct um_link *link, const struct um_piece *piece, uint32_t count);

#endif
