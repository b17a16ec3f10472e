/*
 * Accesses to the program's own memory on behalf of a peer. The program may have unmapped it, made it read-only, or
 * truncated its file; the process must survive that.
 *
 *   um_fault_guard_begin(g, at, len); loads and stores in [at, at + len); if (um_fault_guard_end(g)) an access faulted
 *
 * A fault in the range puts a stand-in page in the place of the missing one until the access ends. Then the mapping is
 * restored and the caller gets an error. Every other access whose range had that page meanwhile gets the error, too,
 * although it did not fault. Faults elsewhere, or while no access is under way, go to the handler that was installed
 * before.
 * Source: sigaction(2), mremap(2). Threading: a guard is one thread's at a time; any number of guards at once.
 */
#ifndef UM_BASE_FAULT_GUARD_H
#define UM_BASE_FAULT_GUARD_H

#include "base/atomic.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest access in bytes. The pool has stand-ins for twice as many. */
enum { UM_FAULT_GUARD_MOST = 1 << 20 };

struct um_fault_guard {
    struct um_fault_guard *next; /* constant */
    uint64_t base, len;          /* the range; len 0: no access is under way */
    uint64_t hit; /* the base of an access that faulted, or met the stand-in of another access; 0: none */
    bool used;    /* opened and not closed */
};

/* Number of stand-ins in place and of guards that were hit. 0: no access has faulted. */
__attribute__((visibility("hidden"))) extern uint64_t um_fault_guard_news;

/* NULL: no memory, or no handler can be installed. */
struct um_fault_guard *um_fault_guard_open(void);
void um_fault_guard_close(struct um_fault_guard *g);
/* The slow path of um_fault_guard_end(). Restores the mappings; returns whether the access met a fault or a stand-in.
 */
bool um_fault_guard_settle(struct um_fault_guard *g) __attribute__((cold));

/* In a handler of SIGSEGV or SIGBUS: does what the action did that was installed before. */
void um_fault_guard_pass_on(const struct sigaction *before, int number, siginfo_t *info, void *context);

static inline void um_fault_guard_begin(struct um_fault_guard *g, const void *at, size_t len)
{
    g->base = (uintptr_t)at;
    um_fence_compiler(); /* sync: none (a length goes with its base; two stores are fewer instructions than one) */
    g->len = len;
    um_fence_compiler(); /* sync: none (the handler runs in this thread) */
}

/* True: the access faulted or met a stand-in: what was stored or loaded is meaningless. */
static inline bool um_fault_guard_end(struct um_fault_guard *g)
{
    um_fence_compiler(); /* sync: none (the handler runs in this thread) */
    if (__builtin_expect(um_fault_guard_news != 0, 0))
        return um_fault_guard_settle(g);
    g->len = 0;
    return false;
}

#endif
