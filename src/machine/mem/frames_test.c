/* Frames of a peer's memory: pages are mapped before their first use. */
#include "machine/mem/mem.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { KIB = 1024, NUMBER = 7, GRANULE = 64 * KIB, PART = 4 * GRANULE };

static const size_t frame_len = (size_t)1 << UM_FRAME_SHIFT;

static void unmap(struct um_mem_mapping *map)
{
    munmap(map->base, map->len);
}

static const struct um_mem_mapper mapper = {.detach = unmap};

/* Maps a frame whose file has its pages already. */
static struct um_mem_frames *frames_open(void)
{
    struct um_mem_frames *frames = NULL;
    const int fd = memfd_create("frame", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)frame_len), 0);
    assert_int_equal(posix_fallocate(fd, 0, 2 * PART), 0);
    struct um_mem_mapping map = {.len = frame_len};
    map.base = mmap(NULL, frame_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map.base, MAP_FAILED);
    close(fd);
    assert_int_equal(um_mem_frames_add(&frames, NUMBER, &map), 0);
    return frames;
}

/* Stores into each page of so many bytes. Returns the number of page faults. */
static long store(unsigned char *at, size_t len)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < len; i += page)
        *(volatile unsigned char *)(at + i) = 1;
    getrusage(RUSAGE_SELF, &after);
    return after.ru_minflt - before.ru_minflt;
}

static void memory_is_populated_before_it_is_used(void **state)
{
    (void)state;
    const long pages = PART / sysconf(_SC_PAGESIZE), few = 4; /* few: of the test itself */
    struct um_mem_frames *frames = frames_open();
    unsigned char *base = um_mem_frames_find(frames, NUMBER, PART, PART);
    assert_true(store(base + PART, PART) <= few);
    assert_ptr_equal(um_mem_frames_find(frames, NUMBER, 0, 0), base);
    assert_true(store(base, PART) > few || pages <= few);
    um_mem_frames_close(frames, &mapper);
}

/* The end of one use and the begin of the next one lie in the same granule. */
static void uses_that_overlap_are_populated_to_their_ends(void **state)
{
    (void)state;
    struct um_mem_frames *frames = frames_open();
    unsigned char *base = um_mem_frames_find(frames, NUMBER, GRANULE - 1, 2);
    assert_true(store(base, 2 * GRANULE) <= 4);
    um_mem_frames_find(frames, NUMBER, GRANULE, 2 * GRANULE + 1);
    assert_true(store(base + 2 * GRANULE, 2 * GRANULE) <= 4);
    um_mem_frames_close(frames, &mapper);
}

/* What cannot be populated is left to page faults: the last bytes of a frame, a file without those pages. */
static void ends_of_frames_and_missing_pages_are_no_error(void **state)
{
    (void)state;
    struct um_mem_frames *frames = frames_open();
    unsigned char *base = um_mem_frames_find(frames, NUMBER, frame_len - 1, 1);
    assert_non_null(base);
    base[frame_len - 1] = 1;
    assert_ptr_equal(um_mem_frames_find(frames, NUMBER, 0, frame_len), base);
    assert_null(um_mem_frames_find(frames, NUMBER + 1, 0, 1));
    assert_null(um_mem_frames_find(NULL, NUMBER, 0, 1));
    um_mem_frames_close(frames, &mapper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_populated_before_it_is_used),
        cmocka_unit_test(uses_that_overlap_are_populated_to_their_ends),
        cmocka_unit_test(ends_of_frames_and_missing_pages_are_no_error),
    };
    if (madvise(NULL, 0, INT_MAX) == 0)
        return 77; /* a user-space emulator whose madvise() does nothing */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
