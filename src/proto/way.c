/*
 * Chooses the way of a body that a message announced, by what was learned from others (way_learn.c).
 *
 * There are three ways. A body is mapped: copied from the receiver's mapping of the sender's memory, by one or both
 * sides (rndv_both.c). Or it is read: copied by system calls, by its receiver (rndv_read.c) or by both sides
 * (rndv_both.c). Or it comes in records, which its receiver asks for (ask.c).
 *
 * Each choice is between two of them (choice.h), and its first bodies go the way named first: mapped or in records;
 * read or in records; read by both sides or by the receiver alone. A sender that computes between its bodies is late
 * when it is asked for one. So for its bodies there is another choice: read, or sent unasked before it computes.
 * Owns: struct um_proto_ways. Threading: core.h.
 */
#include "proto/way.h"

#include <errno.h>
#include <stdlib.h>

/* A sender that was asked for a body is not waited for any longer, though reading the body may take longer: a sender
 * that is reading itself makes progress after each step. */
#define UM_PATIENCE_NS UINT64_C(500000)

int um_proto_way_open(struct um_core_ep *ep)
{
    bool either_way = false;
    for (uint32_t i = 0; i < ep->port_count; i++)
        either_way = either_way || ep->ports[i].port->machine->either_way;
    if (ep->config.bodies == UM_BODIES_READ || !ep->config.port.private_copy || !either_way)
        return 0;
    um_proto_ep_of(ep)->ways = calloc(1, sizeof(*um_proto_ep_of(ep)->ways));
    return um_proto_ep_of(ep)->ways ? 0 : -ENOMEM;
}

void um_proto_way_close(struct um_core_ep *ep)
{
    free(um_proto_ep_of(ep)->ways);
}

/* Shall this body not be asked for, because its sender was late with others? Counts it. */
static bool is_not_asked(struct um_proto_inbound *in)
{
    struct um_proto_asked *asked = &um_proto_peer_of(in->peer)->asked;
    if (asked->left == 0)
        return false;
    asked->left--;
    return true;
}

/* A message that is too long for its receive is not asked for: only a part of it is wanted. */
static bool can_be_asked_for(const struct um_proto_inbound *in)
{
    return !um_proto_peer_of(in->peer)->asked.is_unreadable && in->arrival.len > 0 && in->dest.len >= in->arrival.len &&
           in->peer->link->machine->either_way;
}

/*
 * Chooses between reading the body and asking for it. Returns whether to ask; notes that it is read otherwise. A body
 * that could be mapped and is not is asked for: mapping was found slower than that, and reading moves the same lines as
 * mapping and costs a system call in addition.
 */
static bool choose_records(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (!can_be_asked_for(in))
        return false;
    in->way.chosen = UM_WAY_READ;
    if (um_proto_way_is_never_asked(ep) || is_not_asked(in))
        return false;
    return ep->config.bodies == UM_BODIES_PUSH || in->way.is_mappable ||
           um_proto_choice_take(&um_proto_ep_of(ep)->ways->body, in->arrival.len) == UM_BODY_PUSHED;
}

/* Chooses between mapping and records for a body that can be mapped. Returns whether it is mapped, and notes that. */
static bool choose_mapped(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    const bool takes = ep->config.mapped == UM_MAPPED_ALWAYS || !b || um_proto_way_is_never_asked(ep) ||
                       um_proto_peer_of(in->peer)->asked.is_unreadable || is_not_asked(in) ||
                       um_proto_choice_take(&b->map, in->arrival.len) == UM_MAP_MAPPED;
    in->way.is_mappable = !takes;
    in->shareable = takes; /* decided */
    if (takes)
        in->way.chosen = UM_WAY_MAPPED;
    return takes;
}

/* Asks for the body, if that is the better way. Returns whether it was asked for. */
static bool ask_if_better(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    const struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    if (!b || !choose_records(ep, in))
        return false;
    const uint64_t reading_ns = um_proto_rate_ns(&b->reading, in->arrival.len);
    if (!um_proto_ask_watched(ep, in, reading_ns < UM_PATIENCE_NS ? reading_ns : UM_PATIENCE_NS)) {
        um_proto_way_push_failed(ep, in);
        return false;
    }
    in->way.chosen = UM_WAY_PUSH;
    in->way.read_ns = b->read_ns;
    in->way.pushed = b->pushed;
    in->way.peer_read = um_proto_peer_of(in->peer)->crossing.peer_read;
    return true;
}

/* Chooses, for a body that is read, whether its sender shall copy as well. One that computes, or was asked for other
 * bodies, would come too late. */
static bool choose_help(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    if (in->way.chosen != UM_WAY_READ || in->arrival.len < UM_HELP_MIN || !um_proto_both_can_invite(in->peer))
        return false;
    if (ep->config.bodies == UM_BODIES_BOTH)
        return true;
    const bool was_asked = !um_list_is_empty(&um_proto_peer_of(in->peer)->asked.watched);
    in->way.has_choice = !was_asked && !um_proto_way_computes(in->peer);
    in->way.is_unaided = was_asked && um_proto_choice_next(&b->help, in->arrival.len) == UM_HELP_BOTH;
    return in->way.has_choice && um_proto_choice_take(&b->help, in->arrival.len) == UM_HELP_BOTH;
}

void um_proto_way_unaided(const struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (in->way.has_choice)
        um_proto_choice_void(&um_proto_ep_of(ep)->ways->help, in->arrival.len, UM_HELP_BOTH);
    in->way.has_choice = false;
    in->way.is_unaided = true;
}

/*
 * Does the body wait for those that its sender was asked for? If it is read or mapped to compare that with asking, or
 * is the first one after a trial of asking, it does: otherwise the sender would be busy with the one way when the other
 * one is measured. Those behind it wait, too, so that the sender is asked for nothing more, and each waits once: so all
 * waits end. Only bodies wait that might be asked for.
 */
static bool waits_for_asked(const struct um_core_ep *ep, const struct um_proto_inbound *in, bool can_map)
{
    const struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    const struct um_proto_asked *asked = &um_proto_peer_of(in->peer)->asked;
    if (!b || um_list_is_empty(&asked->watched) || in->way.has_waited || asked->left > 0 || !can_be_asked_for(in))
        return false;
    return !um_list_is_empty(&asked->behind) ||
           (can_map ? um_proto_choice_compares(&b->map, in->arrival.len, UM_MAP_MAPPED)
                    : um_proto_choice_compares(&b->body, in->arrival.len, UM_BODY_READ));
}

bool um_proto_way_choose(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (in->moved > 0)
        return false; /* it goes on as it began: what is asked for comes from the first byte on */
    const bool can_map = um_proto_both_can(ep, in);
    if (waits_for_asked(ep, in, can_map)) {
        um_proto_ask_wait(in);
        return true;
    }
    const bool is_mapped = can_map && choose_mapped(ep, in);
    if (!is_mapped && ask_if_better(ep, in))
        return true;
    in->both.is_wanted = is_mapped || choose_help(ep, in);
    return false;
}
