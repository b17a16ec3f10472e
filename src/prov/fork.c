/*
 * fork(): the list of objects, and what happens to them in the child.
 *
 * Owns: the list of this process's objects. In a child the objects get the tables of inherited.h before other code runs
 * there, so no call has to check whether its object was inherited. vfork(2) and posix_spawn(3) run no handlers and need
 * none.
 * Threading: a lock of its own, held from before a fork until after, so that the child finds the list complete. No
 * other lock is taken while it is held.
 */
#include "prov/inherited.h"

#include <pthread.h>

static pthread_mutex_t um_prov_live_lock = PTHREAD_MUTEX_INITIALIZER;
static struct um_list um_prov_live_all = {&um_prov_live_all, &um_prov_live_all};

static_assert(offsetof(struct um_prov_fabric, fid) == 0 && offsetof(struct um_prov_domain, fid) == 0 &&
                  offsetof(struct um_prov_ep, fid) == 0 && offsetof(struct um_prov_cq, fid) == 0 &&
                  offsetof(struct um_prov_cntr, fid) == 0 && offsetof(struct um_prov_eq, fid) == 0 &&
                  offsetof(struct um_prov_av, fid) == 0 && offsetof(struct um_prov_mr, fid) == 0,
              "closing an inherited object frees what begins with its fid");

void um_prov_live_add(struct um_prov_live *live, struct fid *fid)
{
    live->fid = fid;
    pthread_mutex_lock(&um_prov_live_lock);
    um_list_append(&um_prov_live_all, &live->link);
    pthread_mutex_unlock(&um_prov_live_lock);
}

void um_prov_live_remove(struct um_prov_live *live)
{
    pthread_mutex_lock(&um_prov_live_lock);
    um_list_unlink(&live->link);
    pthread_mutex_unlock(&um_prov_live_lock);
}

bool um_prov_fork_is_inherited(const struct fid *fid)
{
    return fid->ops == &um_prov_inherited_fid_ops;
}

static void um_prov_inherit_ep(struct fid_ep *ep)
{
    ep->ops = &um_prov_inherited_ep_ops;
    ep->cm = &um_prov_inherited_cm_ops;
    ep->msg = &um_prov_inherited_msg_ops;
    ep->tagged = &um_prov_inherited_tagged_ops;
    ep->rma = &um_prov_inherited_rma_ops;
    ep->atomic = &um_prov_inherited_atomic_ops;
}

static void um_prov_inherit_domain(struct fid_domain *domain)
{
    domain->ops = &um_prov_inherited_domain_ops;
    domain->mr = &um_prov_inherited_mr_ops;
}

static void um_prov_inherit(struct fid *fid)
{
    fid->ops = &um_prov_inherited_fid_ops;
    switch (fid->fclass) {
    case FI_CLASS_FABRIC:
        UM_CONTAINER(fid, struct fid_fabric, fid)->ops = &um_prov_inherited_fabric_ops;
        break;
    case FI_CLASS_DOMAIN:
        um_prov_inherit_domain(UM_CONTAINER(fid, struct fid_domain, fid));
        break;
    case FI_CLASS_EP:
        um_prov_inherit_ep(UM_CONTAINER(fid, struct fid_ep, fid));
        break;
    case FI_CLASS_AV:
        UM_CONTAINER(fid, struct fid_av, fid)->ops = &um_prov_inherited_av_ops;
        break;
    case FI_CLASS_CQ:
        UM_CONTAINER(fid, struct fid_cq, fid)->ops = &um_prov_inherited_cq_ops;
        break;
    case FI_CLASS_CNTR:
        UM_CONTAINER(fid, struct fid_cntr, fid)->ops = &um_prov_inherited_cntr_ops;
        break;
    case FI_CLASS_EQ:
        UM_CONTAINER(fid, struct fid_eq, fid)->ops = &um_prov_inherited_eq_ops;
        break;
    default: /* FI_CLASS_MR has no other table */
        break;
    }
}

static void um_prov_fork_prepare(void)
{
    pthread_mutex_lock(&um_prov_live_lock);
}

static void um_prov_fork_in_parent(void)
{
    pthread_mutex_unlock(&um_prov_live_lock);
}

/* Empties the list: a child of the child finds the tables replaced already. */
static void um_prov_fork_in_child(void)
{
    for (struct um_list *l; (l = um_list_first(&um_prov_live_all)) != NULL; um_list_unlink(l))
        um_prov_inherit(UM_CONTAINER(l, struct um_prov_live, link)->fid);
    pthread_mutex_unlock(&um_prov_live_lock);
}

static int um_prov_fork_watched;

static void um_prov_fork_register(void)
{
    um_prov_fork_watched = -pthread_atfork(um_prov_fork_prepare, um_prov_fork_in_parent, um_prov_fork_in_child);
}

int um_prov_fork_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, um_prov_fork_register);
    return um_prov_error_result(um_prov_fork_watched);
}
