/* Peers that die or leave, on the simulated machine; tests/processes does the same with real ones. */
#include "world.h"

#include "machine/mem/mem.h"
#include "machine/sim/sim.h"
#include "proto/internal.h"

#define CTX(n) ((void *)(uintptr_t)(n))

/* Kills the process of node 1, as the others see it, while node 0 has operations pending in every state. */
static void every_operation_pending_on_a_peer_that_dies_ends_in_an_error(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[4 * MIB], to[4 * MIB];
    static uint64_t fetched[2];
    world_open(&w, 3);
    struct um_proto_rma read = {.iov = &(struct iovec){to, 100},
                                .count = 1,
                                .peer = peer_of(&w, 0, 1),
                                .key = 1,
                                .context = CTX(4),
                                .flags = UM_OP_READ};
    send_buf(&w, 1, 0, body, 8, 50, UM_OP_TAGGED, CTX(1)); /* the peer was in contact */
    send_buf(&w, 1, 0, body, sizeof(body), 51, UM_OP_TAGGED, CTX(2));
    world_settle(&w);
    send_buf(&w, 0, 1, body, 8, 1, UM_OP_TAGGED | UM_OP_DELIVERY, CTX(1));
    send_buf(&w, 0, 1, body, sizeof(body), 2, UM_OP_TAGGED, CTX(2));
    rma(&w, 0, &read);
    /* an atomic that fetches; and one so long that it is still being sent, so that another one behind it is refused */
    struct um_proto_atomic atomic = {.operand = body,
                                     .result = fetched,
                                     .peer = read.peer,
                                     .key = 1,
                                     .count = 1,
                                     .type = UM_TYPE_UINT64,
                                     .op = UM_ATOMIC_SUM,
                                     .kind = UM_ATOMIC_FETCH,
                                     .context = CTX(10)};
    assert_int_equal(start_atomic(&w.node[0], &atomic), 0);
    atomic.count = MIB / 8;
    atomic.kind = UM_ATOMIC_BASE;
    atomic.context = CTX(11);
    assert_int_equal(start_atomic(&w.node[0], &atomic), 0);
    assert_int_equal(start_atomic(&w.node[0], &atomic), -EAGAIN);
    recv_buf(&w, 0, peer_of(&w, 0, 1), to, 8, 60, 0, UM_OP_TAGGED, CTX(5));
    recv_buf(&w, 0, peer_of(&w, 0, 2), to + 100, 8, 61, 0, UM_OP_TAGGED, CTX(6));
    um_sim_kill(&w.node[1].addr);
    struct um_core_ep *dead = w.node[1].ep;
    w.node[1].ep = NULL; /* it makes no progress any more */
    for (uintptr_t c = 1; c <= 5; c += c == 2 ? 2 : 1)
        assert_int_equal(done_of(&w, 0, CTX(c)).error, ECONNRESET);
    assert_int_equal(done_of(&w, 0, CTX(10)).error, ECONNRESET);
    assert_int_equal(done_of(&w, 0, CTX(11)).error, ECONNRESET);
    assert_int_equal(start_atomic(&w.node[0], &atomic), -EPIPE);
    /* what the peer committed before can still be received; what it only announced cannot */
    recv_buf(&w, 0, NULL, to, 8, 50, 0, UM_OP_TAGGED, CTX(7));
    assert_int_equal(done_of(&w, 0, CTX(7)).error, 0);
    recv_buf(&w, 0, NULL, to, sizeof(to), 51, 0, UM_OP_TAGGED, CTX(8));
    assert_int_equal(done_of(&w, 0, CTX(8)).error, ECONNRESET);
    assert_int_equal(um_proto_inject(w.node[0].ep, peer_of(&w, 0, 1), body, 8, 1, 0, UM_OP_TAGGED), -EPIPE);
    /* a receive from a peer that is known to be dead ends, too */
    recv_buf(&w, 0, peer_of(&w, 0, 1), to, 8, 62, 0, UM_OP_TAGGED, CTX(9));
    assert_int_equal(done_of(&w, 0, CTX(9)).error, ECONNRESET);
    /* others go on */
    send_buf(&w, 2, 0, body, 8, 61, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(&w, 0, CTX(6)).error, 0);
    world_settle(&w);
    assert_int_equal(untaken(&w, 0), 0);
    w.node[1].ep = dead;
    world_close(&w);
}

