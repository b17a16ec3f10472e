/*
 * exchange SMALL LARGE: each of two ranks sends the other SMALL messages of 64 bytes and LARGE ones of 1 MiB, all
 * checked: traffic whose amount the test knows.
 */
#include "common.h"

static void both_ways(int rank, size_t size, unsigned seed)
{
    unsigned char *out = pattern_buffer(size), *in = pattern_buffer(size);
    pattern_fill(out, size, seed + (unsigned)rank);
    MPI_Sendrecv(out, (int)size, MPI_BYTE, 1 - rank, 1, in, (int)size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    pattern_check("message", in, size, seed + 1u - (unsigned)rank);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2 || argc != 3) {
        fprintf(stderr, "usage: exchange SMALL LARGE, on 2 ranks\n");
        fail(2);
    }
    int small = atoi(argv[1]), large = atoi(argv[2]);
    for (int i = 0; i < small; i++)
        both_ways(rank, 64, (unsigned)i * 3);
    for (int i = 0; i < large; i++)
        both_ways(rank, 1 << 20, (unsigned)i * 3);
    if (rank == 0)
        printf("exchanged %d small and %d large\n", small, large);
    MPI_Finalize();
    return 0;
}
