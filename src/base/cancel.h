/*
 * Cancellation of threads (pthread_cancel(3)). Many system calls are cancellation points. A thread that is cancelled in
 * a call of this library would leave locks held, descriptors open and data structures half written.
 *
 * Therefore code that makes such calls runs with cancellation disabled: the entry points of prov that are off the data
 * path, and the slow functions below those that are on it. Only blocking calls can be cancelled, while they sleep
 * (prov/wait.h). A pending cancellation takes effect at the caller's next cancellation point. Source: pthreads(7).
 * Threading: any thread, for itself.
 */
#ifndef UM_BASE_CANCEL_H
#define UM_BASE_CANCEL_H

#include <pthread.h>

#if __has_include(<sys/single_threaded.h>) /* glibc from 2.32 on */
#include <sys/single_threaded.h>
#define UM_HAS_ONE_THREAD __libc_single_threaded
#else
#define UM_HAS_ONE_THREAD 0
#endif

static inline int um_cancel_disable(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void um_cancel_restore(const int *before)
{
    pthread_setcancelstate(*before, NULL);
}

/* A declaration: the thread cannot be cancelled until the end of the block. Nests. Not for the data path: leaving the
 * block costs a locked instruction. */
#define UM_UNCANCELLED                                                                                                 \
    __attribute__((cleanup(um_cancel_restore), unused)) const int um_cancel_before = um_cancel_disable()

static inline int um_cancel_disable_among_threads(void)
{
    return UM_HAS_ONE_THREAD ? -1 : um_cancel_disable();
}

static inline void um_cancel_restore_among_threads(const int *before)
{
    if (*before >= 0)
        um_cancel_restore(before);
}

/* The same for the data path: in a process of one thread nothing is disabled. If that thread has cancelled itself, it
 * may end inside the block, and the process with it; then only exit handlers still run. */
#define UM_UNCANCELLED_AMONG_THREADS                                                                                   \
    __attribute__((cleanup(um_cancel_restore_among_threads), unused)) const int um_cancel_before =                     \
        um_cancel_disable_among_threads()

#endif
