/* Conformance: bodies of every size, growth, and lanes that are full. */
#include "conform.h"

static struct um_port *a, *b;
static struct path p;

static void open_path(uint64_t memory_max)
{
    struct um_port_config config = {.memory_max = memory_max, .private_copy = true};
    a = port_new(0);
    assert_int_equal(machine->port_open(&config, &b), 0);
    p = path_joined(a, b);
}

static void close_path(void)
{
    path_end(&p);
    machine->port_close(b);
    machine->port_close(a);
}

static uint32_t grow(void)
{
    uint32_t max = machine->lane_body_max(p.lane, machine->body_max);
    assert_int_equal(max, machine->body_max);
    return max;
}

static void send_and_receive(uint64_t number, uint32_t len)
{
    message_send(p.lane, MESSAGE(number, .body_len = len));
    expect_message(b, p.rx, MESSAGE(number, .body_len = len));
}

static void every_body_size_of_a_new_lane_arrives_whole(void **state)
{
    (void)state;
    open_path(0);
    uint32_t max = machine->lane_body_max(p.lane, 0);
    assert_true(max > 0);
    for (uint32_t len = 0; len <= max; len++)
        send_and_receive(len, len);
    for (uint32_t len = max; len > 0; len--)
        send_and_receive(len, len);
    close_path();
}

static void every_body_size_of_a_grown_lane_arrives_whole(void **state)
{
    (void)state;
    open_path(0);
    uint32_t max = grow();
    for (uint32_t len = 0; len <= max; len += len < 600 || max - len < 300 ? 1 : 13)
        send_and_receive(len, len);
    for (uint32_t size = 64; size <= max; size *= 2)
        for (uint32_t len = size - 1; len <= size + 1 && len <= max; len++)
            send_and_receive(len, len);
    close_path();
}

/* For a record with a body the len of commit() is ignored. */
static void a_body_has_the_length_that_was_claimed(void **state)
{
    struct um_record rec;
    struct um_slot slot;
    (void)state;
    open_path(0);
    assert_int_equal(claim_now(p.lane, 80, &slot), 0);
    message_fill(&slot, MESSAGE(1, .body_len = 80));
    machine->commit(p.lane, &slot, 1, 0, 0);
    assert_true(poll_now(b, &rec));
    assert_true(message_is(&rec, MESSAGE(1, .body_len = 80)));
    machine->release(b, &rec);
    send_and_receive(2, 80);
    close_path();
}

static void a_body_that_is_too_large_is_told_so(void **state)
{
    (void)state;
    open_path(0);
    struct um_slot slot;
    uint32_t max = machine->lane_body_max(p.lane, 0);
    if (max < machine->body_max)
        assert_int_equal(claim_now(p.lane, max + 1, &slot), -EMSGSIZE);
    max = grow();
    assert_int_equal(claim_now(p.lane, max + 1, &slot), -EMSGSIZE);
    assert_int_equal(claim_now(p.lane, UINT32_MAX, &slot), -EMSGSIZE);
    send_and_receive(1, max);
    close_path();
}

/* Sends until the lane is full. Returns the number of the next message. */
static uint64_t fill(uint64_t number, uint32_t len)
{
    int ret;
    while ((ret = message_try(p.lane, MESSAGE(number, .body_len = len))) == 0)
        number++;
    assert_int_equal(ret, -EAGAIN);
    return number;
}

static uint64_t drain(uint64_t from, uint64_t to, uint32_t len)
{
    for (; from < to; from++)
        expect_message(b, p.rx, MESSAGE(from, .body_len = len));
    return from;
}

static void a_full_lane_says_again_and_drains(void **state)
{
    (void)state;
    static const uint32_t lens[] = {0, 1, 64, 65, 1000};
    open_path(0);
    uint64_t sent = 0, got = 0;
    for (int round = 0; round < 60; round++) {
        uint32_t len = lens[round % 5];
        sent = fill(sent, len);
        assert_true(sent > got);
        got = drain(got, sent, len);
        expect_nothing(b); /* publishes the credit for all of it at the latest */
        assert_int_equal(message_try(p.lane, MESSAGE(sent, .body_len = len)), 0);
        sent++;
        got = drain(got, sent, len);
    }
    close_path();
}

