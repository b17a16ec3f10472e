/* The machine over another provider: large records, which tcp;ofi_rxm does not have. `a` sends them to `b`. */
#include "connections.h"
#include "needs.h"
#include "net_two.h"

#include <errno.h>
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

/* Drives a. Returns how many records are consumed, as far as b has told a. */
static uint32_t consumed(const struct path *p)
{
    enum { TURNS = 200 };
    for (int i = 0; i < TURNS; i++)
        um_net_drive(net_of(a));
    return ((const struct um_net_lane *)p->lane)->consumed;
}

/* Waits for the next record, which must be this message, and releases it. */
static void take_large(const struct message *msg)
{
    struct um_record rec;
    const uint64_t end = now_ms() + PATIENCE;
    while (um_net_poll(b, &rec) == 0)
        assert_true(now_ms() < end);
    assert_true(message_is(&rec, msg));
    um_net_release(b, &rec);
}

/* Reporting each large record would take as long as copying it, so credit waits for the next one. catch_up(), for a
 * caller that stops polling earlier, sends it at once. */
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
        (void)consumed(&p); /* everything is sent */
        sleep_us(MS * 1000);
        take_large(MESSAGE(before, .body_len = LARGE, .flags = UM_FLAG_ACK));
        assert_int_equal(um_net_poll(b, &rec), 1); /* it looks, although it has just offered a record */
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

/* Also while large records come one after the other without end. */
static void credit_is_put_off_for_a_few_records_only(void **state)
{
    (void)state;
    enum { LARGE = 40000, RECORDS = 8, TOGETHER = 3 };
    begin();
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < RECORDS; i++)
        message_send(p.lane, MESSAGE(i, .body_len = LARGE, .flags = UM_FLAG_ACK));
    const uint64_t end = now_ms() + PATIENCE;
    while (((const struct um_net_rx *)p.rx)->arrived != RECORDS) {
        assert_true(now_ms() < end);
        (void)consumed(&p);
        um_net_drive_all(net_of(b));
    }
    for (uint64_t i = 0; i < RECORDS; i++) {
        take_large(MESSAGE(i, .body_len = LARGE, .flags = UM_FLAG_ACK));
        assert_int_equal(consumed(&p), (i + 1) / TOGETHER * TOGETHER);
    }
    machine->catch_up(b);
    assert_int_equal(consumed(&p), RECORDS);
    path_end(&p);
    close_two();
}

/* The body is not copied when the record is committed. It is sent from the caller's memory, and sent again from there
 * if a connection loses it. */
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
        message_send(p.lane, MESSAGE(i, .body_len = 100, .flags = UM_FLAG_ACK)); /* perhaps in the same buffer */
        expect_message(b, p.rx, MESSAGE(i, .body_len = 100, .flags = UM_FLAG_ACK));
    }
    path_end(&p);
    close_two();
    free(memory);
}

static unsigned char *lent;
enum { LENT = 200000, OLD = 1, NEW = 2, FIRST_FD = 3, FEW = 16384 };

static void lend(const struct path *p)
{
    const struct iovec body = {.iov_base = lent, .iov_len = LENT};
    struct um_slot slot;
    assert_int_equal(machine->claim_lent(p->lane, &body, &slot), 0);
    memset(slot.header, OLD, UM_HEADER_MAX);
    machine->commit(p->lane, &slot, 1, UM_FLAG_ACK, 0);
}

static void begin_lending(void)
{
    begin();
    lent = malloc(LENT);
    assert_non_null(lent);
    memset(lent, OLD, LENT);
}

static void finish_lending(void)
{
    close_two();
    free(lent);
}

/* The memory changes: b gets nothing of what it has now. */
static void expect_nothing_new(void)
{
    struct um_record rec;
    memset(lent, NEW, LENT);
    const uint64_t end = now_ms() + PATIENCE;
    while (!poll_now(b, &rec)) {
        assert_true(now_ms() < end);
        um_net_drive(net_of(a));
    }
    assert_int_equal(rec.op, UM_REC_LEFT);
    assert_int_equal(rec.len, ECONNRESET);
    machine->release(b, &rec);
}

/* The receiver gets the whole body as it was before, or nothing. The connection continues, and the rest of the body is
 * read from memory that has changed. */
static void what_is_given_up_is_not_received(void **state)
{
    (void)state;
    begin_lending();
    struct path p = path_joined(a, b);
    struct um_net_lane *lane = (struct um_net_lane *)p.lane;
    (void)connections_keep(FIRST_FD, FEW);
    lend(&p);
    assert_true(lane->first->is_sending); /* the connection has no room for the whole body */
    um_net_peer_fall(net_of(a), lane->peer, ECONNRESET);
    um_net_drive(net_of(a));
    assert_true(lane->ended);
    expect_nothing_new();
    path_close(&p);
    finish_lending();
}

/* The peer broke the protocol, so core ends its operations and the program uses the memory again. However often the
 * peer asks for the record, it gets the old bytes or nothing. */
