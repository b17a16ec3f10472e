/* Processes for the conformance tests: conform.h. */
#include "conform.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct child child_start(const char *(*main)(struct parent *), void *arg)
{
    int up[2], down[2];
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    struct child child = {.pid = fork(), .from_child = up[0], .to_child = down[1]};
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        close(up[0]);
        close(down[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(120);
        const char *wrong = main(&(struct parent){.from_parent = down[0], .to_parent = up[1], .arg = arg});
        if (wrong)
            fprintf(stderr, "child: %s\n", wrong);
        _exit(wrong ? 1 : 0);
    }
    close(up[1]);
    close(down[0]);
    return child;
}

void pipe_put(int fd, const void *data, size_t len)
{
    if (write(fd, data, len) != (ssize_t)len)
        abort();
}

void pipe_get(int fd, void *data, size_t len)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = is_readable(fd, PATIENCE) ? read(fd, (char *)data + got, len - got) : -1;
        if (n <= 0)
            abort(); /* the parent notices it of a child; in the parent it ends the run */
        got += (size_t)n;
    }
}

static int child_wait(struct child *child)
{
    int status;
    pid_t pid;
    do
        pid = waitpid(child->pid, &status, 0);
    while (pid < 0 && errno == EINTR);
    assert_int_equal(pid, child->pid);
    close(child->from_child);
    close(child->to_child);
    return status;
}

void child_join(struct child *child)
{
    int status = child_wait(child);
    if (WIFSIGNALED(status))
        fail_msg("the child was killed by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

void child_kill(const struct child *child)
{
    siginfo_t info;
    assert_int_equal(kill(child->pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOWAIT), 0);
}

void child_reap(struct child *child)
{
    child_wait(child);
}

void child_await_sleep(const struct child *child, char says)
{
    char byte;
    do
        pipe_get(child->from_child, &byte, 1);
    while (byte != says);
    sleep_us(2000);
}
