/* base/lock: holders that never release. Dead ones, and contention, are tested with atomics
 * (proto/atomic_shared_test). */
#define UM_LOCK_WAIT_NS UINT64_C(2000000000)
#include "base/atomic.h"
#include "base/clock.h"
static uint64_t look(const uint64_t *word);
static uint64_t test_clock(void);
#define um_load_relaxed_u64 look
#define um_clock_ns         test_clock
#include "base/lock.c" /* NOLINT(bugprone-suspicious-include): with a shorter wait */
#undef um_load_relaxed_u64
#undef um_clock_ns

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

static int warnings;
static int looks, free_each; /* each so many looks find the lock free, and another takes it first; 0: none does */
static uint64_t stopped_ns;  /* for which the waiter was stopped, as its clock tells */

static uint64_t look(const uint64_t *word)
{
    return free_each != 0 && ++looks % free_each == 0 ? 0 : um_load_relaxed_u64(word);
}

static uint64_t test_clock(void)
{
    return um_clock_ns() + stopped_ns;
}

static void count(enum um_log_level level, const char *text)
{
    (void)text;
    warnings += level == UM_LOG_WARN;
}

static bool lives(uint64_t holder)
{
    (void)holder;
    return true;
}

static bool lives_as_time_passes(uint64_t holder)
{
    (void)holder;
    if (stopped_ns == 0)
        stopped_ns = UINT64_C(3600000000000);
    return true;
}

static void a_lock_that_a_living_holder_keeps_is_taken_over_after_a_second(void **state)
{
    (void)state;
    static struct um_locks_shm locks;
    const struct um_lock_party party = {.self = 7, .alive = lives};
    const uint64_t holders[] = {UINT64_C(1) << 32, 7 /* the word was overwritten: party holds no lock */};
    um_log_set_sink(count);
    for (int i = 0; i < 2; i++) {
        uint64_t began = um_clock_ns();
        locks.lock[0].holder = holders[i];
        um_lock_take(&locks.lock[0], &party);
        assert_true(um_clock_ns() - began > UINT64_C(900000000));
        assert_int_equal(locks.lock[0].holder, 7);
        assert_int_equal(warnings, i + 1);
        um_lock_give(&locks.lock[0]);
        um_lock_take(&locks.lock[0], &party);
        um_lock_give(&locks.lock[0]);
        assert_int_equal(locks.lock[0].holder, 0);
    }
    um_log_set_sink(NULL);
}

/* The time in which the waiter itself does not run tells nothing of the holder. */
static void a_waiter_that_was_stopped_takes_no_lock_over(void **state)
{
    (void)state;
    static struct um_locks_shm locks;
    const struct um_lock_party party = {.self = 7, .alive = lives_as_time_passes};
    uint64_t began = um_clock_ns();
    um_log_set_sink(count);
    warnings = 0;
    locks.lock[0].holder = UINT64_C(1) << 32;
    um_lock_take(&locks.lock[0], &party);
    /* Of the hour that passes at the first check, a tenth of a second counts. */
    assert_true(um_clock_ns() - began > UINT64_C(800000000));
    assert_int_equal(warnings, 1);
    um_log_set_sink(NULL);
    stopped_ns = 0;
}

/* Who gives a lock back and takes it again has not held it all the time. */
static void a_holder_that_gives_the_lock_back_in_between_keeps_it(void **state)
{
    (void)state;
    static struct um_locks_shm locks;
    const struct um_lock_party party = {.self = 7, .alive = lives};
    uint64_t began = um_clock_ns();
    um_log_set_sink(count);
    warnings = 0;
    looks = 0;
    free_each = 1000;
    locks.lock[0].holder = UINT64_C(1) << 32;
    um_lock_take(&locks.lock[0], &party);
    assert_true(um_clock_ns() - began >= UM_LOCK_WAIT_NS); /* not before the end of any wait */
    assert_int_equal(warnings, 1);
    um_log_set_sink(NULL);
    free_each = 0;
}

struct scribbler {
    uint64_t *word;
    uint64_t stop;
};

static void *scribble(void *arg)
{
    struct scribbler *s = arg;
    for (uint64_t value = 1; !um_load_relaxed_u64(&s->stop); value++)
        um_store_relaxed_u64(s->word, value << 32 | 5);
    return NULL;
}

/* No holder is ever seen for a second. */
static void a_word_that_somebody_overwrites_for_ever_stops_nobody(void **state)
{
    (void)state;
    static struct um_locks_shm locks;
    const struct um_lock_party party = {.self = 7, .alive = lives};
    struct scribbler s = {.word = &locks.lock[0].holder};
    pthread_t thread;
    um_log_set_sink(count);
    warnings = 0;
    locks.lock[0].holder = 5;
    assert_int_equal(pthread_create(&thread, NULL, scribble, &s), 0);
    um_lock_take(&locks.lock[0], &party);
    assert_int_equal(warnings, 1);
    um_store_relaxed_u64(&s.stop, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    um_log_set_sink(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_that_a_living_holder_keeps_is_taken_over_after_a_second),
        cmocka_unit_test(a_waiter_that_was_stopped_takes_no_lock_over),
        cmocka_unit_test(a_holder_that_gives_the_lock_back_in_between_keeps_it),
        cmocka_unit_test(a_word_that_somebody_overwrites_for_ever_stops_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
