/*
 * Operations at their initiator: how they end, by an answer of the peer or by the last part of what they read or fetch.
 * Values from the peer are checked. Owns no state. Threading: core.h.
 */
#include "proto/internal.h"

#include <errno.h>

void um_proto_op_answered(struct um_core_ep *ep, struct um_core_op *op, int32_t status)
{
    (void)ep;
    if (status <= 0)
        um_core_op_complete(op, status < -UM_ERRNO_MAX ? EPROTO : -status);
    /* else: an answer without a meaning here; the operation goes on */
}

int um_proto_op_of_part(const struct um_core_peer *peer, const struct um_core_op_class *class, uint32_t token,
                        uint64_t offset, struct um_core_op **op_p)
{
    struct um_core_op *op = um_core_peer_op(peer, token);
    if (op ? op->class != class || offset != op->moved : !peer->lost)
        return -EPROTO;
    *op_p = op;
    return 0;
}

int um_proto_op_part_arrived(struct um_core_op *op, const void *bytes, uint32_t len)
{
    if (len == 0 || len > op->len - op->moved)
        return -EPROTO;
    um_iov_scatter(&op->buffers.cursor, bytes, len);
    op->moved += len;
    if (op->moved == op->len)
        um_core_op_complete(op, 0);
    return 0;
}
