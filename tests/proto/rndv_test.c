/* Rendezvous and pressure: any number of bodies that nobody receives yet, buffer lists, full lanes, delivery. */
#include "world.h"

#include "machine/sim/sim.h"
#include "proto/internal.h"

#include "needs.h"

#include <time.h>

#define CTX(n) ((void *)(uintptr_t)(n))

/* Only this node makes calls, with pauses between them, until it has this number of completions. */
static void alone_until(struct world *w, int node, size_t completions)
{
    const struct timespec pause = {.tv_nsec = 50000};
    for (int i = 0; w->node[node].count < completions; i++) {
        assert_true(i < 200000);
        um_core_ep_progress(w->node[node].ep);
        nanosleep(&pause, NULL);
    }
}

/* Sends bodies that nobody receives yet. They take memory and nothing else: none of them delays another one's match. */
static void unmatched_bodies_have_no_bound(struct world *w, int from, int to, int count, unsigned char *body)
{
    enum { LEN = 70000 };
    for (int i = 0; i < count; i++) {
        struct iovec iov = {.iov_base = body, .iov_len = LEN};
        struct um_proto_msg msg = {.iov = &iov,
                                   .count = 1,
                                   .peer = peer_of(w, from, to),
                                   .tag = (uint64_t)i,
                                   .context = CTX(i + 1),
                                   .flags = UM_OP_TAGGED};
        send_msg(w, from, &msg);
    }
}

static void many_unmatched_bodies_are_received_in_any_order(void **state)
{
    (void)state;
    enum { LEN = 70000 };
    const int n = (int)many(1000);
    struct world w;
    unsigned char *body = malloc(LEN), *got = malloc(LEN);
    fill(body, LEN, 1);
    for (int order = 0; order < 3; order++) {
        world_open(&w, 2);
        unmatched_bodies_have_no_bound(&w, 0, 1, n, body);
        unmatched_bodies_have_no_bound(&w, 1, 0, n, body);
        for (int i = 0; i < n; i++) {
            uint64_t tag = (uint64_t)(order == 0 ? i : order == 1 ? n - 1 - i : i * 7 % n);
            for (int node = 0; node < 2; node++) {
                memset(got, 0, LEN);
                recv_buf(&w, node, NULL, got, LEN, tag, 0, UM_OP_TAGGED, CTX(n + 1));
                assert_int_equal(done_of(&w, node, CTX(n + 1)).error, 0);
                assert_true(is_filled(got, LEN, 1));
                assert_int_equal(done_of(&w, 1 - node, CTX(tag + 1)).error, 0);
            }
        }
        world_close(&w);
    }
    free(body);
    free(got);
}

/*
 * A sender takes no answers: all its bodies are received nevertheless. Later it gets hundreds of answers without a call
 * of the receiver, and the others with the next calls of the receiver.
 */
static void answers_that_find_no_place_come_later(void **state)
{
    (void)state;
    enum { PLACES = 960, N = PLACES + 300, LEN = 70000 };
    struct world w;
    unsigned char *body = malloc(LEN), *got = malloc(LEN);
    if (!variant.private_copy || variant.stall_percent) {
        free(body);
        free(got);
        return; /* the sender has to make calls for every body */
    }
    fill(body, LEN, 1);
    world_open(&w, 2);
    unmatched_bodies_have_no_bound(&w, 0, 1, N, body);
    for (int i = 0; i < N; i++) {
        recv_buf(&w, 1, NULL, got, LEN, (uint64_t)i, 0, UM_OP_TAGGED, CTX(i + 1));
        for (int k = 0; k < 100 && untaken(&w, 1) == 0; k++)
            um_core_ep_progress(w.node[1].ep);
        assert_int_equal(done_of(&w, 1, CTX(i + 1)).error, 0);
    }
    alone_until(&w, 0, PLACES / 2); /* a body that was asked for and then read takes two places */
    for (int i = 0; i < N; i++)
        assert_int_equal(done_of(&w, 0, CTX(i + 1)).error, 0);
    world_close(&w);
    free(body);
    free(got);
}

