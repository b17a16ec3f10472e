/*
 * What a parent's fabrics, domains, registrations, queues and counters answer in its child. See inherited.h.
 *
 * Owns nothing but the memory of an object that is closed. No lock is taken: another thread of the parent may have held
 * it. Threading: any.
 */
#include "prov/inherited.h"

#include <stdlib.h>

static int um_prov_inherited_fabric_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **dom,
                                           void *context)
{
    (void)fabric, (void)info, (void)dom, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_fabric_passive_ep(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep,
                                               void *context)
{
    (void)fabric, (void)info, (void)pep, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_fabric_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq,
                                            void *context)
{
    (void)fabric, (void)attr, (void)eq, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_fabric_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr,
                                              struct fid_wait **waitset)
{
    (void)fabric, (void)attr, (void)waitset;
    return UM_INHERITED;
}

static int um_prov_inherited_fabric_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    (void)fabric, (void)fids, (void)count;
    return UM_INHERITED;
}

static int um_prov_inherited_fabric_domain2(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **dom,
                                            uint64_t flags, void *context)
{
    (void)fabric, (void)info, (void)dom, (void)flags, (void)context;
    return UM_INHERITED;
}

struct fi_ops_fabric um_prov_inherited_fabric_ops = {
    .size = sizeof(struct fi_ops_fabric),
    .domain = um_prov_inherited_fabric_domain,
    .passive_ep = um_prov_inherited_fabric_passive_ep,
    .eq_open = um_prov_inherited_fabric_eq_open,
    .wait_open = um_prov_inherited_fabric_wait_open,
    .trywait = um_prov_inherited_fabric_trywait,
    .domain2 = um_prov_inherited_fabric_domain2,
};

