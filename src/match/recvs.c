/* The engine itself, and its posted receives. See engine.h. */
#include "match/engine.h"

struct um_match *um_match_open(void)
{
    struct um_match *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    um_list_init(&m->recvs);
    um_list_init(&m->further);
    um_list_init(&m->msgs);
    m->hashed = &m->recvs;
    um_pool_init(&m->entries, sizeof(struct um_match_entry));
    for (int t = 0; t < UM_MATCH_TABLES; t++) {
        um_match_table_init(&m->posted[t]);
        um_match_table_init(&m->queued[t]);
        m->indexed[t] = &m->msgs;
    }
    return m;
}

void um_match_close(struct um_match *m)
{
    for (int t = 0; t < UM_MATCH_TABLES; t++) {
        um_match_table_fini(&m->posted[t]);
        um_match_table_fini(&m->queued[t]);
    }
    um_pool_fini(&m->entries);
    free(m);
}

/* Does the ring have UM_MATCH_RING nodes or more? The coarse table takes no further ones. */
static inline bool is_full(const struct um_match_node *oldest)
{
    const struct um_match_node *node = oldest;
    for (int n = 1; n < UM_MATCH_RING; n++, node = node->next)
        if (!oldest || node->next == oldest)
            return false;
    return true;
}

static void insert(struct um_match *m, struct um_match_recv *recv, uint32_t t, struct um_match_node *oldest)
{
    recv->table = (uint16_t)t;
    um_match_table_add(&m->posted[t], &recv->node, oldest);
    m->live |= 1u << t;
}

static void hash_recv(struct um_match *m, struct um_match_recv *recv)
{
    struct um_match_node *oldest;
    recv->order = m->orders++;
    recv->node.source = UM_MATCH_ANY;
    if ((recv->ignore & ~m->coarse_ignore) == 0) {
        recv->node.tag = recv->tag & ~m->coarse_ignore;
        oldest = um_match_table_find(&m->posted[UM_MATCH_COARSE], recv->node.tag, UM_MATCH_ANY);
        if (!is_full(oldest)) {
            insert(m, recv, UM_MATCH_COARSE, oldest);
            return;
        }
    }
    const uint32_t c = class_take(&m->classes, m->posted, recv->ignore), t = 2 * c + (recv->source == UM_MATCH_ANY);
    if (c == UM_MATCH_CLASSES) {
        recv->table = UM_MATCH_TABLES;
        um_list_append(&m->further, &recv->further);
        return;
    }
    recv->node.tag = recv->tag & ~recv->ignore;
    recv->node.source = recv->source;
    insert(m, recv, t, um_match_table_find(&m->posted[t], recv->node.tag, recv->source));
}

static void take_out(struct um_match *m, struct um_match_recv *recv)
{
    const uint32_t t = recv->table;
    if (t == UM_MATCH_TABLES) {
        um_list_unlink(&recv->further);
        return;
    }
    um_match_table_remove(&m->posted[t], &recv->node);
    if (!m->posted[t].keys)
        m->live &= ~(1u << t);
}

/* Adds the mask of a receive that will be hashed to those of the coarse table. True: it was new, so the table's key has
 * changed. False: the table has it already, or cannot take it. */
static inline bool joins(struct um_match *m, uint64_t ignore)
{
    if (__builtin_expect((ignore & ~m->coarse_ignore) == 0, 1) || class_find(&m->classes, ignore) < UM_MATCH_CLASSES ||
        !may_join(m->coarse_ignore, ignore))
        return false;
    m->coarse_ignore |= ignore;
    return true;
}

/* Hashes the hashed receives again: the key of the coarse table has changed. */
static __attribute__((noinline, cold)) void rehash(struct um_match *m)
{
    struct um_list *end = m->hashed->next;
    for (struct um_list *l = m->recvs.next; l != end; l = l->next)
        take_out(m, recv_of_all(l));
    for (struct um_list *l = m->recvs.next; l != end; l = l->next)
        hash_recv(m, recv_of_all(l));
}

/* Hashes the oldest receive that is not hashed. */
static __attribute__((noinline)) void hash_next(struct um_match *m)
{
    struct um_list *next = m->hashed->next;
    if (m->hashed == &m->recvs)
        m->coarse_ignore = 0;
    if (joins(m, recv_of_all(next)->ignore))
        rehash(m);
    m->hashed = next;
    m->unhashed--;
    hash_recv(m, recv_of_all(next));
}

