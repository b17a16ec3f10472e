/*
 * Completion queues: the ring, reading, waiting.
 *
 * Owns: struct um_prov_cq. Must not know where completions come from.
 * Threading: under the domain lock.
 *
 * A read of an empty ring makes progress with the caller's array open for completions: they are written there directly,
 * in the caller's format, and bypass the ring. What does not fit goes into the ring, which grows.
 */
#include "prov/prov.h"

#include "base/atomic.h"
#include "base/cancel.h"
#include "base/log.h"
#include "base/process.h"
#include "base/yield_abi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum {
    UM_CQ_FIRST_ROOM = 256,
    UM_CQ_LINGER_POLLS = 128, /* polls of a read that lingers: about a microsecond */
    UM_CQ_LINGER_MOST = 64,   /* empty reads that linger in vain before lingering stops */
    UM_CQ_LINGER_EARNED = 8,  /* of these, added for a wait that was short */
    UM_CQ_LINGER_READS = 4,   /* ordinary reads in the time of one that lingers, about */
    UM_CQ_SHORT_WAIT = 16,    /* empty reads in a wait that counts as short */
    UM_CQ_DRAINS = 16,        /* reads from the ring between two calls of progress, at most */
    UM_CQ_READ_EACH = 4,      /* of these reads, for each unexpected message that the next progress may take */
    UM_CQ_FULL = 65536,       /* entries with which a queue is very full, unless its size was asked to be more */
};

bool um_prov_cq_ready_locked(const struct um_prov_cq *cq)
{
    return cq->head != cq->tail || cq->overrun;
}

/* Doubles the ring. 0 or -ENOMEM. */
static int um_prov_cq_grow(struct um_prov_cq *cq)
{
    uint64_t room = cq->mask + 1, count = cq->tail - cq->head;
    struct um_prov_cq_entry *ring = malloc(2 * room * sizeof(*ring));
    if (!ring)
        return -ENOMEM;
    for (uint64_t i = 0; i < count; i++)
        ring[i] = cq->ring[(cq->head + i) & cq->mask];
    free(cq->ring);
    cq->ring = ring;
    cq->mask = 2 * room - 1;
    cq->head = 0;
    cq->tail = count;
    return 0;
}

static void um_prov_cq_push(struct um_prov_cq *cq, const struct um_prov_cq_entry *entry)
{
    if (__builtin_expect(cq->tail - cq->head > cq->mask, 0) && um_prov_cq_grow(cq) != 0) {
        if (!cq->overrun)
            um_log(UM_LOG_WARN, "out of memory: a completion queue of %llu entries cannot grow; completions are lost",
                   (unsigned long long)cq->mask + 1);
        cq->overrun = true;
        free(entry->error);
        return;
    }
    cq->ring[cq->tail & cq->mask] = *entry;
    um_prov_cq_filled_locked(cq);
}

void um_prov_cq_write_locked(struct um_prov_cq *cq, const struct um_prov_cq_entry *entry)
{
    if (!cq->direct_left) {
        um_prov_cq_push(cq, entry);
        return;
    }
    memcpy(cq->direct, entry, cq->entry_size);
    cq->direct += cq->entry_size;
    if (cq->direct_source)
        *cq->direct_source++ = entry->source;
    cq->direct_left--;
    cq->direct_done++;
}

void um_prov_cq_write_error_locked(struct um_prov_cq *cq, struct um_prov_cq_entry *entry,
                                   const struct um_prov_cq_error *error)
{
    entry->error = malloc(sizeof(*error));
    if (!entry->error) {
        cq->overrun = true;
        return;
    }
    *entry->error = *error;
    cq->direct_left = 0; /* later completions must not overtake it */
    um_prov_cq_push(cq, entry);
}

/* Loads with relaxed order: the compiler does not merge such loads into wider ones. */
static inline void um_prov_cq_copy_word(char *to, const struct um_prov_cq_entry *entry, size_t at)
{
    const uint64_t word = um_load_relaxed_u64((const uint64_t *)(const void *)((const char *)entry + at));
    memcpy(to + at, &word, sizeof(word));
}

/*
 * Copies the part of an entry that the format has, word by word: the entry may just have been stored in words, and a
 * wider load would stall.
 */
