/* Messages in segments: when they are sent, and how they arrive. In all variants receivers ask for a push of bodies,
 * and so permit segments. */
#include "world.h"

#include "core/endpoint.h"
#include "machine/mem/mem.h"
#include "proto/internal.h"
#include "proto/receive.h"
#include "proto/wire.h"

#include <errno.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { MOST = UM_SEGMENTED_MAX, MIDDLE = MOST / 2, CLASSES = 6, ALL = (1 << CLASSES) - 1 };

static unsigned char from[MOST + 1], to[MOST + 1];

static uint64_t announced(const struct world *w)
{
    return um_core_ep_stats(w->node[0].ep)->rendezvous;
}

static struct um_proto_peer *receiver_of(struct world *w)
{
    return um_proto_peer_of(peer_of(w, 0, 1));
}

/* Sends a message from node 0 to node 1 and receives it, posted before or later. True if it was announced. */
static bool exchange(struct world *w, size_t len, bool is_posted, uint32_t seed)
{
    const uint64_t before = announced(w);
    fill(from, len, seed);
    memset(to, 0, len);
    if (is_posted)
        recv_buf(w, 1, NULL, to, len, seed, 0, UM_OP_TAGGED, CTX(1));
    world_settle(w); /* the message is alone */
    send_buf(w, 0, 1, from, len, seed, UM_OP_TAGGED, CTX(2));
    if (!is_posted) {
        world_settle(w);
        recv_buf(w, 1, NULL, to, len, seed, 0, UM_OP_TAGGED, CTX(1));
    }
    const struct um_core_completion c = done_of(w, 1, CTX(1));
    assert_int_equal(c.error, 0);
    assert_int_equal(c.len, len);
    assert_int_equal(c.tag, seed);
    assert_true(is_filled(to, len, seed));
    assert_int_equal(done_of(w, 0, CTX(2)).error, 0);
    return announced(w) != before;
}

/* Has the lane from node 0 to node 1 room for the longest message in segments? */
static bool takes_the_longest(struct world *w)
{
    struct um_lane *lane = peer_of(w, 0, 1)->lane;
    return lane->machine->lane_has_room(lane, MOST / UM_BIG_BODY, UM_BIG_BODY);
}

/* Exchanges messages until all sizes may go in segments, and find room. A body that comes late is taken back, and
 * permits nothing. */
static void get_permission(struct world *w)
{
    const size_t len[CLASSES] = {20000, 65535, 65536, MIDDLE - 1, MIDDLE, MOST};
    for (int i = 0; receiver_of(w)->unasked != ALL || !takes_the_longest(w); i++) {
        assert_true(i < 1000);
        (void)exchange(w, len[i % CLASSES], true, 7);
        world_settle(w);
    }
}

static void open_permitted(struct world *w)
{
    world_open(w, 2);
    get_permission(w);
}

static struct um_proto_msg whole(struct world *w, struct iovec *iov, size_t len, uint64_t tag, uint32_t flags)
{
    *iov = (struct iovec){.iov_base = from, .iov_len = len};
    fill(from, len, (uint32_t)tag);
    return (struct um_proto_msg){
        .iov = iov, .count = 1, .peer = peer_of(w, 0, 1), .tag = tag, .context = CTX(2), .flags = UM_OP_TAGGED | flags};
}

static void lone_messages_go_unasked_once_one_was_pushed(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    assert_true(exchange(&w, 20000, true, 1));
    const size_t lens[] = {16385, 20000, 32768, 65535, 65536, MIDDLE - 1, MIDDLE, MIDDLE + 1, MOST - 1, MOST};
    get_permission(&w);
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        for (int is_posted = 0; is_posted < 2; is_posted++) {
            int unasked = 0;
            for (uint32_t n = 1; n <= 20; n++)
                unasked += !exchange(&w, lens[i], is_posted, n);
            assert_true(unasked >= (variant.stall_percent ? 5 : 17));
        }
        assert_true(exchange(&w, MOST + 1, true, 5));
    }
    world_close(&w);
}

