/*
 * The machine over another provider: what comes from strangers and from peers that break the format, peers that die,
 * are stopped or use something else, and what its settings say.
 *
 * A message that is not the machine's own goes from the inner endpoint of a port, `a`, to the port `b`.
 */
#include "conform.h"

#include "connections.h"
#include "net.h"

#include "machine/address.h"
#include "machine/net/config.h"
#include "machine/net/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)

static struct um_port *a, *b;

static struct um_net_port *net_of(struct um_port *port)
{
    return (struct um_net_port *)port;
}

static void open_two(void)
{
    a = port_new(0);
    b = port_new(0);
}

static void close_two(void)
{
    machine->port_close(b);
    machine->port_close(a);
}

/* Any bytes from a to the port of the lane's peer. */
static void send_raw(const struct path *p, const void *message, size_t len)
{
    const struct um_net_lane *lane = (const struct um_net_lane *)p->lane;
    uint64_t end = now_ms() + PATIENCE;
    struct um_record rec;
    while (!um_net_tell(net_of(a), lane->peer, message, len)) {
        (void)machine->poll(a, &rec);
        assert_true(now_ms() < end);
    }
}

/* A record of that lane, of its own making. */
static struct um_net_record_wire record_of(const struct path *p, uint32_t number)
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

static void expect_well(struct path *p, uint64_t number)
{
    message_send(p->lane, MESSAGE(number, .body_len = 100));
    expect_message(b, p->rx, MESSAGE(number, .body_len = 100));
}

/* ---- strangers ---- */

static void bytes_of_strangers_are_dropped_and_counted(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    unsigned char bytes[300];
    uint64_t seed = 11;
    open_two();
    struct path good = path_joined(a, b);
    const uint64_t stray = net_of(b)->strays;
    for (int i = 0; i < COUNT; i++) {
        const size_t len = 1 + chance(&seed, sizeof(bytes) - 1);
        for (size_t k = 0; k < len; k++)
            bytes[k] = (unsigned char)chance(&seed, 256);
        if (i % 2)
            bytes[0] = UM_NET_VERSION;
        if (i % 2 && len > 1)
            bytes[1] = (unsigned char)chance(&seed, UM_NET_KINDS + 2);
        if (i % 4 == 1 && len > 8)
            memset(bytes + 4, 0, 4); /* a slot that is in use */
        send_raw(&good, bytes, len);
        if (i % 50 == 0)
            expect_well(&good, (uint64_t)i);
    }
    expect_nothing(b);
    assert_int_equal(net_of(b)->strays, stray + COUNT);
    expect_well(&good, 1);
    path_end(&good);
    close_two();
}

/* The slot is right, and the number is not: as for who has seen no message of this pair. */
static void who_does_not_know_the_secret_number_moves_nothing(void **state)
{
    (void)state;
    open_two();
    struct path good = path_joined(a, b), back = path_joined(b, a);
    struct um_net_lane *lane = (struct um_net_lane *)back.lane;
    struct um_answer answer;
    for (uint8_t kind = 0; kind < UM_NET_KINDS; kind++) {
        struct um_net_record_wire record = record_of(&good, 1);
        record.head.kind = kind;
        record.head.id ^= 1;
        send_raw(&good, &record, sizeof(record));
        record.head.slot = lane->slot; /* now as if it were for b's lane */
        record.head.id = lane->id ^ 1;
        record.head.number = 3;
        send_raw(&good, &record, sizeof(record.head));
    }
    expect_nothing(b);
    assert_int_equal(machine->lane_reap(back.lane, &answer, 1), 0);
    assert_int_equal(machine->lane_committed(back.lane) - machine->lane_consumed(back.lane), 0);
    expect_well(&good, 1);
    path_end(&good);
    path_end(&back);
    close_two();
}

enum { STRANGERS = 20, FIRST_FD = 3 };

/* A connection that has said nothing of a lane. By the machine itself: net_settled.c would send the rest. */
static struct um_port *stranger_new(struct um_net_peer **peer_p)
{
    const struct um_net_head_wire stray = {.version = UM_NET_VERSION};
    const struct um_port_config config = {.private_copy = true};
    const uint64_t end = now_ms() + PATIENCE;
    struct um_addr addr = addr_of(b);
    struct um_port *port;
    assert_int_equal(um_net_port_open(&um_machine_net, &config, &port), 0);
    assert_int_equal(um_net_peer_get(net_of(port), &addr, peer_p), 0);
    for (bool is_told = false; !is_told || net_of(port)->inner.sending;) {
        is_told = is_told || um_net_tell(net_of(port), *peer_p, &stray, sizeof(stray));
        um_net_drive(net_of(port));
        expect_nothing(b);
        assert_true(now_ms() < end);
    }
    return port;
}

