/*
 * Deferred adoption. Moving memory with much contents takes as long as copying it twice, and most registrations are
 * never used enough to pay for that. Such regions begin at UM_LEVEL_COPY. Peers report the time that they would have
 * saved at UM_LEVEL_MAPPED (um_mem_window_use). When that reaches the cost of moving, or a peer has an operation that
 * needs the higher level (an atomic), a thread of this process moves the region, part by part. It is a thread because
 * the program may compute for any time without calling the provider.
 *
 * Owns: struct um_mem_deferred. Must not know how memory moves. Threading: the thread and the caller of the space's
 * functions share what the lock guards; a part moves without the lock.
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

static struct um_mem_uses_shm *uses_of(const struct um_mem_space *space)
{
    return (void *)(space->memory + UM_USES_OFFSET);
}

void um_mem_deferred_init(struct um_mem_space *space)
{
    pthread_mutex_init(&space->deferred.lock, NULL);
    pthread_cond_init(&space->deferred.idle, NULL);
    um_list_init(&space->deferred.regions);
}

/* ---- the thread ---- */

/* True if a peer needs the mapped level, or peers would have saved what moving the region costs (1 ns a byte, there and
 * back). */
static bool is_wanted(struct um_mem_space *space, struct um_mem_exported *exported)
{
    /* sync: use-look (partner use-told) */
    uint64_t used = um_load_acquire_u64(&uses_of(space)->saved_ns[exported->use]) - exported->use_from;
    if (um_load_acquire_u64(&space->shm->must) >> exported->use & 1)
        return true;
    if (used > 0 && exported->needs == 0)
        exported->needs = 1 + space->mapper->contents(space, exported->what.base, exported->what.len);
    return used > 0 && used >= exported->needs;
}

static struct um_mem_exported *next_wanted(struct um_mem_space *space)
{
    for (struct um_list *l = space->deferred.regions.next; l != &space->deferred.regions; l = l->next) {
        struct um_mem_exported *exported = UM_CONTAINER(l, struct um_mem_exported, deferred);
        if (is_wanted(space, exported))
            return exported;
    }
    return NULL;
}

void um_mem_deferred_give_back(struct um_mem_space *space, struct um_mem_exported *exported)
{
    if (exported->partial.place || exported->partial.done)
        space->mapper->partial_end(space, &exported->what, &exported->partial);
    if (exported->partial.done == 0)
        return;
    um_mem_own_move_begin();
    space->mapper->disown(space, exported->what.base, exported->partial.done);
    um_mem_own_move_end();
    exported->partial.done = 0;
}

/* Ends the wait of a region: it is mapped, or stays as it is. */
static void settle(struct um_mem_space *space, struct um_mem_exported *exported, bool mapped, const char *why)
{
    um_list_unlink(&exported->deferred);
    exported->is_deferred = false;
    exported->adopted = mapped;
    if (mapped) {
        space->mapper->partial_end(space, &exported->what, &exported->partial);
        exported->partial.done = 0; /* the whole region is one count now */
    } else {
        um_mem_deferred_give_back(space, exported);
    }
    um_mem_own_list(exported, mapped ? UM_LEVEL_MAPPED : UM_LEVEL_COPY, exported->what.counters);
    um_mem_exported_log(exported, why);
}

static void busy_wait(struct um_mem_deferred *later)
{
    const struct timespec time = {.tv_nsec = BUSY_WAIT_NS};
    pthread_mutex_unlock(&later->lock);
    nanosleep(&time, NULL);
    pthread_mutex_lock(&later->lock);
}

/* Moves the next part of a region. The lock is released meanwhile. */
static void part_move(struct um_mem_space *space, struct um_mem_exported *exported)
{
    struct um_mem_deferred *later = &space->deferred;
    const char *why = "";
    exported->moving = true;
    pthread_mutex_unlock(&later->lock);
    uint64_t start = um_clock_ns();
    um_mem_own_move_begin();
    int ret = space->mapper->adopt_more(space, &exported->what, &exported->partial, &exported->at, &why);
    um_mem_own_move_end();
    uint64_t cost = um_clock_ns() - start;
    pthread_mutex_lock(&later->lock);
    exported->moving = false;
    exported->cost_ns += cost;
    pthread_cond_broadcast(&later->idle);
    if (ret == 0 && exported->partial.done < exported->what.len)
        return;
    bool again = ret == -EBUSY && ++exported->tries < BUSY_TRIES; /* peers' transfers pin pages for a moment */
    if (!again) {
        settle(space, exported, ret == 0, ret ? why : "peers made use of it");
        um_mem_region_write(space, exported, true);
    } else
        busy_wait(later);
}

