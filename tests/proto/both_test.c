/* Bodies that their receiver maps or reads: copied by it alone or by both sides, and by nobody after their end. */
#include "world.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "core/endpoint.h"
#include "machine/mem/mem.h"
#include "machine/sim/sim.h"
#include "proto/both.h"
#include "proto/internal.h"
#include "proto/wire.h"

#include "needs.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum {
    LEN = 20000001,
    LONG = 19000000, /* more than a receiver copies in one call */
};

static unsigned char from[LEN], to[LEN];

/* True if bodies are mapped; else they are read. */
static bool are_mapped(void)
{
    return variant.sim_modes & UM_SIM_SHAREABLE;
}

static bool can_read_bodies(void)
{
    return variant.machine == &um_machine_sim || has_private_copy();
}

/* Only this node makes calls, until it has this number of completions. */
static void alone_until(struct world *w, int node, size_t completions)
{
    for (int i = 0; w->node[node].count < completions; i++) {
        assert_true(i < 1000000);
        um_core_ep_progress(w->node[node].ep);
    }
}

/* Opens two nodes, and the lanes in both directions. */
static void open_lanes(struct world *w)
{
    const uint64_t value = 7;
    world_open(w, 2);
    inject_buf(w, 0, 1, &value, 8, 999, UM_OP_TAGGED);
    inject_buf(w, 1, 0, &value, 8, 999, UM_OP_TAGGED);
    world_settle(w);
}

