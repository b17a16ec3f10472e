/* Conformance: two lanes that face each other, full on both sides, drain. */
#include "conform.h"

struct side {
    struct path out;
    uint64_t sent;
    uint64_t got;
};

static uint32_t len_of(uint64_t number)
{
    return (uint32_t)(number * 97 % 900);
}

static void side_fill(struct side *s)
{
    while (message_try(s->out.lane, MESSAGE(s->sent, .body_len = len_of(s->sent))) == 0)
        s->sent++;
}

/* Takes one record that came from the other side. */
static bool side_take(struct side *s, const struct side *other)
{
    struct um_record rec;
    if (!poll_now(s->out.from, &rec))
        return false;
    assert_ptr_equal(rec.rx, other->out.rx);
    assert_true(message_is(&rec, MESSAGE(s->got, .body_len = len_of(s->got))));
    machine->release(s->out.from, &rec);
    s->got++;
    return true;
}

static void both_full_lanes_drain(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(0);
    struct side x = {.out = path_joined(a, b)}, y = {.out = path_joined(b, a)};
    for (int round = 0; round < 300; round++) {
        side_fill(&x);
        side_fill(&y);
        bool x_took = side_take(&x, &y), y_took = side_take(&y, &x);
        assert_true(x_took || y_took);
    }
    while (x.got < y.sent)
        assert_true(side_take(&x, &y));
    while (y.got < x.sent)
        assert_true(side_take(&y, &x));
    assert_true(x.sent > 300);
    path_end(&x.out);
    path_end(&y.out);
    machine->port_close(b);
    machine->port_close(a);
}

/* b releases each record only after it could send the echo: the worst case for a protocol. */
static void an_echo_through_full_lanes_goes_on(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(0);
    struct side x = {.out = path_joined(a, b)}, y = {.out = path_joined(b, a)};
    while (y.got < 5000) {
        struct um_record rec;
        side_fill(&x);
        while (poll_now(b, &rec)) {
            assert_true(message_is(&rec, MESSAGE(y.got, .body_len = len_of(y.got))));
            if (message_try(y.out.lane, MESSAGE(y.sent, .body_len = len_of(y.sent))) != 0)
                break;
            y.sent++;
            machine->release(b, &rec);
            y.got++;
        }
        assert_true(side_take(&x, &y));
    }
    while (y.got < x.sent)
        assert_true(side_take(&y, &x));
    while (x.got < y.sent)
        assert_true(side_take(&x, &y));
    path_end(&x.out);
    path_end(&y.out);
    machine->port_close(b);
    machine->port_close(a);
}

static void a_ring_of_ports_all_full_drains(void **state)
{
    (void)state;
    enum { N = 5 };
    struct um_port *port[N];
    struct side s[N] = {0};
    for (int i = 0; i < N; i++)
        port[i] = port_new(0);
    for (int i = 0; i < N; i++)
        s[i].out = path_joined(port[i], port[(i + 1) % N]);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < N; i++)
            side_fill(&s[i]);
        for (int i = 0; i < N; i++)
            assert_true(side_take(&s[i], &s[(i + N - 1) % N]));
    }
    for (int i = 0; i < N; i++)
        while (s[i].got < s[(i + N - 1) % N].sent)
            assert_true(side_take(&s[i], &s[(i + N - 1) % N]));
    for (int i = 0; i < N; i++)
        path_end(&s[i].out);
    for (int i = 0; i < N; i++)
        machine->port_close(port[i]);
}

GROUP(facing, T(both_full_lanes_drain), T(an_echo_through_full_lanes_goes_on), T(a_ring_of_ports_all_full_drains));
