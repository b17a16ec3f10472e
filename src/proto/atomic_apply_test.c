/*
 * Every datatype times every operation against an independent reference, aligned and not, few elements and many; then
 * several processes at once on the same memory, where no update may be lost; then holders of locks that die.
 */
#include "proto/atomic_apply.h"

#include "base/cpu_pair.h"
#include "base/process.h"

#include <complex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;

static struct um_locks_shm own_locks;

static struct um_lock_party party(void)
{
    return (struct um_lock_party){.self = um_process_self(), .alive = um_process_holder_is_alive};
}

static uint64_t random_state = 88172645463325252u;

static uint64_t rnd(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* ---- the reference: in the widest arithmetic there is, one element, no sharing ---- */

static bool is_integer(unsigned type)
{
    return type <= UM_TYPE_UINT64 || type >= UM_TYPE_INT128;
}

static bool is_signed(unsigned type)
{
    return type % 2 == 0; /* of the integers */
}

static bool is_complex(unsigned type)
{
    return type == UM_TYPE_FLOAT_COMPLEX || type == UM_TYPE_DOUBLE_COMPLEX || type == UM_TYPE_LONG_DOUBLE_COMPLEX;
}

static u128 int_get(unsigned type, const void *from)
{
    size_t size = um_proto_atomic_size(type);
    u128 v = 0;
    memcpy(&v, from, size);
    if (is_signed(type) && size < 16 && v >> (size * 8 - 1) & 1)
        v |= ~(u128)0 << (size * 8);
    return v;
}

static bool int_less(unsigned type, u128 a, u128 b)
{
    return is_signed(type) ? (i128)a < (i128)b : a < b;
}

/* Returns whether the target changes. */
static bool int_reference(unsigned type, unsigned op, u128 old, u128 src, u128 cmp, u128 *next)
{
    bool less = int_less(type, cmp, old), equal = cmp == old;
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
    case UM_ATOMIC_MSWAP:
        *next = (src & cmp) | (old & ~cmp);
        return true;
    default:
        return false;
    }
}

/* A real or complex number as two of the widest. */
struct real {
    long double re, im;
};

static struct real real_get(unsigned type, const void *from)
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

static void real_put(unsigned type, struct real v, void *to)
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

static bool real_reference(unsigned op, struct real a, struct real b, struct real cmp, struct real *next)
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

static void reference(unsigned type, unsigned op, unsigned char *target, const void *src, const void *cmp)
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

/* Equal as values: a long double has bytes without meaning, and one NaN is like another. */
static bool is_same(unsigned type, const void *a, const void *b)
{
    if (is_integer(type))
        return memcmp(a, b, um_proto_atomic_size(type)) == 0;
    struct real x = real_get(type, a), y = real_get(type, b);
    return (x.re == y.re || (x.re != x.re && y.re != y.re)) && (x.im == y.im || (x.im != x.im && y.im != y.im));
}

/* A value that often equals another one, often lies at an edge. Reals stay small multiples of 1/4: sums are exact. */
static void any_value(unsigned type, void *to)
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

enum { FEW = 9, BYTES_MAX = 700, ROOM = BYTES_MAX + 3 * 64 };

static unsigned char target[ROOM] __attribute__((aligned(64)));
static unsigned char expected[ROOM] __attribute__((aligned(64)));

/* All but these bytes of the room are what they were filled with. */
static void check_beside(const unsigned char *room, size_t from, size_t len, unsigned char fill)
{
    bool same = true;
    for (size_t i = 0; i < ROOM; i++)
        same = same && (room[i] == fill || (i >= from && i < from + len));
    assert_true(same);
}

