/*
 * Two machines in one endpoint: which peer is reached by which, and what holds over both of them: matching, order,
 * locks, counters, the end of a registration. The far node reaches the owner by the other machine (board or net), the
 * near one by shm: with shm,board because nodes of different parity are in different partitions, with board,shm because
 * the near node alone prefers shm. The locks and counters of the owner are those of shm in both cases.
 */
#include "world.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "core/endpoint.h"
#include "core/window.h"
#include "machine/address.h"
#include "machine/machines.h"

#include <poll.h>
#include <pthread.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { KEY = 5, BOTH = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE, OWNER = 0, FAR = 1, NEAR = 2 };

static void route_open(struct world *w, int nodes)
{
    const struct variant chosen = variant;
    world_open(w, nodes > NEAR && variant.second == &um_machine_shm ? NEAR : nodes);
    if (w->nodes == nodes)
        return;
    variant.machine = chosen.second;
    variant.second = chosen.machine;
    node_open(&w->node[w->nodes++], 64);
    variant = chosen;
}

static const struct um_machine *other_than_shm(void)
{
    return variant.machine == &um_machine_shm ? variant.second : variant.machine;
}

static const struct um_core_traffic *traffic(const struct world *w, int node, const struct um_machine *machine)
{
    const struct um_core_ep *ep = w->node[node].ep;
    return &um_core_ep_stats(ep)->traffic[ep->config.machines.at[0] == machine ? 0 : 1];
}

static void each_peer_is_reached_by_its_machine(void **state)
{
    (void)state;
    struct world w;
    static unsigned char from[100000], to[100000];
    route_open(&w, 3);
    fill(from, sizeof(from), 1);
    for (int i = FAR; i <= NEAR; i++) {
        recv_buf(&w, OWNER, NULL, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(1));
        send_buf(&w, i, OWNER, from, sizeof(from), 1, UM_OP_TAGGED, CTX(2));
        assert_int_equal(done_of(&w, OWNER, CTX(1)).error, 0);
        assert_int_equal(done_of(&w, i, CTX(2)).error, 0);
        assert_true(is_filled(to, sizeof(to), 1));
        memset(to, 0, sizeof(to));
    }
    assert_int_equal(traffic(&w, FAR, &um_machine_shm)->sent, 0);
    assert_int_equal(traffic(&w, FAR, other_than_shm())->bytes_sent, sizeof(from));
    assert_int_equal(traffic(&w, NEAR, &um_machine_shm)->bytes_sent, sizeof(from));
    assert_int_equal(traffic(&w, NEAR, other_than_shm())->sent, 0);
    assert_int_equal(traffic(&w, OWNER, &um_machine_shm)->bytes_received, sizeof(from));
    assert_int_equal(traffic(&w, OWNER, other_than_shm())->bytes_received, sizeof(from));
    world_close(&w);
}

/* Each sender numbers its messages; a receive from any source takes the next one of some sender. */
static void receives_from_anybody_match_over_both_in_the_order_of_each_sender(void **state)
{
    (void)state;
    struct world w;
    const uint32_t messages = many(20000);
    uint32_t sent[3] = {0}, next[3] = {0}, got[2];
    uint64_t random = 7;
    route_open(&w, 3);
    for (uint32_t taken = 0; taken < 2 * messages; taken++) {
        for (int i = FAR; i <= NEAR; i++) {
            for (uint32_t burst = rnd(&random, 5); burst > 0 && sent[i] < messages; burst--) {
                const uint32_t message[2] = {(uint32_t)i, sent[i]};
                if (um_proto_inject(w.node[i].ep, peer_of(&w, i, OWNER), message, sizeof(message), 3, 0,
                                    UM_OP_TAGGED) != 0)
                    break;
                sent[i]++;
            }
        }
        recv_buf(&w, OWNER, NULL, got, sizeof(got), 3, 0, UM_OP_TAGGED, CTX(1));
        while (untaken(&w, OWNER) == 0) { /* the message is still to be sent */
            for (int i = FAR; i <= NEAR; i++) {
                const uint32_t message[2] = {(uint32_t)i, sent[i]};
                if (sent[i] < messages && um_proto_inject(w.node[i].ep, peer_of(&w, i, OWNER), message, sizeof(message),
                                                          3, 0, UM_OP_TAGGED) == 0)
                    sent[i]++;
            }
            world_progress(&w);
        }
        assert_int_equal(done_of(&w, OWNER, CTX(1)).error, 0);
        assert_in_range(got[0], FAR, NEAR);
        assert_int_equal(got[1], next[got[0]]++);
    }
    assert_int_equal(traffic(&w, OWNER, &um_machine_shm)->received, messages);
    assert_int_equal(traffic(&w, OWNER, other_than_shm())->received, messages);
    world_close(&w);
}

