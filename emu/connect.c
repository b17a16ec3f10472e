/*
 * emu/connect.h. The server is a program, not a fork of the caller: the fork of a process with threads cannot go on as
 * a server, and the copy of a large program would keep its memory. The server puts itself into the background before
 * this returns, so that the caller has no child.
 */
#include "emu/connect.h"

#include "emu/layout.h"

#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef UNIMEM_EMU_INSTALLED
#define UNIMEM_EMU_INSTALLED "/usr/libexec/unimem-boardd"
#endif

/* Connecting fails between bind() and listen() of the server: so many tries, a millisecond apart. */
enum { TRIES = 3000 };

static int connect_once(const char *name)
{
    struct sockaddr_un address;
    struct ucred peer;
    socklen_t len = emu_server_address(&address, name), peer_len = sizeof(peer);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int ret = connect(fd, (struct sockaddr *)&address, len) < 0 ? -errno : 0;
    if (!ret && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) < 0 || peer.uid != geteuid()))
        ret = -EACCES;
    if (!ret)
        return fd;
    close(fd);
    return ret;
}

static void program_find(char path[4096])
{
    Dl_info info;
    const char *given = getenv("UNIMEM_EMU_SERVER"), *slash;
    if (given && *given) {
        snprintf(path, 4096, "%s", given);
        return;
    }
    if (dladdr((void *)(uintptr_t)program_find, &info) && info.dli_fname && (slash = strrchr(info.dli_fname, '/'))) {
        snprintf(path, 4096, "%.*s/unimem-boardd", (int)(slash - info.dli_fname), info.dli_fname);
        if (access(path, X_OK) == 0)
            return;
    }
    snprintf(path, 4096, "%s", UNIMEM_EMU_INSTALLED);
}

/* Runs the program until it is in the background. 0, or -ENOENT. */
static int start(const char *name)
{
    extern char **environ;
    char path[4096], copy[64];
    char *argv[] = {path, copy, NULL};
    posix_spawnattr_t attr;
    sigset_t none, all;
    pid_t pid;
    int status = -1;
    program_find(path);
    snprintf(copy, sizeof(copy), "%s", name);
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawnattr_init(&attr))
        return -ENOMEM;
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int ret = posix_spawn(&pid, path, NULL, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    if (ret) {
        fprintf(stderr, "unimem: the board's server %s does not start: %s\n", path, strerror(ret));
        return -ENOENT;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    /* A caller that ignores SIGCHLD gets no status: then the connection decides. */
    return status == -1 || (WIFEXITED(status) && WEXITSTATUS(status) == 0) ? 0 : -ENOENT;
}

int emu_server_connect(const char *name)
{
    int ret = connect_once(name);
    if (ret != -ECONNREFUSED)
        return ret;
    ret = start(name);
    if (ret)
        return ret;
    for (int i = 0; i < TRIES; i++) {
        struct timespec pause = {.tv_nsec = 1000000};
        ret = connect_once(name);
        if (ret != -ECONNREFUSED)
            return ret;
        nanosleep(&pause, NULL);
    }
    return -ENOENT;
}
