/* Trials of the ways of a body (way.c): a body that compares reading with asking waits for those that were asked for.
 */
#include "world.h"

#include "base/clock.h"
#include "core/endpoint.h"
#include "machine/sim/sim.h"
#include "proto/internal.h"

#include <errno.h>

#define CTX(n) ((void *)(uintptr_t)(n))

#define HANG_NS UINT64_C(20000000000)

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
    if (peer_of(w, 1, 0)->link) /* the sender was not lost */
        peer_of(w, 1, 0)->link->machine = &um_machine_sim;
    world_close(w);
}

static struct um_proto_asked *asked_of(struct world *w)
{
    return &um_proto_peer_of(peer_of(w, 1, 0))->asked;
}

static unsigned waiting(struct world *w)
{
    unsigned count = 0;
    const struct um_list *behind = &asked_of(w)->behind;
    for (const struct um_list *l = behind->next; l != behind; l = l->next)
        count++;
    return count;
}

static size_t window_at; /* receives of node 1 that had ended when the window began */

static void window_begin(struct world *w)
{
    window_at = w->node[1].count;
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

/* Lets windows of bodies come until one of them waits for another one. Those that were asked for are not taken back
 * soon, however busy the machine is. */
static void let_come_until_one_waits(struct world *w)
{
    for (int i = 0; i < WINDOWS; i++) {
        window_begin(w);
        um_core_ep_progress(w->node[1].ep);
        if (waiting(w) > 0) {
            asked_of(w)->quiet_at = um_clock_ns() + HANG_NS;
            return;
        }
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
        assert_true(waiting(&w) > 0);
        assert_int_equal(s->copied, copied);
        window_end(&w);
        assert_int_equal(waiting(&w), 0);
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
    const unsigned before = waiting(&w);
    send_buf(&w, 0, 1, from, SHORT, AT_A_TIME, UM_OP_TAGGED | UM_OP_MATCH, CTX(100));
    recv_buf(&w, 1, NULL, to[AT_A_TIME], LEN, AT_A_TIME, 0, UM_OP_TAGGED, CTX(101));
    while (um_core_ep_progress(w.node[1].ep) > 0)
        ;
    assert_int_equal(waiting(&w), before + 1);
    window_end(&w);
    assert_int_equal(done_of(&w, 1, CTX(101)).error, 0);
    assert_int_equal(done_of(&w, 0, CTX(100)).error, 0);
    assert_true(is_filled(to[AT_A_TIME], SHORT, 1));
    close_slow(&w);
}

/* Makes progress on node 1 alone until the bodies of the window have ended. */
static void window_end_alone(struct world *w)
{
    const uint64_t began = um_clock_ns();
    while (w->node[1].count < window_at + AT_A_TIME) {
        um_core_ep_progress(w->node[1].ep);
        assert_true(um_clock_ns() - began < HANG_NS);
    }
}

/* What was asked for is taken back then, and what waits is read. */
static void a_sender_that_makes_no_call_holds_nothing_up(void **state)
{
    (void)state;
    struct world w;
    open_slow(&w);
    let_come_until_one_waits(&w);
    asked_of(&w)->quiet_at = 0;
    window_end_alone(&w);
    assert_int_equal(waiting(&w), 0);
    window_end(&w);
    close_slow(&w);
}

static void a_sender_that_is_lost_ends_what_waits(void **state)
{
    (void)state;
    struct world w;
    open_slow(&w);
    let_come_until_one_waits(&w);
    const size_t ended = w.node[1].count - window_at;
    um_sim_kill(&w.node[0].addr);
    window_end_alone(&w);
    size_t failed = 0;
    for (int i = 0; i < AT_A_TIME; i++)
        failed += done_of(&w, 1, CTX(1 + i)).error == ECONNRESET;
    assert_int_equal(failed, AT_A_TIME - ended);
    close_slow(&w);
}

/* A message without a body, or too long for its receive, is never asked for. */
static void a_body_that_would_not_be_asked_for_does_not_wait(void **state)
{
    (void)state;
    struct world w;
    open_slow(&w);
    let_come_until_one_waits(&w);
    const unsigned before = waiting(&w);
    const size_t ended = w.node[1].count;
    recv_buf(&w, 1, NULL, to[AT_A_TIME], 8, 100, 0, UM_OP_TAGGED, CTX(100));
    recv_buf(&w, 1, NULL, to[AT_A_TIME], SHORT, 101, 0, UM_OP_TAGGED, CTX(101));
    send_buf(&w, 0, 1, from, 0, 100, UM_OP_TAGGED | UM_OP_MATCH, CTX(102));
    send_buf(&w, 0, 1, from, LEN, 101, UM_OP_TAGGED, CTX(103));
    for (int i = 0; i < 10; i++)
        um_core_ep_progress(w.node[1].ep);
    assert_int_equal(waiting(&w), before);
    assert_int_equal(w.node[1].count, ended + 2);
    assert_int_equal(done_of(&w, 1, CTX(100)).error, 0);
    assert_int_equal(done_of(&w, 1, CTX(101)).error, EMSGSIZE);
    window_end(&w);
    close_slow(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_body_that_would_not_be_asked_for_does_not_wait),
    cmocka_unit_test(a_body_that_is_a_trial_waits_for_those_asked_for),
    cmocka_unit_test(bodies_behind_it_wait_too),
    cmocka_unit_test(a_sender_that_makes_no_call_holds_nothing_up),
    cmocka_unit_test(a_sender_that_is_lost_ends_what_waits),
};
WORLD_MAIN("trials", tests)
