/* The machine over another provider: which of the messages that came poll, gather and sleep take, and which not. */
#include "net_two.h"

#include <sys/timerfd.h>

static void large_bodies_are_announced_while_the_receiver_wants_that(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    for (int i = 0; i < 3; i++) {
        expect_nothing(a);
        assert_false(um_net_prefers_rndv(p.lane, NULL, 0, UM_NET_BODY_MAX));
        machine->rx_announce(p.rx, true);
        expect_nothing(a);
        assert_true(um_net_prefers_rndv(p.lane, NULL, 0, UM_ANNOUNCED_MIN + 1));
        assert_false(um_net_prefers_rndv(p.lane, NULL, 0, UM_ANNOUNCED_MIN));
        machine->rx_announce(p.rx, false);
    }
    path_end(&p);
    close_two();
}

/* Calls the machine itself: net_settled.c would drive the port. */
static void a_record_that_stays_does_not_keep_answers_away(void **state)
{
    (void)state;
    struct um_answer answer;
    struct um_record rec;
    open_two();
    struct path p = path_joined(a, b), back = path_joined(b, a);
    message_send(back.lane, MESSAGE(1));
    const uint64_t end = now_ms() + PATIENCE;
    while (um_machine_net.poll(a, &rec) == 0)
        assert_true(now_ms() < end);
    assert_int_equal(machine->answer(p.rx, 3, 7), 0);
    while (um_machine_net.lane_reap(p.lane, &answer, 1) == 0) {
        assert_int_equal(um_machine_net.poll(a, &rec), 1);
        assert_true(message_is(&rec, MESSAGE(1)));
        assert_true(now_ms() < end);
    }
    assert_int_equal(answer.token, 3);
    um_machine_net.release(a, &rec);
    expect_nothing(a);
    path_end(&p);
    path_end(&back);
    close_two();
}

/* The caller first handles the record that it got, and polls again afterwards. */
static void the_first_poll_behind_a_record_does_not_look(void **state)
{
    (void)state;
    struct um_record rec;
    open_two();
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 3; i++) {
        send_unseen(&p, 2 * i);
        expect_message(b, p.rx, MESSAGE(2 * i));
        send_unseen(&p, 2 * i + 1);
        assert_int_equal(um_net_poll(b, &rec), 0);
        expect_message(b, p.rx, MESSAGE(2 * i + 1));
        expect_nothing(b);
    }
    path_end(&p);
    close_two();
}

static void gather_finds_who_joined_behind_many_records(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    open_two();
    struct um_port *c = port_new(0);
    struct um_addr addr = addr_of(b);
    struct um_record rec;
    struct path p = path_joined(a, b), old = path_joined(c, b), new = {.from = c, .to = b};
    assert_int_equal(machine->link_open(c, &addr, &new.link), 0);
    for (uint64_t i = 0; i < COUNT; i++)
        send_unseen(&p, i);
    assert_int_equal(um_net_lane_open(new.link, &new.lane), -EAGAIN);
    assert_true(um_net_gather(b));
    for (int i = 0; i < COUNT + 1; i++) {
        assert_true(poll_now(b, &rec));
        new.rx = rec.op == UM_REC_JOINED ? rec.rx : new.rx;
        machine->release(b, &rec);
    }
    assert_int_equal(machine->lane_open(new.link, &new.lane), 0);
    path_end(&new);
    path_end(&old);
    path_end(&p);
    machine->port_close(c);
    close_two();
}

static void a_sleeper_that_is_woken_takes_all_that_came(void **state)
{
    (void)state;
    enum { LANES = 20, COUNT = 60 };
    struct path p[LANES];
    struct um_record rec;
    open_two();
    for (int i = 0; i < LANES; i++)
        p[i] = path_joined(a, b);
    arm_now(b);
    for (uint64_t i = 0; i < LANES * COUNT; i++)
        send_unseen(&p[i % LANES], i);
    machine->disarm(b);
    assert_false(is_readable(machine->wait_fd(b), 0));
    for (int i = 0; i < LANES * COUNT; i++) {
        assert_true(poll_now(b, &rec));
        machine->release(b, &rec);
    }
    for (int i = 0; i < LANES; i++)
        path_end(&p[i]);
    close_two();
}

