/*
 * Deferred adoption. Moving memory with much contents takes as long as copying it twice, and most registrations are
 * never used enough to pay for that. Such regions begin at UM_LEVEL_COPY. Peers report the time that they would have
 * saved at UM_LEVEL_MAPPED (um_mem_window_use). When that reaches the cost of moving, or a peer has an operation that
 * needs the higher level (an atomic), a thread of this process moves the region, part by part. It is a thread because
 * the program may compute for any time without calling the provider.
 *
 * Owns: struct um_later. Must not know how memory moves. Threading: the thread and the caller of the space's functions
 * share what the lock is for; a part moves without the lock.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BUSY_TRIES = 50, BUSY_WAIT_NS = 10000000, STACK = 256 << 10 };

static struct um_uses_shm *uses_of(const struct um_mem_space *space)
{
    return (void *)(space->memory + UM_USES_OFFSET);
}

void um_later_init(struct um_mem_space *space)
{
    pthread_mutex_init(&space->later.lock, NULL);
    pthread_cond_init(&space->later.idle, NULL);
    um_list_init(&space->later.regions);
}

/* ---- the thread ---- */

/* Does a peer need the level, or have peers used the region as much as moving it costs (1 ns a byte, there and back)?
 */
static bool is_wanted(struct um_mem_space *space, struct um_mem_exposed *exposed)
{
    /* sync: use-look (partner use-told) */
    uint64_t used = um_load_acquire_u64(&uses_of(space)->saved_ns[exposed->use]) - exposed->use_from;
    if (um_load_acquire_u64(&space->shm->must) >> exposed->use & 1)
        return true;
    if (used > 0 && exposed->needs == 0)
        exposed->needs = 1 + space->mapper->contents(space, exposed->what.base, exposed->what.len);
    return used > 0 && used >= exposed->needs;
}

static struct um_mem_exposed *next_wanted(struct um_mem_space *space)
{
    for (struct um_list *l = space->later.regions.next; l != &space->later.regions; l = l->next) {
        struct um_mem_exposed *exposed = UM_CONTAINER(l, struct um_mem_exposed, later);
        if (is_wanted(space, exposed))
            return exposed;
    }
    return NULL;
}

void um_later_give_back(struct um_mem_space *space, struct um_mem_exposed *exposed)
{
    if (exposed->partial.place || exposed->partial.done)
        space->mapper->partial_end(space, &exposed->what, &exposed->partial);
    if (exposed->partial.done == 0)
        return;
    um_mem_own_move_begin();
    space->mapper->disown(space, exposed->what.base, exposed->partial.done);
    um_mem_own_move_end();
    exposed->partial.done = 0;
}

/* Ends the wait of a region: it is mapped, or stays as it is. */
static void settle(struct um_mem_space *space, struct um_mem_exposed *exposed, bool mapped, const char *why)
{
    um_list_unlink(&exposed->later);
    exposed->is_later = false;
    exposed->adopted = mapped;
    if (mapped) {
        space->mapper->partial_end(space, &exposed->what, &exposed->partial);
        exposed->partial.done = 0; /* all of it is one count of its own */
    } else {
        um_later_give_back(space, exposed);
    }
    um_mem_own_list(exposed, mapped ? UM_LEVEL_MAPPED : UM_LEVEL_COPY, exposed->what.counters);
    um_mem_exposed_log(exposed, why);
}

static void busy_wait(struct um_later *later)
{
    const struct timespec time = {.tv_nsec = BUSY_WAIT_NS};
    pthread_mutex_unlock(&later->lock);
    nanosleep(&time, NULL);
    pthread_mutex_lock(&later->lock);
}

/* Moves a part, without the lock. */
static void part_move(struct um_mem_space *space, struct um_mem_exposed *exposed)
{
    struct um_later *later = &space->later;
    const char *why = "";
    exposed->moving = true;
    pthread_mutex_unlock(&later->lock);
    uint64_t start = um_clock_ns();
    um_mem_own_move_begin();
    int ret = space->mapper->adopt_more(space, &exposed->what, &exposed->partial, &exposed->at, &why);
    um_mem_own_move_end();
    uint64_t cost = um_clock_ns() - start;
    pthread_mutex_lock(&later->lock);
    exposed->moving = false;
    exposed->cost_ns += cost;
    pthread_cond_broadcast(&later->idle);
    if (ret == 0 && exposed->partial.done < exposed->what.len)
        return;
    bool again = ret == -EBUSY && ++exposed->tries < BUSY_TRIES; /* peers' transfers pin pages for a moment */
    if (!again) {
        settle(space, exposed, ret == 0, ret ? why : "peers made use of it");
        um_mem_region_write(space, exposed, true);
    } else
        busy_wait(later);
}

