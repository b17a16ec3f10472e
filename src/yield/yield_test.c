/* Tests of yield.c, which is compiled in, with a kernel and a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t clock_ns, call_ns;
static long ticks;
static unsigned calls; /* that went to the kernel */

static long test_syscall(long number)
{
    assert_int_equal(number, SYS_sched_yield);
    calls++;
    clock_ns += call_ns;
    return 0;
}

static int test_clock_gettime(clockid_t id, struct timespec *ts)
{
    if (id == CLOCK_MONOTONIC_COARSE) {
        *ts = (struct timespec){.tv_nsec = ticks};
        return 0;
    }
    *ts = (struct timespec){.tv_sec = (time_t)(clock_ns / 1000000000), .tv_nsec = (long)(clock_ns % 1000000000)};
    return 0;
}

#define syscall       test_syscall
#define clock_gettime test_clock_gettime
#define sched_yield   test_sched_yield
#include "yield/yield.c" /* NOLINT(bugprone-suspicious-include): so that it can be told what time it is */

/* Makes count calls, each of which takes ns in the kernel. Returns how many went to the kernel. */
static unsigned yields(unsigned count, uint64_t ns)
{
    calls = 0;
    call_ns = ns;
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(test_sched_yield(), 0);
    return calls;
}

static int setup(void **state)
{
    (void)state;
    um_yield = (struct um_yield){.least_ns = UM_YIELD_LEAST_NS};
    unimem_yield_found = 0;
    return 0;
}

static void where_nobody_waits_one_of_many_is_a_system_call(void **state)
{
    (void)state;
    assert_int_equal(yields(1, 400), 1);
    assert_in_range(yields(3200, 400), 99, 101);
    assert_in_range(yields(3200, 700), 99, 101); /* some take a little longer */
}

static void where_another_one_runs_meanwhile_each_is(void **state)
{
    (void)state;
    yields(64, 400);
    yields(32, 9000); /* one of these calls is a system call */
    assert_int_equal(yields(2000, 9000), 2000);
    assert_int_equal(yields(UM_YIELD_SHARED / 2, 400), UM_YIELD_SHARED / 2); /* the other thread may come back */
    assert_int_equal(yields(UM_YIELD_SHARED, 9000), UM_YIELD_SHARED);
}

static void a_few_quick_calls_prove_nothing(void **state)
{
    (void)state;
    yields(64, 400);
    while (yields(1, 9000) == 0) /* up to the next call that is a system call */
        ;
    const unsigned few = UM_YIELD_SHARED - UM_YIELD_PROOF / 2;
    assert_int_equal(yields(few, 400), few);
}

static void when_the_other_one_has_gone_they_are_left_out_again(void **state)
{
    (void)state;
    yields(64, 400);
    yields(64, 9000);
    yields(2 * UM_YIELD_SHARED, 400);
    assert_in_range(yields(3200, 400), 99, 101);
}

/* The same with turns that bring completions, every other one if `alternates`. */
static unsigned yields_after_finds(unsigned count, bool alternates)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < count; i++) {
        unimem_yield_found = !alternates || i % 2 == 0;
        sum += yields(1, 9000);
    }
    return sum;
}

static void on_a_shared_processor_who_has_found_something_goes_on(void **state)
{
    (void)state;
    assert_int_equal(yields(64, 9000), 64);
    assert_int_equal(yields_after_finds(100, true), 50);
    assert_int_equal(yields_after_finds(1, false), 0);
    assert_int_equal(yields(1, 9000), 1);                   /* this turn has found nothing */
    assert_int_equal(yields_after_finds(3200, false), 100); /* others get their turn */
    unimem_yield_found = 1;
    ticks++;
    assert_int_equal(yields(1, 9000), 1);
    assert_int_equal(yields(1, 9000), 1); /* that find was of the turn before */
}

/* Finds do not delay the call that notices the other thread. */
static void with_a_processor_of_its_own_finds_change_nothing(void **state)
{
    (void)state;
    yields(64, 400);
    assert_int_equal(yields_after_finds(1, false), 1); /* after 64 calls one is a system call in any case */
}

/* Each call lets another thread run: the time of a quick call is not known. */
static void who_begins_on_a_shared_processor_finds_out(void **state)
{
    (void)state;
    assert_int_equal(yields(1000, 9000), 1000);
}

static void who_yields_seldom_does_so_each_time(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        ticks++;
        assert_int_equal(yields(1, 400), 1);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(where_nobody_waits_one_of_many_is_a_system_call, setup),
        cmocka_unit_test_setup(where_another_one_runs_meanwhile_each_is, setup),
        cmocka_unit_test_setup(a_few_quick_calls_prove_nothing, setup),
        cmocka_unit_test_setup(when_the_other_one_has_gone_they_are_left_out_again, setup),
        cmocka_unit_test_setup(on_a_shared_processor_who_has_found_something_goes_on, setup),
        cmocka_unit_test_setup(with_a_processor_of_its_own_finds_change_nothing, setup),
        cmocka_unit_test_setup(who_begins_on_a_shared_processor_finds_out, setup),
        cmocka_unit_test_setup(who_yields_seldom_does_so_each_time, setup),
    };
    return cmocka_run_group_tests_name("yield", tests, NULL, NULL);
}
