/*
 * Rendezvous, both: the receiver copies a body from the front, and the sender, which it invites, from the end. The
 * receiver copies from its mapping of the sender's memory (machine peer_memory()), and the sender into its mapping of
 * the receive's buffer, or both of them by transfers:
 *
 *   sender                                        receiver
 *   RTS {pieces, shareable}         ──────→       match, choose (choice.h)
 *   a job: parts from the end       ←── INVITE ─  claims and copies parts from the front
 *          ╰──────── progress words of the lane ────────╯  until they meet
 *   complete                        ←── answer ── DONE
 *
 * Neither side waits for one that makes no calls: the other side copies every part that is not claimed. Only a side
 * that is stopped while it copies a part holds up the other side, until it goes on or dies: it may still write. A side
 * writes its claim, fences, and reads the claim of the other side: of two that claim the same part at least one sees
 * it. Then the sender yields, and the receiver waits until the sender has yielded or copied the part.
 *
 * A word says which body it belongs to (round), so an invitation that the sender reads late does no harm: its round has
 * ended. This file is the receiver's half; rndv_help.c is the sender's. Owns no state. Threading: core.h.
 */
#include "proto/both.h"
#include "proto/internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <sched.h>

enum {
    UM_PART_SHIFT = 15,       /* log2 of the bytes of a part, at least */
    UM_PART_SHIFT_MAX = 17,   /* at most, unless that makes too many parts */
    UM_PARTS_STEP = 8,        /* parts that one step copies */
    UM_PARTS_GOOD = 16,       /* parts that are enough to share the work evenly */
    UM_PARTS_FEW = 2,         /* the same for a body that is read: each part costs a system call */
    UM_READ_SHIFT_MAX = 18,   /* UM_PART_SHIFT_MAX for a body that is read */
    UM_BOTH_MIN = 128 * 1024, /* bytes; the shortest mapped body that is worth an invitation */
};

/* How long a receiver waits for the sender's last part, ns. */
#define UM_TAIL_NS INT64_C(20000)

/* ---- bytes ---- */

uint32_t um_proto_pieces_cut(const struct um_piece *piece, uint32_t count, uint64_t offset, uint64_t len,
                             struct um_piece *cut)
{
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < count && len > 0; i++) {
        struct um_piece p = piece[i];
        if (offset >= p.len) {
            offset -= p.len;
            continue;
        }
        p.addr += offset;
        p.len -= offset;
        offset = 0;
        p.len = p.len < len ? p.len : len;
        len -= p.len;
        cut[pieces++] = p;
    }
    return pieces;
}

/* Copies pieces with loads and stores. False: a piece cannot be mapped. */
static bool pieces_copy(const struct um_proto_sides *sides, struct um_iov_cursor *local, const struct um_piece *piece,
                        uint32_t count)
{
    const struct um_machine *machine = sides->link->machine;
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t at = 0; at < piece[i].len;) {
            size_t len = (size_t)(piece[i].len - at);
            void *there = machine->peer_memory
                              ? machine->peer_memory(sides->link, piece[i].addr + at, sides->to_peer, &len)
                              : NULL;
            if (!there)
                return false;
            if (sides->to_peer)
                um_iov_gather(local, there, len);
            else
                um_iov_scatter(local, there, len);
            at += len;
        }
    }
    return true;
}

int um_proto_part_move(const struct um_proto_sides *sides, uint32_t part, uint8_t shift, uint64_t total)
{
    const uint64_t offset = (uint64_t)part << shift, whole = UINT64_C(1) << shift;
    const size_t len = (size_t)(total - offset < whole ? total - offset : whole);
    struct um_iov_cursor cursor = sides->local;
    struct um_piece remote[UM_IOV_LIMIT];
    struct iovec local[UM_IOV_LIMIT];
    if (sides->copying->transfer)
        return um_core_copying_poll(sides->copying);
    const uint32_t count = um_proto_pieces_cut(sides->piece, sides->count, offset, len, remote);
    um_iov_skip(&cursor, (size_t)offset);
    if (sides->is_mapped)
        return pieces_copy(sides, &cursor, remote, count) ? 0 : -EPERM;
    const struct um_copy copy = {.write = sides->to_peer,
                                 .remote = remote,
                                 .remote_count = count,
                                 .local = local,
                                 .local_count = um_iov_take(&cursor, len, local, UM_IOV_LIMIT),
                                 .len = len};
    return um_core_copying_start(sides->copying, sides->link, &copy, NULL);
}

