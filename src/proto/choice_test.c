/* Tests of choice.h, with bodies whose times are made up. */
#include "proto/choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t LEN = 100000;

enum { READ, PUSH };

static uint64_t random_state = 88172645463325252u;

static uint32_t rnd(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % n;
}

/* Moves bodies that take ns[way] and up to a fifth more. Returns how many of them were pushed. slice: about one body in
 * so many takes 500 times as long; 0: none. */
static unsigned run(struct um_proto_choice *c, uint64_t len, unsigned bodies, const uint64_t ns[UM_CHOICE_WAYS],
                    unsigned slice)
{
    unsigned pushed = 0;
    for (unsigned i = 0; i < bodies; i++) {
        unsigned way = um_proto_choice_take(c, len);
        uint64_t took = ns[way] + ns[way] * rnd(20) / 100;
        um_proto_choice_tell(c, len, way, slice && rnd(slice) == 0 ? took * 500 : took, len);
        pushed += way == PUSH;
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
    run(&c, UINT64_MAX, 20, ring_is_fast, 0); /* any size is accepted */
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
    /* where the other way is better, that is noticed */
    assert_true(run(&push, 4 * LEN, 100, system_is_fast, 0) <= 30);
}

static void a_trial_of_a_slow_way_costs_few_bodies(void **state)
{
    (void)state;
    const uint64_t much_slower[] = {2500, 10000}, slower[] = {10000, 14000};
    const int before = UM_CHOICE_TRIES;
    struct um_proto_choice much = {0}, some = {0};
    assert_int_equal(run(&much, LEN, before + UM_CHOICE_TRIES + UM_CHOICE_SOON, much_slower, 0), UM_CHOICE_TRIES);
    assert_int_equal(run(&much, LEN, 2 + UM_CHOICE_SOON, much_slower, 0), 2);
    assert_int_equal(run(&some, LEN, before + UM_CHOICE_TRIES_LONG + UM_CHOICE_SOON, slower, 0), UM_CHOICE_TRIES_LONG);
    assert_int_equal(run(&some, LEN, 2 + UM_CHOICE_SOON, slower, 0), 2);
}

/* Its first bodies find pages and caches that it has not used yet. */
static void a_fast_way_is_found_although_its_first_bodies_are_slow(void **state)
{
    (void)state;
    const uint64_t first[] = {2500, 40000}, then[] = {2500, 1000};
    struct um_proto_choice c = {0};
    run(&c, LEN, UM_CHOICE_TRIES + UM_CHOICE_TRIES - 1, first, 0);
    assert_false(um_proto_choice_prefers(&c, LEN, PUSH));
    assert_int_equal(run(&c, LEN, UM_CHOICE_SOON, then, 0), UM_CHOICE_SOON);
    assert_true(um_proto_choice_prefers(&c, LEN, PUSH));
}

/* After each change of the way, caches adapt: some bodies take several times as long. */
struct adapting {
    unsigned bodies, times;
    uint64_t fast, slow; /* ns of a body by either way, once caches have adapted */
};

/* Moves 3000 bodies, of which the way `fast` is the faster one, though it was not at first. Returns how many of the
 * last 2000 went that way. */
static unsigned run_adapting(const struct adapting *a, unsigned fast)
{
    struct um_proto_choice c = {0};
    unsigned last = 1 - fast, since = a->bodies, taken = 0;
    uint64_t at_first[] = {a->slow, a->slow};
    at_first[fast] = 40000;
    run(&c, LEN, 200, at_first, 0);
    for (int i = 0; i < 3000; i++) {
        const unsigned way = um_proto_choice_take(&c, LEN);
        const uint64_t ns = way == fast ? a->fast : a->slow;
        since = way == last ? since + 1 : 0;
        last = way;
        um_proto_choice_tell(&c, LEN, way, since < a->bodies ? a->times * ns : ns, LEN);
        taken += i >= 1000 && way == fast;
    }
    return taken;
}

static void a_fast_way_is_found_although_caches_adapt_after_each_change(void **state)
{
    (void)state;
    static const struct adapting cases[] = {
        {UM_CHOICE_ADAPT + 1, 2, 4600, 7000}, {UM_CHOICE_ADAPT, 4, 4600, 7000}, {UM_CHOICE_ADAPT, 2, 4600, 5060}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(run_adapting(&cases[i], READ) >= 1900);
        assert_true(run_adapting(&cases[i], PUSH) >= 1900);
    }
}

/* A disturbance makes a few bodies slow; after it the way in use is as fast as before. */
static void slow_bodies_do_not_change_the_way_before_a_trial(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_fast[] = {5500, 4600}, disturbed[] = {5500, 7500};
    run(&c, LEN, 1000, ring_is_fast, 0);
    while (um_proto_choice_next(&c, LEN) != PUSH || c.of[um_proto_choice_class(LEN)].left < 2 * UM_CHOICE_SOON)
        run(&c, LEN, 1, ring_is_fast, 0);
    assert_int_equal(run(&c, LEN, 6, disturbed, 0), 6);
    assert_int_equal(run(&c, LEN, UM_CHOICE_SOON - 6, ring_is_fast, 0), UM_CHOICE_SOON - 6);
    assert_true(run(&c, LEN, 100, ring_is_fast, 0) >= 80); /* the trial that follows finds it the faster one */
}

static void a_body_compares_at_the_begin_of_a_trial_and_behind_it(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    assert_false(um_proto_choice_compares(&c, LEN, READ));
    const uint64_t ring_is_fast[] = {7000, 4600};
    run(&c, LEN, 100, ring_is_fast, 0);
    unsigned compared = 0;
    for (int i = 0; i < 300; i++) {
        compared += um_proto_choice_compares(&c, LEN, READ);
        run(&c, LEN, 1, ring_is_fast, 0);
    }
    assert_in_range(compared, 1, 60);
    /* chosen, but not told: the next one goes behind it */
    struct um_proto_choice late = {0};
    run(&late, LEN, UM_CHOICE_TRIES, ring_is_fast, 0);
    for (int i = 0; i < UM_CHOICE_TRIES_LONG; i++)
        assert_int_equal(um_proto_choice_take(&late, LEN), PUSH);
    assert_true(um_proto_choice_compares(&late, LEN, READ));
    for (int i = 0; i < UM_CHOICE_TRIES_LONG; i++) {
        assert_true(um_proto_choice_compares(&late, LEN, READ));
        if (i % 4)
            um_proto_choice_tell(&late, LEN, PUSH, 4600, LEN);
        else
            um_proto_choice_void(&late, LEN, PUSH);
    }
    assert_true(um_proto_choice_prefers(&late, LEN, PUSH)); /* six bodies were enough */
    assert_false(um_proto_choice_compares(&late, LEN, READ));
    /* a trial of which no body tells its cost holds nothing up */
    run(&late, LEN, UM_CHOICE_SOON, ring_is_fast, 0);
    for (int i = 0; i < UM_CHOICE_TRIES; i++) {
        assert_int_equal(um_proto_choice_take(&late, LEN), READ);
        um_proto_choice_void(&late, LEN, READ);
    }
    assert_false(um_proto_choice_compares(&late, LEN, PUSH));
    um_proto_choice_void(&late, LEN, READ);
    um_proto_choice_void(&late, LEN, PUSH);
    assert_false(um_proto_choice_compares(&late, LEN, PUSH));
}

/* A sender that reads bodies itself is late with each that it is asked for. */
static void a_way_that_cannot_be_had_is_tried_ever_more_seldom(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    unsigned tried[2] = {0};
    for (int i = 0; i < 2 * 8192; i++) {
        const unsigned way = um_proto_choice_take(&c, LEN);
        tried[i / 8192] += way == PUSH;
        if (way == PUSH)
            um_proto_choice_void(&c, LEN, PUSH);
        else
            um_proto_choice_tell(&c, LEN, READ, 2500, LEN);
    }
    assert_in_range(tried[0], 4 * UM_CHOICE_TRIES_LONG, 15 * UM_CHOICE_TRIES_LONG);
    assert_in_range(tried[1], UM_CHOICE_TRIES_LONG, 9 * UM_CHOICE_TRIES_LONG);
    const uint64_t ring_is_fast[] = {2500, 1000};
    run(&c, LEN, 2 * UM_CHOICE_LATE, ring_is_fast, 0); /* until it can */
    assert_true(um_proto_choice_prefers(&c, LEN, PUSH));
}

/* It does not matter which of a trial's bodies tell their cost. */
static void a_trial_that_tells_too_little_puts_off_the_next_one(void **state)
{
    (void)state;
    for (int tells_first = 0; tells_first < 2; tells_first++) {
        struct um_proto_choice c = {0};
        const uint64_t system_is_fast[] = {2500, 4000};
        const struct um_proto_choice_class *class = &c.of[um_proto_choice_class(LEN)];
        run(&c, LEN, 100, system_is_fast, 0);
        while (um_proto_choice_next(&c, LEN) == READ)
            run(&c, LEN, 1, system_is_fast, 0);
        const unsigned before = class->interval;
        assert_in_range(before, UM_CHOICE_SOON, UM_CHOICE_LATE / 2);
        for (int i = 0; i < UM_CHOICE_TRIES_LONG; i++) {
            assert_int_equal(um_proto_choice_take(&c, LEN), PUSH);
            if (tells_first == (i < UM_CHOICE_TRIES_LONG / 2))
                um_proto_choice_tell(&c, LEN, PUSH, 2600, LEN); /* not slow enough to fail */
            else
                um_proto_choice_void(&c, LEN, PUSH);
        }
        assert_int_equal(class->interval, 2 * before);
        assert_int_equal(class->left, 2 * before);
    }
}

/* Bodies that are taken back, or go a third way, tell no cost. */
static void a_first_trial_ends_although_some_bodies_never_end(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    int pushed = 0;
    for (int i = 0; i < 100; i++) {
        const unsigned way = um_proto_choice_take(&c, LEN);
        if (way == READ || ++pushed % 4)
            um_proto_choice_tell(&c, LEN, way, way == READ ? 2500 : 3500, LEN);
    }
    assert_true(um_proto_choice_prefers(&c, LEN, READ));
    assert_true(pushed < 30);
}

/* No way is preferred before a comparison, and none because of a trial of the other way. */
static void what_is_preferred_has_been_compared(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_fast[] = {10000, 2500}, system_is_fast[] = {2500, 10000};
    assert_false(um_proto_choice_prefers(&c, LEN, READ));
    assert_false(um_proto_choice_prefers(&c, LEN, PUSH));
    run(&c, LEN, UM_CHOICE_TRIES, ring_is_fast, 0);
    assert_false(um_proto_choice_prefers(&c, LEN, READ));
    run(&c, LEN, 20, ring_is_fast, 0);
    assert_true(um_proto_choice_prefers(&c, LEN, PUSH));
    assert_false(um_proto_choice_prefers(&c, 4 * LEN, PUSH));
    run(&c, LEN, 200, system_is_fast, 0);
    for (int i = 0; i < 3000; i++) {
        run(&c, LEN, 1, system_is_fast, 0);
        assert_false(um_proto_choice_prefers(&c, LEN, PUSH));
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

/* Bodies that lose time just before a trial do not make the other way the better one. */
static void slow_bodies_before_a_trial_do_not_decide_it(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ns[] = {2500, 4000};
    run(&c, LEN, 200, ns, 0);
    const struct um_proto_choice_class *class = &c.of[um_proto_choice_class(LEN)];
    for (int i = 0; i < 20000; i++) {
        const unsigned way = um_proto_choice_take(&c, LEN);
        um_proto_choice_tell(&c, LEN, way, way == READ && class->left < 4 ? 20000 : ns[way], LEN);
        assert_true(um_proto_choice_prefers(&c, LEN, READ));
    }
}

static void a_way_is_sure_after_the_first_trials(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_fast[] = {10000, 2500};
    const struct um_proto_choice_class *class = &c.of[um_proto_choice_class(LEN)];
    for (int i = 0; i < 200; i++) {
        run(&c, LEN, 1, ring_is_fast, 0);
        assert_int_equal(um_proto_choice_is_sure(&c, LEN, PUSH), class->way == PUSH && class->left > UM_CHOICE_SOON);
        assert_true(class->trials == UM_CHOICE_FIRST || !um_proto_choice_is_sure(&c, LEN, PUSH));
        assert_false(um_proto_choice_is_sure(&c, LEN, READ));
    }
    assert_true(um_proto_choice_is_sure(&c, LEN, PUSH));
}

/* The way of a trial is not, nor is the way in use for the first bodies after it. */
static void a_way_is_usual_when_caches_have_adapted(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_fast[] = {10000, 2500};
    assert_true(um_proto_choice_is_usual(&c, LEN, PUSH)); /* nothing is known */
    run(&c, LEN, 200, ring_is_fast, 0);
    unsigned in_trials = 0, after = 0;
    for (int i = 0, unusual = 0; i < 5000; i++) {
        const unsigned way = um_proto_choice_take(&c, LEN);
        assert_false(way == READ && um_proto_choice_is_usual(&c, LEN, way));
        in_trials += way == READ;
        unusual = way == READ ? UM_CHOICE_ADAPT : unusual;
        if (way == PUSH && unusual-- > 0)
            after += !um_proto_choice_is_usual(&c, LEN, way);
        else if (way == PUSH)
            assert_true(um_proto_choice_is_usual(&c, LEN, way));
        um_proto_choice_tell(&c, LEN, way, ring_is_fast[way], LEN);
    }
    assert_true(in_trials > 0);
    assert_true(after >= UM_CHOICE_ADAPT);
}

static void what_changes_is_noticed(void **state)
{
    (void)state;
    struct um_proto_choice c = {0};
    const uint64_t ring_is_fast[] = {10000, 2500}, system_is_fast[] = {10000, 40000}, ring_again[] = {10000, 5000};
    run(&c, LEN, 1000, ring_is_fast, 0);
    run(&c, LEN, 2 * UM_CHOICE_RECENT + UM_CHOICE_SOON, system_is_fast, 0); /* two medians, and a trial is near */
    assert_true(run(&c, LEN, 100, system_is_fast, 0) <= 10);
    run(&c, LEN, 2000, system_is_fast, 0);
    run(&c, LEN, 2 * UM_CHOICE_LATEST, ring_again, 0); /* the other way is tried now and then */
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
    unsigned way[64];
    unsigned pushed = 0;
    for (int i = 0; i < 64; i++) { /* when the last one is announced, only those that are read have ended */
        way[i] = um_proto_choice_take(&c, LEN);
        if (way[i] == READ)
            um_proto_choice_tell(&c, LEN, READ, 10000, LEN);
        pushed += way[i] == PUSH;
    }
    assert_true(pushed <= UM_CHOICE_TRIES_LONG * (1 + 64 / (UM_CHOICE_SOON + UM_CHOICE_TRIES_LONG)));
    for (int i = 0; i < 64; i++) {
        if (way[i] == PUSH)
            um_proto_choice_tell(&c, LEN, PUSH, 2500, LEN);
    }
    assert_int_equal(um_proto_choice_take(&c, LEN), PUSH);
    um_proto_choice_tell(&c, LEN, PUSH, UINT64_MAX, 1); /* no time is too long, none too short */
    um_proto_choice_tell(&c, LEN, READ, 0, UINT64_MAX);
    um_proto_choice_tell(&c, LEN, READ, 0, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_way_is_taken),
        cmocka_unit_test(each_class_of_sizes_learns_by_itself),
        cmocka_unit_test(a_new_class_begins_like_its_neighbour),
        cmocka_unit_test(a_trial_of_a_slow_way_costs_few_bodies),
        cmocka_unit_test(a_way_that_cannot_be_had_is_tried_ever_more_seldom),
        cmocka_unit_test(a_trial_that_tells_too_little_puts_off_the_next_one),
        cmocka_unit_test(a_first_trial_ends_although_some_bodies_never_end),
        cmocka_unit_test(a_fast_way_is_found_although_its_first_bodies_are_slow),
        cmocka_unit_test(a_fast_way_is_found_although_caches_adapt_after_each_change),
        cmocka_unit_test(slow_bodies_do_not_change_the_way_before_a_trial),
        cmocka_unit_test(a_body_compares_at_the_begin_of_a_trial_and_behind_it),
        cmocka_unit_test(what_is_preferred_has_been_compared),
        cmocka_unit_test(slow_trials_at_first_do_not_put_off_the_next_ones),
        cmocka_unit_test(what_changes_is_noticed),
        cmocka_unit_test(slow_bodies_before_a_trial_do_not_decide_it),
        cmocka_unit_test(a_way_is_sure_after_the_first_trials),
        cmocka_unit_test(a_way_is_usual_when_caches_have_adapted),
        cmocka_unit_test(a_time_slice_does_not_change_the_way),
        cmocka_unit_test(bodies_announced_together_are_not_all_trials),
    };
    return cmocka_run_group_tests_name("choice", tests, NULL, NULL);
}
