/* What adoption promises, on plain memory: bytes stay, pages are shared, pages come back. */
#include "adopt.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void bytes_stay_and_a_second_mapping_sees_them(void **state)
{
    (void)state;
    size_t page = page_size(), len = 64 * page;
    unsigned char *mem = private_memory(len);
    for (size_t i = 0; i < len; i++)
        mem[i] = (unsigned char)(i * 7 + i / page);
    adopt_must(mem, len);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(mem[i], (unsigned char)(i * 7 + i / page));
    assert_true(is_shared(mem, len));
    unsigned char *view = file_view(mem, len);
    assert_memory_equal(view, mem, len);
    view[5] = 99;
    assert_int_equal(mem[5], 99);
    mem[page] = 98;
    assert_int_equal(view[page], 98);
    munmap(view, len);
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_true(is_private(mem, len));
    assert_int_equal(mem[5], 99);
    assert_int_equal(mem[page], 98);
    assert_int_equal(mem[2 * page], (unsigned char)(2 * page * 7 + 2));
    assert_int_equal(file_bytes(), 0);
    assert_nothing_adopted();
    munmap(mem, len);
}

/* In the child: maps the owner's memory file through /proc at the offset of the memory's address, as a peer does. */
static int peer(pid_t owner, int number, uintptr_t base, size_t len)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", owner, number);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 1;
    unsigned char *view = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)base);
    if (view == MAP_FAILED)
        return 2;
    for (size_t i = 0; i < len; i++) {
        if (view[i] != (unsigned char)(i * 3))
            return 3;
        view[i] = (unsigned char)(i * 5);
    }
    return 0;
}

static void another_process_reads_and_writes_the_same_bytes(void **state)
{
    (void)state;
    size_t len = 20 * page_size();
    unsigned char *mem = private_memory(len);
    for (size_t i = 0; i < len; i++)
        mem[i] = (unsigned char)(i * 3);
    adopt_must(mem, len);
    pid_t owner = getpid(), pid = fork();
    int number = um_shm_adopt_fd(), status = -1;
    if (pid == 0)
        _exit(peer(owner, number, (uintptr_t)mem, len));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < len; i++)
            assert_int_equal(mem[i], (unsigned char)(i * 5));
        if (round == 0)
            um_shm_adopt_release((uintptr_t)mem, len); /* what the peer wrote survives the move back */
    }
    munmap(mem, len);
}

/* Copies under a memory policy per node, as on a system with several nodes. Afterwards the thread has its own policy
 * again. */
static void placement_is_followed_and_the_policy_restored(void **state)
{
    (void)state;
    size_t page = page_size(), len = 200 * page;
    unsigned long node[16] = {1}, after[16] = {0};
    int mode = -1;
    unsigned char *mem = private_memory(len);
    for (size_t i = 0; i < len; i += 2 * page)
        memset(mem + i, (int)(i / page), page);
    assert_int_equal(syscall(SYS_set_mempolicy, 3 /* MPOL_INTERLEAVE */, node, 1024), 0);
    um_shm_adopt_forced.by_node = true;
    adopt_must(mem, len);
    um_shm_adopt_forced.by_node = false;
    assert_int_equal(syscall(SYS_get_mempolicy, &mode, after, 1024, 0, 0), 0);
    assert_int_equal(mode, 3);
    assert_int_equal(after[0], 1);
    assert_int_equal(syscall(SYS_set_mempolicy, 0, NULL, 0), 0);
    for (size_t i = 0; i < len; i += 2 * page)
        assert_int_equal(mem[i], (unsigned char)(i / page));
    um_shm_adopt_release((uintptr_t)mem, len);
    munmap(mem, len);
}

static size_t huge_kb(const char *field, const void *at)
{
    char line[512];
    uintptr_t from, to;
    bool inside = false;
    size_t sum = 0, kb, len = strlen(field);
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from <= (uintptr_t)at && (uintptr_t)at < to;
        if (inside && strncmp(line, field, len) == 0 && sscanf(line + len, "%zu", &kb) == 1)
            sum += kb;
    }
    fclose(f);
    return sum;
}

