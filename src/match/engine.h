/*
 * The engine of match.h: what recvs.c, msgs.c and valid.c share.
 *
 * Receives are hashed late. If a message does not match the oldest receive, all receives but the newest UM_MATCH_SHORT
 * are hashed; these newest ones are walked. If more than UM_MATCH_LATE receives are not hashed, the oldest of them is
 * hashed in any case. So a program whose messages come in the order of its receives, or that posts and matches at once,
 * pays for no hash. Most hashed receives stand in the coarse table, whose key is the tag without all bits that any mask
 * in the table ignores. Its rings are walked, and take UM_MATCH_RING receives each. The other receives stand in a table
 * of their class. A class is an ignore mask and has two tables: for receives from one source and for receives from any
 * source. So a message finds the oldest receive by one look-up per non-empty table, and a program whose tags differ
 * outside of the ignored bits has one such table.
 *
 * Messages are indexed when a search passes them, not when they arrive. There are a coarse table and two tables for
 * each class of searches here, too. Each table indexes the oldest messages up to some message. A search that finds
 * nothing in the table walks on from that message, and indexes the messages that it passes. A search looks into the
 * table of its class only after it has walked UM_MATCH_RING messages of the coarse table in vain. So a search costs a
 * look-up or two, and a walk over the messages that no search of its kind has passed before. A message that is received
 * in the order of its arrival is seldom indexed.
 *
 * Invariants (um_match_is_valid):
 *   receives up to `hashed` stand in posted[their table] or in `further`, with rising `order`; the others, `unhashed`
 *     of them, stand in neither
 *   an entry of a message for table t stands in queued[t]; exactly the messages up to indexed[t] have such an entry
 *   nothing else stands in a table; bit t of `live` is set exactly when posted[t] has a key
 *   a class's mask changes only when neither of its tables has a key
 *
 * Private to src/match. Threading: the caller serialises.
 */
#ifndef UM_MATCH_ENGINE_H
#define UM_MATCH_ENGINE_H

#include "match/table.h"

#include "base/pool.h"

#include <assert.h>
#include <stddef.h>

/* Table 2c of posted holds class c's receives from one source, table 2c + 1 those from any source; queued is alike. */
enum {
    UM_MATCH_COARSE = 2 * UM_MATCH_CLASSES,
    UM_MATCH_TABLES, /* in um_match_recv.table: the receive stands in `further`; UM_MATCH_UNHASHED: in no table */
    UM_MATCH_LATE = 16 * UM_MATCH_SHORT,
    UM_MATCH_RING = 4,
    UM_MATCH_MASK_BITS = 16, /* most ignored bits of one mask that the coarse table takes */
    UM_MATCH_ALL_BITS = 40,  /* most ignored bits of all its masks together */
};

/* Ignore masks that have tables 2c and 2c + 1 of their own. */
struct um_match_classes {
    uint32_t count;
    uint64_t ignore[UM_MATCH_CLASSES];
};

struct um_match {
    struct um_list recvs;   /* this member and the next are struct um_match_front */
    uint32_t unhashed;      /* receives behind `hashed` */
    struct um_list *hashed; /* in recvs: the last receive that is hashed, or the head */
    struct um_list msgs;
    uint32_t msg_count;
    uint32_t live;                               /* bit t: posted[t] is not empty */
    struct um_match_classes classes, asked;      /* of receives, of searches */
    uint64_t coarse_ignore, asked_coarse_ignore; /* of the coarse tables */
    uint64_t orders;                             /* the next order */
    struct um_list further;                      /* hashed receives whose mask has no class */
    struct um_match_table posted[UM_MATCH_TABLES];
    struct um_match_table queued[UM_MATCH_TABLES];
    struct um_list *indexed[UM_MATCH_TABLES]; /* in msgs: the last message that stands in queued[t], or the head */
    struct um_pool entries;
};

static_assert(offsetof(struct um_match, recvs) == offsetof(struct um_match_front, recvs) &&
                  offsetof(struct um_match, unhashed) == offsetof(struct um_match_front, unhashed),
              "match.h looks at them");

static inline struct um_match_recv *recv_of(struct um_match_node *node)
{
    return UM_CONTAINER(node, struct um_match_recv, node);
}

static inline struct um_match_recv *recv_of_all(struct um_list *link)
{
    return UM_CONTAINER(link, struct um_match_recv, all);
}

static inline struct um_match_recv *recv_of_further(struct um_list *link)
{
    return UM_CONTAINER(link, struct um_match_recv, further);
}

static inline struct um_match_msg *msg_of_all(struct um_list *link)
{
    return UM_CONTAINER(link, struct um_match_msg, all);
}

static inline struct um_match_entry *entry_of(struct um_match_node *node)
{
    return UM_CONTAINER(node, struct um_match_entry, node);
}

/* Returns the mask's class, or UM_MATCH_CLASSES: it has none. */
static inline uint32_t class_find(const struct um_match_classes *classes, uint64_t ignore)
{
    uint32_t c = 0;
    while (c < classes->count && classes->ignore[c] != ignore)
        c++;
    return c < classes->count ? c : UM_MATCH_CLASSES;
}

/* The same, but a mask without a class gets the first class whose tables are empty. UM_MATCH_CLASSES: there is none. */
static inline uint32_t class_take(struct um_match_classes *classes, const struct um_match_table *tables,
                                  uint64_t ignore)
{
    uint32_t c = class_find(classes, ignore);
    if (__builtin_expect(c < UM_MATCH_CLASSES, 1))
        return c;
    if (classes->count < UM_MATCH_CLASSES)
        c = classes->count++;
    else
        for (c = 0; c < UM_MATCH_CLASSES && (tables[(size_t)2 * c].keys || tables[(size_t)2 * c + 1].keys);)
            c++;
    if (c < UM_MATCH_CLASSES)
        classes->ignore[c] = ignore;
    return c;
}

/* May the mask join the masks of a coarse table? all: the bits that these ignore. */
static inline bool may_join(uint64_t all, uint64_t ignore)
{
    return __builtin_popcountll(ignore) <= UM_MATCH_MASK_BITS &&
           __builtin_popcountll(ignore | all) <= UM_MATCH_ALL_BITS;
}

#endif
