/* Conformance: first contact, order, headers, claim, commit, abort, poll, release. */
#include "two.h"

static void first_contact_needs_no_call_of_the_peer(void **state)
{
    (void)state;
    open_two();
    struct path p = path_open(a, b);
    for (uint64_t i = 0; i < 10; i++)
        message_send(p.lane, MESSAGE(i, .body_len = i * 10));
    path_close(&p);
    struct um_rx *rx = expect_joined(b, a);
    for (uint64_t i = 0; i < 10; i++)
        expect_message(b, rx, MESSAGE(i, .body_len = i * 10));
    expect_left(b, rx, 0);
    close_two();
}

static void joined_comes_first_and_once(void **state)
{
    (void)state;
    open_two();
    expect_nothing(b);
    struct path p = path_joined(a, b);
    expect_nothing(b);
    message_send(p.lane, MESSAGE(1));
    expect_message(b, p.rx, MESSAGE(1));
    expect_nothing(b);
    expect_nothing(a);
    path_end(&p);
    close_two();
}

static void joined_is_offered_until_it_is_released(void **state)
{
    (void)state;
    open_two();
    struct path p = path_open(a, b);
    struct um_record rec, again;
    message_send(p.lane, MESSAGE(1));
    assert_true(poll_now(b, &rec));
    assert_int_equal(rec.op, UM_REC_JOINED);
    assert_true(poll_now(b, &again));
    assert_int_equal(again.op, UM_REC_JOINED);
    assert_ptr_equal(again.rx, rec.rx);
    machine->release(b, &again);
    expect_message(b, rec.rx, MESSAGE(1));
    path_close(&p);
    expect_left(b, rec.rx, 0);
    close_two();
}

static void an_rx_keeps_what_the_user_gave_it(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b), q = path_joined(a, b);
    int x, y;
    assert_null(p.rx->user);
    p.rx->user = &x;
    q.rx->user = &y;
    assert_ptr_equal(p.rx->user, &x);
    assert_ptr_equal(q.rx->user, &y);
    path_close(&p);
    struct um_record rec;
    assert_true(poll_now(b, &rec) || poll_now(b, &rec));
    assert_int_equal(rec.op, UM_REC_LEFT);
    assert_ptr_equal(rec.rx->user, &x);
    machine->release(b, &rec);
    path_end(&q);
    close_two();
}

static void records_arrive_in_the_order_of_their_lane(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    uint64_t seed = 1, sent = 0, got = 0;
    while (got < 30000) {
        for (uint32_t n = chance(&seed, 100); n > 0; n--)
            sent += message_try(p.lane, MESSAGE(sent)) == 0;
        for (uint32_t n = chance(&seed, 100); n > 0 && got < sent; n--, got++)
            expect_message(b, p.rx, MESSAGE(got));
    }
    for (; got < sent; got++)
        expect_message(b, p.rx, MESSAGE(got));
    path_end(&p);
    close_two();
}

static void opcode_flags_len_and_head_arrive_as_committed(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    for (uint32_t op = 1; op <= UM_OPCODE_MAX; op++) {
        uint8_t flags = (uint8_t)((op & UM_FLAG_MASK) | (op & 1 ? UM_FLAG_ACK : 0));
        struct message bare = {.number = op * 1000, .op = (uint8_t)op, .flags = flags};
        struct message with_body = {.number = op, .op = (uint8_t)op, .flags = flags, .body_len = op};
        message_send(p.lane, &bare);
        expect_message(b, p.rx, &bare);
        message_send(p.lane, &with_body);
        expect_message(b, p.rx, &with_body);
    }
    message_send(p.lane, MESSAGE(0));
    expect_message(b, p.rx, MESSAGE(0));
    message_send(p.lane, MESSAGE(65535));
    expect_message(b, p.rx, MESSAGE(65535));
    path_end(&p);
    close_two();
}

static void a_slot_is_aligned_and_has_what_was_asked_for(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    for (uint32_t len = 0; len < 500; len++) {
        struct um_slot slot;
        assert_int_equal(claim_now(p.lane, len, &slot), 0);
        assert_int_equal((uintptr_t)slot.header % 8, 0);
        assert_int_equal(slot.body_len, len);
        assert_true(len ? slot.body && (uintptr_t)slot.body % 64 == 0 : !slot.body);
        message_fill(&slot, MESSAGE(len, .body_len = len));
        machine->commit(p.lane, &slot, 1, 0, len);
        expect_message(b, p.rx, MESSAGE(len, .body_len = len));
    }
    path_end(&p);
    close_two();
}

/* Makes the header of record i: at most three of its words are not zero. With a small len, a machine may pack such a
 * record. */
static void sparse_header(uint64_t i, uint64_t header[UM_HEADER_MAX / 8])
{
    memset(header, 0, UM_HEADER_MAX);
    for (uint64_t n = 0; n < i % 4; n++)
        header[(i + n * 2) % (UM_HEADER_MAX / 8)] = i + n + 1;
}

