/*
 * What may be adopted. Every refusal is decided here, before anything is changed, with its reason in words.
 *
 * Only private readable and writable memory is moved, if all its users go through the page table and a shared mapping
 * behaves like the private one. docs/adoption.md lists the exceptions. Threading: internal.h.
 */
#include "base/maps.h"
#include "machine/shm/adopt/internal.h"
#include "machine/shm/adopt/sys.h"
#include "machine/shm/heap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *flag;
    const char *why;
} refused_flags[] = {
    {"lo", "the memory is locked (mlock): a page of a file cannot take its place unnoticed"},
    {"dc", "the memory is not inherited by children (MADV_DONTFORK), as drivers ask for pages a device uses"},
    {"io", "the memory is a device's (VM_IO)"},
    {"pf", "the memory is a device's (PFNMAP)"},
    {"mm", "the memory is a driver's (MIXEDMAP)"},
    {"ht", "huge page (hugetlb) memory stays what it is"},
    {"wf", "the memory is wiped in children (MADV_WIPEONFORK), which shared memory cannot be"},
    {"um", "somebody else's userfaultfd watches the memory"},
    {"uw", "somebody else's userfaultfd watches the memory"},
    {"ui", "somebody else's userfaultfd watches the memory"},
    {"sl", "the memory is sealed (mseal)"},
    {"gd", "the memory is a stack"},
    {"ss", "the memory is a shadow stack"},
    {"mt", "the memory is tagged (MTE)"},
    {"de", "the memory is a driver's (it may not grow)"},
};

static int refuse(int error, const char **why_p, const char *why)
{
    *why_p = why;
    return error;
}

/* Calls `each` for the names in a directory of /proc until a call returns non-zero. Does not use the heap. */
static int for_names(struct um_shm_adopt_state *state, const char *path,
                     int (*each)(void *to, int dir, const char *name), void *to)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    int ret = 0;
    long n;
    while (ret == 0 && (n = syscall(SYS_getdents64, dir, state->text, sizeof(state->text))) > 0) {
        for (long at = 0; ret == 0 && at < n;) {
            const struct dirent64 *entry = (const void *)(state->text + at);
            if (entry->d_name[0] != '.')
                ret = each(to, dir, entry->d_name);
            at += entry->d_reclen;
        }
    }
    close(dir);
    return ret;
}

static int count_one(void *to, int dir, const char *name)
{
    (void)dir;
    (void)name;
    ++*(long *)to;
    return 0;
}

long um_shm_check_threads(struct um_shm_adopt_state *state)
{
    long count = 0;
    int ret = for_names(state, "/proc/self/task", count_one, &count);
    return ret ? ret : count;
}

/* ---- the process ---- */

/* Why a process that has this file open or mapped must be left alone, or NULL. */
static const char *holder_of(const char *path)
{
    static const char *const devices[] = {"/dev/infiniband/", "/dev/nvidia", "/dev/kfd",   "/dev/dri/render",
                                          "/dev/vfio/",       "/dev/accel",  "/dev/hfi1",  "/dev/cxi",
                                          "/dev/xpmem",       "/dev/knem",   "/dev/gdrdrv"};
    if (strcmp(path, "anon_inode:[io_uring]") == 0)
        return "io_uring is in use: it may hold pages of this process";
    if (strncmp(path, "/[aio]", 6) == 0)
        return "asynchronous input and output (io_setup) is in use: it may hold pages of this process";
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        if (strncmp(path, devices[i], strlen(devices[i])) == 0)
            return "a device that can hold pages of this process is open (InfiniBand, GPU, vfio, ...)";
    }
    if (strstr(path, "/vgpreload_"))
        return "valgrind keeps its own account of mappings";
    return NULL;
}

static int fd_holds(void *to, int dir, const char *name)
{
    const char **why_p = to;
    char target[64];
    ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    *why_p = holder_of(target);
    return *why_p ? -EBUSY : 0;
}

int um_shm_check_process(struct um_shm_adopt_state *state, const char **why_p)
{
    struct rlimit most;
    if (!UM_SYS_INLINE)
        return refuse(-ENOTSUP, why_p, "adoption is not written for this processor");
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < um_shm_adopt_file_size)
        return refuse(-EFBIG, why_p, "the limit of file sizes is too small for the memory file: ulimit -f unlimited");
    *why_p = "/proc/self/fd cannot be read";
    return um_shm_adopt_forced.held ? 0 : for_names(state, "/proc/self/fd", fd_holds, why_p);
}

/* ---- the range ---- */

