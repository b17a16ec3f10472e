/*
 * The inside of an endpoint, shared by core and proto: peers, operations in flight, jobs.
 *
 * An operation at the initiator (struct um_core_op) ends in one of three ways: the receiver consumes its record
 * (acknowledged by the lane's credit), the receiver answers its token, or the transfer that moves its bytes ends. What
 * is left to do in steps is a job. Threading: core.h.
 */
#ifndef UM_CORE_ENDPOINT_H
#define UM_CORE_ENDPOINT_H

#include "base/atomic.h"
#include "base/fault_guard.h"
#include "base/iov.h"
#include "base/list.h"
#include "base/pool.h"
#include "core/copying.h"
#include "core/core.h"

#include <errno.h>

enum {
    UM_OPCODES = 17,
    UM_OP_IOV_SMALL = 6,
    UM_CALLS_PER_CLOCK = 23, /* calls between two looks at the clock, at most */
};

static_assert((int)UM_OPCODES <= (int)UM_OPCODE_MAX + 1, "machines name no larger ones");

/* Work that every call of progress continues: a copy in steps, or a body pushed as credit allows. */
struct um_core_job {
    struct um_list link; /* in ep->jobs while there is work */
    /* Does a bounded part of the work; returns whether anything moved. Unlinks or frees the job when it is done. */
    bool (*step)(struct um_core_ep *ep, struct um_core_job *job);
};

/* A buffer list that an operation keeps. */
struct um_core_buffers {
    struct iovec *iov; /* `small`, or memory of malloc() */
    uint32_t count;
    struct um_iov_cursor cursor;
    struct iovec small[UM_OP_IOV_SMALL];
};
int um_core_buffers_set_list(struct um_core_buffers *b, const struct iovec *iov, size_t count);
/* Sets the cursor field by field: a copy of the whole struct would load wider than was just stored, which stalls. */
static inline int um_core_buffers_set(struct um_core_buffers *b, const struct iovec *iov, size_t count)
{
    if (__builtin_expect(count != 1, 0))
        return um_core_buffers_set_list(b, iov, count);
    b->small[0].iov_base = iov->iov_base;
    b->small[0].iov_len = iov->iov_len;
    b->iov = b->small;
    b->count = 1;
    b->cursor.iov = b->small;
    b->cursor.count = 1;
    b->cursor.offset = 0;
    return 0;
}
void um_core_buffers_free(struct um_core_buffers *b);
static inline void um_core_buffers_fini(struct um_core_buffers *b)
{
    if (__builtin_expect(b->iov != b->small, 0))
        um_core_buffers_free(b);
}

struct um_core_op;

/* The kind of an operation, as the protocol that made it defines it. */
struct um_core_op_class {
    /* The peer answered the operation's token. The peer may be hostile: status may have any value. NULL: there is no
     * token. */
    void (*answered)(struct um_core_ep *ep, struct um_core_op *op, int32_t status);
    bool is_body; /* a body by rendezvous: its receiver may invite this side to copy a part */
};

/* An operation at its initiator, from its acceptance to its completion. */
struct um_core_op {
    const struct um_core_op_class *class;
    struct um_core_job job; /* pushes the body */
    struct um_list link;    /* in peer->acks, or in peer->copies */
    struct um_core_peer *peer;
    void *context;
    uint32_t flags;
    uint32_t ack; /* the lane's count of consumed records that acknowledges the operation */
    uint32_t token;
    bool has_token;
    bool is_unfinished; /* counted in peer->unfinished */
    bool is_helped;     /* the receiver has invited this side to copy a part of the body */
    uint8_t offer;      /* for a read that the peer executes: UM_OFFER_*, proto/rma_offer.c */
    uint64_t tag;
    uint64_t len;
    uint64_t moved; /* bytes pushed or returned */
    struct um_core_buffers buffers;
    /* Memory of malloc() that the protocol keeps, freed with the operation at the latest: a copy of an injected body,
     * operands still to be sent, or the state of a job that moves parts of the body. */
    void *copy;
    struct um_core_copying copying;
    struct um_shown *shown; /* the buffer, while the peer may read it by the machine's key */
    uint64_t key, data;     /* RMA whose bytes a transfer moves */
    uint16_t birth;         /* um_window.birth of its window */
};

/* The operations of a peer that await an answer, by token: the bounded tokens (below UM_TOKENS) first, then as many as
 * memory allows. */
struct um_core_tokens {
    struct um_core_token *slot;
    uint32_t capacity;
    uint32_t used;
    uint32_t unbounded_free; /* the first free slot from UM_TOKENS on; equal to capacity: none is free */
    uint64_t bounded_free;   /* bit t: token t is free */
};
struct um_core_token {
    struct um_core_op *op; /* NULL: free */
    uint32_t next_free;    /* the next free slot; of slots from UM_TOKENS on */
};
void um_core_tokens_init(struct um_core_tokens *tokens);
void um_core_tokens_fini(struct um_core_tokens *tokens);

