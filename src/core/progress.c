/*
 * Progress: hands records to their handlers, credit and answers to their operations, runs jobs and the tick.
 *
 * Owns no state. The common empty call is a handful of loads: the machine's poll and two empty lists.
 * Threading: core.h.
 */
#include "core/endpoint.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>

enum {
    UM_POLL_BUDGET = 32, /* records one call handles */
    UM_JOB_BUDGET = 32,  /* steps of jobs in one call */
    /* Bytes after which no further step of a job follows in the call. (The first step of a body comes with its
     * announcement.) While there are jobs, no further record follows either after bodies of so many bytes: where bodies
     * go both ways in records, each side would otherwise wait for the other one. */
    UM_JOB_BYTES = 512 << 10,
    UM_TICK_NS = 25000000, /* between two ticks */
    UM_TICK_PEERS = 40,    /* peers that are checked in a second, at least */
};

/* Takes a peer's first contact: the peer exists from now on, in the address vector or not. */
static int rx_joined(struct um_core_ep *ep, const struct um_record *rec)
{
    struct um_addr origin;
    struct um_core_peer *peer;
    rec->rx->machine->rx_origin(rec->rx, &origin);
    int ret = um_core_peer_get(ep, &origin, &peer);
    if (ret == -ENOMEM)
        return ret;
    if (ret || peer->rx || !peer->link || peer->banned) {
        /* no address, a second lane of a peer, or the lane of a peer that is gone or broke the protocol */
        rec->rx->machine->rx_refuse(rec->rx);
        return 0;
    }
    peer->rx = rec->rx;
    peer->in = &ep->stats.traffic[ep->polled];
    peer->left = false;
    rec->rx->user = peer;
    ep->rx_count++;
    if (peer->link->machine == rec->rx->machine && rec->rx->machine->link_joined)
        rec->rx->machine->link_joined(peer->link, rec->rx);
    return 0;
}

static void rx_left(struct um_core_ep *ep, const struct um_record *rec)
{
    struct um_core_peer *peer = rec->rx->user;
    if (!peer)
        return;
    peer->rx = NULL;
    peer->left = true;
    um_list_unlink(&peer->held);
    um_list_unlink(&peer->announcing);
    ep->rx_count--;
    rec->rx->user = NULL;
    int error = rec->len == 0 ? 0 : rec->len == EPROTO ? EPROTO : ECONNRESET;
    ep->protocols->peer_left(ep, peer, error);
    if (error)
        um_core_peer_lose(peer, error);
    if (peer->lost)
        um_core_peer_settle(peer);
    else
        um_core_peer_watch_leaving(peer);
}

/*
 * First completes the operations that the peer acknowledged before it sent this record: a caller that gets a reply
 * expects its request to be complete. (Intel MPI's MPI_Get on dynamic windows hangs if the request completes after the
 * reply.)
 */
static __attribute__((noinline)) void causes_first(struct um_core_peer *peer)
{
    const bool reported = peer->ep->reported;
    if (peer->lane && um_core_peer_reap(peer) > 0) /* awaiting_progress() finds the end of the lane again */
        peer->heard = true;
    peer->ep->reported = reported; /* acknowledgements of a stream of sends must not delay records for ever */
}

/* Handles a peer that joined or left. Returns whether the record was taken. */
static __attribute__((noinline)) bool record_of_machine(struct um_core_ep *ep, struct um_port *port,
                                                        const struct um_record *rec)
{
    if (rec->op == UM_REC_LEFT)
        rx_left(ep, rec);
    else if (rx_joined(ep, rec) != 0)
        return false;
    port->machine->release(port, rec);
    return true;
}

/* Ends the lane of a record that a peer must not send, or not now. */
static __attribute__((noinline)) void record_refuse(const struct um_record *rec)
{
    static struct um_log_limit limit;
    um_log_limited(&limit, UM_LOG_WARN,
                   "a peer sent a record that is invalid here (op 0x%02x, %u bytes); its lane is closed", rec->op,
                   rec->len);
    rec->rx->machine->rx_refuse(rec->rx);
}

