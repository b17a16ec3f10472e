/*
 * The kernels of one datatype: included by atomic_apply.c once for each, with
 *
 *   K_NAME   what the functions' names begin with       K_TYPE   the C type
 *   K_CLASS  K_INTEGER, K_REAL or K_COMPLEX             K_WIDE   integers: the unsigned type to calculate in
 *   K_BITS   the width of the processor's atomic that fits (8 to 64); 0: there is none
 *
 * and undefined again at the end. It has no include guard. Owns nothing. Threading: atomic_apply.h.
 */
#define K_PASTE_RAW(a, b) a##b
#define K_PASTE(a, b)     K_PASTE_RAW(a, b)
#define K(name)           K_PASTE(K_NAME, name)

/* Computes the new value from `old`; false: no change. Inlined with a constant op, only one case is left. */
/* NOLINTNEXTLINE(readability-function-size): a case for each operation */
static inline __attribute__((always_inline)) bool K(_next)(unsigned op, K_TYPE old, K_TYPE operand, K_TYPE compare,
                                                           K_TYPE *next_p)
{
    *next_p = operand;
    switch (op) {
#if K_CLASS != K_COMPLEX
    case UM_ATOMIC_MIN:
        return operand < old;
    case UM_ATOMIC_MAX:
        return operand > old;
    case UM_ATOMIC_CSWAP_LE:
        return compare <= old;
    case UM_ATOMIC_CSWAP_LT:
        return compare < old;
    case UM_ATOMIC_CSWAP_GE:
        return compare >= old;
    case UM_ATOMIC_CSWAP_GT:
        return compare > old;
#endif
#if K_CLASS == K_INTEGER
    case UM_ATOMIC_SUM:
        *next_p = (K_TYPE)((K_WIDE)old + (K_WIDE)operand);
        return true;
    case UM_ATOMIC_DIFF:
        *next_p = (K_TYPE)((K_WIDE)old - (K_WIDE)operand);
        return true;
    case UM_ATOMIC_PROD:
        *next_p = (K_TYPE)((K_WIDE)old * (K_WIDE)operand);
        return true;
    case UM_ATOMIC_BOR:
        *next_p = (K_TYPE)(old | operand);
        return true;
    case UM_ATOMIC_BAND:
        *next_p = (K_TYPE)(old & operand);
        return true;
    case UM_ATOMIC_BXOR:
        *next_p = (K_TYPE)(old ^ operand);
        return true;
    case UM_ATOMIC_MSWAP:
        *next_p = (K_TYPE)((operand & compare) | (old & ~compare));
        return true;
#else
    case UM_ATOMIC_SUM:
        *next_p = old + operand;
        return true;
    case UM_ATOMIC_DIFF:
        *next_p = old - operand;
        return true;
    case UM_ATOMIC_PROD:
        *next_p = old * operand;
        return true;
#endif
    case UM_ATOMIC_LOR:
        *next_p = (K_TYPE)(old != 0 || operand != 0);
        return true;
    case UM_ATOMIC_LAND:
        *next_p = (K_TYPE)(old != 0 && operand != 0);
        return true;
    case UM_ATOMIC_LXOR:
        *next_p = (K_TYPE)((old != 0) != (operand != 0));
        return true;
    case UM_ATOMIC_WRITE:
        return true;
    case UM_ATOMIC_CSWAP:
        return compare == old;
    case UM_ATOMIC_CSWAP_NE:
        return compare != old;
    default: /* READ */
        return false;
    }
}

/*
 * Updates a block of elements in private memory. The compiler vectorises this.
 */
typedef K_TYPE K(_any) __attribute__((aligned(1), may_alias));

static inline __attribute__((always_inline)) void K(_block)(void *block, const void *operand, const void *compare,
                                                            size_t count, const unsigned op)
{
    K(_any) *restrict value = block;
    const K(_any) *const by = operand, *const wanted = compare;
    for (size_t i = 0; i < count; i++) {
        K_TYPE old = value[i], next;
        K_TYPE own = op != UM_ATOMIC_READ ? by[i] : 0, other = um_proto_atomic_compares(op) ? wanted[i] : 0;
        bool changes = K(_next)(op, old, own, other, &next);
        value[i] = changes ? next : old;
    }
}

#if K_BITS
#define K_UINT      K_PASTE(K_PASTE(uint, K_BITS), _t)
#define K_LOAD      K_PASTE(um_load_acquire_bits, K_BITS)
#define K_RMW(name) K_PASTE(um_rmw_acqrel_##name##_bits, K_BITS)
static_assert(sizeof(K_TYPE) * 8 == K_BITS, "the element is as wide as the access");

/* Updates one element by compare and swap; returns the old value. */
/* sync: atomic-element (partner atomic-element): who sees the new value sees what came before it. */
static inline __attribute__((always_inline)) K_UINT K(_swap)(K_UINT *at, const unsigned op, K_UINT operand,
                                                             K_UINT compare)
{
    K_UINT seen = K_LOAD(at);
    for (;;) {
        K_TYPE old, value, wanted, next;
        K_UINT bits;
        memcpy(&old, &seen, sizeof(old));
        memcpy(&value, &operand, sizeof(value));
        memcpy(&wanted, &compare, sizeof(wanted));
        if (!K(_next)(op, old, value, wanted, &next))
            return seen;
        memcpy(&bits, &next, sizeof(bits));
        if (K_RMW(cas)(at, &seen, bits))
            return seen;
    }
}

