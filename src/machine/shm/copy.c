/*
 * Copies between private memories of two processes: process_vm_readv(2) and process_vm_writev(2).
 *
 * Every read begins with eight bytes of proof: the peer's nonce, read at the address that its port names; before a
 * write they are read by a call of their own, unless that was done less than PROOF_NS ago (docs/adr/0010). A process
 * that has got the pid of a dead peer does not have the nonce, so its memory is neither taken for the peer's nor
 * written. Threading: machine.h.
 */
#include "machine/shm/shm.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/iov.h"
#include "base/log.h"
#include "base/maps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

enum { COPY_PART = 1 << 20 };

/* How long the proof of a write holds, ns. A peer that becomes another program within this time may be written to. */
#define PROOF_NS INT64_C(100000)

/* The peer of a copy, and where its process holds the nonce. */
struct holder {
    const struct um_addr *addr;
    uint32_t pid;
    uint64_t nonce;
    uint64_t nonce_at;
};

/*
 * True if a piece lies in memory of a device or of memfd_secret(2), which the system copies only for the process
 * itself. Reads /proc: for copies that failed.
 */
static bool is_unreachable(const struct holder *peer, const struct um_piece *piece, size_t count)
{
    char path[32], text[8192];
    struct um_maps maps;
    struct um_map map;
    bool is = false;
    snprintf(path, sizeof(path), "/proc/%u/maps", peer->pid);
    for (size_t i = 0; i < count && !is; i++) {
        if (um_maps_open(&maps, path, text, sizeof(text)) != 0)
            return false;
        is = um_maps_find(&maps, (uintptr_t)piece[i].addr, true, &map) && map.perms[0] == 'r' &&
             (strncmp(map.path, "/secretmem", 10) == 0 ||
              (strncmp(map.path, "/dev/", 5) == 0 && strncmp(map.path, "/dev/shm/", 9) != 0));
        um_maps_close(&maps);
    }
    return is;
}

/*
 * The operation's error for that of a copy. EPERM and ENOSYS come from Yama, seccomp, or another user's process; copies
 * stay refused, and the caller goes on with records. The system says ESRCH also of a process of which only the first
 * thread has ended.
 */
static int copy_error(struct um_mem_port *port, const struct holder *peer, int error)
{
    struct um_shm_port *state = port->mapper_state;
    if (error == ESRCH && um_shm_alive(port, peer->addr, NULL))
        return -EPERM;
    if (error != EPERM && error != ENOSYS && error != EACCES)
        return -error;
    if (!state->copy_refused_logged) {
        state->copy_refused_logged = true;
        um_log(UM_LOG_INFO,
               "copying from or to the memory of process %u is refused (%s): large messages may be slower; allow "
               "process_vm_readv and process_vm_writev (kernel.yama.ptrace_scope=0, container capability SYS_PTRACE)",
               peer->pid, strerror(error));
    }
    return -EPERM;
}

/* Makes one system call. The bytes that moved, perhaps fewer than asked for, or a negative errno. */
static ssize_t copy_call(const struct holder *peer, bool write, struct iovec *local, size_t local_count,
                         struct iovec *remote, size_t remote_count)
{
    ssize_t moved = write ? process_vm_writev((pid_t)peer->pid, local, local_count, remote, remote_count, 0)
                          : process_vm_readv((pid_t)peer->pid, local, local_count, remote, remote_count, 0);
    return moved < 0 ? -errno : moved;
}

/* A door is held while a part is copied: about 0.1 ms. */
static ssize_t write_call(const struct holder *peer, struct um_mem_doors_shm *doors, struct iovec *local,
                          size_t local_count, struct iovec *remote, size_t remote_count)
{
    uint64_t *door;
    int ret = um_mem_gate_enter(doors, &door);
    if (ret)
        return ret;
    ssize_t moved = copy_call(peer, true, local, local_count, remote, remote_count);
    um_mem_gate_leave(door);
    return moved;
}

static int proof_check(struct um_mem_port *port, const struct holder *peer)
{
    uint64_t nonce = 0;
    struct iovec local = {.iov_base = &nonce, .iov_len = sizeof(nonce)};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)peer->nonce_at, .iov_len = sizeof(nonce)};
    ssize_t moved = copy_call(peer, false, &local, 1, &remote, 1);
    if (moved < 0 && moved != -EFAULT)
        return copy_error(port, peer, (int)-moved);
    return moved == (ssize_t)sizeof(nonce) && nonce == peer->nonce ? 0 : -ESRCH;
}

/* Checks the proof for a write, unless that was done a moment ago. */
static int proof_renew(struct um_mem_port *port, const struct holder *peer, uint64_t *proven_at)
{
    const uint64_t now = um_clock_ns();
    if ((int64_t)(now - *proven_at) < PROOF_NS)
        return 0;
    int ret = proof_check(port, peer);
    if (ret == 0)
        *proven_at = now;
    return ret;
}

