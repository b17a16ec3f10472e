/*
 * Addresses that outlive their process. It died before anybody had contact with it, and another process may have its
 * number by now, with nothing, another file, another port, or its very memory under the descriptor's number. What is
 * posted to such an address ends with an error; nothing is delivered to the process that is there.
 */
#include "proc.h"

#include "needs.h"

#include "base/clock.h"
#include "base/process.h"
#include "core/endpoint.h"
#include "machine/mem/mem.h"
#include "machine/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { VICTIM = 1, TAG = 7, KEY = 3, DIFFERENT_TICK_US = 30000 };
/* The provider promises 3 seconds; the machine may be busy. */
#define BOUND_NS UINT64_C(5000000000)

/* What is in the place of the victim. */
enum place { NOBODY, NO_FILE, ANOTHER_FILE, ANOTHER_PORT, ANOTHER_PORT_SAME_START, ITS_MEMORY, PLACES };
static const char *const names[PLACES] = {
    "nobody", "no file", "another file", "another port", "another port, and the same start", "its memory"};

static const char *attach;
static struct world w;
static uint16_t memory_fd;
static int memory; /* the victim's port's memory, kept open by this process */
static pid_t victim, successor;

/* ---- children ---- */

/* Forks a child with that number, which must be free. Returns 0 in the child, a negative value if this process may not
 * choose. */
static pid_t fork_as(pid_t number)
{
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};
    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static bool can_choose_numbers(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (waitpid(pid, &status, 0) != pid)
        return false;
    pid_t again = fork_as(pid);
    if (again == 0)
        _exit(0);
    return again == pid && waitpid(pid, &status, 0) == pid;
}

static void quiet(int index)
{
    struct world mine;
    variant.attach = attach;
    child_open(&mine, index);
    pause();
}

static void greeter(int index)
{
    struct world mine;
    variant.attach = attach;
    child_open(&mine, index);
    int ret;
    while ((ret = um_proto_inject(mine.node[0].ep, peer_at(&mine, 0), "x", 1, TAG, 0, UM_OP_TAGGED)) == -EAGAIN)
        um_core_ep_progress(mine.node[0].ep);
    child_demand(ret == 0, "the greeting was refused");
    um_store_release_u32(&shared->flag[0], 1);
    pause();
}

/* Starts the victim. At return its address is known, and its memory is kept. */
static void victim_start(void (*fn)(int index))
{
    char path[64];
    shared_reset();
    variant.attach = attach;
    child_open(&w, 0);
    variant.attach = NULL; /* the victim lives in this pid namespace */
    victim = child_start(fn, VICTIM);
    wait_for(NULL, &shared->ready[VICTIM], 1);
    memory_fd = um_shm_addr_of(&shared->addr[VICTIM])->memory_fd;
    snprintf(path, sizeof(path), "/proc/%d/fd/%u", victim, memory_fd);
    memory = open(path, O_RDWR | O_CLOEXEC);
    assert_true(memory >= 0);
}

/* The successor inherits this process's descriptors: so a port's memory is among its own, too, under some number. */
static void successor_run(enum place place)
{
    const struct um_mem_port *own = (const struct um_mem_port *)w.node[0].ep->ports[0].port;
    int fd = place == ITS_MEMORY     ? memory
             : place == ANOTHER_FILE ? open("/dev/null", O_RDWR)
                                     : um_shm_addr_of(&own->addr)->memory_fd;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (place == NO_FILE)
        close(memory_fd);
    else if (fd != memory_fd && dup2(fd, memory_fd) < 0)
        _exit(1);
    um_store_release_u32(&shared->flag[1], 1);
    for (;;)
        pause();
}

static void victim_replace(enum place place)
{
    child_kill(victim);
    successor = 0;
    if (place == NOBODY)
        return;
    usleep(DIFFERENT_TICK_US);
    successor = fork_as(victim);
    if (successor == 0)
        successor_run(place);
    assert_int_equal(successor, victim);
    wait_for(NULL, &shared->flag[1], 1);
    if (place == ANOTHER_PORT_SAME_START) { /* as one address in 1024 has it by chance */
        struct um_process_stat stat;
        struct um_shm_addr *addr = (struct um_shm_addr *)(void *)&shared->addr[VICTIM];
        assert_int_equal(um_process_stat_read((uint32_t)victim, &stat), 0);
        addr->process = um_shm_process((uint32_t)victim, stat.start);
    }
}

static void all_end(void)
{
    if (successor)
        child_kill(successor);
    close(memory);
    node_close(&w.node[0]);
}

/* ---- what is expected ---- */

static bool is_refusal(int ret)
{
    return ret == -ECONNREFUSED || ret == -EHOSTUNREACH || ret == -EPIPE;
}

/* Demands that a receive directed at the peer ends in time. Nothing else could end it. */
static void expect_receive_ends(struct um_core_peer *peer)
{
    char to;
    const uint64_t begin = um_clock_ns();
    recv_buf(&w, 0, peer, &to, 1, TAG, 0, UM_OP_TAGGED, CTX(1));
    assert_int_equal(done_of(&w, 0, CTX(1)).error, ECONNRESET);
    assert_true(um_clock_ns() - begin < BOUND_NS);
}

static void expect_refused(struct um_core_peer *peer)
{
    uint64_t word = 0;
    struct iovec iov = {&word, sizeof(word)};
    const struct um_proto_rma get = {
        .iov = &iov, .count = 1, .peer = peer, .key = KEY, .context = CTX(2), .flags = UM_OP_READ};
    int ret;
    const uint64_t begin = um_clock_ns();
    while ((ret = um_proto_inject(w.node[0].ep, peer, "x", 1, TAG, 0, UM_OP_TAGGED)) == -EAGAIN)
        world_progress(&w);
    assert_true(is_refusal(ret));
    while ((ret = start_rma(&w.node[0], &get)) == -EAGAIN)
        world_progress(&w);
    assert_true(is_refusal(ret));
    assert_true(um_clock_ns() - begin < BOUND_NS);
}

