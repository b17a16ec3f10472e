/* A peer is killed (SIGKILL) while an operation is pending with it, in every state: the operation ends in an error, and
 * the others go on. */
#include "proc.h"

#include "needs.h"

#include <sched.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { VICTIM = 1, OTHER = 2, LARGE = 64 * MIB };

static size_t window_len = LARGE; /* bytes that the victim registers */
static unsigned char *large;      /* allocated before the forks, so that it has one address in all processes */

/* Reports that it has reached the wanted state, and makes no more progress. */
static void stay(void)
{
    um_store_release_u32(&shared->flag[0], 1);
    for (;;)
        pause();
}

static void some_progress(struct world *w, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        if (!world_progress(w))
            sched_yield();
    }
}

static void silent_child(int index)
{
    struct world w;
    child_open(&w, index);
    stay();
}

/* Has been in contact; takes what comes, but posts nothing. */
static void idle_child(int index)
{
    struct world w;
    child_open(&w, index);
    inject_buf(&w, 0, 0, NULL, 0, 0, 0);
    assert_int_equal(um_proto_inject(w.node[0].ep, peer_at(&w, 0), NULL, 0, 99, 0, UM_OP_TAGGED), 0);
    um_store_release_u32(&shared->flag[0], 1);
    for (;;)
        some_progress(&w, 100);
}

/* Receives a large body and stops in the middle. */
static void receiving_child(int index)
{
    struct world w;
    variant.private_copy = index == VICTIM && shared->word[0] == 0;
    child_open(&w, index);
    recv_buf(&w, 0, NULL, large, LARGE, 1, 0, UM_OP_TAGGED, CTX(1));
    peer_at(&w, 0);
    while (large[100] == 0) /* the first bytes have come */
        some_progress(&w, 1);
    child_demand(untaken(&w, 0) == 0, "all came at once");
    stay();
}

/* Sends a large body and dies in the middle: after the announcement, or after some parts. */
static void sending_child(int index)
{
    struct world w;
    child_open(&w, index);
    memset(large, 1, LARGE);
    struct iovec iov = {.iov_base = large, .iov_len = LARGE};
    struct um_proto_msg msg = {.iov = &iov, .count = 1, .peer = peer_at(&w, 0), .tag = 1, .flags = UM_OP_TAGGED};
    send_msg(&w, 0, &msg);
    um_store_release_u32(&shared->flag[1], 1);
    wait_for(&w, &shared->flag[2], 1); /* the parent has some of it */
    stay();
}