/* One call at this distance from an aligned address; operand, compare and result lie anywhere. */
static void check_one(unsigned type, unsigned op, size_t count, size_t shift, bool wants_result)
{
    unsigned char operand[ROOM], compare[ROOM], result[ROOM], before[ROOM];
    size_t size = um_proto_atomic_size(type), skew = rnd() % 9, at = 64 + shift;
    memset(target, 0xa5, sizeof(target));
    memset(result, 0x5a, sizeof(result));
    for (size_t i = 0; i < count; i++) {
        any_value(type, target + at + i * size);
        any_value(type, operand + skew + i * size);
        any_value(type, compare + skew + i * size);
        if (rnd() % 3 == 0)
            memcpy(compare + skew + i * size, target + at + i * size, size);
    }
    memcpy(expected, target, sizeof(target));
    memcpy(before, target, sizeof(target));
    for (size_t i = 0; i < count; i++)
        reference(type, op, expected + at + i * size, operand + skew + i * size, compare + skew + i * size);
    struct um_lock_party self = party();
    const struct um_proto_atomic_call call = {
        .type = (uint8_t)type,
        .op = (uint8_t)op,
        .count = count,
        .target = target + at,
        .operand = op == UM_ATOMIC_READ ? NULL : operand + skew,
        .compare = um_proto_atomic_compares(op) ? compare + skew : NULL,
        .result = wants_result ? result + skew : NULL,
        .lock_key = (uintptr_t)target + at,
        .locks = &own_locks,
        .party = &self,
    };
    um_proto_atomic_apply(&call);
    for (size_t i = 0; i < count; i++) {
        if (!is_same(type, target + at + i * size, expected + at + i * size))
            fail_msg("type %u op %u count %zu shift %zu: element %zu is wrong", type, op, count, shift, i);
        if (wants_result)
            assert_memory_equal(result + skew + i * size, before + at + i * size, size);
    }
    check_beside(target, at, count * size, 0xa5);
    check_beside(result, skew, wants_result ? count * size : 0, 0x5a);
    for (int i = 0; i < UM_LOCKS; i++)
        assert_int_equal(own_locks.lock[i].holder, 0);
}

/* One element, a few, or more than one stage of atomic_bulk.c takes. */
static size_t any_count(unsigned type, int round)
{
    if (round < 20)
        return 1;
    return 1 + rnd() % (round < 40 ? FEW : BYTES_MAX / um_proto_atomic_size(type));
}

static void every_datatype_and_operation_agrees_with_the_reference(void **state)
{
    static const size_t shifts[] = {0, 1, 2, 4, 7, 8, 16, 31, 60, 63};
    unsigned pairs = 0;
    um_cpu_pairs_forbid(*state != NULL);
    for (unsigned type = 0; type < UM_TYPES; type++) {
        for (unsigned op = 0; op < UM_ATOMIC_OPS; op++) {
            bool base = um_proto_atomic_is_valid(UM_ATOMIC_BASE, type, op);
            bool fetch = um_proto_atomic_is_valid(UM_ATOMIC_FETCH, type, op);
            bool swap = um_proto_atomic_is_valid(UM_ATOMIC_COMPARE, type, op);
            pairs += base + fetch + swap;
            for (int round = 0; round < 50 && (base || fetch || swap); round++) {
                size_t shift = shifts[round % 10], count = any_count(type, round);
                check_one(type, op, count, shift, fetch || swap);
                if (base)
                    check_one(type, op, count, shift, false);
            }
        }
    }
    um_cpu_pairs_forbid(false);
    /* 10 integers, 3 reals without bits, 3 complex numbers without order */
    assert_int_equal(pairs, 10 * (12 + 13 + 7) + 3 * (9 + 10 + 6) + 3 * (7 + 8 + 2));
}

