/*
 * The endpoint below libfabric: peers, operations in flight, progress. What prov calls besides proto/proto.h.
 *
 * Owns: the port, the peers, the dispatch of records to opcode handlers. Must not know any fi_* type nor what a
 * protocol does with a record. The few calls upward are function pointers: the handler of an opcode (set by proto), the
 * completion of an operation and the end of a peer (set by prov).
 * Threading: calls that touch one endpoint are serialised by the caller; um_core_ep_kick() may come from any thread.
 * Errors: 0 or a negative errno.
 */
#ifndef UM_CORE_CORE_H
#define UM_CORE_CORE_H

#include "core/region.h"
#include "machine/machines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Flags of an operation, from the call to its completion. */
enum um_core_op_flag {
    UM_OP_SEND = 1 << 0,
    UM_OP_RECV = 1 << 1,
    UM_OP_TAGGED = 1 << 2,
    UM_OP_READ = 1 << 3,         /* RMA or atomic, at the initiator */
    UM_OP_WRITE = 1 << 4,        /* RMA or atomic, at the initiator */
    UM_OP_REMOTE_WRITE = 1 << 5, /* RMA with data, at the target */
    UM_OP_ATOMIC = 1 << 6,       /* with UM_OP_READ (it fetches) or UM_OP_WRITE: an atomic operation */
    UM_OP_INJECT = 1 << 7,       /* the buffer is the caller's again at return */
    UM_OP_DELIVERY = 1 << 8,     /* complete when delivered, not when sent */
    UM_OP_NO_EVENT = 1 << 9,     /* no completion event on success; counters still count */
    UM_OP_MULTI = 1 << 10,       /* receive: the buffer takes many messages */
    UM_OP_MULTI_END = 1 << 11,   /* completion: the multi-receive buffer is the caller's again */
    UM_OP_CLAIM = 1 << 12,   /* peek: reserve the message found; receive: take the one reserved under this context */
    UM_OP_DISCARD = 1 << 13, /* peek or claim: drop the message */
    UM_OP_MATCH = 1 << 15,   /* send: complete when a receive has taken it */
    UM_OP_DATA = 1 << 14,    /* 8 bytes of data for the peer's completion */
};

struct um_core_ep;
struct um_core_peer;

/* What the completion of an operation says. */
struct um_core_completion {
    void *context;
    uint32_t flags; /* um_core_op_flag */
    int error;      /* 0, or a positive errno: EMSGSIZE truncated (olen bytes lost), ECANCELED, ENOMSG, ... */
    size_t len;     /* bytes received or moved */
    size_t olen;    /* bytes that did not fit */
    void *buf;      /* multi-receive: where the message lies */
    uint64_t tag;
    uint64_t data;               /* valid with UM_OP_DATA */
    struct um_core_peer *source; /* receives: the sender */
    uint64_t name;               /* with a source: the name that prov gave it, or UM_PEER_UNNAMED */
};

/* Messages, RMA and atomic operations by way of one machine, and their payload. */
struct um_core_traffic {
    uint64_t sent, received;
    uint64_t bytes_sent, bytes_received;
};

struct um_core_stats {
    struct um_core_traffic traffic[UM_MACHINES_MAX]; /* by machine, as in the configuration */
    uint64_t eager, rendezvous;                      /* the protocol of the sent messages */
    uint64_t copied, bounced; /* bodies of rendezvous and RMA: moved by transfers; sent in records */
    uint64_t retaken;         /* of the copied: asked for in records first, then taken back */
    uint64_t mapped;          /* RMA and atomics executed by loads and stores; bodies copied from mapped memory */
    uint64_t joint;           /* received bodies of which the sender copied a part */
    uint64_t batched;         /* received bodies that were read together with others */
    uint64_t unexpected;      /* messages that arrived before their receive was posted */
    uint64_t peers_lost;
};

/* How a body moves that its receiver can read. */
enum um_core_bodies {
    UM_BODIES_READ = 0, /* read by the receiver alone */
    UM_BODIES_BOTH,     /* a large body by both sides: the receiver reads; the sender writes, if it makes progress */
    UM_BODIES_COPY,     /* by the receiver alone or by both sides, whichever was faster lately (proto/choice.h) */
    UM_BODIES_LEARN,    /* like UM_BODIES_COPY, or pushed, whichever was faster lately */
    UM_BODIES_PUSH,     /* pushed, unless the sender makes no progress */
};

/* How a body moves that its receiver can map. */
enum um_core_mapped {
    UM_MAPPED_LEARN = 0, /* copied from the mapping, or moved like any other body, whichever takes less time here */
    UM_MAPPED_NEVER,
    UM_MAPPED_ALWAYS,
};