static inline void um_prov_cq_copy(char *to, const struct um_prov_cq_entry *entry, size_t size)
{
    um_prov_cq_copy_word(to, entry, offsetof(struct um_prov_cq_entry, context));
    if (size == sizeof(struct fi_cq_entry))
        return;
    um_prov_cq_copy_word(to, entry, offsetof(struct um_prov_cq_entry, flags));
    um_prov_cq_copy_word(to, entry, offsetof(struct um_prov_cq_entry, len));
    if (size == sizeof(struct fi_cq_msg_entry))
        return;
    um_prov_cq_copy_word(to, entry, offsetof(struct um_prov_cq_entry, buf));
    um_prov_cq_copy_word(to, entry, offsetof(struct um_prov_cq_entry, data));
    if (size == sizeof(struct fi_cq_tagged_entry))
        um_prov_cq_copy_word(to, entry, offsetof(struct um_prov_cq_entry, tag));
}

/*
 * Makes progress after several reads that made none. The longer those took, the fewer follow until the next time. May
 * move the ring.
 */
static __attribute__((noinline)) void um_prov_cq_look(struct um_prov_cq *cq)
{
    const struct um_prov_ep_set *set = &cq->source.eps;
    for (size_t i = 0; i < set->count; i++) {
        if (set->eps[i]->core)
            um_core_ep_hasten(set->eps[i]->core, 1 + (uint32_t)cq->drains_most / UM_CQ_READ_EACH);
    }
    um_prov_source_progress_locked(&cq->source);
    cq->drains = UM_CQ_DRAINS - 1;
    for (size_t i = 0; i < set->count; i++) {
        const int32_t most = set->eps[i]->core ? (int32_t)um_core_ep_patience(set->eps[i]->core) - 1 : UM_CQ_DRAINS;
        cq->drains = most < cq->drains ? most : cq->drains;
    }
    cq->drains_most = cq->drains;
}

/* Answers a read whose first entry is an error. Makes progress: see um_prov_cq_drain(). */
static __attribute__((noinline)) ssize_t um_prov_cq_at_error(struct um_prov_cq *cq)
{
    um_prov_source_progress_locked(&cq->source);
    cq->waited = 0;
    return -FI_EAVAIL;
}

/* Notes that the read returns completions. */
static inline void um_prov_cq_told(struct um_prov_cq *cq)
{
    cq->told = true;
    if (!um_load_relaxed_u32(cq->found_p)) /* the threads of a process share the word */
        um_store_relaxed_u32(cq->found_p, 1);
}

/* Moves entries from the ring, which is not empty, into the caller's array, up to the first error. count is not 0. */
static inline ssize_t um_prov_cq_unload(struct um_prov_cq *cq, void *buf, size_t count, fi_addr_t *source)
{
    /* in locals: for the compiler, a store to the caller's array might change the members */
    const struct um_prov_cq_entry *const ring = cq->ring;
    const uint64_t mask = cq->mask, tail = cq->tail;
    const size_t size = cq->entry_size;
    uint64_t head = cq->head;
    char *out = buf;
    size_t done = 0;
    do {
        const struct um_prov_cq_entry *entry = &ring[head & mask];
        if (__builtin_expect(entry->error != NULL, 0))
            break;
        um_prov_cq_copy(out, entry, size);
        if (source)
            source[done] = entry->source;
        out += size;
        head++;
        done++;
    } while (done < count && head != tail);
    if (__builtin_expect(done == 0, 0))
        return um_prov_cq_at_error(cq);
    cq->head = head;
    um_prov_cq_told(cq);
    return (ssize_t)done;
}

/* Makes progress, then does the same. */
static __attribute__((noinline)) ssize_t um_prov_cq_drain_looked(struct um_prov_cq *cq, void *buf, size_t count,
                                                                 fi_addr_t *source)
{
    um_prov_cq_look(cq);
    return um_prov_cq_unload(cq, buf, count, source);
}

/*
 * Reads from the ring, which is not empty. It may have an entry at every read: the error entry of a peek that found
 * nothing (Open MPI's probes peek, read once and peek again), or the completion of the caller's last send. Messages
 * from peers must still arrive, so such reads make progress, too: always at an error entry, otherwise at least every
 * UM_CQ_DRAINS reads. New completions go to the end of the ring.
 */
static __attribute__((noinline)) ssize_t um_prov_cq_drain(struct um_prov_cq *cq, void *buf, size_t count,
                                                          fi_addr_t *source)
{
    if (cq->unsettled) {
        um_fence_full(); /* sync: rma-settle (partner rma-settle): an operation that is reported complete is visible */
        cq->unsettled = false;
    }
    if (__builtin_expect(--cq->drains < 0, 0))
        return um_prov_cq_drain_looked(cq, buf, count, source);
    return um_prov_cq_unload(cq, buf, count, source);
}

