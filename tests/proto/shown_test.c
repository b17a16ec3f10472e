/* Rendezvous over a network: bodies that their sender shows, and that their receiver reads. */
#include "world.h"

#include "machine/net/net.h"
#include "proto/internal.h"

#include "connections.h"
#include "needs.h"

#define CTX(n) ((void *)(uintptr_t)(n))

enum { LEN = 3 * MIB + 5, FIRST_FD = 3 };

static unsigned char from[2][LEN], to[2][LEN + 64];

/* Opens two nodes over tcp itself; elsewhere the test is skipped. */
static void open_two(struct world *w)
{
    world_open(w, 2);
    const bool has_rma = ((struct um_net_port *)w->node[0].ep->ports[0].port)->inner.has_rma;
    if (!has_rma)
        world_close(w);
    needs(has_rma);
}

static uint64_t copied(const struct world *w, int node)
{
    return um_core_ep_stats(w->node[node].ep)->copied;
}

static uint64_t bounced(const struct world *w, int node)
{
    return um_core_ep_stats(w->node[node].ep)->bounced;
}

/* Each node sends a message to the other; the receive is posted before it comes, or afterwards (odd rounds). */
static void exchange(struct world *w, uint32_t round, size_t room)
{
    const bool is_late = round % 2;
    for (int i = 0; i < 2; i++) {
        fill(from[i], LEN, round + (uint32_t)i);
        memset(to[i], 0, sizeof(to[i]));
        if (!is_late)
            recv_buf(w, i, NULL, to[i], room, round, 0, UM_OP_TAGGED, CTX(2));
    }
    for (int i = 0; i < 2; i++)
        send_buf(w, i, 1 - i, from[i], LEN, round, UM_OP_TAGGED, CTX(1));
    if (is_late)
        world_settle(w);
    for (int i = 0; i < 2 && is_late; i++)
        recv_buf(w, i, NULL, to[i], room, round, 0, UM_OP_TAGGED, CTX(2));
    for (int i = 0; i < 2; i++) {
        const struct um_core_completion got = done_of(w, i, CTX(2));
        assert_int_equal(got.error, room < LEN ? EMSGSIZE : 0);
        assert_int_equal(got.len, room < LEN ? room : LEN);
        assert_memory_equal(to[i], from[1 - i], room < LEN ? room : LEN);
        assert_true(is_all(to[i] + room, sizeof(to[i]) - room, 0));
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(done_of(w, i, CTX(1)).error, 0);
}

static void long_bodies_are_read_and_no_record_has_a_byte_of_them(void **state)
{
    (void)state;
    enum { ROUNDS = 10 };
    struct world w;
    open_two(&w);
    for (uint32_t round = 0; round < ROUNDS; round++)
        exchange(&w, round, LEN);
    exchange(&w, ROUNDS, LEN - MIB);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(copied(&w, i), ROUNDS + 1);
        assert_int_equal(bounced(&w, i), 0);
    }
    world_close(&w);
}

/* A receive of more pieces than the provider takes, and a body of two pieces. */
static void what_cannot_be_read_comes_in_records(void **state)
{
    (void)state;
    struct world w;
    uint64_t r = 5;
    open_two(&w);
    exchange(&w, 0, LEN);
    for (int pieces = 0; pieces < 2; pieces++) {
        struct iovec out[32], in[32];
        const size_t outs = pieces ? 2 : 1, ins = pieces ? 1 : 32;
        cut(from[0], LEN, out, outs, &r);
        cut(to[1], LEN, in, ins, &r);
        memset(to[1], 0, LEN);
        struct um_proto_msg recv = {.iov = in, .count = ins, .context = CTX(2)};
        struct um_proto_msg send = {.iov = out, .count = outs, .peer = peer_of(&w, 0, 1), .context = CTX(1)};
        assert_int_equal(um_proto_recv(w.node[1].ep, &recv), 0);
        send_msg(&w, 0, &send);
        assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_memory_equal(to[1], from[0], LEN);
    }
    assert_int_equal(copied(&w, 1), 1);
    assert_int_equal(bounced(&w, 1), 2);
    exchange(&w, 1, LEN);
    assert_int_equal(copied(&w, 1), 2);
    world_close(&w);
}

