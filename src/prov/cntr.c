/*
 * Counters of completed operations.
 *
 * Owns: struct um_prov_cntr. Must not know where completions come from. Threading: under the domain lock.
 */
#include "prov/prov.h"

#include "base/atomic.h"
#include "base/cancel.h"

#include <stdlib.h>

void um_prov_cntr_fail_locked(struct um_prov_cntr *cntr)
{
    cntr->errors++;
    um_prov_waiter_signal(&cntr->source.waiter);
}

/* ---- counters that peers add to ---- */

static uint64_t um_prov_cntr_value_locked(struct um_prov_cntr *cntr)
{
    if (__builtin_expect(!cntr->remote, 1))
        return cntr->value;
    cntr->remote_seen = um_load_acquire_u64(cntr->remote); /* sync: event-look (partners event-count, event-wake) */
    return um_prov_cntr_known(cntr);
}

/* sync: event-look (partners event-count, event-wake): looks at the count once more, after the port was armed. */
static bool um_prov_cntr_has_news(const struct um_prov_event_source *s)
{
    const struct um_prov_cntr *cntr = UM_CONTAINER(s, struct um_prov_cntr, source);
    return cntr->remote && um_load_acquire_u64(cntr->remote) != cntr->remote_seen;
}

static const uint64_t *um_prov_cntr_watched(const struct um_prov_event_source *s, uint64_t *value_p)
{
    const struct um_prov_cntr *cntr = UM_CONTAINER(s, struct um_prov_cntr, source);
    *value_p = cntr->remote_seen;
    return cntr->remote;
}

static void um_prov_cntr_end_remote_locked(struct um_prov_cntr *cntr)
{
    struct um_prov_domain *d = cntr->source.domain;
    um_list_unlink(&cntr->remote_link);
    if (cntr->remote_number)
        um_core_regions_counter_close(d->regions, cntr->remote_number);
    cntr->remote_number = 0;
    cntr->remote = NULL;
}

/* Adds all endpoints of the domain: peers may count on any of them. On an error those that this adds are removed. */
static int um_prov_cntr_add_eps_locked(struct um_prov_cntr *cntr)
{
    struct um_list *const eps = &cntr->source.domain->eps;
    int ret = 0;
    for (struct um_list *l = eps->next; ret == 0 && l != eps; l = l->next)
        ret = um_prov_source_add_locked(&cntr->source, UM_CONTAINER(l, struct um_prov_ep, domain_link));
    for (struct um_list *l = eps->next; ret != 0 && l != eps; l = l->next) {
        struct um_prov_ep *ep = UM_CONTAINER(l, struct um_prov_ep, domain_link);
        if (!um_prov_ep_feeds(ep, &cntr->source))
            um_prov_source_remove_locked(&cntr->source, ep);
    }
    return ret;
}

int um_prov_cntr_make_remote_locked(struct um_prov_cntr *cntr, uint32_t *number_p)
{
    struct um_prov_domain *d = cntr->source.domain;
    if (cntr->bytes)
        return -FI_ENOSYS; /* peers count operations, not bytes */
    if (!cntr->remote_number) {
        int ret = um_prov_error_result(um_core_regions_counter_open(d->regions, &cntr->remote_number, &cntr->remote));
        if (ret)
            return ret;
        cntr->remote_base = cntr->remote_seen = cntr->remote_told = um_load_relaxed_u64(cntr->remote);
        um_list_append(&d->remote_cntrs, &cntr->remote_link);
        ret = um_prov_cntr_add_eps_locked(cntr);
        if (ret) {
            um_prov_cntr_end_remote_locked(cntr);
            return ret;
        }
    }
    *number_p = cntr->remote_number;
    return 0;
}

int um_prov_cntr_bind_remote_locked(struct um_prov_cntr *cntr, uint64_t flags,
                                    struct um_prov_cntr *bound[UM_REMOTE_KINDS], uint32_t *counters_p)
{
    static const uint64_t kinds[UM_REMOTE_KINDS] = {
        [UM_REMOTE_WRITE] = FI_REMOTE_WRITE, [UM_REMOTE_READ] = FI_REMOTE_READ};
    uint32_t number;
    if (!(flags & (FI_REMOTE_WRITE | FI_REMOTE_READ)) || flags & ~(FI_REMOTE_WRITE | FI_REMOTE_READ))
        return -FI_EBADFLAGS;
    for (int i = 0; i < UM_REMOTE_KINDS; i++) {
        if (flags & kinds[i] && bound[i])
            return -FI_EINVAL;
    }
    int ret = um_prov_cntr_make_remote_locked(cntr, &number);
    if (ret)
        return ret;
    for (int i = 0; i < UM_REMOTE_KINDS; i++) {
        if (flags & kinds[i]) {
            bound[i] = cntr;
            cntr->refs++;
        }
    }
    *counters_p = (bound[UM_REMOTE_WRITE] ? bound[UM_REMOTE_WRITE]->remote_number << UM_COUNT_WRITE_SHIFT : 0) |
                  (bound[UM_REMOTE_READ] ? bound[UM_REMOTE_READ]->remote_number << UM_COUNT_READ_SHIFT : 0);
    return 0;
}

