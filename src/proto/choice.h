/*
 * The choice between two ways for a large body: say, read by its receiver (transfer), or pushed by its sender in
 * records.
 *
 * Neither way is better everywhere. On one machine the system's copy has a quarter of the bandwidth of two processors
 * that copy through a ring; on another one it is faster. It also depends on where the two processors are, on the size,
 * on whether both sides make progress, and on whose cache holds the body. Therefore the bodies themselves are measured:
 * the first bodies of a size class try both ways, then the better way is taken and its bodies update its cost. From
 * time to time a trial sends a few bodies the other way. A trial has several bodies in a row, because caches have to
 * adapt: after a change of the way, the first bodies may take twice as long as the later ones. The median of its last
 * bodies counts. A trial ends early when its bodies are clearly slower. The first trials come soon after one another;
 * later ones that change nothing become rarer, and longer. A class that is new begins with the way that its neighbour
 * has found better.
 *
 * Owns: what an endpoint has learned. Must not know bodies, peers, records or the clock, nor what way 0 and way 1 are:
 * the owner of a choice names them. Threading: core.h.
 */
#ifndef UM_PROTO_CHOICE_H
#define UM_PROTO_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    UM_CHOICE_WAYS = 2,
    UM_CHOICE_CLASSES = 10,   /* classes of sizes: below 32 KiB, below 64 KiB, ..., 8 MiB and more */
    UM_CHOICE_TRIES = 3,      /* bodies of the second trial and of the next few */
    UM_CHOICE_ADAPT = 3,      /* bodies after a change of the way that say little */
    UM_CHOICE_TRIES_LONG = 8, /* bodies of any other trial; the first 3 are not counted: caches adapt */
    UM_CHOICE_RECENT = 9,     /* bodies of the way in use, one after the other, whose median is its cost */
    UM_CHOICE_PROOF = 8,      /* bodies that the way in use has moved, before it is compared */
    UM_CHOICE_SOON = 16,      /* bodies between two trials, at least */
    UM_CHOICE_LATE = 1024,    /* bodies between two trials, at most */
    UM_CHOICE_LATEST = 4096,  /* the same, if the other way takes more than twice as long */
    UM_CHOICE_FIRST = 4,      /* number of first trials after which the next one comes soon */
};

struct um_proto_choice_class {
    uint16_t cost[UM_CHOICE_WAYS];         /* log2 of ns for 2^20 bytes, in 64ths; 0: not known */
    uint16_t was;                          /* cost of the way in use at the last comparison */
    uint16_t sample[UM_CHOICE_TRIES_LONG]; /* costs in the present trial */
    uint16_t recent[UM_CHOICE_RECENT];     /* costs of bodies that went the way in use, since it was last updated */
    uint16_t left;                         /* bodies until the next trial */
    uint16_t interval;                     /* bodies between two trials */
    uint8_t way;                           /* the way in use: the better one */
    uint8_t told;                          /* bodies measured since this way is in use, up to UM_CHOICE_PROOF */
    uint8_t tries, trial, tried;           /* bodies of the present trial: in all, chosen, measured */
    uint8_t voided;                        /* bodies of the present trial that will tell no cost */
    uint8_t adapts;                        /* bodies of the way in use that do not count: they follow a trial */
    uint8_t recently;                      /* number of these costs */
    uint8_t trials;                        /* trials that have ended, up to UM_CHOICE_FIRST */
};

struct um_proto_choice {
    struct um_proto_choice_class of[UM_CHOICE_CLASSES];
};

/* Returns the class of a size. The bodies of a class are measured and decided together. */
unsigned um_proto_choice_class(uint64_t len);
/* Returns the way of the next body, which has len bytes. */
unsigned um_proto_choice_take(struct um_proto_choice *choice, uint64_t len);
/* Returns what that would return, and counts nothing. */
unsigned um_proto_choice_next(const struct um_proto_choice *choice, uint64_t len);
/* Would the next body, of len bytes, go `way` to compare the ways: as the first one of a trial, or behind those of a
 * trial that have not told their cost? */
bool um_proto_choice_compares(const struct um_proto_choice *choice, uint64_t len, unsigned way);
/* Counts a body of len bytes that goes the other way, in a trial that begins now or goes on. */
void um_proto_choice_try(struct um_proto_choice *choice, uint64_t len);
/* Was that way found better for such bodies? */
bool um_proto_choice_prefers(const struct um_proto_choice *choice, uint64_t len, unsigned way);
/* Was that way found better for such bodies, and does no trial begin soon? (The first trials follow one another soon,
 * so this takes several.) */
bool um_proto_choice_is_sure(const struct um_proto_choice *choice, uint64_t len, unsigned way);
/* Is that way in use for such bodies, and do caches not adapt to it after a trial? True also before the ways were
 * compared. */
bool um_proto_choice_is_usual(const struct um_proto_choice *choice, uint64_t len, unsigned way);
/* Learns from a body of len bytes that moved that way. Meanwhile `bytes` bytes moved that way in ns (several bodies may
 * move at a time). */
void um_proto_choice_tell(struct um_proto_choice *choice, uint64_t len, unsigned way, uint64_t ns, uint64_t bytes);

/* Learns that a body of len bytes, for which `way` was chosen, will tell no cost. */
void um_proto_choice_void(struct um_proto_choice *choice, uint64_t len, unsigned way);

#endif