/* The owner has the first parts of an operation, and results that its initiator does not take. */
static void an_initiator_that_dies_in_the_middle_of_an_atomic_leaves_nothing(void **state)
{
    (void)state;
    static uint64_t memory[MIB / 8], operand[MIB / 8], result[MIB / 8];
    for (int rounds = 1; rounds < 12; rounds++) {
        struct world w;
        struct um_core_region region = {.key = 1,
                                        .base = (uintptr_t)memory,
                                        .len = sizeof(memory),
                                        .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
        uint32_t value;
        world_open(&w, 2);
        um_core_regions_add(w.node[1].regions, &region);
        struct um_proto_atomic a = {.operand = operand,
                                    .result = result,
                                    .peer = peer_of(&w, 0, 1),
                                    .key = 1,
                                    .count = MIB / 8,
                                    .type = UM_TYPE_UINT64,
                                    .op = UM_ATOMIC_SUM,
                                    .kind = UM_ATOMIC_FETCH};
        assert_int_equal(start_atomic(&w.node[0], &a), 0);
        for (int i = 0; i < rounds; i++)
            world_progress(&w);
        recv_buf(&w, 1, peer_of(&w, 1, 0), &value, 4, 1, 0, UM_OP_TAGGED, CTX(1));
        um_sim_kill(&w.node[0].addr);
        struct um_core_ep *dead = w.node[0].ep;
        w.node[0].ep = NULL;
        assert_int_equal(done_of(&w, 1, CTX(1)).error, ECONNRESET);
        assert_true(um_list_is_empty(&um_proto_peer_of(peer_of(&w, 1, 0))->atomics));
        assert_true(um_list_is_empty(&w.node[1].ep->jobs));
        w.node[0].ep = dead;
        um_core_regions_remove(w.node[1].regions, &region);
        world_close(&w);
    }
}

/* The peer never sent anything, so no lane tells of its end. */
static void a_receive_directed_at_a_silent_peer_ends_when_that_dies(void **state)
{
    (void)state;
    struct world w;
    uint32_t value;
    world_open(&w, 2);
    recv_buf(&w, 0, peer_of(&w, 0, 1), &value, 4, 1, 0, UM_OP_TAGGED, CTX(1));
    assert_true(um_core_ep_sleep_max(w.node[0].ep) > 0);
    um_sim_kill(&w.node[1].addr);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
    world_close(&w);
}

/* The same for operations: the peer has no lane to here whose end could tell of its death. */
static void an_operation_pending_at_a_silent_peer_ends_when_that_dies(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[50000];
    world_open(&w, 2);
    send_buf(&w, 0, 1, body, 8, 1, UM_OP_DELIVERY, CTX(1));
    send_buf(&w, 0, 1, body, sizeof(body), 1, 0, CTX(2));
    um_sim_kill(&w.node[1].addr);
    struct um_core_ep *dead = w.node[1].ep;
    w.node[1].ep = NULL;
    assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, ECONNRESET);
    w.node[1].ep = dead;
    world_close(&w);
}

/* The peer closed in good order, so all its messages have come: a receive that only the peer could fill must end. */
static void a_receive_directed_at_a_peer_that_closed_ends(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 3, got;
    world_open(&w, 2);
    inject_buf(&w, 1, 0, &value, 4, 1, UM_OP_TAGGED);
    world_settle(&w);
    recv_buf(&w, 0, peer_of(&w, 0, 1), &got, 4, 2, 0, UM_OP_TAGGED, CTX(1));
    struct um_core_peer *peer = peer_of(&w, 0, 1);
    node_close(&w.node[1]);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
    recv_buf(&w, 0, peer, &got, 4, 1, 0, UM_OP_TAGGED, CTX(2)); /* what it had sent is there */
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    recv_buf(&w, 0, peer, &got, 4, 3, 0, UM_OP_TAGGED, CTX(3));
    assert_int_equal(done_of(&w, 0, CTX(3)).error, ECONNRESET);
    world_close(&w);
}

/* The acknowledgement had come when the peer was found dead, so the operation succeeded. */
static void what_a_peer_took_before_it_died_was_delivered(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[50000], to[50000];
    world_open(&w, 2);
    for (int large = 0; large < 2; large++) {
        recv_buf(&w, 1, NULL, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(2 + large));
        send_buf(&w, 0, 1, body, large ? sizeof(body) : 8, 1, UM_OP_TAGGED | UM_OP_DELIVERY, CTX(large + 1));
    }
    struct um_core_peer *peer = peer_of(&w, 0, 1);
    for (int i = 0; i < 1000; i++)
        um_core_ep_progress(w.node[1].ep); /* takes both; the sender has not looked yet */
    node_close(&w.node[1]);
    uint32_t value = 1;
    assert_int_equal(um_proto_inject(w.node[0].ep, peer, &value, 4, 1, 0, UM_OP_TAGGED), -EPIPE);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    world_close(&w);
}

/* Free lanes in the middle of the port's lanes must not hide the lanes behind them. */
static void every_sender_learns_that_the_port_closed(void **state)
{
    (void)state;
    enum { N = 90 };
    static struct node sender[N];
    struct node receiver;
    struct um_core_peer *peer[N];
    uint32_t value = 1, lanes = variant.lanes_max;
    variant.lanes_max = 128;
    node_open(&receiver, 8);
    variant.lanes_max = 1;
    for (int i = 0; i < N; i++) {
        node_open(&sender[i], 8);
        assert_int_equal(um_core_peer_get(sender[i].ep, &receiver.addr, &peer[i]), 0);
        assert_int_equal(um_proto_inject(sender[i].ep, peer[i], &value, 4, 1, 0, 0), 0);
    }
    for (int i = 0; i < 100; i++)
        um_core_ep_progress(receiver.ep);
    for (int i = 0; i < 80; i++)
        node_close(&sender[i]);
    for (int i = 0; i < 1000; i++)
        um_core_ep_progress(receiver.ep);
    node_close(&receiver);
    for (int i = 80; i < N; i++) {
        assert_int_equal(um_proto_inject(sender[i].ep, peer[i], &value, 4, 1, 0, 0), -EPIPE);
        node_close(&sender[i]);
    }
    variant.lanes_max = lanes;
}

