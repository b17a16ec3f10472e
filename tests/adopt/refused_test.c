/*
 * Adoption where the full userfaultfd is refused (run under tests/refusals/deny, or as an ordinary user). With one
 * thread memory is adopted nevertheless; with more it is refused, and the reason says what to do. Memory that was
 * adopted before a second thread started becomes private again, even while that thread writes there.
 */
#include "adopt.h"

#include "base/atomic.h"
#include "needs.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

struct writer {
    uint32_t stop;
    uint64_t *word; /* the words, step apart: each round stores its number in one after another */
    size_t words, step;
    uint64_t rounds;
};

static void *write_on(void *arg)
{
    struct writer *w = arg;
    while (!um_load_relaxed_u32(&w->stop)) {
        um_store_relaxed_u64(&w->rounds, w->rounds + 1);
        for (size_t i = 0; i < w->words; i++)
            um_store_relaxed_u64(&w->word[i * w->step], w->rounds);
    }
    return NULL;
}

static void some_rounds(const struct writer *w)
{
    uint64_t from = um_load_relaxed_u64(&w->rounds);
    while (um_load_relaxed_u64(&w->rounds) < from + 1000)
        usleep(100);
}

static void with_one_thread_adopted_with_two_refused(void **state)
{
    (void)state;
    size_t len = 8 * page_size();
    unsigned char *mem = private_memory(3 * len), *other = private_memory(len);
    struct writer writer = {.word = (uint64_t *)(void *)(mem + 64), .words = 8, .step = page_size() / 8};
    const char *why = "";
    pthread_t id;
    memset(mem, 1, 3 * len);
    memset(other, 1, len);
    madvise(mem + 2 * len, len, MADV_DONTNEED);
    assert_int_equal(um_shm_adopt_possible(&why), 0);
    adopt_must(mem, len);
    adopt_must(mem + len, len);
    adopt_must(mem + 2 * len, len);
    pthread_create(&id, NULL, write_on, &writer);
    some_rounds(&writer);
    assert_int_equal(um_shm_adopt_possible(&why), -EPERM);
    why = "";
    assert_int_equal(um_shm_adopt((uintptr_t)other, len, &why), -EPERM);
    assert_non_null(strstr(why, "vm.unprivileged_userfaultfd"));
    assert_true(is_private(other, len));
    um_shm_adopt_release((uintptr_t)mem, len);
    um_shm_adopt_release((uintptr_t)mem + 2 * len, len);
    assert_true(is_private(mem, len));
    assert_true(is_private(mem + 2 * len, len));
    some_rounds(&writer);
    um_store_relaxed_u32(&writer.stop, 1);
    pthread_join(id, NULL);
    for (size_t i = 0; i < writer.words; i++)
        assert_int_equal(writer.word[i * writer.step], writer.rounds); /* no store was lost */
    assert_int_equal(mem[0], 1);
    assert_int_equal(mem[2 * len], 0);
    memset(mem, 5, len);
    assert_int_equal(madvise(mem, len, MADV_DONTNEED), 0);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(mem[i], 0); /* as in private memory: allocators rely on it */
    assert_int_equal(mem[len], 1);
    um_shm_adopt_release((uintptr_t)mem + len, len);
    assert_true(is_private(mem + len, len));
    assert_int_equal(mem[len], 1);
    assert_nothing_adopted();
    munmap(mem, 3 * len);
    munmap(other, len);
}

/* Memory that is released while other threads run stays a mapping of the file. It must not be able to grow: behind its
 * end it would show the bytes of other pages. */
