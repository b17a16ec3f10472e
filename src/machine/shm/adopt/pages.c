/*
 * Adoption: which pages move, slice by slice, and how the table and the shadows change.
 *
 * Between the calls (adopt.c) and the move of one slice (move.c). After a failure the table is still correct: it lists
 * what moved. Threading: internal.h.
 */
#include "base/atomic.h"
#include "base/memory.h"
#include "machine/shm/adopt/internal.h"
#include "machine/shm/adopt/sys.h"
#include "machine/shm/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static int refuse(int error, const char **why_p, const char *why)
{
    *why_p = why;
    return error;
}

int um_shm_mover_open(struct um_shm_adopt_state *state, struct um_shm_mover *mover_p, const char **why_p)
{
    struct um_shm_mover *mover = mover_p;
    *mover = (struct um_shm_mover){.state = state, .pagemap = -1};
    mover->threads = um_shm_check_threads(state);
    if (mover->threads <= 0) {
        *why_p = "/proc/self/task cannot be read";
        return -EPERM;
    }
    int ret = um_shm_stop_open((size_t)mover->threads, &mover->stop, why_p);
    if (ret)
        return ret;
    mover->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (mover->pagemap < 0) {
        *why_p = "/proc/self/pagemap cannot be read, so it is unknown which pages are in use";
        um_shm_stop_close(&mover->stop);
        return -EPERM;
    }
    um_shm_scan_open(mover->pagemap, (uintptr_t)state, state->page, &mover->scan);
    return 0;
}

void um_shm_mover_close(struct um_shm_mover *mover)
{
    if (mover->pagemap >= 0)
        close(mover->pagemap);
    um_shm_stop_close(&mover->stop);
}

static size_t slice_size(void)
{
    return um_shm_adopt_forced.slice ? um_shm_adopt_forced.slice : um_shm_adopt_slice;
}

uintptr_t um_shm_place_reserve(uintptr_t like, size_t len, int prot)
{
    const size_t huge = (size_t)2 << 20;
    char *place = mmap(NULL, len + huge, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED)
        return 0;
    size_t skip = (like - (uintptr_t)place) & (huge - 1);
    if (skip)
        munmap(place, skip);
    munmap(place + skip + len, huge - skip);
    return (uintptr_t)place + skip;
}

static void punch(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end)
{
    uintptr_t to;
    for (uintptr_t at = start; um_shm_heap_gap(at, end, &at, &to); at = to)
        fallocate(state->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)(to - at));
}

/* Moves a segment in, in slices of at most `most` bytes. What moved is in the table, also after a failure. */
static long slices_in(struct um_shm_adopt_state *state, const struct um_shm_segment *seg, struct um_shm_move *move,
                      uintptr_t shadow, size_t most)
{
    for (uintptr_t at = seg->start; at < seg->end; at += move->len) {
        move->base = move->offset = at;
        move->len = seg->end - at < most ? seg->end - at : most;
        if (!move->whole)
            move->len = um_shm_scan_slice(&move->scan, at, move->len, slice_size(), state->page);
        move->shadow = shadow ? shadow + (at - seg->start) : 0;
        um_mem_gate_shut(move->gate);
        long ret = um_shm_move_in(move);
        um_mem_gate_end(move->gate);
        if (ret) {
            if (shadow)
                munmap((void *)move->shadow, seg->end - at);
            return ret;
        }
        um_shm_table_place(state, at, at + move->len, move->shadow);
        um_shm_table_join(state, at, at + move->len);
        um_shm_advice_again(seg, at, move->len);
    }
    if (seg->advice & UM_ADVICE_IS_HUGE) /* at the end: a huge page may lie across two slices */
        um_shm_huge_again(seg->start, seg->end - seg->start, state->page);
    return 0;
}

/*
 * Reserves the range to which pages move as a proof that they are not pinned, for slices of at most *most_p bytes
 * (reduced if address space is short). 0: there is none.
 */
static uintptr_t proof_reserve(const struct um_shm_segment *seg, size_t *most_p)
{
    uintptr_t proof = um_shm_place_reserve(seg->start, *most_p, PROT_READ | PROT_WRITE);
    if (!proof && *most_p > slice_size()) {
        *most_p = slice_size();
        proof = um_shm_place_reserve(seg->start, *most_p, PROT_READ | PROT_WRITE);
    }
    return proof;
}

