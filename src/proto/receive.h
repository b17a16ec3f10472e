/*
 * Shared by receive.c (posted receives), unexpected.c (messages that wait for a receive) and recv.c (the call).
 * Threading: core.h.
 */
#ifndef UM_PROTO_RECEIVE_H
#define UM_PROTO_RECEIVE_H

#include "base/spares.h"
#include "proto/internal.h"

enum {
    UM_UNEXPECTED_INLINE = 128,
    UM_UNEXPECTED_DEFAULT = 64 << 20, /* bytes */
    UM_UNEXPECTED_SPARE = 16,         /* kept_max divided by this: bytes of freed bodies that are kept */
    UM_INBOUND_SIZE = sizeof(struct um_proto_inbound) + sizeof(struct um_piece),
    UM_INDEX_SIZE = 2 * sizeof(struct um_match_entry), /* bytes that the searches under one mask add to a message */
    UM_PEEK_LOOKS = 4096, /* messages that are taken beyond the bound after a peek found nothing: eight full lanes */
};

struct um_proto_unexpected {
    struct um_match_msg match;
    struct um_list link; /* in um_proto_receive.claimed */
    void *claimed_by;    /* context of the peek that reserved it */
    struct um_proto_arrival arrival;
    struct um_proto_inbound *inbound;     /* a rendezvous; NULL: the body is below */
    struct um_proto_segmented *segmented; /* not NULL: its last segment has not come yet */
    int error;                            /* positive errno: the message failed, and the rest of it will not come */
    size_t size;                          /* bytes that it takes, its announced body's description included */
    void *body;
    unsigned char small[UM_UNEXPECTED_INLINE];
};

struct um_proto_receive {
    struct um_match *engine[2]; /* untagged, tagged */
    struct um_list claimed;     /* um_proto_unexpected: those that a peek reserved */
    size_t kept, kept_max;      /* bytes that unexpected messages take, and the bound */
    uint32_t peek_looks;        /* messages that may still be taken past the bound, because a peek waits */
    struct um_pool recvs;
    struct um_pool unexpected;
    struct um_spares bodies; /* of unexpected messages */
};

static inline struct um_match *um_proto_receive_engine(const struct um_core_ep *ep, uint32_t flags)
{
    return um_proto_ep_of(ep)->receive->engine[!!(flags & UM_OP_TAGGED)];
}

/* Is nothing posted, tagged or untagged? */
static inline bool um_proto_receive_is_idle(const struct um_proto_receive *r)
{
    return !um_match_any_recv(r->engine[0]) && !um_match_any_recv(r->engine[1]);
}

/* Sets all that the usual receive has, except its room and its buffer. */
static inline void um_proto_posted_recv_init(struct um_proto_posted_recv *recv, const struct um_core_peer *peer,
                                             void *context, uint32_t flags, uint64_t tag, uint64_t ignore)
{
    recv->context = context;
    recv->flags = flags | UM_OP_RECV;
    recv->match.tag = tag;
    recv->match.ignore = ignore;
    recv->match.source = peer ? peer->number : UM_MATCH_ANY;
    recv->match.stays = flags & UM_OP_MULTI;
}

static_assert(offsetof(struct um_proto_posted_recv, match) + offsetof(struct um_match_recv, order) == 64,
              "the usual receive is in one line");

/* Returns the posted receive for a message, or NULL. The receive is no longer posted, unless it is a multi-receive. */
static inline struct um_proto_posted_recv *um_proto_receive_take(struct um_match *engine, uint64_t tag,
                                                                 const struct um_core_peer *peer)
{
    struct um_match_recv *found = um_match_take_recv(engine, tag, peer->number);
    return found ? UM_CONTAINER(found, struct um_proto_posted_recv, match) : NULL;
}

/* Makes the whole buffer of a receive the destination of a message. */
void um_proto_posted_recv_destine(struct um_proto_posted_recv *recv, struct um_proto_destination *dest);