/* More of them than there are receives. What waits comes after some time without a word. */
static void messages_that_stop_in_the_middle_keep_no_other_away(void **state)
{
    (void)state;
    struct um_port *strangers[STRANGERS];
    struct um_net_peer *peer[STRANGERS];
    struct um_record rec;
    open_two();
    struct path p = path_joined(a, b);
    const bool is_fetched = net_of(b)->inner.body_max < UM_NET_BODY_MAX; /* it keeps messages until they are whole */
    for (int i = 0; i < STRANGERS; i++)
        strangers[i] = stranger_new(&peer[i]);
    assert_true(connections_keep(FIRST_FD, 16384) > STRANGERS);
    for (int i = 0; i < STRANGERS && !is_fetched; i++) {
        struct um_net_buffer *half = um_net_buffer_get(&net_of(strangers[i])->inner, UM_NET_LARGE);
        *(struct um_net_head_wire *)(void *)half->message = (struct um_net_head_wire){.version = UM_NET_VERSION};
        half->lane = NULL;
        half->len = UM_NET_LARGE;
        assert_true(um_net_tell_buffer(net_of(strangers[i]), peer[i], half));
        expect_nothing(b);
    }
    assert_int_equal(um_net_set_timeout("1"), 0);
    for (uint64_t i = 0; i < UM_NET_WINDOW; i++) {
        message_send(p.lane, MESSAGE(i));
        assert_true(is_fetched || i || !poll_now(b, &rec));
        const uint64_t end = now_ms() + PATIENCE;
        while (!poll_now(b, &rec)) {
            machine->tick(b);
            assert_true(now_ms() < end);
        }
        assert_true(message_is(&rec, MESSAGE(i)));
        machine->release(b, &rec);
    }
    assert_int_equal(um_net_set_timeout(NULL), 0);
    (void)connections_keep(FIRST_FD, 1 << 20);
    for (int i = 0; i < STRANGERS; i++) {
        while (net_of(strangers[i])->inner.sending) {
            um_net_drive(net_of(strangers[i]));
            expect_nothing(b);
        }
        um_net_peer_put(net_of(strangers[i]), peer[i]);
        um_net_port_close(strangers[i]);
    }
    path_end(&p);
    close_two();
}

/* ---- a peer that breaks the format ---- */

enum defect { SHORT, LENGTH, NO_BODY, OPCODE, BEYOND, CLOSE_BEYOND, CLOSE_BEHIND, DEFECTS };

static void send_defect(const struct path *p, enum defect defect)
{
    struct {
        struct um_net_record_wire record;
        unsigned char body[64];
    } message = {.record = record_of(p, 2)};
    struct um_net_head_wire *head = &message.record.head;
    size_t len = sizeof(message.record);
    switch (defect) {
    case SHORT:
        len = sizeof(*head) + 8;
        break;
    case LENGTH:
        head->flags = UM_FLAG_MACHINE;
        head->len = 65;
        len = sizeof(message);
        break;
    case NO_BODY:
        head->flags = UM_FLAG_MACHINE;
        head->len = 0;
        break;
    case OPCODE:
        head->op = UM_OPCODE_MACHINE;
        break;
    case BEYOND:
        head->number = 2 + UM_NET_WINDOW_MAX;
        break;
    default: /* more were sent than the window allows; fewer than came */
        head->kind = UM_NET_CLOSE;
        head->number = defect == CLOSE_BEYOND ? 2 + UM_NET_WINDOW_MAX : 0;
        len = sizeof(*head);
    }
    send_raw(p, &message, len);
}

static void a_broken_record_ends_its_lane_and_no_other(void **state)
{
    (void)state;
    open_two();
    struct path good = path_joined(a, b);
    for (enum defect defect = 0; defect < DEFECTS; defect++) {
        struct um_slot slot;
        struct path bad = path_joined(a, b);
        expect_well(&bad, 1);
        send_defect(&bad, defect);
        expect_left(b, bad.rx, EPROTO);
        expect_nothing(b);
        assert_int_equal(machine->claim(bad.lane, 0, &slot), -EPIPE);
        path_close(&bad);
        expect_well(&good, defect);
    }
    path_end(&good);
    close_two();
}

static void expect_raw(const struct path *p)
{
    struct um_record rec;
    assert_true(poll_now(b, &rec));
    assert_ptr_equal(rec.rx, p->rx);
    assert_int_equal(rec.op, 1);
    machine->release(b, &rec);
}

static void records_that_overtake_others_wait_for_them(void **state)
{
    (void)state;
    static const uint32_t order[] = {3, 2, 5, 1, 4, 8, 7, 6};
    open_two();
    struct path p = path_joined(a, b);
    uint32_t highest = 0, got = 0;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        struct um_net_record_wire record = record_of(&p, order[i]);
        send_raw(&p, &record, sizeof(record));
        if (order[i] == 1)
            highest = 3;
        highest = order[i] == 4 ? 5 : order[i] == 6 ? 8 : highest;
        for (; got < highest; got++)
            expect_raw(&p);
        expect_nothing(b);
    }
    assert_int_equal(got, 8);
    path_close(&p);
    close_two();
}

