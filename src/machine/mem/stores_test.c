/* stores.h: the kind that costs both ends less is found, and found again when that changes. The copies are a model. */
#include "machine/mem/stores.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { RING = 128 << 10, LEN = 8192, ROUND = RING / LEN };

/* ns for a body: what it costs the sender and the receiver with either kind. */
struct costs {
    uint64_t write[UM_STORES_KINDS], read[UM_STORES_KINDS];
};

/* As measured with processors that share a cache, and with others. */
static const struct costs near = {{800, 360}, {640, 2100}}, far = {{2800, 380}, {2200, 1900}};

struct pair {
    struct um_mem_stores stores;
    struct um_mem_loads loads;
    uint64_t told;                            /* by the receiver */
    uint32_t written, nontemporal, timed;     /* bodies */
    uint32_t fronts;                          /* bodies in the front */
    bool is_in_front;                         /* the next body goes into the front */
    uint32_t in_row;                          /* bodies in the front, one after the other */
    uint32_t lag;                             /* records that the receiver is behind */
    bool is_mute;                             /* it tells nothing */
    uint32_t place;                           /* in the ring, of the next body */
    uint8_t in_memory[RING / UM_STORES_UNIT]; /* the lines there were written by non-temporal stores */
};

/* The extra cost of ordinary stores to lines that are in memory; paid once. */
static uint64_t fetch_cost(struct pair *p, enum um_mem_stores_kind kind, uint32_t len)
{
    uint64_t ns = 0;
    for (uint32_t i = 0; i < len / UM_STORES_UNIT; i++, p->place = (p->place + 1) % (RING / UM_STORES_UNIT)) {
        ns += kind == UM_STORES_CACHED && p->in_memory[p->place] ? 1500 : 0;
        p->in_memory[p->place] = kind == UM_STORES_NONTEMPORAL;
    }
    return ns;
}

/* Passes a body of len bytes. more: what it costs either end in addition. is_own: its writer uses ordinary stores,
 * whatever it was told. */
static void body_pass_as(struct pair *p, const struct costs *costs, uint64_t more, uint32_t ring, uint32_t len,
                         bool is_own)
{
    if (p->stores.phase == UM_STORES_AWAIT && (int32_t)(p->written - p->lag - p->stores.awaited) >= 0)
        um_mem_stores_compare(&p->stores, p->told);
    enum um_mem_stores_kind kind = UM_STORES_CACHED;
    if (!um_mem_stores_stay(&p->stores, len, ring))
        kind = um_mem_stores_begin(&p->stores, len, ring);
    if (is_own)
        kind = UM_STORES_CACHED;
    if (kind != UM_STORES_NONTEMPORAL)
        kind = p->is_in_front ? UM_STORES_FRONT : UM_STORES_CACHED;
    p->fronts += kind == UM_STORES_FRONT;
    p->in_row = kind == UM_STORES_FRONT ? p->in_row + 1 : 0;
    if (kind == UM_STORES_FRONT && p->in_row < 12) /* the caches do not keep its lines yet */
        more += 1500;
    p->written++;
    p->nontemporal += kind == UM_STORES_NONTEMPORAL;
    const uint64_t write = costs->write[kind] * len / LEN + more + fetch_cost(p, kind, len);
    if (p->stores.is_timed) {
        p->timed++;
        um_mem_stores_end(&p->stores, kind, write, len, p->written);
    }
    p->is_in_front = um_mem_stores_want_front(&p->stores);
    if (p->stores.is_timed && !p->is_mute)
        p->told = um_mem_loads_add(&p->loads, kind != UM_STORES_CACHED, costs->read[kind] * len / LEN + more, len);
}

static void body_pass(struct pair *p, const struct costs *costs, uint64_t more, uint32_t ring)
{
    body_pass_as(p, costs, more, ring, LEN, false);
}

/* Passes bodies; returns how many of a thousand went with non-temporal stores. */
static uint32_t run(struct pair *p, const struct costs *costs, uint32_t bodies)
{
    const uint32_t before = p->nontemporal;
    for (uint32_t i = 0; i < bodies; i++)
        body_pass(p, costs, 0, RING);
    return (uint32_t)((p->nontemporal - before) * UINT64_C(1000) / bodies);
}

