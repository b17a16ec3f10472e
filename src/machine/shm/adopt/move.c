/*
 * Moves one slice of memory between the process and the memory file, transparently for the program.
 *
 * Private to shared, writers stopped: the range's pages go to a shadow elsewhere (mremap, MREMAP_DONTUNMAP), so that a
 * thread that touches the range waits; the shadow's pages are copied into the file; one mmap puts the file in place.
 * The empty shadow stays: it is the old mapping, and merges with its neighbours again when it comes back. Private to
 * shared, with a single thread and no userfaultfd: copy, then mmap. Shared to private: the page table entries move
 * elsewhere (mremap, MREMAP_DONTUNMAP), so that a thread that touches the range waits; the file's pages, which can be
 * seen where the entries went, are copied into the shadow; one mremap puts the shadow in place.
 *
 * Rule: between stop and resume only the stack of the caller is touched, and no other library is called: the range may
 * hold anything, also this library's own data. Threading: internal.h; signals are blocked by the caller.
 * Sources: mremap(2), fallocate(2).
 */
#include "base/memory.h"
#include "machine/shm/adopt/internal.h"
#include "machine/shm/adopt/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum { COMPARE_ROUNDS = 16, COMPARE_WORDS = 512 };

static long write_all(int file, uintptr_t from, size_t len, uint64_t offset)
{
    for (size_t done = 0; done < len;) {
        long n = um_shm_sys_pwrite(file, from + done, len - done, offset + done);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n ? n : -EIO;
        done += (size_t)n;
    }
    return 0;
}

/* Copies len bytes from the file, or to it. */
typedef long all_fn(int file, uintptr_t at, size_t len, uint64_t offset);

static long read_all(int file, uintptr_t to, size_t len, uint64_t offset)
{
    for (size_t done = 0; done < len;) {
        long n = um_shm_sys_pread(file, (void *)(to + done), len - done, offset + done);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n ? n : -EIO;
        done += (size_t)n;
    }
    return 0;
}

/* Compares the page at an address with the file's. 1: they are the same; 0: they differ; or a negative errno. */
static long page_same(const struct um_shm_move *m, uintptr_t at, uint64_t offset)
{
    uint64_t copy[COMPARE_WORDS];
    for (size_t done = 0; done < m->page; done += sizeof(copy)) {
        long ret = read_all(m->file, (uintptr_t)copy, sizeof(copy), offset + done);
        if (ret)
            return ret;
        const volatile uint64_t *word = (const volatile uint64_t *)(at + done);
        for (size_t i = 0; i < COMPARE_WORDS; i++) {
            if (word[i] != copy[i])
                return 0;
        }
    }
    return 1;
}

static long run_write(const struct um_shm_move *m, uintptr_t at, size_t len, uint64_t offset, bool *again_p)
{
    (void)again_p;
    for (size_t done = 0, part; done < len; done += part) {
        part = len - done;
        if (m->by_node)
            part = um_shm_node_follow(at + done, part / m->page, m->page) * m->page;
        long ret = write_all(m->file, at + done, part, offset + done);
        if (ret)
            return ret;
    }
    return 0;
}

static long run_shift(const struct um_shm_move *m, uintptr_t at, size_t len, uint64_t offset, bool *again_p)
{
    (void)offset;
    (void)again_p;
    return um_shm_stop_shift(m->stop, at, m->proof + (at - m->shadow), len);
}

/* Copies the pages again that differ from the file's: a pinned page may still change. */
static long changed_again(const struct um_shm_move *m, uintptr_t at, size_t len, uint64_t offset, bool *again_p,
                          all_fn *move)
{
    for (size_t done = 0; done < len; done += m->page) {
        long same = page_same(m, at + done, offset + done);
        if (same < 0)
            return same;
        if (same)
            continue;
        long ret = move(m->file, at + done, m->page, offset + done);
        if (ret)
            return ret;
        *again_p = true;
    }
    return 0;
}

static long run_write_again(const struct um_shm_move *m, uintptr_t at, size_t len, uint64_t offset, bool *again_p)
{
    return changed_again(m, at, len, offset, again_p, write_all);
}

static long run_read_again(const struct um_shm_move *m, uintptr_t at, size_t len, uint64_t offset, bool *again_p)
{
    return changed_again(m, at, len, offset, again_p, read_all);
}

