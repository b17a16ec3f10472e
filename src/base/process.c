/* See process.h. */
#include "base/process.h"

#include "base/atomic.h"
#include "base/cancel.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads the first thread's stat, which has the same numbers as /proc/PID/stat. User-space emulators invent
 * /proc/PID/stat, differently for each thread. */
int um_process_stat_read(uint32_t pid, struct um_process_stat *stat_p)
{
    UM_UNCANCELLED;
    char path[64];
    char text[1024];
    snprintf(path, sizeof(path), "/proc/%u/task/%u/stat", pid, pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t len = read(fd, text, sizeof(text) - 1);
    int error = errno;
    close(fd);
    if (len < 0)
        return -error;
    text[len] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    struct um_process_stat stat;
    unsigned long long start;
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu",
                      &stat.state, &stat.threads, &start) != 3)
        return -EPROTO;
    stat.start = (uint32_t)start;
    *stat_p = stat;
    return 0;
}

bool um_process_is_alive(uint32_t pid, uint32_t start)
{
    struct um_process_stat now = {0};
    int ret = um_process_stat_read(pid, &now);
    if (ret == -ENOENT || ret == -ESRCH) /* /proc may hide the process (hidepid); kill() finds it */
        return !(kill((pid_t)pid, 0) != 0 && errno == ESRCH);
    if (ret)
        return true;
    if ((now.start != start && start != 0) || now.state == 'X')
        return false;
    return now.state != 'Z' || now.threads > 1; /* the first thread may end before the others */
}

/* This process's number; 0 until it is asked for, and again in a forked child. */
static uint64_t self;

static void self_forget(void)
{
    um_store_relaxed_u64(&self, 0);
}

static void self_watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, self_forget);
}

uint64_t um_process_self(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t known = um_load_relaxed_u64(&self);
    if (known)
        return known;
    struct um_process_stat stat = {.start = 0};
    uint32_t pid = (uint32_t)getpid();
    pthread_once(&once, self_watch_forks);
    (void)um_process_stat_read(pid, &stat); /* if that fails, the pid alone is used */
    known = (uint64_t)pid << 32 | stat.start;
    um_store_relaxed_u64(&self, known);
    return known;
}

bool um_process_holder_is_alive(uint64_t holder)
{
    uint32_t pid = (uint32_t)(holder >> 32);
    if (pid == 0 || pid > INT32_MAX)
        return false; /* no process has this number: the word was overwritten */
    return um_process_is_alive(pid, (uint32_t)holder);
}
