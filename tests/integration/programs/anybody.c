/*
 * anybody COUNT: every other rank sends COUNT numbered messages to rank 0, which receives them from MPI_ANY_SOURCE.
 * Lengths are 8 bytes to 40 KB. Every byte is checked, and the order of the messages of one rank.
 */
#include "common.h"

enum { WINDOW = 64, LONGEST = 40000 };

/* Returns a short length, for one message in 64 one that needs a rendezvous. */
static int length_of(int rank, int number)
{
    const unsigned hash = (unsigned)rank * 2654435761u + (unsigned)number * 40503u;
    return number % 64 == rank % 64 ? 20000 + (int)(hash % (LONGEST - 20000)) : 8 + (int)(hash % 500);
}

static void fill(unsigned char *buf, int rank, int number)
{
    const int head[2] = {rank, number};
    const int len = length_of(rank, number);
    memcpy(buf, head, sizeof(head));
    for (int i = (int)sizeof(head); i < len; i++)
        buf[i] = (unsigned char)(rank * 7 + number + i);
}

static void send_all(int rank, int count)
{
    unsigned char *buf = malloc((size_t)WINDOW * LONGEST);
    MPI_Request request[WINDOW];
    for (int n = 0; n < count; n++) {
        unsigned char *at = buf + (size_t)(n % WINDOW) * LONGEST;
        if (n >= WINDOW)
            MPI_Wait(&request[n % WINDOW], MPI_STATUS_IGNORE);
        fill(at, rank, n);
        MPI_Isend(at, length_of(rank, n), MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request[n % WINDOW]);
    }
    MPI_Waitall(count < WINDOW ? count : WINDOW, request, MPI_STATUSES_IGNORE);
    free(buf);
}

static void receive_all(int ranks, int count)
{
    unsigned char *got = malloc(LONGEST), *expected = malloc(LONGEST);
    int *next = calloc((size_t)ranks, sizeof(int));
    for (long left = (long)(ranks - 1) * count; left > 0; left--) {
        MPI_Status status;
        int len;
        MPI_Recv(got, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &len);
        const int from = status.MPI_SOURCE, number = next[from]++;
        fill(expected, from, number);
        if (len != length_of(from, number) || memcmp(got, expected, (size_t)len) != 0) {
            fprintf(stderr, "DATA ERROR: message %d of rank %d is not what came (%d bytes)\n", number, from, len);
            fail(3);
        }
    }
    printf("%d messages of each of %d ranks came in order, whole\n", count, ranks - 1);
    free(next);
    free(got);
    free(expected);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    const int count = argc > 1 ? atoi(argv[1]) : 1000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0)
        receive_all(ranks, count);
    else
        send_all(rank, count);
    MPI_Finalize();
    return 0;
}
