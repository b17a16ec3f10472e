/*
 * Callers that spin: they read a queue or a counter again and again. A part of prov.h, which includes it.
 *
 * Where processes outnumber processors, what such a caller waits for may come from a process that waits for this very
 * processor. MPICH does not yield in a send that has no room, nor Open MPI's mtl/ofi in a blocking send, nor does a
 * plain loop over fi_cq_read(): each would take a time slice of some milliseconds. So the provider yields for them:
 * always if the job has more ranks than the system has processors, else after some reads without any traffic, which are
 * fewer once a yield has let another process run. (The number of processors that a process may use says nothing: each
 * rank of a job is bound to its own ones.)
 *
 * Owns: struct um_prov_spin. Threading: under the domain lock, but for um_prov_spin_yield().
 */
#ifndef UM_PROV_SPIN_H
#define UM_PROV_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct um_prov_event_source;

enum { UM_SPIN_READS = 16, UM_SPIN_READS_CNTR = 64 }; /* reads without an event between two looks: a queue, a counter */

/* One for each queue or counter. All zero at first. */
struct um_prov_spin {
    uint64_t looked_at;            /* the last look at the clock, ns */
    uint64_t traffic;              /* messages and operations of the endpoints at that look */
    uint32_t reads;                /* reads without an event */
    uint64_t least_ns;             /* the shortest yield took this; 0: there was none */
    uint32_t stalled;              /* looks in a row at a caller that spins while there is no traffic */
    uint32_t shared;               /* yields that come early, because one has let another process run */
    uint64_t rests_until, rest_ns; /* no yield until then, ns, for a stall; how long that was */
};

/* Called after so many reads without an event. Returns whether the caller spins and no other process
 * ran meanwhile. *yields_p: it shall call um_prov_spin_yield() once it has released the lock. */
bool um_prov_spin_look(struct um_prov_spin *spin, const struct um_prov_event_source *source, bool *yields_p);
void um_prov_spin_yield(struct um_prov_spin *spin, struct um_prov_event_source *source);

#endif
