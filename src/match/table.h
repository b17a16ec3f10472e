/*
 * The hash table behind the engine: from (masked tag, source) to the nodes of that key, oldest first.
 *
 * Owns: the bucket array. Each bucket chains keys, not nodes: however many nodes share a key, they cost one link of a
 * chain. A table has no more keys than buckets, unless there was no memory to grow; then it is slower.
 * Private to src/match. Must not know receives or messages. Threading: the caller serialises.
 */
#ifndef UM_MATCH_TABLE_H
#define UM_MATCH_TABLE_H

#include "match/match.h"

#include <stdlib.h>

enum { UM_TABLE_FIRST_BITS = 4 };

struct um_match_table {
    struct um_match_node **buckets;
    uint32_t shift; /* a hash's bucket is hash >> shift; there are 2^(64 - shift) buckets */
    uint32_t keys;
    struct um_match_node *first[1 << UM_TABLE_FIRST_BITS]; /* buckets of a small table: it needs no memory */
};

/* Nodes visited by searches. Only the tests of O(1) count them. */
#ifdef UM_MATCH_COUNT_VISITS
static uint64_t um_match_visits;
static inline void um_match_visit(void)
{
    um_match_visits++;
}
#else
static inline void um_match_visit(void)
{
}
#endif

static inline void um_match_table_init(struct um_match_table *t)
{
    *t = (struct um_match_table){.buckets = t->first, .shift = 64 - UM_TABLE_FIRST_BITS};
}

static inline void um_match_table_fini(struct um_match_table *t)
{
    if (t->buckets != t->first)
        free(t->buckets);
}

static inline uint64_t um_match_table_bucket_count(const struct um_match_table *t)
{
    return (uint64_t)1 << (64 - t->shift);
}

/* Tags are structured (context, rank, counter in bit fields), so every bit of both must reach the top bits. */
static inline struct um_match_node **um_match_table_bucket(const struct um_match_table *t, uint64_t tag,
                                                           uint32_t source)
{
    uint64_t h = tag + source * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return &t->buckets[h >> t->shift];
}

/* Returns the oldest node of the key, or NULL. */
static inline struct um_match_node *um_match_table_find(const struct um_match_table *t, uint64_t tag, uint32_t source)
{
    struct um_match_node *node = *um_match_table_bucket(t, tag, source);
    for (; node; node = node->chain) {
        um_match_visit();
        if (node->tag == tag && node->source == source)
            break;
    }
    return node;
}

/* Inserts node at *place, before the rest of that chain. */
static inline void um_match_table_chain(struct um_match_node *node, struct um_match_node **place,
                                        struct um_match_node *rest)
{
    node->place = place;
    node->chain = rest;
    *place = node;
    if (rest)
        rest->place = &node->chain;
}

static inline void um_match_table_rehash(struct um_match_table *t, const struct um_match_table *old)
{
    for (uint64_t i = 0; i < um_match_table_bucket_count(old); i++) {
        struct um_match_node *next;
        for (struct um_match_node *node = old->buckets[i]; node; node = next) {
            next = node->chain;
            struct um_match_node **place = um_match_table_bucket(t, node->tag, node->source);
            um_match_table_chain(node, place, *place);
        }
    }
}

/* Doubles the buckets; without memory the table stays as it is. */
static __attribute__((noinline, cold)) void um_match_table_grow(struct um_match_table *t)
{
    struct um_match_table old = *t;
    struct um_match_node **buckets = calloc(um_match_table_bucket_count(&old) * 2, sizeof(struct um_match_node *));
    if (!buckets)
        return;
    if (old.buckets == t->first)
        old.buckets = old.first;
    t->buckets = buckets;
    t->shift--;
    um_match_table_rehash(t, &old);
    um_match_table_fini(&old);
}

/* Adds node, whose tag and source are set, as the youngest of its key. oldest: the oldest node of that key, or NULL. */
static inline void um_match_table_add(struct um_match_table *t, struct um_match_node *node,
                                      struct um_match_node *oldest)
{
    if (oldest) {
        node->place = NULL;
        node->next = oldest;
        node->prev = oldest->prev;
        oldest->prev->next = node;
        oldest->prev = node;
        return;
    }
    struct um_match_node **place = um_match_table_bucket(t, node->tag, node->source);
    node->next = node;
    node->prev = node;
    um_match_table_chain(node, place, *place);
    if (++t->keys > um_match_table_bucket_count(t))
        um_match_table_grow(t);
}

static inline void um_match_table_insert(struct um_match_table *t, struct um_match_node *node)
{
    um_match_table_add(t, node, um_match_table_find(t, node->tag, node->source));
}

static inline void um_match_table_remove(struct um_match_table *t, struct um_match_node *node)
{
    if (node->next == node) {
        t->keys--;
        *node->place = node->chain;
        if (node->chain)
            node->chain->place = node->place;
        return;
    }
    if (node->place)
        um_match_table_chain(node->next, node->place, node->chain);
    node->prev->next = node->next; /* NOLINT(clang-analyzer-core.NullDereference): a ring has no NULL */
    node->next->prev = node->prev;
}

/* ---- for um_match_is_valid ---- */

/* Is the ring closed, of one key, and its oldest node the only one in a chain? Returns its length; 0: it is broken. */
static inline uint32_t um_match_table_ring_length(const struct um_match_node *oldest)
{
    uint32_t n = 0;
    const struct um_match_node *node = oldest;
    do {
        bool same = node->tag == oldest->tag && node->source == oldest->source;
        if (!same || node->next->prev != node || (node->place != NULL) != (node == oldest))
            return 0;
        n++;
        node = node->next;
    } while (node != oldest);
    return n;
}

/* Counts the nodes of the table; false when a chain, a ring or the number of keys is wrong. */
static inline bool um_match_table_is_valid(const struct um_match_table *t, uint32_t *nodes_p)
{
    uint32_t keys = 0, nodes = 0;
    for (uint64_t i = 0; i < um_match_table_bucket_count(t); i++) {
        struct um_match_node **place = &t->buckets[i];
        for (struct um_match_node *node = *place; node; place = &node->chain, node = node->chain) {
            uint32_t length = um_match_table_ring_length(node);
            bool here = um_match_table_bucket(t, node->tag, node->source) == &t->buckets[i];
            if (!length || node->place != place || !here || um_match_table_find(t, node->tag, node->source) != node)
                return false;
            keys++;
            nodes += length;
        }
    }
    *nodes_p = nodes;
    return keys == t->keys;
}

/* Does node stand in the table under this key? Together with the count of nodes this shows that it is in this ring. */
static inline bool um_match_table_holds(const struct um_match_table *t, const struct um_match_node *node, uint64_t tag,
                                        uint32_t source)
{
    const struct um_match_node *oldest = um_match_table_find(t, tag, source);
    return oldest && node->tag == tag && node->source == source && node->next->prev == node &&
           (node == oldest) == (node->place != NULL);
}

#endif