/* What a provider of the complete matrix has to have. */
static void the_matrix_is_that_of_fi_atomic(void **state)
{
    (void)state;
    for (unsigned type = 0; type < UM_TYPES; type++) {
        assert_true(um_proto_atomic_is_valid(UM_ATOMIC_BASE, type, UM_ATOMIC_SUM));
        assert_true(um_proto_atomic_is_valid(UM_ATOMIC_BASE, type, UM_ATOMIC_WRITE));
        assert_true(um_proto_atomic_is_valid(UM_ATOMIC_FETCH, type, UM_ATOMIC_READ));
        assert_true(um_proto_atomic_is_valid(UM_ATOMIC_COMPARE, type, UM_ATOMIC_CSWAP));
        assert_true(um_proto_atomic_is_valid(UM_ATOMIC_COMPARE, type, UM_ATOMIC_CSWAP_NE));
        assert_false(um_proto_atomic_is_valid(UM_ATOMIC_BASE, type, UM_ATOMIC_READ));
        assert_false(um_proto_atomic_is_valid(UM_ATOMIC_BASE, type, UM_ATOMIC_CSWAP));
        assert_false(um_proto_atomic_is_valid(UM_ATOMIC_FETCH, type, UM_ATOMIC_MSWAP));
        assert_false(um_proto_atomic_is_valid(UM_ATOMIC_COMPARE, type, UM_ATOMIC_SUM));
        assert_int_equal(um_proto_atomic_is_valid(UM_ATOMIC_BASE, type, UM_ATOMIC_BXOR), is_integer(type));
        assert_int_equal(um_proto_atomic_is_valid(UM_ATOMIC_COMPARE, type, UM_ATOMIC_MSWAP), is_integer(type));
        assert_int_equal(um_proto_atomic_is_valid(UM_ATOMIC_BASE, type, UM_ATOMIC_MIN), !is_complex(type));
        assert_int_equal(um_proto_atomic_is_valid(UM_ATOMIC_COMPARE, type, UM_ATOMIC_CSWAP_GT), !is_complex(type));
        for (unsigned kind = 0; kind < 3; kind++)
            assert_false(um_proto_atomic_is_valid((enum um_proto_atomic_kind)kind, type, UM_ATOMIC_OPS));
    }
    assert_false(um_proto_atomic_is_valid(UM_ATOMIC_BASE, UM_TYPES, UM_ATOMIC_SUM));
    assert_false(um_proto_atomic_is_valid(UM_ATOMIC_FETCH, UINT32_MAX, UINT32_MAX));
    static const size_t sizes[UM_TYPES] = {1,
                                           1,
                                           2,
                                           2,
                                           4,
                                           4,
                                           8,
                                           8,
                                           sizeof(float),
                                           sizeof(double),
                                           sizeof(float complex),
                                           sizeof(double complex),
                                           sizeof(long double),
                                           sizeof(long double complex),
                                           16,
                                           16};
    for (unsigned type = 0; type < UM_TYPES; type++) {
        assert_int_equal(um_proto_atomic_size(type), sizes[type]);
        assert_int_equal(um_proto_atomic_count_max(type), UM_ATOMIC_BYTES / sizes[type]);
    }
    assert_int_equal(um_proto_atomic_count_max(UM_TYPES), 0);
    assert_int_equal(um_proto_atomic_size(UM_TYPES), 0);
    assert_int_equal(um_proto_atomic_size(UM_TYPE_LONG_DOUBLE_COMPLEX), UM_ATOMIC_ELEMENT_MAX);
}

/* ---- several processes ---- */

enum { PROCESSES = 4, ROUNDS = 3000, HAMMER = 1000000, CELL = 128 };

struct shared {
    struct um_locks_shm locks;
    unsigned char cell[UM_TYPES * 2][CELL]; /* each datatype aligned, and not */
    uint64_t bits, least, most, by_cswap;
    uint32_t go;
} __attribute__((aligned(4096)));

static struct shared *shared_new(void)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    return s;
}

static void apply(struct shared *s, unsigned type, unsigned op, void *at, const void *src, const void *cmp,
                  void *result)
{
    struct um_lock_party self = party();
    um_proto_atomic_apply(&(struct um_proto_atomic_call){.type = (uint8_t)type,
                                                         .op = (uint8_t)op,
                                                         .count = 1,
                                                         .target = at,
                                                         .operand = src,
                                                         .compare = cmp,
                                                         .result = result,
                                                         .lock_key = (uintptr_t)at,
                                                         .locks = &s->locks,
                                                         .party = &self});
}

static void one_of(unsigned type, void *to)
{
    const u128 one = 1;
    if (is_integer(type))
        memcpy(to, &one, um_proto_atomic_size(type));
    else
        real_put(type, (struct real){1, is_complex(type)}, to);
}

