/*
 * Adoption and release while others write: no update is lost, no writer sees an error.
 *
 * Each writer counts in its own word of every page and in a local variable; both must agree at every moment. Kinds of
 * writers: stores of a thread, read(2) of a thread into the range, process_vm_writev of another process: of a peer,
 * which holds a door meanwhile, and of a process that knows nothing of doors. The latter's writes are safe only on the
 * way in, and only where the kernel tells which pages are held (docs/adoption.md).
 */
#include "adopt.h"

#include "base/atomic.h"
#include "machine/mem/gate.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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

/* Shared with the process that writes from outside. */
struct outside {
    struct um_mem_doors_shm doors;
    uint32_t stop;
    uint32_t asked, told; /* odd: it shall pause; the value of asked that it has obeyed */
    uint64_t done, failed, lost;
};

static ssize_t write_by_door(struct outside *o, pid_t owner, const struct iovec *local, const struct iovec *remote)
{
    uint64_t *door;
    while (um_mem_gate_enter(&o->doors, &door) != 0)
        sched_yield();
    ssize_t got = process_vm_writev(owner, local, PAGES, remote, PAGES, 0);
    um_mem_gate_leave(door);
    return got;
}

/* Another process writes word 2 of every page, all in one call, so that many pages are held at a time. */
static void write_from_outside(const struct writer *w, pid_t owner, struct outside *o, bool by_door)
{
    struct iovec remote[PAGES], local[PAGES];
    uint64_t value[PAGES], n = 0;
    while (!um_load_relaxed_u32(&o->stop)) {
        uint32_t asked = um_load_acquire_u32(&o->asked);
        um_store_release_u32(&o->told, asked);
        if (asked % 2 != 0) {
            sched_yield();
            continue;
        }
        n++;
        for (size_t i = 0; i < PAGES; i++) {
            value[i] = n;
            local[i] = (struct iovec){.iov_base = &value[i], .iov_len = sizeof(n)};
            remote[i] = (struct iovec){.iov_base = w->mem + i * w->page + 16, .iov_len = sizeof(n)};
        }
        ssize_t got =
            by_door ? write_by_door(o, owner, local, remote) : process_vm_writev(owner, local, PAGES, remote, PAGES, 0);
        o->failed += got != (ssize_t)(PAGES * sizeof(n));
        memset(value, 0, sizeof(value));
        got = process_vm_readv(owner, local, PAGES, remote, PAGES, 0);
        o->failed += got != (ssize_t)(PAGES * sizeof(n));
        for (size_t i = 0; i < PAGES; i++)
            o->lost += value[i] != n;
        o->done = n;
    }
    _exit(0);
}

static struct outside *outside_map(void)
{
    struct outside *o = mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(o != MAP_FAILED);
    return o;
}

static pid_t outside_start(const struct writer *w, struct outside *o, bool by_door)
{
    pid_t owner = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        write_from_outside(w, owner, o, by_door);
    }
    return pid;
}

static void outside_end(struct outside *o, pid_t pid)
{
    um_store_relaxed_u32(&o->stop, 1);
    waitpid(pid, NULL, 0);
    assert_true(o->done > 0);
    assert_int_equal(o->failed, 0);
    assert_int_equal(o->lost, 0);
    munmap(o, sizeof(*o));
}

static void outside_ask(struct outside *o, bool pause)
{
    uint32_t asked = (o->asked | 1) + !pause;
    um_store_release_u32(&o->asked, asked);
    while (um_load_acquire_u32(&o->told) != asked)
        sched_yield();
}

static void move_in_and_out(unsigned char *mem, size_t len)
{
    adopt_must(mem, len);
    assert_true(is_shared(mem, len));
    sched_yield();
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_true(is_private(mem, len));
}

static void no_update_is_lost(void **state)
{
    (void)state;
    size_t page = page_size(), len = PAGES * page;
    unsigned char *mem = private_memory(len);
    uint32_t stop = 0;
    struct writer user = {.mem = mem, .page = page, .stop = &stop}, kernel = user;
    struct outside *o = outside_map();
    struct um_mem_gated gated;
    um_mem_gate_add(&gated, &o->doors);
    assert_int_equal(pipe(kernel.pipe), 0);
    pid_t pid = outside_start(&user, o, true);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, store_in_all_pages, &user);
    pthread_create(&threads[1], NULL, read_into_all_pages, &kernel);
    for (unsigned long round = 0; round < adopt_rounds; round++)
        move_in_and_out(mem, len);
    um_store_relaxed_u32(&stop, 1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    print_message("%lu rounds; updates: stores %lu, read(2) %lu, process_vm_writev %lu\n", adopt_rounds, user.done,
                  kernel.done, o->done);
    outside_end(o, pid);
    um_mem_gate_remove(&gated);
    assert_true(user.done > 0 && kernel.done > 0);
    assert_int_equal(user.wrong, 0);
    assert_int_equal(kernel.wrong, 0);
    close(kernel.pipe[0]);
    close(kernel.pipe[1]);
    munmap(mem, len);
}

static void no_update_without_a_door_is_lost_on_the_way_in(void **state)
{
    (void)state;
    size_t page = page_size(), len = PAGES * page;
    unsigned char *mem = private_memory(len);
    struct writer user = {.mem = mem, .page = page};
    struct outside *o = outside_map();
    pid_t pid = outside_start(&user, o, false);
    for (unsigned long round = 0; round < adopt_rounds; round++) {
        outside_ask(o, false);
        adopt_must(mem, len);
        outside_ask(o, true);
        um_shm_adopt_release((uintptr_t)mem, len);
    }
    print_message("%lu rounds; updates by process_vm_writev: %lu\n", adopt_rounds, o->done);
    outside_end(o, pid);
    munmap(mem, len);
}

/* With the user mode, or without any, there must be no other thread, and others' accesses fail for a moment. */
static void a_thread_alone_moves_its_memory(void **state)
{
    (void)state;
    size_t len = PAGES * page_size();
    unsigned char *mem = private_memory(len);
    for (unsigned long round = 0; round < adopt_rounds; round++)
        move_in_and_out(mem, len);
    munmap(mem, len);
}

static const struct CMUnitTest alone[] = {
    cmocka_unit_test(a_thread_alone_moves_its_memory),
};

static const struct CMUnitTest compared[] = {
    cmocka_unit_test(no_update_is_lost),
};

static const struct CMUnitTest proven[] = {
    cmocka_unit_test(no_update_is_lost),
    cmocka_unit_test(no_update_without_a_door_is_lost_on_the_way_in),
};

/* Does the kernel tell which pages are held? */
static bool proves(void)
{
    const char *why;
    struct um_shm_stop stop;
    if (um_shm_stop_open(1, &stop, &why) != 0)
        return false;
    bool can_move = stop.can_move;
    um_shm_stop_close(&stop);
    return can_move;
}

int main(int argc, char **argv)
{
    if (!adopt_arguments(argc, argv))
        return 77;
    if (um_shm_adopt_forced.no_userfaultfd || um_shm_adopt_forced.user_mode)
        return cmocka_run_group_tests(alone, NULL, NULL);
    return proves() ? cmocka_run_group_tests(proven, NULL, NULL) : cmocka_run_group_tests(compared, NULL, NULL);
}
