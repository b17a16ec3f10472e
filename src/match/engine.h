/*
 * The engine of match.h: what recvs.c, msgs.c and valid.c share.
 *
 * Receives are hashed late: when a message comes that the oldest one does not take, all but the last UM_MATCH_SHORT,
 * which are walked, and when more than UM_MATCH_LATE wait for it. So a program whose messages come in the order of its
 * receives, or that posts and matches at once, pays for no hash. A class is an ignore mask; it has two tables, of the
 * receives with a source and of those for any. A receive stands in one; so a message finds the oldest receive by one
 * look-up per non-empty table.
 *
 * Messages are indexed by the searches, not by their arrival. A class of searches is an ignore mask, too, with two
 * tables, for searches with a source and for any. Each table indexes the oldest messages up to some message: a search
 * that finds nothing there goes on from that one, and indexes what it passes. So a search costs one look-up and what no
 * search of its kind has passed before; what is received in the order of its arrival is seldom indexed.
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

/* The tests also build with 0: always hashed. */
#ifndef UM_MATCH_SHORT
#define UM_MATCH_SHORT 8
#endif

enum {
    UM_MATCH_TABLES = 2 * UM_MATCH_CLASSES,
    UM_MATCH_UNHASHED, /* a receive's table, when it stands in none */
    UM_MATCH_LATE = 16 * UM_MATCH_SHORT,
};

/* Table 2c of posted holds class c's receives by source, table 2c + 1 those for any; so do those of queued. */
struct um_match {
    struct um_list recvs;
    struct um_list *hashed; /* of recvs: the last one that is hashed, or the head */
    uint32_t unhashed;      /* those behind it */
    struct um_list msgs;
    uint32_t msg_count;
    uint32_t live;    /* bit t: posted[t] is not empty */
    uint32_t classes; /* of receives */
    uint32_t asked;   /* classes of searches */
    uint64_t ignore[UM_MATCH_CLASSES];
    uint64_t asked_ignore[UM_MATCH_CLASSES];
    uint64_t orders;        /* the next order */
    struct um_list further; /* hashed receives whose mask has no class */
    struct um_match_table posted[UM_MATCH_TABLES];
    struct um_match_table queued[UM_MATCH_TABLES];
    struct um_list *indexed[UM_MATCH_TABLES]; /* of msgs: the last message that stands in queued[t], or the head */
    struct um_pool entries;
};

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

/* Does a receive for (tag, ignore, wanted) match a message with (msg_tag, source)? */
static inline bool takes(uint64_t tag, uint64_t ignore, uint32_t wanted, uint64_t msg_tag, uint32_t source)
{
    return ((tag ^ msg_tag) & ~ignore) == 0 && (wanted == source || wanted == UM_MATCH_ANY);
}

#endif
