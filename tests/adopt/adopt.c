/* Helpers of tests/adopt/adopt.h. */
#include "adopt.h"
#include "needs.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

unsigned long adopt_rounds = 50;

size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

unsigned char *private_memory(size_t len)
{
    size_t page = page_size();
    unsigned char *all = mmap(NULL, len + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    munmap(all, page);
    munmap(all + page + len, page);
    return all + page;
}

void adopt_must(const void *at, size_t len)
{
    const char *why = "(none)";
    int ret = um_shm_adopt((uintptr_t)at, len, &why);
    if (ret)
        print_error("adoption refused: %s: %s\n", strerror(-ret), why);
    assert_int_equal(ret, 0);
}

/* Calls each() for every mapping that overlaps the range. Returns false if each() does, or if a part is not mapped. */
static bool every_mapping(const void *at, size_t len,
                          bool (*each)(const char *perms, uintptr_t start, uint64_t offset, const char *path,
                                       const void *with),
                          const void *with)
{
    uintptr_t want = (uintptr_t)at, end = want + len;
    char line[512];
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    bool ok = true;
    while (ok && fgets(line, sizeof(line), f)) {
        uintptr_t from, to;
        uint64_t offset;
        char perms[5], path[300] = "";
        assert_true(sscanf(line, "%lx-%lx %4s %lx %*s %*s %299s", &from, &to, perms, &offset, path) >= 4);
        if (to <= want || from >= end)
            continue;
        ok = from <= want && each(perms, from, offset, path, with);
        want = to;
    }
    fclose(f);
    return ok && want >= end;
}

static bool each_shared(const char *perms, uintptr_t start, uint64_t offset, const char *path, const void *with)
{
    (void)with;
    return perms[3] == 's' && start == offset && strncmp(path, "/memfd:unimem-", 14) == 0;
}

static bool each_private(const char *perms, uintptr_t start, uint64_t offset, const char *path, const void *with)
{
    (void)start;
    (void)offset;
    (void)path;
    (void)with;
    return perms[3] == 'p';
}

static bool each_perms(const char *perms, uintptr_t start, uint64_t offset, const char *path, const void *with)
{
    (void)start;
    (void)offset;
    (void)path;
    return strcmp(perms, with) == 0;
}

bool is_shared(const void *at, size_t len)
{
    return every_mapping(at, len, each_shared, NULL);
}

bool is_private(const void *at, size_t len)
{
    return every_mapping(at, len, each_private, NULL);
}

bool has_flag(const void *at, const char *flag)
{
    char line[512], words[8];
    uintptr_t from, to;
    bool inside = false, found = false;
    snprintf(words, sizeof(words), " %s ", flag);
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from <= (uintptr_t)at && (uintptr_t)at < to;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, words) != NULL;
    }
    fclose(f);
    return found;
}

bool is_mapped(const void *at, size_t len)
{
    unsigned char present[1];
    (void)len;
    return mincore((void *)(uintptr_t)at, 1, present) == 0;
}

bool has_perms(const void *at, size_t len, const char *perms)
{
    return every_mapping(at, len, each_perms, perms);
}

unsigned char *file_view(const void *at, size_t len)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), um_shm_adopt_fd());
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    void *view = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(uintptr_t)at);
    assert_true(view != MAP_FAILED);
    close(fd);
    return view;
}

size_t file_bytes(void)
{
    struct stat st;
    assert_int_equal(fstat(um_shm_adopt_fd(), &st), 0);
    return (size_t)st.st_blocks * 512;
}

size_t mappings(void)
{
    size_t count = 0;
    char line[512];
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        count++;
    fclose(f);
    return count;
}

size_t resident(void)
{
    unsigned long size, pages;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &size, &pages), 2);
    fclose(f);
    return pages * page_size();
}

void assert_nothing_adopted(void)
{
    struct um_shm_adopt_stats stats;
    um_shm_adopt_stats_get(&stats);
    assert_int_equal(stats.ranges, 0);
    assert_int_equal(stats.bytes, 0);
}

static void force(const char *how)
{
    if (strcmp(how, "none") == 0)
        um_shm_adopt_forced.no_userfaultfd = true;
    else if (strcmp(how, "user") == 0)
        um_shm_adopt_forced.user_mode = true;
    else if (strcmp(how, "compare") == 0)
        um_shm_adopt_forced.no_move = um_shm_adopt_forced.no_scan = um_shm_adopt_forced.no_view = true;
    else if (strcmp(how, "full") != 0) {
        fprintf(stderr, "unknown way %s\n", how);
        exit(2);
    }
}

bool adopt_arguments(int argc, char **argv)
{
    unsigned long value;
    bool possible = has_userfaultfd();
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "how=", 4) == 0) {
            force(argv[i] + 4);
            possible = strcmp(argv[i] + 4, "none") == 0 ? has_one_thread() : possible;
        } else if (strcmp(argv[i], "nodev") == 0)
            possible = um_shm_adopt_forced.no_dev = true; /* userfaultfd is refused on purpose */
        else if (strcmp(argv[i], "ordinary") == 0) {
            /* Skip where this user gets the full userfaultfd: then nothing would be refused. */
            if (syscall(SYS_userfaultfd, O_CLOEXEC) >= 0 || access("/dev/userfaultfd", R_OK | W_OK) == 0)
                return false;
        } else if (sscanf(argv[i], "slice=%lu", &value) == 1)
            um_shm_adopt_forced.slice = value * page_size();
        else if (sscanf(argv[i], "rounds=%lu", &value) == 1)
            adopt_rounds = value;
        else {
            fprintf(stderr, "unknown argument %s\n", argv[i]);
            exit(2);
        }
    }
    if (!possible)
        fprintf(stderr, "not possible here: no userfaultfd, or threads that are not ours\n");
    return possible;
}
