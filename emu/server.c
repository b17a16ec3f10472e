/*
 * unimem-boardd NAME: the server of an emulated board (emu/server.h). unimem_open() starts it; users need not start it.
 *
 * The command returns when the board can be opened, or if another process serves the board already; the server goes on
 * in the background. It ends with its last context, or if no process connects within some seconds. Nothing of it has a
 * name in any file system. Exit status: 0; 2: wrong usage or environment (the reason is on stderr); 1: any other
 * failure.
 */
#include "emu/server.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_CONTEXT_MS = 10000, CONNECTIONS = EMU_CONTEXTS + 16 };

static struct emu_server server;
/* Entry 0 is the listening socket; contexts[i] is 0 until connection i has said hello. */
static struct pollfd polled[1 + CONNECTIONS];
static uint32_t contexts[1 + CONNECTIONS];
static nfds_t polled_count;

static int reply_send(int fd, const struct emu_reply_wire *reply, int passed)
{
    struct iovec iov = {(void *)(uintptr_t)reply, sizeof(*reply)};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (passed >= 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header =
            (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(header), &passed, sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*reply) ? 0 : -errno;
}

static pid_t pid_of(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ? 0 : peer.pid;
}

/* Serves one request of connection i. False: the connection is to be closed. */
static bool serve(nfds_t i)
{
    struct emu_request_wire request;
    struct emu_reply_wire reply = {0};
    int passed = -1;
    ssize_t got = recv(polled[i].fd, &request, sizeof(request), MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got != sizeof(request) || (request.op == EMU_OP_HELLO) != (contexts[i] == 0))
        return false;
    if (request.op == EMU_OP_HELLO) {
        emu_server_hello(&server, request.node, pid_of(polled[i].fd), &reply);
        contexts[i] = reply.status ? 0 : reply.first;
        passed = reply.status ? -1 : server.shm_fd;
    } else if (request.op == EMU_OP_END) {
        emu_server_context_end(&server, contexts[i]);
        contexts[i] = 0;
        reply_send(polled[i].fd, &reply, -1);
        return false;
    } else {
        passed = emu_server_answer(&server, contexts[i], &request, &reply);
    }
    return reply_send(polled[i].fd, &reply, passed) == 0;
}

static void connection_end(nfds_t i)
{
    if (contexts[i])
        emu_server_context_end(&server, contexts[i]);
    close(polled[i].fd);
    polled_count--;
    polled[i] = polled[polled_count];
    contexts[i] = contexts[polled_count];
}

static void connection_begin(void)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    const struct timespec pause = {.tv_nsec = 10000000};
    int fd = accept4(polled[0].fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
            nanosleep(&pause, NULL); /* the socket stays readable: do not spin */
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid() ||
        polled_count == 1 + CONNECTIONS) {
        close(fd);
        return;
    }
    polled[polled_count] = (struct pollfd){.fd = fd, .events = POLLIN};
    contexts[polled_count++] = 0;
}

/* Serves until no connection is left. */
static void run(void)
{
    int patience = FIRST_CONTEXT_MS;
    for (;;) {
        int n = poll(polled, polled_count, patience);
        if (n == 0 || (n < 0 && errno != EINTR))
            return;
        if (n < 0)
            continue;
        for (nfds_t i = polled_count - 1; i > 0; i--)
            if (polled[i].revents && !serve(i))
                connection_end(i);
        if (polled[0].revents)
            connection_begin();
        patience = -1;
        if (polled_count == 1)
            return;
    }
}

/* Returns a listening socket. -EADDRINUSE: the board has a server already. */
static int listen_at(const char *board)
{
    struct sockaddr_un address;
    socklen_t len = emu_server_address(&address, board);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, 128) < 0) {
        int ret = -errno;
        close(fd);
        return ret;
    }
    return fd;
}

/* Leaves the session, directory and standard files of the caller, so that what waits for their end does not wait for
 * the server. */
static void leave(void)
{
    int null = open("/dev/null", O_RDWR);
    setsid();
    for (int fd = 0; fd <= 2 && null >= 0; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
    if (chdir("/") < 0)
        exit(1);
}

/* Reads the parameters from the environment. False: they are wrong, and the reason is printed. */
static bool params_read(struct emu_params *params, const char *board)
{
    char why[128];
    emu_params_default(params);
    if (emu_params_parse(params, getenv("UNIMEM_EMU_TIMING"), getenv("UNIMEM_EMU_ENGINE"), getenv("UNIMEM_EMU_PARAMS"),
                         why) == 0)
        return true;
    fprintf(stderr, "unimem: the emulated board '%s' cannot start: %s\n", board, why);
    return false;
}

/* Allows as many descriptors as the system does: each context and each area takes one. */
static void files_raise(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

int main(int argc, char **argv)
{
    struct emu_params params;
    if (argc != 2) {
        fprintf(stderr, "usage: unimem-boardd NAME (unimem_open() starts it)\n");
        return 2;
    }
    close_range(3, UINT_MAX, 0);
    if (!params_read(&params, argv[1]))
        return 2;
    files_raise();
    int ret = emu_server_init(&server, &params);
    int fd = ret ? ret : listen_at(argv[1]);
    if (fd == -EADDRINUSE)
        return 0;
    pid_t pid = fd < 0 ? -1 : fork();
    if (pid < 0) {
        fprintf(stderr, "unimem: the emulated board '%s' cannot start: %s\n", argv[1], strerror(fd < 0 ? -fd : errno));
        return 1;
    }
    if (pid > 0)
        return 0;
    leave();
    polled[0] = (struct pollfd){.fd = fd, .events = POLLIN};
    polled_count = 1;
    run();
    close(fd); /* at once: a process that connects from now on starts another board */
    return 0;
}
