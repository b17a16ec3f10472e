/*
 * fi_getinfo: what the provider offers, and the answer that fits the hints.
 *
 * Owns: the offer. Must not know the objects opened later.
 * Threading: any; nothing is kept between calls.
 */
#include "prov/info.h"

#include "base/iov.h"
#include "base/log.h"
#include "machine/address.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int um_prov_info_get(uint32_t version, const char *node, const char *service, uint64_t flags,
                            const struct fi_info *hints, struct fi_info **info);

int um_prov_info_refuse(const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    um_log(UM_LOG_INFO, "fi_getinfo: no match: %s", text);
    return -FI_ENODATA;
}

static void um_prov_offer_contexts(struct fi_info *info, const struct um_proto_limits *limits)
{
    *info->tx_attr = (struct fi_tx_attr){
        .caps = UM_CAPS_TX,
        .op_flags = UM_TX_OP_FLAGS,
        .msg_order = UM_MSG_ORDER,
        .inject_size = limits->inject_max,
        .size = UM_QUEUE_SIZE,
        .iov_limit = limits->iov_max < UM_IOV_LIMIT ? limits->iov_max : UM_IOV_LIMIT,
        .rma_iov_limit = limits->rma_iov_max ? 1 : 0, /* proto takes one target address an operation */
    };
    *info->rx_attr = (struct fi_rx_attr){
        .caps = UM_CAPS_RX,
        .op_flags = UM_RX_OP_FLAGS,
        .msg_order = UM_MSG_ORDER,
        .size = UM_QUEUE_SIZE,
        .iov_limit = info->tx_attr->iov_limit,
    };
}

static void um_prov_offer_domain(struct fi_domain_attr *attr, uint32_t version)
{
    attr->threading = FI_THREAD_SAFE;
    attr->control_progress = FI_PROGRESS_MANUAL;
    attr->data_progress = FI_PROGRESS_MANUAL;
    attr->resource_mgmt = FI_RM_ENABLED;
    attr->av_type = FI_AV_TABLE;
    attr->mr_mode = version < FI_VERSION(1, 5) ? UM_MR_BASIC : 0;
    attr->mr_key_size = UM_KEY_SIZE;
    attr->cq_data_size = UM_CQ_DATA_SIZE;
    attr->cq_cnt = attr->ep_cnt = attr->tx_ctx_cnt = attr->rx_ctx_cnt = attr->cntr_cnt = attr->mr_cnt = UM_OBJECTS;
    attr->max_ep_tx_ctx = 1;
    attr->max_ep_rx_ctx = 1;
    attr->mr_iov_limit = UM_MR_IOV_LIMIT;
    attr->caps = UM_CAPS_DOMAIN;
    struct um_prov_domain_attr_tail *tail = um_prov_domain_attr_tail_of(attr, version);
    if (tail) {
        tail->max_cntr_value = UINT64_MAX;
        tail->max_err_cntr_value = UINT64_MAX;
    }
}

/*
 * The domain of the default machine has the provider's name, unless FI_UNIMEM_MACHINE gives that name another meaning.
 * Open MPI prints the domain's name as the provider's, and the machine's name may be that of another provider.
 */
static void um_prov_domain_name(const struct um_prov_env *env, const struct um_machines *machines, char *name,
                                size_t size)
{
    const bool same = memcmp(machines->at, env->machines.at, sizeof(machines->at)) == 0;
    size_t at = 0;
    if (same && machines->at[0] == um_machines_offered[0]) {
        snprintf(name, size, "%s", UM_PROV_NAME);
        return;
    }
    for (uint32_t i = 0; i < machines->count; i++)
        at += (size_t)snprintf(name + at, size - at, "%s%s", i ? "," : "", machines->at[i]->name);
}

