/*
 * measure.h: how long a message takes that is matched behind many others: behind posted receives, or behind unexpected
 * messages. And messages of several pieces against as many messages.
 */
#include "measure.h"

#include <string.h>

enum {
    TAG_TRIP = 1,
    TAG_OTHERS = 1000,
    TAG_PIECE = 5,
    TAG_ACK = 6,
    BYTES = 8,
    BATCH = 20,
    BATCHES = 5000,
    WINDOWS = 20000
};

/* ---- depth ---- */

/* Returns the seconds of a round trip. Process 1, which receives its first message, has the others before it. */
static double trips(int count)
{
    uint64_t word = 0;
    double begin = link_now();
    for (int i = 0; i < count; i++) {
        if (link_rank() == 0) {
            link_send(1, &word, BYTES, TAG_TRIP);
            link_recv(1, &word, BYTES, TAG_TRIP);
        } else {
            link_recv(0, &word, BYTES, TAG_TRIP);
            link_send(0, &word, BYTES, TAG_TRIP);
        }
    }
    return (link_now() - begin) / count;
}

static void others_send(int depth)
{
    for (int i = 0; i < depth; i++) {
        uint64_t word = (uint64_t)i;
        link_send(1, &word, BYTES, TAG_OTHERS + i);
    }
}

static void others_check(const uint64_t *word, int depth)
{
    for (int i = 0; i < depth; i++) {
        if (word[i] != (uint64_t)i)
            link_fail("DATA ERROR: message %d of %d is wrong", i, depth);
    }
}

static double depth_time(void)
{
    trips(BATCH);
    int batches = measure_count(trips(BATCH) * BATCH, measure_options.seconds, 5, BATCHES);
    for (int i = 0; i < batches; i++)
        measure_sample[i] = trips(BATCH) / 2;
    return measure_median(batches);
}

static double depth_measure(int depth, bool posted)
{
    struct link_batch *b = link_batch_open(depth + 1);
    uint64_t *word = (uint64_t *)(void *)link_arena(true);
    for (int i = 0; posted && link_rank() == 1 && i < depth; i++)
        link_post_recv(b, 0, word + i, BYTES, TAG_OTHERS + i);
    link_barrier();
    if (!posted && link_rank() == 0)
        others_send(depth);
    double took = depth_time();
    if (posted && link_rank() == 0)
        others_send(depth);
    for (int i = 0; !posted && link_rank() == 1 && i < depth; i++)
        link_post_recv(b, 0, word + i, BYTES, TAG_OTHERS + i);
    link_wait(b);
    if (link_rank() == 1)
        others_check(word, depth);
    link_batch_close(b);
    return took;
}

static void depth_run(void)
{
    measure_two();
    const bool posted = strcmp(measure_options.kind, "unexpected") != 0;
    for (int i = 0; i < measure_options.values; i++) {
        double took = depth_measure((int)measure_options.value[i], posted);
        link_barrier();
        if (link_rank() == 0)
            measure_figure("us", measure_options.value[i], took * 1e6);
    }
}

const struct measure measure_depth = {
    .name = "depth", .cases = "messages before the one that is matched", .body = depth_run, .is_fixed = true};

/* ---- pieces ---- */

/* One message; each piece is a message with a completion, as the one has; or by link_post_send(), which needs none. */
enum list_way { LIST, SENDS, SHORT_SENDS };

struct lists {
    struct link_batch *batch;
    size_t len; /* of a piece; there is a gap between pieces */
    enum list_way way;
};

static const unsigned char *piece_at(int piece, size_t len)
{
    return link_arena(false) + (size_t)piece * (len + 64);
}

static void list_post(const struct lists *l)
{
    struct iovec piece[LINK_PIECES];
    for (int p = 0; p < measure_options.pieces; p++) {
        piece[p] = (struct iovec){(void *)(uintptr_t)piece_at(p, l->len), l->len};
        if (l->way == SENDS)
            link_post_pieces(l->batch, 1, &piece[p], 1, TAG_PIECE);
        else if (l->way == SHORT_SENDS)
            link_post_send(l->batch, 1, piece[p].iov_base, l->len, TAG_PIECE);
    }
    if (l->way == LIST)
        link_post_pieces(l->batch, 1, piece, measure_options.pieces, TAG_PIECE);
}

static void list_receive(const struct lists *l)
{
    const int messages = l->way == LIST ? 1 : measure_options.pieces;
    size_t len = l->len * (size_t)(measure_options.pieces / messages);
    for (int p = 0; p < messages; p++)
        link_post_recv(l->batch, 0, link_arena(true) + (size_t)p * len, len, TAG_PIECE);
}

static void lists_window(const struct lists *l)
{
    unsigned char ack = 0;
    for (int i = 0; i < MEASURE_WINDOW / 4; i++)
        link_rank() == 0 ? list_post(l) : list_receive(l);
    link_wait(l->batch);
    if (link_rank() == 0)
        link_recv(1, &ack, 1, TAG_ACK);
    else
        link_send(0, &ack, 1, TAG_ACK);
}

static double lists_time(const struct lists *l, int count)
{
    for (int i = 0; i < count; i++) {
        double begin = link_now();
        lists_window(l);
        measure_sample[i] = (link_now() - begin) / (MEASURE_WINDOW / 4.0);
    }
    return measure_median(count);
}

static void lists_check(const struct lists *l)
{
    const unsigned char *in = link_arena(true);
    for (int p = 0; link_rank() == 1 && p < measure_options.pieces; p++) {
        for (size_t i = 0; i < l->len; i++) {
            if (in[(size_t)p * l->len + i] != measure_byte((size_t)p * (l->len + 64) + i, 0))
                link_fail("DATA ERROR: byte %zu of piece %d is wrong", i, p);
        }
    }
}

static double pieces_measure(struct lists *l, enum list_way way)
{
    l->way = way;
    measure_clear(0, l->len * (size_t)measure_options.pieces);
    link_barrier();
    double once = lists_time(l, 3) * (MEASURE_WINDOW / 4.0);
    lists_check(l);
    return lists_time(l, measure_count(once, measure_options.seconds / 2, 5, WINDOWS));
}

static void pieces_run(void)
{
    measure_two();
    if (measure_options.pieces < 1 || measure_options.pieces > LINK_PIECES)
        link_fail("1 to %d pieces", LINK_PIECES);
    struct lists l = {.batch = link_batch_open(MEASURE_WINDOW / 4 * LINK_PIECES)};
    for (int i = 0; i < measure_options.values; i++) {
        size_t pieces = (size_t)measure_options.pieces, len = measure_options.value[i] / pieces;
        l.len = len ? len : 1;
        const double list = pieces_measure(&l, LIST), sends = pieces_measure(&l, SENDS);
        const double short_sends = pieces_measure(&l, SHORT_SENDS);
        if (link_rank() != 0)
            continue;
        measure_figure("list_us", l.len * pieces, list * 1e6);
        measure_figure("sends_us", l.len * pieces, sends * 1e6);
        measure_figure("short_sends_us", l.len * pieces, short_sends * 1e6);
        measure_figure("gain", l.len * pieces, sends / list);
    }
    link_batch_close(l.batch);
}

const struct measure measure_pieces = {.name = "pieces", .cases = "bytes in all", .body = pieces_run};
