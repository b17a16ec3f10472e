/*
 * A lane with a wide ring. Its bodies lie in the front of the ring, or in all of it; parts of a stream may be long.
 * Every body arrives, and what was promised has room.
 */
#include "two.h"

#include "base/atomic.h"
#include "base/bytes.h"
#include "machine/mem/mem.h"

enum { LEN = UM_BIG_BODY, FLIGHT = 512, FRONT = 524288, ALL = UM_WIDE_BYTES / LEN };

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
    s->front_bytes = FRONT;
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

/* Opens a lane with a wide ring, all of which was touched, and no block for lone messages. */
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
    lane_of(&p)->cell.here = 0;
    want(UM_STORES_CACHED);
}

static void close_wide(void)
{
    take(sent - got);
    path_end(&p);
    close_two();
}

/* Where the next body may begin, from the begin of the ring on. */
static uint32_t place(void)
{
    return lane_of(&p)->bytes_head & (UM_WIDE_BYTES - 1);
}

/* A receiver that idles publishes all of its credit. */
static void idle(void)
{
    for (int i = 0; i < 400; i++) {
        struct um_record rec;
        assert_false(machine->poll(b, &rec));
    }
}

/* Sends and takes bodies until the next one may begin at that place. */
static void go_to(uint32_t where)
{
    want(UM_STORES_CACHED);
    for (int i = 0; place() != where; i++) {
        assert_true(i < 2 * UM_WIDE_BYTES / UM_BODY_ALIGN);
        const uint32_t left = (where - place()) & (UM_WIDE_BYTES - 1);
        send_one(left < LEN ? left : LEN);
        take(1);
        expect_nothing(b);
    }
    idle();
}

static void bodies_lie_where_they_are_wanted(void **state)
{
    (void)state;
    open_wide();
    for (int round = 0; round < 20; round++) {
        const bool in_front = round % 2 == 0;
        uint32_t most = 0;
        take(sent - got);
        go_to(0);
        want(in_front ? UM_STORES_FRONT : UM_STORES_CACHED);
        for (int i = 0; i < 3 * ALL; i++) {
            send_one(i % 5 ? LEN : UM_NONTEMPORAL_MIN + (uint32_t)(i * 163) % (LEN - UM_NONTEMPORAL_MIN));
            most = i >= ALL && place() > most ? place() : most; /* until then the receiver tells its credit seldom */
            take(sent - got);
        }
        assert_in_range(most, in_front ? FRONT - 2 * LEN : UM_WIDE_BYTES - 2 * LEN, in_front ? FRONT : UM_WIDE_BYTES);
        assert_int_equal(((const struct um_mem_rx *)p.rx)->ring.publish_bytes,
                         in_front ? UM_FRONT_PUBLISH : UM_WIDE_BYTES / 4);
    }
    close_wide();
}

/* A wide ring may get its memory step by step. */
static void a_ring_that_was_not_touched_is_used_whole(void **state)
{
    (void)state;
    open_wide();
    struct um_mem_lane *lane = lane_of(&p);
    go_to(0);
    lane->is_fresh = true; /* its bodies lie where it was touched */
    lane->touched_to = lane->fresh_to = lane->bytes_head + UM_WIDE_BYTES;
    want(UM_STORES_FRONT);
    for (uint32_t i = 1; i < ALL; i++) {
        send_one(LEN);
        assert_int_equal(place(), i * LEN);
        take(1);
        expect_nothing(b);
    }
    lane->is_fresh = false;
    send_one(LEN);
    assert_int_equal(place(), LEN);
    close_wide();
}

/* What is beyond the front is there for a sender that is ahead. */
static void a_sender_that_is_ahead_does_not_wait(void **state)
{
    (void)state;
    open_wide();
    go_to(LEN);
    want(UM_STORES_FRONT);
    for (uint32_t i = 0; i < ALL - 1; i++)
        send_one(LEN);
    take(sent - got);
    expect_nothing(b);
    send_one(LEN);
    assert_int_equal(place(), LEN);
    close_wide();
}

/* Asks for room often, because a machine may have stalls. */
static bool has_room(uint32_t records)
{
    for (int i = 0; i < 40; i++) {
        if (machine->lane_has_room(p.lane, records, LEN))
            return true;
    }
    return false;
}

