/* proc.h. */
#include "proc.h"

#include "base/clock.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_NS UINT64_C(30000000000)

struct shared *shared;

void shared_reset(void)
{
    if (!shared)
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    memset(shared, 0, sizeof(*shared));
}

/* Makes the next child of this process the first one of a new pid namespace. */
static bool namespace_enter(void)
{
    return unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

bool has_pid_namespaces(void)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bool can = namespace_enter();
        pid = can ? fork() : -1;
        if (pid == 0)
            _exit(mount("proc", "/proc", "proc", 0, NULL) != 0);
        _exit(pid < 0 || waitpid(pid, &status, 0) != pid || status != 0);
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

/* Goes on as the first process of a new pid namespace. The process outside stands for it: it ends with the same status,
 * and takes it along when it is killed. */
static void child_move_apart(void)
{
    child_demand(namespace_enter(), "no new pid namespace");
    pid_t inner = fork();
    child_demand(inner >= 0, "no child in the new pid namespace");
    if (inner == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_demand(mount("proc", "/proc", "proc", 0, NULL) == 0, "no /proc of the new pid namespace");
        return;
    }
    int status = -1;
    waitpid(inner, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
}

pid_t child_start(void (*fn)(int index), int index)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        if (variant.attach)
            child_move_apart();
        fn(index);
        _exit(0);
    }
    return pid;
}

void child_join(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("a child ended with status 0x%x", status);
}

void child_kill(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

void child_demand(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "process %d: %s\n", getpid(), what);
    fflush(NULL);
    _exit(3);
}

void child_open(struct world *w, int index)
{
    *w = (struct world){.nodes = 1};
    node_open(&w->node[0], 64);
    shared->addr[index] = w->node[0].addr;
    um_store_release_u32(&shared->ready[index], 1); /* sync: test-ready (partner test-peer) */
}

struct um_core_completion child_done(struct world *w, void *context)
{
    while (!untaken(w, 0)) {
        if (!world_progress(w))
            sched_yield();
    }
    return done_of(w, 0, context);
}

int child_rma(struct world *w, const struct um_proto_rma *op)
{
    int ret;
    while ((ret = start_rma(&w->node[0], op)) == -EAGAIN) {
        if (!world_progress(w))
            sched_yield();
    }
    child_demand(ret == 0, "the operation was refused");
    return child_done(w, op->context).error;
}

void wait_for(struct world *w, const uint32_t *word, uint32_t value)
{
    uint64_t start = um_clock_ns();
    while (um_load_acquire_u32(word) < value) { /* sync: test-peer (partner test-ready) */
        if (!w || !world_progress(w))
            sched_yield();
        if (um_clock_ns() - start > HANG_NS) {
            fprintf(stderr, "process %d waits in vain\n", getpid());
            abort();
        }
    }
}

struct um_core_peer *peer_at(struct world *w, int index)
{
    struct um_core_peer *peer = NULL;
    wait_for(w, &shared->ready[index], 1);
    child_demand(um_core_peer_get(w->node[0].ep, &shared->addr[index], &peer) == 0, "no peer");
    return peer;
}
