/* bodies.h: tagged messages of a libfabric provider. */
#include "bodies.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <string.h>
#include <unistd.h>

enum { ENTRIES = 16 };

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static fi_addr_t peer;
static long awaited;

#define CALL(call)                                                                                                     \
    do {                                                                                                               \
        long ret_ = (call);                                                                                            \
        if (ret_)                                                                                                      \
            bodies_fail("%s: %s", #call, fi_strerror((int)-ret_));                                                     \
    } while (0)

static void fabric_open(struct bodies_side *s, const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        bodies_fail("no memory");
    hints->fabric_attr->prov_name = strdup(provider);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE; /* as MPICH asks */
    CALL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    fi_freeinfo(hints);
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    CALL(fi_fabric(info->fabric_attr, &fabric, NULL));
    CALL(fi_domain(fabric, info, &domain, NULL));
    CALL(fi_av_open(domain, &av_attr, &av, NULL));
    CALL(fi_cq_open(domain, &cq_attr, &cq, NULL));
    CALL(fi_endpoint(domain, info, &ep, NULL));
    CALL(fi_ep_bind(ep, &av->fid, 0));
    CALL(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    CALL(fi_enable(ep));
    s->shared->name_len[s->self] = BODIES_NAME;
    CALL(fi_getname(&ep->fid, s->shared->name[s->self], &s->shared->name_len[s->self]));
    bodies_meet(s);
    if (fi_av_insert(av, s->shared->name[1 - s->self], 1, &peer, 0, NULL) != 1)
        bodies_fail("fi_av_insert");
    bodies_meet(s);
}

static void look(void)
{
    struct fi_cq_tagged_entry entries[ENTRIES];
    ssize_t ret = fi_cq_read(cq, entries, ENTRIES);
    if (ret > 0)
        awaited -= ret;
    else if (ret != -FI_EAGAIN)
        bodies_fail("fi_cq_read: %s", fi_strerror((int)-ret));
}

#define POST(call)                                                                                                     \
    do {                                                                                                               \
        ssize_t ret_;                                                                                                  \
        while ((ret_ = (call)) == -FI_EAGAIN)                                                                          \
            look();                                                                                                    \
        if (ret_)                                                                                                      \
            bodies_fail("%s: %s", #call, fi_strerror((int)-ret_));                                                     \
        awaited++;                                                                                                     \
    } while (0)

static void fabric_post(struct bodies_side *s, const struct bodies_batch *b)
{
    (void)s;
    for (int i = 0; i < b->count; i++)
        POST(fi_tsend(ep, b->at + (size_t)i * b->stride, b->len, NULL, peer, 7, NULL));
}

static void fabric_finish(struct bodies_side *s)
{
    (void)s;
    while (awaited > 0)
        look();
}

static void fabric_recv(struct bodies_side *s, const struct bodies_batch *b)
{
    (void)s;
    for (int i = 0; i < b->count; i++)
        POST(fi_trecv(ep, b->at + (size_t)i * b->stride, b->len, NULL, peer, 7, 0, NULL));
    fabric_finish(s);
}

static void fabric_close(struct bodies_side *s)
{
    bodies_meet(s);
    struct fid *const all[] = {&ep->fid, &cq->fid, &av->fid, &domain->fid, &fabric->fid};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        CALL(fi_close(all[i]));
    fi_freeinfo(info);
}

const struct bodies_way bodies_fabric = {"fabric",      fabric_open,  fabric_post, fabric_recv,
                                         fabric_finish, fabric_close, false};