/* What is better in a short ring, whose lines stay in the receiver's cache, may be worse in a long one. */
static void another_ring_begins_with_ordinary_stores(void **state)
{
    (void)state;
    struct pair p = {0};
    run(&p, &far, 20 * ROUND);
    assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
    const uint32_t before = p.nontemporal;
    for (int i = 0; i < 100 * ROUND; i++)
        body_pass(&p, &near, 0, 16 * RING);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
    assert_in_range(p.nontemporal - before, 1, 4 * 2 * UM_STORES_SAMPLES); /* in trials */
}

static int choose_auto(void **state)
{
    (void)state;
    return um_mem_set_stores(NULL);
}

static void a_shared_cache_keeps_ordinary_stores(void **state)
{
    (void)state;
    struct pair p = {0};
    assert_in_range(run(&p, &near, 1000), 1, 100); /* with trials */
    assert_in_range(run(&p, &near, 100000), 0, 5);
}

static void without_one_they_bypass_the_caches(void **state)
{
    (void)state;
    struct pair p = {0};
    run(&p, &far, 7 * ROUND);
    assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
    assert_in_range(run(&p, &far, 100000), 960, 999); /* all but trials */
}

static void the_first_rounds_of_a_ring_are_not_timed_whatever_comes(void **state)
{
    (void)state;
    struct pair p = {0};
    for (int rings = 16; rings <= 32; rings *= 2) { /* at first nothing was compared, then a shorter body was */
        const uint32_t len = rings == 16 ? LEN : 2 * LEN, before = p.timed;
        for (uint32_t moved = 0; moved + len < 4 * (uint32_t)rings * RING; moved += len)
            body_pass_as(&p, &near, 0, (uint32_t)rings * RING, len, false);
        assert_int_equal(p.timed, before);
        for (int i = 0; i < 4 * UM_STORES_SAMPLES; i++)
            body_pass_as(&p, &near, 0, (uint32_t)rings * RING, len, false);
        assert_true(p.timed > before);
    }
}

/* What is right for short bodies may be wrong for long ones. */
static void longer_bodies_are_compared_soon(void **state)
{
    (void)state;
    struct pair p = {0};
    run(&p, &near, 600 * ROUND);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
    const uint32_t before = p.nontemporal, many = UM_STORES_EVERY + ROUND / 2 + 3 * UM_STORES_SAMPLES;
    for (uint32_t i = 0; i < 2 * many; i++)
        body_pass_as(&p, &far, 0, RING, 2 * LEN, false);
    assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
    assert_true(p.nontemporal - before >= UM_STORES_SAMPLES);
    for (uint32_t i = 0; i < many; i++) /* once for each length */
        body_pass_as(&p, &near, 0, RING, LEN, false);
    assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
}

static void a_thread_that_moves_is_noticed(void **state)
{
    (void)state;
    struct pair p = {0};
    for (int i = 0; i < 5; i++) {
        run(&p, &near, 600 * ROUND); /* a trial of ordinary stores comes after 512 rounds at most */
        assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
        run(&p, &near, 200000);
        run(&p, &far, 5 * UM_STORES_EVERY + 20 * ROUND); /* bodies take twice as long, which is noticed */
        assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
        run(&p, &far, 200000);
    }
}

static void a_receiver_that_is_behind_is_waited_for(void **state)
{
    (void)state;
    struct pair p = {.lag = 100};
    run(&p, &far, 7 * ROUND + 100);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
    run(&p, &far, 100);
    assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
}

/* Touching pages for the first time costs both kinds the same, and a cache may keep lines from the third round on only.
 * So the first rounds must not decide. */
static void a_ring_that_was_never_touched_decides_nothing(void **state)
{
    (void)state;
    const struct costs seen = {{5000, 360}, {640, 640}}; /* the 5000 of ordinary stores is due to the pages */
    struct pair p = {0};
    for (uint32_t i = 0; i < 3 * ROUND; i++)
        body_pass(&p, &seen, 0, RING);
    run(&p, &near, 3 * ROUND);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
    for (uint32_t i = 0; i < 3 * 16 * ROUND; i++) /* a longer ring */
        body_pass(&p, &seen, 0, 16 * RING);
    assert_in_range(p.nontemporal, 0, 12);
    for (uint32_t i = 0; i < 64 * ROUND; i++)
        body_pass(&p, &near, 0, 16 * RING);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
}

