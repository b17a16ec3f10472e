/*
 * The machine over another provider: memory that is shown to a peer, and read by it. `a` shows, `b` reads. The tests
 * drive both ports themselves, so that a read can be stopped in the middle.
 */
#include "connections.h"
#include "needs.h"
#include "net_two.h"

#include "base/clock.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LEN = 8 << 20,
    SMALL = 100000,
    OFFSET = 12345,
    OLD = 0x11,
    NEW = 0x77,
    EMPTY = 0x33,
    MANY = 3000,
    REFUSALS = 8,
    FIRST_FD = 3,
    FEW = 16384
};

static unsigned char *memory, *local, *kept;
static struct path path;
static struct um_link *back; /* of b, to a */

/* True over tcp itself, not over tcp;ofi_rxm. */
static bool has_rma(void)
{
    struct um_port *port = port_new(0);
    const bool has = net_of(port)->inner.has_rma;
    machine->port_close(port);
    return has;
}

static void begin(void)
{
    needs(has_rma());
    memory = malloc(LEN);
    local = malloc(LEN);
    kept = malloc(LEN);
    assert_true(memory && local && kept);
    for (size_t i = 0; i < LEN; i++)
        memory[i] = (unsigned char)(i * 31 + (i >> 13));
    memset(local, EMPTY, LEN);
    open_two();
    path = path_joined(a, b);
    struct um_addr addr = addr_of(a);
    assert_int_equal(machine->link_open(b, &addr, &back), 0);
}

static void finish(void)
{
    machine->link_close(back);
    path_end(&path);
    close_two();
    free(memory);
    free(local);
    free(kept);
}

static void drive_both(void)
{
    um_net_drive(net_of(a));
    um_net_drive(net_of(b));
}

static struct um_shown *show(size_t len, uint64_t *key_p)
{
    const struct iovec piece = {.iov_base = memory, .iov_len = len};
    *key_p = 0;
    return machine->show(path.lane, &piece, key_p);
}

static struct um_shown *show_now(size_t len, uint64_t *key_p)
{
    struct um_shown *shown = show(len, key_p);
    for (const uint64_t end = now_ms() + PATIENCE; !shown; shown = show(len, key_p)) {
        assert_true(now_ms() < end);
        drive_both();
    }
    assert_true(*key_p != 0);
    return shown;
}

static int try_start(uint64_t key, size_t offset, size_t len, struct um_transfer **transfer_p)
{
    const struct um_piece piece = {.addr = 1, .len = len};
    const struct iovec entry = {.iov_base = local + offset, .iov_len = len};
    const struct um_copy copy = {.remote = &piece,
                                 .remote_count = 1,
                                 .local = &entry,
                                 .local_count = 1,
                                 .len = len,
                                 .key = key,
                                 .offset = offset};
    return machine->transfer_start(back, &copy, transfer_p);
}

/* Starts a read. Returns -EINPROGRESS, or why the memory cannot be read. */
static int start(uint64_t key, size_t offset, size_t len, struct um_transfer **transfer_p)
{
    const uint64_t end = now_ms() + PATIENCE;
    int ret;
    while ((ret = try_start(key, offset, len, transfer_p)) == -EAGAIN || (ret == -EPERM && !net_of(b)->bodies.rma)) {
        assert_true(now_ms() < end);
        drive_both(); /* b connects; or b does not know a's endpoint yet */
    }
    return ret;
}

static int await(struct um_transfer *transfer)
{
    const uint64_t end = now_ms() + PATIENCE;
    int ret;
    while ((ret = machine->transfer_poll(transfer)) == -EINPROGRESS) {
        assert_true(now_ms() < end);
        drive_both();
    }
    return ret;
}

/* Waits until some bytes have come, but not all. */
static void await_some(void)
{
    const uint64_t end = now_ms() + PATIENCE;
    while (local[0] == EMPTY && local[1] == EMPTY) {
        assert_true(now_ms() < end);
        drive_both();
    }
    assert_int_equal(local[LEN - 1], EMPTY);
    assert_int_equal(local[LEN - 2], EMPTY);
}

static void expect_read(void)
{
    uint64_t key;
    struct um_transfer *transfer;
    memset(local, EMPTY, LEN);
    struct um_shown *shown = show_now(LEN, &key);
    const uint64_t end = now_ms() + PATIENCE;
    int ret;
    while ((ret = start(key, 0, LEN, &transfer)) == -EPERM) { /* b still knows a's former endpoint */
        assert_true(now_ms() < end);
        drive_both();
    }
    assert_int_equal(ret, -EINPROGRESS);
    assert_int_equal(await(transfer), 0);
    assert_memory_equal(local, memory, LEN);
    machine->hide(shown, UM_HIDE_READ);
}

