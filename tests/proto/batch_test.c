/* Bodies that are announced one after the other are read by one call (rndv_batch.c). */
#include "world.h"

#include "core/endpoint.h"
#include "proto/internal.h"

#include <errno.h>

#define CTX(n) ((void *)(uintptr_t)(n))

/* RECV and SEND: contexts of the first receive and the first send. */
enum { LEN = 40000, BODIES = 12, LONG = 600000, RECV = 1, SEND = 100 };

static unsigned char from[BODIES][LONG], to[BODIES][LONG];

/* ---- a machine that counts its copies and refuses some ---- */

static struct um_machine counting;
static const struct um_machine *real;
static unsigned calls;
static bool refuses_several, refuses_all;
static const void *unreadable; /* a piece of the sender's memory, as if it were not mapped; NULL: none */

static int count_transfer_start(struct um_link *link, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    calls++;
    if (refuses_several && copy->remote_count > 1)
        return -EAGAIN;
    if (refuses_all)
        return -EPERM;
    for (size_t i = 0; i < copy->remote_count; i++) {
        if (unreadable && copy->remote[i].addr == (uintptr_t)unreadable)
            return -EFAULT;
    }
    return real->transfer_start(link, copy, transfer_p);
}

static void count_of(struct world *w, int from, int to)
{
    real = peer_of(w, to, from)->link->machine;
    counting = *real;
    counting.transfer_start = count_transfer_start;
    counting.transfer_poll = NULL;
    peer_of(w, to, from)->link->machine = &counting;
    if (variant.bodies == UM_BODIES_LEARN)
        w->node[to].ep->config.bodies = UM_BODIES_COPY; /* it learns what reading costs, and asks for nothing */
    refuses_several = refuses_all = false;
    unreadable = NULL;
    calls = 0;
}

static void open_counting(struct world *w)
{
    world_open(w, 2);
    count_of(w, 0, 1);
    for (uint32_t i = 0; i < BODIES; i++)
        fill(from[i], LONG, i + 1);
    memset(to, 0, sizeof(to));
}

static void close_counting(struct world *w)
{
    if (peer_of(w, 1, 0)->link)
        peer_of(w, 1, 0)->link->machine = real;
    world_close(w);
}

static void post(struct world *w, unsigned count, size_t room)
{
    for (unsigned i = 0; i < count; i++)
        recv_buf(w, 1, NULL, to[i], room, i, 0, UM_OP_TAGGED, CTX(RECV + i));
}

static void announce(struct world *w, unsigned count, size_t len)
{
    for (unsigned i = 0; i < count; i++)
        send_buf(w, 0, 1, from[i], len, i, UM_OP_TAGGED, CTX(SEND + i));
}

/* The receives have ended in order, with what was sent; so have the sends. */
static void check(struct world *w, unsigned count, size_t len)
{
    for (unsigned i = 0; i < count; i++) {
        const struct um_core_completion *c = next_of(w, 1);
        assert_ptr_equal(c->context, CTX(RECV + i));
        assert_int_equal(c->error, 0);
        assert_int_equal(c->len, len);
        assert_true(is_filled(to[i], len, i + 1));
        assert_int_equal(done_of(w, 0, CTX(SEND + i)).error, 0);
    }
}

static uint64_t batched(const struct world *w)
{
    return um_core_ep_stats(w->node[1].ep)->batched;
}

/* So many bodies are announced, and read in one call of progress: by so many copies, and so many of them together. */
static void read_at_once(struct world *w, unsigned count, unsigned copies, uint64_t together)
{
    post(w, count, LEN);
    announce(w, count, LEN);
    um_core_ep_progress(w->node[1].ep);
    assert_int_equal(untaken(w, 1), count);
    assert_int_equal(calls, copies);
    assert_int_equal(batched(w), together);
    check(w, count, LEN);
}

static void four_bodies_take_one_call(void **state)
{
    struct world w;
    (void)state;
    open_counting(&w);
    read_at_once(&w, 4, 1, 4);
    assert_int_equal(um_core_ep_stats(w.node[1].ep)->copied, 4);
    close_counting(&w);
}