/* A token is in use until its answer is sent, however long that finds no place. */
static void a_token_whose_answer_is_due_is_not_used_again(void **state)
{
    (void)state;
    enum { N = 960 + 1, LEN = 70000 };
    struct world w;
    struct um_slot slot;
    if (!variant.private_copy || variant.stall_percent || variant.second ||
        (variant.machine != &um_machine_sim && variant.machine != &um_machine_shm))
        return; /* as above; or bodies are read by a key */
    needs(variant.machine == &um_machine_sim || has_private_copy());
    unsigned char *body = malloc(LEN), *got = malloc(LEN);
    fill(body, LEN, 1);
    world_open(&w, 2);
    unmatched_bodies_have_no_bound(&w, 0, 1, N, body);
    const size_t before = w.node[1].count;
    for (int i = 0; i < N; i++)
        recv_buf(&w, 1, NULL, got, LEN, (uint64_t)i, 0, UM_OP_TAGGED, CTX(i + 1));
    alone_until(&w, 1, before + N);
    const struct um_list *due = um_list_first(&um_proto_peer_of(peer_of(&w, 1, 0))->due);
    assert_non_null(due);
    struct um_lane *lane = peer_of(&w, 0, 1)->lane;
    assert_int_equal(lane->machine->claim(lane, 0, &slot), 0);
    *(struct um_proto_rts_wire *)slot.header =
        (struct um_proto_rts_wire){.tag = N,
                                   .total = LEN,
                                   .token = UM_CONTAINER(due, struct um_proto_inbound, due)->token,
                                   .count = 1,
                                   .piece = {(uintptr_t)body, LEN}};
    lane->machine->commit(lane, &slot, UM_WIRE_RTS, UM_WIRE_TAGGED, 0);
    for (int i = 0; i < 1000; i++)
        um_core_ep_progress(w.node[1].ep);
    assert_int_equal(um_core_ep_stats(w.node[1].ep)->peers_lost, 1);
    world_close(&w);
    free(body);
    free(got);
}

static void lists_of_1_to_32_buffers_on_both_sides_carry_every_size(void **state)
{
    (void)state;
    struct world w;
    uint64_t r = 4711;
    const size_t counts[] = {1, 2, 3, 4, 5, 8, 17, 32};
    const size_t lens[] = {0, 30, 40, 500, 5000, 16384, 17000, 200000, 2 * MIB + 5};
    static unsigned char from[2 * MIB + 5], to[2 * MIB + 5 + 64];
    world_open(&w, 2);
    for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++) {
        for (size_t c = 0; c < 8 * 8; c++) {
            struct iovec out[32], in[32];
            size_t len = lens[l];
            if (len > 100000 && c % 9)
                continue;
            fill(from, len, (uint32_t)c);
            memset(to, 0, len + 64);
            cut(from, len, out, counts[c % 8], &r);
            cut(to, len, in, counts[c / 8], &r);
            struct um_proto_msg send = {.iov = out,
                                        .count = counts[c % 8],
                                        .peer = peer_of(&w, 0, 1),
                                        .tag = 1,
                                        .context = CTX(1),
                                        .flags = UM_OP_TAGGED};
            struct um_proto_msg recv = {
                .iov = in, .count = counts[c / 8], .tag = 1, .context = CTX(2), .flags = UM_OP_TAGGED};
            bool late = rnd(&r, 2);
            if (!late)
                assert_int_equal(um_proto_recv(w.node[1].ep, &recv), 0);
            send_msg(&w, 0, &send);
            if (late) {
                world_progress(&w);
                world_progress(&w);
                assert_int_equal(um_proto_recv(w.node[1].ep, &recv), 0);
            }
            memset(out, 0xff, sizeof(out)); /* the lists are the caller's again, the buffers are not */
            memset(in, 0xff, sizeof(in));
            struct um_core_completion got = done_of(&w, 1, CTX(2));
            assert_int_equal(got.error, 0);
            assert_int_equal(got.len, len);
            assert_true(is_filled(to, len, (uint32_t)c));
            assert_true(is_all(to + len, 64, 0));
            assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        }
    }
    world_close(&w);
}