/* One body in eight loses a time slice. */
static void a_body_that_took_long_is_no_rule(void **state)
{
    (void)state;
    struct pair p = {0};
    srand(1);
    for (int i = 0; i < 200000; i++)
        body_pass(&p, &near, rand() % 8 ? 0 : 1000000, RING);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
    assert_in_range(p.nontemporal, 1, 20000);
}

/* An operation that fills its records itself. */
static void a_writer_that_keeps_to_ordinary_stores_is_not_timed_for_ever(void **state)
{
    (void)state;
    struct pair p = {0};
    for (int i = 0; i < 100000; i++)
        body_pass_as(&p, &far, 0, RING, LEN, true);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
    assert_in_range(p.timed, 100000 / UM_STORES_EVERY / 2, 20000);
    p = (struct pair){0};
    run(&p, &far, 20 * ROUND);
    assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
    p.timed = 0;
    for (int i = 0; i < 100000; i++)
        body_pass_as(&p, &far, 0, RING, LEN, true);
    assert_in_range(p.timed, 100000 / UM_STORES_EVERY / 2, 20000);
}

/* Half of the bodies come from such a writer. */
static void such_a_writer_does_not_hide_the_better_kind(void **state)
{
    (void)state;
    struct pair p = {0};
    for (int i = 0; i < 40 * ROUND; i++)
        body_pass_as(&p, &far, 0, RING, LEN, i % 2);
    assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
}

/* A fixed part of the cost, such as a long search for the receive, weighs less in longer bodies. */
static void only_bodies_of_one_size_are_compared(void **state)
{
    (void)state;
    struct pair p = {0};
    for (int i = 0; i < 200000; i++) {
        body_pass_as(&p, &near, 4000, RING, i / 5 % 2 ? 4096 : 16384, false);
        assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
    }
    assert_in_range(p.nontemporal, 2 * UM_STORES_SAMPLES, 10000);
}

/* After a trial of non-temporal stores the lines of its bodies are in memory. */
static void a_comparison_does_not_see_the_last_trial(void **state)
{
    (void)state;
    for (uint32_t len = UM_STORES_UNIT; len <= 4 * UM_STORES_UNIT; len *= 2) {
        struct pair p = {0};
        for (int i = 0; i < 100000; i++) {
            body_pass_as(&p, &near, 0, RING, len, false);
            if (p.stores.phase == UM_STORES_AWAIT)
                assert_in_range(um_mem_stores_cost_usual(&p.stores.cost[UM_STORES_CACHED]), 1,
                                near.write[UM_STORES_CACHED] * UM_STORES_UNIT / LEN);
        }
        assert_in_range(p.nontemporal, 2 * UM_STORES_SAMPLES, 3000);
    }
}

static void a_receiver_that_tells_nothing_changes_nothing(void **state)
{
    (void)state;
    struct pair p = {.is_mute = true};
    run(&p, &far, 10000);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
}

/* The peer may write anything into the control block. */
static void a_receiver_that_lies_harms_nothing_for_long(void **state)
{
    (void)state;
    static const uint64_t words[] = {0, 1, UINT64_MAX, UINT64_MAX << 32, UINT32_MAX, UINT64_C(1) << 32};
    struct pair p = {.is_mute = true};
    srand(2);
    for (int i = 0; i < 200000; i++) {
        const int pick = rand() % 8;
        p.told = pick < 6 ? words[pick] : (uint64_t)rand() << 32 | (uint64_t)rand();
        body_pass(&p, i % 2000 < 1000 ? &near : &far, 0, rand() % 4096 ? RING : 2 * RING);
    }
    assert_in_range(p.timed, 1000, 60000); /* the peer cannot make the sender time all bodies */
    p.is_mute = false;
    run(&p, &near, 600 * ROUND);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
}