/* Three calls, of 4, 4, and 3 bodies, in one call of progress: nothing waits for the next one. */
static void more_bodies_take_more_calls(void **state)
{
    struct world w;
    (void)state;
    open_counting(&w);
    read_at_once(&w, 11, 3, 11);
    close_counting(&w);
}

static void a_body_alone_does_not_wait(void **state)
{
    struct world w;
    (void)state;
    open_counting(&w);
    read_at_once(&w, 1, 1, 0);
    close_counting(&w);
}

/* The caller of the receive may compute before it makes progress. */
static void unexpected_bodies_do_not_wait(void **state)
{
    struct world w;
    (void)state;
    open_counting(&w);
    announce(&w, 4, LEN);
    um_core_ep_progress(w.node[1].ep);
    assert_int_equal(calls, 0);
    for (unsigned i = 0; i < 4; i++) {
        recv_buf(&w, 1, NULL, to[i], LEN, i, 0, UM_OP_TAGGED, CTX(RECV + i));
        assert_int_equal(calls, i + 1);
    }
    check(&w, 4, LEN);
    close_counting(&w);
}

/* Long bodies go on for several calls of progress. */
static void short_bodies_do_not_wait_for_long_ones(void **state)
{
    struct world w;
    (void)state;
    enum { HUGE_LEN = 9 * MIB };
    open_counting(&w);
    unsigned char *huge[2] = {calloc(1, HUGE_LEN), calloc(1, HUGE_LEN)};
    assert_true(huge[0] && huge[1]);
    recv_buf(&w, 1, NULL, huge[1], HUGE_LEN, 100, 0, UM_OP_TAGGED, CTX(98));
    send_buf(&w, 0, 1, huge[0], HUGE_LEN, 100, UM_OP_TAGGED, CTX(99));
    um_core_ep_progress(w.node[1].ep);
    assert_int_equal(untaken(&w, 1), 0);
    post(&w, 2, LEN);
    announce(&w, 2, LEN);
    um_core_ep_progress(w.node[1].ep);
    assert_int_equal(untaken(&w, 1), 2);
    check(&w, 2, LEN);
    assert_int_equal(done_of(&w, 1, CTX(98)).error, 0);
    assert_int_equal(done_of(&w, 0, CTX(99)).error, 0);
    free(huge[0]);
    free(huge[1]);
    close_counting(&w);
}

static void long_bodies_are_read_by_themselves(void **state)
{
    struct world w;
    (void)state;
    open_counting(&w);
    post(&w, 4, LONG);
    announce(&w, 4, LONG);
    um_core_ep_progress(w.node[1].ep);
    assert_true(calls == 4 || variant.bodies == UM_BODIES_LEARN); /* their sender may help: then there are more */
    assert_int_equal(batched(&w), 0);
    check(&w, 4, LONG);
    close_counting(&w);
}

/* Two bodies of 512 KiB are as many bytes as a batch takes. */
static void a_batch_has_so_many_bytes(void **state)
{
    struct world w;
    (void)state;
    enum { HALF = 524288 };
    open_counting(&w);
    post(&w, 4, HALF);
    announce(&w, 4, HALF);
    um_core_ep_progress(w.node[1].ep);
    if (variant.bodies != UM_BODIES_LEARN) { /* else their sender may help */
        assert_int_equal(calls, 2);
        assert_int_equal(batched(&w), 4);
    }
    check(&w, 4, HALF);
    close_counting(&w);
}

/* A job beside a stream. */
struct beside {
    struct um_core_job job;
    unsigned steps;
};

static bool beside_step(struct um_core_ep *ep, struct um_core_job *job)
{
    (void)ep;
    UM_CONTAINER(job, struct beside, job)->steps++;
    return false;
}

/* Each call of progress reads as many bytes as a call's jobs may move, and leaves the other jobs their turn. */
static void a_stream_leaves_other_jobs_their_turn(void **state)
{
    struct world w;
    struct beside beside = {.job.step = beside_step};
    (void)state;
    enum { QUARTER = 262144, ROUNDS = 10 };
    open_counting(&w);
    um_list_init(&beside.job.link);
    um_core_job_start(w.node[1].ep, &beside.job);
    for (unsigned n = 0; n < ROUNDS; n++) {
        post(&w, 3, QUARTER);
        announce(&w, 3, QUARTER);
        const unsigned before = beside.steps;
        um_core_ep_progress(w.node[1].ep);
        assert_true(beside.steps > before);
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(done_of(&w, 1, CTX(RECV + i)).len, QUARTER);
            assert_true(is_filled(to[i], QUARTER, i + 1));
            assert_int_equal(done_of(&w, 0, CTX(SEND + i)).error, 0);
        }
    }
    assert_true(batched(&w) > 0 || variant.bodies == UM_BODIES_LEARN); /* or their sender helps */
    um_list_unlink(&beside.job.link);
    close_counting(&w);
}

