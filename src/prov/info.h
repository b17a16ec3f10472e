/* What info.c offers and hints.c checks hints against. */
#ifndef UM_PROV_INFO_H
#define UM_PROV_INFO_H

#include "prov/prov.h"

#define UM_CAPS_DOMAIN (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define UM_CAPS_TX     (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE | FI_FENCE)
#define UM_CAPS_RX                                                                                                     \
    (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV |            \
     FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT)
/*
 * What fi_getinfo without hints lists. FI_SOURCE_ERR is left out, though it is granted on request: MPICH asks for
 * everything that is listed, and treats the error entries of that capability as fatal.
 */
#define UM_CAPS_LISTED (UM_CAPS_TX | UM_CAPS_RX | UM_CAPS_DOMAIN)

#define UM_TX_OP_FLAGS                                                                                                 \
    (FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)
#define UM_RX_OP_FLAGS (FI_COMPLETION | FI_MULTI_RECV)
/*
 * Messages to one peer keep their order among themselves, and so do atomics: they take effect at once, or in the order
 * of the lane. RMA that the target executes is not ordered.
 */
#define UM_MSG_ORDER                                                                                                   \
    (FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)

enum {
    UM_QUEUE_SIZE = 4096, /* default tx and rx size; larger ones are granted: queues have no fixed size */
    UM_OBJECTS = 65536,   /* objects a domain can have; larger numbers are granted */
    UM_MR_IOV_LIMIT = 1,
    UM_CQ_DATA_SIZE = 8,
    UM_KEY_SIZE = 8,
};

/* All capabilities that an application of this API version can ask for. */
static inline uint64_t um_prov_caps_all(uint32_t version)
{
    uint64_t caps = UM_CAPS_LISTED | FI_SOURCE_ERR; /* NOLINT(misc-redundant-expression): tx and rx share some */
    return version >= FI_VERSION(2, 0) ? caps | UM_FI_TAGGED_DIRECTED_RECV : caps;
}

/* Those that a receive context can have. */
static inline uint64_t um_prov_caps_rx(uint32_t version)
{
    return um_prov_caps_all(version) & ~(UM_CAPS_DOMAIN | FI_SEND | FI_READ | FI_WRITE | FI_FENCE);
}

/* 0, or -FI_ENODATA: the hints ask for more than the offer has; logged at info level. */
int um_prov_hints_check(uint32_t version, const struct fi_info *hints, const struct fi_info *offer);

/* Logs why fi_getinfo has no answer. Always returns -FI_ENODATA. */
int um_prov_info_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
