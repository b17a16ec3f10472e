/*
 * Rendezvous, both: a body that lies in memory which its receiver can map (machine peer_memory()) is copied once. If
 * the receive's buffer lies in such memory too, the sender copies with it, from the end:
 *
 *   sender                                        receiver
 *   RTS {pieces, shareable}         ──────→       match, choose (choice.h)
 *   a job: parts from the end       ←── COPY ───  claims and copies parts from the front
 *          ╰──────── progress words of the lane ────────╯  until they meet
 *   complete                        ←── answer ── DONE
 *
 * Nobody waits for a side that makes no calls: the other one copies every part that is not claimed. A side writes its
 * claim, fences, and reads the claim of the other one: of two that claim the same part at least one sees it. Then the
 * sender gives way, and the receiver waits until the sender has given way or copied the part.
 *
 * A word says whose body it speaks of (round), so an invitation that the sender reads late does no harm: the round has
 * ended. Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/cpu_wait.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    UM_PART_SHIFT = 15,       /* log2 of the bytes of a part, at least */
    UM_PART_SHIFT_MAX = 17,   /* and at most, unless the body has too many */
    UM_PARTS_GOOD = 32,       /* parts that are enough to share the work evenly */
    UM_PARTS_MAX = 0xffffff,  /* what a word can say */
    UM_BOTH_MIN = 128 * 1024, /* bytes of a body that is worth an invitation */
};

/* How long a receive that fails waits for a sender that has claimed a part of its buffer, ns. */
#define UM_BOTH_PATIENCE INT64_C(5000000000)

/* ---- words: round (bits 48 to 63), parts claimed (24 to 47), parts copied (0 to 23) ---- */

struct claims {
    uint32_t claimed, copied;
};

static uint64_t word_of(uint16_t round, uint32_t claimed, uint32_t copied)
{
    return (uint64_t)round << 48 | (uint64_t)claimed << 24 | copied;
}

/* What a word says of that round, of a body of so many parts, whatever the other process has written there. */
static struct claims word_read(const uint64_t *word, uint16_t round, uint32_t parts)
{
    uint64_t w = um_load_acquire_u64(word); /* sync: part-seen (partner part-copied) */
    struct claims c = {(uint32_t)(w >> 24) & UM_PARTS_MAX, (uint32_t)w & UM_PARTS_MAX};
    if ((uint16_t)(w >> 48) != round || c.claimed > parts || c.copied > c.claimed)
        return (struct claims){0, 0};
    return c;
}

/* ---- bytes ---- */

/* The memory of both sides: pieces of the peer, buffers here. */
struct sides {
    struct um_link *link;
    const struct um_piece *piece;
    uint32_t count;
    struct um_iov_cursor local; /* from the first byte on */
    bool to_peer;
};

/* Copies part of the body. False: some of it cannot be mapped now. */
static bool part_copy(struct sides *sides, uint32_t part, uint8_t shift, uint64_t total)
{
    const uint64_t offset = (uint64_t)part << shift, end = offset + (UINT64_C(1) << shift);
    struct um_iov_cursor local = sides->local;
    uint64_t skip = offset, left = (end < total ? end : total) - offset;
    um_iov_skip(&local, (size_t)offset);
    for (uint32_t i = 0; i < sides->count && left > 0; i++) {
        struct um_piece p = sides->piece[i];
        for (; skip < p.len && left > 0;) {
            size_t len = (size_t)(p.len - skip < left ? p.len - skip : left);
            void *there = sides->link->machine->peer_memory(sides->link, p.addr + skip, &len);
            if (!there)
                return false;
            if (sides->to_peer)
                um_iov_gather(&local, there, len);
            else
                um_iov_scatter(&local, there, len);
            skip += len;
            left -= len;
        }
        skip -= p.len;
    }
    return true;
}

static bool can_map(struct um_link *link, const struct um_piece *piece, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t at = 0; at < piece[i].len;) {
            size_t len = (size_t)(piece[i].len - at);
            if (!link->machine->peer_memory(link, piece[i].addr + at, &len))
                return false;
            at += len;
        }
    }
    return true;
}

bool um_proto_is_shareable(const struct um_core_peer *peer, const struct iovec *iov, size_t count)
{
    const struct um_machine *machine = peer->link->machine;
    struct um_space *space = um_core_peer_space(peer);
    if (!machine->is_shareable || !space || peer->ep->config.mapped == UM_MAPPED_NEVER)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (iov[i].iov_len && !machine->is_shareable(space, iov[i].iov_base, iov[i].iov_len))
            return false;
    }
    return true;
}

/* ---- the receiver ---- */

static uint32_t parts_of(uint64_t len, uint8_t shift)
{
    return (uint32_t)((len + (UINT64_C(1) << shift) - 1) >> shift);
}

static uint8_t shift_of(uint64_t len)
{
    uint8_t shift = UM_PART_SHIFT;
    while ((shift < UM_PART_SHIFT_MAX && len >> shift > UM_PARTS_GOOD) || len >> shift >= UM_PARTS_MAX)
        shift++;
    return shift;
}