bool um_prov_cntrs_have_news_locked(const struct um_prov_domain *d)
{
    for (const struct um_list *l = d->remote_cntrs.next; l != &d->remote_cntrs; l = l->next) {
        const struct um_prov_cntr *cntr = UM_CONTAINER(l, struct um_prov_cntr, remote_link);
        /* sync: event-look (partners event-count, event-wake) */
        if (um_load_acquire_u64(cntr->remote) != cntr->remote_told)
            return true;
    }
    return false;
}

void um_prov_cntrs_tell_locked(struct um_prov_domain *d)
{
    for (struct um_list *l = d->remote_cntrs.next; l != &d->remote_cntrs; l = l->next) {
        struct um_prov_cntr *cntr = UM_CONTAINER(l, struct um_prov_cntr, remote_link);
        uint64_t now = um_load_relaxed_u64(cntr->remote);
        if (now == cntr->remote_told)
            continue;
        cntr->remote_told = now;
        um_prov_waiter_signal(&cntr->source.waiter);
    }
}

int um_prov_cntrs_add_ep_locked(struct um_prov_domain *d, struct um_prov_ep *ep)
{
    int ret = 0;
    for (struct um_list *l = d->remote_cntrs.next; ret == 0 && l != &d->remote_cntrs; l = l->next)
        ret = um_prov_source_add_locked(&UM_CONTAINER(l, struct um_prov_cntr, remote_link)->source, ep);
    if (ret == 0)
        um_list_append(&d->eps, &ep->domain_link);
    return ret;
}

void um_prov_cntrs_remove_ep_locked(struct um_prov_domain *d, struct um_prov_ep *ep)
{
    um_list_unlink(&ep->domain_link);
    for (struct um_list *l = d->remote_cntrs.next; l != &d->remote_cntrs; l = l->next)
        um_prov_source_remove_locked(&UM_CONTAINER(l, struct um_prov_cntr, remote_link)->source, ep);
}

/* ---- fi_cntr ---- */

static struct um_prov_cntr *um_prov_cntr_lock(struct fid_cntr *fid)
{
    struct um_prov_cntr *cntr = UM_CONTAINER(fid, struct um_prov_cntr, fid);
    um_prov_domain_lock(&cntr->source.domain->lock);
    return cntr;
}

static void um_prov_cntr_unlock(struct um_prov_cntr *cntr)
{
    um_prov_domain_unlock(&cntr->source.domain->lock);
}

/* Looks at a caller that has read the same value again and again. Releases the domain lock. */
static __attribute__((noinline)) void um_prov_cntr_spins(struct um_prov_cntr *cntr)
{
    bool yields = false;
    if (cntr->source.domain->env.linger)
        (void)um_prov_spin_look(&cntr->spin, &cntr->source, UM_SPIN_READS_CNTR, &yields);
    um_prov_cntr_unlock(cntr);
    if (yields)
        um_prov_spin_yield(&cntr->spin, &cntr->source);
}

static uint64_t um_prov_cntr_read(struct fid_cntr *fid)
{
    struct um_prov_cntr *cntr = um_prov_cntr_lock(fid);
    if (__builtin_expect(cntr->source.waiter.armed, 0))
        um_prov_source_disarm_locked(&cntr->source);
    um_prov_source_progress_locked(&cntr->source);
    uint64_t value = um_prov_cntr_value_locked(cntr);
    cntr->value_read = cntr->value;
    cntr->source.domain->counter_read = true;
    if (value != cntr->spin_value) {
        cntr->spin_value = value;
        cntr->spin.reads = cntr->spin.stalled = 0;
    } else if (__builtin_expect(++cntr->spin.reads % UM_SPIN_READS_CNTR == 0, 0)) {
        um_prov_cntr_spins(cntr);
        return value;
    }
    um_prov_cntr_unlock(cntr);
    return value;
}

static uint64_t um_prov_cntr_readerr(struct fid_cntr *fid)
{
    struct um_prov_cntr *cntr = um_prov_cntr_lock(fid);
    um_prov_source_progress_locked(&cntr->source);
    uint64_t errors = cntr->errors_read = cntr->errors;
    um_prov_cntr_unlock(cntr);
    return errors;
}

/* A value that the caller sets counts as not read, whatever it becomes before the next read: another thread may be
 * about to wait. */
static void um_prov_cntr_value_set(struct um_prov_cntr *cntr)
{
    cntr->value_read = ~cntr->value;
    um_prov_waiter_signal(&cntr->source.waiter);
}

/* The same for a number of errors. */
static void um_prov_cntr_errors_set(struct um_prov_cntr *cntr)
{
    cntr->errors_read = ~cntr->errors;
    um_prov_waiter_signal(&cntr->source.waiter);
}

static int um_prov_cntr_add(struct fid_cntr *fid, uint64_t value)
{
    struct um_prov_cntr *cntr = um_prov_cntr_lock(fid);
    cntr->value += value;
    um_prov_cntr_value_set(cntr);
    um_prov_cntr_unlock(cntr);
    return 0;
}