/* Makes a receive, not posted yet. NULL: no memory. */
struct um_proto_posted_recv *um_proto_posted_recv_alloc(struct um_core_ep *ep, const struct um_proto_msg *msg);
void um_proto_posted_recv_free(struct um_core_ep *ep, struct um_proto_posted_recv *recv);
/* Completes a multi-receive buffer that takes no more messages, unless bodies are still on their way into it: then the
 * last one completes it. */
void um_proto_posted_recv_end(struct um_core_ep *ep, struct um_proto_posted_recv *recv);
/* Counts a message that is received. */
static inline void um_proto_arrival_count(struct um_core_ep *ep, const struct um_core_peer *peer, size_t len)
{
    struct um_core_traffic *in = peer->in;
    in->received++;
    in->bytes_received += len;
    ep->reported = true;
}

/* Counts a message and returns the completion of its receive, without context and flags of the receive. room: bytes
 * that the receive's buffer has for the message. */
static inline struct um_core_completion
um_proto_arrival_end(struct um_core_ep *ep, const struct um_proto_arrival *arrival, size_t room, int error)
{
    bool truncated = arrival->len > room;
    int lost = truncated ? EMSGSIZE : 0;
    struct um_core_completion c = {
        .flags = arrival->flags,
        .error = error ? error : lost,
        .len = truncated ? room : (size_t)arrival->len,
        .olen = truncated ? (size_t)(arrival->len - room) : 0,
        .tag = arrival->tag,
        .data = arrival->data,
        .source = arrival->peer,
        .name = arrival->peer->name,
    };
    um_proto_arrival_count(ep, arrival->peer, c.len);
    return c;
}

/* A message in segments, from its first segment to its last. A peer sends one such message at a time. */
struct um_proto_segmented {
    bool is_open;
    struct um_proto_arrival arrival;
    struct um_proto_destination dest;    /* recv is NULL while the message has no receive */
    struct um_proto_unexpected *waiting; /* takes the segments until then; if this is NULL, too, they are dropped */
    size_t moved;                        /* bytes */
    struct um_proto_came came;           /* began is 0 if it is not timed */
};

/* ---- unexpected.c ---- */
/* Is the message here with all of its body? */
static inline bool um_proto_unexpected_is_whole(const struct um_proto_unexpected *u)
{
    return !u->inbound && !u->segmented && !u->error;
}
/* Returns the destination that the message will use: its own if it has to outlive the call, else the caller's. */
static inline struct um_proto_destination *um_proto_unexpected_dest(struct um_proto_unexpected *u,
                                                                    struct um_proto_destination *local)
{
    if (u->inbound)
        return &u->inbound->dest;
    return u->segmented ? &u->segmented->dest : local;
}
/* Returns the oldest unexpected message that matches the receive or the peek; NULL: there is none. The message stays
 * queued. */
struct um_proto_unexpected *um_proto_unexpected_find(struct um_core_ep *ep, const struct um_proto_msg *msg);
/* Ends all holds, because a receive or a peek waits for a message. */
static inline void um_proto_unexpected_lift(struct um_core_ep *ep)
{
    if (__builtin_expect(!um_list_is_empty(&ep->held), 0))
        um_core_ep_lift(ep);
}
/* Gives a message, which is no longer queued, to a receive that is not posted. */
void um_proto_unexpected_give(struct um_core_ep *ep, struct um_proto_posted_recv *recv, struct um_proto_unexpected *u);
/* The same to *dest, which um_proto_unexpected_dest() chose and the caller has set. */
void um_proto_unexpected_deliver(struct um_core_ep *ep, struct um_proto_unexpected *u,
                                 struct um_proto_destination *dest);
void um_proto_unexpected_free(struct um_core_ep *ep, struct um_proto_unexpected *u);
/* Receives the message that a peek reserved under this context. -ENOMSG: there is none; -ENOMEM. */
int um_proto_unexpected_receive_claimed(struct um_core_ep *ep, const struct um_proto_msg *msg);

#endif
