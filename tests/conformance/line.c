/* Conformance: the one line where the next record will be seen, on machines that have such a line. */
#include "two.h"

#include "base/atomic.h"

/* The port must name a line, and the value that it has until the next record. */
static void expect_line(const struct um_port *port, const uint64_t **line_p, uint64_t *value_p)
{
    assert_int_equal(machine->watch_line(port, line_p, value_p), 1);
    assert_true(um_load_relaxed_u64(*line_p) == *value_p);
}

static void the_line_of_the_only_active_lane_changes_with_its_next_record(void **state)
{
    const uint64_t *line;
    uint64_t value;
    (void)state;
    open_two();
    assert_int_equal(machine->watch_line(b, &line, &value), 0);
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 300; i++) {
        expect_line(b, &line, &value);
        message_send(p.lane, MESSAGE(i, .body_len = i));
        assert_false(um_load_relaxed_u64(line) == value);
        assert_int_equal(machine->watch_line(b, &line, &value), -EAGAIN);
        expect_message(b, p.rx, MESSAGE(i, .body_len = i));
    }
    path_end(&p);
    assert_int_equal(machine->watch_line(b, &line, &value), 0);
    close_two();
}

static void there_is_no_one_line_where_news_can_come_in_several_ways(void **state)
{
    const uint64_t *line;
    uint64_t value;
    (void)state;
    open_two();
    struct um_port *c = port_new(0);
    struct path p = path_joined(a, b);
    expect_line(b, &line, &value);
    struct path q = path_open(c, b);
    assert_int_equal(machine->watch_line(b, &line, &value), -EAGAIN); /* a first contact */
    q.rx = expect_joined(b, c);
    assert_int_equal(machine->watch_line(b, &line, &value), -EAGAIN); /* two lanes */
    path_end(&q);
    expect_line(b, &line, &value);
    struct path back = path_joined(b, a);
    machine->lane_watch(back.lane, true);
    assert_int_equal(machine->watch_line(b, &line, &value), -EAGAIN); /* answers may come, too */
    machine->lane_watch(back.lane, false);
    arm_now(b);
    machine->disarm(b);
    assert_int_equal(machine->watch_line(b, &line, &value), 0); /* arm() has made the lanes cold */
    message_send(p.lane, MESSAGE(1));
    assert_int_equal(machine->watch_line(b, &line, &value), -EAGAIN); /* a bell */
    expect_message(b, p.rx, MESSAGE(1));
    expect_line(b, &line, &value);
    path_end(&back);
    path_end(&p);
    machine->port_close(c);
    close_two();
}

GROUP(line, T(the_line_of_the_only_active_lane_changes_with_its_next_record),
      T(there_is_no_one_line_where_news_can_come_in_several_ways));