/* The number that process p adds its part to: misaligned by 4 where that makes a difference. */
static unsigned char *cell_of(struct shared *s, unsigned n)
{
    return s->cell[n] + (n >= UM_TYPES ? 61 : 0);
}

/* Those that all processes go for at once. */
static bool is_hammered(unsigned n)
{
    return n == UM_TYPE_INT128 || n == UM_TYPE_DOUBLE || n == UM_TYPES + UM_TYPE_UINT64;
}

static void hammer(struct shared *s, unsigned n)
{
    unsigned char one[UM_ATOMIC_ELEMENT_MAX];
    one_of(n % UM_TYPES, one);
    for (int i = 0; i < HAMMER; i++)
        apply(s, n % UM_TYPES, UM_ATOMIC_SUM, cell_of(s, n), one, NULL, NULL);
}

static void contend(struct shared *s, unsigned self)
{
    unsigned char one[UM_ATOMIC_ELEMENT_MAX];
    while (um_load_acquire_u32(&s->go) == 0)
        um_cpu_relax();
    for (unsigned n = 0; n < UM_TYPES * 2; n++) {
        if (is_hammered(n))
            hammer(s, n);
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (unsigned n = 0; n < UM_TYPES * 2; n++) {
            unsigned char old[UM_ATOMIC_ELEMENT_MAX], minus[UM_ATOMIC_ELEMENT_MAX] = {0};
            unsigned type = n % UM_TYPES;
            one_of(type, one);
            if ((round + n) % 3) { /* two steps forward, one back: by different operations */
                apply(s, type, UM_ATOMIC_SUM, cell_of(s, n), one, NULL, round % 2 ? old : NULL);
            } else if (is_integer(type)) {
                memset(minus, 0xff, um_proto_atomic_size(type));
                apply(s, type, UM_ATOMIC_SUM, cell_of(s, n), minus, NULL, old);
            } else {
                apply(s, type, UM_ATOMIC_DIFF, cell_of(s, n), one, NULL, old);
            }
        }
        uint64_t mine = (uint64_t)1 << ((uint64_t)self * 8 + round % 8), number = (uint64_t)self * ROUNDS + round + 1,
                 seen = 0;
        apply(s, UM_TYPE_UINT64, UM_ATOMIC_BXOR, &s->bits, &mine, NULL, NULL);
        apply(s, UM_TYPE_UINT64, UM_ATOMIC_MIN, &s->least, &number, NULL, NULL);
        apply(s, UM_TYPE_UINT64, UM_ATOMIC_MAX, &s->most, &number, NULL, NULL);
        for (uint64_t wanted = 0;; wanted = seen) {
            uint64_t next = wanted + 1;
            apply(s, UM_TYPE_UINT64, UM_ATOMIC_CSWAP, &s->by_cswap, &next, &wanted, &seen);
            if (seen == wanted)
                break;
        }
    }
}

static void no_update_of_several_processes_is_lost(void **state)
{
    struct shared *s = shared_new();
    pid_t child[PROCESSES];
    (void)state;
    s->least = UINT64_MAX;
    for (unsigned p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        assert_true(child[p] >= 0);
        if (child[p] == 0) {
            contend(s, p);
            _exit(0);
        }
    }
    um_store_release_u32(&s->go, 1);
    for (unsigned p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(child[p], &status, 0), child[p]);
        assert_int_equal(status, 0);
    }
    for (unsigned n = 0; n < UM_TYPES * 2; n++) {
        unsigned type = n % UM_TYPES;
        int64_t sum = is_hammered(n) ? PROCESSES * HAMMER : 0;
        for (uint64_t round = 0; round < ROUNDS; round++)
            sum += (round + n) % 3 ? PROCESSES : -PROCESSES;
        unsigned char wanted[UM_ATOMIC_ELEMENT_MAX];
        const i128 whole = sum;
        if (is_integer(type))
            memcpy(wanted, &whole, um_proto_atomic_size(type));
        else
            real_put(type, (struct real){(long double)sum, is_complex(type) ? (long double)sum : 0}, wanted);
        if (!is_same(type, cell_of(s, n), wanted))
            fail_msg("datatype %u%s: updates were lost", type, n >= UM_TYPES ? ", not aligned" : "");
    }
    assert_true(s->bits == 0xffffffff); /* each process flipped each of its 8 bits an odd number of times */
    assert_int_equal(s->least, 1);
    assert_int_equal(s->most, PROCESSES * ROUNDS);
    assert_int_equal(s->by_cswap, PROCESSES * ROUNDS);
    munmap(s, sizeof(*s));
}
static_assert(ROUNDS % 8 == 0 && ROUNDS / 8 % 2 == 1 && PROCESSES == 4, "the flips");