/* Behind those that came, at their end, and ahead of others. */
static void a_record_that_comes_twice_is_taken_once(void **state)
{
    (void)state;
    static const uint32_t order[] = {1, 2, 1, 2, 4, 4, 3, 4, 1, 3, 5, 5};
    static const uint32_t highest[] = {1, 2, 2, 2, 2, 2, 4, 4, 4, 4, 5, 5};
    open_two();
    struct path p = path_joined(a, b);
    uint32_t got = 0;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        struct um_net_record_wire record = record_of(&p, order[i]);
        send_raw(&p, &record, sizeof(record));
        for (; got < highest[i]; got++)
            expect_raw(&p);
        expect_nothing(b);
    }
    path_close(&p);
    close_two();
}

static uint32_t large_of(const struct um_port *port)
{
    uint32_t count = 0;
    for (const struct um_net_buffer *at = ((const struct um_net_port *)port)->inner.all; at; at = at->all)
        count += at->size == UM_NET_OF_LARGE;
    return count;
}

static void send_message_raw(const struct path *p, uint32_t number, uint32_t body_len)
{
    static _Alignas(8) unsigned char message[sizeof(struct um_net_record_wire) + 8192];
    struct um_net_record_wire *record = (void *)message;
    *record = record_of(p, number);
    record->head.flags = UM_FLAG_MACHINE;
    record->head.len = 0;
    message_fill(&(struct um_slot){.header = record->header, .body = record + 1, .body_len = body_len},
                 MESSAGE(number, .body_len = body_len));
    send_raw(p, message, sizeof(*record) + body_len);
}

/* A record of some KiB keeps no buffer of 256 KiB for long, whether it came behind others or ahead of them. */
static void records_that_wait_take_buffers_of_their_size(void **state)
{
    (void)state;
    enum { COUNT = UM_NET_WINDOW, LEN = 8192, FEW = 16 };
    for (uint32_t ahead = 0; ahead < 2; ahead++) {
        open_two();
        struct path p = path_joined(a, b);
        const uint32_t before = large_of(b);
        for (uint32_t i = 1 + ahead; i <= COUNT; i++) {
            send_message_raw(&p, i, LEN);
            (void)machine->gather(b);
        }
        assert_true(large_of(b) <= before + (ahead ? 1 : FEW + 1));
        if (ahead)
            send_message_raw(&p, 1, LEN);
        for (uint32_t i = 1; i <= COUNT; i++)
            expect_message(b, p.rx, MESSAGE(i, .body_len = LEN));
        path_close(&p);
        close_two();
    }
}

/* A sender keeps to UM_NET_KEPT_MAX bytes, and one record beyond. */
static void a_sender_that_writes_on_and_on_is_refused(void **state)
{
    (void)state;
    static unsigned char message[UM_NET_LARGE];
    struct um_record rec;
    const uint32_t most = UM_NET_KEPT_MAX / UM_NET_BODY_MAX + 1;
    open_two();
    struct path p = path_joined(a, b);
    for (uint32_t number = 1; number <= most + 1; number++) {
        struct um_net_record_wire record = record_of(&p, number);
        record.head.flags = UM_FLAG_MACHINE;
        record.head.len = 0;
        memcpy(message, &record, sizeof(record));
        send_raw(&p, message, sizeof(message));
        if (number <= most)
            assert_true(poll_now(b, &rec) && rec.op < UM_OPCODE_MACHINE && rec.len == UM_NET_BODY_MAX);
    }
    expect_left(b, p.rx, EPROTO);
    path_close(&p);
    close_two();
}

static void large_bodies_are_announced_while_the_receiver_wants_that(void **state)
{
    (void)state;
    open_two();
    struct path p = path_joined(a, b);
    for (int i = 0; i < 3; i++) {
        expect_nothing(a);
        assert_false(um_net_prefers_rndv(p.lane, NULL, 0, UM_NET_BODY_MAX));
        machine->rx_announce(p.rx, true);
        expect_nothing(a);
        assert_true(um_net_prefers_rndv(p.lane, NULL, 0, UM_ANNOUNCED_MIN + 1));
        assert_false(um_net_prefers_rndv(p.lane, NULL, 0, UM_ANNOUNCED_MIN));
        machine->rx_announce(p.rx, false);
    }
    path_end(&p);
    close_two();
}

/* By the machine itself: net_settled.c would drive the port for it. */
static void a_record_that_stays_does_not_keep_answers_away(void **state)
{
    (void)state;
    struct um_answer answer;
    struct um_record rec;
    open_two();
    struct path p = path_joined(a, b), back = path_joined(b, a);
    message_send(back.lane, MESSAGE(1));
    const uint64_t end = now_ms() + PATIENCE;
    while (um_machine_net.poll(a, &rec) == 0)
        assert_true(now_ms() < end);
    assert_int_equal(machine->answer(p.rx, 3, 7), 0);
    while (um_machine_net.lane_reap(p.lane, &answer, 1) == 0) {
        assert_int_equal(um_machine_net.poll(a, &rec), 1);
        assert_true(message_is(&rec, MESSAGE(1)));
        assert_true(now_ms() < end);
    }
    assert_int_equal(answer.token, 3);
    um_machine_net.release(a, &rec);
    expect_nothing(a);
    path_end(&p);
    path_end(&back);
    close_two();
}