static void a_choice_is_kept(void **state)
{
    (void)state;
    struct pair p = {0};
    assert_int_equal(um_mem_set_stores("nontemporal"), 0);
    assert_int_equal(run(&p, &near, 1000), 1000);
    assert_int_equal(um_mem_set_stores("cached"), 0);
    assert_int_equal(run(&p, &far, 1000), 0);
    assert_int_equal(um_mem_set_stores("Auto"), -EINVAL);
    assert_int_equal(um_mem_set_stores(""), -EINVAL);
    assert_int_equal(run(&p, &far, 1000), 0);
    assert_int_equal(um_mem_set_stores("auto"), 0);
}

static void the_second_best_of_four_counts(void **state)
{
    (void)state;
    struct um_mem_stores_cost cost = {{0}, 0};
    static const uint64_t ns[] = {500, 300, 900, 400, 100, 200, 50};
    static const uint32_t usual[] = {0, 0, 0, 400, 300, 200, 100};
    for (int i = 0; i < 7; i++) {
        um_mem_stores_cost_add(&cost, ns[i], UM_STORES_UNIT);
        assert_int_equal(um_mem_stores_cost_usual(&cost), usual[i]);
    }
    for (int i = 0; i < 4; i++)
        um_mem_stores_cost_add(&cost, 1 << 20, 4 * UM_STORES_UNIT);
    assert_int_equal(um_mem_stores_cost_usual(&cost), 1 << 18); /* for UM_STORES_UNIT bytes */
    for (int i = 0; i < 4; i++)
        um_mem_stores_cost_add(&cost, UINT64_MAX / UM_STORES_UNIT, UM_STORES_UNIT);
    assert_int_equal(um_mem_stores_cost_usual(&cost), 1 << 24);
    for (int i = 0; i < 4; i++)
        um_mem_stores_cost_add(&cost, 0, UM_STORES_UNIT);
    assert_int_equal(um_mem_stores_cost_usual(&cost), 1);
}

/* Every body that is timed was announced, and few others were. */
static void it_is_known_beforehand_which_body_is_timed(void **state)
{
    static const struct costs *const all[] = {&near, &far};
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct pair p = {0};
        uint32_t announced = 0;
        for (int n = 0; n < 200000; n++) {
            const bool is_announced = um_mem_stores_next_is_timed(&p.stores, LEN);
            body_pass(&p, all[i], 0, RING);
            assert_true(is_announced || !p.stores.is_timed);
            announced += is_announced;
        }
        assert_in_range(announced, p.timed, (1 + LEN / UM_STORES_UNIT) * p.timed);
        assert_true(p.timed < 200000 / 20);
    }
    assert_false(um_mem_stores_are_nontemporal());
    um_mem_set_stores("nontemporal");
    assert_true(um_mem_stores_are_nontemporal());
    um_mem_set_stores("cached");
    assert_false(um_mem_stores_next_is_timed(&(struct um_mem_stores){0}, LEN));
    assert_false(um_mem_stores_are_nontemporal());
}

/* As bodies whose lines were fetched: they bring the next comparison closer, and the turn of the next timed body. */
static void bodies_that_are_passed_count(void **state)
{
    (void)state;
    struct pair p = {0};
    run(&p, &near, 1000);
    while (um_mem_stores_next_is_timed(&p.stores, LEN) || p.stores.untimed > 0)
        body_pass(&p, &near, 0, RING);
    p.stores.bytes_left = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        for (int n = 1; n < UM_STORES_EVERY; n++) {
            assert_false(um_mem_stores_next_is_timed(&p.stores, LEN));
            um_mem_stores_pass(&p.stores, LEN);
        }
        for (int n = 0; n < 2; n++) {
            assert_true(um_mem_stores_next_is_timed(&p.stores, LEN));
            assert_false(um_mem_stores_next_is_timed(&p.stores, 2 * LEN)); /* of another size */
            um_mem_stores_pass(&p.stores, LEN);
            assert_false(p.stores.is_timed);
        }
        body_pass(&p, &near, 0, RING);
        assert_true(p.stores.is_timed);
    }
    p.stores.bytes_left = 10 * LEN;
    for (int n = 1; n < 10; n++) {
        assert_false(um_mem_stores_next_is_timed(&p.stores, LEN));
        um_mem_stores_pass(&p.stores, LEN);
    }
    assert_true(um_mem_stores_next_is_timed(&p.stores, LEN));
    um_mem_stores_pass(&p.stores, 4 * LEN);
    assert_int_equal(p.stores.phase, UM_STORES_USE);
    body_pass(&p, &near, 0, RING);
    assert_int_equal(p.stores.phase, UM_STORES_BASE);
    um_mem_stores_pass(&p.stores, LEN);
    assert_int_equal(p.stores.phase, UM_STORES_BASE);
}

