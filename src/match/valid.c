/* Are the invariants of engine.h kept? For tests and debug builds. */
#include "match/engine.h"

static bool recv_is_valid(const struct um_match *m, const struct um_match_recv *recv)
{
    uint32_t c = recv->table / 2;
    if (recv->table == UM_MATCH_TABLES)
        return true;
    if (recv->table == UM_MATCH_COARSE)
        return (recv->ignore & ~m->coarse_ignore) == 0 &&
               um_match_table_holds(&m->posted[UM_MATCH_COARSE], &recv->node, recv->tag & ~m->coarse_ignore,
                                    UM_MATCH_ANY);
    return c < m->classes.count && m->classes.ignore[c] == recv->ignore &&
           (recv->table & 1) == (recv->source == UM_MATCH_ANY) &&
           um_match_table_holds(&m->posted[recv->table], &recv->node, recv->tag & ~recv->ignore, recv->source);
}

static bool recvs_are_valid(const struct um_match *m)
{
    uint32_t counted[UM_MATCH_TABLES + 1] = {0}, unhashed = 0;
    bool is_hashed = m->hashed != &m->recvs;
    uint64_t above = 0; /* the next order must be at least this */
    const struct um_list *further = m->further.next;
    for (struct um_list *l = m->recvs.next; l != &m->recvs; l = l->next) {
        const struct um_match_recv *recv = recv_of_all(l);
        if (!is_hashed) {
            unhashed++;
            if (recv->table != UM_MATCH_UNHASHED)
                return false;
            continue;
        }
        is_hashed = l != m->hashed;
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
    return further == &m->further && !is_hashed && unhashed == m->unhashed && unhashed <= UM_MATCH_LATE;
}

/* Returns the tables that searches use, as bits. */
static uint32_t tables_asked(const struct um_match *m)
{
    return ((1u << 2 * m->asked.count) - 1) | 1u << UM_MATCH_COARSE;
}

static bool entry_is_valid(const struct um_match *m, const struct um_match_entry *e, const struct um_match_msg *msg)
{
    const uint32_t t = e->node.table;
    if (t >= UM_MATCH_TABLES || !(tables_asked(m) >> t & 1) || e->msg != msg)
        return false;
    const bool coarse = t == UM_MATCH_COARSE;
    const uint64_t tag = msg->tag & ~(coarse ? m->asked_coarse_ignore : m->asked.ignore[t / 2]);
    return um_match_table_holds(&m->queued[t], &e->node, tag, coarse || t & 1 ? UM_MATCH_ANY : msg->source);
}

/* Does the message stand in exactly the tables that reach it? Bit t of *ended_p: table t ends before the message. */
static bool msg_is_valid(const struct um_match *m, const struct um_match_msg *msg, uint32_t *ended_p)
{
    uint32_t in = 0;
    for (const struct um_match_entry *e = msg->entries; e; e = e->sibling) {
        if (!entry_is_valid(m, e, msg) || in >> e->node.table & 1)
            return false;
        in |= 1u << e->node.table;
    }
    if (in != (tables_asked(m) & ~*ended_p))
        return false;
    for (uint32_t t = 0; t < UM_MATCH_TABLES; t++)
        if (m->indexed[t] == &msg->all)
            *ended_p |= 1u << t;
    return true;
}

static bool msgs_are_valid(const struct um_match *m)
{
    uint32_t count = 0, ended = 0, expected[UM_MATCH_TABLES] = {0};
    for (uint32_t t = 0; t < UM_MATCH_TABLES; t++)
        ended |= (uint32_t)(m->indexed[t] == &m->msgs) << t;
    for (struct um_list *l = m->msgs.next; l != &m->msgs; l = l->next, count++) {
        for (uint32_t t = 0; t < UM_MATCH_TABLES; t++)
            expected[t] += tables_asked(m) >> t & ~ended >> t & 1;
        if (!msg_is_valid(m, msg_of_all(l), &ended))
            return false;
    }
    for (uint32_t t = 0; t < UM_MATCH_TABLES; t++) {
        uint32_t nodes;
        if (!um_match_table_is_valid(&m->queued[t], &nodes) || nodes != expected[t])
            return false;
    }
    return count == m->msg_count && (tables_asked(m) & ~ended) == 0;
}

static bool are_distinct(const uint64_t *masks, uint32_t count)
{
    for (uint32_t c = 0; c < count; c++)
        for (uint32_t d = 0; d < c; d++)
            if (masks[c] == masks[d])
                return false;
    return count <= UM_MATCH_CLASSES;
}

bool um_match_is_valid(const struct um_match *m)
{
    return are_distinct(m->classes.ignore, m->classes.count) && are_distinct(m->asked.ignore, m->asked.count) &&
           recvs_are_valid(m) && msgs_are_valid(m);
}
