/*
 * The inside of an endpoint, shared by core and proto: peers, operations in flight, jobs.
 *
 * An operation at the initiator (struct um_op) ends in one of two ways: the receiver consumes its record (acknowledged
 * by the lane's credit), or the receiver answers its token. What is left to do in pieces is a job.
 * Threading: core.h.
 */
#ifndef UM_CORE_ENDPOINT_H
#define UM_CORE_ENDPOINT_H

#include "base/atomic.h"
#include "base/iov.h"
#include "base/list.h"
#include "base/pool.h"
#include "core/core.h"

enum {
    UM_OPCODES = 16,
    UM_OP_IOV_SMALL = 4,
    UM_CALLS_PER_CLOCK = 1024, /* calls of progress between two looks at the clock */
};

/* Work that continues at every progress: a copy in pieces, a body pushed as credit allows. */
struct um_job {
    struct um_list link; /* in ep->jobs while there is work */
    /* Does a bounded part of it; returns whether anything moved. Unlinks or frees itself at the end. */
    bool (*step)(struct um_ep *ep, struct um_job *job);
};

/* A buffer list that an operation keeps. */
struct um_buffers {
    struct iovec small[UM_OP_IOV_SMALL];
    struct iovec *iov; /* small, or from the C library */
    uint32_t count;
    struct um_iov_cursor cursor;
};
int um_buffers_set(struct um_buffers *b, const struct iovec *iov, size_t count);
void um_buffers_fini(struct um_buffers *b);

/* An operation at its initiator, accepted and not completed. */
struct um_op {
    struct um_job job;   /* pushing its body */
    struct um_list link; /* in peer->acks */
    struct um_peer *peer;
    void *context;
    uint32_t flags;
    uint32_t ack; /* the lane's count at which its record is consumed */
    uint32_t token;
    bool has_token;
    bool is_unfinished; /* counted in peer->unfinished */
    uint64_t tag;
    uint64_t len;
    uint64_t moved; /* bytes pushed or returned */
    struct um_buffers buffers;
    void *copy; /* an injected body too large for its lane; operands that are still to go */
};

struct um_inbound;
struct um_inbounds;

/* The operations of a peer that await an answer, by token: the bounded tokens (below UM_TOKENS) first, then as many as
 * memory allows. */
struct um_tokens {
    struct um_token *slot;
    uint32_t capacity;
    uint32_t used;
    uint32_t unbounded_free; /* the first free slot of those from UM_TOKENS on; capacity: none */
    uint64_t bounded_free;   /* bit t: token t is free */
};
struct um_token {
    struct um_op *op;   /* NULL: free */
    uint32_t next_free; /* from UM_TOKENS on */
};
void um_tokens_init(struct um_tokens *tokens);
void um_tokens_fini(struct um_tokens *tokens);

/* Of proto/ask: how the peer answers when it is asked for a body. */
struct um_asked {
    uint64_t stalled_at; /* ns: one was taken back, and no part has come since */
    uint32_t parts;      /* of bodies that came, and bodies that were taken back: another number, it attends */
    uint16_t shy;        /* so many bodies are not asked for, after one that did not come */
    uint16_t left;       /* of these */
    bool drops;          /* one was ever taken back: parts of it may still come */
    bool is_unreadable;  /* its memory cannot be read: it is asked, and waited for */
};

struct um_peer {
    struct um_ep *ep;
    struct um_lane *lane; /* to the peer; NULL before first contact */
    uint32_t number;      /* index in ep->peers */
    bool lost;            /* it died or refused us: every operation fails */
    bool starved;         /* an operation was refused for lack of credit since the last look */
    bool heard;           /* credit or answers came since the last look whether it lives */
    bool left;            /* its lane to us ended: nothing more comes from it */
    uint64_t name;
    struct um_addr addr;
    struct um_link *link;
    struct um_rx *rx;        /* from the peer; NULL when it has not contacted us */
    struct um_list acks;     /* um_op, by ack */
    struct um_list awaiting; /* in ep->awaiting */
    struct um_list expected; /* in ep->expected */
    struct um_list atomics;  /* of proto/atomic: the peer's operations that are not through */
    struct um_tokens tokens;
    struct um_inbounds *inbound; /* of proto/inbound; made when first needed */
    struct um_list due;          /* of proto/inbound: ended, and not answered yet for lack of a place */
    struct um_job answering;     /* of proto/inbound: answers them */
    struct um_list held;         /* in ep->held */
    struct um_window *window;    /* the one used last */
    struct um_windows *windows;  /* core/window.h; made when first needed */
    struct um_op *sending;       /* of proto/atomic: goes out in several records, which are not all out */
    struct um_asked asked;
    uint32_t unfinished; /* RMA and atomics that the peer is to execute and has not answered */
    struct um_peer *hash_next;
};

/*
 * A record of that opcode arrived. 0: taken; -EPROTO: it cannot be (the lane is ended); -ENOMEM, -EAGAIN: it stays,
 * this call of progress takes no more.
 */
typedef int (*um_handler)(struct um_ep *ep, struct um_peer *peer, const struct um_record *rec);