static void huge_pages_stay_huge(void **state)
{
    (void)state;
    size_t huge = (size_t)2 << 20, len = 4 * huge;
    unsigned char *raw = private_memory(len + huge), *mem = (void *)(((uintptr_t)raw + huge - 1) & ~(huge - 1));
    madvise(raw, len + huge, MADV_HUGEPAGE);
    memset(mem, 1, len);
    size_t before = huge_kb("AnonHugePages:", mem);
    if (before == 0) {
        munmap(raw, len + huge);
        skip();
    }
    const char *why = "";
    int ret = um_shm_adopt((uintptr_t)mem, len, &why);
    if (ret) { /* this kernel cannot make shared pages huge on demand */
        assert_int_equal(ret, -ENOTSUP);
        assert_non_null(strstr(why, "shmem_enabled"));
    } else {
        assert_true(huge_kb("ShmemPmdMapped:", mem) > 0);
        print_message("%zu KiB of huge pages before, %zu adopted\n", before, huge_kb("ShmemPmdMapped:", mem));
        um_shm_adopt_release((uintptr_t)mem, len);
        print_message("%zu KiB back\n", huge_kb("AnonHugePages:", mem));
    }
    for (size_t i = 0; i < len; i++)
        assert_int_equal(mem[i], 1);
    munmap(raw, len + huge);
}

static void overlapping_registrations_are_counted_by_page(void **state)
{
    (void)state;
    size_t page = page_size(), len = 30 * page;
    unsigned char *mem = private_memory(len);
    memset(mem, 3, len);
    adopt_must(mem + 100, 10 * page);      /* pages 0..10 */
    adopt_must(mem + 5 * page, 10 * page); /* pages 5..14 */
    adopt_must(mem + 5 * page + 8, 8);     /* page 5 */
    assert_true(is_shared(mem, 15 * page));
    assert_true(is_private(mem + 15 * page, 15 * page));
    um_shm_adopt_release((uintptr_t)mem + 100, 10 * page);
    assert_true(is_private(mem, 5 * page));
    assert_true(is_shared(mem + 5 * page, 10 * page));
    um_shm_adopt_release((uintptr_t)mem + 5 * page, 10 * page);
    assert_true(is_shared(mem + 5 * page, page));
    assert_true(is_private(mem + 6 * page, 24 * page));
    um_shm_adopt_release((uintptr_t)mem + 5 * page + 8, 8);
    assert_true(is_private(mem, len));
    for (size_t i = 0; i < len; i++)
        assert_int_equal(mem[i], 3);
    assert_nothing_adopted();
    munmap(mem, len);
}

/* Neighbouring registrations share one entry of the table. Releasing every other registration splits the entry. */
static void neighbouring_registrations_are_released_in_any_order(void **state)
{
    (void)state;
    size_t page = page_size(), n = 300;
    unsigned char *mem = private_memory(n * page);
    struct um_shm_adopt_stats stats;
    memset(mem, 1, n * page);
    for (size_t i = 0; i < n; i++)
        adopt_must(mem + i * page, page);
    um_shm_adopt_stats_get(&stats);
    assert_int_equal(stats.bytes, n * page);
    for (size_t i = 0; i < n; i += 2)
        um_shm_adopt_release((uintptr_t)mem + i * page, page);
    for (size_t i = 0; i < n; i++)
        assert_true(i % 2 ? is_shared(mem + i * page, page) : is_private(mem + i * page, page));
    for (size_t i = 1; i < n; i += 2)
        um_shm_adopt_release((uintptr_t)mem + i * page, page);
    assert_nothing_adopted();
    munmap(mem, n * page);
}

static void private_again_means_one_mapping_again(void **state)
{
    (void)state;
    if (um_shm_adopt_forced.no_userfaultfd) { /* no shadow then: the contents come back in a new mapping */
        print_message("mappings do not merge again without userfaultfd\n");
        return;
    }
    size_t page = page_size(), len = 400 * page;
    unsigned char *mem = private_memory(len);
    memset(mem, 1, len);
    size_t before = mappings();
    for (int round = 0; round < 20; round++) {
        for (size_t at = 1; at < 400; at += 4)
            adopt_must(mem + at * page, page);
        for (size_t at = 1; at < 400; at += 4)
            um_shm_adopt_release((uintptr_t)mem + at * page, page);
    }
    assert_int_equal(mappings(), before);
    void *moved = mremap(mem, len, 2 * len, MREMAP_MAYMOVE); /* fails if the range spans several mappings */
    assert_true(moved != MAP_FAILED);
    munmap(moved, 2 * len);
}

