/* Unexpected messages, and the searches that index them. See engine.h. */
#include "match/engine.h"

void um_match_enqueue(struct um_match *m, struct um_match_msg *msg)
{
    msg->entries = NULL;
    um_list_append(&m->msgs, &msg->all);
    m->msg_count++;
}

static __attribute__((noinline)) void unindex(struct um_match *m, struct um_match_msg *msg)
{
    struct um_match_entry *next;
    for (struct um_match_entry *e = msg->entries; e; e = next) {
        const uint32_t t = e->node.table;
        next = e->sibling;
        um_match_table_remove(&m->queued[t], &e->node);
        if (m->indexed[t] == &msg->all)
            m->indexed[t] = msg->all.prev;
        um_pool_release(&m->entries, e);
    }
}

void um_match_dequeue(struct um_match *m, struct um_match_msg *msg)
{
    if (msg->entries)
        unindex(m, msg);
    um_list_unlink(&msg->all);
    m->msg_count--;
}

/* Adds to table t the message behind the last one that stands there. False: no memory. */
static bool index_msg(struct um_match *m, uint32_t t, struct um_match_msg *msg)
{
    struct um_match_entry *e = um_pool_alloc(&m->entries);
    if (!e)
        return false;
    e->node.tag = msg->tag & ~(t == UM_MATCH_COARSE ? m->asked_coarse_ignore : m->asked.ignore[t / 2]);
    e->node.source = t & 1 || t == UM_MATCH_COARSE ? UM_MATCH_ANY : msg->source;
    e->node.table = t;
    e->msg = msg;
    e->sibling = msg->entries;
    msg->entries = e;
    um_match_table_insert(&m->queued[t], &e->node);
    m->indexed[t] = &msg->all;
    return true;
}

/* What a receive asks for. */
struct wanted {
    uint64_t tag, ignore;
    uint32_t source;
};

/* Searches the messages behind those that table t indexes, and indexes what it passes. t is UM_MATCH_TABLES: searches
 * all messages, indexes none. */
static struct um_match_msg *search_on(struct um_match *m, const struct wanted *w, uint32_t t)
{
    bool indexes = t < UM_MATCH_TABLES;
    for (struct um_list *l = indexes ? m->indexed[t]->next : m->msgs.next; l != &m->msgs; l = l->next) {
        struct um_match_msg *msg = msg_of_all(l);
        um_match_visit();
        if (um_match_takes(w->tag, w->ignore, w->source, msg->tag, msg->source))
            return msg;
        indexes = indexes && index_msg(m, t, msg);
    }
    return NULL;
}

/* Searches by the table of the mask's class. */
static struct um_match_msg *search_class(struct um_match *m, const struct wanted *w)
{
    const uint32_t c = class_take(&m->asked, m->queued, w->ignore), t = 2 * c + (w->source == UM_MATCH_ANY);
    if (c == UM_MATCH_CLASSES)
        return search_on(m, w, UM_MATCH_TABLES);
    struct um_match_node *node = um_match_table_find(&m->queued[t], w->tag & ~w->ignore, w->source);
    return node ? entry_of(node)->msg : search_on(m, w, t);
}

static struct um_match_entry *coarse_entry(const struct um_match_msg *msg)
{
    struct um_match_entry *e = msg->entries;
    while (e->node.table != UM_MATCH_COARSE)
        e = e->sibling;
    return e;
}

/* Changes the key of the coarse table: its messages are taken out and inserted again. */
static __attribute__((noinline, cold)) void coarse_change(struct um_match *m, uint64_t ignore)
{
    struct um_match_table *const coarse = &m->queued[UM_MATCH_COARSE];
    const struct um_list *const last = m->indexed[UM_MATCH_COARSE];
    for (struct um_list *l = &m->msgs; l != last;) {
        l = l->next;
        um_match_table_remove(coarse, &coarse_entry(msg_of_all(l))->node);
    }
    m->asked_coarse_ignore = ignore;
    for (struct um_list *l = &m->msgs; l != last;) {
        l = l->next;
        struct um_match_entry *e = coarse_entry(msg_of_all(l));
        e->node.tag = e->msg->tag & ~ignore;
        um_match_table_insert(coarse, &e->node);
    }
}

/* May searches with the mask use the coarse table? Adds the mask to the table's if it has to and can. An empty table
 * keeps its masks unless they leave no room for this one. */
static inline bool is_coarse(struct um_match *m, uint64_t ignore)
{
    uint64_t all = m->asked_coarse_ignore;
    if (__builtin_expect((ignore & ~all) == 0, 1))
        return true;
    if (class_find(&m->asked, ignore) < UM_MATCH_CLASSES)
        return false;
    if (!m->queued[UM_MATCH_COARSE].keys && !may_join(all, ignore))
        all = 0;
    if (!may_join(all, ignore))
        return false;
    coarse_change(m, all | ignore);
    return true;
}

static __attribute__((noinline)) struct um_match_msg *find_msg_hashed(struct um_match *m, uint64_t tag, uint64_t ignore,
                                                                      uint32_t source)
{
    const struct wanted w = {tag, ignore, source};
    struct um_match_table *const coarse = &m->queued[UM_MATCH_COARSE];
    if (!is_coarse(m, ignore))
        return search_class(m, &w);
    struct um_match_node *oldest = um_match_table_find(coarse, tag & ~m->asked_coarse_ignore, UM_MATCH_ANY);
    struct um_match_node *node = oldest;
    for (int n = 0; node && n < UM_MATCH_RING; n++, node = node->next == oldest ? NULL : node->next) {
        struct um_match_msg *msg = entry_of(node)->msg;
        if (um_match_takes(tag, ignore, source, msg->tag, msg->source))
            return msg;
        um_match_visit();
    }
    return node ? search_class(m, &w) : search_on(m, &w, UM_MATCH_COARSE);
}

struct um_match_msg *um_match_find_msg(struct um_match *m, uint64_t tag, uint64_t ignore, uint32_t source)
{
    if (m->msg_count > UM_MATCH_SHORT)
        return find_msg_hashed(m, tag, ignore, source);
    for (struct um_list *l = m->msgs.next; l != &m->msgs; l = l->next) {
        struct um_match_msg *msg = msg_of_all(l);
        um_match_visit();
        if (um_match_takes(tag, ignore, source, msg->tag, msg->source))
            return msg;
    }
    return NULL;
}

struct um_match_msg *um_match_any_msg(struct um_match *m)
{
    struct um_list *first = um_list_first(&m->msgs);
    return first ? msg_of_all(first) : NULL;
}