/* Lists on both sides, cut anywhere, with room for a part of the message: that part comes, and nothing behind it. */
static void lists_that_are_too_short_take_what_fits(void **state)
{
    (void)state;
    enum { LEN = 1500001 };
    static unsigned char from[LEN], to[LEN + 64];
    const size_t lens[] = {7, 40, 41, 700, 5000, 16384, 16385, 70000, 300000, LEN};
    struct world w;
    uint64_t r = 815;
    world_open(&w, 2);
    for (uint32_t round = 0; round < 10 * many(30); round++) {
        struct iovec out[32], in[32];
        const size_t len = lens[round % 10], some[] = {0, 1, len - 1, rnd(&r, (uint32_t)len), rnd(&r, (uint32_t)len)};
        const size_t room = some[round / 10 % 5], outs = 1 + rnd(&r, 32), ins = 1 + rnd(&r, 32);
        const bool late = rnd(&r, 2);
        fill(from, len, round);
        memset(to, 0, len + 64);
        cut(from, len, out, outs, &r);
        cut(to, room, in, ins, &r);
        const struct um_proto_msg send = {.iov = out,
                                          .count = outs,
                                          .peer = peer_of(&w, 0, 1),
                                          .context = CTX(1),
                                          .flags = UM_OP_TAGGED | (rnd(&r, 2) ? UM_OP_DELIVERY : 0)};
        const struct um_proto_msg recv = {.iov = in, .count = ins, .context = CTX(2), .flags = UM_OP_TAGGED};
        if (!late)
            assert_int_equal(um_proto_recv(w.node[1].ep, &recv), 0);
        send_msg(&w, 0, &send);
        for (uint32_t k = rnd(&r, 4); late && k > 0; k--)
            world_progress(&w);
        if (late)
            assert_int_equal(um_proto_recv(w.node[1].ep, &recv), 0);
        const struct um_core_completion got = done_of(&w, 1, CTX(2));
        assert_int_equal(got.error, EMSGSIZE);
        assert_int_equal(got.len, room);
        assert_int_equal(got.olen, len - room);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_true(is_filled(to, room, round));
        assert_true(is_all(to + room, len + 64 - room, 0));
    }
    world_close(&w);
}

static void delivery_completes_only_after_the_message_was_taken(void **state)
{
    (void)state;
    struct world w;
    static unsigned char from[100000], to[100000];
    const size_t lens[] = {8, 500, 12000, 100000};
    world_open(&w, 2);
    for (size_t i = 0; i < 4; i++) {
        send_buf(&w, 0, 1, from, lens[i], 1, UM_OP_TAGGED | UM_OP_DELIVERY, CTX(1));
        for (int k = 0; k < 2000; k++)
            um_core_ep_progress(w.node[0].ep); /* the receiver makes no progress: it cannot have taken it */
        assert_int_equal(untaken(&w, 0), 0);
        recv_buf(&w, 1, NULL, to, lens[i], 1, 0, UM_OP_TAGGED, CTX(2));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
    }
    world_close(&w);
}