bool um_proto_can_map(struct um_link *link, const struct um_piece *piece, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t at = 0; at < piece[i].len;) {
            size_t len = (size_t)(piece[i].len - at);
            if (!link->machine->peer_memory(link, piece[i].addr + at, false, &len))
                return false;
            at += len;
        }
    }
    return true;
}

/* ---- the receiver ---- */

static uint8_t shift_of(uint64_t len, bool is_mapped)
{
    const uint8_t most = is_mapped ? UM_PART_SHIFT_MAX : UM_READ_SHIFT_MAX;
    const uint64_t parts = is_mapped ? UM_PARTS_GOOD : UM_PARTS_FEW;
    uint8_t shift = UM_PART_SHIFT;
    while ((shift < most && len >> shift > parts) || len >> shift >= UM_PARTS_MAX)
        shift++;
    return shift;
}

/*
 * Returns a round that the sender's word does not name. It is never 0, which a word names at first, and not the number
 * that the word still has from an earlier round: a sender that takes no part leaves its word as it is, so the word may
 * name any earlier round.
 */
static uint16_t round_next(struct um_core_peer *peer, const struct um_progress_words *pair)
{
    struct um_proto_peer *own = um_proto_peer_of(peer);
    const uint16_t used =
        (uint16_t)(um_load_acquire_u64(&pair->sender) >> 48); /* sync: part-seen (partner part-copied) */
    do
        own->round++;
    while (own->round == 0 || own->round == used);
    return own->round;
}

static bool words_are_all_used(const struct um_core_peer *peer)
{
    enum { ALL = (1u << UM_PROGRESS_WORDS) - 1 };
    return um_proto_peer_of(peer)->words_used == ALL;
}

/* Takes a pair of words that no body of the peer uses. There must be one. */
static int words_take(struct um_core_peer *peer)
{
    struct um_proto_peer *own = um_proto_peer_of(peer);
    int i = 0;
    while (own->words_used & 1u << i)
        i++;
    own->words_used |= (uint8_t)(1u << i);
    return i;
}

static void words_drop(struct um_core_peer *peer, int words)
{
    um_proto_peer_of(peer)->words_used &= (uint8_t) ~(1u << words);
}

/* Returns the lane by which the sender is invited, or NULL. If it cannot be opened, that is not tried again: other
 * senders need the lanes. */
static struct um_lane *lane_back(struct um_core_peer *peer)
{
    struct um_lane *lane;
    struct um_proto_peer *own = um_proto_peer_of(peer);
    if (peer->lost || own->cannot_invite)
        return NULL;
    own->cannot_invite = um_core_peer_lane(peer, &lane) != 0;
    return own->cannot_invite ? NULL : lane;
}

bool um_proto_both_can_invite(const struct um_core_peer *peer)
{
    return peer->rx && peer->rx->machine->rx_progress && !um_proto_peer_of(peer)->cannot_invite;
}

/* Sends the invitation. False: there is no place for it now. */
static bool invite(struct um_proto_inbound *in, struct um_lane *lane, const struct iovec *iov, uint32_t count)
{
    struct um_slot slot;
    if (lane->machine->claim(lane, count > 1 ? count * (uint32_t)sizeof(struct um_piece) : 0, &slot) != 0)
        return false;
    struct um_proto_invite_wire *header = slot.header;
    *header = (struct um_proto_invite_wire){.token = in->token,
                                            .round = in->both.round,
                                            .words = (uint8_t)in->both.words,
                                            .shift = in->both.shift,
                                            .count = (uint16_t)count,
                                            .shareable = in->way.chosen == UM_WAY_MAPPED};
    um_proto_describe(iov, count, &header->piece, slot.body);
    lane->machine->commit(lane, &slot, UM_WIRE_INVITE, 0, 0);
    return true;
}

