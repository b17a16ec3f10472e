/*
 * The shareable heap, preloaded: where blocks lie, that they are zeroed when they must be, that memory is given back.
 *
 * Uses the helpers of the adoption tests: provider and heap have the same memory file.
 */
#include "../adopt/adopt.h"
#include "machine/shm/heap.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { KIB = 1 << 10, MIB = 1 << 20, THREADS = 8, BLOCKS = 16 };

static unsigned char *early; /* allocated before main, and before most libraries' constructors */

__attribute__((constructor(101))) static void allocate_early(void)
{
    early = malloc(MIB);
    memset(early, 7, MIB);
}

static bool all(const unsigned char *mem, size_t len, unsigned char value)
{
    return len == 0 || (mem[0] == value && memcmp(mem, mem + 1, len - 1) == 0);
}

static bool in_heap(const void *at, size_t len)
{
    return um_shm_heap_holds((uintptr_t)at, len) && is_shared(at, len);
}

static void test_large_blocks_are_shareable_and_small_ones_private(void **state)
{
    static const size_t sizes[] = {32 * KIB + 1, 40 * KIB, 100000, MIB, 9 * MIB + 123, 300 * (size_t)MIB};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *block = malloc(sizes[i]);
        assert_true(in_heap(block, sizes[i]));
        assert_true(malloc_usable_size(block) >= sizes[i]);
        free(block);
    }
    void *small = malloc(32 * KIB);
    assert_true(is_private(small, 32 * KIB));
    assert_false(um_shm_heap_touches((uintptr_t)small, (uintptr_t)small + 32 * KIB));
    free(small);
}

static void test_blocks_from_before_main_are_shareable(void **state)
{
    (void)state;
    assert_true(in_heap(early, MIB));
    assert_true(all(early, MIB, 7));
}

static void test_realloc_keeps_contents_across_the_border(void **state)
{
    static const size_t sizes[] = {100, 40 * KIB, 5 * MIB, 64 * MIB, 50 * KIB, 200, 33 * KIB};
    unsigned char *block = NULL;
    size_t had = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        block = realloc(block, sizes[i]);
        assert_non_null(block);
        assert_true(all(block, had < sizes[i] ? had : sizes[i], 9));
        assert_int_equal(in_heap(block, sizes[i]), sizes[i] > 32 * KIB);
        memset(block, 9, had = sizes[i]);
    }
    free(block);
}

static void test_alignment_is_honoured(void **state)
{
    void *block = NULL;
    (void)state;
    for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 2) {
        for (size_t size = 1000; size <= 100 * MIB; size *= 100) {
            assert_int_equal(posix_memalign(&block, alignment, size), 0);
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_int_equal(in_heap(block, size), size > 32 * KIB);
            free(block);
            block = aligned_alloc(alignment, size);
            assert_int_equal((uintptr_t)block % alignment, 0);
            free(block);
        }
    }
    assert_int_equal(posix_memalign(&block, 24, 100), EINVAL);
    block = pvalloc(1);
    assert_int_equal((uintptr_t)block % page_size(), 0);
    assert_true(malloc_usable_size(block) >= page_size());
    free(block);
}

static void test_too_much_is_refused_as_ever(void **state)
{
    void *(*volatile resize)(void *, size_t) = realloc; /* the compiler would warn of a block that failed to grow */
    volatile size_t most = SIZE_MAX / 2, count = SIZE_MAX / 4 + 1;
    (void)state;
    /* NOLINTBEGIN(clang-analyzer-unix.Malloc): the analyser has each of them succeed */
    errno = 0;
    assert_null(malloc(most));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(calloc(count, 8)); /* the product overflows */
    assert_int_equal(errno, ENOMEM);
    void *block = malloc(MIB);
    assert_null(resize(block, most));
    assert_true(in_heap(block, MIB));
    free(block);
    /* NOLINTEND(clang-analyzer-unix.Malloc) */
}

