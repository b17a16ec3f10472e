/*
 * Which of two ways a large body takes: read by its receiver (transfer), say, or pushed by its sender in records.
 *
 * Neither way is better everywhere. On one machine the system's copy has a quarter of the bandwidth of two processors
 * that copy through a ring; on another one it is faster. It also depends on where the two processors are, on the size,
 * on whether both sides make progress, and on whose cache holds the body. Therefore the bodies themselves are measured:
 * the first bodies of a size class try both ways, then the better way is taken and each body updates its cost. From
 * time to time a trial sends a few bodies the other way. A trial has several bodies in a row, because caches have to
 * adapt; the second best of them counts. A trial ends early when its bodies are clearly slower. The first trials
 * come soon after one another; later ones that change nothing become rarer. A class that is new begins with the way
 * that its neighbour has found better.
 *
 * Owns: what an endpoint has learned. Must not know bodies, peers, records nor the clock, nor what way 0 and way 1 are:
 * who owns a choice names them. Threading: core.h.
 */
#ifndef UM_PROTO_CHOICE_H
#define UM_PROTO_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    UM_CHOICE_WAYS = 2,
    UM_CHOICE_CLASSES = 10, /* of sizes: below 32 KiB, below 64 KiB, ..., 8 MiB and more */
    UM_CHOICE_TRIES = 3,    /* bodies of a trial */
    UM_CHOICE_PROOF = 8,    /* bodies that a way in use has, before it is compared */
    UM_CHOICE_SOON = 16,    /* bodies between two trials, at least */
    UM_CHOICE_LATE = 1024,  /* at most */
    UM_CHOICE_FIRST = 4,    /* trials behind which the next one comes soon */
};

struct um_proto_choice_class {
    uint16_t cost[UM_CHOICE_WAYS]; /* log2 of ns for 2^20 bytes, in 64ths; 0: not known */
    uint16_t was;                  /* cost of the way in use at the last comparison */
    uint16_t best, middle;         /* of the present trial */
    uint16_t left;                 /* bodies until the next trial */
    uint16_t interval;             /* between two trials */
    uint8_t way;                   /* the better one */
    uint8_t told;                  /* bodies since it is in use, up to UM_CHOICE_PROOF */
    uint8_t trial, tried;          /* bodies of the present trial: chosen, measured */
    uint8_t trials;                /* that ended, up to UM_CHOICE_FIRST */
};

struct um_proto_choice {
    struct um_proto_choice_class of[UM_CHOICE_CLASSES];
};

/* The class of a size: they are measured and decided together. */
unsigned um_proto_choice_class(uint64_t len);
/* The way of the next body. */
unsigned um_proto_choice_take(struct um_proto_choice *choice, uint64_t len);
/* Was that way found better for such bodies? */
bool um_proto_choice_prefers(const struct um_proto_choice *choice, uint64_t len, unsigned way);
/* A body of len bytes moved that way; meanwhile `bytes` bytes moved the same way in ns (several bodies may move at a
 * time). */
void um_proto_choice_tell(struct um_proto_choice *choice, uint64_t len, unsigned way, uint64_t ns, uint64_t bytes);

/* How fast bytes moved of late. All zero: not known. */
struct um_proto_rate {
    uint64_t ns, bytes;
};

void um_proto_rate_add(struct um_proto_rate *rate, uint64_t ns, uint64_t bytes);
/* ns for so many bytes at that rate; 0: not known. */
uint64_t um_proto_rate_ns(const struct um_proto_rate *rate, uint64_t bytes);

/*
 * What pushed bodies cost that came in ns. busy_ns: so long of that, their sender read, or mapped, bodies that this
 * side sends. copy_ns: what this side's half of the work took, copying them out of the records; 0: not known.
 *
 * Where bodies go both ways, each side finds reading faster as long as the other side reads: what it asks for waits for
 * those reads. If both push, nothing waits for them, and a body costs each side about copy_ns, in either direction. So
 * busy_ns is left out, down to twice copy_ns.
 */
uint64_t um_proto_choice_pushed_ns(uint64_t ns, uint64_t busy_ns, uint64_t copy_ns);

/*
 * That is a loan to a sender: if it goes on reading, then for it that is the better way, and what it reads delays the
 * push indeed. It gets no more after UM_LOAN_MAX bodies, until UM_LOAN_PAUSE_NS later.
 */
struct um_proto_loan {
    uint64_t again_at; /* ns: until then there is none */
    uint32_t lent;     /* bodies */
    uint32_t still;    /* bodies since the sender read one */
};

enum {
    UM_LOAN_MAX = 2 * UM_CHOICE_LATE, /* the sender has tried to have its bodies pushed by then */
    UM_LOAN_STILL = 64,               /* and does, if it has read nothing for so long */
};

#define UM_LOAN_PAUSE_NS UINT64_C(1000000000)

/* A pushed body came; reads: its sender read bodies of this side meanwhile. Is that left out? now: ns. */
bool um_proto_loan_take(struct um_proto_loan *loan, bool reads, uint64_t now);

#endif
