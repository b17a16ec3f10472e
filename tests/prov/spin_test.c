/*
 * Empty fi_cq_reads of a caller that spins: they linger for messages, not for callers that await something else, nor
 * where other threads may wait for the caller; and they yield where ranks outnumber processors, or after many reads
 * without any traffic, as do reads of a counter. Reads that find something tell a preloaded sched_yield(), which this
 * program stands in for (base/yield_abi.h).
 *
 * The clock stands still meanwhile, so every caller counts as one that spins. Clock reads show the lingering: progress
 * reads the clock after some calls.
 */
#include "pair.h"

#include "base/yield_abi.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

enum { READS = 8192, ROUNDS = 32, FEW = 64, WAITS = 8, SHORT = 3, LONG = 20 };

static bool is_stopped;
static unsigned clocks, yields;
static long away_ns; /* what a yield adds to the stopped clock */
static long step_ns; /* and each look at it */
static struct timespec stopped;

static void time_passes(long ns)
{
    stopped.tv_nsec += ns % 1000000000;
    stopped.tv_sec += ns / 1000000000 + stopped.tv_nsec / 1000000000;
    stopped.tv_nsec %= 1000000000;
}

/* These two replace the C library's functions, for the provider, too. */

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library has reserved ones */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!is_stopped || clock == CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, now);
    clocks++;
    if (stopped.tv_sec == 0)
        syscall(SYS_clock_gettime, clock, &stopped);
    time_passes(step_ns);
    *now = stopped;
    return 0;
}

__attribute__((visibility("default"))) int sched_yield(void)
{
    yields++;
    time_passes(away_ns);
    return (int)syscall(SYS_sched_yield);
}

uint32_t unimem_yield_found;

/* On one processor, two endpoints that know each other never linger: so a knows no address, and b knows a's. */
static void open_strangers(struct pair *p)
{
    pair_open(p, &(struct pair_config){.counters = true, .strangers = true});
    assert_int_equal(fi_av_insert(p->b.av, p->a.name, 1, &p->b.other, 0, NULL), 1);
    is_stopped = true;
}

static void close_pair(struct pair *p)
{
    is_stopped = false;
    pair_close(p);
}

