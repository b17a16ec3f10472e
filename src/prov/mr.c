/*
 * Memory regions: a registration is an entry in the domain's table. Local buffers need no registration.
 *
 * Owns: struct um_prov_mr. Must not know how peers reach the memory.
 * Threading: every endpoint's progress reads the table, so it changes under the domain lock.
 */
#include "prov/prov.h"

#include "base/cancel.h"

#include <stdlib.h>
#include <string.h>

static int um_prov_mr_close(struct fid *fid)
{
    UM_UNCANCELLED;
    struct um_prov_mr *mr = UM_CONTAINER(fid, struct um_prov_mr, fid.fid);
    um_prov_live_remove(&mr->live);
    um_prov_control_lock(&mr->domain->lock);
    um_core_regions_remove(mr->domain->regions, &mr->region);
    for (int i = 0; i < UM_REMOTE_KINDS; i++) {
        if (mr->cntr[i])
            mr->cntr[i]->refs--;
    }
    mr->domain->refs--;
    um_prov_control_unlock(&mr->domain->lock);
    free(mr);
    return 0;
}

/* Binds a counter, also to a region that peers use already: Sandia OpenSHMEM does that. */
static int um_prov_mr_bind_cntr(struct um_prov_mr *mr, struct um_prov_cntr *cntr, uint64_t flags)
{
    if (cntr->source.domain != mr->domain)
        return -FI_EINVAL;
    um_prov_control_lock(&mr->domain->lock);
    uint32_t counters = mr->region.counters;
    int ret = um_prov_cntr_bind_remote_locked(cntr, flags, mr->cntr, &counters);
    if (ret == 0)
        um_core_regions_set_counters(mr->domain->regions, &mr->region, counters);
    um_prov_control_unlock(&mr->domain->lock);
    return ret;
}

/* Every region is reached through any endpoint of the domain, so a binding to an endpoint changes nothing. */
static int um_prov_mr_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    UM_UNCANCELLED;
    switch (bfid->fclass) {
    case FI_CLASS_EP:
        return 0;
    case FI_CLASS_CNTR:
        return um_prov_mr_bind_cntr(UM_CONTAINER(fid, struct um_prov_mr, fid.fid),
                                    UM_CONTAINER(bfid, struct um_prov_cntr, fid.fid), flags);
    default:
        return -FI_EINVAL;
    }
}

static int um_prov_mr_raw_attr(const struct um_prov_mr *mr, struct fi_mr_raw_attr *attr)
{
    size_t room = *attr->key_size;
    *attr->key_size = sizeof(mr->region.key);
    if (room < sizeof(mr->region.key))
        return -FI_ETOOSMALL;
    if (attr->base_addr)
        *attr->base_addr = mr->region.origin;
    memcpy(attr->raw_key, &mr->region.key, sizeof(mr->region.key));
    return 0;
}

static int um_prov_mr_control(struct fid *fid, int command, void *arg)
{
    switch (command) {
    case FI_ENABLE: /* regions are enabled from the start */
    case FI_REFRESH:
        return 0;
    case FI_GET_RAW_MR:
        return um_prov_mr_raw_attr(UM_CONTAINER(fid, struct um_prov_mr, fid.fid), arg);
    default:
        return -FI_ENOSYS;
    }
}

static int um_prov_mr_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops um_prov_mr_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_prov_mr_close,
    .bind = um_prov_mr_bind,
    .control = um_prov_mr_control,
    .ops_open = um_prov_mr_ops_open,
};

enum { UM_MR_USELESS_PAUSES = 3 };

/*
 * Static data can be adopted only while the process has one thread, and the progress thread is a second one. If it is
 * the only other thread, it is stopped for a moment and the region is added again. Called under the domain lock, which
 * is released meanwhile.
 */