/* Demands that no lane of the port in the victim's memory was ever claimed. */
static void expect_untouched(void)
{
    uint64_t owner = 1;
    assert_int_equal(pread(memory, &owner, sizeof(owner), UM_PAGE + offsetof(struct um_mem_lane_shm, sender)),
                     sizeof(owner));
    assert_int_equal(owner, 0);
}

/* ---- cases ---- */

static void what_is_posted_to_who_is_in_its_place_ends(bool receive_first)
{
    for (int i = 0; i < 2 * PLACES; i++) {
        const enum place place = (enum place)(i / 2);
        struct um_core_peer *peer;
        attach = i % 2 ? "abstract" : NULL;
        print_message("%s%s\n", names[place], attach ? ", with contacts" : "");
        victim_start(quiet);
        victim_replace(place);
        assert_int_equal(um_core_peer_get(w.node[0].ep, &shared->addr[VICTIM], &peer), 0);
        if (receive_first)
            expect_receive_ends(peer);
        expect_refused(peer);
        expect_receive_ends(peer);
        expect_untouched();
        all_end();
    }
}

static void a_send_to_a_process_that_was_replaced_before_first_contact_is_refused(void **state)
{
    (void)state;
    needs(can_choose_numbers());
    what_is_posted_to_who_is_in_its_place_ends(false);
}

static void a_receive_from_a_process_that_was_replaced_before_first_contact_ends(void **state)
{
    (void)state;
    needs(can_choose_numbers());
    what_is_posted_to_who_is_in_its_place_ends(true);
}

static void a_process_that_is_replaced_after_first_contact_is_gone(void **state)
{
    (void)state;
    needs(can_choose_numbers());
    for (enum place place = NOBODY; place < PLACES; place++) {
        struct um_core_peer *peer;
        attach = NULL;
        victim_start(quiet);
        assert_int_equal(um_core_peer_get(w.node[0].ep, &shared->addr[VICTIM], &peer), 0);
        assert_int_equal(um_proto_inject(w.node[0].ep, peer, "x", 1, TAG, 0, UM_OP_TAGGED), 0);
        victim_replace(place == ANOTHER_PORT_SAME_START ? ANOTHER_PORT : place);
        expect_receive_ends(peer);
        expect_refused(peer);
        all_end();
    }
}

/* The victim had contact with this process, which looks only after the victim's number has gone to another one. */
static void what_a_process_sent_before_it_was_replaced_is_received(void **state)
{
    (void)state;
    needs(can_choose_numbers());
    for (enum place place = NOBODY; place < PLACES; place++) {
        char to = 0;
        attach = NULL;
        victim_start(greeter);
        wait_for(NULL, &shared->flag[0], 1);
        victim_replace(place == ANOTHER_PORT_SAME_START ? ANOTHER_PORT : place);
        recv_buf(&w, 0, NULL, &to, 1, TAG, 0, UM_OP_TAGGED, CTX(3));
        const struct um_core_completion c = done_of(&w, 0, CTX(3));
        assert_int_equal(c.error, 0);
        assert_int_equal(to, 'x');
        expect_receive_ends(c.source);
        all_end();
    }
}

/* Runs as an ordinary user, to whom a process of root shows only when it began. */
static void unprivileged(int index)
{
    struct um_core_peer *peer;
    char to;
    (void)index;
    child_demand(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0, "no other user to be");
    prctl(PR_SET_DUMPABLE, 1);
    child_open(&w, 0);
    pid_t mine = child_start(quiet, VICTIM);
    wait_for(NULL, &shared->ready[VICTIM], 1);
    child_kill(mine);
    usleep(DIFFERENT_TICK_US);
    shared->word[0] = (uint64_t)mine;
    um_store_release_u32(&shared->flag[2], 1);
    wait_for(NULL, &shared->flag[1], 1);
    child_demand(um_core_peer_get(w.node[0].ep, &shared->addr[VICTIM], &peer) == 0, "no peer");
    recv_buf(&w, 0, peer, &to, 1, TAG, 0, UM_OP_TAGGED, CTX(1));
    const uint64_t begin = um_clock_ns();
    child_demand(child_done(&w, CTX(1)).error == ECONNRESET, "the receive ended otherwise");
    child_demand(um_clock_ns() - begin < BOUND_NS, "the receive ended late");
    node_close(&w.node[0]);
}

static void a_receive_from_a_process_that_another_users_replaced_ends(void **state)
{
    (void)state;
    needs(can_choose_numbers() && geteuid() == 0);
    shared_reset();
    attach = NULL;
    pid_t pid = child_start(unprivileged, 2);
    wait_for(NULL, &shared->flag[2], 1);
    pid_t other = fork_as((pid_t)shared->word[0]);
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    assert_int_equal(other, shared->word[0]);
    um_store_release_u32(&shared->flag[1], 1);
    child_join(pid);
    child_kill(other);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_send_to_a_process_that_was_replaced_before_first_contact_is_refused),
    cmocka_unit_test(a_receive_from_a_process_that_was_replaced_before_first_contact_ends),
    cmocka_unit_test(a_process_that_is_replaced_after_first_contact_is_gone),
    cmocka_unit_test(what_a_process_sent_before_it_was_replaced_is_received),
    cmocka_unit_test(a_receive_from_a_process_that_another_users_replaced_ends),
};
WORLD_MAIN("numbers of processes that are used again", tests)
