/*
 * The engine of match.h.
 *
 * While a queue is short (UM_MATCH_SHORT) it is just a list, which is walked. When it becomes longer it is hashed, all
 * of it, until it is empty again; so a program that posts and matches at once pays for no hash. The calls that made the
 * queue long pay for the change.
 *
 * A class is an ignore mask. It has four tables: posted receives with a source, posted receives for any source, and the
 * queued messages under the same two keys. A receive stands in one table; a message in two tables of every class, so
 * that one look-up finds the oldest message for a receive and one look-up per non-empty table the oldest receive for a
 * message.
 *
 * Invariants (um_match_is_valid):
 *   a limit is UM_MATCH_SHORT and the queue not longer, or the limit is 0 and the queue is hashed
 *   hashed: every receive of `recvs` stands in posted[its table] or in `further`; both lists rise in order
 *   hashed: every message of `msgs` stands in queued[c][BY_SOURCE] and queued[c][BY_ANY] for every class c < classes
 *   nothing else stands in a table; bit t of `live` is set exactly when posted[t] has a key
 *   a class's mask changes only when none of its tables has a key
 */
#include "match/match.h"

#include "match/table.h"

/* The tests also build with 0: always hashed. */
#ifndef UM_MATCH_SHORT
#define UM_MATCH_SHORT 8
#endif

enum { UM_MATCH_TABLES = 2 * UM_MATCH_CLASSES };

enum { BY_SOURCE, BY_ANY };

