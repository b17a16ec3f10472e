/* measure.h: MPI's collectives of all processes, by the bytes that a process gives. The results are checked. */
#include "measure.h"

#include <mpi.h>
#include <stdlib.h>

enum { BATCH = 20, BATCHES = 2000 };

static int count;        /* doubles that a process gives */
static double *out, *in; /* in: with room for what all processes give */

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(void)
{
    MPI_Bcast(out, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

static void reduce(void)
{
    MPI_Reduce(out, in, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void allreduce(void)
{
    MPI_Allreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(void)
{
    MPI_Allgather(out, count, MPI_DOUBLE, in, count, MPI_DOUBLE, MPI_COMM_WORLD);
}

/* Each process gives `count` doubles in total. */
static void alltoall(void)
{
    int each = count / link_size() ? count / link_size() : 1;
    MPI_Alltoall(out, each, MPI_DOUBLE, in, each, MPI_DOUBLE, MPI_COMM_WORLD);
}

static double batch(void (*collective)(void), int each)
{
    double begin = link_now();
    for (int i = 0; i < each; i++)
        collective();
    return (link_now() - begin) / each;
}

/* Where ranks share processors, one call may take as long as all batches should. Then a batch is one call. */
static void measure(const char *metric, size_t which, void (*collective)(void))
{
    batch(collective, 2);
    double once = batch(collective, 2);
    int each = measure_count(once, measure_options.seconds / 8, 1, BATCH);
    int batches = measure_count(once * each, measure_options.seconds / 2, 3, BATCHES);
    for (int i = 0; i < batches; i++)
        measure_sample[i] = batch(collective, each);
    double median = measure_median(batches);
    if (link_rank() == 0)
        measure_figure(metric, which, median * 1e6);
}

/* Checks results: process r gives r + 1 in each element. */
static void check(void)
{
    const int size = link_size();
    for (int i = 0; i < count; i++)
        out[i] = link_rank() + 1;
    allreduce();
    for (int i = 0; i < count; i++) {
        if (in[i] != size * (size + 1) / 2.0)
            link_fail("DATA ERROR: element %d of a sum is %g", i, in[i]);
    }
    allgather();
    for (int i = 0; i < count * size; i++) {
        if (in[i] != i / count + 1)
            link_fail("DATA ERROR: element %d of what was gathered is %g", i, in[i]);
    }
}

static void collective_run(void)
{
    static const struct {
        const char *metric;
        void (*run)(void);
    } kind[] = {{"bcast_us", bcast},
                {"reduce_us", reduce},
                {"allreduce_us", allreduce},
                {"allgather_us", allgather},
                {"alltoall_us", alltoall}};
    measure("barrier_us", 0, barrier);
    for (int i = 0; i < measure_options.values; i++) {
        size_t bytes = measure_options.value[i];
        count = (int)(bytes / sizeof(double) ? bytes / sizeof(double) : 1);
        size_t room = (size_t)(count + 1) * sizeof(double) * (size_t)(link_size() + 1);
        out = calloc(1, room);
        in = calloc(1, room);
        if (!out || !in)
            link_fail("no memory");
        check();
        for (size_t k = 0; k < sizeof(kind) / sizeof(kind[0]); k++)
            measure(kind[k].metric, bytes, kind[k].run);
        check();
        free(out);
        free(in);
    }
}

const struct measure measure_collective = {
    .name = "collective", .cases = "bytes", .body = collective_run, .is_fixed = true};