static void a_head_that_is_mostly_zero_arrives_whole_and_in_its_place(void **state)
{
    (void)state;
    uint64_t header[UM_HEADER_MAX / 8], sent = 0;
    struct um_record rec;
    struct um_slot slot;
    open_two();
    struct path p = path_joined(a, b);
    for (uint64_t got = 0; got < 3000;) {
        for (; sent < 3000 && sent < got + 1 + got % 50; sent++) {
            bool full = sent % 5 == 4;
            int ret = machine->claim(p.lane, full ? 100 : 0, &slot);
            if (ret == -EAGAIN)
                break;
            assert_int_equal(ret, 0);
            sparse_header(sent, header);
            memcpy(slot.header, header, sizeof(header));
            if (full)
                memset(slot.body, (int)(sent & 0xff), 100);
            machine->commit(p.lane, &slot, 3, (uint8_t)(sent & 7), (uint32_t)(sent % 70));
        }
        if (!poll_now(b, &rec))
            continue;
        sparse_header(got, header);
        bool full = got % 5 == 4;
        assert_memory_equal(rec.header, header, sizeof(header));
        assert_int_equal(rec.op, 3);
        assert_int_equal(rec.flags, got & 7);
        assert_int_equal(rec.len, full ? 100 : got % 70);
        assert_int_equal(rec.body != NULL, full);
        if (full)
            assert_int_equal(*(const unsigned char *)rec.body, got & 0xff);
        machine->release(b, &rec);
        got++;
    }
    path_end(&p);
    close_two();
}

static void what_is_claimed_is_not_seen_before_commit(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 300; i++) {
        struct um_slot slot;
        uint32_t len = i % 3 ? 40 : 0;
        assert_int_equal(claim_now(p.lane, len, &slot), 0);
        message_fill(&slot, MESSAGE(i, .body_len = len));
        struct um_record rec;
        assert_int_equal(machine->poll(b, &rec), 0);
        machine->commit(p.lane, &slot, 1, 0, len ? len : (uint32_t)i);
        expect_message(b, p.rx, MESSAGE(i, .body_len = len));
    }
    path_end(&p);
    close_two();
}

static void an_aborted_claim_leaves_no_trace(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    uint64_t seed = 3, sent = 0, got = 0;
    uint32_t max = machine->lane_body_max(p.lane, 0);
    for (int i = 0; i < 20000; i++) {
        struct um_slot slot;
        uint32_t len = chance(&seed, 2) ? 0 : chance(&seed, max + 1);
        uint32_t committed = machine->lane_committed(p.lane);
        if (chance(&seed, 3) == 0 && claim_now(p.lane, len, &slot) == 0) {
            message_fill(&slot, MESSAGE(UINT64_MAX, .body_len = len));
            machine->abort(p.lane, &slot);
            assert_int_equal(machine->lane_committed(p.lane) - committed <= 1, 1); /* growing may cost a record */
        }
        sent += message_try(p.lane, MESSAGE(sent, .body_len = sent % 3 * (max / 3))) == 0;
        for (uint32_t n = chance(&seed, 3); n > 0 && got < sent; n--, got++)
            expect_message(b, p.rx, MESSAGE(got, .body_len = got % 3 * (max / 3)));
    }
    for (; got < sent; got++)
        expect_message(b, p.rx, MESSAGE(got, .body_len = got % 3 * (max / 3)));
    expect_nothing(b);
    path_end(&p);
    close_two();
}

static void a_record_not_released_is_offered_again(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 200; i++) {
        struct um_record rec;
        uint32_t len = i % 2 ? 200 : 0;
        message_send(p.lane, MESSAGE(2 * i, .body_len = len));
        message_send(p.lane, MESSAGE(2 * i + 1, .body_len = 33));
        for (int n = 0; n < 20; n++) {
            assert_true(poll_now(b, &rec));
            assert_ptr_equal(rec.rx, p.rx);
            assert_true(message_is(&rec, MESSAGE(2 * i, .body_len = len)));
        }
        machine->release(b, &rec);
        expect_message(b, p.rx, MESSAGE(2 * i + 1, .body_len = 33));
    }
    path_end(&p);
    close_two();
}

static void lanes_between_the_same_ports_are_independent(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b), q = path_joined(a, b), back = path_joined(b, a);
    struct um_lane *third;
    assert_int_equal(lane_open_now(p.link, &third), 0);
    struct um_rx *third_rx = expect_joined(b, a);
    message_send(p.lane, MESSAGE(1));
    expect_message(b, p.rx, MESSAGE(1));
    message_send(q.lane, MESSAGE(2, .body_len = 9));
    expect_message(b, q.rx, MESSAGE(2, .body_len = 9));
    message_send(third, MESSAGE(3));
    expect_message(b, third_rx, MESSAGE(3));
    message_send(back.lane, MESSAGE(4));
    expect_message(a, back.rx, MESSAGE(4));
    machine->lane_close(third);
    expect_left(b, third_rx, 0);
    path_end(&q);
    message_send(p.lane, MESSAGE(5));
    expect_message(b, p.rx, MESSAGE(5));
    path_end(&p);
    path_end(&back);
    close_two();
}

static void a_link_is_alive_while_its_peer_is(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    assert_true(machine->link_alive(p.link));
    path_end(&p);
    close_two();
}

GROUP(lane, T(first_contact_needs_no_call_of_the_peer), T(joined_comes_first_and_once),
      T(joined_is_offered_until_it_is_released), T(an_rx_keeps_what_the_user_gave_it),
      T(records_arrive_in_the_order_of_their_lane), T(opcode_flags_len_and_head_arrive_as_committed),
      T(a_head_that_is_mostly_zero_arrives_whole_and_in_its_place), T(a_slot_is_aligned_and_has_what_was_asked_for),
      T(what_is_claimed_is_not_seen_before_commit), T(an_aborted_claim_leaves_no_trace),
      T(a_record_not_released_is_offered_again), T(lanes_between_the_same_ports_are_independent),
      T(a_link_is_alive_while_its_peer_is));
