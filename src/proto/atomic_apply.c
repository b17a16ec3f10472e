/* The table of kernels, and the choice among them. See atomic_apply.h. */
#include "proto/atomic_apply.h"

#include <complex.h>
#include <string.h>

/* For the preprocessor, which compares them. */
#define K_INTEGER 0
#define K_REAL    1
#define K_COMPLEX 2

/* ISO C has no name for it. */
__extension__ typedef __int128 um_int128;
__extension__ typedef unsigned __int128 um_uint128;

#define K_NAME  um_int8
#define K_TYPE  int8_t
#define K_CLASS K_INTEGER
#define K_WIDE  uint64_t
#define K_BITS  8
#include "proto/atomic_kernel.h"

#define K_NAME  um_uint8
#define K_TYPE  uint8_t
#define K_CLASS K_INTEGER
#define K_WIDE  uint64_t
#define K_BITS  8
#include "proto/atomic_kernel.h"

#define K_NAME  um_int16
#define K_TYPE  int16_t
#define K_CLASS K_INTEGER
#define K_WIDE  uint64_t
#define K_BITS  16
#include "proto/atomic_kernel.h"

#define K_NAME  um_uint16
#define K_TYPE  uint16_t
#define K_CLASS K_INTEGER
#define K_WIDE  uint64_t
#define K_BITS  16
#include "proto/atomic_kernel.h"

#define K_NAME  um_int32
#define K_TYPE  int32_t
#define K_CLASS K_INTEGER
#define K_WIDE  uint64_t
#define K_BITS  32
#include "proto/atomic_kernel.h"

#define K_NAME  um_uint32
#define K_TYPE  uint32_t
#define K_CLASS K_INTEGER
#define K_WIDE  uint64_t
#define K_BITS  32
#include "proto/atomic_kernel.h"

#define K_NAME  um_int64
#define K_TYPE  int64_t
#define K_CLASS K_INTEGER
#define K_WIDE  uint64_t
#define K_BITS  64
#include "proto/atomic_kernel.h"

#define K_NAME  um_uint64
#define K_TYPE  uint64_t
#define K_CLASS K_INTEGER
#define K_WIDE  uint64_t
#define K_BITS  64
#include "proto/atomic_kernel.h"

#define K_NAME  um_float
#define K_TYPE  float
#define K_CLASS K_REAL
#define K_BITS  32
#include "proto/atomic_kernel.h"

#define K_NAME  um_double
#define K_TYPE  double
#define K_CLASS K_REAL
#define K_BITS  64
#include "proto/atomic_kernel.h"

#define K_NAME  um_float_complex
#define K_TYPE  float complex
#define K_CLASS K_COMPLEX
#define K_BITS  64
#include "proto/atomic_kernel.h"

#define K_NAME  um_double_complex
#define K_TYPE  double complex
#define K_CLASS K_COMPLEX
#define K_BITS  0
#include "proto/atomic_kernel.h"

#define K_NAME  um_long_double
#define K_TYPE  long double
#define K_CLASS K_REAL
#define K_BITS  0
#include "proto/atomic_kernel.h"

#define K_NAME  um_long_double_complex
#define K_TYPE  long double complex
#define K_CLASS K_COMPLEX
#define K_BITS  0
#include "proto/atomic_kernel.h"

#define K_NAME  um_int128
#define K_TYPE  um_int128
#define K_CLASS K_INTEGER
#define K_WIDE  um_uint128
#define K_BITS  0
#include "proto/atomic_kernel.h"

#define K_NAME  um_uint128
#define K_TYPE  um_uint128
#define K_CLASS K_INTEGER
#define K_WIDE  um_uint128
#define K_BITS  0
#include "proto/atomic_kernel.h"

struct um_kernels {
    void (*locked)(const struct um_atomic_call *c);
    void (*by_op[UM_ATOMIC_OPS])(const struct um_atomic_call *c); /* NULL: always locked */
    uint8_t size;
};