static void *later_run(void *arg)
{
    struct um_mem_space *space = arg;
    struct um_later *later = &space->later;
    pthread_mutex_lock(&later->lock);
    while (!later->stop) {
        uint32_t asked = um_load_acquire_u32(&space->shm->asked); /* sync: use-look (partner use-told): before a look */
        struct um_mem_exposed *exposed = next_wanted(space);
        if (exposed) {
            part_move(space, exposed);
            continue;
        }
        pthread_mutex_unlock(&later->lock);
        syscall(SYS_futex, &space->shm->asked, FUTEX_WAIT, asked, NULL, NULL, 0);
        pthread_mutex_lock(&later->lock);
    }
    pthread_mutex_unlock(&later->lock);
    return NULL;
}

/* The application handles signals: the thread takes none. Lock held. */
static bool thread_start(struct um_mem_space *space)
{
    struct um_later *later = &space->later;
    sigset_t all, before;
    pthread_attr_t attr;
    if (later->pid == getpid())
        return true;
    if (pthread_attr_init(&attr) != 0)
        return false;
    pthread_attr_setstacksize(&attr, STACK);
    later->stop = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&later->thread, &attr, later_run, space);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    later->pid = error ? 0 : getpid();
    return !error;
}

bool um_later_pause(struct um_mem_space *space)
{
    struct um_later *later = &space->later;
    if (later->pid == 0 || later->pid != getpid())
        return false;
    pthread_mutex_lock(&later->lock);
    later->stop = true;
    um_rmw_add_u32(&space->shm->asked, 1); /* sync: none (the lock orders; it ends the sleep) */
    syscall(SYS_futex, &space->shm->asked, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    pthread_mutex_unlock(&later->lock);
    pthread_join(later->thread, NULL);
    later->pid = 0;
    return true;
}

void um_later_resume(struct um_mem_space *space)
{
    pthread_mutex_lock(&space->later.lock);
    bool runs = um_list_is_empty(&space->later.regions) || thread_start(space);
    struct um_list *first;
    while (!runs && (first = um_list_first(&space->later.regions)) != NULL) {
        struct um_mem_exposed *exposed = UM_CONTAINER(first, struct um_mem_exposed, later);
        settle(space, exposed, false, "there is no thread to move it");
        um_mem_region_write(space, exposed, true); /* peers that wait for the level ask the owner instead */
    }
    pthread_mutex_unlock(&space->later.lock);
    if (!runs)
        um_log(
            UM_LOG_WARN,
            "no thread can be made to move memory, which stays where it is: raise the limit of processes (ulimit -u)");
}

void um_later_fini(struct um_mem_space *space)
{
    um_later_pause(space);
    pthread_cond_destroy(&space->later.idle);
    pthread_mutex_destroy(&space->later.lock);
}

/* ---- regions ---- */

bool um_later_take(struct um_mem_space *space, struct um_mem_exposed *exposed)
{
    struct um_later *later = &space->later;
    const struct um_exposure *what = &exposed->what;
    if (!space->mapper->can_wait || !(what->access & UM_ACCESS_REMOTE_WRITE) ||
        !space->mapper->can_wait(space, what->base, what->len))
        return false;
    pthread_mutex_lock(&later->lock);
    bool taken = thread_start(space);
    if (taken) {
        exposed->use = later->next++ % UM_USES;
        exposed->use_from = um_load_relaxed_u64(&uses_of(space)->saved_ns[exposed->use]);
        um_rmw_and_u64(&space->shm->must, ~(UINT64_C(1) << exposed->use)); /* sync: none (peers do not know it yet) */
        exposed->is_later = true;
    }
    pthread_mutex_unlock(&later->lock);
    return taken;
}

void um_later_begin(struct um_mem_space *space, struct um_mem_exposed *exposed)
{
    if (exposed->is_later)
        um_list_append(&space->later.regions, &exposed->later);
}

void um_later_end(struct um_mem_space *space, struct um_mem_exposed *exposed)
{
    struct um_later *later = &space->later;
    pthread_mutex_lock(&later->lock);
    while (exposed->moving)
        pthread_cond_wait(&later->idle, &later->lock);
    if (exposed->is_later)
        um_list_unlink(&exposed->later);
    exposed->is_later = false;
    pthread_mutex_unlock(&later->lock);
}
