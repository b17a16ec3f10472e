/*
 * Children of a process with the shareable heap: nothing is shared, in either direction, and both go on allocating.
 */
#include "../adopt/adopt.h"
#include "machine/shm/heap.h"

#include "base/atomic.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { MIB = 1 << 20, BLOCK = 4 * MIB, THREADS = 4 };

static bool all(const unsigned char *mem, size_t len, unsigned char value)
{
    return mem[0] == value && memcmp(mem, mem + 1, len - 1) == 0;
}

static unsigned char *filled(unsigned char value)
{
    unsigned char *block = malloc(BLOCK);
    assert_non_null(block);
    assert_true(um_shm_heap_holds((uintptr_t)block, BLOCK));
    memset(block, value, BLOCK);
    return block;
}

/* In a child: a check that fails ends it. The exit status tells the line. */
#define CHILD_CHECK(what)                                                                                              \
    do {                                                                                                               \
        if (!(what))                                                                                                   \
            _exit(__LINE__ % 250 + 1);                                                                                 \
    } while (0)

static void await(pid_t child)
{
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static ino_t file_number(void)
{
    struct stat st;
    assert_int_equal(fstat(um_shm_heap_fd(), &st), 0);
    return st.st_ino;
}

/* True if this process maps the file with that inode number. */
static bool maps_file(ino_t number)
{
    char line[512];
    unsigned long ino = 0;
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof(line), f))
        found |= sscanf(line, "%*s %*s %*s %*s %lu", &ino) == 1 && ino == number;
    if (f)
        fclose(f);
    return found || !f;
}

static void test_the_child_does_not_see_what_the_parent_writes(void **state)
{
    unsigned char *block = filled(1), byte;
    int go[2];
    (void)state;
    assert_int_equal(pipe(go), 0);
    const ino_t file = file_number();
    assert_true(maps_file(file));
    pid_t child = fork();
    if (child == 0) {
        CHILD_CHECK(!maps_file(file));
        CHILD_CHECK(read(go[0], &byte, 1) == 1);
        CHILD_CHECK(all(block, BLOCK, 1));
        free(block);
        _exit(0);
    }
    memset(block, 2, BLOCK);
    assert_int_equal(write(go[1], "", 1), 1);
    await(child);
    assert_true(all(block, BLOCK, 2));
    assert_true(is_shared(block, BLOCK));
    close(go[0]);
    close(go[1]);
    free(block);
}

static void test_the_parent_does_not_see_what_the_child_does(void **state)
{
    unsigned char *block = filled(1), *freed = filled(3);
    const int fd = um_shm_heap_fd();
    const ino_t file = file_number();
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        CHILD_CHECK(file_number() != file); /* the child does not keep the parent's memory alive either */
        CHILD_CHECK(um_shm_heap_fd() == fd || fcntl(fd, F_GETFD) < 0);
        memset(block, 2, BLOCK);
        free(freed);
        unsigned char *zero = calloc(1, BLOCK);
        CHILD_CHECK(all(zero, BLOCK, 0));
        _exit(0);
    }
    await(child);
    assert_true(all(block, BLOCK, 1) && all(freed, BLOCK, 3));
    assert_int_equal(um_shm_heap_fd(), fd);
    free(block);
    free(freed);
}

static void test_the_child_has_a_heap_of_its_own(void **state)
{
    unsigned char *block = filled(1);
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        CHILD_CHECK(um_shm_heap_holds((uintptr_t)block, BLOCK) && is_shared(block, BLOCK));
        unsigned char *own = malloc(BLOCK);
        CHILD_CHECK(um_shm_heap_holds((uintptr_t)own, BLOCK));
        memset(own, 5, BLOCK);
        own = realloc(own, 2 * BLOCK);
        CHILD_CHECK(all(own, BLOCK, 5));
        block = realloc(block, 3 * BLOCK); /* allocated before the fork */
        CHILD_CHECK(all(block, BLOCK, 1));
        pid_t grandchild = fork();
        if (grandchild == 0) {
            CHILD_CHECK(all(own, BLOCK, 5) && all(block, BLOCK, 1));
            memset(own, 6, BLOCK);
            _exit(0);
        }
        int status = 1;
        CHILD_CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        CHILD_CHECK(all(own, BLOCK, 5));
        free(own);
        free(block);
        _exit(0);
    }
    await(child);
    free(block);
}

static void test_freed_memory_is_zero_again_in_the_child(void **state)
{
    unsigned char *block[8];
    (void)state;
    for (unsigned i = 0; i < 8; i++)
        block[i] = memset(malloc(200000), 0xee, 200000);
    pid_t child = fork();
    if (child == 0) {
        for (unsigned i = 0; i < 8; i++)
            free(block[i]);
        for (unsigned i = 0; i < 100; i++) {
            unsigned char *zero = calloc(1, 100000 + 5000 * i);
            CHILD_CHECK(all(zero, 100000 + 5000 * i, 0));
            memset(zero, 0xdd, 100000 + 5000 * i);
            free(zero);
        }
        _exit(0);
    }
    await(child);
    for (unsigned i = 0; i < 8; i++) {
        assert_true(all(block[i], 200000, 0xee));
        free(block[i]);
    }
}

