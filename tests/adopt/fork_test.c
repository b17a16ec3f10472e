/* A child of fork() shares no adopted page, finds the bytes that were not registered, and can adopt for itself. */
#include "adopt.h"

#include "base/atomic.h"

#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

extern char **environ;

#define DEMAND(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            print_error("child: line %d: %s\n", __LINE__, #what);                                                      \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void child_ended_well(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void neither_sees_what_the_other_writes(void **state)
{
    (void)state;
    size_t page = page_size(), len = 8 * page;
    unsigned char *mem = private_memory(len);
    memset(mem, 1, len);
    adopt_must(mem + 100, 6 * page);
    int go[2], done[2];
    char c = 0;
    assert_int_equal(pipe(go) | pipe(done), 0);
    pid_t pid = fork();
    if (pid == 0) {
        DEMAND(is_private(mem, len));
        memset(mem + page, 3, 6 * page);
        mem[0] = 3;
        DEMAND(write(done[1], &c, 1) == 1 && read(go[0], &c, 1) == 1);
        DEMAND(mem[0] == 3 && mem[99] == 1);
        for (size_t i = page; i < 7 * page; i++)
            DEMAND(mem[i] == 3);
        _exit(0);
    }
    assert_true(is_shared(mem, 7 * page));
    assert_int_equal(read(done[0], &c, 1), 1);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(mem[i], 1);
    memset(mem, 2, len);
    assert_int_equal(write(go[1], &c, 1), 1);
    child_ended_well(pid);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(mem[i], 2);
    um_shm_adopt_release((uintptr_t)mem + 100, 6 * page);
    assert_int_equal(mem[0], 2);
    assert_nothing_adopted();
    munmap(mem, len);
}

static void bytes_beside_the_registered_ones_are_the_parents_at_the_fork(void **state)
{
    (void)state;
    size_t page = page_size(), len = 4 * page;
    unsigned char *mem = private_memory(len);
    memset(mem, 1, len);
    for (unsigned long round = 0; round < adopt_rounds; round++) {
        memset(mem, 1, len);
        adopt_must(mem + 512, 2 * page);
        mem[0] = mem[511] = mem[2 * page + 512] = mem[3 * page - 1] = 7;
        pid_t pid = fork();
        if (pid == 0) {
            DEMAND(mem[0] == 7 && mem[511] == 7 && mem[2 * page + 512] == 7 && mem[3 * page - 1] == 7 && mem[1] == 1);
            _exit(0);
        }
        memset(mem, 9, len); /* at once: fork() has given the child its copies by now */
        child_ended_well(pid);
        um_shm_adopt_release((uintptr_t)mem + 512, 2 * page);
    }
    munmap(mem, len);
}

static void a_child_adopts_into_a_file_of_its_own(void **state)
{
    (void)state;
    size_t page = page_size(), len = 8 * page;
    unsigned char *mem = private_memory(len), *own = private_memory(len);
    memset(mem, 1, len);
    memset(own, 1, len);
    adopt_must(mem + 8, 3 * page);
    pid_t pid = fork();
    if (pid == 0) {
        struct um_shm_adopt_stats stats;
        const char *why;
        um_shm_adopt_stats_get(&stats);
        DEMAND(stats.ranges == 0);
        DEMAND(um_shm_adopt((uintptr_t)own, len, &why) == 0);
        DEMAND(um_shm_adopt((uintptr_t)mem, len, &why) == 0);
        DEMAND(is_shared(own, len) && is_shared(mem, len));
        memset(own, 5, len);
        memset(mem, 5, len);
        um_shm_adopt_release((uintptr_t)own, len);
        um_shm_adopt_release((uintptr_t)mem, len);
        DEMAND(is_private(own, len) && is_private(mem, len) && own[0] == 5 && mem[0] == 5);
        _exit(0);
    }
    child_ended_well(pid);
    assert_int_equal(mem[0], 1);
    assert_int_equal(own[0], 1);
    um_shm_adopt_release((uintptr_t)mem + 8, 3 * page);
    assert_nothing_adopted();
    munmap(mem, len);
    munmap(own, len);
}