/* Reserves address space for a segment's shadow: what state->given has for it, or new. */
static uintptr_t shadow_reserve(struct um_shm_adopt_state *state, const struct um_shm_segment *seg)
{
    if (state->given.place && seg->start >= state->given.start && seg->end <= state->given.end) {
        state->given.used = true;
        return state->given.place + (seg->start - state->given.start);
    }
    return um_shm_place_reserve(seg->start, seg->end - seg->start, PROT_NONE);
}

/* Moves a segment in. */
static long segment_in(struct um_shm_mover *mover, const struct um_shm_segment *seg)
{
    size_t size = seg->end - seg->start, most = size < slice_size() ? size : slice_size();
    struct um_mem_gate gate;
    bool stops = mover->stop.fd >= 0 && seg->kind != UM_SEGMENT_FILE;
    bool proves = stops && mover->stop.can_move;
    struct um_shm_move move = {.stop = &mover->stop,
                               .file = mover->state->fd,
                               .scan = mover->scan,
                               .gate = &gate,
                               .page = mover->state->page,
                               .prot = seg->prot,
                               .whole = seg->kind == UM_SEGMENT_FILE,
                               .by_node = um_shm_adopt_forced.by_node || um_shm_node_several()};
    uintptr_t shadow = stops ? shadow_reserve(mover->state, seg) : 0;
    if (stops && !shadow)
        return -ENOMEM;
    if (mover->scan.skips && !move.whole)
        most = um_shm_scan_slice_most(size, slice_size());
    move.proof = proves ? proof_reserve(seg, &most) : 0;
    if (proves && !move.proof) {
        munmap((void *)shadow, size);
        return -ENOMEM;
    }
    long ret = slices_in(mover->state, seg, &move, shadow, most);
    if (move.proof)
        munmap((void *)move.proof, most);
    return ret;
}

/* For pages in the table that the program has replaced by the segment: releases their shadows and what the file holds.
 */
static void forget_old(struct um_shm_adopt_state *state, const struct um_shm_segment *seg)
{
    um_shm_table_split(state, seg->start);
    um_shm_table_split(state, seg->end);
    for (size_t i = um_shm_table_find(state, seg->start); i < state->count && state->table[i].start < seg->end; i++) {
        struct um_shm_adopted *entry = &state->table[i];
        if (entry->shadow)
            munmap((void *)entry->shadow, entry->end - entry->start);
        entry->shadow = 0;
    }
    punch(state, seg->start, seg->end);
}

/* ---- back ---- */

/* Moves a mapping of the file's bytes back, in slices. What moved leaves the table; *done_p, upon an error: its bytes.
 */
static long slices_out(struct um_shm_adopt_state *state, const struct um_shm_segment *seg, struct um_shm_move *move,
                       uintptr_t shadow, size_t *done_p)
{
    size_t size = seg->end - seg->start, most = um_shm_scan_slice_most(size, slice_size());
    for (size_t done = 0; done < size; done += move->len) {
        move->base = seg->start + done;
        move->offset = seg->offset + done;
        size_t left = size - done < most ? size - done : most;
        move->len = um_shm_scan_file_slice(state->fd, move->offset, left, slice_size(), state->page);
        move->shadow = shadow + done;
        um_mem_gate_shut(move->gate);
        long ret = um_shm_move_out(move);
        um_mem_gate_end(move->gate);
        *done_p = done;
        if (ret)
            return ret;
        um_shm_table_remove(state, move->offset, move->offset + move->len);
    }
    return 0;
}

/* Moves a mapping of the file's bytes back. shadow 0: into a fresh mapping. What moved leaves the table. */
static long part_out(struct um_shm_mover *mover, const struct um_shm_segment *seg, uintptr_t shadow)
{
    struct um_shm_adopt_state *state = mover->state;
    size_t size = seg->end - seg->start, most = um_shm_scan_slice_most(size, slice_size()), done = 0;
    bool fresh = !shadow, sees = mover->stop.fd >= 0 && !um_shm_adopt_forced.no_view;
    if (fresh) {
        void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (place == MAP_FAILED)
            return -ENOMEM;
        shadow = (uintptr_t)place;
    }
    struct um_mem_gate gate;
    um_shm_advice_keep(seg->start, shadow, size, state->page);
    struct um_shm_move move = {.stop = &mover->stop,
                               .file = state->fd,
                               .gate = &gate,
                               .view = sees ? um_shm_place_reserve(seg->start, most, PROT_NONE) : 0,
                               .page = state->page,
                               .prot = seg->prot};
    long ret = slices_out(state, seg, &move, shadow, &done);
    if (ret && fresh)
        munmap((void *)(shadow + done), size - done);
    if (move.view)
        munmap((void *)move.view, most);
    return ret;
}