/* What one comparison finds may be due to what else happened meanwhile. */
static void one_comparison_does_not_end_ordinary_stores(void **state)
{
    (void)state;
    struct pair p = {0};
    run(&p, &near, 10000);
    for (int i = 0; i < 20; i++) {
        while (p.stores.phase == UM_STORES_USE)
            body_pass(&p, &near, 0, RING);
        while (p.stores.phase != UM_STORES_USE)
            body_pass(&p, &far, 0, RING);
        assert_int_equal(p.stores.wins, 1);
        assert_in_range(p.stores.bytes_left, 1, RING); /* the next one comes soon */
        run(&p, &near, 3 * ROUND);
        assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
        assert_int_equal(p.stores.wins, 0);
    }
}

/* ---- the front ---- */

/* As measured with buffers that stay in the caches, and with others. */
static const struct costs warm = {{800, 1100, 900}, {360, 900, 400}}, cold = {{2300, 2600, 900}, {1500, 2500, 900}};

static struct pair with_front(void)
{
    return (struct pair){.stores.front_bytes = RING / 16};
}

static void where_caches_do_not_hold_a_ring_its_front_is_used(void **state)
{
    (void)state;
    struct pair p = with_front();
    run(&p, &warm, 5000 * ROUND);
    for (int i = 0; i < 5; i++) {
        run(&p, &cold, 300 * ROUND);
        assert_int_equal(p.stores.in_use, UM_STORES_FRONT);
        uint32_t before = p.fronts;
        run(&p, &cold, 100000);
        assert_in_range(p.fronts - before, 92000, 99999); /* all but trials */
        run(&p, &warm, 2200 * ROUND);
        assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
        before = p.fronts;
        run(&p, &warm, 2000000);
        assert_in_range(p.fronts - before, 1, 200); /* these trials are rare */
    }
}

/* Passes bodies with the front's cost in per cent of that of the whole ring. Returns what is in use then. */
static unsigned in_use_at(struct pair *p, uint64_t percent)
{
    const struct costs costs = {{1000, 3000, 10 * percent}, {1000, 3000, 10 * percent}};
    run(p, &costs, 6 * 8192 * ROUND);
    return p->stores.in_use;
}

/* It is taken if it is much better, and kept if it is clearly better. */
static void the_front_is_left_sooner_than_it_is_taken(void **state)
{
    (void)state;
    struct pair p = with_front();
    assert_int_equal(in_use_at(&p, 78), UM_STORES_CACHED);
    assert_int_equal(in_use_at(&p, 72), UM_STORES_FRONT);
    assert_int_equal(in_use_at(&p, 78), UM_STORES_FRONT);
    assert_int_equal(in_use_at(&p, 85), UM_STORES_CACHED);
    assert_int_equal(in_use_at(&p, 78), UM_STORES_CACHED);
}

static void a_lane_without_a_wide_ring_has_no_front(void **state)
{
    (void)state;
    struct pair p = {0};
    run(&p, &cold, 1000 * ROUND);
    assert_int_equal(p.fronts, 0);
    assert_int_equal(p.stores.in_use, UM_STORES_CACHED);
}

/* Here bodies of another size come whenever the front is tried. The others must be compared all the same. */
static void a_comparison_with_the_front_that_is_given_up_is_not_repeated(void **state)
{
    (void)state;
    struct pair p = with_front();
    for (int i = 0; i < 6 * 8192 * ROUND; i++) {
        const bool is_front = p.stores.phase == UM_STORES_TRIAL && p.stores.tries_front;
        body_pass_as(&p, i < 5 * 8192 * ROUND ? &warm : &far, 0, RING, is_front ? LEN / 4 : LEN, false);
    }
    assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
}

