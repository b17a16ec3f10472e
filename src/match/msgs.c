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

/* A class for searches with this mask; UM_MATCH_CLASSES when there is no place. */
static __attribute__((noinline, cold)) uint32_t make_asked(struct um_match *m, uint64_t ignore)
{
    uint32_t c = 0;
    if (m->asked < UM_MATCH_CLASSES)
        c = m->asked++;
    else
        while (c < UM_MATCH_CLASSES && (m->queued[2 * c].keys || m->queued[2 * c + 1].keys))
            c++;
    if (c < UM_MATCH_CLASSES) {
        m->asked_ignore[c] = ignore;
        m->indexed[2 * c] = m->indexed[2 * c + 1] = &m->msgs;
    }
    return c;
}

static inline uint32_t asked_of(struct um_match *m, uint64_t ignore)
{
    for (uint32_t c = 0; c < m->asked; c++)
        if (m->asked_ignore[c] == ignore)
            return c;
    return make_asked(m, ignore);
}

/* Adds the message behind the last one that stands in the table. False: no memory. */
static bool index_msg(struct um_match *m, uint32_t t, struct um_match_msg *msg)
{
    struct um_match_entry *e = um_pool_alloc(&m->entries);
    if (!e)
        return false;
    e->node.tag = msg->tag & ~m->asked_ignore[t / 2];
    e->node.source = t & 1 ? UM_MATCH_ANY : msg->source;
    e->node.table = t;
    e->msg = msg;
    e->sibling = msg->entries;
    msg->entries = e;
    um_match_table_insert(&m->queued[t], &e->node);
    m->indexed[t] = &msg->all;
    return true;
}

static __attribute__((noinline)) struct um_match_msg *find_msg_hashed(struct um_match *m, uint64_t tag, uint64_t ignore,
                                                                      uint32_t source)
{
    const uint32_t c = asked_of(m, ignore), t = 2 * c + (source == UM_MATCH_ANY);
    bool indexes = c < UM_MATCH_CLASSES;
    struct um_list *l = &m->msgs;
    if (indexes) {
        struct um_match_node *node = um_match_table_find(&m->queued[t], tag & ~ignore, source);
        if (node)
            return entry_of(node)->msg;
        l = m->indexed[t];
    }
    for (l = l->next; l != &m->msgs; l = l->next) {
        struct um_match_msg *msg = msg_of_all(l);
        um_match_visit();
        if (takes(tag, ignore, source, msg->tag, msg->source))
            return msg;
        indexes = indexes && index_msg(m, t, msg);
    }
    return NULL;
}

struct um_match_msg *um_match_find_msg(struct um_match *m, uint64_t tag, uint64_t ignore, uint32_t source)
{
    if (m->msg_count > UM_MATCH_SHORT)
        return find_msg_hashed(m, tag, ignore, source);
    for (struct um_list *l = m->msgs.next; l != &m->msgs; l = l->next) {
        struct um_match_msg *msg = msg_of_all(l);
        um_match_visit();
        if (takes(tag, ignore, source, msg->tag, msg->source))
            return msg;
    }
    return NULL;
}

struct um_match_msg *um_match_any_msg(struct um_match *m)
{
    struct um_list *first = um_list_first(&m->msgs);
    return first ? msg_of_all(first) : NULL;
}
