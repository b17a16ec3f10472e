/*
 * Tests of base/pool.h. pool.c is compiled in, so that memory can be refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int chunks_taken;
static int chunks_returned;
static bool memory_refused;

static void *alloc_counted(size_t align, size_t size)
{
    if (memory_refused)
        return NULL;
    chunks_taken++;
    return aligned_alloc(align, size);
}

static void free_counted(void *memory)
{
    chunks_returned += memory != NULL;
    free(memory);
}

#define aligned_alloc alloc_counted
#define free          free_counted
#include "base/pool.c" /* NOLINT(bugprone-suspicious-include): so that it can refuse memory */
#undef aligned_alloc
#undef free

static int setup(void **state)
{
    (void)state;
    chunks_taken = 0;
    chunks_returned = 0;
    memory_refused = false;
    return 0;
}

enum { COUNT = 3000 };

static void objects_are_distinct_aligned_and_whole(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 8, 24, 64, 100, 320, 4000};
    static void *objects[COUNT];
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct um_pool pool;
        um_pool_init(&pool, sizes[s]);
        for (int i = 0; i < COUNT; i++) {
            objects[i] = um_pool_alloc(&pool);
            assert_non_null(objects[i]);
            assert_int_equal((uintptr_t)objects[i] % (sizes[s] % 64 ? alignof(max_align_t) : 64), 0);
            memset(objects[i], i % 251, sizes[s]);
        }
        for (int i = 0; i < COUNT; i++)
            for (size_t b = 0; b < sizes[s]; b++)
                assert_int_equal(((unsigned char *)objects[i])[b], i % 251);
        um_pool_fini(&pool);
    }
    assert_int_equal(chunks_returned, chunks_taken);
}

static void a_released_object_is_given_out_again(void **state)
{
    (void)state;
    struct um_pool pool;
    um_pool_init(&pool, 64);
    void *a = um_pool_alloc(&pool);
    void *b = um_pool_alloc(&pool);
    um_pool_release(&pool, a);
    assert_ptr_equal(um_pool_alloc(&pool), a);
    assert_ptr_not_equal(a, b);
    for (int i = 0; i < 100000; i++)
        um_pool_release(&pool, um_pool_alloc(&pool));
    assert_int_equal(chunks_taken, 1);
    um_pool_fini(&pool);
}

static void in_use_counts_what_is_out(void **state)
{
    (void)state;
    struct um_pool pool;
    um_pool_init(&pool, 64);
    assert_int_equal(pool.in_use, 0);
    void *a = um_pool_alloc(&pool);
    void *b = um_pool_alloc(&pool);
    assert_int_equal(pool.in_use, 2);
    um_pool_release(&pool, b);
    um_pool_release(&pool, a);
    assert_int_equal(pool.in_use, 0);
    um_pool_fini(&pool);
}

static void an_object_larger_than_a_chunk_is_possible(void **state)
{
    (void)state;
    struct um_pool pool;
    um_pool_init(&pool, (size_t)4 * UM_POOL_CHUNK_BYTES);
    void *a = um_pool_alloc(&pool);
    void *b = um_pool_alloc(&pool);
    assert_non_null(a);
    assert_non_null(b);
    memset(a, 1, (size_t)4 * UM_POOL_CHUNK_BYTES);
    memset(b, 2, (size_t)4 * UM_POOL_CHUNK_BYTES);
    um_pool_fini(&pool);
}

static void without_memory_alloc_yields_null_and_recovers(void **state)
{
    (void)state;
    struct um_pool pool;
    um_pool_init(&pool, 64);
    memory_refused = true;
    assert_null(um_pool_alloc(&pool));
    assert_int_equal(um_pool_grow(&pool), -ENOMEM);
    assert_int_equal(pool.in_use, 0);
    memory_refused = false;
    assert_non_null(um_pool_alloc(&pool));
    um_pool_fini(&pool);
}

static void a_pool_never_used_takes_no_memory(void **state)
{
    (void)state;
    struct um_pool pool;
    um_pool_init(&pool, 64);
    um_pool_fini(&pool);
    assert_int_equal(chunks_taken, 0);
}

static void a_finished_pool_can_end_again(void **state)
{
    (void)state;
    struct um_pool pool;
    um_pool_init(&pool, 64);
    assert_non_null(um_pool_alloc(&pool));
    um_pool_fini(&pool);
    um_pool_fini(&pool);
    assert_int_equal(chunks_returned, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(objects_are_distinct_aligned_and_whole),
        TEST(a_released_object_is_given_out_again),
        TEST(in_use_counts_what_is_out),
        TEST(an_object_larger_than_a_chunk_is_possible),
        TEST(without_memory_alloc_yields_null_and_recovers),
        TEST(a_pool_never_used_takes_no_memory),
        TEST(a_finished_pool_can_end_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
