/*
 * Children: after fork() a child shares no adopted page with its parent.
 *
 * Pages of which every byte is registered become a private mapping of the file: cheap, and their contents are undefined
 * in a child, like any registered memory. Other pages hold bytes that the program expects: the child copies them before
 * it runs, and the parent's fork() returns only then. The child starts with nothing adopted. Threading: the lock is
 * held from before the fork until after, so no page is under way.
 */
#include "machine/shm/adopt/internal.h"
#include "machine/shm/adopt/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static void prepare(void)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_if_any();
    if (!state)
        return;
    um_shm_adopt_lock(state, &state->fork_mask);
    state->child_pipe[0] = state->child_pipe[1] = -1;
    if (state->count > 0 && pipe2(state->child_pipe, O_CLOEXEC) != 0)
        state->child_pipe[0] = state->child_pipe[1] = -1; /* no descriptor left: the parent does not wait */
}

/* Waits until the child has its copies, or has died, or fork() failed: then the other end of the pipe is closed. */
static void in_parent(void)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_if_any();
    char byte;
    if (!state)
        return;
    if (state->child_pipe[0] >= 0) {
        close(state->child_pipe[1]);
        while (read(state->child_pipe[0], &byte, 1) < 0 && errno == EINTR)
            ;
        close(state->child_pipe[0]);
    }
    um_shm_adopt_unlock(state, &state->fork_mask);
}

/* Separates from the parent the bytes of the file that are mapped at seg, all of one entry of the table (NULL: of
 * none). */
static void part_isolate(const struct um_shm_adopt_state *state, const struct um_shm_segment *seg,
                         const struct um_shm_adopted *entry)
{
    static const struct um_shm_stop nobody = {.fd = -1};
    size_t len = seg->end - seg->start;
    bool moved = seg->start != seg->offset;
    struct um_shm_move move = {.stop = &nobody,
                               .file = state->fd,
                               .base = seg->start,
                               .len = len,
                               .offset = seg->offset,
                               .page = state->page,
                               .prot = seg->prot,
                               .keep = true};
    if (moved || !entry || entry->whole == 0) {
        move.shadow = !moved && entry && entry->shadow ? entry->shadow + (seg->offset - entry->start) : 0;
        if (!move.shadow) {
            long place =
                um_shm_sys_mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
            move.shadow = place > 0 ? (uintptr_t)place : 0;
        }
        if (move.shadow && um_shm_move_out(&move) == 0)
            return;
    }
    if (mmap((void *)seg->start, len, seg->prot, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, state->fd,
             (off_t)seg->offset) == MAP_FAILED)
        munmap((void *)seg->start, len); /* better a child that faults than one that writes into its parent's memory */
}

static void segment_isolate(const struct um_shm_adopt_state *state, const struct um_shm_segment *seg)
{
    uint64_t end = seg->offset + (seg->end - seg->start);
    for (uint64_t at = seg->offset; at < end;) {
        size_t i = um_shm_table_find(state, at);
        const struct um_shm_adopted *entry = i < state->count && state->table[i].start < end ? &state->table[i] : NULL;
        uint64_t to = entry && entry->end < end ? entry->end : end;
        if (entry && entry->start > at) {
            to = entry->start;
            entry = NULL;
        }
        struct um_shm_segment part = *seg;
        part.start = seg->start + (at - seg->offset);
        part.end = part.start + (to - at);
        part.offset = at;
        part_isolate(state, &part, entry);
        at = to;
    }
}

/* Does so by the table alone, where the kernel does not say what is mapped. */
static void isolate_by_table(const struct um_shm_adopt_state *state)
{
    for (size_t i = 0; i < state->count; i++) {
        const struct um_shm_adopted *entry = &state->table[i];
        struct um_shm_segment seg = {
            .start = entry->start, .end = entry->end, .offset = entry->start, .prot = PROT_READ | PROT_WRITE};
        part_isolate(state, &seg, entry);
    }
}

static void in_child(void)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_if_any();
    if (!state)
        return;
    if (state->child_pipe[0] >= 0)
        close(state->child_pipe[0]); /* so that a descriptor is free to read /proc */
    if (state->count > 0) {
        long count = um_shm_check_ours(state, 0, um_shm_adopt_file_size);
        for (long i = 0; i < count; i++)
            segment_isolate(state, &state->segment[i]);
        if (count < 0)
            isolate_by_table(state);
    }
    if (state->child_pipe[1] >= 0) {
        ssize_t n = write(state->child_pipe[1], "", 1);
        (void)n;
        close(state->child_pipe[1]);
    }
    /* A shadow that was used has moved away, and nothing else was mapped in its place: to unmap that is harmless. */
    for (size_t i = 0; i < state->count; i++) {
        if (state->table[i].shadow)
            munmap((void *)state->table[i].shadow, state->table[i].end - state->table[i].start);
    }
    if (state->fd >= 0)
        close(state->fd);
    state->fd = -1;
    state->count = 0;
    state->live = 0;
    um_shm_adopt_unlock(state, &state->fork_mask);
}

int um_shm_adopt_fork_watch(void)
{
    return pthread_atfork(prepare, in_parent, in_child);
}