/*
 * The stream of the near node never ends, and each call of progress finds a message that it leaves in its lane: one
 * without a receive, behind one that has just completed.
 */
static void a_stream_by_one_machine_holds_up_nobody_on_the_other(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 1, far = 0, got;
    route_open(&w, 3);
    for (int i = FAR; i <= NEAR; i++) { /* first contact */
        recv_buf(&w, OWNER, NULL, &got, 4, 9, 0, UM_OP_TAGGED, CTX(9));
        inject_buf(&w, i, OWNER, &value, 4, 9, UM_OP_TAGGED);
        assert_int_equal(done_of(&w, OWNER, CTX(9)).error, 0);
    }
    recv_buf(&w, OWNER, NULL, &far, 4, 3, 0, UM_OP_TAGGED, CTX(3));
    inject_buf(&w, FAR, OWNER, &value, 4, 3, UM_OP_TAGGED);
    struct um_core_peer *owner = peer_of(&w, NEAR, OWNER);
    for (int i = 0; i < 2000 && far == 0; i++) {
        const struct iovec iov = {&got, 4};
        const struct um_proto_msg receive = {.iov = &iov, .count = 1, .tag = 1, .flags = UM_OP_TAGGED | UM_OP_RECV};
        for (int k = 0; k < 4; k++) /* so many that a call of progress never empties the lane */
            (void)um_proto_inject(w.node[NEAR].ep, owner, &value, 4, (uint64_t)(1 + k % 2), 0, UM_OP_TAGGED);
        assert_int_equal(um_proto_recv(w.node[OWNER].ep, &receive), 0);
        um_core_ep_progress(w.node[OWNER].ep);
    }
    assert_int_equal(far, value);
    world_close(&w);
}

static void a_peer_that_came_first_is_the_one_of_its_address(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 1, got = 0;
    route_open(&w, 2);
    recv_buf(&w, OWNER, NULL, &got, 4, 1, 0, UM_OP_TAGGED, CTX(1));
    inject_buf(&w, FAR, OWNER, &value, 4, 1, UM_OP_TAGGED);
    struct um_core_peer *came = done_of(&w, OWNER, CTX(1)).source;
    struct um_addr addr;
    um_core_peer_addr(came, &addr);
    assert_false(um_addr_has(&um_machine_shm, &addr)); /* ignored: the machine by which it came does not prove it */
    assert_ptr_equal(peer_of(&w, OWNER, FAR), came);
    um_core_peer_addr(came, &addr);
    assert_memory_equal(&addr, &w.node[FAR].addr, sizeof(addr));
    struct um_addr part;
    for (int m = 0; m < 2; m++) {
        assert_true(um_addr_part(variant_machines().at[m], &addr, &part));
        assert_ptr_equal(um_core_peer_find(w.node[OWNER].ep, &part), came);
    }
    world_close(&w);
}

