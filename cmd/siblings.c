/*
 * See cmd/siblings.h. There are three processes: a supervisor, the owner of memory, and the visitor that accesses it.
 */
#include "siblings.h"
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { TIMEOUT_MS = 30000, PAGE = 4096 };
static const uint64_t owners_word = 0x756e696d656d0001, visitors_word = 0x756e696d656d0002;

/* At the same address in both processes, which have a copy each. The owner writes [0], the visitor [1]. */
static volatile uint64_t private_words[2];

struct hello {
    int memfd_error, fd;
};
struct verdict {
    int shared, private; /* 0: the visitor's word arrived; else EBADMSG */
};

static void owner(int line)
{
    struct hello hello = {.fd = (int)memfd_create("unimem-info", MFD_CLOEXEC)};
    hello.memfd_error = hello.fd < 0 ? errno : 0;
    volatile uint64_t *shared = MAP_FAILED;
    char go;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* as the provider does, for Yama's mode 1 */
    if (hello.fd >= 0 && ftruncate(hello.fd, PAGE) == 0)
        shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, hello.fd, 0);
    if (shared != MAP_FAILED)
        shared[0] = owners_word;
    private_words[0] = owners_word;
    if (write(line, &hello, sizeof hello) != sizeof hello || read(line, &go, 1) != 1)
        _exit(1);
    struct verdict verdict = {
        .shared = shared != MAP_FAILED && shared[1] == visitors_word ? 0 : EBADMSG,
        .private = private_words[1] == visitors_word ? 0 : EBADMSG,
    };
    if (write(line, &verdict, sizeof verdict) != sizeof verdict)
        _exit(1);
    _exit(0);
}

static void visit_shared(struct um_cmd_siblings *result, pid_t pid, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    result->open = mine < 0 ? errno : 0;
    if (mine < 0)
        return;
    volatile uint64_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
    if (shared == MAP_FAILED) {
        result->map = errno;
        return;
    }
    result->map = shared[0] == owners_word ? 0 : EBADMSG;
    shared[1] = visitors_word;
}

static void visit_private(struct um_cmd_siblings *result, pid_t pid)
{
    uint64_t got = 0, put = visitors_word;
    struct iovec here = {.iov_base = &got, .iov_len = sizeof got};
    struct iovec there = {.iov_base = (void *)&private_words[0], .iov_len = sizeof got};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) < 0)
        result->vm_read = errno;
    else if (got != owners_word)
        result->vm_read = EBADMSG;
    here.iov_base = &put;
    there.iov_base = (void *)&private_words[1];
    if (process_vm_writev(pid, &here, 1, &there, 1, 0) < 0)
        result->vm_write = errno;
}

static void visitor(int line, pid_t pid, const struct hello *hello)
{
    struct um_cmd_siblings result = {.memfd = hello->memfd_error};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (!result.memfd)
        visit_shared(&result, pid, hello->fd);
    visit_private(&result, pid);
    if (write(line, &result, sizeof result) != sizeof result)
        _exit(1);
    _exit(0);
}

/* Ends without an answer if anything goes wrong; its parent then reports that. */
static void supervise(void *arg, int out)
{
    int to_owner[2], to_visitor[2];
    struct hello hello;
    struct verdict verdict;
    struct um_cmd_siblings result;

    (void)arg;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, to_owner) || socketpair(AF_UNIX, SOCK_STREAM, 0, to_visitor))
        return;
    pid_t pid = fork();
    if (pid == 0) {
        close(to_owner[0]); /* otherwise it would not notice the end of the supervisor */
        close(to_visitor[0]);
        close(to_visitor[1]); /* otherwise the supervisor would not notice the end of the visitor */
        owner(to_owner[1]);
    }
    close(to_owner[1]);
    if (pid < 0 || read(to_owner[0], &hello, sizeof hello) != sizeof hello)
        return;
    pid_t other = fork();
    if (other == 0) {
        close(to_owner[0]);
        visitor(to_visitor[1], pid, &hello);
    }
    close(to_visitor[1]);
    if (other < 0 || read(to_visitor[0], &result, sizeof result) != sizeof result || write(to_owner[0], "", 1) != 1 ||
        read(to_owner[0], &verdict, sizeof verdict) != sizeof verdict)
        return;
    if (!result.map)
        result.map = verdict.shared;
    if (!result.vm_write)
        result.vm_write = verdict.private;
    dprintf(out, "%d %d %d %d %d", result.memfd, result.open, result.map, result.vm_read, result.vm_write);
}

int um_cmd_siblings_try(struct um_cmd_siblings *result)
{
    char text[128];
    struct um_cmd_siblings r;
    int ret = um_cmd_child_run(supervise, NULL, text, sizeof text, TIMEOUT_MS);
    if (ret < 0)
        return ret;
    if (sscanf(text, "%d %d %d %d %d", &r.memfd, &r.open, &r.map, &r.vm_read, &r.vm_write) != 5)
        return -EAGAIN;
    *result = r;
    return 0;
}
