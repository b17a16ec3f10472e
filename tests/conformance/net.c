/*
 * The machine over another provider: what comes from strangers, from peers that break the format, and out of order.
 */
#include "net_two.h"

#include "connections.h"

#include "machine/net/config.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

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

/* The slot is right and the secret number wrong, as from a sender that has seen no message of this pair. */
static void who_does_not_know_the_secret_number_moves_nothing(void **state)
{
    (void)state;
    open_two();
    struct path good = path_joined(a, b), back = path_joined(b, a);
    struct um_net_lane *lane = (struct um_net_lane *)back.lane;
    struct um_answer answer;
    for (unsigned kind = 0; kind < UM_NET_KINDS; kind++) {
        struct um_net_record_wire record = record_of(&good, 1);
        record.head.kind = (uint8_t)kind;
        record.head.id ^= 1;
        send_raw(&good, &record, sizeof(record));
        record.head.slot = lane->slot; /* now addressed to b's lane */
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

/* Returns a port that is connected to b and has no lane. It uses the machine itself: net_settled.c would drive the port
 * until everything is sent. */
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

/* More messages stop than there are receives. Others are received after some time in which nobody is heard. */
static void messages_that_stop_in_the_middle_keep_no_other_away(void **state)
{
    (void)state;
    struct um_port *strangers[STRANGERS];
    struct um_net_peer *peer[STRANGERS];
    struct um_record rec;
    open_two();
    struct path p = path_joined(a, b);
    const bool is_fetched = net_of(b)->inner.body_max < UM_NET_BODY_MAX; /* it keeps parts back: tcp;ofi_rxm */
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

/* Returns the port at which somebody listens and accepts nothing, so that whatever is sent there stays under way. */
static int listener_new(uint16_t *port_p)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 4096) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port_p = at.sin_port;
    return fd;
}

/* Returns an address like a's, somewhere else on the loopback. */
static struct um_addr invented(uint16_t port, uint32_t number)
{
    struct um_addr addr = addr_of(a);
    struct um_net_addr_wire part = um_net_addr_part(&addr);
    struct sockaddr_in at;
    memcpy(&at, part.name, sizeof(at));
    at.sin_port = port;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (1 << 16) + number);
    memcpy(part.name, &at, sizeof(at));
    part.nonce += number + 1;
    memcpy(&addr.word[UM_NET_ADDR_FIRST], &part, sizeof(part));
    return addr;
}

static void send_probe(const struct path *p, uint16_t port, uint32_t number)
{
    const struct um_net_probe_wire probe = {
        .head = {.version = UM_NET_VERSION, .kind = UM_NET_PROBE, .slot = 7, .id = number},
        .origin = invented(port, number)};
    send_raw(p, &probe, sizeof(probe));
}

static void send_join(const struct path *p, uint16_t port, uint32_t number)
{
    const struct um_net_join_wire join = {
        .head = {.version = UM_NET_VERSION, .kind = UM_NET_JOIN}, .id = number, .origin = invented(port, number)};
    send_raw(p, &join, sizeof(join));
}

/* The oldest stranger, or the newest. */
static struct um_net_peer *stranger_at(bool newest)
{
    const struct um_list *all = &net_of(b)->strangers;
    return UM_CONTAINER(newest ? all->prev : all->next, struct um_net_peer, stranger);
}

/* Drives both ports, not by the machine: net_settled.c would drive b until everything is sent. */
static void drive_until(bool (*is_so)(void))
{
    for (const uint64_t end = now_ms() + PATIENCE; !is_so();) {
        um_net_drive(net_of(a));
        um_net_drive(net_of(b));
        um_net_tick(b);
        assert_true(net_of(b)->stranger_count <= UM_NET_STRANGERS_MAX);
        assert_true(now_ms() < end);
    }
}

static bool are_many(void)
{
    return net_of(b)->stranger_count == UM_NET_STRANGERS_MAX;
}

static bool is_one_more_waiting(void)
{
    return stranger_at(true)->strange_since > stranger_at(false)->strange_since;
}

static bool is_sent(void)
{
    return !net_of(a)->inner.sending;
}

