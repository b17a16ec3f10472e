/*
 * A peer becomes another program (execve(2)): pid and start time stay, but the peer is gone. Processes that wait for it
 * get an error within a few seconds, like after a death.
 *
 *   exec_test [apart]     apart: the peer is in a pid namespace of its own (needs root), and is reached by
 *                         FI_UNIMEM_ATTACH
 */
#include "member.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 1 << 20, TAG = 7 };

/* Seconds. The provider promises 3; the machine may be busy. */
#define BOUND 5.0

static struct {
    struct member_face face;
    uint32_t contacted;
} * shared;

static bool is_apart;
static struct member m;
static fi_addr_t peer;
static unsigned char *large;
static unsigned char word[8];
static bool send_ended, receive_ended;

/* ---- the peer ---- */

static void become_another(void)
{
    execl("/bin/sleep", "sleep", "60", (char *)NULL);
    _exit(9);
}

/* Runs this program again: its new port has the descriptor number of the old one. */
static void become_the_same(void)
{
    execl("/proc/self/exe", "exec_test", "again", (char *)NULL);
    _exit(9);
}

static void *thread_execs(void *arg)
{
    (void)arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* what namespace_enter() set holds for the first thread alone */
    become_another();
    return NULL;
}

static void become_another_from_a_thread(void)
{
    pthread_t thread;
    MEMBER_DEMAND(pthread_create(&thread, NULL, thread_execs, NULL) == 0);
    pause();
}

/* Forks a child, which has every descriptor and stays alive; then becomes another program. */
static void become_another_with_a_child(void)
{
    const pid_t self = getpid();
    pid_t pid = fork();
    MEMBER_DEMAND(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int fd = 0; fd <= 2; fd++)
            close(fd); /* so that a reader of the test's output does not wait for this process */
        while (getppid() == self)
            pause();
        _exit(0);
    }
    become_another();
}

struct how {
    const char *name;
    void (*become)(void);
    bool uncontacted; /* the peer has not answered anybody before execve(2) */
};

static const struct how hows[] = {
    {"another program", become_another, false},
    {"the same program", become_the_same, false},
    {"from a second thread", become_another_from_a_thread, false},
    {"while a forked child lives", become_another_with_a_child, false},
    {"before the first contact, while a forked child lives", become_another_with_a_child, true},
};
static const struct how *how;

static void namespace_enter(void)
{
    MEMBER_DEMAND(unshare(CLONE_NEWPID | CLONE_NEWNS) == 0);
    MEMBER_DEMAND(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    pid_t inner = fork();
    MEMBER_DEMAND(inner >= 0);
    if (inner) {
        int status;
        waitpid(inner, &status, 0);
        _exit(0);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MEMBER_DEMAND(mount("proc", "/proc", "proc", 0, NULL) == 0);
}

static void victim(void *arg)
{
    struct member self;
    (void)arg;
    if (is_apart)
        namespace_enter();
    member_open(&self, &(struct member_config){.bytes = 4096});
    member_tell(&self, &shared->face);
    member_await(how->uncontacted ? NULL : &self, &shared->contacted, 1);
    how->become();
}

/* After execve(2): an endpoint like the one before. */
static int again(void)
{
    struct member self;
    member_open(&self, &(struct member_config){.bytes = 4096});
    for (const double until = member_now() + 60; member_now() < until; member_sleep(.01))
        (void)fi_cntr_read(self.writes);
    return 0;
}

/* ---- the process that waits for the peer ---- */

static void take_all(void)
{
    void *context;
    int error, got;
    while ((got = member_next(&m, &context, &error)) != 0) {
        if (context == &send_ended || context == &receive_ended)
            member_demand(got < 0 && error == FI_ECONNRESET, "the error of what was pending", error);
        if (context)
            *(bool *)context = true;
    }
}

static ssize_t write_one(bool *written)
{
    return fi_write(m.ep, word, sizeof(word), NULL, peer, shared->face.base, shared->face.key, written);
}

static void contact(void)
{
    static bool written;
    ssize_t ret;
    written = false;
    while ((ret = write_one(&written)) == -FI_EAGAIN)
        take_all();
    member_must(ret, "fi_write");
    while (!written)
        take_all();
    while ((ret = fi_tsend(m.ep, large, LARGE, NULL, peer, TAG, &send_ended)) == -FI_EAGAIN)
        take_all();
    member_must(ret, "fi_tsend");
    MEMBER_CALL(fi_trecv(m.ep, word, sizeof(word), NULL, peer, TAG, 0, &receive_ended));
}

/* True when a write to the peer fails and the pending send and receive have ended. */
static bool is_over(void)
{
    static bool written;
    take_all();
    ssize_t ret = write_one(&written);
    return ret != 0 && ret != -FI_EAGAIN && (how->uncontacted || (send_ended && receive_ended));
}

/* Returns whether the end of the peer was noticed in time. */
static bool run(void)
{
    memset(shared, 0, sizeof(*shared));
    send_ended = receive_ended = false;
    pid_t pid = member_fork(victim, NULL);
    member_open(&m, &(struct member_config){.bytes = 0});
    member_await(NULL, &shared->face.ready, 1);
    peer = member_meet(&m, &shared->face);
    if (how->uncontacted)
        (void)write_one(NULL);
    else
        contact();
    member_set(&shared->contacted, 1);
    const double began = member_now();
    while (!is_over() && member_now() - began < BOUND)
        member_sleep(.001);
    const double noticed = member_now() - began;
    const bool well = is_over() && kill(pid, 0) == 0;
    member_close(&m);
    const double closed = member_now() - began - noticed;
    printf("%-55s %s %.2f s, closed in %.2f s\n", how->name, well ? "noticed in" : "NOT NOTICED in", noticed, closed);
    member_kill(pid);
    return well && closed < BOUND - 1;
}

static bool can_be_apart(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWPID | CLONE_NEWNS) != 0);
    return waitpid(pid, &status, 0) == pid && status == 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    if (argc > 1 && strcmp(argv[1], "again") == 0)
        return again();
    is_apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    if (is_apart && !can_be_apart()) {
        printf("skipped: no pid namespaces for this user\n");
        return 77;
    }
    shared = member_share(sizeof(*shared));
    large = calloc(1, LARGE);
    for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
        how = &hows[i];
        if (!how->uncontacted || is_apart)
            failed += !run();
    }
    free(large);
    return failed != 0;
}