/*
 * The common case: the ring is empty, or the call asks for no entries but progress alone. New completions go into the
 * caller's array.
 */
static inline ssize_t um_prov_cq_take_new(struct um_prov_cq *cq, void *buf, size_t count, fi_addr_t *source)
{
    if (__builtin_expect(cq->source.waiter.armed, 0))
        um_prov_source_disarm_locked(&cq->source);
    cq->direct = buf;
    cq->direct_source = source;
    cq->direct_done = 0;
    cq->direct_left = count;
    um_prov_source_progress_locked(&cq->source);
    cq->direct_left = 0;
    if (cq->direct_done) {
        um_prov_cq_told(cq);
        return (ssize_t)cq->direct_done;
    }
    if (__builtin_expect(cq->head == cq->tail, 1))
        return __builtin_expect(cq->overrun, 0) ? -FI_EOVERRUN : -FI_EAGAIN;
    return count ? um_prov_cq_drain(cq, cq->direct, count, cq->direct_source)
                 : 0; /* cq->direct is still buf: nothing was written there */
}

static inline ssize_t um_prov_cq_take(struct um_prov_cq *cq, void *buf, size_t count, fi_addr_t *source)
{
    if (__builtin_expect(cq->head == cq->tail || !count, 1))
        return um_prov_cq_take_new(cq, buf, count, source);
    return um_prov_cq_drain(cq, buf, count, source);
}

/*
 * Lingering: an empty read by a caller that spins polls for about a microsecond before it returns. MPICH yields the
 * processor after every empty read, and a message that comes meanwhile would wait for the end of that system call. A
 * caller that computes between its reads does not spin (spin.h); nor does one whose yield lets another process run
 * (with src/yield, which leaves out most yields, this shows some turns later). Reads do not linger if the caller awaits
 * no message: it posts one-sided operations (um_prov_cq_stop_lingering()), reads a counter (MPICH's flush, even of
 * nothing), or asks for progress with no entries. Nor do they in a process with several threads, of which another may
 * wait for a lock that the caller holds (MPICH's, under MPI_THREAD_MULTIPLE). The first empty read after a read that
 * returned completions does not linger either: MPICH reads once more when its operation is complete, and the
 * microsecond would be lost (an accumulate by active messages took half as long again).
 *
 * A caller that tests for messages between pieces of its own work makes as many reads, and lingering takes time from
 * its work. So there is an allowance for lingering in vain, and only short waits add to it.
 */
static ssize_t um_prov_cq_linger(struct um_prov_cq *cq, void *buf, size_t count)
{
    struct um_prov_domain *d = cq->source.domain;
    ssize_t ret = -FI_EAGAIN;
    if (d->counter_read) {
        d->counter_read = false;
        um_prov_cq_stop_lingering(cq);
    }
    if (!cq->lingers || cq->linger_left == 0)
        return ret;
    cq->waited += UM_CQ_LINGER_READS - 1;
    for (int i = 0; ret == -FI_EAGAIN && i < UM_CQ_LINGER_POLLS; i++)
        ret = um_prov_cq_take(cq, buf, count, NULL);
    cq->linger_left -= ret == -FI_EAGAIN;
    return ret;
}

/* Called at the first empty read after one that returned completions. A short wait for those adds to the allowance. */
static void um_prov_cq_waited(struct um_prov_cq *cq)
{
    if (cq->waited > 0 && cq->waited <= UM_CQ_SHORT_WAIT)
        cq->linger_left = cq->linger_left < UM_CQ_LINGER_MOST - UM_CQ_LINGER_EARNED
                              ? cq->linger_left + UM_CQ_LINGER_EARNED
                              : UM_CQ_LINGER_MOST;
    cq->waited = 0;
    cq->told = false;
}

