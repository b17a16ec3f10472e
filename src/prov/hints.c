/*
 * Compares the hints of fi_getinfo with the offer, exactly and field by field, and logs the reason of each refusal.
 *
 * Owns nothing. No field is skipped: if a provider accepts a wrong endpoint type or an unknown capability, libfabric
 * layers it under another provider, or a program uses it for what it cannot do. Threading: any.
 */
#include "prov/info.h"

#include <inttypes.h>
#include <string.h>

/* One field that may be at most as large as offered. */
struct um_prov_limit_row {
    const char *name;
    size_t asked;
    size_t offered;
};

static int um_prov_hints_limits(const struct um_prov_limit_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (rows[i].asked > rows[i].offered)
            return um_prov_info_refuse("%s = %zu, at most %zu", rows[i].name, rows[i].asked, rows[i].offered);
    }
    return 0;
}

/* One field of bits. Only the offered ones may be set. */
struct um_prov_bits_row {
    const char *name;
    uint64_t asked;
    uint64_t offered;
};

static int um_prov_hints_bits(const struct um_prov_bits_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t extra = rows[i].asked & ~rows[i].offered;
        if (extra)
            return um_prov_info_refuse("%s = 0x%" PRIx64 ", of which 0x%" PRIx64 " is not supported", rows[i].name,
                                       rows[i].asked, extra);
    }
    return 0;
}

#define UM_ROWS(rows) (rows), sizeof(rows) / sizeof((rows)[0])

static int um_prov_hints_tx(const struct fi_tx_attr *hint, const struct fi_tx_attr *offer, uint32_t version)
{
    const struct um_prov_bits_row bits[] = {
        {"tx_attr->caps", hint->caps, um_prov_caps_all(version)},
        {"tx_attr->op_flags", hint->op_flags, offer->op_flags},
        {"tx_attr->msg_order", hint->msg_order, offer->msg_order},
        {"tx_attr->comp_order", hint->comp_order, 0},
    };
    const struct um_prov_limit_row limits[] = {
        {"tx_attr->inject_size", hint->inject_size, offer->inject_size},
        {"tx_attr->iov_limit", hint->iov_limit, offer->iov_limit},
        {"tx_attr->rma_iov_limit", hint->rma_iov_limit, offer->rma_iov_limit},
    };
    int ret = um_prov_hints_bits(UM_ROWS(bits));
    return ret ? ret : um_prov_hints_limits(UM_ROWS(limits));
}

static int um_prov_hints_rx(const struct fi_rx_attr *hint, const struct fi_rx_attr *offer, uint32_t version)
{
    const struct um_prov_bits_row bits[] = {
        {"rx_attr->caps", hint->caps, um_prov_caps_all(version)},
        {"rx_attr->op_flags", hint->op_flags, offer->op_flags},
        {"rx_attr->msg_order", hint->msg_order, offer->msg_order},
        {"rx_attr->comp_order", hint->comp_order, 0},
    };
    const struct um_prov_limit_row limits[] = {{"rx_attr->iov_limit", hint->iov_limit, offer->iov_limit}};
    int ret = um_prov_hints_bits(UM_ROWS(bits));
    return ret ? ret : um_prov_hints_limits(UM_ROWS(limits));
}

static int um_prov_hints_ep(const struct fi_ep_attr *hint, const struct fi_ep_attr *offer)
{
    if (hint->type != FI_EP_UNSPEC && hint->type != offer->type)
        return um_prov_info_refuse("ep_attr->type = %d, only FI_EP_RDM", (int)hint->type);
    if (hint->protocol && hint->protocol != offer->protocol)
        return um_prov_info_refuse("ep_attr->protocol = %u", hint->protocol);
    const struct um_prov_limit_row limits[] = {
        {"ep_attr->protocol_version", hint->protocol_version, offer->protocol_version},
        {"ep_attr->max_msg_size", hint->max_msg_size, offer->max_msg_size},
        {"ep_attr->max_order_raw_size", hint->max_order_raw_size, offer->max_order_raw_size},
        {"ep_attr->max_order_war_size", hint->max_order_war_size, offer->max_order_war_size},
        {"ep_attr->max_order_waw_size", hint->max_order_waw_size, offer->max_order_waw_size},
        {"ep_attr->tx_ctx_cnt", hint->tx_ctx_cnt, offer->tx_ctx_cnt},
        {"ep_attr->rx_ctx_cnt", hint->rx_ctx_cnt, offer->rx_ctx_cnt},
        {"ep_attr->auth_key_size", hint->auth_key_size, 0},
    };
    return um_prov_hints_limits(UM_ROWS(limits));
}

static int um_prov_hints_mr_mode(uint32_t version, int mode)
{
    if (version < FI_VERSION(1, 5)) {
        if (mode == UM_MR_UNSPEC || mode == UM_MR_BASIC || mode == UM_MR_SCALABLE)
            return 0;
    } else if (!(mode & (UM_MR_BASIC | UM_MR_SCALABLE)) || mode == UM_MR_BASIC || mode == UM_MR_SCALABLE) {
        return 0; /* other bits only permit requirements, and the offer makes none */
    }
    return um_prov_info_refuse("domain_attr->mr_mode = 0x%x mixes FI_MR_BASIC or FI_MR_SCALABLE with other bits", mode);
}

