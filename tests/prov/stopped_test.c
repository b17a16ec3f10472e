/*
 * One-sided operations need nothing of their target: its process is stopped by SIGSTOP before the first contact, and
 * stays stopped while puts, gets and atomics on its memory are posted, complete and are counted. Then it runs again and
 * checks its memory. The processor time that the system counted for it shows that it did nothing meanwhile. That holds
 * for memory that is mapped. With up to 1 MiB of contents it is mapped from the start; with more, once peers have used
 * it enough. The latter needs the target's process to run, but no call of it: in that test the target computes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "needs.h"
#include "team.h"

#include "base/atomic.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BYTES = (1 << 20) + (32 << 10), /* large enough for malloc to map it by itself */
    LARGE_BYTES = 64 << 20,         /* too much to be adopted at registration */
    WORDS = 16,                     /* words at the start of the memory, changed by atomics */
    ADDS = 20000,
    INITIATOR = 0,
    TARGET = 1,
};

static const size_t sizes[] = {1, 8, 100, 4096, 65537, 1 << 20};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), ROUNDS = 20 };

/* What the system has counted for a process. */
struct trace {
    char state;
    unsigned long long ticks, minor_faults;
};

static struct trace trace_of(struct team *t, pid_t pid)
{
    char path[64], text[1024] = {0};
    struct trace r = {0};
    unsigned long long user = 0, system = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    TEAM_DEMAND(t, f != NULL && fread(text, 1, sizeof(text) - 1, f) > 0, "%s cannot be read", path);
    fclose(f);
    const char *after_name = strrchr(text, ')');
    TEAM_DEMAND(t,
                after_name && sscanf(after_name, ") %c %*d %*d %*d %*d %*d %*u %llu %*u %*u %*u %llu %llu", &r.state,
                                     &r.minor_faults, &user, &system) == 4,
                "%s is not understood: %s", path, text);
    r.ticks = user + system;
    return r;
}

static struct trace stop(struct team *t, pid_t pid)
{
    struct trace r;
    TEAM_DEMAND(t, kill(pid, SIGSTOP) == 0, "the target cannot be stopped");
    for (int i = 0; (r = trace_of(t, pid)).state != 'T'; i++) {
        TEAM_DEMAND(t, i < 10000, "the target does not stop");
        usleep(1000);
    }
    struct trace last; /* the system counts its last time slice a moment later */
    do {
        last = r;
        usleep(20000);
        r = trace_of(t, pid);
    } while (r.ticks != last.ticks || r.minor_faults != last.minor_faults);
    return r;
}

static void fill(unsigned char *p, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        p[i] = (unsigned char)(i * 31 + (i >> 8) + seed);
}

/* Puts the bytes of each round behind the words, and reads them back each time. Returns the number of puts. */
static uint64_t put_and_get(struct team *t)
{
    static unsigned char out[1 << 20], in[1 << 20];
    uint64_t puts = 0, key = team_key(t, TARGET);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SIZES; i++, puts++) {
            uint64_t at = team_at(t, TARGET, WORDS * 8 + (size_t)i * 3);
            fill(out, sizes[i], round);
            memset(in, 0, sizes[i]);
            TEAM_POST(t, fi_write(t->ep, out, sizes[i], NULL, t->peer[TARGET], at, key, NULL));
            t->put_count++;
            team_wait_puts(t, 0);
            TEAM_POST(t, fi_read(t->ep, in, sizes[i], NULL, t->peer[TARGET], at, key, NULL));
            t->get_count++;
            team_wait_gets(t, 0);
            TEAM_DEMAND(t, memcmp(in, out, sizes[i]) == 0, "what is read is not what was put");
        }
    }
    return puts;
}

/* Word 0: sums nobody fetches; 1: tickets; 2: moved by compare-and-swap. Posted only. */
static uint64_t tickets[ADDS];

