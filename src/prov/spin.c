/* See spin.h. */
#include "prov/prov.h"

#include "base/clock.h"
#include "base/yield_time.h"

#include <sched.h>

enum {
    UM_SPIN_READ_NS = 5000,           /* a caller that spins takes no longer for a read, or another process ran */
    UM_SPIN_STALLED = 16,             /* looks without traffic after which it yields */
    UM_SPIN_LEFT_OUT_NS = 100,        /* a yield that takes less was no system call (src/yield) */
    UM_SPIN_EARLY = 64,               /* yields after one that let another process run, each at the first look */
    UM_SPIN_AWAY_NS = 1000000,        /* one that takes longer has given the processor to a process that computes */
    UM_SPIN_KEEP_FIRST_NS = 25000000, /* for so long the next ones come late; */
    UM_SPIN_KEEP_LAST_NS = 400000000, /* twice as long each time, but no longer than this */
    UM_SPIN_LATE_NS = 500000,         /* how long a stall lasts then before its caller yields */
};

static uint64_t um_prov_spin_traffic(const struct um_prov_event_source *source)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < source->eps.count; i++) {
        if (!source->eps.eps[i]->core)
            continue;
        const struct um_core_traffic traffic = um_core_ep_traffic(source->eps.eps[i]->core);
        sum += traffic.sent + traffic.received;
    }
    return sum;
}

static bool um_prov_spin_is_stalled(const struct um_prov_spin *spin, uint64_t now)
{
    const uint32_t least = spin->early_left > 0 ? 1 : UM_SPIN_STALLED;
    return spin->stalled >= least && (now >= spin->keeps_until || now - spin->stalled_at >= UM_SPIN_LATE_NS);
}

bool um_prov_spin_look(struct um_prov_spin *spin, const struct um_prov_event_source *source, uint32_t reads,
                       bool *yields_p)
{
    const uint64_t now = um_clock_ns(), traffic = um_prov_spin_traffic(source);
    const bool spins = now - spin->looked_at <= (uint64_t)reads * UM_SPIN_READ_NS;
    if (traffic != spin->traffic || !spins)
        spin->stalled = 0;
    else if (spin->stalled++ == 0)
        spin->stalled_at = now;
    spin->traffic = traffic;
    spin->looked_at = now;
    const bool has_processors = um_prov_source_has_processors(source);
    *yields_p = spins && (um_prov_spin_is_stalled(spin, now) || !has_processors);
    return spins && has_processors;
}

/* Learns from a yield that took so long. */
static void um_prov_spin_learn(struct um_prov_spin *spin, uint64_t took, uint64_t now)
{
    if (took < UM_SPIN_LEFT_OUT_NS)
        return;
    if (spin->least_ns == 0)
        spin->least_ns = UM_YIELD_LEAST_NS;
    const bool has_switched = um_yield_has_switched(&spin->least_ns, took);
    spin->stalled = 0;
    if (took > UM_SPIN_AWAY_NS) {
        const uint64_t longer = spin->keeps_ns ? 2 * spin->keeps_ns : UM_SPIN_KEEP_FIRST_NS;
        spin->keeps_ns = longer < UM_SPIN_KEEP_LAST_NS ? longer : UM_SPIN_KEEP_LAST_NS;
        spin->keeps_until = now + spin->keeps_ns;
        spin->early_left = 0;
        return;
    }
    spin->keeps_ns = 0;
    if (has_switched) {
        spin->keeps_until = 0;
        spin->early_left = UM_SPIN_EARLY;
    } else if (spin->early_left > 0) {
        spin->early_left--;
    }
}

/* The time away does not count against the caller: the measurement starts anew. */
void um_prov_spin_yield(struct um_prov_spin *spin, struct um_prov_event_source *source)
{
    const uint64_t began = um_clock_ns();
    sched_yield();
    const uint64_t now = um_clock_ns();
    um_prov_domain_lock(&source->domain->lock);
    um_prov_spin_learn(spin, now - began, now);
    spin->looked_at = now;
    um_prov_domain_unlock(&source->domain->lock);
}
