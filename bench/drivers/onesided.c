/*
 * measure.h: one-sided operations of process 0 on the window of process 1, which waits in a barrier. Latency: one
 * operation and a flush; bandwidth: 64 operations and one flush. What was written is read back.
 */
#include "measure.h"

#include <string.h>

enum { BATCH = 50, BATCH_LARGE = 4, LARGE = 65536, BATCHES = 4000 };

static size_t len;           /* of an operation */
static uint64_t sum, before; /* the value of a word that grows, and what the last operation found there */

static void put(void)
{
    link_put(1, 0, link_arena(false), len);
}

static void get(void)
{
    link_get(1, 0, link_arena(true), len);
}

static void add_chars(void)
{
    link_accumulate(1, 0, link_arena(false), len, LINK_CHAR);
}

static void add_ints(void)
{
    link_accumulate(1, 0, link_arena(false), len, LINK_INT);
}

static void add_doubles(void)
{
    link_accumulate(1, 0, link_arena(false), len, LINK_DOUBLE);
}

/* Checks what the operation before found, which has ended: the word grows by one each time. */
static void word_check(void)
{
    if (sum > 0 && before != sum - 1)
        link_fail("DATA ERROR: a word was %llu, should be %llu", (unsigned long long)before,
                  (unsigned long long)sum - 1);
}

static void fetch_add(void)
{
    word_check();
    link_fetch_add(1, 0, &before);
    sum++;
}

static void compare_swap(void)
{
    word_check();
    link_compare_swap(1, 0, &sum, &before);
    sum++;
}

/* Returns the seconds for `count` times `each` operations and a flush. */
static double repeat(void (*operation)(void), int count, int each)
{
    double begin = link_now();
    for (int i = 0; i < count; i++) {
        for (int n = 0; n < each; n++)
            operation();
        link_flush(1);
    }
    return link_now() - begin;
}

/* Returns the seconds for `each` operations and a flush. Only process 0 takes part, so no agreement is needed. */
static double time_of(void (*operation)(void), int each)
{
    const int batch = each > 1 ? 1 : len <= LARGE ? BATCH : BATCH_LARGE;
    repeat(operation, batch, each);
    double end = link_now() + measure_options.seconds / 2;
    int count = 0;
    while (count < BATCHES && (count < 5 || link_now() < end))
        measure_sample[count++] = repeat(operation, batch, each) / batch;
    return measure_median(count);
}

static void latency(const char *metric, void (*operation)(void))
{
    measure_figure(metric, len, time_of(operation, 1) * 1e6);
}

static void bandwidth(const char *metric, void (*operation)(void))
{
    measure_figure(metric, len, (double)len * MEASURE_WINDOW / time_of(operation, MEASURE_WINDOW) / 1e6);
}

static void round_trip_check(void)
{
    put();
    link_flush(1);
    measure_clear(0, len);
    get();
    link_flush(1);
    measure_check(0, len, 0); /* what process 0 sends */
}

static size_t largest(void)
{
    size_t most = 8;
    for (int i = 0; i < measure_options.values; i++)
        most = measure_options.value[i] > most ? measure_options.value[i] : most;
    return most;
}

static void rma_run(void)
{
    measure_two();
    for (int i = 0; link_rank() == 0 && i < measure_options.values; i++) {
        len = measure_options.value[i];
        round_trip_check();
        latency("put_us", put);
        latency("get_us", get);
        bandwidth("put_mb_s", put);
        bandwidth("get_mb_s", get);
        round_trip_check();
    }
}

/* Checks a sum: puts zeros, adds one to each element, and reads them back. */
static void accumulate_check(void (*add)(void), enum link_type type)
{
    static const size_t width[LINK_TYPES] = {1, sizeof(int), sizeof(double)};
    unsigned char *out = link_arena(false), *in = link_arena(true);
    memset(out, 0, len);
    put();
    link_flush(1);
    for (size_t i = 0; i + width[type] <= len; i += width[type]) {
        const int one = 1;
        const double real = 1;
        memcpy(out + i, type == LINK_DOUBLE ? (const void *)&real : (const void *)&one, width[type]);
    }
    add();
    link_flush(1);
    get();
    link_flush(1);
    if (memcmp(in, out, len) != 0)
        link_fail("DATA ERROR: %zu bytes: what was accumulated is not there", len);
}

static void accumulate_run(void)
{
    static const struct {
        const char *metric;
        void (*add)(void);
    } kind[LINK_TYPES] = {{"char_us", add_chars}, {"int_us", add_ints}, {"double_us", add_doubles}};
    measure_two();
    for (int i = 0; link_rank() == 0 && i < measure_options.values; i++) {
        len = measure_options.value[i];
        for (int type = 0; type < LINK_TYPES; type++) {
            accumulate_check(kind[type].add, (enum link_type)type);
            latency(kind[type].metric, kind[type].add);
        }
    }
    if (link_rank() != 0)
        return;
    len = sizeof(sum);
    memset(link_arena(false), 0, len);
    put();
    link_flush(1);
    latency("fetch_add_us", fetch_add);
    latency("compare_swap_us", compare_swap);
    word_check();
}

const struct measure measure_rma = {.name = "rma", .cases = "bytes", .body = rma_run, .window = largest};
const struct measure measure_accumulate = {
    .name = "accumulate", .cases = "bytes, multiples of 8", .body = accumulate_run, .window = largest};
