/* Conformance: what the sender learns of consumption. */
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

/* Returns how many committed records are not known to be consumed. */
static uint32_t outstanding(void)
{
    return machine->lane_committed(p.lane) - machine->lane_consumed(p.lane);
}

static void a_new_lane_has_nothing_outstanding(void **state)
{
    (void)state;
    open_path();
    assert_int_equal(outstanding(), 0);
    close_path();
}

static void committed_counts_commits_and_not_claims(void **state)
{
    (void)state;
    open_path();
    struct um_slot slot;
    uint32_t before = machine->lane_committed(p.lane);
    assert_int_equal(claim_now(p.lane, 0, &slot), 0);
    assert_int_equal(machine->lane_committed(p.lane), before);
    machine->abort(p.lane, &slot);
    assert_int_equal(machine->lane_committed(p.lane), before);
    message_send(p.lane, MESSAGE(1));
    assert_int_equal(machine->lane_committed(p.lane), before + 1);
    expect_message(b, p.rx, MESSAGE(1));
    close_path();
}

static void what_is_not_released_is_not_consumed(void **state)
{
    (void)state;
    open_path();
    struct um_record rec;
    message_send(p.lane, MESSAGE(1, .flags = UM_FLAG_ACK));
    assert_int_equal(outstanding(), 1);
    for (int i = 0; i < 200; i++)
        assert_true(poll_now(b, &rec));
    assert_int_equal(outstanding(), 1);
    machine->release(b, &rec);
    assert_int_equal(outstanding(), 0);
    close_path();
}

static void a_record_with_the_ack_flag_is_told_at_its_release(void **state)
{
    (void)state;
    open_path();
    for (uint64_t i = 0; i < 2000; i++) {
        uint32_t len = i % 3 * 100;
        for (uint64_t n = 0; n < i % 5; n++)
            message_send(p.lane, MESSAGE(n));
        message_send(p.lane, MESSAGE(i, .body_len = len, .flags = UM_FLAG_ACK));
        uint32_t upto = machine->lane_committed(p.lane);
        for (uint64_t n = 0; n < i % 5; n++)
            expect_message(b, p.rx, MESSAGE(n));
        message_send(p.lane, MESSAGE(77));
        expect_message(b, p.rx, MESSAGE(i, .body_len = len, .flags = UM_FLAG_ACK));
        assert_int_equal(machine->lane_consumed(p.lane), upto);
        expect_message(b, p.rx, MESSAGE(77));
    }
    close_path();
}

static void consumption_is_told_in_the_end_to_who_keeps_polling(void **state)
{
    (void)state;
    open_path();
    for (uint64_t i = 0; i < 50; i++) {
        for (uint64_t n = 0; n < i; n++)
            message_send(p.lane, MESSAGE(n, .body_len = n));
        for (uint64_t n = 0; n < i; n++)
            expect_message(b, p.rx, MESSAGE(n, .body_len = n));
        expect_nothing(b);
        assert_int_equal(outstanding(), 0);
    }
    close_path();
}

static void consumption_is_told_before_sleeping(void **state)
{
    (void)state;
    open_path();
    for (uint64_t i = 0; i < 50; i++) {
        message_send(p.lane, MESSAGE(i));
        expect_message(b, p.rx, MESSAGE(i));
        for (int n = 0; n < 3 && machine->arm(b) != 0; n++)
            ;
        assert_int_equal(outstanding(), 0);
        machine->disarm(b);
    }
    close_path();
}

static void consumed_never_goes_back_nor_past_what_was_committed(void **state)
{
    (void)state;
    open_path();
    uint64_t seed = 9, sent = 0, got = 0;
    uint32_t last = machine->lane_consumed(p.lane);
    for (int i = 0; i < 60000; i++) {
        if (i == 30000)
            machine->lane_body_max(p.lane, machine->body_max);
        uint8_t flags = sent % 7 == 0 ? UM_FLAG_ACK : 0;
        if (chance(&seed, 2))
            sent += message_try(p.lane, MESSAGE(sent, .flags = flags, .body_len = sent % 100)) == 0;
        if (chance(&seed, 2) && got < sent) {
            expect_message(b, p.rx, MESSAGE(got, .flags = got % 7 == 0 ? UM_FLAG_ACK : 0, .body_len = got % 100));
            got++;
        }
        uint32_t consumed = machine->lane_consumed(p.lane);
        uint32_t committed = machine->lane_committed(p.lane);
        assert_true((int32_t)(consumed - last) >= 0);
        assert_true(committed - consumed >= sent - got); /* no more are consumed than were released */
        assert_true((int32_t)(committed - consumed) >= 0);
        last = consumed;
    }
    while (got < sent) {
        expect_message(b, p.rx, MESSAGE(got, .flags = got % 7 == 0 ? UM_FLAG_ACK : 0, .body_len = got % 100));
        got++;
    }
    close_path();
}

static void the_last_consumption_is_known_after_the_end(void **state)
{
    (void)state;
    open_path();
    message_send(p.lane, MESSAGE(1));
    message_send(p.lane, MESSAGE(2));
    expect_message(b, p.rx, MESSAGE(1));
    machine->port_close(b);
    assert_int_equal(outstanding(), 1);
    path_close(&p);
    machine->port_close(a);
}

GROUP(credit, T(a_new_lane_has_nothing_outstanding), T(committed_counts_commits_and_not_claims),
      T(what_is_not_released_is_not_consumed), T(a_record_with_the_ack_flag_is_told_at_its_release),
      T(consumption_is_told_in_the_end_to_who_keeps_polling), T(consumption_is_told_before_sleeping),
      T(consumed_never_goes_back_nor_past_what_was_committed), T(the_last_consumption_is_known_after_the_end));
