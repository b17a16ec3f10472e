/* A sender that makes no call of progress between its bodies, because it computes: they come unasked, if records are
 * faster than reading. */
#include "world.h"

#include "base/clock.h"
#include "core/endpoint.h"
#include "machine/sim/sim.h"
#include "proto/internal.h"

#define CTX(n) ((void *)(uintptr_t)(n))

enum { READ_NS = 100000, PAUSE_NS = 100000, LEN = 40000, LONG = 400000, BODIES = 400, LEARNING = 100 };

static unsigned char from[LONG], to[LONG];

static void wait_ns(uint64_t ns)
{
    const uint64_t began = um_clock_ns();
    while (um_clock_ns() - began < ns)
        ;
}

static uint64_t read_ns;

/* As on a machine whose system copies slowly. */
static int slow_transfer_start(struct um_link *link, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    wait_ns(read_ns);
    return um_machine_sim.transfer_start(link, copy, transfer_p);
}

static struct um_machine slow;

/* Opens two nodes, of which node 1 reads slowly. */
static void open_slow(struct world *w)
{
    slow = um_machine_sim;
    slow.transfer_start = slow_transfer_start;
    read_ns = READ_NS;
    world_open(w, 2);
    peer_of(w, 1, 0)->link->machine = &slow;
}

static void close_slow(struct world *w)
{
    peer_of(w, 1, 0)->link->machine = &um_machine_sim;
    world_close(w);
}

static struct um_proto_peer *sender_of(struct world *w)
{
    return um_proto_peer_of(peer_of(w, 1, 0));
}

/* Sends a body from node 0 to node 1, which gets it while node 0 computes. Returns whether it was announced. */
static bool body_comes(struct world *w, uint32_t len, uint32_t seed)
{
    const uint64_t before = um_core_ep_stats(w->node[0].ep)->rendezvous;
    const size_t count = w->node[1].count;
    fill(from, len, seed);
    memset(to, 0, len);
    recv_buf(w, 1, NULL, to, len, seed, 0, UM_OP_TAGGED, CTX(1));
    um_core_ep_progress(w->node[0].ep); /* the body is alone */
    send_buf(w, 0, 1, from, len, seed, UM_OP_TAGGED, CTX(2));
    while (w->node[1].count == count)
        um_core_ep_progress(w->node[1].ep);
    assert_int_equal(done_of(w, 1, CTX(1)).error, 0);
    assert_true(is_filled(to, len, seed));
    assert_int_equal(done_of(w, 0, CTX(2)).error, 0);
    return um_core_ep_stats(w->node[0].ep)->rendezvous != before;
}

/* Returns how many of the bodies after the first LEARNING ones are announced. */
static unsigned announced_of_the_last(struct world *w, uint32_t len, bool computes)
{
    unsigned announced = 0;
    for (uint32_t i = 0; i < BODIES; i++) {
        if (computes)
            wait_ns(PAUSE_NS);
        else
            sender_of(w)->asked.ended_at = um_clock_ns(); /* however busy the machine is */
        const bool was_announced = body_comes(w, len, i);
        announced += i >= LEARNING && was_announced;
    }
    return announced;
}

static void the_bodies_of_a_sender_that_computes_come_unasked(void **state)
{
    (void)state;
    static const uint32_t lens[] = {LEN, LONG}; /* in a big ring; too long for one */
    for (int i = 0; i < 2; i++) {
        struct world w;
        open_slow(&w);
        read_ns = READ_NS * (lens[i] / LEN);
        assert_true(announced_of_the_last(&w, lens[i], true) <= 4);
        assert_int_equal(um_core_ep_stats(w.node[1].ep)->retaken, 1); /* later ones were not asked for */
        close_slow(&w);
    }
}

static void when_reading_becomes_faster_they_are_announced_again(void **state)
{
    enum { IN_A_ROW = 100 };
    (void)state;
    struct world w;
    open_slow(&w);
    read_ns = READ_NS * (LONG / LEN);
    (void)announced_of_the_last(&w, LONG, true);
    read_ns = 0;
    unsigned announced = 0;
    for (uint32_t i = 0; announced < IN_A_ROW; i++) {
        assert_true(i < 5000);
        wait_ns(PAUSE_NS);
        announced = body_comes(&w, LONG, i) ? announced + 1 : 0;
    }
    close_slow(&w);
}

static void a_sender_that_is_late_without_a_pause_is_not_permitted_that(void **state)
{
    (void)state;
    struct world w;
    open_slow(&w);
    assert_int_equal(announced_of_the_last(&w, LEN, false), BODIES - LEARNING);
    close_slow(&w);
}

/* Reading is one copy here, and records are two. They are tried less and less often. */
static void bodies_that_are_read_faster_are_announced(void **state)
{
    enum { MANY = 1500, LAST = 500 };
    (void)state;
    struct world w;
    unsigned announced = 0;
    world_open(&w, 2);
    for (uint32_t i = 0; i < MANY; i++) {
        wait_ns(PAUSE_NS);
        const bool was_announced = body_comes(&w, LONG, i);
        announced += i >= MANY - LAST && was_announced;
    }
    assert_true(announced > LAST / 10 * 8);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_bodies_of_a_sender_that_computes_come_unasked),
    cmocka_unit_test(when_reading_becomes_faster_they_are_announced_again),
    cmocka_unit_test(a_sender_that_is_late_without_a_pause_is_not_permitted_that),
    cmocka_unit_test(bodies_that_are_read_faster_are_announced),
};
WORLD_MAIN("computing", tests)