/* Messages that name an origin of their own make b connect there, to deny what they ask for. */
static void whoever_names_many_origins_is_answered_at_few(void **state)
{
    (void)state;
    enum { COUNT = UM_NET_STRANGERS_MAX };
    const uint64_t two_minutes = UINT64_C(131000000000);
    uint16_t port;
    struct um_link *link;
    const int listener = listener_new(&port);
    open_two();
    struct path good = path_joined(a, b);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (i % 2)
            send_probe(&good, port, i);
        else
            send_join(&good, port, i);
        drive_until(is_sent);
    }
    drive_until(are_many);
    for (uint32_t i = COUNT; i < 2 * COUNT; i++) {
        send_probe(&good, port, i);
        send_join(&good, port, COUNT + i);
        drive_until(is_sent);
    }
    for (struct um_list *l = net_of(b)->strangers.next; l != &net_of(b)->strangers; l = l->next)
        UM_CONTAINER(l, struct um_net_peer, stranger)->strange_since = um_clock_coarse_ns() - two_minutes;
    send_probe(&good, port, 3 * COUNT);
    drive_until(is_one_more_waiting);
    const struct um_addr known = stranger_at(false)->addr; /* a link makes it known */
    assert_int_equal(um_net_link_open(b, &known, &link), 0);
    assert_int_equal(net_of(b)->stranger_count, UM_NET_STRANGERS_MAX - 1);
    um_net_link_close(link);
    close(listener);
    expect_well(&good, 1);
    path_end(&good);
    close_two();
}

/* It gets UNKNOWN; so it was no invention, and its place among the strangers is free. */
static void a_stranger_that_takes_its_answer_is_one_no_more(void **state)
{
    (void)state;
    open_two();
    struct um_net_peer *peer;
    struct um_port *other = stranger_new(&peer);
    const uint64_t strays = net_of(other)->strays, end = now_ms() + PATIENCE;
    struct um_net_probe_wire probe = {.head = {.version = UM_NET_VERSION, .kind = UM_NET_PROBE, .slot = 7, .id = 1},
                                      .origin = addr_of(other)};
    uint64_t told_at = 0;
    while (net_of(other)->strays == strays || net_of(b)->stranger_count) {
        if (now_ms() - told_at > 100 && um_net_tell(net_of(other), peer, &probe, sizeof(probe)))
            told_at = now_ms();
        um_net_drive(net_of(other));
        um_net_drive(net_of(b));
        assert_true(now_ms() < end);
    }
    um_net_peer_put(net_of(other), peer);
    um_net_port_close(other);
    close_two();
}

/* GRANT may have been lost, so that the sender asks again when no other lane is free. */
static void a_lane_that_was_granted_is_granted_again(void **state)
{
    (void)state;
    open_two();
    struct path good = path_joined(a, b);
    struct um_net_lane *lane = (struct um_net_lane *)good.lane;
    const struct um_net_join_wire join = {
        .head = {.version = UM_NET_VERSION, .kind = UM_NET_JOIN, .number = net_of(b)->name.nonce},
        .id = lane->id,
        .slot = lane->slot,
        .origin = addr_of(a)};
    const uint64_t end = now_ms() + PATIENCE;
    struct um_record rec;
    net_of(b)->rx_max = net_of(b)->rx_used;
    lane->state = UM_NET_ASKING;
    send_raw(&good, &join, sizeof(join));
    while (lane->state == UM_NET_ASKING) {
        expect_nothing(b);
        (void)machine->poll(a, &rec);
        assert_true(now_ms() < end);
    }
    assert_int_equal(lane->state, UM_NET_OPEN);
    expect_well(&good, 1);
    path_end(&good);
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
    default: /* CLOSE: more records were sent than the window allows; or fewer than came */
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

/* It comes again after later records, as the last one, and ahead of earlier ones. */
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

/* A waiting record of some KiB does not occupy a buffer of 256 KiB for long, whether it came behind others or ahead of
 * them. */
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

/* A sender may have records of UM_NET_KEPT_MAX bytes unconsumed, and one record more. */
static void a_sender_that_writes_on_and_on_is_refused(void **state)
{
    (void)state;
    static unsigned char message[sizeof(struct um_net_record_wire) + UM_NET_BODY_MAX];
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

/* PROBEs of a peer that claims to have, or to have taken, more or fewer items than possible. What is sent again because
 * of them comes twice and is dropped. */
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

GROUP(net, T(bytes_of_strangers_are_dropped_and_counted), T(who_does_not_know_the_secret_number_moves_nothing),
      T(messages_that_stop_in_the_middle_keep_no_other_away), T(whoever_names_many_origins_is_answered_at_few),
      T(a_stranger_that_takes_its_answer_is_one_no_more), T(a_lane_that_was_granted_is_granted_again),
      T(a_broken_record_ends_its_lane_and_no_other), T(records_that_overtake_others_wait_for_them),
      T(a_record_that_comes_twice_is_taken_once), T(records_that_wait_take_buffers_of_their_size),
      T(a_sender_that_writes_on_and_on_is_refused), T(what_a_peer_says_it_has_is_checked));
