/* measure.h, and what link.h promises for all links. */
#include "measure.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, LINE = 64, TAG_AGREE = 30000 };

struct measure_options measure_options;
double measure_sample[MEASURE_SAMPLES];

double link_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void link_pin(const struct link_config *config, int rank)
{
    if (config->cpus < 1)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(config->cpu[rank % config->cpus], &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        link_fail("cannot be pinned to processor %d", config->cpu[rank % config->cpus]);
}

/* Reports an error and ends this process only, by _exit: an MPI's launcher, or the parent, ends the others. */
static void __attribute__((noreturn)) say_and_exit(const char *what, const char *format, va_list args)
{
    fflush(stdout);
    fputs(what, stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    link_abort();
    _exit(1);
}

void link_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_and_exit("measure: ", format, args);
}

void link_refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_and_exit("measure: not offered: ", format, args);
}

void measure_figure(const char *metric, size_t which, double value)
{
    printf("figure %s %zu %.6g\n", metric, which, value);
    fflush(stdout);
}

void measure_two(void)
{
    if (link_size() != 2)
        link_fail("two processes are wanted, not %d", link_size());
}

uint64_t measure_agree(uint64_t mine)
{
    if (link_rank() == 0) {
        for (int r = 1; r < link_size(); r++)
            link_send(r, &mine, sizeof(mine), TAG_AGREE);
    } else {
        link_recv(0, &mine, sizeof(mine), TAG_AGREE);
    }
    return mine;
}

int measure_count(double once, double seconds, int least, int most)
{
    double n = once > 0 ? seconds / once : most;
    return (int)measure_agree((uint64_t)(n < least ? least : n > most ? most : n));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measure_part(int count, double part)
{
    qsort(measure_sample, (size_t)count, sizeof(double), by_value);
    int at = (int)((double)count * part);
    return measure_sample[at < count ? at : count - 1];
}

double measure_median(int count)
{
    return measure_part(count, 0.5);
}

/* A place consists of whole pages, so that a message never shares a line or a page with the one before. */
size_t measure_place(size_t len, uint64_t n)
{
    size_t stride = (len + PAGE - 1) & ~(size_t)(PAGE - 1);
    size_t places = measure_options.used ? (size_t)measure_options.used : measure_options.cold / stride;
    return places > 1 ? (size_t)(n % places) * stride : 0;
}

unsigned char measure_byte(size_t at, int r)
{
    return (unsigned char)(at * 7 + (at >> 8) + (size_t)r * 31 + 1);
}

/* Returns the bytes of a message that the program writes and reads: all with --kind used, else none. */
static size_t used_of(size_t len)
{
    return measure_options.used ? len : 0;
}

void measure_write(size_t place, size_t len)
{
    volatile unsigned char *out = link_arena(false) + place;
    const size_t end = used_of(len);
    for (size_t at = 0; at < end; at += LINE)
        out[at] = out[at];
}

void measure_read(size_t place, size_t len)
{
    const volatile unsigned char *in = link_arena(true) + place;
    const size_t end = used_of(len);
    for (size_t at = 0; at < end; at += LINE)
        (void)in[at];
}

void measure_clear(size_t place, size_t len)
{
    memset(link_arena(true) + place, 0, len);
}

void measure_check(size_t place, size_t len, int from)
{
    const unsigned char *in = link_arena(true) + place;
    if (measure_options.is_floor) {
        if (len && in[0])
            link_fail("a message was carried: the provider of bench/floor is not in use");
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if (in[i] != measure_byte(place + i, from))
            link_fail("DATA ERROR: byte %zu of %zu from process %d is 0x%02x, should be 0x%02x", i, len, from, in[i],
                      measure_byte(place + i, from));
    }
}
