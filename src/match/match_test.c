/*
 * The matching engine: its rules one by one, and its cost in visited nodes.
 */
#include "match/match_test.h"

/* ---- receives ---- */

static void a_receive_takes_its_tag_and_source_and_nothing_else(void **state)
{
    struct um_match_recv r;
    post(*state, &r, 7, 0, 3);
    assert_ptr_equal(um_match_find_recv(*state, 7, 3), &r);
    assert_null(um_match_find_recv(*state, 8, 3));
    assert_null(um_match_find_recv(*state, 7, 4));
}

static void a_found_receive_stays_posted_until_unposted(void **state)
{
    struct um_match_recv r;
    post(*state, &r, 7, 0, 3);
    assert_ptr_equal(um_match_find_recv(*state, 7, 3), &r);
    assert_ptr_equal(um_match_find_recv(*state, 7, 3), &r);
    um_match_unpost(*state, &r);
    assert_null(um_match_find_recv(*state, 7, 3));
    assert_null(um_match_any_recv(*state));
}

static void an_any_source_receive_takes_every_source(void **state)
{
    struct um_match_recv r;
    post(*state, &r, 7, 0, UM_MATCH_ANY);
    assert_ptr_equal(um_match_find_recv(*state, 7, 0), &r);
    assert_ptr_equal(um_match_find_recv(*state, 7, 4000000000u), &r);
    assert_null(um_match_find_recv(*state, 6, 0));
}

static void ignored_bits_of_message_and_receive_do_not_count(void **state)
{
    struct um_match_recv r;
    post(*state, &r, 0xabcd, 0xff00, 3);
    assert_ptr_equal(um_match_find_recv(*state, 0x12cd, 3), &r);
    assert_null(um_match_find_recv(*state, 0xabce, 3));
    assert_null(um_match_find_recv(*state, 0x1abcd, 3));
}

static void a_mask_of_all_ones_takes_every_tag(void **state)
{
    struct um_match_recv r;
    post(*state, &r, 5, ALL_ONES, UM_MATCH_ANY);
    assert_ptr_equal(um_match_find_recv(*state, 0, 0), &r);
    assert_ptr_equal(um_match_find_recv(*state, ALL_ONES, 9), &r);
}

static void of_equal_receives_the_oldest_is_found(void **state)
{
    struct um_match_recv r[3];
    for (int i = 0; i < 3; i++)
        post(*state, &r[i], 7, 0, 3);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(um_match_find_recv(*state, 7, 3), &r[i]);
        um_match_unpost(*state, &r[i]);
    }
    assert_null(um_match_find_recv(*state, 7, 3));
}

static void the_oldest_wins_across_any_source_and_masks(void **state)
{
    struct um_match_recv r[4];
    static const uint64_t ignore[4] = {0xf, 0, ALL_ONES, 0};
    static const uint32_t source[4] = {UM_MATCH_ANY, UM_MATCH_ANY, 3, 3};
    for (int first = 0; first < 4; first++) {
        for (int i = 0; i < 4; i++)
            post(*state, &r[(first + i) % 4], 7, ignore[(first + i) % 4], source[(first + i) % 4]);
        for (int i = 0; i < 4; i++) {
            assert_ptr_equal(um_match_find_recv(*state, 7, 3), &r[(first + i) % 4]);
            um_match_unpost(*state, &r[(first + i) % 4]);
        }
    }
}

static void a_receive_from_the_middle_can_be_cancelled(void **state)
{
    struct um_match_recv r[5];
    for (int i = 0; i < 5; i++)
        post(*state, &r[i], 7, 0, 3);
    um_match_unpost(*state, &r[2]);
    um_match_unpost(*state, &r[0]);
    um_match_unpost(*state, &r[4]);
    assert_true(um_match_is_valid(*state));
    assert_ptr_equal(um_match_find_recv(*state, 7, 3), &r[1]);
    um_match_unpost(*state, &r[1]);
    assert_ptr_equal(um_match_find_recv(*state, 7, 3), &r[3]);
}

static void masks_beyond_the_classes_match_in_order_too(void **state)
{
    enum { N = 3 * UM_MATCH_CLASSES };
    struct um_match_recv r[N];
    for (int i = 0; i < N; i++)
        post(*state, &r[i], 1, (uint64_t)1 << (8 + i), UM_MATCH_ANY);
    assert_true(um_match_is_valid(*state));
    assert_ptr_equal(um_match_find_recv(*state, 1 | UINT64_C(1) << (8 + N - 1), 0), &r[N - 1]);
    for (int i = 0; i < N; i++) {
        assert_ptr_equal(um_match_find_recv(*state, 1, 5), &r[i]);
        um_match_unpost(*state, &r[i]);
    }
    assert_null(um_match_find_recv(*state, 1, 5));
}

