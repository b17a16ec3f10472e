/*
 * What adoption costs, and what adopted memory costs: adopt [MIB]
 *
 * Prints the processor time to adopt and release touched memory by size, an untouched heap, and a page in a process
 * with many mappings; and the rate of a triad loop (STREAM) on private, adopted and released memory. Not a test:
 * compare on a quiet machine.
 */
#include "machine/shm/adopt/adopt.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static void *memory(size_t len)
{
    void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mem == MAP_FAILED)
        exit(1);
    return mem;
}

/* This thread's processor time: other programs do not count. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void adopt(const void *mem, size_t len)
{
    const char *why = "";
    if (um_shm_adopt((uintptr_t)mem, len, &why) != 0) {
        fprintf(stderr, "not adopted: %s\n", why);
        exit(1);
    }
}

static void times(const char *what, size_t len, bool touch, int rounds)
{
    unsigned char *mem = memory(len);
    uint64_t in = UINT64_MAX, out = UINT64_MAX;
    if (touch)
        memset(mem, 1, len);
    for (int i = 0; i < rounds; i++) {
        uint64_t start = cpu_ns();
        adopt(mem, len);
        uint64_t middle = cpu_ns();
        um_shm_adopt_release((uintptr_t)mem, len);
        uint64_t end = cpu_ns();
        in = middle - start < in ? middle - start : in;
        out = end - middle < out ? end - middle : out;
    }
    printf("%-10s %9zu KiB: adopt %10.1f us, release %10.1f us (best of %d)\n", what, len >> 10, (double)in / 1e3,
           (double)out / 1e3, rounds);
    munmap(mem, len);
}

static double triad(double *a, const double *b, const double *c, size_t n)
{
    double best = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t start = um_clock_ns();
        for (size_t i = 0; i < n; i++)
            a[i] = b[i] + 3.0 * c[i];
        __asm__ volatile("" : : "r"(a) : "memory");
        double rate = (double)(3 * n * sizeof(double)) / (double)(um_clock_ns() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static void stream(size_t len)
{
    size_t n = len / 3 / sizeof(double);
    double *mem = memory(len);
    for (size_t i = 0; i < 3 * n; i++)
        mem[i] = 1.0;
    double before = triad(mem, mem + n, mem + 2 * n, n);
    adopt(mem, len);
    double adopted = triad(mem, mem + n, mem + 2 * n, n);
    um_shm_adopt_release((uintptr_t)mem, len);
    double after = triad(mem, mem + n, mem + 2 * n, n);
    printf("triad over %zu MiB, GB/s: private %.2f, adopted %.2f (%.3f of private), released %.2f (%.3f)\n", len >> 20,
           before, adopted, adopted / before, after, after / before);
    munmap(mem, len);
}

int main(int argc, char **argv)
{
    size_t most = (size_t)(argc > 1 ? atoi(argv[1]) : 192) << 20;
    for (size_t len = 4096; len <= most; len *= 16)
        times("touched", len, true, 20);
    times("untouched", (size_t)512 << 20, false, 5);
    times("untouched", (size_t)1 << 40, false, 3);
    stream(most);
    char *many = memory((size_t)4000 << 12); /* every other page is read-only: 4000 mappings besides the range */
    for (size_t i = 0; i < 4000; i += 2)
        mprotect(many + (i << 12), 4096, PROT_READ);
    times("in 4000 mappings", 4096, true, 20);
    return 0;
}