static int um_prov_mr_add_alone_locked(struct um_prov_domain *d, struct um_prov_mr *mr)
{
    if (!d->progress || d->useless_pauses == UM_MR_USELESS_PAUSES || !mr->region.base ||
        !(mr->region.access & UM_ACCESS_REMOTE_WRITE) ||
        um_core_regions_level(d->regions, &mr->region) == UM_LEVEL_MAPPED)
        return 0;
    um_prov_control_unlock(&d->lock);
    bool paused = um_prov_progress_pause(d);
    um_prov_control_lock(&d->lock);
    if (!paused)
        return 0;
    um_core_regions_remove(d->regions, &mr->region);
    int ret = um_prov_error_result(um_core_regions_add(d->regions, &mr->region));
    if (ret == 0 && um_core_regions_level(d->regions, &mr->region) != UM_LEVEL_MAPPED)
        d->useless_pauses++;
    int resumed = um_prov_progress_resume(d);
    if (ret == 0 && resumed)
        um_core_regions_remove(d->regions, &mr->region);
    return ret ? ret : resumed;
}

/* Registers memory, from the fields that every API version has. */
static int um_prov_mr_register(struct um_prov_domain *d, const struct fi_mr_attr *attr, struct fid_mr **mr_p)
{
    UM_UNCANCELLED;
    if (attr->iov_count > 1 || (attr->iov_count == 1 && !attr->mr_iov))
        return -FI_EINVAL;
    struct um_prov_mr *mr = calloc(1, sizeof(*mr));
    if (!mr)
        return -FI_ENOMEM;
    if (attr->iov_count) {
        mr->region.base = (uintptr_t)attr->mr_iov[0].iov_base;
        mr->region.len = attr->mr_iov[0].iov_len;
    }
    mr->region.origin = d->virtual_addresses ? mr->region.base : 0;
    mr->region.access = (attr->access & FI_REMOTE_READ ? UM_ACCESS_REMOTE_READ : 0) |
                        (attr->access & FI_REMOTE_WRITE ? UM_ACCESS_REMOTE_WRITE : 0);
    mr->domain = d;
    um_prov_control_lock(&d->lock);
    mr->region.key = d->provider_keys ? d->next_key++ : attr->requested_key;
    int ret = um_prov_error_result(um_core_regions_add(d->regions, &mr->region));
    if (ret == 0)
        ret = um_prov_mr_add_alone_locked(d, mr);
    if (ret == 0)
        d->refs++;
    um_prov_control_unlock(&d->lock);
    if (ret) {
        free(mr);
        return ret;
    }
    mr->fid.fid.fclass = FI_CLASS_MR;
    mr->fid.fid.context = attr->context;
    mr->fid.fid.ops = &um_prov_mr_fid_ops;
    mr->fid.mem_desc = mr;
    mr->fid.key = mr->region.key;
    um_prov_live_add(&mr->live, &mr->fid.fid);
    *mr_p = &mr->fid;
    return 0;
}

static int um_prov_mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr_p)
{
    struct um_prov_domain *d = UM_CONTAINER(fid, struct um_prov_domain, fid.fid);
    if (fid->fclass != FI_CLASS_DOMAIN)
        return -FI_EINVAL;
    if (flags & ~FI_RMA_EVENT) /* among them FI_MR_DMABUF */
        return -FI_EBADFLAGS;
    if (um_prov_has_mr_iface(um_prov_domain_api(d)) && attr->iface != FI_HMEM_SYSTEM)
        return -FI_EOPNOTSUPP;
    return um_prov_mr_register(d, attr, mr_p);
}

static int um_prov_mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
                           uint64_t requested_key, uint64_t flags, struct fid_mr **mr_p, void *context)
{
    struct um_prov_domain *d = UM_CONTAINER(fid, struct um_prov_domain, fid.fid);
    const struct fi_mr_attr attr = {
        .mr_iov = iov,
        .iov_count = count,
        .access = access,
        .offset = offset,
        .requested_key = requested_key,
        .context = context,
    };
    if (fid->fclass != FI_CLASS_DOMAIN)
        return -FI_EINVAL;
    return flags & ~FI_RMA_EVENT ? -FI_EBADFLAGS : um_prov_mr_register(d, &attr, mr_p);
}

static int um_prov_mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
                          uint64_t requested_key, uint64_t flags, struct fid_mr **mr_p, void *context)
{
    const struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    return um_prov_mr_regv(fid, &iov, 1, access, offset, requested_key, flags, mr_p, context);
}

struct fi_ops_mr um_prov_mr_ops = {
    .size = sizeof(struct fi_ops_mr),
    .reg = um_prov_mr_reg,
    .regv = um_prov_mr_regv,
    .regattr = um_prov_mr_regattr,
};
