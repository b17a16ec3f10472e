/*
 * Tests of base/iov.h: what each walk promises, and random splits of a buffer against memcpy.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/iov.h"

enum { BYTES = 1000 };

static unsigned char memory[BYTES];
static unsigned char flat[BYTES];

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        memory[i] = (unsigned char)(i * 7 + i / 256);
    memset(flat, 0, sizeof(flat));
    return 0;
}

static void the_length_is_the_sum_of_the_entries(void **state)
{
    (void)state;
    struct iovec iov[3] = {{memory, 5}, {NULL, 0}, {memory + 50, 7}};
    assert_int_equal(um_iov_length(iov, 3), 12);
    assert_int_equal(um_iov_length(iov, 0), 0);
}

static void gather_joins_the_entries_in_order(void **state)
{
    (void)state;
    struct iovec iov[3] = {{memory + 500, 3}, {memory + 10, 4}, {memory, 2}};
    struct um_iov_cursor cur = um_iov_begin(iov, 3);
    assert_int_equal(um_iov_gather(&cur, flat, 9), 9);
    assert_memory_equal(flat, memory + 500, 3);
    assert_memory_equal(flat + 3, memory + 10, 4);
    assert_memory_equal(flat + 7, memory, 2);
}

static void flatten_joins_entries_of_every_length(void **state)
{
    (void)state;
    struct iovec iov[40];
    size_t at = 0;
    for (size_t i = 0; i < 40; i++) { /* 0 to 39 bytes, each apart from the next */
        iov[i] = (struct iovec){i ? memory + at : NULL, i};
        at += i + 3;
    }
    um_iov_flatten(iov, 40, flat, sizeof(flat));
    const unsigned char *got = flat;
    for (size_t i = 0; i < 40; got += i++)
        assert_memory_equal(got, iov[i].iov_base ? iov[i].iov_base : flat, i);
    assert_int_equal(*got, 0);
    memset(flat, 0, sizeof(flat));
    um_iov_flatten(iov + 30, 10, flat, 35); /* the list has more bytes than there is room */
    assert_memory_equal(flat, iov[30].iov_base, 30);
    assert_memory_equal(flat + 30, iov[31].iov_base, 5);
    assert_int_equal(flat[35], 0);
}

static void gather_goes_on_where_it_stopped(void **state)
{
    (void)state;
    struct iovec iov[2] = {{memory, 10}, {memory + 10, 10}};
    struct um_iov_cursor cur = um_iov_begin(iov, 2);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(um_iov_gather(&cur, flat + i, 1), 1);
    assert_memory_equal(flat, memory, 20);
}

static void nontemporal_stores_move_the_same_bytes(void **state)
{
    (void)state;
    struct iovec iov[4] = {{memory + 500, 130}, {NULL, 0}, {memory + 10, 4}, {memory, 300}};
    unsigned char wanted[BYTES];
    for (size_t n = 0; n < 450; n += 7) {
        struct um_iov_cursor cur = um_iov_begin(iov, 4), also = um_iov_begin(iov, 4);
        memset(flat, 0, sizeof(flat));
        memset(wanted, 0, sizeof(wanted));
        assert_int_equal(um_iov_gather_nontemporal(&cur, flat + 3, n), um_iov_gather(&also, wanted + 3, n));
        assert_int_equal(um_iov_gather_nontemporal(&cur, flat + 500, 20), um_iov_gather(&also, wanted + 500, 20));
        assert_memory_equal(flat, wanted, BYTES);
    }
}

static void copies_stop_at_the_end_of_the_list(void **state)
{
    (void)state;
    struct iovec iov[2] = {{memory, 10}, {memory + 10, 5}};
    struct um_iov_cursor cur = um_iov_begin(iov, 2);
    assert_int_equal(um_iov_gather(&cur, flat, 100), 15);
    assert_int_equal(um_iov_gather(&cur, flat, 100), 0);
    cur = um_iov_begin(iov, 2);
    assert_int_equal(um_iov_scatter(&cur, flat + 100, 100), 15);
    assert_int_equal(um_iov_scatter(&cur, flat + 100, 100), 0);
}

static void copies_stop_at_n(void **state)
{
    (void)state;
    struct iovec iov = {memory, 100};
    struct um_iov_cursor cur = um_iov_begin(&iov, 1);
    assert_int_equal(um_iov_gather(&cur, flat, 10), 10);
    assert_int_equal(flat[10], 0);
    assert_int_equal(um_iov_gather(&cur, flat, 0), 0);
    assert_int_equal(um_iov_scatter(&cur, flat + 500, 3), 3);
    assert_memory_equal(memory + 10, flat + 500, 3);
    assert_int_equal(memory[13], 13 * 7);
}

