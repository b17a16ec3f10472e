/* Tests of base/maps.h: the kernel's answer for one address and its text say the same. */
#include "base/maps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT = 8192, PARTS = 4 };

struct area {
    unsigned char *at;
    size_t page;
    int fd;
};

/* Makes four pages in a row: a file's pages 2 and 1, a hole, memory without any access right. */
static struct area area_make(void)
{
    struct area a = {.page = (size_t)sysconf(_SC_PAGESIZE), .fd = memfd_create("unimem-maps-test", MFD_CLOEXEC)};
    assert_true(a.fd >= 0);
    assert_int_equal(ftruncate(a.fd, (off_t)(4 * a.page)), 0);
    a.at = mmap(NULL, PARTS * a.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(a.at, MAP_FAILED);
    for (size_t i = 0; i < 2; i++)
        assert_ptr_equal(mmap(a.at + i * a.page, a.page, PROT_READ | (i ? 0 : PROT_WRITE), MAP_SHARED | MAP_FIXED, a.fd,
                              (off_t)((2 - i) * a.page)),
                         a.at + i * a.page);
    assert_int_equal(munmap(a.at + 2 * a.page, a.page), 0);
    return a;
}

static void area_check(const struct area *a, const char *path)
{
    char text[TEXT];
    struct um_maps maps;
    struct um_map map;
    struct stat st;
    assert_int_equal(fstat(a->fd, &st), 0);
    assert_int_equal(um_maps_open(&maps, path, text, sizeof(text)), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_true(um_maps_find(&maps, (uintptr_t)a->at + i * a->page + 1, true, &map));
        assert_int_equal(map.start, a->at + i * a->page);
        assert_int_equal(map.end, a->at + (i + 1) * a->page);
        assert_int_equal(map.offset, (2 - i) * a->page);
        assert_int_equal(map.ino, st.st_ino);
        assert_int_equal(map.dev, st.st_dev);
        assert_string_equal(map.perms, i ? "r--s" : "rw-s");
        assert_string_equal(map.path, "/memfd:unimem-maps-test (deleted)");
    }
    assert_false(um_maps_find(&maps, (uintptr_t)a->at + 2 * a->page, true, &map));
    um_maps_close(&maps);
    assert_int_equal(um_maps_open(&maps, path, text, sizeof(text)), 0);
    assert_true(um_maps_find(&maps, (uintptr_t)a->at + 3 * a->page, false, &map));
    assert_true(map.start <= (uintptr_t)a->at + 3 * a->page && (uintptr_t)a->at + 3 * a->page < map.end);
    assert_string_equal(map.perms, "---p");
    assert_int_equal(map.ino, 0);
    um_maps_close(&maps);
}

/* Makes a file with the same text that answers no query, like maps of a kernel without queries. */
static int copy_of_maps(void)
{
    char text[TEXT];
    ssize_t n;
    FILE *from = fopen("/proc/self/maps", "re");
    int to = memfd_create("unimem-maps-copy", MFD_CLOEXEC);
    assert_true(from && to >= 0);
    while ((n = read(fileno(from), text, sizeof(text))) > 0)
        assert_int_equal(write(to, text, (size_t)n), n);
    fclose(from);
    return to;
}

static void a_mapping_is_found_by_its_address(void **state)
{
    struct area a = area_make();
    char path[64];
    (void)state;
    area_check(&a, "/proc/self/maps");
    int copy = copy_of_maps();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", copy);
    area_check(&a, path);
    close(copy);
    munmap(a.at, PARTS * a.page);
    close(a.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_mapping_is_found_by_its_address)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