/* A peer. The data that the protocols keep for it lies behind it (um_core_protocols.peer_size). */
struct um_core_peer {
    struct um_core_ep *ep;
    struct um_lane *lane; /* to the peer; NULL before first contact */
    uint32_t number;      /* index in ep->peers */
    bool lost;            /* it died or refused this endpoint: every operation fails */
    bool starved;         /* an operation was refused for lack of credit since the last tick that checked the peer */
    bool heard;           /* credit or answers came since the last tick that checked the peer */
    bool left;            /* its lane to this endpoint ended: nothing more comes from it */
    bool doubted;         /* a check has found its port gone, or the lane to it ended */
    bool banned;          /* it broke the protocol */
    uint64_t name;
    struct um_addr addr;
    struct um_link *link;        /* NULL: the peer is lost and its resources are freed (ended.c) */
    struct um_core_traffic *out; /* counts what goes to the peer, by the machine of its link */
    struct um_core_traffic *in;  /* counts what comes from the peer, by the machine of its rx */
    struct um_rx *rx;            /* from the peer; NULL: the peer has no lane to this endpoint */
    struct um_list acks;         /* um_core_op, in the order of ack */
    struct um_list copies;       /* um_core_op whose bytes a transfer moves */
    struct um_list awaiting;     /* in ep->awaiting */
    struct um_list expected;     /* in ep->expected */
    struct um_list ended;        /* in ep->leaving or ep->ended */
    uint32_t retained;           /* messages from the peer that wait to be received */
    uint32_t past_hold;          /* unexpected messages that came while the peer was asked to send none */
    uint32_t past_hold_bytes;    /* bytes of their bodies */
    struct um_core_tokens tokens;
    struct um_list held;             /* in ep->held */
    struct um_list announcing;       /* in ep->announcing */
    struct um_window *window;        /* the window used last */
    struct um_core_windows *windows; /* core/window.h; made when first needed */
    uint32_t unfinished;             /* RMA and atomics that the peer is to execute and has not answered */
    struct um_core_peer *hash_next[UM_MACHINES_MAX];
};

/*
 * Handles a record of that opcode. 0: done; -EPROTO: an invalid record (the lane is ended); -ENOMEM, -EAGAIN: the
 * record stays, and this call of progress takes no more.
 */
