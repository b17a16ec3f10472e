/* What the protocols rely on in a lane: budgets, acknowledgements, bells, incarnations, and checks of what the receiver
 * writes. */
#include "mem_lane.h"

#include "base/clock.h"
#include "core/endpoint.h"
#include "machine/mem/mem.h"
#include "machine/sim/sim.h"

#include <poll.h>

#define CTX(n) ((void *)(uintptr_t)(n))

static void a_lane_that_ends_gives_its_share_of_memory_back(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[UM_BIG_BODY], to[UM_BIG_BODY];
    variant.memory_max = 2 * UM_AREA_SIZE;
    world_open(&w, 2);
    for (int generation = 0; generation < 10; generation++) {
        inject_buf(&w, 1, 0, body, sizeof(body), 1, UM_OP_TAGGED);
        assert_int_equal(um_core_ep_stats(w.node[1].ep)->rendezvous, 0); /* it could grow */
        recv_buf(&w, 0, NULL, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        node_close(&w.node[1]);
        world_settle(&w);
        node_open(&w.node[1], 64);
    }
    world_close(&w);
    variant.memory_max = 0;
}

static void no_more_lanes_grow_than_the_memory_allows(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[UM_BIG_BODY], to[UM_BIG_BODY];
    variant.memory_max = 2 * UM_AREA_SIZE;
    world_open(&w, 6);
    int eager = 0;
    for (int i = 1; i < 6; i++) {
        inject_buf(&w, i, 0, body, sizeof(body), 1, UM_OP_TAGGED);
        eager += um_core_ep_stats(w.node[i].ep)->rendezvous == 0;
    }
    assert_int_equal(eager, 2);
    for (int i = 1; i < 6; i++) {
        recv_buf(&w, 0, NULL, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    }
    world_close(&w);
    variant.memory_max = 0;
}

enum { LONG = 4096, LONGEST = 16384, LONGS = UM_BIG_BYTES / LONG, MARK = 0xff };

/* Sends a long message from 1 to 0, and marks the place of the next one, which it returns. */
static unsigned char *send_long(struct world *w, uint32_t len, uint32_t tag)
{
    static unsigned char body[LONGEST];
    const struct um_mem_lane *lane = mem_lane(peer_of(w, 1, 0));
    fill(body, len, tag);
    inject_buf(w, 1, 0, body, len, tag, UM_OP_TAGGED);
    unsigned char *next = lane->ring.bytes + (lane->bytes_head & (lane->ring.byte_count - 1));
    memset(next, MARK, len + 1);
    return next;
}

/* Sends a message from 0 to 1, and lets 1 wait for another one. */
static void answer_and_wait(struct world *w)
{
    uint32_t value = 3, to;
    recv_buf(w, 1, NULL, &to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(9));
    inject_buf(w, 0, 1, &value, sizeof(value), 1, UM_OP_TAGGED);
    for (int i = 0; i < 20; i++)
        um_core_ep_progress(w->node[1].ep);
    assert_int_equal(done_of(w, 1, CTX(9)).error, 0);
}

/* Returns how many lines of the place have a byte written, and nothing else. */
static int written(const unsigned char *place, uint32_t len)
{
    int lines = 0;
    for (uint32_t i = 0; i < len; i++) {
        lines += place[i] == 0;
        assert_true(place[i] == MARK || (place[i] == 0 && i % UM_LINE == 0));
    }
    assert_int_equal(place[len], MARK);
    return lines;
}

/* Takes the messages from 1 to 0 with the tags from first to last. */
static void take_longs(struct world *w, uint32_t len, uint32_t first, uint32_t last)
{
    static unsigned char got[LONGEST];
    for (uint32_t tag = first; tag <= last; tag++) {
        recv_buf(w, 0, NULL, got, len, tag, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(w, 0, CTX(1)).error, 0);
        assert_true(is_filled(got, len, tag));
    }
}

/* Opens a world in which the lane from 1 to 0 has grown, by a long message that 0 has not received. Returns the lane.
 */
static struct um_mem_lane *open_grown(struct world *w)
{
    static unsigned char first[LONG];
    world_open(w, 2);
    answer_and_wait(w);
    inject_buf(w, 1, 0, first, LONG, 1u << 20, UM_OP_TAGGED);
    world_settle(w);
    return mem_lane(peer_of(w, 1, 0));
}

static void who_waits_fetches_the_lines_of_its_next_long_body(void **state)
{
    (void)state;
    struct world w;
    struct um_mem_lane *lane = open_grown(&w);
    for (uint32_t i = 0; i < 3; i++) {
        const unsigned char *next = send_long(&w, LONG, i);
        answer_and_wait(&w);
        assert_int_equal(written(next, LONG), LONG / UM_LINE);
        take_longs(&w, LONG, i, i);
    }
    for (uint32_t i = 0; i < 3; i++) { /* in several records */
        const uint32_t head = lane->head;
        const unsigned char *place = send_long(&w, LONGEST, i);
        assert_true(lane->head - head > 1);
        answer_and_wait(&w);
        assert_int_equal(written(place, LONGEST), LONGEST / UM_LINE);
        take_longs(&w, LONGEST, i, i);
    }
    const unsigned char *next = send_long(&w, LONG, 3);
    lane->incarnation++; /* the lane has passed to another sender */
    answer_and_wait(&w);
    lane->incarnation--;
    assert_int_equal(written(next, LONG), 0);
    world_close(&w);
}

/* One poll that finds nothing fetches a part of them, so that an answer that comes meanwhile is soon seen. */
static void the_lines_of_a_longer_message_are_fetched_in_steps(void **state)
{
    enum { STEP = 4096 / UM_LINE };
    (void)state;
    struct world w;
    static unsigned char longest[LONGEST];
    (void)open_grown(&w);
    const unsigned char *place = send_long(&w, LONGEST, 0);
    int lines = 0;
    inject_buf(&w, 0, 1, NULL, 0, 5, UM_OP_TAGGED);
    for (int i = 0; i < 20; i++) {
        um_core_ep_progress(w.node[1].ep);
        assert_in_range(written(place, LONGEST) - lines, 0, STEP);
        lines = written(place, LONGEST);
    }
    assert_int_equal(lines, LONGEST / UM_LINE);
    take_longs(&w, LONGEST, 0, 0);
    place = send_long(&w, LONGEST, 1);
    inject_buf(&w, 0, 1, NULL, 0, 5, UM_OP_TAGGED);
    for (int i = 0; written(place, LONGEST) == 0 && i < 20; i++)
        um_core_ep_progress(w.node[1].ep);
    assert_int_equal(written(place, LONGEST), STEP);
    fill(longest, 1000, 2);
    inject_buf(&w, 1, 0, longest, 1000, 2, UM_OP_TAGGED); /* it takes a part of that place */
    for (int i = 0; i < 20; i++)
        um_core_ep_progress(w.node[1].ep);
    take_longs(&w, LONGEST, 1, 1);
    take_longs(&w, 1000, 2, 2);
    world_close(&w);
}

/* A lane's counts of bytes begin again after 2^32 of them. */
static void what_was_fetched_4_gib_ago_is_forgotten(void **state)
{
    (void)state;
    struct world w;
    struct um_mem_lane *lane = open_grown(&w);
    for (uint32_t i = 0; i < 3; i++) {
        lane->fetched_from = lane->bytes_head + LONG; /* as if they were when that many were sent */
        lane->fetched_len = LONGEST;
        const unsigned char *next = send_long(&w, LONG, i);
        answer_and_wait(&w);
        assert_int_equal(written(next, LONG), LONG / UM_LINE);
        take_longs(&w, LONG, i, i);
    }
    world_close(&w);
}

static void no_more_lines_are_fetched_than_an_eighth_of_a_wide_ring_has(void **state)
{
    (void)state;
    struct world w;
    struct um_mem_lane *lane = open_grown(&w);
    struct um_mem_port *port = lane->link->port;
    for (uint32_t i = 0; i < 2; i++) { /* as if it were the end of a body in records */
        port->long_lane = lane;
        lane->long_goes_on = true;
        lane->long_polls = port->empty_polls;
        port->long_len = UM_WIDE_BYTES / 8 - (i ? 1 : 2 * LONG);
        (void)send_long(&w, LONG, i);
        assert_int_equal(port->long_len, UM_WIDE_BYTES / 8 - (i ? 0 : LONG));
        answer_and_wait(&w);
        take_longs(&w, LONG, i, i);
    }
    world_close(&w);
}

static void a_stream_or_one_that_bypasses_the_caches_fetches_no_lines(void **state)
{
    static const char *const stores[] = {"cached", "nontemporal"};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world w;
        assert_int_equal(um_mem_set_stores(stores[i]), 0);
        (void)open_grown(&w);
        if (i == 0)
            (void)send_long(&w, LONG, 0);
        const unsigned char *next = send_long(&w, LONG, 1);
        answer_and_wait(&w);
        assert_int_equal(written(next, LONG), 0);
        take_longs(&w, LONG, i, 1);
        world_close(&w);
    }
    assert_int_equal(um_mem_set_stores(NULL), 0);
}

static bool would_bypass(struct um_lane *lane, uint32_t len)
{
    struct um_slot slot;
    assert_int_equal(lane->machine->claim(lane, len, &slot), 0);
    lane->machine->abort(lane, &slot);
    return slot.is_nontemporal;
}

/* Also where non-temporal stores are in use for others. */
static void what_was_fetched_takes_ordinary_stores(void **state)
{
    (void)state;
    struct world w;
    struct um_mem_lane *lane = open_grown(&w);
    assert_false(would_bypass(&lane->base, LONG)); /* the choice begins */
    lane->stores.in_use = UM_STORES_NONTEMPORAL;
    lane->stores.bytes_left = UINT64_MAX;
    for (uint32_t i = 0; i < 3; i++) {
        (void)send_long(&w, LONG, i);
        assert_true(would_bypass(&lane->base, LONG));
        answer_and_wait(&w);
        assert_false(would_bypass(&lane->base, LONG));
        assert_true(would_bypass(&lane->base, LONG + UM_LINE));
        take_longs(&w, LONG, i, i);
    }
    const unsigned char *place = send_long(&w, LONGEST, 3);
    answer_and_wait(&w);
    assert_int_equal(written(place, LONGEST), 0); /* only a part of it would be */
    assert_true(would_bypass(&lane->base, LONG));
    take_longs(&w, LONGEST, 3, 3);
    world_close(&w);
}

/* The stores of the one before it, in a stream, wait for their lines. */
static void a_body_of_less_than_4_kib_bypasses_the_caches_only_in_a_stream(void **state)
{
    (void)state;
    struct world w;
    assert_int_equal(um_mem_set_stores("nontemporal"), 0);
    struct um_lane *lane = &open_grown(&w)->base;
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(would_bypass(lane, 2048));
        assert_false(would_bypass(lane, 4095));
        assert_true(would_bypass(lane, 4096));
        (void)send_long(&w, 2048, 2 * i);
        (void)send_long(&w, 2048, 2 * i + 1);
        assert_true(would_bypass(lane, 2048));
        assert_true(would_bypass(lane, 4095));
        answer_and_wait(&w);
        take_longs(&w, 2048, 2 * i, 2 * i + 1);
    }
    world_close(&w);
    assert_int_equal(um_mem_set_stores(NULL), 0);
}

