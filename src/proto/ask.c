/*
 * The receiver asks for a body in records instead of reading it, where that was faster of late (choice.h):
 *
 *   sender                                        receiver
 *   RTS                             ──────→       match, choose
 *                                   ←── answer ──   PUSH
 *   PUSH parts                      ──────→       scatter
 *   (it computes)                                 no part for a while: reads the rest
 *   complete                        ←── answer ──   DONE
 *   PUSH parts, committed before it saw the answer → dropped
 *
 * A sender that makes no progress delays nobody: a body is taken back (read after all) when no part has come for
 * UM_QUIET_NS and at UM_QUIET_LOOKS looks. Other bodies that this sender was asked for are then taken back without a
 * wait, one in each call of progress, until a part comes. The next bodies of the sender are read without asking; their
 * number grows each time this happens. The sender uses the token again only after DONE, and its lane keeps the order: a
 * part that comes before the next announcement of its token belongs to the body that was taken back.
 * Owns: struct um_proto_bodies_known. Threading: core.h.
 */
#include "proto/internal.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

/* How long no part comes before a body is taken back. A sender that makes progress begins to push within about two
 * microseconds; one that posts many messages in a row begins when it has posted them. */
#define UM_QUIET_NS INT64_C(40000)

/* bytes. Bodies below UM_SHORT_BODY, and lone ones below UM_LONG_BODY, are charged more time than they took:
 * copy_cost(). */
#define UM_SHORT_BODY UINT64_C(65536)
#define UM_LONG_BODY  UINT64_C(1048576)

/* A body that comes later than this after the end of the one before is not part of a stream. */
#define UM_LONE_NS INT64_C(3000)

enum { UM_QUIET_LOOKS = 2, UM_SHY_MAX = 255 };

/* The two ways of each choice. */
enum { UM_BODY_READ, UM_BODY_PUSHED };
enum { UM_MAP_MAPPED, UM_MAP_PUSHED };
enum { UM_HELP_BOTH, UM_HELP_ALONE };

struct um_proto_bodies_known {
    struct um_proto_choice body;
    struct um_proto_choice map;   /* for bodies that can be mapped */
    struct um_proto_choice help;  /* for bodies that are read */
    uint64_t mapped_at;           /* ns; when the last mapped body was complete */
    uint64_t ended_at;            /* ns; when the last body, by any way, was complete */
    uint64_t read_ns;             /* ns; what reading bodies has taken in all */
    uint64_t read_at;             /* ns; when the last read ended; 0: parts came since */
    uint32_t read_in;             /* the call of progress (ep->turns) in which that was */
    uint64_t pushed;              /* bytes of bodies that were asked for and have come */
    struct um_proto_rate reading; /* rate of bodies that this side reads or maps */
    struct um_proto_rate placing; /* rate of copying parts of pushed bodies out of their records */
    struct {
        uint64_t at, read_ns, pushed;
    } came;            /* when the last pushed body was complete (ns), and read_ns and pushed at that time */
    uint32_t taken_at; /* the call of progress in which the last body was taken back */
    uint32_t clock_at; /* the call of progress in which the clock was read */
    uint64_t clock_ns;
};

int um_proto_ask_open(struct um_core_ep *ep)
{
    bool either_way = false;
    for (uint32_t i = 0; i < ep->port_count; i++)
        either_way = either_way || ep->ports[i].port->machine->either_way;
    if (ep->config.bodies == UM_BODIES_READ || !ep->config.port.private_copy || !either_way)
        return 0;
    um_proto_ep_of(ep)->bodies = calloc(1, sizeof(*um_proto_ep_of(ep)->bodies));
    return um_proto_ep_of(ep)->bodies ? 0 : -ENOMEM;
}

void um_proto_ask_close(struct um_core_ep *ep)
{
    free(um_proto_ep_of(ep)->bodies);
}

static bool watch_step(struct um_core_ep *ep, struct um_core_job *job);

/* True if no body that can be read may be pushed, by the configuration. */
static bool is_never_asked(const struct um_core_ep *ep)
{
    return ep->config.bodies == UM_BODIES_BOTH || ep->config.bodies == UM_BODIES_COPY;
}

