/* Trials of the ways of a body (way.c): a body that compares reading with asking waits for those that were asked for.
 */
#include "world.h"

#include "base/clock.h"
#include "core/endpoint.h"
#include "machine/sim/sim.h"
#include "proto/internal.h"

#define CTX(n) ((void *)(uintptr_t)(n))

/* Bodies of LEN bytes are always announced. SHORT belongs to another class of sizes. */
enum { READ_NS = 150000, LEN = 600000, SHORT = 40000, AT_A_TIME = 4, WINDOWS = 4000 };

static unsigned char from[LEN], to[AT_A_TIME + 1][LEN];

/* As on a machine whose system copies slowly. */
static int slow_transfer_start(struct um_link *link, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    const uint64_t began = um_clock_ns();
    while (um_clock_ns() - began < READ_NS)
        ;
    return um_machine_sim.transfer_start(link, copy, transfer_p);
}

static struct um_machine slow;

static void open_slow(struct world *w)
{
    slow = um_machine_sim;
    slow.transfer_start = slow_transfer_start;
    world_open(w, 2);
    w->node[1].ep->config.bodies = UM_BODIES_LEARN;
    peer_of(w, 1, 0)->link->machine = &slow;
    fill(from, LEN, 1);
}

static void close_slow(struct world *w)
{
    peer_of(w, 1, 0)->link->machine = &um_machine_sim;
    world_close(w);
}

static bool waits(struct world *w)
{
    return !um_list_is_empty(&um_proto_peer_of(peer_of(w, 1, 0))->asked.behind);
}

static void window_begin(struct world *w)
{
    for (int i = 0; i < AT_A_TIME; i++) {
        memset(to[i], 0, LEN);
        recv_buf(w, 1, NULL, to[i], LEN, (uint64_t)i, 0, UM_OP_TAGGED, CTX(1 + i));
    }
    for (int i = 0; i < AT_A_TIME; i++)
        send_buf(w, 0, 1, from, LEN, (uint64_t)i, UM_OP_TAGGED, CTX(1 + AT_A_TIME + i));
}

static void window_end(struct world *w)
{
    for (int i = 0; i < AT_A_TIME; i++) {
        assert_int_equal(done_of(w, 1, CTX(1 + i)).error, 0);
        assert_int_equal(done_of(w, 0, CTX(1 + AT_A_TIME + i)).error, 0);
        assert_true(is_filled(to[i], LEN, 1));
    }
}

/* Lets windows of bodies come until one of them waits for another one. */
static void let_come_until_one_waits(struct world *w)
{
    for (int i = 0; i < WINDOWS; i++) {
        window_begin(w);
        um_core_ep_progress(w->node[1].ep);
        if (waits(w))
            return;
        window_end(w);
    }
    fail_msg("in %d windows no body waited for another one", WINDOWS);
}

static void a_body_that_is_a_trial_waits_for_those_asked_for(void **state)
{
    (void)state;
    struct world w;
    open_slow(&w);
    const struct um_core_stats *s = um_core_ep_stats(w.node[1].ep);
    uint64_t copied;
    do { /* until it is one that is read; the first ones may end up asked for */
        let_come_until_one_waits(&w);
        copied = s->copied;
        um_core_ep_progress(w.node[1].ep);
        assert_true(waits(&w));
        assert_int_equal(s->copied, copied);
        window_end(&w);
        assert_false(waits(&w));
    } while (s->copied == copied);
    close_slow(&w);
}

/* Otherwise the sender could be asked for ever more bodies, and the one that waits would wait for ever. */
static void bodies_behind_it_wait_too(void **state)
{
    (void)state;
    struct world w;
    open_slow(&w);
    let_come_until_one_waits(&w);
    struct um_proto_asked *asked = &um_proto_peer_of(peer_of(&w, 1, 0))->asked;
    struct um_list *last = asked->behind.prev;
    send_buf(&w, 0, 1, from, SHORT, AT_A_TIME, UM_OP_TAGGED | UM_OP_MATCH, CTX(100));
    recv_buf(&w, 1, NULL, to[AT_A_TIME], LEN, AT_A_TIME, 0, UM_OP_TAGGED, CTX(101));
    while (um_core_ep_progress(w.node[1].ep) > 0)
        ;
    assert_ptr_not_equal(asked->behind.prev, last);
    window_end(&w);
    assert_int_equal(done_of(&w, 1, CTX(101)).error, 0);
    assert_int_equal(done_of(&w, 0, CTX(100)).error, 0);
    assert_true(is_filled(to[AT_A_TIME], SHORT, 1));
    close_slow(&w);
}

/* What was asked for is taken back then, and what waits is read. */
static void a_sender_that_makes_no_call_holds_nothing_up(void **state)
{
    (void)state;
    struct world w;
    open_slow(&w);
    let_come_until_one_waits(&w);
    const size_t before = w.node[1].count;
    while (w.node[1].count < before + AT_A_TIME)
        um_core_ep_progress(w.node[1].ep);
    assert_false(waits(&w));
    window_end(&w);
    close_slow(&w);
}

static void a_sender_that_is_lost_ends_what_waits(void **state)
{
    (void)state;
    struct world w;
    open_slow(&w);
    let_come_until_one_waits(&w);
    const size_t before = w.node[1].count;
    um_sim_kill(&w.node[0].addr);
    while (w.node[1].count < before + AT_A_TIME)
        um_core_ep_progress(w.node[1].ep);
    for (int i = 0; i < AT_A_TIME; i++)
        assert_int_equal(done_of(&w, 1, CTX(1 + i)).error, ECONNRESET);
    close_slow(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_body_that_is_a_trial_waits_for_those_asked_for),
    cmocka_unit_test(bodies_behind_it_wait_too),
    cmocka_unit_test(a_sender_that_makes_no_call_holds_nothing_up),
    cmocka_unit_test(a_sender_that_is_lost_ends_what_waits),
};
WORLD_MAIN("trials", tests)