/* The sender died between its first message and its bell: a receive directed at it gets the message, not the loss. */
static void a_message_without_its_bell_comes_before_the_loss_of_its_sender(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct world w;
        uint32_t value = 5, got = 0;
        world_open(&w, 2);
        struct um_core_peer *sender = peer_of(&w, 1, 0);
        recv_buf(&w, 1, sender, &got, 4, 1, 0, UM_OP_TAGGED, CTX(1));
        inject_buf(&w, 0, 1, &value, 4, 1, UM_OP_TAGGED);
        struct um_mem_port_shm *port = ((struct um_mem_port *)w.node[1].ep->ports[0].port)->shm;
        port->common.bell_summary = 0;
        memset(port->common.bell, 0, sizeof(port->common.bell));
        um_sim_kill(&w.node[0].addr);
        struct um_core_ep *dead = w.node[0].ep;
        w.node[0].ep = NULL;
        um_core_peer_lose(sender, ECONNRESET);
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_int_equal(got, 5);
        w.node[0].ep = dead;
        world_close(&w);
    }
}

/* It committed and died; the receiver checks whether its senders live before it looks at its bells. */
static void a_sender_that_dies_right_after_its_first_message_is_still_heard(void **state)
{
    (void)state;
    for (int rang = 0; rang < 2; rang++) {
        struct world w;
        uint32_t value = 3, got = 0;
        world_open(&w, 2);
        inject_buf(&w, 1, 0, &value, 4, 1, UM_OP_TAGGED);
        um_sim_kill(&w.node[1].addr);
        struct um_mem_port *port = (struct um_mem_port *)w.node[0].ep->ports[0].port;
        if (!rang) { /* it died even before it rang */
            port->shm->common.bell_summary = 0;
            port->shm->common.bell[0] = 0;
        }
        port->port.machine->tick(&port->port);
        recv_buf(&w, 0, NULL, &got, 4, 1, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_int_equal(got, 3);
        world_close(&w);
    }
}

/* There is only the claim of a dead sender: the next sender of the lane must not be taken for that one. */
static void a_claim_whose_claimer_died_before_its_introduction_is_freed(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 6, got = 0;
    world_open(&w, 2);
    struct um_mem_port *port = (struct um_mem_port *)w.node[0].ep->ports[0].port;
    uint64_t *sender = um_mem_lane_sender(port->coherent, 0);
    *sender = UINT64_MAX; /* no process has this word */
    for (uint32_t i = 0; i < port->lanes; i++)
        port->port.machine->tick(&port->port);
    assert_int_equal(*sender, 0);
    inject_buf(&w, 1, 0, &value, 4, 1, UM_OP_TAGGED);
    assert_int_not_equal(*sender, 0);
    recv_buf(&w, 0, NULL, &got, 4, 1, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    assert_int_equal(got, 6);
    world_close(&w);
}

/* The call has long returned, and on success there would be no completion. */
static void an_inject_on_its_way_to_a_peer_that_dies_is_an_error(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[16384];
    uint64_t before = variant.memory_max;
    variant.memory_max = 1; /* the lane cannot take the body, so it goes by rendezvous */
    world_open(&w, 2);
    assert_int_equal(um_proto_inject(w.node[0].ep, peer_of(&w, 0, 1), body, sizeof(body), 1, 0, UM_OP_TAGGED), 1);
    um_sim_kill(&w.node[1].addr);
    struct um_core_completion c = done_of(&w, 0, NULL);
    assert_int_equal(c.error, ECONNRESET);
    assert_true(c.flags & UM_OP_SEND && c.flags & UM_OP_NO_EVENT);
    world_close(&w);
    variant.memory_max = before;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_operation_pending_on_a_peer_that_dies_ends_in_an_error),
    cmocka_unit_test(an_initiator_that_dies_in_the_middle_of_an_atomic_leaves_nothing),
    cmocka_unit_test(a_receive_directed_at_a_silent_peer_ends_when_that_dies),
    cmocka_unit_test(an_operation_pending_at_a_silent_peer_ends_when_that_dies),
    cmocka_unit_test(a_receive_directed_at_a_peer_that_closed_ends),
    cmocka_unit_test(what_a_peer_took_before_it_died_was_delivered),
    cmocka_unit_test(every_sender_learns_that_the_port_closed),
    cmocka_unit_test(a_message_without_its_bell_comes_before_the_loss_of_its_sender),
    cmocka_unit_test(a_sender_that_dies_right_after_its_first_message_is_still_heard),
    cmocka_unit_test(a_claim_whose_claimer_died_before_its_introduction_is_freed),
    cmocka_unit_test(an_inject_on_its_way_to_a_peer_that_dies_is_an_error),
};
WORLD_MAIN("death", tests)