/* They look for room beforehand, so no claim ever runs out of it. */
static void a_lane_of_lone_messages_goes_on_in_a_wide_ring(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    for (uint32_t n = 0; n < 600; n++)
        (void)exchange(&w, 20000, true, n);
    const struct um_mem_lane *lane = (const struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    assert_non_null(lane->wide_map.base);
    assert_int_equal(lane->cell.at == NULL, lane->link->port->mapper->observe != NULL);
    world_close(&w);
}

/* The reason for the permission can change, so some messages are announced in spite of it. */
static void some_are_announced_all_the_same(void **state)
{
    (void)state;
    struct world w;
    int count = 0;
    open_permitted(&w);
    for (uint32_t n = 0; n < 600; n++)
        count += exchange(&w, 20000, n % 2, n);
    assert_true(count >= 2);
    if (!variant.stall_percent)
        assert_true(count <= 3);
    world_close(&w);
}

/* Each class is measured apart, so none may be left out for ever. */
static void some_of_each_class_are_announced(void **state)
{
    (void)state;
    struct world w;
    const size_t len[] = {20000, 40000};
    int count[2] = {0};
    open_permitted(&w);
    for (uint32_t n = 0; n < 1100; n++)
        count[n % 2] += exchange(&w, len[n % 2], true, n);
    for (int i = 0; i < 2; i++) {
        assert_true(count[i] >= 2);
        if (!variant.stall_percent)
            assert_true(count[i] <= 3);
    }
    world_close(&w);
}

/* Returns the bytes of the last body that was sent, in the ring or in a cell. */
static uint32_t last_part(const struct um_mem_lane *lane)
{
    const uint64_t word = lane->ring.records[(lane->head - 1) & (lane->ring.record_count - 1)].word;
    const uint32_t len = (uint32_t)(word >> 48);
    return len & UM_LEN_CELL ? (len & UM_LEN_MASK) + 1 : len;
}

/* The receiver copies the last one when all others are there. */
static void segments_are_about_equal(void **state)
{
    (void)state;
    struct world w;
    static const struct {
        size_t len;
        uint32_t last;
    } sizes[] = {{16385, 8065}, {20000, 9888}, {65537, 12801}, {66000, 12752}, {100000, 13984}, {MOST, UM_BIG_BODY}};
    open_permitted(&w);
    const struct um_mem_lane *lane = (const struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int unasked = 0;
        for (uint32_t n = 0; n < 40; n++) {
            if (exchange(&w, sizes[i].len, true, n))
                continue;
            assert_int_equal(last_part(lane), sizes[i].last);
            unasked++;
        }
        assert_true(unasked > 0 || variant.stall_percent);
    }
    world_close(&w);
}

/* The receiver dropped the message, so it was not pushed. */
static void what_is_not_pushed_takes_the_permission_back(void **state)
{
    (void)state;
    struct world w;
    struct iovec iov;
    open_permitted(&w);
    struct um_proto_msg msg = whole(&w, &iov, MIDDLE, 1, UM_OP_MATCH);
    send_msg(&w, 0, &msg);
    world_settle(&w);
    struct um_core_completion found;
    const struct um_proto_msg drop = {.tag = 1, .flags = UM_OP_TAGGED | UM_OP_DISCARD};
    assert_int_equal(um_proto_peek(w.node[1].ep, &drop, &found), 0);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    assert_true(exchange(&w, MIDDLE, true, 2));
    get_permission(&w);
    world_close(&w);
}

/* A message whose size never goes in segments changes no permission, though it is announced (UM_OP_MATCH), pushed or
 * not. */
static void what_would_never_go_in_segments_permits_nothing(void **state)
{
    (void)state;
    const size_t len[] = {0, 8, 16384, MOST + 1};
    for (int is_permitted = 0; is_permitted < 2; is_permitted++) {
        struct world w;
        world_open(&w, 2);
        if (is_permitted)
            get_permission(&w);
        for (size_t i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
            const struct iovec iov = {.iov_base = from, .iov_len = len[i]};
            const struct um_proto_msg msg = {.iov = &iov,
                                             .count = 1,
                                             .peer = peer_of(&w, 0, 1),
                                             .tag = 1,
                                             .context = CTX(2),
                                             .flags = UM_OP_TAGGED | UM_OP_MATCH};
            recv_buf(&w, 1, NULL, to, len[i], 1, 0, UM_OP_TAGGED, CTX(1));
            send_msg(&w, 0, &msg);
            assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
            assert_int_equal(receiver_of(&w)->unasked, is_permitted ? ALL : 0);
        }
        world_close(&w);
    }
}

static void who_must_know_of_the_match_or_is_not_alone_announces(void **state)
{
    (void)state;
    struct world w;
    struct iovec iov;
    open_permitted(&w);
    uint64_t before = announced(&w);
    recv_buf(&w, 1, NULL, to, MOST, 1, 0, UM_OP_TAGGED, CTX(1));
    world_settle(&w);
    struct um_proto_msg msg = whole(&w, &iov, MOST, 1, UM_OP_MATCH);
    send_msg(&w, 0, &msg);
    assert_int_equal(announced(&w), before + 1);
    assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    for (int i = 0; i < 3; i++) {
        recv_buf(&w, 1, NULL, to, MOST, 2, 0, UM_OP_TAGGED, CTX(1 + i));
        world_settle(&w);
    }
    msg = whole(&w, &iov, MOST, 2, 0);
    before = announced(&w);
    for (int i = 0; i < 3; i++) { /* no call of progress in between, unless the lane is stalled */
        msg.context = CTX(10 + i);
        send_msg(&w, 0, &msg);
    }
    if (!variant.stall_percent)
        assert_true(announced(&w) >= before + 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(done_of(&w, 1, CTX(1 + i)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(10 + i)).error, 0);
    }
    world_close(&w);
}

/* They are not worth an announcement each. */
static void short_messages_of_a_stream_go_unasked(void **state)
{
    (void)state;
    struct world w;
    enum { N = 8, LEN = 40000 };
    static unsigned char got[N][LEN];
    open_permitted(&w);
    for (int i = 0; i < N; i++)
        recv_buf(&w, 1, NULL, got[i], LEN, 1, 0, UM_OP_TAGGED, CTX(1 + i));
    world_settle(&w);
    const uint64_t before = announced(&w);
    struct iovec iov;
    struct um_proto_msg msg = whole(&w, &iov, LEN, 1, 0);
    for (int i = 0; i < N; i++) { /* no call of progress in between, unless the lane is stalled */
        msg.context = CTX(100 + i);
        send_msg(&w, 0, &msg);
    }
    if (!variant.stall_percent)
        assert_true(announced(&w) <= before + 1);
    for (int i = 0; i < N; i++) {
        assert_int_equal(done_of(&w, 1, CTX(1 + i)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(100 + i)).error, 0);
        assert_true(is_filled(got[i], LEN, 1));
    }
    world_close(&w);
}

/* The receiver makes no call: what finds no room in the lane is announced, and later refused. */
static void what_finds_no_room_is_announced(void **state)
{
    (void)state;
    struct world w;
    enum { N = 40 };
    open_permitted(&w);
    const uint64_t before = announced(&w);
    int sent = 0;
    struct iovec iov;
    for (uint32_t i = 0; i < N; i++) {
        struct um_proto_msg msg = whole(&w, &iov, MOST, 100, 0);
        msg.context = CTX(100 + i);
        um_core_ep_progress(w.node[0].ep); /* each is alone */
        const int ret = um_proto_send(w.node[0].ep, &msg);
        assert_true(ret == 0 || ret == -EAGAIN);
        sent += ret == 0;
    }
    assert_true(announced(&w) > before);
    for (int i = 0; i < sent; i++) {
        memset(to, 0, MOST);
        recv_buf(&w, 1, NULL, to, MOST, 100, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_true(is_filled(to, MOST, 100));
    }
    world_close(&w);
}

/* Above a quarter of the bound on unexpected messages, messages are announced, and bodies stay with the sender. */
static void many_that_nobody_receives_are_announced(void **state)
{
    (void)state;
    static const size_t lens[] = {40000, MIDDLE}; /* shorter and longer than UM_ANNOUNCED_MIN */
    enum { BOUND = 2 * MIB, N = 100 };
    struct world w;
    variant.unexpected_max = BOUND;
    open_permitted(&w);
    variant.unexpected_max = 0;
    for (int round = 0; round < 4; round++) {
        const size_t len = lens[round % 2];
        const uint64_t before = announced(&w);
        for (uint32_t n = 0; n < N; n++) {
            world_settle(&w);
            fill(from, len, 3);
            send_buf(&w, 0, 1, from, len, 3, UM_OP_TAGGED, CTX(2));
        }
        world_settle(&w);
        assert_true(um_proto_ep_of(w.node[1].ep)->receive->kept < BOUND / 2);
        assert_true(announced(&w) - before > N - BOUND / len / 2);
        for (uint32_t n = 0; n < N; n++) {
            memset(to, 0, sizeof(to));
            recv_buf(&w, 1, NULL, to, len, 3, 0, UM_OP_TAGGED, CTX(1));
            assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
            assert_true(is_filled(to, len, 3));
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
        }
        int unasked = 0;
        for (uint32_t n = 1; n <= 20; n++)
            unasked += !exchange(&w, len, true, n);
        assert_true(unasked >= 5);
    }
    world_close(&w);
}

static void delivery_is_told_when_the_last_segment_is_taken(void **state)
{
    (void)state;
    struct world w;
    struct iovec iov;
    open_permitted(&w);
    for (uint64_t n = 1; n <= 20; n++) {
        struct um_proto_msg msg = whole(&w, &iov, MOST, n, UM_OP_DELIVERY);
        const uint64_t before = announced(&w);
        world_settle(&w);
        send_msg(&w, 0, &msg);
        if (announced(&w) == before) {
            for (int i = 0; i < 100; i++)
                um_core_ep_progress(w.node[0].ep);
            assert_int_equal(untaken(&w, 0), 0);
        }
        recv_buf(&w, 1, NULL, to, MOST, n, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
        assert_true(is_filled(to, MOST, (uint32_t)n));
    }
    world_close(&w);
}

/* Lists of pieces on both sides, receives that are too short, and several messages into one multi-receive buffer. */
static void buffers_of_all_kinds(void **state)
{
    (void)state;
    struct world w;
    uint64_t seed = 3;
    open_permitted(&w);
    for (uint32_t n = 1; n <= 60; n++) {
        const size_t len = 16385 + rnd(&seed, MOST - 16385), room = n % 3 ? len : rnd(&seed, (uint32_t)len);
        struct iovec piece[2][6];
        fill(from, len, n);
        memset(to, 0x5b, sizeof(to));
        cut(from, len, piece[0], 6, &seed);
        cut(to, room, piece[1], 6, &seed);
        const struct um_proto_msg send = {
            .iov = piece[0], .count = 6, .peer = peer_of(&w, 0, 1), .tag = n, .context = CTX(2), .flags = UM_OP_TAGGED};
        const struct um_proto_msg receive = {
            .iov = piece[1], .count = 6, .tag = n, .context = CTX(1), .flags = UM_OP_TAGGED};
        if (n % 2)
            assert_int_equal(um_proto_recv(w.node[1].ep, &receive), 0);
        world_settle(&w);
        send_msg(&w, 0, &send);
        if (n % 2 == 0) {
            world_settle(&w);
            assert_int_equal(um_proto_recv(w.node[1].ep, &receive), 0);
        }
        const struct um_core_completion c = done_of(&w, 1, CTX(1));
        assert_int_equal(c.error, room < len ? EMSGSIZE : 0);
        assert_int_equal(c.len, room);
        assert_int_equal(c.olen, len - room);
        assert_memory_equal(to, from, room);
        assert_true(is_all(to + room, sizeof(to) - room, 0x5b));
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    enum { ROOM = 400000 };
    unsigned char *multi = malloc(ROOM);
    const struct iovec all = {.iov_base = multi, .iov_len = ROOM};
    const struct um_proto_msg receive = {.iov = &all, .count = 1, .context = CTX(1), .flags = UM_OP_MULTI};
    assert_int_equal(um_proto_recv(w.node[1].ep, &receive), 0);
    for (uint32_t n = 1; n <= 5; n++) {
        fill(from, 50000, n);
        world_settle(&w);
        send_buf(&w, 0, 1, from, 50000, 0, 0, CTX(2));
        const struct um_core_completion c = done_of(&w, 1, CTX(1));
        assert_int_equal(c.error, 0);
        assert_int_equal(c.len, 50000);
        assert_true(is_filled(c.buf, 50000, n));
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    world_close(&w);
    free(multi);
}

/* ---- messages that fit into one record ---- */

/* Sends a message from node 0 to node 1, alone or right behind another one. Returns the records that it took. */
static uint32_t records_of(struct world *w, size_t len, bool is_injected, bool is_alone, uint32_t seed)
{
    const struct um_lane *lane = peer_of(w, 0, 1)->lane;
    fill(from, len, seed);
    if (is_alone)
        world_settle(w);
    const uint32_t before = lane->machine->lane_committed(lane);
    if (is_injected)
        inject_buf(w, 0, 1, from, len, seed, UM_OP_TAGGED);
    else
        send_buf(w, 0, 1, from, len, seed, UM_OP_TAGGED, CTX(2));
    return lane->machine->lane_committed(lane) - before;
}

static void receive(struct world *w, size_t len, uint32_t seed)
{
    memset(to, 0x5b, sizeof(to));
    recv_buf(w, 1, NULL, to, len, seed, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(w, 1, CTX(1)).error, 0);
    assert_true(is_filled(to, len, seed));
    assert_true(is_all(to + len, sizeof(to) - len, 0x5b));
}

/* The lane has grown, and does not go on in a wide ring: each of these takes a record. */
static void open_grown(struct world *w)
{
    world_open(w, 2);
    (void)exchange(w, 16384, true, 1);
    ((struct um_mem_lane *)peer_of(w, 0, 1)->lane)->widen_tried = true;
}

static void a_long_message_that_is_alone_goes_in_parts_of_8_KiB(void **state)
{
    static const struct {
        size_t len;
        uint32_t parts;
    } sizes[] = {{8192, 1}, {14000, 1}, {UM_SPLIT_MIN - 1, 1}, {UM_SPLIT_MIN, 2}};
    (void)state;
    struct world w;
    open_grown(&w);
    for (uint32_t n = 0; n < 4 * sizeof(sizes) / sizeof(sizes[0]); n++) {
        const size_t len = sizes[n / 4].len;
        const bool is_injected = n & 1, is_posted = n & 2;
        const uint64_t before = um_core_ep_stats(w.node[0].ep)->eager;
        if (is_posted)
            recv_buf(&w, 1, NULL, to, len, n, 0, UM_OP_TAGGED, CTX(1));
        const uint32_t records = records_of(&w, len, is_injected, true, n);
        if (!variant.stall_percent)
            assert_int_equal(records, sizes[n / 4].parts);
        assert_int_equal(um_core_ep_stats(w.node[0].ep)->eager, before + 1);
        if (is_posted) {
            assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
            assert_true(is_filled(to, len, n));
        } else {
            world_settle(&w);
            receive(&w, len, n);
        }
        if (!is_injected)
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    world_close(&w);
}

/* So does one for whose parts there is no room. */
static void a_long_message_behind_another_one_goes_in_one_record(void **state)
{
    enum { LEN = 16384 };
    (void)state;
    struct world w;
    open_grown(&w);
    for (uint32_t n = 0; n < 20; n++) {
        (void)records_of(&w, LEN, n % 2, true, 100);
        const uint32_t records = records_of(&w, LEN, n % 2, false, 101);
        if (!variant.stall_percent)
            assert_int_equal(records, 1);
        receive(&w, LEN, 100);
        receive(&w, LEN, 101);
        for (int i = 0; n % 2 == 0 && i < 2; i++)
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    const struct um_mem_lane *lane = (const struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    uint32_t sent = 0;
    for (int ret = 0; ret == 0; sent += ret == 0) { /* the receiver makes no call */
        const uint32_t head = lane->head, bytes_head = lane->bytes_head;
        fill(from, LEN, 102);
        um_core_ep_progress(w.node[0].ep);
        ret = um_proto_inject(w.node[0].ep, peer_of(&w, 0, 1), from, LEN, 102, 0, UM_OP_TAGGED);
        assert_true(ret == 0 || ret == -EAGAIN);
        const uint32_t left = lane->ring.byte_count - (bytes_head - lane->bytes_consumed);
        if (ret == 0 && !variant.stall_percent)
            assert_int_equal(lane->head - head, left >= 3 * LEN / 2 ? 2 : 1);
    }
    assert_true(sent >= 2 || variant.stall_percent);
    for (; sent; sent--)
        receive(&w, LEN, 102);
    world_close(&w);
}

static bool wants_ack(const struct um_mem_lane *lane, uint32_t number)
{
    return lane->ring.records[number & (lane->ring.record_count - 1)].word >> 40 & UM_FLAG_ACK;
}

static void a_message_in_parts_tells_of_its_delivery_when_the_last_one_is_taken(void **state)
{
    (void)state;
    struct world w;
    struct iovec iov;
    open_grown(&w);
    const struct um_mem_lane *lane = (const struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    for (uint64_t n = 1; n <= 20; n++) {
        const struct um_proto_msg msg = whole(&w, &iov, 16384, n, UM_OP_DELIVERY);
        world_settle(&w);
        const uint32_t first = lane->head;
        send_msg(&w, 0, &msg);
        for (uint32_t i = first; i != lane->head; i++)
            assert_int_equal(wants_ack(lane, i), i + 1 == lane->head);
        for (int i = 0; i < 100; i++)
            um_core_ep_progress(w.node[0].ep);
        assert_int_equal(untaken(&w, 0), 0);
        receive(&w, 16384, (uint32_t)n);
        assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    }
    world_close(&w);
}

/* A receiver that holds its senders gets nothing; one that wants announcements gets it in one record. */
static void a_long_message_goes_in_no_parts_that_its_receiver_does_not_want(void **state)
{
    enum { LEN = 16384 };
    (void)state;
    struct world w;
    open_grown(&w);
    struct um_rx *rx = peer_of(&w, 1, 0)->rx;
    const struct um_machine *machine = peer_of(&w, 0, 1)->lane->machine;
    machine->rx_announce(rx, true);
    assert_int_equal(records_of(&w, LEN, true, true, 1), 1);
    receive(&w, LEN, 1);
    assert_int_equal(records_of(&w, LEN, false, true, 2), 1);
    receive(&w, LEN, 2);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    machine->rx_announce(rx, false);
    machine->rx_hold(rx, true);
    world_settle(&w);
    fill(from, LEN, 3);
    assert_int_equal(um_proto_inject(w.node[0].ep, peer_of(&w, 0, 1), from, LEN, 3, 0, UM_OP_TAGGED), -EAGAIN);
    machine->rx_hold(rx, false);
    const uint32_t records = records_of(&w, LEN, true, true, 3);
    if (!variant.stall_percent)
        assert_int_equal(records, 2);
    receive(&w, LEN, 3);
    world_close(&w);
}

/* ---- the tests commit the sender's records themselves: it stops between two segments ---- */

static void claim_commit(struct world *w, uint8_t op, const void *header, size_t header_len, const void *body,
                         uint32_t len)
{
    struct um_lane *lane = peer_of(w, 0, 1)->lane;
    struct um_slot slot;
    int ret;
    while ((ret = lane->machine->claim(lane, len, &slot)) == -EAGAIN)
        um_core_ep_progress(w->node[0].ep);
    assert_int_equal(ret, 0);
    memcpy(slot.header, header, header_len);
    memcpy(slot.body, body, len);
    lane->machine->commit(lane, &slot, op, UM_WIRE_TAGGED, len);
}

static void first_by_hand(struct world *w, uint64_t tag, uint32_t total, uint32_t len)
{
    const struct um_proto_first_wire header = {.tag = tag, .data = 0, .total = total};
    fill(from, sizeof(from), (uint32_t)tag);
    claim_commit(w, UM_WIRE_FIRST, &header, sizeof(header), from, len);
}

static void next_by_hand(struct world *w, uint32_t offset, uint32_t len)
{
    const struct um_proto_next_wire header = {.offset = offset};
    claim_commit(w, UM_WIRE_NEXT, &header, sizeof(header), from + offset, len);
}

enum { TOTAL = 40000, PART = 10000 };

static void a_receive_takes_over_what_has_begun_to_come(void **state)
{
    (void)state;
    struct world w;
    open_permitted(&w);
    for (uint32_t before = 1; before <= 4; before++) {
        memset(to, 0, sizeof(to));
        first_by_hand(&w, before, TOTAL, PART);
        for (uint32_t i = 1; i < before; i++)
            next_by_hand(&w, i * PART, PART);
        world_settle(&w);
        recv_buf(&w, 1, NULL, to, TOTAL, before, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(untaken(&w, 1), before == 4);
        for (uint32_t i = before; i < 4; i++) {
            next_by_hand(&w, i * PART, PART);
            world_settle(&w);
            assert_int_equal(untaken(&w, 1), i == 3);
        }
        assert_int_equal(done_of(&w, 1, CTX(1)).error, 0);
        assert_true(is_filled(to, TOTAL, before));
    }
    world_close(&w);
}

/* The same for a receive with room for only a part of the message. */
static void a_receive_that_is_too_short_takes_over(void **state)
{
    (void)state;
    struct world w;
    open_permitted(&w);
    for (uint32_t room = 0; room < TOTAL; room += 5000) {
        for (uint32_t before = 1; before <= 3; before++) {
            memset(to, 0x5b, sizeof(to));
            first_by_hand(&w, 9, TOTAL, PART);
            for (uint32_t i = 1; i < before; i++)
                next_by_hand(&w, i * PART, PART);
            world_settle(&w);
            recv_buf(&w, 1, NULL, to, room, 9, 0, UM_OP_TAGGED, CTX(1));
            for (uint32_t i = before; i < 4; i++) {
                next_by_hand(&w, i * PART, PART);
                world_settle(&w);
            }
            const struct um_core_completion c = done_of(&w, 1, CTX(1));
            assert_int_equal(c.error, EMSGSIZE);
            assert_int_equal(c.len, room);
            assert_memory_equal(to, from, room);
            assert_true(is_all(to + room, sizeof(to) - room, 0x5b));
        }
    }
    world_close(&w);
}

static void peeked(struct world *w, uint32_t flags, void *context, bool is_there)
{
    struct um_core_completion found;
    const struct um_proto_msg msg = {.tag = 9, .context = context, .flags = UM_OP_TAGGED | flags};
    assert_int_equal(um_proto_peek(w->node[1].ep, &msg, &found), is_there ? 0 : -ENOMSG);
    if (is_there)
        assert_int_equal(found.len, TOTAL);
}

/* A peek reports, drops or reserves a message that has not completely come. */
static void a_peek_finds_what_has_begun_to_come(void **state)
{
    (void)state;
    struct world w;
    open_permitted(&w);
    for (int how = 0; how < 4; how++) {
        memset(to, 0, sizeof(to));
        first_by_hand(&w, 9, TOTAL, PART);
        world_settle(&w);
        peeked(&w, 0, NULL, true);
        struct iovec iov = {.iov_base = to, .iov_len = TOTAL};
        struct um_proto_msg claim = {
            .iov = &iov, .count = 1, .tag = 9, .context = CTX(5), .flags = UM_OP_TAGGED | UM_OP_CLAIM};
        if (how == 0) {
            peeked(&w, UM_OP_DISCARD, NULL, true);
        } else {
            peeked(&w, UM_OP_CLAIM, CTX(5), true);
            claim.flags |= how == 1 ? UM_OP_DISCARD : 0;
            if (how < 3)
                assert_int_equal(um_proto_recv(w.node[1].ep, &claim), 0);
        }
        peeked(&w, 0, NULL, false);
        static unsigned char own[16000];
        fill(own, sizeof(own), 3);
        inject_buf(&w, 1, 1, own, sizeof(own), 8, UM_OP_TAGGED); /* may take the memory of what was dropped */
        world_settle(&w);
        for (uint32_t i = 1; i < 4; i++)
            next_by_hand(&w, i * PART, PART);
        world_settle(&w);
        if (how == 3)
            assert_int_equal(um_proto_recv(w.node[1].ep, &claim), 0);
        if (how > 0)
            assert_int_equal(done_of(&w, 1, CTX(5)).error, 0);
        if (how > 1)
            assert_true(is_filled(to, TOTAL, 9));
        else
            assert_true(is_all(to, TOTAL, 0));
        memset(own, 0, sizeof(own));
        recv_buf(&w, 1, NULL, own, sizeof(own), 8, 0, UM_OP_TAGGED, CTX(6));
        assert_int_equal(done_of(&w, 1, CTX(6)).error, 0);
        assert_true(is_filled(own, sizeof(own), 3));
        assert_int_equal(untaken(&w, 1), 0);
        assert_int_equal(um_proto_ep_of(w.node[1].ep)->receive->kept, 0);
        (void)exchange(&w, MOST, true, 4); /* the lane goes on */
    }
    world_close(&w);
}

/* If the sender does not complete a message, the receive ends with an error, whenever it is posted. */
static void a_sender_that_leaves_in_the_middle_is_an_error(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct world w;
        open_permitted(&w);
        if (how == 0)
            recv_buf(&w, 1, NULL, to, TOTAL, 1, 0, UM_OP_TAGGED, CTX(1));
        first_by_hand(&w, 1, TOTAL, PART);
        world_settle(&w);
        if (how == 1)
            recv_buf(&w, 1, NULL, to, TOTAL, 1, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(untaken(&w, 1), 0);
        um_core_ep_flush(w.node[0].ep);
        node_close(&w.node[0]);
        w.node[0].ep = NULL;
        for (int i = 0; i < 10000; i++)
            um_core_ep_progress(w.node[1].ep);
        if (how == 2) {
            memset(to, 0x5b, sizeof(to));
            struct iovec iov = {.iov_base = to, .iov_len = TOTAL};
            const struct um_proto_msg msg = {
                .iov = &iov, .count = 1, .tag = 1, .context = CTX(1), .flags = UM_OP_TAGGED};
            assert_int_equal(um_proto_recv(w.node[1].ep, &msg), 0);
        }
        assert_int_equal(untaken(&w, 1), 1);
        assert_int_equal(w.node[1].done[w.node[1].taken].error, ECONNRESET);
        if (how == 2)
            assert_true(is_all(to + PART, sizeof(to) - PART, 0x5b)); /* this part never came */
        node_close(&w.node[1]);
    }
}

/* The receiver closes before the last segment: the receive is cancelled, and nothing is left. */
static void a_receiver_that_closes_in_the_middle(void **state)
{
    (void)state;
    for (int is_posted = 0; is_posted < 2; is_posted++) {
        struct world w;
        open_permitted(&w);
        if (is_posted)
            recv_buf(&w, 1, NULL, to, TOTAL, 1, 0, UM_OP_TAGGED, CTX(1));
        first_by_hand(&w, 1, TOTAL, PART);
        world_settle(&w);
        const size_t before = w.node[1].count;
        um_proto_ep_close(w.node[1].ep);
        w.node[1].ep = NULL;
        assert_int_equal(w.node[1].count, before + (size_t)is_posted);
        if (is_posted)
            assert_int_equal(w.node[1].done[before].error, ECANCELED);
        world_close(&w);
    }
}

/* When the receiver publishes a wrong credit, lane_has_room() says no, so that no message stops in the middle. */
static void a_wrong_credit_makes_no_room(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2);
    uint32_t value = 1;
    inject_buf(&w, 0, 1, &value, 4, 1, UM_OP_TAGGED); /* the lane has not grown yet */
    struct um_mem_lane *lane = (struct um_mem_lane *)peer_of(&w, 0, 1)->lane;
    const uint64_t credit = lane->ctl->credit;
    assert_false(um_mem_lane_has_room(&lane->base, 20, 1024));
    lane->ctl->credit = (uint64_t)(uint32_t)(lane->bytes_head - 100000) << 32 | lane->head;
    assert_false(um_mem_lane_has_room(&lane->base, 20, 1024));
    lane->ctl->credit = credit;
    lane->bytes_consumed = (uint32_t)(credit >> 32);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_wrong_credit_makes_no_room),
    cmocka_unit_test(lone_messages_go_unasked_once_one_was_pushed),
    cmocka_unit_test(a_lane_of_lone_messages_goes_on_in_a_wide_ring),
    cmocka_unit_test(some_are_announced_all_the_same),
    cmocka_unit_test(some_of_each_class_are_announced),
    cmocka_unit_test(segments_are_about_equal),
    cmocka_unit_test(what_is_not_pushed_takes_the_permission_back),
    cmocka_unit_test(what_would_never_go_in_segments_permits_nothing),
    cmocka_unit_test(who_must_know_of_the_match_or_is_not_alone_announces),
    cmocka_unit_test(short_messages_of_a_stream_go_unasked),
    cmocka_unit_test(what_finds_no_room_is_announced),
    cmocka_unit_test(many_that_nobody_receives_are_announced),
    cmocka_unit_test(delivery_is_told_when_the_last_segment_is_taken),
    cmocka_unit_test(buffers_of_all_kinds),
    cmocka_unit_test(a_long_message_that_is_alone_goes_in_parts_of_8_KiB),
    cmocka_unit_test(a_long_message_behind_another_one_goes_in_one_record),
    cmocka_unit_test(a_long_message_goes_in_no_parts_that_its_receiver_does_not_want),
    cmocka_unit_test(a_message_in_parts_tells_of_its_delivery_when_the_last_one_is_taken),
    cmocka_unit_test(a_receive_takes_over_what_has_begun_to_come),
    cmocka_unit_test(a_receive_that_is_too_short_takes_over),
    cmocka_unit_test(a_peek_finds_what_has_begun_to_come),
    cmocka_unit_test(a_sender_that_leaves_in_the_middle_is_an_error),
    cmocka_unit_test(a_receiver_that_closes_in_the_middle),
};
WORLD_MAIN("segments", tests)