static void a_mask_without_receives_gives_its_place_to_another(void **state)
{
    struct um_match *m = *state;
    struct um_match_recv r, keep, last[UM_MATCH_SHORT + 1];
    post(m, &keep, 1, 0, 3);
    for (uint64_t mask = 1; mask < 100; mask++) {
        post(m, &r, 1, mask << 8, 3);
        for (int i = 0; i < UM_MATCH_SHORT; i++)
            post(m, &last[i], 2, 0, 3);
        assert_ptr_equal(um_match_find_recv(m, 1 | mask << 8, 3), &r);
        assert_true(r.table < UM_MATCH_TABLES);
        um_match_unpost(m, &r);
        for (int i = 0; i < UM_MATCH_SHORT; i++)
            um_match_unpost(m, &last[i]);
    }
    assert_ptr_equal(um_match_find_recv(m, 1, 3), &keep);
}

/* ---- messages ---- */

static void a_message_is_found_by_what_takes_it_and_nothing_else(void **state)
{
    struct um_match_msg msg;
    enqueue(*state, &msg, 7, 3);
    assert_ptr_equal(um_match_find_msg(*state, 7, 0, 3), &msg);
    assert_ptr_equal(um_match_find_msg(*state, 7, 0, UM_MATCH_ANY), &msg);
    assert_ptr_equal(um_match_find_msg(*state, 0x107, 0xf00, 3), &msg);
    assert_null(um_match_find_msg(*state, 8, 0, 3));
    assert_null(um_match_find_msg(*state, 7, 0, 4));
    assert_null(um_match_find_msg(*state, 0x117, 0xf00, UM_MATCH_ANY));
}

static void of_equal_messages_the_first_to_arrive_is_found(void **state)
{
    struct um_match_msg msg[6];
    for (uint32_t i = 0; i < 6; i++)
        enqueue(*state, &msg[i], 7, i % 2);
    assert_ptr_equal(um_match_find_msg(*state, 7, 0, 1), &msg[1]);
    um_match_dequeue(*state, &msg[1]);
    assert_ptr_equal(um_match_find_msg(*state, 7, 0, 1), &msg[3]);
    for (int i = 0; i < 6; i++) {
        if (i == 1)
            continue;
        assert_ptr_equal(um_match_find_msg(*state, 7, 0, UM_MATCH_ANY), &msg[i]);
        um_match_dequeue(*state, &msg[i]);
    }
    assert_null(um_match_any_msg(*state));
}

static void messages_queued_before_a_mask_was_used_are_found_by_it(void **state)
{
    enum { N = UM_MATCH_CLASSES + 2 };
    struct um_match_msg msg[2];
    enqueue(*state, &msg[0], 0xa0, 3);
    enqueue(*state, &msg[1], 0xa0, 4);
    for (int i = 0; i < N; i++) {
        uint64_t mask = (uint64_t)1 << (8 + i);
        assert_ptr_equal(um_match_find_msg(*state, 0xa0 | mask, mask, 4), &msg[1]);
        assert_ptr_equal(um_match_find_msg(*state, 0xa0 | mask, mask, UM_MATCH_ANY), &msg[0]);
        assert_true(um_match_is_valid(*state));
    }
    um_match_dequeue(*state, &msg[0]);
    for (int i = 0; i < N; i++)
        assert_ptr_equal(um_match_find_msg(*state, 0xa0, (uint64_t)1 << (8 + i), UM_MATCH_ANY), &msg[1]);
}

static void messages_queued_before_a_receive_brought_its_mask_are_found_by_it(void **state)
{
    struct um_match_msg msg;
    struct um_match_recv r;
    enqueue(*state, &msg, 0xa0, 3);
    post(*state, &r, 0xb0, 0xf, 3);
    assert_true(um_match_is_valid(*state));
    assert_ptr_equal(um_match_find_msg(*state, 0xa5, 0xf, 3), &msg);
}

static void emptying_yields_the_oldest_first(void **state)
{
    struct um_match_recv r[10];
    struct um_match_msg msg[10];
    for (uint32_t i = 0; i < 10; i++) {
        post(*state, &r[i], 10 - i, (uint64_t)i << 8, i % 3 ? i : UM_MATCH_ANY);
        enqueue(*state, &msg[i], 1000 - i, i);
    }
    for (int i = 0; i < 10; i++) {
        assert_ptr_equal(um_match_any_recv(*state), &r[i]);
        um_match_unpost(*state, &r[i]);
        assert_ptr_equal(um_match_any_msg(*state), &msg[i]);
        um_match_dequeue(*state, &msg[i]);
    }
    assert_null(um_match_any_recv(*state));
    assert_null(um_match_any_msg(*state));
}

