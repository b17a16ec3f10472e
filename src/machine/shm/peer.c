/*
 * A peer's memory and wake-up pipe: opened through /proc/PID/fd, or passed by a contact if the peer has no pid here.
 * See shm.h. Source: proc(5).
 */
#include "machine/shm/contact/contact.h"
#include "machine/shm/fault.h"

#include "base/cancel.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Opens a descriptor of a process whose first thread has ended: /proc shows it with the other threads. -ENOENT: none
 * has it. */
static int thread_open(uint32_t pid, int number, int flags)
{
    char path[300];
    int fd = -1;
    snprintf(path, sizeof(path), "/proc/%u/task", pid);
    DIR *tasks = opendir(path);
    const struct dirent *task;
    while (tasks && fd < 0 && (task = readdir(tasks)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%u/task/%s/fd/%d", pid, task->d_name, number);
        fd = task->d_name[0] == '.' ? -1 : open(path, flags | O_CLOEXEC);
    }
    if (tasks)
        closedir(tasks);
    return fd < 0 ? -ENOENT : fd;
}

/* Opens a descriptor of a peer through /proc; a negative errno says why not. */
static int peer_open(uint32_t pid, int number, int flags)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/fd/%d", pid, number);
    int fd = open(path, flags | O_CLOEXEC);
    const int error = errno;
    return fd >= 0 ? fd : error == ENOENT ? thread_open(pid, number, flags) : -error;
}

static int peer_memory_open(const struct um_shm_addr *peer, uint32_t number)
{
    static struct um_log_limit refused, failed;
    int fd = peer_open(um_shm_pid(peer), (int)number,
                       O_RDWR | O_NONBLOCK | O_NOCTTY); /* the kind of file is not known yet */
    if (fd >= 0)
        return fd;
    if (fd == -ENOENT || fd == -ESRCH || fd == -ENXIO)
        return -ECONNREFUSED;
    if (fd == -EACCES || fd == -EPERM) {
        um_log_limited(
            &refused, UM_LOG_WARN,
            "not permitted to open the memory of peer process %u: run both as the same user, and do not clear the "
            "dumpable flag (prctl PR_SET_DUMPABLE, set-user-id programs)",
            um_shm_pid(peer));
        return -EACCES;
    }
    um_log_limited(&failed, UM_LOG_WARN, "cannot open the memory of peer process %u: %s%s", um_shm_pid(peer),
                   strerror(-fd), fd == -EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
    return fd;
}

/* How far into its page an offset or address lies: offsets are multiples of UM_PAGE, a page may be larger (Arm: 64
 * KiB). */
static size_t page_inset(uint64_t at)
{
    return (size_t)(at & ((uint64_t)sysconf(_SC_PAGESIZE) - 1));
}

static bool can_shrink(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals < 0 || !(seals & F_SEAL_SHRINK);
}

/* True if the file can be mapped without SIGBUS: a file that another process may shrink raises it, and so do huge pages
 * when there are none. */
static bool is_mappable(int fd, const struct um_shm_part *part)
{
    struct stat st;
    struct statfs fs;
    return (part->stale || !can_shrink(fd)) && fstat(fd, &st) == 0 && fstatfs(fd, &fs) == 0 &&
           fs.f_type == TMPFS_MAGIC && (uint64_t)st.st_size >= part->offset + part->len;
}

/* The file that a peer of another pid namespace has passed. The contact owns it and closes it. */
static int peer_passed(struct um_mem_port *port, const struct um_addr *addr, uint32_t passed)
{
    struct um_shm_contacts *contacts = ((struct um_shm_port *)port->mapper_state)->contacts;
    struct um_shm_contact *c;
    int ret = contacts ? um_shm_contact_get(contacts, addr, &c) : -EHOSTUNREACH;
    if (ret)
        return ret;
    return c->file[passed] < 0 ? -ENOENT : c->file[passed];
}

int um_shm_mapping_keep(unsigned char *base, size_t len, size_t inset, uint64_t *stale, struct um_mem_mapping *map_p)
{
    madvise(base, len, MADV_DONTFORK);
    /* sealed files are guarded, too: on a full file system there is no room for a missing page */
    int ret = stale ? um_shm_shrink_guard(base, len, stale) : 0;
    if (ret)
        munmap(base, len);
    else
        *map_p = (struct um_mem_mapping){.base = base + inset, .len = len - inset, .is_guarded = stale};
    return ret;
}

int um_shm_peer_map(struct um_mem_port *port, const struct um_addr *addr, const struct um_shm_file *file,
                    const struct um_shm_part *part, struct um_mem_mapping *map_p)
{
    UM_UNCANCELLED;
    static struct um_log_limit limit;
    const bool is_apart = um_shm_is_apart(port, addr);
    int fd = is_apart ? peer_passed(port, addr, file->passed) : peer_memory_open(um_shm_addr_of(addr), file->number);
    if (fd < 0)
        return fd;
    int ret = -EHOSTUNREACH;
    if (!is_mappable(fd, part))
        goto close_fd;
    const size_t inset = page_inset(part->offset), len = inset + part->len;
    const char *why;
    unsigned char *base =
        um_shm_map(len, part->read_only ? PROT_READ : PROT_READ | PROT_WRITE, fd, (off_t)(part->offset - inset), &why);
    if (!base) {
        um_log_limited(&limit, UM_LOG_WARN, "cannot map %zu bytes of a peer's memory: %s", part->len, why);
        ret = -ENOMEM;
        goto close_fd;
    }
    ret = um_shm_mapping_keep(base, len, inset, part->stale, map_p);
close_fd:
    if (!is_apart)
        close(fd);
    return ret;
}

void um_shm_detach(struct um_mem_mapping *map)
{
    const size_t inset = page_inset((uintptr_t)map->base);
    if (map->is_guarded)
        um_shm_shrink_forget(map->base);
    munmap((unsigned char *)map->base - inset, inset + map->len);
    *map = (struct um_mem_mapping){0};
}

/*
 * Opens a peer's wake-up pipe, for reading too: then a write after the peer's death raises no SIGPIPE here. If the peer
 * has closed the port, another file may have the number: only a pipe is taken. A pipe that was passed is opened anew,
 * too: the peer can change the flags of the passed descriptor, and a write must not block.
 */
int um_shm_peer_pipe_open(struct um_mem_port *port, const struct um_addr *addr, uint32_t wake)
{
    UM_UNCANCELLED;
    const bool is_apart = um_shm_is_apart(port, addr);
    const uint32_t pid = is_apart ? (uint32_t)getpid() : um_shm_pid(um_shm_addr_of(addr));
    const int number = is_apart ? peer_passed(port, addr, UM_CONTACT_WAKE) : wake > INT_MAX ? -ENXIO : (int)wake;
    struct stat st;
    int fd = number < 0 ? number : peer_open(pid, number, O_RDWR | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)))
        return fd;
    close(fd);
    return -ENXIO;
}