/* The pages that stacks and thread control blocks take; the kernel and the C library know them by address. */
struct stacks {
    struct um_shm_adopt_state *state;
    uintptr_t start, end; /* the range in question */
    uintptr_t block[512]; /* of each thread: an address in its control block, at which its stack ends */
    size_t count;
    bool unknown; /* there is a thread whose block is not known */
    const struct um_shm_tls *tls;
};

/* One module's static thread-local storage, if it lies near the thread pointer (else it is on the heap). */
static int tls_module(struct dl_phdr_info *info, size_t size, void *to)
{
    const uintptr_t near = 64 << 10, self = (uintptr_t)__builtin_thread_pointer();
    struct um_shm_tls *tls = to;
    (void)size;
    uintptr_t data = (uintptr_t)info->dlpi_tls_data, len = 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        len = info->dlpi_phdr[i].p_type == PT_TLS ? info->dlpi_phdr[i].p_memsz : len;
    if (data && data < self && self - data < near && self - data > tls->below)
        tls->below = self - data;
    if (data && data >= self && data + len - self < near && data + len - self > tls->above)
        tls->above = data + len - self;
    return 0;
}

void um_shm_check_tls(struct um_shm_tls *tls_p)
{
    void *head = NULL;
    size_t len = 0;
#if defined(__x86_64__)
    *tls_p =
        (struct um_shm_tls){.above = 4096}; /* the C library's part (2304 bytes with glibc) lies above the pointer */
#else
    *tls_p = (struct um_shm_tls){.below = 4096, .above = 64};
#endif
    dl_iterate_phdr(tls_module, tls_p);
    if (syscall(SYS_get_robust_list, 0, &head, &len) == 0 && head)
        tls_p->block = (uintptr_t)head - (uintptr_t)__builtin_thread_pointer();
}

static int block_add(void *to, int dir, const char *name)
{
    struct stacks *s = to;
    void *head = NULL;
    size_t len = 0;
    (void)dir;
    long ret = syscall(SYS_get_robust_list, atoi(name), &head, &len);
    if (ret != 0 || !head || s->count == sizeof(s->block) / sizeof(s->block[0]))
        s->unknown = true;
    else
        s->block[s->count++] = (uintptr_t)head;
    return 0;
}

#if defined(__SANITIZE_ADDRESS__)
#define UM_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UM_ADDRESS_SANITIZER 1
#endif
#endif

static bool overlaps(uintptr_t a, uintptr_t a_end, uintptr_t b, uintptr_t b_end)
{
    return a < b_end && b < a_end;
}

/*
 * AddressSanitizer puts local variables, this library's included, on a stack of its own: up to 11 regions of 1 MiB
 * (max_uar_stack_size_log) and their flags, from an address on that it reports.
 */
static bool on_fake_stack(uintptr_t start, uintptr_t end)
{
#if UM_ADDRESS_SANITIZER
    extern void *__asan_get_current_fake_stack(void);
    uintptr_t fake = (uintptr_t)__asan_get_current_fake_stack();
    return fake && overlaps(start, end, fake, fake + ((uintptr_t)12 << 20));
#else
    (void)start;
    (void)end;
    return false;
#endif
}

/*
 * A thread's block of memory is, upwards: a guard page, the stack, thread-local storage and control block. Another
 * mapping above may have merged with it, so the borders of the mapping do not suffice.
 */
static bool holds_stack(const struct stacks *s, const struct um_map *map, bool over_guard)
{
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if ((s->unknown && over_guard) || on_fake_stack(s->start, s->end))
        return true;
    if (overlaps(s->start, s->end, here - (256 << 10), here + (32 << 10)))
        return true;
    for (size_t i = 0; i < s->count; i++) {
        uintptr_t self = s->block[i] - s->tls->block, from = self - s->tls->below;
        if (self < map->start || self >= map->end)
            continue;
        if (over_guard || (here >= map->start && here < self))
            from = map->start;
        if (overlaps(s->start, s->end, from, self + s->tls->above))
            return true;
    }
    return false;
}

static const char why_shared[] = "the memory is a shared mapping of something else";