static void punch(const struct um_shm_move *m)
{
    um_shm_sys(SYS_fallocate, (const long[6]){m->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (long)m->offset,
                                              (long)m->len, 0, 0});
}

/* Copies the slice, whose pages are at from, into the file, and maps the file in its place. compare: copies again until
 * nothing differs. */
static long fill_and_map(const struct um_shm_move *m, uintptr_t from, bool compare)
{
    bool again = compare;
    struct um_shm_node_policy policy;
    if (m->by_node)
        um_shm_node_save(&policy);
    long ret = um_shm_scan_runs(m, from, run_write, &again);
    for (int round = 0; ret == 0 && again && round < COMPARE_ROUNDS; round++) {
        again = false;
        ret = um_shm_scan_runs(m, from, run_write_again, &again);
    }
    if (m->by_node)
        um_shm_node_restore(&policy);
    if (ret == 0 && again)
        ret = -EBUSY;
    if (ret == 0)
        ret = um_shm_sys_mmap(m->base, m->len, m->prot, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, m->file);
    if (ret < 0) {
        punch(m);
        return ret;
    }
    return 0;
}

/* Moves in where no other thread has to be stopped: the program sees no change. */
static long move_in_alone(const struct um_shm_move *m)
{
    return fill_and_map(m, m->base, false);
}

/* Copies back to the shadow the pages that have moved on. The shadow is a plain private mapping: nothing can refuse the
 * stores. */
static long run_back(const struct um_shm_move *m, uintptr_t at, size_t len, uint64_t offset, bool *again_p)
{
    const volatile uint64_t *from = (const volatile uint64_t *)at;
    volatile uint64_t *to = (volatile uint64_t *)(m->shadow + (at - m->proof));
    (void)offset;
    (void)again_p;
    for (size_t i = 0; i < len / sizeof(*to); i++)
        to[i] = from[i];
    return 0;
}

/* Moves in with a proof: the pages are in the shadow, threads that touch the range wait, and a pinned page cannot be
 * moved on. */
static long move_in_proven(const struct um_shm_move *m)
{
    bool unused = false;
    long ret = um_shm_stop_begin(m->stop, m->shadow, m->len, false);
    if (ret == 0)
        ret = um_shm_stop_begin(m->stop, m->proof, m->len, false);
    if (ret)
        return ret;
    ret = um_shm_scan_runs(m, m->shadow, run_shift, &unused);
    bool shifted = ret == 0;
    if (shifted)
        ret = fill_and_map(m, m->proof, false);
    if (ret) {
        um_shm_stop_end(m->stop, m->shadow, m->len); /* otherwise the writes below would wait, too */
        um_shm_scan_runs(m, m->proof, run_back, &unused);
        um_shm_sys_madvise(m->proof, m->len, MADV_DONTNEED);
    }
    if (!shifted && ret != -EBUSY)
        ret = fill_and_map(m, m->shadow, true);
    um_shm_stop_end(m->stop, m->proof, m->len);
    return ret;
}

/* Retries until the program's pages are back: the kernel can only refuse for lack of memory. */
static void back_in_place(const struct um_shm_move *m)
{
    long ret;
    while ((ret = um_shm_sys_mremap(m->shadow, m->len, MREMAP_MAYMOVE | MREMAP_FIXED, m->base)) == -ENOMEM)
        um_shm_sys_sleep_ns(1000000);
    if (ret < 0)
        __builtin_trap();
}

long um_shm_move_in(const struct um_shm_move *m)
{
    if (!m->shadow)
        return move_in_alone(m);
    long ret = um_shm_stop_begin(m->stop, m->base, m->len, false);
    if (ret)
        return ret;
    ret = um_shm_sys_mremap(m->base, m->len, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, m->shadow);
    if (ret < 0) {
        um_shm_stop_end(m->stop, m->base, m->len);
        return ret;
    }
    um_mem_gate_open(m->gate);
    ret = m->proof ? move_in_proven(m) : fill_and_map(m, m->shadow, true);
    if (ret)
        back_in_place(m);
    um_shm_stop_end(m->stop, m->base, m->len);
    if (ret == 0) {
        um_shm_sys_madvise(m->proof ? m->proof : m->shadow, m->len, MADV_DONTNEED);
        um_shm_stop_end(m->stop, m->shadow, m->len);
    }
    return ret;
}

static long run_read(const struct um_shm_move *m, uintptr_t at, size_t len, uint64_t offset, bool *again_p)
{
    (void)again_p;
    return read_all(m->file, at, len, offset);
}