/* Not by net_settled.c, which would drive the receiver. */
static void send_unseen(const struct path *p, uint64_t number)
{
    struct um_slot slot;
    assert_int_equal(um_net_claim(p->lane, 0, &slot), 0);
    message_fill(&slot, MESSAGE(number));
    um_net_commit(p->lane, &slot, 1, 0, (uint32_t)number);
}

/* The caller has something to do with what it got; then it asks again. */
static void the_first_poll_behind_a_record_does_not_look(void **state)
{
    (void)state;
    struct um_record rec;
    open_two();
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 3; i++) {
        send_unseen(&p, 2 * i);
        expect_message(b, p.rx, MESSAGE(2 * i));
        send_unseen(&p, 2 * i + 1);
        assert_int_equal(um_net_poll(b, &rec), 0);
        expect_message(b, p.rx, MESSAGE(2 * i + 1));
        expect_nothing(b);
    }
    path_end(&p);
    close_two();
}

static void gather_finds_who_joined_behind_many_records(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    open_two();
    struct um_port *c = port_new(0);
    struct um_addr addr = addr_of(b);
    struct um_record rec;
    struct path p = path_joined(a, b), old = path_joined(c, b), new = {.from = c, .to = b};
    assert_int_equal(machine->link_open(c, &addr, &new.link), 0);
    for (uint64_t i = 0; i < COUNT; i++)
        send_unseen(&p, i);
    assert_int_equal(um_net_lane_open(new.link, &new.lane), -EAGAIN);
    assert_true(um_net_gather(b));
    for (int i = 0; i < COUNT + 1; i++) {
        assert_true(poll_now(b, &rec));
        new.rx = rec.op == UM_REC_JOINED ? rec.rx : new.rx;
        machine->release(b, &rec);
    }
    assert_int_equal(machine->lane_open(new.link, &new.lane), 0);
    path_end(&new);
    path_end(&old);
    path_end(&p);
    machine->port_close(c);
    close_two();
}

static void a_sleeper_that_is_woken_takes_all_that_came(void **state)
{
    (void)state;
    enum { LANES = 20, COUNT = 60 };
    struct path p[LANES];
    struct um_record rec;
    open_two();
    for (int i = 0; i < LANES; i++)
        p[i] = path_joined(a, b);
    arm_now(b);
    for (uint64_t i = 0; i < LANES * COUNT; i++)
        send_unseen(&p[i % LANES], i);
    machine->disarm(b);
    assert_false(is_readable(machine->wait_fd(b), 0));
    for (int i = 0; i < LANES * COUNT; i++) {
        assert_true(poll_now(b, &rec));
        machine->release(b, &rec);
    }
    for (int i = 0; i < LANES; i++)
        path_end(&p[i]);
    close_two();
}

/* What comes twice, and what a peer says that has and took more, or less, than can be. */
static void what_a_peer_says_it_has_is_checked(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {0, 1, 2, 3, 100, 1u << 31, UINT32_MAX};
    enum { COUNT = sizeof(numbers) / sizeof(numbers[0]) };
    open_two();
    struct path good = path_joined(a, b), back = path_joined(b, a);
    const struct um_net_lane *lane = (const struct um_net_lane *)good.lane;
    struct um_net_lane *other = (struct um_net_lane *)back.lane;
    struct um_answer answer;
    for (uint32_t i = 0; i < 2; i++) {
        expect_well(&good, i);
        message_send(back.lane, MESSAGE(i));
        expect_message(a, back.rx, MESSAGE(i));
        assert_int_equal(machine->answer(back.rx, i, 0), 0);
        assert_int_equal(machine->lane_reap(back.lane, &answer, 1), 1);
    }
    for (uint32_t i = 0; i < COUNT * COUNT * 2; i++) {
        struct um_net_probe_wire probe = {
            .head = {.version = UM_NET_VERSION, .kind = UM_NET_PROBE, .number = numbers[i / 2 % COUNT]},
            .taken = numbers[i / 2 / COUNT],
            .sent = numbers[i % COUNT]};
        probe.head.flags = i % 2 ? UM_NET_OF_RX : 0;
        probe.head.op = (uint8_t)i;
        probe.head.len = UINT16_MAX;
        probe.head.slot = i % 2 ? other->slot : lane->rx_slot;
        probe.head.id = i % 2 ? other->id : lane->rx_id;
        send_raw(&good, &probe, sizeof(probe));
        sleep_us(i % 20 == 0 ? 420000 : 0);
    }
    expect_well(&good, 3);
    message_send(back.lane, MESSAGE(3));
    expect_message(a, back.rx, MESSAGE(3));
    assert_int_equal(machine->answer(back.rx, 3, 0), 0);
    assert_int_equal(machine->lane_reap(back.lane, &answer, 1), 1);
    assert_int_equal(answer.token, 3);
    assert_true(other->window <= UM_NET_WINDOW_MAX);
    path_end(&good);
    path_end(&back);
    close_two();
}