static void what_is_shown_is_read_until_it_is_hidden(void **state)
{
    (void)state;
    uint64_t key, other_key;
    struct um_transfer *transfer;
    begin();
    for (int i = 0; i < 3; i++)
        expect_read();
    struct um_shown *shown = show_now(LEN, &key);
    memset(local, EMPTY, LEN);
    assert_int_equal(start(key, OFFSET, SMALL, &transfer), -EINPROGRESS);
    assert_int_equal(await(transfer), 0);
    assert_memory_equal(local + OFFSET, memory + OFFSET, SMALL);
    assert_int_equal(local[OFFSET - 1], EMPTY);
    assert_int_equal(local[OFFSET + SMALL], EMPTY);
    assert_int_equal(net_of(a)->bodies.shown, 1);
    struct um_shown *other = show_now(LEN, &other_key); /* a looks at its endpoint only while something is shown */
    machine->hide(shown, UM_HIDE_READ);
    assert_int_equal(net_of(a)->bodies.shown, 1);
    memset(local, EMPTY, LEN);
    assert_int_equal(start(key, 0, LEN, &transfer), -EINPROGRESS);
    assert_int_equal(await(transfer), -EPERM);
    assert_int_equal(local[0], EMPTY);
    machine->hide(other, UM_HIDE_READ);
    assert_int_equal(net_of(a)->bodies.shown, 0);
    expect_read();
    expect_well(&path, 1);
    finish();
}

static void no_key_but_the_one_that_was_told_reads(void **state)
{
    (void)state;
    uint64_t key;
    struct um_transfer *transfer;
    begin();
    expect_read();
    struct um_shown *shown = show_now(LEN, &key);
    memset(local, EMPTY, LEN);
    for (unsigned bit = 0; bit < 64; bit += 9) {
        assert_int_equal(start(key ^ 1ull << bit, 0, SMALL, &transfer), -EINPROGRESS);
        assert_int_equal(await(transfer), -EPERM);
    }
    assert_int_equal(start(key, 1, LEN, &transfer), -EINPROGRESS); /* one byte beyond */
    assert_int_equal(await(transfer), -EPERM);
    assert_int_equal(local[0], EMPTY);
    machine->hide(shown, UM_HIDE_READ);
    expect_read();
    finish();
}

/* So that nobody can guess a key. */
static void keys_are_random(void **state)
{
    (void)state;
    enum { KEYS = 8, DIFFERENT = 8 };
    uint64_t key[KEYS];
    struct um_shown *shown[KEYS];
    begin();
    for (int i = 0; i < KEYS; i++) {
        shown[i] = show_now(LEN, &key[i]);
        for (int k = 0; k < i; k++)
            assert_true(__builtin_popcountll(key[i] ^ key[k]) >= DIFFERENT);
    }
    for (int i = 0; i < KEYS; i++)
        machine->hide(shown[i], UM_HIDE_READ);
    finish();
}

/* arm() takes what came. If a read ends by that, the port must not sleep. */
static void nobody_sleeps_over_a_read_that_has_ended(void **state)
{
    (void)state;
    enum { READS = 20 };
    uint64_t key;
    struct um_transfer *transfer;
    begin();
    expect_read();
    struct um_shown *shown = show_now(LEN, &key);
    for (int i = 0; i < READS; i++) {
        assert_int_equal(start(key, 0, SMALL, &transfer), -EINPROGRESS);
        int ret;
        for (const uint64_t end = now_ms() + PATIENCE; (ret = machine->transfer_poll(transfer)) == -EINPROGRESS;) {
            assert_true(now_ms() < end);
            um_net_drive(net_of(a));
            if (um_net_arm(b) != 0)
                continue;
            assert_int_equal(net_of(b)->bodies.ended, 0);
            um_net_disarm(b);
        }
        assert_int_equal(ret, 0);
    }
    machine->hide(shown, UM_HIDE_READ);
    finish();
}