/* Handles any record. Returns whether it was taken. */
static inline bool record_handle(struct um_core_ep *ep, struct um_port *port, const struct um_record *rec)
{
    int ret = -EPROTO;
    if (__builtin_expect(rec->op >= UM_OPCODE_MACHINE, 0))
        return record_of_machine(ep, port, rec);
    struct um_core_peer *peer = rec->rx->user;
    if (peer && __builtin_expect(!um_list_is_empty(&peer->awaiting), 0))
        causes_first(peer);
    if (rec->op < UM_OPCODES && ep->protocols->handler[rec->op] && peer)
        ret = ep->protocols->handler[rec->op](ep, peer, rec);
    if (ret == -ENOMEM || ret == -EAGAIN)
        return false;
    if (ret == 0)
        port->machine->release(port, rec);
    else
        record_refuse(rec);
    return true;
}

/* Reaps the acknowledgements and answers of peers with pending operations. */
static int awaiting_progress(struct um_core_ep *ep)
{
    int count = 0;
    struct um_list *next;
    if (__builtin_expect(!um_list_is_empty(&ep->held), 0))
        um_core_ep_lift(ep); /* an endpoint that waits for a peer holds no peer: otherwise two endpoints that wait for
                                each other could both be held */
    for (struct um_list *l = ep->awaiting.next; l != &ep->awaiting; l = next) {
        struct um_core_peer *peer = UM_CONTAINER(l, struct um_core_peer, awaiting);
        next = l->next;
        int news = peer->lane ? um_core_peer_reap(peer) : 0;
        if (news < 0 && !peer->rx && !peer->doubted) {
            peer->doubted = true; /* it may have sent and left since this call polled: check again in the next call */
            continue;
        }
        if (news < 0)
            um_core_peer_lose(peer, ECONNRESET);
        peer->heard = peer->heard || news > 0;
        count += news < 0 ? 1 : news;
        if (!peer->lost && um_list_is_empty(&peer->acks) && peer->tokens.used == 0 && !peer->starved) {
            um_list_unlink(&peer->awaiting);
            if (peer->lane)
                peer->lane->machine->lane_watch(peer->lane, false);
        }
    }
    return count;
}

/* Runs a step of the first job. Returns whether the step moved something. */
static bool first_step(struct um_core_ep *ep, struct um_list *first)
{
    struct um_core_job *job = UM_CONTAINER(first, struct um_core_job, link);
    /* moved to the end of the queue before its step, because the step may free the job */
    um_list_unlink(first);
    um_list_append(&ep->jobs, first);
    return job->step(ep, job);
}

int um_core_ep_jobs(struct um_core_ep *ep)
{
    int count = 0;
    /* The first job that moved nothing since the last job that did. When it comes again, all have been tried. The job
     * may have been freed: only its address is compared. */
    const struct um_list *idle = NULL;
    const uint64_t begin = ep->job_bytes;
    for (int i = 0; i < UM_JOB_BUDGET && ep->job_bytes - begin < UM_JOB_BYTES; i++) {
        struct um_list *first = um_list_first(&ep->jobs);
        if (!first || first == idle)
            break;
        const bool has_moved = first_step(ep, first);
        count += has_moved;
        idle = has_moved ? NULL : idle ? idle : first;
    }
    return count;
}

bool um_core_ep_jobs_move(struct um_core_ep *ep)
{
    uint32_t count = 0;
    for (const struct um_list *l = ep->jobs.next; l != &ep->jobs; l = l->next)
        count++;
    for (struct um_list *first; count > 0 && (first = um_list_first(&ep->jobs)) != NULL; count--) {
        if (first_step(ep, first))
            return true;
    }
    return false;
}

/* Is the peer's port gone? A peer without an rx may have sent just before its death: only the second check says yes,
 * after its records were taken. */
static bool is_gone(struct um_core_peer *peer)
{
    if (peer->link->machine->link_alive(peer->link))
        return false;
    const bool again = peer->doubted;
    peer->doubted = true;
    return again || peer->rx;
}

