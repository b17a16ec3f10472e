/*
 * mpi_rma: MPI one-sided operations between two ranks, passive target, one line per measurement, data checked.
 *
 *   mpi_rma [--create] [--native] [--bytes WINDOW] [--min BYTES] [--max BYTES] [--batches N] [--stop]
 *
 * Rank 0 operates on rank 1's window inside MPI_Win_lock_all. Latency: one operation and one MPI_Win_flush, as in the
 * OSU benchmarks (osu_put_latency, osu_cas_latency, ...; each swap's result is checked, too), in batches of 100,
 * minimum and median. Bandwidth: 64 operations and one flush. --create: MPI_Win_create on memory of malloc,
 * else MPI_Win_allocate. --native: the window's info has disable_shm_accumulate=true, without which MPICH executes
 * accumulates by active messages when it cannot rule out that some rank accumulates through shared memory. --stop: rank
 * 1 is stopped by SIGSTOP for the whole measurement: its process makes no progress. Prints "latency OPERATION BYTES
 * MIN_US MEDIAN_US" and "bandwidth OPERATION BYTES MB_PER_S"; the last line is "data ok".
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 100, BATCHES_MAX = 1000, IN_FLIGHT = 64 };

struct options {
    bool create, stop, native;
    size_t bytes, min, max;
    int batches;
};

struct bench {
    struct options opt;
    MPI_Win win;
    unsigned char *out, *in;
    size_t size;
    double sample[BATCHES_MAX];
};

enum operation { PUT, GET, ACC, FOP, CAS, OPERATIONS };
static const char *const names[OPERATIONS] = {"put", "get", "acc", "fop", "cas"};

static uint64_t sums; /* what the first word of the window must hold: acc and fop add to it, cas sets it */
static uint64_t before, next;

static void fail(const char *what)
{
    fprintf(stderr, "mpi_rma: %s\n", what);
    fflush(NULL);
    usleep(300000);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void operate(struct bench *b, enum operation op)
{
    static const uint64_t one = 1;
    int n = (int)b->size;
    switch (op) {
    case PUT:
        MPI_Put(b->out, n, MPI_BYTE, 1, 0, n, MPI_BYTE, b->win);
        break;
    case GET:
        MPI_Get(b->in, n, MPI_BYTE, 1, 0, n, MPI_BYTE, b->win);
        break;
    case ACC:
        MPI_Accumulate(&one, 1, MPI_UINT64_T, 1, 0, 1, MPI_UINT64_T, MPI_SUM, b->win);
        sums++;
        break;
    case FOP:
        MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 1, 0, MPI_SUM, b->win);
        sums++;
        break;
    case CAS:
        next = sums + 1;
        MPI_Compare_and_swap(&next, &sums, &before, MPI_UINT64_T, 1, 0, b->win);
        break;
    default:
        fail("no such operation");
    }
}

