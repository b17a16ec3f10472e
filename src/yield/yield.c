/*
 * A library of its own, preloaded by `unimem run` into the processes of an MPICH job: sched_yield() that is a system
 * call only now and then, as long as nobody else wants the processor.
 *
 * MPICH gives up the processor after each turn of a wait, also after the turn that brought the message. Where each rank
 * has a processor of its own, that call finds nobody to run and costs up to a microsecond: several times as long as the
 * message took. So of UM_YIELD_EACH calls one goes to the kernel. If that takes so long that another thread has run
 * meanwhile, the processor is shared: then UM_YIELD_SHARED calls go there, until the last UM_YIELD_PROOF of them find
 * nobody.
 *
 * Owns: two counts and the least time, per thread. Threading: any thread, any time; nothing is shared.
 */
#include "base/clock.h"

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    UM_YIELD_EACH = 32,
    UM_YIELD_SHARED = 256,
    UM_YIELD_PROOF = 16,
    UM_YIELD_SLACK_NS = 1000, /* a call that takes longer than two of the shortest ones, and this, let another run */
    UM_YIELD_LEAST_NS = 2000, /* the shortest one takes no longer: else another ran in all of them */
};

struct um_yield {
    uint32_t left;     /* calls that may still be left out */
    uint32_t shared;   /* calls that are still to go to the kernel, because the processor is shared */
    uint64_t least_ns; /* of the calls whose time was taken, UM_YIELD_LEAST_NS at most */
    uint64_t tick;     /* of the kernel's clock, when the last call went there */
};

/* Initial-exec: a first use allocates nothing, because signal handlers yield, too. */
static _Thread_local
    __attribute__((tls_model("initial-exec"))) struct um_yield um_yield = {.least_ns = UM_YIELD_LEAST_NS};

__attribute__((visibility("default"))) int sched_yield(void)
{
    struct um_yield *y = &um_yield;
    const uint64_t tick = um_clock_coarse_ns();
    if (y->left > 0 && tick == y->tick) { /* who yields seldom, does so each time */
        y->left--;
        return 0;
    }
    y->tick = tick;
    if (y->shared > UM_YIELD_PROOF) {
        y->shared--;
        return (int)syscall(SYS_sched_yield);
    }
    const uint64_t began = um_clock_ns();
    const int ret = (int)syscall(SYS_sched_yield);
    const uint64_t took = um_clock_ns() - began;
    if (took < y->least_ns)
        y->least_ns = took;
    if (took > 2 * y->least_ns + UM_YIELD_SLACK_NS)
        y->shared = UM_YIELD_SHARED;
    else if (y->shared > 0)
        y->shared--;
    y->left = y->shared > 0 ? 0 : UM_YIELD_EACH - 1;
    return ret;
}