/* The end of a peer that has no lane to this endpoint must be noticed: does the peer still live? */
static void expected_tick(struct um_core_ep *ep, struct um_list *expected)
{
    struct um_core_peer *peer = UM_CONTAINER(expected, struct um_core_peer, expected);
    if (peer->rx) { /* from now on the machine checks it */
        um_list_unlink(&peer->expected);
    } else if (peer->lost && !peer->left) {
        return; /* its records may still come; um_core_peer_leaving_tick() or the end of its lane reports the loss */
    } else if (peer->left || peer->lost) {
        um_list_unlink(&peer->expected);
        ep->protocols->peer_left(ep, peer, ECONNRESET);
    } else if (is_gone(peer)) {
        um_list_unlink(&peer->expected);
        um_core_peer_lose(peer, peer->lane && peer->lane->machine->lane_reap(peer->lane, NULL, 0) < 0 ? 0 : ECONNRESET);
    }
}

/* An operation waits for news of the lane to the peer: does the peer still live? */
static void awaiting_tick(struct um_core_ep *ep, struct um_list *awaiting)
{
    struct um_core_peer *peer = UM_CONTAINER(awaiting, struct um_core_peer, awaiting);
    (void)ep;
    peer->starved = false;
    if (!peer->heard && is_gone(peer))
        um_core_peer_lose(peer, ECONNRESET);
    peer->heard = false;
}

/* Checks the first `looks` peers of the list, each once, and moves them to the end of the list. */
static void tick_first(struct um_core_ep *ep, struct um_list *list, uint32_t looks,
                       void (*look)(struct um_core_ep *ep, struct um_list *node))
{
    uint32_t count = 0;
    for (const struct um_list *l = list->next; l != list && count < looks; l = l->next)
        count++;
    for (struct um_list *first; count > 0 && (first = um_list_first(list)) != NULL; count--) {
        um_list_unlink(first);
        um_list_append(list, first);
        look(ep, first);
    }
}

/* Finds dead peers: checks those that operations wait for. The machine checks those that send to this endpoint. */
static void ep_tick(struct um_core_ep *ep, uint64_t passed)
{
    uint32_t looks = um_clock_share(ep->peer_count > UM_TICK_PEERS ? ep->peer_count : UM_TICK_PEERS, passed);
    tick_first(ep, &ep->awaiting, looks, awaiting_tick);
    tick_first(ep, &ep->expected, looks, expected_tick);
    tick_first(ep, &ep->leaving, looks, um_core_peer_leaving_tick);
    for (uint32_t i = 0; i < ep->port_count; i++)
        ep->ports[i].port->machine->tick(ep->ports[i].port);
}

/*
 * The clock is read after UM_CALLS_PER_CLOCK calls, or after fewer: as many as recently fitted into half a tick. A
 * caller that calls often pays a fraction of a clock read each time; one that calls seldom reads it each time; a change
 * is noticed after UM_CALLS_PER_CLOCK calls. Returns the time since the last tick if it is time for the next, else 0.
 */
static uint64_t ep_clock(struct um_core_ep *ep)
{
    const uint64_t now = um_clock_coarse_ns(), since = now - ep->looked_at, passed = now - ep->tick_at;
    uint64_t fit = UM_CALLS_PER_CLOCK;
    ep->looked_at = now;
    if (__builtin_expect(since > UM_TICK_NS / 2, 0))
        fit = (uint64_t)ep->calls_counted * (UM_TICK_NS / 2) / since;
    else if (ep->calls_counted < UM_CALLS_PER_CLOCK)
        fit = UINT64_C(2) * ep->calls_counted; /* doubles: the elapsed time may be 0, so the factor is unknown */
    ep->calls_counted = fit == 0 ? 1 : fit < UM_CALLS_PER_CLOCK ? (uint32_t)fit : UM_CALLS_PER_CLOCK;
    ep->calls = (int32_t)ep->calls_counted - 1;
    if (__builtin_expect(passed < UM_TICK_NS, 1))
        return 0;
    ep->tick_at = now;
    return passed;
}

