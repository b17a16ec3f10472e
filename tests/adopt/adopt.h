/*
 * Helpers of the adoption tests: memory, and queries of /proc.
 *
 * Arguments of every test: how=full|device|user|none|compare forces a way to stop threads; slice=PAGES; rounds=N.
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
/* Is all of it a mapping of the memory file, at the offset of its address? */
bool is_shared(const void *at, size_t len);
bool is_private(const void *at, size_t len);
bool is_mapped(const void *at, size_t len);
bool has_perms(const void *at, size_t len, const char *perms);
/* Has the mapping at an address this flag of smaps? */
bool has_flag(const void *at, const char *flag);
/* Another mapping of the file's bytes, as a peer has. */
unsigned char *file_view(const void *at, size_t len);
/* Memory that the file takes. */
size_t file_bytes(void);
size_t mappings(void);
size_t resident(void);
void assert_nothing_adopted(void);
/* Parses the arguments. False: this system does not allow forcing it; print that and skip (77). */
bool adopt_arguments(int argc, char **argv);

#define ADOPT_MAIN(tests)                                                                                              \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        if (!adopt_arguments(argc, argv))                                                                              \
            return 77;                                                                                                 \
        return cmocka_run_group_tests(tests, NULL, NULL);                                                              \
    }

#endif
