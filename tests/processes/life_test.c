/* Processes that come and go: exit right after an inject, close and reopen under traffic, stop and continue, leftovers.
 */
#include "proc.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

static const size_t inject_sizes[] = {8, 40, 41, 1000, 16384, 5000, 0, 16384};
enum { INJECTS = sizeof(inject_sizes) / sizeof(inject_sizes[0]) };

static void inject_and_exit(int index)
{
    struct world w;
    static unsigned char body[16384];
    child_open(&w, index);
    struct um_core_peer *peer = peer_at(&w, 0);
    int ret = 0;
    for (uint64_t i = 0; i < INJECTS; i++) {
        fill(body, inject_sizes[i], (uint32_t)((uint64_t)index + i));
        while ((ret = um_proto_inject(w.node[0].ep, peer, body, inject_sizes[i], (uint64_t)index << 8 | i, 0,
                                      UM_OP_TAGGED)) == -EAGAIN)
            um_core_ep_progress(w.node[0].ep);
        if (ret)
            abort();
    }
    _exit(0); /* nothing is closed, nothing is flushed */
}

static void what_a_process_injected_arrives_although_it_exits_at_once(void **state)
{
    (void)state;
    struct world w;
    static unsigned char to[16384];
    for (int late = 0; late < 2; late++) { /* the receiver looks while the child lives, or only after its end */
        shared_reset();
        child_open(&w, 0);
        for (int index = 1; index <= 40; index++) {
            pid_t pid = child_start(inject_and_exit, index);
            if (late)
                child_join(pid);
            for (uint64_t i = 0; i < INJECTS; i++) {
                recv_buf(&w, 0, NULL, to, sizeof(to), (uint64_t)index << 8 | i, 0, UM_OP_TAGGED, CTX(1));
                struct um_core_completion c = done_of(&w, 0, CTX(1));
                assert_int_equal(c.error, 0);
                assert_int_equal(c.len, inject_sizes[i]);
                assert_true(is_filled(to, c.len, (uint32_t)((uint64_t)index + i)));
            }
            if (!late)
                child_join(pid);
        }
        assert_int_equal(untaken(&w, 0), 0);
        node_close(&w.node[0]);
    }
}

/* ---- close and reopen under traffic ---- */

struct note {
    uint32_t generation, number;
};
enum { GREETINGS = 4, POSTED = 64, GENERATIONS = 1500 };

static uint32_t generations(void)
{
    return getenv("UM_TEST_LONG") ? GENERATIONS * 10 : GENERATIONS;
}

/* Each generation greets the parent, takes some of what the parent sends (count[0] says how much), and closes. */
static void reopening_child(int index)
{
    uint64_t random = 77;
    for (uint32_t g = 1; g <= generations(); g++) {
        struct world w = {.nodes = 1};
        struct note in[POSTED];
        node_open(&w.node[0], 64);
        struct um_core_ep *ep = w.node[0].ep;
        struct um_core_peer *parent = peer_at(&w, 0);
        shared->addr[index] = w.node[0].addr;
        um_store_release_u32(&shared->ready[index], g);
        for (uint32_t i = 0; i < GREETINGS; i++) {
            struct note hello = {.generation = g, .number = i};
            inject_buf(&w, 0, 0, NULL, 0, 0, 0); /* sends to itself, too, which must disturb nobody */
            int ret;
            while ((ret = um_proto_inject(ep, parent, &hello, sizeof(hello), 1, 0, UM_OP_TAGGED)) == -EAGAIN)
                um_core_ep_progress(ep);
            child_demand(ret == 0, "a greeting was refused");
        }
        uint32_t posted = 0, took = 0, want = rnd(&random, 20);
        for (uint32_t polls = 0; took < want && polls < 2000; polls++) {
            for (; posted - took < POSTED; posted++)
                recv_buf(&w, 0, NULL, &in[posted % POSTED], sizeof(in[0]), 2, 0, UM_OP_TAGGED, CTX(posted + 1));
            um_core_ep_progress(ep);
            while (untaken(&w, 0)) {
                const struct um_core_completion *c = next_of(&w, 0);
                const struct note *n = &in[took % POSTED];
                child_demand(c->context == CTX(took + 1) && c->error == 0, "receives out of order");
                child_demand(n->generation == g && n->number == took, "a note of another generation, or out of order");
                took++;
            }
            if (polls % 16 == 0)
                sched_yield();
        }
        um_store_release_u32(&shared->count[0], took);
        um_store_release_u32(&shared->flag[0], g); /* the parent waits for this before it judges the generation */
        node_close(&w.node[0]);
        wait_for(NULL, &shared->flag[1], g);
    }
}

