/* Conformance: how lanes and ports end. */
#include "two.h"

static void what_was_committed_is_delivered_after_close(void **state)
{
    (void)state;
    open_two();
    for (int grown = 0; grown < 2; grown++) {
        struct path p = path_joined(a, b);
        uint32_t max = machine->lane_body_max(p.lane, grown ? machine->body_max : 0);
        uint64_t sent = 0;
        while (message_try(p.lane, MESSAGE(sent, .body_len = sent % 2 ? max / 3 : 0)) == 0)
            sent++;
        path_close(&p);
        for (uint64_t i = 0; i < sent; i++)
            expect_message(b, p.rx, MESSAGE(i, .body_len = i % 2 ? max / 3 : 0));
        expect_left(b, p.rx, 0);
        expect_nothing(b);
    }
    close_two();
}

static void the_port_of_the_sender_may_close_before_delivery(void **state)
{
    (void)state;
    open_two();
    struct path p = path_open(a, b);
    struct um_addr origin, addr = addr_of(a);
    message_send(p.lane, MESSAGE(1, .body_len = 500));
    path_close(&p);
    machine->port_close(a);
    struct um_record rec;
    assert_true(poll_now(b, &rec));
    assert_int_equal(rec.op, UM_REC_JOINED);
    machine->rx_origin(rec.rx, &origin);
    assert_memory_equal(&origin, &addr, sizeof(addr));
    machine->release(b, &rec);
    expect_message(b, rec.rx, MESSAGE(1, .body_len = 500));
    for (int i = 0; i < 100; i++)
        machine->tick(b);
    expect_left(b, rec.rx, 0);
    machine->port_close(b);
}

static void a_lane_without_records_joins_and_leaves(void **state)
{
    (void)state;
    open_two();
    for (int i = 0; i < 100; i++) {
        struct path p = path_open(a, b);
        path_close(&p);
        p.rx = expect_joined(b, a);
        expect_left(b, p.rx, 0);
        expect_nothing(b);
    }
    close_two();
}

static void left_is_offered_until_it_is_released(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    struct um_record rec;
    path_close(&p);
    for (int i = 0; i < 20; i++) {
        assert_true(poll_now(b, &rec) || poll_now(b, &rec));
        assert_int_equal(rec.op, UM_REC_LEFT);
        assert_ptr_equal(rec.rx, p.rx);
        assert_int_equal(rec.len, 0);
    }
    machine->release(b, &rec);
    expect_nothing(b);
    close_two();
}

static void a_record_held_during_the_close_stays_whole(void **state)
{
    (void)state;
    open_two_for(1);
    struct path p = path_joined(a, b);
    struct um_record rec;
    message_send(p.lane, MESSAGE(1, .body_len = 300));
    assert_true(poll_now(b, &rec));
    path_close(&p);
    for (int i = 0; i < 20; i++)
        machine->tick(b);
    assert_true(message_is(&rec, MESSAGE(1, .body_len = 300)));
    machine->release(b, &rec);
    expect_left(b, p.rx, 0);
    close_two();
}

static void a_closed_port_is_a_broken_pipe_for_its_senders(void **state)
{
    (void)state;
    open_two();
    struct path joined = path_joined(a, b), unseen = path_open(a, b);
    struct um_slot slot, held;
    assert_int_equal(claim_now(joined.lane, 100, &held), 0);
    machine->port_close(b);
    memset(held.body, 1, 100); /* a claimed slot can still be written and committed; the record is lost */
    machine->commit(joined.lane, &held, 1, 0, 100);
    assert_int_equal(claim_now(joined.lane, 0, &slot), -EPIPE);
    assert_int_equal(claim_now(unseen.lane, 10, &slot), -EPIPE);
    struct um_answer answer;
    assert_int_equal(machine->lane_reap(joined.lane, &answer, 1), -EPIPE);
    assert_int_equal(machine->lane_reap(unseen.lane, &answer, 1), -EPIPE);
    path_close(&joined);
    path_close(&unseen);
    machine->port_close(a);
}

