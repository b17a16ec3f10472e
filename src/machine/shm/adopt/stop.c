/*
 * Stopping the other threads while a range is away: userfaultfd.
 *
 * A thread that touches a missing page of a registered range waits, in the kernel too (another thread's read(2),
 * another process's process_vm_writev), until it is woken. That is the full mode, which needs a privilege. The user
 * mode, which everybody has, turns the kernel's accesses into EFAULT, so it serves only where this thread is the only
 * one.
 * Sources: userfaultfd(2), ioctl_userfaultfd(2), Documentation/admin-guide/mm/userfaultfd.rst. Threading: internal.h.
 */
#include "base/memory.h"
#include "machine/shm/adopt/internal.h"
#include "machine/shm/adopt/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

/* Linux 6.8; the headers may be older. */
struct um_shm_uffdio_move {
    uint64_t dst, src, len, mode;
    int64_t moved;
};
#define UM_UFFDIO_MOVE _IOWR(0xAA, 0x05, struct um_shm_uffdio_move)
enum { MOVE_DONTWAKE = 1, MOVE_ALLOW_SRC_HOLES = 2 };
static const uint64_t feature_move = (uint64_t)1 << 16;

enum { BUSY_TRIES = 400, BUSY_WAIT_NS = 50000 }; /* a transfer in flight has 20 ms to end */

/* Opens the mode that stops the kernel's accesses, too: by the system call, or by the device, whose permissions may be
 * wider. */
static int open_full(void)
{
    int flags = O_CLOEXEC | O_NONBLOCK;
    int fd = um_shm_adopt_forced.user_mode ? -1 : (int)syscall(SYS_userfaultfd, flags);
    if (fd >= 0 || um_shm_adopt_forced.user_mode || um_shm_adopt_forced.no_dev)
        return fd;
    int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (dev < 0)
        return -1;
    fd = ioctl(dev, USERFAULTFD_IOC_NEW, flags);
    close(dev);
    return fd;
}

int um_shm_stop_open(size_t threads, struct um_shm_stop *stop_p, const char **why_p)
{
    struct um_shm_stop stop = {.fd = -1};
    if (!um_shm_adopt_forced.no_userfaultfd) {
        stop.fd = open_full();
        if (stop.fd < 0 && threads == 1)
            stop.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    }
    struct uffdio_api api = {.api = UFFD_API};
    if (stop.fd >= 0 && ioctl(stop.fd, UFFDIO_API, &api) != 0) {
        close(stop.fd);
        stop.fd = -1;
    }
    if (stop.fd < 0 && threads > 1) {
        *why_p = "the process has several threads and userfaultfd, which would stop them, is refused: set "
                 "vm.unprivileged_userfaultfd=1, or give access to /dev/userfaultfd, or allow it in the container's "
                 "seccomp profile";
        return -EPERM;
    }
    stop.can_move = stop.fd >= 0 && (api.features & feature_move) && !um_shm_adopt_forced.no_move;
    stop.can_minor = stop.fd >= 0 && (api.features & UFFD_FEATURE_MINOR_SHMEM) && !um_shm_adopt_forced.no_minor;
    *stop_p = stop;
    return 0;
}

void um_shm_stop_close(struct um_shm_stop *stop)
{
    if (stop->fd >= 0)
        close(stop->fd);
    stop->fd = -1;
}

long um_shm_stop_begin(const struct um_shm_stop *stop, uintptr_t base, size_t len, bool shared)
{
    struct uffdio_register reg;
    reg.range.start = base;
    reg.range.len = len;
    reg.mode = UFFDIO_REGISTER_MODE_MISSING | (shared ? UFFDIO_REGISTER_MODE_MINOR : 0);
    reg.ioctls = 0;
    if (stop->fd < 0)
        return 0;
    long ret = um_shm_sys_ioctl(stop->fd, UFFDIO_REGISTER, &reg);
    if (ret < 0 &&
        ret != -EBUSY) /* it may have stopped half way; busy: registered by another userfaultfd, which must stay */
        um_shm_sys_ioctl(stop->fd, UFFDIO_UNREGISTER, &reg.range);
    return ret;
}

void um_shm_stop_end(const struct um_shm_stop *stop, uintptr_t base, size_t len)
{
    struct uffdio_range range;
    range.start = base;
    range.len = len;
    if (stop->fd < 0)
        return;
    um_shm_sys_ioctl(stop->fd, UFFDIO_UNREGISTER, &range); /* refused where a new mapping took the place */
    um_shm_sys_ioctl(stop->fd, UFFDIO_WAKE, &range);
}

/* Moves what it can. Returns the bytes done; *error_p says why not all. */
static size_t move_some(int fd, uintptr_t from, uintptr_t to, size_t len, long *error_p)
{
    size_t done = 0;
    *error_p = 0;
    while (done < len) {
        struct um_shm_uffdio_move move;
        move.dst = to + done;
        move.src = from + done;
        move.len = len - done;
        move.mode = MOVE_DONTWAKE | MOVE_ALLOW_SRC_HOLES;
        move.moved = 0;
        long ret = um_shm_sys_ioctl(fd, UM_UFFDIO_MOVE, &move);
        if (move.moved > 0)
            done += (size_t)move.moved;
        if (ret == 0)
            return len;
        if (move.moved <= 0) {
            *error_p = move.moved < 0 ? (long)move.moved : ret;
            return done;
        }
    }
    return done;
}

/*
 * Like move_some, until all is done or a page stays pinned. A page shared with a forked child is refused like a pinned
 * one: a write fault that changes nothing gives this process its own copy.
 */
static size_t move_all(int fd, uintptr_t from, uintptr_t to, size_t len, long *error_p)
{
    const size_t page = 4096; /* populating less than a page populates the page */
    size_t done = 0;
    for (int tries = 0; tries < BUSY_TRIES; tries++) {
        size_t moved = move_some(fd, from + done, to + done, len - done, error_p);
        done += moved;
        if (done == len || (*error_p != -EBUSY && *error_p != -EAGAIN))
            return done;
        if (moved > 0)
            tries = 0;
        um_shm_sys_madvise(from + done, page, MADV_POPULATE_WRITE);
        if (tries > 0)
            um_shm_sys_sleep_ns(BUSY_WAIT_NS);
    }
    return done;
}

long um_shm_stop_shift(const struct um_shm_stop *stop, uintptr_t from, uintptr_t to, size_t len)
{
    long error = 0;
    if (move_all(stop->fd, from, to, len, &error) == len)
        return 0;
    return error == -EAGAIN ? -EBUSY : error;
}

long um_shm_stop_fill(const struct um_shm_stop *stop, uintptr_t from, uintptr_t to, size_t len)
{
    for (size_t done = 0; done < len;) {
        struct uffdio_copy copy;
        copy.dst = to + done;
        copy.src = from + done;
        copy.len = len - done;
        copy.mode = UFFDIO_COPY_MODE_DONTWAKE;
        copy.copy = 0;
        long ret = um_shm_sys_ioctl(stop->fd, UFFDIO_COPY, &copy);
        if (copy.copy > 0)
            done += (size_t)copy.copy;
        else if (ret < 0 && ret != -EAGAIN)
            return ret;
    }
    return 0;
}