static void every_generation_of_an_endpoint_takes_what_was_delivered_to_it(void **state)
{
    (void)state;
    shared_reset();
    struct world w;
    child_open(&w, 0);
    pid_t pid = child_start(reopening_child, 1);
    uint32_t greeted = 0, total = 0;
    struct note hello, note;
    recv_buf(&w, 0, NULL, &hello, sizeof(hello), 1, 0, UM_OP_TAGGED, CTX(1));
    for (uint32_t g = 1; g <= generations(); g++) {
        wait_for(&w, &shared->ready[1], g);
        struct um_core_peer *peer = NULL;
        assert_int_equal(um_core_peer_get(w.node[0].ep, &shared->addr[1], &peer), 0);
        uint32_t sent = 0, delivered = 0, ended = 0;
        bool refused = false;
        while (!refused || ended < sent) {
            note = (struct note){.generation = g, .number = sent};
            struct iovec iov = {.iov_base = &note, .iov_len = sizeof(note)};
            struct um_proto_msg msg = {.iov = &iov,
                                       .count = 1,
                                       .peer = peer,
                                       .tag = 2,
                                       .context = CTX(2),
                                       .flags = UM_OP_TAGGED | UM_OP_DELIVERY};
            int ret = refused ? -EAGAIN : um_proto_send(w.node[0].ep, &msg);
            sent += ret == 0;
            refused = refused || (ret && ret != -EAGAIN);
            if (!world_progress(&w))
                sched_yield();
            while (untaken(&w, 0)) {
                struct um_core_completion c = *next_of(&w, 0);
                if (c.context == CTX(1)) {
                    assert_int_equal(hello.generation, greeted / GREETINGS + 1);
                    assert_int_equal(hello.number, greeted % GREETINGS);
                    greeted++;
                    recv_buf(&w, 0, NULL, &hello, sizeof(hello), 1, 0, UM_OP_TAGGED, CTX(1));
                } else {
                    assert_true(c.error == 0 || c.error == ECONNRESET);
                    ended++;
                    delivered += c.error == 0;
                }
            }
        }
        wait_for(&w, &shared->flag[0], g);
        assert_true(delivered <= shared->count[0]); /* what was reported as delivered was taken */
        total += delivered;
        um_store_release_u32(&shared->flag[1], g);
    }
    child_join(pid);
    world_settle(&w);
    while (untaken(&w, 0)) {
        next_of(&w, 0);
        greeted++;
        recv_buf(&w, 0, NULL, &hello, sizeof(hello), 1, 0, UM_OP_TAGGED, CTX(1));
        world_settle(&w);
    }
    assert_int_equal(greeted, generations() * GREETINGS); /* no generation's message was lost */
    print_message("%u generations, %u messages delivered to them\n", generations(), total);
    node_close(&w.node[0]);
}

/* ---- stop and continue ---- */

static void echo_child(int index)
{
    struct world w;
    static unsigned char body[100000];
    child_open(&w, index);
    struct um_core_peer *parent = peer_at(&w, 0);
    for (;;) {
        recv_buf(&w, 0, NULL, body, sizeof(body), 0, UINT64_MAX, UM_OP_TAGGED, CTX(1));
        struct um_core_completion c;
        while (w.node[0].taken == w.node[0].count) {
            if (!world_progress(&w))
                sched_yield();
        }
        c = done_of(&w, 0, CTX(1));
        if (c.tag == 0)
            break;
        struct iovec iov = {.iov_base = body, .iov_len = c.len};
        struct um_proto_msg msg = {.iov = &iov,
                                   .count = 1,
                                   .peer = parent,
                                   .tag = c.tag,
                                   .context = CTX(2),
                                   .flags = UM_OP_TAGGED | UM_OP_DELIVERY};
        send_msg(&w, 0, &msg);
        child_demand(done_of(&w, 0, CTX(2)).error == 0, "echo failed");
    }
    node_close(&w.node[0]);
}