static void what_was_promised_lies_in_one_piece(void **state)
{
    (void)state;
    open_wide();
    for (uint32_t records = 1; records <= UM_ROOM_MAX / LEN; records += 3) {
        for (uint32_t left = 0; left < 6; left++) {
            take(sent - got);
            go_to(FRONT - left * LEN);
            want(UM_STORES_FRONT);
            assert_true(has_room(records));
            /* what is skipped counts as bytes of the ring until it is consumed */
            const uint32_t begin = left < records && left + records <= FRONT / LEN ? 0 : place();
            for (uint32_t i = 1; i <= records; i++) {
                assert_true(try_send(LEN));
                assert_int_equal(place(), begin + i * LEN);
            }
        }
    }
    close_wide();
}

/* Room that is promised may be all there is: it must not be lost at the end of the front. */
static void what_was_promised_has_room(void **state)
{
    enum { RECORDS = UM_ROOM_MAX / LEN };
    (void)state;
    open_wide();
    for (uint32_t filled = 0; filled < ALL; filled++) {
        take(sent - got);
        go_to(FRONT - LEN);
        for (uint32_t i = 0; i < filled; i++)
            send_one(LEN);
        want(UM_STORES_FRONT);
        const bool is_promised = has_room(RECORDS);
        assert_true(is_promised || filled > ALL - RECORDS - 4);
        for (int i = 0; is_promised && i < RECORDS; i++)
            assert_true(try_send(LEN));
        assert_false(has_room(RECORDS + 1)); /* no message is that long */
    }
    close_wide();
}

/* A record has no room for both flags. */
static void a_body_that_goes_to_the_begin_is_not_timed(void **state)
{
    (void)state;
    open_wide();
    if (!lane_of(&p)->has_choice) {
        close_wide();
        return; /* no body is timed */
    }
    for (int round = 0; round < 8; round++) {
        struct um_record rec;
        struct um_slot slot;
        const bool in_front = round % 2 == 0, is_beyond = round % 4 < 2;
        go_to(is_beyond ? FRONT : LEN);
        want(in_front ? UM_STORES_FRONT : UM_STORES_CACHED);
        lane_of(&p)->stores.size_class = 14; /* log2 of LEN */
        do                                   /* a machine that stalls aborts claims */
            lane_of(&p)->stores.untimed = UM_STORES_EVERY - 1;
        while (machine->claim(p.lane, LEN, &slot) != 0);
        machine->commit(p.lane, &slot, 1, 0, LEN);
        assert_true(poll_now(b, &rec));
        const uint8_t flags = !in_front ? UM_FLAG_TIMED : is_beyond ? UM_FLAG_FRONT : UM_FLAG_TIMED | UM_FLAG_KIND;
        assert_int_equal(rec.flags & (UM_FLAG_TIMED | UM_FLAG_KIND), flags);
        machine->release(b, &rec);
        if (in_front && is_beyond) { /* but the next one is */
            while (machine->claim(p.lane, LEN, &slot) != 0)
                lane_of(&p)->stores.untimed = UM_STORES_EVERY - 1;
            machine->commit(p.lane, &slot, 1, 0, LEN);
            assert_true(poll_now(b, &rec));
            assert_int_equal(rec.flags & (UM_FLAG_TIMED | UM_FLAG_KIND), UM_FLAG_TIMED | UM_FLAG_KIND);
            machine->release(b, &rec);
        }
        expect_nothing(b);
    }
    close_wide();
}

/* Their lines are few, and each body would have to tell where it is. */
static void short_bodies_use_the_whole_ring(void **state)
{
    enum { SHORT = UM_NONTEMPORAL_MIN - UM_BODY_ALIGN };
    (void)state;
    open_wide();
    go_to(0);
    want(UM_STORES_FRONT);
    for (uint32_t i = 1; i < UM_WIDE_BYTES / SHORT; i++) {
        send_one(SHORT);
        assert_int_equal(place(), i * SHORT);
        take(1);
    }
    close_wide();
}

/* As a hostile sender does it: a receiver follows, wherever it is. */
static void any_body_may_go_to_the_begin(void **state)
{
    (void)state;
    open_wide();
    struct um_mem_lane *lane = lane_of(&p);
    for (uint32_t i = 0; i < 1000; i++) {
        struct um_slot slot;
        const uint32_t len = 1 + i * 377 % LEN;
        want(UM_STORES_CACHED);
        assert_int_equal(claim_now(p.lane, len, &slot), 0);
        slot.body = lane->ring.bytes;
        memset(slot.body, (int)i, len);
        lane->claim_bytes_end = um_mem_ring_next_round(&lane->ring, lane->bytes_head - 1) + um_mem_body_space(len);
        machine->commit(p.lane, &slot, 1, UM_FLAG_FRONT, len);
        struct um_record rec;
        assert_true(poll_now(b, &rec));
        assert_int_equal(rec.len, len);
        for (uint32_t at = 0; at < len; at++)
            assert_int_equal(((const unsigned char *)rec.body)[at], (unsigned char)i);
        machine->release(b, &rec);
        expect_nothing(b);
    }
    close_wide();
}