static int um_prov_hints_domain_kinds(const struct fi_domain_attr *hint)
{
    if (hint->threading > FI_THREAD_ENDPOINT)
        return um_prov_info_refuse("domain_attr->threading = %d", (int)hint->threading);
    if ((int)hint->control_progress > UM_FI_PROGRESS_CONTROL_UNIFIED)
        return um_prov_info_refuse("domain_attr->control_progress = %d", (int)hint->control_progress);
    if ((int)hint->data_progress > UM_FI_PROGRESS_CONTROL_UNIFIED)
        return um_prov_info_refuse("domain_attr->data_progress = %d", (int)hint->data_progress);
    if (hint->resource_mgmt > FI_RM_ENABLED)
        return um_prov_info_refuse("domain_attr->resource_mgmt = %d", (int)hint->resource_mgmt);
    if (hint->av_type > FI_AV_TABLE)
        return um_prov_info_refuse("domain_attr->av_type = %d", (int)hint->av_type);
    return 0;
}

static int um_prov_hints_domain(uint32_t version, const struct fi_domain_attr *hint, const struct fi_domain_attr *offer)
{
    const struct um_prov_limit_row limits[] = {
        {"domain_attr->mr_key_size", hint->mr_key_size, offer->mr_key_size},
        {"domain_attr->cq_data_size", hint->cq_data_size, offer->cq_data_size},
        {"domain_attr->max_ep_tx_ctx", hint->max_ep_tx_ctx, offer->max_ep_tx_ctx},
        {"domain_attr->max_ep_rx_ctx", hint->max_ep_rx_ctx, offer->max_ep_rx_ctx},
        {"domain_attr->max_ep_stx_ctx", hint->max_ep_stx_ctx, 0},
        {"domain_attr->max_ep_srx_ctx", hint->max_ep_srx_ctx, 0},
    };
    int ret = um_prov_hints_domain_kinds(hint);
    if (ret == 0)
        ret = um_prov_hints_limits(UM_ROWS(limits));
    if (ret == 0)
        ret = um_prov_hints_mr_mode(version, hint->mr_mode);
    if (ret || version < FI_VERSION(1, 5))
        return ret;
    const struct um_prov_bits_row bits[] = {{"domain_attr->caps", hint->caps, offer->caps}};
    const struct um_prov_domain_attr_tail tail = um_prov_domain_attr_tail_asked(hint, version);
    const struct um_prov_limit_row later[] = {
        {"domain_attr->max_ep_auth_key", tail.max_ep_auth_key, 0},
        {"domain_attr->max_group_id", tail.max_group_id, 0},
        {"domain_attr->mr_iov_limit", hint->mr_iov_limit, offer->mr_iov_limit},
        {"domain_attr->auth_key_size", hint->auth_key_size, 0},
        {"domain_attr->max_err_data", hint->max_err_data, offer->max_err_data},
    };
    ret = um_prov_hints_bits(UM_ROWS(bits));
    return ret ? ret : um_prov_hints_limits(UM_ROWS(later));
}

static int um_prov_hints_address(const struct fi_info *hints, const struct fi_info *offer)
{
    if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != offer->addr_format)
        return um_prov_info_refuse("addr_format = 0x%x, only FI_FORMAT_UNSPEC or our own", hints->addr_format);
    if (hints->src_addr)
        return um_prov_info_refuse("src_addr: an endpoint's address cannot be chosen");
    if (hints->dest_addr && hints->dest_addrlen != offer->domain_attr->max_err_data)
        return um_prov_info_refuse("dest_addrlen = %zu, an address has %zu bytes", hints->dest_addrlen,
                                   offer->domain_attr->max_err_data);
    return 0;
}

static int um_prov_hints_fabric(const struct fi_fabric_attr *hint, const struct fi_fabric_attr *offer)
{
    if (hint->name && strcmp(hint->name, offer->name) != 0)
        return um_prov_info_refuse("fabric_attr->name = %s, only %s", hint->name, offer->name);
    if (hint->prov_version > offer->prov_version)
        return um_prov_info_refuse("fabric_attr->prov_version = 0x%x, this is 0x%x", hint->prov_version,
                                   offer->prov_version);
    return 0;
}

int um_prov_hints_check(uint32_t version, const struct fi_info *hints, const struct fi_info *offer)
{
    const struct um_prov_bits_row caps[] = {{"caps", hints->caps, um_prov_caps_all(version)}};
    int ret = hints->ep_attr ? um_prov_hints_ep(hints->ep_attr, offer->ep_attr) : 0;
    if (ret == 0)
        ret = um_prov_hints_bits(UM_ROWS(caps));
    if (ret == 0 && hints->caps & FI_SOURCE_ERR && !(hints->caps & FI_SOURCE))
        ret = um_prov_info_refuse("caps: FI_SOURCE_ERR without FI_SOURCE");
    if (ret == 0)
        ret = um_prov_hints_address(hints, offer);
    if (ret == 0 && hints->fabric_attr)
        ret = um_prov_hints_fabric(hints->fabric_attr, offer->fabric_attr);
    if (ret == 0 && hints->domain_attr)
        ret = um_prov_hints_domain(version, hints->domain_attr, offer->domain_attr);
    if (ret == 0 && hints->tx_attr)
        ret = um_prov_hints_tx(hints->tx_attr, offer->tx_attr, version);
    if (ret == 0 && hints->rx_attr)
        ret = um_prov_hints_rx(hints->rx_attr, offer->rx_attr, version);
    return ret;
}