static void what_a_refused_peer_asks_for_is_not_sent_again(void **state)
{
    (void)state;
    begin_lending();
    struct path p = path_joined(a, b), back = path_joined(b, a);
    const struct um_net_lane *lane = (const struct um_net_lane *)p.lane;
    struct um_record rec;
    (void)connections_keep(FIRST_FD, FEW);
    lend(&p);
    um_net_rx_refuse(back.rx);
    assert_int_equal(um_net_poll(a, &rec), 1);
    assert_int_equal(rec.op, UM_REC_LEFT);
    assert_int_equal(rec.len, EPROTO);
    um_net_release(a, &rec);
    assert_true(lane->ended);
    assert_null(lane->first);
    expect_nothing_new();
    path_close(&back);
    path_close(&p);
    finish_lending();
}

/* Anybody may ask for a second lane in a peer's name. That it is declined must not end what goes to the peer. */
static void a_lane_that_is_declined_takes_back_no_body(void **state)
{
    (void)state;
    begin_lending();
    struct path p = path_joined(a, b), back = path_joined(b, a), second = path_open(b, a);
    const struct um_net_lane *lane = (const struct um_net_lane *)p.lane;
    struct um_record rec;
    lend(&p);
    for (uint8_t op = UM_REC_JOINED;; op = UM_REC_LEFT) {
        const uint64_t end = now_ms() + PATIENCE;
        while (!um_net_poll(a, &rec))
            assert_true(now_ms() < end);
        assert_int_equal(rec.op, op);
        if (op == UM_REC_JOINED)
            um_net_rx_refuse(rec.rx);
        um_net_release(a, &rec);
        if (op == UM_REC_LEFT)
            break;
    }
    assert_false(lane->ended);
    for (uint64_t end = now_ms() + PATIENCE; !poll_now(b, &rec);) {
        assert_true(now_ms() < end);
        um_net_drive(net_of(a));
    }
    assert_int_equal(rec.len, LENT);
    machine->release(b, &rec);
    path_close(&second);
    path_end(&back);
    path_end(&p);
    finish_lending();
}

/* As after a connection broke: the receiver has the record, and the record is being sent again. */
static void a_body_is_lent_until_nobody_reads_it(void **state)
{
    (void)state;
    begin_lending();
    struct path p = path_joined(a, b);
    struct um_net_lane *lane = (struct um_net_lane *)p.lane;
    struct um_record rec;
    lend(&p);
    send_unseen(&p, 2);
    struct um_net_buffer *buffer = lane->first;
    const uint64_t end = now_ms() + PATIENCE;
    while (buffer->is_sending || !poll_now(b, &rec)) {
        assert_true(now_ms() < end);
        um_net_drive(net_of(a));
    }
    buffer->is_sending = true;
    machine->release(b, &rec);
    expect_message(b, p.rx, MESSAGE(2));
    expect_nothing(b);
    machine->tick(b);
    while (lane->credited == 0) {
        assert_true(now_ms() < end);
        expect_nothing(b);
        um_net_drive(net_of(a));
    }
    assert_int_equal(machine->lane_consumed(p.lane), 0);
    buffer->is_sending = false;
    um_net_lane_sent(buffer, false);
    assert_int_equal(machine->lane_consumed(p.lane), lane->credited);
    path_end(&p);
    finish_lending();
}

enum defect { WRONG_SEAL, OTHER_LENGTH, NO_BODY, DEFECTS };

static void a_seal_is_checked(void **state)
{
    (void)state;
    static unsigned char message[UM_NET_LARGE];
    begin_lending();
    for (enum defect defect = 0; defect < DEFECTS; defect++) {
        struct path p = path_joined(a, b);
        struct um_net_record_wire record = record_of(&p, 1);
        const size_t body = defect == NO_BODY ? 0 : LENT;
        record.head.flags = UM_FLAG_MACHINE;
        record.head.len = UM_NET_SEAL + (defect == OTHER_LENGTH);
        const uint64_t seal = um_net_seal(&record.head) ^ (defect == WRONG_SEAL);
        memcpy(message, &record, sizeof(record));
        memcpy(message + sizeof(record) + body, &seal, sizeof(seal));
        send_raw(&p, message, sizeof(record) + body + sizeof(seal));
        expect_left(b, p.rx, defect == WRONG_SEAL ? ECONNRESET : EPROTO);
        path_close(&p);
    }
    finish_lending();
}

GROUP(net_large, T(what_is_given_up_is_not_received), T(what_a_refused_peer_asks_for_is_not_sent_again),
      T(a_lane_that_is_declined_takes_back_no_body), T(a_body_is_lent_until_nobody_reads_it), T(a_seal_is_checked),
      T(credit_of_large_records_goes_together), T(credit_is_put_off_for_a_few_records_only),
      T(a_lent_body_is_sent_out_of_its_memory));
