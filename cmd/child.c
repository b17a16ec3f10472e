/* See cmd/child.h. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* Runs the function and exits. What the function, or a library's constructor, prints is discarded. */
static void child_main(um_cmd_child_fn *fn, void *arg, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    fn(arg, out);
    _exit(0);
}

/* Reads until the child has closed its end. */
static int collect(int in, char *text, size_t size, long long end)
{
    size_t have = 0;
    for (;;) {
        long long left = end - now_ms();
        struct pollfd p = {.fd = in, .events = POLLIN};
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready == 0)
            return -ETIMEDOUT;
        char rest[256]; /* output that does not fit is read and dropped; otherwise the child would block */
        bool full = have == size - 1;
        ssize_t n = ready < 0 ? -1 : read(in, full ? rest : text + have, full ? sizeof rest : size - 1 - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return (int)have;
        if (!full)
            have += (size_t)n;
        text[have] = '\0';
    }
}

int um_cmd_child_run(um_cmd_child_fn *fn, void *arg, char *text, size_t size, int timeout_ms)
{
    int ends[2], status = 0;
    long long end = now_ms() + timeout_ms;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    pid_t pid = fork();
    if (pid < 0) {
        int error = errno;
        close(ends[0]);
        close(ends[1]);
        return -error;
    }
    if (pid == 0) {
        close(ends[0]);
        child_main(fn, arg, ends[1]);
    }
    close(ends[1]);
    int ret = collect(ends[0], text, size, end);
    close(ends[0]);
    if (ret < 0)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return ret >= 0 && WIFSIGNALED(status) ? -ECHILD : ret;
}
