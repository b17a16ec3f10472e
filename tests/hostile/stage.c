/* stage.h. */
#include "stage.h"

#include "base/log.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { LARGE = 100000 };

static unsigned char region[REGION_SIZE], large[LARGE], sink[4][REGION_SIZE];
static struct um_core_region exported;
static attack_fn current_attack;
static int current_argument;

uint64_t rnd64(uint64_t *state)
{
    return (uint64_t)rnd(state, 1 << 24) << 48 ^ (uint64_t)rnd(state, 1 << 24) << 24 ^ rnd(state, 1 << 24);
}

unsigned refusals_logged;

static void quiet(enum um_log_level level, const char *text)
{
    refusals_logged += level == UM_LOG_WARN && strstr(text, "its lane is closed") != NULL;
}

/* ---- the attacker ---- */

/* Takes the record that says that the victim's lane joined, but none of the victim's operations: all are pending when
 * the attack begins. Returns the rx. */
static struct um_rx *take_join(struct um_core_ep *ep)
{
    struct um_record rec;
    while (um_mem_poll(ep->ports[0].port, &rec) != 1)
        sched_yield();
    child_demand(rec.op == UM_REC_JOINED, "the victim's lane does not begin with its join");
    um_mem_release(ep->ports[0].port, &rec);
    return rec.rx;
}

static void attacker_child(int index)
{
    static struct attack a;
    child_open(&a.w, index);
    a.ep = a.w.node[0].ep;
    a.argument = current_argument;
    a.random = (uint64_t)current_argument * 2654435761u + 12345;
    struct um_core_peer *victim = peer_at(&a.w, VICTIM);
    child_demand(um_proto_inject(a.ep, victim, NULL, 0, 1, 0, UM_OP_TAGGED) == 0, "no lane to the victim");
    a.lane = (struct um_mem_lane *)victim->lane;
    a.header = a.lane->peer;
    a.ctl = a.lane->ctl;
    wait_for(NULL, &shared->flag[0], 1); /* the victim's operations are on their way */
    a.own = ((struct um_mem_rx *)take_join(a.ep))->ctl;
    current_attack(&a);
    um_store_release_u32(&shared->flag[1], 1);
    struct um_slot slot;
    while (um_mem_claim(&a.lane->base, 0, &slot) != -EPIPE)
        usleep(1000);
    um_store_release_u32(&shared->flag[2], 1);
    for (;;)
        pause();
}

void evil_record(struct attack *a, uint8_t op, uint8_t flags, uint32_t len, const void *header, size_t header_len)
{
    struct um_slot slot;
    int ret;
    while ((ret = um_mem_claim(&a->lane->base, 0, &slot)) == -EAGAIN)
        usleep(100);
    if (ret)
        return;
    memset(slot.header, 0, UM_HEADER_MAX);
    memcpy(slot.header, header, header_len);
    um_mem_commit(&a->lane->base, &slot, op, flags, len);
}

void evil_body(struct attack *a, uint8_t op, const void *header, size_t header_len, const void *body, uint32_t body_len)
{
    struct um_slot slot;
    int ret;
    while ((ret = um_mem_claim(&a->lane->base, body_len, &slot)) == -EAGAIN)
        usleep(100);
    if (ret)
        return;
    memset(slot.header, 0, UM_HEADER_MAX);
    memcpy(slot.header, header, header_len);
    memcpy(slot.body, body, body_len);
    um_mem_commit(&a->lane->base, &slot, op, 0, body_len);
}

/* ---- the honest peer ---- */

static void honest_child(int index)
{
    struct world w;
    uint32_t value;
    child_open(&w, index);
    struct um_core_peer *victim = peer_at(&w, VICTIM);
    for (;;) {
        recv_buf(&w, 0, victim, &value, 4, 0, UINT64_MAX, UM_OP_TAGGED, CTX(1));
        while (!untaken(&w, 0)) {
            if (!world_progress(&w))
                sched_yield();
        }
        struct um_core_completion c = done_of(&w, 0, CTX(1));
        if (c.error || c.tag == 0)
            break;
        while (um_proto_inject(w.node[0].ep, victim, &value, 4, c.tag, 0, UM_OP_TAGGED) == -EAGAIN)
            world_progress(&w);
    }
    node_close(&w.node[0]);
}

/* ---- the victim ---- */

static void talk(struct stage *s)
{
    for (uint32_t i = 1; i <= 20; i++) {
        uint32_t value = 0;
        recv_buf(&s->w, 0, s->honest_peer, &value, 4, i, 0, UM_OP_TAGGED, CTX(500));
        while (um_proto_inject(s->w.node[0].ep, s->honest_peer, &i, 4, i, 0, UM_OP_TAGGED) == -EAGAIN)
            world_progress(&s->w);
        assert_int_equal(done_of(&s->w, 0, CTX(500)).error, 0);
        assert_int_equal(value, i);
    }
}

