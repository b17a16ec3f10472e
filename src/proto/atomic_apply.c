/* The table of kernels, and the choice among them. See atomic_apply.h. */
#include "proto/atomic_bulk.h"

#include <complex.h>
#include <string.h>

/* The values of K_CLASS, which the preprocessor compares. */
#define K_INTEGER 0
#define K_REAL    1
#define K_COMPLEX 2

/* ISO C has no 128-bit integers. */
__extension__ typedef __int128 um_proto_int128;
__extension__ typedef unsigned __int128 um_proto_uint128;

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

#define K_NAME  um_proto_int128
#define K_TYPE  um_proto_int128
#define K_CLASS K_INTEGER
#define K_WIDE  um_proto_uint128
#define K_BITS  0
#include "proto/atomic_kernel.h"

#define K_NAME  um_proto_uint128
#define K_TYPE  um_proto_uint128
#define K_CLASS K_INTEGER
#define K_WIDE  um_proto_uint128
#define K_BITS  0
#include "proto/atomic_kernel.h"

struct um_proto_kernels {
    struct um_proto_kernel by_op[UM_ATOMIC_OPS];
    uint8_t size;
};

/* Datatypes that the processor accesses itself, and wider ones. */
#define UM_NARROW(name, op)                                                                                            \
    {                                                                                                                  \
        name##op, name##_block##op                                                                                     \
    }
#define UM_WIDE(name, op)                                                                                              \
    {                                                                                                                  \
        NULL, name##_block##op                                                                                         \
    }
#define UM_KERNELS_ALL(width, name)                                                                                    \
    [UM_ATOMIC_SUM] = width(name, _sum), [UM_ATOMIC_PROD] = width(name, _prod), [UM_ATOMIC_LOR] = width(name, _lor),   \
    [UM_ATOMIC_LAND] = width(name, _land), [UM_ATOMIC_LXOR] = width(name, _lxor),                                      \
    [UM_ATOMIC_READ] = width(name, _read), [UM_ATOMIC_WRITE] = width(name, _write),                                    \
    [UM_ATOMIC_CSWAP] = width(name, _cswap), [UM_ATOMIC_CSWAP_NE] = width(name, _cswap_ne),                            \
    [UM_ATOMIC_DIFF] = width(name, _diff)
#define UM_KERNELS_ORDER(width, name)                                                                                  \
    [UM_ATOMIC_MIN] = width(name, _min), [UM_ATOMIC_MAX] = width(name, _max),                                          \
    [UM_ATOMIC_CSWAP_LE] = width(name, _cswap_le), [UM_ATOMIC_CSWAP_LT] = width(name, _cswap_lt),                      \
    [UM_ATOMIC_CSWAP_GE] = width(name, _cswap_ge), [UM_ATOMIC_CSWAP_GT] = width(name, _cswap_gt)
#define UM_KERNELS_BITS(width, name)                                                                                   \
    [UM_ATOMIC_BOR] = width(name, _bor), [UM_ATOMIC_BAND] = width(name, _band), [UM_ATOMIC_BXOR] = width(name, _bxor), \
    [UM_ATOMIC_MSWAP] = width(name, _mswap)
#define UM_COMPLEX(width, name, type)                                                                                  \
    {                                                                                                                  \
        .by_op = {UM_KERNELS_ALL(width, name)}, .size = sizeof(type)                                                   \
    }
#define UM_REAL(width, name, type)                                                                                     \
    {                                                                                                                  \
        .by_op = {UM_KERNELS_ALL(width, name), UM_KERNELS_ORDER(width, name)}, .size = sizeof(type)                    \
    }
#define UM_INTEGER(width, name, type)                                                                                  \
    {                                                                                                                  \
        .by_op = {UM_KERNELS_ALL(width, name), UM_KERNELS_ORDER(width, name), UM_KERNELS_BITS(width, name)},           \
        .size = sizeof(type)                                                                                           \
    }

static const struct um_proto_kernels kernels[UM_TYPES] = {
    [UM_TYPE_INT8] = UM_INTEGER(UM_NARROW, um_int8, int8_t),
    [UM_TYPE_UINT8] = UM_INTEGER(UM_NARROW, um_uint8, uint8_t),
    [UM_TYPE_INT16] = UM_INTEGER(UM_NARROW, um_int16, int16_t),
    [UM_TYPE_UINT16] = UM_INTEGER(UM_NARROW, um_uint16, uint16_t),
    [UM_TYPE_INT32] = UM_INTEGER(UM_NARROW, um_int32, int32_t),
    [UM_TYPE_UINT32] = UM_INTEGER(UM_NARROW, um_uint32, uint32_t),
    [UM_TYPE_INT64] = UM_INTEGER(UM_NARROW, um_int64, int64_t),
    [UM_TYPE_UINT64] = UM_INTEGER(UM_NARROW, um_uint64, uint64_t),
    [UM_TYPE_FLOAT] = UM_REAL(UM_NARROW, um_float, float),
    [UM_TYPE_DOUBLE] = UM_REAL(UM_NARROW, um_double, double),
    [UM_TYPE_FLOAT_COMPLEX] = UM_COMPLEX(UM_NARROW, um_float_complex, float complex),
    [UM_TYPE_DOUBLE_COMPLEX] = UM_COMPLEX(UM_WIDE, um_double_complex, double complex),
    [UM_TYPE_LONG_DOUBLE] = UM_REAL(UM_WIDE, um_long_double, long double),
    [UM_TYPE_LONG_DOUBLE_COMPLEX] = UM_COMPLEX(UM_WIDE, um_long_double_complex, long double complex),
    [UM_TYPE_INT128] = UM_INTEGER(UM_WIDE, um_proto_int128, um_proto_int128),
    [UM_TYPE_UINT128] = UM_INTEGER(UM_WIDE, um_proto_uint128, um_proto_uint128),
};
static_assert(sizeof(long double complex) == UM_ATOMIC_ELEMENT_MAX, "the widest datatype");

void um_proto_atomic_apply_lockless(const struct um_proto_atomic_call *call)
{
    kernels[call->type].by_op[call->op].one(call);
}

void um_proto_atomic_apply(const struct um_proto_atomic_call *call)
{
    const struct um_proto_kernels *k = &kernels[call->type];
    const struct um_proto_kernel *kernel = &k->by_op[call->op];
    if (__builtin_expect(!kernel->one || (call->lock_key & (k->size - 1u)) != 0, 0))
        um_proto_atomic_locked(call, kernel, k->size);
    else if (call->count == 1)
        kernel->one(call);
    else
        um_proto_atomic_bulk(call, kernel);
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

const uint32_t um_proto_atomic_ops[UM_TYPES][UM_ATOMIC_KINDS] = {
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
