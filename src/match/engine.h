/*
 * The engine of match.h: what recvs.c, msgs.c and valid.c share.
 *
 * Receives are hashed late. If a message does not match the oldest receive, all but the newest UM_MATCH_SHORT are
 * hashed; those are walked. If more than UM_MATCH_LATE are not hashed, the oldest are hashed in any case. So a program
 * whose messages come in the order of its receives, or that posts and matches at once, pays for no hash. Most receives
 * stand in the coarse table, whose key is the tag without the bits that any of its masks ignores: its rings are walked,
 * and take UM_MATCH_RING receives each. All others stand in the table of their class, an ignore mask, which has two:
 * for receives with a source and for those for any. So a message finds the oldest receive by one look-up per non-empty
 * table, and programs whose tags differ outside of the ignored bits have one.
 *
 * Messages are indexed by the searches, not by their arrival. There is a coarse table, too, and two for each class of
 * searches. Each table indexes the oldest messages up to some message: a search that finds nothing there goes on from
 * that one, and indexes what it passes. It looks into the table of its class only if it has walked UM_MATCH_RING
 * messages of the coarse one in vain. So a search costs a look-up or two and what no search of its kind has passed
 * before; what is received in the order of its arrival is seldom indexed.
 *
 * Invariants (um_match_is_valid):
 *   receives up to `hashed` stand in posted[their table] or in `further`, and rise in order; the others, `unhashed` of
 *     them, in neither
 *   an entry of a message for table t stands in queued[t]; the messages that have one are those up to indexed[t]
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

/* Table 2c of posted holds class c's receives by source, table 2c + 1 those for any; so do those of queued. */
enum {
    UM_MATCH_COARSE = 2 * UM_MATCH_CLASSES,
    UM_MATCH_TABLES, /* as a receive's table: it stands in `further`; UM_MATCH_UNHASHED: in none */
    UM_MATCH_LATE = 16 * UM_MATCH_SHORT,
    UM_MATCH_RING = 4,
    UM_MATCH_MASK_BITS = 16, /* ignored bits of a mask that the coarse table takes */
    UM_MATCH_ALL_BITS = 40,  /* of all of them together */
};

/* Ignore masks that have tables 2c and 2c + 1 of their own. */
struct um_match_classes {
    uint32_t count;
    uint64_t ignore[UM_MATCH_CLASSES];
};

struct um_match {
    struct um_list recvs;   /* with the next one, as struct um_match_front */
    uint32_t unhashed;      /* those behind `hashed` */
    struct um_list *hashed; /* of recvs: the last one that is hashed, or the head */
    struct um_list msgs;
    uint32_t msg_count;
    uint32_t live;                               /* bit t: posted[t] is not empty */
    struct um_match_classes classes, asked;      /* of receives, of searches */
    uint64_t coarse_ignore, asked_coarse_ignore; /* of the coarse tables */
    uint64_t orders;                             /* the next order */
    struct um_list further;                      /* hashed receives whose mask has no class */
    struct um_match_table posted[UM_MATCH_TABLES];
    struct um_match_table queued[UM_MATCH_TABLES];
    struct um_list *indexed[UM_MATCH_TABLES]; /* of msgs: the last message that stands in queued[t], or the head */
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

/* The mask's class, or UM_MATCH_CLASSES: it has none. */
static inline uint32_t class_find(const struct um_match_classes *classes, uint64_t ignore)
{
    uint32_t c = 0;
    while (c < classes->count && classes->ignore[c] != ignore)
        c++;
    return c < classes->count ? c : UM_MATCH_CLASSES;
}

/* The same; a mask that has none gets the first whose tables are empty. UM_MATCH_CLASSES: there is no such place. */
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

/* May the mask join those of a coarse table? */
static inline bool may_join(uint64_t all, uint64_t ignore)
{
    return __builtin_popcountll(ignore) <= UM_MATCH_MASK_BITS &&
           __builtin_popcountll(ignore | all) <= UM_MATCH_ALL_BITS;
}

#endif