static struct um_progress_words *words_of(const struct um_proto_inbound *in)
{
    return in->peer->rx->machine->rx_progress(in->peer->rx) + in->both.words;
}

/* A pair of words that no body of the peer uses; -1: none. */
static int words_take(struct um_core_peer *peer)
{
    struct um_proto_peer *own = um_proto_peer_of(peer);
    for (int i = 0; i < UM_PROGRESS_WORDS; i++) {
        if (!(own->words_used & 1u << i)) {
            own->words_used |= (uint8_t)(1u << i);
            own->round += own->round == UINT16_MAX ? 2 : 1; /* never 0: what a word says at first */
            return i;
        }
    }
    return -1;
}

static void words_drop(struct um_core_peer *peer, int words)
{
    um_proto_peer_of(peer)->words_used &= (uint8_t)~(1u << words);
}

/* The lane by which the sender is invited. */
static struct um_lane *lane_back(struct um_core_peer *peer)
{
    struct um_lane *lane;
    return !peer->lost && um_core_peer_lane(peer, &lane) == 0 ? lane : NULL;
}

/* Sends the invitation, unless there is no place for it now. */
static bool invite(struct um_proto_inbound *in, struct um_lane *lane, const struct iovec *iov, uint32_t count)
{
    struct um_slot slot;
    if (lane->machine->claim(lane, count > 1 ? count * (uint32_t)sizeof(struct um_piece) : 0, &slot) != 0)
        return false;
    struct um_proto_copy_wire *header = slot.header;
    *header = (struct um_proto_copy_wire){.token = in->token,
                                          .round = in->both.round,
                                          .words = (uint8_t)in->both.words,
                                          .shift = in->both.shift,
                                          .count = (uint16_t)count};
    um_proto_rndv_describe(iov, count, &header->piece, slot.body);
    lane->machine->commit(lane, &slot, UM_WIRE_COPY, 0, 0);
    return true;
}

/* Lets the sender copy as well, if it can reach the buffer. */
static void both_begin(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_core_peer *peer = in->peer;
    struct iovec iov[UM_IOV_LIMIT];
    struct um_iov_cursor cursor = in->dest.cursor;
    struct um_lane *lane;
    in->both.words = -1;
    if (in->arrival.len < UM_BOTH_MIN || !peer->rx || !peer->rx->machine->rx_progress)
        return;
    const uint32_t count = (uint32_t)um_iov_take(&cursor, (size_t)in->arrival.len, iov, UM_IOV_LIMIT);
    if (!um_proto_is_shareable(peer, iov, count) || !(lane = lane_back(peer)))
        return;
    const int words = words_take(peer);
    if (words < 0)
        return;
    in->both.words = (int8_t)words;
    in->both.round = um_proto_peer_of(peer)->round;
    um_store_release_u64(&words_of(in)->receiver, word_of(in->both.round, 0, 0)); /* sync: round-begin (partner round-seen) */
    if (invite(in, lane, iov, count)) {
        ep->soon++;
        return;
    }
    words_drop(peer, words);
    in->both.words = -1;
}

bool um_proto_both_take(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    const struct um_machine *machine = in->peer->link->machine;
    if (!in->shareable || in->dest.len < in->arrival.len || in->arrival.len == 0 || !machine->peer_memory)
        return false;
    in->shareable = can_map(in->peer->link, in->piece, in->count);
    if (!in->shareable)
        return false;
    if (!um_proto_ask_prefers_both(ep, in))
        return false;
    in->both.shift = shift_of(in->arrival.len);
    in->both.parts = parts_of(in->arrival.len, in->both.shift);
    in->both.began_at = um_clock_ns();
    both_begin(ep, in);
    return true;
}

enum turn { TURN_COPY, TURN_WAIT, TURN_OVER };

/* Claims the next part, or looks how the claim stands. */
static enum turn turn_take(struct um_proto_inbound *in)
{
    struct um_proto_both *b = &in->both;
    if (b->words < 0) {
        b->claimed = b->copied + 1;
        return b->copied < b->parts ? TURN_COPY : TURN_OVER;
    }
    struct um_progress_words *w = words_of(in);
    struct claims sender = word_read(&w->sender, b->round, b->parts);
    if (b->copied + sender.copied >= b->parts)
        return TURN_OVER;
    if (b->claimed == b->copied) {
        if (b->copied + sender.claimed >= b->parts)
            return TURN_WAIT;
        b->claimed++;
        um_store_release_u64(&w->receiver, word_of(b->round, b->claimed, b->copied)); /* sync: part-claim (partner part-claim) */
        um_fence_full(); /* sync: part-claim (partner part-claim) */
        sender = word_read(&w->sender, b->round, b->parts);
    }
    return b->claimed + sender.claimed <= b->parts ? TURN_COPY : TURN_WAIT;
}