/* After a cancel the bytes that are on their way do not arrive, whatever the other side does. Other reads fail, too. */
static void nothing_comes_after_a_cancel(void **state)
{
    (void)state;
    uint64_t key;
    struct um_transfer *transfer, *other;
    begin();
    expect_read();
    struct um_shown *shown = show_now(LEN, &key);
    memset(local, EMPTY, LEN);
    (void)connections_keep(FIRST_FD, FEW);
    assert_int_equal(start(key, 0, LEN / 2, &transfer), -EINPROGRESS);
    assert_int_equal(start(key, LEN / 2, LEN / 2, &other), -EINPROGRESS);
    await_some();
    machine->transfer_cancel(transfer);
    memcpy(kept, local, LEN);
    for (int i = 0; i < MANY; i++)
        drive_both();
    assert_memory_equal(local, kept, LEN);
    assert_int_equal(machine->transfer_poll(other), -EPERM);
    machine->hide(shown, UM_HIDE_READ);
    expect_read();
    expect_well(&path, 1);
    finish();
}

/* After hide() the program has its memory again: the peer receives nothing of what the program writes there. */
static void nothing_is_read_after_it_was_given_up(void **state)
{
    (void)state;
    uint64_t key;
    struct um_transfer *transfer;
    begin();
    memset(memory, OLD, LEN);
    expect_read();
    struct um_shown *shown = show_now(LEN, &key);
    memset(local, EMPTY, LEN);
    (void)connections_keep(FIRST_FD, FEW);
    assert_int_equal(start(key, 0, LEN, &transfer), -EINPROGRESS);
    await_some();
    machine->hide(shown, UM_HIDE_GIVEN_UP);
    memset(memory, NEW, LEN);
    assert_int_equal(await(transfer), -EPERM);
    assert_null(memchr(local, NEW, LEN));
    expect_read();
    finish();
}

/* A peer that refuses to read several times in a row is shown nothing for a while. */
static void who_is_refused_time_and_again_shows_nothing(void **state)
{
    (void)state;
    enum { AGAIN = 10000 }; /* ms until it shows something again */
    uint64_t key;
    begin();
    for (int i = 0; i < REFUSALS - 1; i++)
        machine->hide(show_now(LEN, &key), UM_HIDE_REFUSED);
    expect_read();
    struct um_shown *shown[2 * REFUSALS]; /* bodies that are refused together count once */
    for (int i = 0; i < 2 * REFUSALS; i++)
        shown[i] = show_now(LEN, &key);
    for (int i = 0; i < 2 * REFUSALS; i++)
        machine->hide(shown[i], UM_HIDE_REFUSED);
    const uint64_t begun = now_ms();
    expect_read();
    assert_true(now_ms() < begun + AGAIN / 2);
    for (int i = 0; i < REFUSALS; i++)
        machine->hide(show_now(LEN, &key), UM_HIDE_REFUSED);
    for (int i = 0; i < MANY; i++) {
        assert_null(show(LEN, &key));
        drive_both();
    }
    finish();
}

static void short_memory_is_not_shown(void **state)
{
    (void)state;
    uint64_t key;
    begin();
    machine->hide(show_now(LEN, &key), UM_HIDE_READ);
    assert_null(show(1000, &key));
    assert_int_equal(key, 0);
    finish();
}

/* As with FI_UNIMEM_COPY=0. */
static void nothing_is_read_where_copies_are_off(void **state)
{
    (void)state;
    uint64_t key;
    struct um_transfer *transfer;
    begin();
    struct um_shown *shown = show_now(LEN, &key);
    net_of(b)->bodies.is_off = true; /* as port_open() sets it, below */
    for (int i = 0; i < MANY; i++) {
        drive_both();
        assert_int_equal(try_start(key, 0, LEN, &transfer), -EPERM);
    }
    machine->hide(shown, UM_HIDE_REFUSED);
    finish();
    const struct um_port_config config = {.private_copy = false};
    struct um_port *port;
    assert_int_equal(machine->port_open(&config, &port), 0);
    assert_true(net_of(port)->bodies.is_off);
    machine->port_close(port);
}

/* A connection needs calls on both sides. A peer that makes none may be computing: that does not mean that a firewall
 * blocks it. */
static void a_peer_that_makes_no_call_is_waited_for(void **state)
{
    (void)state;
    enum { MS = 3000 };
    uint64_t key;
    struct um_transfer *transfer;
    begin();
    struct um_shown *shown = show_now(LEN, &key);
    expect_nothing(b); /* b learns of a's endpoint */
    for (const uint64_t end = now_ms() + MS; now_ms() < end; sleep_us(1000)) {
        assert_int_equal(try_start(key, 0, LEN, &transfer), -EAGAIN);
        um_net_tick(b);
    }
    assert_int_equal(start(key, 0, LEN, &transfer), -EINPROGRESS);
    assert_int_equal(await(transfer), 0);
    assert_memory_equal(local, memory, LEN);
    machine->hide(shown, UM_HIDE_READ);
    finish();
}