static void a_sender_that_makes_no_call_is_not_waited_for(void **state)
{
    (void)state;
    needs(can_read_bodies());
    enum { N = 9 }; /* more than there are pairs of progress words */
    struct world w;
    open_lanes(&w);
    for (int i = 0; i < N; i++) {
        fill(from, LEN, (uint32_t)i);
        send_buf(&w, 0, 1, from, LEN, (uint64_t)i, UM_OP_TAGGED, CTX(10 + i));
        size_t before = w.node[1].count;
        recv_buf(&w, 1, NULL, to, LEN, (uint64_t)i, 0, UM_OP_TAGGED, CTX(i + 1));
        alone_until(&w, 1, before + 1);
        assert_int_equal(done_of(&w, 1, CTX(i + 1)).error, 0);
        assert_true(is_filled(to, LEN, (uint32_t)i));
        memset(to, 0x5b, LEN);
        if (i % 2)
            continue; /* so that the sender later finds two invitations at a time */
        world_settle(&w);
        assert_true(is_all(to, LEN, 0x5b)); /* the invitation was late */
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(done_of(&w, 0, CTX(10 + i)).error, 0);
    assert_int_equal(um_core_ep_stats(w.node[1].ep)->joint, 0);
    assert_int_equal(um_core_ep_stats(w.node[1].ep)->mapped, are_mapped() ? N : 0);
    assert_int_equal(um_core_ep_stats(w.node[1].ep)->copied, are_mapped() ? 0 : N);
    world_close(&w);
}

/* What is asked for in vain is read by a transfer. While the sender is not asked because of that, bodies are mapped. */
static void bodies_of_a_sender_that_is_not_asked_are_mapped(void **state)
{
    (void)state;
    enum { N = 60, SHORT = 200000 };
    const enum um_core_bodies usual = variant.bodies;
    struct world w;
    if (!are_mapped())
        return;
    variant.bodies = UM_BODIES_LEARN;
    variant.maps_by_choice = true;
    open_lanes(&w);
    fill(from, SHORT, 1);
    for (int i = 0; i < N; i++) {
        send_buf(&w, 0, 1, from, SHORT, (uint64_t)i, UM_OP_TAGGED, CTX(100 + i));
        size_t before = w.node[1].count;
        recv_buf(&w, 1, NULL, to, SHORT, (uint64_t)i, 0, UM_OP_TAGGED, CTX(i + 1));
        alone_until(&w, 1, before + 1);
        assert_int_equal(done_of(&w, 1, CTX(i + 1)).error, 0);
        assert_true(is_filled(to, SHORT, 1));
        memset(to, 0, SHORT);
    }
    const struct um_core_stats *s = um_core_ep_stats(w.node[1].ep);
    assert_in_range(s->retaken, 1, N / 4);
    assert_int_equal(s->copied, s->retaken);
    assert_int_equal(s->mapped, N - s->retaken);
    for (int i = 0; i < N; i++)
        assert_int_equal(done_of(&w, 0, CTX(100 + i)).error, 0);
    world_close(&w);
    variant.bodies = usual;
    variant.maps_by_choice = false;
}

/*
 * A sender that takes no part in later bodies leaves its progress word as it is. Once all numbers of rounds have been
 * used, a later body would get the number that the word still has.
 */
static void what_a_word_says_of_an_earlier_body_is_not_taken_for_a_later_one(void **state)
{
    (void)state;
    needs(can_read_bodies());
    enum { ROUND = 5, COPIED = 3 };
    struct world w;
    open_lanes(&w);
    struct um_core_peer *peer = peer_of(&w, 1, 0);
    struct um_progress_words *pair = peer->rx->machine->rx_progress(peer->rx);
    um_store_release_u64(&pair->sender, um_proto_claims_word(ROUND, COPIED, COPIED));
    um_proto_peer_of(peer)->round = ROUND - 1;
    fill(from, LEN, 1);
    send_buf(&w, 0, 1, from, LEN, 1, UM_OP_TAGGED, CTX(1));
    const size_t before = w.node[1].count;
    recv_buf(&w, 1, NULL, to, LEN, 1, 0, UM_OP_TAGGED, CTX(2));
    alone_until(&w, 1, before + 1);
    assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
    assert_true(is_filled(to, LEN, 1));
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    world_close(&w);
}

static int copy_result;

static int copy_refused(struct um_mem_port *port, const struct um_addr *addr, const struct um_copy *copy,
                        const struct um_mem_copy_peer *peer)
{
    (void)port, (void)addr, (void)copy, (void)peer;
    return copy_result;
}

/*
 * The test writes the sender's progress word: the sender has claimed a part of a body that the receiver cannot read.
 * The receive ends when the sender has copied that part, and no call waits for that. (What is mapped is copied without
 * a call that can fail; slow transfers have calls of their own.)
 */
static void a_receive_does_not_fail_while_the_sender_writes_into_its_buffer(void **state)
{
    (void)state;
    struct world w;
    if (variant.sim_modes & (UM_SIM_SHAREABLE | UM_SIM_SLOW))
        return;
    open_lanes(&w);
    struct um_core_peer *peer = peer_of(&w, 1, 0);
    struct um_progress_words *pair = peer->rx->machine->rx_progress(peer->rx);
    struct um_mem_port *port = ((struct um_mem_link *)peer->link)->port;
    const struct um_mem_mapper *mapper = port->mapper;
    struct um_mem_mapper refusing = *mapper;
    refusing.copy = copy_refused;
    port->mapper = &refusing;
    copy_result = -EAGAIN;
    send_buf(&w, 0, 1, from, LEN, 1, UM_OP_TAGGED, CTX(1));
    const size_t before = w.node[1].count;
    recv_buf(&w, 1, NULL, to, LEN, 1, 0, UM_OP_TAGGED, CTX(2));
    um_core_ep_progress(w.node[1].ep); /* invites the sender */
    const uint16_t round = (uint16_t)(um_load_acquire_u64(&pair->receiver) >> 48);
    assert_int_not_equal(round, 0);
    um_store_release_u64(&pair->sender, um_proto_claims_word(round, 1, 0));
    copy_result = -EFAULT;
    const uint64_t began = um_clock_ns();
    for (int i = 0; i < 1000; i++)
        um_core_ep_progress(w.node[1].ep);
    assert_true((int64_t)(um_clock_ns() - began) < INT64_C(2000000000));
    assert_int_equal(w.node[1].count, before);
    um_store_release_u64(&pair->sender, um_proto_claims_word(round, 1, 1));
    alone_until(&w, 1, before + 1);
    assert_int_equal(done_of(&w, 1, CTX(2)).error, EFAULT);
    port->mapper = mapper;
    assert_int_equal(done_of(&w, 0, CTX(1)).error, EFAULT);
    world_close(&w);
}

static uint32_t stop;
static uint32_t served; /* calls of progress of the sender's thread */

static void *serve(void *ep)
{
    while (!um_load_acquire_u32(&stop)) {
        um_core_ep_progress(ep);
        um_store_release_u32(&served, served + 1);
        sched_yield();
    }
    return NULL;
}

/* Waits until the sender has made two whole calls of progress. */
static void sender_await(void)
{
    const uint32_t before = um_load_acquire_u32(&served);
    while (um_load_acquire_u32(&served) - before < 3)
        sched_yield();
}

/* Other programs may have the processors: rounds go on until the sender has copied a part of enough bodies. */
static bool another_round(const struct world *w, uint32_t round)
{
    return round < 300 || (round < 3000 && um_core_ep_stats(w->node[1].ep)->joint <= 5);
}

/* Whenever the two make their calls: every byte comes, and none after the end. */
static void both_sides_copy(void **state)
{
    (void)state;
    needs(can_read_bodies());
    struct world w;
    uint64_t seed = 5;
    open_lanes(&w);
    for (uint32_t round = 0; another_round(&w, round); round++) {
        const bool is_long = round % 50 == 0;
        const size_t len = is_long ? LONG + rnd(&seed, LEN - LONG) : 100000 + rnd(&seed, 300000);
        struct iovec piece[2][5];
        cut(from, len, piece[0], 5, &seed);
        cut(to, len, piece[1], 5, &seed);
        fill(from, len, round);
        memset(to, 0, len);
        const struct um_proto_msg send = {.iov = piece[0],
                                          .count = 5,
                                          .peer = peer_of(&w, 0, 1),
                                          .context = CTX(1),
                                          .flags = UM_OP_TAGGED | UM_OP_DELIVERY};
        send_msg(&w, 0, &send);
        const struct um_proto_msg receive = {.iov = piece[1], .count = 5, .context = CTX(2), .flags = UM_OP_TAGGED};
        assert_int_equal(um_proto_recv(w.node[1].ep, &receive), 0);
        pthread_t sender;
        um_store_release_u32(&stop, 0);
        assert_int_equal(pthread_create(&sender, NULL, serve, w.node[0].ep), 0);
        for (uint32_t i = rnd(&seed, 200); untaken(&w, 1) == 0; i++) {
            um_core_ep_progress(w.node[1].ep);
            if (is_long) /* else, with few processors, the sender seldom runs in the middle of a body */
                sender_await();
            else if (i % 200 == 0)
                sched_yield();
        }
        if (round % 2)
            assert_true(is_filled(to, len, round));
        for (size_t i = 0; i < len; i += 1000) /* while the sender goes on */
            to[i] = 0x5b;
        um_store_release_u32(&stop, 1);
        pthread_join(sender, NULL);
        assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
        for (size_t i = 0; i < len; i += 1000)
            assert_int_equal(to[i], 0x5b);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    }
    assert_true(um_core_ep_stats(w.node[1].ep)->joint > 5);
    world_close(&w);
}

/* The test acts as the receiver, which has claimed all parts except `left`. The sender copies these, and no more. */
static void the_sender_gives_way(void **state)
{
    (void)state;
    needs(can_read_bodies());
    enum { SHIFT = 15, PARTS = (LEN + (1 << SHIFT) - 1) >> SHIFT };
    for (uint32_t left = 0; left < 3; left++) {
        struct world w;
        struct um_slot slot;
        open_lanes(&w);
        fill(from, LEN, left);
        memset(to, 0x5b, LEN);
        send_buf(&w, 0, 1, from, LEN, 1, UM_OP_TAGGED, CTX(1));
        const struct um_core_peer *peer = peer_of(&w, 1, 0);
        const struct um_machine *machine = peer->rx->machine;
        um_store_release_u64(&machine->rx_progress(peer->rx)[0].receiver, um_proto_claims_word(7, PARTS - left, 0));
        while (machine->claim(peer->lane, 0, &slot) != 0)
            um_core_ep_progress(w.node[0].ep);
        *(struct um_proto_invite_wire *)slot.header =
            (struct um_proto_invite_wire){.token = UM_TOKENS,
                                          .round = 7,
                                          .shift = SHIFT,
                                          .count = 1,
                                          .shareable = are_mapped(),
                                          .piece = {(uint64_t)(uintptr_t)to, LEN}};
        machine->commit(peer->lane, &slot, UM_WIRE_INVITE, 0, 0);
        for (int i = 0; i < 1000; i++)
            um_core_ep_progress(w.node[0].ep);
        const size_t front = left ? (size_t)(PARTS - left) << SHIFT : LEN;
        assert_true(is_all(to, front, 0x5b));
        assert_memory_equal(to + front, from + front, LEN - front);
        const uint64_t word = um_load_acquire_u64(&machine->rx_progress(peer->rx)[0].sender);
        assert_int_equal(word, um_proto_claims_word(7, left, left));
        recv_buf(&w, 1, NULL, to, LEN, 1, 0, UM_OP_TAGGED, CTX(2)); /* the sender is invited only once */
        assert_int_equal(done_of(&w, 1, CTX(2)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_true(is_filled(to, LEN, left));
        world_close(&w);
    }
}

/* A receive that is too short takes what fits. Each of several bodies at a time has progress words of its own. */
static void many_bodies_at_a_time(void **state)
{
    (void)state;
    enum { N = 12, EACH = 200000 };
    struct world w;
    unsigned char *many_to = malloc((size_t)N * EACH);
    open_lanes(&w);
    fill(from, LEN, 3);
    for (int i = 0; i < N; i++)
        recv_buf(&w, 1, NULL, many_to + (size_t)i * EACH, i == 5 ? EACH / 2 : EACH, (uint64_t)i, 0, UM_OP_TAGGED,
                 CTX(i + 1));
    for (int i = 0; i < N; i++)
        send_buf(&w, 0, 1, from + i, EACH, (uint64_t)i, UM_OP_TAGGED, CTX(100 + i));
    for (int i = 0; i < N; i++) {
        assert_int_equal(done_of(&w, 1, CTX(i + 1)).error, i == 5 ? EMSGSIZE : 0);
        assert_memory_equal(many_to + (size_t)i * EACH, from + i, i == 5 ? EACH / 2 : EACH);
        assert_int_equal(done_of(&w, 0, CTX(100 + i)).error, 0);
    }
    world_close(&w);
    free(many_to);
}

/* Sends a body that its receiver cannot read now, and writes the sender's word: a part of it has been claimed. */
static void body_begin_claimed(struct world *w, uint32_t number)
{
    const struct um_core_peer *peer = peer_of(w, 1, 0);
    struct um_progress_words *pair = peer->rx->machine->rx_progress(peer->rx) + number;
    const uint64_t before = um_load_acquire_u64(&pair->receiver);
    send_buf(w, 0, 1, from, LEN, number, UM_OP_TAGGED, CTX(number + 10));
    recv_buf(w, 1, NULL, to, LEN, number, 0, UM_OP_TAGGED, CTX(number + 1));
    um_core_ep_progress(w->node[1].ep); /* invites the sender */
    const uint64_t word = um_load_acquire_u64(&pair->receiver);
    assert_int_not_equal(word, before);
    um_store_release_u64(&pair->sender, um_proto_claims_word((uint16_t)(word >> 48), 1, 0));
}

/*
 * Whatever its words say, a sender that has closed its lane copies nothing any more; nor is a call of its receiver held
 * up by one that broke the protocol.
 */
static void a_sender_that_has_left_is_not_waited_for(void **state)
{
    enum { BODIES = 3 };
    (void)state;
    if (variant.sim_modes & (UM_SIM_SHAREABLE | UM_SIM_SLOW))
        return;
    for (int breaks = 0; breaks < 2; breaks++) {
        struct world w;
        struct um_slot slot;
        open_lanes(&w);
        struct um_mem_port *port = ((struct um_mem_link *)peer_of(&w, 1, 0)->link)->port;
        const struct um_mem_mapper *mapper = port->mapper;
        struct um_mem_mapper refusing = *mapper;
        refusing.copy = copy_refused;
        port->mapper = &refusing;
        copy_result = -EAGAIN;
        for (uint32_t i = 0; i < BODIES; i++)
            body_begin_claimed(&w, i);
        const struct um_core_peer *peer = peer_of(&w, 0, 1);
        if (breaks) {
            assert_int_equal(peer->lane->machine->claim(peer->lane, 0, &slot), 0);
            peer->lane->machine->commit(peer->lane, &slot, UM_OPCODES, 0, 0);
        } else {
            um_core_peer_lose(peer_of(&w, 0, 1), 0);
        }
        const uint64_t began = um_clock_ns();
        alone_until(&w, 1, w.node[1].count + BODIES);
        for (uint32_t i = 0; i < BODIES; i++)
            assert_int_equal(done_of(&w, 1, CTX(i + 1)).error, breaks ? EPROTO : ECONNRESET);
        assert_true((int64_t)(um_clock_ns() - began) < INT64_C(2000000000));
        port->mapper = mapper;
        world_close(&w);
    }
}

/*
 * A sender that closes does not wait for a receiver that computes: it gives the body up, and its program uses the
 * memory again. The receiver finds the announcement before the end of the lane. (The sender gives up here at once,
 * without the five seconds for which the end of an endpoint waits.)
 */
static void a_body_that_its_sender_has_given_up_is_lost(void **state)
{
    static const size_t lens[] = {100000, LONG}; /* copied by the receiver alone, and by both */
    (void)state;
    if (!are_mapped())
        return;
    for (int i = 0; i < 2; i++) {
        struct world w;
        open_lanes(&w);
        for (int round = 0; round < 2; round++) { /* in the first one the receiver maps the memory */
            fill(from, LEN, 1);
            send_buf(&w, 0, 1, from, lens[i], 1, UM_OP_TAGGED, CTX(1));
            if (round == 1)
                um_core_peer_lose(peer_of(&w, 0, 1), 0);
            if (round == 1)
                fill(from, LEN, 2);
            recv_buf(&w, 1, NULL, to, LEN, 1, 0, UM_OP_TAGGED, CTX(2));
            alone_until(&w, 1, w.node[1].count + 1);
            assert_int_equal(done_of(&w, 1, CTX(2)).error, round == 1 ? ECONNRESET : 0);
            assert_int_equal(done_of(&w, 0, CTX(1)).error, round == 1 ? ECONNRESET : 0);
        }
        world_close(&w);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_sender_that_makes_no_call_is_not_waited_for),
    cmocka_unit_test(bodies_of_a_sender_that_is_not_asked_are_mapped),
    cmocka_unit_test(what_a_word_says_of_an_earlier_body_is_not_taken_for_a_later_one),
    cmocka_unit_test(a_receive_does_not_fail_while_the_sender_writes_into_its_buffer),
    cmocka_unit_test(both_sides_copy),
    cmocka_unit_test(the_sender_gives_way),
    cmocka_unit_test(many_bodies_at_a_time),
    cmocka_unit_test(a_body_that_its_sender_has_given_up_is_lost),
    cmocka_unit_test(a_sender_that_has_left_is_not_waited_for),
};
WORLD_MAIN("both", tests)