static void what_was_released_shows_nobody_elses_bytes(void **state)
{
    (void)state;
    const size_t page = page_size(), len = 8 * page, large = (size_t)1 << 20;
    unsigned char *mem = private_memory(2 * len), *place = private_memory(len), *block = malloc(large);
    struct writer writer = {.word = &(uint64_t){0}, .words = 1, .step = 1};
    const char *why = "";
    pthread_t id;
    memset(mem, 1, len - page);
    memset(mem + page, 0, page);
    madvise(mem + page, page, MADV_DONTNEED);
    memset(mem + len, 7, len);
    memset(block, 3, large);
    adopt_must(mem, len);
    adopt_must(mem + len, len);
    adopt_must(block, large);
    pthread_create(&id, NULL, write_on, &writer);
    um_shm_adopt_release((uintptr_t)mem, len);
    um_shm_adopt_release((uintptr_t)block, large);
    um_store_relaxed_u32(&writer.stop, 1);
    pthread_join(id, NULL);
    assert_true(is_private(mem, len));
    assert_ptr_equal(mremap(mem, len, 2 * len, MREMAP_MAYMOVE), MAP_FAILED);
    assert_int_equal(mem[0], 1);
    assert_int_equal(mem[len - 1], 0);
    block = realloc(block, 2 * large); /* copies: mremap fails, as above */
    assert_non_null(block);
    for (size_t i = 0; i < large; i++)
        assert_int_equal(block[i], 3);
    /* After a move, untouched pages still read the file at their old address, so no other pages may be adopted
     * there. */
    assert_ptr_equal(mremap(mem, 4 * page, 4 * page, MREMAP_MAYMOVE | MREMAP_FIXED, place), place);
    void *again = mmap(mem, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    assert_ptr_equal(again, mem);
    memset(mem, 5, 4 * page);
    assert_int_equal(um_shm_adopt((uintptr_t)mem, 4 * page, &why), -EBUSY);
    assert_non_null(strstr(why, "mremap"));
    assert_int_equal(place[0], 1);
    assert_int_equal(place[page], 0);
    munmap(place, len);
    adopt_must(mem, 4 * page);
    um_shm_adopt_release((uintptr_t)mem, 4 * page);
    um_shm_adopt_release((uintptr_t)mem + len, len);
    assert_int_equal(mem[0], 5);
    assert_int_equal(mem[len], 7);
    assert_nothing_adopted();
    free(block);
    munmap(mem, 2 * len);
}

/* The system refuses to make memory private again. It stays adopted until a later release, which must not take what the
 * program has mapped meanwhile for the shadow of that memory. */
static void a_release_that_fails_forgets_the_shadow(void **state)
{
    (void)state;
    needs(has_memory_limit());
    const size_t len = 8 * page_size();
    unsigned char *mem = private_memory(len), *other = NULL;
    struct writer writer = {.word = &(uint64_t){0}, .words = 1, .step = 1};
    struct um_shm_adopt_stats stats;
    struct rlimit most, none;
    pthread_t id;
    memset(mem, 1, len);
    adopt_must(mem, len);
    const struct um_shm_adopt_state *adopted = um_shm_adopt_state_if_any();
    void *shadow = (void *)adopted->table[um_shm_table_find(adopted, (uintptr_t)mem)].shadow;
    pthread_create(&id, NULL, write_on, &writer);
    assert_int_equal(getrlimit(RLIMIT_AS, &most), 0);
    none = (struct rlimit){.rlim_cur = page_size(), .rlim_max = most.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_int_equal(setrlimit(RLIMIT_AS, &most), 0);
    um_store_relaxed_u32(&writer.stop, 1);
    pthread_join(id, NULL);
    um_shm_adopt_stats_get(&stats);
    assert_int_equal(stats.stuck, len);
    if (shadow) {
        other = mmap(shadow, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        assert_ptr_equal(other, shadow); /* the shadow is gone */
        memset(other, 5, len);
    }
    adopt_must(mem, len);
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_true(is_private(mem, len));
    assert_int_equal(mem[0], 1);
    assert_nothing_adopted();
    for (size_t i = 0; other && i < len; i++)
        assert_true((i % page_size() != 0 || is_mapped(other + i, 1)) && other[i] == 5);
    if (other)
        munmap(other, len);
    munmap(mem, len);
}

/* Moving back needs more kernel features than adoption. Without them it works while there is one thread. */
static void what_nobody_can_stop_is_moved_back_by_one_thread(void **state)
{
    (void)state;
    size_t len = 8 * page_size();
    unsigned char *mem = private_memory(len);
    memset(mem, 1, len);
    um_shm_adopt_forced.no_minor = true;
    adopt_must(mem, len);
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_true(is_private(mem, len)); /* one thread: no other one has to be stopped */
    um_shm_adopt_forced.no_minor = false;
    assert_int_equal(mem[0], 1);
    assert_nothing_adopted();
    munmap(mem, len);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_nobody_can_stop_is_moved_back_by_one_thread),
    cmocka_unit_test(with_one_thread_adopted_with_two_refused),
    cmocka_unit_test(what_was_released_shows_nobody_elses_bytes),
    cmocka_unit_test(a_release_that_fails_forgets_the_shadow),
};
ADOPT_MAIN(tests)
