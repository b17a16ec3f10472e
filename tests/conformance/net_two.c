/* See net_two.h. */
#include "net_two.h"

struct um_net_port *net_of(struct um_port *port)
{
    return (struct um_net_port *)port;
}

void send_raw(const struct path *p, const void *message, size_t len)
{
    const struct um_net_lane *lane = (const struct um_net_lane *)p->lane;
    uint64_t end = now_ms() + PATIENCE;
    struct um_record rec;
    while (!um_net_tell(net_of(a), lane->peer, message, len)) {
        (void)machine->poll(a, &rec);
        assert_true(now_ms() < end);
    }
}

struct um_net_record_wire record_of(const struct path *p, uint32_t number)
{
    const struct um_net_lane *lane = (const struct um_net_lane *)p->lane;
    return (struct um_net_record_wire){.head = {.version = UM_NET_VERSION,
                                                .kind = UM_NET_RECORD,
                                                .op = 1,
                                                .slot = lane->rx_slot,
                                                .id = lane->rx_id,
                                                .number = number,
                                                .len = 7}};
}

void expect_well(struct path *p, uint64_t number)
{
    message_send(p->lane, MESSAGE(number, .body_len = 100));
    expect_message(b, p->rx, MESSAGE(number, .body_len = 100));
}

void send_unseen(const struct path *p, uint64_t number)
{
    struct um_slot slot;
    assert_int_equal(um_net_claim(p->lane, 0, &slot), 0);
    message_fill(&slot, MESSAGE(number));
    um_net_commit(p->lane, &slot, 1, 0, (uint32_t)number);
}
