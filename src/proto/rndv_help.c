/*
 * Rendezvous, both: the sender's half. The sender was invited, and copies parts from the end into the receive's buffer.
 * rndv_both.c has the diagram. Owns no state. Threading: core.h.
 */
#include "proto/both.h"
#include "proto/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is kept of an operation whose receiver has invited this side. */
struct helping {
    uint16_t round;
    uint8_t words, shift;
    bool is_mapped; /* the receive's buffer is mapped here; else transfers write it */
    uint32_t copied, parts, count;
    struct um_piece piece[]; /* count */
};

static void help_end(struct um_core_op *op)
{
    um_core_copying_cancel(&op->copying);
    um_list_unlink(&op->job.link);
    op->job.step = NULL;
    free(op->copy);
    op->copy = NULL;
}

/* Claims the next part from the end. Returns whether the part is this side's. */
static bool part_claim(const struct helping *h, struct um_progress_words *w)
{
    /* sync: part-claim (partner part-claim) */
    um_store_release_u64(&w->sender, um_proto_claims_word(h->round, h->copied + 1, h->copied));
    um_fence_full();
    const uint64_t receiver = um_load_acquire_u64(&w->receiver); /* sync: round-seen (partner round-begin) */
    const uint32_t claimed = (uint32_t)(receiver >> 24) & UM_PARTS_MAX;
    return (uint16_t)(receiver >> 48) == h->round && claimed < h->parts - h->copied;
}

static bool help_step(struct um_core_ep *ep, struct um_core_job *job)
{
    struct um_core_op *op = UM_CONTAINER(job, struct um_core_op, job);
    struct helping *h = op->copy;
    struct um_core_peer *peer = op->peer;
    struct um_progress_words *w = peer->lane->machine->lane_progress(peer->lane) + h->words;
    const struct um_proto_sides sides = {.link = peer->link,
                                         .piece = h->piece,
                                         .count = h->count,
                                         .local = um_iov_begin(op->buffers.iov, op->buffers.count),
                                         .copying = &op->copying,
                                         .to_peer = true,
                                         .is_mapped = h->is_mapped};
    if (h->copied == h->parts) {
        help_end(op);
        return false;
    }
    const bool is_mine = op->copying.transfer || part_claim(h, w);
    const int ret = is_mine ? um_proto_part_move(&sides, h->parts - 1 - h->copied, h->shift, op->len) : -EAGAIN;
    if (ret == -EINPROGRESS)
        return false;
    if (ret == 0)
        ep->job_bytes += UINT64_C(1) << h->shift;
    h->copied += ret == 0;
    ep->helped += ret == 0;
    /* sync: part-copied (partner part-seen) */
    um_store_release_u64(&w->sender, um_proto_claims_word(h->round, h->copied, h->copied));
    if (ret)
        help_end(op);
    return ret == 0;
}

/* Can the invitation be followed? It may be late: then the token is that of another operation. */
static bool is_welcome(const struct um_core_peer *peer, const struct um_core_op *op, const struct helping *h)
{
    uint64_t sum = 0;
    if (!op->class->is_body || op->is_helped || op->moved || op->copy || !um_list_is_empty(&op->job.link) ||
        !peer->lane->machine->lane_progress || !peer->lane->machine->lane_progress(peer->lane) ||
        (h->is_mapped && !peer->link->machine->peer_memory))
        return false;
    for (uint32_t i = 0; i < h->count; i++) {
        if (h->piece[i].len > op->len - sum)
            return false;
        sum += h->piece[i].len;
    }
    return sum == op->len && (!h->is_mapped || um_proto_can_map(peer->link, h->piece, h->count));
}

/* The contents of the record are copied once, then checked: the peer can go on writing there. */
int um_proto_rndv_invite_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    struct um_proto_invite_wire header;
    memcpy(&header, rec->header, sizeof(header));
    const uint32_t count = header.count;
    if (count == 0 || count > UM_IOV_LIMIT || header.token < UM_TOKENS || header.round == 0 ||
        header.words >= UM_PROGRESS_WORDS || header.shift < 12 || header.shift > 40 ||
        (count > 1 && (!rec->body || rec->len != count * sizeof(struct um_piece))))
        return -EPROTO;
    struct um_core_op *op = peer->lost || !peer->lane ? NULL : um_core_peer_op(peer, header.token);
    if (!op || op->len >> header.shift >= UM_PARTS_MAX)
        return 0;
    struct helping *h = malloc(sizeof(*h) + count * sizeof(struct um_piece));
    if (!h)
        return 0;
    *h = (struct helping){.round = header.round,
                          .words = header.words,
                          .shift = header.shift,
                          .is_mapped = header.shareable,
                          .parts = um_proto_parts_of(op->len, header.shift),
                          .count = count};
    memcpy(h->piece, count > 1 ? rec->body : (const void *)&header.piece, count * sizeof(struct um_piece));
    if (!is_welcome(peer, op, h)) {
        free(h);
        return 0;
    }
    op->is_helped = true;
    op->copy = h;
    op->job.step = help_step;
    um_core_job_start(ep, &op->job);
    return 0;
}

void um_proto_help_stop(struct um_core_op *op)
{
    if (op->job.step == help_step && op->copy)
        help_end(op);
}
