/* See spin.h. */
#include "prov/prov.h"

#include "base/clock.h"

#include <sched.h>

enum {
    UM_SPIN_WITHIN_NS = 80000, /* a caller that makes so many reads within it spins, and no other process ran */
    UM_SPIN_STALLED = 16,      /* looks without traffic after which it yields: some 20 microseconds */
    UM_SPIN_LEAST_NS = 2000,   /* a yield that finds no one to run takes no longer */
    UM_SPIN_SLACK_NS = 1000,   /* one that takes more than twice the shortest and this has let another process run */
    UM_SPIN_SHARED = 64,       /* yields after that one, each at the first look without traffic */
    UM_SPIN_AWAY_NS = 1000000, /* one that takes longer has given the processor to a process that computes */
    UM_SPIN_REST_FIRST_NS = 25000000, /* none follows for so long; */
    UM_SPIN_REST_LAST_NS = 400000000, /* twice as long each time, but no longer than this */
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

bool um_prov_spin_look(struct um_prov_spin *spin, const struct um_prov_event_source *source, bool *yields_p)
{
    const uint64_t now = um_clock_ns(), traffic = um_prov_spin_traffic(source);
    const bool spins = now - spin->looked_at <= UM_SPIN_WITHIN_NS;
    if (traffic != spin->traffic)
        spin->stalled = 0;
    else if (spins && spin->stalled < UM_SPIN_STALLED)
        spin->stalled++;
    spin->traffic = traffic;
    spin->looked_at = now;
    const uint32_t most = spin->shared > 0 ? 1 : UM_SPIN_STALLED;
    const bool is_stalled = spin->stalled >= most && now >= spin->rests_until;
    *yields_p = spins && (is_stalled || !um_prov_source_has_processors(source));
    return spins;
}

/* The time away does not count against the caller: the measurement starts anew. */
void um_prov_spin_yield(struct um_prov_spin *spin, struct um_prov_event_source *source)
{
    const uint64_t began = um_clock_ns();
    sched_yield();
    const uint64_t now = um_clock_ns(), took = now - began;
    um_prov_domain_lock(&source->domain->lock);
    const uint64_t least = spin->least_ns ? spin->least_ns : UM_SPIN_LEAST_NS;
    spin->least_ns = took == 0 || took > least ? least : took;
    if (took > UM_SPIN_AWAY_NS) {
        const uint64_t longer = spin->rest_ns ? 2 * spin->rest_ns : UM_SPIN_REST_FIRST_NS;
        spin->rest_ns = longer < UM_SPIN_REST_LAST_NS ? longer : UM_SPIN_REST_LAST_NS;
        spin->rests_until = now + spin->rest_ns;
        spin->shared = 0;
    } else if (took > 2 * spin->least_ns + UM_SPIN_SLACK_NS) {
        spin->rest_ns = 0;
        spin->shared = UM_SPIN_SHARED;
    } else if (spin->shared > 0) {
        spin->shared--;
    }
    spin->looked_at = now;
    um_prov_domain_unlock(&source->domain->lock);
}