#define UM_KERNELS(name, type) .locked = name##_locked, .size = sizeof(type)
#define UM_KERNELS_ALL(name)                                                                                           \
    [UM_ATOMIC_SUM] = name##_sum, [UM_ATOMIC_PROD] = name##_prod, [UM_ATOMIC_LOR] = name##_lor,                        \
    [UM_ATOMIC_LAND] = name##_land, [UM_ATOMIC_LXOR] = name##_lxor, [UM_ATOMIC_READ] = name##_read,                    \
    [UM_ATOMIC_WRITE] = name##_write, [UM_ATOMIC_CSWAP] = name##_cswap, [UM_ATOMIC_CSWAP_NE] = name##_cswap_ne,        \
    [UM_ATOMIC_DIFF] = name##_diff
#define UM_KERNELS_ORDER(name)                                                                                         \
    [UM_ATOMIC_MIN] = name##_min, [UM_ATOMIC_MAX] = name##_max, [UM_ATOMIC_CSWAP_LE] = name##_cswap_le,                \
    [UM_ATOMIC_CSWAP_LT] = name##_cswap_lt, [UM_ATOMIC_CSWAP_GE] = name##_cswap_ge,                                    \
    [UM_ATOMIC_CSWAP_GT] = name##_cswap_gt
#define UM_KERNELS_BITS(name)                                                                                          \
    [UM_ATOMIC_BOR] = name##_bor, [UM_ATOMIC_BAND] = name##_band, [UM_ATOMIC_BXOR] = name##_bxor,                      \
    [UM_ATOMIC_MSWAP] = name##_mswap
#define UM_KERNELS_INTEGER(name, type)                                                                                 \
    {                                                                                                                  \
        UM_KERNELS(name, type), .by_op = { UM_KERNELS_ALL(name), UM_KERNELS_ORDER(name), UM_KERNELS_BITS(name) }       \
    }

static const struct um_kernels kernels[UM_TYPES] = {
    [UM_TYPE_INT8] = UM_KERNELS_INTEGER(um_int8, int8_t),
    [UM_TYPE_UINT8] = UM_KERNELS_INTEGER(um_uint8, uint8_t),
    [UM_TYPE_INT16] = UM_KERNELS_INTEGER(um_int16, int16_t),
    [UM_TYPE_UINT16] = UM_KERNELS_INTEGER(um_uint16, uint16_t),
    [UM_TYPE_INT32] = UM_KERNELS_INTEGER(um_int32, int32_t),
    [UM_TYPE_UINT32] = UM_KERNELS_INTEGER(um_uint32, uint32_t),
    [UM_TYPE_INT64] = UM_KERNELS_INTEGER(um_int64, int64_t),
    [UM_TYPE_UINT64] = UM_KERNELS_INTEGER(um_uint64, uint64_t),
    [UM_TYPE_FLOAT] = {UM_KERNELS(um_float, float), .by_op = {UM_KERNELS_ALL(um_float), UM_KERNELS_ORDER(um_float)}},
    [UM_TYPE_DOUBLE] = {UM_KERNELS(um_double, double),
                        .by_op = {UM_KERNELS_ALL(um_double), UM_KERNELS_ORDER(um_double)}},
    [UM_TYPE_FLOAT_COMPLEX] = {UM_KERNELS(um_float_complex, float complex),
                               .by_op = {UM_KERNELS_ALL(um_float_complex)}},
    [UM_TYPE_DOUBLE_COMPLEX] = {UM_KERNELS(um_double_complex, double complex)},
    [UM_TYPE_LONG_DOUBLE] = {UM_KERNELS(um_long_double, long double)},
    [UM_TYPE_LONG_DOUBLE_COMPLEX] = {UM_KERNELS(um_long_double_complex, long double complex)},
    [UM_TYPE_INT128] = {UM_KERNELS(um_int128, um_int128)},
    [UM_TYPE_UINT128] = {UM_KERNELS(um_uint128, um_uint128)},
};
static_assert(sizeof(long double complex) == UM_ATOMIC_ELEMENT_MAX, "the widest datatype");

