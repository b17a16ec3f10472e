/*
 * Matching: posted receives against arriving messages, in the order MPI and libfabric demand, O(1) in queue depth.
 *
 * Owns: the index of posted receives and of unexpected messages of one endpoint; not the objects, which embed a node.
 * Must not know operations, lanes or libfabric. Threading: the caller serialises.
 *
 * A message has a tag and a source; a receive has a tag, an ignore mask and a source or UM_MATCH_ANY. They match when
 * the tags agree outside the mask and the sources agree or the receive takes any source. Of several candidates the
 * oldest wins. Cost: a message looks into one bucket, and into one more for each ignore mask and kind of source (one or
 * any) that engine.h keeps apart; programs have few of them. A receive looks into two buckets. Of these masks
 * UM_MATCH_CLASSES have hash tables; receives with further masks stand in one ordered list, and search all queued
 * messages. A mask's tables can serve another mask when they are empty. Untagged messages use an engine of their own
 * with tag 0 and mask 0.
 */
#ifndef UM_MATCH_MATCH_H
#define UM_MATCH_MATCH_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

#define UM_MATCH_ANY UINT32_MAX

/* The newest receives, this many, are never hashed; up to as many messages are searched without a table. The tests also
 * build with 0: all are hashed. */
#ifndef UM_MATCH_SHORT
#define UM_MATCH_SHORT 8
#endif

enum { UM_MATCH_CLASSES = 8, UM_MATCH_UNHASHED = UINT16_MAX };

/* Place in one hash table. Nodes of one key form a ring, oldest first; the oldest stands in the chain of its bucket. */
struct um_match_node {
    struct um_match_node *next; /* in the ring */
    struct um_match_node *prev;
    struct um_match_node *chain;  /* the next key of the bucket; oldest of its key only */
    struct um_match_node **place; /* what points to this node in the bucket; NULL unless it is the oldest of its key */
    uint64_t tag;                 /* masked */
    uint32_t source;              /* or UM_MATCH_ANY */
    uint32_t table;               /* of an um_match_entry: the number of the table */
};

/* In a posted receive. The caller sets tag, ignore, source, stays; the rest belongs to the engine, most of it for long
 * queues. */
struct um_match_recv {
    uint64_t tag;
    uint64_t ignore;
    uint32_t source;    /* number of the peer, or UM_MATCH_ANY */
    uint16_t table;     /* the table it stands in; UM_MATCH_TABLES: the list of further masks; UM_MATCH_UNHASHED */
    bool stays;         /* stays posted when a message takes it: um_match_take_recv() */
    struct um_list all; /* every posted receive, oldest first */
    uint64_t order;     /* this member and those below: valid once the receive is hashed */
    union {
        struct um_match_node node;
        struct um_list further; /* the list of further masks, oldest first */
    };
};

/* In an unexpected message. The caller sets tag, source; the rest belongs to the engine. */
struct um_match_msg {
    uint64_t tag;
    uint32_t source;
    struct um_list all;             /* every unexpected message, by arrival */
    struct um_match_entry *entries; /* its places in the index; NULL: no search has indexed it */
};

/* A place of an unexpected message in the index. Belongs to the engine. */
struct um_match_entry {
    struct um_match_node node;
    struct um_match_entry *sibling; /* the next entry of the message */
    struct um_match_msg *msg;
};

struct um_match;

/* The first members of struct um_match. Belong to the engine. */
struct um_match_front {
    struct um_list recvs; /* posted, oldest first */
    uint32_t unhashed;    /* how many receives, the last of them, are in no table */
};

/* Does a receive for (tag, ignore, wanted) match a message with (msg_tag, source)? */
static inline bool um_match_takes(uint64_t tag, uint64_t ignore, uint32_t wanted, uint64_t msg_tag, uint32_t source)
{
    return ((tag ^ msg_tag) & ~ignore) == 0 && (wanted == source || wanted == UM_MATCH_ANY);
}

/* NULL: no memory. No other call here can fail. */
struct um_match *um_match_open(void);
/* Nodes that are still queued are not freed. */
void um_match_close(struct um_match *m);

/* Posts a receive, behind all others. The caller has looked for an unexpected message first. */
void um_match_post(struct um_match *m, struct um_match_recv *recv);
/* Removes a posted receive (cancel, close). */
void um_match_unpost(struct um_match *m, struct um_match_recv *recv);
/* Returns the oldest posted receive that matches (tag, source), or NULL. It stays posted. */
struct um_match_recv *um_match_find_recv(struct um_match *m, uint64_t tag, uint32_t source);

/* The same for a message that takes the receive: unposts it unless its `stays` is set. */
struct um_match_recv *um_match_take_any(struct um_match *m, uint64_t tag, uint32_t source);
/* The same; inline if the oldest receive matches and is in no table. */
static inline struct um_match_recv *um_match_take_recv(struct um_match *m, uint64_t tag, uint32_t source)
{
    struct um_match_front *front = (struct um_match_front *)(void *)m;
    struct um_list *first = front->recvs.next;
    /* NOLINTNEXTLINE(clang-analyzer-deadcode.DeadStores): a build that always hashes does not read it */
    struct um_match_recv *recv = UM_CONTAINER(first, struct um_match_recv, all);
    if (__builtin_expect(!UM_MATCH_SHORT || first == &front->recvs || recv->table != UM_MATCH_UNHASHED || recv->stays ||
                             !um_match_takes(recv->tag, recv->ignore, recv->source, tag, source),
                         0))
        return um_match_take_any(m, tag, source);
    front->unhashed--;
    um_list_unlink(first);
    return recv;
}

/* Queues an unexpected message, behind all others. */
void um_match_enqueue(struct um_match *m, struct um_match_msg *msg);
void um_match_dequeue(struct um_match *m, struct um_match_msg *msg);
/* Returns the oldest unexpected message that matches (tag, ignore, source), or NULL. It stays queued. */
struct um_match_msg *um_match_find_msg(struct um_match *m, uint64_t tag, uint64_t ignore, uint32_t source);

/* Return the oldest posted receive or queued message, to empty the engine; NULL: there is none. */
struct um_match_recv *um_match_any_recv(struct um_match *m);
struct um_match_msg *um_match_any_msg(struct um_match *m);
/* Returns the receive that was posted next after recv; NULL: there is none. */
struct um_match_recv *um_match_next_recv(struct um_match *m, struct um_match_recv *recv);

/* Are the invariants kept? For tests and debug builds; O(n). */
bool um_match_is_valid(const struct um_match *m);

#endif