/* As if a firewall had forgotten the connection: the peer is heard, but no bytes come. */
static void a_read_that_does_not_move_is_given_up(void **state)
{
    (void)state;
    enum { HEARD = 40 + LEN / (512 << 10) };
    uint64_t key;
    struct um_transfer *transfer;
    begin();
    expect_read();
    struct um_net_peer *peer = ((struct um_net_link *)back)->peer;
    struct um_shown *shown = show_now(LEN, &key);
    assert_int_equal(start(key, 0, LEN, &transfer), -EINPROGRESS);
    int times = 0, ret;
    for (; (ret = machine->transfer_poll(transfer)) == -EINPROGRESS; times++) {
        assert_true(times <= HEARD);
        assert_int_equal(machine->transfer_poll(transfer), -EINPROGRESS); /* counts once for each PROBE */
        peer->heard_at++;
    }
    assert_int_equal(ret, -EPERM);
    assert_true(times >= HEARD - 1);
    machine->hide(shown, UM_HIDE_REFUSED);
    expect_read();
    finish();
}

/* ---- a hostile peer ---- */

/* libfabric keeps such a connection, with its data about the endpoint, after the endpoint was closed. */
static void a_connection_that_says_nothing_outlives_the_endpoint(void **state)
{
    (void)state;
    static const char bytes[512];
    enum { TURNS = 100 };
    uint64_t key;
    begin();
    struct um_shown *shown = show_now(LEN, &key);
    const struct sockaddr *to = (const void *)net_of(a)->bodies.rma->name.name;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, to, sizeof(struct sockaddr_in)), 0);
    for (int i = 0; i < TURNS; i++)
        drive_both();
    machine->hide(shown, UM_HIDE_GIVEN_UP);
    (void)send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
    for (int i = 0; i < TURNS; i++)
        drive_both();
    close(fd);
    expect_read();
    finish();
}

/* Returns a BODIES message that names a's endpoint for messages as its endpoint for bodies. */
static struct um_net_bodies_wire bodies_message(void)
{
    const struct um_net_lane *lane = (const struct um_net_lane *)path.lane;
    struct um_net_bodies_wire message = {
        .head = {.version = UM_NET_VERSION, .kind = UM_NET_BODIES, .slot = lane->rx_slot, .id = lane->rx_id}};
    message.at.len = net_of(a)->name.len;
    memcpy(message.at.name, net_of(a)->name.name, UM_NET_NAME_MAX);
    return message;
}

enum defect { LONGER, SHORTER, OTHER_HOST, OTHER_LENGTH, NO_LENGTH, PADDING, DEFECTS };

static void the_name_of_an_endpoint_is_checked(void **state)
{
    (void)state;
    begin();
    const struct um_net_peer *peer = ((struct um_net_link *)back)->peer;
    for (enum defect defect = 0; defect < DEFECTS; defect++) {
        struct {
            struct um_net_bodies_wire message;
            unsigned char more[8];
        } bad = {bodies_message(), {0}};
        bad.message.at.name[4] = (unsigned char)(bad.message.at.name[4] + (defect == OTHER_HOST)); /* of 127.0.0.1 */
        bad.message.at.len = (uint8_t)(defect == OTHER_LENGTH ? UM_NET_NAME_MAX + 1
                                       : defect == NO_LENGTH  ? 0
                                                              : bad.message.at.len);
        bad.message.at.name[UM_NET_NAME_MAX - 1] = defect == PADDING;
        send_raw(&path, &bad, sizeof(bad.message) + (defect == LONGER ? 8 : 0) - (defect == SHORTER ? 8 : 0));
        expect_nothing(b);
        assert_int_equal(peer->from.name.len, 0);
    }
    expect_read();
    assert_int_not_equal(peer->from.name.len, 0);
    finish();
}

/* A write of nothing that tells a value. It needs no key, and completes at the port that is written to. */
static void write_nothing(void)
{
    struct um_net_inner *inner = &net_of(a)->inner;
    struct um_net_peer *peer = ((const struct um_net_lane *)path.lane)->peer;
    struct um_net_buffer *buffer = um_net_buffer_get(inner, 1); /* it completes as a message that was sent */
    const struct fi_msg_rma write = {.addr = peer->at, .context = &buffer->context, .data = 7};
    ssize_t ret;
    buffer->peer = peer;
    buffer->lane = NULL;
    peer->refs++;
    inner->sending++;
    while ((ret = fi_writemsg(inner->own.ep, &write, FI_REMOTE_CQ_DATA | FI_COMPLETION)) == -FI_EAGAIN)
        um_net_drive(net_of(a));
    assert_int_equal(ret, 0);
}