/* However many lanes are free between those in use. */
static void a_closed_port_tells_all_its_senders(void **state)
{
    (void)state;
    enum { N = 150 };
    static struct path p[N];
    struct um_slot slot;
    open_two_for(N);
    for (int i = 0; i < N; i++)
        p[i] = path_joined(a, b);
    for (int i = 1; i < N - 1; i++)
        path_end(&p[i]);
    machine->port_close(b);
    assert_int_equal(claim_now(p[0].lane, 0, &slot), -EPIPE);
    assert_int_equal(claim_now(p[N - 1].lane, 0, &slot), -EPIPE);
    path_close(&p[0]);
    path_close(&p[N - 1]);
    machine->port_close(a);
}

static void a_closed_port_refuses_new_lanes(void **state)
{
    (void)state;
    open_two();
    struct um_addr addr = addr_of(b);
    struct path used = path_joined(a, b);
    struct um_link *fresh;
    struct um_lane *lane;
    assert_int_equal(machine->link_open(a, &addr, &fresh), 0);
    path_close(&used);
    struct path again = path_open(a, b);
    machine->port_close(b);
    assert_int_equal(lane_open_now(fresh, &lane), -ECONNREFUSED);
    assert_int_equal(lane_open_now(again.link, &lane), -ECONNREFUSED);
    path_close(&again);
    machine->link_close(fresh);
    machine->port_close(a);
}

static void a_port_opened_later_is_not_taken_for_a_closed_one(void **state)
{
    (void)state;
    open_two();
    struct um_addr addr = addr_of(b);
    struct um_link *link;
    struct um_lane *lane;
    assert_int_equal(machine->link_open(a, &addr, &link), 0);
    for (int i = 0; i < 10; i++) {
        machine->port_close(b);
        b = port_new(0);
        int ret = lane_open_now(link, &lane); /* the new port may be in the place of the closed one */
        assert_true(ret == -ECONNREFUSED || ret == -EHOSTUNREACH);
        expect_nothing(b);
    }
    machine->link_close(link);
    close_two();
}

static void a_port_closes_with_lanes_in_every_state(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        open_two();
        struct um_record rec;
        struct path gone = path_joined(a, b), idle = path_joined(b, b), refused = path_joined(a, b);
        struct path full = path_joined(a, b), unseen = path_open(a, b);
        machine->rx_refuse(refused.rx);
        path_close(&gone);
        for (uint64_t i = 0; message_try(full.lane, MESSAGE(i)) == 0; i++)
            ;
        for (int i = 0; i < round; i++)
            if (poll_now(b, &rec) && round % 2)
                machine->release(b, &rec);
        path_close(&idle);
        machine->port_close(b);
        path_close(&unseen);
        path_close(&refused);
        path_close(&full);
        machine->port_close(a);
    }
}

static void more_senders_than_lanes_must_wait(void **state)
{
    (void)state;
    enum { LANES = 3 };
    open_two_for(LANES);
    struct path p[LANES];
    struct um_addr addr = addr_of(b);
    struct um_link *link;
    struct um_lane *lane;
    assert_int_equal(machine->link_open(a, &addr, &link), 0);
    for (int i = 0; i < LANES; i++)
        p[i] = path_joined(a, b);
    for (int round = 0; round < 50; round++) {
        assert_int_equal(lane_open_now(link, &lane), -EAGAIN);
        int i = round % LANES;
        message_send(p[i].lane, MESSAGE(1));
        path_close(&p[i]);
        expect_message(b, p[i].rx, MESSAGE(1));
        expect_left(b, p[i].rx, 0);
        p[i] = path_joined(a, b);
        for (int k = 0; k < LANES; k++) {
            message_send(p[k].lane, MESSAGE(7, .body_len = 70));
            expect_message(b, p[k].rx, MESSAGE(7, .body_len = 70));
        }
    }
    for (int i = 0; i < LANES; i++)
        path_end(&p[i]);
    machine->link_close(link);
    close_two();
}

GROUP(close, T(what_was_committed_is_delivered_after_close), T(the_port_of_the_sender_may_close_before_delivery),
      T(a_lane_without_records_joins_and_leaves), T(left_is_offered_until_it_is_released),
      T(a_record_held_during_the_close_stays_whole), T(a_closed_port_is_a_broken_pipe_for_its_senders),
      T(a_closed_port_tells_all_its_senders), T(a_closed_port_refuses_new_lanes),
      T(a_port_opened_later_is_not_taken_for_a_closed_one), T(a_port_closes_with_lanes_in_every_state),
      T(more_senders_than_lanes_must_wait));
