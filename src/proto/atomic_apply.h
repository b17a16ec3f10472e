/*
 * What atomic operations do to memory: every datatype times every operation, on memory that several processes map.
 *
 * Owns: the numbers of datatypes and operations (they are wire format, and those of libfabric's fi_datatype and fi_op,
 * which prov asserts), the kernels, and the choice of path. Must not know regions, peers, lanes.
 *
 * An element of 1, 2, 4 or 8 bytes at an address that is a multiple of its size is accessed by the processor's atomics;
 * every other one (wider, or not aligned) under one of the owner's locks (base/lock.h). The choice depends on the
 * datatype and the owner's address alone, so all accesses to a location with one datatype take the same path.
 * Semantics: fi_atomic(3). Order: each update is acquire and release. Threading: any.
 */
#ifndef UM_PROTO_ATOMIC_APPLY_H
#define UM_PROTO_ATOMIC_APPLY_H

#include "base/lock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum um_proto_atomic_type {
    UM_TYPE_INT8,
    UM_TYPE_UINT8,
    UM_TYPE_INT16,
    UM_TYPE_UINT16,
    UM_TYPE_INT32,
    UM_TYPE_UINT32,
    UM_TYPE_INT64,
    UM_TYPE_UINT64,
    UM_TYPE_FLOAT,
    UM_TYPE_DOUBLE,
    UM_TYPE_FLOAT_COMPLEX,
    UM_TYPE_DOUBLE_COMPLEX,
    UM_TYPE_LONG_DOUBLE,
    UM_TYPE_LONG_DOUBLE_COMPLEX,
    UM_TYPE_INT128,
    UM_TYPE_UINT128,
    UM_TYPES,
};

enum um_proto_atomic_op {
    UM_ATOMIC_MIN,
    UM_ATOMIC_MAX,
    UM_ATOMIC_SUM,
    UM_ATOMIC_PROD,
    UM_ATOMIC_LOR,
    UM_ATOMIC_LAND,
    UM_ATOMIC_BOR,
    UM_ATOMIC_BAND,
    UM_ATOMIC_LXOR,
    UM_ATOMIC_BXOR,
    UM_ATOMIC_READ,
    UM_ATOMIC_WRITE,
    UM_ATOMIC_CSWAP,
    UM_ATOMIC_CSWAP_NE,
    UM_ATOMIC_CSWAP_LE,
    UM_ATOMIC_CSWAP_LT,
    UM_ATOMIC_CSWAP_GE,
    UM_ATOMIC_CSWAP_GT,
    UM_ATOMIC_MSWAP,
    UM_ATOMIC_DIFF,
    UM_ATOMIC_OPS,
};

/* The three families of calls. */
enum um_proto_atomic_kind {
    UM_ATOMIC_BASE,    /* updates */
    UM_ATOMIC_FETCH,   /* updates or reads, and returns the old value */
    UM_ATOMIC_COMPARE, /* as FETCH, after a comparison */
    UM_ATOMIC_KINDS,
};

enum {
    UM_ATOMIC_ELEMENT_MAX = 32, /* bytes of the widest datatype */
    UM_ATOMIC_BYTES = 1 << 20,  /* bytes that the elements of one operation may take together: docs/protocol.md 6.7 */
};

struct um_proto_atomic_call {
    uint8_t type; /* enum um_proto_atomic_type */
    uint8_t op;   /* enum um_proto_atomic_op */
    size_t count; /* elements, 1 at least */
    void *target;
    const void *operand; /* count elements, any alignment; ignored by READ */
    const void *compare; /* count elements; for CSWAP and its variants, and MSWAP */
    void *result;        /* count elements: the old values; NULL: not wanted. READ needs it */
    uint64_t lock_key;   /* the target's address in its owner's process; congruent to target modulo 64 */
    struct um_locks_shm *locks;
    const struct um_lock_party *party;
};

/* Executes the call. type and op must be a valid pair (of any kind). */
void um_proto_atomic_apply(const struct um_proto_atomic_call *call);
/* The same for elements that the processor updates itself: lock_key, locks and party are ignored. */
void um_proto_atomic_apply_lockless(const struct um_proto_atomic_call *call);

/* The operations of each kind that a datatype has, one bit each. */
extern const uint32_t um_proto_atomic_ops[UM_TYPES][UM_ATOMIC_KINDS];

/* True if the datatype has this operation in calls of this kind. Any numbers are allowed. */
static inline bool um_proto_atomic_is_valid(enum um_proto_atomic_kind kind, uint32_t type, uint32_t op)
{
    return type < UM_TYPES && op < UM_ATOMIC_OPS && um_proto_atomic_ops[type][kind] >> op & 1;
}

/* The binary logarithm of an element's size. */
extern const uint8_t um_proto_atomic_shift[UM_TYPES];

/* Bytes of an element; 0: no such datatype. */
static inline size_t um_proto_atomic_size(uint32_t type)
{
    return type < UM_TYPES ? (size_t)1 << um_proto_atomic_shift[type] : 0;
}

/* The same for a type that is known to be valid. */
static inline size_t um_proto_atomic_size_of(uint32_t type)
{
    return (size_t)1 << um_proto_atomic_shift[type];
}

/* Returns the most elements that one operation takes; 0: no such datatype. */
static inline size_t um_proto_atomic_count_max(uint32_t type)
{
    return type < UM_TYPES ? (size_t)UM_ATOMIC_BYTES >> um_proto_atomic_shift[type] : 0;
}

static inline bool um_proto_atomic_compares(uint32_t op)
{
    return op >= UM_ATOMIC_CSWAP && op <= UM_ATOMIC_MSWAP;
}

#endif