/* ---- long bodies ---- */

/* Sends short bodies until no body of late was in a cell. */
static void stream(void)
{
    for (int i = 0; i < 64; i++) {
        send_one(LEN);
        take(1);
    }
}

static uint32_t part_max(bool goes_on)
{
    return machine->lane_part_max(p.lane, goes_on);
}

static uint32_t longest(void)
{
    return lane_of(&p)->link->port->mapper->observe ? LEN : UM_LONG_BODY;
}

static void parts_of_a_stream_are_long(void **state)
{
    (void)state;
    uint64_t seed = 7;
    open_wide();
    stream();
    for (int i = 0; i < 3000 * effort; i++) {
        assert_int_equal(part_max(i % 2), longest());
        want(i % 500 < 250 ? UM_STORES_FRONT : UM_STORES_CACHED);
        (void)try_send(1 + chance(&seed, longest()));
        if (chance(&seed, 3) == 0)
            take(sent - got);
    }
    close_wide();
}

static void a_long_body_has_any_length(void **state)
{
    (void)state;
    open_wide();
    stream();
    for (uint32_t len = LEN - 1; len <= longest();
         len += len % (LEN / 2) < 2 || len % (LEN / 2) == LEN / 2 - 1 ? 1 : 127) {
        const uint32_t at_most = longest() - len < 127 ? longest() : len;
        send_one(at_most);
        take(1);
        expect_nothing(b);
    }
    close_wide();
}

/* Its receiver copies one part of it while the sender writes the next one. */
static void the_first_part_of_a_lone_message_is_short(void **state)
{
    struct um_record rec;
    (void)state;
    open_wide();
    stream();
    for (int i = 0; i < 40; i++) /* a machine that stalls polls nothing at times */
        assert_false(machine->poll(a, &rec));
    assert_int_equal(part_max(false), LEN);
    assert_int_equal(part_max(true), longest());
    send_one(LEN);
    assert_int_equal(part_max(false), longest());
    close_wide();
}

static void parts_after_a_body_in_a_cell_are_short(void **state)
{
    struct um_record rec;
    struct um_slot slot;
    (void)state;
    open_wide();
    stream();
    lane_of(&p)->cell.here = UINT8_MAX;
    for (int i = 0; i < 40; i++)
        assert_false(machine->poll(a, &rec));
    while (machine->claim_message(p.lane, LEN, &slot) != 0)
        continue;
    machine->commit(p.lane, &slot, 1, 0, LEN);
    assert_int_equal(part_max(true), LEN);
    assert_true(poll_now(b, &rec));
    machine->release(b, &rec);
    lane_of(&p)->cell.here = 0;
    lane_of(&p)->exchanges = false;
    stream();
    assert_int_equal(part_max(true), longest());
    close_wide();
}

/* A claim for one is refused then, whatever lane_part_max() was asked for. */
static void other_parts_are_short(void **state)
{
    struct um_slot slot;
    (void)state;
    open_wide();
    stream();
    struct um_mem_lane *lane = lane_of(&p);
    for (int i = 0; i < 3; i++) {
        lane->is_fresh = i == 0;
        lane->fresh_to = lane->touched_to = lane->bytes_head + UM_WIDE_BYTES;
        lane->cell_head = i == 1 ? lane->head : 0;
        if (i == 2)
            assert_true(has_room(4)); /* for bodies of that length */
        assert_int_equal(part_max(true), LEN);
        assert_int_equal(machine->claim(p.lane, LEN + 1, &slot), -EMSGSIZE);
    }
    for (int i = 0; i < 4; i++)
        assert_true(try_send(LEN)); /* what was promised */
    assert_int_equal(part_max(true), longest());
    assert_int_equal(machine->claim(p.lane, longest() + 1, &slot), -EMSGSIZE);
    lane->cell_head = lane->head;
    lane->exchanges = true; /* streams both ways */
    assert_int_equal(part_max(true), longest());
    lane->exchanges = false;
    close_wide();
}