/* A page of a private mapping of a file becomes this process's own by a write, which here writes nothing. */
static void make_own(uintptr_t from, size_t len, size_t page)
{
    if (madvise((void *)from, len, MADV_POPULATE_WRITE) == 0)
        return; /* Linux 5.14 */
    for (uintptr_t at = from; at < from + len; at += page)
        um_rmw_add_u64((uint64_t *)at,
                       0); /* sync: none (other threads may write there at the same time: it is atomic) */
}

/*
 * If mremap grew a mapping of the file, it would continue with the pages that are adopted at the addresses behind it.
 * mremap does not grow across two mappings, and realloc copies instead: neutral advice splits the mapping in two.
 */
static void forbid_growth(uintptr_t start, size_t len, size_t page)
{
    if (len > page)
        madvise((void *)(start + len - page), page, MADV_RANDOM);
}

/*
 * Moves a part back while other threads run: a private mapping of the file replaces the shared one. Earlier stores are
 * in the file, later stores are private, and a write makes each page private; then the file's pages are removed, and
 * untouched pages read as zero. /proc still shows it as a mapping of a file.
 */
static long part_made_private(struct um_shm_mover *mover, const struct um_shm_segment *seg)
{
    struct um_shm_adopt_state *state = mover->state;
    size_t size = seg->end - seg->start;
    const int prot = PROT_READ | PROT_WRITE;
    void *place = (void *)seg->start;
    const bool no_fork = um_shm_advice_no_fork(seg->start, state->page);
    if (mmap(place, size, prot, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, state->fd, (off_t)seg->offset) == MAP_FAILED)
        return -ENOMEM;
    uint64_t end = seg->offset + size;
    for (uint64_t at = seg->offset; at < end;) {
        off_t data = lseek(state->fd, (off_t)at, SEEK_DATA);
        if (data < 0 || (uint64_t)data >= end)
            break;
        off_t hole = lseek(state->fd, data, SEEK_HOLE);
        uint64_t stop = hole > data && (uint64_t)hole < end ? (uint64_t)hole : end;
        make_own(seg->start + ((uint64_t)data - seg->offset), stop - (uint64_t)data, state->page);
        at = stop;
    }
    forbid_growth(seg->start, size, state->page);
    if (no_fork)
        madvise(place, size, MADV_DONTFORK);
    if (seg->prot != prot)
        mprotect(place, size, seg->prot);
    punch(state, seg->offset, end);
    um_shm_table_remove(state, seg->offset, end);
    return 0;
}

static long part_private(struct um_shm_mover *mover, const struct um_shm_segment *seg)
{
    struct um_mem_gate gate;
    um_mem_gate_shut(&gate);
    long ret = part_made_private(mover, seg);
    um_mem_gate_end(&gate);
    return ret;
}

/*
 * The shadow for bytes of the file that are mapped at an address. One that does not fit, or that is not needed because
 * nobody is stopped, is released, and leaves the table with that: its addresses may be others' from now on.
 */
static uintptr_t shadow_take(const struct um_shm_mover *mover, const struct um_shm_segment *seg)
{
    struct um_shm_adopt_state *state = mover->state;
    um_shm_table_split(state, seg->offset);
    um_shm_table_split(state, seg->offset + (seg->end - seg->start));
    struct um_shm_adopted *entry = &state->table[um_shm_table_find(state, seg->offset)];
    if (entry->shadow && (mover->unstopped || seg->start != seg->offset)) {
        munmap((void *)entry->shadow, entry->end - entry->start);
        entry->shadow = 0;
    }
    return entry->shadow;
}

