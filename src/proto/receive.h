/*
 * The inside of receiving, shared by receive.c (posted receives) and unexpected.c (messages that wait for one).
 * Threading: core.h.
 */
#ifndef UM_PROTO_RECEIVE_H
#define UM_PROTO_RECEIVE_H

#include "proto/internal.h"

enum { UM_UNEXPECTED_INLINE = 128 };

struct um_unexpected {
    struct um_match_msg match;
    struct um_list link; /* in claimed */
    void *claimed_by;    /* context */
    struct um_arrival arrival;
    struct um_inbound *inbound; /* a rendezvous; else the body is below */
    void *body;
    unsigned char small[UM_UNEXPECTED_INLINE];
};

struct um_receive {
    struct um_match *engine[2]; /* untagged, tagged */
    struct um_list posted;      /* um_recv, by age */
    struct um_list claimed;     /* um_unexpected */
    struct um_pool recvs;
    struct um_pool unexpected;
};

static inline struct um_match *um_receive_engine(const struct um_ep *ep, uint32_t flags)
{
    return ((const struct um_receive *)ep->receive)->engine[!!(flags & UM_OP_TAGGED)];
}

/* A receive that is not posted yet. NULL: no memory. */
struct um_recv *um_recv_alloc(struct um_ep *ep, const struct um_msg *msg);
void um_recv_free(struct um_ep *ep, struct um_recv *recv);

/* ---- unexpected.c ---- */
/* The oldest message that the receive, or the peek, would take; NULL. It stays queued. */
struct um_unexpected *um_unexpected_find(struct um_ep *ep, const struct um_msg *msg);
/* Gives it, no longer queued, to a receive that is not posted. */
void um_unexpected_give(struct um_ep *ep, struct um_recv *recv, struct um_unexpected *u);
/* The same to the target, which lies in *target (eager) or is set in the inbound's own. */
void um_unexpected_deliver(struct um_ep *ep, struct um_unexpected *u, struct um_target *target);
void um_unexpected_free(struct um_ep *ep, struct um_unexpected *u);
/* The receive of a message that a peek reserved. */
int um_unexpected_receive_claimed(struct um_ep *ep, const struct um_msg *msg);

#endif