/* ---- cost ---- */

enum { DEEP = 10000 };

static struct um_match_recv deep_recv[DEEP];
static struct um_match_msg deep_msg[DEEP];

/* Nodes visited since the last call. */
static uint64_t visits(void)
{
    uint64_t n = um_match_visits;
    um_match_visits = 0;
    return n;
}

/* Keys as programs build them: plain counters, one field of a packed tag, many sources with one tag, a grid of both. */
static void deep_key(int pattern, uint32_t i, uint64_t *tag, uint32_t *source)
{
    *tag = pattern == 0 ? i : pattern == 1 ? (uint64_t)i << 24 : pattern == 2 ? 5 : (uint64_t)(i / 100) << 48;
    *source = pattern == 2 ? i : pattern == 3 ? i % 100 : 1;
}

static void deep_posted_queues_are_not_walked(void **state)
{
    struct um_match *m = *state;
    uint64_t tag;
    uint32_t source;
    for (int pattern = 0; pattern < 4; pattern++) {
        visits();
        for (uint32_t i = 0; i < DEEP; i++) {
            deep_key(pattern, i, &tag, &source);
            post(m, &deep_recv[i], tag, 0, source);
        }
        assert_true(visits() < 2UL * DEEP);
        assert_true(um_match_is_valid(m));
        visits();
        for (uint32_t k = 0, i = 0; k < DEEP; k++, i = (i + 7919) % DEEP) {
            deep_key(pattern, i, &tag, &source);
            assert_ptr_equal(um_match_find_recv(m, tag, source), &deep_recv[i]);
            um_match_unpost(m, &deep_recv[i]);
        }
        assert_true(visits() < (2 + UM_MATCH_RING) * (uint64_t)DEEP);
    }
}

static void deep_unexpected_queues_are_not_walked(void **state)
{
    struct um_match *m = *state;
    uint64_t tag;
    uint32_t source;
    for (int pattern = 0; pattern < 4; pattern++) {
        for (uint32_t i = 0; i < DEEP; i++) {
            deep_key(pattern, i, &tag, &source);
            enqueue(m, &deep_msg[i], tag, source);
        }
        assert_null(um_match_find_msg(m, UINT64_C(1) << 63, 0, 1));
        assert_null(um_match_find_msg(m, UINT64_C(1) << 63, 0xff, UM_MATCH_ANY));
        assert_true(um_match_is_valid(m));
        visits();
        for (uint32_t k = 0, i = 0; k < DEEP; k++, i = (i + 7919) % DEEP) {
            deep_key(pattern, i, &tag, &source);
            assert_ptr_equal(um_match_find_msg(m, tag, 0, source), &deep_msg[i]);
            assert_non_null(um_match_find_msg(m, tag, 0xff, UM_MATCH_ANY));
            um_match_dequeue(m, &deep_msg[i]);
        }
        assert_true(visits() < (4 + 2 * UM_MATCH_RING) * (uint64_t)DEEP);
    }
}

/* The masks of a program that uses eight; every second receive takes any source. */
static uint64_t eighth_mask(uint32_t i)
{
    return i % 8 ? UINT64_C(0xff) << 4 * (i % 8 - 1) : 0;
}

static uint32_t wild_source(uint32_t i)
{
    return i / 8 % 2 ? UM_MATCH_ANY : 1;
}

static void eight_masks_and_wildcards_do_not_slow_deep_queues(void **state)
{
    struct um_match *m = *state;
    for (uint32_t i = 0; i < DEEP; i++)
        post(m, &deep_recv[i], (uint64_t)i << 40, eighth_mask(i), wild_source(i));
    assert_true(um_match_is_valid(m));
    visits();
    for (uint32_t k = 0, i = 0; k < DEEP; k++, i = (i + 7919) % DEEP) {
        assert_ptr_equal(um_match_find_recv(m, (uint64_t)i << 40, 1), &deep_recv[i]);
        um_match_unpost(m, &deep_recv[i]);
    }
    assert_true(visits() < 3UL * DEEP);
    for (uint32_t i = 0; i < DEEP; i++)
        enqueue(m, &deep_msg[i], (uint64_t)i << 40, 1);
    for (uint32_t k = 0, i = 0; k < DEEP; k++, i = (i + 7919) % DEEP) {
        assert_ptr_equal(um_match_find_msg(m, (uint64_t)i << 40, eighth_mask(i), wild_source(i)), &deep_msg[i]);
        if (k % 1000 == 0) {
            const uint64_t count = um_match_visits;
            assert_true(um_match_is_valid(m));
            um_match_visits = count;
        }
        um_match_dequeue(m, &deep_msg[i]);
    }
    assert_true(visits() < 5UL * DEEP);
}

