/*
 * Who is who on one host: boot id, pid, start time, pid namespace; whether a process still lives, and is the peer.
 *
 * Owns nothing. Sources: proc(5) (stat field 22, sys/kernel/random/boot_id), pid_namespaces(7). Threading: any.
 */
#include "machine/shm/contact/contact.h"

#include "base/cancel.h"
#include "base/log.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Reads a small file; bytes read, or a negative errno. */
static ssize_t file_read(const char *path, char *text, size_t size)
{
    UM_UNCANCELLED;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t len = read(fd, text, size - 1);
    int error = errno;
    close(fd);
    if (len < 0)
        return -error;
    text[len] = '\0';
    return len;
}

static uint64_t text_hash(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *text && *text != '\n'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

uint64_t um_shm_nonce(void)
{
    UM_UNCANCELLED;
    uint64_t nonce = 0;
    while (nonce == 0) {
        if (getrandom(&nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce)) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            nonce = (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u ^ (uint64_t)now.tv_sec ^ (uint64_t)getpid() << 32;
        }
    }
    return nonce;
}

int um_shm_self_get(struct um_shm_self *self_p)
{
    struct um_shm_self self = {.pid = (uint32_t)getpid()};
    char text[128];
    struct um_process_stat own;
    struct stat space;
    ssize_t len = file_read("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    int ret = len < 0 ? (int)len : um_process_stat_read(self.pid, &own);
    if (ret == 0 && stat("/proc/self/ns/pid", &space) != 0)
        ret = -errno;
    if (ret) {
        um_log(UM_LOG_WARN, "cannot read this process's identity from /proc: %s; %s", strerror(-ret),
               ret == -EMFILE ? "raise the limit of open files (ulimit -n)" : "unimem needs /proc mounted");
        return ret;
    }
    self.start = own.start;
    const uint64_t boot = text_hash(text);
    self.boot = (uint32_t)(boot ^ boot >> 32);
    self.pid_space = (uint16_t)space.st_ino;
    *self_p = self;
    return 0;
}

bool um_shm_is_apart(const struct um_mem_port *port, const struct um_addr *addr)
{
    return um_shm_addr_of(addr)->pid_space != um_shm_addr_of(&port->addr)->pid_space;
}

/* Logs why an address cannot be reached. -EPROTO: it is no address of this machine. */
static void addr_explain(const struct um_shm_addr *own, const struct um_shm_addr *peer, int error)
{
    static struct um_log_limit none, host, partition, space;
    char name[65] = "";
    (void)gethostname(name, sizeof(name) - 1);
    if (error == -EPROTO)
        um_log_limited(&none, UM_LOG_WARN,
                       "these bytes are not the address of a unimem endpoint, or their endpoint had no port in the "
                       "memory of a host");
    else if (peer->boot != own->boot)
        um_log_limited(&host, UM_LOG_WARN,
                       "the peer (pid %u there) is on another host than this one (\"%s\"), and no machine that reaches "
                       "other hosts is in use on both: set FI_UNIMEM_MACHINE=shm,net and FI_UNIMEM_NET=on for all "
                       "processes",
                       um_shm_pid(peer), name);
    else if (peer->partition != own->partition)
        um_log_limited(
            &partition, UM_LOG_WARN,
            "the peer (pid %u) is in partition %u, this process in %u: give both the same FI_UNIMEM_PARTITION, or let "
            "FI_UNIMEM_MACHINE name a machine that reaches it, too",
            um_shm_pid(peer), peer->partition, own->partition);
    else
        um_log_limited(
            &space, UM_LOG_WARN,
            "the peer (pid %u there) is in another pid namespace, so its memory cannot be opened: set "
            "FI_UNIMEM_ATTACH=abstract (containers that share a network namespace) or to a directory that both "
            "have, or start the containers with one pid namespace (docker --pid=host or --pid=container:NAME); or, "
            "slower, set FI_UNIMEM_MACHINE=shm,net",
            um_shm_pid(peer));
}

int um_shm_addr_check(const struct um_mem_port *port, const struct um_addr *addr, bool is_last)
{
    const struct um_shm_addr *own = um_shm_addr_of(&port->addr);
    const struct um_shm_addr *peer = um_shm_addr_of(addr);
    int ret = um_addr_header_check(port->port.machine, addr, is_last);
    if (ret)
        return ret;
    if (um_shm_pid(peer) == 0 || peer->nonce == 0)
        ret = -EPROTO;
    else if (peer->boot != own->boot || peer->partition != own->partition ||
             (um_shm_is_apart(port, addr) && port->config.attach[0] == '\0'))
        ret = -EHOSTUNREACH;
    if (ret && is_last)
        addr_explain(own, peer, ret);
    return ret;
}

/*
 * Does the peer's process live? *start: when it began, 0 before the first look. The peer lived when it made the
 * address, so the process with this number is the peer or a later one. If its descriptors then show the port, it is the
 * peer.
 */
static bool process_lives(const struct um_shm_addr *peer, uint32_t *start)
{
    const uint32_t pid = um_shm_pid(peer);
    struct um_process_stat now;
    if (*start == 0 && um_process_stat_read(pid, &now) == 0) {
        if (um_shm_process(pid, now.start) != peer->process)
            return false;
        *start = now.start;
    }
    return um_process_is_alive(pid, *start);
}

/*
 * Is this file the port's? The first check reads its contents; later checks compare the file's identity, because peers
 * can overwrite the contents. Only memory files of that name are opened.
 */
static bool is_port(int dir, const char *number, uint64_t nonce, uint64_t *file)
{
    static const char name[] = "/memfd:" UM_SHM_PORT_NAME " (deleted)";
    char text[sizeof(name)];
    uint64_t found = 0;
    struct stat st;
    if (readlinkat(dir, number, text, sizeof(text)) != sizeof(name) - 1 || memcmp(text, name, sizeof(name) - 1) != 0)
        return false;
    if (fstatat(dir, number, &st, 0) != 0)
        return errno != ENOENT; /* refused: the answer is unknown */
    if (*file)
        return *file == st.st_ino;
    int fd = openat(dir, number, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT;
    ssize_t len = pread(fd, &found, sizeof(found), offsetof(struct um_mem_port_shm, nonce));
    bool is_it = fstat(fd, &st) == 0 && len == sizeof(found) && found == nonce;
    close(fd);
    if (is_it)
        *file = st.st_ino;
    return is_it;
}

/*
 * For a peer whose process lives: true if its port is certainly gone. Then it was closed, or the process has become
 * another program (execve(2) keeps pid and start time). *file: the inode of the port's memory, once it was seen; 0
 * before.
 */
static bool port_is_gone(const struct um_addr *addr, uint64_t *file)
{
    UM_UNCANCELLED;
    const struct um_shm_addr *peer = um_shm_addr_of(addr);
    struct um_process_stat stat;
    char path[64], number[16], text[1];
    snprintf(path, sizeof(path), "/proc/%u/fd", um_shm_pid(peer));
    snprintf(number, sizeof(number), "%u", peer->memory_fd);
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return false;
    bool gone =
        readlinkat(dir, number, text, sizeof(text)) < 0 ? errno == ENOENT : !is_port(dir, number, peer->nonce, file);
    close(dir);
    /* A process whose first thread has ended shows no descriptors there, though its other threads have them. */
    return gone && um_process_stat_read(um_shm_pid(peer), &stat) == 0 && stat.state != 'Z';
}

bool um_shm_alive(struct um_mem_port *port, const struct um_addr *addr, struct um_mem_mark *mark)
{
    uint32_t start = 0;
    if (um_shm_is_apart(port, addr)) {
        struct um_shm_contacts *contacts = ((struct um_shm_port *)port->mapper_state)->contacts;
        return contacts && um_shm_contact_is_alive(contacts, addr);
    }
    return process_lives(um_shm_addr_of(addr), mark ? &mark->start : &start) &&
           !(mark && port_is_gone(addr, &mark->file));
}

bool um_shm_is_here(const struct um_mem_port *port, const struct um_addr *addr)
{
    const struct um_shm_port *state = port->mapper_state;
    struct um_mem_mark mark = {0};
    if (um_shm_is_apart(port, addr))
        return state->contacts && um_shm_contact_is_here(state->contacts, addr);
    return process_lives(um_shm_addr_of(addr), &mark.start) && !port_is_gone(addr, &mark.file) && mark.file;
}

bool um_shm_sender_alive(struct um_mem_port *port, uint64_t sender)
{
    struct um_shm_contacts *contacts = ((struct um_shm_port *)port->mapper_state)->contacts;
    if ((uint32_t)sender == UM_SHM_SENDER_CONTACT)
        return contacts && um_shm_contact_number_is_alive(contacts, (uint32_t)(sender >> 32));
    return um_process_is_alive((uint32_t)(sender >> 32), 0); /* a zombie counts as dead */
}