static int map_refused(const struct stacks *s, const struct um_map *map, bool over_guard, const char **why_p)
{
    if (map->perms[3] != 'p')
        return refuse(-ENOTSUP, why_p, why_shared);
    if (memcmp(map->perms, "rw-", 3) != 0)
        return refuse(-ENOTSUP, why_p, "the memory is not readable and writable, or is executable");
    if (map->path[0] == '[' && strcmp(map->path, "[heap]") != 0 && strncmp(map->path, "[anon", 5) != 0)
        return refuse(-ENOTSUP, why_p, "the memory is a stack or the kernel's");
    for (size_t i = 0; i < sizeof(refused_flags) / sizeof(refused_flags[0]); i++) {
        if (um_map_flag(map, refused_flags[i].flag))
            return refuse(-ENOTSUP, why_p, refused_flags[i].why);
    }
    if (holds_stack(s, map, over_guard))
        return refuse(-ENOTSUP, why_p, "the memory is on a thread's stack or thread-local");
    int policy = 0;
    if (syscall(SYS_get_mempolicy, &policy, NULL, 0, (void *)map->start, 2 /* MPOL_F_ADDR */) == 0 && policy != 0)
        return refuse(-ENOTSUP, why_p,
                      "the memory is bound to NUMA nodes (mbind), which a page of a file would not keep");
    return 0;
}

static uint32_t advice_of(const struct um_map *map)
{
    return (um_map_flag(map, "dd") ? UM_ADVICE_NO_DUMP : 0) | (um_map_flag(map, "hg") ? UM_ADVICE_HUGE : 0) |
           (um_map_flag(map, "nh") ? UM_ADVICE_NO_HUGE : 0) | (um_map_flag(map, "sr") ? UM_ADVICE_SEQUENTIAL : 0) |
           (um_map_flag(map, "rr") ? UM_ADVICE_RANDOM : 0) | (map->huge_kb ? UM_ADVICE_IS_HUGE : 0);
}

static bool is_of_file(const struct um_shm_adopt_state *state, const struct um_map *map)
{
    return state->fd >= 0 && map->ino == state->ino && map->dev == state->dev;
}

static bool is_ours(const struct um_shm_adopt_state *state, const struct um_map *map)
{
    return map->perms[3] == 's' && is_of_file(state, map);
}

static struct um_shm_segment segment_of(const struct um_map *map, uintptr_t start, uintptr_t end)
{
    struct um_shm_segment seg = {.start = map->start > start ? map->start : start,
                                 .end = map->end < end ? map->end : end,
                                 .kind = map->ino ? UM_SEGMENT_FILE : UM_SEGMENT_ANONYMOUS,
                                 .prot = (map->perms[0] == 'r' ? PROT_READ : 0) |
                                         (map->perms[1] == 'w' ? PROT_WRITE : 0) |
                                         (map->perms[2] == 'x' ? PROT_EXEC : 0),
                                 .advice = advice_of(map)};
    seg.offset = map->offset + (seg.start - map->start);
    return seg;
}

/* Adds one mapping of the range to state->segment. 0, or a negative errno with *why_p. */
static int range_add(const struct stacks *s, const struct um_map *map, bool over_guard, size_t *count,
                     const char **why_p)
{
    struct um_shm_adopt_state *state = s->state;
    struct um_shm_segment seg = segment_of(map, s->start, s->end);
    if (*count == UM_ADOPT_SEGMENTS)
        return refuse(-E2BIG, why_p, "the range consists of too many mappings");
    if (is_ours(state, map) && seg.offset == seg.start)
        seg.kind = UM_SEGMENT_OURS;
    else {
        int ret = map_refused(s, map, over_guard, why_p);
        if (ret)
            return ret;
    }
    state->segment[(*count)++] = seg;
    return 0;
}

int um_shm_check_begin(struct um_shm_adopt_state *state, uintptr_t start, const char **why_p)
{
    struct um_maps maps;
    struct um_map map;
    if (um_maps_open(&maps, "/proc/self/maps", state->text, sizeof(state->text)) != 0)
        return 0;
    bool shared = um_maps_at(&maps, start, &map) > 0 && map.perms[3] != 'p' && !is_ours(state, &map);
    um_maps_close(&maps);
    return shared ? refuse(-ENOTSUP, why_p, why_shared) : 0;
}

long um_shm_check_range(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end, const struct um_shm_tls *tls,
                        const char **why_p)
{
    struct stacks s = {.state = state, .start = start, .end = end, .unknown = tls->block == 0, .tls = tls};
    struct um_maps maps;
    struct um_map map, below = {0};
    size_t count = 0;
    uintptr_t reached = start;
    int ret = for_names(state, "/proc/self/task", block_add, &s);
    if (ret == 0)
        ret = um_maps_open(&maps, "/proc/self/smaps", state->text, sizeof(state->text));
    if (ret)
        return refuse(ret, why_p, "/proc/self/task or smaps cannot be read");
    while (ret == 0 && reached < end && um_maps_next(&maps, &map)) {
        if (map.end > start && (map.start > reached || !um_maps_details(&maps, &map)))
            break;
        if (map.end > start) {
            bool over_guard = below.end == map.start && strncmp(below.perms, "---p", 4) == 0;
            ret = range_add(&s, &map, over_guard, &count, why_p);
            reached = map.end;
        }
        below = map;
    }
    um_maps_close(&maps);
    if (ret == 0 && reached < end)
        ret = refuse(-EFAULT, why_p, "a part of the memory is not mapped");
    return ret ? ret : (long)count;
}

