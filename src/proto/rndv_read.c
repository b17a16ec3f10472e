/*
 * Rendezvous, read: the receiver reads the body from where it lies, in steps, alone or with the sender's help
 * (rndv_both.c). rndv_send.c has the picture.
 *
 * A body that cannot be read is asked for in records, from its first byte on. Owns no state. Threading: core.h.
 */
#include "proto/both.h"
#include "proto/internal.h"

#include <errno.h>

enum { UM_READ_STEP = 2 << 20 /* bytes one step moves */ };

size_t um_proto_rndv_step(const struct um_proto_inbound *in, uint64_t left)
{
    const bool is_step = left > UM_READ_STEP && !in->peer->link->machine->transfers_whole;
    return is_step ? (size_t)UM_READ_STEP : (size_t)left;
}

/* Is the body shown by another machine than the one that reaches the peer? Its key is of the machine that carried the
 * announcement. */
static bool is_elsewhere(const struct um_proto_inbound *in)
{
    return in->is_shown && (!in->peer->rx || in->peer->rx->machine != in->peer->link->machine);
}

/* Describes a copy of the next len bytes of the body, behind `moved`. remote has UM_IOV_LIMIT places. */
static struct um_copy copy_of(const struct um_proto_inbound *in, size_t len, struct um_piece *remote)
{
    struct um_copy copy = {.remote = remote, .len = len};
    copy.remote_count = um_proto_pieces_cut(in->piece, in->count, in->moved, len, remote);
    if (in->is_shown) {
        copy.key = in->piece[0].addr;
        copy.offset = in->moved;
    }
    return copy;
}

/* The body goes another way than the one that was chosen. */
static void give_up(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (in->way.chosen != UM_WAY_NONE)
        um_proto_way_failed(ep, in);
    um_proto_both_give_up(ep, in);
}

/* The outcome of reading a part: it has moved; not now, or in records from now on; the body has ended. */
enum read_outcome { READ_MOVED, READ_NOT_NOW, READ_ENDED };

static enum read_outcome read_result(struct um_core_ep *ep, struct um_proto_inbound *in, int ret)
{
    if (ret == -EAGAIN || ret == -EINPROGRESS || ret == -ENOMEM)
        return READ_NOT_NOW;
    if (ret == -EPERM && in->watch.is_taken_back) {
        if (um_proto_ask_resume(in))
            return READ_NOT_NOW;
        um_proto_inbound_finish(ep, in, EIO); /* it is too late to wait for parts */
        return READ_ENDED;
    }
    if (ret == -EPERM) { /* all of it comes in records, from the first byte on */
        give_up(ep, in);
        um_proto_peer_of(in->peer)->asked.is_unreadable = true;
        in->dest.cursor = in->start;
        in->pushed = true;
        (void)um_proto_ask_records(in);
        return READ_NOT_NOW;
    }
    if (ret) {
        um_proto_inbound_finish(ep, in, ret == -ESRCH ? ECONNRESET : ret == -EFAULT ? EFAULT : EIO);
        return READ_ENDED;
    }
    return READ_MOVED;
}

int um_proto_rndv_read(struct um_core_ep *ep, struct um_proto_inbound *in, void *here, size_t len)
{
    int ret;
    if (in->copying.transfer) {
        len = in->copying.len;
        ret = um_core_copying_poll(&in->copying);
    } else if (is_elsewhere(in)) {
        ret = -EPERM;
    } else {
        struct um_piece remote[UM_IOV_LIMIT];
        const struct iovec local = {.iov_base = here, .iov_len = len};
        struct um_copy copy = copy_of(in, len, remote);
        copy.local = &local;
        copy.local_count = 1;
        copy.is_region = true;
        ret = um_core_copying_start(&in->copying, in->peer->link, &copy,
                                    um_core_regions_find(ep->config.regions, in->key));
    }
    enum read_outcome outcome = read_result(ep, in, ret);
    if (outcome == READ_MOVED)
        in->moved += len;
    return outcome == READ_ENDED ? -1 : 0;
}

