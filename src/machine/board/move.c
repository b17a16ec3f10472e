/*
 * Copies between dmable memory of a peer and memory here, by DMA. board.h.
 *
 * A DMA reads or writes local memory itself if it is dmable. Other local memory goes through the bounce buffers of the
 * process: while one of them is in the engine the processor copies the next one, in parts of a size at which neither
 * waits long for the other. Up to UM_BOARD_BOUNCES DMAs are under way, so the engine has work while the processor
 * copies.
 *
 * The call waits for all DMAs before it returns, but releases the lock after every SLICE bytes.
 * Threading: takes the process's lock.
 */
#include "machine/board/board.h"

#include "base/atomic.h"
#include "base/fault_guard.h"
#include "base/iov.h"

#include <errno.h>
#include <string.h>

enum { SLICE = 4 << 20, DIRECT = 1 << 20, PART_MIN = 4096, CALLS = 2048, WAIT_MIN = 1024 };

struct flight {
    uint64_t dma;
    struct um_board_reach *reach;
    unsigned char *bounce, *user; /* bounce NULL: the DMA uses the user's memory itself */
    size_t len;
};

struct mover {
    struct um_board_link *link;
    bool write;
    size_t part;                    /* bytes of a part that goes through a bounce buffer */
    size_t size_max;                /* bytes of one DMA, at most */
    const struct um_window *window; /* of the peer's memory; NULL: none */
    struct um_fault_guard *guard;   /* the local memory may be missing; NULL: it is there */
    struct flight flight[UM_BOARD_BOUNCES];
    unsigned begun, landed;
    int error;
};

/* Copies between the caller's memory and a bounce buffer. Returns 0, or -EFAULT: the caller's memory is missing. */
static int copy(const struct mover *m, void *to, const void *from, size_t len)
{
    if (m->guard)
        um_fault_guard_begin(m->guard, m->write ? from : to, len);
    um_board_api.copy(um_board_handle(), to, from, len);
    return m->guard && um_fault_guard_end(m->guard) ? -EFAULT : 0;
}

/* Waits for the oldest DMA, and copies what it read out of its bounce buffer. */
static void land(struct mover *m)
{
    struct flight *f = &m->flight[m->landed++ % UM_BOARD_BOUNCES];
    int ret;
    while ((ret = um_board_dma_end(f->reach, f->dma)) == -EINPROGRESS)
        ;
    if (ret == 0 && f->bounce && !m->write)
        ret = copy(m, f->user, f->bounce, f->len);
    if (ret && !m->error)
        m->error = ret;
}

static int reach_peer(struct mover *m, uint64_t address, size_t len, struct um_board_reach **reach_p)
{
    const struct unimem_remote at = {m->link->peer.node, m->link->peer.context, address};
    struct um_board_reach *reach = um_board_reach_again(&m->link->hint, &at, len);
    int ret = 0;
    while (!reach && (ret = um_board_reach_peer(&at, len, &reach)) == -EAGAIN && m->landed != m->begun)
        land(m); /* its end may make room in the engine's table */
    if (ret == 0) {
        um_board_reach_remember(&m->link->hint, reach);
        *reach_p = reach;
    }
    return ret == -EAGAIN || ret == -ENOMEM ? -EPERM : ret;
}

/* Begins a DMA, if needed after the end of others. */
static int begin(struct mover *m, const struct um_board_transfer *what, uint64_t *dma_p)
{
    int ret;
    while ((ret = um_board_dma_begin(what, dma_p)) == -EAGAIN) {
        if (m->landed != m->begun)
            land(m);
        else
            um_board_lanes_settle();
    }
    return ret;
}

/* Begins to move the next part, of at most len bytes. Returns its length, or a negative errno. */
static ssize_t launch(struct mover *m, uint64_t address, unsigned char *user, size_t len)
{
    struct flight *f = &m->flight[m->begun % UM_BOARD_BOUNCES];
    bool direct = um_board_arena_of(user, len) != NULL;
    struct um_board_transfer what = {.address = address, .write = m->write};
    size_t most = direct ? DIRECT : m->part;
    if (!direct && !um_board_scratch_get())
        return -EPERM;
    what.len = len < most ? len : most;
    what.len = what.len < m->size_max ? what.len : m->size_max;
    if (m->begun - m->landed == UM_BOARD_BOUNCES)
        land(m);
    int ret = reach_peer(m, address, what.len, &what.reach);
    if (ret)
        return ret;
    /* The registration may be of what lies there since the region ended. sync: none (the owner writes the notice before
     * its program can reuse the memory) */
    if (m->window && um_load_acquire_u64(m->window->changes_at) != m->window->changes)
        return -EAGAIN;
    um_board_reach_hold(what.reach); /* while this call waits for other DMAs */
    *f = (struct flight){.reach = what.reach, .user = user, .len = what.len};
    f->bounce = direct ? NULL : um_board_scratch_get()->bounce[m->begun % UM_BOARD_BOUNCES];
    if (f->bounce && m->write)
        ret = copy(m, f->bounce, user, what.len);
    what.local = f->bounce ? f->bounce : user;
    if (ret == 0)
        ret = begin(m, &what, &f->dma);
    um_board_reach_release(what.reach);
    m->begun += ret == 0;
    return ret ? ret : (ssize_t)what.len;
}