/* Adds a mapping of the file's bytes [from, end), without the heap's. Returns the new number of segments, or -E2BIG. */
static long ours_add(struct um_shm_adopt_state *state, const struct um_map *map, uint64_t from, uint64_t end,
                     long count)
{
    bool in_place = map->offset == map->start;
    uintptr_t to = end;
    for (uintptr_t at = from; at < end; at = to) {
        if (in_place && !um_shm_heap_gap(at, end, &at, &to))
            break;
        if (count == UM_ADOPT_SEGMENTS)
            return -E2BIG;
        struct um_shm_segment seg = segment_of(map, map->start + (at - map->offset), map->start + (to - map->offset));
        seg.kind = UM_SEGMENT_OURS;
        state->segment[count++] = seg;
    }
    return count;
}

/* Looks at one mapping. Returns the new number of segments, or -E2BIG. */
static long ours_look(struct um_shm_adopt_state *state, const struct um_map *map, uintptr_t start, uintptr_t end,
                      long count)
{
    state->held = state->held ? state->held : holder_of(map->path);
    uint64_t last = map->offset + (map->end - map->start);
    if (!is_of_file(state, map) || last <= start || map->offset >= end)
        return count;
    if (!is_ours(state, map)) { /* released with nobody stopped: pages never written to are still the file's */
        if (map->offset != map->start)
            state->held = "the program moved (mremap) released memory away from there that still reads the file";
        return count;
    }
    uint64_t from = map->offset > start ? map->offset : start, to = last < end ? last : end;
    return ours_add(state, map, from, to, count);
}

/* Asks the kernel for one file mapping after the other, and for the path only where the file is another one. */
static long ours_ask(struct um_shm_adopt_state *state, struct um_maps *maps, uintptr_t start, uintptr_t end)
{
    struct um_map map, known = {0};
    long count = 0;
    int ret = 0;
    for (uintptr_t at = 0; count >= 0; at = map.end) {
        ret = um_maps_next_file(maps, at, false, &map);
        if (ret > 0 && (map.ino != known.ino || map.dev != known.dev))
            ret = um_maps_next_file(maps, at, true, &map);
        if (ret <= 0)
            break;
        known = map;
        count = ours_look(state, &map, start, end, count);
    }
    return ret < 0 ? ret : count;
}

long um_shm_check_ours(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end)
{
    struct um_maps maps;
    struct um_map map;
    int ret = um_maps_open(&maps, "/proc/self/maps", state->text, sizeof(state->text));
    if (ret)
        return ret;
    state->held = NULL;
    long count = um_shm_adopt_forced.no_scan ? -ENOTTY : ours_ask(state, &maps, start, end);
    if (count == -ENOTTY || count == -EINVAL) { /* Linux before 6.11: reads the text */
        state->held = NULL;
        count = 0;
        while (count >= 0 && um_maps_next(&maps, &map))
            count = ours_look(state, &map, start, end, count);
    }
    um_maps_close(&maps);
    return count;
}

/* Adds the mappings of a range that is mapped completely at its own addresses, so no part of it is elsewhere. Else 0.
 */
static long ours_in_place(struct um_shm_adopt_state *state, struct um_maps *maps, uintptr_t start, uintptr_t end)
{
    struct um_map map = {.end = start};
    long count = 0;
    while (count >= 0 && map.end < end) {
        if (um_maps_at(maps, map.end, &map) <= 0 || !is_ours(state, &map) || map.offset != map.start)
            return 0;
        count = ours_add(state, &map, map.start > start ? map.start : start, map.end < end ? map.end : end, count);
    }
    return count;
}

long um_shm_check_ours_back(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end)
{
    struct um_maps maps;
    long count = 0;
    if (!um_shm_adopt_forced.no_scan && um_maps_open(&maps, "/proc/self/maps", state->text, sizeof(state->text)) == 0) {
        count = ours_in_place(state, &maps, start, end);
        um_maps_close(&maps);
    }
    return count > 0 ? count : um_shm_check_ours(state, start, end);
}