void um_atomic_apply_lockless(const struct um_atomic_call *call)
{
    kernels[call->type].by_op[call->op](call);
}

void um_atomic_apply(const struct um_atomic_call *call)
{
    const struct um_kernels *k = &kernels[call->type];
    if (__builtin_expect(k->by_op[call->op] != NULL && (call->lock_key & (k->size - 1u)) == 0, 1)) {
        k->by_op[call->op](call);
        return;
    }
    k->locked(call);
    /*
     * x86's atomics are barriers; a lock given back is none. Whoever waits for the completion and then reads
     * elsewhere relies on one. sync: none (no partner: it orders this thread's own stores before its later loads)
     */
    um_fence_full();
}

#define UM_BIT(op) (1u << UM_ATOMIC_##op)
#define UM_ORDERED                                                                                                     \
    (UM_BIT(MIN) | UM_BIT(MAX) | UM_BIT(CSWAP_LE) | UM_BIT(CSWAP_LT) | UM_BIT(CSWAP_GE) | UM_BIT(CSWAP_GT))
#define UM_BITWISE  (UM_BIT(BOR) | UM_BIT(BAND) | UM_BIT(BXOR) | UM_BIT(MSWAP))
#define UM_COMPARES (((1u << (UM_ATOMIC_MSWAP + 1)) - 1) & ~(UM_BIT(CSWAP) - 1))
#define UM_EVERY    ((1u << UM_ATOMIC_OPS) - 1)
#define UM_OPS(refused)                                                                                                \
    {                                                                                                                  \
        [UM_ATOMIC_BASE] = UM_EVERY & ~(refused) & ~UM_COMPARES & ~UM_BIT(READ),                                       \
        [UM_ATOMIC_FETCH] = UM_EVERY & ~(refused) & ~UM_COMPARES, [UM_ATOMIC_COMPARE] = UM_COMPARES & ~(refused)       \
    }
#define UM_OPS_INTEGER UM_OPS(0u)
#define UM_OPS_REAL    UM_OPS(UM_BITWISE)
#define UM_OPS_COMPLEX UM_OPS(UM_BITWISE | UM_ORDERED)

const uint32_t um_atomic_ops[UM_TYPES][UM_ATOMIC_KINDS] = {
    [UM_TYPE_INT8] = UM_OPS_INTEGER,
    [UM_TYPE_UINT8] = UM_OPS_INTEGER,
    [UM_TYPE_INT16] = UM_OPS_INTEGER,
    [UM_TYPE_UINT16] = UM_OPS_INTEGER,
    [UM_TYPE_INT32] = UM_OPS_INTEGER,
    [UM_TYPE_UINT32] = UM_OPS_INTEGER,
    [UM_TYPE_INT64] = UM_OPS_INTEGER,
    [UM_TYPE_UINT64] = UM_OPS_INTEGER,
    [UM_TYPE_FLOAT] = UM_OPS_REAL,
    [UM_TYPE_DOUBLE] = UM_OPS_REAL,
    [UM_TYPE_FLOAT_COMPLEX] = UM_OPS_COMPLEX,
    [UM_TYPE_DOUBLE_COMPLEX] = UM_OPS_COMPLEX,
    [UM_TYPE_LONG_DOUBLE] = UM_OPS_REAL,
    [UM_TYPE_LONG_DOUBLE_COMPLEX] = UM_OPS_COMPLEX,
    [UM_TYPE_INT128] = UM_OPS_INTEGER,
    [UM_TYPE_UINT128] = UM_OPS_INTEGER,
};

const uint8_t um_atomic_shift[UM_TYPES] = {0, 0, 1, 1, 2, 2, 3, 3, 2, 3, 3, 4, 4, 5, 4, 4};