/* Invites the sender to copy as well, if that is possible now. */
static void sender_invite(struct um_core_ep *ep, struct um_proto_inbound *in, const struct iovec *iov, uint32_t count)
{
    struct um_core_peer *peer = in->peer;
    struct um_progress_words *pairs =
        peer->rx && peer->rx->machine->rx_progress ? peer->rx->machine->rx_progress(peer->rx) : NULL;
    struct um_lane *lane = pairs ? lane_back(peer) : NULL;
    if (!lane)
        return;
    const int words = words_take(peer);
    in->both.words = (int8_t)words;
    in->both.at = pairs + words;
    in->both.round = round_next(peer, pairs + words);
    um_store_release_u64(&in->both.at->receiver,
                         um_proto_claims_word(in->both.round, 0, 0)); /* sync: round-begin (partner round-seen) */
    if (invite(in, lane, iov, count)) {
        in->both.is_helped = true;
        ep->soon++;
        return;
    }
    words_drop(peer, words);
    in->both.words = -1;
}

bool um_proto_both_can(const struct um_core_ep *ep, struct um_proto_inbound *in)
{
    const struct um_machine *machine = in->peer->link->machine;
    if (in->shareable &&
        (ep->config.mapped == UM_MAPPED_NEVER || in->dest.len < in->arrival.len || in->arrival.len == 0 ||
         !machine->peer_memory || !um_proto_can_map(in->peer->link, in->piece, in->count)))
        in->shareable = false;
    return in->shareable;
}

bool um_proto_both_begin(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct iovec iov[UM_IOV_LIMIT];
    struct um_iov_cursor cursor = in->dest.cursor;
    const uint64_t len = in->arrival.len;
    const bool is_mapped = in->way.chosen == UM_WAY_MAPPED;
    const uint32_t count = (uint32_t)um_iov_take(&cursor, (size_t)len, iov, UM_IOV_LIMIT);
    const bool invites = !is_mapped || (len >= UM_BOTH_MIN && um_core_peer_is_shareable(in->peer, iov, count));
    if (invites && words_are_all_used(in->peer))
        return false;
    in->both.shift = shift_of(len, is_mapped);
    in->both.parts = um_proto_parts_of(len, in->both.shift);
    in->both.began_at = um_clock_ns();
    if (invites)
        sender_invite(ep, in, iov, count);
    return true;
}

enum turn { TURN_COPY, TURN_WAIT, TURN_OVER };

/* Claims the next part, or looks again whether the claimed part is this side's. */
static enum turn turn_take(struct um_proto_inbound *in)
{
    struct um_proto_both *b = &in->both;
    if (b->words < 0) {
        b->claimed = b->copied + 1;
        return b->copied < b->parts ? TURN_COPY : TURN_OVER;
    }
    struct um_progress_words *w = b->at;
    struct um_proto_claims sender = um_proto_claims_read(&w->sender, b->round, b->parts);
    if (b->copied + sender.copied >= b->parts)
        return TURN_OVER;
    if (b->claimed == b->copied) {
        if (b->copied + sender.claimed >= b->parts)
            return TURN_WAIT;
        b->claimed++;
        /* sync: part-claim (partner part-claim) */
        um_store_release_u64(&w->receiver, um_proto_claims_word(b->round, b->claimed, b->copied));
        um_fence_full();
        sender = um_proto_claims_read(&w->sender, b->round, b->parts);
    }
    return b->claimed + sender.claimed <= b->parts ? TURN_COPY : TURN_WAIT;
}

/*
 * The same, but waits for a sender that is at its last part: it mostly ends within a part's time. Otherwise the caller
 * might move other bodies before it comes here again, and the sender could help with none of them.
 */
