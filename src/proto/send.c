/*
 * Sending: the choice between eager, segments and rendezvous, and the fast path of small injected messages.
 *
 *   length ≤ the largest body that the lane takes now    → eager.c (a short one in the record itself);
 *                                                          eager_segments.c from UM_SPLIT_MIN on, if sent alone
 *   up to 512 KiB, and the receiver prefers them pushed  → eager_segments.c, if sent alone
 *   longer, or the machine prefers to transfer the body  → rndv_send.c
 *   any message that completes when matched (UM_OP_MATCH) → rndv_send.c
 *
 * Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include <errno.h>
#include <string.h>

static bool is_eager(const struct um_proto_msg *msg, struct um_lane *lane, size_t len)
{
    if (__builtin_expect(msg->flags & UM_OP_MATCH, 0))
        return false; /* the answer to an announcement tells; nothing tells of an eager message's receive */
    if (um_proto_eager_is_inline(len, msg->flags))
        return true;
    if (len > lane->body_max || len > lane->machine->lane_body_max(lane, (uint32_t)len))
        return false;
    return __builtin_expect(!lane->machine->prefers_rndv, 1) || (msg->flags & UM_OP_INJECT) ||
           !lane->machine->prefers_rndv(lane, msg->iov, msg->count, len);
}

int um_proto_send(struct um_core_ep *ep, const struct um_proto_msg *msg)
{
    struct um_lane *lane;
    int ret = um_core_peer_lane(msg->peer, &lane);
    if (__builtin_expect(ret != 0, 0))
        return ret;
    size_t len = um_iov_length(msg->iov, msg->count);
    const bool fits = is_eager(msg, lane, len);
    if (fits && len < UM_SPLIT_MIN)
        return um_proto_eager_send(ep, msg, lane, len);
    const uint32_t segment =
        fits ? um_proto_segments_split(ep, msg->peer, lane, len) : um_proto_segments_fit(ep, msg, lane, len);
    if (segment)
        return um_proto_segments_send(ep, msg, lane, len, segment);
    return fits ? um_proto_eager_send(ep, msg, lane, len) : um_proto_rndv_send(ep, msg, len);
}

/*
 * For a lane that is not open, or has not grown far enough for this body. 0: try again; 1: the message went by
 * rendezvous; else the error.
 */
static int inject_slow(struct um_core_ep *ep, struct um_proto_msg *msg)
{
    struct um_lane *lane;
    size_t len = msg->iov->iov_len;
    int ret = um_core_peer_lane(msg->peer, &lane);
    if (ret || um_proto_eager_is_inline(len, msg->flags) || len <= lane->machine->lane_body_max(lane, (uint32_t)len))
        return ret;
    msg->flags |= UM_OP_INJECT | UM_OP_NO_EVENT;
    ret = um_proto_rndv_send(ep, msg, len);
    return ret ? ret : 1;
}

/* Called when no record could be claimed for the message. ret: -EMSGSIZE also if there is no lane yet. */
/* NOLINTNEXTLINE(readability-function-size): what um_proto_inject() was called with */
static __attribute__((noinline)) int inject_refused(struct um_core_ep *ep, struct um_core_peer *peer, const void *buf,
                                                    size_t len, uint64_t tag, uint64_t data, uint32_t flags, int ret)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
    struct um_proto_msg msg = {
        .iov = &iov, .count = 1, .peer = peer, .tag = tag, .data = data, .flags = flags | UM_OP_SEND};
    if (ret != -EMSGSIZE)
        return um_core_peer_claim_failed(peer, ret);
    ret = inject_slow(ep, &msg);
    return ret ? ret : um_proto_inject(ep, peer, buf, len, tag, data, flags);
}

static inline int inject_commit(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_slot *slot,
                                size_t len, uint32_t flags)
{
    um_proto_eager_count(ep, peer, len);
    peer->lane->machine->commit(peer->lane, slot, UM_WIRE_EAGER, um_proto_wire_flags(flags), (uint32_t)len);
    return 0;
}

/* NOLINTNEXTLINE(readability-function-size): what um_proto_inject() was called with */
static __attribute__((noinline)) int inject_split(struct um_core_ep *ep, struct um_core_peer *peer, const void *buf,
                                                  size_t len, uint64_t tag, uint64_t data, uint32_t flags,
                                                  uint32_t segment)
{
    const struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
    const struct um_proto_msg msg = {.iov = &iov, .count = 1, .peer = peer, .tag = tag, .data = data, .flags = flags};
    return um_proto_segments_inject(ep, &msg, peer->lane, len, segment);
}

static __attribute__((noinline)) int inject_body(struct um_core_ep *ep, struct um_core_peer *peer, const void *buf,
                                                 size_t len, uint64_t tag, uint64_t data, uint32_t flags)
{
    struct um_slot slot;
    struct um_lane *lane = peer->lane;
    const uint32_t segment =
        len >= UM_SPLIT_MIN && lane && len <= lane->body_max ? um_proto_segments_split(ep, peer, lane, len) : 0;
    if (segment)
        return inject_split(ep, peer, buf, len, tag, data, flags, segment);
    const int ret = lane ? lane->machine->claim_message(lane, (uint32_t)len, &slot) : -EMSGSIZE;
    if (__builtin_expect(ret != 0, 0))
        return inject_refused(ep, peer, buf, len, tag, data, flags, ret);
    const bool body_goes_first = um_proto_body_goes_first(ep, peer);
    if (body_goes_first)
        um_proto_slot_copy(&slot, buf, len);
    um_proto_eager_header(slot.header, tag, data);
    if (!body_goes_first)
        um_proto_slot_copy(&slot, buf, len);
    return inject_commit(ep, peer, &slot, len, flags);
}

/* Inline: messages that fit into the record itself. */
int um_proto_inject(struct um_core_ep *ep, struct um_core_peer *peer, const void *buf, size_t len, uint64_t tag,
                    uint64_t data, uint32_t flags)
{
    struct um_slot slot;
    struct um_lane *lane = peer->lane;
    if (!um_proto_eager_is_inline(len, flags))
        return inject_body(ep, peer, buf, len, tag, data, flags);
    const int ret = lane ? lane->machine->claim_message(lane, 0, &slot) : -EMSGSIZE;
    if (__builtin_expect(ret != 0, 0))
        return inject_refused(ep, peer, buf, len, tag, data, flags, ret);
    struct um_proto_eager_wire *header = slot.header;
    um_proto_eager_header(header, tag, data);
    um_iov_copy_short(header->body, buf, len);
    return inject_commit(ep, peer, &slot, len, flags);
}