static void post_atomics(struct team *t)
{
    static const uint64_t one = 1;
    uint64_t key = team_key(t, TARGET), swaps[2];
    for (uint64_t i = 0; i < ADDS; i++) {
        TEAM_POST(
            t, fi_atomic(t->ep, &one, 1, NULL, t->peer[TARGET], team_at(t, TARGET, 0), key, FI_UINT64, FI_SUM, NULL));
        t->put_count++;
        TEAM_POST(t, fi_fetch_atomic(t->ep, &one, 1, NULL, &tickets[i], NULL, t->peer[TARGET], team_at(t, TARGET, 8),
                                     key, FI_UINT64, FI_SUM, NULL));
        t->get_count++;
        if (i % 100)
            continue;
        team_wait_gets(t, 0);
        swaps[0] = i;
        swaps[1] = i + 100;
        TEAM_POST(t, fi_compare_atomic(t->ep, &swaps[1], 1, NULL, &swaps[0], NULL, &swaps[0], NULL, t->peer[TARGET],
                                       team_at(t, TARGET, 16), key, FI_UINT64, FI_CSWAP, NULL));
        t->get_count++;
        team_wait_gets(t, 0);
        TEAM_DEMAND(t, swaps[0] == i, "compare-and-swap found %llu", (unsigned long long)swaps[0]);
    }
}

static void check_tickets(struct team *t)
{
    for (uint64_t i = 0; i < ADDS; i++)
        TEAM_DEMAND(t, tickets[i] == i, "ticket %llu is %llu", (unsigned long long)i, (unsigned long long)tickets[i]);
}

/* In the target, when it runs again: demands that everything is there, and counted. */
static void look(struct team *t, bool mapped)
{
    static unsigned char expected[1 << 20];
    const uint64_t *word = (const uint64_t *)t->memory;
    while (um_load_acquire_u32(&t->shared->flag[0]) == 0)
        team_progress(t);
    if (mapped) { /* before any progress could have brought it */
        TEAM_DEMAND(t, word[0] == ADDS && word[1] == ADDS && word[2] == ADDS, "atomics were lost");
    }
    fill(expected, sizes[SIZES - 1], ROUNDS - 1);
    TEAM_DEMAND(t, memcmp(t->memory + WORDS * 8 + (SIZES - 1) * 3, expected, sizes[SIZES - 1]) == 0, "puts were lost");
    uint64_t counted = fi_cntr_read(t->remote), posted = um_load_acquire_u64(&t->shared->cell[0]);
    TEAM_DEMAND(t, counted == posted, "%llu writes were counted, not %llu", (unsigned long long)counted,
                (unsigned long long)posted);
}

static void resume(struct team *t, pid_t pid, const struct trace *before)
{
    struct trace after = trace_of(t, pid);
    TEAM_DEMAND(t, after.state == 'T' && after.ticks == before->ticks && after.minor_faults == before->minor_faults,
                "the target has run");
    TEAM_DEMAND(t, kill(pid, SIGCONT) == 0, "the target cannot be resumed");
}

static void drive(struct team *t, bool mapped)
{
    pid_t target = t->shared->member[TARGET].pid;
    struct trace before = stop(t, target);
    double start = team_now();
    uint64_t puts = put_and_get(t);
    double seconds = team_now() - start;
    printf("target stopped: %llu puts and gets in %.3f s", (unsigned long long)puts, seconds);
    if (mapped) {
        start = team_now();
        post_atomics(t);
        team_wait_puts(t, 0);
        team_wait_gets(t, 0);
        puts += 2 * ADDS + ADDS / 100; /* all of them change memory */
        check_tickets(t);
        printf(", %d atomics in %.3f s", 2 * ADDS + ADDS / 100, team_now() - start);
    }
    printf("\n");
    um_store_release_u64(&t->shared->cell[0], puts);
    um_store_release_u32(&t->shared->flag[0], 1);
    resume(t, target, &before);
}

static void run(struct team *t, void *arg)
{
    bool mapped = *(bool *)arg;
    if (t->rank == INITIATOR)
        drive(t, mapped);
    else
        look(t, mapped);
}

/* The target is stopped with atomics in its lanes, which it executes when it runs again. */
static void run_late(struct team *t, void *arg)
{
    static const uint64_t one = 1;
    (void)arg;
    if (t->rank == INITIATOR) {
        pid_t target = t->shared->member[TARGET].pid;
        struct trace before = stop(t, target);
        ssize_t ret = 0;
        while ((ret = fi_atomic(t->ep, &one, 1, NULL, t->peer[TARGET], team_at(t, TARGET, 0), team_key(t, TARGET),
                                FI_UINT64, FI_SUM, NULL)) == 0 &&
               t->put_count < ADDS)
            t->put_count++;
        TEAM_DEMAND(t, ret == 0 || ret == -FI_EAGAIN, "fi_atomic: %s", fi_strerror((int)-ret));
        t->put_count += ret == 0;
        TEAM_DEMAND(t, t->put_count > 0, "none was accepted");
        TEAM_DEMAND(t, fi_cntr_read(t->puts) == 0, "counted before it was done");
        resume(t, target, &before);
    }
    team_barrier(t); /* waits for what was posted */
    um_store_relaxed_u64(&t->shared->cell[t->rank], t->put_count);
    team_barrier(t);
    if (t->rank == TARGET)
        TEAM_DEMAND(t, *(const uint64_t *)t->memory == um_load_relaxed_u64(&t->shared->cell[INITIATOR]),
                    "an atomic that was accepted is lost");
}