static void a_write_of_nothing_that_tells_a_value_is_dropped(void **state)
{
    (void)state;
    begin();
    expect_well(&path, 1);
    for (int i = 0; i < 3; i++) {
        write_nothing();
        expect_nothing(b);
        expect_well(&path, 2);
    }
    expect_read();
    finish();
}

/* A look that finds nothing else for as long as a look may take has not emptied the queue. */
static void a_look_that_finds_only_such_writes_is_not_the_last(void **state)
{
    (void)state;
    struct um_record rec;
    int looks = 0;
    begin();
    expect_well(&path, 1);
    for (int i = 0; i < MANY; i++)
        write_nothing();
    while (net_of(a)->inner.sending)
        um_net_drive(net_of(a));
    message_send(path.lane, MESSAGE(2));
    do {
        um_net_drive(net_of(b));
        looks++;
    } while (net_of(b)->cuts);
    assert_false(um_list_is_empty(&net_of(b)->ready)); /* all came */
    assert_int_equal(um_net_poll_now(net_of(b), &rec), 1);
    assert_true(looks > 1 && message_is(&rec, MESSAGE(2)));
    machine->release(b, &rec);
    finish();
}

/* Tells b that a's endpoint for bodies is at another TCP port. */
static void tell_port(const unsigned char number[2])
{
    struct um_net_bodies_wire message = bodies_message();
    memcpy(message.at.name + 2, number, 2);
    send_raw(&path, &message, sizeof(message));
    expect_nothing(b);
}

/* As behind a firewall that lets only the port for messages through. */
static void where_nobody_listens_nothing_is_read_after_some_time(void **state)
{
    (void)state;
    struct um_transfer *transfer;
    begin();
    tell_port((const unsigned char[]){0, 1});
    int ret;
    const uint64_t begun = now_ms();
    while ((ret = try_start(1, 0, LEN, &transfer)) == -EAGAIN) {
        assert_true(now_ms() < begun + PATIENCE);
        um_net_tick(a); /* so that b hears a */
        drive_both();
    }
    if (ret == -EINPROGRESS)
        ret = await(transfer);
    assert_int_equal(ret, -EPERM);
    assert_true(((struct um_net_link *)back)->peer->from.unreached_at != 0);
    assert_int_equal(try_start(1, 0, LEN, &transfer), -EPERM);
    expect_well(&path, 1);
    expect_read(); /* by a's real endpoint */
    finish();
}

/* A connection is tried again by a caller that slept: the port wakes it also after a call that came too early to try.
 */
static void who_waits_for_a_connection_is_woken(void **state)
{
    (void)state;
    struct um_transfer *transfer;
    uint64_t tried_at;
    begin();
    tell_port((const unsigned char[]){0, 1}); /* nobody listens there */
    struct um_net_from *const from = &((struct um_net_link *)back)->peer->from;
    const uint64_t end = now_ms() + PATIENCE;
    do {
        assert_true(now_ms() < end);
        drive_both();
        assert_int_equal(try_start(1, 0, LEN, &transfer), -EAGAIN);
        from->first_at = 1; /* long ago */
        tried_at = from->tried_at = um_clock_coarse_ns();
        net_of(b)->bodies.tried_at = 0;
        assert_int_equal(try_start(1, 0, LEN, &transfer), -EAGAIN);
        assert_true(net_of(b)->bodies.tried_at != 0);
    } while (from->tried_at != tried_at); /* the clock has ticked, and the second call was a try */
    finish();
}

GROUP(net_bodies, T(what_is_shown_is_read_until_it_is_hidden), T(no_key_but_the_one_that_was_told_reads),
      T(keys_are_random), T(nobody_sleeps_over_a_read_that_has_ended), T(nothing_comes_after_a_cancel),
      T(nothing_is_read_after_it_was_given_up), T(who_is_refused_time_and_again_shows_nothing),
      T(short_memory_is_not_shown), T(nothing_is_read_where_copies_are_off), T(the_name_of_an_endpoint_is_checked),
      T(a_write_of_nothing_that_tells_a_value_is_dropped), T(a_look_that_finds_only_such_writes_is_not_the_last),
      T(a_peer_that_makes_no_call_is_waited_for), T(a_read_that_does_not_move_is_given_up),
      T(a_connection_that_says_nothing_outlives_the_endpoint), T(where_nobody_listens_nothing_is_read_after_some_time),
      T(who_waits_for_a_connection_is_woken));