/* Table 2c of posted holds class c's receives by source, table 2c + 1 those for any. */
struct um_match {
    struct um_list recvs;
    uint32_t recv_count;
    uint32_t recv_limit; /* hashed when longer; 0 while it is hashed */
    struct um_list msgs;
    uint32_t msg_count;
    uint32_t msg_limit;
    uint32_t live; /* bit t: posted[t] is not empty */
    uint32_t classes;
    uint64_t ignore[UM_MATCH_CLASSES];
    uint64_t orders;        /* the next order */
    struct um_list further; /* hashed receives whose mask has no class */
    struct um_match_table posted[UM_MATCH_TABLES];
    struct um_match_table queued[UM_MATCH_CLASSES][2];
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

/* Does a receive for (tag, ignore, wanted) match a message with (msg_tag, source)? */
static inline bool takes(uint64_t tag, uint64_t ignore, uint32_t wanted, uint64_t msg_tag, uint32_t source)
{
    return ((tag ^ msg_tag) & ~ignore) == 0 && (wanted == source || wanted == UM_MATCH_ANY);
}

struct um_match *um_match_open(void)
{
    struct um_match *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    um_list_init(&m->recvs);
    um_list_init(&m->further);
    um_list_init(&m->msgs);
    m->recv_limit = UM_MATCH_SHORT;
    m->msg_limit = UM_MATCH_SHORT;
    for (int t = 0; t < UM_MATCH_TABLES; t++) {
        um_match_table_init(&m->posted[t]);
        um_match_table_init(&m->queued[t / 2][t % 2]);
    }
    return m;
}

void um_match_close(struct um_match *m)
{
    for (int t = 0; t < UM_MATCH_TABLES; t++) {
        um_match_table_fini(&m->posted[t]);
        um_match_table_fini(&m->queued[t / 2][t % 2]);
    }
    free(m);
}

/* Adds the message to the index of class c. */
static inline void index_msg(struct um_match *m, uint32_t c, struct um_match_msg *msg)
{
    uint64_t tag = msg->tag & ~m->ignore[c];
    msg->in[c].by_source.tag = tag;
    msg->in[c].by_source.source = msg->source;
    um_match_table_insert(&m->queued[c][BY_SOURCE], &msg->in[c].by_source);
    msg->in[c].by_any.tag = tag;
    msg->in[c].by_any.source = UM_MATCH_ANY;
    um_match_table_insert(&m->queued[c][BY_ANY], &msg->in[c].by_any);
}

/* A new class for the mask, over the messages that are hashed already; UM_MATCH_CLASSES when there is no place. */
static __attribute__((noinline, cold)) uint32_t make_class(struct um_match *m, uint64_t ignore)
{
    bool hashed_msgs = !m->msg_limit && m->msg_count;
    uint32_t c = m->classes;
    if (c < UM_MATCH_CLASSES)
        m->classes++;
    else if (!hashed_msgs)
        for (c = 0; c < UM_MATCH_CLASSES && (m->live >> 2 * c & 3); c++)
            ;
    if (c == UM_MATCH_CLASSES)
        return c;
    m->ignore[c] = ignore;
    if (hashed_msgs)
        for (struct um_list *l = m->msgs.next; l != &m->msgs; l = l->next)
            index_msg(m, c, msg_of_all(l));
    return c;
}

static inline uint32_t class_of(struct um_match *m, uint64_t ignore)
{
    for (uint32_t c = 0; c < m->classes; c++)
        if (m->ignore[c] == ignore)
            return c;
    return make_class(m, ignore);
}

/* ---- posted receives ---- */

static void hash_recv(struct um_match *m, struct um_match_recv *recv)
{
    uint32_t c = class_of(m, recv->ignore);
    recv->order = m->orders++;
    if (c == UM_MATCH_CLASSES) {
        recv->table = UM_MATCH_TABLES;
        um_list_append(&m->further, &recv->further);
        return;
    }
    uint32_t t = 2 * c + (recv->source == UM_MATCH_ANY);
    recv->table = t;
    recv->node.tag = recv->tag & ~recv->ignore;
    recv->node.source = recv->source;
    um_match_table_insert(&m->posted[t], &recv->node);
    m->live |= 1u << t;
}

/* This receive makes the queue longer than its limit. */
static __attribute__((noinline)) void post_hashed(struct um_match *m, struct um_match_recv *recv)
{
    if (!m->recv_limit) {
        hash_recv(m, recv);
        return;
    }
    m->recv_limit = 0;
    for (struct um_list *l = m->recvs.next; l != &m->recvs; l = l->next)
        hash_recv(m, recv_of_all(l));
}

void um_match_post(struct um_match *m, struct um_match_recv *recv)
{
    um_list_append(&m->recvs, &recv->all);
    if (++m->recv_count > m->recv_limit)
        post_hashed(m, recv);
}

static __attribute__((noinline)) void unpost_hashed(struct um_match *m, struct um_match_recv *recv)
{
    uint32_t t = recv->table;
    if (!m->recv_count)
        m->recv_limit = UM_MATCH_SHORT;
    if (t == UM_MATCH_TABLES) {
        um_list_unlink(&recv->further);
        return;
    }
    um_match_table_remove(&m->posted[t], &recv->node);
    if (!m->posted[t].keys)
        m->live &= ~(1u << t);
}

void um_match_unpost(struct um_match *m, struct um_match_recv *recv)
{
    um_list_unlink(&recv->all);
    m->recv_count--;
    if (!m->recv_limit)
        unpost_hashed(m, recv);
}

/* The oldest receive without a class that matches the message; `found` if that is older. */
static struct um_match_recv *find_further(struct um_match *m, uint64_t tag, uint32_t source,
                                          struct um_match_recv *found)
{
    for (struct um_list *l = m->further.next; l != &m->further; l = l->next) {
        struct um_match_recv *recv = recv_of_further(l);
        um_match_visit();
        if (found && found->order < recv->order)
            break;
        if (takes(recv->tag, recv->ignore, recv->source, tag, source))
            return recv;
    }
    return found;
}

static __attribute__((noinline)) struct um_match_recv *find_recv_hashed(struct um_match *m, uint64_t tag,
                                                                        uint32_t source)
{
    struct um_match_recv *found = NULL;
    for (uint32_t live = m->live; live; live &= live - 1) {
        uint32_t t = (uint32_t)__builtin_ctz(live);
        uint32_t key_source = t & 1 ? UM_MATCH_ANY : source;
        struct um_match_node *node = um_match_table_find(&m->posted[t], tag & ~m->ignore[t / 2], key_source);
        if (node && (!found || recv_of(node)->order < found->order))
            found = recv_of(node);
    }
    return find_further(m, tag, source, found);
}

struct um_match_recv *um_match_find_recv(struct um_match *m, uint64_t tag, uint32_t source)
{
    if (!m->recv_limit)
        return find_recv_hashed(m, tag, source);
    for (struct um_list *l = m->recvs.next; l != &m->recvs; l = l->next) {
        struct um_match_recv *recv = recv_of_all(l);
        um_match_visit();
        if (takes(recv->tag, recv->ignore, recv->source, tag, source))
            return recv;
    }
    return NULL;
}

/* ---- unexpected messages ---- */

static inline void hash_msg(struct um_match *m, struct um_match_msg *msg)
{
    for (uint32_t c = 0; c < m->classes; c++)
        index_msg(m, c, msg);
}

/* This message makes the queue longer than its limit. */
static __attribute__((noinline)) void enqueue_hashed(struct um_match *m, struct um_match_msg *msg)
{
    if (!m->msg_limit) {
        hash_msg(m, msg);
        return;
    }
    m->msg_limit = 0;
    for (struct um_list *l = m->msgs.next; l != &m->msgs; l = l->next)
        hash_msg(m, msg_of_all(l));
}

void um_match_enqueue(struct um_match *m, struct um_match_msg *msg)
{
    um_list_append(&m->msgs, &msg->all);
    if (++m->msg_count > m->msg_limit)
        enqueue_hashed(m, msg);
}

static __attribute__((noinline)) void dequeue_hashed(struct um_match *m, struct um_match_msg *msg)
{
    if (!m->msg_count)
        m->msg_limit = UM_MATCH_SHORT;
    for (uint32_t c = 0; c < m->classes; c++) {
        um_match_table_remove(&m->queued[c][BY_SOURCE], &msg->in[c].by_source);
        um_match_table_remove(&m->queued[c][BY_ANY], &msg->in[c].by_any);
    }
}

void um_match_dequeue(struct um_match *m, struct um_match_msg *msg)
{
    um_list_unlink(&msg->all);
    m->msg_count--;
    if (!m->msg_limit)
        dequeue_hashed(m, msg);
}

static __attribute__((noinline)) struct um_match_msg *find_msg_hashed(struct um_match *m, uint32_t c, uint64_t tag,
                                                                      uint32_t source)
{
    if (source == UM_MATCH_ANY) {
        struct um_match_node *node = um_match_table_find(&m->queued[c][BY_ANY], tag, source);
        return node ? (void *)((char *)node - offsetof(struct um_match_msg, in[c].by_any)) : NULL;
    }
    struct um_match_node *node = um_match_table_find(&m->queued[c][BY_SOURCE], tag, source);
    return node ? (void *)((char *)node - offsetof(struct um_match_msg, in[c].by_source)) : NULL;
}

struct um_match_msg *um_match_find_msg(struct um_match *m, uint64_t tag, uint64_t ignore, uint32_t source)
{
    if (!m->msg_limit && m->msg_count) {
        uint32_t c = class_of(m, ignore);
        if (c < UM_MATCH_CLASSES)
            return find_msg_hashed(m, c, tag & ~ignore, source);
    }
    for (struct um_list *l = m->msgs.next; l != &m->msgs; l = l->next) {
        struct um_match_msg *msg = msg_of_all(l);
        um_match_visit();
        if (takes(tag, ignore, source, msg->tag, msg->source))
            return msg;
    }
    return NULL;
}

struct um_match_recv *um_match_any_recv(struct um_match *m)
{
    struct um_list *first = um_list_first(&m->recvs);
    return first ? recv_of_all(first) : NULL;
}

struct um_match_msg *um_match_any_msg(struct um_match *m)
{
    struct um_list *first = um_list_first(&m->msgs);
    return first ? msg_of_all(first) : NULL;
}

static bool recv_is_valid(const struct um_match *m, const struct um_match_recv *recv)
{
    uint32_t c = recv->table / 2;
    if (recv->table == UM_MATCH_TABLES)
        return true;
    return c < m->classes && m->ignore[c] == recv->ignore && (recv->table & 1) == (recv->source == UM_MATCH_ANY) &&
           um_match_table_holds(&m->posted[recv->table], &recv->node, recv->tag & ~recv->ignore, recv->source);
}

static bool recvs_are_valid(const struct um_match *m)
{
    uint32_t counted[UM_MATCH_TABLES + 1] = {0}, count = 0;
    uint64_t above = 0; /* the next order must be at least this */
    const struct um_list *further = m->further.next;
    for (struct um_list *l = m->recvs.next; l != &m->recvs; l = l->next, count++) {
        const struct um_match_recv *recv = recv_of_all(l);
        if (m->recv_limit)
            continue;
        if (recv->order < above || recv->order >= m->orders || recv->table > UM_MATCH_TABLES || !recv_is_valid(m, recv))
            return false;
        above = recv->order + 1;
        counted[recv->table]++;
        if (recv->table == UM_MATCH_TABLES && further != &recv->further)
            return false;
        if (recv->table == UM_MATCH_TABLES)
            further = further->next;
    }
    for (uint32_t t = 0; t < UM_MATCH_TABLES; t++) {
        uint32_t nodes;
        if (!um_match_table_is_valid(&m->posted[t], &nodes) || nodes != counted[t] ||
            (m->live >> t & 1) != (nodes != 0))
            return false;
    }
    return further == &m->further && count == m->recv_count && (!m->recv_limit || count <= m->recv_limit);
}

static bool msgs_are_valid(const struct um_match *m)
{
    uint32_t count = 0;
    for (struct um_list *l = m->msgs.next; l != &m->msgs; l = l->next, count++) {
        const struct um_match_msg *msg = msg_of_all(l);
        for (uint32_t c = 0; !m->msg_limit && c < m->classes; c++) {
            uint64_t tag = msg->tag & ~m->ignore[c];
            if (!um_match_table_holds(&m->queued[c][BY_SOURCE], &msg->in[c].by_source, tag, msg->source) ||
                !um_match_table_holds(&m->queued[c][BY_ANY], &msg->in[c].by_any, tag, UM_MATCH_ANY))
                return false;
        }
    }
    for (uint32_t t = 0; t < UM_MATCH_TABLES; t++) {
        uint32_t nodes, expected = !m->msg_limit && t / 2 < m->classes ? count : 0;
        if (!um_match_table_is_valid(&m->queued[t / 2][t % 2], &nodes) || nodes != expected)
            return false;
    }
    return count == m->msg_count && (!m->msg_limit || count <= m->msg_limit);
}

bool um_match_is_valid(const struct um_match *m)
{
    for (uint32_t c = 0; c < m->classes; c++)
        for (uint32_t d = 0; d < c; d++)
            if (m->ignore[c] == m->ignore[d])
                return false;
    return m->classes <= UM_MATCH_CLASSES && recvs_are_valid(m) && msgs_are_valid(m);
}
