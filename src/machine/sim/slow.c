/*
 * Transfers that take several polls, as those of an engine: each call that could notice one moves a few parts of it,
 * chosen by the seed. If a caller forgets to cancel a transfer, bytes move after the operation has ended.
 *
 * A part is moved with the registry's lock held, and only while the window's region is exported and the peer's port
 * open: so nothing reaches memory that its owner has taken back. Owns: struct sim_transfer. Threading: machine.h.
 */
#include "machine/sim/internal.h"

#include "base/atomic.h"
#include "base/iov.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARTS = 16, /* parts of a transfer, about; more if its buffers are in pieces */
    MOST = 3,   /* fewer parts than this move in a call */
};

struct sim_part {
    char *to;
    const char *from;
    size_t len;
};

struct sim_transfer {
    struct um_transfer base;
    struct um_list link; /* in the port's list; not in it: the transfer has ended with `error` */
    struct um_mem_link *to;
    int error;
    bool is_late;     /* the peer died during the transfer */
    uint64_t changes; /* as in its window */
    const uint64_t *changes_at;
    uint32_t left; /* parts that have not moved; they come first in part[] */
    struct sim_part part[];
};

/* Where the next byte of an array of pieces lies: in piece `at`. */
struct walk {
    size_t at, offset;
};

static void walk_on(struct walk *w, size_t n, size_t len)
{
    w->offset += n;
    if (w->offset == len) {
        w->at++;
        w->offset = 0;
    }
}

/* Cuts a copy into parts, each of them in one buffer on either side. Returns their number. */
static uint32_t parts_cut(const struct um_copy *copy, struct sim_part *part)
{
    const size_t most = copy->len / PARTS + 1;
    struct walk there = {0}, here = {0};
    uint32_t count = 0;
    for (size_t left = copy->len; left > 0 && there.at < copy->remote_count && here.at < copy->local_count;) {
        const struct um_piece *r = &copy->remote[there.at];
        const struct iovec *l = &copy->local[here.at];
        size_t n = left < most ? left : most;
        n = n < r->len - there.offset ? n : r->len - there.offset;
        n = n < l->iov_len - here.offset ? n : l->iov_len - here.offset;
        char *peer = (char *)(uintptr_t)r->addr + there.offset, *own = (char *)l->iov_base + here.offset;
        if (n > 0)
            part[count++] = (struct sim_part){copy->write ? peer : own, copy->write ? own : peer, n};
        walk_on(&there, n, r->len);
        walk_on(&here, n, l->iov_len);
        left -= n;
    }
    return count;
}

int um_sim_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    struct um_mem_link *link = (struct um_mem_link *)base;
    struct sim_port *state = link->port->mapper_state;
    if (!state->is_slow || copy->len == 0 || !link->port->config.private_copy)
        return um_mem_transfer_start(base, copy, transfer_p);
    struct sim_transfer *t = malloc(sizeof(*t) + (PARTS + 1 + 2 * UM_IOV_LIMIT) * sizeof(struct sim_part));
    if (!t)
        return -ENOMEM;
    *t = (struct sim_transfer){.base = {base->machine}, .to = link};
    if (copy->window) {
        t->changes = copy->window->changes;
        t->changes_at = copy->window->changes_at;
    }
    t->left = parts_cut(copy, t->part);
    um_list_append(&state->transfers, &t->link);
    *transfer_p = &t->base;
    return -EINPROGRESS;
}

/*
 * Moves one of the parts that are left. Parts under way when the peer dies may still arrive, until the caller learns of
 * the death.
 */
static void part_move(struct sim_port *state, struct sim_transfer *t)
{
    struct sim_part *part = &t->part[um_sim_random(state, t->left)];
    um_sim_lock();
    const enum um_sim_life life = um_sim_life_locked(&t->to->addr);
    /* sync: region-current (partner region-change) */
    if (t->changes_at && um_load_acquire_u64(t->changes_at) != t->changes)
        t->error = -EKEYREJECTED;
    else if (life == UM_SIM_CLOSED)
        t->error = -ESRCH;
    if (!t->error)
        memcpy(part->to, part->from, part->len);
    um_sim_unlock();
    t->is_late = t->is_late || life == UM_SIM_DEAD;
    *part = t->part[--t->left];
}

static void transfer_advance(struct sim_port *state, struct sim_transfer *t)
{
    for (uint32_t n = um_sim_random(state, MOST); n > 0 && t->left > 0 && !t->error; n--)
        part_move(state, t);
    if (t->error || t->left == 0)
        um_list_unlink(&t->link);
}

void um_sim_transfers_advance(struct um_mem_port *port)
{
    struct sim_port *state = port->mapper_state;
    struct um_list *next;
    for (struct um_list *l = state->transfers.next; l != &state->transfers; l = next) {
        next = l->next;
        transfer_advance(state, UM_CONTAINER(l, struct sim_transfer, link));
    }
}

int um_sim_transfer_poll(struct um_transfer *transfer)
{
    struct sim_transfer *t = (struct sim_transfer *)transfer;
    if (!um_list_is_empty(&t->link))
        transfer_advance(t->to->port->mapper_state, t);
    if (!um_list_is_empty(&t->link) && !t->is_late)
        return -EINPROGRESS;
    const int ret = t->is_late ? -ESRCH : t->error;
    um_sim_transfer_cancel(transfer);
    return ret;
}

void um_sim_transfer_cancel(struct um_transfer *transfer)
{
    struct sim_transfer *t = (struct sim_transfer *)transfer;
    um_list_unlink(&t->link);
    free(t);
}

void um_sim_unexport(struct um_space *space, struct um_exported *exported)
{
    um_sim_lock(); /* so that no part is under way */
    um_mem_unexport(space, exported);
    um_sim_unlock();
}
