/*
 * Eager, in segments: a lone message of 16 to 512 KiB. Its receiver copies one segment while the next one is written.
 * The sender writes all of them at once. A message that follows another one without a call of progress in between goes
 * so only if it is longer than a record and not longer than 256 KiB.
 *
 *   sender                                   receiver
 *   FIRST {tag, data, total}       ──────→   match → the posted buffer, or aside (unexpected)
 *   NEXT {offset}, ...             ──────→   there, too; the last one: completion
 *   complete: at the last commit
 *
 * One that would fit into a record needs no permission. A longer one does, because the receiver may have a better way
 * to get it:
 *
 *   RTS                            ──────→   match; PUSH parts asked for, as in rndv_push.c
 *   may send such bodies unasked   ←──────   answer PUSHED
 *
 * The receiver gives it for bodies that it would ask for in any case, because it found that faster than reading them
 * (choice.h), or than mapping them where they can be mapped: to announce them would cost a round trip. And it gives it
 * for the bodies of a sender that computes (way_learn.c). One message in UM_UNASKED_SERIES is announced all the same,
 * the first time one in UM_UNASKED_FIRST, so that the receiver can learn otherwise and say so. So is a longer message
 * that is not alone: that loses no round trip, and what the announcement costs is little beside the body.
 *
 * Owns: struct um_proto_segmented. Threading: core.h.
 */
#include "proto/receive.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    UM_UNASKED_SERIES = 256,
    UM_UNASKED_FIRST = 16,
    STREAM_LONG = 65536, /* bytes; from here on, messages that are not alone have the longest segments that there are */
    STREAM_MAX = 262144, /* longer ones are announced */
    PARTS = 4,
    PART_MIN = UM_SPLIT_MIN / 2,
    PAIR = 128,
    UNEXPECTED_COPIES = 3, /* of a message without a receive */
};

/* ---- the sender ---- */

/* Returns the number of a message's class in um_proto_peer.unasked. Classes that the receiver measures apart are
 * permitted apart. */
static unsigned class_of(const struct um_core_peer *peer, const struct iovec *iov, size_t count, size_t len)
{
    static_assert(UM_SEGMENTED_MAX < 16384 << UM_UNASKED_CLASSES / 2, "each class has its bit");
    return um_proto_choice_class(len) + (um_core_peer_is_shareable(peer, iov, count) ? UM_UNASKED_CLASSES / 2 : 0);
}

/* Returns the bytes of a segment. The segments are about equal, and take whole pairs of cache lines, as bodies do in a
 * lane. */
static uint32_t segment_of(uint32_t len, uint32_t most)
{
    const uint32_t fit = len / PART_MIN, wish = fit < 1 ? 1 : fit < PARTS ? fit : PARTS;
    const uint32_t least = (len + most - 1) / most, parts = wish < least ? least : wish;
    return ((len + parts - 1) / parts + PAIR - 1) & ~(uint32_t)(PAIR - 1);
}

static bool has_room(struct um_lane *lane, uint32_t len, uint32_t segment)
{
    return lane->machine->lane_has_room(lane, (len + segment - 1) / segment, segment);
}

/* Returns the bytes of a segment if the lane has room for the whole message, else 0. */
static uint32_t segment_for(struct um_lane *lane, size_t len, uint32_t most)
{
    const uint32_t segment = segment_of((uint32_t)len, most);
    return has_room(lane, (uint32_t)len, segment) ? segment : 0;
}

uint32_t um_proto_segments_pushed(struct um_lane *lane, uint64_t len, uint64_t moved)
{
    const uint32_t most = um_proto_part_max(lane, moved > 0);
    if (len > UM_SEGMENTED_MAX || !lane->machine->lane_has_room)
        return most;
    const uint32_t segment = segment_of((uint32_t)len, most);
    if (moved == 0 && most <= lane->body_max) /* the body goes where one in segments would (machine.h) */
        (void)has_room(lane, (uint32_t)len, segment);
    return segment < most ? segment : most;
}