void um_match_post(struct um_match *m, struct um_match_recv *recv)
{
    um_list_append(&m->recvs, &recv->all);
    recv->table = UM_MATCH_UNHASHED;
    if (++m->unhashed > UM_MATCH_LATE)
        hash_next(m);
}

static __attribute__((noinline)) void unhash(struct um_match *m, struct um_match_recv *recv)
{
    if (m->hashed == &recv->all)
        m->hashed = recv->all.prev;
    take_out(m, recv);
}

void um_match_unpost(struct um_match *m, struct um_match_recv *recv)
{
    if (recv->table == UM_MATCH_UNHASHED)
        m->unhashed--;
    else
        unhash(m, recv);
    um_list_unlink(&recv->all);
}

/* Returns the oldest receive without a class that matches the message, or `found` if that is older or there is none. */
static struct um_match_recv *find_further(struct um_match *m, uint64_t tag, uint32_t source,
                                          struct um_match_recv *found)
{
    for (struct um_list *l = m->further.next; l != &m->further; l = l->next) {
        struct um_match_recv *recv = recv_of_further(l);
        um_match_visit();
        if (found && found->order < recv->order)
            break;
        if (um_match_takes(recv->tag, recv->ignore, recv->source, tag, source))
            return recv;
    }
    return found;
}

/* Returns the oldest receive of the coarse table that matches the message, or NULL. */
static inline struct um_match_recv *find_coarse(const struct um_match *m, uint64_t tag, uint32_t source)
{
    struct um_match_node *oldest =
        um_match_table_find(&m->posted[UM_MATCH_COARSE], tag & ~m->coarse_ignore, UM_MATCH_ANY);
    for (struct um_match_node *node = oldest; node; node = node->next == oldest ? NULL : node->next) {
        struct um_match_recv *recv = recv_of(node);
        if (um_match_takes(recv->tag, recv->ignore, recv->source, tag, source))
            return recv;
        um_match_visit();
    }
    return NULL;
}

static struct um_match_recv *find_hashed(struct um_match *m, uint64_t tag, uint32_t source)
{
    struct um_match_recv *found = find_coarse(m, tag, source);
    for (uint32_t live = m->live & ~(1u << UM_MATCH_COARSE); live; live &= live - 1) {
        uint32_t t = (uint32_t)__builtin_ctz(live);
        uint32_t key_source = t & 1 ? UM_MATCH_ANY : source;
        struct um_match_node *node = um_match_table_find(&m->posted[t], tag & ~m->classes.ignore[t / 2], key_source);
        if (node && (!found || recv_of(node)->order < found->order))
            found = recv_of(node);
    }
    return __builtin_expect(um_list_is_empty(&m->further), 1) ? found : find_further(m, tag, source, found);
}

/* Finds a receive when the oldest does not match. Hashed receives are older than the others: they come first. */
static __attribute__((noinline)) struct um_match_recv *find_behind(struct um_match *m, uint64_t tag, uint32_t source)
{
    while (m->unhashed > UM_MATCH_SHORT)
        hash_next(m);
    struct um_match_recv *found = m->hashed == &m->recvs ? NULL : find_hashed(m, tag, source);
    for (struct um_list *l = m->hashed->next; !found && l != &m->recvs; l = l->next) {
        struct um_match_recv *recv = recv_of_all(l);
        um_match_visit();
        if (um_match_takes(recv->tag, recv->ignore, recv->source, tag, source))
            found = recv;
    }
    return found;
}

struct um_match_recv *um_match_find_recv(struct um_match *m, uint64_t tag, uint32_t source)
{
    struct um_list *first = m->recvs.next;
    if (first == &m->recvs)
        return NULL;
    struct um_match_recv *recv = recv_of_all(first);
    um_match_visit();
    if (UM_MATCH_SHORT && um_match_takes(recv->tag, recv->ignore, recv->source, tag, source))
        return recv;
    return find_behind(m, tag, source);
}

struct um_match_recv *um_match_take_any(struct um_match *m, uint64_t tag, uint32_t source)
{
    struct um_match_recv *recv = um_match_find_recv(m, tag, source);
    if (recv && !recv->stays)
        um_match_unpost(m, recv);
    return recv;
}

struct um_match_recv *um_match_any_recv(struct um_match *m)
{
    struct um_list *first = um_list_first(&m->recvs);
    return first ? recv_of_all(first) : NULL;
}

struct um_match_recv *um_match_next_recv(struct um_match *m, struct um_match_recv *recv)
{
    return recv->all.next == &m->recvs ? NULL : recv_of_all(recv->all.next);
}
