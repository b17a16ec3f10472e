/* The machine over another provider: large records, which tcp;ofi_rxm has not. `a` sends them to `b`. */
#include "needs.h"
#include "net_two.h"

#include <stdlib.h>
#include <string.h>

static void begin(void)
{
    open_two();
    const bool takes = net_of(a)->inner.body_max == UM_NET_BODY_MAX;
    if (!takes)
        close_two();
    needs(takes);
}

/* What b has told of consumption, as far as a has heard. */
static uint32_t consumed(const struct path *p)
{
    enum { TURNS = 200 };
    for (int i = 0; i < TURNS; i++)
        um_net_drive(net_of(a));
    return ((const struct um_net_lane *)p->lane)->consumed;
}

/* The next record, which is released. */
static void take_large(const struct message *msg)
{
    struct um_record rec;
    const uint64_t end = now_ms() + PATIENCE;
    while (um_net_poll(b, &rec) == 0)
        assert_true(now_ms() < end);
    assert_true(message_is(&rec, msg));
    um_net_release(b, &rec);
}

/* To tell of each takes as long as to copy it. Who stops before the last one says so, and then it is told at once. */
static void credit_of_large_records_goes_together(void **state)
{
    (void)state;
    enum { LARGE = 40000, RECORDS = 2, MS = 20 };
    begin();
    struct path p = path_joined(a, b);
    struct um_record rec;
    for (uint32_t round = 0; round < 6; round++) {
        const uint32_t before = round * RECORDS;
        for (uint64_t i = 0; i < RECORDS; i++)
            message_send(p.lane, MESSAGE(before + i, .body_len = LARGE, .flags = UM_FLAG_ACK));
        (void)consumed(&p); /* all has gone */
        sleep_us(MS * 1000);
        take_large(MESSAGE(before, .body_len = LARGE, .flags = UM_FLAG_ACK));
        assert_int_equal(um_net_poll(b, &rec), 1); /* it looks, though it has given one */
        assert_int_equal(consumed(&p), before);
        if (round % 2)
            machine->catch_up(b);
        assert_int_equal(consumed(&p), before + round % 2);
        um_net_release(b, &rec);
        assert_int_equal(um_net_poll(b, &rec), 0);
        const uint64_t end = now_ms() + PATIENCE;
        while (consumed(&p) != before + RECORDS)
            assert_true(now_ms() < end);
    }
    path_end(&p);
    close_two();
}

/* Large ones that come one behind the other for ever. */
static void credit_is_put_off_for_a_few_records_only(void **state)
{
    (void)state;
    enum { LARGE = 40000, RECORDS = 8, MS = 20 };
    begin();
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < RECORDS; i++)
        message_send(p.lane, MESSAGE(i, .body_len = LARGE, .flags = UM_FLAG_ACK));
    (void)consumed(&p);
    sleep_us(MS * 1000);
    for (uint64_t i = 0; i < RECORDS; i++)
        take_large(MESSAGE(i, .body_len = LARGE, .flags = UM_FLAG_ACK));
    assert_true(consumed(&p) >= RECORDS / 2); /* by bytes, or by drives */
    assert_true(consumed(&p) < RECORDS);
    machine->catch_up(b);
    assert_int_equal(consumed(&p), RECORDS);
    path_end(&p);
    close_two();
}

/* It has not been copied when the record is committed; and it is sent again from there when a connection loses it. */
static void a_lent_body_is_sent_out_of_its_memory(void **state)
{
    (void)state;
    enum { LEN = 200000, ROUNDS = 20, OLD = 1, NEW = 2 };
    unsigned char *memory = malloc(LEN);
    const struct iovec body = {.iov_base = memory, .iov_len = LEN};
    struct um_record rec;
    assert_non_null(memory);
    begin();
    struct path p = path_joined(a, b);
    struct um_net_lane *lane = (struct um_net_lane *)p.lane;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const unsigned char value = (unsigned char)(i + NEW);
        struct um_slot slot;
        memset(memory, OLD, LEN);
        assert_int_equal(machine->claim_lent(p.lane, &body, &slot), 0);
        assert_null(slot.body);
        assert_int_equal(slot.body_len, LEN);
        memset(slot.header, value, UM_HEADER_MAX);
        memset(memory, value, LEN);
        machine->commit(p.lane, &slot, 1, UM_FLAG_ACK, 0);
        assert_ptr_equal(lane->last->lent.iov_base, memory);
        const uint64_t end = now_ms() + PATIENCE;
        while (!poll_now(b, &rec)) {
            assert_true(now_ms() < end);
            um_net_drive(net_of(a));
        }
        assert_int_equal(rec.len, LEN);
        assert_int_equal((uintptr_t)rec.body % 64, 0);
        assert_memory_equal(rec.body, memory, LEN);
        assert_memory_equal(rec.header, memory, UM_HEADER_MAX);
        machine->release(b, &rec);
        while (lane->first) {
            assert_true(now_ms() < end);
            expect_nothing(b);
            expect_nothing(a);
        }
        message_send(p.lane, MESSAGE(i, .body_len = 100, .flags = UM_FLAG_ACK)); /* in a buffer that may be the same */
        expect_message(b, p.rx, MESSAGE(i, .body_len = 100, .flags = UM_FLAG_ACK));
    }
    path_end(&p);
    close_two();
    free(memory);
}

GROUP(net_large, T(credit_of_large_records_goes_together), T(credit_is_put_off_for_a_few_records_only),
      T(a_lent_body_is_sent_out_of_its_memory));
