/* What the programs of the integration tests share: patterns of data and the report of a wrong byte. */
#ifndef UM_TEST_COMMON_H
#define UM_TEST_COMMON_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Aborts, after a message on stderr. mpiexec may drop output that it has not forwarded when a rank aborts, so it gets
 * some time. */
static inline void fail(int status)
{
    fflush(NULL);
    usleep(300000);
    MPI_Abort(MPI_COMM_WORLD, status);
    exit(status); /* MPI_Abort does not return; the compiler does not know */
}

static inline unsigned char pattern(unsigned seed, size_t i)
{
    return (unsigned char)(seed * 131 + i * 7 + (i >> 8) * 13);
}

static inline void pattern_fill(unsigned char *buf, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        buf[i] = pattern(seed, i);
}

static inline void pattern_check(const char *what, const unsigned char *buf, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        if (buf[i] == pattern(seed, i))
            continue;
        fprintf(stderr, "DATA ERROR: %s of %zu bytes: byte %zu is 0x%02x, should be 0x%02x\n", what, size, i, buf[i],
                pattern(seed, i));
        fail(3);
    }
}

static inline unsigned char *pattern_buffer(size_t size)
{
    unsigned char *buf = calloc(size ? size : 1, 1);
    if (!buf) {
        fprintf(stderr, "no memory for %zu bytes\n", size);
        fail(4);
    }
    return buf;
}

/* CLOCK_MONOTONIC, which all processes of a host share: the test passes its own reading as UM_TEST_START. */
static inline double seconds_since_start(void)
{
    const char *start = getenv("UM_TEST_START");
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return start ? (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - strtod(start, NULL) : 0;
}

#endif
