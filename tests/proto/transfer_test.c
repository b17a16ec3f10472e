/*
 * Operations that end while their bytes are still moving: from then on no byte moves. On the simulated machine, whose
 * transfers go on with every call of progress until they are cancelled.
 */
#include "world.h"

#include "core/endpoint.h"
#include "core/window.h"
#include "machine/sim/sim.h"

#define CTX(n) ((void *)(uintptr_t)(n))

enum { LEN = 300000, ROUNDS = 12, KEY = 1 };

static unsigned char from[LEN], to[LEN];

static struct um_proto_rma rma_of(struct world *w, const struct iovec *iov, uint32_t flags)
{
    return (struct um_proto_rma){.iov = iov,
                                 .count = 1,
                                 .peer = peer_of(w, 0, 1),
                                 .addr = (uintptr_t)to,
                                 .key = KEY,
                                 .context = CTX(1),
                                 .flags = flags};
}

static struct um_core_region region_of(void *base)
{
    return (struct um_core_region){.key = KEY,
                                   .base = (uintptr_t)base,
                                   .origin = (uintptr_t)base,
                                   .len = LEN,
                                   .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
}

static void progress(struct world *w, int times)
{
    while (times-- > 0)
        world_progress(w);
}

/* The first node reads what the second one exports. */
static void read_begin(struct world *w, int rounds)
{
    const struct iovec iov = {to, LEN};
    struct um_proto_rma read = rma_of(w, &iov, UM_OP_READ);
    read.addr = (uintptr_t)from;
    rma(w, 0, &read);
    progress(w, rounds);
}

/* The second node sends the first one a record whose opcode does not exist, so the lane ends. */
static void format_break(struct world *w)
{
    struct um_lane *lane = peer_of(w, 1, 0)->lane;
    struct um_slot slot;
    assert_int_equal(lane->machine->claim(lane, 0, &slot), 0);
    lane->machine->commit(lane, &slot, UM_OPCODES, 0, 0);
}

/* The operation has ended: no byte of the memory may change any more. */
static void expect_no_byte_more(struct world *w, void *memory)
{
    memset(memory, 0x77, LEN);
    progress(w, 300);
    assert_true(is_all(memory, LEN, 0x77));
}

static void a_receive_whose_sender_dies(void **state)
{
    (void)state;
    int failed = 0;
    for (int rounds = 0; rounds < ROUNDS; rounds++) {
        struct world w;
        world_open(&w, 2);
        fill(from, LEN, 1);
        recv_buf(&w, 0, NULL, to, LEN, 1, 0, UM_OP_TAGGED, CTX(1));
        send_buf(&w, 1, 0, from, LEN, 1, UM_OP_TAGGED, CTX(2));
        progress(&w, rounds);
        um_sim_kill(&w.node[1].addr);
        struct um_core_ep *dead = w.node[1].ep;
        w.node[1].ep = NULL;
        failed += done_of(&w, 0, CTX(1)).error != 0;
        expect_no_byte_more(&w, to);
        w.node[1].ep = dead;
        world_close(&w);
    }
    assert_true(failed > 0); /* else no transfer was under way */
}

/* The sender lives, and its memory is there: only its lane has ended. */
static void a_receive_whose_sender_is_refused(void **state)
{
    (void)state;
    int failed = 0;
    for (int rounds = 1; rounds < ROUNDS; rounds++) {
        struct world w;
        world_open(&w, 2);
        recv_buf(&w, 0, NULL, to, LEN, 1, 0, UM_OP_TAGGED, CTX(1));
        send_buf(&w, 1, 0, from, LEN, 1, UM_OP_TAGGED, CTX(2));
        progress(&w, rounds);
        format_break(&w);
        failed += done_of(&w, 0, CTX(1)).error == EPROTO;
        expect_no_byte_more(&w, to);
        world_close(&w);
    }
    assert_true(failed > 0);
}

static void a_receive_whose_endpoint_closes(void **state)
{
    (void)state;
    for (int rounds = 0; rounds < ROUNDS; rounds++) {
        struct world w;
        world_open(&w, 2);
        recv_buf(&w, 0, NULL, to, LEN, 1, 0, UM_OP_TAGGED, CTX(1));
        send_buf(&w, 1, 0, from, LEN, 1, UM_OP_TAGGED, CTX(2));
        progress(&w, rounds);
        node_close(&w.node[0]);
        expect_no_byte_more(&w, to);
        world_close(&w);
    }
}

/* A write moves by a transfer of the initiator, or by one of the target: both are tried. */
static void a_write_whose_region_is_closed(void **state)
{
    (void)state;
    int failed = 0;
    for (int way = 0; way < 2; way++) {
        for (int rounds = 0; rounds < ROUNDS; rounds++) {
            struct world w;
            struct um_core_region region = region_of(to);
            const struct iovec iov = {from, LEN};
            world_open(&w, 2);
            assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
            struct um_proto_rma write = rma_of(&w, &iov, UM_OP_WRITE);
            if (way == 1) /* as if the initiator could not write there */
                um_core_window_set_level(um_core_window_find(write.peer, KEY), UM_LEVEL_REMOTE);
            rma(&w, 0, &write);
            assert_int_equal(um_list_is_empty(&write.peer->copies), way == 1);
            progress(&w, rounds);
            um_core_regions_remove(w.node[1].regions, &region);
            memset(to, 0x77, LEN);
            const int error = done_of(&w, 0, CTX(1)).error;
            assert_true(error == 0 || error == EKEYREJECTED);
            failed += error != 0;
            progress(&w, 300);
            assert_true(is_all(to, LEN, 0x77));
            world_close(&w);
        }
        assert_true(failed > 0);
        failed = 0;
    }
}

static void a_read_whose_target_dies(void **state)
{
    (void)state;
    int failed = 0;
    for (int rounds = 0; rounds < ROUNDS; rounds++) {
        struct world w;
        struct um_core_region region = region_of(from);
        world_open(&w, 2);
        assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
        read_begin(&w, rounds);
        um_sim_kill(&w.node[1].addr);
        failed += done_of(&w, 0, CTX(1)).error == ECONNRESET;
        expect_no_byte_more(&w, to);
        um_core_regions_remove(w.node[1].regions, &region);
        world_close(&w);
    }
    assert_true(failed > 0);
}

/* The target lives, and its memory is there: only its lane has ended. */
static void a_read_whose_target_is_refused(void **state)
{
    (void)state;
    int failed = 0;
    for (int rounds = 0; rounds < ROUNDS; rounds++) {
        struct world w;
        struct um_core_region region = region_of(from);
        world_open(&w, 2);
        assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
        inject_buf(&w, 1, 0, "x", 1, 1, UM_OP_TAGGED); /* opens its lane */
        world_settle(&w);
        read_begin(&w, rounds);
        format_break(&w);
        failed += done_of(&w, 0, CTX(1)).error != 0;
        expect_no_byte_more(&w, to);
        um_core_regions_remove(w.node[1].regions, &region);
        world_close(&w);
    }
    assert_true(failed > 0);
}

static void operations_whose_endpoint_closes(void **state)
{
    (void)state;
    for (int rounds = 0; rounds < ROUNDS; rounds++) {
        struct world w;
        struct um_core_region region = region_of(from);
        world_open(&w, 2);
        assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
        read_begin(&w, rounds);
        node_close(&w.node[0]);
        expect_no_byte_more(&w, to);
        um_core_regions_remove(w.node[1].regions, &region);
        world_close(&w);
    }
}

/* The buffer of an injected write is the caller's at the return; a write with data completes at the target when all
 * bytes are there. */
static void a_write_keeps_what_it_needs_and_tells_at_its_end(void **state)
{
    (void)state;
    struct world w;
    struct um_core_region region = region_of(to);
    world_open(&w, 2);
    assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
    for (uint32_t i = 1; i <= 50; i++) {
        const bool inject = i % 2, delivery = i % 3 == 0;
        const size_t len = inject ? 8000 : LEN;
        const struct iovec iov = {from, len};
        struct um_proto_rma write = rma_of(&w, &iov,
                                           UM_OP_WRITE | UM_OP_DATA | (inject ? (uint32_t)UM_OP_INJECT : 0) |
                                               (delivery ? (uint32_t)UM_OP_DELIVERY : 0));
        write.data = i;
        fill(from, len, i);
        rma(&w, 0, &write);
        if (inject)
            memset(from, 0, len);
        const struct um_core_completion *c = next_of(&w, 1);
        assert_int_equal(c->flags & UM_OP_REMOTE_WRITE, UM_OP_REMOTE_WRITE);
        assert_int_equal(c->data, i);
        assert_int_equal(c->len, len);
        assert_true(is_filled(to, len, i));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    }
    world_settle(&w);
    assert_int_equal(untaken(&w, 0) + untaken(&w, 1), 0);
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_receive_whose_sender_dies),
    cmocka_unit_test(a_receive_whose_sender_is_refused),
    cmocka_unit_test(a_receive_whose_endpoint_closes),
    cmocka_unit_test(a_write_whose_region_is_closed),
    cmocka_unit_test(a_read_whose_target_dies),
    cmocka_unit_test(a_read_whose_target_is_refused),
    cmocka_unit_test(operations_whose_endpoint_closes),
    cmocka_unit_test(a_write_keeps_what_it_needs_and_tells_at_its_end),
};
WORLD_MAIN("transfers", tests)
