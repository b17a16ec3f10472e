/*
 * Many elements of one atomic operation: what atomic_apply.c has atomic_bulk.c do.
 *
 * Owns nothing. Must not know datatypes: a kernel does. Threading: atomic_apply.h.
 */
#ifndef UM_PROTO_ATOMIC_BULK_H
#define UM_PROTO_ATOMIC_BULK_H

#include "proto/atomic_apply.h"

/* A datatype's operation. */
struct um_proto_kernel {
    /* On the target, each element by itself. NULL: the processor has no access of that width. */
    void (*one)(const struct um_proto_atomic_call *c);
    /* In memory that nobody else sees: count elements there become what they are to become. Any alignment. */
    void (*block)(void *block, const void *operand, const void *compare, size_t count);
};

/*
 * Elements of up to 8 bytes, at multiples of their size: as many at a time as the processor compares and swaps, and
 * single ones where such an access would reach beyond the target's first or last byte.
 */
void um_proto_atomic_bulk(const struct um_proto_atomic_call *c, const struct um_proto_kernel *kernel);
/* Elements that are no single access: those that begin in one cache line at a time, under its lock. */
void um_proto_atomic_locked(const struct um_proto_atomic_call *c, const struct um_proto_kernel *kernel, size_t size);

#endif