/* ---- peers that end, and peers that do not ---- */

/* Opens a lane to the parent, sends one message, and sleeps; then sends another one. */
static const char *quiet(struct parent *parent)
{
    struct um_port *port = port_new(0);
    struct um_addr addr, own = addr_of(port);
    struct um_link *link;
    struct um_lane *lane;
    struct um_record rec;
    uint64_t end = now_ms() + PATIENCE;
    int ret;
    char c;
    pipe_get(parent->from_parent, &addr, sizeof(addr));
    pipe_put(parent->to_parent, &own, sizeof(own));
    if (machine->link_open(port, &addr, &link))
        return "link_open";
    while ((ret = machine->lane_open(link, &lane)) == -EAGAIN && now_ms() < end)
        ;
    if (ret || message_try(lane, MESSAGE(1)))
        return "lane_open";
    while (!machine->poll(port, &rec)) /* the parent's lane */
        if (now_ms() > end)
            return "the parent opens no lane";
    machine->release(port, &rec);
    for (int i = 0; i < 300; i++)
        (void)machine->poll(port, &rec);
    pipe_put(parent->to_parent, "r", 1);
    pipe_get(parent->from_parent, &c, 1);
    ret = message_try(lane, MESSAGE(2));
    if (ret)
        return ret == -EPIPE ? "the lane has ended" : "the lane is full";
    machine->lane_close(lane);
    machine->link_close(link);
    machine->port_close(port);
    return NULL;
}

/* Polls b until the next record of a kind comes; with ticks. */
static struct um_record await(uint8_t op)
{
    struct um_record rec;
    uint64_t end = now_ms() + PATIENCE;
    while (!machine->poll(b, &rec)) {
        machine->tick(b);
        assert_true(now_ms() < end);
    }
    assert_int_equal(rec.op, op);
    return rec;
}

struct two {
    struct child child;
    struct um_addr addr; /* the child's */
    struct um_link *link;
    struct um_lane *lane;
    struct um_rx *rx;
};

/* b and the child have lanes to each other, and the child sleeps. */
static struct two two_open(void)
{
    struct two t = {.child = child_start(quiet, NULL)};
    struct um_addr addr;
    char c;
    int ret;
    b = port_new(0);
    addr = addr_of(b);
    pipe_put(t.child.to_child, &addr, sizeof(addr));
    pipe_get(t.child.from_child, &addr, sizeof(addr));
    t.addr = addr;
    struct um_record rec = await(UM_REC_JOINED);
    t.rx = rec.rx;
    machine->release(b, &rec);
    assert_int_equal(machine->link_open(b, &addr, &t.link), 0);
    uint64_t end = now_ms() + PATIENCE;
    while ((ret = machine->lane_open(t.link, &t.lane)) == -EAGAIN)
        assert_true(now_ms() < end);
    assert_int_equal(ret, 0);
    rec = await(1);
    machine->release(b, &rec);
    while (!is_readable(t.child.from_child, 0)) {
        (void)machine->poll(b, &rec);
        assert_true(now_ms() < end);
    }
    pipe_get(t.child.from_child, &c, 1);
    return t;
}

/* Work of b's: when its turn comes, the peer sends and falls, as one that exits does while b tells it something. */
static struct path falling;
enum { LAST = 3 };

static bool send_and_fall(struct um_net_work *work)
{
    (void)work;
    for (uint64_t i = 0; i < LAST; i++)
        send_unseen(&falling, i);
    um_net_peer_fall(net_of(b), ((struct um_net_rx *)falling.rx)->peer, ECONNREFUSED);
    return true;
}

static void what_a_peer_sent_before_it_fell_comes(void **state)
{
    struct um_net_work work = {.push = send_and_fall};
    (void)state;
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        open_two();
        falling = path_joined(a, b);
        expect_nothing(b);
        um_list_init(&work.link);
        um_net_work_add(net_of(b), &work);
        if (sleeps)
            assert_int_equal(um_net_arm(b), -EAGAIN);
        else
            assert_true(um_net_drive(net_of(b)));
        for (uint64_t i = 0; i < LAST; i++)
            expect_message(b, falling.rx, MESSAGE(i));
        expect_left(b, falling.rx, ECONNRESET);
        path_close(&falling);
        close_two();
    }
}

enum { LOOK = 1100, LOOKS_MAX = 64 }; /* messages that one look leaves something of; see drive.c */

static void flood(const struct path *p)
{
    const struct um_net_head_wire stray = {.version = UM_NET_VERSION};
    for (int i = 0; i < LOOK; i++) {
        (void)um_net_tell(net_of(p->from), ((struct um_net_lane *)p->lane)->peer, &stray, sizeof(stray));
        if (i % 16 == 0)
            um_net_drive(net_of(p->from));
    }
}

