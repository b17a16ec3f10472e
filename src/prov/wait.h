/*
 * Sleeping on a queue or counter (wait.c). A part of prov.h, which includes it.
 */
#ifndef UM_PROV_WAIT_H
#define UM_PROV_WAIT_H

#include "prov/compat.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct um_prov_domain;
struct um_prov_ep;

/* The endpoints whose progress a queue or counter depends on. */
struct um_prov_ep_set {
    struct um_prov_ep **eps;
    size_t count;
    size_t room;
};

/*
 * A wait object: an epoll set over the endpoints' wait fds, a timer that says when to make progress, and an eventfd for
 * events of this process. Opened with its object if the attributes ask for it, else at the first sleep or fi_trywait().
 */
struct um_prov_waiter {
    enum fi_wait_obj obj;
    int poll_fd; /* -1: not opened */
    int wake_fd;
    int timer_fd;
    uint32_t sleepers; /* threads in a blocking call; one more while armed */
    bool armed;        /* by fi_trywait(), until the next read */
};

/* What a queue and a counter have in common: endpoints that feed it, a way to sleep on it. */
struct um_prov_event_source {
    struct um_prov_domain *domain;
    struct um_prov_ep_set eps;
    struct um_prov_waiter waiter;
    bool (*has_news)(const struct um_prov_event_source *s); /* checked after arming; NULL: nothing else to check */
    /*
     * Returns the word whose change is the event, and in *value_p its last known value. NULL, or a NULL result: there
     * is no such word.
     */
    const uint64_t *(*watched)(const struct um_prov_event_source *s, uint64_t *value_p);
    bool arms; /* sleepers arm the endpoints; false: the progress thread does, and wakes sleepers */
};

/* -FI_ENOSYS: this kind of wait object is not supported. */
int um_prov_source_init(struct um_prov_event_source *s, struct um_prov_domain *d, enum fi_wait_obj obj);
void um_prov_source_fini(struct um_prov_event_source *s);
int um_prov_source_add_locked(struct um_prov_event_source *s, struct um_prov_ep *ep);
void um_prov_source_remove_locked(struct um_prov_event_source *s, struct um_prov_ep *ep);
/* Called when an endpoint of the set was enabled and so has a wait fd. */
void um_prov_source_enabled_locked(struct um_prov_event_source *s, struct um_prov_ep *ep);
/*
 * For fi_trywait(): returns 0, -FI_EAGAIN, or the error of opening the wait object. The fd also becomes readable when
 * it is time to make progress.
 */
int um_prov_source_arm_locked(struct um_prov_event_source *s);
void um_prov_source_disarm_locked(struct um_prov_event_source *s);
/*
 * Sleeps, without the domain lock, until there may be an event or the time is over (ms < 0: no limit). Returns 0;
 * -FI_EAGAIN: there is work already; -FI_EINTR; the error of opening the wait object. The thread can be cancelled while
 * it sleeps if cancel_state is PTHREAD_CANCEL_ENABLE.
 */
int um_prov_source_sleep_locked(struct um_prov_event_source *s, int ms, int cancel_state);

/*
 * The state of a blocking call (wait.c describes the stages). Between um_prov_wait_enter(), called before the domain
 * lock is taken, and um_prov_wait_leave() the thread can be cancelled only while it sleeps: system calls are
 * cancellation points, and most are made under the domain lock. timeout: ms, < 0: no limit.
 */
enum um_prov_wait_stage { UM_WAIT_NEW, UM_WAIT_SPIN, UM_WAIT_REST, UM_WAIT_SLEEP };
struct um_prov_wait {
    int timeout;
    int cancel_state; /* the caller's, restored at the end */
    enum um_prov_wait_stage stage;
    uint32_t rounds;   /* of the present spin */
    uint64_t until;    /* the end of this stage, ns */
    uint64_t deadline; /* as um_prov_deadline() */
};
static inline struct um_prov_wait um_prov_wait_enter(int timeout)
{
    struct um_prov_wait w = {.timeout = timeout};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &w.cancel_state);
    return w;
}
static inline void um_prov_wait_leave(const struct um_prov_wait *w)
{
    pthread_setcancelstate(w->cancel_state, NULL);
}
/*
 * Waits for one round. The caller has just found nothing and holds the domain lock, which is released meanwhile.
 * Returns 0: look again; -FI_ETIMEDOUT; -FI_EINTR; the error of opening the wait object.
 */
int um_prov_source_wait_locked(struct um_prov_event_source *s, struct um_prov_wait *w);
/* True if there is a processor for each rank of this job, as far as the address vectors show. */
bool um_prov_source_has_processors(const struct um_prov_event_source *s);
int um_prov_source_control(struct um_prov_event_source *s, int command, void *arg);
int um_prov_waiter_open(struct um_prov_waiter *w);
void um_prov_waiter_close(struct um_prov_waiter *w);
void um_prov_waiter_wake(struct um_prov_waiter *w);
void um_prov_waiter_drain(struct um_prov_waiter *w);
static inline void um_prov_waiter_signal(struct um_prov_waiter *w)
{
    if (__builtin_expect(w->sleepers != 0, 0))
        um_prov_waiter_wake(w);
}
/*
 * Waits until the fd is readable or ms have passed (< 0: no limit). Returns 0 or -FI_EINTR. The thread can be cancelled
 * only meanwhile, as cancel_state says.
 */
int um_prov_poll(int fd, int ms, int cancel_state);
/*
 * Turns a timeout in ms (< 0: none) into a deadline in ns; returns the ms that are left until a deadline, or -1 for
 * none.
 */
uint64_t um_prov_deadline(int ms);
int um_prov_deadline_left(uint64_t deadline);

#endif
