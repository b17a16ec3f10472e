/*
 * Sleeping on a queue or counter: the wait object, and the set of endpoints behind it.
 *
 * Owns: struct um_prov_waiter and struct um_prov_event_source. Must not know what a queue holds.
 * Threading: *_locked under the domain lock, which um_prov_source_sleep_locked() releases while it sleeps.
 *
 * A sleeper arms every endpoint of the set, so that a peer makes their wait fds readable, and sleeps in an epoll set
 * over those fds. Events of this process (another thread's call completes something) come through an eventfd.
 * The endpoints bound the length of a sleep (um_core_ep_sleep_max): a peer that dies wakes nobody, and some machines
 * wake nobody at all. A blocking call makes progress after that time. If the application waits on the fd, a timer in
 * the set makes the fd readable.
 *
 * A blocking call goes through stages: it spins for about as long as going to sleep and waking up would take; then, if
 * the event is a store to one known line and the processor can wait for that (base/cpu_wait.h), it rests at the line;
 * then it sleeps. It polls between rounds, and going to sleep arms and polls once more, so spinning and resting may
 * miss events. Where ranks outnumber processors it sleeps at once.
 */
#include "prov/prov.h"

#include "base/atomic.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/cpu_wait.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    UM_WAIT_SPIN_NS = 5000, /* waking up takes about that */
    UM_WAIT_SPIN_LOOK = 16, /* rounds between two looks at the clock */
    UM_UNARMED_MS = 2,
    UM_REST_NS = 50000, /* the system counts a rest as work: with five wake-ups a second, far below 1 % of a core */
};

uint64_t um_prov_deadline(int ms)
{
    return ms < 0 ? UINT64_MAX : um_clock_ns() + (uint64_t)ms * 1000000u;
}

int um_prov_deadline_left(uint64_t deadline)
{
    if (deadline == UINT64_MAX)
        return -1;
    uint64_t now = um_clock_ns();
    return now >= deadline ? 0 : (int)((deadline - now + 999999u) / 1000000u);
}

/* ---- the wait object ---- */