/* Reads the next bytes of a message, up to `limit` bytes in all. *len_p: how many bytes move now. Results as
 * transfer_start() and transfer_poll(). */
static int message_read(struct um_core_ep *ep, struct um_proto_inbound *in, uint64_t limit, size_t *len_p)
{
    if (in->copying.transfer) {
        *len_p = in->copying.len;
        return um_proto_way_read_on(ep, in);
    }
    *len_p = 0;
    if (is_elsewhere(in))
        return -EPERM;
    struct um_piece remote[UM_IOV_LIMIT];
    struct iovec local[UM_IOV_LIMIT];
    struct um_iov_cursor next = in->dest.cursor;
    const size_t len = um_proto_rndv_step(in, limit - in->moved);
    struct um_copy copy = copy_of(in, len, remote);
    copy.local = local;
    copy.local_count = um_iov_take(&next, len, local, UM_IOV_LIMIT);
    *len_p = copy.len = um_iov_length(local, copy.local_count);
    return um_proto_way_read(ep, in, &copy);
}

/*
 * Has the sender given the body up? Then its program may have had the memory back before all of the body was copied.
 * (A transfer finds out by itself: the sender's port is not there any more.)
 */
static bool is_given_up(const struct um_proto_inbound *in)
{
    struct um_rx *rx = in->peer->rx;
    return rx && rx->machine->rx_is_closing && rx->machine->rx_is_closing(rx);
}

/* One step of a body that is mapped. If it can no longer be reached so, it comes in another way. */
static bool mapped_step(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    int ret = um_proto_both_copy(ep, in);
    if (ret == -EPERM)
        give_up(ep, in);
    if (ret == 0)
        um_proto_inbound_finish(ep, in, is_given_up(in) ? ECONNRESET : 0);
    return ret != 0;
}

/* One step of a body that is read and whose sender was invited to copy as well. */
static bool helped_step(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    enum read_outcome outcome = read_result(ep, in, um_proto_way_read_helped(ep, in));
    if (outcome == READ_MOVED)
        um_proto_inbound_finish(ep, in, 0);
    return outcome == READ_NOT_NOW;
}

/* One step of a message's body. Returns whether the body still lives, and is the caller's. */
static bool message_step(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    uint64_t limit = in->arrival.len < in->dest.len ? in->arrival.len : in->dest.len;
    const bool may_wait = in->may_wait;
    in->may_wait = false;
    if (in->way.chosen == UM_WAY_NONE && !in->copying.transfer && um_proto_way_choose(ep, in))
        return true;
    if (in->both.is_wanted && !um_proto_both_begin(ep, in))
        return true;
    if (in->both.is_wanted && in->way.chosen == UM_WAY_READ && !in->both.is_helped)
        um_proto_way_unaided(ep, in);
    in->both.is_wanted = false;
    if (in->way.chosen == UM_WAY_MAPPED)
        return mapped_step(ep, in);
    if (in->both.words >= 0)
        return helped_step(ep, in);
    if (may_wait && um_proto_batch_take(ep, in))
        return false;
    if (in->moved < limit) {
        size_t len;
        enum read_outcome outcome = read_result(ep, in, message_read(ep, in, limit, &len));
        if (outcome != READ_MOVED)
            return outcome == READ_NOT_NOW;
        um_iov_skip(&in->dest.cursor, len);
        in->moved += len;
    }
    if (in->moved < limit)
        return true;
    um_proto_inbound_finish(ep, in, 0);
    return false;
}

static void message_ended(struct um_core_ep *ep, struct um_proto_inbound *in, int error)
{
    um_proto_receive_finish(ep, &in->dest, &in->arrival, error);
}

const struct um_proto_inbound_class um_proto_message_body = {.step = message_step, .ended = message_ended};
