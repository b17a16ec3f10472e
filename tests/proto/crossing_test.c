/* Bodies that go both ways at once: which way each side finds to be the better one. */
#include "world.h"

#include "base/clock.h"
#include "core/endpoint.h"
#include "machine/sim/sim.h"

#define CTX(n) ((void *)(uintptr_t)(n))

enum { READ_NS = 100000, LEN = 40000, AT_A_TIME = 2, ROUNDS = 150, LAST = 50 };

static const struct um_link *watched;
static unsigned reads; /* over that link */

/* As on a machine whose system copies slowly. */
static int slow_transfer_start(struct um_link *link, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    const uint64_t began = um_clock_ns();
    while (um_clock_ns() - began < READ_NS)
        ;
    reads += link == watched;
    return um_machine_sim.transfer_start(link, copy, transfer_p);
}

static void bodies_cross(struct world *w, unsigned char *from, unsigned char (*to)[AT_A_TIME][LEN])
{
    for (int node = 0; node < 2; node++) {
        for (int k = 0; k < AT_A_TIME; k++)
            recv_buf(w, node, NULL, to[node][k], LEN, (uint64_t)k, 0, UM_OP_TAGGED, CTX(1 + k));
    }
    for (int node = 0; node < 2; node++) {
        for (int k = 0; k < AT_A_TIME; k++)
            send_buf(w, node, 1 - node, from, LEN, (uint64_t)k, UM_OP_TAGGED, CTX(1 + AT_A_TIME + k));
    }
    for (int node = 0; node < 2; node++) {
        for (int k = 0; k < 2 * AT_A_TIME; k++)
            assert_int_equal(done_of(w, node, CTX(1 + k)).error, 0);
        for (int k = 0; k < AT_A_TIME; k++)
            assert_true(is_filled(to[node][k], LEN, 1));
    }
}

/*
 * What one side asks for comes when the other side has read its bodies: it takes longer than to read. But that time is
 * the other side's reading, not the push. If both sides thought otherwise, they would read for ever.
 */
static void a_push_does_not_count_what_its_sender_reads_meanwhile(void **state)
{
    (void)state;
    static unsigned char from[LEN], to[2][AT_A_TIME][LEN];
    struct um_machine slow = um_machine_sim;
    struct world w;
    slow.transfer_start = slow_transfer_start;
    world_open(&w, 2);
    for (int node = 0; node < 2; node++)
        peer_of(&w, node, 1 - node)->link->machine = &slow;
    watched = peer_of(&w, 0, 1)->link;
    w.node[1].ep->config.bodies = UM_BODIES_COPY; /* it never asks */
    fill(from, LEN, 1);
    for (int round = 0; round < ROUNDS; round++) {
        reads = round == ROUNDS - LAST ? 0 : reads;
        bodies_cross(&w, from, to);
    }
    assert_true(reads <= LAST * AT_A_TIME / 2); /* a quarter */
    for (int node = 0; node < 2; node++)
        peer_of(&w, node, 1 - node)->link->machine = &um_machine_sim;
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_push_does_not_count_what_its_sender_reads_meanwhile),
};
WORLD_MAIN("crossing", tests)