/* Messages of a stream that come unasked. */
static void what_was_promised_may_be_long(void **state)
{
    (void)state;
    open_wide();
    stream();
    for (uint32_t round = 0; round < 200; round++) {
        const uint32_t records = 1 + round % 4;
        want(round % 3 ? UM_STORES_FRONT : UM_STORES_CACHED);
        bool has = false;
        for (int i = 0; i < 40 && !has; i++)
            has = machine->lane_has_room(p.lane, records, longest());
        assert_true(has);
        for (uint32_t i = 0; i < records; i++)
            assert_true(try_send(i == 0 && round % 2 ? longest() - 1000 : longest()));
        take(sent - got);
    }
    close_wide();
}

/* A long body is not for a cell, whatever came before it. */
static void a_long_body_lies_in_the_ring(void **state)
{
    struct um_record rec;
    (void)state;
    open_wide();
    stream();
    for (int how = 0; how < 4 && lane_of(&p)->cell.at; how++) { /* memory that is not coherent has no cells */
        struct um_mem_lane *lane = lane_of(&p);
        lane->cell.here = UINT8_MAX;
        lane->writes = how == 2 ? &lane->cell : NULL;
        if (how == 1) { /* a promise that a short record used up */
            assert_true(has_room(1));
            send_one(100);
        }
        bool has = how < 3;
        for (int i = 0; i < 40 && !has; i++) /* the body itself was promised */
            has = machine->lane_has_room(p.lane, 1, longest());
        assert_true(has);
        for (int i = 0; i < 40; i++) /* it is alone */
            assert_false(machine->poll(a, &rec));
        send_one(longest());
        lane->writes = NULL;
        lane->cell.here = 0;
        take(sent - got);
    }
    close_wide();
}

static void only_a_wide_ring_takes_long_bodies(void **state)
{
    struct um_slot slot;
    (void)state;
    open_two();
    p = path_joined(a, b);
    for (int i = 0; i < 20; i++)
        message_send(p.lane, MESSAGE(0, .body_len = 0)), expect_message(b, p.rx, MESSAGE(0, .body_len = 0));
    for (int i = 0; i < 1000 && part_max(true) < LEN; i++)
        continue;
    assert_int_equal(part_max(true), LEN);
    assert_int_equal(machine->claim(p.lane, LEN + 1, &slot), -EMSGSIZE);
    path_end(&p);
    close_two();
}

static void a_change_at_any_time_loses_nothing(void **state)
{
    (void)state;
    uint64_t seed = 3;
    open_wide();
    for (int i = 0; i < 20000 * effort; i++) {
        const bool is_long = chance(&seed, i % 4000 < 2000 ? 3 : 300) == 0; /* seldom: records run out before bytes */
        if (chance(&seed, 20) == 0)
            want(chance(&seed, 2) ? UM_STORES_FRONT : UM_STORES_CACHED);
        const uint32_t most = chance(&seed, 2) ? part_max(chance(&seed, 2)) : LEN;
        const uint32_t len = is_long ? 1 + chance(&seed, most) : chance(&seed, 2) * 2048, count = chance(&seed, 12);
        if (chance(&seed, 4) == 0 && len <= LEN && sent - got + count < FLIGHT &&
            machine->lane_has_room(p.lane, count, len)) {
            for (uint32_t n = 0; n < count; n++)
                assert_true(try_send(len));
        } else {
            (void)try_send(len);
        }
        if (chance(&seed, 12) == 0) {
            const uint64_t some = chance(&seed, 60);
            take(sent - got < some ? sent - got : some);
        }
    }
    close_wide();
}

GROUP(wide, cmocka_unit_test(bodies_lie_where_they_are_wanted),
      cmocka_unit_test(a_ring_that_was_not_touched_is_used_whole),
      cmocka_unit_test(a_sender_that_is_ahead_does_not_wait), cmocka_unit_test(what_was_promised_lies_in_one_piece),
      cmocka_unit_test(what_was_promised_has_room), cmocka_unit_test(a_body_that_goes_to_the_begin_is_not_timed),
      cmocka_unit_test(short_bodies_use_the_whole_ring), cmocka_unit_test(any_body_may_go_to_the_begin),
      cmocka_unit_test(parts_of_a_stream_are_long), cmocka_unit_test(a_long_body_has_any_length),
      cmocka_unit_test(the_first_part_of_a_lone_message_is_short),
      cmocka_unit_test(parts_after_a_body_in_a_cell_are_short), cmocka_unit_test(other_parts_are_short),
      cmocka_unit_test(what_was_promised_may_be_long), cmocka_unit_test(a_long_body_lies_in_the_ring),
      cmocka_unit_test(only_a_wide_ring_takes_long_bodies), cmocka_unit_test(a_change_at_any_time_loses_nothing));
