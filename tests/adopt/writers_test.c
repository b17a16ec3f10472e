/*
 * Adoption and release while others write: no update is lost, no writer sees an error.
 *
 * Each writer counts in its own word of every page and in a local variable; both must agree at every moment. Kinds of
 * writers: stores of a thread, read(2) of a thread into the range, process_vm_writev of another process.
 */
#include "adopt.h"

#include "base/atomic.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { PAGES = 64 };

struct writer {
    unsigned char *mem;
    size_t page;
    uint32_t *stop;
    uint64_t wrong, done;
    int pipe[2];
};

static void *store_in_all_pages(void *arg)
{
    struct writer *w = arg;
    for (uint64_t n = 1; !um_load_relaxed_u32(w->stop); n++) {
        for (size_t i = 0; i < PAGES; i++) {
            uint64_t *word = (uint64_t *)(void *)(w->mem + i * w->page);
            w->wrong += um_load_relaxed_u64(word) != n - 1;
            um_store_relaxed_u64(word, n);
        }
        w->done = n;
    }
    return NULL;
}

/* The kernel writes word 1 of every page, by read(2). */
static void *read_into_all_pages(void *arg)
{
    struct writer *w = arg;
    for (uint64_t n = 1; !um_load_relaxed_u32(w->stop); n++) {
        for (size_t i = 0; i < PAGES; i++) {
            uint64_t *word = (uint64_t *)(void *)(w->mem + i * w->page) + 1;
            w->wrong += write(w->pipe[1], &n, sizeof(n)) != sizeof(n);
            w->wrong += read(w->pipe[0], word, sizeof(n)) != sizeof(n);
            w->wrong += um_load_relaxed_u64(word) != n;
        }
        w->done = n;
    }
    return NULL;
}

/* Another process writes word 2 of every page, all in one call, so that many pages are held at a time. */
static void write_from_outside(struct writer *w, pid_t owner, uint64_t *shared)
{
    struct iovec remote[PAGES], local[PAGES];
    uint64_t value[PAGES];
    for (uint64_t n = 1; !um_load_relaxed_u32(w->stop); n++) {
        for (size_t i = 0; i < PAGES; i++) {
            value[i] = n;
            local[i] = (struct iovec){.iov_base = &value[i], .iov_len = sizeof(n)};
            remote[i] = (struct iovec){.iov_base = w->mem + i * w->page + 16, .iov_len = sizeof(n)};
        }
        ssize_t got = process_vm_writev(owner, local, PAGES, remote, PAGES, 0);
        shared[1] += got != (ssize_t)(PAGES * sizeof(n));
        memset(value, 0, sizeof(value));
        got = process_vm_readv(owner, local, PAGES, remote, PAGES, 0);
        shared[1] += got != (ssize_t)(PAGES * sizeof(n));
        for (size_t i = 0; i < PAGES; i++)
            shared[2] += value[i] != n;
        shared[0] = n;
    }
    _exit(0);
}

static void no_update_is_lost(void **state)
{
    (void)state;
    size_t page = page_size(), len = PAGES * page;
    unsigned char *mem = private_memory(len);
    uint64_t *shared = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint32_t *stop = (uint32_t *)(void *)(shared + 8);
    struct writer user = {.mem = mem, .page = page, .stop = stop}, kernel = user, outside = user;
    bool alone = um_shm_adopt_forced.no_userfaultfd || um_shm_adopt_forced.user_mode;
    assert_int_equal(pipe(kernel.pipe), 0);
    pid_t owner = getpid(), pid = alone ? 0 : fork();
    if (!alone && pid == 0)
        write_from_outside(&outside, owner, shared);
    pthread_t threads[2];
    if (!alone) {
        pthread_create(&threads[0], NULL, store_in_all_pages, &user);
        pthread_create(&threads[1], NULL, read_into_all_pages, &kernel);
    }
    for (unsigned long round = 0; round < adopt_rounds; round++) {
        adopt_must(mem, len);
        assert_true(is_shared(mem, len));
        sched_yield();
        um_shm_adopt_release((uintptr_t)mem, len);
        assert_true(is_private(mem, len));
    }
    um_store_relaxed_u32(stop, 1);
    if (!alone) {
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        waitpid(pid, NULL, 0);
        print_message("%lu rounds; updates: stores %lu, read(2) %lu, process_vm_writev %lu\n", adopt_rounds, user.done,
                      kernel.done, shared[0]);
        assert_true(user.done > 0 && kernel.done > 0 && shared[0] > 0);
    }
    assert_int_equal(user.wrong, 0);
    assert_int_equal(kernel.wrong, 0);
    assert_int_equal(shared[1], 0);
    assert_int_equal(shared[2], 0);
    munmap(mem, len);
    munmap(shared, page);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_update_is_lost),
};
ADOPT_MAIN(tests)