/* Sleeps until the port is woken, and looks. */
static void sleep_and_look(struct um_port *port)
{
    struct um_record rec;
    arm_now(port);
    assert_true(is_readable(machine->wait_fd(port), PATIENCE));
    machine->disarm(port);
    assert_int_equal(machine->poll(port, &rec), 0);
}

/* Returns the time (ns) after which a sleeper looks. */
static long looks_after(struct um_port *port)
{
    arm_now(port);
    const long ns = net_of(port)->look_ns;
    machine->disarm(port);
    return ns;
}

/* Returns the time (ns) until the timer of a port that sleeps ends; 0 if it has ended. */
static long timer_left(struct um_port *port)
{
    struct itimerspec left;
    arm_now(port);
    assert_true(is_readable(machine->wait_fd(port), 0) || net_of(port)->is_timed);
    assert_int_equal(timerfd_gettime(net_of(port)->timer_fd, &left), 0);
    machine->disarm(port);
    return left.it_value.tv_sec * 1000000000L + left.it_value.tv_nsec;
}

static void who_is_woken_by_nothing_looks_often_after_a_record_and_seldom_later(void **state)
{
    enum { MS = 1000000, LOOKS = 40 };
    (void)state;
    struct um_record rec;
    const struct um_port_config config = {.private_copy = true, .wait_none = true};
    a = port_new(0);
    assert_int_equal(machine->port_open(&config, &b), 0);
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 3; i++) {
        message_send(p.lane, MESSAGE(i));
        expect_message(b, p.rx, MESSAGE(i));
        assert_in_range(looks_after(b), 1, MS / 5);
        sleep_and_look(b);
    }
    for (int i = 0; i < LOOKS / 4; i++)
        sleep_and_look(b);
    assert_in_range(looks_after(b), MS / 2, 2 * MS);
    for (int i = LOOKS / 4; i < LOOKS; i++)
        sleep_and_look(b);
    assert_int_equal(looks_after(b), UM_WAIT_NONE_MS * MS);
    for (int i = 0; i < LOOKS / 4; i++) { /* PROBEs come twice a second, from each peer */
        sleep_us(50000);
        machine->tick(a);
        machine->tick(b);
    }
    assert_int_equal(looks_after(b), UM_WAIT_NONE_MS * MS);
    const uint64_t strays = net_of(b)->strays;
    send_raw(&p, "?", 1); /* nor does a malformed message count */
    while (net_of(b)->strays == strays)
        (void)machine->poll(b, &rec);
    assert_int_equal(looks_after(b), UM_WAIT_NONE_MS * MS);
    assert_true(timer_left(b) <= UM_WAIT_NONE_MS * MS);
    net_of(b)->bodies.shown++; /* as if a peer read memory, which no event reports */
    assert_true(timer_left(b) <= 2 * MS);
    sleep_and_look(b);
    net_of(b)->bodies.shown--;
    message_send(p.lane, MESSAGE(LOOKS));
    assert_true(poll_now(b, &rec));
    assert_int_equal(net_of(b)->look_ns, 0);
    machine->release(b, &rec);
    assert_in_range(looks_after(b), 1, MS / 5);
    path_end(&p);
    close_two();
}

GROUP(net_poll, T(large_bodies_are_announced_while_the_receiver_wants_that),
      T(a_record_that_stays_does_not_keep_answers_away), T(the_first_poll_behind_a_record_does_not_look),
      T(gather_finds_who_joined_behind_many_records), T(a_sleeper_that_is_woken_takes_all_that_came),
      T(who_is_woken_by_nothing_looks_often_after_a_record_and_seldom_later));
