/*
 * Tests of base/spares.h. spares.c is compiled in, so that memory can be refused and counted.
 */
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int blocks_taken;
static int blocks_returned;
static bool memory_refused;

static void *alloc_counted(size_t size)
{
    if (memory_refused)
        return NULL;
    blocks_taken++;
    return malloc(size);
}

static void free_counted(void *memory)
{
    blocks_returned += memory != NULL;
    free(memory);
}

#define malloc alloc_counted
#define free   free_counted
#include "base/spares.c" /* NOLINT(bugprone-suspicious-include): so that it can refuse memory */
#undef malloc
#undef free

enum { MOST = 1 << UM_SPARES_SHIFT_MAX, ROOM = 1 << 20 };

static int setup(void **state)
{
    static struct um_spares spares;
    um_spares_init(&spares, ROOM);
    *state = &spares;
    blocks_taken = 0;
    blocks_returned = 0;
    memory_refused = false;
    return 0;
}

/* NOLINTBEGIN(clang-analyzer-unix.Malloc): the analyser loses sight of the blocks in the lists */

static void a_block_of_any_size_is_whole_and_aligned(void **state)
{
    static const size_t sizes[] = {1, 255, 256, 257, 4096, 16384, 16385, MOST - 1, MOST, MOST + 1, (size_t)10 * MOST};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    unsigned char *block[SIZES];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < SIZES; i++) {
            block[i] = um_spares_alloc(*state, sizes[i]);
            assert_non_null(block[i]);
            assert_in_range(um_spares_size(sizes[i]), sizes[i], sizes[i] <= MOST ? 2 * sizes[i] + 256 : sizes[i]);
            assert_int_equal((uintptr_t)block[i] % alignof(max_align_t), 0);
            memset(block[i], (int)i, sizes[i]);
        }
        for (size_t i = 0; i < SIZES; i++) {
            for (size_t b = 0; b < sizes[i]; b++)
                assert_int_equal(block[i][b], i);
            um_spares_release(*state, block[i], sizes[i]);
        }
    }
    um_spares_fini(*state);
    assert_int_equal(blocks_returned, blocks_taken);
}

static void the_block_freed_last_is_given_out_first(void **state)
{
    void *a = um_spares_alloc(*state, 16384), *b = um_spares_alloc(*state, 16384);
    um_spares_release(*state, a, 16384);
    um_spares_release(*state, b, 16384);
    assert_ptr_equal(um_spares_alloc(*state, 16000), b); /* of the same class */
    assert_ptr_equal(um_spares_alloc(*state, 9000), a);
    assert_int_equal(blocks_taken, 2);
    void *c = um_spares_alloc(*state, 8192); /* of the class below */
    assert_int_equal(blocks_taken, 3);
    um_spares_release(*state, a, 9000);
    um_spares_release(*state, b, 16000);
    um_spares_release(*state, c, 8192);
    um_spares_fini(*state);
    assert_int_equal(blocks_returned, 3);
}

static void no_more_than_the_bound_is_kept(void **state)
{
    enum { COUNT = 2 * ROOM / MOST };
    void *block[COUNT];
    for (int i = 0; i < COUNT; i++)
        block[i] = um_spares_alloc(*state, MOST);
    for (int i = 0; i < COUNT; i++)
        um_spares_release(*state, block[i], MOST);
    assert_int_equal(blocks_returned, COUNT / 2);
    for (int i = 0; i < COUNT / 2; i++)
        block[i] = um_spares_alloc(*state, MOST);
    assert_int_equal(blocks_taken, COUNT);
    for (int i = 0; i < COUNT / 2; i++)
        um_spares_release(*state, block[i], MOST);
    um_spares_fini(*state);
    assert_int_equal(blocks_returned, blocks_taken);
}

static void a_large_block_is_not_kept(void **state)
{
    um_spares_release(*state, um_spares_alloc(*state, MOST + 1), MOST + 1);
    assert_int_equal(blocks_returned, 1);
    um_spares_fini(*state);
}

static void without_memory_there_is_no_block(void **state)
{
    void *kept = um_spares_alloc(*state, 300);
    um_spares_release(*state, kept, 300);
    memory_refused = true;
    assert_ptr_equal(um_spares_alloc(*state, 300), kept);
    assert_null(um_spares_alloc(*state, 300));
    assert_null(um_spares_alloc(*state, MOST + 1));
    um_spares_release(*state, kept, 300);
    um_spares_fini(*state);
}

/* NOLINTEND(clang-analyzer-unix.Malloc) */

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(a_block_of_any_size_is_whole_and_aligned), TEST(the_block_freed_last_is_given_out_first),
        TEST(no_more_than_the_bound_is_kept),           TEST(a_large_block_is_not_kept),
        TEST(without_memory_there_is_no_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