/* Handles a read that found nothing. count 0: this read does not linger, nor does one that is to yield (*yields_p). */
static __attribute__((noinline)) ssize_t um_prov_cq_empty(struct um_prov_cq *cq, void *buf, size_t count,
                                                          bool *yields_p)
{
    if (cq->told) {
        um_prov_cq_waited(cq);
        return -FI_EAGAIN;
    }
    cq->waited++;
    if (++cq->spin.reads % UM_SPIN_READS == 0) {
        cq->lingers = um_prov_spin_look(&cq->spin, &cq->source, UM_SPIN_READS, yields_p) &&
                      (int32_t)(cq->spin.reads - cq->lingers_from) >= 0 && um_process_is_single_threaded();
    }
    /* no lingering while other threads may want the lock */
    if (*yields_p || count == 0 || um_prov_domain_is_shared(&cq->source.domain->lock))
        return -FI_EAGAIN;
    return um_prov_cq_linger(cq, buf, count);
}

/* Finishes a read that found nothing. Releases the domain lock. */
static __attribute__((noinline)) ssize_t um_prov_cq_read_empty(struct um_prov_cq *cq, void *buf, size_t count)
{
    bool yields = false;
    ssize_t ret = um_prov_cq_empty(cq, buf, count, &yields);
    um_prov_domain_unlock(&cq->source.domain->lock);
    if (yields)
        um_prov_spin_yield(&cq->spin, &cq->source);
    return ret;
}

/* Reads while the ring is empty, or for progress alone. Releases the domain lock. */
static __attribute__((noinline)) ssize_t um_prov_cq_read_new(struct um_prov_cq *cq, void *buf, size_t count,
                                                             fi_addr_t *source)
{
    struct um_prov_domain *d = cq->source.domain;
    ssize_t ret = um_prov_cq_take_new(cq, buf, count, source);
    if (ret == -FI_EAGAIN && d->env.linger)
        return um_prov_cq_read_empty(cq, cq->direct, cq->direct_source ? 0 : count);
    um_prov_domain_unlock(&d->lock);
    return ret;
}

static __attribute__((noinline)) ssize_t um_prov_cq_read_guarded(struct um_prov_cq *cq, void *buf, size_t count,
                                                                 fi_addr_t *source)
{
    struct um_prov_domain_mutex *g = &cq->source.domain->lock;
    um_prov_domain_lock(g);
    if (cq->head == cq->tail || !count)
        return um_prov_cq_read_new(cq, buf, count, source);
    ssize_t ret = um_prov_cq_drain(cq, buf, count, source);
    um_prov_domain_unlock(g);
    return ret;
}

/* Has three separate paths, so that none saves registers for another one. */
static inline ssize_t um_prov_cq_read_any(struct um_prov_cq *cq, void *buf, size_t count, fi_addr_t *source)
{
    struct um_prov_domain_mutex *g = &cq->source.domain->lock;
    if (!um_prov_domain_enter(g))
        return um_prov_cq_read_guarded(cq, buf, count, source);
    if (cq->head == cq->tail || !count)
        return um_prov_cq_read_new(cq, buf, count, source);
    ssize_t ret = um_prov_cq_drain(cq, buf, count, source);
    um_prov_domain_leave(g);
    return ret;
}

static ssize_t um_prov_cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source)
{
    return um_prov_cq_read_any(UM_CONTAINER(fid, struct um_prov_cq, fid), buf, count, source);
}

static ssize_t um_prov_cq_read(struct fid_cq *fid, void *buf, size_t count)
{
    return um_prov_cq_read_any(UM_CONTAINER(fid, struct um_prov_cq, fid), buf, count, NULL);
}

/* The condition of an sread is an optimisation that a provider may ignore: this one returns at the first completion. */
static ssize_t um_prov_cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source, const void *cond,
                                    int timeout)
{
    struct um_prov_cq *cq = UM_CONTAINER(fid, struct um_prov_cq, fid);
    struct um_prov_wait wait = um_prov_wait_enter(timeout);
    ssize_t ret;
    (void)cond;
    um_prov_domain_lock(&cq->source.domain->lock);
    while ((ret = um_prov_cq_take(cq, buf, count, source)) == -FI_EAGAIN && !cq->signaled) {
        int waited = um_prov_source_wait_locked(&cq->source, &wait);
        cq->waited = 0;
        if (waited == 0)
            continue;
        ret = waited == -FI_ETIMEDOUT || waited == -FI_EINTR ? -FI_EAGAIN : waited;
        break;
    }
    if (ret == -FI_EAGAIN)
        cq->signaled = false;
    um_prov_domain_unlock(&cq->source.domain->lock);
    um_prov_wait_leave(&wait);
    return ret;
}

