/*
 * A lane with a wide ring whose bodies go through its big ring again, and back: every body arrives, and what was
 * promised has room.
 */
#include "two.h"

#include "base/bytes.h"
#include "machine/mem/mem.h"

enum { LEN = UM_BIG_BODY, FLIGHT = 512, FITTING = UM_BIG_BYTES / LEN };

static struct path p;

static struct um_mem_lane *lane_of(const struct path *path)
{
    return (struct um_mem_lane *)path->lane;
}

/* Makes the lane's stores want this kind from now on, without comparisons. */
static void want(enum um_mem_stores_kind kind)
{
    struct um_mem_stores *s = &lane_of(&p)->stores;
    s->in_use = (uint8_t)kind;
    s->phase = UM_STORES_USE;
    s->bytes_left = UINT64_MAX;
    s->ring_bytes = UM_WIDE_BYTES;
    s->compared = UINT32_MAX;
}

static uint64_t sent, got;
static uint32_t len_of[FLIGHT];

static bool try_send(uint32_t len)
{
    if (sent - got == FLIGHT || message_try(p.lane, MESSAGE(sent, .body_len = len)) != 0)
        return false;
    len_of[sent++ % FLIGHT] = len;
    return true;
}

static void send_one(uint32_t len)
{
    for (int i = 0; !try_send(len); i++)
        assert_true(i < 1000);
}

static void take(uint64_t count)
{
    for (; count > 0; count--, got++)
        expect_message(b, p.rx, MESSAGE(got, .body_len = len_of[got % FLIGHT]));
}

/* Opens a lane with a wide ring, all of which was touched. */
static void open_wide(void)
{
    sent = got = 0;
    open_two();
    p = path_joined(a, b);
    for (int i = 0; i < 1000 && machine->lane_body_max(p.lane, LEN) < LEN; i++)
        continue;
    for (int i = 0; !lane_of(&p)->wide_map.base || lane_of(&p)->is_fresh; i++) {
        assert_true(i < 2000);
        want(UM_STORES_CACHED);
        send_one(LEN);
        take(1);
    }
    want(UM_STORES_CACHED);
}

static void close_wide(void)
{
    take(sent - got);
    path_end(&p);
    close_two();
}

static bool lies_in_big_ring(void)
{
    const struct um_mem_lane *lane = lane_of(&p);
    return lane->ring.byte_count == UM_BIG_BYTES && lane->ring.bytes == lane->area + UM_AREA_BIG_BYTES;
}

/* A wide ring may get its memory step by step: for that it has to be the lane's ring. */
static void a_ring_that_was_not_touched_is_not_left(void **state)
{
    (void)state;
    open_wide();
    struct um_mem_lane *lane = lane_of(&p);
    lane->is_fresh = true; /* its bodies lie where it was touched */
    lane->touched_to = lane->fresh_to = lane->bytes_head + UM_WIDE_BYTES;
    want(UM_STORES_NARROW);
    for (int i = 0; i < FITTING; i++) {
        send_one(LEN);
        assert_false(lane->is_narrow);
    }
    lane->is_fresh = false;
    send_one(LEN);
    assert_true(lane->is_narrow);
    close_wide();
}

static void bodies_lie_in_the_ring_that_is_wanted(void **state)
{
    (void)state;
    open_wide();
    for (int round = 0; round < 20; round++) {
        want(round % 2 ? UM_STORES_CACHED : UM_STORES_NARROW);
        send_one(LEN); /* the change follows a body */
        take(sent - got);
        expect_nothing(b); /* but takes the lane's own record */
        for (int i = 0; i < 100; i++) {
            send_one(1 + (uint32_t)(i * 163) % LEN);
            assert_int_equal(lies_in_big_ring(), round % 2 == 0);
            take(i % 3 == 0 ? sent - got : 0);
        }
    }
    close_wide();
}

/* More lies in the wide ring than the big one holds: the sender goes on when the receiver has taken that, and it learns
 * so at once. */
static void a_sender_waits_until_the_big_ring_holds_what_is_in_the_lane(void **state)
{
    (void)state;
    open_wide();
    while (sent - got < 3 * FITTING)
        send_one(LEN);
    want(UM_STORES_NARROW);
    send_one(LEN);
    assert_true(lies_in_big_ring());
    for (int i = 0; i < 100; i++)
        assert_false(try_send(LEN));
    take(sent - got);
    for (int i = 0; i < 100; i++) { /* a receiver that idles longer tells its credit anyway */
        struct um_record rec;
        assert_false(machine->poll(b, &rec));
    }
    send_one(LEN);
    close_wide();
}

/* Asks for room until there is, because a machine may have stalls. */
static void get_room(uint32_t records)
{
    for (int i = 0; !machine->lane_has_room(p.lane, records, LEN); i++)
        assert_true(i < 200);
}

static void what_was_promised_has_room(void **state)
{
    enum { RECORDS = UM_ROOM_MAX / LEN };
    (void)state;
    open_wide();
    for (int round = 0; round < 10; round++) {
        take(sent - got);
        get_room(RECORDS);
        want(UM_STORES_NARROW);
        for (int i = 0; i < RECORDS; i++) {
            assert_false(lane_of(&p)->is_narrow);
            assert_true(try_send(LEN));
        }
        assert_true(lane_of(&p)->is_narrow);
        want(UM_STORES_CACHED);
        take(sent - got);
        send_one(LEN);
    }
    close_wide();
}

static void a_message_too_long_for_the_big_ring_gets_the_wide_one(void **state)
{
    (void)state;
    open_wide();
    want(UM_STORES_NARROW);
    send_one(LEN);
    take(1);
    expect_nothing(b);
    get_room(FITTING - 1);
    assert_true(lane_of(&p)->is_narrow);
    get_room(FITTING);
    assert_false(lane_of(&p)->is_narrow);
    for (int i = 0; i < FITTING; i++)
        assert_true(try_send(LEN));
    assert_true(lane_of(&p)->is_narrow);
    close_wide();
}

static void a_change_at_any_time_loses_nothing(void **state)
{
    (void)state;
    uint64_t seed = 3;
    open_wide();
    for (int i = 0; i < 20000 * effort; i++) {
        if (chance(&seed, 20) == 0)
            want(chance(&seed, 2) ? UM_STORES_NARROW : UM_STORES_CACHED);
        const uint32_t len = chance(&seed, 3) ? 1 + chance(&seed, LEN) : chance(&seed, 200), count = chance(&seed, 12);
        if (chance(&seed, 4) == 0 && sent - got + count < FLIGHT && machine->lane_has_room(p.lane, count, len)) {
            for (uint32_t n = 0; n < count; n++)
                assert_true(try_send(len));
        } else {
            (void)try_send(len);
        }
        if (chance(&seed, 12) == 0) {
            const uint64_t most = chance(&seed, 60);
            take(sent - got < most ? sent - got : most);
        }
    }
    close_wide();
}

GROUP(narrow, cmocka_unit_test(a_ring_that_was_not_touched_is_not_left),
      cmocka_unit_test(bodies_lie_in_the_ring_that_is_wanted),
      cmocka_unit_test(a_sender_waits_until_the_big_ring_holds_what_is_in_the_lane),
      cmocka_unit_test(what_was_promised_has_room),
      cmocka_unit_test(a_message_too_long_for_the_big_ring_gets_the_wide_one),
      cmocka_unit_test(a_change_at_any_time_loses_nothing));