/* Receives messages, each of which comes after so many empty reads. */
static void wait_for_some(struct pair *p, int reads)
{
    struct fi_cq_tagged_entry entry;
    uint64_t word = 1;
    for (int i = 0; i < WAITS; i++) {
        assert_int_equal(fi_trecv(p->a.ep, &word, sizeof(word), NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
        for (int n = 0; n < reads; n++)
            assert_int_equal(fi_cq_read(p->a.cq, &entry, 1), -FI_EAGAIN);
        PAIR_POST(p, fi_tinject(p->b.ep, &word, sizeof(word), p->b.other, 1));
        assert_int_equal(fi_cq_read(p->a.cq, &entry, 1), 1);
    }
}

/* Makes `reads` empty reads for count entries, with or without a look at a counter before each. Returns the clock
 * reads. */
static unsigned spin(struct side *s, int reads, size_t count, bool counter)
{
    struct fi_cq_tagged_entry entry;
    clocks = yields = 0;
    for (int i = 0; i < reads; i++) {
        if (counter)
            fi_cntr_read(s->cntr[CNTR_WRITE]);
        assert_int_equal(fi_cq_read(s->cq, count ? &entry : NULL, count), -FI_EAGAIN);
    }
    return clocks;
}

/* The same after short waits, again and again. */
static unsigned spin_often(struct pair *p, size_t count, bool counter)
{
    unsigned sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        wait_for_some(p, SHORT);
        sum += spin(&p->a, FEW, count, counter);
    }
    return sum;
}

static void only_who_awaits_messages_lingers(void **state)
{
    struct pair p;
    (void)state;
    open_strangers(&p);
    const unsigned messages = spin_often(&p, 1, false), progress = spin_often(&p, 0, false),
                   counter = spin_often(&p, 1, true);
    assert_true(messages > ROUNDS * FEW / 8);
    if (progress > messages / 2)
        fail_msg("a call for progress alone lingers: %u looks at the clock, %u of one for messages", progress,
                 messages);
    if (counter > messages / 2)
        fail_msg("a caller that reads a counter lingers: %u looks at the clock, otherwise %u", counter, messages);
    assert_int_equal(yields, 0);
    close_pair(&p);
}

/* Makes a read of one entry. Returns whether it told sched_yield() that it had found something. */
static bool tells_of_read(struct side *s, ssize_t expected)
{
    struct fi_cq_tagged_entry entry;
    unimem_yield_found = 0;
    assert_int_equal(fi_cq_read(s->cq, &entry, 1), expected);
    return unimem_yield_found;
}

static void reads_tell_that_they_have_found_something(void **state)
{
    struct pair p;
    uint64_t word[2] = {1, 2};
    (void)state;
    open_strangers(&p);
    assert_false(tells_of_read(&p.a, -FI_EAGAIN));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fi_trecv(p.a.ep, &word[i], sizeof(word[i]), NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
        PAIR_POST(&p, fi_tinject(p.b.ep, &word[i], sizeof(word[i]), p.b.other, 1));
    }
    assert_true(tells_of_read(&p.a, 1)); /* straight into the array */
    assert_true(tells_of_read(&p.a, 1)); /* out of the queue */
    assert_false(tells_of_read(&p.a, -FI_EAGAIN));
    close_pair(&p);
}

/* A caller that has read in vain for long does not linger any more; short waits bring that back, long ones do not. */
static void who_tests_in_vain_for_long_does_not_linger(void **state)
{
    struct pair p;
    (void)state;
    open_strangers(&p);
    (void)spin(&p.a, READS, 1, false);
    const unsigned in_vain = spin(&p.a, FEW, 1, false);
    wait_for_some(&p, LONG);
    const unsigned after_long = spin(&p.a, FEW, 1, false);
    wait_for_some(&p, SHORT);
    const unsigned after_short = spin(&p.a, FEW, 1, false);
    if (after_long > in_vain + 1 || after_short < 2 * after_long)
        fail_msg(
            "%u looks at the clock in a few empty reads after many others, %u after long waits, %u after short ones",
            in_vain, after_long, after_short);
    close_pair(&p);
}

static void *wait_for_the_end(void *fd)
{
    char byte;
    return read(*(int *)fd, &byte, 1) < 0 ? fd : NULL;
}

/* The last case but one: from here on the process is one that has had several threads. */
static void where_there_are_other_threads_nobody_lingers(void **state)
{
    struct pair p;
    pthread_t thread;
    int ends[2];
    void *failed;
    (void)state;
    open_strangers(&p);
    const unsigned alone = spin_often(&p, 1, false);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_the_end, &ends[0]), 0);
    const unsigned beside = spin_often(&p, 1, false);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(close(ends[0]), 0);
    if (beside > alone / 2)
        fail_msg("%u looks at the clock beside another thread, %u alone", beside, alone);
    close_pair(&p);
}

static void who_spins_gives_way_where_ranks_outnumber_processors(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    for (int i = 0; i < get_nprocs(); i++) {
        unsigned char name[PAIR_ADDR_MAX];
        fi_addr_t addr;
        memcpy(name, p.a.name, sizeof(name));
        name[16] ^= (unsigned char)(1 + i % 255); /* addresses of ports that could be this process's */
        name[17] ^= (unsigned char)(i / 255);
        assert_int_equal(fi_av_insert(p.a.av, name, 1, &addr, 0, NULL), 1);
    }
    is_stopped = true;
    spin(&p.a, FEW, 1, false);
    assert_true(yields > 1); /* at once */
    spin(&p.a, READS, 1, false);
    if (yields < READS / 64)
        fail_msg("%d empty reads gave way %u times", READS, yields);
    spin(&p.a, READS, 0, false);
    assert_true(yields >= READS / 64);
    close_pair(&p);
}

/* The number of times that so many reads of a counter yield. */
static unsigned yields_of_counter(struct side *s, int reads)
{
    yields = 0;
    for (int i = 0; i < reads; i++)
        fi_cntr_read(s->cntr[CNTR_WRITE]);
    return yields;
}