/* Both only send until neither can; then both only make progress: everything drains. */
static void two_full_lanes_facing_each_other_drain(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[16384], to[2][16384];
    const size_t lens[] = {8, 700, 9000, 16384};
    world_open(&w, 2);
    fill(body, sizeof(body), 1);
    for (int i = 0; i < 2; i++) { /* opens the lanes: until then every message is refused */
        inject_buf(&w, i, 1 - i, body, 8, 999, UM_OP_TAGGED);
        recv_buf(&w, 1 - i, NULL, to[0], 8, 999, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 1 - i, CTX(1)).error, 0);
    }
    for (size_t l = 0; l < 4; l++) {
        uint32_t sent[2] = {0, 0}, refused[2] = {0, 0};
        while (refused[0] < 40 || refused[1] < 40) {
            for (int i = 0; i < 2; i++) {
                int ret = um_proto_inject(w.node[i].ep, peer_of(&w, i, 1 - i), body, lens[l], sent[i], 0, UM_OP_TAGGED);
                assert_true(ret == 0 || ret == 1 || ret == -EAGAIN);
                sent[i] += ret >= 0;
                refused[i] += ret == -EAGAIN;
            }
        }
        assert_true(sent[0] > 2 && sent[1] > 2);
        world_settle(&w);
        for (int i = 0; i < 2; i++) {
            for (uint32_t k = 0; k < sent[1 - i]; k++) {
                recv_buf(&w, i, NULL, to[i], sizeof(to[i]), k, 0, UM_OP_TAGGED, CTX(k + 1));
                assert_int_equal(done_of(&w, i, CTX(k + 1)).len, lens[l]);
                assert_true(is_filled(to[i], lens[l], 1));
            }
        }
    }
    world_close(&w);
}

/* Bodies far larger than the lanes, by rendezvous both ways at once: each side needs credit for what it pushes while it
 * takes what the other side pushes. */
static void bodies_in_both_directions_at_once_drain(void **state)
{
    (void)state;
    enum { N = 12, LEN = 700001 };
    struct world w;
    unsigned char *from = malloc((size_t)2 * N * LEN), *to = malloc((size_t)2 * N * LEN);
    world_open(&w, 2);
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < 2; i++) {
            size_t at = ((size_t)k * 2 + (size_t)i) * LEN;
            fill(from + at, LEN, (uint32_t)(k * 2 + i));
            send_buf(&w, i, 1 - i, from + at, LEN, (uint64_t)k, UM_OP_TAGGED, CTX(100 + k));
        }
    }
    for (int k = N; k-- > 0;) {
        for (int i = 0; i < 2; i++)
            recv_buf(&w, 1 - i, NULL, to + ((size_t)k * 2 + (size_t)i) * LEN, LEN, (uint64_t)k, 0, UM_OP_TAGGED,
                     CTX(k + 1));
    }
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < 2; i++) {
            assert_int_equal(done_of(&w, 1 - i, CTX(k + 1)).error, 0);
            assert_true(is_filled(to + ((size_t)k * 2 + (size_t)i) * LEN, LEN, (uint32_t)(k * 2 + i)));
            assert_int_equal(done_of(&w, i, CTX(100 + k)).error, 0);
        }
    }
    world_close(&w);
    free(from);
    free(to);
}

/* More senders than the receiver has lanes: the others get -EAGAIN, and a lane when a sender leaves. */
static void a_sender_without_a_lane_gets_one_when_another_leaves(void **state)
{
    (void)state;
    struct world w;
    uint32_t lanes = variant.lanes_max, value = 7;
    if (variant.second)
        return; /* each machine has lanes of its own: here no receiver meets more senders than lanes */
    variant.lanes_max = 3;
    world_open(&w, 5);
    for (int i = 1; i <= 3; i++)
        inject_buf(&w, i, 0, &value, 4, (uint64_t)i, UM_OP_TAGGED);
    assert_int_equal(um_proto_inject(w.node[4].ep, peer_of(&w, 4, 0), &value, 4, 4, 0, UM_OP_TAGGED), -EAGAIN);
    world_settle(&w);
    assert_int_equal(um_proto_inject(w.node[4].ep, peer_of(&w, 4, 0), &value, 4, 4, 0, UM_OP_TAGGED), -EAGAIN);
    node_close(&w.node[2]);
    inject_buf(&w, 4, 0, &value, 4, 4, UM_OP_TAGGED);
    for (uint64_t tag = 1; tag <= 4; tag++) {
        value = 0;
        recv_buf(&w, 0, NULL, &value, 4, tag, 0, UM_OP_TAGGED, CTX(tag));
        assert_int_equal(done_of(&w, 0, CTX(tag)).error, 0);
        assert_int_equal(value, 7);
    }
    world_close(&w);
    variant.lanes_max = lanes;
}