/* A receive that is too short, or scattered, is not part of a batch; the bodies beside it are. */
static void other_receives_are_served_beside(void **state)
{
    struct world w;
    (void)state;
    open_counting(&w);
    const struct iovec halves[] = {{to[1], LEN / 2}, {to[1] + LEN / 2, LEN / 2}};
    const struct um_proto_msg scattered = {
        .iov = halves, .count = 2, .tag = 1, .context = CTX(RECV + 1), .flags = UM_OP_TAGGED};
    recv_buf(&w, 1, NULL, to[0], LEN, 0, 0, UM_OP_TAGGED, CTX(RECV));
    assert_int_equal(um_proto_recv(w.node[1].ep, &scattered), 0);
    recv_buf(&w, 1, NULL, to[2], LEN / 2, 2, 0, UM_OP_TAGGED, CTX(RECV + 2));
    recv_buf(&w, 1, NULL, to[3], LEN, 3, 0, UM_OP_TAGGED, CTX(RECV + 3));
    announce(&w, 4, LEN);
    um_core_ep_progress(w.node[1].ep);
    assert_int_equal(calls, 3);
    assert_int_equal(batched(&w), 2);
    for (unsigned i = 0; i < 4; i++) {
        const struct um_core_completion c = done_of(&w, 1, CTX(RECV + i));
        assert_int_equal(c.error, i == 2 ? EMSGSIZE : 0);
        assert_true(is_filled(to[i], i == 2 ? LEN / 2 : LEN, i + 1));
        assert_int_equal(done_of(&w, 0, CTX(SEND + i)).error, 0);
    }
    assert_true(is_all(to[2] + LEN / 2, LEN / 2, 0));
    close_counting(&w);
}

static void a_call_that_is_refused_costs_no_body(void **state)
{
    struct world w;
    (void)state;
    open_counting(&w);
    refuses_several = true;
    read_at_once(&w, 4, 5, 0);
    close_counting(&w);
}

static void only_the_body_that_cannot_be_read_fails(void **state)
{
    struct world w;
    (void)state;
    open_counting(&w);
    unreadable = from[2];
    post(&w, 4, LEN);
    announce(&w, 4, LEN);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(done_of(&w, 1, CTX(RECV + i)).error, i == 2 ? EFAULT : 0);
        assert_true(i == 2 || is_filled(to[i], LEN, i + 1));
        assert_int_equal(done_of(&w, 0, CTX(SEND + i)).error, i == 2 ? EFAULT : 0);
    }
    close_counting(&w);
}

/* Peers have batches of their own. */
static void each_sender_has_its_batch(void **state)
{
    struct world w;
    (void)state;
    world_open(&w, 3);
    count_of(&w, 0, 2);
    count_of(&w, 1, 2);
    for (uint32_t i = 0; i < 8; i++) {
        fill(from[i], LEN, i + 1);
        recv_buf(&w, 2, NULL, to[i], LEN, i, 0, UM_OP_TAGGED, CTX(RECV + i));
    }
    for (int i = 0; i < 8; i++)
        send_buf(&w, i % 2, 2, from[i], LEN, (uint64_t)i, UM_OP_TAGGED, CTX(SEND + i));
    um_core_ep_progress(w.node[2].ep);
    assert_int_equal(calls, 2);
    assert_int_equal(um_core_ep_stats(w.node[2].ep)->batched, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(done_of(&w, 2, CTX(RECV + i)).error, 0);
        assert_int_equal(done_of(&w, (int)i % 2, CTX(SEND + i)).error, 0);
        assert_true(is_filled(to[i], LEN, i + 1));
    }
    for (int i = 0; i < 2; i++)
        peer_of(&w, 2, i)->link->machine = real;
    world_close(&w);
}

