/*
 * RMA that the owner of the memory executes: the target's side of rma.c, which has the diagram.
 *
 * Key, bounds and access are checked before every step. Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include "base/atomic.h"

#include <errno.h>
#include <string.h>

/*
 * May a write complete here now, if it has data? To be asked before anything of it is executed. No receive bounds how
 * many of them come: what a call of progress takes, and what the application has not read yet, must have a bound.
 */
static bool write_may_announce(struct um_core_ep *ep, bool with_data)
{
    if (!with_data)
        return true;
    if (ep->unexpected_left == 0 || (ep->config.takes_data && !ep->config.takes_data(ep->config.arg)))
        return false;
    ep->unexpected_left--;
    return true;
}

/* Counts a write at the target, and completes it there if it has data. */
static void write_announce(struct um_core_ep *ep, struct um_core_peer *peer, uint64_t len, uint64_t data,
                           bool with_data)
{
    peer->in->received++;
    peer->in->bytes_received += len;
    if (!with_data)
        return;
    struct um_core_completion c = {
        .flags = UM_OP_REMOTE_WRITE | UM_OP_DATA, .len = (size_t)len, .data = data, .source = peer, .name = peer->name};
    ep->config.complete(ep->config.arg, &c);
}

int um_proto_rma_write_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_write_wire *header = rec->header;
    const uint16_t token = header->token;
    const uint64_t key = um_load_relaxed_u64(&header->key);
    void *to;
    if (token >= UM_TOKENS || (!rec->body && rec->len > UM_WRITE_INLINE))
        return -EPROTO;
    if (!write_may_announce(ep, rec->flags & UM_WIRE_DATA))
        return -EAGAIN;
    int ret = um_core_regions_resolve(ep->config.regions, key, header->addr, rec->len, UM_ACCESS_REMOTE_WRITE, &to);
    if (ret == 0 && (ret = um_core_ep_guard(ep, to, rec->len)) == 0) {
        um_bytes_copy(to, rec->body ? rec->body : header->body, rec->len);
        ret = um_core_ep_unguard(ep);
    }
    if (ret == 0) {
        um_core_ep_count(ep, key, UM_COUNT_WRITE_SHIFT);
        write_announce(ep, peer, rec->len, header->data, rec->flags & UM_WIRE_DATA);
    }
    rec->rx->machine->answer(rec->rx, token, ret);
    return 0;
}

int um_proto_rma_notify_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_notify_wire *header = rec->header;
    if (rec->body || !(rec->flags & UM_WIRE_DATA))
        return -EPROTO;
    if (!write_may_announce(ep, true))
        return -EAGAIN;
    write_announce(ep, peer, header->len, header->data, rec->flags & UM_WIRE_DATA);
    return 0;
}

/* Sends the error in a RETURN record, behind the parts that were returned. Returns whether the body still lives. */
static bool return_fail(struct um_core_ep *ep, struct um_proto_inbound *in, int error)
{
    struct um_lane *lane;
    struct um_slot slot;
    in->failed = error;
    int ret = um_core_peer_lane(in->peer, &lane);
    if (ret == 0)
        ret = lane->machine->claim(lane, 0, &slot);
    if (ret == -EAGAIN) {
        um_core_peer_claim_failed(in->peer, ret);
        return true;
    }
    if (ret == 0) {
        *(struct um_proto_part_wire *)slot.header =
            (struct um_proto_part_wire){.offset = in->moved, .token = in->token};
        lane->machine->commit(lane, &slot, UM_WIRE_RETURN, 0, (uint32_t)error);
    }
    um_proto_inbound_finish(ep, in, error);
    return false;
}

/* Writes the slot's body, from memory that may be missing. 0; -EFAULT. */
static int read_guarded(struct um_core_ep *ep, const struct um_slot *slot, const void *from, size_t len)
{
    int ret = um_core_ep_guard(ep, from, len);
    if (ret)
        return -EFAULT;
    um_proto_slot_copy(slot, from, len);
    return um_core_ep_unguard(ep);
}

