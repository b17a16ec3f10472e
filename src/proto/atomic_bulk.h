/*
 * Atomic operations on many elements, which atomic_apply.c leaves to atomic_bulk.c.
 *
 * Owns nothing. Must not know datatypes: a kernel does. Threading: atomic_apply.h.
 */
#ifndef UM_PROTO_ATOMIC_BULK_H
#define UM_PROTO_ATOMIC_BULK_H

#include "proto/atomic_apply.h"

/* The functions for one operation on one datatype. */
struct um_proto_kernel {
    /* Updates the target, each element by an access of its own. NULL: the processor has no access of that width. */
    void (*one)(const struct um_proto_atomic_call *c);
    /* Updates count elements in memory that nobody else sees. Any alignment. */
    void (*block)(void *block, const void *operand, const void *compare, size_t count);
};

/*
 * For elements of up to 8 bytes, at multiples of their size. Updates as many at a time as the processor compares and
 * swaps, and single ones where such an access would reach beyond the target's first or last byte.
 */
void um_proto_atomic_bulk(const struct um_proto_atomic_call *c, const struct um_proto_kernel *kernel);
/* For elements that the processor does not access atomically. Updates those that begin in one cache line at a time,
 * under the lock of that line. */
void um_proto_atomic_locked(const struct um_proto_atomic_call *c, const struct um_proto_kernel *kernel, size_t size);

#endif
