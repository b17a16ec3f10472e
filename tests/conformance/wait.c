/* Conformance: sleeping, step by step: what arm() promises for every kind of event. */
#include "two.h"

#include "base/atomic.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static bool is_awake(struct um_port *port)
{
    return is_readable(machine->wait_fd(port), 0);
}

/* The sleeping port must have been woken. Disarms it. */
static void expect_woken(struct um_port *port)
{
    assert_true(is_readable(machine->wait_fd(port), 1 * SEC));
    machine->disarm(port);
    assert_false(is_awake(port));
}

static void a_quiet_port_sleeps_until_it_is_kicked(void **state)
{
    (void)state;
    open_two();
    for (int i = 0; i < 50; i++) {
        assert_false(is_awake(b));
        arm_now(b);
        assert_false(is_readable(machine->wait_fd(b), i == 0 ? 50 : 0));
        machine->kick(b);
        expect_woken(b);
    }
    close_two();
}

static void many_kicks_are_drained_at_once(void **state)
{
    (void)state;
    open_two();
    arm_now(b);
    for (int i = 0; i < 200000; i++) /* more than a pipe holds; must not block */
        machine->kick(b);
    expect_woken(b);
    arm_now(b);
    machine->disarm(b);
    close_two();
}

static void a_kick_before_arming_is_not_lost(void **state)
{
    (void)state;
    open_two();
    machine->kick(b);
    if (machine->arm(b) == 0)
        assert_true(is_readable(machine->wait_fd(b), 1 * SEC));
    machine->disarm(b);
    assert_false(is_awake(b));
    close_two();
}

static void a_new_lane_wakes(void **state)
{
    (void)state;
    open_two();
    for (int i = 0; i < 20; i++) {
        arm_now(b);
        struct path p = path_open(a, b);
        expect_woken(b);
        p.rx = expect_joined(b, a);
        path_end(&p);
    }
    close_two();
}

static void a_record_wakes(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 300; i++) {
        arm_now(b);
        message_send(p.lane, MESSAGE(i, .body_len = i));
        if (i % 2)
            message_send(p.lane, MESSAGE(i));
        expect_woken(b);
        expect_message(b, p.rx, MESSAGE(i, .body_len = i));
        if (i % 2)
            expect_message(b, p.rx, MESSAGE(i));
    }
    path_end(&p);
    close_two();
}

static void a_record_claimed_before_the_sleep_wakes(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 20; i++) {
        const struct message *msg = MESSAGE(i, .body_len = i % 2 ? 100 : 0);
        struct um_slot slot;
        assert_int_equal(claim_now(p.lane, msg->body_len, &slot), 0);
        arm_now(b);
        message_fill(&slot, msg);
        machine->commit(p.lane, &slot, msg->op, msg->flags, msg->body_len ? msg->body_len : (uint16_t)i);
        expect_woken(b);
        expect_message(b, p.rx, msg);
    }
    path_end(&p);
    close_two();
}

static void the_end_of_a_lane_wakes(void **state)
{
    (void)state;
    open_two();
    for (int i = 0; i < 20; i++) {
        struct path p = path_joined(a, b);
        arm_now(b);
        path_close(&p);
        expect_woken(b);
        expect_left(b, p.rx, 0);
    }
    close_two();
}

static void what_is_there_already_keeps_from_sleeping(void **state)
{
    (void)state;
    open_two();
    struct path p = path_open(a, b);
    assert_int_equal(machine->arm(b), -EAGAIN); /* joined */
    p.rx = expect_joined(b, a);
    for (uint64_t i = 0; i < 100; i++) {
        message_send(p.lane, MESSAGE(i));
        assert_int_equal(machine->arm(b), -EAGAIN);
        if (i % 3 == 0)
            assert_int_equal(machine->arm(b), -EAGAIN);
        expect_message(b, p.rx, MESSAGE(i));
    }
    path_close(&p);
    assert_int_equal(machine->arm(b), -EAGAIN); /* left */
    expect_left(b, p.rx, 0);
    arm_now(b);
    machine->disarm(b);
    close_two();
}

static void a_record_not_released_keeps_from_sleeping(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    struct um_record rec;
    message_send(p.lane, MESSAGE(1));
    assert_true(poll_now(b, &rec));
    assert_int_equal(machine->arm(b), -EAGAIN);
    machine->release(b, &rec);
    arm_now(b);
    machine->disarm(b);
    path_end(&p);
    close_two();
}