bool um_proto_both_step(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_both *b = &in->both;
    struct sides sides = {in->peer->link, in->piece, in->count, in->dest.cursor, false};
    enum turn turn = turn_take(in);
    if (turn == TURN_COPY && part_copy(&sides, b->claimed - 1, b->shift, in->arrival.len)) {
        b->copied = b->claimed;
        in->moved++;
        if (b->copied == b->parts)
            turn = TURN_OVER;
    }
    if (turn != TURN_OVER)
        return true;
    ep->stats.joint += b->copied < b->parts;
    in->moved = in->arrival.len;
    um_proto_inbound_finish(ep, in, 0);
    return false;
}

/* The sender may be copying into the buffer: claims all, and waits until it has seen that. */
static void sender_stop(struct um_proto_inbound *in)
{
    struct um_proto_both *b = &in->both;
    struct um_progress_words *w = words_of(in);
    const uint64_t began = um_clock_ns();
    um_store_release_u64(&w->receiver, word_of(b->round, b->parts, b->parts)); /* sync: part-claim (partner part-claim) */
    um_fence_full(); /* sync: part-claim (partner part-claim) */
    for (;;) {
        const struct claims sender = word_read(&w->sender, b->round, b->parts);
        if (sender.claimed == sender.copied || !in->peer->link->machine->link_alive(in->peer->link) ||
            (int64_t)(um_clock_ns() - began) > UM_BOTH_PATIENCE)
            return;
        sched_yield();
    }
}

void um_proto_both_end(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (in->ask.way != UM_WAY_BOTH || in->both.words < 0)
        return;
    if (in->peer->rx && in->moved != in->arrival.len)
        sender_stop(in);
    words_drop(in->peer, in->both.words);
    in->both.words = -1;
    ep->soon--;
}

/* ---- the sender ---- */

/* Of an operation whose receiver has invited this side. */
struct helping {
    uint16_t round;
    uint8_t words, shift;
    uint32_t copied, parts, count;
    struct um_piece piece[]; /* count */
};

static void help_end(struct um_core_op *op)
{
    um_list_unlink(&op->job.link);
    free(op->copy);
    op->copy = NULL;
}

static bool help_step(struct um_core_ep *ep, struct um_core_job *job)
{
    struct um_core_op *op = UM_CONTAINER(job, struct um_core_op, job);
    struct helping *h = op->copy;
    struct um_core_peer *peer = op->peer;
    struct um_progress_words *w = peer->lane->machine->lane_progress(peer->lane) + h->words;
    struct sides sides = {peer->link, h->piece, h->count, um_iov_begin(op->buffers.iov, op->buffers.count), true};
    (void)ep;
    um_store_release_u64(&w->sender, word_of(h->round, h->copied + 1, h->copied)); /* sync: part-claim (partner part-claim) */
    um_fence_full(); /* sync: part-claim (partner part-claim) */
    uint64_t receiver = um_load_acquire_u64(&w->receiver); /* sync: round-seen (partner round-begin) */
    const uint32_t claimed = (uint32_t)(receiver >> 24) & UM_PARTS_MAX;
    const bool mine = (uint16_t)(receiver >> 48) == h->round && claimed < h->parts - h->copied;
    if (mine && part_copy(&sides, h->parts - 1 - h->copied, h->shift, op->len))
        h->copied++;
    else
        job = NULL;
    um_store_release_u64(&w->sender, word_of(h->round, h->copied, h->copied)); /* sync: part-copied (partner part-seen) */
    if (!job)
        help_end(op);
    return job != NULL;
}

/* The invitation may be late: then the token is another operation's, or nobody's. */
static bool is_welcome(const struct um_core_peer *peer, struct um_core_op *op, const struct um_piece *piece,
                       uint32_t count)
{
    uint64_t sum = 0;
    if (!op || op->class != &um_proto_rndv_body || op->moved || op->copy || !um_list_is_empty(&op->job.link) ||
        !peer->lane->machine->lane_progress || !peer->link->machine->peer_memory ||
        !um_proto_is_shareable(peer, op->buffers.iov, op->buffers.count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (piece[i].len > op->len - sum)
            return false;
        sum += piece[i].len;
    }
    return sum == op->len && can_map(peer->link, piece, count);
}

int um_proto_rndv_copy(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_copy_wire *header = rec->header;
    const uint32_t count = header->count;
    if (count == 0 || count > UM_IOV_LIMIT || header->words >= UM_PROGRESS_WORDS || header->shift < 12 ||
        header->shift > 40 || (count > 1 && (!rec->body || rec->len != count * sizeof(struct um_piece))))
        return -EPROTO;
    const struct um_piece *piece = count > 1 ? rec->body : &header->piece;
    struct um_core_op *op = peer->lost || !peer->lane ? NULL : um_core_peer_op(peer, header->token);
    if (!is_welcome(peer, op, piece, count) || op->len >> header->shift >= UM_PARTS_MAX)
        return 0;
    struct helping *h = malloc(sizeof(*h) + count * sizeof(*piece));
    if (!h)
        return 0;
    *h = (struct helping){header->round, header->words, header->shift, 0, parts_of(op->len, header->shift), count};
    memcpy(h->piece, piece, count * sizeof(*piece));
    op->copy = h;
    op->job.step = help_step;
    um_core_job_start(ep, &op->job);
    return 0;
}
