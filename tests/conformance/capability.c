/* Conformance: the capabilities that a machine declares, and what holds without them. */
#include "conform.h"

static void a_machine_that_wakes_has_what_it_takes_and_no_other_one(void **state)
{
    (void)state;
    assert_int_equal(machine->wait_fd != NULL, machine->wakes);
    assert_int_equal(machine->arm != NULL, machine->wakes);
    assert_int_equal(machine->disarm != NULL, machine->wakes);
    assert_int_equal(machine->kick != NULL, machine->wakes);
}

/* A caller that only polls finds every event that would have woken a sleeper: a lane, a record, an answer, credit, the
 * end. */
static void polling_alone_finds_every_event(void **state)
{
    struct um_port *a = port_new(0), *b = port_new(0);
    const struct message msg = {.number = 1, .op = 3, .flags = UM_FLAG_ACK};
    struct um_answer answer = {.token = 0};
    (void)state;
    struct path p = path_joined(a, b);
    machine->lane_watch(p.lane, true);
    sleep_us(20000);
    message_send(p.lane, &msg);
    expect_message(b, p.rx, &msg);
    assert_int_equal(machine->answer(p.rx, 7, 5), 0);
    int count;
    struct um_record rec;
    uint64_t end = now_ms() + PATIENCE;
    while ((count = machine->lane_reap(p.lane, &answer, 1)) == 0) {
        assert_false(poll_now(a, &rec));
        assert_true(now_ms() < end);
    }
    assert_int_equal(count, 1);
    assert_true(answer.token == 7 && answer.status == 5);
    while (machine->lane_consumed(p.lane) == 0) {
        assert_false(poll_now(a, &rec));
        assert_true(now_ms() < end);
    }
    machine->lane_watch(p.lane, false);
    path_end(&p);
    machine->port_close(b);
    machine->port_close(a);
}

GROUP(capability, T(a_machine_that_wakes_has_what_it_takes_and_no_other_one), T(polling_alone_finds_every_event));