static int um_prov_waiter_watch(const struct um_prov_waiter *w, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(w->poll_fd, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST ? 0 : -errno;
}

void um_prov_waiter_close(struct um_prov_waiter *w)
{
    UM_UNCANCELLED;
    int fds[] = {w->timer_fd, w->wake_fd, w->poll_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    w->poll_fd = w->wake_fd = w->timer_fd = -1;
}

int um_prov_waiter_open(struct um_prov_waiter *w)
{
    UM_UNCANCELLED;
    if (w->poll_fd >= 0)
        return 0;
    w->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int ret = w->poll_fd < 0 || w->wake_fd < 0 || w->timer_fd < 0 ? -errno : um_prov_waiter_watch(w, w->wake_fd);
    if (ret == 0)
        ret = um_prov_waiter_watch(w, w->timer_fd);
    if (ret)
        um_prov_waiter_close(w);
    return um_prov_error_result(ret);
}

void um_prov_waiter_wake(struct um_prov_waiter *w)
{
    UM_UNCANCELLED;
    uint64_t one = 1;
    if (write(w->wake_fd, &one, sizeof(one)) < 0)
        return; /* full: it is readable anyway */
}

void um_prov_waiter_drain(struct um_prov_waiter *w)
{
    UM_UNCANCELLED;
    uint64_t count;
    if (read(w->wake_fd, &count, sizeof(count)) < 0)
        return; /* empty */
}

static void um_prov_waiter_set_timer(struct um_prov_waiter *w, long ms)
{
    struct itimerspec when = {.it_interval.tv_nsec = ms * 1000000, .it_value.tv_nsec = ms * 1000000};
    timerfd_settime(w->timer_fd, 0, &when, NULL);
}

int um_prov_poll(int fd, int ms, int cancel_state)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    pthread_setcancelstate(cancel_state, NULL);
    int ret = poll(&pfd, 1, ms) < 0 && errno == EINTR ? -FI_EINTR : 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return ret;
}

/* ---- the set of endpoints ---- */

int um_prov_source_init(struct um_prov_event_source *s, struct um_prov_domain *d, enum fi_wait_obj obj)
{
    *s = (struct um_prov_event_source){.domain = d, .arms = !d->progress};
    if (obj != FI_WAIT_NONE)
        um_store_relaxed_u32(&d->wait_objects, 1);
    s->waiter = (struct um_prov_waiter){.obj = obj, .poll_fd = -1, .wake_fd = -1, .timer_fd = -1};
    switch (obj) {
    case FI_WAIT_NONE:
    case FI_WAIT_YIELD:
        return 0; /* opened at the first sleep */
    case FI_WAIT_UNSPEC:
    case FI_WAIT_FD:
        return um_prov_waiter_open(&s->waiter);
    default:
        return -FI_ENOSYS;
    }
}

void um_prov_source_fini(struct um_prov_event_source *s)
{
    um_prov_waiter_close(&s->waiter);
    free(s->eps.eps);
}

static int um_prov_source_watch_ep(struct um_prov_event_source *s, struct um_prov_ep *ep)
{
    if (!s->arms || s->waiter.poll_fd < 0 || !ep->core)
        return 0;
    int fd = um_core_ep_wait_fd(ep->core);
    return fd < 0 ? 0 : um_prov_waiter_watch(&s->waiter, fd);
}

/* Arms the new endpoint for the threads that sleep now, and wakes them, so that they look at it first. */
static void um_prov_source_catch_up(struct um_prov_event_source *s, struct um_prov_ep *ep)
{
    for (uint32_t i = 0; s->arms && i < s->waiter.sleepers; i++)
        (void)um_prov_ep_arm_locked(ep);
    um_prov_waiter_signal(&s->waiter);
}

int um_prov_source_add_locked(struct um_prov_event_source *s, struct um_prov_ep *ep)
{
    struct um_prov_ep_set *set = &s->eps;
    for (size_t i = 0; i < set->count; i++) {
        if (set->eps[i] == ep) /* perhaps added before it was enabled; watching it twice does no harm */
            return um_prov_error_result(um_prov_source_watch_ep(s, ep));
    }
    if (set->count == set->room) {
        size_t room = set->room ? 2 * set->room : 1;
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers */
        struct um_prov_ep **eps = realloc(set->eps, room * sizeof(*eps));
        if (!eps)
            return -FI_ENOMEM;
        set->eps = eps;
        set->room = room;
    }
    int ret = um_prov_source_watch_ep(s, ep);
    if (ret)
        return um_prov_error_result(ret);
    set->eps[set->count++] = ep;
    um_prov_source_catch_up(s, ep);
    return 0;
}

void um_prov_source_remove_locked(struct um_prov_event_source *s, struct um_prov_ep *ep)
{
    struct um_prov_ep_set *set = &s->eps;
    for (size_t i = 0; i < set->count; i++) {
        if (set->eps[i] != ep)
            continue;
        set->eps[i] = set->eps[--set->count];
        if (s->arms && s->waiter.poll_fd >= 0 && ep->core)
            epoll_ctl(s->waiter.poll_fd, EPOLL_CTL_DEL, um_core_ep_wait_fd(ep->core), NULL);
        return;
    }
}

void um_prov_source_enabled_locked(struct um_prov_event_source *s, struct um_prov_ep *ep)
{
    (void)um_prov_source_watch_ep(s, ep);
    um_prov_waiter_signal(&s->waiter);
}

static void um_prov_source_disarm_eps(struct um_prov_event_source *s)
{
    for (size_t i = 0; s->arms && i < s->eps.count; i++)
        um_prov_ep_disarm_locked(s->eps.eps[i]);
}

static int um_prov_source_arm_eps(struct um_prov_event_source *s)
{
    int ret = 0;
    for (size_t i = 0; s->arms && i < s->eps.count; i++)
        ret |= um_prov_ep_arm_locked(s->eps.eps[i]);
    if (ret == 0 && s->has_news && s->has_news(s))
        ret = -EAGAIN;
    if (ret)
        um_prov_source_disarm_eps(s);
    return ret ? -FI_EAGAIN : 0;
}

/* Returns the longest sleep that the endpoints allow, in ms; -1: no limit. */
static int um_prov_source_sleep_max(const struct um_prov_event_source *s)
{
    int most = -1;
    for (size_t i = 0; s->arms && i < s->eps.count; i++) {
        int ms = s->eps.eps[i]->core ? um_core_ep_sleep_max(s->eps.eps[i]->core) : -1;
        if (ms >= 0 && (most < 0 || ms < most))
            most = ms;
    }
    return most;
}

/* Opens the wait object if it is not open. */
static int um_prov_source_ensure(struct um_prov_event_source *s)
{
    if (s->waiter.poll_fd >= 0)
        return 0;
    int ret = um_prov_waiter_open(&s->waiter);
    for (size_t i = 0; ret == 0 && i < s->eps.count; i++)
        ret = um_prov_error_result(um_prov_source_watch_ep(s, s->eps.eps[i]));
    return ret;
}

int um_prov_source_arm_locked(struct um_prov_event_source *s)
{
    int ret = um_prov_source_ensure(s);
    if (ret || s->waiter.armed)
        return ret;
    ret = um_prov_source_arm_eps(s);
    if (ret)
        return ret;
    s->waiter.armed = true;
    s->waiter.sleepers++;
    ret = um_prov_source_sleep_max(s);
    if (ret > 0)
        um_prov_waiter_set_timer(&s->waiter, ret);
    return 0;
}

void um_prov_source_disarm_locked(struct um_prov_event_source *s)
{
    if (!s->waiter.armed)
        return;
    s->waiter.armed = false;
    s->waiter.sleepers--;
    um_prov_source_disarm_eps(s);
    um_prov_waiter_set_timer(&s->waiter, 0);
    if (!s->waiter.sleepers)
        um_prov_waiter_drain(&s->waiter);
}

/*
 * Ends a sleep. Only the last sleeper drains the fd: else the others that were woken would find it empty and sleep on.
 */
static void um_prov_source_wake_locked(struct um_prov_event_source *s)
{
    um_prov_source_disarm_eps(s);
    if (--s->waiter.sleepers == 0)
        um_prov_waiter_drain(&s->waiter);
}

static void um_prov_source_cancelled(void *arg)
{
    struct um_prov_event_source *s = arg;
    um_prov_domain_lock(&s->domain->lock);
    um_prov_source_wake_locked(s);
    um_prov_domain_unlock(&s->domain->lock);
}

static int um_prov_source_poll(struct um_prov_event_source *s, int ms, int cancel_state)
{
    int ret;
    pthread_cleanup_push(um_prov_source_cancelled, s);
    ret = um_prov_poll(s->waiter.poll_fd, ms, cancel_state);
    pthread_cleanup_pop(0);
    return ret;
}

int um_prov_source_sleep_locked(struct um_prov_event_source *s, int ms, int cancel_state)
{
    int ret = um_prov_source_ensure(s);
    if (ret == 0)
        ret = um_prov_source_arm_eps(s);
    if (ret)
        return ret;
    int most = um_prov_source_sleep_max(s);
    if (__builtin_expect(!s->arms && !s->domain->progress, 0)) /* the thread could not be restarted: nobody arms */
        most = UM_UNARMED_MS;
    if (most >= 0 && (ms < 0 || ms > most))
        ms = most;
    s->waiter.sleepers++;
    um_prov_domain_unlock(&s->domain->lock);
    ret = um_prov_source_poll(s, ms, cancel_state);
    um_prov_domain_lock(&s->domain->lock);
    um_prov_source_wake_locked(s);
    return ret;
}

bool um_prov_source_has_processors(const struct um_prov_event_source *s)
{
    uint64_t ranks = 0;
    for (size_t i = 0; i < s->eps.count; i++) {
        const struct um_prov_av *av = s->eps.eps[i]->av;
        ranks = av && av->count > ranks ? av->count : ranks;
    }
    return ranks <= s->domain->processors;
}

/* Finds the one word whose change is the next event. False: there is none, or there are several. */
static bool um_prov_source_find_line(const struct um_prov_event_source *s, const uint64_t **line_p, uint64_t *value_p)
{
    const uint64_t *line = s->watched ? s->watched(s, value_p) : NULL;
    for (size_t i = 0; i < s->eps.count; i++) {
        const uint64_t *next;
        int lines = s->eps.eps[i]->core ? um_core_ep_watch_line(s->eps.eps[i]->core, &next, value_p) : 0;
        if (lines < 0 || (lines > 0 && line))
            return false;
        /* A lane's line keeps the domain lock during the rest, and records of other lanes wait until it ends. */
        if (lines > 0 && (um_prov_domain_is_shared(&s->domain->lock) || !um_cpu_wait_is_short(um_cpu_wait_own())))
            return false;
        line = lines > 0 ? next : line;
    }
    *line_p = line;
    return line != NULL;
}

static bool um_prov_source_rest_locked(struct um_prov_event_source *s)
{
    const uint64_t *line;
    uint64_t value;
    if (um_cpu_wait_own() == UM_CPU_WAIT_NONE || !um_prov_source_find_line(s, &line, &value))
        return false;
    /* The line may be a lane's only if the rest is short and no other thread moves messages. Then it must not be
     * unmapped meanwhile: a control call of another thread waits. Otherwise it is a counter's, which stays mapped. */
    const bool releases = um_prov_domain_is_shared(&s->domain->lock) || !um_cpu_wait_is_short(um_cpu_wait_own());
    if (releases)
        um_prov_domain_unlock(&s->domain->lock);
    um_cpu_wait_for(um_cpu_wait_own(), line, value);
    if (releases)
        um_prov_domain_lock(&s->domain->lock);
    return true;
}

static void um_prov_wait_begin(const struct um_prov_event_source *s, struct um_prov_wait *w)
{
    bool spins = s->domain->env.linger && um_prov_source_has_processors(s);
    w->stage = spins ? UM_WAIT_SPIN : UM_WAIT_SLEEP;
    w->rounds = 0;
    w->until = spins ? um_clock_ns() + UM_WAIT_SPIN_NS : 0;
}

/* Does one round of spinning or resting. False: both stages are over. */
static bool um_prov_wait_awake_locked(struct um_prov_event_source *s, struct um_prov_wait *w)
{
    if (w->stage == UM_WAIT_SPIN) {
        if (++w->rounds % UM_WAIT_SPIN_LOOK != 0 || um_clock_ns() < w->until) {
            um_prov_domain_unlock(&s->domain->lock);
            um_cpu_relax();
            um_prov_domain_lock(&s->domain->lock);
            return true;
        }
        w->stage = UM_WAIT_REST;
        w->until += UM_REST_NS;
    }
    if (w->stage == UM_WAIT_REST && um_clock_ns() < w->until && um_prov_source_rest_locked(s))
        return true;
    w->stage = UM_WAIT_SLEEP;
    return false;
}

int um_prov_source_wait_locked(struct um_prov_event_source *s, struct um_prov_wait *w)
{
    if (w->timeout == 0)
        return -FI_ETIMEDOUT;
    if (w->stage == UM_WAIT_NEW) {
        w->deadline = um_prov_deadline(w->timeout);
        um_prov_wait_begin(s, w);
    }
    if (w->stage != UM_WAIT_SLEEP && um_prov_wait_awake_locked(s, w))
        return 0;
    int left = um_prov_deadline_left(w->deadline);
    if (left == 0)
        return -FI_ETIMEDOUT;
    int ret = um_prov_source_sleep_locked(s, left, w->cancel_state);
    if (ret == 0)
        um_prov_wait_begin(s, w); /* there is activity: the event may come soon */
    return ret == -FI_EAGAIN ? 0 : ret;
}

int um_prov_source_control(struct um_prov_event_source *s, int command, void *arg)
{
    switch (command) {
    case FI_GETWAIT:
        if (s->waiter.obj != FI_WAIT_FD && s->waiter.obj != FI_WAIT_UNSPEC)
            return -FI_ENODATA;
        *(int *)arg = s->waiter.poll_fd;
        return 0;
    case FI_GETWAITOBJ:
        *(enum fi_wait_obj *)arg = s->waiter.obj;
        return 0;
    default:
        return -FI_ENOSYS;
    }
}
