/*
 * Rendezvous, push: the sender's job fills records with the body, and the receiver takes them out. Also the end of
 * every announced body at its sender, whichever way it went (body_answered()). rndv_send.c has the diagram. Owns no
 * state. Threading: core.h.
 */
#include "proto/internal.h"

#include <errno.h>
#include <string.h>

static bool push_step(struct um_core_ep *ep, struct um_core_job *job);

/* True if the next job pushes a body to the same peer. A lane that takes messages in several records is to see where
 * each of them ends. */
static bool is_followed(const struct um_core_ep *ep, const struct um_core_op *op, const struct um_lane *lane)
{
    if (lane->machine->lane_has_room)
        return false;
    const struct um_core_job *next = um_core_job_next(ep, &op->job);
    return next && next->step == push_step && UM_CONTAINER(next, struct um_core_op, job)->peer == op->peer;
}

static bool push_step(struct um_core_ep *ep, struct um_core_job *job)
{
    struct um_core_op *op = UM_CONTAINER(job, struct um_core_op, job);
    struct um_lane *lane = op->peer->lane;
    const uint64_t before = op->moved;
    for (int i = 0; i < UM_STEP_RECORDS && op->moved - before < um_proto_step_bytes(lane->machine); i++) {
        const uint32_t most = um_proto_segments_pushed(lane, op->len, op->moved);
        uint64_t left = op->len - op->moved;
        uint32_t part = left < most ? (uint32_t)left : most;
        struct um_slot slot;
        int ret = lane->machine->claim(lane, part, &slot);
        if (ret) {
            const bool has_moved = op->moved != before;
            um_core_peer_claim_failed(op->peer, ret); /* -EPIPE ends the operation, and with it this job */
            return has_moved;
        }
        /* before the header: um_proto_body_goes_first() */
        um_proto_slot_gather(&slot, &op->buffers.cursor, slot.body, part);
        *(struct um_proto_part_wire *)slot.header =
            (struct um_proto_part_wire){.offset = op->moved, .token = op->token};
        slot.more = part < left || is_followed(ep, op, lane);
        lane->machine->commit(lane, &slot, UM_WIRE_PUSH, 0, part);
        op->moved += part;
        ep->job_bytes += part;
        if (op->moved == op->len) {
            um_list_unlink(&job->link);
            break;
        }
    }
    return op->moved != before;
}

static void body_answered(struct um_core_ep *ep, struct um_core_op *op, int32_t status)
{
    um_core_op_hide(op, status == UM_STATUS_PUSH ? UM_HIDE_REFUSED : UM_HIDE_READ);
    if (status != UM_STATUS_PUSH) {
        const int32_t own_status = um_proto_segments_answered(op, status);
        if (op->moved == 0 && own_status == UM_STATUS_DONE && !op->is_helped)
            um_proto_way_peer_read(op);
        um_proto_op_answered(ep, op, own_status);
        return;
    }
    um_proto_help_stop(op);
    if (op->len == 0 || op->moved != 0 || !um_list_is_empty(&op->job.link))
        return; /* there is no body, or it was asked for twice: the peer errs */
    op->job.step = push_step;
    um_core_job_start(ep, &op->job);
}

const struct um_core_op_class um_proto_rndv_body = {.answered = body_answered, .is_body = true};

int um_proto_rndv_push_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_part_wire *header = rec->header;
    struct um_proto_inbound *in = um_proto_inbound_find(peer, header->token);
    if (__builtin_expect(um_proto_peer_of(peer)->asked.drops, 0) && um_proto_ask_drops(in))
        return 0;
    if (!in || !in->asked || in->op == UM_WIRE_READ || !rec->body || header->offset != in->moved ||
        rec->len > in->arrival.len - in->moved)
        return -EPROTO;
    const uint64_t coming_at = in->way.chosen == UM_WAY_PUSH ? um_proto_way_coming(ep, in) : 0;
    if (in->op == UM_WIRE_RTS) {
        um_proto_destination_place(&in->dest, in->moved, rec->body, rec->len);
    } else {
        void *to;
        int ret = um_core_regions_resolve(ep->config.regions, in->key, in->addr + in->moved, rec->len,
                                          UM_ACCESS_REMOTE_WRITE, &to);
        if (ret == 0 && !in->failed && (ret = um_core_ep_guard(ep, to, rec->len)) == 0) {
            um_bytes_copy(to, rec->body, rec->len);
            ret = um_core_ep_unguard(ep);
        }
        if (ret && !in->failed)
            in->failed = -ret;
    }
    in->moved += rec->len;
    if (in->way.chosen == UM_WAY_PUSH)
        um_proto_way_came(ep, in, rec->len, coming_at);
    if (in->moved == in->arrival.len)
        um_proto_inbound_finish(ep, in, in->failed);
    return 0;
}