/* The writes go into a region of the target, which closes it in the middle of the last write. */
static void long_writes_are_read_by_their_target(void **state)
{
    (void)state;
    enum { ROUNDS = 4, KEY = 7 };
    struct world w;
    open_two(&w);
    struct um_core_region region = {.key = KEY, .base = (uintptr_t)to[1], .len = LEN, .access = UM_ACCESS_REMOTE_WRITE};
    assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
    const struct iovec iov = {.iov_base = from[0], .iov_len = LEN};
    const struct um_proto_rma write = {
        .iov = &iov, .count = 1, .peer = peer_of(&w, 0, 1), .key = KEY, .context = CTX(1), .flags = UM_OP_WRITE};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        fill(from[0], LEN, round);
        memset(to[1], 0, LEN);
        rma(&w, 0, &write);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_memory_equal(to[1], from[0], LEN);
    }
    assert_int_equal(copied(&w, 1), ROUNDS);
    assert_int_equal(bounced(&w, 1), 0);
    (void)connections_keep(FIRST_FD, 16384);
    memset(to[1], 0, LEN);
    rma(&w, 0, &write);
    while (to[1][0] == 0 && to[1][1] == 0)
        world_progress(&w);
    um_core_regions_remove(w.node[1].regions, &region);
    memset(to[1], 0x44, LEN);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, EKEYREJECTED);
    assert_true(is_all(to[1], LEN, 0x44));
    exchange(&w, 1, LEN);
    world_close(&w);
}

enum { READ_KEY = 9 };

/* Returns a region of node 1 in which peers may read from[1]. */
static struct um_core_region region_to_read(void)
{
    return (struct um_core_region){
        .key = READ_KEY, .base = (uintptr_t)from[1], .len = LEN, .access = UM_ACCESS_REMOTE_READ};
}

/* Node 0 reads from that region, from `at` on, into the buffers. */
static void read_start(struct world *w, uint64_t at, const struct iovec *iov, size_t count)
{
    const struct um_proto_rma read = {.iov = iov,
                                      .count = count,
                                      .peer = peer_of(w, 0, 1),
                                      .key = READ_KEY,
                                      .addr = at,
                                      .context = CTX(1),
                                      .flags = UM_OP_READ};
    rma(w, 0, &read);
}

static void read_whole(struct world *w, uint32_t round, uint64_t at, size_t len)
{
    const struct iovec iov = {.iov_base = to[0], .iov_len = len};
    fill(from[1], LEN, round);
    memset(to[0], 0, sizeof(to[0]));
    read_start(w, at, &iov, 1);
    assert_int_equal(done_of(w, 0, CTX(1)).error, 0);
    assert_memory_equal(to[0], from[1] + at, len);
    assert_true(is_all(to[0] + len, sizeof(to[0]) - len, 0));
}

