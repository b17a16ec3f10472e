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

static uint64_t read_ns; /* 0: reading takes no time, and moves nothing */

static int timed_transfer_start(struct um_link *link, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    wait_ns(read_ns);
    return read_ns ? um_machine_sim.transfer_start(link, copy, transfer_p) : 0;
}

static struct um_machine timed;

/* Opens two nodes, of which node 1 reads a body in ns. */
static void open_timed(struct world *w, uint64_t ns)
{
    timed = um_machine_sim;
    timed.transfer_start = timed_transfer_start;
    read_ns = ns;
    world_open(w, 2);
    peer_of(w, 1, 0)->link->machine = &timed;
}

static void close_timed(struct world *w)
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
    assert_int_equal(done_of(w, 0, CTX(2)).error, 0);
    const bool was_announced = um_core_ep_stats(w->node[0].ep)->rendezvous != before;
    assert_true((was_announced && read_ns == 0) || is_filled(to, len, seed));
    return was_announced;
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
        open_timed(&w, READ_NS * (lens[i] / LEN));
        assert_true(announced_of_the_last(&w, lens[i], true) <= 4);
        assert_in_range(um_core_ep_stats(w.node[1].ep)->retaken, 1, 5); /* few were asked for */
        close_timed(&w);
    }
}

static void a_sender_that_is_late_without_a_pause_is_not_permitted_that(void **state)
{
    (void)state;
    struct world w;
    open_timed(&w, READ_NS);
    assert_int_equal(announced_of_the_last(&w, LEN, false), BODIES - LEARNING);
    close_timed(&w);
}

static void when_reading_becomes_faster_they_are_announced_again(void **state)
{
    enum { IN_A_ROW = 100 };
    (void)state;
    struct world w;
    open_timed(&w, READ_NS);
    (void)announced_of_the_last(&w, LEN, true);
    read_ns = 0;
    unsigned announced = 0;
    for (uint32_t i = 0; announced < IN_A_ROW; i++) {
        assert_true(i < 5000);
        wait_ns(PAUSE_NS);
        announced = body_comes(&w, LEN, i) ? announced + 1 : 0;
    }
    close_timed(&w);
}

/* Few of them come unasked, as a trial, less and less often. */
static void bodies_that_are_read_faster_are_announced(void **state)
{
    (void)state;
    struct world w;
    open_timed(&w, 0);
    for (uint32_t i = 0; i < BODIES; i++) {
        wait_ns(PAUSE_NS);
        (void)body_comes(&w, LEN, i);
    }
    assert_true(announced_of_the_last(&w, LEN, true) >= (BODIES - LEARNING) * 9 / 10);
    assert_true(sender_of(&w)->asked.shy > 0);
    close_timed(&w);
}

/* A message that nobody has posted a receive for costs a copy more, but it tells its cost, too: else it would be tried
 * for ever. */
static void bodies_that_come_unexpected_are_measured(void **state)
{
    (void)state;
    struct world w;
    unsigned announced = 0;
    open_timed(&w, 0);
    for (uint32_t i = 0; i < 2 * BODIES; i++) {
        const uint64_t before = um_core_ep_stats(w.node[0].ep)->rendezvous;
        wait_ns(PAUSE_NS);
        um_core_ep_progress(w.node[0].ep);
        send_buf(&w, 0, 1, from, LEN, i, UM_OP_TAGGED, CTX(2));
        um_core_ep_progress(w.node[1].ep);
        recv_buf(&w, 1, NULL, to, LEN, i, 0, UM_OP_TAGGED, CTX(1));
        while (untaken(&w, 1) == 0)
            um_core_ep_progress(w.node[1].ep);
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
        announced += i >= BODIES && um_core_ep_stats(w.node[0].ep)->rendezvous != before;
    }
    assert_true(sender_of(&w)->asked.shy > 0);
    assert_true(announced >= BODIES * 9 / 10);
    close_timed(&w);
}

/* Its help with a body that is read would come too late: each invitation costs time and cuts the body in parts. */
static void a_sender_that_computes_is_not_invited_to_help(void **state)
{
    (void)state;
    struct world w;
    open_timed(&w, 0);
    (void)announced_of_the_last(&w, LONG, true);
    assert_in_range(sender_of(&w)->round, 1, 4); /* before it was known to compute */
    close_timed(&w);
}

/* Its sender may be reading a body itself. Were it given no more time, two that read each other's would go on so. */
static void a_body_is_waited_for_as_long_as_reading_it_takes(void **state)
{
    enum { LONG_NS = 400000 };
    (void)state;
    struct world w;
    open_timed(&w, LONG_NS);
    const uint64_t *retaken = &um_core_ep_stats(w.node[1].ep)->retaken;
    uint64_t began;
    uint32_t i = 0;
    do {
        assert_true(i < LEARNING);
        began = um_clock_ns();
        (void)body_comes(&w, LONG, i++);
    } while (*retaken == 0);
    assert_true(um_clock_ns() - began > LONG_NS * 19 / 10); /* waited for, then read */
    close_timed(&w);
}

/* What was asked for comes behind it. */
static void a_message_that_comes_unasked_shows_that_its_sender_makes_progress(void **state)
{
    (void)state;
    struct world w;
    uint32_t before, i = 0;
    open_timed(&w, READ_NS);
    (void)announced_of_the_last(&w, LEN, true);
    do {
        assert_true(i < BODIES);
        wait_ns(PAUSE_NS);
        before = sender_of(&w)->asked.parts;
    } while (body_comes(&w, LEN, i++));
    assert_int_not_equal(sender_of(&w)->asked.parts, before);
    close_timed(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_bodies_of_a_sender_that_computes_come_unasked),
    cmocka_unit_test(a_sender_that_is_late_without_a_pause_is_not_permitted_that),
    cmocka_unit_test(when_reading_becomes_faster_they_are_announced_again),
    cmocka_unit_test(bodies_that_are_read_faster_are_announced),
    cmocka_unit_test(a_sender_that_computes_is_not_invited_to_help),
    cmocka_unit_test(a_body_is_waited_for_as_long_as_reading_it_takes),
    cmocka_unit_test(a_message_that_comes_unasked_shows_that_its_sender_makes_progress),
    cmocka_unit_test(bodies_that_come_unexpected_are_measured),
};
WORLD_MAIN("computing", tests)