/* The location in an address is a hint: another host may have the same boot id. */
static void an_address_that_does_not_lead_to_its_port_is_reached_by_the_next_machine(void **state)
{
    (void)state;
    struct world w;
    static unsigned char from[100000], to[100000];
    for (int kind = 0; kind < 3; kind++) {
        world_open(&w, 3);
        struct um_addr wrong = w.node[NEAR].addr;
        wrong.word[2] ^= kind == 0;                         /* another port is there */
        wrong.word[1] ^= kind == 1 ? UINT64_C(1) << 32 : 0; /* another descriptor, or none */
        wrong.word[1] ^= kind == 2 ? UINT64_C(1) << 21 : 0; /* another process, or none */
        w.node[NEAR].addr = wrong;
        fill(from, sizeof(from), 1);
        assert_int_equal(um_core_ep_addr_check(w.node[OWNER].ep, &wrong), 0);
        recv_buf(&w, NEAR, NULL, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(1));
        send_buf(&w, OWNER, NEAR, from, sizeof(from), 1, UM_OP_TAGGED, CTX(2));
        assert_int_equal(done_of(&w, NEAR, CTX(1)).error, 0);
        assert_int_equal(done_of(&w, OWNER, CTX(2)).error, 0);
        assert_true(is_filled(to, sizeof(to), 1));
        memset(to, 0, sizeof(to));
        assert_int_equal(traffic(&w, OWNER, &um_machine_shm)->sent, 0);
        assert_int_equal(traffic(&w, OWNER, other_than_shm())->bytes_sent, sizeof(from));
        world_close(&w);
    }
}

/* ---- one domain ---- */

static struct {
    struct world w;
    uint32_t rounds, done;
    double complex_sum[2] __attribute__((aligned(16)));
} wide;

/* Adds to an element of 16 bytes, under a lock. The near node executes it, through its mapping; for the far node the
 * owner does. */
static void *add_wide(void *arg)
{
    const int self = (int)(intptr_t)arg;
    struct node *n = &wide.w.node[self];
    const double one[2] = {1, 2};
    struct um_proto_atomic a = {.operand = one,
                                .peer = peer_of(&wide.w, self, OWNER),
                                .key = KEY,
                                .count = 1,
                                .type = UM_TYPE_DOUBLE_COMPLEX,
                                .op = UM_ATOMIC_SUM,
                                .kind = UM_ATOMIC_BASE};
    for (uint32_t i = 0; i < wide.rounds; i++) {
        while (start_atomic(n, &a) == -EAGAIN)
            um_core_ep_progress(n->ep);
    }
    while (n->count < wide.rounds)
        um_core_ep_progress(n->ep);
    um_rmw_add_u32(&wide.done, 1);
    return NULL;
}

static void wide_atomics_by_both_exclude_each_other(void **state)
{
    (void)state;
    pthread_t thread[2];
    wide.rounds = 20000;
    route_open(&wide.w, 3);
    struct um_core_region region = {
        .key = KEY, .base = (uintptr_t)wide.complex_sum, .len = sizeof(wide.complex_sum), .access = BOTH};
    assert_int_equal(um_core_regions_add(wide.w.node[OWNER].regions, &region), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, add_wide, (void *)(intptr_t)(FAR + i)), 0);
    while (um_load_relaxed_u32(&wide.done) < 2)
        um_core_ep_progress(wide.w.node[OWNER].ep);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    assert_true(wide.complex_sum[0] == 2.0 * wide.rounds);
    assert_true(wide.complex_sum[1] == 4.0 * wide.rounds);
    assert_true(um_core_ep_stats(wide.w.node[NEAR].ep)->mapped == wide.rounds);
    assert_true(um_core_ep_stats(wide.w.node[FAR].ep)->mapped == 0);
    um_core_regions_remove(wide.w.node[OWNER].regions, &region);
    world_close(&wide.w);
}

/* An initiator with a mapped window sees what the owner writes into its locks. */
static void owner_and_mapped_initiators_have_the_same_locks(void **state)
{
    (void)state;
    struct world w;
    static uint64_t word;
    route_open(&w, 3);
    struct um_core_region region = {.key = KEY, .base = (uintptr_t)&word, .len = sizeof(word), .access = BOTH};
    assert_int_equal(um_core_regions_add(w.node[OWNER].regions, &region), 0);
    const struct um_window *window = um_core_window_open(peer_of(&w, NEAR, OWNER), KEY);
    assert_true(window && window->locks);
    struct um_locks_shm *locks = um_core_regions_locks(w.node[OWNER].regions);
    for (int i = 0; i < UM_LOCKS; i++)
        um_store_relaxed_u64(&locks->lock[i].holder, 1000 + (uint64_t)i);
    for (int i = 0; i < UM_LOCKS; i++) {
        assert_int_equal(um_load_relaxed_u64(&window->locks->lock[i].holder), 1000 + i);
        um_store_relaxed_u64(&locks->lock[i].holder, 0);
    }
    um_core_regions_remove(w.node[OWNER].regions, &region);
    world_close(&w);
}