/* ---- bodies that their receiver could read, and asks for ---- */

static enum um_core_bodies usual;

/* Opens a world in which each body is asked for. False: the machine does not have both ways. */
static bool world_open_asking(struct world *w)
{
    usual = variant.bodies;
    if (!variant.machine->either_way || variant.second || !variant.private_copy ||
        (variant.sim_modes & UM_SIM_SHAREABLE))
        return false;
    needs(variant.machine == &um_machine_sim || has_private_copy());
    variant.bodies = UM_BODIES_PUSH;
    world_open(w, 2);
    return true;
}

static void world_close_asking(struct world *w)
{
    world_close(w);
    variant.bodies = usual;
}

static void a_sender_that_makes_no_call_holds_nobody_up(void **state)
{
    (void)state;
    enum { N = 20, LEN = 1500000 };
    struct world w;
    if (!world_open_asking(&w))
        return;
    unsigned char *from = malloc(LEN), *to = malloc((size_t)N * LEN);
    fill(from, LEN, 3);
    for (int k = 0; k < N; k++)
        send_buf(&w, 0, 1, from, LEN, (uint64_t)k, UM_OP_TAGGED, CTX(100 + k));
    size_t before = w.node[1].count;
    for (int k = 0; k < N; k++) {
        recv_buf(&w, 1, NULL, to + (size_t)k * LEN, LEN, (uint64_t)k, 0, UM_OP_TAGGED, CTX(k + 1));
        alone_until(&w, 1, before + (size_t)k + 1);
        assert_int_equal(done_of(&w, 1, CTX(k + 1)).error, 0);
        assert_true(is_filled(to + (size_t)k * LEN, LEN, 3));
    }
    const struct um_core_stats *s = um_core_ep_stats(w.node[1].ep);
    assert_true(s->retaken >= 1 && s->retaken <= N / 4); /* the sender is asked less and less often */
    assert_int_equal(s->copied, N);
    for (int k = 0; k < N; k++)
        assert_int_equal(done_of(&w, 0, CTX(100 + k)).error, 0);
    world_close_asking(&w);
    free(from);
    free(to);
}

/* The parts come behind so many small messages that the receiver has read the body before it sees the first part. */
static void parts_of_a_body_that_was_taken_back_are_dropped(void **state)
{
    (void)state;
    enum { SMALL = 300, LEN = 200000 };
    struct world w;
    if (!world_open_asking(&w))
        return;
    static unsigned char from[2][LEN], to[2][LEN];
    const uint64_t value = 7;
    fill(from[0], LEN, 1);
    fill(from[1], LEN, 2);
    for (int round = 0; round < 3; round++) {
        memset(to, 0, sizeof(to));
        inject_buf(&w, 0, 1, &value, 8, 999, UM_OP_TAGGED); /* opens the lanes */
        inject_buf(&w, 1, 0, &value, 8, 999, UM_OP_TAGGED);
        world_settle(&w);
        recv_buf(&w, 1, NULL, to[0], LEN, 1, 0, UM_OP_TAGGED, CTX(1));
        send_buf(&w, 0, 1, from[0], LEN, 1, UM_OP_TAGGED, CTX(3));
        size_t before = w.node[1].count;
        um_core_ep_progress(w.node[1].ep); /* asks, unless the machine stalls */
        for (int k = 0; k < SMALL; k++)
            inject_buf(&w, 0, 1, &value, 8, 5, UM_OP_TAGGED);
        um_core_ep_progress(w.node[0].ep); /* is asked, and pushes */
        alone_until(&w, 1, before + 1);
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_true(is_filled(to[0], LEN, 1));
        assert_int_equal(done_of(&w, 0, CTX(3)).error, 0);
        /* The token is used again, behind the parts. */
        recv_buf(&w, 1, NULL, to[1], LEN, 2, 0, UM_OP_TAGGED, CTX(2));
        send_buf(&w, 0, 1, from[1], LEN, 2, UM_OP_TAGGED, CTX(4));
        assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(4)).error, 0);
        assert_true(is_filled(to[1], LEN, 2));
    }
    assert_true(um_core_ep_stats(w.node[1].ep)->retaken >= 1 || variant.stall_percent);
    assert_int_equal(um_core_ep_stats(w.node[1].ep)->peers_lost, 0);
    world_close_asking(&w);
}