/* The bytes that moved, or a negative errno of the operation. */
static ssize_t copy_moved(struct um_mem_port *port, const struct holder *peer, const struct um_copy *copy,
                          ssize_t moved)
{
    if (moved >= 0)
        return moved;
    if (moved == -EFAULT || moved == -EINVAL) { /* EINVAL: no process has such an address; the local ones are valid */
        const int ret = proof_check(port, peer);
        return ret ? ret : is_unreachable(peer, copy->remote, copy->remote_count) ? -EPERM : -EFAULT;
    }
    return copy_error(port, peer, (int)-moved);
}

/* If the copy between these pieces is faster by way of a buffer, puts that in the place of this process's memory. */
static bool take_detour(struct um_shm_port *state, bool write, struct iovec *near, struct iovec *far)
{
    size_t len;
    void *buffer = um_shm_detour_for(&state->detour, near, far, write, &len);
    if (!buffer)
        return false;
    if (write)
        um_bytes_copy(buffer, near->iov_base, len);
    *near = (struct iovec){.iov_base = buffer, .iov_len = len};
    far->iov_len = len;
    return true;
}

/* The pieces of one call. The first entries are the proof of a read: one system call for both. */
struct pieces {
    struct iovec local[UM_IOV_LIMIT + 1], remote[UM_IOV_LIMIT + 1];
    size_t locals, remotes; /* without the proof */
    uint64_t nonce;
};

/* Leaves the pieces to the next call from the first one on that goes by way of a buffer, as far as the pieces of both
 * processes are in pairs. */
static void stop_before_detour(struct pieces *p, bool write)
{
    for (size_t i = 1; i < p->locals && i < p->remotes && p->local[i].iov_len == p->remote[i].iov_len; i++) {
        if (um_shm_detour_may_be_for(&p->local[i + 1], &p->remote[i + 1], write)) {
            p->locals = p->remotes = i;
            break;
        }
    }
}

/* Copies some of the pieces. Returns the bytes that moved, or a negative errno of the operation. */
static ssize_t copy_pieces(struct um_mem_port *port, const struct holder *peer, const struct um_copy *copy,
                           const struct um_mem_copy_peer *known, struct pieces *p)
{
    void *const program = p->local[1].iov_base;
    const bool is_detour =
        !copy->is_region && take_detour(port->mapper_state, copy->write, &p->local[1], &p->remote[1]);
    if (is_detour)
        p->locals = p->remotes = 1;
    else if (!copy->is_region)
        stop_before_detour(p, copy->write);
    ssize_t moved = copy->write ? proof_renew(port, peer, known->proven_at) : 0;
    if (moved)
        return moved;
    moved = copy->write ? write_call(peer, known->doors, p->local + 1, p->locals, p->remote + 1, p->remotes)
                        : copy_call(peer, false, p->local, p->locals + 1, p->remote, p->remotes + 1);
    moved = copy_moved(port, peer, copy, moved);
    if (copy->write || moved < 0)
        return moved;
    if (moved < (ssize_t)sizeof(p->nonce) || p->nonce != peer->nonce)
        return -ESRCH;
    moved -= (ssize_t)sizeof(p->nonce);
    if (is_detour)
        um_bytes_copy(program, p->local[1].iov_base, (size_t)moved);
    return moved;
}

int um_shm_copy(struct um_mem_port *port, const struct um_addr *addr, const struct um_copy *copy,
                const struct um_mem_copy_peer *known)
{
    const struct um_shm_addr *to_whom = um_shm_addr_of(addr);
    const struct holder peer = {addr, um_shm_pid(to_whom), to_whom->nonce, known->nonce_at};
    struct iovec remote_all[UM_IOV_LIMIT];
    struct pieces p;
    if (copy->remote_count > UM_IOV_LIMIT || copy->local_count > UM_IOV_LIMIT)
        return -EINVAL;
    for (size_t i = 0; i < copy->remote_count; i++)
        remote_all[i] =
            (struct iovec){.iov_base = (void *)(uintptr_t)copy->remote[i].addr, .iov_len = copy->remote[i].len};
    struct um_iov_cursor from = um_iov_begin(remote_all, copy->remote_count);
    struct um_iov_cursor to = um_iov_begin(copy->local, copy->local_count);
    p.nonce = 0;
    p.local[0] = (struct iovec){.iov_base = &p.nonce, .iov_len = sizeof(p.nonce)};
    p.remote[0] = (struct iovec){.iov_base = (void *)(uintptr_t)peer.nonce_at, .iov_len = sizeof(p.nonce)};
    for (size_t left = copy->len; left > 0;) {
        struct um_iov_cursor from_next = from, to_next = to;
        const size_t part = copy->write && left > COPY_PART ? COPY_PART : left;
        p.locals = um_iov_take(&to_next, part, p.local + 1, UM_IOV_LIMIT);
        p.remotes = um_iov_take(&from_next, part, p.remote + 1, UM_IOV_LIMIT);
        if (p.locals == 0 || p.remotes == 0) /* a null pointer */
            return -EFAULT;
        const ssize_t moved = copy_pieces(port, &peer, copy, known, &p);
        if (moved < 0)
            return (int)moved;
        if (moved == 0)
            return is_unreachable(&peer, copy->remote, copy->remote_count) ? -EPERM : -EFAULT;
        um_iov_skip(&from, (size_t)moved);
        um_iov_skip(&to, (size_t)moved);
        left -= (size_t)moved;
    }
    return 0;
}
