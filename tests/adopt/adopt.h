/*
 * Helpers of the adoption tests: memory, and queries of /proc.
 *
 * Arguments of every test: how=full|user|none|compare forces a way to stop threads; nodev: not by /dev/userfaultfd;
 * ordinary: skips where this user gets the full userfaultfd; slice=PAGES; rounds=N.
 */
#ifndef TESTS_ADOPT_ADOPT_H
#define TESTS_ADOPT_ADOPT_H

#include "base/clock.h"
#include "machine/shm/adopt/adopt.h"
#include "machine/shm/adopt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

extern unsigned long adopt_rounds;

size_t page_size(void);
/* Private anonymous memory with a hole on both sides, so that it merges with nothing. */
unsigned char *private_memory(size_t len);
void adopt_must(const void *at, size_t len);
/* True if the whole range is a mapping of the memory file, each page at the file offset of its address. */
bool is_shared(const void *at, size_t len);
bool is_private(const void *at, size_t len);
bool is_mapped(const void *at, size_t len);
bool has_perms(const void *at, size_t len, const char *perms);
/* True if smaps shows this flag for the mapping at the address. */
bool has_flag(const void *at, const char *flag);
/* Maps the same bytes of the memory file once more, as a peer does. */
unsigned char *file_view(const void *at, size_t len);
/* Bytes of memory that the memory file takes. */
size_t file_bytes(void);
size_t mappings(void);
size_t resident(void);
void assert_nothing_adopted(void);
/* Parses the arguments. Returns false if this system does not allow what they force: then the test is skipped (77). */
bool adopt_arguments(int argc, char **argv);

#define ADOPT_MAIN(tests)                                                                                              \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        if (!adopt_arguments(argc, argv))                                                                              \
            return 77;                                                                                                 \
        return cmocka_run_group_tests(tests, NULL, NULL);                                                              \
    }

#endif
