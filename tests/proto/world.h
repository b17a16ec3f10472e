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
        *second;            /* or NULL: shm before it: nodes of different parity reach each other by it alone */
    unsigned stall_percent; /* sim only */
    unsigned sim_modes;     /* enum um_sim_mode */
    bool private_copy;      /* false: nothing but records moves bytes, and the target executes RMA */
    enum um_core_bodies bodies;
    bool adopt;          /* false: windows are at level copy, at best */
    uint64_t memory_max; /* 0: the default; 1: no lane can grow */
    uint32_t lanes_max;
    size_t unexpected_max; /* 0: the default */
    const char *attach; /* shm: as um_port_config.attach; NULL: off. Then children are in pid namespaces of their own */
};
extern struct variant variant;
/* What it says: the machines of a node. */
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
/* multi_min as given; everything else by variant. */
void world_open_multi(struct world *w, int nodes, size_t multi_min);
void world_close(struct world *w);
void node_open(struct node *n, size_t multi_min);
void node_close(struct node *n);

/* A number of messages: a fifth over a board, whose model takes as much longer. */
uint32_t many(uint32_t count);

/* One round of progress of every endpoint; returns how much moved. */
int world_progress(struct world *w);
/* Has nothing moved for so long, in ns of the clock, that nothing is on its way over a machine with connections? */
bool is_quiet_long(uint64_t since);
/* Makes progress until nothing has moved for a while, so that everything has arrived. */
void world_settle(struct world *w);
/* The peer that `to` is for `from`. */
struct um_core_peer *peer_of(struct world *w, int from, int to);
/* Waits for the next completion of that node. The pointer is valid until the next completion. */
const struct um_core_completion *next_of(struct world *w, int node);
/* The same, of the operation with that context, wherever it stands. */
struct um_core_completion done_of(struct world *w, int node, const void *context);
/* Completions that nobody has taken yet. */
size_t untaken(const struct world *w, int node);

/* Sends, with progress while the answer is "again". */
void send_msg(struct world *w, int from, const struct um_proto_msg *msg);
void send_buf(struct world *w, int from, int to, const void *buf, size_t len, uint64_t tag, uint32_t flags,
              void *context);
void inject_buf(struct world *w, int from, int to, const void *buf, size_t len, uint64_t tag, uint32_t flags);
void recv_buf(struct world *w, int node, struct um_core_peer *source, void *buf, size_t len, uint64_t tag,
              uint64_t ignore, uint32_t flags, void *context);
void rma(struct world *w, int from, const struct um_proto_rma *op);
/* As the calls of proto; what was executed at once has its completion here, too, and 0 is returned. rma: a read or a
 * write, by its flags. */
int start_rma(struct node *n, const struct um_proto_rma *op);
int start_atomic(struct node *n, const struct um_proto_atomic *op);

/* Injected messages of up to 16 KiB, 2.5 MiB in all, some under way at a time; checks what comes. */
void stream_bodies(struct world *w, int from, int to);
/* Bytes that depend on place and seed. */
void fill(void *buf, size_t len, uint32_t seed);
bool is_filled(const void *buf, size_t len, uint32_t seed);
/* Every byte has that value. */
bool is_all(const void *buf, size_t len, unsigned char value);
/* The same n on every run; state is never 0. */
uint32_t rnd(uint64_t *state, uint32_t n);
/* Cuts len bytes of buf into `count` pieces of irregular length (some empty). */
void cut(void *buf, size_t len, struct iovec *iov, size_t count, uint64_t *state);

/* Sizes around every threshold of the protocols, smallest first. */
extern const size_t sizes[];
extern const size_t sizes_count;

/* argv: machine name, then any of: stall=N copy=no adopt=no bodies=learn|both|push memory=N lanes=N attach=HOW. Runs
 * the group. */
int world_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t count);
#define WORLD_MAIN(name, tests)                                                                                        \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        return world_main(argc, argv, name, tests, sizeof(tests) / sizeof((tests)[0]));                                \
    }

#endif
