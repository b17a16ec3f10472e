/*
 * The domain object: settings, the domain lock, the table of registered memory, and the opening of all objects below
 * it.
 *
 * Owns: struct um_prov_domain. Must not know how these objects work. Threading: see prov.h.
 */
#include "prov/prov.h"

#include "base/cancel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

void um_prov_domain_hold(struct um_prov_domain *d)
{
    um_prov_control_lock(&d->lock);
    d->refs++;
    um_prov_control_unlock(&d->lock);
}

void um_prov_domain_drop(struct um_prov_domain *d)
{
    um_prov_control_lock(&d->lock);
    d->refs--;
    um_prov_control_unlock(&d->lock);
}

static void um_prov_domain_free(struct um_prov_domain *d)
{
    um_core_regions_close(d->regions);
    um_prov_domain_lock_fini(&d->lock);
    free(d);
}

static int um_prov_domain_close(struct fid *fid)
{
    UM_UNCANCELLED;
    struct um_prov_domain *d = UM_CONTAINER(fid, struct um_prov_domain, fid.fid);
    um_prov_control_lock(&d->lock);
    uint32_t refs = d->refs;
    um_prov_control_unlock(&d->lock);
    if (refs)
        return -FI_EBUSY;
    um_prov_live_remove(&d->live);
    um_prov_progress_stop(d);
    um_prov_fabric_drop(d->fabric);
    um_prov_domain_free(d);
    return 0;
}

/* Registration is synchronous: an event queue has nothing to report, and FI_REG_MR is refused. */
static int um_prov_domain_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid;
    if (bfid->fclass != FI_CLASS_EQ)
        return -FI_EINVAL;
    return flags ? -FI_ENOSYS : 0;
}

static int um_prov_domain_map_raw(struct fi_mr_map_raw *map)
{
    if (map->flags || map->key_size < sizeof(uint64_t))
        return -FI_EINVAL;
    memcpy(map->key, map->raw_key, sizeof(uint64_t));
    return 0;
}

static int um_prov_domain_control(struct fid *fid, int command, void *arg)
{
    (void)fid;
    switch (command) {
    case FI_MAP_RAW_MR:
        return um_prov_domain_map_raw(arg);
    case FI_UNMAP_KEY:
        return 0;
    default:
        return -FI_ENOSYS;
    }
}

static struct fi_ops um_prov_domain_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_prov_domain_close,
    .bind = um_prov_domain_bind,
    .control = um_prov_domain_control,
    .ops_open = um_prov_memory_ops_open,
};

static int um_prov_domain_scalable_ep(struct fid_domain *d, struct fi_info *info, struct fid_ep **ep, void *context)
{
    (void)d, (void)info, (void)ep, (void)context;
    return -FI_ENOSYS;
}

static int um_prov_domain_poll_open(struct fid_domain *d, struct fi_poll_attr *attr, struct fid_poll **set)
{
    (void)d, (void)attr, (void)set;
    return -FI_ENOSYS;
}

static int um_prov_domain_stx_ctx(struct fid_domain *d, struct fi_tx_attr *attr, struct fid_stx **stx, void *context)
{
    (void)d, (void)attr, (void)stx, (void)context;
    return -FI_ENOSYS;
}

static int um_prov_domain_srx_ctx(struct fid_domain *d, struct fi_rx_attr *attr, struct fid_ep **ep, void *context)
{
    (void)d, (void)attr, (void)ep, (void)context;
    return -FI_ENOSYS;
}

static int um_prov_domain_query_collective(struct fid_domain *d, enum fi_collective_op op,
                                           struct fi_collective_attr *attr, uint64_t flags)
{
    (void)d, (void)op, (void)attr, (void)flags;
    return -FI_EOPNOTSUPP;
}

static int um_prov_domain_endpoint2(struct fid_domain *d, struct fi_info *info, struct fid_ep **ep, uint64_t flags,
                                    void *context)
{
    return flags ? -FI_EBADFLAGS : um_prov_ep_open(d, info, ep, context);
}

static struct fi_ops_domain um_prov_domain_ops = {
    .size = sizeof(struct fi_ops_domain),
    .av_open = um_prov_av_open,
    .cq_open = um_prov_cq_open,
    .endpoint = um_prov_ep_open,
    .scalable_ep = um_prov_domain_scalable_ep,
    .cntr_open = um_prov_cntr_open,
    .poll_open = um_prov_domain_poll_open,
    .stx_ctx = um_prov_domain_stx_ctx,
    .srx_ctx = um_prov_domain_srx_ctx,
    .query_atomic = um_prov_atomic_query,
    .query_collective = um_prov_domain_query_collective,
    .endpoint2 = um_prov_domain_endpoint2,
};

static void um_prov_domain_configure(struct um_prov_domain *d, const struct fi_domain_attr *attr)
{
    bool basic = attr->mr_mode & UM_MR_BASIC;
    d->virtual_addresses = basic || attr->mr_mode & FI_MR_VIRT_ADDR;
    d->provider_keys = basic || attr->mr_mode & FI_MR_PROV_KEY;
}

/* Reads the settings. The domain's name chooses the machines; "unimem" leaves the choice to FI_UNIMEM_MACHINE. */
static int um_prov_domain_read_env(struct um_prov_domain *d, const struct fi_domain_attr *attr)
{
    int ret = um_prov_env_read(&d->env);
    if (ret == 0 && attr->name && strcmp(attr->name, UM_PROV_NAME) != 0)
        ret = um_machines_named(attr->name, &d->env.machines) ? -FI_EINVAL : 0;
    return ret;
}

int um_prov_domain_open(struct fid_fabric *fabric_fid, struct fi_info *info, struct fid_domain **domain_p,
                        void *context)
{
    UM_UNCANCELLED;
    struct um_prov_fabric *fabric = UM_CONTAINER(fabric_fid, struct um_prov_fabric, fid);
    if (!info->domain_attr)
        return -FI_EINVAL;
    struct um_prov_domain *d = calloc(1, sizeof(*d));
    if (!d)
        return -FI_ENOMEM;
    um_prov_domain_lock_init(&d->lock, info->domain_attr->threading == FI_THREAD_DOMAIN &&
                                           info->domain_attr->data_progress != FI_PROGRESS_AUTO);
    d->fabric = fabric;
    d->next_key = 1;
    um_list_init(&d->eps);
    um_list_init(&d->remote_cntrs);
    d->processors = (uint32_t)get_nprocs();
    int ret = um_prov_domain_read_env(d, info->domain_attr);
    if (ret == 0)
        ret = um_prov_error_result(um_core_regions_open(&d->env.machines, &d->env.space, &d->regions));
    if (ret) {
        um_prov_domain_lock_fini(&d->lock);
        free(d);
        return ret;
    }
    um_proto_limits_get(&d->env.machines, &d->limits);
    um_prov_domain_configure(d, info->domain_attr);
    if (info->domain_attr->data_progress == FI_PROGRESS_AUTO && (ret = um_prov_progress_start(d)) != 0) {
        um_prov_domain_free(d);
        return ret;
    }
    d->fid.fid.fclass = FI_CLASS_DOMAIN;
    d->fid.fid.context = context;
    d->fid.fid.ops = &um_prov_domain_fid_ops;
    d->fid.ops = &um_prov_domain_ops;
    d->fid.mr = &um_prov_mr_ops;
    um_prov_fabric_hold(fabric);
    um_prov_live_add(&d->live, &d->fid.fid);
    *domain_p = &d->fid;
    return 0;
}