/* ---- a batch that outlives its call of progress, because other jobs took all of its turns ---- */

/* Node 1 has three bodies in a batch: they were unexpected, but wait as others do. */
static void open_waiting(struct world *w)
{
    open_counting(w);
    announce(w, 3, LEN);
    um_core_ep_progress(w->node[1].ep);
    const struct um_core_peer *sender = peer_of(w, 1, 0);
    for (uint32_t token = 0; token < 2 * UM_TOKENS; token++) {
        struct um_proto_inbound *in = um_proto_inbound_find(sender, token);
        if (in)
            in->may_wait = true;
    }
    post(w, 3, LEN);
    assert_int_equal(calls, 0);
    assert_int_equal(um_proto_peer_of(sender)->batch.count, 3);
}

static void a_batch_waits_for_its_turn(void **state)
{
    struct world w;
    (void)state;
    open_waiting(&w);
    um_core_ep_progress(w.node[1].ep);
    assert_int_equal(calls, 1);
    check(&w, 3, LEN);
    close_counting(&w);
}

/* What follows joins the batch. */
static void a_batch_that_waits_is_filled(void **state)
{
    struct world w;
    (void)state;
    open_waiting(&w);
    recv_buf(&w, 1, NULL, to[3], LEN, 3, 0, UM_OP_TAGGED, CTX(RECV + 3));
    send_buf(&w, 0, 1, from[3], LEN, 3, UM_OP_TAGGED, CTX(SEND + 3));
    um_core_ep_progress(w.node[1].ep);
    assert_int_equal(calls, 1);
    assert_int_equal(batched(&w), 4);
    check(&w, 4, LEN);
    close_counting(&w);
}

static void an_endpoint_closes_with_a_batch(void **state)
{
    struct world w;
    (void)state;
    open_waiting(&w);
    um_proto_inbound_peer_left(w.node[1].ep, peer_of(&w, 1, 0), ECANCELED, 0); /* as closing does */
    um_core_ep_progress(w.node[1].ep);
    assert_int_equal(um_proto_peer_of(peer_of(&w, 1, 0))->batch.count, 0);
    assert_true(um_list_is_empty(&w.node[1].ep->jobs));
    assert_int_equal(calls, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(done_of(&w, 1, CTX(RECV + i)).error, ECANCELED);
    close_counting(&w);
}

/* The announcements and the end of the lane come in one call of progress: what can be read then is read first. */
static void a_sender_that_leaves_ends_its_bodies(void **state)
{
    (void)state;
    for (int is_refused = 0; is_refused < 2; is_refused++) {
        struct world w;
        open_counting(&w);
        refuses_all = is_refused; /* then there is nobody who could be asked for them */
        post(&w, 3, LEN);
        announce(&w, 3, LEN);
        node_close(&w.node[0]);
        for (int i = 0; i < 3; i++)
            assert_int_equal(done_of(&w, 1, CTX(RECV + i)).error, ECONNRESET);
        assert_true(calls > 0);
        node_close(&w.node[1]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_bodies_take_one_call),
        cmocka_unit_test(more_bodies_take_more_calls),
        cmocka_unit_test(a_body_alone_does_not_wait),
        cmocka_unit_test(unexpected_bodies_do_not_wait),
        cmocka_unit_test(short_bodies_do_not_wait_for_long_ones),
        cmocka_unit_test(long_bodies_are_read_by_themselves),
        cmocka_unit_test(a_batch_has_so_many_bytes),
        cmocka_unit_test(a_stream_leaves_other_jobs_their_turn),
        cmocka_unit_test(other_receives_are_served_beside),
        cmocka_unit_test(a_call_that_is_refused_costs_no_body),
        cmocka_unit_test(only_the_body_that_cannot_be_read_fails),
        cmocka_unit_test(each_sender_has_its_batch),
        cmocka_unit_test(a_batch_waits_for_its_turn),
        cmocka_unit_test(a_batch_that_waits_is_filled),
        cmocka_unit_test(an_endpoint_closes_with_a_batch),
        cmocka_unit_test(a_sender_that_leaves_ends_its_bodies),
    };
    return world_main(argc, argv, "batch", tests, sizeof(tests) / sizeof(tests[0]));
}