/* It is ended when b has looked to the end of what came, or has tried for long. */
static void others_that_send_without_end_put_the_end_of_a_peer_off_for_a_while(void **state)
{
    (void)state;
    open_two();
    struct um_port *c = port_new(0);
    struct path many = path_joined(a, b), p = path_joined(c, b);
    const struct um_net_rx *rx = (const struct um_net_rx *)p.rx;
    int looks = 0;
    for (int cuts = 0; cuts < LOOKS_MAX - 1; cuts++) {
        flood(&many);
        um_net_drive(net_of(b));
    }
    assert_int_equal(net_of(b)->cuts, LOOKS_MAX - 1);
    um_net_peer_fall(net_of(b), rx->peer, ECONNREFUSED);
    for (; !rx->closed && looks < 2 * LOOKS_MAX; looks++) {
        flood(&many);
        um_net_drive(net_of(b));
    }
    assert_int_equal(looks, LOOKS_MAX);
    assert_int_equal(net_of(b)->cuts, 2 * LOOKS_MAX - 1);
    expect_left(b, p.rx, ECONNRESET);
    path_close(&p);
    path_end(&many);
    machine->port_close(c);
    close_two();
}

static void a_peer_that_is_killed_is_gone_for_all(void **state)
{
    (void)state;
    struct um_slot slot;
    struct um_answer answer;
    struct two t = two_open();
    assert_true(machine->link_alive(t.link));
    message_send(t.lane, MESSAGE(5)); /* which it will never take */
    child_kill(&t.child);
    expect_death(b, t.rx);
    uint64_t end = now_ms() + PATIENCE;
    while (machine->lane_reap(t.lane, &answer, 1) == 0) {
        machine->tick(b);
        assert_true(now_ms() < end);
    }
    assert_int_equal(machine->lane_reap(t.lane, &answer, 1), -EPIPE);
    assert_int_equal(machine->claim(t.lane, 0, &slot), -EPIPE);
    assert_false(machine->link_alive(t.link));
    machine->lane_close(t.lane);
    assert_int_equal(machine->lane_open(t.link, &t.lane), -ECONNREFUSED);
    machine->link_close(t.link);
    machine->port_close(b);
    child_reap(&t.child);
}

enum { CROWD = 5000, CROWD_FILES = 64 };

/* Connections to the peer's port until its queue is full, and a few more. Returns how many there are in fds. */
static int crowd_in(const struct um_addr *addr, int *fds)
{
    const struct um_net_addr_wire part = um_net_addr_part(addr);
    const struct timespec pause = {.tv_nsec = 200000000};
    struct rlimit files;
    struct sockaddr_in to;
    int count = 0, waiting = 0;
    memcpy(&to, part.name, sizeof(to));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    while (count < CROWD && waiting < CROWD_FILES) {
        fds[count] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fds[count] < 0)
            break;
        (void)connect(fds[count++], (const struct sockaddr *)&to, sizeof(to));
        struct pollfd fd = {.fd = fds[count - 1], .events = POLLOUT};
        waiting += poll(&fd, 1, 0) == 0;
    }
    nanosleep(&pause, NULL);
    return count;
}

/* Stopped, it takes nothing out of its sockets and answers no connection; its host does, and where so many ask that its
 * queue is full, the host still refuses other ports. Nor is it dead for who never had a connection. */
static void a_peer_that_is_stopped_is_not_dead(void **state)
{
    static int fds[CROWD];
    (void)state;
    struct um_record rec;
    struct two t = two_open();
    struct um_port *late = port_new(0);
    struct um_link *link;
    struct um_lane *lane;
    assert_int_equal(machine->link_open(late, &t.addr, &link), 0);
    assert_int_equal(kill(t.child.pid, SIGSTOP), 0);
    assert_int_equal(um_net_set_timeout("3"), 0);
    const int crowd = crowd_in(&t.addr, fds);
    for (uint64_t end = now_ms() + (uint64_t)(effort > 1 ? 60 : 7) * SEC; now_ms() < end; sleep_us(20000)) {
        machine->tick(b);
        assert_int_equal(machine->poll(b, &rec), 0);
        assert_true(machine->link_alive(t.link));
        assert_int_equal(machine->lane_open(link, &lane), -EAGAIN);
        machine->tick(late);
        assert_true(machine->link_alive(link));
    }
    for (int i = 0; i < crowd; i++)
        close(fds[i]);
    assert_int_equal(um_net_set_timeout(NULL), 0);
    machine->link_close(link);
    machine->port_close(late);
    message_send(t.lane, MESSAGE(5));
    assert_int_equal(kill(t.child.pid, SIGCONT), 0);
    pipe_put(t.child.to_child, "g", 1);
    rec = await(1);
    assert_int_equal(message_number(&rec), 2);
    machine->release(b, &rec);
    rec = await(UM_REC_LEFT);
    assert_int_equal(rec.len, 0);
    machine->release(b, &rec);
    machine->lane_close(t.lane);
    machine->link_close(t.link);
    child_join(&t.child);
    machine->port_close(b);
}