static void what_is_received_in_the_order_of_its_arrival_is_not_indexed(void **state)
{
    struct um_match *m = *state;
    for (uint32_t i = 0; i < DEEP; i++)
        enqueue(m, &deep_msg[i], i, i % 3);
    visits();
    for (uint32_t i = 0; i < DEEP; i++) {
        assert_ptr_equal(um_match_find_msg(m, i, eighth_mask(i), i % 2 ? UM_MATCH_ANY : i % 3), &deep_msg[i]);
        assert_int_equal(m->entries.in_use, 0);
        um_match_dequeue(m, &deep_msg[i]);
    }
    assert_true(visits() <= DEEP);
}

static void an_index_ends_with_its_messages(void **state)
{
    enum { N = UM_MATCH_SHORT + 10 };
    struct um_match *m = *state;
    struct um_match_msg msg[N];
    for (uint32_t i = 0; i < 6 * UM_MATCH_CLASSES; i++) {
        /* alternates masks that have a class of their own with masks for the coarse table */
        const uint64_t mask = (i % 2 ? UINT64_C(0xfffff) : 1) << i / 2;
        for (uint32_t k = 0; k < N; k++)
            enqueue(m, &msg[k], (uint64_t)k << 32, 1);
        assert_null(um_match_find_msg(m, UINT64_C(1) << 63, mask, 1));
        assert_null(um_match_find_msg(m, UINT64_C(1) << 63, mask, UM_MATCH_ANY));
        assert_int_equal(m->entries.in_use, i % 2 ? 2 * N : N); /* the mask has got a place */
        for (uint32_t k = 0; k < N; k++) {
            assert_true(um_match_is_valid(m));
            um_match_dequeue(m, &msg[(k + 5) % N]);
        }
        assert_int_equal(m->entries.in_use, 0);
    }
}

static void ten_thousand_of_one_key_do_not_slow_their_neighbours(void **state)
{
    struct um_match *m = *state;
    struct um_match_recv r[200];
    struct um_match_msg msg[200];
    for (uint32_t i = 0; i < DEEP; i++) {
        post(m, &deep_recv[i], 5, 0, 1);
        enqueue(m, &deep_msg[i], 6, 1);
    }
    for (uint32_t i = 0; i < 200; i++) {
        post(m, &r[i], 1000 + i, 0, 1);
        enqueue(m, &msg[i], 2000 + i, 1);
    }
    assert_null(um_match_find_msg(m, 7, 0, 1));
    visits();
    for (uint32_t i = 0; i < 200; i++) {
        assert_ptr_equal(um_match_find_recv(m, 1000 + i, 1), &r[i]);
        assert_ptr_equal(um_match_find_msg(m, 2000 + i, 0, 1), &msg[i]);
        um_match_unpost(m, &r[i]);
        um_match_dequeue(m, &msg[i]);
    }
    for (uint32_t i = DEEP; i-- > 1;)
        um_match_unpost(m, &deep_recv[i]);
    assert_ptr_equal(um_match_find_recv(m, 5, 1), &deep_recv[0]);
    assert_true(visits() < 1200);
    assert_true(um_match_is_valid(m));
}

static void an_empty_queue_costs_no_visit(void **state)
{
    struct um_match *m = *state;
    struct um_match_recv r;
    post(m, &r, 1, 0, 1);
    um_match_unpost(m, &r);
    visits();
    assert_null(um_match_find_recv(m, 1, 1));
    assert_null(um_match_find_msg(m, 1, 0, 1));
    assert_int_equal(visits(), 0);
}

/* A window of receives whose messages come in the order of the posts. */
static void receives_in_the_order_of_their_messages_are_not_hashed(void **state)
{
    struct um_match *m = *state; /* NOLINT(clang-analyzer-deadcode.DeadStores): read unless this build hashes always */
    enum { N = 64 };
    struct um_match_recv r[N];
    if (!UM_MATCH_SHORT)
        return;
    for (int i = 0; i < N; i++)
        post(m, &r[i], (uint64_t)i, 0, 1);
    visits();
    for (int i = 0; i < N; i++) {
        assert_ptr_equal(um_match_find_recv(m, (uint64_t)i, 1), &r[i]);
        um_match_unpost(m, &r[i]);
    }
    assert_int_equal(visits(), N);
    assert_int_equal(m->live, 0);
    assert_int_equal(m->orders, 0); /* none was hashed */
}