/* Where the next body would lie are bodies that the receiver has not taken. */
static void lines_that_are_not_free_are_not_fetched(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[LONG];
    struct um_slot slot;
    uint32_t sent = 0;
    assert_int_equal(um_mem_set_stores("cached"), 0);
    struct um_lane *lane = &open_grown(&w)->base;
    for (; lane->machine->claim(lane, LONG, &slot) == 0; sent++) {
        lane->machine->abort(lane, &slot);
        fill(body, LONG, sent);
        assert_int_equal(um_proto_inject(w.node[1].ep, peer_of(&w, 1, 0), body, LONG, sent, 0, UM_OP_TAGGED), 0);
        um_core_ep_progress(w.node[1].ep);
    }
    assert_true(sent >= LONGS / 2);
    answer_and_wait(&w);
    take_longs(&w, LONG, 0, sent - 1);
    world_close(&w);
    assert_int_equal(um_mem_set_stores(NULL), 0);
}

static uint32_t body_takes(struct world *w, uint32_t len, uint32_t flags)
{
    static unsigned char body[1024], to[1024];
    struct um_mem_lane *lane = mem_lane(peer_of(w, 1, 0));
    const uint32_t before = lane->bytes_head;
    inject_buf(w, 1, 0, body, len, 1, UM_OP_TAGGED | flags);
    recv_buf(w, 0, NULL, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(w, 0, CTX(1)).error, 0);
    return lane->bytes_head - before;
}

