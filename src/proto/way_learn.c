/*
 * Measures what the ways of a body cost here, and learns from each body, for way.c to choose by. The receiver measures.
 * What it cannot see of the sender's work is added (copy_cost()), and what the sender did for other bodies meanwhile is
 * left out (crossing_cost()). Owns no state. Threading: core.h.
 */
#include "base/clock.h"
#include "proto/both.h"
#include "proto/way.h"

/* bytes. Bodies below UM_SHORT_BODY, and lone ones below UM_LONG_LONE, are charged more time than they took:
 * copy_cost(). */
#define UM_SHORT_BODY UINT64_C(65536)
#define UM_LONG_LONE  UINT64_C(1048576)

/* A sender computes between its bodies if UM_PAUSES bodies in a row began later than this after the end of the one
 * before. */
#define UM_PAUSE_NS INT64_C(80000)
enum { UM_TIMED_EVERY = 4 }; /* of the messages of such a sender that come unasked */

/* ---- what a body costs ---- */

/*
 * Returns the gap before this read (ns). In a series of reads it counts as a cost of reading: it is work for each body,
 * and the sender of a pushed body copies meanwhile. 0 for a gap in which the caller did something else.
 */
static uint64_t time_between(const struct um_core_ep *ep, uint64_t began, uint64_t took)
{
    const struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    return ep->turns - b->read_in <= 1 && began - b->read_at < took ? began - b->read_at : 0;
}

/* copy_cost() for a mapped body. counts_more: it came alone, and is not long. */
static uint64_t mapped_cost(uint64_t len, bool counts_more, uint64_t ns)
{
    if (len < 2 * UM_SHORT_BODY)
        return 2 * ns;
    if (!counts_more)
        return ns;
    return len < 4 * UM_SHORT_BODY ? ns * 5 / 2 : len < 8 * UM_SHORT_BODY ? ns * 9 / 4 : 2 * ns;
}

/*
 * Returns the cost (ns) of a body that was copied out of the sender's memory in ns. Its lines were in the sender's
 * cache and are in both caches now: the sender has to get each line again before it writes the next body there, and the
 * receiver does not see that. That share is added to what the receiver measured, for short bodies and for lone ones
 * below UM_LONG_LONE. The sender of a stream writes other bodies meanwhile. Where bodies go both ways (exchange.h), it
 * does not count for short ones either: then pushing costs a sender as much. (32 KiB, GB/s: read 32 untouched and 11
 * used, pushed 19 and 11.)
 *
 * The factors are such that the better way is mostly found both with bodies that are used and with bodies that nobody
 * touches. (Half a round trip, us, used and untouched. 256 KiB: read 57 and 12, of which the receiver sees 26 and 12;
 * mapped 23 and 3.5, seen 7.2 and 3.2; pushed 14 and 7.6, seen 14 and 8.1. 128 KiB: mapped 12.7 and 2.0, seen 4.1 and
 * 1.5; pushed 6.2 and 3.9, seen 8 and 4.1. 512 KiB: mapped 31 and 8, seen 10 and 6.5; pushed 26 and 16, seen 20 and 16,
 * so that the choice is open where they are used.)
 */
static uint64_t copy_cost(const struct um_proto_ways *b, const struct um_proto_inbound *in, bool is_lone, uint64_t ns)
{
    const uint64_t len = in->arrival.len;
    const bool counts_more = is_lone && len < UM_LONG_LONE;
    if (in->way.chosen == UM_WAY_MAPPED)
        return mapped_cost(len, counts_more, ns);
    if (in->both.is_helped && counts_more)
        return 2 * ns;
    if (len < UM_SHORT_BODY && (is_lone || !um_proto_exchange_is_on(&b->exchange)))
        return len < UM_SHORT_BODY / 2 ? 2 * ns : ns + ns / 2;
    return counts_more ? ns + ns / 8 : ns;
}

/* Did the body begin later after the end of the last one than it took itself? */
static bool came_alone(const struct um_proto_ways *b, uint64_t began, uint64_t took)
{
    return began > b->ended_at && began - b->ended_at > took;
}

/* Notes for the endpoint what reading has taken that ended now (ns). */
static void note_read(const struct um_core_ep *ep, uint64_t took, uint64_t end)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    b->read_ns += took;
    b->read_at = b->ended_at = end;
    b->read_in = ep->turns;
}

