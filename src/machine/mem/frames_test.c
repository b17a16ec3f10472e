/* Frames of a peer's memory: exactly the pages that are stored to next are populated. */
#include "machine/mem/mem.h"

#include "base/memory.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { NUMBER = 7, MIB = 1 << 20 };

static const size_t frame_len = (size_t)1 << UM_FRAME_SHIFT;
static size_t page;

struct fixture {
    int fd;
    unsigned char *base;
    struct um_mem_frames *frames;
};

static void unmap(struct um_mem_mapping *map)
{
    munmap(map->base, map->len);
}

static const struct um_mem_mapper mapper = {.detach = unmap};

/* Maps a frame of a file of so many bytes. */
static struct fixture frame_open(size_t len)
{
    struct fixture f = {.fd = memfd_create("frame", MFD_CLOEXEC)};
    assert_true(f.fd >= 0);
    assert_int_equal(ftruncate(f.fd, (off_t)len), 0);
    struct um_mem_mapping map = {.len = frame_len};
    map.base = mmap(NULL, frame_len, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
    assert_ptr_not_equal(map.base, MAP_FAILED);
    assert_int_equal(um_mem_frames_add(&f.frames, NUMBER, &map), 0);
    f.base = um_mem_frames_find(f.frames, NUMBER);
    assert_ptr_equal(f.base, map.base);
    return f;
}

static void frame_close(struct fixture *f)
{
    um_mem_frames_close(f->frames, &mapper);
    close(f->fd);
}

/* Returns how many of the first so many pages are present here: bit 63 of an entry of proc_pid_pagemap(5). */
static size_t pages_present(const struct fixture *f, size_t pages)
{
    size_t present = 0;
    const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < pages; i++) {
        uint64_t entry;
        const off_t at = (off_t)(((uintptr_t)f->base / page + i) * sizeof(entry));
        assert_int_equal(pread(fd, &entry, sizeof(entry), at), sizeof(entry));
        present += entry >> 63;
    }
    close(fd);
    return present;
}

static size_t bytes_of_file(const struct fixture *f)
{
    struct stat st;
    assert_int_equal(fstat(f->fd, &st), 0);
    return (size_t)st.st_blocks * 512;
}

static void pages_of_the_bytes_are_populated_and_no_others(void **state)
{
    (void)state;
    struct fixture f = frame_open(frame_len);
    um_mem_frames_populate(f.frames, NUMBER, 3 * page - 1, page + 2);
    assert_int_equal(pages_present(&f, 2), 0);
    assert_int_equal(pages_present(&f, 5), 3);
    assert_int_equal(pages_present(&f, 16), 3);
    assert_int_equal(bytes_of_file(&f), 3 * page);
    frame_close(&f);
}

static void what_was_populated_before_hides_nothing(void **state)
{
    (void)state;
    struct fixture f = frame_open(frame_len);
    um_mem_frames_populate(f.frames, NUMBER, 0, 2 * page);
    um_mem_frames_populate(f.frames, NUMBER, 8 * page, page);
    um_mem_frames_populate(f.frames, NUMBER, 0, 70 * page);
    assert_int_equal(pages_present(&f, 80), 70);
    frame_close(&f);
}

static void the_last_page_of_a_frame_is_populated(void **state)
{
    (void)state;
    struct fixture f = frame_open(frame_len);
    um_mem_frames_populate(f.frames, NUMBER, frame_len - 1, 1);
    assert_int_equal(bytes_of_file(&f), page);
    frame_close(&f);
}

static void a_call_populates_at_most_1_mib(void **state)
{
    (void)state;
    struct fixture f = frame_open(frame_len);
    um_mem_frames_populate(f.frames, NUMBER, 0, frame_len);
    assert_int_equal(pages_present(&f, 2 * MIB / page), MIB / page);
    assert_int_equal(bytes_of_file(&f), MIB);
    frame_close(&f);
}

/* The file ends before the frame does. It is tried again when the file has grown. */
static void what_cannot_be_populated_is_no_error(void **state)
{
    (void)state;
    struct fixture f = frame_open(2 * page);
    um_mem_frames_populate(f.frames, NUMBER, 2 * page, 4 * page);
    assert_int_equal(pages_present(&f, 8), 0);
    assert_int_equal(ftruncate(f.fd, (off_t)frame_len), 0);
    um_mem_frames_populate(f.frames, NUMBER, 2 * page, 4 * page);
    assert_int_equal(pages_present(&f, 8), 4);
    frame_close(&f);
}

static void frames_are_found_by_their_number(void **state)
{
    (void)state;
    struct fixture f = frame_open(frame_len);
    assert_null(um_mem_frames_find(f.frames, NUMBER + 1));
    assert_null(um_mem_frames_find(NULL, NUMBER));
    frame_close(&f);
}

/* False before Linux 5.14, and under a user-space emulator, whose madvise() does nothing. */
static bool has_populate(void)
{
    void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool has = madvise(NULL, 0, INT_MAX) != 0 && madvise(memory, page, MADV_POPULATE_READ) == 0;
    munmap(memory, page);
    return has;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_the_bytes_are_populated_and_no_others),
        cmocka_unit_test(what_was_populated_before_hides_nothing),
        cmocka_unit_test(the_last_page_of_a_frame_is_populated),
        cmocka_unit_test(a_call_populates_at_most_1_mib),
        cmocka_unit_test(what_cannot_be_populated_is_no_error),
        cmocka_unit_test(frames_are_found_by_their_number),
    };
    page = (size_t)sysconf(_SC_PAGESIZE);
    return has_populate() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
