/*
 * Large RMA reads at level remote, where the machine shows memory (machine show()): the initiator takes the bytes by a
 * transfer, instead of getting them in records.
 *
 *   initiator                                  owner
 *   READ {key, addr, total, reach}  ──────→    check → show the bytes
 *                                   ←────── OFFER {token, the machine's key}
 *   a transfer; then TAKEN          ──────→    hide them
 *   complete                        ←─ answer ─ DONE
 *
 *   the transfer is refused: TAKEN, refused ─→ RETURN parts, as if nothing had been offered (rma_owner.c)
 *
 * The registration may end meanwhile: then the bytes are hidden (core/region.h), and the error comes in a RETURN
 * record, behind the OFFER, because an answer might overtake the OFFER. Owns: nothing; an offer lies in struct
 * um_proto_inbound. Threading: core.h.
 */
#include "proto/internal.h"

#include <errno.h>

enum {
    UM_OFFER_MIN = 256 << 10,  /* bytes; shorter reads are no slower in records */
    UM_OFFERS_REFUSED_MAX = 8, /* refusals in a row; then the peer gets no more offers */
};

/* ---- the owner ---- */

/* Called when the registration has ended and nobody reads the bytes any more: the read ends with an error. */
static void withdrawn(struct um_core_offer *offer)
{
    struct um_proto_inbound *in = UM_CONTAINER(offer, struct um_proto_inbound, offer);
    in->failed = EKEYREJECTED;
    um_core_job_start(in->peer->ep, &in->job);
    um_core_ep_kick(in->peer->ep); /* a thread of the program may have closed the registration */
}

/* Shows the bytes and sends the OFFER. 0; -EAGAIN; -ENOSYS: the machine does not show this memory; another error. */
static int offer_send(struct um_core_ep *ep, struct um_proto_inbound *in, void *here, struct um_lane *lane)
{
    const struct iovec piece = {.iov_base = here, .iov_len = in->arrival.len};
    struct um_slot slot;
    uint64_t key;
    int ret = lane->machine->claim(lane, 0, &slot);
    if (ret)
        return ret;
    struct um_shown *shown = lane->machine->show(lane, &piece, &key);
    if (!shown) {
        lane->machine->abort(lane, &slot);
        return -ENOSYS;
    }
    um_core_offer_begin(&in->offer, um_core_regions_find(ep->config.regions, in->key), shown, withdrawn);
    *(struct um_proto_offer_wire *)slot.header = (struct um_proto_offer_wire){.key = key, .token = in->token};
    lane->machine->commit(lane, &slot, UM_WIRE_OFFER, 0, 0);
    return 0;
}

bool um_proto_rma_may_offer(const struct um_proto_inbound *in)
{
    return in->is_shown && !in->was_offered && in->moved == 0 && in->arrival.len >= UM_OFFER_MIN &&
           um_proto_peer_of(in->peer)->offers_refused < UM_OFFERS_REFUSED_MAX;
}

bool um_proto_rma_offer(struct um_core_ep *ep, struct um_proto_inbound *in, void *here)
{
    struct um_lane *lane;
    if (!um_proto_rma_may_offer(in))
        return false;
    int ret = um_core_peer_lane(in->peer, &lane);
    if (ret == 0)
        ret = um_proto_shows(lane) ? offer_send(ep, in, here, lane) : -ENOSYS;
    if (ret == -EAGAIN) {
        um_core_peer_claim_failed(in->peer, ret);
        return true;
    }
    in->was_offered = ret == 0;
    in->is_shown = ret == 0; /* else the bytes go in records */
    in->pushed = ret != 0;
    if (ret == 0)
        um_list_unlink(&in->job.link);
    return ret == 0;
}

int um_proto_rma_taken_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_taken_wire *header = rec->header;
    struct um_proto_inbound *in = um_proto_inbound_find(peer, header->token);
    uint8_t *refused = &um_proto_peer_of(peer)->offers_refused;
    if (rec->body || header->token >= UM_TOKENS || rec->len > 1 || (in && !in->was_offered))
        return -EPROTO;
    if (!in || !in->offer.shown) /* the offer was withdrawn: the error is on its way, or will be */
        return 0;
    um_core_offer_end(&in->offer, rec->len == 0 ? UM_HIDE_READ : UM_HIDE_REFUSED);
    if (rec->len == 0) {
        *refused = 0;
        um_proto_inbound_finish(ep, in, 0);
        return 0;
    }
    *refused += *refused < UM_OFFERS_REFUSED_MAX;
    in->pushed = true;
    um_core_job_start(ep, &in->job);
    return 0;
}

