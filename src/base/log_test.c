/* Tests of base/log.h: a repeated message does not flood the log. */
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int lines;
static char last[1200];

static void keep(enum um_log_level level, const char *text)
{
    (void)level;
    snprintf(last, sizeof(last), "%s", text);
    lines++;
}

static int set_up(void **state)
{
    (void)state;
    lines = 0;
    um_log_set_sink(keep);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    um_log_set_sink(NULL);
    return 0;
}

static void say(struct um_log_limit *limit, int times)
{
    for (int i = 0; i < times; i++)
        um_log_limited(limit, UM_LOG_WARN, "number %d", i);
}

static void the_first_ones_are_logged_the_others_of_the_period_are_not(void **state)
{
    (void)state;
    struct um_log_limit limit = {0}, other = {0};
    say(&limit, 1000);
    assert_int_equal(lines, UM_LOG_BURST);
    assert_string_equal(last, "number 3");
    say(&other, 1); /* another call site has its own limit */
    assert_int_equal(lines, UM_LOG_BURST + 1);
    assert_string_equal(last, "number 0");
}

static void the_next_period_tells_how_many_were_left_out(void **state)
{
    (void)state;
    struct um_log_limit limit = {0};
    say(&limit, 1000);
    limit.since_ns -= UM_LOG_PERIOD_NS;
    say(&limit, 1);
    assert_int_equal(lines, UM_LOG_BURST + 1);
    assert_string_equal(last, "number 0 (996 more like this were not logged)");
    say(&limit, 1);
    assert_string_equal(last, "number 0");
    limit.since_ns -= UM_LOG_PERIOD_NS;
    say(&limit, 1); /* nothing was left out meanwhile */
    assert_string_equal(last, "number 0");
    assert_int_equal(lines, UM_LOG_BURST + 3);
}

static void a_line_that_fills_the_buffer_stays_whole_in_it(void **state)
{
    (void)state;
    struct um_log_limit limit = {0};
    say(&limit, 1000);
    limit.since_ns -= UM_LOG_PERIOD_NS;
    um_log_limited(&limit, UM_LOG_WARN, "%02000d", 1);
    assert_int_equal(strlen(last), 1023);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_ones_are_logged_the_others_of_the_period_are_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_next_period_tells_how_many_were_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_that_fills_the_buffer_stays_whole_in_it, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