/* Makes the next machine the first that is polled, so that none starves. */
static void poll_next(struct um_core_ep *ep)
{
    ep->polled = ep->polled + 1 < ep->port_count ? ep->polled + 1 : 0;
    ep->left_out = 0;
}

/*
 * The machine that was polled first had nothing: polls the others in turn. Returns the port that has a record, or NULL:
 * then the next polls skip these others, for as many polls as each of them allows (um_port.patience).
 */
static __attribute__((noinline)) struct um_port *poll_others(struct um_core_ep *ep, struct um_record *rec_p)
{
    uint32_t patience = UINT32_MAX;
    for (uint32_t left = ep->port_count; left > 1; left--) {
        poll_next(ep);
        struct um_port *port = ep->ports[ep->polled].port;
        if (port->machine->poll(port, rec_p)) /* NOLINT(clang-analyzer-core.NullDereference): each has its port */
            return port;
    }
    ep->polled = 0;
    for (uint32_t i = 1; i < ep->port_count; i++)
        patience = ep->ports[i].port->patience < patience ? ep->ports[i].port->patience : patience;
    ep->left_out = patience;
    return NULL;
}

/* Progress ends with records left, and its next call may come late: the machine does now what it has put off. */
static __attribute__((noinline)) void stop_early(struct um_core_ep *ep, struct um_port *port)
{
    if (port->machine->catch_up)
        port->machine->catch_up(port);
    if (ep->port_count > 1)
        poll_next(ep);
}

static inline __attribute__((always_inline)) int ep_advance(struct um_core_ep *ep)
{
    struct um_port *port = ep->ports[ep->polled].port;
    struct um_record rec;
    int count = 0, budget = UM_POLL_BUDGET;
    uint32_t bytes = 0;
    ep->turns++;
    ep->reported = false;
    um_core_ep_settle(ep);
    while (count < budget) {
        if (!port->machine->poll(port, &rec)) {
            if (__builtin_expect(ep->left_out > 0, 1)) {
                ep->left_out--;
                break;
            }
            if (!(port = poll_others(ep, &rec)))
                break;
        }
        if (!record_handle(ep, port, &rec)) { /* poll offers it again */
            stop_early(ep, port);
            break;
        }
        count++;
        bytes += rec.body ? rec.len : 0;
        if (__builtin_expect(bytes >= UM_JOB_BYTES, 0) && !um_list_is_empty(&ep->jobs)) {
            budget = count;
            break;
        }
    }
    if (__builtin_expect(count == budget, 0))
        stop_early(ep, port);
    if (!um_list_is_empty(&ep->awaiting))
        count += awaiting_progress(ep);
    if (!um_list_is_empty(&ep->jobs))
        count += um_core_ep_jobs(ep);
    return count;
}

/* A machine may receive records during its tick, of which nothing tells a sleeper: handles them now. */
static int tick_and_advance(struct um_core_ep *ep, uint64_t passed)
{
    ep_tick(ep, passed);
    return ep_advance(ep);
}

__attribute__((noinline)) void um_core_ep_look(struct um_core_ep *ep)
{
    const uint64_t passed = ep_clock(ep);
    if (passed) {
        ep_advance(ep); /* takes a peer's records before its death is noticed */
        tick_and_advance(ep, passed);
    }
}

void um_core_ep_hasten(struct um_core_ep *ep, uint32_t unexpected)
{
    ep->calls = 0;
    ep->unexpected_left = unexpected;
}

uint32_t um_core_ep_patience(const struct um_core_ep *ep)
{
    return ep->calls_counted;
}

int um_core_ep_progress(struct um_core_ep *ep)
{
    int count = ep_advance(ep);
    if (um_core_ep_is_due(ep)) {
        const uint64_t passed = ep_clock(ep);
        if (passed)
            count += tick_and_advance(ep, passed);
        um_core_peers_free_ended(ep);
        ep->unexpected_left = UINT32_MAX;
    }
    return count;
}
