/*
 * Operations in flight, at their initiator: made, waiting for their peer, reaped, completed.
 *
 * Owns: struct um_core_op. Threading: core.h.
 */
#include "core/endpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { UM_REAP = 16 /* answers taken at a time */ };

int um_core_buffers_set_list(struct um_core_buffers *b, const struct iovec *iov, size_t count)
{
    b->iov = b->small;
    b->count = (uint32_t)count;
    if (count > UM_OP_IOV_SMALL) {
        b->iov = malloc(count * sizeof(*iov));
        if (!b->iov) {
            b->iov = b->small;
            b->count = 0;
            return -ENOMEM;
        }
    }
    for (size_t i = 0; i < count; i++)
        b->iov[i] = iov[i];
    b->cursor = um_iov_begin(b->iov, count);
    return 0;
}

void um_core_buffers_free(struct um_core_buffers *b)
{
    free(b->iov);
    b->iov = b->small;
}

struct um_core_op *um_core_op_alloc(struct um_core_peer *peer, const struct um_core_op_class *class, void *context,
                                    uint32_t flags)
{
    struct um_core_op *op = um_pool_alloc(&peer->ep->ops);
    if (!op)
        return NULL;
    op->class = class;
    op->peer = peer;
    op->context = context;
    op->flags = flags;
    op->has_token = false;
    op->is_unfinished = false;
    op->tag = 0;
    op->len = 0;
    op->moved = 0;
    op->copy = NULL;
    op->buffers.iov = op->buffers.small;
    op->buffers.count = 0;
    op->copying.transfer = NULL;
    op->shown = NULL;
    um_list_init(&op->job.link);
    um_list_init(&op->link);
    return op;
}

void um_core_op_free(struct um_core_op *op)
{
    struct um_core_peer *peer = op->peer;
    um_list_unlink(&op->job.link);
    um_list_unlink(&op->link);
    if (op->has_token)
        um_core_op_drop_token(op);
    if (__builtin_expect(op->copying.transfer != NULL, 0))
        um_core_copying_cancel(&op->copying);
    um_core_op_hide(op, UM_HIDE_GIVEN_UP);
    peer->unfinished -= op->is_unfinished;
    um_core_buffers_fini(&op->buffers);
    free(op->copy); /* NOLINT(clang-analyzer-unix.Malloc): an unlinked operation does not come again */
    um_pool_release(&peer->ep->ops, op);
}

/* ---- what an operation waits for ---- */

void um_core_peer_await(struct um_core_peer *peer)
{
    if (!um_list_is_empty(&peer->awaiting))
        return;
    um_list_append(&peer->ep->awaiting, &peer->awaiting);
    if (peer->lane)
        peer->lane->machine->lane_watch(peer->lane, true);
}

void um_core_op_await_ack(struct um_core_op *op)
{
    op->ack = op->peer->lane->machine->lane_committed(op->peer->lane);
    um_list_append(&op->peer->acks, &op->link);
    um_core_peer_await(op->peer);
}

void um_core_op_await_answer(struct um_core_op *op)
{
    um_core_peer_await(op->peer);
}

void um_core_op_complete(struct um_core_op *op, int error)
{
    struct um_core_ep *ep = op->peer->ep;
    struct um_core_completion c = {
        .context = op->context,
        .flags = op->flags,
        .error = error,
        .len = op->len,
        .tag = op->tag,
    };
    um_core_op_free(op);
    ep->reported = true;
    ep->config.complete(ep->config.arg, &c);
}

/* ---- what has come ---- */

static int peer_acks(struct um_core_peer *peer)
{
    int count = 0;
    uint32_t consumed = peer->lane->machine->lane_consumed(peer->lane);
    struct um_list *first;
    while ((first = um_list_first(&peer->acks)) != NULL) {
        struct um_core_op *op = UM_CONTAINER(first, struct um_core_op, link);
        if ((int32_t)(consumed - op->ack) < 0)
            break;
        um_core_op_complete(op, 0);
        count++;
    }
    return count;
}

int um_core_peer_reap(struct um_core_peer *peer)
{
    struct um_core_ep *ep = peer->ep;
    struct um_answer answers[UM_REAP];
    int acks = peer_acks(peer);
    int count = peer->lane->machine->lane_reap(peer->lane, answers, UM_REAP);
    for (int i = 0; i < count; i++) {
        struct um_core_op *op = um_core_peer_op(peer, answers[i].token);
        if (op) /* NULL: no operation awaits this answer, which is ignored */
            op->class->answered(ep, op, answers[i].status);
    }
    return count < 0 ? count : acks + count;
}