/* ---- many elements at a time, single ones, and stores beside them ---- */

enum {
    FIELD = 512,       /* bytes that both bulk initiators may update, from BESIDE on */
    BESIDE = 72,       /* before them, in the same word: stores */
    MANY_ROUNDS = 6000 /* of each process */
};

struct field {
    struct um_locks_shm locks;
    unsigned char byte[FIELD + 2 * BESIDE] __attribute__((aligned(64)));
    uint32_t go, done;
} __attribute__((aligned(4096)));

struct part {
    size_t from, count; /* elements of the field */
};

/* Elements that begin at BESIDE + skew, of which the last ends within the field. */
static size_t field_count(unsigned type, size_t skew)
{
    return (FIELD - skew) / um_proto_atomic_size(type);
}

static void field_sum(struct field *f, unsigned type, size_t skew, struct part part, bool fetch)
{
    unsigned char one[FIELD], old[FIELD];
    size_t size = um_proto_atomic_size(type);
    struct um_lock_party self = party();
    unsigned char *at = f->byte + BESIDE + skew + part.from * size;
    for (size_t i = 0; i < part.count; i++)
        one_of(type, one + i * size);
    um_proto_atomic_apply(&(struct um_proto_atomic_call){.type = (uint8_t)type,
                                                         .op = UM_ATOMIC_SUM,
                                                         .count = part.count,
                                                         .target = at,
                                                         .operand = one,
                                                         .result = fetch ? old : NULL,
                                                         .lock_key = (uintptr_t)at,
                                                         .locks = &f->locks,
                                                         .party = &self});
}

/* What each of the processes updates in a round: the whole, nearly the whole, one element. */
static struct part part_of(unsigned process, uint64_t round, size_t count)
{
    if (process == 0)
        return (struct part){0, count};
    if (process == 1)
        return (struct part){round % 3, count - 4};
    return (struct part){round % count, 1};
}

/* Stores right before the first element and right after the last one, and looks whether they stay. */
static bool stores_beside_stay(struct field *f, unsigned type, size_t skew)
{
    volatile unsigned char *before = f->byte + BESIDE + skew - 1;
    volatile unsigned char *after = f->byte + BESIDE + skew + field_count(type, skew) * um_proto_atomic_size(type);
    bool stay = true;
    for (unsigned n = 0; um_load_acquire_u32(&f->done) < 3; n++) {
        *before = (unsigned char)n;
        *after = (unsigned char)~n;
        for (int look = 0; look < 50; look++)
            stay = stay && *before == (unsigned char)n && *after == (unsigned char)~n;
    }
    return stay;
}

static void field_process(struct field *f, unsigned process, unsigned type, size_t skew)
{
    while (um_load_acquire_u32(&f->go) == 0)
        um_cpu_relax();
    if (process == 3)
        _exit(stores_beside_stay(f, type, skew) ? 0 : 1);
    for (uint64_t round = 0; round < MANY_ROUNDS; round++)
        field_sum(f, type, skew, part_of(process, round, field_count(type, skew)), round % 2);
    um_rmw_add_u32(&f->done, 1);
    _exit(0);
}