/* Notes what a copy took that has ended. Returns ret. */
static int read_ended(struct um_core_ep *ep, struct um_proto_inbound *in, int ret)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    uint64_t end = um_clock_ns(), took = end - in->way.read_began;
    if (in->way.read_ns == 0) {
        in->way.began = in->way.read_began;
        in->way.is_lone = came_alone(b, in->way.read_began, took);
    }
    took += time_between(ep, in->way.read_began, took);
    in->watch.went_on = in->watch.went_on || (in->watch.is_taken_back && ret == 0);
    note_read(ep, took, end);
    if (in->way.chosen == UM_WAY_READ)
        in->way.read_ns += took;
    return ret;
}

int um_proto_way_read(struct um_core_ep *ep, struct um_proto_inbound *in, const struct um_copy *copy)
{
    struct um_link *link = in->peer->link;
    if (in->way.chosen == UM_WAY_NONE)
        return um_core_copying_start(&in->copying, link, copy, NULL);
    in->way.read_began = um_clock_ns();
    int ret = um_core_copying_start(&in->copying, link, copy, NULL);
    return ret == -EINPROGRESS ? ret : read_ended(ep, in, ret);
}

int um_proto_way_read_on(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    int ret = um_core_copying_poll(&in->copying);
    return ret == -EINPROGRESS || in->way.chosen == UM_WAY_NONE ? ret : read_ended(ep, in, ret);
}

int um_proto_way_read_helped(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (!in->copying.transfer)
        in->way.read_began = um_clock_ns();
    int ret = um_proto_both_copy(ep, in);
    return ret == -EINPROGRESS ? ret : read_ended(ep, in, ret);
}

/* Only the first part is timed, and only if bodies go both ways: crossing_cost(). */
uint64_t um_proto_way_coming(const struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    const bool reads_meanwhile = um_proto_peer_of(in->peer)->crossing.peer_read != in->way.peer_read;
    const bool is_timed =
        in->moved == 0 && (reads_meanwhile || um_proto_exchange_is_on(&um_proto_ep_of(ep)->ways->exchange));
    return is_timed ? um_clock_ns() : 0;
}

void um_proto_way_batch_read(struct um_core_ep *ep, const struct um_list *bodies, uint64_t began, uint64_t bytes)
{
    if (!um_proto_ep_of(ep)->ways)
        return;
    const uint64_t end = um_clock_ns(), one = um_proto_inbound_of_job(bodies->next)->arrival.len;
    const uint64_t took = end - began + time_between(ep, began, (end - began) * one / bytes);
    for (const struct um_list *l = bodies->next; l != bodies; l = l->next) {
        struct um_proto_inbound *in = um_proto_inbound_of_job(l);
        in->way.began = began;
        if (in->way.chosen == UM_WAY_READ)
            in->way.read_ns = took * in->arrival.len / bytes;
    }
    note_read(ep, took, end);
}

/* Counts a part of a body that came in a record. */
static void part_came(struct um_proto_ways *b, uint32_t len)
{
    b->read_at = 0;
    b->pushed += len;
}

void um_proto_way_came(struct um_core_ep *ep, struct um_proto_inbound *in, uint32_t len, uint64_t coming_at)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    if (coming_at)
        um_proto_rate_add(&b->placing, um_clock_ns() - coming_at, len);
    part_came(b, len);
    um_proto_ask_part_came(in);
}

void um_proto_way_peer_read(struct um_core_op *op)
{
    um_proto_peer_of(op->peer)->crossing.peer_read += op->len;
}

/* A measurement of pushed bodies: `bytes` came from `start` to `now` (ns); for own_ns of that time this side read other
 * bodies. */
struct pushed {
    uint64_t start, now, own_ns, bytes;
    bool is_alone; /* the body came alone, not behind others */
};

/* Called when a body came that was not alone: do streams of bodies go both ways? */
static void exchange_note(const struct um_core_ep *ep)
{
    struct um_proto_ep *own = um_proto_ep_of(ep);
    um_proto_exchange_note(&own->ways->exchange, own->bodies_sent, own->ways->pushed + own->ways->copied);
}

/* Returns what these bodies cost (ns). Their sender may have read bodies of this side meanwhile: that time is left out,
 * as a loan. If this side sends a stream as well, they cost twice the copying at least (exchange.h). */