static ssize_t um_prov_cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
    return um_prov_cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int um_prov_cq_signal(struct fid_cq *fid)
{
    struct um_prov_cq *cq = UM_CONTAINER(fid, struct um_prov_cq, fid);
    um_prov_control_lock(&cq->source.domain->lock);
    cq->signaled = true;
    um_prov_waiter_signal(&cq->source.waiter);
    um_prov_control_unlock(&cq->source.domain->lock);
    return 0;
}

static struct fi_ops_cq um_prov_cq_ops = {
    .size = sizeof(struct fi_ops_cq),
    .read = um_prov_cq_read,
    .readfrom = um_prov_cq_readfrom,
    .readerr = um_prov_cq_readerr,
    .sread = um_prov_cq_sread,
    .sreadfrom = um_prov_cq_sreadfrom,
    .signal = um_prov_cq_signal,
    .strerror = um_prov_cq_strerror,
};

static int um_prov_cq_close(struct fid *fid)
{
    UM_UNCANCELLED;
    struct um_prov_cq *cq = UM_CONTAINER(fid, struct um_prov_cq, fid.fid);
    struct um_prov_domain *d = cq->source.domain;
    um_prov_control_lock(&d->lock);
    uint32_t refs = cq->refs;
    um_prov_control_unlock(&d->lock);
    if (refs)
        return -FI_EBUSY;
    um_prov_live_remove(&cq->live);
    for (; cq->head != cq->tail; cq->head++)
        free(cq->ring[cq->head & cq->mask].error);
    um_prov_source_fini(&cq->source);
    free(cq->ring);
    free(cq);
    um_prov_domain_drop(d);
    return 0;
}

static int um_prov_cq_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid, (void)bfid, (void)flags;
    return -FI_ENOSYS;
}

static int um_prov_cq_control(struct fid *fid, int command, void *arg)
{
    return um_prov_source_control(&UM_CONTAINER(fid, struct um_prov_cq, fid.fid)->source, command, arg);
}

static int um_prov_cq_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops um_prov_cq_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_prov_cq_close,
    .bind = um_prov_cq_bind,
    .control = um_prov_cq_control,
    .ops_open = um_prov_cq_ops_open,
};

/* Returns the size of an entry in bytes. 0: there is no such format. */
static size_t um_prov_cq_entry_size(enum fi_cq_format format)
{
    switch (format) {
    case FI_CQ_FORMAT_UNSPEC:
    case FI_CQ_FORMAT_CONTEXT:
        return sizeof(struct fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
        return sizeof(struct fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
        return sizeof(struct fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED:
        return sizeof(struct fi_cq_tagged_entry);
    default:
        return 0;
    }
}

int um_prov_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq_p, void *context)
{
    UM_UNCANCELLED;
    struct um_prov_domain *d = UM_CONTAINER(domain, struct um_prov_domain, fid);
    if (!um_prov_cq_entry_size(attr->format))
        return -FI_EINVAL;
    if (attr->flags & ~FI_AFFINITY)
        return -FI_ENOSYS;
    struct um_prov_cq *cq = calloc(1, sizeof(*cq));
    if (!cq)
        return -FI_ENOMEM;
    cq->entry_size = um_prov_cq_entry_size(attr->format);
    cq->mask = UM_CQ_FIRST_ROOM - 1;
    cq->linger_left = UM_CQ_LINGER_MOST;
    uint32_t *found_p = dlsym(RTLD_DEFAULT, UM_YIELD_FOUND);
    cq->found_p = found_p ? found_p : &cq->found;
    cq->full = attr->size > UM_CQ_FULL ? attr->size : UM_CQ_FULL;
    cq->ring = malloc(UM_CQ_FIRST_ROOM * sizeof(*cq->ring));
    int ret = cq->ring ? um_prov_source_init(&cq->source, d, attr->wait_obj) : -FI_ENOMEM;
    if (ret) {
        free(cq->ring);
        free(cq);
        return ret;
    }
    if (attr->format == FI_CQ_FORMAT_UNSPEC)
        attr->format = FI_CQ_FORMAT_CONTEXT;
    cq->fid.fid.fclass = FI_CLASS_CQ;
    cq->fid.fid.context = context;
    cq->fid.fid.ops = &um_prov_cq_fid_ops;
    cq->fid.ops = &um_prov_cq_ops;
    um_prov_domain_hold(d);
    um_prov_live_add(&cq->live, &cq->fid.fid);
    *cq_p = &cq->fid;
    return 0;
}
