/*
 * Accesses of the program's own memory on behalf of a peer: the program may have unmapped it, made it read-only, or
 * cut its file off, and the process is not to die of that.
 *
 *   um_fault_guard_begin(g, at, len); loads and stores in [at, at + len); if (um_fault_guard_end(g)) they met what is
 * no memory
 *
 * A fault in the range puts a page of its own in the place of what is not there, until the access ends; then all is as
 * it was, and the caller is told. Faults elsewhere, and when no access is under way, go to who had the signal before.
 * Source: sigaction(2), mremap(2). Threading: a guard is one thread's at a time; any number of guards at once.
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
    uint64_t hit;                /* a fault was met in it */
    bool used;                   /* by an owner */
};

/* NULL: no memory, or no handler can be installed. */
struct um_fault_guard *um_fault_guard_open(void);
void um_fault_guard_close(struct um_fault_guard *g);
/* Puts everything back where it was. */
void um_fault_guard_mend(struct um_fault_guard *g);

static inline void um_fault_guard_begin(struct um_fault_guard *g, const void *at, size_t len)
{
    g->base = (uintptr_t)at;
    g->len = len;
    um_fence_compiler(); /* sync: none (the handler runs in this thread) */
}

/* True: a fault was met, and what was stored or loaded means nothing. */
static inline bool um_fault_guard_end(struct um_fault_guard *g)
{
    um_fence_compiler(); /* sync: none (the handler runs in this thread) */
    g->len = 0;
    if (__builtin_expect(g->hit == 0, 1))
        return false;
    um_fault_guard_mend(g);
    return true;
}

#endif
