/* Conformance: tokens and answers. */
#include "conform.h"

static struct um_port *a, *b;
static struct path p;

static void open_path(void)
{
    a = port_new(0);
    b = port_new(0);
    p = path_joined(a, b);
}

static void close_path(void)
{
    path_end(&p);
    machine->port_close(b);
    machine->port_close(a);
}

static void expect_answer(uint32_t token, int32_t status)
{
    struct um_answer answer;
    assert_int_equal(machine->lane_reap(p.lane, &answer, 1), 1);
    assert_int_equal(answer.token, token);
    assert_int_equal(answer.status, status);
}

static void expect_no_answer(void)
{
    struct um_answer answers[UM_TOKENS];
    assert_int_equal(machine->lane_reap(p.lane, answers, UM_TOKENS), 0);
}

static void an_answer_brings_its_token_and_status(void **state)
{
    (void)state;
    static const int32_t statuses[] = {0, 1, -1, INT32_MAX, INT32_MIN, -EKEYREJECTED, 0x12345678};
    open_path();
    expect_no_answer();
    for (uint16_t i = 0; i < 7; i++) {
        machine->answer(p.rx, (uint16_t)(i * 9), statuses[i]);
        expect_answer((uint16_t)(i * 9), statuses[i]);
        expect_no_answer();
    }
    machine->answer(p.rx, UM_TOKENS - 1, 5);
    expect_answer(UM_TOKENS - 1, 5);
    close_path();
}

/* Answers all 64 tokens, in an order that follows from `step` (odd). Reaps the answers, at most `piece` at a time. */
static void answer_all(int step, int piece)
{
    struct um_answer answers[UM_TOKENS];
    int got = 0, n;
    for (int i = 0; i < UM_TOKENS; i++)
        machine->answer(p.rx, (uint16_t)(i * step % UM_TOKENS), i * 3 - 50);
    while ((n = machine->lane_reap(p.lane, answers + got, piece < UM_TOKENS - got ? piece : UM_TOKENS - got)) > 0) {
        assert_true(n <= piece);
        got += n;
        if (got == UM_TOKENS)
            break;
    }
    assert_int_equal(got, UM_TOKENS);
    for (int i = 0; i < UM_TOKENS; i++) {
        assert_int_equal(answers[i].token, i * step % UM_TOKENS);
        assert_int_equal(answers[i].status, i * 3 - 50);
    }
    expect_no_answer();
}

static void all_tokens_can_be_outstanding_at_once(void **state)
{
    (void)state;
    open_path();
    for (int step = 1; step < UM_TOKENS; step += 2)
        answer_all(step, UM_TOKENS);
    close_path();
}

static void reap_takes_no_more_than_asked_for(void **state)
{
    (void)state;
    open_path();
    for (int piece = 1; piece < 20; piece++)
        answer_all(5, piece);
    close_path();
}

static void tokens_serve_again_and_again(void **state)
{
    (void)state;
    open_path();
    for (int round = 0; round < 1100; round++) /* more than 2^16 answers */
        answer_all(1 + 2 * (round % 32), UM_TOKENS);
    close_path();
}

/* Answers unbounded tokens, from `token` on, until there is no place for an answer. Returns how many it answered. */
static uint32_t crowd(uint32_t token)
{
    uint32_t given = 0;
    while (machine->answer(p.rx, token + given, (int32_t)given) == 0)
        given++;
    return given;
}

/* However many answers wait at the sender, a bounded token can always be answered. */
static void unbounded_tokens_leave_the_bounded_ones_their_places(void **state)
{
    (void)state;
    const uint32_t first = 1000000;
    open_path();
    for (int round = 0; round < 20; round++) {
        uint32_t given = crowd(first);
        assert_int_equal(given, UM_ANSWERS - UM_TOKENS);
        assert_int_equal(machine->answer(p.rx, UINT32_MAX, 0), -EAGAIN);
        for (uint32_t t = 0; t < UM_TOKENS; t++)
            assert_int_equal(machine->answer(p.rx, t, 7), 0);
        for (uint32_t i = 0; i < given; i++)
            expect_answer(first + i, (int32_t)i);
        for (uint32_t t = 0; t < UM_TOKENS; t++)
            expect_answer(t, 7);
        expect_no_answer();
    }
    close_path();
}

static void a_sender_that_takes_answers_makes_room_for_more(void **state)
{
    (void)state;
    open_path();
    uint32_t given = crowd(UM_TOKENS), taken = 0;
    for (int i = 0; i < 1000; i++) {
        struct um_answer answers[7];
        int n = machine->lane_reap(p.lane, answers, 7);
        assert_true(n >= 0);
        for (int k = 0; k < n; k++)
            assert_int_equal(answers[k].token, UM_TOKENS + taken++);
        expect_nothing(b);
        while (machine->answer(p.rx, UM_TOKENS + given, 0) == 0)
            given++;
    }
    assert_true(given > 2 * UM_ANSWERS && taken <= given);
    close_path();
}

