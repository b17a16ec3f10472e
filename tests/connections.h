/* TCP connections of this process, for tests that break them. */
#ifndef UM_TESTS_CONNECTIONS_H
#define UM_TESTS_CONNECTIONS_H

#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* How a connection ends. DISCONNECT: at once, and what neither end has read is lost. SHUT: nothing more is sent. */
enum break_how { BREAK_DISCONNECT, BREAK_SHUT };

/* Is it one end of a TCP connection? */
static inline int is_connection(int fd)
{
    struct sockaddr_storage to;
    socklen_t len = sizeof(to);
    int type = 0;
    socklen_t type_len = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) == 0 && type == SOCK_STREAM &&
           getpeername(fd, (struct sockaddr *)&to, &len) == 0 && (to.ss_family == AF_INET || to.ss_family == AF_INET6);
}

/* Breaks those whose descriptor is at least first; returns how many. The descriptors stay open. */
static inline int connections_break(int first, enum break_how how)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        const int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd < first || !is_connection(fd))
            continue;
        if (how == BREAK_DISCONNECT && connect(fd, &nobody, sizeof(nobody)) != 0)
            continue;
        (void)shutdown(fd, SHUT_RDWR); /* of what is disconnected it says an error, and wakes who polls */
        count++;
    }
    if (dir)
        closedir(dir);
    return count;
}

#endif