/* NULL: out of memory. Uses fi_allocinfo(), because structures of a newer libfabric are larger. */
static struct fi_info *um_prov_offer_new(const struct um_prov_env *env, const struct um_machines *machines,
                                         uint32_t version)
{
    char name[64];
    struct um_proto_limits limits;
    struct fi_info *info = fi_allocinfo();
    if (!info)
        return NULL;
    info->caps = UM_CAPS_LISTED;
    info->addr_format = UM_ADDR_FORMAT;
    um_proto_limits_get(machines, &limits);
    um_prov_offer_contexts(info, &limits);
    um_prov_offer_domain(info->domain_attr, version);
    info->domain_attr->max_err_data = um_addr_len(machines);
    info->ep_attr->type = FI_EP_RDM;
    info->ep_attr->protocol = UM_PROTOCOL;
    info->ep_attr->protocol_version = 1;
    info->ep_attr->max_msg_size = SIZE_MAX;
    /* msg_order holds for operations of any size */
    info->ep_attr->max_order_raw_size = SIZE_MAX;
    info->ep_attr->max_order_war_size = SIZE_MAX;
    info->ep_attr->max_order_waw_size = SIZE_MAX;
    info->ep_attr->mem_tag_format = UM_TAG_GENERIC;
    info->ep_attr->tx_ctx_cnt = 1;
    info->ep_attr->rx_ctx_cnt = 1;
    info->fabric_attr->prov_version = um_prov_provider.version; /* libfabric sets prov_name */
    um_prov_domain_name(env, machines, name, sizeof(name));
    info->fabric_attr->name = strdup(UM_PROV_NAME);
    info->domain_attr->name = strdup(name);
    if (!info->fabric_attr->name || !info->domain_attr->name) {
        fi_freeinfo(info);
        return NULL;
    }
    return info;
}

/* Returns the capabilities to open with: those asked for, with both directions if none was given. */
static uint64_t um_prov_answer_caps(uint64_t asked)
{
    if (!(asked & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)))
        asked |= FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    if (asked & (FI_MSG | FI_TAGGED) && !(asked & (FI_SEND | FI_RECV)))
        asked |= FI_SEND | FI_RECV;
    if (asked & (FI_RMA | FI_ATOMIC) && !(asked & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)))
        asked |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    return asked | FI_MULTI_RECV | UM_CAPS_DOMAIN; /* capabilities that cost nothing are always there */
}

static size_t um_prov_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void um_prov_answer_contexts(struct fi_info *info, const struct fi_info *hints, uint32_t version)
{
    info->caps = hints->caps ? um_prov_answer_caps(hints->caps) : UM_CAPS_LISTED;
    uint64_t tx = info->caps & UM_CAPS_TX, rx = info->caps & um_prov_caps_rx(version);
    info->tx_attr->op_flags = 0;
    info->rx_attr->op_flags = 0;
    if (hints->tx_attr) {
        if (hints->tx_attr->caps)
            tx &= um_prov_answer_caps(hints->tx_attr->caps);
        info->tx_attr->op_flags = hints->tx_attr->op_flags;
        info->tx_attr->size = um_prov_max(info->tx_attr->size, hints->tx_attr->size);
    }
    if (hints->rx_attr) {
        if (hints->rx_attr->caps)
            rx &= um_prov_answer_caps(hints->rx_attr->caps);
        info->rx_attr->op_flags = hints->rx_attr->op_flags;
        info->rx_attr->size = um_prov_max(info->rx_attr->size, hints->rx_attr->size);
        info->rx_attr->total_buffered_recv = hints->rx_attr->total_buffered_recv;
    }
    info->tx_attr->caps = tx;
    info->rx_attr->caps = rx;
}