/* Posts a receive and sends it a body, which is asked for: now only its sender's calls move it. */
static void body_ask_for(struct world *w, int to, void *buf, const void *body, size_t len, uint64_t tag)
{
    recv_buf(w, to, NULL, buf, len, tag, 0, UM_OP_TAGGED, CTX(tag));
    send_buf(w, 0, to, body, len, tag, UM_OP_TAGGED, CTX(tag));
    for (int i = 0; i < 10; i++)
        um_core_ep_progress(w->node[to].ep);
}

/* Many bodies wait for credit of one peer, more than a call of progress looks at; that of another peer has credit. */
static void a_body_that_can_move_keeps_its_sender_awake(void **state)
{
    (void)state;
    enum { STUCK = 80, LEN = 400000 };
    struct world w;
    unsigned char *body = malloc(LEN), *got = malloc((size_t)LEN * (STUCK + 1));
    if (variant.machine != &um_machine_shm || variant.private_copy || variant.second) {
        free(body);
        free(got);
        return; /* the others read bodies, or move more in a call than a lane holds */
    }
    fill(body, LEN, 1);
    world_open(&w, 3);
    for (int i = 0; i < STUCK; i++)
        body_ask_for(&w, 1, got + (size_t)i * LEN, body, LEN, (uint64_t)i + 1);
    for (int i = 0; i < 10000; i++)
        um_core_ep_progress(w.node[0].ep); /* fills the lane */
    body_ask_for(&w, 2, got + (size_t)STUCK * LEN, body, LEN, STUCK + 1);
    um_core_ep_progress(w.node[0].ep); /* takes the answer, and looks at some of the bodies */
    assert_int_equal(um_core_ep_arm(w.node[0].ep), -EAGAIN);
    for (int i = 0; i <= STUCK; i++) {
        assert_int_equal(done_of(&w, i == STUCK ? 2 : 1, CTX(i + 1)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(i + 1)).error, 0);
        assert_true(is_filled(got + (size_t)i * LEN, LEN, 1));
    }
    world_close(&w);
    free(body);
    free(got);
}

/* Returns how much of the first bodies of a peer has moved. */
static uint64_t moved_of(struct um_core_peer *peer, uint32_t bodies)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < bodies; i++) {
        const struct um_proto_inbound *in = um_proto_inbound_find(peer, UM_TOKENS + i);
        sum += in ? in->moved : 0;
    }
    return sum;
}

