/*
 * Finds pages with contents: of a range of memory by its page map, of the memory file by its holes.
 *
 * PAGEMAP_SCAN (Linux 6.7) skips untouched ranges at once; before that, the page map is read, which has eight bytes for
 * each page.
 * The rule of move.c holds here: only the caller's stack, only inline system calls. Threading: internal.h.
 * Sources: proc_pid_pagemap(5), ioctl_pagemap_scan(2), lseek(2) SEEK_DATA.
 */
#include "machine/shm/adopt/internal.h"
#include "machine/shm/adopt/sys.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ENTRIES = 512, REGIONS = 64, SPARSE_SLICES = 2048, RUN_PAGES = 32 };

static const uint64_t pagemap_populated = (uint64_t)3 << 62; /* present, or swapped */
static const uint64_t pagemap_guard = (uint64_t)1 << 58;     /* MADV_GUARD_INSTALL */

/* The headers may be older. */
struct page_region {
    uint64_t start, end, categories;
};
struct scan {
    uint64_t size, flags, start, end;
    uint64_t walk_end; /* out: how far it came */
    uint64_t vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define UM_PAGEMAP_SCAN _IOWR('f', 16, struct scan)
enum { IS_PRESENT = 1 << 3, IS_SWAPPED = 1 << 4, IS_GUARD = 1 << 8 /* Linux 6.15 */ };

struct regions {
    struct page_region region[REGIONS];
    size_t count;
    uintptr_t reached; /* what lies before has been looked at */
};

/* Finds the next runs of populated pages in [start, end), of at most that many pages together (0: no limit). */
static long scan_next(const struct um_shm_scan *by, uintptr_t start, uintptr_t end, size_t pages, struct regions *r)
{
    struct scan scan;
    scan.size = sizeof(scan);
    scan.flags = 0;
    scan.start = start;
    scan.end = end;
    scan.walk_end = start;
    scan.vec = (uint64_t)(uintptr_t)r->region;
    scan.vec_len = REGIONS;
    scan.max_pages = pages;
    scan.category_inverted = 0;
    scan.category_mask = 0;
    scan.category_anyof_mask = IS_PRESENT | IS_SWAPPED | by->guards;
    scan.return_mask = by->guards ? by->guards : IS_PRESENT | IS_SWAPPED;
    long ret = um_shm_sys_ioctl(by->pagemap, UM_PAGEMAP_SCAN, &scan);
    if (ret < 0)
        return ret;
    if (ret == 0 && scan.walk_end <= start)
        return -EIO;
    r->count = (size_t)ret;
    r->reached = scan.walk_end;
    return 0;
}

void um_shm_scan_open(int pagemap, uintptr_t known, size_t page, struct um_shm_scan *scan_p)
{
    struct um_shm_scan scan = {.pagemap = pagemap, .guards = IS_GUARD};
    struct regions r;
    *scan_p = (struct um_shm_scan){.pagemap = pagemap};
    if (um_shm_adopt_forced.no_scan)
        return;
    long ret = scan_next(&scan, known, known + page, 0, &r);
    if (ret ==
        -EINVAL) { /* before Linux 6.15 guard pages are not reported: reading one is an error then, as it must be */
        scan.guards = 0;
        ret = scan_next(&scan, known, known + page, 0, &r);
    }
    scan.skips = ret == 0;
    if (scan.skips)
        *scan_p = scan;
}

/* ---- runs of a slice ---- */

struct entries {
    uint64_t entry[ENTRIES];
    size_t count;
};

/* Calls run for the runs of populated pages among entries of the page map, of which the first is that of from + done.
 */
static long runs_of(const struct um_shm_move *m, uintptr_t from, size_t done, const struct entries *map,
                    um_shm_run_fn *run, bool *again_p)
{
    size_t first = 0;
    for (size_t i = 0; i <= map->count; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the kernel has filled them */
        if (i < map->count && (map->entry[i] & pagemap_guard))
            return -EFAULT; /* must stay a fault */
        if (i < map->count && (map->entry[i] & pagemap_populated))
            continue;
        size_t at = done + first * m->page;
        if (i > first) {
            long ret = run(m, from + at, (i - first) * m->page, m->offset + at, again_p);
            if (ret)
                return ret;
        }
        first = i + 1;
    }
    return 0;
}

static long runs_by_entries(const struct um_shm_move *m, uintptr_t from, um_shm_run_fn *run, bool *again_p)
{
    struct entries map;
    for (size_t done = 0; done < m->len;) {
        size_t count = (m->len - done) / m->page;
        count = count < ENTRIES ? count : ENTRIES;
        long n = um_shm_sys_pread(m->scan.pagemap, map.entry, count * sizeof(map.entry[0]),
                                  (from + done) / m->page * sizeof(map.entry[0]));
        if (n < (long)sizeof(map.entry[0]))
            return n < 0 ? n : -EIO;
        map.count = (size_t)n / sizeof(map.entry[0]);
        long ret = runs_of(m, from, done, &map, run, again_p);
        if (ret)
            return ret;
        done += map.count * m->page;
    }
    return 0;
}

long um_shm_scan_runs(const struct um_shm_move *m, uintptr_t from, um_shm_run_fn *run, bool *again_p)
{
    struct regions r;
    if (m->whole)
        return run(m, from, m->len, m->offset, again_p);
    if (!m->scan.skips)
        return runs_by_entries(m, from, run, again_p);
    for (uintptr_t at = from; at < from + m->len; at = r.reached) {
        long ret = scan_next(&m->scan, at, from + m->len, 0, &r);
        if (ret)
            return ret;
        for (size_t i = 0; i < r.count; i++) {
            const struct page_region *p = &r.region[i];
            /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the kernel has filled them */
            if (p->categories & m->scan.guards)
                return -EFAULT; /* must stay a fault */
            ret = run(m, p->start, p->end - p->start, m->offset + (p->start - from), again_p);
            if (ret)
                return ret;
        }
    }
    return 0;
}

/* Finds the next bytes [*data_p, *stop_p) that the file holds in [at, end). 1; 0: there are none; or a negative errno.
 */
static long data_next(int file, uint64_t at, uint64_t end, uint64_t *data_p, uint64_t *stop_p)
{
    long data = at < end ? um_shm_sys3(SYS_lseek, file, (long)at, SEEK_DATA) : -ENXIO;
    if (data == -ENXIO || (data >= 0 && (uint64_t)data >= end))
        return 0;
    long hole = data < 0 ? data : um_shm_sys3(SYS_lseek, file, data, SEEK_HOLE);
    if (hole < 0)
        return hole;
    *data_p = (uint64_t)data;
    *stop_p = (uint64_t)hole < end ? (uint64_t)hole : end;
    return 1;
}

long um_shm_scan_data(const struct um_shm_move *m, um_shm_run_fn *run, bool *again_p)
{
    uint64_t data, stop = m->offset;
    long ret;
    while ((ret = data_next(m->file, stop, m->offset + m->len, &data, &stop)) > 0) {
        ret = run(m, m->shadow + (data - m->offset), stop - data, data, again_p);
        if (ret)
            return ret;
    }
    return ret;
}

/* ---- slices ---- */

size_t um_shm_scan_slice_most(size_t len, size_t slice)
{
    return len / SPARSE_SLICES < slice ? len : slice * SPARSE_SLICES;
}

/* The cost of moving a run, in bytes of contiguous copying: a thread that touches the slice waits that long. */
static size_t run_cost(uint64_t len, size_t page)
{
    return len < RUN_PAGES * page ? RUN_PAGES * page : (size_t)len;
}

size_t um_shm_scan_slice(const struct um_shm_scan *scan, uintptr_t start, size_t most, size_t slice, size_t page)
{
    const uintptr_t end = start + most;
    struct regions r = {.reached = start};
    size_t left = slice;
    if (most <= slice || !scan->skips)
        return most < slice ? most : slice;
    while (r.reached < end && scan_next(scan, r.reached, end, left / page, &r) == 0) {
        for (size_t i = 0; i < r.count; i++) {
            size_t cost = run_cost(r.region[i].end - r.region[i].start, page);
            if (cost >= left)
                return r.region[i].end - start < slice ? slice : r.region[i].end - start;
            left -= cost;
        }
    }
    return r.reached - start < slice ? slice : r.reached - start;
}

size_t um_shm_scan_file_slice(int file, uint64_t offset, size_t most, size_t slice, size_t page)
{
    uint64_t data, stop = offset;
    size_t left = slice;
    while (most > slice && data_next(file, stop, offset + most, &data, &stop) > 0) {
        size_t cost = run_cost(stop - data, page);
        if (cost >= left) {
            uint64_t last = stop - data > left ? data + left : stop;
            return last - offset < slice ? slice : last - offset;
        }
        left -= cost;
    }
    return most;
}

size_t um_shm_scan_count(const struct um_shm_scan *scan, uintptr_t start, uintptr_t end, size_t most, size_t page)
{
    struct regions r = {.reached = start};
    size_t sum = 0;
    while (sum <= most && r.reached < end && scan_next(scan, r.reached, end, most / page + 1 - sum / page, &r) == 0) {
        for (size_t i = 0; i < r.count; i++)
            sum += r.region[i].end - r.region[i].start;
    }
    return sum;
}
