/*
 * The domain lock: control calls against data transfer calls of a domain with FI_THREAD_DOMAIN.
 *
 * A data transfer call stores that it runs and looks at the gate; a control call shuts the gate and looks whether a
 * call runs. Neither may see the state before the other one's store, so a full fence belongs between the store and the
 * load on both sides. The data transfer call leaves its own out: membarrier(2) of the control call makes all threads of
 * the process execute one. Where the system refuses membarrier, data transfer calls take the mutex.
 */
#include "prov/prov.h"

#include "base/log.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    UM_CONTROL_YIELDS = 100, /* before a control call sleeps: the other thread may have a lower priority */
    UM_CONTROL_PAUSES = 20,  /* after these it goes ahead of a data transfer call that waits */
};

static bool um_prov_barrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void um_prov_domain_lock_init(struct um_prov_domain_mutex *g, bool serial)
{
    pthread_mutex_init(&g->mutex, NULL);
    g->gate = serial && um_prov_barrier_register() ? 0 : UM_GATE_MUTEX;
    g->moving = 0;
    g->queued = 0;
}

void um_prov_domain_lock_fini(struct um_prov_domain_mutex *g)
{
    pthread_mutex_destroy(&g->mutex);
}

void um_prov_domain_lock_slow(struct um_prov_domain_mutex *g)
{
    if (um_prov_domain_is_shared(g)) {
        pthread_mutex_lock(&g->mutex);
        return;
    }
    um_prov_domain_leave(g);
    um_store_relaxed_u32(&g->queued, 1);
    pthread_mutex_lock(&g->mutex); /* until the control calls are over; none begins before the next line */
    um_store_relaxed_u32(&g->queued, 0);
    um_store_relaxed_u32(&g->moving, 1);
    pthread_mutex_unlock(&g->mutex);
}

static void um_prov_pause(long ns)
{
    const struct timespec time = {.tv_nsec = ns};
    nanosleep(&time, NULL);
}

/* Makes all threads of the process execute a full fence. If the system has come to refuse that (a filter of system
 * calls), a pause gives their stores the time to become visible. */
static void um_prov_barrier(void)
{
    static struct um_log_limit refused;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return;
    um_log_limited(&refused, UM_LOG_WARN,
                   "membarrier is refused since the domain was opened: calls such as fi_mr_reg "
                   "take a millisecond longer");
    um_fence_full(); /* sync: none (refused: the pause stands for the others' fences) */
    um_prov_pause(1000000);
}

/* i: how often the caller has waited already. */
static void um_prov_control_wait(int i)
{
    if (i < UM_CONTROL_YIELDS)
        sched_yield();
    else
        um_prov_pause(50000);
}

/* Lets a data transfer call that waits for the mutex have it first: a thread that makes one control call after the
 * other would otherwise take it again each time. */
static void um_prov_let_pass(const struct um_prov_domain_mutex *g)
{
    for (int i = 0; um_load_relaxed_u32(&g->queued) && i < UM_CONTROL_YIELDS + UM_CONTROL_PAUSES; i++)
        um_prov_control_wait(i);
}

void um_prov_control_lock(struct um_prov_domain_mutex *g)
{
    um_prov_let_pass(g);
    pthread_mutex_lock(&g->mutex);
    if (um_prov_domain_is_shared(g))
        return;
    um_store_relaxed_u32(&g->gate, UM_GATE_CONTROL);
    um_prov_barrier();
    /* sync: control-begin (partner control-wait) */
    for (int i = 0; um_load_acquire_u32(&g->moving); i++)
        um_prov_control_wait(i);
}

void um_prov_control_unlock(struct um_prov_domain_mutex *g)
{
    if (!um_prov_domain_is_shared(g))
        um_store_release_u32(&g->gate, 0); /* sync: control-leave (partner control-end) */
    pthread_mutex_unlock(&g->mutex);
}