static void *later_run(void *arg)
{
    struct um_mem_space *space = arg;
    struct um_mem_deferred *later = &space->deferred;
    pthread_mutex_lock(&later->lock);
    while (!later->stop) {
        uint32_t asked = um_load_acquire_u32(&space->shm->asked); /* sync: use-look (partner use-told): before a look */
        struct um_mem_exported *exported = next_wanted(space);
        if (exported) {
            part_move(space, exported);
            continue;
        }
        /* Peers can write the word, and move the sleep to another: that must not hold up who waits for the thread. */
        static const struct timespec most = {.tv_sec = 1};
        pthread_mutex_unlock(&later->lock);
        syscall(SYS_futex, &space->shm->asked, FUTEX_WAIT, asked, &most, NULL, 0);
        pthread_mutex_lock(&later->lock);
    }
    pthread_mutex_unlock(&later->lock);
    return NULL;
}

/* Starts the thread, unless it runs. The application handles signals: the thread takes none. Lock held. */
static bool thread_start(struct um_mem_space *space)
{
    struct um_mem_deferred *later = &space->deferred;
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

bool um_mem_deferred_pause(struct um_mem_space *space)
{
    struct um_mem_deferred *later = &space->deferred;
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

void um_mem_deferred_resume(struct um_mem_space *space)
{
    pthread_mutex_lock(&space->deferred.lock);
    bool runs = um_list_is_empty(&space->deferred.regions) || thread_start(space);
    struct um_list *first;
    while (!runs && (first = um_list_first(&space->deferred.regions)) != NULL) {
        struct um_mem_exported *exported = UM_CONTAINER(first, struct um_mem_exported, deferred);
        settle(space, exported, false, "there is no thread to move it");
        um_mem_region_write(space, exported, true); /* peers that wait for the level ask the owner instead */
    }
    pthread_mutex_unlock(&space->deferred.lock);
    if (!runs)
        um_log(
            UM_LOG_WARN,
            "no thread can be made to move memory, which stays where it is: raise the limit of processes (ulimit -u)");
}

void um_mem_deferred_fini(struct um_mem_space *space)
{
    um_mem_deferred_pause(space);
    pthread_cond_destroy(&space->deferred.idle);
    pthread_mutex_destroy(&space->deferred.lock);
}

/* ---- regions ---- */

bool um_mem_deferred_take(struct um_mem_space *space, struct um_mem_exported *exported)
{
    struct um_mem_deferred *later = &space->deferred;
    const struct um_region_desc *what = &exported->what;
    if (!space->mapper->can_wait || !(what->access & UM_ACCESS_REMOTE_WRITE) ||
        !space->mapper->can_wait(space, what->base, what->len))
        return false;
    pthread_mutex_lock(&later->lock);
    bool taken = thread_start(space);
    if (taken) {
        exported->use = later->next++ % UM_USES;
        exported->use_from = um_load_relaxed_u64(&uses_of(space)->saved_ns[exported->use]);
        um_rmw_and_u64(&space->shm->must, ~(UINT64_C(1) << exported->use)); /* sync: none (peers do not know it yet) */
        exported->is_deferred = true;
    }
    pthread_mutex_unlock(&later->lock);
    return taken;
}

void um_mem_deferred_begin(struct um_mem_space *space, struct um_mem_exported *exported)
{
    if (exported->is_deferred)
        um_list_append(&space->deferred.regions, &exported->deferred);
}

void um_mem_deferred_end(struct um_mem_space *space, struct um_mem_exported *exported)
{
    struct um_mem_deferred *later = &space->deferred;
    pthread_mutex_lock(&later->lock);
    if (exported->is_deferred)
        um_list_unlink(&exported->deferred); /* first: no part is begun after the one that is moving */
    exported->is_deferred = false;
    while (exported->moving)
        pthread_cond_wait(&later->idle, &later->lock);
    pthread_mutex_unlock(&later->lock);
}