static uint64_t crossing_cost(const struct um_core_ep *ep, const struct um_proto_inbound *in, const struct pushed *p)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    struct um_proto_crossing *x = &um_proto_peer_of(in->peer)->crossing;
    const uint64_t took = p->now - p->start, ns = took > p->own_ns ? took - p->own_ns : 0;
    const uint64_t read = x->peer_read - (x->read_came > in->way.peer_read ? x->read_came : in->way.peer_read);
    const bool is_exchange = !p->is_alone && um_proto_exchange_is_on(&b->exchange);
    const bool has_loan = um_proto_loan_take(&x->loan, read > 0, p->now);
    const uint64_t copy_ns = is_exchange || has_loan ? um_proto_rate_ns(&b->placing, p->bytes) : 0;
    const uint64_t cost = has_loan ? um_proto_exchange_pushed_ns(ns, um_proto_rate_ns(&b->reading, read), copy_ns) : ns;
    x->read_came = x->peer_read;
    return is_exchange && cost < 2 * copy_ns ? 2 * copy_ns : cost;
}

/* Pushed bodies overlap: the measurement begins at the end of the one before or when this one was asked for, whichever
 * is later. */
static void learn_pushed(const struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    const bool alone = b->last_pushed.at <= in->watch.asked_at;
    const struct pushed p = {.start = alone ? in->watch.asked_at : b->last_pushed.at,
                             .now = um_clock_ns(),
                             .own_ns = b->read_ns - (alone ? in->way.read_ns : b->last_pushed.read_ns),
                             .bytes = b->pushed - (alone ? in->way.pushed : b->last_pushed.pushed),
                             .is_alone = alone};
    if (!alone)
        exchange_note(ep);
    const uint64_t ns = crossing_cost(ep, in, &p);
    b->last_pushed.at = b->ended_at = p.now;
    b->last_pushed.read_ns = b->read_ns;
    b->last_pushed.pushed = b->pushed;
    um_proto_choice_tell(&b->body, in->arrival.len, UM_BODY_PUSHED, ns, p.bytes);
    if (in->way.is_mappable)
        um_proto_choice_tell(&b->map, in->arrival.len, UM_MAP_PUSHED, ns, p.bytes);
}

/* Several mapped bodies may be copied at a time: the measurement begins at the end of the one before or at the begin of
 * this one, whichever is later. */
static void learn_mapped(const struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    const uint64_t now = um_clock_ns();
    const uint64_t from = in->both.began_at > b->mapped_at ? in->both.began_at : b->mapped_at;
    const bool is_lone = came_alone(b, in->both.began_at, now - from);
    b->copied += in->moved;
    if (!is_lone)
        exchange_note(ep);
    const uint64_t cost = copy_cost(b, in, is_lone, now - from);
    b->mapped_at = b->ended_at = now;
    um_proto_rate_add(&b->reading, now - from, in->arrival.len);
    um_proto_choice_tell(&b->map, in->arrival.len, UM_MAP_MAPPED, cost, in->arrival.len);
}

/* A body that is read as a trial of help, or of none, says nothing about reading as it usually is. */
static void learn_read(const struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    const uint64_t ns = in->way.read_ns;
    const unsigned help = in->both.is_helped ? UM_HELP_BOTH : UM_HELP_ALONE;
    um_proto_rate_add(&b->reading, ns, in->moved);
    b->copied += in->moved;
    if (!in->way.is_lone)
        exchange_note(ep);
    if (in->way.is_unaided || (in->way.has_choice && !um_proto_choice_is_usual(&b->help, in->arrival.len, help)))
        um_proto_choice_void(&b->body, in->arrival.len, UM_BODY_READ);
    else
        um_proto_choice_tell(&b->body, in->arrival.len, UM_BODY_READ, copy_cost(b, in, in->way.is_lone, ns), in->moved);
    if (in->way.has_choice)
        um_proto_choice_tell(&b->help, in->arrival.len, help, ns, in->moved);
}

void um_proto_way_failed(const struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    const uint64_t len = in->arrival.len;
    if (!b)
        return;
    if (in->way.chosen == UM_WAY_MAPPED) {
        um_proto_choice_void(&b->map, len, UM_MAP_MAPPED);
    } else if (in->way.chosen == UM_WAY_PUSH) {
        um_proto_way_push_failed(ep, in);
    } else {
        um_proto_choice_void(&b->body, len, UM_BODY_READ);
        if (in->way.has_choice)
            um_proto_choice_void(&b->help, len, in->both.is_helped ? UM_HELP_BOTH : UM_HELP_ALONE);
    }
}

