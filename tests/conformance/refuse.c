/* Conformance: a receiver ends a lane whose sender broke the protocol. */
#include "two.h"

static void expect_broken(struct um_lane *lane)
{
    struct um_slot slot;
    struct um_answer answer;
    assert_int_equal(claim_now(lane, 0, &slot), -EPIPE);
    assert_int_equal(claim_now(lane, 10, &slot), -EPIPE);
    assert_int_equal(machine->lane_reap(lane, &answer, 1), -EPIPE);
}

static void the_sender_sees_a_broken_pipe_and_the_receiver_the_end(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    machine->rx_refuse(p.rx);
    expect_left(b, p.rx, EPROTO);
    expect_nothing(b);
    expect_broken(p.lane);
    path_close(&p);
    expect_nothing(b);
    close_two();
}

/* Otherwise it would take a share of the memory that other lanes could use. */
static void a_refused_lane_does_not_grow(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    uint32_t small = machine->lane_body_max(p.lane, 0);
    machine->rx_refuse(p.rx);
    assert_int_equal(machine->lane_body_max(p.lane, machine->body_max), small);
    expect_left(b, p.rx, EPROTO);
    path_close(&p);
    close_two();
}

static void what_waits_in_a_refused_lane_is_not_delivered(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 10; i++)
        message_send(p.lane, MESSAGE(i));
    expect_message(b, p.rx, MESSAGE(0));
    machine->rx_refuse(p.rx);
    expect_left(b, p.rx, EPROTO);
    expect_nothing(b);
    path_close(&p);
    close_two();
}

static void a_record_at_hand_can_be_refused_before_its_release(void **state)
{
    (void)state;
    open_two_for(2);
    for (int round = 0; round < 50; round++) {
        struct path p = path_joined(a, b);
        struct um_record rec;
        message_send(p.lane, MESSAGE(1, .body_len = 100, .flags = UM_FLAG_ACK));
        message_send(p.lane, MESSAGE(2));
        assert_true(poll_now(b, &rec));
        machine->rx_refuse(rec.rx);
        machine->release(b, &rec);
        expect_left(b, p.rx, EPROTO);
        expect_nothing(b);
        expect_broken(p.lane);
        path_close(&p);
        expect_nothing(b);
    }
    close_two();
}

static void a_sender_can_be_refused_as_it_joins(void **state)
{
    (void)state;
    open_two_for(2);
    for (int round = 0; round < 50; round++) {
        struct path p = path_open(a, b);
        struct um_record rec;
        message_send(p.lane, MESSAGE(1));
        assert_true(poll_now(b, &rec));
        assert_int_equal(rec.op, UM_REC_JOINED);
        machine->rx_refuse(rec.rx);
        machine->release(b, &rec);
        expect_left(b, rec.rx, EPROTO);
        expect_nothing(b);
        expect_broken(p.lane);
        path_close(&p);
        expect_nothing(b);
    }
    close_two();
}

static void refusing_twice_is_once(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    machine->rx_refuse(p.rx);
    machine->rx_refuse(p.rx);
    expect_left(b, p.rx, EPROTO);
    expect_nothing(b);
    path_close(&p);
    expect_nothing(b);
    close_two();
}

static void a_claim_of_before_can_still_be_committed_or_aborted(void **state)
{
    (void)state;
    open_two_for(2);
    for (int round = 0; round < 20; round++) {
        struct path p = path_joined(a, b);
        struct um_slot slot;
        assert_int_equal(claim_now(p.lane, 200, &slot), 0);
        machine->rx_refuse(p.rx);
        expect_left(b, p.rx, EPROTO);
        memset(slot.body, 1, 200);
        if (round % 2)
            machine->commit(p.lane, &slot, 1, 0, 200);
        else
            machine->abort(p.lane, &slot);
        expect_broken(p.lane);
        expect_nothing(b);
        path_close(&p);
        expect_nothing(b);
    }
    close_two();
}

