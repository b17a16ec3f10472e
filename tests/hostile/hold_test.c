/* A sender that ignores a hold loses its lane, and the memory that it can fill until then is bounded. Over net the kind
 * LARGE has the largest bodies that there are. */
#include "proc.h"

#include "base/log.h"
#include "core/endpoint.h"
#include "machine/machines.h"
#include "proto/receive.h"
#include "proto/wire.h"

#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { VICTIM = 0, SENDER = 1, BOUND = 65536, MOST = 200000, TRIES = 5000 };

/* What the sender sends: messages without a body, with a short or a large one in the record, or with an announced
 * one. */
enum { SMALL, SHORT, LARGE, ANNOUNCED, KINDS };
static int kind;

static uint32_t body_len(struct um_lane *lane)
{
    return kind == SHORT ? 1000 : kind == LARGE ? lane->machine->lane_body_max(lane, UINT32_MAX) : 0;
}

static void quiet(enum um_log_level level, const char *text)
{
    (void)level;
    (void)text;
}

static void message_write(const struct um_slot *slot, uint32_t number)
{
    memset(slot->header, 0, UM_HEADER_MAX);
    if (kind == ANNOUNCED) {
        const struct um_proto_rts_wire header = {
            .tag = number, .total = 100000, .token = UM_TOKENS + number, .count = 1, .piece = {0x1000, 100000}};
        memcpy(slot->header, &header, sizeof(header));
    } else {
        const struct um_proto_eager_wire header = {.tag = number};
        memcpy(slot->header, &header, sizeof(header));
    }
}

/* Opens another lane, and sends a message by it if that is possible. */
static void join_again(struct um_core_peer *victim, struct um_lane *lane)
{
    struct um_slot slot;
    int ret;
    lane->machine->lane_close(lane);
    for (int i = 0; (ret = victim->link->machine->lane_open(victim->link, &lane)) == -EAGAIN && i < TRIES; i++)
        usleep(100);
    for (int i = 0; ret == 0 && (ret = lane->machine->claim(lane, 0, &slot)) == -EAGAIN && i < TRIES; i++)
        usleep(100);
    if (ret)
        return;
    kind = SMALL;
    message_write(&slot, MOST);
    lane->machine->commit(lane, &slot, UM_WIRE_EAGER, UM_WIRE_TAGGED, 8);
}

/* Claims records in spite of the flag held, until the lane is gone. */
static void sender_child(int index)
{
    struct world w;
    struct um_slot slot;
    child_open(&w, index);
    struct um_core_peer *victim = peer_at(&w, VICTIM);
    int ret;
    while ((ret = um_proto_inject(w.node[0].ep, victim, NULL, 0, 1, 0, UM_OP_TAGGED)) == -EAGAIN)
        world_progress(&w);
    child_demand(ret == 0, "no lane to the victim");
    struct um_lane *lane = victim->lane;
    shared->word[0] = body_len(lane);
    for (uint32_t n = 0; n < MOST; n++) {
        while ((ret = lane->machine->claim(lane, (uint32_t)shared->word[0], &slot)) == -EAGAIN)
            usleep(100);
        if (ret == -EPIPE)
            um_store_release_u32(&shared->flag[1], 1); /* sync: test-ready (partner test-peer) */
        if (ret)
            break;
        message_write(&slot, n);
        lane->machine->commit(lane, &slot, kind == ANNOUNCED ? UM_WIRE_RTS : UM_WIRE_EAGER, UM_WIRE_TAGGED, 8);
    }
    um_store_release_u32(&shared->flag[0], 1); /* sync: test-ready (partner test-peer) */
    join_again(victim, lane);
    um_store_release_u32(&shared->flag[2], 1); /* sync: test-ready (partner test-peer) */
    for (;;)
        pause();
}

static void one_that_ignores_a_hold_is_refused(void **state)
{
    struct world w;
    (void)state;
    for (kind = 0; kind < KINDS; kind++) {
        shared_reset();
        um_log_set_sink(quiet);
        variant.unexpected_max = BOUND;
        pid_t sender = child_start(sender_child, SENDER);
        child_open(&w, VICTIM);
        struct um_core_peer *peer = peer_at(&w, SENDER);
        wait_for(&w, &shared->flag[0], 1);
        assert_int_equal(shared->flag[1], 1);
        const struct um_proto_receive *r = um_proto_ep_of(w.node[0].ep)->receive;
        const struct um_machine *machine = variant.machine;
        const size_t each =
            sizeof(struct um_proto_unexpected) + UM_INDEX_SIZE + (kind == ANNOUNCED ? UM_INBOUND_SIZE : 0);
        const size_t most = (machine->unconsumed_max + 2) * each + (size_t)shared->word[0] + machine->unconsumed_bytes;
        assert_true(r->kept > BOUND && r->kept <= BOUND + most);
        assert_true(peer->lost && peer->banned);
        const size_t kept = r->kept;
        wait_for(&w, &shared->flag[2], 1);
        for (int i = 0; i < 1000; i++)
            world_progress(&w);
        assert_null(peer->rx);
        assert_true(r->kept <= kept);
        /* what came before the end of the lane can be received */
        static unsigned char to[1000];
        recv_buf(&w, 0, peer, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        child_kill(sender);
        world_settle(&w);
        node_close(&w.node[0]);
        variant.unexpected_max = 0;
        um_log_set_sink(NULL);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_that_ignores_a_hold_is_refused),
};
WORLD_MAIN("hostile hold", tests)
