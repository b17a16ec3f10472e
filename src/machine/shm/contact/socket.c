/*
 * The sockets of contact.h: names, connections, messages with descriptors.
 *
 * Owns nothing. What comes from a socket may be anything: a message of another size or with other descriptors than it
 * names is refused whole, and no descriptor stays open. Sources: unix(7), pidfd_open(2). Threading: any.
 */
#include "machine/shm/contact/contact.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { UM_CONTACT_QUEUE = 128, UM_CONTACT_STALE_S = 60 };

static bool is_abstract(const struct um_mem_port *port)
{
    return strcmp(port->config.attach, "abstract") == 0;
}

socklen_t um_shm_contact_name(const struct um_mem_port *port, const struct um_addr *addr, struct sockaddr_un *name_p)
{
    const unsigned long long nonce = um_shm_addr_of(addr)->nonce;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int len;
    if (is_abstract(port))
        len = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "unimem-%016llx", nonce);
    else
        len = snprintf(name.sun_path, sizeof(name.sun_path), "%s/unimem-%016llx", port->config.attach, nonce);
    *name_p = name;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len); /* 1: the zero before it or behind */
}

/*
 * Refuses a directory in which another user could replace a socket. A peer of another user is refused anyway, but no
 * peer could be reached.
 */
static int directory_check(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    bool trusted = st.st_uid == geteuid() || st.st_uid == 0;
    bool shared = st.st_mode & (S_IWGRP | S_IWOTH) && !(st.st_mode & S_ISVTX);
    return trusted && !shared ? 0 : -EACCES;
}

/* Removes the sockets of killed processes: nobody has listened there for a while. */
static void directory_sweep(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        struct stat st;
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        if (strncmp(entry->d_name, "unimem-", 7) != 0 ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(st.st_mode) ||
            st.st_uid != geteuid() || time(NULL) - st.st_mtime < UM_CONTACT_STALE_S ||
            snprintf(name.sun_path, sizeof(name.sun_path), "%s/%s", path, entry->d_name) >= (int)sizeof(name.sun_path))
            continue;
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            break;
        if (connect(fd, (struct sockaddr *)&name, sizeof(name)) != 0 && errno == ECONNREFUSED)
            unlink(name.sun_path);
        close(fd);
    }
    closedir(dir);
}

/* Binds under another name first: a socket with the final name listens already, so no sweep takes it for a dead one. */
static int directory_bind(int fd, const struct sockaddr_un *name)
{
    struct sockaddr_un early = *name;
    char *last = strrchr(early.sun_path, '/');
    if (!last)
        return -EINVAL;
    last[1] = 's'; /* the length stays */
    if (bind(fd, (struct sockaddr *)&early, sizeof(early)) != 0)
        return -errno;
    int ret = listen(fd, UM_CONTACT_QUEUE) != 0 || rename(early.sun_path, name->sun_path) != 0 ? -errno : 0;
    if (ret)
        unlink(early.sun_path);
    return ret;
}

int um_shm_contact_listen(struct um_mem_port *port, struct sockaddr_un *name_p)
{
    struct sockaddr_un name;
    const socklen_t len = um_shm_contact_name(port, &port->addr, &name);
    int ret = 0;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        ret = -errno;
    } else if (is_abstract(port)) {
        if (bind(fd, (struct sockaddr *)&name, len) != 0 || listen(fd, UM_CONTACT_QUEUE) != 0)
            ret = -errno;
    } else if ((ret = directory_check(port->config.attach)) == 0) {
        directory_sweep(port->config.attach);
        ret = directory_bind(fd, &name);
    }
    if (ret == 0) {
        *name_p = name;
        return fd;
    }
    um_log(UM_LOG_WARN, "cannot listen for peers of other pid namespaces (FI_UNIMEM_ATTACH=%s): %s; %s",
           port->config.attach, strerror(-ret),
           ret == -EMFILE ? "raise the limit of open files (ulimit -n)"
           : ret == -EACCES
               ? "the directory has to be this user's or root's, and writable by nobody else (chmod 700, or "
                 "1777 like /tmp)"
               : "name a directory that exists and is this user's, or unset it");
    if (fd >= 0)
        close(fd);
    return ret;
}

bool um_shm_contact_is_own_user(int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.uid == geteuid();
}