/* What proto registers in core. */
struct um_protocols {
    um_handler handler[UM_OPCODES];
    void (*answered)(struct um_ep *ep, struct um_op *op, int32_t status);
    /* The peer is gone, with a positive errno (0: in good order): end everything that comes from it. */
    void (*peer_left)(struct um_ep *ep, struct um_peer *peer, int error);
};

struct um_match;
struct um_bodies_known;

struct um_ep {
    struct um_ep_config config;
    const struct um_machine *machine;
    const struct um_protocols *protocols;
    struct um_port *port;
    uint32_t body_max;
    bool reported;  /* this call of progress has completed something */
    bool stored;    /* through a window, and no full fence since */
    uint32_t calls; /* of progress, for the tick */
    uint64_t tick_at;
    struct um_list awaiting; /* peers with operations that wait for news of their lane */
    struct um_list expected; /* peers that a receive waits for and that have no lane to us: the tick looks after them */
    struct um_list held;     /* peers that are asked to send no messages, because too many wait for a receive */
    struct um_list jobs;
    struct um_pool ops;
    struct um_stats stats;
    struct um_peer **peers;
    uint32_t peer_count, peer_capacity;
    struct um_peer **peer_hash;
    uint32_t peer_hash_mask;
    uint32_t rx_count;
    uint32_t counters;              /* enum um_counters */
    uint32_t soon;                  /* jobs that look at the clock: nobody sleeps meanwhile */
    void *receive;                  /* proto/receive: posted and unexpected */
    struct um_bodies_known *bodies; /* proto/ask; NULL: bodies are read */
};

int um_core_ep_open(const struct um_ep_config *config, const struct um_protocols *protocols, struct um_ep **ep_p);
/* Moves jobs on; returns how many moved. */
int um_core_ep_jobs(struct um_ep *ep);
/* Waits (bounded) until every accepted operation is out. */
void um_core_ep_flush(struct um_ep *ep);
void um_core_ep_close(struct um_ep *ep);

/* The lane to a peer, opened at first contact. Errors of lane_open; -EPIPE when the peer is lost. */
int um_peer_lane_open(struct um_peer *peer);
static inline int um_peer_lane(struct um_peer *peer, struct um_lane **lane_p)
{
    if (__builtin_expect(peer->lane == NULL || peer->lost, 0)) {
        int ret = um_peer_lane_open(peer);
        if (ret)
            return ret;
    }
    *lane_p = peer->lane;
    return 0;
}
/* A claim failed: remembers it (-EAGAIN) or that the peer is lost. Returns the error for the caller's caller. */
int um_peer_claim_failed(struct um_peer *peer, int error);
/* A receive waits for this peer alone: it shall end when the peer does, even if that never contacts us. */
static inline void um_peer_expect(struct um_peer *peer)
{
    if (!peer->rx && um_list_is_empty(&peer->expected))
        um_list_append(&peer->ep->expected, &peer->expected);
}
/* Takes the acknowledgements and answers that are there. Returns how many, or -EPIPE: the lane has ended. */
int um_peer_harvest(struct um_peer *peer);
/* Ends everything that goes to and comes from this peer; what it took before counts as done. */
void um_peer_lose(struct um_peer *peer, int error);

/* A new operation; NULL without memory. */
struct um_op *um_op_alloc(struct um_peer *peer, void *context, uint32_t flags);
void um_op_free(struct um_op *op);
/*
 * Gives the operation a token. A bounded one (-EAGAIN: all are in use) is for what the peer answers by itself. What may
 * wait for a call of the peer's program, a receive that is posted, takes an unbounded one: -ENOMEM, no other limit.
 */
int um_op_take_token(struct um_op *op);
int um_op_take_unbounded_token(struct um_op *op);
void um_op_drop_token(struct um_op *op);
/* The operation completes when the record committed last is consumed, or when its token is answered. */
void um_op_await_ack(struct um_op *op);
void um_op_await_answer(struct um_op *op);
/* Completes and frees. error: 0 or a positive errno. */
void um_op_complete(struct um_op *op, int error);
struct um_op *um_peer_op(const struct um_peer *peer, uint32_t token);
/* The peer executes it: until it answers, nothing overtakes it by a window. */
static inline void um_op_set_unfinished(struct um_op *op)
{
    op->is_unfinished = true;
    op->peer->unfinished++;
}

/* Counts an access under that key that this endpoint has executed for a peer. */
void um_core_ep_count(struct um_ep *ep, uint64_t key, unsigned shift);

/*
 * What was stored through windows is visible before anything that this thread reads from now on. Before progress, which
 * is how a caller learns that its operation is complete, and before reads through windows: a store may wait in the
 * processor while later loads go ahead, and two initiators that write and then read would both miss the other's write.
 */
static inline void um_core_ep_settle(struct um_ep *ep)
{
    if (__builtin_expect(ep->stored, 0)) {
        um_fence_full(); /* sync: rma-settle (partner rma-settle): of the other initiator */
        ep->stored = false;
    }
}

/* Another job has its turn after this one, in this call of progress or the next. */
static inline bool um_job_is_followed(const struct um_ep *ep, const struct um_job *job)
{
    return ep->jobs.next != &job->link || job->link.next != &ep->jobs;
}

static inline void um_job_start(struct um_ep *ep, struct um_job *job)
{
    um_list_append(&ep->jobs, &job->link);
}

#endif
