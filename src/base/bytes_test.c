/* Tests of bytes.h: copies write every byte and no other, wherever source and destination lie. */
#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { PAGE = 4096, MOST = 3 * PAGE, ROOM = MOST + 2 * PAGE };

static unsigned char *from, *to;

static int setup(void **state)
{
    (void)state;
    from = aligned_alloc(PAGE, ROOM);
    to = aligned_alloc(PAGE, ROOM);
    for (size_t i = 0; from && i < ROOM; i++)
        from[i] = (unsigned char)(i * 7 + i / 251);
    return from && to ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free(from);
    free(to);
    return 0;
}

typedef void copy(void *restrict to, const void *restrict from, size_t len);

static void check_copy(copy *copy, size_t source, size_t behind, size_t len)
{
    unsigned char *const at = to + source + behind;
    memset(to, 0xa5, ROOM);
    copy(at, from + source, len);
    assert_memory_equal(at, from + source, len);
    for (unsigned char *p = to; p < to + ROOM; p = p + 1 == at ? at + len : p + 1)
        assert_int_equal(*p, 0xa5);
}

static void check(size_t source, size_t behind, size_t len)
{
    check_copy(um_bytes_copy, source, behind, len);
    check_copy(um_bytes_copy_nontemporal, source, behind, len);
}

static void every_byte_is_copied_and_no_other(void **state)
{
    (void)state;
    static const size_t lens[] = {1, 8, 127, 1023, 1024, 1025, 1151, 1152, 2048, 5000, MOST};
    static const size_t behinds[] = {1, 2, 8, 16, 31, 32, 64, 2048, PAGE - 1};
    for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++) {
        for (size_t b = 0; b < sizeof(behinds) / sizeof(behinds[0]); b++) {
            check(1, behinds[b], lens[l]);
            check(16, behinds[b], lens[l]);
            check(61, behinds[b], lens[l]);
        }
    }
}

/* Any number of bytes before and behind the whole lines. */
static void lines_and_what_is_beside_them(void **state)
{
    (void)state;
    for (size_t skew = 0; skew < 65; skew++) {
        for (size_t len = 0; len < 200; len++)
            check_copy(um_bytes_copy_nontemporal, 3, skew, len);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_copied_and_no_other),
        cmocka_unit_test(lines_and_what_is_beside_them),
    };
    return cmocka_run_group_tests_name("bytes", tests, setup, teardown);
}