static void a_full_lane_goes_on_after_a_part_was_consumed(void **state)
{
    (void)state;
    open_path(0);
    uint64_t sent = 0, got = 0;
    for (int round = 0; round < 200; round++) {
        sent = fill(sent, 300);
        got = drain(got, got + (sent - got) / 2, 300);
        uint64_t before = sent;
        sent = fill(sent, 300);
        assert_true(sent > before);
    }
    drain(got, sent, 300);
    close_path();
}

static void a_grown_lane_holds_the_depth_that_the_machine_tells(void **state)
{
    (void)state;
    open_path(0);
    grow();
    send_and_receive(0, 0);
    expect_nothing(b);
    for (int round = 0; round < 3; round++) {
        uint64_t sent = fill(0, 0);
        assert_true(sent >= machine->depth);
        drain(0, sent, 0);
        expect_nothing(b);
    }
    close_path();
}

static void several_of_the_largest_bodies_fit(void **state)
{
    (void)state;
    open_path(0);
    uint32_t max = grow();
    send_and_receive(0, 0);
    expect_nothing(b);
    for (int round = 0; round < 20; round++) {
        uint64_t sent = fill(0, max);
        assert_true(sent >= 4);
        drain(0, sent, max);
        expect_nothing(b);
        send_and_receive(1, (uint32_t)round * 100); /* the next round begins elsewhere in the ring */
        expect_nothing(b);
    }
    close_path();
}

static void a_lane_grows_with_bodies_in_flight(void **state)
{
    (void)state;
    for (uint32_t before = 0; before < 80; before++) {
        open_path(0);
        uint32_t small = machine->lane_body_max(p.lane, 0);
        uint32_t flight = 0;
        while (flight < before && message_try(p.lane, MESSAGE(flight, .body_len = flight * 37 % (small + 1))) == 0)
            flight++;
        grow();
        uint32_t more = 0;
        while (more < 8 && message_try(p.lane, MESSAGE(more, .body_len = machine->body_max - more)) == 0)
            more++;
        for (uint32_t i = 0; i < flight; i++)
            expect_message(b, p.rx, MESSAGE(i, .body_len = i * 37 % (small + 1)));
        for (uint32_t i = 0; i < more; i++)
            expect_message(b, p.rx, MESSAGE(i, .body_len = machine->body_max - i));
        send_and_receive(99, machine->body_max);
        close_path();
    }
}

static void asking_for_less_than_there_is_does_not_grow(void **state)
{
    (void)state;
    open_path(0);
    uint32_t small = machine->lane_body_max(p.lane, 0);
    assert_int_equal(machine->lane_body_max(p.lane, small), small);
    assert_int_equal(machine->lane_body_max(p.lane, 1), small);
    uint32_t max = grow();
    assert_int_equal(machine->lane_body_max(p.lane, 0), max);
    close_path();
}

static void random_sizes_and_growth_keep_order_and_bytes(void **state)
{
    (void)state;
    enum { FLIGHT = 4096 };
    static uint32_t len_of[FLIGHT];
    for (int round = 0; round < 20 * effort; round++) {
        uint64_t seed = (uint64_t)round, sent = 0, got = 0;
        open_path(0);
        for (int i = 0; i < 2000; i++) {
            uint32_t max = machine->lane_body_max(p.lane, i > 700 ? machine->body_max : 0);
            uint32_t len = chance(&seed, 3) ? chance(&seed, 300) : chance(&seed, max + 1);
            if (len <= max && sent - got < FLIGHT && message_try(p.lane, MESSAGE(sent, .body_len = len)) == 0)
                len_of[sent++ % FLIGHT] = len;
            if (chance(&seed, 40) == 0)
                for (uint32_t n = chance(&seed, 100); n > 0 && got < sent; n--, got++)
                    expect_message(b, p.rx, MESSAGE(got, .body_len = len_of[got % FLIGHT]));
        }
        for (; got < sent; got++)
            expect_message(b, p.rx, MESSAGE(got, .body_len = len_of[got % FLIGHT]));
        close_path();
    }
}

/* After lane_has_room() says yes, each of these claims succeeds, whatever the state of the lane. An empty lane has room
 * for much. */
