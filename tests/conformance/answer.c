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

static void expect_answer(uint16_t token, int32_t status)
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

/* Gives all 64 answers in an order that step (odd) makes, and reaps them in pieces. */
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
      T(reap_takes_no_more_than_asked_for), T(tokens_serve_again_and_again), T(an_answer_needs_no_credit),
      T(an_answer_may_come_while_its_record_is_held_or_long_after), T(answers_of_different_lanes_do_not_mix),
      T(a_new_lane_inherits_no_answer), T(after_the_peers_end_the_answers_left_come_and_then_the_error));
