/* measure.h: half round trips between processes 0 and 1 by size; and a body while its sender or receiver computes. */
#include "measure.h"

#include <string.h>

/* bodies of `computing`: the first ones, which are not counted, and how many are, at least: they differ widely */
enum { LEARNING = 250, COUNTED = 100 };
enum { TAG = 1, WARM_UP = 20, BATCH = 50, BATCH_LARGE = 4, LARGE = 65536, BATCHES = 4000, TIMES = 20000 };

static uint64_t next;

static void trip(size_t len)
{
    size_t place = measure_place(len, next++);
    unsigned char *out = link_arena(false) + place, *in = link_arena(true) + place;
    for (int turn = 0; turn < 2; turn++) {
        if (turn == link_rank()) {
            measure_write(place, len);
            link_send(1 - link_rank(), out, len, TAG);
        } else {
            link_recv(1 - link_rank(), in, len, TAG);
            measure_read(place, len);
        }
    }
}

/* Returns the seconds of a round trip. */
static double trips(size_t len, int count)
{
    double begin = link_now();
    for (int i = 0; i < count; i++)
        trip(len);
    return (link_now() - begin) / count;
}

static void trip_checked(size_t len)
{
    size_t place = measure_place(len, next);
    measure_clear(place, len);
    link_barrier();
    trip(len);
    measure_check(place, len, 1 - link_rank());
}

/* Measures batches, in which the cost of the clock does not count; then single round trips, for the tail. */
static void size_measure(size_t len)
{
    const int batch = len <= LARGE ? BATCH : BATCH_LARGE;
    trip_checked(len);
    trips(len, len <= LARGE ? WARM_UP : 2);
    int batches = measure_count(trips(len, batch) * batch, measure_options.seconds / 2, 3, BATCHES);
    for (int i = 0; i < batches; i++)
        measure_sample[i] = trips(len, batch) / 2 * 1e6;
    double us = measure_median(batches);
    int times = measure_count(us * 2e-6, measure_options.seconds / 2, 10, MEASURE_SAMPLES);
    for (int i = 0; i < times; i++)
        measure_sample[i] = trips(len, 1) / 2 * 1e6;
    trip_checked(len);
    if (link_rank() != 0)
        return;
    measure_figure("us", len, us);
    measure_figure("p50_us", len, measure_median(times));
    measure_figure("p99_us", len, measure_part(times, 0.99));
    measure_figure("p999_us", len, measure_part(times, 0.999));
}

static void latency_run(void)
{
    measure_two();
    for (int i = 0; i < measure_options.values; i++)
        size_measure(measure_options.value[i]);
}

const struct measure measure_latency = {.name = "latency", .cases = "bytes", .body = latency_run, .in_flight = 1};

/* ---- one of the two computes ---- */

static void compute_until(double end)
{
    while (link_now() < end)
        ;
}

/* Sends the time of the call in the body. Returns the seconds that the body took, from the receiver's answer. */
static double body_send(struct link_batch *b, size_t len, bool computes)
{
    unsigned char *out = link_arena(false);
    double begin = link_now(), took;
    measure_write(0, len);
    memcpy(out, &begin, sizeof(begin));
    link_post_send(b, 1, out, len, TAG);
    if (computes)
        compute_until(begin + measure_options.compute * 1e-6);
    link_wait(b);
    link_recv(1, &took, sizeof(took), TAG);
    return took;
}

/* Answers how long the body took. If the receiver computes, only the time beyond its computing counts. */
static void body_recv(struct link_batch *b, size_t len, bool computes)
{
    double begin;
    double ready = link_now() + (computes ? measure_options.compute * 1e-6 : 0);
    link_post_recv(b, 0, link_arena(true), len, TAG);
    if (computes)
        compute_until(ready);
    link_wait(b);
    measure_read(0, len);
    memcpy(&begin, link_arena(true), sizeof(begin));
    double took = link_now() - (computes && ready > begin ? ready : begin);
    link_send(0, &took, sizeof(took), TAG);
}

static void computing_run(void)
{
    measure_two();
    const bool sender = strstr(measure_options.kind, "receiver") == NULL;
    struct link_batch *b = link_batch_open(1);
    for (int i = 0; i < measure_options.values; i++) {
        size_t len = measure_options.value[i] < sizeof(double) ? sizeof(double) : measure_options.value[i];
        int times = measure_count(measure_options.compute * 1e-6, measure_options.seconds, COUNTED, TIMES);
        for (int n = -LEARNING; n < times; n++) { /* the first bodies are not counted */
            double took = 0;
            link_barrier();
            if (link_rank() == 0)
                took = body_send(b, len, sender) * 1e6;
            else
                body_recv(b, len, !sender);
            if (n >= 0)
                measure_sample[n] = took;
        }
        if (link_rank() == 0)
            measure_figure("us", len, measure_median(times));
    }
    link_batch_close(b);
}

const struct measure measure_computing = {.name = "computing", .cases = "bytes", .body = computing_run, .in_flight = 1};