/* Echoes the attributes that are the application's choice. */
static void um_prov_answer_domain(struct fi_domain_attr *attr, const struct fi_domain_attr *hint, uint32_t version)
{
    if (hint->threading)
        attr->threading = hint->threading;
    if (hint->control_progress)
        attr->control_progress = hint->control_progress;
    if (hint->data_progress)
        attr->data_progress = hint->data_progress;
    if (hint->av_type)
        attr->av_type = hint->av_type;
    if (hint->mr_mode & (UM_MR_BASIC | UM_MR_SCALABLE))
        attr->mr_mode = hint->mr_mode;
    else if (version >= FI_VERSION(1, 5)) /* some applications ask for these two and rely on them without a check */
        attr->mr_mode = hint->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_PROV_KEY);
    attr->cq_cnt = um_prov_max(attr->cq_cnt, hint->cq_cnt);
    attr->ep_cnt = um_prov_max(attr->ep_cnt, hint->ep_cnt);
    attr->tx_ctx_cnt = um_prov_max(attr->tx_ctx_cnt, hint->tx_ctx_cnt);
    attr->rx_ctx_cnt = um_prov_max(attr->rx_ctx_cnt, hint->rx_ctx_cnt);
    if (version >= FI_VERSION(1, 5)) {
        attr->cntr_cnt = um_prov_max(attr->cntr_cnt, hint->cntr_cnt);
        attr->mr_cnt = um_prov_max(attr->mr_cnt, hint->mr_cnt);
        attr->tclass = hint->tclass;
    }
}

static int um_prov_answer_fill(struct fi_info *info, const struct fi_info *hints, uint32_t version)
{
    um_prov_answer_contexts(info, hints, version);
    if (hints->domain_attr)
        um_prov_answer_domain(info->domain_attr, hints->domain_attr, version);
    if (hints->ep_attr && hints->ep_attr->mem_tag_format)
        info->ep_attr->mem_tag_format = hints->ep_attr->mem_tag_format;
    info->handle = hints->handle;
    if (!hints->dest_addr)
        return 0;
    info->dest_addr = malloc(hints->dest_addrlen);
    if (!info->dest_addr)
        return -FI_ENOMEM;
    memcpy(info->dest_addr, hints->dest_addr, hints->dest_addrlen);
    info->dest_addrlen = hints->dest_addrlen;
    return 0;
}

/*
 * Returns the machines that the hints' domain name selects, or else those of FI_UNIMEM_MACHINE. False: a name is
 * unknown, or a machine is not usable here.
 */
static bool um_prov_info_machines(const struct um_prov_env *env, const struct fi_info *hints,
                                  struct um_machines *machines_p)
{
    const char *name = hints && hints->domain_attr ? hints->domain_attr->name : NULL;
    *machines_p = env->machines;
    if (name && strcmp(name, UM_PROV_NAME) != 0 && um_machines_named(name, machines_p)) {
        char allowed[128];
        um_machines_allowed(allowed, sizeof(allowed));
        um_prov_info_refuse("domain_attr->name = %s, only %s; or unimem for what FI_UNIMEM_MACHINE says", name,
                            allowed);
        return false;
    }
    for (uint32_t i = 0; i < machines_p->count; i++) {
        const struct um_machine *machine = machines_p->at[i];
        if (machine->probe && machine->probe()) {
            um_prov_info_refuse("the machine %s cannot be used here", machine->name);
            return false;
        }
    }
    return true;
}

int um_prov_info_get(uint32_t version, const char *node, const char *service, uint64_t flags,
                     const struct fi_info *hints, struct fi_info **info)
{
    struct um_prov_env env;
    int ret = um_prov_env_read(&env);
    if (ret)
        return ret;
    if (node || service)
        return um_prov_info_refuse(
            "node %s, service %s: addresses cannot be made from names; exchange those of fi_getname", node ? node : "-",
            service ? service : "-");
    if (flags & ~(FI_NUMERICHOST | FI_SOURCE | FI_PROV_ATTR_ONLY | (1ULL << 35) /* FI_RESCAN */))
        um_log(UM_LOG_DEBUG, "fi_getinfo: flags 0x%llx ignored", (unsigned long long)flags);
    struct um_machines machines;
    if (!um_prov_info_machines(&env, hints, &machines))
        return -FI_ENODATA;
    struct fi_info *offer = um_prov_offer_new(&env, &machines, version);
    if (!offer)
        return -FI_ENOMEM;
    if (hints) {
        ret = um_prov_hints_check(version, hints, offer);
        if (ret == 0)
            ret = um_prov_answer_fill(offer, hints, version);
    } else { /* what may be asked for is no default */
        offer->tx_attr->op_flags = offer->rx_attr->op_flags = 0;
    }
    if (ret)
        fi_freeinfo(offer);
    else
        *info = offer;
    return ret;
}