static void test_protections_and_untouched_pages_are_kept(void **state)
{
    size_t page = page_size();
    unsigned char *block = aligned_alloc(page, BLOCK);
    (void)state;
    block[0] = 1;
    block[page] = 2;
    assert_int_equal(mprotect(block + page, page, PROT_NONE), 0);
    size_t before = file_bytes();
    pid_t child = fork();
    if (child == 0) {
        CHILD_CHECK(has_perms(block, page, "rw-s"));
        CHILD_CHECK(has_perms(block + page, page, "---s"));
        CHILD_CHECK(file_bytes() <= before);
        CHILD_CHECK(mprotect(block + page, page, PROT_READ) == 0);
        CHILD_CHECK(block[0] == 1 && block[page] == 2);
        _exit(0);
    }
    await(child);
    assert_true(has_perms(block + page, page, "---s"));
    assert_int_equal(mprotect(block + page, page, PROT_READ | PROT_WRITE), 0);
    free(block);
}

static uint32_t stop; /* sync: none (a flag; nothing is published with it) */

static void *allocate(void *to)
{
    (void)to;
    while (!um_load_relaxed_u32(&stop)) {
        unsigned char *block = malloc(100000), *small = malloc(100);
        block[0] = small[0] = 1;
        FILE *f = fopen("/dev/null", "r"); /* the FILE's lock lies in a small block; fork() itself writes to it */
        fclose(f);
        free(block);
        free(small);
    }
    return NULL;
}

static void test_forks_while_threads_allocate(void **state)
{
    pthread_t thread[THREADS];
    unsigned char *block = filled(1);
    (void)state;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, allocate, NULL), 0);
    for (unsigned long round = 0; round < adopt_rounds; round++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60); /* ends a child that hangs at a lock that was left locked */
            CHILD_CHECK(all(block, BLOCK, (unsigned char)(round + 1)));
            memset(block, 0, BLOCK);
            for (unsigned i = 0; i < 20; i++)
                free(memset(malloc(50000 * (i + 1)), 1, 50000));
            _exit(0);
        }
        memset(block, (int)round + 2, BLOCK);
        await(child);
    }
    um_store_relaxed_u32(&stop, 1);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    free(block);
}

static void test_spawn_copies_nothing(void **state)
{
    char *const argv[] = {"true", NULL}, *const envp[] = {NULL};
    unsigned char *block = filled(1);
    pid_t child;
    (void)state;
    size_t before = file_bytes();
    assert_int_equal(posix_spawnp(&child, "true", NULL, NULL, argv, envp), 0);
    await(child);
    assert_int_equal(system("exit 0"), 0);
    assert_true(all(block, BLOCK, 1) && is_shared(block, BLOCK));
    assert_int_equal(file_bytes(), before);
    free(block);
}

static ucontext_t outer, inner;

static void fork_inside(void)
{
    _exit(fork() < 0 ? 2 : 1);
}

/* Parent and child would return from fork() on one and the same stack. */
static void test_a_fork_on_a_stack_of_the_heap_ends_with_a_message(void **state)
{
    char text[4096] = "";
    int err[2], status;
    (void)state;
    assert_int_equal(pipe(err), 0);
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(err[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        getcontext(&inner);
        inner.uc_stack = (stack_t){.ss_sp = filled(0), .ss_size = BLOCK};
        inner.uc_link = &outer;
        makecontext(&inner, fork_inside, 0);
        swapcontext(&outer, &inner);
        _exit(3);
    }
    close(err[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_true(read(err[0], text, sizeof(text) - 1) > 0);
    assert_non_null(strstr(text, "without --heap"));
    close(err[0]);
}

/* Adopted memory and the heap lie in one file. The child shares neither of them. */
static void test_adopted_memory_beside_the_heap(void **state)
{
    unsigned char *block = filled(1), *private = private_memory(BLOCK);
    (void)state;
    memset(private, 2, BLOCK);
    adopt_must(private + 100, BLOCK - 200);
    pid_t child = fork();
    if (child == 0) {
        CHILD_CHECK(private[0] == 2 && private[BLOCK - 1] == 2 && all(block, BLOCK, 1));
        memset(private, 3, BLOCK);
        memset(block, 3, BLOCK);
        CHILD_CHECK(fcntl(STDERR_FILENO, F_GETFD) >= 0);
        _exit(0);
    }
    await(child);
    assert_true(all(block, BLOCK, 1) && all(private, BLOCK, 2));
    um_shm_adopt_release((uintptr_t) private + 100, BLOCK - 200);
    assert_true(all(private, BLOCK, 2) && is_shared(block, BLOCK));
    munmap(private, BLOCK);
    free(block);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_child_does_not_see_what_the_parent_writes),
        cmocka_unit_test(test_the_parent_does_not_see_what_the_child_does),
        cmocka_unit_test(test_the_child_has_a_heap_of_its_own),
        cmocka_unit_test(test_freed_memory_is_zero_again_in_the_child),
        cmocka_unit_test(test_protections_and_untouched_pages_are_kept),
        cmocka_unit_test(test_forks_while_threads_allocate),
        cmocka_unit_test(test_spawn_copies_nothing),
        cmocka_unit_test(test_a_fork_on_a_stack_of_the_heap_ends_with_a_message),
        cmocka_unit_test(test_adopted_memory_beside_the_heap),
    };
    if (!adopt_arguments(argc, argv))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