static void test_operator_new_is_shareable_too(void **state)
{
    void *(*new_array)(size_t) = NULL;
    void (*delete_array)(void *) = NULL;
    (void)state;
    *(void **)&new_array = dlsym(RTLD_DEFAULT, "_Znam");
    *(void **)&delete_array = dlsym(RTLD_DEFAULT, "_ZdaPv");
    assert_true(new_array && delete_array);
    void *large = new_array(MIB), *small = new_array(100);
    assert_true(in_heap(large, MIB));
    assert_true(is_private(small, 100));
    delete_array(large);
    delete_array(small);
}

/* jemalloc keeps recently freed memory; it returns only the largest blocks at once. */
static void purge(void)
{
    int (*control)(const char *, void *, size_t *, void *, size_t) = NULL;
    *(void **)&control = dlsym(RTLD_DEFAULT, "mallctl");
    assert_int_equal(control("arena.4096.purge", NULL, NULL, NULL, 0), 0); /* MALLCTL_ARENAS_ALL */
}

static unsigned char *touched(size_t len)
{
    unsigned char *block = memset(malloc(len), 1, len);
    __asm__ volatile("" : : "r"(block) : "memory"); /* or the compiler removes the unused block */
    return block;
}

static void test_memory_is_given_back(void **state)
{
    const size_t len = 64 * (size_t)MIB;
    (void)state;
    purge();
    size_t before = file_bytes(), mapped_before = resident();
    unsigned char *block = touched(len);
    assert_true(file_bytes() >= before + len);
    free(block);
    assert_true(file_bytes() < before + len / 8);
    assert_true(resident() < mapped_before + len / 8);
    for (size_t i = 0; i < 100; i++)
        free(touched(MIB + 10000 * i));
    purge();
    assert_true(file_bytes() <= before);
}

/* Untouched memory takes no pages, a touched page takes one. */
static void test_memory_is_sparse(void **state)
{
    const size_t len = 256 * (size_t)MIB;
    (void)state;
    size_t before = file_bytes();
    unsigned char *block = calloc(1, len);
    block[len / 2] = 1;
    assert_true(file_bytes() <= before + 4 * (size_t)MIB);
    assert_int_equal(block[len / 4], 0);
    free(block);
}

struct user {
    unsigned seed;
    unsigned long not_zero, changed, elsewhere;
};

static unsigned some(struct user *u, unsigned below)
{
    u->seed = u->seed * 1103515245u + 12345u;
    return (u->seed >> 8) % below;
}

/* As a large collective of MPICH does in each call. New pages would take several times as long as its work. */
static void test_temporary_buffers_are_no_new_pages(void **state)
{
    enum { EACH = 4 << 20, TIMES = 20 };
    struct rusage before, after;
    (void)state;
    for (int i = 0; i <= TIMES; i++) {
        unsigned char *volatile a = malloc(EACH), *volatile b = malloc(EACH);
        assert_true(a && b);
        memset(a, i, EACH);
        memset(b, i, EACH);
        free(a);
        free(b);
        getrusage(RUSAGE_SELF, i ? &after : &before);
    }
    assert_true(after.ru_minflt - before.ru_minflt < EACH / 4096);
}

/* Checks every byte of every block after allocation and before free; purges everything in between. */
static void *use(void *to)
{
    struct user *u = to;
    unsigned char *block[BLOCKS] = {NULL};
    size_t len[BLOCKS] = {0};
    for (unsigned long round = 0; round < 20 * adopt_rounds; round++) {
        unsigned i = some(u, BLOCKS);
        u->changed += block[i] && !all(block[i], len[i], (unsigned char)(i + 1));
        free(block[i]);
        len[i] = some(u, 3) ? 33 * KIB + some(u, 200 * KIB) : 1 + some(u, 16 * KIB);
        block[i] = calloc(1, len[i]);
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): freed in a later round, or below */
        u->not_zero += !all(block[i], len[i], 0);
        u->elsewhere += len[i] > 32 * KIB && !um_shm_heap_holds((uintptr_t)block[i], len[i]);
        memset(block[i], (int)i + 1, len[i]);
        if (round % 50 == 49)
            purge();
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        free(block[i]);
    return NULL;
}