uint32_t um_proto_segments_split(const struct um_core_ep *ep, struct um_core_peer *peer, struct um_lane *lane,
                                 size_t len)
{
    if (um_proto_peer_of(peer)->body_sent_in == ep->turns || !lane->machine->lane_has_room)
        return 0;
    const uint32_t segment = segment_for(lane, len, lane->body_max);
    if (segment)
        um_proto_peer_of(peer)->body_sent_in = ep->turns; /* else eager.c does so */
    return segment;
}

uint32_t um_proto_segments_fit(const struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane,
                               size_t len)
{
    struct um_proto_peer *own = um_proto_peer_of(msg->peer);
    if (own->unasked == 0 || len > UM_SEGMENTED_MAX || len <= lane->body_max || msg->flags & UM_OP_MATCH ||
        !lane->machine->lane_has_room)
        return 0;
    const unsigned class = class_of(msg->peer, msg->iov, msg->count, len);
    if (!(own->unasked & 1u << class))
        return 0;
    const bool is_alone = um_proto_body_goes_first(ep, msg->peer);
    if (!is_alone && len > STREAM_MAX)
        return 0;
    const uint32_t usual = lane->machine->lane_body_max(lane, lane->body_max);
    const uint32_t segment = is_alone            ? segment_of((uint32_t)len, usual)
                             : len < STREAM_LONG ? usual
                                                 : um_proto_part_max(lane, false);
    return has_room(lane, (uint32_t)len, segment) && ++own->unasked_sent[class] % UM_UNASKED_SERIES ? segment : 0;
}

/* Commits the segments of a message, and counts it. most: bytes of a segment. */
static int segments_write(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane, size_t len,
                          uint32_t most, bool wants_ack)
{
    struct um_iov_cursor cursor = um_iov_begin(msg->iov, msg->count);
    for (size_t moved = 0; moved < len;) {
        const uint32_t part = len - moved < most ? (uint32_t)(len - moved) : most;
        const bool is_last = moved + part == len;
        struct um_slot slot;
        const int ret = lane->machine->claim(lane, part, &slot);
        if (ret)
            return moved ? -EPIPE : ret;                       /* the rest cannot follow: the lane is of no more use */
        um_proto_slot_gather(&slot, &cursor, slot.body, part); /* before the header: um_proto_body_goes_first() */
        if (moved == 0)
            *(struct um_proto_first_wire *)slot.header =
                (struct um_proto_first_wire){.tag = msg->tag, .data = msg->data, .total = (uint32_t)len};
        else
            *(struct um_proto_next_wire *)slot.header = (struct um_proto_next_wire){.offset = (uint32_t)moved};
        slot.more = !is_last;
        lane->machine->commit(lane, &slot, moved ? UM_WIRE_NEXT : UM_WIRE_FIRST,
                              (uint8_t)(um_proto_wire_flags(msg->flags) | (is_last && wants_ack ? UM_FLAG_ACK : 0)),
                              part);
        moved += part;
    }
    um_proto_eager_count(ep, msg->peer, len);
    um_proto_ep_of(ep)->bodies_sent += len;
    return 0;
}

int um_proto_segments_inject(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane, size_t len,
                             uint32_t most)
{
    const int ret = segments_write(ep, msg, lane, len, most, false);
    if (ret)
        return um_core_peer_claim_failed(msg->peer, ret);
    return 0;
}

int um_proto_segments_send(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane, size_t len,
                           uint32_t most)
{
    struct um_core_op *op;
    if (um_proto_eager_begin(msg, len, &op) != 0)
        return -ENOMEM;
    const int ret = segments_write(ep, msg, lane, len, most, op != NULL);
    if (ret) /* -EPIPE: the receiver drops the segments that have come */
        return um_proto_eager_refused(msg, op, ret);
    um_proto_eager_end(ep, msg, len, op);
    return 0;
}

