/*
 * An endpoint that sends, receives, does RMA and atomics at random and checks every byte: for the soak and the threads.
 *
 * What a message holds and how it is sent follows from (source, destination, number) alone, so both ends know it.
 * Each actor is driven by one thread; actor_step() never waits. A violation ends the process with a message.
 */
#ifndef UM_TESTS_PROTO_ACTOR_H
#define UM_TESTS_PROTO_ACTOR_H

#include "world.h"

enum { ACTORS_MAX = 4, SLOTS = 12, WINDOW = 200000, MULTI_SIZE = 30000, TALLIES = 3 };

struct actor;

struct slot {
    struct actor *actor;
    bool busy;
    unsigned char *buf;
    size_t len;
    uint32_t peer, number;
};

struct actor {
    struct node node;
    uint32_t self, actors, goal; /* goal: messages to each peer, of each kind */
    uint64_t random;
    struct um_core_peer *peer[ACTORS_MAX];
    uint32_t sent[ACTORS_MAX], posted[ACTORS_MAX], got[ACTORS_MAX]; /* tagged */
    uint32_t stream_sent[ACTORS_MAX], stream_got[ACTORS_MAX];       /* untagged, through multi-receives */
    bool *stream_seen[ACTORS_MAX];
    struct slot out[SLOTS], in[SLOTS], rma;
    unsigned char *multi[2];
    bool multi_given[2];
    bool closing;
    uint32_t rma_done;
    bool rma_reads;
    unsigned char *window; /* peers write here: a part for each; behind the parts, TALLIES numbers to which all add */
    uint32_t atomics_done; /* one at a time; the n-th adds to tally n % TALLIES of some actor */
    bool atomic_pending;
    unsigned char atomic_old[16];
    struct um_core_region region;
};

void actor_open(struct actor *a, uint32_t self, uint32_t actors, uint32_t goal, uint32_t seed);
/* To be called after every actor is open. */
void actor_connect(struct actor *a, struct actor *all);
void actor_step(struct actor *a);
/* To be called after every actor is done: the tallies of all actors must hold what all have added. */
void actor_check_tallies(const struct actor *all, uint32_t actors);
/* True if the actor has sent and received everything. */
bool actor_is_done(const struct actor *a);
void actor_close(struct actor *a);

#endif
