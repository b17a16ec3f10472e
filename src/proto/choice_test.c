/* choice.h: what is learned from bodies whose times are made up. */
#include "proto/choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t LEN = 100000;

static uint64_t random_state = 88172645463325252u;

static uint32_t rnd(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % n;
}

/* So many bodies that take so long; how many of them were pushed. slice: every so many-th takes 500 times as long. */
static unsigned run(struct um_proto_choice *c, uint64_t len, unsigned bodies, const uint64_t ns[UM_WAYS],
                    unsigned slice)
{
    unsigned pushed = 0;
    for (unsigned i = 0; i < bodies; i++) {
        enum um_proto_way way = um_proto_choice_take(c, len);
        uint64_t took = ns[way] + ns[way] * rnd(20) / 100;
        um_proto_choice_tell(c, len, way, slice && rnd(slice) == 0 ? took * 500 : took, len);
        pushed += way == UM_WAY_PUSH;
    }
    return pushed;
}

static void the_faster_way_is_taken(void **state)
{
    (void)state;
    struct um_proto_choice push = {0}, read = {0};
    const uint64_t ring_is_fast[] = {10000, 2500}, system_is_fast[] = {8000, 10000};
    assert_true(run(&push, LEN, 10, ring_is_fast, 0) >= 6);
    assert_true(run(&push, LEN, 1000, ring_is_fast, 0) >= 980);
    run(&read, LEN, 10, system_is_fast, 0);
    assert_true(run(&read, LEN, 1000, system_is_fast, 0) <= 40);
}

static void each_class_of_sizes_learns_by_itself(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_fast[] = {10000, 2500}, system_is_fast[] = {8000, 20000};
    run(&c, 40000, 100, ring_is_fast, 0);
    run(&c, 4000000, 100, system_is_fast, 0);
    assert_true(run(&c, 40000, 100, ring_is_fast, 0) >= 90);
    assert_true(run(&c, 4000000, 100, system_is_fast, 0) <= 10);
    run(&c, 0, 20, ring_is_fast, 0);
    run(&c, UINT64_MAX, 20, ring_is_fast, 0); /* of any size */
}

static void a_new_class_begins_like_its_neighbour(void **state)
{
    (void)state;
    const uint64_t ring_is_fast[] = {10000, 2500}, system_is_fast[] = {2500, 10000};
    struct um_proto_choice push = {0}, read = {0};
    run(&push, LEN, 1000, ring_is_fast, 0);
    assert_int_equal(run(&push, 2 * LEN, UM_CHOICE_SOON, ring_is_fast, 0), UM_CHOICE_SOON);
    assert_int_equal(run(&push, LEN / 2, UM_CHOICE_SOON, ring_is_fast, 0), UM_CHOICE_SOON);
    run(&read, LEN, 1000, system_is_fast, 0);
    assert_int_equal(run(&read, 2 * LEN, UM_CHOICE_SOON, system_is_fast, 0), 0);
    /* where it is the other way round, that is found out */
    assert_true(run(&push, 4 * LEN, 100, system_is_fast, 0) <= 30);
}

static void a_trial_of_a_slow_way_costs_one_body(void **state)
{
    (void)state;
    const uint64_t much_slower[] = {2500, 10000}, slower[] = {10000, 14000};
    struct um_proto_choice much = {0}, some = {0};
    assert_int_equal(run(&much, LEN, UM_CHOICE_TRIES + 1 + UM_CHOICE_SOON, much_slower, 0), 1);
    assert_int_equal(run(&some, LEN, UM_CHOICE_TRIES + 2 + UM_CHOICE_SOON, slower, 0), 2);
}

