/* Tests of base/memory.h: every kind of address that a peer could name. */
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void what_is_there_is_found_and_nothing_else(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    uintptr_t at = (uintptr_t)p;
    assert_true(um_memory_is_there(at, 4 * page, true));
    assert_true(um_memory_is_there(at + 5, 4 * page - 5, true));
    assert_int_equal(mprotect(p + 2 * page, page, PROT_READ), 0);
    assert_int_equal(munmap(p + 3 * page, page), 0);
    assert_true(um_memory_is_there(at, 3 * page, false));
    assert_false(um_memory_is_there(at, 3 * page, true));
    assert_true(um_memory_is_there(at, 2 * page, true));
    assert_false(um_memory_is_there(at, 3 * page + 1, false));
    assert_false(um_memory_is_there(at + 3 * page, 1, false));
    assert_true(um_memory_is_there(at + 3 * page, 0, true));
    assert_false(um_memory_is_there(0, 1, false));
    assert_false(um_memory_is_there(UINTPTR_MAX - 7, 8, false));
    assert_false(um_memory_is_there(at, SIZE_MAX, false));
    assert_false(um_memory_is_there(UINTPTR_MAX / 2 + 1, 8, true));
    assert_true(um_memory_is_there((uintptr_t)&page, sizeof(page), true));
    munmap(p, 3 * page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_there_is_found_and_nothing_else)};
    if (madvise(NULL, 0, INT_MAX) == 0)
        return 77; /* a user-space emulator whose madvise() always succeeds */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