static void a_moved_mapping_is_private_in_the_child_too(void **state)
{
    (void)state;
    size_t page = page_size(), len = 4 * page;
    unsigned char *mem = private_memory(len), *place = private_memory(len);
    memset(mem, 1, len);
    adopt_must(mem, len);
    assert_ptr_equal(mremap(mem, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, place), place);
    pid_t pid = fork();
    if (pid == 0) {
        DEMAND(is_private(place, len) && place[0] == 1 && place[len - 1] == 1);
        memset(place, 2, len);
        _exit(0);
    }
    child_ended_well(pid);
    assert_int_equal(place[0], 1);
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_nothing_adopted();
    munmap(place, len);
}

/* posix_spawn and vfork share the memory on purpose until exec: nothing may change for the parent. */
static void spawned_programs_disturb_nothing(void **state)
{
    (void)state;
    size_t len = 4 * page_size();
    unsigned char *mem = private_memory(len);
    memset(mem, 1, len);
    adopt_must(mem, len);
    char *argv[] = {"true", NULL};
    pid_t pid;
    assert_int_equal(posix_spawnp(&pid, "true", NULL, NULL, argv, environ), 0);
    child_ended_well(pid);
    assert_int_equal(system("exit 0"), 0);
    assert_true(is_shared(mem, len));
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_int_equal(mem[0], 1);
    munmap(mem, len);
}

/* One thread forks while another one adopts: the child sees the whole memory, as before or as after the adoption. */
struct forker {
    unsigned char *mem;
    size_t len;
    uint32_t stop;
    unsigned long forks, wrong;
};

static void *fork_all_the_time(void *arg)
{
    struct forker *f = arg;
    while (!um_load_relaxed_u32(&f->stop)) {
        pid_t pid = fork();
        if (pid == 0) {
            for (size_t i = 0; i < f->len; i += 64) {
                if (f->mem[i] != 1)
                    _exit(1);
            }
            _exit(0);
        }
        int status = 1;
        waitpid(pid, &status, 0);
        f->wrong += status != 0;
        f->forks++;
    }
    return NULL;
}

static void a_fork_while_another_thread_adopts_sees_whole_memory(void **state)
{
    (void)state;
    if (um_shm_adopt_forced.no_userfaultfd || um_shm_adopt_forced.user_mode)
        return; /* these modes are for processes with one thread */
    size_t page = page_size();
    struct forker f = {.len = 4 * page};
    f.mem = private_memory(f.len);
    memset(f.mem, 1, f.len);
    pthread_t thread;
    pthread_create(&thread, NULL, fork_all_the_time, &f);
    for (unsigned long round = 0; round < adopt_rounds || f.forks < 20; round++) {
        for (size_t i = 0; i < f.len; i += page) /* no page is registered as a whole, so the child gets copies */
            adopt_must(f.mem + i + 8, 64);
        for (size_t i = 0; i < f.len; i += page)
            um_shm_adopt_release((uintptr_t)f.mem + i + 8, 64);
    }
    um_store_relaxed_u32(&f.stop, 1);
    pthread_join(thread, NULL);
    print_message("%lu forks\n", f.forks);
    assert_int_equal(f.wrong, 0);
    munmap(f.mem, f.len);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(neither_sees_what_the_other_writes),
    cmocka_unit_test(bytes_beside_the_registered_ones_are_the_parents_at_the_fork),
    cmocka_unit_test(a_child_adopts_into_a_file_of_its_own),
    cmocka_unit_test(a_moved_mapping_is_private_in_the_child_too),
    cmocka_unit_test(spawned_programs_disturb_nothing),
    cmocka_unit_test(a_fork_while_another_thread_adopts_sees_whole_memory),
};
ADOPT_MAIN(tests)
