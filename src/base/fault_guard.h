/*
 * Accesses of the program's own memory on behalf of a peer: the program may have unmapped it, made it read-only, or
 * cut its file off, and the process is not to die of that.
 *
 *   um_fault_guard_begin(g, at, len); loads and stores in [at, at + len); if (um_fault_guard_end(g)) they met what is
 * no memory
 *
 * A fault in the range puts a page of its own in the place of what is not there, until the access ends; then all is as
 * it was, and the caller is told. So is everybody whose range had that page meanwhile: it met no fault there. Faults
 * elsewhere, and when no access is under way, go to who had the signal before. Source: sigaction(2), mremap(2).
 * Threading: a guard is one thread's at a time; any number of guards at once.
 */
#ifndef UM_BASE_FAULT_GUARD_H
#define UM_BASE_FAULT_GUARD_H

#include "base/atomic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of one access: there is room for so many stand-ins, twice. */
enum { UM_FAULT_GUARD_MOST = 1 << 20 };

struct um_fault_guard {
    struct um_fault_guard *next; /* constant */
    uint64_t base, len;          /* the range; len 0: no access is under way */
    uint64_t hit;                /* the base of an access that met a fault, or somebody's stand-in; 0: none */
    bool used;                   /* by an owner */
};

/* Stand-ins that are there, and guards that are hit: while it is 0, no access has met anything. */
__attribute__((visibility("hidden"))) extern uint64_t um_fault_guard_news;

/* NULL: no memory, or no handler can be installed. */
struct um_fault_guard *um_fault_guard_open(void);
void um_fault_guard_close(struct um_fault_guard *g);
/* The slow end of an access: what it met. Puts everything back where it was. */
bool um_fault_guard_settle(struct um_fault_guard *g) __attribute__((cold));

static inline void um_fault_guard_begin(struct um_fault_guard *g, const void *at, size_t len)
{
    g->base = (uintptr_t)at;
    um_fence_compiler(); /* sync: none (a length goes with its base; two stores are fewer instructions than one) */
    g->len = len;
    um_fence_compiler(); /* sync: none (the handler runs in this thread) */
}

/* True: a fault was met, and what was stored or loaded means nothing. */
static inline bool um_fault_guard_end(struct um_fault_guard *g)
{
    um_fence_compiler(); /* sync: none (the handler runs in this thread) */
    if (__builtin_expect(um_fault_guard_news != 0, 0))
        return um_fault_guard_settle(g);
    g->len = 0;
    return false;
}

#endif
