/*
 * collectives [MAX]: alltoall and allreduce of 1 B to MAX (64 KiB), every result checked on every rank.
 *
 * Rank 0 prints for all ranks: seconds from the start of the job (UM_TEST_START) to the end of the slowest MPI_Init,
 * and the resident memory per rank at the end (Pss: shared pages are divided among those that share them).
 */
#include "common.h"
#include <stdint.h>

static void check_alltoall(int rank, int ranks, size_t size)
{
    unsigned char *out = pattern_buffer(size * (size_t)ranks), *in = pattern_buffer(size * (size_t)ranks);
    for (int to = 0; to < ranks; to++)
        pattern_fill(out + (size_t)to * size, size, (unsigned)(rank * 1009 + to));
    MPI_Alltoall(out, (int)size, MPI_BYTE, in, (int)size, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        pattern_check("alltoall", in + (size_t)from * size, size, (unsigned)(from * 1009 + rank));
    free(out);
    free(in);
}

/* 32-bit numbers, as many as fill the size: the sum is known. (Not bytes: Open MPI's sums of those saturate.) */
static void check_allreduce(int rank, int ranks, size_t size)
{
    size_t count = (size + 3) / 4;
    uint32_t *out = (void *)pattern_buffer(count * 4), *in = (void *)pattern_buffer(count * 4);
    for (size_t i = 0; i < count; i++)
        out[i] = (uint32_t)rank * 7919 + (uint32_t)i * 2654435761u;
    MPI_Allreduce(out, in, (int)count, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
    for (size_t i = 0; i < count; i++) {
        uint32_t want =
            (uint32_t)ranks * (uint32_t)(ranks - 1) / 2 * 7919 + (uint32_t)ranks * (uint32_t)i * 2654435761u;
        if (in[i] != want) {
            fprintf(stderr, "DATA ERROR: allreduce of %zu bytes on rank %d: number %zu is 0x%x, should be 0x%x\n", size,
                    rank, i, in[i], want);
            fail(3);
        }
    }
    free(out);
    free(in);
}

static long pss_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "Pss: %ld kB", &kib) == 1)
            break;
    }
    if (file)
        fclose(file);
    return kib;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    double init = seconds_since_start(), slowest;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Reduce(&init, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);

    size_t max = argc > 1 ? strtoul(argv[1], NULL, 0) : 65536;
    for (size_t size = 1; size <= max; size *= 2) {
        check_alltoall(rank, ranks, size);
        check_allreduce(rank, ranks, size);
    }

    /* All ranks measure while every rank still holds its memory. */
    MPI_Barrier(MPI_COMM_WORLD);
    long kib = pss_kib(), sum, most;
    MPI_Reduce(&kib, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&kib, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("ranks=%d init_seconds=%.3f pss_mean_kib=%ld pss_max_kib=%ld\n", ranks, slowest, sum / ranks, most);
    MPI_Finalize();
    return 0;
}