/* Another process may wait for this processor: those whom it may share it with are not known. */
static void who_waits_for_long_gives_way(void **state)
{
    struct pair p;
    (void)state;
    open_strangers(&p);
    for (int i = 0; i < 2; i++) {
        wait_for_some(&p, LONG);
        spin(&p.a, FEW, 1, false);
        assert_int_equal(yields, 0);
        spin(&p.a, READS, 1, false);
        if (yields < READS / 64)
            fail_msg("%d empty reads gave way %u times", READS, yields);
    }
    wait_for_some(&p, LONG);
    assert_int_equal(yields_of_counter(&p.a, 512), 0);
    assert_true(yields_of_counter(&p.a, 2048) > 0);
    close_pair(&p);
}

/* A yield that found no one to run: the next one comes after as many reads. */
static void who_gives_way_in_vain_waits_as_long_again(void **state)
{
    enum { NO_ONE_NS = 300 };
    struct pair p;
    (void)state;
    open_strangers(&p);
    away_ns = NO_ONE_NS;
    spin(&p.a, READS, 1, false);
    away_ns = 0;
    if (yields < READS / 512 || yields > READS / 128)
        fail_msg("%d empty reads gave way %u times", READS, yields);
    close_pair(&p);
}

/* It waits for nothing that a process on its processor could bring. */
static void who_reads_a_counter_that_changes_keeps_its_processor(void **state)
{
    struct pair p;
    (void)state;
    open_strangers(&p);
    for (int i = 0; i < READS / FEW; i++) {
        assert_int_equal(fi_cntr_add(p.a.cntr[CNTR_WRITE], 1), 0);
        assert_int_equal(yields_of_counter(&p.a, FEW), 0);
    }
    close_pair(&p);
}

/* Once a yield has let another process run, the next ones come early; for a while only, if they find no one to run. */
static void who_shares_its_processor_gives_way_soon(void **state)
{
    enum { NO_ONE_NS = 300, LONG_NS = 20000 };
    struct pair p;
    (void)state;
    open_strangers(&p);
    away_ns = LONG_NS;
    spin(&p.a, READS, 1, false);
    away_ns = NO_ONE_NS;
    wait_for_some(&p, LONG);
    spin(&p.a, FEW, 1, false);
    assert_true(yields > 1);
    spin(&p.a, READS, 1, false);
    wait_for_some(&p, LONG);
    spin(&p.a, FEW, 1, false);
    assert_int_equal(yields, 0);
    away_ns = 0;
    close_pair(&p);
}

/* A yield that took a time slice helped a process that has nothing to do with this one. The next one comes later, and
 * after another such yield later still. */
static void who_shares_it_with_a_process_that_computes_keeps_it(void **state)
{
    enum { SLICE_NS = 4000000 };
    static const struct {
        long ms; /* since the last step */
        unsigned yields;
    } step[] = {{0, 1}, {10, 0}, {20, 1}, {30, 0}, {30, 1}, {60, 0}};
    struct pair p;
    (void)state;
    open_strangers(&p);
    for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
        time_passes(step[i].ms * 1000000);
        away_ns = SLICE_NS;
        spin(&p.a, READS, 1, false);
        away_ns = 0;
        assert_int_equal(yields, step[i].yields);
    }
    /* A long stall ends it, or two processes that wait for each other would take each other for such ones. */
    step_ns = 1000;
    spin(&p.a, READS, 1, false);
    assert_true(yields > 0);
    step_ns = 0;
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_who_awaits_messages_lingers),
        cmocka_unit_test(reads_tell_that_they_have_found_something),
        cmocka_unit_test(who_tests_in_vain_for_long_does_not_linger),
        cmocka_unit_test(who_waits_for_long_gives_way),
        cmocka_unit_test(who_gives_way_in_vain_waits_as_long_again),
        cmocka_unit_test(who_reads_a_counter_that_changes_keeps_its_processor),
        cmocka_unit_test(who_shares_its_processor_gives_way_soon),
        cmocka_unit_test(who_shares_it_with_a_process_that_computes_keeps_it),
        cmocka_unit_test(where_there_are_other_threads_nobody_lingers),
        cmocka_unit_test(who_spins_gives_way_where_ranks_outnumber_processors),
    };
    return cmocka_run_group_tests_name("spin", tests, NULL, NULL);
}