static void pending_start(struct stage *s)
{
    struct iovec small = {.iov_base = large, .iov_len = 8}, all = {.iov_base = large, .iov_len = LARGE};
    struct um_proto_msg delivery = {.iov = &small,
                                    .count = 1,
                                    .peer = s->attacker_peer,
                                    .tag = 5,
                                    .context = CTX(PENDING_DELIVERY),
                                    .flags = UM_OP_TAGGED | UM_OP_DELIVERY};
    struct um_proto_msg body = {.iov = &all,
                                .count = 1,
                                .peer = s->attacker_peer,
                                .tag = 6,
                                .context = CTX(PENDING_BODY),
                                .flags = UM_OP_TAGGED};
    struct um_proto_rma write = {.iov = &small,
                                 .count = 1,
                                 .peer = s->attacker_peer,
                                 .key = 1,
                                 .context = CTX(PENDING_WRITE),
                                 .flags = UM_OP_WRITE};
    struct um_proto_rma read = {
        .iov = &all, .count = 1, .peer = s->attacker_peer, .key = 1, .context = CTX(PENDING_READ), .flags = UM_OP_READ};
    send_msg(&s->w, 0, &delivery);
    send_msg(&s->w, 0, &body);
    rma(&s->w, 0, &write);
    rma(&s->w, 0, &read);
    static uint64_t one = 1, fetched;
    struct um_proto_atomic atomic = {.operand = &one,
                                     .result = &fetched,
                                     .peer = s->attacker_peer,
                                     .key = 1,
                                     .count = 1,
                                     .type = UM_TYPE_UINT64,
                                     .op = UM_ATOMIC_SUM,
                                     .kind = UM_ATOMIC_FETCH,
                                     .context = CTX(PENDING_FETCH)};
    while (start_atomic(&s->w.node[0], &atomic) == -EAGAIN)
        world_progress(&s->w);
    recv_buf(&s->w, 0, s->attacker_peer, sink[0], 8, 7777, 0, UM_OP_TAGGED, CTX(PENDING_RECEIVE));
    /* and receives that the attacker's messages can meet */
    recv_buf(&s->w, 0, NULL, sink[1], REGION_SIZE, 0, UINT64_MAX, 0, CTX(600));
    recv_buf(&s->w, 0, s->attacker_peer, sink[2], REGION_SIZE, 0, 0xff, UM_OP_TAGGED, CTX(600));
    recv_buf(&s->w, 0, NULL, sink[3], REGION_SIZE, 0, 0, UM_OP_MULTI, CTX(600));
}

void stage_open(struct stage *s, attack_fn fn, int argument)
{
    shared_reset();
    um_log_set_sink(quiet);
    current_attack = fn;
    current_argument = argument;
    bool copy = variant.private_copy;
    s->attacker = child_start(attacker_child, ATTACKER);
    s->honest = child_start(honest_child, HONEST);
    variant.private_copy = copy;
    child_open(&s->w, VICTIM);
    exported = (struct um_core_region){.key = REGION_KEY,
                                       .base = (uintptr_t)region,
                                       .len = REGION_SIZE,
                                       .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    um_core_regions_add(s->w.node[0].regions, &exported);
    s->attacker_peer = peer_at(&s->w, ATTACKER);
    s->honest_peer = peer_at(&s->w, HONEST);
    recv_buf(&s->w, 0, s->attacker_peer, NULL, 0, 1, 0, UM_OP_TAGGED, CTX(400));
    assert_int_equal(done_of(&s->w, 0, CTX(400)).error, 0);
    talk(s);
    pending_start(s);
}

void stage_attack(struct stage *s)
{
    um_store_release_u32(&shared->flag[0], 1);
    wait_for(&s->w, &shared->flag[1], 1);
    for (int i = 0; i < 3000; i++)
        world_progress(&s->w);
}

void stage_expect_error(struct stage *s, enum pending which, int error)
{
    assert_int_equal(done_of(&s->w, 0, CTX(which)).error, error);
    s->w.node[0].taken--; /* stage_close() sees it again */
    s->w.node[0].done[s->w.node[0].taken].context = CTX(which);
}

void stage_expect_refused(struct stage *s)
{
    stage_expect_error(s, PENDING_RECEIVE, EPROTO);
    wait_for(&s->w, &shared->flag[2], 1);
}

void stage_close(struct stage *s)
{
    talk(s);
    child_kill(s->attacker);
    for (uintptr_t c = 1; c < PENDING_END; c++)
        (void)done_of(&s->w, 0, CTX(c)); /* the attacker decides how the operation ends, but it has to end */
    talk(s);
    assert_int_equal(um_proto_inject(s->w.node[0].ep, s->honest_peer, NULL, 0, 0, 0, UM_OP_TAGGED), 0);
    child_join(s->honest);
    um_core_regions_remove(s->w.node[0].regions, &exported);
    node_close(&s->w.node[0]);
    um_log_set_sink(NULL);
}
