/*
 * Real processes around one page of shared memory: what the process tests share. The endpoint side is tests/proto's.
 *
 * A child runs one function and ends with _exit(0), or with abort() and its message when it finds something wrong.
 * A child that waits longer than half a minute for anything ends itself.
 */
#ifndef UM_TESTS_PROCESSES_PROC_H
#define UM_TESTS_PROCESSES_PROC_H

#include "world.h"

#include "base/atomic.h"

#include <sys/types.h>

enum { PROCS_MAX = 1100 };

struct shared {
    struct um_addr addr[PROCS_MAX];
    uint32_t ready[PROCS_MAX];
    uint32_t flag[16];
    uint32_t count[PROCS_MAX];
    uint64_t word[16];
};
extern struct shared *shared;

/* Makes (or clears) the shared memory. */
void shared_reset(void);
/* Can children be in pid namespaces of their own? If not, a case that needs it is skipped. */
bool has_pid_namespaces(void);
/* Forks; the child runs fn(index) and exits. With variant.attach it does so in a pid namespace of its own. */
pid_t child_start(void (*fn)(int index), int index);
/* The child must have ended well. */
void child_join(pid_t pid);
/* SIGKILL, and its death is complete. */
void child_kill(pid_t pid);

/* In a child: opens node 0 of w, publishes its address at ready[index]. */
void child_open(struct world *w, int index);
/* The peer for the published address of `index`; waits for it. */
struct um_core_peer *peer_at(struct world *w, int index);
/* Waits, with progress of w (may be NULL), until *word is at least value. */
void wait_for(struct world *w, const uint32_t *word, uint32_t value);
/* Waits for the completion of the operation with that context, which node 0 posted. */
struct um_core_completion child_done(struct world *w, void *context);
/* Posts it to node 0, however often that takes, and waits for its end: the error it ends with. */
int child_rma(struct world *w, const struct um_proto_rma *op);
void child_demand(bool condition, const char *what);

#endif