/* A port that sleeps because an answer found no place is woken when the sender has taken answers. */
static void room_for_an_answer_ends_a_sleep(void **state)
{
    (void)state;
    open_path();
    for (int i = 0; i < 20; i++) {
        uint32_t given = crowd(UM_TOKENS);
        int ret = -EAGAIN;
        for (int k = 0; k < 1000 && ret == -EAGAIN; k++) {
            expect_nothing(b);
            ret = machine->arm(b);
        }
        assert_int_equal(ret, 0);
        assert_false(is_readable(machine->wait_fd(b), 0));
        for (uint32_t k = 0; k < given; k++)
            expect_answer(UM_TOKENS + k, (int32_t)k);
        assert_true(is_readable(machine->wait_fd(b), 1000));
        machine->disarm(b);
        expect_nothing(b);
        assert_int_equal(machine->answer(p.rx, UM_TOKENS, 0), 0);
        expect_answer(UM_TOKENS, 0);
    }
    close_path();
}

/* Claims for a message and aborts. Tries often, because a machine that stalls refuses some claims. */
static int claim_message(uint32_t body_len)
{
    struct um_slot slot;
    int ret = -EAGAIN;
    for (int i = 0; i < 200 && ret == -EAGAIN; i++)
        ret = machine->claim_message(p.lane, body_len, &slot);
    if (ret == 0)
        machine->abort(p.lane, &slot);
    return ret;
}

static void a_hold_stops_messages_and_nothing_else(void **state)
{
    (void)state;
    open_path();
    for (int i = 0; i < 50; i++) {
        machine->rx_hold(p.rx, true);
        machine->rx_hold(p.rx, true);
        assert_int_equal(claim_message(0), -EAGAIN);
        assert_int_equal(claim_message(100), -EAGAIN);
        assert_false(machine->lane_has_room && machine->lane_has_room(p.lane, 1, 100));
        message_send(p.lane, MESSAGE(1, .body_len = 100));
        expect_message(b, p.rx, MESSAGE(1, .body_len = 100));
        assert_int_equal(claim_message(0), -EAGAIN);
        machine->rx_hold(p.rx, false);
        assert_int_equal(claim_message(0), 0);
    }
    close_path();
}

/* Asks often, because a machine that stalls may say no. */
static bool has_room(uint32_t records, uint32_t body_len)
{
    for (int i = 0; i < 200; i++)
        if (machine->lane_has_room(p.lane, records, body_len))
            return true;
    return false;
}

/* While the receiver wants messages announced, lane_has_room() is false, whatever the port does. Messages of one record
 * still go. */
static void who_is_asked_to_announce_sends_no_message_in_several_records(void **state)
{
    (void)state;
    if (!machine->lane_has_room)
        return; /* no message goes in several records */
    open_path();
    (void)machine->lane_body_max(p.lane, machine->body_max);
    for (int i = 0; i < 20; i++) {
        assert_true(has_room(2, 1000));
        machine->rx_announce(p.rx, true);
        machine->rx_announce(p.rx, true);
        assert_false(has_room(2, 1000));
        assert_int_equal(claim_message(1000), 0);
        for (int n = 0; n < 3 && machine->arm(b) != 0; n++)
            expect_nothing(b);
        machine->disarm(b);
        assert_false(has_room(2, 1000));
        message_send(p.lane, MESSAGE(1, .body_len = 100));
        expect_message(b, p.rx, MESSAGE(1, .body_len = 100));
        assert_false(has_room(2, 1000));
        machine->rx_hold(p.rx, true);
        machine->rx_announce(p.rx, false);
        assert_false(has_room(2, 1000));
        assert_int_equal(claim_message(1000), -EAGAIN);
        machine->rx_hold(p.rx, false);
    }
    assert_true(has_room(64, 1024));
    close_path();
}

static void the_end_of_a_hold_wakes_a_sleeper(void **state)
{
    (void)state;
    open_path();
    machine->lane_watch(p.lane, true);
    for (int i = 0; i < 20; i++) {
        int ret = -EAGAIN;
        machine->rx_hold(p.rx, true);
        assert_int_equal(claim_message(0), -EAGAIN);
        for (int k = 0; k < 1000 && ret == -EAGAIN; k++) {
            expect_nothing(a);
            ret = machine->arm(a);
        }
        assert_int_equal(ret, 0);
        assert_false(is_readable(machine->wait_fd(a), 0));
        machine->rx_hold(p.rx, false);
        assert_true(is_readable(machine->wait_fd(a), 1000));
        machine->disarm(a);
        assert_int_equal(claim_message(0), 0);
    }
    close_path();
}