/* Asks after a peer at that address, by a clock of its own: one look each `step` ns, for at most `most`. The time after
 * which it counts as dead; 0: it does not. */
static uint64_t knock_at(const char *address, uint64_t step, uint64_t most)
{
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {inet_addr(address)}};
    struct um_net_addr_wire part = {.len = sizeof(to), .format = FI_SOCKADDR_IN};
    struct um_net_peer peer = {.knock = {.port = {.fd = -1}, .host = {.fd = -1}}};
    const uint64_t start = SECOND_NS;
    uint64_t passed = 0;
    bool is_dead = false;
    memcpy(part.name, &to, sizeof(to));
    memcpy(&peer.addr.word[UM_NET_ADDR_FIRST], &part, sizeof(part));
    while (passed < most && !(is_dead = um_net_knock(&peer, start + passed)))
        passed += step;
    um_net_knock_end(&peer.knock);
    return is_dead ? passed : 0;
}

/* Nobody can connect to an address for many: the kernel says at once that it is out of reach. */
static void who_is_out_of_reach_is_given_up_after_the_time_that_was_chosen(void **state)
{
    static const char nowhere[] = "224.0.0.1";
    (void)state;
    assert_int_equal(um_net_set_timeout("60"), 0);
    assert_in_range(knock_at(nowhere, SECOND_NS / 2, 1000 * SECOND_NS), 60 * SECOND_NS, 63 * SECOND_NS);
    assert_in_range(knock_at(nowhere, 9 * SECOND_NS, 1000 * SECOND_NS), 60 * SECOND_NS, 99 * SECOND_NS);
    assert_int_equal(um_net_set_timeout("1"), 0);
    assert_in_range(knock_at(nowhere, SECOND_NS / 2, 1000 * SECOND_NS), SECOND_NS, 4 * SECOND_NS);
    assert_int_equal(um_net_set_timeout("0"), 0);
    assert_int_equal(knock_at(nowhere, SECOND_NS, 1000 * SECOND_NS), 0);
    assert_int_equal(um_net_set_timeout(NULL), 0);
}

/* ---- settings ---- */

static void a_provider_that_is_not_there_is_named_with_the_remedy(void **state)
{
    (void)state;
    const struct um_port_config config = {.private_copy = true};
    struct um_port *port;
    assert_int_equal(um_net_set_use("nosuch"), 0);
    log_count = 0;
    assert_int_equal(machine->port_open(&config, &port), -ENODATA);
    assert_int_equal(log_count, 1);
    assert_non_null(strstr(logged, "nosuch"));
    assert_non_null(strstr(logged, "FI_UNIMEM_NET"));
    assert_int_equal(um_net_set_use("on"), 0);
    assert_int_equal(um_net_set_use("unimem"), -EINVAL);
    assert_int_equal(um_net_set_use("tcp,udp"), -EINVAL);
    assert_int_equal(um_net_set_address("203.0.113.7"), 0); /* nobody's */
    assert_int_not_equal(machine->port_open(&config, &port), 0);
    assert_non_null(strstr(logged, "FI_UNIMEM_NET_ADDRESS"));
    assert_int_equal(um_net_set_address("127.0.0.1"), 0);
    machine->port_close(port_new(0));
    static const char *const wrong[] = {"", "-1", "x", "6s", "86401", "1.5"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(um_net_set_timeout(wrong[i]), -EINVAL);
    assert_int_equal(um_net_set_timeout("86400"), 0);
    assert_int_equal(um_net_set_timeout(NULL), 0);
}

/* libfabric knows no units. */
static void a_size_of_buffers_that_libfabric_reads_otherwise_is_named(void **state)
{
    static const struct {
        const char *text;
        uint32_t most; /* bytes of a message */
        bool is_odd;
    } sizes[] = {{"8192", 8192, false}, {"0x400", 1024, false}, {"65536", 16384, false},
                 {"64K", 304, true},    {"8192B", 8192, true},  {"0", 304, true}};
    (void)state;
    struct um_port *port = port_new(0);
    const bool is_rxm = strstr(net_of(port)->inner.info->fabric_attr->prov_name, "tcp;ofi_rxm");
    machine->port_close(port);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && is_rxm; i++) {
        setenv("FI_OFI_RXM_BUFFER_SIZE", sizes[i].text, 1);
        logged[0] = 0;
        port = port_new(0);
        assert_int_equal(net_of(port)->inner.body_max, sizes[i].most - sizeof(struct um_net_record_wire));
        assert_int_equal(strstr(logged, "FI_OFI_RXM_BUFFER_SIZE") != NULL, sizes[i].is_odd);
        machine->port_close(port);
    }
    unsetenv("FI_OFI_RXM_BUFFER_SIZE");
}

