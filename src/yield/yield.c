/*
 * A library of its own, preloaded by `unimem run` into the processes of an MPICH job: a sched_yield() that is a system
 * call only now and then, as long as no other thread wants the processor.
 *
 * MPICH yields the processor after each turn of a wait, also after the turn that brought the message. Where each rank
 * has a processor of its own, that call finds no thread to run and costs up to a microsecond: several times as long as
 * the message took. So one of UM_YIELD_EACH calls goes to the kernel. If that call takes so long that another thread
 * has run meanwhile, the processor is shared: then the next UM_YIELD_SHARED calls go to the kernel; the last
 * UM_YIELD_PROOF of them are timed, and if one lets another thread run, the count begins anew.
 *
 * On a shared processor, too, the call after a read that returned completions is left out: this thread does not wait.
 * To yield there costs two switches between threads, because the other one mostly waits for what this one does next.
 * But no more than UM_YIELD_EACH - 1 such calls in a row are left out: the other thread may have work of its own. In a
 * process that has had several threads none is: nothing tells which of them the completions were for.
 *
 * Owns: per thread three counts, the shortest time and the last tick; and the word that the provider writes
 * (yield_abi.h). Threading: any thread, any time.
 */
#include "base/atomic.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/yield_abi.h"
#include "base/yield_time.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    UM_YIELD_EACH = 32,
    UM_YIELD_SHARED = 256,
    UM_YIELD_PROOF = 16,
};

struct um_yield {
    uint32_t left;     /* calls that may still be left out */
    uint32_t shared;   /* calls that are still to go to the kernel, because the processor is shared */
    uint32_t spared;   /* how many calls in a row were left out while it is shared, because completions had come */
    uint64_t least_ns; /* the shortest call that was timed took this; at most UM_YIELD_LEAST_NS */
    uint64_t tick;     /* the coarse clock, ns, when the last call went to the kernel */
};

/* Initial-exec, so that a first use allocates nothing: signal handlers yield, too. */
static _Thread_local
    __attribute__((tls_model("initial-exec"))) struct um_yield um_yield = {.least_ns = UM_YIELD_LEAST_NS};

uint32_t unimem_yield_found;

/* Has a read returned completions since this was last asked? Clears the word. Where there are several threads the
 * answer is no, and the word stays as it is: they would take its cache line from each other. */
static bool found_take(void)
{
    if (!um_load_relaxed_u32(&unimem_yield_found) || !um_process_is_single_threaded())
        return false;
    um_store_relaxed_u32(&unimem_yield_found, 0);
    return true;
}

__attribute__((visibility("default"))) int sched_yield(void)
{
    struct um_yield *y = &um_yield;
    const uint64_t tick = um_clock_coarse_ns();
    if (y->left > 0 && tick == y->tick) { /* a thread that yields seldom makes a system call each time */
        y->left--;
        return 0;
    }
    const bool found = found_take();
    if (found && y->shared > 0 && y->spared < UM_YIELD_EACH - 1 && tick == y->tick) {
        y->spared++;
        return 0;
    }
    y->spared = 0;
    y->tick = tick;
    if (y->shared > UM_YIELD_PROOF) {
        y->shared--;
        return (int)syscall(SYS_sched_yield);
    }
    const uint64_t began = um_clock_ns();
    const int ret = (int)syscall(SYS_sched_yield);
    const uint64_t took = um_clock_ns() - began;
    if (um_yield_has_switched(&y->least_ns, took))
        y->shared = UM_YIELD_SHARED;
    else if (y->shared > 0)
        y->shared--;
    y->left = y->shared > 0 ? 0 : UM_YIELD_EACH - 1;
    return ret;
}
