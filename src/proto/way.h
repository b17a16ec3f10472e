/*
 * What an endpoint has learned of the ways in which bodies move: way.c chooses by it, and way_learn.c learns. Only
 * these two include it. Threading: core.h.
 */
#ifndef UM_PROTO_WAY_H
#define UM_PROTO_WAY_H

#include "proto/internal.h"

enum { UM_PAUSES = 4 }; /* bodies in a row that came late: then their sender computes between them (way_learn.c) */

/* The two ways of each choice. */
enum { UM_BODY_READ, UM_BODY_PUSHED };
enum { UM_MAP_MAPPED, UM_MAP_PUSHED };
enum { UM_HELP_BOTH, UM_HELP_ALONE };
enum { UM_UNASKED_READ, UM_UNASKED_SENT };

struct um_proto_ways {
    struct um_proto_choice body;
    struct um_proto_choice map;     /* for bodies that can be mapped */
    struct um_proto_choice help;    /* for bodies that are read */
    struct um_proto_choice unasked; /* for bodies whose sender computes: read, or sent before it does */
    uint32_t unasked_came;          /* of these, since they are sent */
    uint64_t mapped_at;             /* ns; when the last mapped body was complete */
    uint64_t ended_at;              /* ns; when the last body, by any way, was complete */
    uint64_t read_ns;               /* ns; what reading bodies has taken in all */
    uint64_t read_at;               /* ns; when the last read ended; 0: parts came since */
    uint32_t read_in;               /* the call of progress (ep->turns) in which that was */
    uint64_t pushed;                /* bytes of bodies that have come in records, asked for or not */
    uint64_t copied;                /* bytes of bodies that this side has read or mapped, but for taken back ones */
    struct um_proto_rate reading;   /* rate of bodies that this side reads or maps */
    struct um_proto_rate placing;   /* rate of copying parts of pushed bodies out of their records */
    struct {
        uint64_t at, read_ns, pushed;
    } last_pushed; /* when the last pushed body was complete (ns), and read_ns and pushed at that time */
    struct um_proto_exchange exchange;
};

/* True if no body that can be read may be pushed, by the configuration. */
static inline bool um_proto_way_is_never_asked(const struct um_core_ep *ep)
{
    return ep->config.bodies == UM_BODIES_BOTH || ep->config.bodies == UM_BODIES_COPY;
}

/* Does the peer compute between its bodies? It was late when it was asked for one, and pauses. */
static inline bool um_proto_way_computes(const struct um_core_peer *peer)
{
    const struct um_proto_asked *asked = &um_proto_peer_of(peer)->asked;
    return asked->shy > 0 && asked->pauses == UM_PAUSES;
}

/* The body does not come in records, though that was chosen. */
static inline void um_proto_way_push_failed(const struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    if (in->way.is_mappable)
        um_proto_choice_void(&b->map, in->arrival.len, UM_MAP_PUSHED);
    else
        um_proto_choice_void(&b->body, in->arrival.len, UM_BODY_PUSHED);
}

#endif