/* Moves back those pages of a mapping of the file that have no count. */
static long segment_out(struct um_shm_mover *mover, const struct um_shm_segment *seg)
{
    struct um_shm_adopt_state *state = mover->state;
    uint64_t end = seg->offset + (seg->end - seg->start);
    long ret = 0;
    for (uint64_t at = seg->offset; at < end;) {
        size_t i = um_shm_table_find(state, at);
        if (i == state->count || state->table[i].start >= end)
            break;
        const struct um_shm_adopted *entry = &state->table[i];
        uint64_t from = entry->start > at ? entry->start : at, to = entry->end < end ? entry->end : end;
        if (entry->count == 0) {
            struct um_shm_segment part = *seg;
            part.start = seg->start + (from - seg->offset);
            part.end = part.start + (to - from);
            part.offset = from;
            uintptr_t shadow = shadow_take(mover, &part);
            long failed = mover->unstopped ? part_private(mover, &part) : part_out(mover, &part, shadow);
            ret = failed ? failed : ret;
        }
        at = to;
    }
    return ret;
}

/* Drops pages without a count that the program has unmapped or mapped over: only the file still has them. */
static void drop_unmapped(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end)
{
    um_shm_table_split(state, start);
    um_shm_table_split(state, end);
    for (size_t i = um_shm_table_find(state, start); i < state->count && state->table[i].start < end;) {
        struct um_shm_adopted entry = state->table[i];
        if (entry.count != 0) {
            i++;
            continue;
        }
        if (entry.shadow)
            munmap((void *)entry.shadow, entry.end - entry.start);
        punch(state, entry.start, entry.end);
        um_shm_table_remove(state, entry.start, entry.end);
    }
}

void um_shm_pages_out(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end)
{
    const char *why;
    struct um_shm_mover mover;
    if (um_shm_mover_open(state, &mover, &why) != 0)
        mover = (struct um_shm_mover){.state = state, .stop = {.fd = -1}, .pagemap = -1, .unstopped = true};
    if (mover.stop.fd >= 0 &&
        !mover.stop.can_minor) { /* Linux before 5.14 cannot stop a thread at a shared page that exists */
        um_shm_stop_close(&mover.stop);
        mover.unstopped = mover.threads > 1;
    }
    long count = um_shm_check_ours_back(state, start, end);
    long ret = count < 0 ? count : 0;
    for (long i = 0; i < count; i++) {
        long failed = segment_out(&mover, &state->segment[i]);
        ret = failed ? failed : ret;
    }
    um_shm_mover_close(&mover);
    if (ret == 0)
        drop_unmapped(state, start, end);
    um_shm_table_join(state, start, end);
}

static const char *why_not_moved(long error)
{
    switch (error) {
    case -EBUSY:
        return "a device or a transfer holds pages of the memory, or somebody else's userfaultfd watches it";
    case -ENOMEM:
        return "there is no memory or address space left for it (ulimit -v, vm.max_map_count, the container's limit)";
    case -EFAULT:
        return "a part of the memory cannot be read (a guard, or beyond the end of a file)";
    default:
        return "the system refuses to move the memory";
    }
}

int um_shm_pages_in(struct um_shm_adopt_state *state, long count, const char **why_p)
{
    struct um_shm_mover mover;
    int ret = um_shm_mover_open(state, &mover, why_p);
    if (ret)
        return ret;
    for (long i = 0; ret == 0 && i < count; i++) {
        if ((state->segment[i].advice & UM_ADVICE_IS_HUGE) && !um_shm_huge_possible(state))
            ret = refuse(-ENOTSUP, why_p,
                         "the memory has huge pages, which shared memory would not: set "
                         "/sys/kernel/mm/transparent_hugepage/shmem_enabled to advise");
        if (state->segment[i].kind == UM_SEGMENT_FILE && mover.threads > 1)
            ret = refuse(-EPERM, why_p,
                         "the memory is a private mapping of a file (static data of a program or library) "
                         "and the process has several threads, which cannot be stopped there");
    }
    for (long i = 0; ret == 0 && i < count; i++) {
        const struct um_shm_segment *seg = &state->segment[i];
        if (seg->kind == UM_SEGMENT_OURS)
            continue;
        forget_old(state, seg);
        state->given.reached = i;
        ret = (int)segment_in(&mover, seg);
        if (ret)
            *why_p = why_not_moved(ret);
    }
    um_shm_mover_close(&mover);
    return ret;
}
