/* Every datatype times every operation against an independent reference, aligned and not, few elements and many. */
#include "proto/atomic_reference_test.h"

#include "base/cpu_pair.h"

#include <complex.h>

static struct um_locks_shm own_locks;

enum { FEW = 9, BYTES_MAX = 700, ROOM = BYTES_MAX + 3 * 64 };

static unsigned char target[ROOM] __attribute__((aligned(64)));
static unsigned char expected[ROOM] __attribute__((aligned(64)));

/* Checks that the room still has its fill value everywhere but in these bytes. */
static void check_beside(const unsigned char *room, size_t from, size_t len, unsigned char fill)
{
    bool same = true;
    for (size_t i = 0; i < ROOM; i++)
        same = same && (room[i] == fill || (i >= from && i < from + len));
    assert_true(same);
}

/* Where the old values go. fi_atomic(3) permits that it is the operands' memory, or that of what is compared. */
enum place { NOWHERE, APART, OPERAND, COMPARE };

/* Checks one call at this distance from an aligned address; operand, compare and result lie anywhere. */
static void check_one(unsigned type, unsigned op, size_t count, size_t shift, enum place place)
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
    unsigned char *const old = (place == OPERAND ? operand : place == COMPARE ? compare : result) + skew;
    const struct um_proto_atomic_call call = {
        .type = (uint8_t)type,
        .op = (uint8_t)op,
        .count = count,
        .target = target + at,
        .operand = op == UM_ATOMIC_READ ? NULL : operand + skew,
        .compare = um_proto_atomic_compares(op) ? compare + skew : NULL,
        .result = place == NOWHERE ? NULL : old,
        .lock_key = (uintptr_t)target + at,
        .locks = &own_locks,
        .party = &self,
    };
    um_proto_atomic_apply(&call);
    for (size_t i = 0; i < count; i++) {
        if (!is_same(type, target + at + i * size, expected + at + i * size))
            fail_msg("type %u op %u count %zu shift %zu place %d: element %zu is wrong", type, op, count, shift, place,
                     i);
        if (place != NOWHERE)
            assert_memory_equal(old + i * size, before + at + i * size, size);
    }
    check_beside(target, at, count * size, 0xa5);
    check_beside(result, skew, place == APART ? count * size : 0, 0x5a);
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
                check_one(type, op, count, shift, fetch || swap ? APART : NOWHERE);
                if (base)
                    check_one(type, op, count, shift, NOWHERE);
                if ((fetch || swap) && op != UM_ATOMIC_READ)
                    check_one(type, op, count, shift, OPERAND);
                if (swap)
                    check_one(type, op, count, shift, COMPARE);
            }
        }
    }
    um_cpu_pairs_forbid(false);
    /* 10 integers, 3 reals without bits, 3 complex numbers without order */
    assert_int_equal(pairs, 10 * (12 + 13 + 7) + 3 * (9 + 10 + 6) + 3 * (7 + 8 + 2));
}

/* What a provider with the complete matrix must have. */
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

int main(void)
{
    static char words_only[] = "the processor swaps no pairs of words";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_datatype_and_operation_agrees_with_the_reference),
        cmocka_unit_test_prestate(every_datatype_and_operation_agrees_with_the_reference, words_only),
        cmocka_unit_test(the_matrix_is_that_of_fi_atomic),
    };
    return cmocka_run_group_tests_name("atomic_apply", tests, NULL, NULL);
}