int um_shm_contact_connect(const struct um_mem_port *port, const struct um_addr *addr)
{
    static struct um_log_limit no_socket, stranger, unreached;
    struct sockaddr_un name;
    const socklen_t len = um_shm_contact_name(port, addr, &name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        int error = errno;
        um_log_limited(&no_socket, UM_LOG_WARN, "no socket to a peer of another pid namespace: %s%s", strerror(error),
                       error == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
        return -error;
    }
    int error = connect(fd, (struct sockaddr *)&name, is_abstract(port) ? len : sizeof(name)) ? errno : 0;
    if (error == 0 && um_shm_contact_is_own_user(fd))
        return fd;
    close(fd);
    if (error == EAGAIN)
        return -EAGAIN;
    if (error == 0 || error == EACCES || error == EPERM) {
        um_log_limited(
            &stranger, UM_LOG_WARN,
            "the peer (pid %u there) in another pid namespace is not this user's: run both as the same user, in the "
            "same user namespace",
            um_shm_pid(um_shm_addr_of(addr)));
        return -EACCES;
    }
    um_log_limited(
        &unreached, UM_LOG_INFO,
        "the peer (pid %u there) in another pid namespace cannot be reached (FI_UNIMEM_ATTACH=%s): %s; it has ended, "
        "or it has another FI_UNIMEM_ATTACH, or the containers do not share %s",
        um_shm_pid(um_shm_addr_of(addr)), port->config.attach, strerror(error),
        is_abstract(port) ? "a network namespace" : "that directory");
    return -ECONNREFUSED;
}

void um_shm_contact_files_close(int *files)
{
    for (int f = 0; f < UM_CONTACT_FILES; f++) {
        if (files[f] >= 0)
            close(files[f]);
        files[f] = -1;
    }
}

int um_shm_contact_send(int fd, struct um_shm_contact_wire *wire, const int *files)
{
    union {
        char bytes[CMSG_SPACE(UM_CONTACT_FILES * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    int list[UM_CONTACT_FILES];
    size_t count = 0;
    wire->files = 0;
    for (int f = 0; files && f < UM_CONTACT_FILES; f++) {
        if (files[f] < 0)
            continue;
        list[count++] = files[f];
        wire->files |= 1u << f;
    }
    struct iovec iov = {.iov_base = wire, .iov_len = sizeof(*wire)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), list, count * sizeof(int));
    }
    ssize_t sent = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent == (ssize_t)sizeof(*wire) ? 0 : sent < 0 ? -errno : -EPROTO;
}

/* Takes the descriptors of a message, in its order; closes those beyond UM_CONTACT_FILES. */
static size_t message_files(struct msghdr *msg, int *list)
{
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (count < UM_CONTACT_FILES)
                list[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

int um_shm_contact_receive(int fd, struct um_shm_contact_wire *wire_p, int *files_p)
{
    union {
        char bytes[CMSG_SPACE(UM_CONTACT_FILES * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct um_shm_contact_wire wire = {.files = 0};
    struct iovec iov = {.iov_base = &wire, .iov_len = sizeof(wire)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    int list[UM_CONTACT_FILES] = {0};
    ssize_t len = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (len < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -ECONNRESET;
    size_t count = message_files(&msg, list), next = 0;
    const size_t named = (size_t)__builtin_popcount(wire.files);
    bool whole = len == (ssize_t)sizeof(wire) && !(msg.msg_flags & MSG_TRUNC) && wire.magic == UM_CONTACT_MAGIC &&
                 wire.files < 1u << UM_CONTACT_FILES;
    bool good = whole && named == count && !(msg.msg_flags & MSG_CTRUNC);
    bool lacks = whole && named > count && msg.msg_flags & MSG_CTRUNC;
    for (int f = 0; good && f < UM_CONTACT_FILES; f++)
        files_p[f] = wire.files >> f & 1 ? list[next++] : -1;
    for (size_t i = 0; !good && i < count; i++)
        close(list[i]);
    if (good || lacks)
        *wire_p = wire;
    return good ? 0 : lacks ? -EMFILE : len == 0 ? -ECONNRESET : -EPROTO;
}

bool um_shm_contact_is_hung_up(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return fd >= 0 && poll(&p, 1, 0) == 1 && p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

bool um_shm_contact_is_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&p, 1, 0) == 1 && p.revents & POLLIN;
}

int um_shm_contact_life_open(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int fd = memfd_create("unimem-life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int ret = fd < 0 || fcntl(fd, F_SETLK, &lock) != 0 ? -errno : fd;
    if (ret >= 0)
        return ret;
    um_log(UM_LOG_WARN,
           "no file, or no lock, by which peers of other pid namespaces could see that this process lives: %s%s",
           strerror(-ret), ret == -EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
    if (fd >= 0)
        close(fd);
    return ret;
}

bool um_shm_contact_life_is_over(int life)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    return life >= 0 && fcntl(life, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}