/* In the small byte ring, and in the wide one. */
static void bodies_take_whole_pairs_of_lines(void **state)
{
    (void)state;
    struct world w;
    open_lane(&w);
    for (int ring = 0; ring < 2; ring++) {
        assert_int_equal(body_takes(&w, 40, UM_OP_DATA), 0);
        assert_int_equal(body_takes(&w, 41, UM_OP_DATA), 128);
        assert_int_equal(body_takes(&w, 48, 0), 0);
        assert_int_equal(body_takes(&w, 49, 0), 128);
        assert_int_equal(body_takes(&w, 128, 0), 128);
        assert_int_equal(body_takes(&w, 129, 0), 256);
        stream_bodies(&w, 1, 0);
    }
    world_close(&w);
}

static void an_idle_lane_tells_each_time_what_it_has_consumed(void **state)
{
    (void)state;
    struct world w;
    uint64_t value = 3, to;
    world_open(&w, 2);
    for (int round = 0; round < 3; round++) {
        inject_buf(&w, 1, 0, &value, sizeof(value), 1, UM_OP_TAGGED);
        recv_buf(&w, 0, NULL, &to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        for (int i = 0; i < 300; i++)
            um_core_ep_progress(w.node[0].ep);
        struct um_lane *lane = peer_of(&w, 1, 0)->lane;
        assert_int_equal(lane->machine->lane_consumed(lane), lane->machine->lane_committed(lane));
    }
    world_close(&w);
}

static void a_delivery_is_acknowledged_in_the_call_that_takes_it(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 1;
    world_open(&w, 2);
    inject_buf(&w, 0, 1, &value, 4, 1, 0);
    world_settle(&w);
    for (int i = 0; i < 100; i++) {
        send_buf(&w, 0, 1, &value, 4, 1, UM_OP_DELIVERY, CTX(1));
        um_core_ep_progress(w.node[1].ep);
        um_core_ep_progress(w.node[0].ep);
        assert_int_equal(untaken(&w, 0), 1);
        assert_int_equal(next_of(&w, 0)->error, 0);
    }
    world_close(&w);
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void arm(struct world *w, int node)
{
    int ret;
    while ((ret = um_core_ep_arm(w->node[node].ep)) == -EAGAIN)
        um_core_ep_progress(w->node[node].ep);
    assert_int_equal(ret, 0);
    assert_false(is_readable(um_core_ep_wait_fd(w->node[node].ep)));
}

static void a_sleeper_is_woken_by_every_kind_of_news(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[50000], to[50000];
    world_open(&w, 2);
    int fd0 = um_core_ep_wait_fd(w.node[0].ep), fd1 = um_core_ep_wait_fd(w.node[1].ep);
    for (int round = 0; round < 3; round++) {
        arm(&w, 1);
        assert_int_equal(um_proto_inject(w.node[0].ep, peer_of(&w, 0, 1), body, 8, 1, 0, 0), 0);
        assert_true(is_readable(fd1)); /* the first contact, then messages */
        um_core_ep_disarm(w.node[1].ep);
        world_settle(&w);
    }
    struct iovec iov = {.iov_base = body, .iov_len = 8};
    struct um_proto_msg msg = {.iov = &iov,
                               .count = 1,
                               .peer = peer_of(&w, 0, 1),
                               .tag = 2,
                               .context = CTX(1),
                               .flags = UM_OP_TAGGED | UM_OP_DELIVERY};
    assert_int_equal(um_proto_send(w.node[0].ep, &msg), 0);
    arm(&w, 0);
    for (int i = 0; i < 3; i++)
        um_core_ep_progress(w.node[1].ep);
    assert_true(is_readable(fd0)); /* an acknowledgement */
    um_core_ep_disarm(w.node[0].ep);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    send_buf(&w, 0, 1, body, sizeof(body), 3, UM_OP_TAGGED, CTX(2));
    arm(&w, 0);
    recv_buf(&w, 1, NULL, to, sizeof(to), 3, 0, UM_OP_TAGGED, CTX(3));
    for (int i = 0; i < 10; i++)
        um_core_ep_progress(w.node[1].ep);
    assert_true(is_readable(fd0)); /* an answer */
    um_core_ep_disarm(w.node[0].ep);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    arm(&w, 1);
    um_core_ep_kick(w.node[1].ep);
    assert_true(is_readable(fd1));
    um_core_ep_disarm(w.node[1].ep);
    assert_false(is_readable(fd1));
    world_close(&w);
}

/* The sender was taken for dead (stopped for long, for example), and another one has its lane: it must not write. */
static void a_sender_whose_lane_passed_to_another_is_told(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 4, got = 0;
    world_open(&w, 3);
    inject_buf(&w, 1, 0, &value, 4, 1, UM_OP_TAGGED);
    world_settle(&w);
    struct um_mem_lane *lane = mem_lane(peer_of(&w, 1, 0));
    um_sim_kill(&w.node[1].addr);
    struct um_core_ep *late = w.node[1].ep;
    w.node[1].ep = NULL;
    for (int i = 0; i < 50; i++) {
        um_machine_sim.tick(w.node[0].ep->ports[0].port);
        um_core_ep_progress(w.node[0].ep);
    }
    inject_buf(&w, 2, 0, &value, 4, 2, UM_OP_TAGGED);
    assert_int_equal(mem_lane(peer_of(&w, 2, 0))->number, lane->number);
    struct um_slot slot;
    assert_int_equal(um_mem_claim(&lane->base, 0, &slot), -EPIPE);
    recv_buf(&w, 0, NULL, &got, 4, 2, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    w.node[1].ep = late;
    world_close(&w);
}

static void more_answers_than_there_are_places_end_the_lane(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 4;
    struct um_answer answer;
    world_open(&w, 2);
    inject_buf(&w, 0, 1, &value, 4, 1, UM_OP_TAGGED);
    struct um_mem_lane *lane = mem_lane(peer_of(&w, 0, 1));
    lane->ctl->answers += UM_ANSWERS;
    assert_int_equal(um_mem_lane_reap(&lane->base, &answer, 1), 1);
    lane->ctl->answers += 2;
    assert_int_equal(um_mem_lane_reap(&lane->base, &answer, 1), -EPIPE);
    lane->ctl->answers -= UM_ANSWERS + 1;
    world_close(&w);
}

static void a_credit_for_what_was_never_sent_ends_the_lane(void **state)
{
    (void)state;
    struct world w;
    uint32_t value = 4;
    world_open(&w, 2);
    inject_buf(&w, 0, 1, &value, 4, 1, UM_OP_TAGGED);
    struct um_core_peer *peer = peer_of(&w, 0, 1);
    int ret = 0;
    while (ret == 0) { /* nobody takes them */
        mem_lane(peer)->ctl->credit = mem_lane(peer)->head + 5;
        ret = um_proto_inject(w.node[0].ep, peer, &value, 4, 1, 0, 0);
    }
    assert_int_equal(ret, -EPIPE);
    world_close(&w);
}

/* A sender dies after it took its share of the memory for grown lanes, and before it commits GROW. */
static void a_share_whose_taker_died_comes_back(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[UM_BIG_BODY], to[UM_BIG_BODY];
    uint32_t value = 1;
    variant.memory_max = UM_AREA_SIZE;
    world_open(&w, 3);
    struct um_mem_port_shm *port = ((struct um_mem_port *)w.node[0].ep->ports[0].port)->shm;
    inject_buf(&w, 1, 0, &value, 4, 1, UM_OP_TAGGED);
    inject_buf(&w, 2, 0, &value, 4, 1, UM_OP_TAGGED); /* its own lane, so that it does not take over that of node 1 */
    world_settle(&w);
    uint32_t number = mem_lane(peer_of(&w, 1, 0))->number;
    port->common.grown[number / 64] |= (uint64_t)1 << number % 64;
    um_sim_kill(&w.node[1].addr);
    struct um_core_ep *dead = w.node[1].ep;
    w.node[1].ep = NULL;
    for (int i = 0; i < 50; i++) {
        um_machine_sim.tick(w.node[0].ep->ports[0].port);
        um_core_ep_progress(w.node[0].ep);
    }
    inject_buf(&w, 2, 0, body, sizeof(body), 2, UM_OP_TAGGED);
    assert_int_equal(um_core_ep_stats(w.node[2].ep)->rendezvous, 0); /* it could grow */
    recv_buf(&w, 0, NULL, to, sizeof(to), 2, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    w.node[1].ep = dead;
    world_close(&w);
    variant.memory_max = 0;
}

/* Record 2^32 of a lane has sequence 0, like memory where no record was ever written. */
static void the_number_of_a_record_may_wrap_where_nothing_was_written_yet(void **state)
{
    (void)state;
    struct world w;
    static unsigned char body[UM_BIG_BODY], to[UM_BIG_BODY];
    for (uint32_t before = 1; before < 100; before += 9) {
        world_open(&w, 2);
        struct um_mem_port *port = (struct um_mem_port *)w.node[0].ep->ports[0].port;
        um_mem_lane_ctl(port->memory, 0)->credit = -before; /* the lane goes on from here */
        for (uint32_t i = 0; i < 200; i++) {
            size_t len = i % 7 ? 8 : sizeof(body);
            fill(body, len, i);
            inject_buf(&w, 1, 0, body, len, i, UM_OP_TAGGED);
            if (i % 3 == 0)
                world_settle(&w); /* the receiver looks where no record is yet */
            recv_buf(&w, 0, NULL, to, sizeof(to), i, 0, UM_OP_TAGGED, CTX(1));
            assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
            assert_true(is_filled(to, len, i));
        }
        world_close(&w);
    }
}

/* The receiver checks its senders in turn. However many there are, it notices a death within seconds. */
static void the_death_of_one_of_many_senders_is_noticed_soon(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    static struct node sender[MANY];
    struct world w;
    uint32_t value = 4, got;
    variant.lanes_max = MANY;
    world_open(&w, 1);
    variant.lanes_max = 1;
    for (int i = 0; i < MANY; i++) {
        struct um_core_peer *peer;
        node_open(&sender[i], 64);
        assert_int_equal(um_core_peer_get(sender[i].ep, &w.node[0].addr, &peer), 0);
        assert_int_equal(um_proto_inject(sender[i].ep, peer, &value, 4, 1, 0, UM_OP_TAGGED), 0);
    }
    variant.lanes_max = 0;
    world_settle(&w);
    struct um_mem_port *port = (struct um_mem_port *)w.node[0].ep->ports[0].port;
    port->port.machine->tick(&port->port);
    assert_true(port->tick_next > 0);
    struct um_core_peer *last = port->rx[port->tick_next - 1]->base.user; /* checked just now, so its turn comes last */
    assert_non_null(last);
    recv_buf(&w, 0, last, &got, 4, 2, 0, UM_OP_TAGGED, CTX(1));
    um_sim_kill(&last->addr);
    uint64_t start = um_clock_ns();
    assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
    assert_true(um_clock_ns() - start <
                UINT64_C(5000000000)); /* a fixed number of checks a second would take far longer */
    for (int i = 0; i < MANY; i++)
        node_close(&sender[i]);
    world_close(&w);
}

/* A receiver that always finds a record in one lane makes the idle lanes cold all the same. */
static void a_busy_receiver_stops_looking_at_idle_senders(void **state)
{
    (void)state;
    enum { MANY = 200, MESSAGES = 16000, ROOM = (MESSAGES + 1000) * 8 };
    static struct node sender[MANY];
    static unsigned char inbox[ROOM];
    struct um_core_peer *peer[MANY];
    struct world w;
    uint32_t value = 4;
    variant.lanes_max = MANY;
    world_open(&w, 1);
    variant.lanes_max = 1;
    recv_buf(&w, 0, NULL, inbox, ROOM, 0, 0, UM_OP_MULTI, CTX(1));
    for (int i = 0; i < MANY; i++) {
        node_open(&sender[i], 64);
        assert_int_equal(um_core_peer_get(sender[i].ep, &w.node[0].addr, &peer[i]), 0);
        assert_int_equal(um_proto_inject(sender[i].ep, peer[i], &value, 4, 0, 0, 0), 0);
        um_core_ep_progress(w.node[0].ep);
    }
    variant.lanes_max = 0;
    const struct um_mem_port *port = (struct um_mem_port *)w.node[0].ep->ports[0].port;
    assert_int_equal(port->hot_count, MANY);
    for (uint32_t sent = 0; sent < MESSAGES;) {
        while (um_proto_inject(sender[0].ep, peer[0], &value, 4, 0, 0, 0) == 0) /* more than one call takes */
            sent++;
        um_core_ep_progress(sender[0].ep);
        um_core_ep_progress(w.node[0].ep);
    }
    assert_int_equal(port->hot_count, 1);
    world_settle(&w);
    const uint64_t before = um_core_ep_stats(w.node[0].ep)->traffic[0].received;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(um_proto_inject(sender[i].ep, peer[i], &value, 4, 0, 0, 0), 0);
    world_settle(&w);
    assert_int_equal(um_core_ep_stats(w.node[0].ep)->traffic[0].received, before + MANY);
    for (int i = 0; i < MANY; i++)
        node_close(&sender[i]);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_lane_that_ends_gives_its_share_of_memory_back),
    cmocka_unit_test(no_more_lanes_grow_than_the_memory_allows),
    cmocka_unit_test(who_waits_fetches_the_lines_of_its_next_long_body),
    cmocka_unit_test(the_lines_of_a_longer_message_are_fetched_in_steps),
    cmocka_unit_test(what_was_fetched_4_gib_ago_is_forgotten),
    cmocka_unit_test(no_more_lines_are_fetched_than_an_eighth_of_a_wide_ring_has),
    cmocka_unit_test(lines_that_are_not_free_are_not_fetched),
    cmocka_unit_test(what_was_fetched_takes_ordinary_stores),
    cmocka_unit_test(a_body_of_less_than_4_kib_bypasses_the_caches_only_in_a_stream),
    cmocka_unit_test(a_stream_or_one_that_bypasses_the_caches_fetches_no_lines),
    cmocka_unit_test(bodies_take_whole_pairs_of_lines),
    cmocka_unit_test(an_idle_lane_tells_each_time_what_it_has_consumed),
    cmocka_unit_test(a_delivery_is_acknowledged_in_the_call_that_takes_it),
    cmocka_unit_test(a_sleeper_is_woken_by_every_kind_of_news),
    cmocka_unit_test(a_sender_whose_lane_passed_to_another_is_told),
    cmocka_unit_test(a_share_whose_taker_died_comes_back),
    cmocka_unit_test(the_number_of_a_record_may_wrap_where_nothing_was_written_yet),
    cmocka_unit_test(a_busy_receiver_stops_looking_at_idle_senders),
    cmocka_unit_test(the_death_of_one_of_many_senders_is_noticed_soon),
    cmocka_unit_test(more_answers_than_there_are_places_end_the_lane),
    cmocka_unit_test(a_credit_for_what_was_never_sent_ends_the_lane),
};
WORLD_MAIN("lanes", tests)