struct um_core_ep_config {
    struct um_machines machines;
    struct um_port_config port;
    struct um_core_regions *regions; /* what peers may read and write; outlives the endpoint */
    void (*complete)(void *arg, const struct um_core_completion *c);
    /* The usual completion, in fewer steps: a message that fits into the one buffer of its receive. NULL: complete()
     * is called for these messages, too. */
    void (*received)(void *arg, struct um_core_peer *source, void *context, uint32_t flags, size_t len, uint64_t tag,
                     uint64_t data);
    /* Called before an ended peer is freed: the caller replaces its pointers to this peer by um_core_peer_gone(). NULL:
     * peers live as long as the endpoint. */
    void (*forget)(void *arg, struct um_core_peer *peer);
    /* May a peer's write with data complete here now? False: it waits in its lane, and what comes from peers waits
     * behind it. NULL: always. */
    bool (*takes_data)(void *arg);
    void *arg;
    size_t multi_min;      /* free bytes below which a multi-receive buffer is given back */
    size_t unexpected_max; /* bytes of messages without a receive beyond which senders are held; 0: 64 MiB */
    enum um_core_bodies bodies;
    enum um_core_mapped mapped;
};

void um_core_ep_addr(const struct um_core_ep *ep, struct um_addr *addr_p);
/* The counters for peers' accesses to registered memory through this endpoint: enum um_counters. */
void um_core_ep_set_counters(struct um_core_ep *ep, uint32_t counters);
void um_core_ep_set_multi_min(struct um_core_ep *ep, size_t bytes);
const struct um_core_stats *um_core_ep_stats(const struct um_core_ep *ep);
/* Returns the sum over all machines. */
struct um_core_traffic um_core_ep_traffic(const struct um_core_ep *ep);

/* Advances all pending work, within a budget; calls complete(). Returns how many records, acknowledgements and answers
 * it took and how many jobs it advanced. */
int um_core_ep_progress(struct um_core_ep *ep);

/*
 * Makes the next call of progress check the peers, if it is time, and take at most `unexpected` messages that have no
 * receive, and writes with data, in all (not 0). For a caller that has drained completions for many calls without
 * progress. If those were of such messages and writes, progress must not take in more of them than the caller consumes,
 * or their number grows without bound.
 */
void um_core_ep_hasten(struct um_core_ep *ep, uint32_t unexpected);
uint32_t um_core_ep_patience(const struct um_core_ep *ep);

/*
 * Sleeping: see machine.h. um_core_ep_arm() is -EAGAIN when there is work: make progress and try again. The fd is -1
 * when none of the endpoint's machines wakes a sleeper.
 */
int um_core_ep_wait_fd(const struct um_core_ep *ep);
int um_core_ep_arm(struct um_core_ep *ep);
void um_core_ep_disarm(struct um_core_ep *ep);
void um_core_ep_kick(struct um_core_ep *ep);
/* Like machine watch_line(); -EAGAIN also while other work has to be polled. */
int um_core_ep_watch_line(const struct um_core_ep *ep, const uint64_t **line_p, uint64_t *value_p);
/*
 * Returns how long a sleeper may sleep, in ms, before it makes progress: a short time where a machine does not wake a
 * sleeper (um_machine.wakes); a fraction of a second while anything depends on a peer, which may die; else -1: until it
 * is woken.
 */
int um_core_ep_sleep_max(const struct um_core_ep *ep);

/* 0: one of the machines reaches the address. Else the errors of machine addr_check (already logged). */
int um_core_ep_addr_check(const struct um_core_ep *ep, const struct um_addr *addr);
/* Finds the peer of that address, or makes it (-ENOMEM, the errors of addr_check). The peer lives until
 * um_core_ep_config.forget. */
int um_core_peer_get(struct um_core_ep *ep, const struct um_addr *addr, struct um_core_peer **peer_p);
/* Finds the peer of that address; NULL: there is none. */
struct um_core_peer *um_core_peer_find(struct um_core_ep *ep, const struct um_addr *addr);
/* Returns the peer to which every operation fails. */
struct um_core_peer *um_core_peer_gone(struct um_core_ep *ep);
void um_core_peer_addr(const struct um_core_peer *peer, struct um_addr *addr_p);
/* The name that prov gave the peer (its fi_addr_t); UM_PEER_UNNAMED until then. */
#define UM_PEER_UNNAMED UINT64_MAX
uint64_t um_core_peer_name(const struct um_core_peer *peer);
void um_core_peer_set_name(struct um_core_peer *peer, uint64_t name);

#endif