static void field_check(const struct field *f, unsigned type, size_t skew)
{
    size_t count = field_count(type, skew), size = um_proto_atomic_size(type);
    uint64_t sum[FIELD] = {0};
    for (unsigned process = 0; process < 3; process++) {
        for (uint64_t round = 0; round < MANY_ROUNDS; round++) {
            struct part part = part_of(process, round, count);
            for (size_t i = part.from; i < part.from + part.count; i++)
                sum[i]++;
        }
    }
    for (size_t i = 0; i < count; i++) {
        unsigned char wanted[UM_ATOMIC_ELEMENT_MAX];
        if (is_integer(type))
            memcpy(wanted, &(u128){sum[i]}, size);
        else
            real_put(type, (struct real){(long double)sum[i], is_complex(type) ? (long double)sum[i] : 0}, wanted);
        if (!is_same(type, f->byte + BESIDE + skew + i * size, wanted))
            fail_msg("datatype %u, skew %zu: updates of element %zu of %zu were lost", type, skew, i, count);
    }
}

static void field_run(unsigned type, size_t skew)
{
    struct field *f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child[4];
    assert_true(f != MAP_FAILED);
    for (unsigned p = 0; p < 4; p++) {
        child[p] = fork();
        assert_true(child[p] >= 0);
        if (child[p] == 0)
            field_process(f, p, type, skew);
    }
    um_store_release_u32(&f->go, 1);
    for (unsigned p = 0; p < 4; p++) {
        int status;
        assert_int_equal(waitpid(child[p], &status, 0), child[p]);
        if (status)
            fail_msg("datatype %u, skew %zu: a store beside the elements was lost", type, skew);
    }
    field_check(f, type, skew);
    munmap(f, sizeof(*f));
}

/*
 * Two processes update many elements at a time, one single ones, one stores to the bytes beside them. The skews leave
 * elements at both ends that share a word, or a pair of words, with those bytes.
 */
static void no_update_is_lost_to_many_at_a_time(void **state)
{
    static const unsigned types[] = {UM_TYPE_UINT8, UM_TYPE_INT16, UM_TYPE_UINT32,
                                     UM_TYPE_FLOAT, UM_TYPE_INT64, UM_TYPE_DOUBLE_COMPLEX};
    um_cpu_pairs_forbid(*state != NULL);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        size_t size = um_proto_atomic_size(types[i]);
        field_run(types[i], size == 1 ? 3 : size);
        field_run(types[i], 3 * size);
    }
    field_run(UM_TYPE_INT64, 5); /* not aligned: under locks */
    um_cpu_pairs_forbid(false);
}

/* ---- holders that die ---- */

static struct um_lock_shm *lock_of(struct shared *s, const void *at)
{
    return um_lock_of(&s->locks, (uintptr_t)at / UM_LOCK_LINE);
}

static void a_holder_that_is_killed_is_succeeded(void **state)
{
    struct shared *s = shared_new();
    u128 *number = (u128 *)(void *)s->cell[0];
    const u128 one = 1;
    (void)state;
    for (int reaped = 0; reaped < 2; reaped++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct um_lock_party self = party();
            um_lock_take(lock_of(s, number), &self);
            raise(SIGKILL);
        }
        siginfo_t info;
        assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | (reaped ? 0 : WNOWAIT)), 0);
        assert_int_equal(lock_of(s, number)->holder >> 32, child);
        apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, number, &one, NULL, NULL);
        assert_true(*number == (u128)(unsigned)reaped + 1);
        assert_int_equal(lock_of(s, number)->holder, 0);
        if (!reaped)
            assert_int_equal(waitpid(child, NULL, 0), child);
    }
    /* the same pid, but a process that began at another time: not the holder */
    lock_of(s, number)->holder = um_process_self() ^ 1;
    apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, number, &one, NULL, NULL);
    assert_true(*number == 3);
    munmap(s, sizeof(*s));
}