/* Copies the file's pages to the shadow until they do not differ. */
static long fetch(const struct um_shm_move *m)
{
    bool again = !m->keep; /* not in a child: its parent goes on writing */
    long ret = um_shm_scan_data(m, run_read, &again);
    for (int round = 0; ret == 0 && again && round < COMPARE_ROUNDS; round++) {
        again = false;
        ret = um_shm_scan_data(m, run_read_again, &again);
    }
    return ret == 0 && again ? -EBUSY : ret;
}

/* As run_read(), where the file can be seen: pages are created with their contents, without being cleared first. */
static long run_fill(const struct um_shm_move *m, uintptr_t at, size_t len, uint64_t offset, bool *again_p)
{
    (void)again_p;
    uintptr_t from = m->view + (offset - m->offset);
    um_shm_sys_madvise(from, len, MADV_POPULATE_READ); /* otherwise every page faults */
    return um_shm_stop_fill(m->stop, from, at, len);
}

/* Copies again what differs; a page that somebody still holds changes late. */
static long run_fill_again(const struct um_shm_move *m, uintptr_t at, size_t len, uint64_t offset, bool *again_p)
{
    const uint64_t *from = (const uint64_t *)(m->view + (offset - m->offset));
    for (size_t done = 0; done < len / sizeof(*from); done += COMPARE_WORDS) {
        const uint64_t *file = from + done;
        uint64_t *own = (uint64_t *)at + done, differs = 0;
        for (size_t i = 0; i < COMPARE_WORDS; i++)
            differs |= file[i] ^ own[i];
        if (!differs)
            continue;
        for (size_t i = 0; i < COMPARE_WORDS; i++)
            ((volatile uint64_t *)own)[i] = file[i]; /* no call of memcpy */
        *again_p = true;
    }
    return 0;
}

static long fetch_in_sight(const struct um_shm_move *m)
{
    bool again = true;
    long ret = um_shm_stop_begin(m->stop, m->shadow, m->len, false);
    if (ret)
        return ret;
    ret = um_shm_scan_data(m, run_fill, &again);
    um_shm_stop_end(m->stop, m->shadow, m->len); /* the comparison may touch pages that the file has got since */
    for (int round = 0; ret == 0 && again && round < COMPARE_ROUNDS; round++) {
        again = false;
        __asm__ volatile("" : : : "memory"); /* each round looks anew */
        ret = um_shm_scan_data(m, run_fill_again, &again);
    }
    return ret == 0 && again ? -EBUSY : ret;
}

/* Moves the mapping's page table entries to the view, where the file can be seen then. False: they are where they were.
 */
static bool view_take(const struct um_shm_move *m)
{
    if (!m->view || um_shm_sys_mremap(m->base, m->len, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, m->view) < 0)
        return false;
    if (m->prot != (PROT_READ | PROT_WRITE))
        um_shm_sys_mprotect(m->view, m->len, PROT_READ);
    return true;
}

static long fetch_stopped(const struct um_shm_move *m)
{
    if (view_take(m)) {
        um_mem_gate_open(m->gate);
        long ret = fetch_in_sight(m);
        if (ret == 0 || ret == -EBUSY)
            return ret;
        um_shm_sys_madvise(m->shadow, m->len, MADV_DONTNEED);
    }
    long ret = um_shm_sys_madvise(m->base, m->len, MADV_DONTNEED); /* the file keeps its pages: only our entries go */
    um_mem_gate_open(m->gate);
    return ret ? ret : fetch(m);
}

long um_shm_move_out(const struct um_shm_move *m)
{
    long ret = um_shm_stop_begin(m->stop, m->base, m->len, true);
    if (ret)
        return ret;
    ret = m->stop->fd >= 0 ? fetch_stopped(m) : fetch(m);
    if (ret == 0 && m->prot != (PROT_READ | PROT_WRITE))
        ret = um_shm_sys_mprotect(m->shadow, m->len, m->prot);
    if (ret == 0)
        ret = um_shm_sys_mremap(m->shadow, m->len, MREMAP_MAYMOVE | MREMAP_FIXED, m->base);
    um_shm_stop_end(m->stop, m->base, m->len);
    if (ret < 0) {
        um_shm_sys_madvise(m->shadow, m->len, MADV_DONTNEED);
        return ret;
    }
    if (!m->keep)
        punch(m);
    return 0;
}
