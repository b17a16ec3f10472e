/*
 * A lock in shared memory that outlives its holder: a robust mutex of glibc's, shared between processes.
 *
 * Apart from the atomic words of emu/clock.h, the emulator uses no other means of ordering: what is shared is read and
 * written under such a lock. The process that takes over from a dead holder finds a consistent structure, because every
 * writer keeps it consistent at each step (emu/mailbox.c moves the tail last). A stopped holder (SIGSTOP) blocks the
 * other processes. Source: pthread_mutexattr_setrobust(3). Threading: any.
 */
#ifndef UNIMEM_EMU_LOCK_H
#define UNIMEM_EMU_LOCK_H

#include <errno.h>
#include <pthread.h>

struct emu_lock_shm {
    pthread_mutex_t mutex;
};

/* 0 or a negative errno. */
static inline int emu_lock_init(struct emu_lock_shm *lock)
{
    pthread_mutexattr_t attr;
    int ret = pthread_mutexattr_init(&attr);
    if (!ret)
        ret = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (!ret)
        ret = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    if (!ret)
        ret = pthread_mutex_init(&lock->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    return -ret;
}

static inline void emu_lock_take(struct emu_lock_shm *lock)
{
    if (pthread_mutex_lock(&lock->mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&lock->mutex);
}

static inline void emu_lock_give(struct emu_lock_shm *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}

/*
 * Orders the stores before it and after it for a process that takes over from a dead holder. A compiler barrier
 * suffices: all stores of a dead process are visible before its lock is passed on.
 */
static inline void emu_lock_step(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

#endif