static void long_reads_are_taken_by_their_initiator(void **state)
{
    (void)state;
    enum { ROUNDS = 4, SHORT = 1000 };
    struct world w;
    open_two(&w);
    struct um_core_region region = region_to_read();
    assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
    for (uint32_t round = 0; round < ROUNDS; round++)
        read_whole(&w, round, round * 77, LEN - 77 * ROUNDS);
    assert_int_equal(copied(&w, 1), ROUNDS);
    assert_int_equal(bounced(&w, 1), 0);
    read_whole(&w, ROUNDS, 3, SHORT);
    assert_int_equal(bounced(&w, 1), 1);
    exchange(&w, 1, LEN);
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

/* The owner makes no offer for a read into several buffers. */
static void a_read_into_a_list_comes_in_records(void **state)
{
    (void)state;
    struct world w;
    uint64_t r = 6;
    struct iovec in[32];
    open_two(&w);
    struct um_core_region region = region_to_read();
    assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
    for (uint32_t round = 0; round < 3; round++) {
        fill(from[1], LEN, round);
        memset(to[0], 0, LEN);
        cut(to[0], LEN, in, 32, &r);
        read_start(&w, 0, in, 32);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_memory_equal(to[0], from[1], LEN);
    }
    assert_int_equal(copied(&w, 1), 0);
    assert_int_equal(bounced(&w, 1), 3);
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

/* The initiator's process may not read peers' memory (FI_UNIMEM_COPY=0); messages are shown to it all the same. */
static void a_read_that_is_refused_comes_in_records(void **state)
{
    (void)state;
    enum { ROUNDS = 12 };
    struct world w;
    open_two(&w);
    node_close(&w.node[0]);
    variant.private_copy = false;
    node_open(&w.node[0], 0);
    variant.private_copy = true;
    struct um_core_region region = region_to_read();
    assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
    for (uint32_t round = 0; round < ROUNDS; round++)
        read_whole(&w, round, 0, LEN);
    assert_int_equal(copied(&w, 1), 0);
    assert_int_equal(bounced(&w, 1), ROUNDS);
    assert_true(um_list_is_empty(&region.offers));
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

static void progress_until_some_has_come(struct world *w)
{
    for (int i = 0; i < 1000000 && to[0][0] == 0; i++)
        world_progress(w);
    assert_int_not_equal(to[0][0], 0);
}

/* The read must end with EKEYREJECTED, and afterwards no byte comes any more. */
static void expect_rejected(struct world *w)
{
    assert_int_equal(done_of(w, 0, CTX(1)).error, EKEYREJECTED);
    assert_null(memchr(to[0], 0x66, LEN));
    memset(to[0], 0x44, LEN);
    for (int i = 0; i < 1000; i++)
        world_progress(w);
    assert_true(is_all(to[0], LEN, 0x44));
    exchange(w, 1, LEN);
}

/* The owner closes the region when some of it has come. */
static void a_region_that_is_closed_is_read_no_more(void **state)
{
    (void)state;
    struct world w;
    open_two(&w);
    struct um_core_region region = region_to_read();
    const struct iovec iov = {.iov_base = to[0], .iov_len = LEN};
    assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
    read_whole(&w, 1, 0, LEN);
    memset(from[1], 0x55, LEN);
    memset(to[0], 0, LEN);
    (void)connections_keep(FIRST_FD, 16384);
    read_start(&w, 0, &iov, 1);
    progress_until_some_has_come(&w);
    assert_false(um_list_is_empty(&region.offers));
    assert_int_equal(to[0][LEN - 1], 0);
    um_core_regions_remove(w.node[1].regions, &region);
    memset(from[1], 0x66, LEN);
    expect_rejected(&w);
    world_close(&w);
}

/*
 * The owner closes the region, or registers it anew under the same key, before the initiator has seen the offer. The
 * initiator takes the offer and the error together, in this order, and can read again afterwards.
 */
static void an_offer_that_is_withdrawn_comes_before_the_error(void **state)
{
    (void)state;
    for (int is_anew = 0; is_anew < 2; is_anew++) {
        struct world w;
        open_two(&w);
        struct um_core_region region = region_to_read();
        const struct iovec iov = {.iov_base = to[0], .iov_len = LEN};
        assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
        read_whole(&w, 1, 0, LEN);
        memset(from[1], 0x66, LEN);
        memset(to[0], 0, LEN);
        read_start(&w, 0, &iov, 1);
        for (int i = 0; i < 1000000 && um_list_is_empty(&region.offers); i++) {
            um_core_ep_progress(w.node[1].ep);
            if (i < 3) /* sends the READ */
                um_core_ep_progress(w.node[0].ep);
        }
        assert_false(um_list_is_empty(&region.offers));
        um_core_regions_remove(w.node[1].regions, &region);
        if (is_anew)
            assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
        for (int i = 0; i < 1000; i++)
            um_core_ep_progress(w.node[1].ep);
        expect_rejected(&w);
        if (!is_anew)
            assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
        read_whole(&w, 2, 0, LEN);
        assert_int_equal(bounced(&w, 1), 0);
        um_core_regions_remove(w.node[1].regions, &region);
        world_close(&w);
    }
}

static void reads_come_whole_while_connections_break(void **state)
{
    (void)state;
    enum { ROUNDS = 24 };
    struct world w;
    uint64_t r = 78;
    int broken = 0;
    open_two(&w);
    struct um_core_region region = region_to_read();
    const struct iovec iov = {.iov_base = to[0], .iov_len = LEN};
    assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
    read_whole(&w, 0, 0, LEN);
    for (uint32_t round = 1; round < ROUNDS; round++) {
        const uint32_t turns = rnd(&r, 60);
        fill(from[1], LEN, round);
        memset(to[0], 0, LEN);
        read_start(&w, 0, &iov, 1);
        for (uint32_t i = 0; i < turns; i++)
            world_progress(&w);
        broken += connections_break(FIRST_FD, rnd(&r, 2) ? BREAK_DISCONNECT : BREAK_SHUT);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_memory_equal(to[0], from[1], LEN);
    }
    assert_true(broken > ROUNDS);
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

/* One of the two closes its endpoint when some of what is read has come. */
static void a_read_ends_with_either_side(void **state)
{
    (void)state;
    for (int leaver = 0; leaver < 2; leaver++) {
        struct world w;
        open_two(&w);
        struct um_core_region region = region_to_read();
        const struct iovec iov = {.iov_base = to[0], .iov_len = LEN};
        assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
        read_whole(&w, 1, 0, LEN);
        memset(from[1], 0x55, LEN);
        memset(to[0], 0, LEN);
        (void)connections_keep(FIRST_FD, 16384);
        read_start(&w, 0, &iov, 1);
        progress_until_some_has_come(&w);
        um_proto_ep_close(w.node[leaver].ep);
        w.node[leaver].ep = NULL;
        if (leaver == 1) {
            const int error = done_of(&w, 0, CTX(1)).error;
            assert_true(error == ECONNRESET || error == ECONNREFUSED || error == ESHUTDOWN);
        }
        memset(to[0], 0x44, LEN);
        for (int i = 0; i < 1000; i++)
            um_core_ep_progress(w.node[1 - leaver].ep);
        assert_true(is_all(to[0], LEN, 0x44));
        um_core_regions_remove(w.node[1].regions, &region);
        node_close(&w.node[leaver]);
        node_open(&w.node[leaver], 0);
        world_close(&w);
    }
}

/* Returns how many bytes of node 0's last record lie in the program's memory. */
static size_t lent(struct world *w)
{
    return ((const struct um_net_lane *)peer_of(w, 0, 1)->lane)->last->lent.iov_len;
}

/* The program does not touch the buffer of such a message before delivery; it may reuse any other one earlier. */
static void a_message_is_copied_unless_it_completes_when_delivered(void **state)
{
    (void)state;
    enum { EAGER = 64 << 10 };
    static const struct {
        uint32_t flags;
        size_t pieces, len;
        bool is_lent;
    } cases[] = {{UM_OP_DELIVERY, 1, EAGER, true},
                 {0, 1, EAGER, false},
                 {UM_OP_DELIVERY | UM_OP_INJECT, 1, EAGER, false},
                 {UM_OP_DELIVERY, 2, EAGER, false},
                 {UM_OP_DELIVERY, 1, EAGER - 1, false},
                 {UM_OP_DELIVERY, 1, UM_NET_BODY_MAX, true}};
    struct world w;
    uint64_t r = 3;
    open_two(&w);
    exchange(&w, 0, LEN);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct iovec iov[2];
        const uint32_t flags = UM_OP_TAGGED | cases[i].flags;
        const size_t len = cases[i].len;
        fill(from[0], len, (uint32_t)i);
        memset(to[1], 0, len);
        cut(from[0], len, iov, cases[i].pieces, &r);
        struct um_proto_msg msg = {
            .iov = iov, .count = cases[i].pieces, .peer = peer_of(&w, 0, 1), .context = CTX(1), .flags = flags};
        recv_buf(&w, 1, NULL, to[1], len, 0, 0, UM_OP_TAGGED, CTX(2));
        send_msg(&w, 0, &msg);
        assert_int_equal(lent(&w), cases[i].is_lent ? len : 0);
        assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
        assert_memory_equal(to[1], from[0], len);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    }
    world_close(&w);
}

/* All connections break at once, at any time. */
static void bodies_come_whole_while_connections_break(void **state)
{
    (void)state;
    enum { ROUNDS = 24, EAGER = 200000 };
    struct world w;
    uint64_t r = 77;
    int broken = 0;
    open_two(&w);
    exchange(&w, 0, LEN);
    for (uint32_t round = 1; round < ROUNDS; round++) {
        const uint32_t turns = rnd(&r, 40);
        const size_t len = round % 2 ? LEN : EAGER; /* announced; or in a record, out of the sender's buffer */
        fill(from[0], LEN, round);
        memset(to[1], 0, LEN);
        recv_buf(&w, 1, NULL, to[1], len, round, 0, UM_OP_TAGGED, CTX(2));
        send_buf(&w, 0, 1, from[0], len, round, UM_OP_TAGGED | UM_OP_DELIVERY, CTX(1));
        for (uint32_t i = 0; i < turns; i++)
            world_progress(&w);
        broken += connections_break(FIRST_FD, rnd(&r, 2) ? BREAK_DISCONNECT : BREAK_SHUT);
        assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
        assert_memory_equal(to[1], from[0], len);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    }
    assert_true(broken > ROUNDS);
    for (uint32_t round = ROUNDS; round < ROUNDS + 3; round++)
        exchange(&w, round, LEN);
    world_close(&w);
}

/* The sender closes its endpoint when a part of the body has come. The close gives up waiting after some time. */
static void a_sender_that_leaves_in_the_middle_leaves_nothing_under_way(void **state)
{
    (void)state;
    struct world w;
    open_two(&w);
    for (uint32_t round = 0; round < 2; round++) {
        exchange(&w, round, LEN);
        memset(to[1], 0, LEN);
        memset(from[0], 0x55, LEN);
        recv_buf(&w, 1, NULL, to[1], LEN, 100, 0, UM_OP_TAGGED, CTX(2));
        (void)connections_keep(FIRST_FD, 16384);
        send_buf(&w, 0, 1, from[0], LEN, 100, UM_OP_TAGGED, CTX(1));
        while (to[1][0] == 0)
            world_progress(&w);
        assert_int_equal(to[1][LEN - 1], 0);
        node_close(&w.node[0]);
        memset(from[0], 0x66, LEN);
        const int error = done_of(&w, 1, CTX(2)).error;
        assert_true(error == ECONNRESET || error == ECONNREFUSED || error == ESHUTDOWN);
        assert_null(memchr(to[1], 0x66, LEN));
        memset(to[1], 0x44, LEN);
        for (int i = 0; i < 1000; i++)
            um_core_ep_progress(w.node[1].ep);
        assert_true(is_all(to[1], LEN, 0x44));
        node_open(&w.node[0], 0);
        node_close(&w.node[1]);
        node_open(&w.node[1], 0);
    }
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(long_bodies_are_read_and_no_record_has_a_byte_of_them),
    cmocka_unit_test(long_writes_are_read_by_their_target),
    cmocka_unit_test(what_cannot_be_read_comes_in_records),
    cmocka_unit_test(long_reads_are_taken_by_their_initiator),
    cmocka_unit_test(a_read_into_a_list_comes_in_records),
    cmocka_unit_test(a_read_that_is_refused_comes_in_records),
    cmocka_unit_test(a_region_that_is_closed_is_read_no_more),
    cmocka_unit_test(an_offer_that_is_withdrawn_comes_before_the_error),
    cmocka_unit_test(reads_come_whole_while_connections_break),
    cmocka_unit_test(a_read_ends_with_either_side),
    cmocka_unit_test(a_message_is_copied_unless_it_completes_when_delivered),
    cmocka_unit_test(bodies_come_whole_while_connections_break),
    cmocka_unit_test(a_sender_that_leaves_in_the_middle_leaves_nothing_under_way),
};
WORLD_MAIN("shown", tests)