/* Messages of other peers come in between. */
static void a_call_of_progress_moves_a_part_of_the_bodies(void **state)
{
    (void)state;
    enum { BODIES = 3, LEN = 16 * MIB, STEP = 2 * MIB };
    struct world w;
    if (variant.bodies != UM_BODIES_PUSH)
        return;
    needs(variant.machine == &um_machine_sim || has_private_copy());
    unsigned char *body = malloc(LEN), *got = malloc(LEN * BODIES);
    fill(body, LEN, 1);
    world_open(&w, 2);
    struct um_core_peer *peer = peer_of(&w, 1, 0);
    um_proto_peer_of(peer)->asked.is_unreadable = true; /* so that they are read */
    for (int i = 0; i < BODIES; i++) {
        recv_buf(&w, 1, NULL, got + (size_t)i * LEN, LEN, 1, 0, UM_OP_TAGGED, CTX(i));
        send_buf(&w, 0, 1, body, LEN, 1, UM_OP_TAGGED, CTX(i));
    }
    for (int i = 0; !um_proto_inbound_find(peer, UM_TOKENS + BODIES - 1); i++) {
        assert_true(i < 1000);
        um_core_ep_progress(w.node[1].ep);
    }
    for (int i = 0; i < 2 * BODIES; i++) {
        const uint64_t moved = moved_of(peer, BODIES);
        const uint32_t turns = w.node[1].ep->turns; /* a call that looks at the clock makes two */
        um_core_ep_progress(w.node[1].ep);
        assert_in_range(moved_of(peer, BODIES) - moved, 1, (w.node[1].ep->turns - turns) * STEP);
    }
    for (int i = 0; i < BODIES; i++) {
        assert_int_equal(done_of(&w, 1, CTX(i)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(i)).error, 0);
        assert_true(is_filled(got + (size_t)i * LEN, LEN, 1));
    }
    world_close(&w);
    free(body);
    free(got);
}

/* What was known of the peer ends with the route by which it was reached: the next body may take another way, this one
 * not. */
static void a_change_of_route_leaves_a_body_that_moves_as_it_is(void **state)
{
    (void)state;
    enum { LEN = 60 * MIB /* more than is read in a few calls */ };
    struct world w;
    if (variant.bodies != UM_BODIES_PUSH)
        return;
    needs(variant.machine == &um_machine_sim || has_private_copy());
    unsigned char *body = malloc(LEN), *got = malloc(LEN);
    fill(body, LEN, 1);
    world_open(&w, 2);
    struct um_core_peer *peer = peer_of(&w, 1, 0);
    um_proto_peer_of(peer)->asked.is_unreadable = true; /* so the body is not asked for, and yet it is read */
    recv_buf(&w, 1, NULL, got, LEN, 1, 0, UM_OP_TAGGED, CTX(1));
    send_buf(&w, 0, 1, body, LEN, 1, UM_OP_TAGGED, CTX(1));
    const struct um_proto_inbound *in = NULL;
    for (int i = 0; !in || in->moved == 0; i++) {
        assert_true(i < 1000);
        um_core_ep_progress(w.node[1].ep);
        in = um_proto_inbound_find(peer, UM_TOKENS);
    }
    w.node[1].ep->protocols->peer_rerouted(peer);
    assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    assert_true(is_filled(got, LEN, 1));
    world_close(&w);
    free(body);
    free(got);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_sender_that_makes_no_call_holds_nobody_up),
    cmocka_unit_test(parts_of_a_body_that_was_taken_back_are_dropped),
    cmocka_unit_test(many_unmatched_bodies_are_received_in_any_order),
    cmocka_unit_test(answers_that_find_no_place_come_later),
    cmocka_unit_test(a_token_whose_answer_is_due_is_not_used_again),
    cmocka_unit_test(lists_of_1_to_32_buffers_on_both_sides_carry_every_size),
    cmocka_unit_test(lists_that_are_too_short_take_what_fits),
    cmocka_unit_test(delivery_completes_only_after_the_message_was_taken),
    cmocka_unit_test(two_full_lanes_facing_each_other_drain),
    cmocka_unit_test(bodies_in_both_directions_at_once_drain),
    cmocka_unit_test(a_sender_without_a_lane_gets_one_when_another_leaves),
    cmocka_unit_test(a_body_that_can_move_keeps_its_sender_awake),
    cmocka_unit_test(a_call_of_progress_moves_a_part_of_the_bodies),
    cmocka_unit_test(a_change_of_route_leaves_a_body_that_moves_as_it_is),
};
WORLD_MAIN("rendezvous", tests)