/*
 * Should the body be asked for? Not if the message is too long for its receive: only a part of it is wanted. A body
 * that could be mapped and is not is pushed: mapping was found slower than pushing, and reading moves the same lines as
 * mapping and costs a system call in addition.
 */
static bool is_worth_asking(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_asked *asked = &um_proto_peer_of(in->peer)->asked;
    if (asked->is_unreadable || in->arrival.len == 0 || in->dest.len < in->arrival.len ||
        !in->peer->link->machine->either_way)
        return false;
    in->ask.way = UM_WAY_READ;
    if (is_never_asked(ep))
        return false;
    if (asked->left) {
        asked->left--;
        return false;
    }
    return ep->config.bodies == UM_BODIES_PUSH || in->ask.is_mappable ||
           um_proto_choice_take(&um_proto_ep_of(ep)->bodies->body, in->arrival.len) == UM_BODY_PUSHED;
}

bool um_proto_ask_prefers_mapped(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_bodies_known *b = um_proto_ep_of(ep)->bodies;
    const bool takes = ep->config.mapped == UM_MAPPED_ALWAYS || !b || is_never_asked(ep) ||
                       um_proto_peer_of(in->peer)->asked.is_unreadable ||
                       um_proto_choice_take(&b->map, in->arrival.len) == UM_MAP_MAPPED;
    in->ask.is_mappable = !takes;
    in->shareable = takes; /* decided */
    if (takes)
        in->ask.way = UM_WAY_MAPPED;
    return takes;
}

/* A body that was pushed as a trial says nothing about the next ones: the learned choice decides. */
bool um_proto_ask_prefers_pushed(const struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    const struct um_proto_bodies_known *b = um_proto_ep_of(ep)->bodies;
    if (in->op != UM_WIRE_RTS || !in->pushed)
        return false;
    if (!b || ep->config.bodies == UM_BODIES_PUSH || um_proto_peer_of(in->peer)->asked.is_unreadable)
        return true;
    return in->ask.is_mappable ? um_proto_choice_prefers(&b->map, in->arrival.len, UM_MAP_PUSHED)
                               : um_proto_choice_prefers(&b->body, in->arrival.len, UM_BODY_PUSHED);
}

bool um_proto_ask_records(struct um_proto_inbound *in)
{
    if (in->peer->rx->machine->answer(in->peer->rx, in->token, UM_STATUS_PUSH) == -EAGAIN)
        return false;
    in->asked = true;
    um_list_unlink(&in->job.link);
    return true;
}

bool um_proto_ask(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (!um_proto_ep_of(ep)->bodies || !is_worth_asking(ep, in) || !um_proto_ask_records(in))
        return false;
    in->ask.way = UM_WAY_PUSH;
    in->ask.is_watched = true;
    in->ask.parts = um_proto_peer_of(in->peer)->asked.parts;
    in->ask.asked_at = in->ask.quiet_at = um_clock_ns();
    in->ask.read_ns = um_proto_ep_of(ep)->bodies->read_ns;
    in->ask.pushed = um_proto_ep_of(ep)->bodies->pushed;
    in->ask.peer_read = um_proto_peer_of(in->peer)->crossing.read;
    in->pushed = true;
    in->ask.step = in->job.step;
    in->job.step = watch_step;
    ep->soon++;
    um_core_job_start(ep, &in->job);
    return true;
}

/*
 * Returns the gap before this read (ns). In a series of reads it counts as a cost of reading: it is work for each body,
 * and the sender of a pushed body copies meanwhile. 0 for a gap in which the caller did something else.
 */
static uint64_t time_between(const struct um_core_ep *ep, uint64_t began, uint64_t took)
{
    const struct um_proto_bodies_known *b = um_proto_ep_of(ep)->bodies;
    return ep->turns - b->read_in <= 1 && began - b->read_at < took ? began - b->read_at : 0;
}