/* Sends parts of what is read as records, as credit allows. Returns whether the body still lives. */
static bool return_step(struct um_core_ep *ep, struct um_proto_inbound *in, const unsigned char *from, uint64_t left)
{
    struct um_lane *lane;
    int ret = um_core_peer_lane(in->peer, &lane);
    const uint64_t end = in->moved + um_proto_step_bytes(in->peer->link->machine);
    for (int i = 0; ret == 0 && left > 0 && i < UM_STEP_RECORDS && in->moved < end; i++) {
        const uint64_t longest = um_proto_part_max(lane, in->moved > 0);
        const uint64_t most = longest < end - in->moved ? longest : end - in->moved;
        const uint32_t part = (uint32_t)(left < most ? left : most);
        struct um_slot slot;
        ret = lane->machine->claim(lane, part, &slot);
        if (ret)
            break;
        *(struct um_proto_part_wire *)slot.header =
            (struct um_proto_part_wire){.offset = in->moved, .token = in->token};
        ret = read_guarded(ep, &slot, from, part);
        if (ret) {
            lane->machine->abort(lane, &slot);
            break;
        }
        slot.more = part < left;
        lane->machine->commit(lane, &slot, UM_WIRE_RETURN, 0, part);
        in->moved += part;
        from += part;
        left -= part;
    }
    if (ret == -EFAULT && in->moved > 0)
        return return_fail(ep, in, EFAULT);
    if (ret == -EAGAIN) {
        if (in->peer->lane)
            um_core_peer_claim_failed(in->peer, ret);
        return true;
    }
    if (ret == 0 && left > 0)
        return true;
    um_proto_inbound_finish(ep, in, ret == -EFAULT ? EFAULT : ret ? ECONNRESET : 0);
    return false;
}

/* How many of the next `left` bytes must be there for the next step: what it moves, or what it may offer. */
static uint64_t step_bytes(const struct um_proto_inbound *in, bool read, uint64_t left)
{
    if (!read)
        return um_proto_rndv_step(in, left);
    const uint64_t most = um_proto_step_bytes(in->peer->link->machine);
    if (um_proto_rma_may_offer(in))
        return left;
    return left < most ? left : most;
}

static bool body_step(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    bool read = in->op == UM_WIRE_READ;
    if (in->copying.transfer) {
        if (um_proto_rndv_read(ep, in, NULL, 0) < 0)
            return false;
        if (in->copying.transfer || in->pushed)
            return true;
    }
    uint64_t left = in->arrival.len - in->moved;
    void *here;
    int ret = um_core_regions_resolve_part(ep->config.regions, in->key, in->addr + in->moved, left,
                                           step_bytes(in, read, left),
                                           read ? UM_ACCESS_REMOTE_READ : UM_ACCESS_REMOTE_WRITE, &here);
    if (in->failed || (ret && read && in->moved > 0))
        return return_fail(ep, in, in->failed ? in->failed : -ret);
    if (ret) {
        um_proto_inbound_finish(ep, in, -ret);
        return false;
    }
    if (read && um_proto_rma_offer(ep, in, here))
        return true;
    if (read)
        return return_step(ep, in, here, left);
    if (left > 0) {
        ret = um_proto_rndv_read(ep, in, here, um_proto_rndv_step(in, left));
        if (ret < 0)
            return false;
        if (in->pushed)
            return true;
    }
    if (in->moved < in->arrival.len)
        return true;
    um_proto_inbound_finish(ep, in, 0);
    return false;
}

static void body_ended(struct um_core_ep *ep, struct um_proto_inbound *in, int error)
{
    if (error)
        return;
    um_core_ep_count(ep, in->key, in->op == UM_WIRE_READ ? UM_COUNT_READ_SHIFT : UM_COUNT_WRITE_SHIFT);
    if (in->op == UM_WIRE_WRITE_RTS) {
        write_announce(ep, in->peer, in->arrival.len, in->arrival.data, in->arrival.flags & UM_OP_DATA);
    } else {
        in->peer->in->received++;
        in->peer->in->bytes_received += in->arrival.len;
    }
}

static const struct um_proto_inbound_class rma_body = {.step = body_step, .ended = body_ended};

int um_proto_rma_rts_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    int error;
    if (!write_may_announce(ep, rec->op == UM_WIRE_WRITE_RTS && rec->flags & UM_WIRE_DATA))
        return -EAGAIN;
    struct um_proto_inbound *in = um_proto_inbound_open(peer, rec, &rma_body, &error);
    if (!in)
        return error;
    um_proto_inbound_start(ep, in);
    return 0;
}