static enum turn turn_await(struct um_proto_inbound *in)
{
    enum turn turn = turn_take(in);
    if (turn != TURN_WAIT || in->both.has_waited)
        return turn;
    in->both.has_waited = true; /* once: the sender may have been stopped */
    const uint64_t began = um_clock_ns();
    while ((turn = turn_take(in)) == TURN_WAIT && (int64_t)(um_clock_ns() - began) < UM_TAIL_NS)
        um_cpu_relax();
    return turn;
}

/* Claims all parts, so that the sender begins with no other part. */
static void sender_stop(struct um_proto_inbound *in)
{
    struct um_proto_both *b = &in->both;
    /* sync: part-claim (partner part-claim) */
    um_store_release_u64(&b->at->receiver, um_proto_claims_word(b->round, b->parts, b->parts));
    um_fence_full();
}

/* After sender_stop(): has the sender copied its claimed part, or given it back? True also if it is gone. */
static bool sender_is_done(const struct um_proto_inbound *in)
{
    const struct um_proto_both *b = &in->both;
    const struct um_proto_claims sender = um_proto_claims_read(&b->at->sender, b->round, b->parts);
    return sender.claimed == sender.copied || !in->peer->link->machine->link_alive(in->peer->link);
}

/*
 * Stops the sender and waits until its part is done, if the body has to end in this call. A body that fails by itself
 * has done so before (both_fail()). One time bounds the wait for all bodies that end together, because each of their
 * senders may have written words that keep it waiting.
 */
static void sender_await(struct um_proto_inbound *in)
{
    const uint64_t until = um_proto_peer_of(in->peer)->await_until;
    sender_stop(in);
    while (until && !sender_is_done(in)) {
        if ((int64_t)(um_clock_ns() - until) > 0) {
            um_log(UM_LOG_WARN, "the sender of a message has stopped while it copied the body; it may still write into "
                                "the receive's buffer when it goes on");
            return;
        }
        sched_yield();
    }
}

void um_proto_both_end(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (in->both.words < 0)
        return;
    if (in->peer->link && in->moved != in->arrival.len)
        sender_await(in);
    words_drop(in->peer, in->both.words);
    in->both.words = -1;
    ep->soon--;
}

void um_proto_both_give_up(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    um_proto_both_end(ep, in);
    in->both.is_helped = false;
    in->both.error = 0;
    in->shareable = false;
    in->way.chosen = UM_WAY_NONE;
    in->moved = 0;
}

/* Ends the body in an error, but -EAGAIN as long as the sender may write into the buffer. */
static int both_fail(struct um_proto_inbound *in, int error)
{
    if (in->both.words < 0)
        return error;
    if (!in->both.error)
        sender_stop(in);
    in->both.error = error;
    return sender_is_done(in) ? error : -EAGAIN;
}

int um_proto_both_copy(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_both *b = &in->both;
    const struct um_proto_sides sides = {.link = in->peer->link,
                                         .piece = in->piece,
                                         .count = in->count,
                                         .local = in->dest.cursor,
                                         .copying = &in->copying,
                                         .is_mapped = in->way.chosen == UM_WAY_MAPPED};
    enum turn turn = TURN_COPY;
    if (b->error)
        return both_fail(in, b->error);
    for (int i = 0; i < UM_PARTS_STEP; i++) {
        turn = in->copying.transfer ? TURN_COPY : turn_await(in);
        if (turn != TURN_COPY)
            break;
        int ret = um_proto_part_move(&sides, b->claimed - 1, b->shift, in->arrival.len);
        if (ret == -EINPROGRESS || ret == -EAGAIN || ret == -ENOMEM)
            return ret;
        if (ret)
            return both_fail(in, ret);
        b->copied = b->claimed;
        in->moved = (uint64_t)b->copied << b->shift;
    }
    if (turn != TURN_OVER)
        return -EAGAIN;
    ep->stats.joint += b->copied < b->parts;
    in->moved = in->arrival.len;
    return 0;
}