/*
 * Returns the cost (ns) of a body that was copied out of the sender's memory in ns. Its lines were in the sender's
 * cache and are in both caches now: the sender has to get each line again before it writes the next body there, and the
 * receiver does not see that. That share is added to what the receiver measured, for short bodies and for lone ones
 * below UM_LONG_BODY. The sender of a stream writes other bodies meanwhile.
 *
 * The factors are such that the better way is found both with bodies that are used and with bodies that nobody touches.
 * (Half a round trip of 256 KiB, us, used and untouched: read 57 and 12, of which the receiver sees 26 and 12; mapped
 * 34 and 5, seen 8.5 and 4.2; pushed 26 and 19, seen 20 and 17.)
 */
static uint64_t copy_cost(const struct um_proto_inbound *in, bool is_lone, uint64_t ns)
{
    const uint64_t len = in->arrival.len;
    const bool counts_more = is_lone && len < UM_LONG_BODY;
    if (in->ask.way == UM_WAY_MAPPED)
        return len < 2 * UM_SHORT_BODY ? 2 * ns : counts_more ? 3 * ns : ns;
    if (in->both.is_helped && counts_more)
        return 2 * ns;
    if (len < UM_SHORT_BODY)
        return len < UM_SHORT_BODY / 2 ? 2 * ns : ns + ns / 2;
    return counts_more ? ns + ns / 8 : ns;
}

/* Did the body begin later after the end of the last one than it took itself? */
static bool came_alone(const struct um_proto_bodies_known *b, uint64_t began, uint64_t took)
{
    return began > b->ended_at && began - b->ended_at > took;
}

/* Notes what a copy took that has ended. Returns ret. */
static int read_ended(struct um_core_ep *ep, struct um_proto_inbound *in, int ret)
{
    struct um_proto_bodies_known *b = um_proto_ep_of(ep)->bodies;
    uint64_t end = um_clock_ns(), took = end - in->ask.read_began;
    if (in->ask.read_ns == 0)
        in->ask.is_lone = came_alone(b, in->ask.read_began, took);
    took += time_between(ep, in->ask.read_began, took);
    in->ask.went_on = in->ask.went_on || (in->ask.is_taken_back && ret == 0);
    b->read_ns += took;
    b->read_at = b->ended_at = end;
    b->read_in = ep->turns;
    if (in->ask.way == UM_WAY_READ)
        in->ask.read_ns += took;
    return ret;
}

int um_proto_ask_read(struct um_core_ep *ep, struct um_proto_inbound *in, const struct um_copy *copy)
{
    struct um_link *link = in->peer->link;
    if (in->ask.way == UM_WAY_NONE)
        return um_core_copying_start(&in->copying, link, copy, NULL);
    in->ask.read_began = um_clock_ns();
    int ret = um_core_copying_start(&in->copying, link, copy, NULL);
    return ret == -EINPROGRESS ? ret : read_ended(ep, in, ret);
}

int um_proto_ask_read_on(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    int ret = um_core_copying_poll(&in->copying);
    return ret == -EINPROGRESS || in->ask.way == UM_WAY_NONE ? ret : read_ended(ep, in, ret);
}

/* Is it a body of a stream, and only just long enough for help? Its sender has little time to spare, and inviting the
 * sender takes as long as its help would save. */
static bool is_short_of_many(const struct um_proto_bodies_known *b, uint64_t len)
{
    return len < 2 * UM_HELP_MIN && (int64_t)(um_clock_ns() - b->ended_at) < UM_LONE_NS;
}

bool um_proto_ask_wants_help(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_bodies_known *b = um_proto_ep_of(ep)->bodies;
    if (in->ask.way != UM_WAY_READ || in->arrival.len < UM_HELP_MIN)
        return false;
    if (ep->config.bodies == UM_BODIES_BOTH)
        return true;
    in->ask.has_choice = !is_short_of_many(b, in->arrival.len);
    return in->ask.has_choice && um_proto_choice_take(&b->help, in->arrival.len) == UM_HELP_BOTH;
}

int um_proto_ask_read_helped(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (!in->copying.transfer)
        in->ask.read_began = um_clock_ns();
    int ret = um_proto_both_copy(ep, in);
    return ret == -EINPROGRESS ? ret : read_ended(ep, in, ret);
}