/* Neither before there is a comparison nor by a trial of the other way. */
static void what_is_preferred_has_been_compared(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_fast[] = {10000, 2500}, system_is_fast[] = {2500, 10000};
    assert_false(um_proto_choice_prefers(&c, LEN, UM_WAY_READ));
    assert_false(um_proto_choice_prefers(&c, LEN, UM_WAY_PUSH));
    run(&c, LEN, UM_CHOICE_TRIES, ring_is_fast, 0);
    assert_false(um_proto_choice_prefers(&c, LEN, UM_WAY_READ));
    run(&c, LEN, 20, ring_is_fast, 0);
    assert_true(um_proto_choice_prefers(&c, LEN, UM_WAY_PUSH));
    assert_false(um_proto_choice_prefers(&c, 4 * LEN, UM_WAY_PUSH));
    run(&c, LEN, 200, system_is_fast, 0);
    for (int i = 0; i < 3000; i++) {
        run(&c, LEN, 1, system_is_fast, 0);
        assert_false(um_proto_choice_prefers(&c, LEN, UM_WAY_PUSH));
    }
}

/* At first a ring is cold and has not grown. */
static void slow_trials_at_first_do_not_put_off_the_next_ones(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_cold[] = {10000, 40000}, ring_is_fast[] = {10000, 2500};
    run(&c, LEN, 45, ring_is_cold, 0);
    assert_true(run(&c, LEN, 40, ring_is_fast, 0) >= 20);
}

static void what_changes_is_noticed(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_fast[] = {10000, 2500}, system_is_fast[] = {10000, 40000}, ring_again[] = {10000, 5000};
    run(&c, LEN, 1000, ring_is_fast, 0);
    run(&c, LEN, 20, system_is_fast, 0); /* what is in use is seen at every body */
    assert_true(run(&c, LEN, 100, system_is_fast, 0) <= 10);
    run(&c, LEN, 2000, system_is_fast, 0);
    run(&c, LEN, 2 * UM_CHOICE_LATE, ring_again, 0); /* what is not in use is tried now and then */
    assert_true(run(&c, LEN, 100, ring_again, 0) >= 90);
}

static void a_time_slice_does_not_change_the_way(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_fast[] = {10000, 2500};
    run(&c, LEN, 100, ring_is_fast, 0);
    assert_true(run(&c, LEN, 2000, ring_is_fast, 20) >= 1900);
}

static void bodies_announced_together_are_not_all_trials(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    enum um_proto_way way[64];
    unsigned pushed = 0;
    for (int i = 0; i < 64; i++) { /* none has ended when the last one is announced, but those that are read */
        way[i] = um_proto_choice_take(&c, LEN);
        if (way[i] == UM_WAY_READ)
            um_proto_choice_tell(&c, LEN, UM_WAY_READ, 10000, LEN);
        pushed += way[i] == UM_WAY_PUSH;
    }
    assert_true(pushed <= UM_CHOICE_TRIES * (1 + 64 / UM_CHOICE_SOON));
    for (int i = 0; i < 64; i++) {
        if (way[i] == UM_WAY_PUSH)
            um_proto_choice_tell(&c, LEN, UM_WAY_PUSH, 2500, LEN);
    }
    assert_int_equal(um_proto_choice_take(&c, LEN), UM_WAY_PUSH);
    um_proto_choice_tell(&c, LEN, UM_WAY_PUSH, UINT64_MAX, 1); /* no time is too long, none too short */
    um_proto_choice_tell(&c, LEN, UM_WAY_READ, 0, UINT64_MAX);
    um_proto_choice_tell(&c, LEN, UM_WAY_READ, 0, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_way_is_taken),
        cmocka_unit_test(each_class_of_sizes_learns_by_itself),
        cmocka_unit_test(a_new_class_begins_like_its_neighbour),
        cmocka_unit_test(a_trial_of_a_slow_way_costs_one_body),
        cmocka_unit_test(what_is_preferred_has_been_compared),
        cmocka_unit_test(slow_trials_at_first_do_not_put_off_the_next_ones),
        cmocka_unit_test(what_changes_is_noticed),
        cmocka_unit_test(a_time_slice_does_not_change_the_way),
        cmocka_unit_test(bodies_announced_together_are_not_all_trials),
    };
    return cmocka_run_group_tests_name("choice", tests, NULL, NULL);
}
