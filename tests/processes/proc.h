/*
 * What the process tests share: real processes around some shared memory. Their endpoints are those of tests/proto.
 *
 * A child runs one function and ends with _exit(0), or with abort() and its message when it finds something wrong. A
 * child that waits longer than half a minute for anything ends itself.
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
/* True if children can be in pid namespaces of their own. If not, a case that needs it is skipped. */
bool has_pid_namespaces(void);
/* Forks; the child runs fn(index) and exits. With variant.attach it does so in a pid namespace of its own. */
pid_t child_start(void (*fn)(int index), int index);
/* Waits for the end of the child, which must be a good one. */
void child_join(pid_t pid);
/* Kills the child (SIGKILL), and waits for its end. */
void child_kill(pid_t pid);

/* In a child: opens node 0 of w, publishes its address at ready[index]. */
void child_open(struct world *w, int index);
/* Returns the peer with the address that `index` publishes; waits for that. */
struct um_core_peer *peer_at(struct world *w, int index);
/* Waits, with progress of w (may be NULL), until *word is at least value. */
void wait_for(struct world *w, const uint32_t *word, uint32_t value);
/* Waits for the completion of the operation with that context, which node 0 posted. */
struct um_core_completion child_done(struct world *w, void *context);
/* Posts the operation to node 0, with as many tries as it takes, and waits for its end. Returns the error it ends
 * with. */
int child_rma(struct world *w, const struct um_proto_rma *op);
void child_demand(bool condition, const char *what);

#endif