static void a_peer_with_another_provider_is_refused_with_the_remedy(void **state)
{
    (void)state;
    open_two();
    struct um_addr addr = addr_of(b);
    struct um_link *link;
    addr.word[UM_NET_ADDR_FIRST] ^= UINT64_C(1) << 16;
    log_count = 0;
    assert_int_equal(machine->addr_check(a, &addr, false), -EPROTO);
    assert_int_equal(log_count, 0);
    assert_int_equal(machine->link_open(a, &addr, &link), -EPROTO);
    assert_non_null(strstr(logged, "the same FI_UNIMEM_NET"));
    close_two();
}

static void without_an_inner_provider_there_is_no_socket_and_no_part(void **state)
{
    (void)state;
    open_two();
    struct um_addr addr = addr_of(b), own = {{0}};
    struct um_record rec;
    struct um_link *link;
    assert_int_equal(um_net_set_use("off"), 0);
    struct um_port *off = port_new(0);
    assert_int_equal(um_net_set_use("on"), 0);
    assert_false(net_of(off)->is_open);
    machine->port_addr(off, &own);
    assert_false(um_addr_has(machine, &own));
    assert_int_equal(machine->addr_check(off, &addr, false), -EHOSTUNREACH);
    assert_int_equal(machine->link_open(off, &addr, &link), -EHOSTUNREACH);
    assert_non_null(strstr(logged, "FI_UNIMEM_NET=on"));
    assert_int_equal(machine->poll(off, &rec), 0);
    assert_int_equal(machine->arm(off), 0);
    machine->kick(off);
    assert_true(is_readable(machine->wait_fd(off), 0));
    machine->disarm(off);
    assert_false(is_readable(machine->wait_fd(off), 0));
    machine->tick(off);
    machine->port_close(off);
    close_two();
}

static const char *const launchers[] = {
    "MPI_LOCALNRANKS",      "PMI_SIZE",    "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE",
    "SLURM_STEP_NUM_NODES", "SLURM_NNODES"};

/* Of the variables in that order; NULL: not set. */
static bool is_on_one_host(const char *const values[6])
{
    for (int i = 0; i < 6; i++) {
        unsetenv(launchers[i]);
        if (values[i])
            setenv(launchers[i], values[i], 1);
    }
    const bool is = um_net_job_is_on_one_host();
    for (int i = 0; i < 6; i++)
        unsetenv(launchers[i]);
    return is;
}

static void the_launcher_says_whether_there_are_other_hosts(void **state)
{
    (void)state;
    assert_false(is_on_one_host((const char *const[6]){NULL}));
    assert_true(is_on_one_host((const char *const[6]){"4", "4"}));
    assert_false(is_on_one_host((const char *const[6]){"2", "4"}));
    assert_true(is_on_one_host((const char *const[6]){NULL, "4", "3", "3"}));
    assert_false(is_on_one_host((const char *const[6]){NULL, NULL, "1", "3"}));
    assert_true(is_on_one_host((const char *const[6]){NULL, NULL, NULL, NULL, "1", "4"})); /* the step's */
    assert_false(is_on_one_host((const char *const[6]){NULL, NULL, NULL, NULL, NULL, "2"}));
    assert_false(is_on_one_host((const char *const[6]){"x", "x"}));
    assert_int_equal(um_net_set_use("auto"), 0);
    setenv("SLURM_NNODES", "1", 1);
    assert_true(um_net_is_wanted(true));
    assert_false(um_net_is_wanted(false));
    unsetenv("SLURM_NNODES");
    assert_true(um_net_is_wanted(false));
    assert_int_equal(um_net_set_use("on"), 0);
}

GROUP(net, T(bytes_of_strangers_are_dropped_and_counted), T(who_does_not_know_the_secret_number_moves_nothing),
      T(messages_that_stop_in_the_middle_keep_no_other_away), T(a_broken_record_ends_its_lane_and_no_other),
      T(records_that_overtake_others_wait_for_them), T(a_record_that_comes_twice_is_taken_once),
      T(records_that_wait_take_buffers_of_their_size), T(a_sender_that_writes_on_and_on_is_refused),
      T(large_bodies_are_announced_while_the_receiver_wants_that), T(a_record_that_stays_does_not_keep_answers_away),
      T(the_first_poll_behind_a_record_does_not_look), T(gather_finds_who_joined_behind_many_records),
      T(a_sleeper_that_is_woken_takes_all_that_came), T(what_a_peer_says_it_has_is_checked),
      T(what_a_peer_sent_before_it_fell_comes), T(others_that_send_without_end_put_the_end_of_a_peer_off_for_a_while),
      T(a_peer_that_is_killed_is_gone_for_all), T(a_peer_that_is_stopped_is_not_dead),
      T(who_is_out_of_reach_is_given_up_after_the_time_that_was_chosen),
      T(a_provider_that_is_not_there_is_named_with_the_remedy),
      T(a_size_of_buffers_that_libfabric_reads_otherwise_is_named),
      T(a_peer_with_another_provider_is_refused_with_the_remedy),
      T(without_an_inner_provider_there_is_no_socket_and_no_part), T(the_launcher_says_whether_there_are_other_hosts));