static void untouched_pages_read_as_zero_and_cost_nothing(void **state)
{
    (void)state;
    size_t page = page_size(), len = (size_t)512 << 20;
    unsigned char *mem = private_memory(len);
    mem[7 * page] = 1;
    mem[len - 1] = 2;
    size_t before = resident();
    uint64_t start = um_clock_ns();
    adopt_must(mem, len);
    uint64_t in = um_clock_ns();
    assert_true(file_bytes() <= 2 * page);
    assert_true(resident() < before + (4 << 20));
    assert_int_equal(mem[7 * page], 1);
    assert_int_equal(mem[len - 1], 2);
    assert_int_equal(mem[100 * page], 0);
    uint64_t out = um_clock_ns();
    um_shm_adopt_release((uintptr_t)mem, len);
    print_message("512 MiB, 2 pages touched: in %.2f ms, out %.2f ms\n", (double)(in - start) / 1e6,
                  (double)(um_clock_ns() - out) / 1e6);
    assert_int_equal(mem[7 * page], 1);
    assert_int_equal(mem[len - 1], 2);
    munmap(mem, len);
}

/* True for the pages of the large range that have contents: single pages, a run of pages, every other page of a run. */
static bool is_used(size_t page)
{
    return page % 20011 == 7 || (page >= 5000 && page < 5100) || (page >= 300000 && page < 300400 && page % 2);
}

static void of_a_large_sparse_range_only_what_is_used_moves(void **state)
{
    (void)state;
    const size_t page = page_size(), pages = (size_t)1 << 20;
    size_t used = 0;
    unsigned char *mem =
        mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(mem != MAP_FAILED);
    madvise(mem, pages * page, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; i++) {
        if (is_used(i))
            memset(mem + i * page, (int)(i % 251) + 1, page);
        used += is_used(i);
    }
    size_t before = resident();
    adopt_must(mem, pages * page);
    assert_int_equal(file_bytes(), used * page);
    assert_true(resident() < before + (4 << 20));
    assert_true(is_shared(mem, pages * page));
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < pages; i++) {
            if (is_used(i)) {
                assert_int_equal(mem[i * page], i % 251 + 1);
                assert_int_equal(mem[i * page + page - 1], i % 251 + 1);
            }
        }
        if (round == 0)
            um_shm_adopt_release((uintptr_t)mem, pages * page);
    }
    assert_true(is_private(mem, pages * page));
    assert_int_equal(file_bytes(), 0);
    assert_true(resident() < before + (4 << 20));
    assert_int_equal(mem[3 * page], 0);
    munmap(mem, pages * page);
}

