/*
 * Processes in pid namespaces of their own, as containers have them: this process is outside, each child in a namespace
 * of its own. No process can open another one by its number; descriptors are passed (docs/protocol.md section 11).
 * Needs root.
 */
#include "proc.h"

#include "needs.h"

#include "core/endpoint.h"
#include "machine/mem/mem.h"
#include "machine/shm/shm.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { KEY = 9, REGION = 65536, GENERATIONS = 30, BIG = 300000 };

static unsigned char *region_open(struct world *w, struct um_core_region *region)
{
    unsigned char *bytes = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *region = (struct um_core_region){
        .key = KEY, .base = (uintptr_t)bytes, .len = REGION, .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    child_demand(bytes != MAP_FAILED && um_core_regions_add(w->node[0].regions, region) == 0, "no region");
    return bytes;
}

static int descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void is_elsewhere(const struct um_addr *a, const struct um_addr *b)
{
    child_demand(um_shm_addr_of(a)->pid_space != um_shm_addr_of(b)->pid_space, "not in another pid namespace");
}

/* ---- messages and RMA ---- */

static void echo(int index)
{
    static unsigned char buf[BIG];
    struct world w;
    child_open(&w, index);
    struct um_core_peer *parent = peer_at(&w, 0);
    is_elsewhere(&shared->addr[0], &shared->addr[index]);
    for (size_t i = 0; i < sizes_count; i++) {
        recv_buf(&w, 0, parent, buf, sizeof(buf), i, 0, UM_OP_TAGGED, CTX(1));
        struct um_core_completion c = done_of(&w, 0, CTX(1));
        child_demand(c.error == 0 && c.len == (sizes[i] < BIG ? sizes[i] : BIG), "wrong length");
        const struct iovec iov = {buf, c.len};
        send_msg(&w, 0,
                 &(struct um_proto_msg){
                     .iov = &iov, .count = 1, .peer = parent, .tag = i, .flags = UM_OP_TAGGED, .context = CTX(2)});
        child_demand(done_of(&w, 0, CTX(2)).error == 0, "the answer failed");
    }
    node_close(&w.node[0]);
}

static void messages_of_all_sizes_go_both_ways(void **state)
{
    static unsigned char out[BIG], back[BIG];
    struct world w;
    (void)state;
    needs(has_pid_namespaces());
    shared_reset();
    child_open(&w, 0);
    pid_t child[2];
    for (int k = 0; k < 2; k++)
        child[k] = child_start(echo, 1 + k);
    for (size_t i = 0; i < sizes_count; i++) {
        for (int k = 0; k < 2; k++) {
            struct um_core_peer *peer = peer_at(&w, 1 + k);
            const struct iovec iov = {out, sizes[i] < BIG ? sizes[i] : BIG};
            fill(out, iov.iov_len, (uint32_t)(100 * k) + (uint32_t)i);
            recv_buf(&w, 0, peer, back, sizeof(back), i, 0, UM_OP_TAGGED, CTX(1));
            send_msg(&w, 0,
                     &(struct um_proto_msg){
                         .iov = &iov, .count = 1, .peer = peer, .tag = i, .flags = UM_OP_TAGGED, .context = CTX(2)});
            assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
            struct um_core_completion c = done_of(&w, 0, CTX(1));
            assert_int_equal(c.error, 0);
            assert_int_equal(c.len, iov.iov_len);
            assert_true(is_filled(back, c.len, (uint32_t)(100 * k) + (uint32_t)i));
        }
    }
    for (int k = 0; k < 2; k++)
        child_join(child[k]);
    assert_true(um_core_ep_stats(w.node[0].ep)->copied == 0); /* process_vm_readv would need a pid */
    node_close(&w.node[0]);
}

static void putter(int index)
{
    static unsigned char bytes[4096], back[4096];
    struct world w;
    child_open(&w, index);
    struct um_core_peer *parent = peer_at(&w, 0);
    int ret;
    /* Makes the contact first: an access that is tried while the contact comes about may be left to the owner. */
    while ((ret = um_proto_inject(w.node[0].ep, parent, "x", 1, 7, 0, UM_OP_TAGGED)) == -EAGAIN)
        world_progress(&w);
    child_demand(ret == 0, "the message was refused");
    fill(bytes, sizeof(bytes), 5);
    for (int get = 0; get < 2; get++) {
        const struct iovec iov = {get ? back : bytes, sizeof(bytes)};
        const struct um_proto_rma op = {.iov = &iov,
                                        .count = 1,
                                        .peer = parent,
                                        .addr = 8192,
                                        .key = KEY,
                                        .context = CTX(1),
                                        .flags = get ? UM_OP_READ : UM_OP_WRITE};
        rma(&w, 0, &op);
        child_demand(done_of(&w, 0, CTX(1)).error == 0, "the access failed");
    }
    child_demand(is_filled(back, sizeof(back), 5), "wrong bytes");
    child_demand(um_core_ep_stats(w.node[0].ep)->mapped == (variant.adopt ? 2 : 0), "not through a mapped window");
    um_store_release_u32(&shared->flag[1], 1);
    node_close(&w.node[0]);
}

static void a_region_is_mapped(void **state)
{
    struct um_core_region r;
    struct world w;
    (void)state;
    needs(has_pid_namespaces() && has_userfaultfd());
    shared_reset();
    child_open(&w, 0);
    unsigned char *bytes = region_open(&w, &r);
    pid_t child = child_start(putter, 1);
    wait_for(&w, &shared->flag[1], 1);
    child_join(child);
    assert_true(is_filled(bytes + 8192, 4096, 5));
    um_core_regions_remove(w.node[0].regions, &r);
    node_close(&w.node[0]);
    munmap(bytes, REGION);
}

/* ---- a peer that does not answer ---- */

static void impatient(int index)
{
    struct world w;
    child_open(&w, index);
    struct um_core_peer *parent = peer_at(&w, 0);
    int ret;
    for (int i = 0; i < 5000; i++) {
        child_demand(um_proto_inject(w.node[0].ep, parent, "x", 1, 7, 0, UM_OP_TAGGED) == -EAGAIN,
                     "not told to try again");
        um_core_ep_progress(w.node[0].ep);
    }
    um_store_release_u32(&shared->flag[1], 1);
    while ((ret = um_proto_inject(w.node[0].ep, parent, "x", 1, 7, 0, UM_OP_TAGGED)) == -EAGAIN)
        world_progress(&w);
    child_demand(ret == 0, "the message was refused");
    node_close(&w.node[0]);
}

static void a_receiver_without_progress_holds_up_nobody(void **state)
{
    struct world w;
    char to;
    (void)state;
    needs(has_pid_namespaces());
    shared_reset();
    child_open(&w, 0);
    pid_t child = child_start(impatient, 1);
    wait_for(NULL, &shared->flag[1], 1); /* without progress of this process */
    recv_buf(&w, 0, NULL, &to, 1, 7, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    child_join(child);
    node_close(&w.node[0]);
}

static void late_sender(int index)
{
    struct world w;
    int ret;
    child_open(&w, index);
    struct um_core_peer *parent = peer_at(&w, 0);
    usleep(100000); /* by then the parent sleeps */
    while ((ret = um_proto_inject(w.node[0].ep, parent, "x", 1, 7, 0, UM_OP_TAGGED)) == -EAGAIN) {
        struct pollfd fd = {.fd = um_core_ep_wait_fd(w.node[0].ep), .events = POLLIN};
        if (um_core_ep_arm(w.node[0].ep) == 0) { /* the reply ends this sleep */
            child_demand(poll(&fd, 1, 20000) == 1, "the reply woke nobody");
            um_core_ep_disarm(w.node[0].ep);
        }
        world_progress(&w);
    }
    child_demand(ret == 0, "the message was refused");
    node_close(&w.node[0]);
}

static void a_first_contact_and_its_reply_end_a_sleep(void **state)
{
    struct world w;
    char to;
    (void)state;
    needs(has_pid_namespaces());
    shared_reset();
    child_open(&w, 0);
    pid_t child = child_start(late_sender, 1);
    recv_buf(&w, 0, NULL, &to, 1, 7, 0, UM_OP_TAGGED, CTX(1));
    while (!untaken(&w, 0)) {
        struct pollfd fd = {.fd = um_core_ep_wait_fd(w.node[0].ep), .events = POLLIN};
        if (um_core_ep_arm(w.node[0].ep) == 0) {
            assert_int_equal(poll(&fd, 1, 20000), 1);
            um_core_ep_disarm(w.node[0].ep);
        }
        world_progress(&w);
    }
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    child_join(child);
    node_close(&w.node[0]);
}

/* ---- the end ---- */

static void greeter(int index)
{
    struct world w;
    int ret;
    child_open(&w, index);
    struct um_core_peer *parent = peer_at(&w, 0);
    while ((ret = um_proto_inject(w.node[0].ep, parent, "x", 1, 7, 0, UM_OP_TAGGED)) == -EAGAIN)
        world_progress(&w);
    child_demand(ret == 0, "the message was refused");
    if (index == 2 && fork() == 0) /* this child has the sockets, too, and lives until the namespace ends */
        pause();
    for (;;)
        world_progress(&w);
}

static void quiet(int index)
{
    struct world w;
    child_open(&w, index);
    pause();
}

/* Index 1: in contact; 2: with a forked child; 3: never in contact, and never served. */
static void the_death_of_a_peer_ends_what_waits_for_it(void **state)
{
    struct world w;
    char to;
    (void)state;
    needs(has_pid_namespaces());
    shared_reset();
    child_open(&w, 0);
    for (int index = 1; index <= 3; index++) {
        pid_t child = child_start(index == 3 ? quiet : greeter, index);
        struct um_core_peer *peer = peer_at(&w, index);
        if (index < 3) {
            recv_buf(&w, 0, peer, &to, 1, 7, 0, UM_OP_TAGGED, CTX(1));
            assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        }
        recv_buf(&w, 0, peer, &to, 1, 7, 0, UM_OP_TAGGED, CTX(2));
        if (index == 3)
            assert_int_equal(um_proto_inject(w.node[0].ep, peer, "x", 1, 7, 0, UM_OP_TAGGED), -EAGAIN);
        child_kill(child);
        assert_int_equal(done_of(&w, 0, CTX(2)).error, ECONNRESET);
        int ret;
        while ((ret = um_proto_inject(w.node[0].ep, peer, "x", 1, 7, 0, UM_OP_TAGGED)) == -EAGAIN)
            world_progress(&w);
        assert_true(ret == -EPIPE || ret == -ECONNREFUSED);
    }
    node_close(&w.node[0]);
}

static void comes_and_goes(int index)
{
    for (uint32_t g = 1; g <= GENERATIONS; g++) {
        struct world w = {.nodes = 1};
        int ret;
        node_open(&w.node[0], 64);
        struct um_core_peer *parent = peer_at(&w, 0);
        while ((ret = um_proto_inject(w.node[0].ep, parent, &g, sizeof(g), 7, 0, UM_OP_TAGGED)) == -EAGAIN)
            world_progress(&w);
        child_demand(ret == 0, "the message was refused");
        node_close(&w.node[0]);
    }
    child_open(&(struct world){0}, index);
    pause();
}

/* A process closes its ports and lives on: the descriptors of these ports in this process are closed as well. */
static void a_port_that_is_closed_leaves_no_descriptors(void **state)
{
    struct world w;
    (void)state;
    needs(has_pid_namespaces());
    shared_reset();
    child_open(&w, 0);
    int before = descriptors();
    pid_t child = child_start(comes_and_goes, 1);
    for (uint32_t g = 1; g <= GENERATIONS; g++) {
        uint32_t to = 0;
        recv_buf(&w, 0, NULL, &to, sizeof(to), 7, 0, UM_OP_TAGGED, CTX(1));
        assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
        assert_int_equal(to, g);
    }
    wait_for(&w, &shared->ready[1], 1);
    for (int i = 0; i < 300 && descriptors() > before + 8; i++) {
        world_settle(&w);
        usleep(10000);
    }
    assert_true(descriptors() <= before + 8); /* those of the last port may still be open */
    child_kill(child);
    node_close(&w.node[0]);
    assert_true(descriptors() < before);
}

/* A peer that claimed a lane, and died before it said who it is, is known by the number of its contact. */
static void a_claim_of_a_contact_that_is_gone_is_freed(void **state)
{
    struct world w;
    (void)state;
    shared_reset();
    child_open(&w, 0);
    struct um_mem_port *port = (struct um_mem_port *)w.node[0].ep->ports[0].port;
    struct um_mem_lane_shm *ctl = um_mem_lane_ctl(port->memory, 0);
    ctl->sender = (uint64_t)77 << 32 | UM_SHM_SENDER_CONTACT;
    for (int i = 0; i < 200; i++)
        um_mem_tick(&port->port);
    assert_int_equal(ctl->sender, 0);
    node_close(&w.node[0]);
}

/* ---- by a directory ---- */

static int sockets_in(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* Makes a socket such as a process that was killed so many seconds ago has left. */
static void leftover(const char *dir, const char *name, long age)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s", dir, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    close(fd);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const struct timespec times[2] = {{.tv_sec = now.tv_sec - age}, {.tv_sec = now.tv_sec - age}};
    assert_int_equal(utimensat(AT_FDCWD, at.sun_path, times, 0), 0);
}

static void a_directory_serves_and_is_left_clean(void **state)
{
    char dir[] = "/tmp/um-apart-XXXXXX";
    const char *before = variant.attach;
    struct world w;
    char to;
    (void)state;
    needs(has_pid_namespaces());
    assert_non_null(mkdtemp(dir));
    leftover(dir, "unimem-0000000000000001", 1000); /* is removed */
    leftover(dir, "unimem-0000000000000002", 0);    /* stays: it is too young */
    leftover(dir, "something-else", 1000);
    variant.attach = dir;
    shared_reset();
    child_open(&w, 0);
    assert_int_equal(sockets_in(dir), 3); /* two of those, and ours */
    pid_t child = child_start(impatient, 1);
    wait_for(NULL, &shared->flag[1], 1);
    recv_buf(&w, 0, NULL, &to, 1, 7, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(&w, 0, CTX(1)).error, 0);
    child_join(child);
    node_close(&w.node[0]);
    variant.attach = before;
    assert_int_equal(sockets_in(dir), 2);
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s/%s", dir, i ? "something-else" : "unimem-0000000000000002");
        assert_int_equal(unlink(name), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(messages_of_all_sizes_go_both_ways),
    cmocka_unit_test(a_region_is_mapped),
    cmocka_unit_test(a_receiver_without_progress_holds_up_nobody),
    cmocka_unit_test(a_first_contact_and_its_reply_end_a_sleep),
    cmocka_unit_test(the_death_of_a_peer_ends_what_waits_for_it),
    cmocka_unit_test(a_port_that_is_closed_leaves_no_descriptors),
    cmocka_unit_test(a_claim_of_a_contact_that_is_gone_is_freed),
    cmocka_unit_test(a_directory_serves_and_is_left_clean),
};
WORLD_MAIN("processes in other pid namespaces", tests)