/* The target computes: it makes no call. */
static void run_computing(struct team *t, void *arg)
{
    (void)arg;
    if (t->rank == INITIATOR) {
        post_atomics(t);
        team_wait_puts(t, 0);
        team_wait_gets(t, 0);
        check_tickets(t);
        um_store_release_u32(&t->shared->flag[0], 1);
    } else {
        while (um_load_acquire_u32(&t->shared->flag[0]) == 0)
            um_cpu_relax();
        const uint64_t *word = (const uint64_t *)t->memory;
        TEAM_DEMAND(t, word[0] == ADDS && word[1] == ADDS && word[2] == ADDS, "atomics were lost");
    }
}

/* The target computes until its memory is mapped, and is stopped then. */
static void run_large(struct team *t, void *arg)
{
    static uint64_t old;
    bool mapped = true;
    (void)arg;
    if (t->rank == INITIATOR) {
        TEAM_POST(t, fi_fetch_atomic(t->ep, NULL, 1, NULL, &old, NULL, t->peer[TARGET], team_at(t, TARGET, 0),
                                     team_key(t, TARGET), FI_UINT64, FI_ATOMIC_READ, NULL));
        t->get_count++;
        team_wait_gets(t, 0);
        um_store_release_u32(&t->shared->flag[1], 1);
        drive(t, mapped);
    } else {
        while (um_load_acquire_u32(&t->shared->flag[1]) == 0)
            um_cpu_relax();
        look(t, mapped);
    }
}

static const struct team_config config = {
    .provider = "unimem", .size = 2, .bytes = BYTES, .caps = FI_RMA_EVENT, .timeout = 100};

static const struct team_config large_config = {
    .provider = "unimem", .size = 2, .bytes = LARGE_BYTES, .caps = FI_RMA_EVENT, .timeout = 100};

static void do_not_adopt(int rank)
{
    (void)rank;
    setenv("FI_UNIMEM_ADOPT", "0", 1);
}

static void mapped_memory_of_a_stopped_process_is_put_got_and_changed(void **state)
{
    bool mapped = true;
    (void)state;
    needs(has_userfaultfd());
    assert_int_equal(team_run(&config, NULL, run, &mapped), 0);
}

static void copied_memory_of_a_stopped_process_is_put_and_got(void **state)
{
    bool mapped = false;
    (void)state;
    needs(has_private_copy());
    assert_int_equal(team_run(&config, do_not_adopt, run, &mapped), 0);
}

static void what_a_stopped_owner_is_to_execute_it_does_later(void **state)
{
    (void)state;
    assert_int_equal(team_run(&config, do_not_adopt, run_late, NULL), 0);
}

static void large_memory_of_a_process_that_computes_is_changed(void **state)
{
    (void)state;
    needs(has_userfaultfd());
    assert_int_equal(team_run(&large_config, NULL, run_computing, NULL), 0);
}

static void large_memory_that_is_mapped_of_a_stopped_process_is_put_got_and_changed(void **state)
{
    (void)state;
    needs(has_userfaultfd());
    assert_int_equal(team_run(&large_config, NULL, run_large, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapped_memory_of_a_stopped_process_is_put_got_and_changed),
        cmocka_unit_test(copied_memory_of_a_stopped_process_is_put_and_got),
        cmocka_unit_test(what_a_stopped_owner_is_to_execute_it_does_later),
        cmocka_unit_test(large_memory_of_a_process_that_computes_is_changed),
        cmocka_unit_test(large_memory_that_is_mapped_of_a_stopped_process_is_put_got_and_changed),
    };
    return needs_status(cmocka_run_group_tests_name("prov/stopped", tests, NULL, NULL));
}