static int um_prov_cntr_set(struct fid_cntr *fid, uint64_t value)
{
    struct um_prov_cntr *cntr = um_prov_cntr_lock(fid);
    cntr->value = value;
    if (cntr->remote)
        cntr->remote_base = um_load_relaxed_u64(cntr->remote);
    um_prov_cntr_value_set(cntr);
    um_prov_cntr_unlock(cntr);
    return 0;
}

static int um_prov_cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
    struct um_prov_cntr *cntr = um_prov_cntr_lock(fid);
    cntr->errors += value;
    um_prov_cntr_errors_set(cntr);
    um_prov_cntr_unlock(cntr);
    return 0;
}

static int um_prov_cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
    struct um_prov_cntr *cntr = um_prov_cntr_lock(fid);
    cntr->errors = value;
    um_prov_cntr_errors_set(cntr);
    um_prov_cntr_unlock(cntr);
    return 0;
}

/* Returns 0: the threshold is reached; -FI_EAVAIL: an operation failed meanwhile. */
static int um_prov_cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
    struct um_prov_wait wait = um_prov_wait_enter(timeout);
    struct um_prov_cntr *cntr = um_prov_cntr_lock(fid);
    uint64_t errors = cntr->errors;
    int ret = 0;
    for (;;) {
        um_prov_source_progress_locked(&cntr->source);
        if (um_prov_cntr_value_locked(cntr) >= threshold) {
            ret = 0;
            break;
        }
        ret = cntr->errors == errors ? um_prov_source_wait_locked(&cntr->source, &wait) : -FI_EAVAIL;
        if (ret && ret != -FI_EINTR) /* a handled signal does not end the wait: callers treat errors as fatal */
            break;
    }
    um_prov_cntr_unlock(cntr);
    um_prov_wait_leave(&wait);
    return ret;
}

static struct fi_ops_cntr um_prov_cntr_ops = {
    .size = sizeof(struct fi_ops_cntr),
    .read = um_prov_cntr_read,
    .readerr = um_prov_cntr_readerr,
    .add = um_prov_cntr_add,
    .set = um_prov_cntr_set,
    .wait = um_prov_cntr_wait,
    .adderr = um_prov_cntr_adderr,
    .seterr = um_prov_cntr_seterr,
};

static int um_prov_cntr_close(struct fid *fid)
{
    UM_UNCANCELLED;
    struct um_prov_cntr *cntr = UM_CONTAINER(fid, struct um_prov_cntr, fid.fid);
    struct um_prov_domain *d = cntr->source.domain;
    um_prov_control_lock(&d->lock);
    bool used = cntr->refs > 0;
    if (!used)
        um_prov_cntr_end_remote_locked(cntr);
    um_prov_control_unlock(&d->lock);
    if (used)
        return -FI_EBUSY;
    um_prov_live_remove(&cntr->live);
    um_prov_source_fini(&cntr->source);
    free(cntr);
    um_prov_domain_drop(d);
    return 0;
}

static int um_prov_cntr_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid, (void)bfid, (void)flags;
    return -FI_ENOSYS;
}

static int um_prov_cntr_control(struct fid *fid, int command, void *arg)
{
    switch (command) {
    case FI_GETOPSFLAG:
        *(uint64_t *)arg = 0;
        return 0;
    case FI_SETOPSFLAG:
        return *(uint64_t *)arg ? -FI_EBADFLAGS : 0;
    default:
        return um_prov_source_control(&UM_CONTAINER(fid, struct um_prov_cntr, fid.fid)->source, command, arg);
    }
}

static int um_prov_cntr_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops um_prov_cntr_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_prov_cntr_close,
    .bind = um_prov_cntr_bind,
    .control = um_prov_cntr_control,
    .ops_open = um_prov_cntr_ops_open,
};

int um_prov_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr_p, void *context)
{
    UM_UNCANCELLED;
    struct um_prov_domain *d = UM_CONTAINER(domain, struct um_prov_domain, fid);
    if (attr && ((int)attr->events > UM_FI_CNTR_EVENTS_BYTES || attr->flags))
        return -FI_EINVAL;
    struct um_prov_cntr *cntr = calloc(1, sizeof(*cntr));
    if (!cntr)
        return -FI_ENOMEM;
    int ret = um_prov_source_init(&cntr->source, d, attr ? attr->wait_obj : FI_WAIT_UNSPEC);
    if (ret) {
        free(cntr);
        return ret;
    }
    cntr->bytes = attr && (int)attr->events == UM_FI_CNTR_EVENTS_BYTES;
    cntr->source.has_news = um_prov_cntr_has_news;
    cntr->source.watched = um_prov_cntr_watched;
    um_list_init(&cntr->remote_link);
    cntr->fid.fid.fclass = FI_CLASS_CNTR;
    cntr->fid.fid.context = context;
    cntr->fid.fid.ops = &um_prov_cntr_fid_ops;
    cntr->fid.ops = &um_prov_cntr_ops;
    um_prov_domain_hold(d);
    um_prov_live_add(&cntr->live, &cntr->fid.fid);
    *cntr_p = &cntr->fid;
    return 0;
}
