/* See needs.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "needs.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77 };

static bool missed;

bool has_private_copy(void)
{
    char from = 1, to = 0;
    struct iovec local = {.iov_base = &to, .iov_len = 1}, remote = {.iov_base = &from, .iov_len = 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 || errno != ENOSYS;
}

bool has_userfaultfd(void)
{
    long fd = syscall(SYS_userfaultfd, 0);
    if (fd >= 0)
        close((int)fd);
    return fd >= 0 || errno != ENOSYS;
}

bool has_madvise(void)
{
    return madvise(NULL, 0, INT_MAX) != 0;
}

/* Runs the probe in a process of its own, where it may change anything. */
static bool in_child(bool (*probe)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(!probe());
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool limits_memory(void)
{
    struct rlimit most, now;
    if (getrlimit(RLIMIT_AS, &most) != 0)
        return false;
    const struct rlimit few = {.rlim_cur = 4096, .rlim_max = most.rlim_max};
    return setrlimit(RLIMIT_AS, &few) == 0 && getrlimit(RLIMIT_AS, &now) == 0 && now.rlim_cur == few.rlim_cur;
}

bool has_memory_limit(void)
{
    return in_child(limits_memory);
}

enum { SENT = 16 };

/* Receives 16 descriptors where there is room for one or two. The lowest number that is free afterwards tells whether
 * more came. */
static bool drops_descriptors(void)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(SENT * sizeof(int))];
    } out = {{0}}, in = {{0}};
    char byte = 0;
    struct iovec iov = {&byte, 1};
    struct msghdr to = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &out, .msg_controllen = sizeof(out)};
    struct msghdr from = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &in, .msg_controllen = CMSG_SPACE(sizeof(int))};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return false;
    out.head =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(SENT * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    for (int i = 0; i < SENT; i++)
        memcpy(CMSG_DATA(&out.head) + (size_t)i * sizeof(int), &pair[0], sizeof(int));
    int before = dup(pair[0]);
    close(before);
    if (sendmsg(pair[0], &to, 0) != 1 || recvmsg(pair[1], &from, 0) != 1)
        return false;
    return dup(pair[0]) <= before + 2;
}

bool has_exact_descriptors(void)
{
    return in_child(drops_descriptors);
}

bool has_robust_locks(void)
{
    void *head;
    size_t len;
    return syscall(SYS_get_robust_list, 0, &head, &len) == 0 || errno != ENOSYS;
}

bool has_one_thread(void)
{
    DIR *dir = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        count += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count == 1;
}

void needs(bool condition)
{
    if (condition)
        return;
    missed = true;
    skip();
}

int needs_status(int failed)
{
    return failed == 0 && missed ? SKIPPED : failed;
}