static void nothing_is_lost_while_a_peer_is_stopped(void **state)
{
    (void)state;
    enum { N = 30 };
    static unsigned char from[N][60000], to[N][60000];
    struct world w;
    shared_reset();
    child_open(&w, 0);
    pid_t pid = child_start(echo_child, 1);
    struct um_core_peer *peer = peer_at(&w, 1);
    for (int round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < N; i++)
            recv_buf(&w, 0, NULL, to[i], sizeof(to[i]), i + 1, 0, UM_OP_TAGGED, CTX(1000 + i));
        if (round > 0)
            assert_int_equal(kill(pid, SIGSTOP), 0);
        for (uint64_t i = 0; i < N; i++) {
            size_t len = i % 3 == 0 ? 60000 : i % 3 == 1 ? 5000 : 8;
            fill(from[i], len, (uint32_t)i);
            struct iovec iov = {.iov_base = from[i], .iov_len = len};
            struct um_proto_msg msg = {
                .iov = &iov, .count = 1, .peer = peer, .tag = i + 1, .context = CTX(2000 + i), .flags = UM_OP_TAGGED};
            int ret = um_proto_send(w.node[0].ep, &msg);
            if (ret == -EAGAIN && round > 0)
                kill(pid, SIGCONT);
            while (ret == -EAGAIN) {
                world_progress(&w);
                ret = um_proto_send(w.node[0].ep, &msg);
            }
            assert_int_equal(ret, 0);
        }
        for (int i = 0; i < 5000; i++)
            world_progress(&w); /* also checks whether the peer lives: a stopped peer does */
        if (round > 0)
            kill(pid, SIGCONT);
        for (uint64_t i = 0; i < N; i++) {
            struct um_core_completion c = done_of(&w, 0, CTX(1000 + i));
            assert_int_equal(c.error, 0);
            assert_true(is_filled(to[i], c.len, (uint32_t)i));
            assert_int_equal(done_of(&w, 0, CTX(2000 + i)).error, 0);
        }
    }
    assert_int_equal(um_proto_inject(w.node[0].ep, peer, NULL, 0, 0, 0, UM_OP_TAGGED), 0);
    child_join(pid);
    node_close(&w.node[0]);
}

/* ---- leftovers ---- */

/* Demands that the process has no open file or mapping with a name in a file system: that could stay behind. */
static void assert_nothing_named(pid_t pid)
{
    char path[300], target[4096];
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    int memories = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%.20s", pid, e->d_name);
        ssize_t len = readlink(path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        memories += strncmp(target, "/memfd:unimem", 13) == 0;
        assert_true(strncmp(target, "/dev/shm/", 9) != 0);
        assert_true(strncmp(target, "/tmp/", 5) != 0 || !strstr(target, "unimem"));
    }
    closedir(dir);
    assert_true(memories > 0);
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    assert_non_null(maps);
    while (fgets(target, sizeof(target), maps)) {
        assert_null(strstr(target, "/dev/shm/"));
        assert_null(strstr(target, "/SYSV"));
    }
    fclose(maps);
}

static void a_killed_process_leaves_nothing_behind(void **state)
{
    (void)state;
    struct world w;
    shared_reset();
    child_open(&w, 0);
    pid_t pid = child_start(echo_child, 1);
    static unsigned char body[60000];
    struct um_core_peer *peer = peer_at(&w, 1);
    recv_buf(&w, 0, NULL, body, sizeof(body), 1, 0, UM_OP_TAGGED, CTX(1));
    struct iovec iov = {.iov_base = body, .iov_len = sizeof(body)};
    struct um_proto_msg msg = {.iov = &iov, .count = 1, .peer = peer, .tag = 1, .flags = UM_OP_TAGGED};
    send_msg(&w, 0, &msg);
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    assert_nothing_named(pid);
    assert_nothing_named(getpid());
    child_kill(pid);
    node_close(&w.node[0]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_a_process_injected_arrives_although_it_exits_at_once),
    cmocka_unit_test(every_generation_of_an_endpoint_takes_what_was_delivered_to_it),
    cmocka_unit_test(nothing_is_lost_while_a_peer_is_stopped),
    cmocka_unit_test(a_killed_process_leaves_nothing_behind),
};
WORLD_MAIN("processes that come and go", tests)
