/*
 * Counters of completed operations.
 *
 * Owns: struct um_cntr. Must not know where completions come from. Threading: under the guard of the domain.
 */
#include "prov/prov.h"

#include <stdlib.h>

void um_cntr_count_locked(struct um_cntr *cntr, size_t len)
{
    cntr->value += cntr->bytes ? len : 1;
    um_waiter_signal(&cntr->source.waiter);
}

void um_cntr_fail_locked(struct um_cntr *cntr)
{
    cntr->errors++;
    um_waiter_signal(&cntr->source.waiter);
}

static struct um_cntr *um_cntr_lock(struct fid_cntr *fid)
{
    struct um_cntr *cntr = UM_CONTAINER(fid, struct um_cntr, fid);
    um_guard_lock(&cntr->source.domain->guard);
    return cntr;
}

static void um_cntr_unlock(struct um_cntr *cntr)
{
    um_guard_unlock(&cntr->source.domain->guard);
}

static uint64_t um_cntr_read(struct fid_cntr *fid)
{
    struct um_cntr *cntr = um_cntr_lock(fid);
    if (__builtin_expect(cntr->source.waiter.armed, 0))
        um_source_disarm_locked(&cntr->source);
    um_source_progress_locked(&cntr->source);
    uint64_t value = cntr->value;
    um_cntr_unlock(cntr);
    return value;
}

static uint64_t um_cntr_readerr(struct fid_cntr *fid)
{
    struct um_cntr *cntr = um_cntr_lock(fid);
    um_source_progress_locked(&cntr->source);
    uint64_t errors = cntr->errors;
    um_cntr_unlock(cntr);
    return errors;
}

static int um_cntr_add(struct fid_cntr *fid, uint64_t value)
{
    struct um_cntr *cntr = um_cntr_lock(fid);
    cntr->value += value;
    um_waiter_signal(&cntr->source.waiter);
    um_cntr_unlock(cntr);
    return 0;
}

static int um_cntr_set(struct fid_cntr *fid, uint64_t value)
{
    struct um_cntr *cntr = um_cntr_lock(fid);
    cntr->value = value;
    um_waiter_signal(&cntr->source.waiter);
    um_cntr_unlock(cntr);
    return 0;
}

static int um_cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
    struct um_cntr *cntr = um_cntr_lock(fid);
    cntr->errors += value;
    um_waiter_signal(&cntr->source.waiter);
    um_cntr_unlock(cntr);
    return 0;
}

static int um_cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
    struct um_cntr *cntr = um_cntr_lock(fid);
    cntr->errors = value;
    um_waiter_signal(&cntr->source.waiter);
    um_cntr_unlock(cntr);
    return 0;
}

/* 0: the threshold is reached. -FI_EAVAIL: an operation failed meanwhile. */
static int um_cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
    struct um_cntr *cntr = um_cntr_lock(fid);
    uint64_t errors = cntr->errors, deadline = um_deadline(timeout);
    int ret = 0;
    for (;;) {
        um_source_progress_locked(&cntr->source);
        if (cntr->value >= threshold)
            break;
        if (cntr->errors != errors) {
            ret = -FI_EAVAIL;
            break;
        }
        int left = um_deadline_left(deadline);
        if (left == 0) {
            ret = -FI_ETIMEDOUT;
            break;
        }
        ret = um_source_sleep_locked(&cntr->source, left);
        if (ret && ret != -FI_EAGAIN)
            break;
        ret = 0;
    }
    um_cntr_unlock(cntr);
    return ret;
}

static struct fi_ops_cntr um_cntr_ops = {
    .size = sizeof(struct fi_ops_cntr),
    .read = um_cntr_read,
    .readerr = um_cntr_readerr,
    .add = um_cntr_add,
    .set = um_cntr_set,
    .wait = um_cntr_wait,
    .adderr = um_cntr_adderr,
    .seterr = um_cntr_seterr,
};

static int um_cntr_close(struct fid *fid)
{
    struct um_cntr *cntr = UM_CONTAINER(fid, struct um_cntr, fid.fid);
    struct um_domain *d = cntr->source.domain;
    um_guard_lock(&d->guard);
    uint32_t refs = cntr->refs;
    um_guard_unlock(&d->guard);
    if (refs)
        return -FI_EBUSY;
    um_source_fini(&cntr->source);
    free(cntr);
    um_domain_drop(d);
    return 0;
}

static int um_cntr_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid, (void)bfid, (void)flags;
    return -FI_ENOSYS;
}

static int um_cntr_control(struct fid *fid, int command, void *arg)
{
    switch (command) {
    case FI_GETOPSFLAG:
        *(uint64_t *)arg = 0;
        return 0;
    case FI_SETOPSFLAG:
        return *(uint64_t *)arg ? -FI_EBADFLAGS : 0;
    default:
        return um_source_control(&UM_CONTAINER(fid, struct um_cntr, fid.fid)->source, command, arg);
    }
}

static int um_cntr_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops um_cntr_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_cntr_close,
    .bind = um_cntr_bind,
    .control = um_cntr_control,
    .ops_open = um_cntr_ops_open,
};

int um_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr_p, void *context)
{
    struct um_domain *d = UM_CONTAINER(domain, struct um_domain, fid);
    if (attr && ((int)attr->events > UM_FI_CNTR_EVENTS_BYTES || attr->flags))
        return -FI_EINVAL;
    struct um_cntr *cntr = calloc(1, sizeof(*cntr));
    if (!cntr)
        return -FI_ENOMEM;
    int ret = um_source_init(&cntr->source, d, attr ? attr->wait_obj : FI_WAIT_UNSPEC);
    if (ret) {
        free(cntr);
        return ret;
    }
    cntr->bytes = attr && (int)attr->events == UM_FI_CNTR_EVENTS_BYTES;
    cntr->fid.fid.fclass = FI_CLASS_CNTR;
    cntr->fid.fid.context = context;
    cntr->fid.fid.ops = &um_cntr_fid_ops;
    cntr->fid.ops = &um_cntr_ops;
    um_domain_hold(d);
    *cntr_p = &cntr->fid;
    return 0;
}
