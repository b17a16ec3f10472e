/*
 * measure.h: streams by size: 64 messages in flight, one acknowledgement. From process 0 to 1; in both directions at
 * once; and by pairs, in which each process of the first half sends to one of the second half.
 */
#include "measure.h"

enum { TAG_ACK = 3, TAG_RATE = 4, WINDOWS = 20000 };

struct stream {
    int to, from; /* LINK_ANY: none */
    size_t len;
    struct link_batch *batch;
    uint64_t next; /* number of the message */
};

/* Moves one window of messages. If the arena is too small for a window, its messages share places. */
static void window(struct stream *s)
{
    const unsigned char *out = link_arena(false);
    unsigned char *in = link_arena(true), ack = 0, acked;
    for (int i = 0; i < MEASURE_WINDOW; i++, s->next++) {
        size_t place = measure_place(s->len, s->next);
        if (s->from != LINK_ANY)
            link_post_recv(s->batch, s->from, in + place, s->len, MEASURE_TAG_FLOOR);
        if (s->to != LINK_ANY) {
            measure_write(place, s->len);
            link_post_send(s->batch, s->to, out + place, s->len, MEASURE_TAG_FLOOR);
        }
    }
    link_wait(s->batch);
    for (int i = MEASURE_WINDOW; measure_options.used && s->from != LINK_ANY && i > 0; i--)
        measure_read(measure_place(s->len, s->next - (uint64_t)i), s->len);
    if (s->from != LINK_ANY)
        link_send(s->from, &ack, 1, TAG_ACK);
    if (s->to != LINK_ANY)
        link_recv(s->to, &acked, 1, TAG_ACK);
}

static double windows(struct stream *s, int count)
{
    for (int i = 0; i < count; i++) {
        double begin = link_now();
        window(s);
        measure_sample[i] = link_now() - begin;
    }
    return measure_median(count);
}

static void window_checked(struct stream *s)
{
    size_t place = measure_place(s->len, s->next);
    if (s->from != LINK_ANY)
        measure_clear(place, s->len);
    link_barrier();
    window(s);
    if (s->from != LINK_ANY)
        measure_check(place, s->len, s->from);
}

/* Returns the median of the seconds for a window, as this process sees it. */
static double stream_time(struct stream *s)
{
    window_checked(s);
    double once = windows(s, 3);
    int count = measure_count(once, measure_options.seconds, 5, WINDOWS);
    link_barrier();
    double median = windows(s, count);
    window_checked(s);
    return median;
}

/* Returns, in process 0, the messages that all senders together send in a second. Process 0 is one of them. */
static double rate_of_all(double window_seconds, int senders)
{
    double rate = MEASURE_WINDOW / window_seconds, other;
    if (link_rank() > 0 && link_rank() < senders)
        link_send(0, &rate, sizeof(rate), TAG_RATE);
    for (int r = 1; link_rank() == 0 && r < senders; r++, rate += other)
        link_recv(r, &other, sizeof(other), TAG_RATE);
    return rate;
}

static void streams_run(int to, int from, int senders)
{
    struct stream s = {.to = to, .from = from, .batch = link_batch_open(2 * MEASURE_WINDOW)};
    for (int i = 0; i < measure_options.values; i++) {
        s.len = measure_options.value[i];
        s.next = 0;
        double rate = rate_of_all(stream_time(&s), senders);
        link_barrier();
        if (link_rank() != 0)
            continue;
        measure_figure("mb_s", s.len, rate * (double)s.len / 1e6);
        measure_figure("ns_message", s.len, 1e9 / rate);
    }
    link_batch_close(s.batch);
}

static void stream_run(void)
{
    measure_two();
    streams_run(link_rank() == 0 ? 1 : LINK_ANY, link_rank() == 0 ? LINK_ANY : 0, 1);
}

static void both_run(void)
{
    measure_two();
    streams_run(1 - link_rank(), 1 - link_rank(), 2);
}

static void rate_run(void)
{
    const int half = link_size() / 2, rank = link_rank();
    if (link_size() % 2)
        link_fail("pairs are wanted: an even number of processes");
    streams_run(rank < half ? rank + half : LINK_ANY, rank < half ? LINK_ANY : rank - half, half);
}

const struct measure measure_stream = {
    .name = "stream", .cases = "bytes", .body = stream_run, .in_flight = MEASURE_WINDOW};
const struct measure measure_both = {.name = "both", .cases = "bytes", .body = both_run, .in_flight = MEASURE_WINDOW};
const struct measure measure_rate = {.name = "rate", .cases = "bytes", .body = rate_run, .in_flight = MEASURE_WINDOW};
