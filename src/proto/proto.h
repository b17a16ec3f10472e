/*
 * The protocols, as prov calls them: send, receive, peek, cancel, RMA, atomics.
 *
 * Owns: the choice of protocol and both ends of each (one file per protocol). Must not know fi_* types.
 * Threading: as core/core.h. Every call returns at once.
 * Acceptance: 0 means accepted (except from um_proto_inject()): exactly one completion follows, possibly before the
 * call returns. It follows with UM_OP_NO_EVENT, too: the flag is in the completion's flags, and the caller decides what
 * to do with an unwanted completion. Every other value, except UM_EXECUTED, means that nothing happened: -EAGAIN try
 * again after progress; -ENOMEM; -EPIPE, -ECONNREFUSED, -EACCES, -EPROTO, -EHOSTUNREACH the peer cannot be reached.
 */
#ifndef UM_PROTO_PROTO_H
#define UM_PROTO_PROTO_H

#include "core/core.h"
#include "proto/atomic_apply.h"

/* Limits that the machine and the protocols set. */
struct um_proto_limits {
    size_t inject_max; /* largest inject, in bytes */
    size_t iov_max;    /* entries of a local buffer list */
    size_t rma_iov_max;
};
/* The limits that hold on all these machines. */
void um_proto_limits_get(const struct um_machines *machines, struct um_proto_limits *limits_p);

/* An endpoint that speaks these protocols. Errors: machine port_open's, -ENOMEM. */
int um_proto_ep_open(const struct um_core_ep_config *config, struct um_core_ep **ep_p);
/*
 * Flushes accepted operations (for a bounded time: a warning names the peers that do not take them), then closes the
 * endpoint. Receives that are still posted complete with ECANCELED.
 */
void um_proto_ep_close(struct um_core_ep *ep);

/* A message operation. iov may be NULL when count is 0. */
struct um_proto_msg {
    const struct iovec *iov;
    size_t count;
    struct um_core_peer *peer; /* send: the destination; receive: the only source, or NULL for any */
    uint64_t tag;
    uint64_t ignore; /* receive: tag bits that do not matter */
    uint64_t data;   /* send: with UM_OP_DATA */
    void *context;
    uint32_t flags; /* um_core_op_flag; UM_OP_SEND or UM_OP_RECV is added by the call */
};

/* Sends. With UM_OP_INJECT the length is at most um_proto_limits.inject_max. */
int um_proto_send(struct um_core_ep *ep, const struct um_proto_msg *msg);
/*
 * The fast path: sends one buffer of at most inject_max bytes, which the caller may reuse at return. 0: sent, no
 * completion follows. 1: accepted as a rendezvous, because the lane does not take so large a body; one completion
 * follows, with UM_OP_NO_EVENT.
 */
int um_proto_inject(struct um_core_ep *ep, struct um_core_peer *peer, const void *buf, size_t len, uint64_t tag,
                    uint64_t data, uint32_t flags);
/*
 * Posts a receive. UM_OP_MULTI: one buffer for many messages, each with its completion; the last one carries
 * UM_OP_MULTI_END. UM_OP_CLAIM: receives (with UM_OP_DISCARD: drops) the message that a peek reserved under this
 * context; -ENOMSG when there is none.
 */
int um_proto_recv(struct um_core_ep *ep, const struct um_proto_msg *msg);
/* The same with one buffer and without UM_OP_MULTI and UM_OP_CLAIM. peer: NULL for any source. */
int um_proto_recv_one(struct um_core_ep *ep, struct um_core_peer *peer, void *buf, size_t len, uint64_t tag,
                      uint64_t ignore, void *context, uint32_t flags);
/*
 * Looks for an unexpected message. 0 and *found_p (len, tag, data, source, flags), or -ENOMSG. The message stays
 * queued; with UM_OP_CLAIM it is reserved under the context instead, with UM_OP_DISCARD it is dropped. No completion
 * follows.
 */
int um_proto_peek(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_core_completion *found_p);
/*
 * Cancels one posted receive with this context: the oldest untagged one, else the oldest tagged one. The receive
 * completes with ECANCELED; but a multi-receive with bodies on their way ends with the last of them. -ENOENT: there is
 * none (any more).
 */
int um_proto_cancel(struct um_core_ep *ep, void *context);

/*
 * One-sided operations: executed by this process where it reaches the memory, else by the target's progress. There is
 * one call for each operation, whatever its buffers and flags; the call chooses the way. UM_EXECUTED: the operation has
 * been executed and no completion follows; the caller reports it (len bytes, no error). Other results as above.
 * Operations to one peer take effect in the order of the calls: -EAGAIN also while one would overtake an earlier
 * operation that is not complete.
 */
enum { UM_EXECUTED = 1 };

struct um_proto_rma {
    const struct iovec *iov;
    size_t count;
    struct um_core_peer *peer;
    uint64_t addr; /* as the target's registration has it: virtual address or offset */
    uint64_t key;
    uint64_t data; /* write: with UM_OP_DATA; else it may be unset */
    void *context;
    uint32_t flags; /* um_core_op_flag; UM_OP_READ or UM_OP_WRITE is added by the call */
};
int um_proto_rma_read(struct um_core_ep *ep, const struct um_proto_rma *rma);
int um_proto_rma_write(struct um_core_ep *ep, const struct um_proto_rma *rma);
/* A read or a write (flags) of no bytes: key and addr are ignored. The target gets the data of a write. */
int um_proto_rma_empty(struct um_core_ep *ep, const struct um_proto_rma *rma);

/* Buffers in pieces. Each piece has whole elements, each list count elements in all. READ has no operands. */
struct um_proto_atomic_lists {
    const struct iovec *operand;
    size_t operand_count;
    const struct iovec *compare;
    size_t compare_count;
    const struct iovec *result;
    size_t result_count;
};

struct um_proto_atomic {
    const void *operand;                       /* count elements each; ignored by READ */
    const void *compare;                       /* kind COMPARE */
    void *result;                              /* kinds FETCH and COMPARE */
    const struct um_proto_atomic_lists *lists; /* not NULL: used instead of operand, compare and result */
    struct um_core_peer *peer;
    uint64_t addr; /* as the owner's registration has it */
    uint64_t key;
    size_t count; /* elements: at least 1, UM_ATOMIC_BYTES bytes at most */
    uint8_t type; /* enum um_proto_atomic_type, enum um_proto_atomic_op: valid for the kind */
    uint8_t op;
    uint8_t kind; /* enum um_proto_atomic_kind */
    void *context;
    uint32_t flags; /* um_core_op_flag; UM_OP_ATOMIC and UM_OP_READ or UM_OP_WRITE are added by the call */
};
int um_proto_atomic_start(struct um_core_ep *ep, const struct um_proto_atomic *a);

#endif