/* Accesses one element; returns the old value. */
/* sync: atomic-element (partner atomic-element) */
static inline __attribute__((always_inline)) K_UINT K(_access)(K_UINT *at, const unsigned op, K_UINT operand,
                                                               K_UINT compare)
{
    switch (op) {
    case UM_ATOMIC_READ:
        return K_LOAD(at);
    case UM_ATOMIC_WRITE: /* not a plain store: it must be visible before later loads */
        return K_RMW(swap)(at, operand);
#if K_CLASS == K_INTEGER
    case UM_ATOMIC_SUM:
        return K_RMW(add)(at, operand);
    case UM_ATOMIC_DIFF:
        return K_RMW(add)(at, (K_UINT)(0 - operand));
    case UM_ATOMIC_BOR:
        return K_RMW(or)(at, operand);
    case UM_ATOMIC_BAND:
        return K_RMW(and)(at, operand);
    case UM_ATOMIC_BXOR:
        return K_RMW(xor)(at, operand);
    case UM_ATOMIC_CSWAP:
        (void)K_RMW(cas)(at, &compare, operand);
        return compare;
#endif
    default:
        return K(_swap)(at, op, operand, compare);
    }
}

/* The two cases let the compiler use atomics without a result where the old value is not wanted. */
static inline __attribute__((always_inline)) void K(_run)(const struct um_proto_atomic_call *c, const unsigned op)
{
    K_UINT *target = c->target;
    const unsigned char *operand = c->operand;
    const unsigned char *compare = c->compare;
    unsigned char *result = c->result;
    size_t i = 0;
    do {
        K_UINT value = 0, wanted = 0;
        if (op != UM_ATOMIC_READ)
            memcpy(&value, operand + i * sizeof(value), sizeof(value));
        if (um_proto_atomic_compares(op))
            memcpy(&wanted, compare + i * sizeof(wanted), sizeof(wanted));
        if (result) {
            K_UINT old = K(_access)(target + i, op, value, wanted);
            memcpy(result + i * sizeof(old), &old, sizeof(old));
        } else {
            (void)K(_access)(target + i, op, value, wanted);
        }
    } while (++i < c->count);
}

#define K_FUNCTION_ONE(name, op)                                                                                       \
    static void K(name)(const struct um_proto_atomic_call *c)                                                          \
    {                                                                                                                  \
        K(_run)(c, op);                                                                                                \
    }
#else
#define K_FUNCTION_ONE(name, op)
#endif

#define K_FUNCTION(name, op)                                                                                           \
    K_FUNCTION_ONE(name, op)                                                                                           \
    static void K(K_PASTE(_block, name))(void *block, const void *operand, const void *compare, size_t count)          \
    {                                                                                                                  \
        K(_block)(block, operand, compare, count, op);                                                                 \
    }
#if K_CLASS != K_COMPLEX
K_FUNCTION(_min, UM_ATOMIC_MIN)
K_FUNCTION(_max, UM_ATOMIC_MAX)
K_FUNCTION(_cswap_le, UM_ATOMIC_CSWAP_LE)
K_FUNCTION(_cswap_lt, UM_ATOMIC_CSWAP_LT)
K_FUNCTION(_cswap_ge, UM_ATOMIC_CSWAP_GE)
K_FUNCTION(_cswap_gt, UM_ATOMIC_CSWAP_GT)
#endif
#if K_CLASS == K_INTEGER
K_FUNCTION(_bor, UM_ATOMIC_BOR)
K_FUNCTION(_band, UM_ATOMIC_BAND)
K_FUNCTION(_bxor, UM_ATOMIC_BXOR)
K_FUNCTION(_mswap, UM_ATOMIC_MSWAP)
#endif
K_FUNCTION(_sum, UM_ATOMIC_SUM)
K_FUNCTION(_diff, UM_ATOMIC_DIFF)
K_FUNCTION(_prod, UM_ATOMIC_PROD)
K_FUNCTION(_lor, UM_ATOMIC_LOR)
K_FUNCTION(_land, UM_ATOMIC_LAND)
K_FUNCTION(_lxor, UM_ATOMIC_LXOR)
K_FUNCTION(_read, UM_ATOMIC_READ)
K_FUNCTION(_write, UM_ATOMIC_WRITE)
K_FUNCTION(_cswap, UM_ATOMIC_CSWAP)
K_FUNCTION(_cswap_ne, UM_ATOMIC_CSWAP_NE)
#undef K_FUNCTION
#undef K_FUNCTION_ONE
#if K_BITS
#undef K_UINT
#undef K_LOAD
#undef K_RMW
#endif

#undef K_PASTE_RAW
#undef K_PASTE
#undef K
#undef K_NAME
#undef K_TYPE
#undef K_CLASS
#undef K_WIDE
#undef K_BITS
