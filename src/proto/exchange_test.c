/* Tests of exchange.h, with bodies whose times are made up. */
#include "proto/exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t LEN = 100000;

enum { READ, PUSH };

enum { SIDES = 2 };

/* Moves bodies in both directions at once. Returns how many of them were pushed. Each side copies its half of a pushed
 * body in copy_ns, reads a body in read_ns, and does all that is asked of it before it waits. */
static unsigned run_both_ways(struct um_proto_choice c[SIDES], unsigned bodies, uint64_t copy_ns, uint64_t read_ns)
{
    unsigned pushed = 0;
    for (unsigned i = 0; i < bodies; i++) {
        uint64_t busy[SIDES], reading[SIDES];
        unsigned way[SIDES];
        for (int s = 0; s < SIDES; s++)
            way[s] = um_proto_choice_take(&c[s], LEN);
        for (int s = 0; s < SIDES; s++) {
            reading[s] = way[s] == READ ? read_ns : 0;
            busy[s] = reading[s] + (way[s] == PUSH ? copy_ns : 0) + (way[1 - s] == PUSH ? copy_ns : 0);
        }
        for (int s = 0; s < SIDES; s++) {
            const uint64_t waited = busy[s] > busy[1 - s] ? busy[s] : busy[1 - s];
            const uint64_t ns = way[s] == READ ? read_ns : um_proto_exchange_pushed_ns(waited, reading[1 - s], copy_ns);
            um_proto_choice_tell(&c[s], LEN, way[s], ns, LEN);
            pushed += way[s] == PUSH;
        }
    }
    return pushed;
}

static void both_sides_find_what_is_better_for_both(void **state)
{
    (void)state;
    struct um_proto_choice push[SIDES] = {0}, read[SIDES] = {0};
    for (int i = 0; i < 8; i++) { /* the trials of the two sides do not coincide */
        const unsigned way = um_proto_choice_take(&push[1], LEN);
        um_proto_choice_tell(&push[1], LEN, way, way == READ ? 6000 : 9000, LEN);
    }
    run_both_ways(push, 100, 1600, 6000);
    assert_true(run_both_ways(push, 1000, 1600, 6000) >= 1900);
    run_both_ways(read, 100, 1600, 2500);
    assert_true(run_both_ways(read, 1000, 1600, 2500) <= 100);
}

static void only_the_reads_of_the_sender_are_left_out(void **state)
{
    (void)state;
    assert_int_equal(um_proto_exchange_pushed_ns(10000, 0, 1000), 10000);   /* the sender did not read */
    assert_int_equal(um_proto_exchange_pushed_ns(10000, 3000, 1000), 7000); /* what is not reading counts */
    assert_int_equal(um_proto_exchange_pushed_ns(10000, 9500, 1000), 2000); /* at least both halves remain */
    assert_int_equal(um_proto_exchange_pushed_ns(10000, 20000, 1000), 2000);
    assert_int_equal(um_proto_exchange_pushed_ns(1500, 20000, 1000), 1500); /* never longer than it took */
    assert_int_equal(um_proto_exchange_pushed_ns(10000, 9500, 0), 10000);   /* this side's half is not known */
}

static bool goes_both_ways(struct um_proto_exchange *x, uint64_t sent, uint64_t came)
{
    um_proto_exchange_note(x, sent, came);
    return um_proto_exchange_is_on(x);
}

static void bodies_go_both_ways_if_half_as_much_is_sent(void **state)
{
    (void)state;
    enum { STEP = UM_EXCHANGE_BYTES };
    struct um_proto_exchange x = {0};
    assert_false(goes_both_ways(&x, 100 * STEP, STEP));         /* what was sent before says nothing */
    assert_false(goes_both_ways(&x, 101 * STEP, 2 * STEP - 1)); /* too early to tell */
    assert_true(goes_both_ways(&x, 101 * STEP, 2 * STEP));
    assert_true(goes_both_ways(&x, 101 * STEP, 3 * STEP - 1));
    uint64_t pushed = 2 * STEP;
    for (int i = 1; i < UM_EXCHANGE_HOLD; i++) /* nothing is sent for a while */
        assert_true(goes_both_ways(&x, 101 * STEP, pushed += STEP));
    assert_false(goes_both_ways(&x, 101 * STEP, pushed += STEP));
    assert_false(goes_both_ways(&x, 101 * STEP + STEP / 2 - 1, pushed += STEP));
    assert_true(goes_both_ways(&x, 102 * STEP - 1, pushed += STEP));
    assert_true(goes_both_ways(&x, 102 * STEP - 1, pushed += STEP));
}

/* Returns how many of these bodies have a loan. */
static unsigned loans(struct um_proto_loan *loan, unsigned bodies, bool reads, uint64_t now)
{
    unsigned lent = 0;
    for (unsigned i = 0; i < bodies; i++)
        lent += um_proto_loan_take(loan, reads, now);
    return lent;
}

static void a_loan_ends_and_is_given_again(void **state)
{
    (void)state;
    struct um_proto_loan loan = {0};
    assert_int_equal(loans(&loan, 10, false, 1), 0);
    assert_int_equal(loans(&loan, 3 * UM_LOAN_MAX, true, 1), UM_LOAN_MAX);
    assert_int_equal(loans(&loan, 100, true, UM_LOAN_PAUSE_NS), 0);
    assert_int_equal(loans(&loan, 3 * UM_LOAN_MAX, true, UM_LOAN_PAUSE_NS + 1), UM_LOAN_MAX);
    loan = (struct um_proto_loan){0};
    for (unsigned i = 0; i < 4 * UM_LOAN_MAX; i++) { /* a sender that reads now and then has not ceased to read */
        loans(&loan, 1, true, 1);
        loans(&loan, UM_LOAN_STILL / 2, false, 1);
    }
    assert_int_equal(loans(&loan, 1, true, 1), 0);
}

static void who_pushes_owes_nothing(void **state)
{
    (void)state;
    struct um_proto_loan loan = {0};
    assert_int_equal(loans(&loan, UM_LOAN_MAX - 1, true, 1), UM_LOAN_MAX - 1);
    loans(&loan, UM_LOAN_STILL, false, 1);
    assert_int_equal(loans(&loan, UM_LOAN_MAX, true, 1), UM_LOAN_MAX);
}

static void a_rate_is_that_of_the_last_bytes(void **state)
{
    (void)state;
    struct um_proto_rate rate = {0};
    assert_int_equal(um_proto_rate_ns(&rate, 1000), 0);
    um_proto_rate_add(&rate, 500, 1000);
    assert_int_equal(um_proto_rate_ns(&rate, 4000), 2000);
    for (int i = 0; i < 200; i++)
        um_proto_rate_add(&rate, 400000, 100000);
    assert_in_range(um_proto_rate_ns(&rate, 1000), 3900, 4000);
    for (int i = 0; i < 200; i++)
        um_proto_rate_add(&rate, 10000, 100000);
    assert_in_range(um_proto_rate_ns(&rate, 1000), 95, 105);
    assert_true(um_proto_rate_ns(&rate, UINT64_C(1) << 50) > 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_find_what_is_better_for_both),
        cmocka_unit_test(only_the_reads_of_the_sender_are_left_out),
        cmocka_unit_test(bodies_go_both_ways_if_half_as_much_is_sent),
        cmocka_unit_test(a_loan_ends_and_is_given_again),
        cmocka_unit_test(who_pushes_owes_nothing),
        cmocka_unit_test(a_rate_is_that_of_the_last_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