typedef int (*um_core_handler)(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* What proto registers in core. */
struct um_core_protocols {
    size_t ep_size, peer_size; /* bytes for the protocols behind each endpoint and each peer; zeroed */
    void (*peer_opened)(struct um_core_peer *peer);
    void (*peer_rerouted)(struct um_core_peer *peer); /* operations to the peer take another machine from now on */
    void (*peer_freed)(struct um_core_peer *peer);
    bool (*peer_owes)(const struct um_core_peer *peer); /* do answers to the peer wait for a place? */
    um_core_handler handler[UM_OPCODES];
    /* Nothing more comes from the peer: ends everything that came from it. error: a positive errno; 0: it ended in good
     * order. */
    void (*peer_left)(struct um_core_ep *ep, struct um_core_peer *peer, int error);
};

/* The port of an endpoint on one of its machines. */
struct um_core_port {
    struct um_port *port;
    struct um_core_peer **hash; /* the peers whose address has a part of this machine */
};

/* An endpoint. The data that the protocols keep for it lies behind it (um_core_protocols.ep_size). */
struct um_core_ep {
    struct um_core_ep_config config;
    const struct um_core_protocols *protocols;
    struct um_core_port ports[UM_MACHINES_MAX];
    uint32_t port_count;
    uint32_t polled;   /* index of the port that is polled first */
    uint32_t left_out; /* polls that still skip all ports but the first */
    int wait_fd;       /* an epoll set of the wait fds of several ports; -1: there is one port, and its fd is used */
    bool reported;     /* this call of progress has completed something */
    uint32_t unexpected_left; /* messages without a receive, and writes with data, that this call may still take;
                                 UINT32_MAX: any */
    bool stored;              /* there was a store through a window, and no full fence since */
    uint32_t turns;           /* calls of progress, modulo 2^32 */
    int32_t calls;            /* calls left before the next look at the clock */
    uint32_t calls_counted;   /* calls between the last look and the next */
    uint64_t looked_at, tick_at;
    struct um_list awaiting; /* peers with operations that wait for news of their lane */
    struct um_list expected; /* peers without a lane to this endpoint whose end must be noticed: the tick checks them */
    struct um_list held;     /* peers that are asked to send no messages, because too many wait for a receive */
    struct um_list announcing; /* peers asked to announce large messages, because many bytes wait for a receive */
    struct um_list leaving; /* peers whose lane to this endpoint has ended: the tick checks for the end of their port */
    struct um_list ended;   /* peers that can be freed */
    struct um_list jobs;
    uint64_t job_bytes; /* bytes of bodies that steps of jobs have moved, at least, to bound a call */
    struct um_pool ops;
    struct um_core_stats stats;
    struct um_core_peer **peers; /* by number; NULL: the number is free */
    uint32_t *peer_free;         /* free numbers below peer_slots: peer_slots - peer_count of them */
    uint32_t peer_count, peer_slots, peer_capacity;
    uint32_t peer_hash_mask;
    uint32_t rx_count;
    uint64_t helped;              /* parts of bodies that this side has copied for their receivers */
    uint32_t counters;            /* enum um_counters */
    uint32_t soon;                /* jobs that depend on the clock; while there is one the endpoint must not sleep */
    struct um_core_peer *gone;    /* replaces peers that were freed: every operation to it fails */
    struct um_fault_guard *guard; /* for accesses that are executed for peers; opened when first needed */
};

int um_core_ep_open(const struct um_core_ep_config *config, const struct um_core_protocols *protocols,
                    struct um_core_ep **ep_p);
/*
 * Counts a call and returns whether um_core_ep_look() is due. Callers make from one to a million calls a second, and
 * some use only one kind of call: every kind that a program may use alone must count.
 */
static inline bool um_core_ep_is_due(struct um_core_ep *ep)
{
    return __builtin_expect(--ep->calls < 0, 0);
}
/* Reads the clock and checks peers if it is time. Frees no peer, but may mark peers lost. */
void um_core_ep_look(struct um_core_ep *ep);
/* Runs a step of each job, within a budget. Returns how many steps moved something. */
int um_core_ep_jobs(struct um_core_ep *ep);
/* Runs a step of each job, however many there are, until one moves something. Returns whether one did. */
bool um_core_ep_jobs_move(struct um_core_ep *ep);
/* Waits, for a bounded time, until every accepted operation is sent. */
void um_core_ep_flush(struct um_core_ep *ep);
void um_core_ep_close(struct um_core_ep *ep);

/* Asks the peer for no more messages until um_core_ep_lift(), which ends all holds. */
void um_core_peer_hold(struct um_core_peer *peer);
void um_core_ep_lift(struct um_core_ep *ep);
/* Asks the peer to announce large messages until um_core_ep_announce_off(), which ends all such requests. */
void um_core_peer_announce_on(struct um_core_peer *peer);
void um_core_ep_announce_off(struct um_core_ep *ep);
static inline bool um_core_peer_is_held(const struct um_core_peer *peer)
{
    return !um_list_is_empty(&peer->held);
}

/* The slow path of um_core_peer_lane(): first contact, or a lost peer. */
int um_core_peer_lane_open(struct um_core_peer *peer);
/* Returns the lane to a peer, opened at first contact. The errors of lane_open; -EPIPE: the peer is lost. */
static inline int um_core_peer_lane(struct um_core_peer *peer, struct um_lane **lane_p)
{
    if (__builtin_expect(peer->lane == NULL || peer->lost, 0)) {
        int ret = um_core_peer_lane_open(peer);
        if (ret)
            return ret;
    }
    *lane_p = peer->lane;
    return 0;
}
/* Handles a failed claim: marks the peer starved (-EAGAIN), or loses it (-EPIPE). Returns the error. */
int um_core_peer_claim_failed(struct um_core_peer *peer, int error);
/* Lets the tick check a peer that has no lane to this endpoint: a receive that waits for this peer alone must end when
 * the peer dies. */
static inline void um_core_peer_expect(struct um_core_peer *peer)
{
    if (!peer->rx && um_list_is_empty(&peer->expected))
        um_list_append(&peer->ep->expected, &peer->expected);
}
/* Takes the acknowledgements and answers that have come. Returns how many, or -EPIPE: the lane has ended. */
int um_core_peer_reap(struct um_core_peer *peer);
/* The peer has no lane to this endpoint, or none any more: from now on the tick checks whether its port has ended. */
void um_core_peer_watch_leaving(struct um_core_peer *peer);
/* Ends everything that goes to this peer; operations that the peer took before count as done. What comes from it ends
 * with its lane, or at a later tick. error 0: its port closed in good order. */
void um_core_peer_lose(struct um_core_peer *peer, int error);

/* Can the peer map these buffers of this process (machine is_shareable()), and may it? */
bool um_core_peer_is_shareable(const struct um_core_peer *peer, const struct iovec *iov, size_t count);

/* Initialises a peer without a link and without a number. NULL without memory. */
struct um_core_peer *um_core_peer_new(struct um_core_ep *ep);

/* ---- ended.c ---- */
int um_core_peer_gone_open(struct um_core_ep *ep);
void um_core_peer_leaving_tick(struct um_core_ep *ep, struct um_list *ended);
/* Frees its resources if it is lost and nothing more comes from it. */
void um_core_peer_settle(struct um_core_peer *peer);
/* Frees the peers that have ended. Not to be called while a caller uses a peer. */
void um_core_peers_free_ended(struct um_core_ep *ep);
void um_core_peer_free(struct um_core_peer *peer);
/* Count the messages from the peer that wait to be received: one more; one less. */
static inline void um_core_peer_retain(struct um_core_peer *peer)
{
    peer->retained++;
}
static inline void um_core_peer_release(struct um_core_peer *peer)
{
    if (--peer->retained == 0 && __builtin_expect(!peer->link, 0))
        um_list_append(&peer->ep->ended, &peer->ended);
}

/* ---- op.c ---- */
/* Notes that an operation waits for news of the lane to this peer. */
void um_core_peer_await(struct um_core_peer *peer);
/* Makes an operation; NULL: no memory. */
struct um_core_op *um_core_op_alloc(struct um_core_peer *peer, const struct um_core_op_class *class, void *context,
                                    uint32_t flags);
void um_core_op_free(struct um_core_op *op);
/* Hides what the operation shows, if it shows anything: the peer reads no more of it. */
static inline void um_core_op_hide(struct um_core_op *op, enum um_hide why)
{
    if (__builtin_expect(op->shown != NULL, 0)) {
        op->shown->machine->hide(op->shown, why);
        op->shown = NULL;
    }
}
/*
 * Gives the operation a token. A bounded token (-EAGAIN: all are in use; -ENOMEM) is for an operation that the peer's
 * progress answers by itself. An operation that may wait until the peer's program posts a receive takes an unbounded
 * token (-ENOMEM: no other limit).
 */
int um_core_op_take_token(struct um_core_op *op);
int um_core_op_take_unbounded_token(struct um_core_op *op);
void um_core_op_drop_token(struct um_core_op *op);
/* The operation completes when the record committed last is consumed, or when its token is answered. */
void um_core_op_await_ack(struct um_core_op *op);
void um_core_op_await_answer(struct um_core_op *op);
/* Completes the operation and frees it. error: 0 or a positive errno. */
void um_core_op_complete(struct um_core_op *op, int error);
struct um_core_op *um_core_peer_op(const struct um_core_peer *peer, uint32_t token);
/* The peer executes the operation: until the peer answers, no operation through a window may overtake it. */
static inline void um_core_op_set_unfinished(struct um_core_op *op)
{
    op->is_unfinished = true;
    op->peer->unfinished++;
}

/*
 * Begin and end loads and stores in the program's memory that are executed for a peer. um_core_ep_guard(): 0; -ENOMEM:
 * no fault guard is available. um_core_ep_unguard(): 0; -EFAULT: the memory is missing or does not permit the access.
 */
static inline int um_core_ep_guard(struct um_core_ep *ep, const void *at, size_t len)
{
    if (__builtin_expect(!ep->guard, 0) && !(ep->guard = um_fault_guard_open()))
        return -ENOMEM;
    um_fault_guard_begin(ep->guard, at, len);
    return 0;
}

static inline int um_core_ep_unguard(struct um_core_ep *ep)
{
    return um_fault_guard_end(ep->guard) ? -EFAULT : 0;
}

/* Counts an access under that key that this endpoint has executed for a peer. */
void um_core_ep_count(struct um_core_ep *ep, uint64_t key, unsigned shift);

/*
 * Makes stores through windows visible before all later loads of this thread. Called before progress, by which a caller
 * learns that its operation is complete, and before reads through windows: otherwise a store could wait in the store
 * buffer while later loads go ahead, and two initiators that write and then read would both miss the other's write.
 */
static inline void um_core_ep_settle(struct um_core_ep *ep)
{
    if (__builtin_expect(ep->stored, 0)) {
        um_fence_full(); /* sync: rma-settle (partner rma-settle): of the other initiator */
        ep->stored = false;
    }
}

/* Returns the job that moves on after this one, in this call of progress or the next; NULL: there is no other. */
static inline struct um_core_job *um_core_job_next(const struct um_core_ep *ep, const struct um_core_job *job)
{
    struct um_list *next = job->link.next != &ep->jobs ? job->link.next : ep->jobs.next;
    return next != &job->link ? UM_CONTAINER(next, struct um_core_job, link) : NULL;
}

static inline void um_core_job_start(struct um_core_ep *ep, struct um_core_job *job)
{
    um_list_append(&ep->jobs, &job->link);
}

/* The same, before all other jobs. */
static inline void um_core_job_start_first(struct um_core_ep *ep, struct um_core_job *job)
{
    um_list_append(ep->jobs.next, &job->link);
}

#endif
