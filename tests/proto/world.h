/*
 * Several endpoints in one process, driven in turn: what the protocol tests share.
 *
 * Owns: the endpoints and the record of their completions. The variant (machine, stalls, private copies, memory cap)
 * is one for the whole program: world_main() reads it from the command line. Threading: one thread, unless a test says
 * otherwise. A wait that moves nothing for half a minute is a hang and fails the test; nothing else depends on time.
 */
#ifndef UM_TESTS_PROTO_WORLD_H
#define UM_TESTS_PROTO_WORLD_H

#include "base/iov.h"
#include "proto/proto.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NODES_MAX = 8, MIB = 1 << 20, KIB = 1 << 10 };

struct variant {
    const struct um_machine *machine;
    const struct um_machine
        *second; /* or NULL. Nodes of different parity reach each other by the machine other than shm alone */
    unsigned stall_percent; /* sim only */
    unsigned sim_modes;     /* enum um_sim_mode */
    bool private_copy;      /* false: only records move bytes, and the target executes RMA */
    enum um_core_bodies bodies;
    bool maps_by_choice; /* false: what can be mapped always is */
    bool adopt;          /* false: windows are at level copy, at best */
    uint64_t memory_max; /* 0: the default; 1: no lane can grow */
    uint32_t lanes_max;
    size_t unexpected_max; /* 0: the default */
    const char *attach; /* shm: as um_port_config.attach, and children are in pid namespaces of their own; NULL: off */
};
extern struct variant variant;
/* Returns the machines of a node in this variant. */
struct um_machines variant_machines(void);

struct node {
    struct um_core_ep *ep;
    struct um_core_regions *regions;
    struct um_addr addr;
    struct um_core_completion *done; /* every completion so far */
    size_t count, capacity;
    size_t taken; /* those a test has looked at */
};

struct world {
    struct node node[NODES_MAX];
    int nodes;
};

void world_open(struct world *w, int nodes);
/* The same, with this multi_min; everything else follows from the variant. */
void world_open_multi(struct world *w, int nodes, size_t multi_min);
void world_close(struct world *w);
void node_open(struct node *n, size_t multi_min);
void node_close(struct node *n);

/* Returns count; a fifth of it over a board, or over two machines, which are slower. */
uint32_t many(uint32_t count);

/* One round of progress of every endpoint; returns how much moved. */
int world_progress(struct world *w);
/* True if nothing can be on its way any more, given that nothing has moved since this time (um_clock_ns()): over net a
 * connection may take some time. */
bool is_quiet_long(uint64_t since);
/* Makes progress until nothing has moved for a while, so that everything has arrived. */
void world_settle(struct world *w);
/* Returns node `to` as a peer of node `from`. */
struct um_core_peer *peer_of(struct world *w, int from, int to);
/* Waits for the next completion of that node. The pointer is valid until the next completion. */
const struct um_core_completion *next_of(struct world *w, int node);
/* Waits for the completion of the operation with that context, in whatever order it comes. */
struct um_core_completion done_of(struct world *w, int node, const void *context);
/* Returns how many completions nobody has taken yet. */
size_t untaken(const struct world *w, int node);

/* Start an operation; make progress and try again on -EAGAIN. */
void send_msg(struct world *w, int from, const struct um_proto_msg *msg);
void send_buf(struct world *w, int from, int to, const void *buf, size_t len, uint64_t tag, uint32_t flags,
              void *context);
void inject_buf(struct world *w, int from, int to, const void *buf, size_t len, uint64_t tag, uint32_t flags);
void recv_buf(struct world *w, int node, struct um_core_peer *source, void *buf, size_t len, uint64_t tag,
              uint64_t ignore, uint32_t flags, void *context);
void rma(struct world *w, int from, const struct um_proto_rma *op);
/* Like the calls of proto, but an operation that was executed at once has its completion, too, and returns 0.
 * start_rma: reads or writes, by the flags. */
int start_rma(struct node *n, const struct um_proto_rma *op);
int start_atomic(struct node *n, const struct um_proto_atomic *op);

/* Injects messages of up to 16 KiB, 2.5 MiB in all, several under way at a time; receives and checks them. */
void stream_bodies(struct world *w, int from, int to);
/* Write, and check, bytes that depend on their place and the seed. */
void fill(void *buf, size_t len, uint32_t seed);
bool is_filled(const void *buf, size_t len, uint32_t seed);
/* True if every byte has that value. */
bool is_all(const void *buf, size_t len, unsigned char value);
/* Returns a pseudo-random number below n, the same in every run. *state must not be 0. */
uint32_t rnd(uint64_t *state, uint32_t n);
/* Cuts len bytes of buf into `count` pieces of irregular length (some empty). */
void cut(void *buf, size_t len, struct iovec *iov, size_t count, uint64_t *state);

/* Sizes around every threshold of the protocols, smallest first. */
extern const size_t sizes[];
extern const size_t sizes_count;

/* argv: a machine (sim, unwoken, shm, board, board=naive, net), a second one (and-net, and-board, and-shm), and any of:
 * stall=N slow stale evict mapped copy=no private=no adopt=no bodies=learn|both|push memory=N lanes=N attach=HOW. Runs
 * the group. */
int world_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t count);
#define WORLD_MAIN(name, tests)                                                                                        \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        return world_main(argc, argv, name, tests, sizeof(tests) / sizeof((tests)[0]));                                \
    }

#endif