static void what_the_program_unmapped_or_mapped_over_is_left_alone(void **state)
{
    (void)state;
    size_t page = page_size(), len = 16 * page;
    unsigned char *mem = private_memory(len);
    memset(mem, 1, len);
    adopt_must(mem, len);
    munmap(mem + 4 * page, 4 * page);
    void *at = mmap(mem + 8 * page, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    assert_ptr_equal(at, mem + 8 * page);
    mem[8 * page] = 77;
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_true(is_private(mem, 4 * page));
    assert_false(is_mapped(mem + 4 * page, page));
    assert_int_equal(mem[8 * page], 77);
    assert_int_equal(mem[9 * page], 0);
    assert_int_equal(mem[10 * page], 1);
    assert_int_equal(file_bytes(), 0);
    assert_nothing_adopted();
    munmap(mem, len);
}

static void what_the_program_moved_keeps_its_contents(void **state)
{
    (void)state;
    size_t page = page_size(), len = 16 * page;
    unsigned char *mem = private_memory(len);
    for (size_t i = 0; i < 16; i++)
        mem[i * page] = (unsigned char)(i + 1);
    adopt_must(mem, len);
    unsigned char *place = private_memory(len);
    unsigned char *moved = mremap(mem, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    assert_ptr_equal(moved, place);
    /* New memory at the old place cannot be adopted while the file's bytes are in use elsewhere. */
    void *again = mmap(mem, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    assert_ptr_equal(again, mem);
    const char *why = NULL;
    assert_int_equal(um_shm_adopt((uintptr_t)mem, len, &why), -EBUSY);
    assert_non_null(strstr(why, "mremap"));
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_true(is_private(moved, len));
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(moved[i * page], i + 1);
    assert_int_equal(file_bytes(), 0);
    assert_nothing_adopted();
    adopt_must(mem, len);
    um_shm_adopt_release((uintptr_t)mem, len);
    munmap(mem, len);
    munmap(moved, len);
}

static void new_memory_at_the_place_of_registered_memory_is_adopted(void **state)
{
    (void)state;
    size_t page = page_size(), len = 8 * page;
    unsigned char *mem = private_memory(len);
    memset(mem, 1, len);
    adopt_must(mem, len);
    assert_ptr_equal(mmap(mem, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), mem);
    mem[0] = 9;
    adopt_must(mem, len);
    assert_true(is_shared(mem, len));
    assert_int_equal(mem[0], 9);
    assert_int_equal(mem[page], 0);
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_true(is_shared(mem, len));
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_true(is_private(mem, len));
    assert_int_equal(mem[0], 9);
    assert_nothing_adopted();
    munmap(mem, len);
}

static void a_protection_changed_meanwhile_is_kept(void **state)
{
    (void)state;
    size_t page = page_size(), len = 8 * page;
    unsigned char *mem = private_memory(len);
    memset(mem, 5, len);
    adopt_must(mem, len);
    mprotect(mem, 2 * page, PROT_NONE);
    mprotect(mem + 2 * page, page, PROT_READ);
    um_shm_adopt_release((uintptr_t)mem, len);
    assert_true(has_perms(mem, 2 * page, "---p"));
    assert_true(has_perms(mem + 2 * page, page, "r--p"));
    assert_true(has_perms(mem + 3 * page, 5 * page, "rw-p"));
    mprotect(mem, len, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < len; i++)
        assert_int_equal(mem[i], 5);
    munmap(mem, len);
}

/* Drivers give DONTFORK to pages that a device uses; programs give DONTDUMP to keep secrets out of core dumps. */
static void advice_given_meanwhile_is_kept(void **state)
{
    (void)state;
    size_t page = page_size(), len = 8 * page;
    unsigned char *mem = private_memory(len);
    memset(mem, 5, len);
    adopt_must(mem, 4 * page);
    adopt_must(mem + 4 * page, page);
    assert_int_equal(madvise(mem + page, 2 * page, MADV_DONTFORK), 0);
    assert_int_equal(madvise(mem + 4 * page, page, MADV_DONTFORK), 0);
    assert_int_equal(madvise(mem + 2 * page, 2 * page, MADV_DONTDUMP), 0);
    um_shm_adopt_release((uintptr_t)mem, 4 * page);
    um_shm_adopt_release((uintptr_t)mem + 4 * page, page);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(has_flag(mem + i * page, "dc"), i == 1 || i == 2 || i == 4);
        assert_int_equal(has_flag(mem + i * page, "dd"), i == 2 || i == 3);
        assert_int_equal(mem[i * page], 5);
    }
    assert_true(is_private(mem, len));
    assert_nothing_adopted();
    munmap(mem, len);
}

static void the_file_is_sealed_and_not_inherited(void **state)
{
    (void)state;
    int fd = um_shm_adopt_fd();
    assert_true(fd >= 0);
    assert_int_equal(um_shm_adopt_fd(), fd);
    assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bytes_stay_and_a_second_mapping_sees_them),
    cmocka_unit_test(another_process_reads_and_writes_the_same_bytes),
    cmocka_unit_test(placement_is_followed_and_the_policy_restored),
    cmocka_unit_test(huge_pages_stay_huge),
    cmocka_unit_test(overlapping_registrations_are_counted_by_page),
    cmocka_unit_test(neighbouring_registrations_are_released_in_any_order),
    cmocka_unit_test(private_again_means_one_mapping_again),
    cmocka_unit_test(untouched_pages_read_as_zero_and_cost_nothing),
    cmocka_unit_test(of_a_large_sparse_range_only_what_is_used_moves),
    cmocka_unit_test(what_the_program_unmapped_or_mapped_over_is_left_alone),
    cmocka_unit_test(what_the_program_moved_keeps_its_contents),
    cmocka_unit_test(new_memory_at_the_place_of_registered_memory_is_adopted),
    cmocka_unit_test(a_protection_changed_meanwhile_is_kept),
    cmocka_unit_test(advice_given_meanwhile_is_kept),
    cmocka_unit_test(the_file_is_sealed_and_not_inherited),
};
ADOPT_MAIN(tests)
