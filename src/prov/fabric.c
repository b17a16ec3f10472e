/*
 * The fabric object, and fi_trywait().
 *
 * Owns: struct um_prov_fabric. Threading: any; its reference count has a mutex of its own.
 */
#include "prov/prov.h"

#include "base/cancel.h"

#include <stdlib.h>
#include <string.h>

void um_prov_fabric_hold(struct um_prov_fabric *fabric)
{
    pthread_mutex_lock(&fabric->mutex);
    fabric->refs++;
    pthread_mutex_unlock(&fabric->mutex);
}

void um_prov_fabric_drop(struct um_prov_fabric *fabric)
{
    pthread_mutex_lock(&fabric->mutex);
    fabric->refs--;
    pthread_mutex_unlock(&fabric->mutex);
}

static int um_prov_fabric_close(struct fid *fid)
{
    UM_UNCANCELLED;
    struct um_prov_fabric *fabric = UM_CONTAINER(fid, struct um_prov_fabric, fid.fid);
    pthread_mutex_lock(&fabric->mutex);
    uint32_t refs = fabric->refs;
    pthread_mutex_unlock(&fabric->mutex);
    if (refs)
        return -FI_EBUSY;
    um_prov_live_remove(&fabric->live);
    pthread_mutex_destroy(&fabric->mutex);
    free(fabric);
    return 0;
}

static int um_prov_fabric_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid, (void)bfid, (void)flags;
    return -FI_ENOSYS;
}

static int um_prov_fabric_control(struct fid *fid, int command, void *arg)
{
    (void)fid, (void)command, (void)arg;
    return -FI_ENOSYS;
}

static int um_prov_fabric_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops um_prov_fabric_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_prov_fabric_close,
    .bind = um_prov_fabric_bind,
    .control = um_prov_fabric_control,
    .ops_open = um_prov_fabric_ops_open,
};

static int um_prov_fabric_passive_ep(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep,
                                     void *context)
{
    (void)fabric, (void)info, (void)pep, (void)context;
    return -FI_ENOSYS;
}

static int um_prov_fabric_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **waitset)
{
    (void)fabric, (void)attr, (void)waitset;
    return -FI_ENOSYS;
}

static int um_prov_source_try(struct um_prov_event_source *s, bool ready)
{
    return ready ? -FI_EAGAIN : um_prov_source_arm_locked(s);
}

static int um_prov_cq_try(struct um_prov_cq *cq)
{
    struct um_prov_domain_mutex *g = &cq->source.domain->lock;
    um_prov_domain_lock(g);
    if (!um_prov_cq_ready_locked(cq))
        um_prov_source_progress_locked(&cq->source);
    int ret = um_prov_source_try(&cq->source, um_prov_cq_ready_locked(cq));
    um_prov_domain_unlock(g);
    return ret;
}

/* A counter's event is a value, or a number of errors, that the caller has not read. */
static int um_prov_cntr_try(struct um_prov_cntr *cntr)
{
    struct um_prov_domain_mutex *g = &cntr->source.domain->lock;
    um_prov_domain_lock(g);
    um_prov_source_progress_locked(&cntr->source);
    const bool is_new = cntr->value != cntr->value_read || cntr->errors != cntr->errors_read;
    int ret = um_prov_source_try(&cntr->source, is_new);
    um_prov_domain_unlock(g);
    return ret;
}

/* 0: all are empty, and each fd becomes readable upon the next event. -FI_EAGAIN: read first. */
static int um_prov_fabric_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    UM_UNCANCELLED;
    (void)fabric;
    for (int i = 0; i < count; i++) {
        int ret;
        if (um_prov_fork_is_inherited(fids[i]))
            return -FI_EOPBADSTATE;
        switch (fids[i]->fclass) {
        case FI_CLASS_CQ:
            ret = um_prov_cq_try(UM_CONTAINER(fids[i], struct um_prov_cq, fid.fid));
            break;
        case FI_CLASS_CNTR:
            ret = um_prov_cntr_try(UM_CONTAINER(fids[i], struct um_prov_cntr, fid.fid));
            break;
        case FI_CLASS_EQ:
            ret = um_prov_eq_arm(UM_CONTAINER(fids[i], struct um_prov_eq, fid.fid));
            break;
        default:
            ret = -FI_EINVAL;
        }
        if (ret)
            return ret;
    }
    return 0;
}

static int um_prov_fabric_domain2(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                                  uint64_t flags, void *context)
{
    return flags ? -FI_EBADFLAGS : um_prov_domain_open(fabric, info, domain, context);
}

static struct fi_ops_fabric um_prov_fabric_ops = {
    .size = sizeof(struct fi_ops_fabric),
    .domain = um_prov_domain_open,
    .passive_ep = um_prov_fabric_passive_ep,
    .eq_open = um_prov_eq_open,
    .wait_open = um_prov_fabric_wait_open,
    .trywait = um_prov_fabric_trywait,
    .domain2 = um_prov_fabric_domain2,
};

int um_prov_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric_p, void *context)
{
    UM_UNCANCELLED;
    if (attr->name && strcmp(attr->name, UM_PROV_NAME) != 0)
        return -FI_EINVAL;
    int ret = um_prov_fork_watch();
    if (ret)
        return ret;
    struct um_prov_fabric *fabric = calloc(1, sizeof(*fabric));
    if (!fabric)
        return -FI_ENOMEM;
    pthread_mutex_init(&fabric->mutex, NULL);
    fabric->fid.fid.fclass = FI_CLASS_FABRIC;
    fabric->fid.fid.context = context;
    fabric->fid.fid.ops = &um_prov_fabric_fid_ops;
    fabric->fid.ops = &um_prov_fabric_ops;
    fabric->fid.api_version = attr->api_version;
    um_prov_live_add(&fabric->live, &fabric->fid.fid);
    *fabric_p = &fabric->fid;
    return 0;
}
