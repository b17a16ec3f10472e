/*
 * Callers that spin: they read a queue or a counter again and again. A part of prov.h, which includes it.
 *
 * Where processes outnumber processors, what such a caller waits for may come from a process that waits for this very
 * processor. MPICH does not yield in a send that has no room, nor Open MPI's mtl/ofi in a blocking send, nor does a
 * plain loop over fi_cq_read(): each would take a time slice of some milliseconds. So the provider yields for them:
 * always if the job has more ranks than the system has processors, else after some reads without any traffic. (The
 * number of processors that a process may use says nothing: each rank of a job is bound to its own ones.)
 *
 * How long a yield takes tells whom the caller shares its processor with. No one: the next one comes after as many
 * reads. A process that soon waits in its turn, like a rank of the job: the next ones come early. A process that
 * computes: they come late for a while, or each wait beside it would cost a time slice. A rank that keeps its
 * processor for that reason still yields in time for the other one to count as a process that waits.
 *
 * Owns: struct um_prov_spin. Threading: under the domain lock, but for um_prov_spin_yield().
 */
#ifndef UM_PROV_SPIN_H
#define UM_PROV_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct um_prov_event_source;

/* Reads without an event from one look to the next: of a queue, of a counter. */
enum { UM_SPIN_READS = 16, UM_SPIN_READS_CNTR = 64 };

/* One for each queue or counter. All zero at first. */
struct um_prov_spin {
    uint64_t looked_at;             /* the last look at the clock, ns */
    uint64_t traffic;               /* messages and operations of the endpoints at that look */
    uint64_t stalled_at;            /* the first look without traffic, ns */
    uint64_t least_ns;              /* the shortest yield took this, at most UM_YIELD_LEAST_NS; 0: there was none */
    uint64_t keeps_until, keeps_ns; /* yields come late until then, ns; for how long that was set */
    uint32_t reads;                 /* reads without an event */
    uint32_t stalled;               /* looks in a row at a caller that spins while there is no traffic */
    uint32_t early_left;            /* yields that still come early */
};

/* Called at every UM_SPIN_READS-th (UM_SPIN_READS_CNTR-th) read without an event. reads: that number. Returns whether
 * the caller spins (it took at most 5 microseconds a read) and its job has a processor for each rank. *yields_p: it
 * shall call um_prov_spin_yield() once it has released the lock. */
bool um_prov_spin_look(struct um_prov_spin *spin, const struct um_prov_event_source *source, uint32_t reads,
                       bool *yields_p);
void um_prov_spin_yield(struct um_prov_spin *spin, struct um_prov_event_source *source);

#endif
