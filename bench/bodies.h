/*
 * bodies: two processes that move bodies in one of several ways, measured by bench/bodies.c. Threading: one thread
 * each.
 */
#ifndef UM_BENCH_BODIES_H
#define UM_BENCH_BODIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { BODIES_NAME = 512, BODIES_ROOM = 1 << 20 };

/* Between the two processes: zero at the start. */
struct bodies_shared {
    uint64_t turn[2][8];
    pid_t pid[2];
    size_t name_len[2];
    unsigned char name[2][BODIES_NAME];
    unsigned char room[BODIES_ROOM]; /* the way's */
    unsigned char *memory;           /* of a mapped way: both buffers of either process */
};

struct bodies_side {
    struct bodies_shared *shared;
    int self;
    void *way; /* its own */
};

/* So many bodies of len bytes, `stride` bytes apart. */
struct bodies_batch {
    unsigned char *at;
    size_t len, stride;
    int count;
};

/* A way to move bodies. A failure is reported on stderr and ends the process. post: starts the bodies; finish: returns
 * when the buffers of this side are free. */
struct bodies_way {
    const char *name;
    void (*open)(struct bodies_side *s, const char *provider);
    void (*post)(struct bodies_side *s, const struct bodies_batch *b); /* sends */
    void (*recv)(struct bodies_side *s, const struct bodies_batch *b); /* and waits */
    void (*finish)(struct bodies_side *s);
    void (*close)(struct bodies_side *s);
    bool is_mapped; /* the buffers are to lie in memory that both have mapped */
};
extern const struct bodies_way bodies_ring, bodies_readv, bodies_one, bodies_both, bodies_fabric;

/* Returns when both processes are here. */
void bodies_meet(struct bodies_side *s);
void bodies_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
