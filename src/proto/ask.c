/*
 * The receiver asks for a body in records instead of reading it, where that was faster of late (way.c), or where
 * reading is refused:
 *
 *   sender                                        receiver
 *   RTS                             ──────→       match, choose
 *                                   ←── answer ──   PUSH
 *   PUSH parts                      ──────→       scatter
 *   (it computes)                                 no part for a while: reads the rest
 *   complete                        ←── answer ──   DONE
 *   PUSH parts, committed before it saw the answer → dropped
 *
 * A sender that makes no progress does not delay its receiver for long: a body is taken back (read after all) when no
 * part has come for UM_QUIET_NS and the time that reading it takes, as the caller knows it, and at UM_QUIET_LOOKS
 * looks. That counts for the first one of the bodies that a sender was asked for. The others are then taken back
 * without a wait, one in each call of progress, until a part comes. The next bodies of the sender are read without
 * asking; their number doubles each time this happens, and each body that comes as a whole halves it. (Where ranks
 * outnumber processors, a sender comes in time now and then, and late otherwise.) The sender uses the token again only
 * after DONE, and its lane keeps the order: a part that comes before the next announcement of its token belongs to the
 * body that was taken back.
 *
 * Bodies that compare reading with asking wait until none of those that their sender was asked for is outstanding
 * (way.c).
 *
 * A part of any body shows that its sender makes progress, so one job for each sender looks at all of them.
 *
 * Owns: struct um_proto_watching. Threading: core.h.
 */
#include "proto/internal.h"

#include "base/clock.h"

#include <errno.h>

/* How long no part comes before a body is taken back. A sender that makes progress begins to push within about two
 * microseconds; one that posts many messages in a row begins when it has posted them. */
#define UM_QUIET_NS INT64_C(40000)

enum { UM_QUIET_LOOKS = 2, UM_SHY_MAX = 255 };

bool um_proto_ask_records(struct um_proto_inbound *in)
{
    if (!in->peer->rx) /* the sender has left */
        return false;
    if (in->peer->rx->machine->answer(in->peer->rx, in->token, UM_STATUS_PUSH) == -EAGAIN)
        return false;
    in->asked = true;
    um_list_unlink(&in->job.link);
    return true;
}

void um_proto_ask_forget(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_asked *asked = &um_proto_peer_of(in->peer)->asked;
    if (um_list_is_empty(&in->watch.link))
        return;
    um_list_unlink(&in->watch.link);
    if (!um_list_is_empty(&asked->watched))
        return;
    um_list_unlink(&asked->looking.link);
    ep->soon--;
    for (struct um_list *first; (first = um_list_first(&asked->behind)) != NULL;) {
        struct um_proto_inbound *behind = um_proto_inbound_of_job(first);
        um_list_unlink(first);
        behind->way.is_behind = false;
        um_core_job_start(ep, &behind->job);
    }
}

void um_proto_ask_wait(struct um_proto_inbound *in)
{
    um_list_unlink(&in->job.link);
    um_list_append(&um_proto_peer_of(in->peer)->asked.behind, &in->job.link);
    in->way.is_behind = in->way.has_waited = in->may_wait = true; /* they come together again */
}

/* Takes a body back: reads the parts of it that have not come. */
static void take_back(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    struct um_proto_asked *asked = &um_proto_peer_of(in->peer)->asked;
    um_proto_ask_forget(ep, in);
    if (asked->stalled_at < in->watch.asked_at && asked->shy < UM_SHY_MAX)
        asked->shy = (uint16_t)(2 * asked->shy + 1);
    asked->left = asked->shy;
    asked->stalled_at = asked->stalled_at < in->watch.asked_at ? um_clock_ns() : asked->stalled_at;
    asked->drops = true;
    asked->parts++;
    um_proto_ep_of(ep)->watching.taken_at = ep->turns;
    in->pushed = in->asked = false;
    in->watch.is_taken_back = true;
    um_proto_inbound_go_on(ep, in);
}

/* Reads the clock once in a call of progress, for all peers. */
static uint64_t watch_clock(struct um_core_ep *ep)
{
    struct um_proto_watching *w = &um_proto_ep_of(ep)->watching;
    if (w->clock_at != ep->turns || w->clock_ns == 0) {
        w->clock_at = ep->turns;
        w->clock_ns = um_clock_ns();
    }
    return w->clock_ns;
}

/* Has no part come for UM_QUIET_NS and the time that reading the body takes, since it was asked for or the last part
 * came? A sender that is reading itself makes no progress meanwhile: if neither side waited for that, both would read
 * for ever. */
static bool is_quiet(struct um_core_ep *ep, const struct um_proto_asked *asked, const struct um_proto_inbound *in)
{
    const uint64_t from = asked->quiet_at > in->watch.asked_at ? asked->quiet_at : in->watch.asked_at;
    return asked->quiet >= UM_QUIET_LOOKS &&
           (int64_t)(watch_clock(ep) - from) >= UM_QUIET_NS + (int64_t)in->watch.patience_ns;
}

/* Takes the body back that a peer was asked for first, if it is time. */
static bool look_step(struct um_core_ep *ep, struct um_core_job *job)
{
    struct um_proto_asked *asked = UM_CONTAINER(job, struct um_proto_asked, looking);
    struct um_proto_inbound *in = UM_CONTAINER(um_list_first(&asked->watched), struct um_proto_inbound, watch.link);
    const bool stalled = asked->stalled_at >= in->watch.asked_at;
    if (asked->parts != asked->parts_seen && !stalled) {
        asked->parts_seen = asked->parts;
        asked->quiet = 0;
        asked->quiet_at = watch_clock(ep);
        return false;
    }
    if (um_proto_ep_of(ep)->watching.taken_at == ep->turns)
        return false;
    asked->quiet++;
    if (!stalled && !is_quiet(ep, asked, in))
        return false;
    take_back(ep, in);
    return true;
}

bool um_proto_ask_watched(struct um_core_ep *ep, struct um_proto_inbound *in, uint64_t patience_ns)
{
    struct um_proto_asked *asked = &um_proto_peer_of(in->peer)->asked;
    if (!um_proto_ask_records(in))
        return false;
    in->watch.asked_at = um_clock_ns();
    in->watch.patience_ns = patience_ns;
    in->pushed = true;
    if (um_list_is_empty(&asked->watched)) {
        asked->parts_seen = asked->parts;
        asked->quiet = 0;
        asked->looking.step = look_step;
        um_core_job_start(ep, &asked->looking);
        ep->soon++;
    }
    um_list_append(&asked->watched, &in->watch.link);
    return true;
}

void um_proto_ask_peer_moves(const struct um_core_peer *peer)
{
    struct um_proto_asked *asked = &um_proto_peer_of(peer)->asked;
    asked->parts++;
    asked->stalled_at = 0;
}

void um_proto_ask_part_came(struct um_proto_inbound *in)
{
    um_proto_ask_peer_moves(in->peer);
    if (in->moved == in->arrival.len)
        um_proto_peer_of(in->peer)->asked.shy /= 2;
}

bool um_proto_ask_resume(struct um_proto_inbound *in)
{
    if (in->watch.went_on)
        return false;
    um_proto_peer_of(in->peer)->asked.is_unreadable = true;
    in->watch.is_taken_back = false;
    in->way.chosen = UM_WAY_NONE;
    in->pushed = in->asked = true;
    um_list_unlink(&in->job.link);
    return true;
}

bool um_proto_ask_drops(struct um_proto_inbound *in)
{
    if (!in)
        return true; /* the body has ended */
    if (!in->watch.is_taken_back)
        return false;
    in->watch.went_on = true;
    return true;
}