/* Registers its memory, and makes progress (which returns parts through the lane) until the parent has some. */
static void window_child(int index)
{
    struct world w;
    variant.private_copy = shared->word[0] == 0;
    child_open(&w, index);
    memset(large, 1, LARGE);
    struct um_core_region region = {.key = 1,
                                    .base = (uintptr_t)large,
                                    .len = window_len,
                                    .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    um_core_regions_add(w.node[0].regions, &region);
    um_store_release_u32(&shared->flag[1], 1);
    wait_for(&w, &shared->flag[2], 1);
    stay();
}

/* Answers what it gets, until it gets tag 0. */
static void other_child(int index)
{
    struct world w;
    uint32_t value;
    child_open(&w, index);
    struct um_core_peer *parent = peer_at(&w, 0);
    for (;;) {
        recv_buf(&w, 0, NULL, &value, 4, 0, UINT64_MAX, UM_OP_TAGGED, CTX(1));
        while (!untaken(&w, 0))
            some_progress(&w, 1);
        struct um_core_completion c = done_of(&w, 0, CTX(1));
        if (c.tag == 0)
            break;
        while (um_proto_inject(w.node[0].ep, parent, &value, 4, c.tag, 0, UM_OP_TAGGED) == -EAGAIN)
            some_progress(&w, 1);
    }
    node_close(&w.node[0]);
}

/* ---- the parent ---- */

static struct world w;
static pid_t victim, other;
static struct um_core_peer *victim_peer, *other_peer;

static void begin(void (*fn)(int index), bool bounce)
{
    shared_reset();
    shared->word[0] = bounce;
    if (!large)
        large = malloc(LARGE);
    memset(large, 0, LARGE);
    variant.adopt = !bounce; /* nothing but records: the target executes RMA */
    victim = child_start(fn, VICTIM);
    other = child_start(other_child, OTHER);
    variant.private_copy = !bounce;
    child_open(&w, 0);
    variant.private_copy = variant.adopt = true;
    victim_peer = peer_at(&w, VICTIM);
    other_peer = peer_at(&w, OTHER);
}

/* Demands that the others go on, and that nothing more completes for the killed peer. */
static void end(void)
{
    for (uint32_t i = 1; i < 20; i++) {
        uint32_t value = 0;
        recv_buf(&w, 0, other_peer, &value, 4, i, 0, UM_OP_TAGGED, CTX(500));
        while (um_proto_inject(w.node[0].ep, other_peer, &i, 4, i, 0, UM_OP_TAGGED) == -EAGAIN)
            world_progress(&w);
        assert_int_equal(done_of(&w, 0, CTX(500)).error, 0);
        assert_int_equal(value, i);
    }
    assert_int_equal(untaken(&w, 0), 0);
    assert_int_equal(um_proto_inject(w.node[0].ep, victim_peer, NULL, 0, 1, 0, UM_OP_TAGGED) == 0, 0);
    assert_int_equal(um_proto_inject(w.node[0].ep, other_peer, NULL, 0, 0, 0, UM_OP_TAGGED), 0);
    child_join(other);
    node_close(&w.node[0]);
}

static void send_large(uint32_t flags)
{
    struct iovec iov = {.iov_base = large, .iov_len = LARGE};
    struct um_proto_msg msg = {
        .iov = &iov, .count = 1, .peer = victim_peer, .tag = 1, .context = CTX(1), .flags = UM_OP_TAGGED | flags};
    send_msg(&w, 0, &msg);
}

static void a_delivery_that_nobody_takes_ends(void **state)
{
    (void)state;
    begin(silent_child, false);
    for (uintptr_t i = 1; i <= 30; i++) {
        struct um_proto_msg msg = {.peer = victim_peer, .context = CTX(i), .flags = UM_OP_DELIVERY};
        send_msg(&w, 0, &msg);
    }
    wait_for(&w, &shared->flag[0], 1);
    child_kill(victim);
    for (uintptr_t i = 1; i <= 30; i++)
        assert_int_equal(done_of(&w, 0, CTX(i)).error, ECONNRESET);
    end();
}

static void an_announced_body_that_nobody_wants_ends(void **state)
{
    (void)state;
    begin(idle_child, false);
    send_large(0);
    wait_for(&w, &shared->flag[0], 1);
    some_progress(&w, 100);
    child_kill(victim);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
    end();
}

static void a_body_that_is_being_fetched_ends(void **state)
{
    (void)state;
    for (int bounce = 0; bounce < 2; bounce++) {
        begin(receiving_child, bounce);
        memset(large, 1, LARGE);
        send_large(0);
        wait_for(&w, &shared->flag[0], 1);
        some_progress(&w, 100);
        assert_int_equal(untaken(&w, 0), 0);
        child_kill(victim);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
        end();
    }
}

static void a_body_that_comes_from_it_ends(void **state)
{
    (void)state;
    for (int bounce = 0; bounce < 2; bounce++) {
        begin(sending_child, bounce);
        wait_for(&w, &shared->flag[1], 1);
        recv_buf(&w, 0, NULL, large, LARGE, 1, 0, UM_OP_TAGGED, CTX(1));
        while (large[100] == 0)
            some_progress(&w, 1);
        um_store_release_u32(&shared->flag[2], 1);
        if (bounce)
            wait_for(NULL, &shared->flag[0], 1); /* without progress here, or the victim would push all of it */
        assert_int_equal(untaken(&w, 0), 0);
        child_kill(victim);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
        end();
    }
}

static void a_body_announced_before_its_death_is_an_error_when_asked_for(void **state)
{
    (void)state;
    begin(sending_child, false);
    wait_for(&w, &shared->flag[1], 1);
    some_progress(&w, 1000);
    child_kill(victim);
    recv_buf(&w, 0, NULL, large, LARGE, 1, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
    end();
}

static void rma_under_way_ends(void **state)
{
    (void)state;
    for (int bounce = 0; bounce < 2; bounce++) {
        for (int read = 0; read < 2; read++) {
            begin(window_child, bounce);
            wait_for(&w, &shared->flag[1], 1);
            struct iovec iov = {.iov_base = large, .iov_len = LARGE};
            struct um_proto_rma op = {.iov = &iov,
                                      .count = 1,
                                      .peer = victim_peer,
                                      .key = 1,
                                      .context = CTX(1),
                                      .flags = read ? UM_OP_READ : UM_OP_WRITE};
            rma(&w, 0, &op);
            if (read && bounce) {
                while (large[100] == 0)
                    some_progress(&w, 1);
            }
            um_store_release_u32(&shared->flag[2], 1);
            wait_for(read && !bounce ? NULL : &w, &shared->flag[0], 1);
            child_kill(victim);
            int error = done_of(&w, 0, CTX(1)).error;
            assert_true(error == ECONNRESET || (error == 0 && !bounce)); /* the operation may have ended before */
            end();
        }
    }
}

/* A store would still reach memory that nobody has any more, so the initiator gets an error. The same holds for copies
 * by the system. */
static void window_ends(uint64_t len)
{
    window_len = len;
    begin(window_child, false);
    window_len = LARGE;
    wait_for(&w, &shared->flag[1], 1);
    struct iovec iov = {.iov_base = large, .iov_len = 8};
    struct um_proto_rma op = {
        .iov = &iov, .count = 1, .peer = victim_peer, .key = 1, .context = CTX(1), .flags = UM_OP_WRITE};
    rma(&w, 0, &op);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    assert_int_equal(um_core_ep_stats(w.node[0].ep)->mapped, len == LARGE ? 0 : 1);
    um_store_release_u32(&shared->flag[2], 1);
    wait_for(&w, &shared->flag[0], 1);
    child_kill(victim);
    int ret;
    while ((ret = start_rma(&w.node[0], &op)) == 0) {
        (void)done_of(&w, 0, CTX(1));
        world_progress(&w);
    }
    assert_int_equal(ret, -EPIPE);
    end();
}

static void a_window_on_it_ends(void **state)
{
    (void)state;
    needs(has_userfaultfd());
    window_ends(MIB);   /* mapped at once */
    window_ends(LARGE); /* not mapped for one put */
}

static void a_receive_directed_at_it_ends_whether_it_ever_sent_or_not(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        unsigned char to[8];
        begin(silent ? silent_child : idle_child, false);
        recv_buf(&w, 0, victim_peer, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(1));
        recv_buf(&w, 0, victim_peer, to, sizeof(to), 0, UINT64_MAX, 0, CTX(2));
        wait_for(&w, &shared->flag[0], 1);
        child_kill(victim);
        assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
        assert_int_equal(done_of(&w, 0, CTX(2)).error, ECONNRESET);
        recv_buf(&w, 0, victim_peer, to, sizeof(to), 1, 0, UM_OP_TAGGED, CTX(3));
        assert_int_equal(done_of(&w, 0, CTX(3)).error, ECONNRESET);
        end();
    }
}

static void a_lane_that_is_full_does_not_hold_its_sender_for_ever(void **state)
{
    (void)state;
    begin(silent_child, false);
    static unsigned char body[16384];
    int ret;
    while ((ret = um_proto_inject(w.node[0].ep, victim_peer, body, sizeof(body), 1, 0, 0)) == 0)
        ;
    assert_int_equal(ret, -EAGAIN);
    child_kill(victim);
    while ((ret = um_proto_inject(w.node[0].ep, victim_peer, body, sizeof(body), 1, 0, 0)) == -EAGAIN)
        world_progress(&w);
    assert_int_equal(ret, -EPIPE);
    end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_delivery_that_nobody_takes_ends),
    cmocka_unit_test(an_announced_body_that_nobody_wants_ends),
    cmocka_unit_test(a_body_that_is_being_fetched_ends),
    cmocka_unit_test(a_body_that_comes_from_it_ends),
    cmocka_unit_test(a_body_announced_before_its_death_is_an_error_when_asked_for),
    cmocka_unit_test(rma_under_way_ends),
    cmocka_unit_test(a_window_on_it_ends),
    cmocka_unit_test(a_receive_directed_at_it_ends_whether_it_ever_sent_or_not),
    cmocka_unit_test(a_lane_that_is_full_does_not_hold_its_sender_for_ever),
};
WORLD_MAIN("processes that are killed", tests)
