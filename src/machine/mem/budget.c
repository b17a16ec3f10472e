/*
 * The adoption budget. Adoption costs a fraction of a millisecond or more, and pays for registrations that last. Some
 * programs register the buffer of each operation and deregister it at once (Open MPI's one-sided operations, on the
 * local side): for them adoption is pure cost.
 *
 * A registration was not worth moving for if it lived less than 8 times as long as the move took. The time spent on
 * such registrations is a debt, which shrinks by a tenth of the time that passes. Above 250 ms of debt nothing is
 * moved, so that in the long run such registrations take at most a tenth of the time. Registrations made then stay at
 * UM_LEVEL_COPY and wait: the first change of the space after such a registration has lived long enough moves its
 * memory.
 *
 * Owns: struct um_mem_budget. Must not know how memory moves. Threading: machine.h.
 */
#include "machine/mem/mem.h"

enum { WORTH = 8, FORGIVEN = 10, DEBT_MS = 250 };
static const uint64_t debt_most = (uint64_t)DEBT_MS * 1000000;

void um_mem_budget_init(struct um_mem_budget *budget, uint64_t now_ns)
{
    *budget = (struct um_mem_budget){.at_ns = now_ns};
    um_list_init(&budget->waiting);
}

bool um_mem_budget_allows(struct um_mem_budget *budget, uint64_t now_ns)
{
    uint64_t forgiven = (now_ns - budget->at_ns) / FORGIVEN;
    budget->debt_ns = forgiven < budget->debt_ns ? budget->debt_ns - forgiven : 0;
    budget->at_ns = now_ns;
    return budget->debt_ns <= debt_most;
}

void um_mem_budget_ended(struct um_mem_budget *budget, const struct um_mem_exported *exported, uint64_t end_ns,
                         uint64_t cost_ns)
{
    if ((end_ns - exported->since_ns) / WORTH >= cost_ns)
        return;
    uint64_t debt = budget->debt_ns + cost_ns;
    budget->debt_ns =
        debt < 2 * debt_most ? debt : 2 * debt_most; /* one huge registration does not block the others for long */
    budget->cost_ns = cost_ns;
    budget->cost_len = exported->what.len;
}

/* The expected time for moving len bytes, from that of the last registration that was not worth it. */
static uint64_t expected_ns(const struct um_mem_budget *budget, uint64_t len)
{
    return len <= budget->cost_len ? budget->cost_ns : budget->cost_ns * (len / budget->cost_len);
}

struct um_mem_exported *um_mem_budget_ripe(struct um_mem_budget *budget, uint64_t now_ns)
{
    struct um_list *first = um_list_first(&budget->waiting);
    if (!first)
        return NULL;
    struct um_mem_exported *exported = UM_CONTAINER(first, struct um_mem_exported, waiting);
    um_list_unlink(first);
    if ((now_ns - exported->since_ns) / WORTH >= expected_ns(budget, exported->what.len))
        return exported;
    um_list_append(&budget->waiting, first); /* the next one's turn */
    return NULL;
}