/* Called after the flush: checks that every swap found the value of the one before. */
static void flushed(enum operation op)
{
    if (op != CAS)
        return;
    if (before != sums)
        fail("compare-and-swap found another value");
    sums = next;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_latency(struct bench *b, enum operation op)
{
    int batches = b->size > 65536 ? b->opt.batches / 10 + 1 : b->opt.batches;
    for (int k = -1; k < batches; k++) { /* the first one warms up */
        double start = MPI_Wtime();
        for (int i = 0; i < BATCH; i++) {
            operate(b, op);
            MPI_Win_flush(1, b->win);
            flushed(op);
        }
        if (k >= 0)
            b->sample[k] = (MPI_Wtime() - start) / BATCH * 1e6;
    }
    qsort(b->sample, (size_t)batches, sizeof(double), by_value);
    printf("latency %s %zu %.3f %.3f\n", names[op], b->size, b->sample[0], b->sample[batches / 2]);
}

static void measure_bandwidth(struct bench *b, enum operation op)
{
    int batches = b->size > 65536 ? b->opt.batches / 10 + 1 : b->opt.batches;
    for (int k = -1; k < batches; k++) {
        double start = MPI_Wtime();
        for (int i = 0; i < IN_FLIGHT; i++)
            operate(b, op);
        MPI_Win_flush(1, b->win);
        if (k >= 0)
            b->sample[k] = (double)b->size * IN_FLIGHT / (MPI_Wtime() - start) / 1e6;
    }
    qsort(b->sample, (size_t)batches, sizeof(double), by_value);
    printf("bandwidth %s %zu %.1f\n", names[op], b->size, b->sample[batches / 2]);
}

/* Checks that what was put is read back, byte by byte. */
static void check(struct bench *b)
{
    for (size_t i = 0; i < b->size; i++)
        b->out[i] = (unsigned char)(i * 7 + b->size);
    memset(b->in, 0, b->size);
    operate(b, PUT);
    MPI_Win_flush(1, b->win);
    operate(b, GET);
    MPI_Win_flush(1, b->win);
    if (memcmp(b->in, b->out, b->size) != 0)
        fail("what was read is not what was put");
}

static void measure(struct bench *b)
{
    const uint64_t zero = 0;
    MPI_Put(&zero, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, b->win);
    MPI_Win_flush(1, b->win);
    b->size = 8;
    for (enum operation op = ACC; op <= CAS; op++)
        measure_latency(b, op);
    uint64_t end = 0;
    MPI_Get(&end, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, b->win);
    MPI_Win_flush(1, b->win);
    if (end != sums)
        fail("an atomic operation was lost");
    for (b->size = b->opt.min; b->size <= b->opt.max; b->size *= b->size < 4096 ? 2 : 4) {
        check(b);
        measure_latency(b, PUT);
        measure_latency(b, GET);
        measure_bandwidth(b, PUT);
        measure_bandwidth(b, GET);
        check(b);
    }
    printf("data ok\n");
}

static struct options options_read(int argc, char **argv)
{
    struct options o = {.bytes = 1 << 20, .min = 8, .max = 65536, .batches = 100};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--create") == 0)
            o.create = true;
        else if (strcmp(argv[i], "--native") == 0)
            o.native = true;
        else if (strcmp(argv[i], "--stop") == 0)
            o.stop = true;
        else if (strcmp(argv[i], "--bytes") == 0 && i + 1 < argc)
            o.bytes = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--min") == 0 && i + 1 < argc)
            o.min = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc)
            o.max = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--batches") == 0 && i + 1 < argc)
            o.batches = atoi(argv[++i]);
        else
            fail("usage: mpi_rma [--create] [--native] [--bytes WINDOW] [--min BYTES] [--max BYTES] [--batches N] "
                 "[--stop]");
    }
    if (o.max > o.bytes)
        o.max = o.bytes;
    if (o.batches < 1 || o.batches > BATCHES_MAX || o.bytes < 8 || o.min < 1)
        fail("--batches is 1 to 1000, --bytes at least 8, --min at least 1");
    return o;
}

int main(int argc, char **argv)
{
    static struct bench b;
    int rank, ranks;
    void *memory;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    b.opt = options_read(argc, argv);
    if (ranks != 2)
        fail("two ranks are wanted");
    MPI_Info info;
    MPI_Info_create(&info);
    if (b.opt.native)
        MPI_Info_set(info, "disable_shm_accumulate", "true");
    if (b.opt.create) {
        memory = malloc(b.opt.bytes);
        MPI_Win_create(memory, (MPI_Aint)b.opt.bytes, 1, info, MPI_COMM_WORLD, &b.win);
    } else {
        MPI_Win_allocate((MPI_Aint)b.opt.bytes, 1, info, MPI_COMM_WORLD, &memory, &b.win);
    }
    MPI_Info_free(&info);
    b.out = malloc(b.opt.bytes);
    b.in = malloc(b.opt.bytes);
    memset(memory, 0, b.opt.bytes);
    long pid = getpid(), target;
    MPI_Sendrecv(&pid, 1, MPI_LONG, 1 - rank, 0, &target, 1, MPI_LONG, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, b.win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        usleep(10000); /* by then the target is in its barrier */
        if (b.opt.stop && kill((pid_t)target, SIGSTOP) != 0)
            fail("the target cannot be stopped");
        measure(&b);
        if (b.opt.stop)
            kill((pid_t)target, SIGCONT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(b.win);
    MPI_Win_free(&b.win);
    free(b.out);
    free(b.in);
    if (b.opt.create)
        free(memory);
    MPI_Finalize();
    return 0;
}