static int um_prov_inherited_domain_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
                                            void *context)
{
    (void)domain, (void)attr, (void)av, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
                                            void *context)
{
    (void)domain, (void)attr, (void)cq, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                                             void *context)
{
    (void)domain, (void)info, (void)ep, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_scalable_ep(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep,
                                                void *context)
{
    (void)domain, (void)info, (void)sep, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
                                              struct fid_cntr **cntr, void *context)
{
    (void)domain, (void)attr, (void)cntr, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
                                              struct fid_poll **pollset)
{
    (void)domain, (void)attr, (void)pollset;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_stx_ctx(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
                                            void *context)
{
    (void)domain, (void)attr, (void)stx, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_srx_ctx(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **rx_ep,
                                            void *context)
{
    (void)domain, (void)attr, (void)rx_ep, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_query_atomic(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op,
                                                 struct fi_atomic_attr *attr, uint64_t flags)
{
    (void)domain, (void)datatype, (void)op, (void)attr, (void)flags;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_query_collective(struct fid_domain *domain, enum fi_collective_op coll,
                                                     struct fi_collective_attr *attr, uint64_t flags)
{
    (void)domain, (void)coll, (void)attr, (void)flags;
    return UM_INHERITED;
}

static int um_prov_inherited_domain_endpoint2(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                                              uint64_t flags, void *context)
{
    (void)domain, (void)info, (void)ep, (void)flags, (void)context;
    return UM_INHERITED;
}

struct fi_ops_domain um_prov_inherited_domain_ops = {
    .size = sizeof(struct fi_ops_domain),
    .av_open = um_prov_inherited_domain_av_open,
    .cq_open = um_prov_inherited_domain_cq_open,
    .endpoint = um_prov_inherited_domain_endpoint,
    .scalable_ep = um_prov_inherited_domain_scalable_ep,
    .cntr_open = um_prov_inherited_domain_cntr_open,
    .poll_open = um_prov_inherited_domain_poll_open,
    .stx_ctx = um_prov_inherited_domain_stx_ctx,
    .srx_ctx = um_prov_inherited_domain_srx_ctx,
    .query_atomic = um_prov_inherited_domain_query_atomic,
    .query_collective = um_prov_inherited_domain_query_collective,
    .endpoint2 = um_prov_inherited_domain_endpoint2,
};

static int um_prov_inherited_mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
                                    uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
    (void)fid, (void)buf, (void)len, (void)access, (void)offset, (void)requested_key, (void)flags, (void)mr,
        (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
                                     uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr,
                                     void *context)
{
    (void)fid, (void)iov, (void)count, (void)access, (void)offset, (void)requested_key, (void)flags, (void)mr,
        (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                                        struct fid_mr **mr)
{
    (void)fid, (void)attr, (void)flags, (void)mr;
    return UM_INHERITED;
}

struct fi_ops_mr um_prov_inherited_mr_ops = {
    .size = sizeof(struct fi_ops_mr),
    .reg = um_prov_inherited_mr_reg,
    .regv = um_prov_inherited_mr_regv,
    .regattr = um_prov_inherited_mr_regattr,
};

static int um_prov_inherited_av_insert(struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr,
                                       uint64_t flags, void *context)
{
    (void)av, (void)addr, (void)count, (void)fi_addr, (void)flags, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_av_insertsvc(struct fid_av *av, const char *node, const char *service, fi_addr_t *fi_addr,
                                          uint64_t flags, void *context)
{
    (void)av, (void)node, (void)service, (void)fi_addr, (void)flags, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_av_insertsym(struct fid_av *av, const char *node, size_t nodecnt, const char *service,
                                          size_t svccnt, fi_addr_t *fi_addr, uint64_t flags, void *context)
{
    (void)av, (void)node, (void)nodecnt, (void)service, (void)svccnt, (void)fi_addr, (void)flags, (void)context;
    return UM_INHERITED;
}

static int um_prov_inherited_av_remove(struct fid_av *av, fi_addr_t *fi_addr, size_t count, uint64_t flags)
{
    (void)av, (void)fi_addr, (void)count, (void)flags;
    return UM_INHERITED;
}

static int um_prov_inherited_av_lookup(struct fid_av *av, fi_addr_t fi_addr, void *addr, size_t *addrlen)
{
    (void)av, (void)fi_addr, (void)addr, (void)addrlen;
    return UM_INHERITED;
}

struct fi_ops_av um_prov_inherited_av_ops = {
    .size = sizeof(struct fi_ops_av),
    .insert = um_prov_inherited_av_insert,
    .insertsvc = um_prov_inherited_av_insertsvc,
    .insertsym = um_prov_inherited_av_insertsym,
    .remove = um_prov_inherited_av_remove,
    .lookup = um_prov_inherited_av_lookup,
    .straddr = um_prov_av_straddr,
};

static ssize_t um_prov_inherited_cq_read(struct fid_cq *cq, void *buf, size_t count)
{
    (void)cq, (void)buf, (void)count;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_cq_readfrom(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr)
{
    (void)cq, (void)buf, (void)count, (void)src_addr;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf, uint64_t flags)
{
    (void)cq, (void)buf, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_cq_sread(struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout)
{
    (void)cq, (void)buf, (void)count, (void)cond, (void)timeout;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_cq_sreadfrom(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr,
                                              const void *cond, int timeout)
{
    (void)cq, (void)buf, (void)count, (void)src_addr, (void)cond, (void)timeout;
    return UM_INHERITED;
}

static int um_prov_inherited_cq_signal(struct fid_cq *cq)
{
    (void)cq;
    return UM_INHERITED;
}

struct fi_ops_cq um_prov_inherited_cq_ops = {
    .size = sizeof(struct fi_ops_cq),
    .read = um_prov_inherited_cq_read,
    .readfrom = um_prov_inherited_cq_readfrom,
    .readerr = um_prov_inherited_cq_readerr,
    .sread = um_prov_inherited_cq_sread,
    .sreadfrom = um_prov_inherited_cq_sreadfrom,
    .signal = um_prov_inherited_cq_signal,
    .strerror = um_prov_cq_strerror,
};

/* These two cannot return an error. The first returns the last known value, the second one error more, for the fork. */
static uint64_t um_prov_inherited_cntr_read(struct fid_cntr *cntr)
{
    return um_prov_cntr_known(UM_CONTAINER(cntr, struct um_prov_cntr, fid));
}

static uint64_t um_prov_inherited_cntr_readerr(struct fid_cntr *cntr)
{
    return UM_CONTAINER(cntr, struct um_prov_cntr, fid)->errors + 1;
}

static int um_prov_inherited_cntr_add(struct fid_cntr *cntr, uint64_t value)
{
    (void)cntr, (void)value;
    return UM_INHERITED;
}

static int um_prov_inherited_cntr_set(struct fid_cntr *cntr, uint64_t value)
{
    (void)cntr, (void)value;
    return UM_INHERITED;
}

static int um_prov_inherited_cntr_wait(struct fid_cntr *cntr, uint64_t threshold, int timeout)
{
    (void)cntr, (void)threshold, (void)timeout;
    return UM_INHERITED;
}

static int um_prov_inherited_cntr_adderr(struct fid_cntr *cntr, uint64_t value)
{
    (void)cntr, (void)value;
    return UM_INHERITED;
}

static int um_prov_inherited_cntr_seterr(struct fid_cntr *cntr, uint64_t value)
{
    (void)cntr, (void)value;
    return UM_INHERITED;
}

struct fi_ops_cntr um_prov_inherited_cntr_ops = {
    .size = sizeof(struct fi_ops_cntr),
    .read = um_prov_inherited_cntr_read,
    .readerr = um_prov_inherited_cntr_readerr,
    .add = um_prov_inherited_cntr_add,
    .set = um_prov_inherited_cntr_set,
    .wait = um_prov_inherited_cntr_wait,
    .adderr = um_prov_inherited_cntr_adderr,
    .seterr = um_prov_inherited_cntr_seterr,
};

static ssize_t um_prov_inherited_eq_read(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
    (void)eq, (void)event, (void)buf, (void)len, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *buf, uint64_t flags)
{
    (void)eq, (void)buf, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_eq_write(struct fid_eq *eq, uint32_t event, const void *buf, size_t len,
                                          uint64_t flags)
{
    (void)eq, (void)event, (void)buf, (void)len, (void)flags;
    return UM_INHERITED;
}

static ssize_t um_prov_inherited_eq_sread(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, int timeout,
                                          uint64_t flags)
{
    (void)eq, (void)event, (void)buf, (void)len, (void)timeout, (void)flags;
    return UM_INHERITED;
}

struct fi_ops_eq um_prov_inherited_eq_ops = {
    .size = sizeof(struct fi_ops_eq),
    .read = um_prov_inherited_eq_read,
    .readerr = um_prov_inherited_eq_readerr,
    .write = um_prov_inherited_eq_write,
    .sread = um_prov_inherited_eq_sread,
    .strerror = um_prov_eq_strerror,
};

/* Frees the object's own memory, which begins with the fid. What else it owned is released when the child ends. */
static int um_prov_inherited_fid_close(struct fid *fid)
{
    free(fid);
    return 0;
}

static int um_prov_inherited_fid_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid, (void)bfid, (void)flags;
    return UM_INHERITED;
}

static int um_prov_inherited_fid_control(struct fid *fid, int command, void *arg)
{
    (void)fid, (void)command, (void)arg;
    return UM_INHERITED;
}

static int um_prov_inherited_fid_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return UM_INHERITED;
}

struct fi_ops um_prov_inherited_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_prov_inherited_fid_close,
    .bind = um_prov_inherited_fid_bind,
    .control = um_prov_inherited_fid_control,
    .ops_open = um_prov_inherited_fid_ops_open,
};
