/*
 * bare: two processes that pass messages without a library, in order, whatever their tags. A way is one method of doing
 * it. Threading: one thread per process.
 */
#ifndef UM_BENCH_BARE_H
#define UM_BENCH_BARE_H

#include "link.h"

#include <sys/types.h>

enum { BARE_ROOM = 1 << 20, BARE_BATCH = 128 };

/* What the processes share; zero at the start. */
struct bare_shared {
    uint64_t turn[2][8];
    pid_t pid[2];
    _Alignas(64) unsigned char room[2][BARE_ROOM]; /* for the way: room[r] carries what process r sends */
};

/*
 * post_send: may wait for the receiver to make room. post_recv: at most BARE_BATCH before a finish. finish: returns
 * when all posted messages are done; sends and receives are not mixed in one batch.
 */
struct bare_way {
    const char *name;
    void (*post_send)(const void *buf, size_t len);
    void (*post_recv)(void *buf, size_t len);
    void (*finish)(void);
    bool is_shared; /* the arenas lie in memory that both have mapped */
};
const struct bare_way *bare_way_named(const char *name);

extern struct bare_shared *bare_shared;
extern int bare_rank;
void bare_relax(uint64_t turn); /* for the body of a loop that waits */

#endif
