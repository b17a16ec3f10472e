/*
 * mpi_pingpong: latency and bandwidth between two MPI ranks by message size, with the data checked.
 *
 *   mpi_pingpong [--min BYTES] [--max BYTES] [--seconds S] [--csv FILE] [--corrupt BYTES]
 *
 * For every size: messages whose every byte is checked on arrival (not timed), then half round trips in batches
 * (minimum and median over the batches), then bandwidth: windows of messages in flight, each window answered by one
 * small message; the last window, which lands in a buffer of its own per message, is checked too. One wrong byte is
 * reported and ends the run with status 1.
 *
 * --seconds: about how long each of the two timed parts of a size may take (default 0.25).
 * --corrupt: falsifies one byte of a message of that size before it is sent, to show that the check detects it.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TAG_DATA = 1,
    TAG_ACK = 2,
    CHECKED_MESSAGES = 16, /* per size and direction */
    BATCH = 50,            /* round trips timed together, so that the cost of the clock does not count */
    BATCHES_MAX = 4000,
    WINDOW_MAX = 64,
    WINDOW_BYTES = 32 << 20, /* all buffers of a window; a larger message is a window of its own */
};

struct options {
    size_t min, max;
    double seconds;
    const char *csv;
    size_t corrupt; /* 0: off */
};

struct bench {
    int rank, peer;
    struct options opt;
    unsigned char *out, *in, *expect;
    MPI_Request request[WINDOW_MAX];
    double sample[BATCHES_MAX];
};

struct row {
    double latency_min, latency_median; /* seconds, half round trip */
    double bandwidth;                   /* bytes a second */
};

/* Ends the run, after a message on stderr. mpiexec may drop output that it has not forwarded yet when it learns of an
 * abort: it gets some time before. */
static void fail(int status)
{
    fflush(NULL);
    usleep(300000);
    MPI_Abort(MPI_COMM_WORLD, status);
    exit(status); /* MPI_Abort does not return; the compiler does not know */
}

/* Writes the contents of message number `seed`. */
static void fill(unsigned char *buf, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        buf[i] = (unsigned char)(seed * 131 + i * 7 + (i >> 8) * 13);
}

static void check(const struct bench *b, const unsigned char *buf, size_t size, unsigned seed)
{
    fill(b->expect, size, seed);
    if (!memcmp(buf, b->expect, size))
        return;
    size_t at = 0;
    while (buf[at] == b->expect[at])
        at++;
    fprintf(stderr,
            "mpi_pingpong: DATA ERROR: rank %d, message %u of %zu bytes: byte %zu is 0x%02x, should be 0x%02x\n",
            b->rank, seed, size, at, buf[at], b->expect[at]);
    fail(1);
}

