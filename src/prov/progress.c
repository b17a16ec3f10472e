/*
 * The progress thread of a domain that was opened with FI_PROGRESS_AUTO.
 *
 * Owns: struct um_prov_progress. Must not know what progress does.
 * Threading: the thread holds the domain lock while it works and sleeps without it; it is the only one that arms the
 * endpoints of its domain.
 */
#include "prov/prov.h"

#include "base/process.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    UM_PROGRESS_GONE_TRIES = 10000,
    UM_PROGRESS_FULL_MS =
        1, /* between two looks while a queue is very full: to read it takes the application as long */
};

struct um_prov_progress {
    struct um_prov_event_source source;
    pthread_t thread;
    bool stop;
};

/* Is there work that has to wait until the application reads a queue? */
static bool um_prov_progress_is_full_locked(const struct um_prov_progress *p)
{
    for (size_t i = 0; i < p->source.eps.count; i++) {
        const struct um_prov_cq *cq = p->source.eps.eps[i]->rx_cq;
        if (cq && um_prov_cq_is_full_locked(cq))
            return true;
    }
    return false;
}

static void *um_prov_progress_run(void *arg)
{
    struct um_prov_progress *p = arg;
    struct um_prov_domain_mutex *g = &p->source.domain->lock;
    um_prov_domain_lock(g);
    while (!p->stop) {
        const bool has_moved = um_prov_source_progress_locked(&p->source);
        um_prov_cntrs_tell_locked(p->source.domain);
        /* -FI_EAGAIN: there is work already. Let the application's threads run in between. */
        if (um_prov_source_sleep_locked(&p->source, -1, PTHREAD_CANCEL_DISABLE) == -FI_EAGAIN) {
            const bool is_full = !has_moved && um_prov_progress_is_full_locked(p);
            um_prov_domain_unlock(g);
            if (is_full)
                (void)um_prov_poll(-1, UM_PROGRESS_FULL_MS, PTHREAD_CANCEL_DISABLE);
            um_prov_domain_lock(g);
        }
    }
    um_prov_domain_unlock(g);
    return NULL;
}

/* Peers add to counters without sending a record that progress would see. */
static bool um_prov_progress_has_news(const struct um_prov_event_source *s)
{
    return um_prov_cntrs_have_news_locked(s->domain);
}

/* The application's threads handle signals: this one takes only those of its own faults (fault guards). */
static int um_prov_progress_spawn(struct um_prov_progress *p)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&p->thread, NULL, um_prov_progress_run, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == EAGAIN ? -ENOMEM : -error; /* a caller that tries again at once meets the same limit of threads */
}

int um_prov_progress_start(struct um_prov_domain *d)
{
    struct um_prov_progress *p = calloc(1, sizeof(*p));
    if (!p)
        return -FI_ENOMEM;
    int ret = um_prov_source_init(&p->source, d, FI_WAIT_UNSPEC);
    p->source.has_news = um_prov_progress_has_news;
    if (ret == 0 && (ret = um_prov_error_result(um_prov_progress_spawn(p))) != 0)
        um_prov_source_fini(&p->source);
    if (ret) {
        free(p);
        return ret;
    }
    d->progress = p; /* from now on the domain's other sources leave arming to the thread */
    return 0;
}

static void um_prov_progress_join(struct um_prov_progress *p)
{
    struct um_prov_domain *d = p->source.domain;
    um_prov_domain_lock(&d->lock);
    p->stop = true;
    um_prov_waiter_wake(&p->source.waiter);
    um_prov_domain_unlock(&d->lock);
    pthread_join(p->thread, NULL);
}

static int um_prov_process_threads(void)
{
    struct um_process_stat stat;
    return um_process_stat_read((uint32_t)getpid(), &stat) == 0 ? stat.threads : 0;
}

bool um_prov_progress_pause(struct um_prov_domain *d)
{
    if (!d->progress || um_prov_process_threads() != 2)
        return false;
    um_prov_progress_join(d->progress);
    /* The kernel forgets the thread a moment after it was joined. */
    for (int i = 0; i < UM_PROGRESS_GONE_TRIES && um_prov_process_threads() != 1; i++)
        sched_yield();
    return true;
}

int um_prov_progress_resume(struct um_prov_domain *d)
{
    d->progress->stop = false;
    int ret = um_prov_error_result(um_prov_progress_spawn(d->progress));
    if (ret == 0)
        return 0;
    struct um_prov_progress *p =
        d->progress; /* no thread: the domain goes on without one, and the caller gets the error */
    d->progress = NULL;
    um_prov_source_fini(&p->source);
    free(p);
    return ret;
}

void um_prov_progress_stop(struct um_prov_domain *d)
{
    struct um_prov_progress *p = d->progress;
    if (!p)
        return;
    um_prov_progress_join(p);
    d->progress = NULL;
    um_prov_source_fini(&p->source);
    free(p);
}

int um_prov_progress_add_locked(struct um_prov_domain *d, struct um_prov_ep *ep)
{
    return d->progress ? um_prov_source_add_locked(&d->progress->source, ep) : 0;
}

void um_prov_progress_remove_locked(struct um_prov_domain *d, struct um_prov_ep *ep)
{
    if (d->progress)
        um_prov_source_remove_locked(&d->progress->source, ep);
}