/* Only the first part is timed, and only if its sender reads bodies of this side meanwhile: crossing_cost(). */
uint64_t um_proto_ask_coming(const struct um_proto_inbound *in)
{
    return in->moved == 0 && um_proto_peer_of(in->peer)->crossing.read != in->ask.peer_read ? um_clock_ns() : 0;
}

void um_proto_ask_came(struct um_core_ep *ep, struct um_proto_inbound *in, uint32_t len, uint64_t coming_at)
{
    struct um_proto_asked *asked = &um_proto_peer_of(in->peer)->asked;
    if (coming_at)
        um_proto_rate_add(&um_proto_ep_of(ep)->bodies->placing, um_clock_ns() - coming_at, len);
    asked->parts++;
    asked->stalled_at = 0;
    if (in->moved == in->arrival.len)
        asked->shy = 0;
    um_proto_ep_of(ep)->bodies->read_at = 0;
    um_proto_ep_of(ep)->bodies->pushed += len;
}

void um_proto_ask_peer_read(struct um_core_op *op)
{
    um_proto_peer_of(op->peer)->crossing.read += op->len;
}

static void watch_end(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (!in->ask.is_watched)
        return;
    in->ask.is_watched = false;
    ep->soon--;
}

/* Takes a body back: reads the parts of it that have not come. */
static void take_back(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_asked *asked = &um_proto_peer_of(in->peer)->asked;
    watch_end(ep, in);
    um_list_unlink(&in->job.link);
    if (asked->stalled_at < in->ask.asked_at && asked->shy < UM_SHY_MAX)
        asked->shy = (uint16_t)(2 * asked->shy + 1);
    asked->left = asked->shy;
    asked->stalled_at = asked->stalled_at < in->ask.asked_at ? um_clock_ns() : asked->stalled_at;
    asked->drops = true;
    asked->parts++;
    um_proto_ep_of(ep)->bodies->taken_at = ep->turns;
    in->pushed = in->asked = false;
    in->ask.is_taken_back = true;
    in->job.step = in->ask.step;
    if (in->class->step(ep, in) && !in->asked)
        um_core_job_start(ep, &in->job);
}

/* Reads the clock once in a call of progress, for all watched bodies. */
static uint64_t watch_clock(struct um_core_ep *ep)
{
    struct um_proto_bodies_known *b = um_proto_ep_of(ep)->bodies;
    if (b->clock_at != ep->turns || b->clock_ns == 0) {
        b->clock_at = ep->turns;
        b->clock_ns = um_clock_ns();
    }
    return b->clock_ns;
}

static bool watch_step(struct um_core_ep *ep, struct um_core_job *job)
{
    struct um_proto_inbound *in = UM_CONTAINER(job, struct um_proto_inbound, job);
    const struct um_proto_asked *asked = &um_proto_peer_of(in->peer)->asked;
    const bool stalled = asked->stalled_at >= in->ask.asked_at;
    if (asked->parts != in->ask.parts && !stalled) {
        in->ask.parts = asked->parts;
        in->ask.quiet = 0;
        in->ask.quiet_at = watch_clock(ep);
        return false;
    }
    if (um_proto_ep_of(ep)->bodies->taken_at == ep->turns)
        return false;
    in->ask.quiet++;
    if (!stalled && (in->ask.quiet < UM_QUIET_LOOKS || (int64_t)(watch_clock(ep) - in->ask.quiet_at) < UM_QUIET_NS))
        return false;
    take_back(ep, in);
    return true;
}

bool um_proto_ask_resume(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    (void)ep;
    if (in->ask.went_on)
        return false;
    um_proto_peer_of(in->peer)->asked.is_unreadable = true;
    in->ask.is_taken_back = false;
    in->ask.way = UM_WAY_NONE;
    in->pushed = in->asked = true;
    um_list_unlink(&in->job.link);
    return true;
}

bool um_proto_ask_drops(struct um_proto_inbound *in)
{
    if (!in)
        return true; /* the body has ended */
    if (!in->ask.is_taken_back)
        return false;
    in->ask.went_on = true;
    return true;
}

