/*
 * forever: every rank exchanges messages of 1 KiB and 1 MiB with its neighbours in a ring until it is killed. Each rank
 * prints "running RANK PID" once the traffic flows.
 */
#include "common.h"
#include <unistd.h>

static void round_of(int rank, int ranks, unsigned char *out, unsigned char *in, size_t size)
{
    MPI_Sendrecv(out, (int)size, MPI_BYTE, (rank + 1) % ranks, 1, in, (int)size, MPI_BYTE, (rank + ranks - 1) % ranks,
                 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned char *out = pattern_buffer(1 << 20), *in = pattern_buffer(1 << 20);
    for (long i = 0;; i++) {
        round_of(rank, ranks, out, in, 1024);
        round_of(rank, ranks, out, in, 1 << 20);
        if (i == 3) {
            printf("running %d %d\n", rank, (int)getpid());
            fflush(stdout);
        }
    }
}
