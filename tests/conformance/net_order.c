/* The machine over another provider: what comes late, in another order, or not at all because the peer takes nothing.
 */
#include "net_two.h"

#include "connections.h"

#include "base/clock.h"

#include <rdma/fi_eq.h>
#include <string.h>

enum { FIRST_FD = 3, FEW = 16384, STEP_NS = 500000000 };

/* Fails if a buffer is in a list of free buffers twice: then that list has a circle. */
static void expect_free_once(const struct um_net_inner *inner)
{
    uint32_t all = 0, count = 0;
    for (const struct um_net_buffer *buffer = inner->all; buffer; buffer = buffer->all)
        all++;
    for (int size = 0; size < UM_NET_SIZES; size++) {
        for (const struct um_net_buffer *buffer = inner->free[size]; buffer; buffer = buffer->next)
            assert_true(count++ < all);
    }
}

/* One look finds the end of the lane, which drops the record, and behind it the completion of that record's send. */
static void a_record_that_is_dropped_before_its_completion_is_freed_once(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    const struct um_net_lane *lane = (const struct um_net_lane *)p.lane;
    um_net_rx_refuse(p.rx);
    sleep_us(20000);
    for (int i = 0; i < 3; i++) /* the inner provider reads ENDED, but it stays in the queue */
        (void)fi_cq_read(net_of(a)->inner.own.cq, NULL, 0);
    send_unseen(&p, 1);
    for (uint64_t end = now_ms() + PATIENCE; !lane->ended || net_of(a)->inner.sending;) {
        assert_true(now_ms() < end);
        um_net_drive_all(net_of(a));
    }
    expect_free_once(&net_of(a)->inner);
    expect_left(b, p.rx, EPROTO);
    path_close(&p);
    close_two();
}

/* The peer makes no calls for hours, and its sockets are full. Each message that the inner provider accepts for it
 * costs memory. */
static void a_peer_that_takes_nothing_is_sent_few_probes(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    struct um_net_port *port = net_of(a);
    const struct um_net_peer *peer = ((const struct um_net_lane *)p.lane)->peer;
    uint64_t now = um_clock_coarse_ns();
    int more = 0;
    (void)connections_keep(FIRST_FD, FEW);
    for (int i = 0; i < 100000 && more < 1000; i++) {
        um_net_probe(port, now += STEP_NS);
        um_net_drive(port);
        more += um_net_peer_is_behind(peer);
    }
    assert_int_equal(more, 1000);
    assert_true(port->inner.sending < 2 * UM_NET_TELLING_MAX);
    for (uint64_t end = now_ms() + PATIENCE; peer->telling;) {
        assert_true(now_ms() < end);
        um_net_drive(net_of(b));
        um_net_drive(port);
    }
    expect_well(&p, 1);
    path_end(&p);
    close_two();
}

static void credit_comes(struct um_net_lane *lane, uint32_t number, uint8_t serial, uint8_t flags)
{
    struct um_net_buffer *buffer = um_net_buffer_get(&lane->port->inner, sizeof(struct um_net_head_wire));
    const struct um_net_head_wire head = {.version = UM_NET_VERSION,
                                          .kind = UM_NET_CREDIT,
                                          .op = serial,
                                          .flags = flags,
                                          .number = number,
                                          .len = lane->window};
    memcpy(buffer->message, &head, sizeof(head));
    buffer->len = sizeof(head);
    um_net_lane_take(lane, buffer);
    um_net_buffer_put(&lane->port->inner, buffer);
}

/* A connection may lose so many of them that the serial of the next one, which has 8 bits, looks older. */
static void credit_for_more_records_is_newer_whatever_its_serial(void **state)
{
    (void)state;
    enum { RECORDS = 5, LOST = 200 };
    open_two();
    struct path p = path_joined(a, b);
    struct um_net_lane *lane = (struct um_net_lane *)p.lane;
    for (uint64_t i = 0; i < RECORDS; i++)
        send_unseen(&p, i);
    const uint8_t serial = (uint8_t)(lane->credit_serial + LOST);
    credit_comes(lane, RECORDS, serial, 0);
    assert_int_equal(lane->credited, RECORDS);
    credit_comes(lane, RECORDS - 1, (uint8_t)(serial + 1), UM_NET_HELD);
    assert_int_equal(lane->credited, RECORDS);
    credit_comes(lane, RECORDS, (uint8_t)(serial - 1), UM_NET_HELD);
    assert_false(lane->held);
    credit_comes(lane, RECORDS, (uint8_t)(serial + 1), UM_NET_HELD);
    assert_true(lane->held);
    lane->held = false;
    lane->credit_serial -= LOST + 1; /* as the receiver knows it */
    for (uint64_t i = 0; i < RECORDS; i++)
        expect_message(b, p.rx, MESSAGE(i));
    path_end(&p);
    close_two();
}

/* A record of 256 KiB takes seconds where many ranks share a link. To send it again makes that worse. */
static void what_is_only_slow_is_rarely_sent_again(void **state)
{
    (void)state;
    struct um_net_gap gap = {.has = 0};
    int again = 0;
    for (uint64_t end = now_ms() + 3200; now_ms() < end; sleep_us(5000))
        again += um_net_is_lost(&gap, 1, 2);
    assert_true(again >= 2 && again <= 3);
    for (uint32_t has = 2; gap.slow; has++) { /* it goes on without */
        assert_true(has < 10);
        assert_false(um_net_is_lost(&gap, has, has));
    }
}

GROUP(net_order, T(a_record_that_is_dropped_before_its_completion_is_freed_once),
      T(a_peer_that_takes_nothing_is_sent_few_probes), T(credit_for_more_records_is_newer_whatever_its_serial),
      T(what_is_only_slow_is_rarely_sent_again));