/* `hashed` goes back as hashed receives are unposted, to the head at last. */
static void an_emptied_queue_is_not_hashed(void **state)
{
    struct um_match *m = *state;
    struct um_match_recv r[3 * UM_MATCH_SHORT + 2];
    enum { N = sizeof(r) / sizeof(r[0]) };
    for (int i = 0; i < N; i++)
        post(m, &r[i], 5, 0, 1);
    assert_null(um_match_find_recv(m, 6, 1));
    assert_true(m->hashed == &r[N - 1 - UM_MATCH_SHORT].all);
    assert_true(um_match_is_valid(m));
    for (int i = N; i-- > 0;) {
        um_match_unpost(m, &r[i]);
        assert_true(um_match_is_valid(m));
    }
    assert_true(m->hashed == &m->recvs);
    assert_int_equal(m->live, 0);
}

static void receives_are_told_in_the_order_of_their_posts(void **state)
{
    struct um_match *m = *state;
    struct um_match_recv r[2 * UM_MATCH_SHORT + 3];
    const int count = sizeof(r) / sizeof(r[0]);
    for (int i = 0; i < count; i++)
        post(m, &r[i], (uint64_t)(count - i), (uint64_t)i, i % 2 ? 1 : UM_MATCH_ANY);
    struct um_match_recv *recv = um_match_any_recv(m);
    for (int i = 0; i < count; i++, recv = um_match_next_recv(m, recv))
        assert_ptr_equal(recv, &r[i]);
    assert_null(recv);
}

static void without_memory_everything_still_works(void **state)
{
    struct um_match *m = *state;
    memory_refused = true;
    for (uint32_t i = 0; i < 500; i++) {
        post(m, &deep_recv[i], i, 0, 1);
        enqueue(m, &deep_msg[i], 1000 + i, 1);
    }
    assert_ptr_equal(um_match_find_msg(m, 1499, 0, 1), &deep_msg[499]);
    assert_true(um_match_is_valid(m));
    memory_refused = false;
    assert_ptr_equal(um_match_find_msg(m, 1499, 0, 1), &deep_msg[499]);
    for (uint32_t i = 500; i < 1000; i++) {
        post(m, &deep_recv[i], i, 0, 1);
        enqueue(m, &deep_msg[i], 1000 + i, 1);
    }
    assert_true(um_match_is_valid(m));
    for (uint32_t i = 0; i < 1000; i++) {
        assert_ptr_equal(um_match_find_recv(m, i, 1), &deep_recv[i]);
        assert_ptr_equal(um_match_find_msg(m, 1000 + i, 0, 1), &deep_msg[i]);
    }
    memory_refused = true;
    assert_null(um_match_open());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_receive_takes_its_tag_and_source_and_nothing_else),
        TEST(a_found_receive_stays_posted_until_unposted),
        TEST(an_any_source_receive_takes_every_source),
        TEST(ignored_bits_of_message_and_receive_do_not_count),
        TEST(a_mask_of_all_ones_takes_every_tag),
        TEST(of_equal_receives_the_oldest_is_found),
        TEST(the_oldest_wins_across_any_source_and_masks),
        TEST(a_receive_from_the_middle_can_be_cancelled),
        TEST(masks_beyond_the_classes_match_in_order_too),
        TEST(a_mask_without_receives_gives_its_place_to_another),
        TEST(a_message_is_found_by_what_takes_it_and_nothing_else),
        TEST(of_equal_messages_the_first_to_arrive_is_found),
        TEST(messages_queued_before_a_mask_was_used_are_found_by_it),
        TEST(messages_queued_before_a_receive_brought_its_mask_are_found_by_it),
        TEST(emptying_yields_the_oldest_first),
        TEST(deep_posted_queues_are_not_walked),
        TEST(deep_unexpected_queues_are_not_walked),
        TEST(eight_masks_and_wildcards_do_not_slow_deep_queues),
        TEST(what_is_received_in_the_order_of_its_arrival_is_not_indexed),
        TEST(an_index_ends_with_its_messages),
        TEST(ten_thousand_of_one_key_do_not_slow_their_neighbours),
        TEST(an_empty_queue_costs_no_visit),
        TEST(an_emptied_queue_is_not_hashed),
        TEST(receives_in_the_order_of_their_messages_are_not_hashed),
        TEST(receives_are_told_in_the_order_of_their_posts),
        TEST(without_memory_everything_still_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
