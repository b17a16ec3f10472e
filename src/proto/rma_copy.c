/*
 * RMA through a window below level mapped: the bytes move by a transfer of the machine.
 *
 *   it ends in the call that starts it → nothing to do here
 *   under way: an operation, whose job polls the transfer
 *     ├ without data → completion
 *     └ with data    → NOTIFY as soon as there is credit → completion, or acknowledgement
 *
 * Several may be under way at a time, and end in any order. Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include "core/window.h"

#include <errno.h>

/* Sends NOTIFY, which tells the target of the data. -EAGAIN: not now. */
static int notify(struct um_core_op *op)
{
    struct um_lane *lane;
    struct um_slot slot;
    int ret = um_core_peer_lane(op->peer, &lane);
    if (ret)
        return ret;
    ret = lane->machine->claim(lane, 0, &slot);
    if (ret)
        return um_core_peer_claim_failed(op->peer, ret); /* -EPIPE ends the operation */
    *(struct um_proto_notify_wire *)slot.header = (struct um_proto_notify_wire){.data = op->data, .len = op->len};
    lane->machine->commit(lane, &slot, UM_WIRE_NOTIFY,
                          (uint8_t)(UM_WIRE_DATA | (op->flags & UM_OP_DELIVERY ? UM_FLAG_ACK : 0)), 0);
    return 0;
}

/* Called when the bytes have moved. Counts the operation where the peer asked for that, if the registration is still
 * the same. */
static void moved(struct um_core_ep *ep, struct um_core_op *op)
{
    struct um_window *w = um_core_window_find(op->peer, op->key);
    ep->stats.copied++;
    if (w && w->birth == op->birth)
        um_core_window_count(w, op->flags & UM_OP_READ ? UM_COUNT_READ_SHIFT : UM_COUNT_WRITE_SHIFT);
    op->moved = op->len;
}

static bool copying_step(struct um_core_ep *ep, struct um_core_job *job)
{
    struct um_core_op *op = UM_CONTAINER(job, struct um_core_op, job);
    if (op->copying.transfer) {
        int ret = um_core_copying_poll(&op->copying);
        if (ret == -EINPROGRESS)
            return false;
        if (ret == -ESRCH) {
            um_core_peer_lose(op->peer, ECONNRESET); /* ends this operation, too */
            return true;
        }
        if (ret) {
            um_core_op_complete(op, ret == -EPERM ? EACCES : -ret);
            return true;
        }
        moved(ep, op);
    }
    if (op->flags & UM_OP_DATA && !(op->flags & UM_OP_READ)) {
        if (notify(op) != 0)
            return false;
        if (op->flags & UM_OP_DELIVERY) {
            um_list_unlink(&job->link);
            um_list_unlink(&op->link);
            um_core_op_await_ack(op);
            return true;
        }
    }
    um_core_op_complete(op, 0);
    return true;
}

/* Starts the transfer for an operation, which keeps what the transfer needs. Results as um_proto_rma_copy(). */
static int copy_kept(struct um_core_ep *ep, const struct um_proto_rma *rma, const struct um_window *w,
                     struct um_copy *copy)
{
    struct um_core_op *op = um_core_op_alloc(rma->peer, NULL, rma->context, rma->flags);
    if (!op)
        return -ENOMEM;
    op->len = copy->len;
    int ret = um_proto_rndv_keep(op, rma->iov, rma->count, copy->len);
    if (ret == 0) {
        copy->local = op->buffers.iov;
        copy->local_count = op->buffers.count;
        ret = um_core_copying_start(&op->copying, rma->peer->link, copy, NULL);
    }
    if (ret != -EINPROGRESS) {
        um_core_op_free(op);
        return ret;
    }
    op->key = rma->key;
    op->data = rma->data;
    op->birth = w->birth;
    op->job.step = copying_step;
    um_list_append(&rma->peer->copies, &op->link);
    um_core_job_start(ep, &op->job);
    return ret;
}

int um_proto_rma_copy(struct um_core_ep *ep, const struct um_proto_rma *rma, const struct um_window *w, uint64_t offset,
                      size_t len)
{
    struct um_link *link = rma->peer->link;
    const struct um_piece piece = {.addr = w->region.base + offset, .len = len};
    struct um_copy copy = {.write = !(rma->flags & UM_OP_READ),
                           .remote = &piece,
                           .remote_count = 1,
                           .local = rma->iov,
                           .local_count = rma->count,
                           .len = len,
                           .window = w};
    struct um_transfer *none;
    if (len == 0)
        return 0;
    return link->machine->transfer_poll ? copy_kept(ep, rma, w, &copy)
                                        : link->machine->transfer_start(link, &copy, &none);
}