static void an_answer_wakes_who_watches(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    struct um_answer answer;
    machine->lane_watch(p.lane, true);
    for (int i = 0; i < 300; i++) {
        machine->lane_consumed(p.lane);
        arm_now(a);
        machine->answer(p.rx, (uint16_t)(i % UM_TOKENS), i);
        expect_woken(a);
        machine->answer(p.rx, (uint16_t)((i + 1) % UM_TOKENS), i);
        assert_int_equal(machine->arm(a), -EAGAIN);
        assert_int_equal(machine->lane_reap(p.lane, &answer, 1), 1);
        assert_int_equal(machine->lane_reap(p.lane, &answer, 1), 1);
    }
    machine->lane_watch(p.lane, false);
    machine->answer(p.rx, 1, 1);
    arm_now(a); /* the lane is not watched: an answer is no event */
    machine->disarm(a);
    path_end(&p);
    close_two();
}

static void consumption_wakes_who_watches(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    machine->lane_watch(p.lane, true);
    for (uint64_t i = 0; i < 300; i++) {
        message_send(p.lane, MESSAGE(i, .flags = UM_FLAG_ACK));
        machine->lane_consumed(p.lane);
        arm_now(a);
        expect_message(b, p.rx, MESSAGE(i, .flags = UM_FLAG_ACK));
        expect_woken(a);
        assert_int_equal(machine->lane_consumed(p.lane), machine->lane_committed(p.lane));
    }
    path_end(&p);
    close_two();
}

static void space_in_a_full_lane_wakes_who_watches(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    uint64_t sent = 0, got = 0;
    for (int round = 0; round < 20; round++) {
        machine->lane_watch(p.lane, true);
        while (message_try(p.lane, MESSAGE(sent, .body_len = 100)) == 0)
            sent++;
        machine->lane_consumed(p.lane);
        arm_now(a);
        while (got < sent) {
            expect_message(b, p.rx, MESSAGE(got, .body_len = 100));
            got++;
        }
        expect_nothing(b);
        expect_woken(a);
        machine->lane_watch(p.lane, false);
    }
    path_end(&p);
    close_two();
}

static void the_peers_end_wakes_who_watches(void **state)
{
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        open_two();
        struct path p = path_joined(a, b);
        struct um_answer answer;
        machine->lane_watch(p.lane, true);
        arm_now(a);
        if (refused)
            machine->rx_refuse(p.rx);
        else
            machine->port_close(b);
        expect_woken(a);
        assert_int_equal(machine->lane_reap(p.lane, &answer, 1), -EPIPE);
        path_close(&p);
        if (refused)
            machine->port_close(b);
        machine->port_close(a);
    }
}

static void a_lane_can_be_closed_while_it_is_watched(void **state)
{
    (void)state;
    open_two();
    for (int i = 0; i < 20; i++) {
        struct path p = path_joined(a, b);
        machine->lane_watch(p.lane, true);
        machine->lane_watch(p.lane, true);
        arm_now(a);
        machine->disarm(a);
        path_end(&p);
        arm_now(a);
        machine->disarm(a);
    }
    close_two();
}

static void a_port_can_be_closed_while_it_is_armed(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    struct um_slot slot;
    arm_now(b);
    machine->port_close(b);
    /* Files that take the descriptor numbers of its wake-up pipe are not written to. */
    int files[8];
    for (int i = 0; i < 8; i++)
        files[i] = memfd_create("bystander", MFD_CLOEXEC);
    assert_int_equal(claim_now(p.lane, 0, &slot), -EPIPE);
    path_close(&p);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(lseek(files[i], 0, SEEK_END), 0);
        close(files[i]);
    }
    machine->port_close(a);
}

static void *kicker(void *port)
{
    for (int i = 0; i < 1000; i++)
        machine->kick(port);
    return NULL;
}

static void any_thread_may_kick_at_any_time(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, kicker, b), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        message_send(p.lane, MESSAGE(i));
        expect_message(b, p.rx, MESSAGE(i));
        if (machine->arm(b) == 0)
            machine->disarm(b);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    machine->disarm(b);
    assert_false(is_awake(b));
    path_end(&p);
    close_two();
}

GROUP(wait, T(a_quiet_port_sleeps_until_it_is_kicked), T(many_kicks_are_drained_at_once),
      T(a_kick_before_arming_is_not_lost), T(a_new_lane_wakes), T(a_record_wakes),
      T(a_record_claimed_before_the_sleep_wakes), T(the_end_of_a_lane_wakes),
      T(what_is_there_already_keeps_from_sleeping), T(a_record_not_released_keeps_from_sleeping),
      T(an_answer_wakes_who_watches), T(consumption_wakes_who_watches), T(space_in_a_full_lane_wakes_who_watches),
      T(the_peers_end_wakes_who_watches), T(a_lane_can_be_closed_while_it_is_watched),
      T(a_port_can_be_closed_while_it_is_armed), T(any_thread_may_kick_at_any_time));