static void scatter_fills_the_entries_in_order(void **state)
{
    (void)state;
    struct iovec iov[3] = {{flat + 20, 3}, {flat + 10, 4}, {flat, 2}};
    struct um_iov_cursor cur = um_iov_begin(iov, 3);
    assert_int_equal(um_iov_scatter(&cur, memory, 9), 9);
    assert_memory_equal(flat + 20, memory, 3);
    assert_memory_equal(flat + 10, memory + 3, 4);
    assert_memory_equal(flat, memory + 7, 2);
    assert_int_equal(flat[23] | flat[14] | flat[2], 0);
}

static void empty_entries_are_passed_over(void **state)
{
    (void)state;
    struct iovec iov[5] = {{NULL, 0}, {memory, 3}, {NULL, 0}, {memory + 3, 3}, {NULL, 0}};
    struct iovec out[5];
    struct um_iov_cursor cur = um_iov_begin(iov, 5);
    assert_int_equal(um_iov_gather(&cur, flat, 10), 6);
    assert_memory_equal(flat, memory, 6);
    cur = um_iov_begin(iov, 5);
    assert_int_equal(um_iov_take(&cur, 100, out, 5), 2);
    assert_ptr_equal(out[0].iov_base, memory);
    assert_ptr_equal(out[1].iov_base, memory + 3);
}

static void take_describes_at_most_max_bytes_and_entries(void **state)
{
    (void)state;
    struct iovec iov[3] = {{memory, 10}, {memory + 20, 10}, {memory + 40, 10}};
    struct iovec out[3];
    struct um_iov_cursor cur = um_iov_begin(iov, 3);
    assert_int_equal(um_iov_take(&cur, 15, out, 3), 2);
    assert_int_equal(out[0].iov_len, 10);
    assert_int_equal(out[1].iov_len, 5);
    assert_int_equal(um_iov_take(&cur, 100, out, 1), 1);
    assert_ptr_equal(out[0].iov_base, memory + 25);
    assert_int_equal(out[0].iov_len, 5);
    assert_int_equal(um_iov_take(&cur, 0, out, 3), 0);
    assert_int_equal(um_iov_take(&cur, 100, out, 3), 1);
    assert_ptr_equal(out[0].iov_base, memory + 40);
    assert_int_equal(um_iov_take(&cur, 100, out, 3), 0);
}

static void skip_passes_bytes_and_stops_at_the_end(void **state)
{
    (void)state;
    struct iovec iov[2] = {{memory, 10}, {memory + 10, 10}};
    struct um_iov_cursor cur = um_iov_begin(iov, 2);
    um_iov_skip(&cur, 12);
    assert_int_equal(um_iov_gather(&cur, flat, 3), 3);
    assert_memory_equal(flat, memory + 12, 3);
    um_iov_skip(&cur, 100);
    assert_int_equal(um_iov_gather(&cur, flat, 3), 0);
}

static uint32_t rnd(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*seed >> 33) % below);
}

/* Cuts len bytes at base into count entries at random. */
static void cut(uint64_t *seed, unsigned char *base, size_t len, struct iovec *iov, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t n = i + 1 == count ? len : rnd(seed, (uint32_t)len + 1);
        iov[i] = (struct iovec){.iov_base = base, .iov_len = n};
        base += n;
        len -= n;
    }
}

static void any_walk_over_any_cut_sees_the_same_bytes(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        struct iovec iov[UM_IOV_LIMIT], out[4];
        size_t count = 1 + rnd(&seed, UM_IOV_LIMIT), at = 0;
        cut(&seed, memory, BYTES, iov, count);
        struct um_iov_cursor cur = um_iov_begin(iov, count);
        memset(flat, 0, sizeof(flat));
        while (at < BYTES) {
            size_t n = rnd(&seed, 80), got = 0;
            if (rnd(&seed, 2)) {
                got = um_iov_gather(&cur, flat + at, n);
            } else {
                size_t used = um_iov_take(&cur, n, out, 4);
                for (size_t i = 0; i < used; got += out[i++].iov_len)
                    memcpy(flat + at + got, out[i].iov_base, out[i].iov_len);
            }
            assert_true(got <= n);
            at += got;
        }
        assert_memory_equal(flat, memory, BYTES);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(the_length_is_the_sum_of_the_entries),
        TEST(gather_joins_the_entries_in_order),
        TEST(gather_goes_on_where_it_stopped),
        TEST(flatten_joins_entries_of_every_length),
        TEST(nontemporal_stores_move_the_same_bytes),
        TEST(copies_stop_at_the_end_of_the_list),
        TEST(copies_stop_at_n),
        TEST(scatter_fills_the_entries_in_order),
        TEST(empty_entries_are_passed_over),
        TEST(take_describes_at_most_max_bytes_and_entries),
        TEST(skip_passes_bytes_and_stops_at_the_end),
        TEST(any_walk_over_any_cut_sees_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