static void test_calloc_gives_zeroes_after_purges_of_many_threads(void **state)
{
    struct user user[THREADS] = {{0}};
    pthread_t thread[THREADS];
    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        user[i].seed = i + 1;
        assert_int_equal(pthread_create(&thread[i], NULL, use, &user[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(user[i].not_zero, 0);
        assert_int_equal(user[i].changed, 0);
        assert_int_equal(user[i].elsewhere, 0);
    }
}

static void test_a_peer_sees_the_same_bytes(void **state)
{
    unsigned char *block = aligned_alloc(page_size(), MIB);
    (void)state;
    unsigned char *view = file_view(block, MIB);
    memset(block, 5, MIB);
    assert_true(all(view, MIB, 5));
    view[1000] = 6;
    assert_int_equal(block[1000], 6);
    munmap(view, MIB);
    free(block);
}

static void test_adoption_keeps_away(void **state)
{
    const char *why = "";
    unsigned char *block = malloc(MIB), *private = private_memory(MIB);
    (void)state;
    memset(block, 3, MIB);
    memset(private, 4, MIB);
    assert_int_equal(um_shm_adopt((uintptr_t)block, MIB, &why), -ENOTSUP);
    assert_non_null(strstr(why, "heap"));
    adopt_must(private, MIB);
    assert_true(is_shared(private, MIB));
    um_shm_adopt_release((uintptr_t) private, MIB);
    assert_true(is_private(private, MIB));
    assert_true(in_heap(block, MIB));
    assert_true(all(block, MIB, 3) && all(private, MIB, 4));
    munmap(private, MIB);
    free(block);
}

/* A registration outlives its memory, and the heap later takes the same addresses. */
static void test_release_of_memory_that_became_heap(void **state)
{
    const size_t len = 4096 * (size_t)MIB, part = len / 8; /* the heap first uses the addresses that it has already */
    unsigned char *private = private_memory(len), *block[64];
    unsigned n = 0;
    bool over = false;
    (void)state;
    adopt_must(private, len); /* none of it takes memory in the file */
    munmap(private, len);
    for (; n < 64 && !over; n++) {
        block[n] = malloc(part);
        block[n][0] = block[n][part - 1] = (unsigned char)(n + 1);
        over = block[n] < private + len && block[n] + part > private;
    }
    um_shm_adopt_release((uintptr_t) private, len);
    assert_true(over);
    while (n-- > 0) {
        assert_true(block[n][0] == n + 1 && block[n][part - 1] == n + 1);
        assert_true(in_heap(block[n], part));
        free(block[n]);
    }
}

/* Runs last: afterwards the memory file is gone. */
static void test_a_program_may_close_every_descriptor(void **state)
{
    unsigned char *old = malloc(MIB);
    (void)state;
    memset(old, 8, MIB);
    close(um_shm_heap_fd());
    assert_int_equal(um_shm_heap_fd(), -EBADF);
    unsigned char *block = calloc(1, 2048 * (size_t)MIB); /* more than the heap has addresses for */
    assert_true(all(block, MIB, 0) && is_private(block, 2048 * (size_t)MIB));
    free(block);
    assert_true(all(old, MIB, 8));
    free(old);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_blocks_are_shareable_and_small_ones_private),
        cmocka_unit_test(test_blocks_from_before_main_are_shareable),
        cmocka_unit_test(test_realloc_keeps_contents_across_the_border),
        cmocka_unit_test(test_alignment_is_honoured),
        cmocka_unit_test(test_too_much_is_refused_as_ever),
        cmocka_unit_test(test_operator_new_is_shareable_too),
        cmocka_unit_test(test_memory_is_given_back),
        cmocka_unit_test(test_temporary_buffers_are_no_new_pages),
        cmocka_unit_test(test_memory_is_sparse),
        cmocka_unit_test(test_calloc_gives_zeroes_after_purges_of_many_threads),
        cmocka_unit_test(test_a_peer_sees_the_same_bytes),
        cmocka_unit_test(test_adoption_keeps_away),
        cmocka_unit_test(test_release_of_memory_that_became_heap),
        cmocka_unit_test(test_a_program_may_close_every_descriptor),
    };
    if (!adopt_arguments(argc, argv))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
