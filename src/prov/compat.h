/*
 * What newer API versions need and the libfabric 1.17 headers lack. The only file that depends on header versions.
 *
 * One library, built against 1.17, serves libfabric 1.17 to 2.x: constants keep their values and structures only grow
 * at the end. A field beyond the 1.17 structures is accessed only when the application's API version has it: then
 * libfabric is at least that new, and it allocated the structure. Threading: any.
 */
#ifndef UM_PROV_COMPAT_H
#define UM_PROV_COMPAT_H

#include <assert.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <string.h>

/*
 * Values of later headers, under names of this provider: most are enumerators there, which the preprocessor cannot test
 * for.
 */
enum {
    UM_FI_PROGRESS_CONTROL_UNIFIED = 3,     /* enum fi_progress, 2.0 */
    UM_FI_DIFF = 19,                        /* enum fi_op, 2.0 */
    UM_FI_CNTR_EVENTS_BYTES = 1,            /* enum fi_cntr_events, 2.0 */
    UM_FI_OPT_SHARED_MEMORY_PERMITTED = 11, /* endpoint options, 1.18 to 2.0 */
    UM_FI_OPT_MAX_MSG_SIZE = 12,
    UM_FI_OPT_MAX_TAGGED_SIZE = 13,
    UM_FI_OPT_MAX_RMA_SIZE = 14,
    UM_FI_OPT_INJECT_MSG_SIZE = 16,
    UM_FI_OPT_INJECT_TAGGED_SIZE = 17,
    UM_FI_OPT_INJECT_RMA_SIZE = 18,
};
#define UM_FI_TAGGED_DIRECTED_RECV (1ULL << 45) /* capability, 2.0; the bit meant something else before */

#define UM_TAG_GENERIC 0xaaaaaaaaaaaaaaaaULL /* mem_tag_format: 64 bits without structure */

/* Registration modes of API versions before 1.5: macros that warn in 2.x headers. */
enum { UM_MR_UNSPEC = 0, UM_MR_BASIC = 1 << 0, UM_MR_SCALABLE = 1 << 1 };

/* The address format and the protocol: this provider's own values, in the range that the headers leave to providers. */
#define UM_PROV_SPECIFIC (1U << 31)
#define UM_ADDR_FORMAT   (UM_PROV_SPECIFIC | 0x756d)
#define UM_PROTOCOL      (UM_PROV_SPECIFIC | 0x756d)

/* struct fi_domain_attr as of 2.5, after the fields that 1.17 has. */
struct um_prov_domain_attr_tail {
    size_t max_ep_auth_key;      /* 1.20 */
    uint32_t max_group_id;       /* 2.0 */
    uint64_t max_cntr_value;     /* 2.5 */
    uint64_t max_err_cntr_value; /* 2.5 */
};

#define UM_DOMAIN_ATTR_TAIL_OFFSET 192
static_assert(offsetof(struct fi_domain_attr, tclass) + 8 == UM_DOMAIN_ATTR_TAIL_OFFSET,
              "fi_domain_attr: the fields up to tclass take 192 bytes in every version");

/* Returns the hints' values of the fields that the API version has, and 0 for the others. */
static inline struct um_prov_domain_attr_tail um_prov_domain_attr_tail_asked(const struct fi_domain_attr *attr,
                                                                             uint32_t version)
{
    struct um_prov_domain_attr_tail asked = {0};
    const void *tail = (const char *)attr + UM_DOMAIN_ATTR_TAIL_OFFSET;
    size_t len = version >= FI_VERSION(2, 5)    ? sizeof(asked)
                 : version >= FI_VERSION(2, 0)  ? offsetof(struct um_prov_domain_attr_tail, max_cntr_value)
                 : version >= FI_VERSION(1, 20) ? offsetof(struct um_prov_domain_attr_tail, max_group_id)
                                                : 0;
    memcpy(&asked, tail, len);
    return asked;
}

/* Returns the fields that are there in API version 2.5 and later; NULL before. */
static inline struct um_prov_domain_attr_tail *um_prov_domain_attr_tail_of(struct fi_domain_attr *attr,
                                                                           uint32_t version)
{
    if (version < FI_VERSION(2, 5))
        return NULL;
    return (struct um_prov_domain_attr_tail *)(void *)((char *)attr + UM_DOMAIN_ATTR_TAIL_OFFSET);
}

/* err_data_size exists in struct fi_cq_err_entry from API version 1.5 on. */
static inline int um_prov_has_err_data_size(uint32_t version)
{
    return version >= FI_VERSION(1, 5);
}

/* src_addr follows err_data_size in struct fi_cq_err_entry from API version 1.20 on. Stores that the source is not
 * known: what is known of it is in err_data. */
static inline void um_prov_set_err_source(struct fi_cq_err_entry *entry, uint32_t version)
{
    const fi_addr_t none = FI_ADDR_NOTAVAIL;
    if (version >= FI_VERSION(1, 20))
        memcpy((char *)&entry->err_data_size + sizeof(entry->err_data_size), &none, sizeof(none));
}

/* iface exists in struct fi_mr_attr from API version 1.11 on. */
static inline int um_prov_has_mr_iface(uint32_t version)
{
    return version >= FI_VERSION(1, 11);
}

#endif
