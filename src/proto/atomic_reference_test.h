/*
 * What the tests of atomics share: a reference in the widest arithmetic there is, for one element that nobody else
 * uses.
 */
#ifndef UM_PROTO_ATOMIC_REFERENCE_TEST_H
#define UM_PROTO_ATOMIC_REFERENCE_TEST_H

#include "proto/atomic_apply.h"

#include "base/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;

static inline struct um_lock_party party(void)
{
    return (struct um_lock_party){.self = um_process_self(), .alive = um_process_holder_is_alive};
}

static uint64_t random_state = 88172645463325252u;

static inline uint64_t rnd(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static inline bool is_integer(unsigned type)
{
    return type <= UM_TYPE_UINT64 || type >= UM_TYPE_INT128;
}

static inline bool is_signed(unsigned type)
{
    return type % 2 == 0; /* of the integers */
}

static inline bool is_complex(unsigned type)
{
    return type == UM_TYPE_FLOAT_COMPLEX || type == UM_TYPE_DOUBLE_COMPLEX || type == UM_TYPE_LONG_DOUBLE_COMPLEX;
}

static inline u128 int_get(unsigned type, const void *from)
{
    size_t size = um_proto_atomic_size(type);
    u128 v = 0;
    memcpy(&v, from, size);
    if (is_signed(type) && size < 16 && v >> (size * 8 - 1) & 1)
        v |= ~(u128)0 << (size * 8);
    return v;
}

static inline bool int_less(unsigned type, u128 a, u128 b)
{
    return is_signed(type) ? (i128)a < (i128)b : a < b;
}

/* Does the comparison of this compare-and-swap hold? */
static inline bool int_swaps(unsigned type, unsigned op, u128 old, u128 cmp)
{
    bool less = int_less(type, cmp, old), equal = cmp == old;
    switch (op) {
    case UM_ATOMIC_CSWAP:
        return equal;
    case UM_ATOMIC_CSWAP_NE:
        return !equal;
    case UM_ATOMIC_CSWAP_LE:
        return less || equal;
    case UM_ATOMIC_CSWAP_LT:
        return less;
    case UM_ATOMIC_CSWAP_GE:
        return !less;
    case UM_ATOMIC_CSWAP_GT:
        return !less && !equal;
    default:
        return false;
    }
}

/* Returns whether the target changes. */
static inline bool int_reference(unsigned type, unsigned op, u128 old, u128 src, u128 cmp, u128 *next)
{
    *next = src;
    switch (op) {
    case UM_ATOMIC_MIN:
        return int_less(type, src, old);
    case UM_ATOMIC_MAX:
        return int_less(type, old, src);
    case UM_ATOMIC_SUM:
        *next = old + src;
        return true;
    case UM_ATOMIC_DIFF:
        *next = old - src;
        return true;
    case UM_ATOMIC_PROD:
        *next = old * src;
        return true;
    case UM_ATOMIC_LOR:
        *next = old || src;
        return true;
    case UM_ATOMIC_LAND:
        *next = old && src;
        return true;
    case UM_ATOMIC_LXOR:
        *next = (old && !src) || (!old && src);
        return true;
    case UM_ATOMIC_BOR:
        *next = old | src;
        return true;
    case UM_ATOMIC_BAND:
        *next = old & src;
        return true;
    case UM_ATOMIC_BXOR:
        *next = old ^ src;
        return true;
    case UM_ATOMIC_WRITE:
        return true;
    case UM_ATOMIC_MSWAP:
        *next = (src & cmp) | (old & ~cmp);
        return true;
    default:
        return int_swaps(type, op, old, cmp);
    }
}

/* A real or complex number, in the widest type. */
struct real {
    long double re, im;
};

static inline struct real real_get(unsigned type, const void *from)
{
    float f[2] = {0, 0};
    double d[2] = {0, 0};
    long double l[2] = {0, 0};
    switch (type) {
    case UM_TYPE_FLOAT:
    case UM_TYPE_FLOAT_COMPLEX:
        memcpy(f, from, um_proto_atomic_size(type));
        return (struct real){f[0], f[1]};
    case UM_TYPE_DOUBLE:
    case UM_TYPE_DOUBLE_COMPLEX:
        memcpy(d, from, um_proto_atomic_size(type));
        return (struct real){d[0], d[1]};
    default:
        memcpy(l, from, um_proto_atomic_size(type));
        return (struct real){l[0], l[1]};
    }
}

static inline void real_put(unsigned type, struct real v, void *to)
{
    const float f[2] = {(float)v.re, (float)v.im};
    const double d[2] = {(double)v.re, (double)v.im};
    const long double l[2] = {v.re, v.im};
    switch (type) {
    case UM_TYPE_FLOAT:
    case UM_TYPE_FLOAT_COMPLEX:
        memcpy(to, f, um_proto_atomic_size(type));
        break;
    case UM_TYPE_DOUBLE:
    case UM_TYPE_DOUBLE_COMPLEX:
        memcpy(to, d, um_proto_atomic_size(type));
        break;
    default:
        memcpy(to, l, um_proto_atomic_size(type));
    }
}

static inline bool real_reference(unsigned op, struct real a, struct real b, struct real cmp, struct real *next)
{
    bool zero_a = a.re == 0 && a.im == 0, zero_b = b.re == 0 && b.im == 0;
    bool equal = cmp.re == a.re && cmp.im == a.im;
    *next = b;
    switch (op) {
    case UM_ATOMIC_MIN:
        return b.re < a.re;
    case UM_ATOMIC_MAX:
        return b.re > a.re;
    case UM_ATOMIC_SUM:
        *next = (struct real){a.re + b.re, a.im + b.im};
        return true;
    case UM_ATOMIC_DIFF:
        *next = (struct real){a.re - b.re, a.im - b.im};
        return true;
    case UM_ATOMIC_PROD:
        *next = (struct real){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
        return true;
    case UM_ATOMIC_LOR:
        *next = (struct real){!zero_a || !zero_b, 0};
        return true;
    case UM_ATOMIC_LAND:
        *next = (struct real){!zero_a && !zero_b, 0};
        return true;
    case UM_ATOMIC_LXOR:
        *next = (struct real){zero_a != zero_b, 0};
        return true;
    case UM_ATOMIC_WRITE:
        return true;
    case UM_ATOMIC_CSWAP:
        return equal;
    case UM_ATOMIC_CSWAP_NE:
        return !equal;
    case UM_ATOMIC_CSWAP_LE:
        return cmp.re <= a.re;
    case UM_ATOMIC_CSWAP_LT:
        return cmp.re < a.re;
    case UM_ATOMIC_CSWAP_GE:
        return cmp.re >= a.re;
    case UM_ATOMIC_CSWAP_GT:
        return cmp.re > a.re;
    default:
        return false;
    }
}

static inline void reference(unsigned type, unsigned op, unsigned char *target, const void *src, const void *cmp)
{
    if (is_integer(type)) {
        u128 next;
        if (int_reference(type, op, int_get(type, target), int_get(type, src), int_get(type, cmp), &next))
            memcpy(target, &next, um_proto_atomic_size(type));
    } else {
        struct real next;
        if (real_reference(op, real_get(type, target), real_get(type, src), real_get(type, cmp), &next))
            real_put(type, next, target);
    }
}

/* Are the values equal? A long double has bytes without meaning, and all NaNs count as equal. */
static inline bool is_same(unsigned type, const void *a, const void *b)
{
    if (is_integer(type))
        return memcmp(a, b, um_proto_atomic_size(type)) == 0;
    struct real x = real_get(type, a), y = real_get(type, b);
    return (x.re == y.re || (x.re != x.re && y.re != y.re)) && (x.im == y.im || (x.im != x.im && y.im != y.im));
}

/* Makes a value that is often equal to another one, and often at the edge of its range. Reals are small multiples of
 * 1/4, so that sums are exact. */
static inline void any_value(unsigned type, void *to)
{
    size_t size = um_proto_atomic_size(type);
    if (!is_integer(type)) {
        static const long double odd[] = {-0.0L, 1.0L / 0.0L, -1.0L / 0.0L, 0.0L / 0.0L};
        bool special = !is_complex(type) && rnd() % 16 == 0;
        struct real v = {special ? odd[rnd() % 4] : (long double)((int)(rnd() % 41) - 20) / 4,
                         is_complex(type) ? (long double)((int)(rnd() % 9) - 4) / 4 : 0};
        real_put(type, v, to);
        return;
    }
    u128 v = rnd() % 3;
    switch (rnd() % 5) {
    case 0:
        v = (u128)rnd() << 64 | rnd();
        break;
    case 1:
        v = ~(u128)0 - v;
        break;
    case 2:
        v += (u128)1 << (size * 8 - 1);
        break;
    case 3:
        v = ((u128)1 << (size * 8 - 1)) - 1;
        break;
    default:
        break;
    }
    memcpy(to, &v, size);
}

#endif
