/* TCP connections of this process, for tests that break them. */
#ifndef UM_TESTS_CONNECTIONS_H
#define UM_TESTS_CONNECTIONS_H

#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* How a connection is broken. DISCONNECT: at once; what neither end has read is lost. SHUT: nothing more is sent. */
enum break_how { BREAK_DISCONNECT, BREAK_SHUT };

/* True if fd is one end of a TCP connection. */
static inline int is_connection(int fd)
{
    struct sockaddr_storage to = {0};
    socklen_t len = sizeof(to);
    int type = 0;
    socklen_t type_len = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) == 0 && type == SOCK_STREAM &&
           getpeername(fd, (struct sockaddr *)&to, &len) == 0 && (to.ss_family == AF_INET || to.ss_family == AF_INET6);
}

/* Calls act for each connection whose descriptor is at least first. Returns for how many it succeeded. */
static inline int connections_each(int first, int (*act)(int fd, int how), int how)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        const int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd >= first && is_connection(fd))
            count += act(fd, how);
    }
    if (dir)
        closedir(dir);
    return count;
}

static inline int connection_break(int fd, int how)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    if (how == BREAK_DISCONNECT && connect(fd, &nobody, sizeof(nobody)) != 0)
        return 0;
    (void)shutdown(fd, SHUT_RDWR); /* an error after a disconnect, but it wakes who polls the descriptor */
    return 1;
}

static inline int connection_keep(int fd, int bytes)
{
    return setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0;
}

/* Breaks the connections whose descriptor is at least first; returns how many. The descriptors stay open. */
static inline int connections_break(int first, enum break_how how)
{
    return connections_each(first, connection_break, how);
}

/* Lets the kernel buffer about this many bytes of each of these connections. With few, a long message stops in the
 * middle. */
static inline int connections_keep(int first, int bytes)
{
    return connections_each(first, connection_keep, bytes);
}

#endif
