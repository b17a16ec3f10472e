/*
 * Rendezvous, read: bodies that a peer announced one after the other are read by one system call.
 *
 * A call takes a few hundred ns in addition to the copy, whatever it reads: the entry, the way to the peer's memory,
 * and the proof whom it touches (machine/shm/copy.c). (64 KiB: 3.3 us by a call for each body, 2.9 us by one for four;
 * 32 KiB: 2.0 us and 1.6 us.) So a body that was announced waits until the call of progress has taken the other records
 * that are there, or the batch is full. If the one call fails, each body is read by itself, and those that can be read
 * are.
 *
 * Only a body whose announcement has just come waits, or one that waited for others (ask.c). One that was unexpected is
 * read in the call that receives it, because the caller may compute before it makes progress. What is read for an
 * announcement that has just come does not count for the bound of a call's jobs (inbound.c), so that a stream of bodies
 * leaves them their turn. Owns: struct um_proto_batch, struct um_proto_batches. Threading: core.h.
 */
#include "proto/internal.h"

#include "base/clock.h"

enum { UM_BATCH_BODIES = 4 }; /* more take hardly less time each, and their senders wait longer */

#define UM_BATCH_BYTES UINT64_C(1048576) /* a batch that has so many is full; a longer body is read by itself */

/* The bodies of the list, as one copy. */
struct batch_copy {
    struct um_copy copy;
    struct um_piece remote[UM_BATCH_BODIES];
    struct iovec local[UM_BATCH_BODIES];
};

static void copy_of(const struct um_list *bodies, struct batch_copy *b)
{
    size_t count = 0;
    b->copy = (struct um_copy){.remote = b->remote, .local = b->local};
    for (const struct um_list *l = bodies->next; l != bodies; l = l->next) {
        const struct um_proto_inbound *in = um_proto_inbound_of_job(l);
        struct um_iov_cursor cursor = in->dest.cursor;
        b->remote[count] = in->piece[0];
        (void)um_iov_take(&cursor, (size_t)in->arrival.len, &b->local[count], 1);
        b->copy.len += (size_t)in->arrival.len;
        count++;
    }
    b->copy.remote_count = b->copy.local_count = count;
}

/* Reads several bodies. Returns whether all of them have moved. */
static bool read_together(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_list *bodies)
{
    struct batch_copy b;
    struct um_transfer *none;
    copy_of(bodies, &b);
    if (b.copy.remote_count < 2)
        return false;
    const uint64_t began = um_clock_ns();
    if (peer->link->machine->transfer_start(peer->link, &b.copy, &none) != 0)
        return false;
    um_proto_way_batch_read(ep, bodies, began, b.copy.len);
    ep->stats.batched += b.copy.remote_count;
    return true;
}

void um_proto_batch_read(struct um_core_ep *ep, struct um_core_peer *peer)
{
    struct um_list bodies, *first;
    um_list_init(&bodies);
    while ((first = um_list_first(&um_proto_peer_of(peer)->batch.bodies)) != NULL) {
        um_list_unlink(first);
        um_list_append(&bodies, first);
    }
    um_proto_batch_forget(peer);
    const bool has_moved = read_together(ep, peer, &bodies);
    while ((first = um_list_first(&bodies)) != NULL) {
        struct um_proto_inbound *in = um_proto_inbound_of_job(first);
        um_list_unlink(first);
        if (has_moved) {
            in->moved = in->arrival.len;
            um_proto_inbound_finish(ep, in, 0);
        } else {
            um_proto_inbound_go_on(ep, in);
        }
    }
}

/* One step reads the batches of all peers, so that none waits for another one. */
static bool batches_step(struct um_core_ep *ep, struct um_core_job *job)
{
    struct um_proto_batches *batches = UM_CONTAINER(job, struct um_proto_batches, job);
    struct um_list *first;
    um_list_unlink(&job->link);
    while ((first = um_list_first(&batches->waiting)) != NULL) {
        struct um_proto_batch *batch = UM_CONTAINER(first, struct um_proto_batch, link);
        um_proto_batch_read(ep, um_proto_peer_whole(UM_CONTAINER(batch, struct um_proto_peer, batch)));
    }
    return true;
}

void um_proto_batch_open(struct um_core_ep *ep)
{
    struct um_proto_batches *batches = &um_proto_ep_of(ep)->batches;
    um_list_init(&batches->waiting);
    um_list_init(&batches->job.link);
    batches->job.step = batches_step;
}

/* Can the body be one of a batch: from one piece to one place, by a copy that ends in the call that starts it? (A
 * receive that is too short has a place of other length.) */
static bool is_simple(const struct um_proto_inbound *in)
{
    struct um_iov_cursor cursor = in->dest.cursor;
    struct iovec place;
    const size_t len = (size_t)in->arrival.len;
    return in->count == 1 && !in->is_shown && len <= UM_BATCH_BYTES / 2 && !in->peer->link->machine->transfer_poll &&
           um_iov_take(&cursor, len, &place, 1) == 1 && place.iov_len == len;
}

bool um_proto_batch_take(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_batches *batches = &um_proto_ep_of(ep)->batches;
    struct um_proto_batch *batch = &um_proto_peer_of(in->peer)->batch;
    if (!is_simple(in))
        return false;
    um_list_unlink(&in->job.link);
    um_list_append(&batch->bodies, &in->job.link);
    batch->bytes += in->arrival.len;
    if (batch->count++ == 0)
        um_list_append(&batches->waiting, &batch->link);
    if (um_list_is_empty(&batches->job.link))
        um_core_job_start_first(ep, &batches->job); /* short bodies do not wait for long ones */
    if (batch->count == UM_BATCH_BODIES || batch->bytes >= UM_BATCH_BYTES)
        um_proto_batch_read(ep, in->peer);
    return true;
}
