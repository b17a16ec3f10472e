/*
 * The extension of include/unimem/fi_ext_unimem.h: memory that a domain's machine moves best.
 *
 * Owns nothing: the memory is the machine's. Threading: under the domain lock.
 */
#include "prov/prov.h"

#include "base/cancel.h"
#include "base/log.h"

#include <unimem/fi_ext_unimem.h>

#include <string.h>

static int um_prov_memory_alloc(struct fid_domain *fid, size_t len, void **memory_p)
{
    UM_UNCANCELLED;
    struct um_prov_domain *d = UM_CONTAINER(fid, struct um_prov_domain, fid);
    if (um_prov_fork_is_inherited(&fid->fid))
        return -FI_EOPBADSTATE;
    um_prov_control_lock(&d->lock);
    int ret = um_prov_error_result(um_core_regions_memory_alloc(d->regions, len, memory_p));
    um_prov_control_unlock(&d->lock);
    return ret;
}

static int um_prov_memory_free(struct fid_domain *fid, void *memory)
{
    UM_UNCANCELLED;
    struct um_prov_domain *d = UM_CONTAINER(fid, struct um_prov_domain, fid);
    if (um_prov_fork_is_inherited(&fid->fid))
        return -FI_EOPBADSTATE;
    um_prov_control_lock(&d->lock);
    int ret = um_prov_error_result(um_core_regions_memory_free(d->regions, memory));
    um_prov_control_unlock(&d->lock);
    return ret;
}

static struct fi_unimem_memory_ops um_prov_memory_ops = {
    .size = sizeof(struct fi_unimem_memory_ops), .alloc = um_prov_memory_alloc, .free = um_prov_memory_free};

int um_prov_memory_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    struct um_prov_domain *d = UM_CONTAINER(fid, struct um_prov_domain, fid.fid);
    (void)context;
    if (!name || strcmp(name, FI_UNIMEM_MEMORY_OPS) != 0)
        return -FI_ENOSYS;
    if (flags)
        return -FI_EBADFLAGS;
    if (!um_core_regions_have_memory(d->regions)) {
        um_log(UM_LOG_INFO, "the machine %s has no memory of its own to give: any memory will do",
               d->env.machines.at[0]->name);
        return -FI_ENOSYS;
    }
    *ops = &um_prov_memory_ops;
    return 0;
}
