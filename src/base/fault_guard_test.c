/*
 * Accesses to missing memory: by several threads at the same pages, while the program maps something else there, and
 * with a child that is forked meanwhile. One test, because cmocka installs and removes its handlers with each test.
 */
#include "base/fault_guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Far below the kernel's mappings, so that no other mapping lands in the ranges that are unmapped here. */
#define PLACE UINT64_C(0x200000000000)

enum { PAGES = 6, THREADS = 4, TURNS = 600 };
enum kind { UNMAPPED, CUT_OFF, READ_ONLY, KINDS };

static size_t page;

struct memory {
    volatile unsigned char *at; /* PAGES pages; the second half is as kind says */
    size_t len;
    int fd;
    enum kind kind;
};

static struct memory memory_open(enum kind kind)
{
    struct memory m = {.len = PAGES * page, .fd = memfd_create("gone", 0), .kind = kind};
    assert_true(m.fd >= 0);
    assert_int_equal(ftruncate(m.fd, (off_t)m.len), 0);
    static uintptr_t next = PLACE;
    next += (uintptr_t)1 << 30;
    m.at = mmap((void *)next, m.len, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
    assert_true(m.at != MAP_FAILED);
    memset((void *)m.at, 0x5a, m.len);
    void *half = (void *)(m.at + m.len / 2);
    if (kind == UNMAPPED)
        assert_int_equal(munmap(half, m.len / 2), 0);
    else if (kind == CUT_OFF)
        assert_int_equal(ftruncate(m.fd, (off_t)(m.len / 2)), 0);
    else
        assert_int_equal(mprotect(half, m.len / 2, PROT_READ), 0);
    return m;
}

static bool is_all(const volatile unsigned char *at, size_t len, unsigned char value)
{
    size_t i = 0;
    while (i < len && at[i] == value)
        i++;
    return i == len;
}

static bool is_mapped(const volatile unsigned char *at)
{
    unsigned char resident;
    return mincore((void *)at, page, &resident) == 0;
}

/* Checks that the memory is as it was. */
static void memory_check(const struct memory *m)
{
    const volatile unsigned char *half = m->at + m->len / 2;
    assert_true(m->kind == UNMAPPED || is_mapped(half));
    for (size_t i = 0; i < PAGES / 2 && m->kind == UNMAPPED; i++)
        assert_false(is_mapped(half + i * page));
    if (m->kind == READ_ONLY)
        assert_true(is_all(half, m->len / 2, 0x5a));
    if (m->kind == CUT_OFF) { /* with its old length the file has its own pages there again */
        assert_int_equal(ftruncate(m->fd, (off_t)m->len), 0);
        assert_true(is_all(half, m->len / 2, 0));
    }
}

static void memory_close(const struct memory *m)
{
    munmap((void *)m->at, m->len);
    close(m->fd);
}

/* ---- several threads ---- */

struct writer {
    pthread_t thread;
    const struct memory *m;
    unsigned good, unnoticed;
};

/* Alternates an access that succeeds with one that touches every missing page. */
static void *write_both(void *arg)
{
    struct writer *w = arg;
    struct um_fault_guard *g = um_fault_guard_open();
    volatile unsigned char *half = w->m->at + w->m->len / 2;
    const size_t own = page / THREADS * (size_t)(w->thread % THREADS);
    for (int i = 0; g && i < TURNS; i++) {
        um_fault_guard_begin(g, (const void *)half, w->m->len / 2);
        for (size_t p = 0; p < PAGES / 2; p++)
            half[p * page + own] = (unsigned char)i;
        w->unnoticed += !um_fault_guard_end(g);
        um_fault_guard_begin(g, (const void *)w->m->at, page);
        w->m->at[own] = 0x5a;
        w->good += !um_fault_guard_end(g);
    }
    um_fault_guard_close(g);
    return NULL;
}

static void threads_meet(enum kind kind)
{
    const struct memory m = memory_open(kind);
    struct writer w[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        w[i].m = &m;
        assert_int_equal(pthread_create(&w[i].thread, NULL, write_both, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
        assert_int_equal(w[i].good, TURNS);
        assert_int_equal(w[i].unnoticed, 0);
    }
    assert_true(is_all(m.at, m.len / 2, 0x5a));
    memory_check(&m);
    memory_close(&m);
}

/* An access that finds the stand-in of another access does not fault but gets the error; a later access, and one to the
 * pages beside it, get none. */
static void who_comes_later_is_told(enum kind kind)
{
    const struct memory m = memory_open(kind);
    struct um_fault_guard *first = um_fault_guard_open(), *later = um_fault_guard_open(),
                          *beside = um_fault_guard_open();
    volatile unsigned char *half = m.at + m.len / 2;
    assert_true(first && later && beside);
    um_fault_guard_begin(first, (const void *)half, page);
    half[0] = 1;
    um_fault_guard_begin(later, (const void *)half, 8);
    um_fault_guard_begin(beside, (const void *)m.at, m.len / 2);
    half[1] = 2;
    m.at[0] = 0x5a;
    assert_true(um_fault_guard_end(first));
    assert_true(um_fault_guard_end(later));
    assert_false(um_fault_guard_end(beside));
    um_fault_guard_begin(later, (const void *)m.at, 8);
    m.at[0] = 0x5a;
    assert_false(um_fault_guard_end(later));
    memory_check(&m);
    um_fault_guard_close(first);
    um_fault_guard_close(later);
    um_fault_guard_close(beside);
    memory_close(&m);
}

/* ---- what the program does meanwhile ---- */

enum news { UNMAPS, MAPS_PRIVATE, MAPS_SHARED, PROTECTS, NEWS };

static void the_program_changes_it(enum kind kind, enum news news)
{
    const struct memory m = memory_open(kind);
    struct um_fault_guard *g = um_fault_guard_open();
    volatile unsigned char *at = m.at + m.len / 2 + page;
    const int how = (news == MAPS_SHARED ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_FIXED;
    assert_non_null(g);
    um_fault_guard_begin(g, (const void *)at, page);
    at[0] = 1;
    if (news == PROTECTS)
        assert_int_equal(mprotect((void *)at, page, PROT_READ), 0);
    else if (news == UNMAPS)
        assert_int_equal(munmap((void *)at, page), 0);
    else
        assert_true(mmap((void *)at, page, PROT_READ | PROT_WRITE, how, -1, 0) == (void *)at);
    at[1] = 7;
    if (news == UNMAPS) { /* the store put a stand-in there again, of which the program does not know */
        assert_int_equal(at[0], 0);
        assert_int_equal(munmap((void *)at, page), 0);
    }
    assert_true(um_fault_guard_end(g));
    if (news == MAPS_PRIVATE || news == MAPS_SHARED)
        assert_int_equal(at[1], 7);
    if (news == UNMAPS)
        assert_false(is_mapped(at));
    if (news == PROTECTS)
        memory_check(&m);
    um_fault_guard_close(g);
    memory_close(&m);
}

/* A forked child has the mappings as they were, and makes accesses of its own. */
static void a_child_begins_afresh(enum kind kind)
{
    const struct memory m = memory_open(kind);
    struct um_fault_guard *g = um_fault_guard_open();
    volatile unsigned char *at = m.at + m.len / 2;
    int status = -1;
    assert_non_null(g);
    um_fault_guard_begin(g, (const void *)at, page);
    at[0] = 1;
    pid_t pid = fork();
    if (pid == 0) {
        bool right = kind == UNMAPPED ? !is_mapped(at) : kind == CUT_OFF || at[0] == 0x5a;
        um_fault_guard_begin(g, (const void *)at, page);
        at[0] = 2;
        right = right && um_fault_guard_end(g) && (kind != READ_ONLY || at[0] == 0x5a);
        _exit(!right);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(at[0], 1); /* this process's stand-in, which the child does not share */
    assert_true(um_fault_guard_end(g));
    memory_check(&m);
    um_fault_guard_close(g);
    memory_close(&m);
}

static void memory_that_is_not_there(void **state)
{
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    for (int kind = 0; kind < KINDS; kind++) {
        threads_meet((enum kind)kind);
        who_comes_later_is_told((enum kind)kind);
        for (int news = 0; news < NEWS; news++)
            the_program_changes_it((enum kind)kind, (enum news)news);
        a_child_begins_afresh((enum kind)kind);
    }
}

/* ---- other faults ---- */

static int wild_status[3];

/* In children, before cmocka installs its handlers: each ends by a fault outside any guarded access. */
static void wild_faults(void)
{
    const uintptr_t wild[] = {0, 8, PLACE + 64};
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20); /* the fault may repeat without end */
            if (!um_fault_guard_open())
                _exit(0);
            const volatile unsigned char *at = (const unsigned char *)wild[i];
            _exit(*at & 0); /* NOLINT(clang-analyzer-core.NullDereference): it is to fail */
        }
        waitpid(pid, &wild_status[i], 0);
    }
}

static void a_fault_of_the_program_is_its_own_also_at_address_0(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wild_status) / sizeof(wild_status[0]); i++) {
        const int status = wild_status[i]; /* a sanitizer turns the signal into an exit */
        assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : WEXITSTATUS(status) != 0);
    }
}

int main(void)
{
    wild_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_not_there),
        cmocka_unit_test(a_fault_of_the_program_is_its_own_also_at_address_0),
    };
    if (process_vm_readv(getpid(), NULL, 0, NULL, 0, 0) < 0 && errno == ENOSYS)
        return 77; /* a user-space emulator */
    return cmocka_run_group_tests_name("fault_guard", tests, NULL, NULL);
}
