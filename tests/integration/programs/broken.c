/*
 * broken ROUNDS BREAKS: two ranks send each other messages of 8 bytes to 64 KiB, some with receives that are posted
 * late, while each breaks its TCP connections BREAKS times. Every byte is compared. The launcher's own connections are
 * not TCP (MPICH's hydra).
 */
#include "common.h"

#include "../../connections.h"

enum { BATCH = 8, LONGEST = 65536 };

static unsigned char sent[BATCH][LONGEST], got[BATCH][LONGEST];

static size_t length_of(int round, int i)
{
    static const size_t lengths[] = {8, 64, 1000, 8, 4096, 16384, 8, LONGEST};
    return lengths[(round * 3 + i) % BATCH];
}

static unsigned seed_of(int rank, int round, int i)
{
    return (unsigned)(rank * 91 + round * BATCH + i);
}

static void receive(int peer, MPI_Request requests[BATCH])
{
    for (int i = 0; i < BATCH; i++)
        MPI_Irecv(got[i], LONGEST, MPI_BYTE, peer, 5, MPI_COMM_WORLD, &requests[i]);
}

static void exchange(int rank, int round)
{
    MPI_Request sends[BATCH], receives[BATCH];
    const int peer = 1 - rank, is_late = round % 3 == rank;
    if (!is_late)
        receive(peer, receives);
    for (int i = 0; i < BATCH; i++) {
        pattern_fill(sent[i], length_of(round, i), seed_of(rank, round, i));
        MPI_Isend(sent[i], (int)length_of(round, i), MPI_BYTE, peer, 5, MPI_COMM_WORLD, &sends[i]);
    }
    if (is_late)
        receive(peer, receives);
    MPI_Waitall(BATCH, receives, MPI_STATUSES_IGNORE);
    for (int i = 0; i < BATCH; i++)
        pattern_check("a message", got[i], length_of(round, i), seed_of(peer, round, i));
    MPI_Waitall(BATCH, sends, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 1000, breaks = argc > 2 ? atoi(argv[2]) : 10;
    int rank, broken = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < rounds; round++) {
        if (round % (rounds / breaks) == rank)
            broken += connections_break(3, round % 4 < 2 ? BREAK_SHUT : BREAK_DISCONNECT);
        exchange(rank, round);
    }
    MPI_Allreduce(MPI_IN_PLACE, &broken, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0)
        printf("%d rounds, %s\n", rounds, broken >= breaks ? "connections broke" : "no connection broke");
    return 0;
}