static void a_holder_that_only_sleeps_is_waited_for(void **state)
{
    struct shared *s = shared_new();
    u128 *number = (u128 *)(void *)s->cell[0];
    const u128 one = 1;
    siginfo_t info;
    (void)state;
    pid_t holder = fork();
    assert_true(holder >= 0);
    if (holder == 0) {
        struct um_lock_party self = party();
        um_lock_take(lock_of(s, number), &self);
        raise(SIGSTOP);
        *number += 1;
        um_lock_give(lock_of(s, number));
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)holder, &info, WSTOPPED), 0);
    pid_t waiter = fork();
    assert_true(waiter >= 0);
    if (waiter == 0) {
        apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, number, &one, NULL, NULL);
        _exit(0);
    }
    usleep(200000); /* thousands of looks */
    assert_true(*number == 0);
    assert_int_equal(waitpid(waiter, NULL, WNOHANG), 0);
    assert_int_equal(kill(holder, SIGCONT), 0);
    assert_int_equal(waitpid(waiter, NULL, 0), waiter);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    assert_true(*number == 2);
    munmap(s, sizeof(*s));
}

/* Processes die at any moment while others work under the same locks: the others go on, and lose nothing of theirs. */
static void others_go_on_when_processes_are_killed_at_random(void **state)
{
    enum { VICTIMS = 60, STEADY = 20000 };
    struct shared *s = shared_new();
    u128 *theirs = (u128 *)(void *)s->cell[0], *ours = (u128 *)(void *)s->cell[0] + 1; /* one lock */
    const u128 one = 1;
    (void)state;
    pid_t steady = fork();
    assert_true(steady >= 0);
    if (steady == 0) {
        for (int i = 0; i < STEADY || um_load_acquire_u32(&s->go) == 0; i++)
            apply(s, UM_TYPE_UINT128, i % 2 ? UM_ATOMIC_DIFF : UM_ATOMIC_SUM, ours, &one, NULL, NULL);
        *ours = 4711;
        _exit(0);
    }
    for (int v = 0; v < VICTIMS; v++) {
        pid_t victim = fork();
        assert_true(victim >= 0);
        if (victim == 0) {
            for (;;)
                apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, theirs, &one, NULL, NULL);
        }
        usleep((useconds_t)(500 + rnd() % 3000));
        assert_int_equal(kill(victim, SIGKILL), 0);
        if (v % 2)
            apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, theirs, &one, NULL, NULL);
        assert_int_equal(waitpid(victim, NULL, 0), victim);
        apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, theirs, &one, NULL, NULL);
    }
    um_store_release_u32(&s->go, 1);
    assert_int_equal(waitpid(steady, NULL, 0), steady);
    assert_true(*ours == 4711);
    assert_int_equal(lock_of(s, ours)->holder, 0);
    munmap(s, sizeof(*s));
}

static void a_process_knows_itself_after_a_fork(void **state)
{
    uint64_t before = um_process_self();
    (void)state;
    assert_int_equal(before >> 32, getpid());
    assert_true(um_process_holder_is_alive(before));
    assert_false(um_process_holder_is_alive(before ^ 2));
    assert_false(um_process_holder_is_alive(7)); /* no pid */
    assert_false(um_process_holder_is_alive((uint64_t)UINT32_MAX << 32 | 5));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(um_process_self() >> 32 == (uint64_t)getpid() && um_process_self() != before ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    static char words_only[] = "the processor swaps no pairs of words";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_datatype_and_operation_agrees_with_the_reference),
        cmocka_unit_test_prestate(every_datatype_and_operation_agrees_with_the_reference, words_only),
        cmocka_unit_test(the_matrix_is_that_of_fi_atomic),
        cmocka_unit_test(no_update_of_several_processes_is_lost),
        cmocka_unit_test(no_update_is_lost_to_many_at_a_time),
        cmocka_unit_test_prestate(no_update_is_lost_to_many_at_a_time, words_only),
        cmocka_unit_test(a_holder_that_is_killed_is_succeeded),
        cmocka_unit_test(a_holder_that_only_sleeps_is_waited_for),
        cmocka_unit_test(others_go_on_when_processes_are_killed_at_random),
        cmocka_unit_test(a_process_knows_itself_after_a_fork),
    };
    return cmocka_run_group_tests_name("atomic_apply", tests, NULL, NULL);
}