/* A measurement of pushed bodies: `bytes` came from `start` to `now` (ns); for own_ns of that time this side read other
 * bodies. */
struct pushed {
    uint64_t start, now, own_ns, bytes;
};

/* Returns what these bodies cost (ns). Their sender may have read bodies of this side meanwhile: that time is left out,
 * as a loan. */
static uint64_t crossing_cost(struct um_proto_bodies_known *b, const struct um_proto_inbound *in,
                              const struct pushed *p)
{
    struct um_proto_crossing *x = &um_proto_peer_of(in->peer)->crossing;
    const uint64_t took = p->now - p->start, ns = took > p->own_ns ? took - p->own_ns : 0;
    const uint64_t read = x->read - (x->read_came > in->ask.peer_read ? x->read_came : in->ask.peer_read);
    x->read_came = x->read;
    if (!um_proto_loan_take(&x->loan, read > 0, p->now))
        return ns;
    return um_proto_choice_pushed_ns(ns, um_proto_rate_ns(&b->reading, read), um_proto_rate_ns(&b->placing, p->bytes));
}

/* Pushed bodies overlap: the measurement begins at the end of the one before or when this one was asked for, whichever
 * is later. */
static void learn_pushed(struct um_proto_bodies_known *b, const struct um_proto_inbound *in)
{
    const bool alone = b->came.at <= in->ask.asked_at;
    const struct pushed p = {.start = alone ? in->ask.asked_at : b->came.at,
                             .now = um_clock_ns(),
                             .own_ns = b->read_ns - (alone ? in->ask.read_ns : b->came.read_ns),
                             .bytes = b->pushed - (alone ? in->ask.pushed : b->came.pushed)};
    const uint64_t ns = crossing_cost(b, in, &p);
    b->came.at = b->ended_at = p.now;
    b->came.read_ns = b->read_ns;
    b->came.pushed = b->pushed;
    um_proto_choice_tell(&b->body, in->arrival.len, UM_BODY_PUSHED, ns, p.bytes);
    if (in->ask.is_mappable)
        um_proto_choice_tell(&b->map, in->arrival.len, UM_MAP_PUSHED, ns, p.bytes);
}

/* Several mapped bodies may be copied at a time: the measurement begins at the end of the one before or at the begin of
 * this one, whichever is later. */
static void learn_mapped(struct um_proto_bodies_known *b, const struct um_proto_inbound *in)
{
    const uint64_t now = um_clock_ns();
    const uint64_t from = in->both.began_at > b->mapped_at ? in->both.began_at : b->mapped_at;
    const uint64_t cost = copy_cost(in, came_alone(b, in->both.began_at, now - from), now - from);
    b->mapped_at = b->ended_at = now;
    um_proto_rate_add(&b->reading, now - from, in->arrival.len);
    um_proto_choice_tell(&b->map, in->arrival.len, UM_MAP_MAPPED, cost, in->arrival.len);
}

static void learn_read(struct um_proto_bodies_known *b, const struct um_proto_inbound *in)
{
    const uint64_t ns = in->ask.read_ns;
    um_proto_rate_add(&b->reading, ns, in->moved);
    um_proto_choice_tell(&b->body, in->arrival.len, UM_BODY_READ, copy_cost(in, in->ask.is_lone, ns), in->moved);
    if (in->ask.has_choice)
        um_proto_choice_tell(&b->help, in->arrival.len, in->both.is_helped ? UM_HELP_BOTH : UM_HELP_ALONE, ns,
                             in->moved);
}

void um_proto_ask_learn(struct um_core_ep *ep, const struct um_proto_inbound *in)
{
    struct um_proto_bodies_known *b = um_proto_ep_of(ep)->bodies;
    if (in->ask.way == UM_WAY_MAPPED) {
        if (b)
            learn_mapped(b, in);
        return;
    }
    if (in->ask.is_taken_back) {
        ep->stats.retaken++;
        return;
    }
    if (in->ask.way == UM_WAY_PUSH)
        learn_pushed(b, in);
    else
        learn_read(b, in);
}

void um_proto_ask_forget(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    watch_end(ep, in);
}
