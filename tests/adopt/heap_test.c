/*
 * Registering and releasing blocks of a heap does not disturb the allocator: calloc gives zeroes, contents stay.
 *
 * Run with any allocator (LD_PRELOAD). Threads make the C library use secondary arenas; each registers pieces of its
 * own blocks, frees after release, and checks every byte of every block it gets.
 */
#include "adopt.h"

#include "base/atomic.h"

#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { THREADS = 4, BLOCKS = 40 };

struct block {
    unsigned char *mem;
    size_t len, from, part; /* bytes; part bytes at offset from are registered; part 0: nothing is */
    unsigned char fill;
};

struct user {
    unsigned seed;
    unsigned long rounds;
    unsigned long refused, adopted, not_zero, changed;
    char why[200];
};

static unsigned some(struct user *u, unsigned below)
{
    u->seed = u->seed * 1103515245u + 12345u;
    return (u->seed >> 8) % below;
}

static bool holds(const unsigned char *mem, size_t len, unsigned char value)
{
    return len == 0 || (mem[0] == value && memcmp(mem, mem + 1, len - 1) == 0);
}

static size_t some_size(struct user *u)
{
    static const size_t sizes[] = {24, 700, 3000, 5000, 20000, 70000, 140000, 600000, 3000000};
    size_t size = sizes[some(u, sizeof(sizes) / sizeof(sizes[0]))];
    return size + some(u, (unsigned)size);
}

static void block_fill(struct user *u, struct block *b)
{
    b->len = some_size(u);
    b->mem = calloc(1, b->len);
    if (!b->mem)
        return;
    u->not_zero += !holds(b->mem, b->len, 0);
    b->fill = (unsigned char)(1 + some(u, 255));
    memset(b->mem, b->fill, b->len);
    b->from = some(u, (unsigned)b->len);
    b->part = some(u, 2) ? 1 + some(u, (unsigned)(b->len - b->from)) : 0;
    const char *why = "";
    if (b->part && um_shm_adopt((uintptr_t)b->mem + b->from, b->part, &why) != 0) {
        b->part = 0;
        u->refused++;
        strncpy(u->why, why, sizeof(u->why) - 1);
    }
    u->adopted += b->part != 0;
}

static void block_empty(struct user *u, struct block *b)
{
    if (!b->mem)
        return;
    u->changed += !holds(b->mem, b->len, b->fill);
    if (b->part)
        um_shm_adopt_release((uintptr_t)b->mem + b->from, b->part);
    u->changed += !holds(b->mem, b->len, b->fill);
    if (some(u, 3) == 0) { /* the allocator moves, grows or shrinks the block in its own way */
        size_t len = some_size(u), kept = len < b->len ? len : b->len;
        unsigned char *mem = realloc(b->mem, len);
        u->changed += mem && !holds(mem, kept, b->fill);
        b->mem = mem ? mem : b->mem;
    }
    free(b->mem);
    b->mem = NULL;
}

static void *use_heap(void *arg)
{
    struct user *u = arg;
    struct block block[BLOCKS] = {0};
    for (unsigned long n = 0; n < u->rounds * 4; n++) {
        struct block *b = &block[some(u, BLOCKS)];
        block_empty(u, b);
        block_fill(u, b);
        if (n % 64 == 0)
            malloc_trim(0);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        block_empty(u, &block[i]);
    return NULL;
}

static void judge(const struct user *u)
{
    if (u->refused)
        print_message("%lu adopted, %lu refused: %s\n", u->adopted, u->refused, u->why);
    assert_true(u->adopted > u->refused);
    assert_int_equal(u->not_zero, 0);
    assert_int_equal(u->changed, 0);
}

static void one_thread(void **state)
{
    (void)state;
    struct user u = {.seed = 1, .rounds = adopt_rounds};
    use_heap(&u);
    judge(&u);
    assert_nothing_adopted();
    assert_int_equal(file_bytes(), 0);
}

static void many_threads(void **state)
{
    (void)state;
    if (um_shm_adopt_forced.no_userfaultfd || um_shm_adopt_forced.user_mode)
        return;
    struct user u[THREADS];
    pthread_t id[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        u[i] = (struct user){.seed = i + 7, .rounds = adopt_rounds};
        pthread_create(&id[i], NULL, use_heap, &u[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(id[i], NULL);
    for (unsigned i = 0; i < THREADS; i++)
        judge(&u[i]);
    assert_nothing_adopted();
    assert_int_equal(file_bytes(), 0);
}

/* The brk heap grows and shrinks around pages that stay adopted. */
static void the_end_of_the_data_segment_moves(void **state)
{
    (void)state;
    size_t page = page_size();
    unsigned char *start = sbrk(0);
    start += (page - (uintptr_t)start % page) % page;
    assert_int_equal(brk(start + 8 * page), 0);
    memset(start, 1, 8 * page);
    adopt_must(start + 100, 6 * page);
    assert_int_equal(brk(start + 64 * page), 0);
    assert_true(holds(start + 8 * page, 56 * page, 0));
    memset(start + 8 * page, 2, 56 * page);
    assert_true(holds(start, 8 * page, 1));
    assert_int_equal(brk(start + 7 * page), 0);
    assert_int_equal(brk(start + 10 * page), 0);
    assert_true(holds(start, 7 * page, 1));
    assert_true(holds(start + 7 * page, 3 * page, 0));
    um_shm_adopt_release((uintptr_t)start + 100, 6 * page);
    assert_true(holds(start, 7 * page, 1));
    assert_true(is_private(start, 10 * page));
    assert_int_equal(brk(start), 0);
    assert_int_equal(brk(start + 8 * page), 0);
    assert_true(holds(start, 8 * page, 0));
    assert_int_equal(brk(start), 0);
}

/* A block is grown and moved while it is registered, which is not allowed: its contents survive nevertheless. */
static void a_registered_block_is_reallocated(void **state)
{
    (void)state;
    size_t len = 1 << 20;
    for (size_t to = 2 << 20; to <= 16 << 20; to *= 2) {
        unsigned char *mem = malloc(len);
        memset(mem, 3, len);
        adopt_must(mem, len);
        uintptr_t base = (uintptr_t)mem;
        unsigned char *blocker = malloc(len), *moved = realloc(mem, to);
        assert_non_null(moved);
        assert_true(holds(moved, len, 3));
        um_shm_adopt_release(base, len);
        assert_true(holds(moved, len, 3));
        free(moved);
        free(blocker);
        assert_nothing_adopted();
    }
}

/* Memory that is purged after release reads as zero, as allocators expect. */
static void purged_memory_is_zero(void **state)
{
    (void)state;
    size_t page = page_size(), len = 64 * page;
    unsigned char *mem = private_memory(len);
    for (int round = 0; round < 20; round++) {
        memset(mem, 1, len);
        adopt_must(mem, len / 2);
        um_shm_adopt_release((uintptr_t)mem, len / 2);
        assert_int_equal(madvise(mem, len, MADV_DONTNEED), 0);
        assert_true(holds(mem, len, 0));
    }
    munmap(mem, len);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_thread),
    cmocka_unit_test(many_threads),
    cmocka_unit_test(the_end_of_the_data_segment_moves),
    cmocka_unit_test(a_registered_block_is_reallocated),
    cmocka_unit_test(purged_memory_is_zero),
};
ADOPT_MAIN(tests)
