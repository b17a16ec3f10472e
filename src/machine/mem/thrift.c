/*
 * The adoption budget. Adoption costs a fraction of a millisecond or more, and pays for registrations that last. Some
 * programs register the buffer of each operation and deregister it at once (Open MPI's one-sided operations, on the
 * local side): for them adoption is pure cost.
 *
 * A registration was not worth moving for if it lived less than 8 times what that took. The time for those is a debt,
 * which shrinks by a tenth of the time that passes. Above 250 ms of debt nothing is moved, so that in the long run such
 * registrations take at most a tenth of the time. Registrations made then stay at UM_LEVEL_COPY and wait: the first
 * change of the space after one has lived long enough moves it.
 *
 * Owns: struct um_thrift. Must not know how memory moves. Threading: machine.h.
 */
#include "machine/mem/mem.h"

enum { WORTH = 8, FORGIVEN = 10, DEBT_MS = 250 };
static const uint64_t debt_most = (uint64_t)DEBT_MS * 1000000;

void um_thrift_init(struct um_thrift *thrift, uint64_t now_ns)
{
    *thrift = (struct um_thrift){.at_ns = now_ns};
    um_list_init(&thrift->waiting);
}

bool um_thrift_allows(struct um_thrift *thrift, uint64_t now_ns)
{
    uint64_t forgiven = (now_ns - thrift->at_ns) / FORGIVEN;
    thrift->debt_ns = forgiven < thrift->debt_ns ? thrift->debt_ns - forgiven : 0;
    thrift->at_ns = now_ns;
    return thrift->debt_ns <= debt_most;
}

void um_thrift_ended(struct um_thrift *thrift, const struct um_mem_exposed *exposed, uint64_t end_ns, uint64_t cost_ns)
{
    if ((end_ns - exposed->since_ns) / WORTH >= cost_ns)
        return;
    uint64_t debt = thrift->debt_ns + cost_ns;
    thrift->debt_ns =
        debt < 2 * debt_most ? debt : 2 * debt_most; /* one huge registration does not block the others for long */
    thrift->cost_ns = cost_ns;
    thrift->cost_len = exposed->what.len;
}

/* What moving this much will take, after the last that was not worth it. */
static uint64_t expected_ns(const struct um_thrift *thrift, uint64_t len)
{
    return len <= thrift->cost_len ? thrift->cost_ns : thrift->cost_ns * (len / thrift->cost_len);
}

struct um_mem_exposed *um_thrift_ripe(struct um_thrift *thrift, uint64_t now_ns)
{
    struct um_list *first = um_list_first(&thrift->waiting);
    if (!first)
        return NULL;
    struct um_mem_exposed *exposed = UM_CONTAINER(first, struct um_mem_exposed, waiting);
    um_list_unlink(first);
    if ((now_ns - exposed->since_ns) / WORTH >= expected_ns(thrift, exposed->what.len))
        return exposed;
    um_list_append(&thrift->waiting, first); /* the next one's turn */
    return NULL;
}