static int put(struct world *w, int from, uint64_t value)
{
    const struct iovec iov = {&value, sizeof(value)};
    struct um_proto_rma op = {
        .iov = &iov, .count = 1, .peer = peer_of(w, from, OWNER), .key = KEY, .flags = UM_OP_WRITE, .context = CTX(1)};
    rma(w, from, &op);
    return done_of(w, from, CTX(1)).error;
}

static void a_counter_has_one_value_and_a_registration_one_end(void **state)
{
    (void)state;
    struct world w;
    static uint64_t word;
    uint32_t number;
    const uint64_t *value;
    route_open(&w, 3);
    assert_int_equal(um_core_regions_counter_open(w.node[OWNER].regions, &number, &value), 0);
    const uint64_t before = um_load_relaxed_u64(value);
    struct um_core_region region = {
        .key = KEY, .base = (uintptr_t)&word, .len = sizeof(word), .access = BOTH, .counters = number};
    assert_int_equal(um_core_regions_add(w.node[OWNER].regions, &region), 0);
    for (int i = FAR; i <= NEAR; i++) {
        assert_int_equal(put(&w, i, (uint64_t)i), 0);
        assert_int_equal(word, i);
    }
    assert_int_equal(um_load_relaxed_u64(value) - before, 2);
    um_core_regions_remove(w.node[OWNER].regions, &region);
    for (int i = FAR; i <= NEAR; i++) {
        assert_int_not_equal(put(&w, i, 99), 0);
        assert_int_equal(word, NEAR);
    }
    um_core_regions_counter_close(w.node[OWNER].regions, number);
    world_close(&w);
}

/* ---- sleeping ---- */

static void either_machine_ends_a_sleep(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 1, got;
    route_open(&w, 3);
    for (int i = FAR; i <= NEAR; i++) { /* first contact */
        recv_buf(&w, OWNER, NULL, &got, 4, 1, 0, UM_OP_TAGGED, CTX(1));
        inject_buf(&w, i, OWNER, &value, 4, 1, UM_OP_TAGGED);
        assert_int_equal(done_of(&w, OWNER, CTX(1)).error, 0);
    }
    for (int round = 0; round < 20; round++) {
        const int from = FAR + round % 2;
        struct pollfd fd = {.fd = um_core_ep_wait_fd(w.node[OWNER].ep), .events = POLLIN};
        while (um_core_ep_arm(w.node[OWNER].ep) != 0)
            world_progress(&w);
        assert_int_equal(poll(&fd, 1, 0), 0);
        inject_buf(&w, from, OWNER, &value, 4, 1, UM_OP_TAGGED);
        for (int i = 0; i < 1000 && poll(&fd, 1, 10) == 0; i++)
            um_core_ep_progress(w.node[from].ep);
        assert_int_equal(poll(&fd, 1, 0), 1);
        um_core_ep_disarm(w.node[OWNER].ep);
        recv_buf(&w, OWNER, NULL, &got, 4, 1, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, OWNER, CTX(1)).error, 0);
    }
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_peer_is_reached_by_its_machine),
    cmocka_unit_test(receives_from_anybody_match_over_both_in_the_order_of_each_sender),
    cmocka_unit_test(a_stream_by_one_machine_holds_up_nobody_on_the_other),
    cmocka_unit_test(a_peer_that_came_first_is_the_one_of_its_address),
    cmocka_unit_test(an_address_that_does_not_lead_to_its_port_is_reached_by_the_next_machine),
    cmocka_unit_test(owner_and_mapped_initiators_have_the_same_locks),
    cmocka_unit_test(wide_atomics_by_both_exclude_each_other),
    cmocka_unit_test(a_counter_has_one_value_and_a_registration_one_end),
    cmocka_unit_test(either_machine_ends_a_sleep),
};
WORLD_MAIN("route", tests)
