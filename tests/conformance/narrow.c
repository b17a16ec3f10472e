/*
 * A lane with a wide ring whose bodies go through its big ring again, and back: every body arrives, and what was
 * promised has room.
 */
#include "two.h"

#include "base/atomic.h"
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
    take(sent - got);
    expect_nothing(b);
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
        take(sent - got);
        expect_nothing(b); /* but takes what the lane tells, and publishes its credit */
        for (int i = 0; i < 100; i++) {
            send_one(i == 0 ? LEN : 1 + (uint32_t)(i * 163) % LEN); /* a short one changes nothing */
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
    for (int i = 0; i < 100; i++)
        assert_false(try_send(LEN));
    assert_true(lies_in_big_ring());
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
        assert_false(lane_of(&p)->is_narrow);
        take(sent - got);
        expect_nothing(b);
        send_one(LEN);
        assert_true(lane_of(&p)->is_narrow);
        want(UM_STORES_CACHED);
        take(sent - got);
        expect_nothing(b);
    }
    close_wide();
}

/* The change takes the place of a record. */
static void what_was_promised_has_room_for_its_records(void **state)
{
    enum { SHORT = UM_NONTEMPORAL_MIN, RECORDS = 4 };
    (void)state;
    for (int to_wide = 0; to_wide < 2; to_wide++) {
        for (uint32_t left = RECORDS; left < RECORDS + 3; left++) {
            open_wide();
            want(to_wide ? UM_STORES_NARROW : UM_STORES_CACHED);
            send_one(LEN);
            take(1);
            expect_nothing(b);
            while (sent - got < UM_BIG_RECORDS - left)
                send_one(0);
            if (machine->lane_has_room(p.lane, RECORDS, SHORT)) {
                want(to_wide ? UM_STORES_CACHED : UM_STORES_NARROW);
                for (int i = 0; i < RECORDS; i++)
                    assert_true(try_send(SHORT));
            }
            close_wide();
        }
    }
}

/* A sender that awaits an acknowledgement awaits its own record, not what the lane tells. */
static void a_change_comes_before_the_record(void **state)
{
    (void)state;
    open_wide();
    for (int round = 0; round < 20; round++) {
        want(round % 2 ? UM_STORES_CACHED : UM_STORES_NARROW);
        const bool was_narrow = lane_of(&p)->is_narrow;
        message_send(p.lane, MESSAGE(sent, .body_len = LEN, .flags = UM_FLAG_ACK));
        assert_int_equal(lane_of(&p)->is_narrow, !was_narrow);
        len_of[sent++ % FLIGHT] = LEN;
        const uint32_t committed = machine->lane_committed(p.lane);
        expect_message(b, p.rx, MESSAGE(got++, .body_len = LEN, .flags = UM_FLAG_ACK));
        assert_int_equal(machine->lane_consumed(p.lane), committed);
    }
    close_wide();
}

/* Its time is not that of the wide ring. */
static void a_timed_body_tells_its_ring(void **state)
{
    (void)state;
    open_wide();
    if (!lane_of(&p)->has_choice) {
        close_wide();
        return; /* no body is timed */
    }
    for (int round = 0; round < 4; round++) {
        struct um_record rec;
        const bool narrow = round % 2 == 0;
        want(narrow ? UM_STORES_NARROW : UM_STORES_CACHED);
        send_one(LEN);
        take(1);
        expect_nothing(b);
        lane_of(&p)->stores.size_class = 14; /* log2 of LEN */
        lane_of(&p)->stores.untimed = UM_STORES_EVERY - 1;
        message_send(p.lane, MESSAGE(sent++, .body_len = LEN));
        assert_true(poll_now(b, &rec));
        got++;
        assert_int_equal(rec.flags & (UM_FLAG_TIMED | UM_FLAG_KIND), UM_FLAG_TIMED | (narrow ? UM_FLAG_KIND : 0));
        machine->release(b, &rec);
    }
    close_wide();
}

/* Its stores are compared with longer bodies only. */
static void a_lane_that_goes_on_with_short_bodies_returns_to_its_wide_ring(void **state)
{
    enum { SHORT = 1024, ROUND = UM_BIG_BYTES / SHORT };
    int i = 0;
    (void)state;
    open_wide();
    want(UM_STORES_NARROW);
    send_one(LEN);
    for (; lane_of(&p)->is_narrow; i++) {
        assert_true(i < 200 * ROUND);
        if (i < 50 * ROUND && i % 100 == 0)
            send_one(UM_NONTEMPORAL_MIN); /* as long as there are long ones, too, it does not */
        send_one(SHORT);
        take(sent - got);
    }
    assert_true(i > 50 * ROUND);
    assert_int_equal(lane_of(&p)->stores.in_use, UM_STORES_CACHED);
    close_wide();
}

/* As a hostile sender does it. */
static void changes_without_end_do_not_hold_up_a_poll(void **state)
{
    enum { CHANGES = 400, MOST = 16 /* in a poll */ };
    (void)state;
    open_wide();
    struct um_mem_lane *lane = lane_of(&p);
    const struct um_mem_rx *rx = (const struct um_mem_rx *)p.rx;
    for (uint32_t i = 0; i < CHANGES; i++) {
        struct um_mem_record_shm *record = &lane->ring.records[lane->head++ & (lane->ring.record_count - 1)];
        const uint64_t first = lane->head | (uint64_t)UM_OPCODE_NARROW << 32 | (uint64_t)(1 - i % 2) << 48;
        um_store_release_u64(&record->word, first);
    }
    lane->next = &lane->ring.records[lane->head & (lane->ring.record_count - 1)];
    for (int i = 0; rx->head != lane->head; i++) {
        struct um_record rec;
        const uint32_t before = rx->head;
        assert_true(i < 100 * CHANGES);
        assert_false(machine->poll(b, &rec));
        assert_in_range(rx->head - before, 0, MOST);
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
    take(sent - got);
    expect_nothing(b);
    send_one(LEN);
    assert_true(lane_of(&p)->is_narrow);
    close_wide();
}

static void a_change_at_any_time_loses_nothing(void **state)
{
    (void)state;
    uint64_t seed = 3;
    open_wide();
    for (int i = 0; i < 20000 * effort; i++) {
        const bool is_long = chance(&seed, i % 4000 < 2000 ? 3 : 300) == 0; /* seldom: records run out before bytes */
        if (chance(&seed, 20) == 0)
            want(chance(&seed, 2) ? UM_STORES_NARROW : UM_STORES_CACHED);
        const uint32_t len = is_long ? 1 + chance(&seed, LEN) : chance(&seed, 2) * 2048, count = chance(&seed, 12);
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
      cmocka_unit_test(what_was_promised_has_room), cmocka_unit_test(what_was_promised_has_room_for_its_records),
      cmocka_unit_test(a_change_comes_before_the_record), cmocka_unit_test(a_timed_body_tells_its_ring),
      cmocka_unit_test(a_lane_that_goes_on_with_short_bodies_returns_to_its_wide_ring),
      cmocka_unit_test(changes_without_end_do_not_hold_up_a_poll),
      cmocka_unit_test(a_message_too_long_for_the_big_ring_gets_the_wide_one),
      cmocka_unit_test(a_change_at_any_time_loses_nothing));