static void exchange_checked(struct bench *b, size_t size)
{
    for (unsigned seed = 1; seed <= CHECKED_MESSAGES; seed++) {
        memset(b->in, 0, size);
        if (b->rank == 0) {
            fill(b->out, size, seed);
            if (size == b->opt.corrupt && seed == CHECKED_MESSAGES / 2)
                b->out[size / 2] ^= 1;
            MPI_Send(b->out, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD);
            MPI_Recv(b->in, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(b, b->in, size, seed + CHECKED_MESSAGES);
        } else {
            MPI_Recv(b->in, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(b, b->in, size, seed);
            fill(b->out, size, seed + CHECKED_MESSAGES);
            MPI_Send(b->out, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD);
        }
    }
}

/* Returns the seconds for `trips` round trips, as this rank sees them. */
static double round_trips(struct bench *b, size_t size, int trips)
{
    double start = MPI_Wtime();
    for (int i = 0; i < trips; i++) {
        if (b->rank == 0) {
            MPI_Send(b->out, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD);
            MPI_Recv(b->in, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(b->in, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(b->out, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD);
        }
    }
    return MPI_Wtime() - start;
}

/* Returns how many repetitions of something that took `once` seconds fill the time. Both ranks must agree: rank 0
 * decides. */
static int repetitions(const struct bench *b, double once, int max)
{
    double n = once > 0 ? b->opt.seconds / once : max;
    int count = n < 3 ? 3 : n > max ? max : (int)n;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return count;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_latency(struct bench *b, size_t size, struct row *row)
{
    int trips = size <= 65536 ? BATCH : 4;
    round_trips(b, size, trips); /* warm up */
    int batches = repetitions(b, round_trips(b, size, trips), BATCHES_MAX);
    for (int i = 0; i < batches; i++)
        b->sample[i] = round_trips(b, size, trips) / trips / 2;
    qsort(b->sample, (size_t)batches, sizeof b->sample[0], by_value);
    row->latency_min = b->sample[0];
    row->latency_median = b->sample[batches / 2];
}

static size_t window_stride(size_t size)
{
    return (size + 63) & ~(size_t)63;
}

static int window_of(size_t size)
{
    size_t n = WINDOW_BYTES / window_stride(size);
    return n > WINDOW_MAX ? WINDOW_MAX : n < 1 ? 1 : (int)n;
}

static double windows(struct bench *b, size_t size, int count)
{
    int window = window_of(size);
    size_t stride = window_stride(size);
    char ack = 0;
    double start = MPI_Wtime();

    for (int i = 0; i < count; i++) {
        for (int w = 0; w < window; w++) {
            if (b->rank == 0)
                MPI_Isend(b->out + (size_t)w * stride, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD,
                          &b->request[w]);
            else
                MPI_Irecv(b->in + (size_t)w * stride, (int)size, MPI_BYTE, b->peer, TAG_DATA, MPI_COMM_WORLD,
                          &b->request[w]);
        }
        MPI_Waitall(window, b->request, MPI_STATUSES_IGNORE);
        if (b->rank == 0)
            MPI_Recv(&ack, 1, MPI_CHAR, b->peer, TAG_ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&ack, 1, MPI_CHAR, b->peer, TAG_ACK, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - start;
}

static void measure_bandwidth(struct bench *b, size_t size, struct row *row)
{
    int window = window_of(size);
    size_t stride = window_stride(size);

    for (int w = 0; w < window; w++) {
        fill(b->out + (size_t)w * stride, size, (unsigned)w + 1);
        memset(b->in + (size_t)w * stride, 0, size);
    }
    windows(b, size, 1); /* warm up */
    int count = repetitions(b, windows(b, size, 1), 100000);
    double seconds = windows(b, size, count);
    row->bandwidth = (double)size * window * count / seconds;

    if (b->rank == 1)
        memset(b->in, 0, (size_t)window * stride);
    windows(b, size, 1);
    for (int w = 0; b->rank == 1 && w < window; w++)
        check(b, b->in + (size_t)w * stride, size, (unsigned)w + 1);
}

static void usage(const char *what)
{
    fprintf(
        stderr,
        "mpi_pingpong: %s\n"
        "usage: mpi_pingpong [--min BYTES] [--max BYTES] [--seconds S] [--csv FILE] [--corrupt BYTES], on 2 ranks\n",
        what);
    fail(2);
}

static void parse(int argc, char **argv, struct options *opt)
{
    *opt = (struct options){.min = 1, .max = 4 << 20, .seconds = 0.25};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        char *end = NULL;
        if (!value)
            usage("an option without its value, or an unknown one");
        if (!strcmp(argv[i], "--max"))
            opt->max = strtoul(value, &end, 0);
        else if (!strcmp(argv[i], "--min"))
            opt->min = strtoul(value, &end, 0);
        else if (!strcmp(argv[i], "--corrupt"))
            opt->corrupt = strtoul(value, &end, 0);
        else if (!strcmp(argv[i], "--seconds"))
            opt->seconds = strtod(value, &end);
        else if (!strcmp(argv[i], "--csv"))
            opt->csv = value;
        else
            usage("unknown option");
        if (end && (*end || end == value))
            usage("a value is not a number");
        i++;
    }
    if (opt->min < 1 || opt->min > opt->max)
        usage("--min must be between 1 and --max");
    if (opt->max < 1 || opt->max > 1 << 30)
        usage("--max must be between 1 and 1073741824");
}

static unsigned char *buffer(size_t size)
{
    unsigned char *p = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
    if (!p) {
        fprintf(stderr, "mpi_pingpong: no memory for %zu bytes\n", size);
        fail(1);
    }
    memset(p, 0, size);
    return p;
}

static void report(FILE *csv, size_t size, const struct row *row)
{
    printf("%10zu %14.2f %14.2f %14.1f   ok\n", size, row->latency_min * 1e6, row->latency_median * 1e6,
           row->bandwidth / 1e6);
    fflush(stdout);
    if (csv)
        fprintf(csv, "%zu,%.4f,%.4f,%.2f\n", size, row->latency_min * 1e6, row->latency_median * 1e6,
                row->bandwidth / 1e6);
}

static void run(struct bench *b)
{
    FILE *csv = NULL;
    if (b->rank == 0) {
        if (b->opt.csv && !(csv = fopen(b->opt.csv, "w"))) {
            perror(b->opt.csv);
            fail(1);
        }
        printf("%10s %15s %15s %14s   %s\n", "bytes", "latency µs", "median µs", "MB/s", "data");
        if (csv)
            fputs("bytes,latency_us,latency_median_us,bandwidth_mb_s\n", csv);
    }
    for (size_t size = b->opt.min; size <= b->opt.max; size *= 2) {
        struct row row;
        exchange_checked(b, size);
        measure_latency(b, size, &row);
        measure_bandwidth(b, size, &row);
        if (b->rank == 0)
            report(csv, size, &row);
    }
    if (csv && fclose(csv)) {
        perror(b->opt.csv);
        fail(1);
    }
}

int main(int argc, char **argv)
{
    static struct bench b;
    int size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2)
        usage("exactly two ranks are needed: mpiexec -n 2");
    b.peer = 1 - b.rank;
    parse(argc, argv, &b.opt);

    size_t bytes = b.opt.max > WINDOW_BYTES ? b.opt.max : WINDOW_BYTES;
    b.out = buffer(bytes + 64);
    b.in = buffer(bytes + 64);
    b.expect = buffer(b.opt.max);
    run(&b);
    free(b.out);
    free(b.in);
    free(b.expect);
    MPI_Finalize();
    return 0;
}
