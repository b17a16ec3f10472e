/*
 * Cancellation of threads (pthread_cancel(3)). Many system calls are points of cancellation: a thread that ended in one
 * of ours would leave locks held, descriptors open and books half written.
 *
 * So whatever makes such calls runs with cancellation disabled: the entries of prov that are off the data path, and,
 * below those that are on it, the slow functions that make them. Only blocking calls can be cancelled, while they
 * sleep (prov/wait.h). What is pending takes effect at the caller's next point of cancellation. Source: pthreads(7).
 * Threading: any thread, for itself.
 */
#ifndef UM_BASE_CANCEL_H
#define UM_BASE_CANCEL_H

#include <pthread.h>

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

/* A declaration: up to the end of the block the thread cannot be cancelled. Nests. Not for the data path: each end
 * costs a locked instruction. */
#define UM_UNCANCELLED                                                                                                 \
    __attribute__((cleanup(um_cancel_restore), unused)) const int um_cancel_before = um_cancel_disable()

#endif
