/* Conformance of machines with processes: receivers that die, awake or asleep. */
#include "conform.h"

static const char *receiver(struct parent *parent)
{
    struct um_port *port;
    struct um_port_config config = {.lanes_max = 4, .private_copy = true};
    struct um_record rec;
    if (machine->port_open(&config, &port) != 0)
        return "no port";
    struct um_addr addr = addr_of(port);
    pipe_put(parent->to_parent, &addr, sizeof(addr));
    while (true) {
        while (machine->poll(port, &rec)) {
            machine->release(port, &rec);
            if (rec.op == 1)
                pipe_put(parent->to_parent, "", 1);
        }
        if (machine->arm(port) != 0)
            continue;
        pipe_put(parent->to_parent, "z", 1);
        is_readable(machine->wait_fd(port), -1);
        machine->disarm(port);
    }
}

static void the_death_of_a_receiver_is_seen_and_harms_nobody(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct um_port *port = port_new(0);
        struct um_link *link;
        struct um_lane *lane;
        struct um_addr addr;
        struct child child = child_start(receiver, NULL);
        pipe_get(child.from_child, &addr, sizeof(addr));
        child_await_sleep(&child, 'z');
        assert_int_equal(machine->link_open(port, &addr, &link), 0);
        assert_int_equal(machine->lane_open(link, &lane), 0);
        for (int i = 0; i < round % 4; i++) { /* wakes the receiver, so that the sender has opened its wake-up pipe */
            child_await_sleep(&child, 'z');
            message_send(lane, MESSAGE((uint64_t)i));
        }
        child_await_sleep(&child, 'z');
        assert_true(machine->link_alive(link));
        child_kill(&child);
        assert_false(machine->link_alive(link));
        if (round % 8 < 4)
            child_reap(&child);
        assert_false(machine->link_alive(link));
        /* The sender goes on until the lane is full; the first record tries to wake the dead receiver. */
        int ret = 0;
        for (uint64_t i = 0; i < 5000 && ret == 0; i++)
            ret = message_try(lane, MESSAGE(i, .body_len = 100));
        assert_true(ret == -EAGAIN || ret == -EPIPE);
        machine->lane_close(lane);
        ret = machine->lane_open(link, &lane);
        if (ret == 0) /* its memory may still be mapped here */
            machine->lane_close(lane);
        machine->link_close(link);
        if (round % 8 >= 4)
            child_reap(&child);
        assert_int_equal(machine->link_open(port, &addr, &link), 0);
        assert_int_equal(machine->lane_open(link, &lane), -ECONNREFUSED);
        machine->link_close(link);
        machine->port_close(port);
    }
}

GROUP(receiver_death, T(the_death_of_a_receiver_is_seen_and_harms_nobody));