static void other_lanes_go_on(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b), bad = path_joined(a, b), q = path_joined(a, b);
    message_send(p.lane, MESSAGE(1));
    message_send(bad.lane, MESSAGE(2));
    message_send(q.lane, MESSAGE(3));
    machine->rx_refuse(bad.rx);
    int got = 0;
    struct um_record rec;
    while (poll_now(b, &rec)) {
        assert_true(rec.rx == bad.rx ? rec.op == UM_REC_LEFT : message_is(&rec, MESSAGE(rec.rx == p.rx ? 1 : 3)));
        machine->release(b, &rec);
        got++;
    }
    assert_int_equal(got, 3);
    path_close(&bad);
    path_end(&p);
    path_end(&q);
    close_two();
}

static void the_lane_serves_others_when_the_refused_sender_closed(void **state)
{
    (void)state;
    open_two_for(1);
    struct um_addr addr = addr_of(b);
    struct um_link *link;
    struct um_lane *lane;
    assert_int_equal(machine->link_open(a, &addr, &link), 0);
    for (int round = 0; round < 100; round++) {
        struct path p = path_joined(a, b);
        for (uint64_t i = 0; i < 5; i++)
            message_send(p.lane, MESSAGE(i, .body_len = 100));
        machine->rx_refuse(p.rx);
        if (round % 2)
            expect_left(b, p.rx, EPROTO);
        assert_int_equal(lane_open_now(link, &lane), -EAGAIN); /* its old sender may still write there */
        path_close(&p);
        if (round % 2 == 0)
            expect_left(b, p.rx, EPROTO);
        expect_nothing(b);
        p = path_joined(a, b);
        message_send(p.lane, MESSAGE(9, .body_len = 90));
        expect_message(b, p.rx, MESSAGE(9, .body_len = 90));
        path_end(&p);
    }
    machine->link_close(link);
    close_two();
}

/* Returns how many of 8 lanes can grow; closes them again. */
static int growable(void)
{
    enum { LANES = 8 };
    struct path p[LANES];
    int grown = 0;
    for (int i = 0; i < LANES; i++) {
        p[i] = path_joined(a, b);
        grown += machine->lane_body_max(p[i].lane, machine->body_max) == machine->body_max;
    }
    for (int i = 0; i < LANES; i++)
        path_end(&p[i]);
    return grown;
}

static void the_memory_of_refused_lanes_comes_back(void **state)
{
    (void)state;
    struct um_port_config config = {.memory_max = 1 << 20, .private_copy = true};
    a = port_new(0);
    assert_int_equal(machine->port_open(&config, &b), 0);
    int before = growable();
    for (int round = 0; round < 20; round++) {
        struct path p = path_joined(a, b);
        for (uint64_t i = 0; i < (uint64_t)round; i++)
            message_send(p.lane, MESSAGE(i, .body_len = 10));
        assert_int_equal(machine->lane_body_max(p.lane, machine->body_max), machine->body_max);
        if (round % 3 == 0)
            message_send(p.lane, MESSAGE(77, .body_len = machine->body_max));
        if (round % 2 == 0)
            for (uint64_t i = 0; i < (uint64_t)round; i++)
                expect_message(b, p.rx, MESSAGE(i, .body_len = 10));
        machine->rx_refuse(p.rx);
        expect_left(b, p.rx, EPROTO);
        path_close(&p);
        expect_nothing(b);
    }
    assert_int_equal(growable(), before);
    close_two();
}

GROUP(refuse, T(the_sender_sees_a_broken_pipe_and_the_receiver_the_end), T(a_refused_lane_does_not_grow),
      T(what_waits_in_a_refused_lane_is_not_delivered), T(a_record_at_hand_can_be_refused_before_its_release),
      T(a_sender_can_be_refused_as_it_joins), T(refusing_twice_is_once),
      T(a_claim_of_before_can_still_be_committed_or_aborted), T(other_lanes_go_on),
      T(the_lane_serves_others_when_the_refused_sender_closed), T(the_memory_of_refused_lanes_comes_back));