/* ---- the initiator ---- */

/* The bytes of a read come in records. DONE without records is valid only for a read of no bytes, and after an offer
 * was taken. */
static void read_answered(struct um_core_ep *ep, struct um_core_op *op, int32_t status)
{
    const bool is_there = op->len == 0 || op->offer == UM_OFFER_TAKEN;
    um_proto_op_answered(ep, op, status == UM_STATUS_DONE && !is_there ? -EPROTO : status);
}

const struct um_core_op_class um_proto_read_op = {.answered = read_answered};

/* Only a read into one piece, which every provider takes. */
bool um_proto_rma_may_take(const struct um_core_op *op)
{
    return um_proto_shows(op->peer->lane) && op->buffers.count == 1 && op->len >= UM_OFFER_MIN;
}

/* Starts the transfer. 0: all bytes have moved; -EINPROGRESS: they move; -EAGAIN: not now; else it is refused. */
static int take_start(struct um_core_op *op)
{
    const struct um_piece piece = {.len = op->len};
    const struct um_copy copy = {.remote = &piece,
                                 .remote_count = 1,
                                 .local = op->buffers.iov,
                                 .local_count = op->buffers.count,
                                 .len = op->len,
                                 .key = op->key};
    if (!op->peer->rx || op->peer->rx->machine != op->peer->link->machine)
        return -EPERM; /* the key is one of another machine */
    int ret = um_core_copying_start(&op->copying, op->peer->link, &copy, NULL);
    return ret == -ENOMEM ? -EAGAIN : ret;
}

/* Starts or continues the transfer. Returns whether it has ended, so that the owner can be told; *is_refused_p: the
 * offer is refused. */
static bool take_step(struct um_core_op *op, bool *is_refused_p)
{
    const int ret = op->copying.transfer ? um_core_copying_poll(&op->copying) : take_start(op);
    *is_refused_p = ret != 0;
    return ret != -EINPROGRESS && ret != -EAGAIN;
}

static bool tell_step(struct um_core_ep *ep, struct um_core_job *job, bool is_refused)
{
    struct um_core_op *op = UM_CONTAINER(job, struct um_core_op, job);
    struct um_lane *lane = op->peer->lane;
    struct um_slot slot;
    (void)ep;
    int ret = lane->machine->claim(lane, 0, &slot);
    if (ret) {
        um_core_peer_claim_failed(op->peer, ret); /* -EPIPE ends the operation, and with it this job */
        return false;
    }
    *(struct um_proto_taken_wire *)slot.header = (struct um_proto_taken_wire){.token = op->token};
    lane->machine->commit(lane, &slot, UM_WIRE_TAKEN, 0, is_refused);
    op->offer = is_refused ? UM_OFFER_REFUSED : UM_OFFER_TAKEN;
    um_list_unlink(&job->link);
    return true;
}

static bool tell_taken_step(struct um_core_ep *ep, struct um_core_job *job)
{
    return tell_step(ep, job, false);
}

static bool tell_refused_step(struct um_core_ep *ep, struct um_core_job *job)
{
    return tell_step(ep, job, true);
}

static bool taking_step(struct um_core_ep *ep, struct um_core_job *job)
{
    struct um_core_op *op = UM_CONTAINER(job, struct um_core_op, job);
    bool is_refused;
    if (!take_step(op, &is_refused))
        return false;
    job->step = is_refused ? tell_refused_step : tell_taken_step;
    (void)job->step(ep, job);
    return true;
}

int um_proto_rma_offer_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_offer_wire *header = rec->header;
    struct um_core_op *op;
    int ret = um_proto_op_of_part(peer, &um_proto_read_op, header->token, 0, &op);
    if (ret || !op)
        return ret;
    if (rec->body || op->offer != UM_OFFER_NONE || !rec->rx->machine->show)
        return -EPROTO;
    op->offer = UM_OFFER_COMING;
    op->key = header->key;
    op->job.step = taking_step;
    um_core_job_start(ep, &op->job);
    return 0;
}