int32_t um_proto_segments_answered(const struct um_core_op *op, int32_t status)
{
    const int32_t own_status = status == UM_STATUS_PUSHED ? UM_STATUS_DONE : status;
    const struct um_core_peer *peer = op->peer;
    if (!(op->flags & UM_OP_SEND) || !peer->lane || op->len <= peer->lane->body_max || op->len > UM_SEGMENTED_MAX)
        return own_status;
    struct um_proto_peer *own = um_proto_peer_of(peer);
    const unsigned class = class_of(peer, op->buffers.iov, op->buffers.count, op->len), bit = 1u << class;
    if (!(own->unasked & bit))
        own->unasked_sent[class] = (uint8_t)(UM_UNASKED_SERIES - UM_UNASKED_FIRST);
    own->unasked = (uint16_t)(status == UM_STATUS_PUSHED ? own->unasked | bit : own->unasked & ~bit);
    return own_status;
}

/* ---- the receiver ---- */

static void segment_place(const struct um_core_ep *ep, struct um_proto_segmented *s, const void *bytes, uint32_t len)
{
    const uint64_t began = s->came.began ? um_clock_ns() : 0;
    if (s->dest.recv)
        um_proto_destination_place(&s->dest, s->moved, bytes, len);
    else if (s->waiting)
        um_bytes_copy((char *)s->waiting->body + s->moved, bytes, len);
    s->moved += len;
    if (began)
        s->came.ns += um_clock_ns() - began;
    um_proto_way_unasked_part(ep, s->arrival.peer, len);
}

/* Ends a message that has come as a whole, or has failed (error: positive errno). */
static void segmented_end(struct um_core_ep *ep, struct um_proto_segmented *s, int error)
{
    s->is_open = false;
    if (s->dest.recv) {
        um_proto_receive_finish(ep, &s->dest, &s->arrival, error);
    } else if (s->waiting) {
        s->waiting->segmented = NULL;
        s->waiting->error = error;
    }
}

static void segment_came(struct um_core_ep *ep, struct um_proto_segmented *s, const struct um_record *rec)
{
    segment_place(ep, s, rec->body, rec->len);
    if (s->moved < s->arrival.len)
        return;
    if (s->came.began)
        um_proto_way_came_unasked(ep, s->arrival.peer, &s->came);
    segmented_end(ep, s, 0);
}

/* Returns the place for a message in segments that begins; NULL: no memory. */
static struct um_proto_segmented *segmented_of(struct um_proto_peer *own)
{
    if (!own->segmented)
        own->segmented = calloc(1, sizeof(*own->segmented));
    return own->segmented;
}

int um_proto_segments_first_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    struct um_proto_first_wire header;
    memcpy(&header, rec->header, sizeof(header));
    struct um_proto_segmented *s = segmented_of(um_proto_peer_of(peer));
    if (!s)
        return -ENOMEM;
    if (s->is_open || !rec->body || header.total > UM_SEGMENTED_MAX || rec->len > header.total)
        return -EPROTO;
    *s = (struct um_proto_segmented){.arrival = {.peer = peer,
                                                 .tag = header.tag,
                                                 .data = header.data,
                                                 .len = header.total,
                                                 .flags = um_proto_wire_op_flags(rec->flags)}};
    if (!um_proto_receive_match(ep, &s->arrival, &s->dest)) {
        struct um_proto_unexpected *u;
        const int ret = um_proto_receive_unexpected(ep, &s->arrival, NULL, &u);
        if (ret)
            return ret;
        s->waiting = u;
        u->segmented = s;
    }
    s->is_open = true;
    if (um_proto_way_times_unasked(ep, peer, header.total))
        s->came = (struct um_proto_came){
            .began = um_clock_ns(), .len = header.total, .copies = s->dest.recv ? 2 : UNEXPECTED_COPIES};
    segment_came(ep, s, rec);
    return 0;
}

int um_proto_segments_next_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_next_wire *header = rec->header;
    struct um_proto_segmented *s = um_proto_peer_of(peer)->segmented;
    if (!s || !s->is_open || !rec->body || header->offset != s->moved || rec->len > s->arrival.len - s->moved)
        return -EPROTO;
    segment_came(ep, s, rec);
    return 0;
}

void um_proto_segments_peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error)
{
    struct um_proto_segmented *s = um_proto_peer_of(peer)->segmented;
    if (s && s->is_open)
        segmented_end(ep, s, error);
    free(s);
    um_proto_peer_of(peer)->segmented = NULL;
}
