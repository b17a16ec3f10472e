/*
 * All protocols together: the table by which core dispatches, opening and closing, limits. Threading: core.h.
 */
#include "proto/internal.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

/* How long bodies that end together wait for senders that have claimed a part of a buffer, ns. */
#define UM_AWAIT_NS UINT64_C(5000000000)

/* A sender whose lane ended in good order copies nothing any more; one that broke the protocol is not trusted. */
static void peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error)
{
    const uint64_t await_until = error && error != EPROTO ? um_clock_ns() + UM_AWAIT_NS : 0;
    um_proto_batch_read(ep, peer); /* it may have left after it announced them */
    um_proto_inbound_peer_left(ep, peer, error ? error : ECONNRESET, await_until);
    um_proto_segments_peer_left(ep, peer, error ? error : ECONNRESET);
    um_proto_atomic_peer_left(peer);
    um_proto_receive_peer_left(ep, peer, error ? error : ECONNRESET);
}

static void peer_opened(struct um_core_peer *peer)
{
    struct um_proto_peer *own = um_proto_peer_of(peer);
    um_list_init(&own->atomics);
    um_list_init(&own->batch.bodies);
    um_list_init(&own->batch.link);
    um_list_init(&own->due);
    um_list_init(&own->answering.link);
    um_list_init(&own->asked.watched);
    um_list_init(&own->asked.behind);
    um_list_init(&own->asked.looking.link);
}

static void peer_rerouted(struct um_core_peer *peer)
{
    um_proto_peer_of(peer)->asked.is_unreadable = false; /* that was known of the previous machine only */
}

static bool peer_owes(const struct um_core_peer *peer)
{
    return !um_list_is_empty(&um_proto_peer_of(peer)->due);
}

static void peer_freed(struct um_core_peer *peer)
{
    free(um_proto_peer_of(peer)->inbound);
    free(um_proto_peer_of(peer)->segmented);
}

static_assert((int)UM_OPCODES == (int)UM_OPCODE_BODY_MAX + 2, "only TAKEN is above, and it has no body");

static const struct um_core_protocols protocols = {
    .ep_size = sizeof(struct um_proto_ep),
    .peer_size = sizeof(struct um_proto_peer),
    .peer_opened = peer_opened,
    .peer_rerouted = peer_rerouted,
    .peer_freed = peer_freed,
    .peer_owes = peer_owes,
    .handler =
        {
            [UM_WIRE_EAGER] = um_proto_eager_arrived,
            [UM_WIRE_RTS] = um_proto_rndv_rts_arrived,
            [UM_WIRE_PUSH] = um_proto_rndv_push_arrived,
            [UM_WIRE_WRITE] = um_proto_rma_write_arrived,
            [UM_WIRE_WRITE_RTS] = um_proto_rma_rts_arrived,
            [UM_WIRE_READ] = um_proto_rma_rts_arrived,
            [UM_WIRE_RETURN] = um_proto_rma_return_arrived,
            [UM_WIRE_OFFER] = um_proto_rma_offer_arrived,
            [UM_WIRE_TAKEN] = um_proto_rma_taken_arrived,
            [UM_WIRE_NOTIFY] = um_proto_rma_notify_arrived,
            [UM_WIRE_ATOMIC] = um_proto_atomic_arrived,
            [UM_WIRE_ATOMIC_MORE] = um_proto_atomic_more_arrived,
            [UM_WIRE_RESULT] = um_proto_atomic_result_arrived,
            [UM_WIRE_INVITE] = um_proto_rndv_invite_arrived,
            [UM_WIRE_FIRST] = um_proto_segments_first_arrived,
            [UM_WIRE_NEXT] = um_proto_segments_next_arrived,
        },
    .peer_left = peer_left,
};

/* An injected message must fit into a record: so its body must not be one that a receiver may want announced. */
void um_proto_limits_get(const struct um_machines *machines, struct um_proto_limits *limits_p)
{
    *limits_p = (struct um_proto_limits){.inject_max = UINT32_MAX, .iov_max = UM_IOV_LIMIT, .rma_iov_max = 1};
    for (uint32_t i = 0; i < machines->count; i++) {
        const struct um_machine *m = machines->at[i];
        const uint32_t most = m->rx_announce && m->body_max > UM_ANNOUNCED_MIN ? UM_ANNOUNCED_MIN : m->body_max;
        limits_p->inject_max = most < limits_p->inject_max ? most : limits_p->inject_max;
    }
}

int um_proto_ep_open(const struct um_core_ep_config *config, struct um_core_ep **ep_p)
{
    struct um_core_ep *ep;
    int ret = um_core_ep_open(config, &protocols, &ep);
    if (ret)
        return ret;
    um_proto_batch_open(ep);
    ret = um_proto_receive_open(ep);
    if (ret == 0 && (ret = um_proto_way_open(ep)) != 0)
        um_proto_receive_close(ep);
    if (ret) {
        um_core_ep_close(ep);
        return ret;
    }
    *ep_p = ep;
    return 0;
}

void um_proto_ep_close(struct um_core_ep *ep)
{
    um_core_ep_flush(ep);
    const uint64_t await_until = um_clock_ns() + UM_AWAIT_NS;
    for (uint32_t i = 0; i < ep->peer_slots; i++) {
        if (!ep->peers[i])
            continue;
        um_proto_inbound_peer_left(ep, ep->peers[i], ECANCELED, await_until);
        um_proto_segments_peer_left(ep, ep->peers[i], ECANCELED);
        um_proto_atomic_peer_left(ep->peers[i]);
    }
    um_proto_receive_cancel_all(ep);
    um_proto_receive_close(ep);
    um_proto_way_close(ep);
    um_core_ep_close(ep);
}