/* Counts the bodies of the peer that each came some time after the one before. */
static void note_pause(const struct um_core_peer *peer, uint64_t began, uint64_t ended)
{
    struct um_proto_asked *asked = &um_proto_peer_of(peer)->asked;
    const bool is_pause = (int64_t)(began - asked->ended_at) > UM_PAUSE_NS;
    asked->pauses = !is_pause ? 0 : asked->pauses < UM_PAUSES ? asked->pauses + 1 : UM_PAUSES;
    asked->ended_at = ended;
}

/* Returns when the body began to move, or was asked for (ns). */
static uint64_t began_at(const struct um_proto_inbound *in)
{
    if (in->way.chosen == UM_WAY_MAPPED)
        return in->both.began_at;
    return in->watch.asked_at ? in->watch.asked_at : in->way.began;
}

void um_proto_way_learn(struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    if (!b)
        return; /* it was mapped, without a choice */
    if (in->way.chosen == UM_WAY_MAPPED) {
        learn_mapped(ep, in);
    } else if (in->watch.is_taken_back) {
        ep->stats.retaken++;
        um_proto_way_push_failed(ep, in);
    } else if (in->way.chosen == UM_WAY_PUSH) {
        learn_pushed(ep, in);
    } else {
        learn_read(ep, in);
    }
    note_pause(in->peer, began_at(in), b->ended_at);
}

/* ---- messages that come unasked ---- */

/* Does the sender of a body that was read compute between its bodies, and are they better sent before it computes? What
 * is announced then is read to compare, as a trial. The other trials begin with the first message that comes unasked.
 */
static bool is_better_sent(const struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    struct um_proto_ways *ways = um_proto_ep_of(ep)->ways;
    struct um_proto_choice *c = &ways->unasked;
    const uint64_t len = in->arrival.len;
    if (um_proto_way_is_never_asked(ep) || !um_proto_way_computes(in->peer))
        return false;
    const bool is_preferred = um_proto_choice_prefers(c, len, UM_UNASKED_SENT);
    const bool is_better = is_preferred || um_proto_choice_next(c, len) == UM_UNASKED_SENT;
    if (is_preferred)
        um_proto_choice_try(c, len);
    else if (!is_better)
        (void)um_proto_choice_take(c, len);
    um_proto_choice_tell(c, len, UM_UNASKED_READ, copy_cost(ways, in, in->way.is_lone, in->way.read_ns), in->moved);
    return is_better;
}

bool um_proto_way_lets_come(const struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    const struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    if (in->op != UM_WIRE_RTS)
        return false;
    if (!in->pushed)
        return b && in->way.chosen == UM_WAY_READ && is_better_sent(ep, in);
    if (!b || ep->config.bodies == UM_BODIES_PUSH || um_proto_peer_of(in->peer)->asked.is_unreadable)
        return true;
    /* a body that was pushed as a trial says nothing about the next ones */
    return in->way.is_mappable ? um_proto_choice_is_sure(&b->map, in->arrival.len, UM_MAP_PUSHED)
                               : um_proto_choice_is_sure(&b->body, in->arrival.len, UM_BODY_PUSHED);
}

bool um_proto_way_times_unasked(const struct um_core_ep *ep, const struct um_core_peer *peer, uint64_t len)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    if (!b || len <= UM_SPLIT_MIN || !um_proto_way_computes(peer))
        return false;
    if (um_proto_choice_prefers(&b->unasked, len, UM_UNASKED_SENT))
        return ++b->unasked_came % UM_TIMED_EVERY == 0;
    return um_proto_choice_take(&b->unasked, len) == UM_UNASKED_SENT;
}

void um_proto_way_came_unasked(const struct um_core_ep *ep, const struct um_core_peer *peer,
                               const struct um_proto_came *came)
{
    um_proto_choice_tell(&um_proto_ep_of(ep)->ways->unasked, came->len, UM_UNASKED_SENT, came->copies * came->ns,
                         came->len);
    note_pause(peer, came->began, um_clock_ns());
}

void um_proto_way_unasked_part(const struct um_core_ep *ep, const struct um_core_peer *peer, uint32_t len)
{
    struct um_proto_ways *b = um_proto_ep_of(ep)->ways;
    um_proto_ask_peer_moves(peer); /* parts of bodies that were asked for come behind it */
    if (b)
        part_came(b, len);
}