static void records_that_have_room_can_all_be_claimed(void **state)
{
    (void)state;
    enum { FLIGHT = 4096 };
    static uint32_t len_of[FLIGHT];
    if (!machine->lane_has_room)
        return; /* it promises nothing */
    for (int round = 0; round < 20 * effort; round++) {
        uint64_t seed = (uint64_t)round + 1, sent = 0, got = 0, kept = 0, refused = 0;
        open_path(0);
        const uint32_t max = machine->lane_body_max(p.lane, round % 4 ? machine->body_max : 0);
        for (int i = 0; i < 3000; i++) {
            const uint32_t len = 1 + chance(&seed, max), count = 1 + chance(&seed, 8);
            if (sent - got + count < FLIGHT && machine->lane_has_room(p.lane, count, len)) {
                for (uint32_t n = 0; n < count; n++, sent++) {
                    struct um_slot slot;
                    len_of[sent % FLIGHT] = n % 3 ? len : 1 + chance(&seed, len);
                    assert_int_equal(machine->claim(p.lane, len_of[sent % FLIGHT], &slot), 0);
                    message_fill(&slot, MESSAGE(sent, .body_len = len_of[sent % FLIGHT]));
                    machine->commit(p.lane, &slot, 1, 0, 0);
                }
                kept++;
            } else {
                refused++;
            }
            if (chance(&seed, 5) == 0)
                for (uint32_t n = chance(&seed, 20); n > 0 && got < sent; n--, got++)
                    expect_message(b, p.rx, MESSAGE(got, .body_len = len_of[got % FLIGHT]));
        }
        assert_true(kept > 100 && refused > 100);
        for (; got < sent; got++)
            expect_message(b, p.rx, MESSAGE(got, .body_len = len_of[got % FLIGHT]));
        expect_nothing(b);
        bool has = false;
        for (int i = 0; i < 200 && !has; i++) /* a machine that stalls may refuse some */
            has = machine->lane_has_room(p.lane, 4, round % 4 ? max : max / 2);
        assert_true(has);
        for (int i = 0; i < 40; i++) /* the last promise is over then */
            assert_false(machine->lane_has_room(p.lane, UINT32_MAX, 1));
        const uint32_t longest = machine->lane_part_max ? machine->lane_part_max(p.lane, false) : max;
        assert_false(machine->lane_has_room(p.lane, 1, longest + 1));
        assert_false(machine->lane_has_room(p.lane, machine->depth + 1, 1));
        close_path();
    }
}

static void a_lane_that_may_not_grow_still_works(void **state)
{
    (void)state;
    open_path(1);
    uint32_t max = machine->lane_body_max(p.lane, machine->body_max);
    uint64_t sent = 0, got = 0;
    for (int round = 0; round < 50; round++) {
        sent = fill(sent, max);
        assert_true(sent > got);
        got = drain(got, sent, max);
        expect_nothing(b);
    }
    assert_int_equal(machine->lane_body_max(p.lane, machine->body_max), max);
    close_path();
}

static void memory_of_grown_lanes_comes_back_with_them(void **state)
{
    (void)state;
    enum { LANES = 8, BYTES = 1 << 20 };
    struct path many[LANES];
    struct um_port_config config = {.memory_max = BYTES, .private_copy = true};
    a = port_new(0);
    assert_int_equal(machine->port_open(&config, &b), 0);
    int first = 0;
    for (int round = 0; round < 30; round++) {
        int grown = 0;
        for (int i = 0; i < LANES; i++) {
            many[i] = path_joined(a, b);
            grown += machine->lane_body_max(many[i].lane, machine->body_max) == machine->body_max;
        }
        if (round == 0)
            first = grown;
        assert_int_equal(grown, first);
        for (int i = 0; i < LANES; i++)
            path_end(&many[i]);
    }
    assert_true(first > 0);
    machine->port_close(b);
    machine->port_close(a);
}

GROUP(body, T(every_body_size_of_a_new_lane_arrives_whole), T(every_body_size_of_a_grown_lane_arrives_whole),
      T(a_body_has_the_length_that_was_claimed), T(a_body_that_is_too_large_is_told_so),
      T(a_full_lane_says_again_and_drains), T(a_full_lane_goes_on_after_a_part_was_consumed),
      T(a_grown_lane_holds_the_depth_that_the_machine_tells), T(several_of_the_largest_bodies_fit),
      T(a_lane_grows_with_bodies_in_flight), T(asking_for_less_than_there_is_does_not_grow),
      T(random_sizes_and_growth_keep_order_and_bytes), T(records_that_have_room_can_all_be_claimed),
      T(a_lane_that_may_not_grow_still_works), T(memory_of_grown_lanes_comes_back_with_them));