/* Moves len bytes, at most SLICE, after which other threads get the lock. Advances the cursors. */
static int slice(struct mover *m, struct um_iov_cursor *remote, struct um_iov_cursor *local, size_t len)
{
    m->begun = m->landed = 0;
    m->error = 0;
    for (size_t moved = 0; moved < len && !m->error;) {
        struct iovec there, here;
        struct um_iov_cursor ahead = *remote, behind = *local;
        if (!um_iov_take(&ahead, len - moved, &there, 1) || !um_iov_take(&behind, there.iov_len, &here, 1))
            break; /* the lists hold less than len */
        ssize_t ret = launch(m, (uintptr_t)there.iov_base, here.iov_base, here.iov_len);
        if (ret < 0) {
            m->error = (int)ret;
            break;
        }
        um_iov_skip(remote, (size_t)ret);
        um_iov_skip(local, (size_t)ret);
        moved += (size_t)ret;
    }
    while (m->landed != m->begun)
        land(m);
    return m->error;
}

/* Returns the length of a part at which the first copy, which nothing overlaps, costs about as much as all calls
 * together. */
static size_t part_of(size_t len)
{
    uint64_t part = PART_MIN;
    while (part < UM_BOARD_BOUNCE && part * part < (uint64_t)len * CALLS)
        part *= 2;
    return (size_t)part;
}

/* True if the peer is a port of this process that was closed. (Ports of other processes end together with what they
 * exported.) */
static bool is_closed(const struct um_board_link *link)
{
    struct unimem_info own;
    um_board_api.get_info(um_board_handle(), &own);
    if (link->peer.context != own.context || link->peer.node != own.node)
        return false;
    for (const struct um_board_port *port = um_board_ports(); port; port = port->next)
        if (port->address.mailbox == link->peer.mailbox && port->address.generation == link->peer.generation)
            return false;
    return true;
}

/* As slice(). A cached registration may be of memory that was freed: then it tries once more with the current
 * directory. */
static int slice_again(struct mover *m, struct um_iov_cursor *remote, struct um_iov_cursor *local, size_t len)
{
    struct um_iov_cursor first_remote = *remote, first_local = *local;
    int ret = slice(m, remote, local, len);
    if (ret != -EFAULT && ret != -EACCES)
        return ret;
    um_board_reach_doubt(m->link->peer.node, m->link->peer.context);
    *remote = first_remote;
    *local = first_local;
    return slice(m, remote, local, len);
}

static int move(struct mover *m, const struct iovec *remote, size_t remote_count, const struct iovec *local,
                size_t local_count, size_t len)
{
    struct um_iov_cursor there = um_iov_begin(remote, remote_count), here = um_iov_begin(local, local_count);
    struct unimem_info info;
    int ret = 0;
    um_board_enter();
    um_board_api.get_info(um_board_handle(), &info);
    m->size_max = info.dma_size_max < SIZE_MAX ? (size_t)info.dma_size_max : SIZE_MAX;
    if (is_closed(m->link))
        ret = -ESRCH;
    for (size_t moved = 0; ret == 0 && moved < len; moved += SLICE) {
        size_t most = len - moved < SLICE ? len - moved : (size_t)SLICE;
        ret = slice_again(m, &there, &here, most);
        if (ret == 0 && most == SLICE) {
            um_board_leave();
            um_board_enter();
            um_board_drive();
        }
    }
    um_board_leave();
    return ret == -ENXIO ? -ESRCH : ret == -EACCES ? -EPERM : ret;
}

/* Waits for the engine: the copy ends in this call. */
int um_board_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    struct um_board_link *link = (struct um_board_link *)base;
    struct mover m = {.link = link, .write = copy->write, .part = part_of(copy->len), .window = copy->window};
    struct iovec there[UM_IOV_LIMIT];
    (void)transfer_p;
    if (!link->port->copies || um_board_step_get() < UM_BOARD_DIRECT)
        return -EPERM;
    for (size_t i = 0; i < copy->remote_count; i++)
        there[i] = (struct iovec){(void *)(uintptr_t)copy->remote[i].addr, (size_t)copy->remote[i].len};
    if (copy->is_region && !(m.guard = um_fault_guard_open()))
        return -EPERM;
    int ret = move(&m, there, copy->remote_count, copy->local, copy->local_count, copy->len);
    if (m.guard)
        um_fault_guard_close(m.guard);
    return ret;
}

/* True for dmable memory from WAIT_MIN bytes on: an announcement and an answer take less time than two copies. */
bool um_board_waits_better(struct um_lane *base, const struct iovec *iov, size_t count, size_t len)
{
    const struct um_board_lane *lane = (const struct um_board_lane *)base;
    bool all = lane->port->copies && len >= WAIT_MIN && um_board_step_get() >= UM_BOARD_DIRECT;
    if (!all)
        return false;
    um_board_enter();
    for (size_t i = 0; i < count && all; i++)
        all = um_board_arena_of(iov[i].iov_base, iov[i].iov_len) != NULL;
    um_board_leave();
    return all;
}