/* A cache may take some hundred MiB to hold a new wide ring: the first rounds of it are the slow ones. */
static void the_front_is_tried_at_once(void **state)
{
    (void)state;
    struct pair p = with_front();
    run(&p, &cold, 16 * ROUND);
    assert_int_equal(p.stores.in_use, UM_STORES_FRONT);
}

/* One comparison in a row does not end the use of the front. */
static void one_comparison_does_not_end_the_front(void **state)
{
    (void)state;
    struct pair p = with_front();
    run(&p, &cold, 5000 * ROUND);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(p.stores.in_use, UM_STORES_FRONT);
        while (p.stores.phase == UM_STORES_USE)
            body_pass(&p, &cold, 0, RING);
        while (p.stores.phase != UM_STORES_USE)
            body_pass(&p, &warm, 0, RING);
        assert_int_equal(p.stores.wins, 1);
        run(&p, &cold, 100 * ROUND);
    }
}

/* The better one of the two others is found, whichever it is. */
static void non_temporal_stores_are_compared_as_before(void **state)
{
    (void)state;
    struct pair p = with_front();
    const struct costs costs = {{2800, 1200, 2700}, {1500, 1000, 1500}};
    run(&p, &costs, 20 * ROUND);
    assert_int_equal(p.stores.in_use, UM_STORES_NONTEMPORAL);
    run(&p, &cold, 6000 * ROUND);
    assert_int_equal(p.stores.in_use, UM_STORES_FRONT);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_choice_is_kept, choose_auto),
        cmocka_unit_test_setup(the_second_best_of_four_counts, choose_auto),
        cmocka_unit_test_setup(a_shared_cache_keeps_ordinary_stores, choose_auto),
        cmocka_unit_test_setup(another_ring_begins_with_ordinary_stores, choose_auto),
        cmocka_unit_test_setup(without_one_they_bypass_the_caches, choose_auto),
        cmocka_unit_test_setup(a_thread_that_moves_is_noticed, choose_auto),
        cmocka_unit_test_setup(a_receiver_that_is_behind_is_waited_for, choose_auto),
        cmocka_unit_test_setup(the_first_rounds_of_a_ring_are_not_timed_whatever_comes, choose_auto),
        cmocka_unit_test_setup(longer_bodies_are_compared_soon, choose_auto),
        cmocka_unit_test_setup(a_ring_that_was_never_touched_decides_nothing, choose_auto),
        cmocka_unit_test_setup(a_body_that_took_long_is_no_rule, choose_auto),
        cmocka_unit_test_setup(a_writer_that_keeps_to_ordinary_stores_is_not_timed_for_ever, choose_auto),
        cmocka_unit_test_setup(a_receiver_that_tells_nothing_changes_nothing, choose_auto),
        cmocka_unit_test_setup(such_a_writer_does_not_hide_the_better_kind, choose_auto),
        cmocka_unit_test_setup(only_bodies_of_one_size_are_compared, choose_auto),
        cmocka_unit_test_setup(a_comparison_does_not_see_the_last_trial, choose_auto),
        cmocka_unit_test_setup(a_receiver_that_lies_harms_nothing_for_long, choose_auto),
        cmocka_unit_test_setup(it_is_known_beforehand_which_body_is_timed, choose_auto),
        cmocka_unit_test_setup(bodies_that_are_passed_count, choose_auto),
        cmocka_unit_test_setup(one_comparison_does_not_end_ordinary_stores, choose_auto),
        cmocka_unit_test_setup(where_caches_do_not_hold_a_ring_its_front_is_used, choose_auto),
        cmocka_unit_test_setup(the_front_is_left_sooner_than_it_is_taken, choose_auto),
        cmocka_unit_test_setup(a_lane_without_a_wide_ring_has_no_front, choose_auto),
        cmocka_unit_test_setup(a_comparison_with_the_front_that_is_given_up_is_not_repeated, choose_auto),
        cmocka_unit_test_setup(the_front_is_tried_at_once, choose_auto),
        cmocka_unit_test_setup(one_comparison_does_not_end_the_front, choose_auto),
        cmocka_unit_test_setup(non_temporal_stores_are_compared_as_before, choose_auto),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
