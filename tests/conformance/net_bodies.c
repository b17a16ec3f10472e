/*
 * The machine over another provider: memory that is shown to a peer, and read by it. `a` shows, `b` reads. All is
 * driven by hand, so that a read can be stopped in the middle.
 */
#include "needs.h"
#include "net_two.h"

#include <stdlib.h>
#include <string.h>

enum { LEN = 8 << 20, SMALL = 100000, OFFSET = 12345, OLD = 0x11, NEW = 0x77, EMPTY = 0x33, MANY = 3000, REFUSALS = 8 };

static unsigned char *memory, *local, *kept;
static struct path path;
static struct um_link *link; /* of b, to a */

/* Over tcp itself. */
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
    assert_int_equal(machine->link_open(b, &addr, &link), 0);
}

static void finish(void)
{
    machine->link_close(link);
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
    return machine->transfer_start(link, &copy, transfer_p);
}

/* -EINPROGRESS, or why it cannot be read. */
static int start(uint64_t key, size_t offset, size_t len, struct um_transfer **transfer_p)
{
    const uint64_t end = now_ms() + PATIENCE;
    int ret;
    while ((ret = try_start(key, offset, len, transfer_p)) == -EAGAIN || (ret == -EPERM && !net_of(b)->bodies.ep)) {
        assert_true(now_ms() < end);
        drive_both(); /* it connects; b has not heard of a's endpoint */
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

/* Some bytes have come, and not all. */
static void await_some(const struct um_transfer *transfer)
{
    const uint64_t end = now_ms() + PATIENCE;
    (void)transfer;
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
    while ((ret = start(key, 0, LEN, &transfer)) == -EPERM) { /* of the endpoint before this one */
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
    uint64_t key;
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
    machine->hide(shown, UM_HIDE_READ);
    assert_int_equal(net_of(a)->bodies.shown, 0);
    memset(local, EMPTY, LEN);
    assert_int_equal(start(key, 0, LEN, &transfer), -EINPROGRESS);
    assert_int_equal(await(transfer), -EPERM);
    assert_int_equal(local[0], EMPTY);
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

/* Nobody guesses them. */
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

/* Who goes to sleep takes what came: a read that has ended by that is not slept over. */
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

/* The bytes that are on their way do not come, whatever the other side does; nor do those of other reads. */
static void nothing_comes_after_a_cancel(void **state)
{
    (void)state;
    uint64_t key;
    struct um_transfer *transfer, *other;
    begin();
    expect_read();
    struct um_shown *shown = show_now(LEN, &key);
    memset(local, EMPTY, LEN);
    assert_int_equal(start(key, 0, LEN / 2, &transfer), -EINPROGRESS);
    assert_int_equal(start(key, LEN / 2, LEN / 2, &other), -EINPROGRESS);
    await_some(transfer);
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

/* Its program has the memory again: the peer gets none of what it writes there. */
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
    assert_int_equal(start(key, 0, LEN, &transfer), -EINPROGRESS);
    await_some(transfer);
    machine->hide(shown, UM_HIDE_GIVEN_UP);
    memset(memory, NEW, LEN);
    assert_int_equal(await(transfer), -EPERM);
    assert_null(memchr(local, NEW, LEN));
    expect_read();
    finish();
}

/* A peer that does not take what it is shown. */
static void who_is_refused_time_and_again_shows_nothing(void **state)
{
    (void)state;
    uint64_t key;
    begin();
    for (int i = 0; i < REFUSALS - 1; i++)
        machine->hide(show_now(LEN, &key), UM_HIDE_REFUSED);
    expect_read();
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

/* FI_UNIMEM_COPY=0. */
static void nothing_is_read_where_copies_are_off(void **state)
{
    (void)state;
    uint64_t key;
    struct um_transfer *transfer;
    begin();
    struct um_shown *shown = show_now(LEN, &key);
    net_of(b)->bodies.is_off = true; /* as port_open() */
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

/* ---- a hostile peer ---- */

enum defect { LONGER, SHORTER, OTHER_HOST, OTHER_LENGTH, NO_LENGTH, PADDING, DEFECTS };

static void the_name_of_an_endpoint_is_checked(void **state)
{
    (void)state;
    begin();
    const struct um_net_lane *lane = (const struct um_net_lane *)path.lane;
    const struct um_net_peer *peer = ((struct um_net_link *)link)->peer;
    for (enum defect defect = 0; defect < DEFECTS; defect++) {
        struct {
            struct um_net_bodies_wire message;
            unsigned char more[8];
        } bad = {{.head = {.version = UM_NET_VERSION, .kind = UM_NET_BODIES, .slot = lane->rx_slot, .id = lane->rx_id}},
                 {0}};
        bad.message.at.len = net_of(a)->name.len;
        memcpy(bad.message.at.name, net_of(a)->name.name, UM_NET_NAME_MAX);
        bad.message.at.name[4] = (unsigned char)(bad.message.at.name[4] + (defect == OTHER_HOST)); /* of 127.0.0.1 */
        bad.message.at.len = (uint8_t)(defect == OTHER_LENGTH ? UM_NET_NAME_MAX + 1
                                       : defect == NO_LENGTH  ? 0
                                                              : bad.message.at.len);
        bad.message.at.name[UM_NET_NAME_MAX - 1] = defect == PADDING;
        send_raw(&path, &bad, sizeof(bad.message) + (defect == LONGER ? 8 : 0) - (defect == SHORTER ? 8 : 0));
        expect_nothing(b);
        assert_false(peer->from.is_known);
    }
    expect_read();
    assert_true(peer->from.is_known);
    finish();
}

/* A firewall lets only the first port through. */
static void where_nobody_listens_nothing_is_read_after_some_time(void **state)
{
    (void)state;
    struct um_transfer *transfer;
    begin();
    const struct um_net_lane *lane = (const struct um_net_lane *)path.lane;
    struct um_net_bodies_wire message = {
        .head = {.version = UM_NET_VERSION, .kind = UM_NET_BODIES, .slot = lane->rx_slot, .id = lane->rx_id}};
    message.at.len = net_of(a)->name.len;
    memcpy(message.at.name, net_of(a)->name.name, UM_NET_NAME_MAX);
    memcpy(message.at.name + 2, "\0\1", 2); /* port 1 */
    send_raw(&path, &message, sizeof(message));
    expect_nothing(b);
    int ret;
    const uint64_t begun = now_ms();
    while ((ret = try_start(1, 0, LEN, &transfer)) == -EAGAIN) {
        assert_true(now_ms() < begun + PATIENCE);
        drive_both();
    }
    if (ret == -EINPROGRESS)
        ret = await(transfer);
    assert_int_equal(ret, -EPERM);
    assert_true(((struct um_net_link *)link)->peer->from.is_unreached);
    assert_int_equal(try_start(1, 0, LEN, &transfer), -EPERM);
    expect_well(&path, 1);
    expect_read(); /* of the endpoint that there is */
    finish();
}

GROUP(net_bodies, T(what_is_shown_is_read_until_it_is_hidden), T(no_key_but_the_one_that_was_told_reads),
      T(keys_are_random), T(nobody_sleeps_over_a_read_that_has_ended), T(nothing_comes_after_a_cancel),
      T(nothing_is_read_after_it_was_given_up), T(who_is_refused_time_and_again_shows_nothing),
      T(short_memory_is_not_shown), T(nothing_is_read_where_copies_are_off), T(the_name_of_an_endpoint_is_checked),
      T(where_nobody_listens_nothing_is_read_after_some_time));
