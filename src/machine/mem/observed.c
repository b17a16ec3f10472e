/*
 * The operations of the data path for memory that is not coherent: each observes what it looks at, then calls the plain
 * form. So coherent memory pays no test for it. The fifth, um_mem_poll_observed(), looks at many lanes and is in rx.c.
 *
 * Threading: machine.h.
 */
#include "machine/mem/mem.h"

/* Observes what the receiver tells its sender: credit, the number of answers, and state. */
static struct um_lane *receiver_observe(const struct um_lane *base)
{
    const struct um_mem_lane *lane = (const struct um_mem_lane *)base;
    um_mem_receiver_observe(lane->link->port, lane->ctl);
    return (struct um_lane *)(uintptr_t)base;
}

int um_mem_claim_observed(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p)
{
    return um_mem_claim(receiver_observe(base), body_len, slot_p);
}

int um_mem_claim_message_observed(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p)
{
    return um_mem_claim_message(receiver_observe(base), body_len, slot_p);
}

uint32_t um_mem_lane_consumed_observed(const struct um_lane *base)
{
    return um_mem_lane_consumed(receiver_observe(base));
}

int um_mem_lane_reap_observed(struct um_lane *base, struct um_answer *answers, int max)
{
    return um_mem_lane_reap(receiver_observe(base), answers, max);
}