static void a_lane_that_is_held_ends_like_any_other(void **state)
{
    (void)state;
    open_path();
    machine->rx_hold(p.rx, true);
    assert_int_equal(claim_message(0), -EAGAIN);
    machine->rx_refuse(p.rx);
    expect_left(b, p.rx, EPROTO);
    assert_int_equal(claim_message(0), -EPIPE);
    path_close(&p);
    p = path_joined(a, b);
    assert_int_equal(claim_message(0), 0);
    close_path();
}

static void an_answer_needs_no_credit(void **state)
{
    (void)state;
    open_path();
    struct path back = path_joined(b, a);
    uint64_t there = 0, here = 0;
    while (message_try(p.lane, MESSAGE(there, .body_len = 500)) == 0)
        there++;
    while (message_try(back.lane, MESSAGE(here, .body_len = 500)) == 0)
        here++;
    answer_all(3, UM_TOKENS);
    for (uint64_t i = 0; i < there; i++)
        expect_message(b, p.rx, MESSAGE(i, .body_len = 500));
    for (uint64_t i = 0; i < here; i++)
        expect_message(a, back.rx, MESSAGE(i, .body_len = 500));
    path_end(&back);
    close_path();
}

static void an_answer_may_come_while_its_record_is_held_or_long_after(void **state)
{
    (void)state;
    open_path();
    struct um_record rec;
    message_send(p.lane, MESSAGE(1));
    assert_true(poll_now(b, &rec));
    machine->answer(rec.rx, 1, 10);
    expect_answer(1, 10);
    machine->release(b, &rec);
    for (uint64_t i = 0; i < 500; i++) {
        message_send(p.lane, MESSAGE(i));
        expect_message(b, p.rx, MESSAGE(i));
    }
    machine->answer(p.rx, 2, 20);
    expect_answer(2, 20);
    close_path();
}

static void answers_of_different_lanes_do_not_mix(void **state)
{
    (void)state;
    open_path();
    struct path q = path_joined(a, b);
    struct um_answer answer;
    for (int i = 0; i < 200; i++) {
        machine->answer(p.rx, 7, i);
        machine->answer(q.rx, 7, -i);
        expect_answer(7, i);
        expect_no_answer();
        assert_int_equal(machine->lane_reap(q.lane, &answer, 1), 1);
        assert_int_equal(answer.status, -i);
    }
    path_end(&q);
    close_path();
}

static void a_new_lane_inherits_no_answer(void **state)
{
    (void)state;
    a = port_new(0);
    b = port_new(1);
    for (int round = 0; round < 100; round++) {
        p = path_joined(a, b);
        expect_no_answer();
        for (int i = 0; i < round % 60; i++)
            machine->answer(p.rx, (uint16_t)i, round);
        if (round % 2)
            expect_answer(0, round);
        path_end(&p);
    }
    machine->port_close(b);
    machine->port_close(a);
}

static void after_the_peers_end_the_answers_left_come_and_then_the_error(void **state)
{
    (void)state;
    struct um_answer answers[UM_TOKENS];
    for (int refused = 0; refused < 2; refused++) {
        open_path();
        machine->answer(p.rx, 4, 40);
        machine->answer(p.rx, 5, 50);
        if (refused) {
            machine->rx_refuse(p.rx);
            expect_left(b, p.rx, EPROTO);
        } else {
            machine->port_close(b);
        }
        expect_answer(4, 40);
        expect_answer(5, 50);
        assert_int_equal(machine->lane_reap(p.lane, answers, UM_TOKENS), -EPIPE);
        path_close(&p);
        if (refused)
            machine->port_close(b);
        machine->port_close(a);
    }
}

GROUP(answer, T(an_answer_brings_its_token_and_status), T(all_tokens_can_be_outstanding_at_once),
      T(reap_takes_no_more_than_asked_for), T(tokens_serve_again_and_again),
      T(unbounded_tokens_leave_the_bounded_ones_their_places), T(a_sender_that_takes_answers_makes_room_for_more),
      T(room_for_an_answer_ends_a_sleep), T(a_hold_stops_messages_and_nothing_else),
      T(who_is_asked_to_announce_sends_no_message_in_several_records), T(the_end_of_a_hold_wakes_a_sleeper),
      T(a_lane_that_is_held_ends_like_any_other), T(an_answer_needs_no_credit),
      T(an_answer_may_come_while_its_record_is_held_or_long_after), T(answers_of_different_lanes_do_not_mix),
      T(a_new_lane_inherits_no_answer), T(after_the_peers_end_the_answers_left_come_and_then_the_error));
