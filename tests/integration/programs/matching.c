/*
 * matching: MPI's point-to-point calls beyond plain send and receive, with every byte checked.
 *
 * Each rank and its right neighbour: probes that find nothing first (and a rank that does nothing but probe), matched
 * probes, any source and any tag, synchronous sends, messages that are too long, cancelled receives, pieces that lie
 * apart, receives posted in another order than the messages come.
 */
#include "common.h"

enum { SIZES = 4, BURST = 40 };
static const int sizes[SIZES] = {0, 64, 5000, 200000};
static int rank, ranks, left, right;

static void wrong(const char *what)
{
    fprintf(stderr, "WRONG: rank %d: %s\n", rank, what);
    fail(3);
}

static void expect(const MPI_Status *status, int source, int tag, int size)
{
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    if (status->MPI_SOURCE != source || status->MPI_TAG != tag || count != size)
        wrong("a status");
}

/* Until the first message is there, only MPI_Improbe is called; until the second one is, only MPI_Iprobe. */
static void probes(int size, int turn)
{
    unsigned char *out = pattern_buffer((size_t)size), *in = pattern_buffer((size_t)size);
    MPI_Message message;
    MPI_Request request;
    MPI_Status status;
    int found = 0, source = turn ? left : MPI_ANY_SOURCE, tag = turn ? 7 : MPI_ANY_TAG;

    pattern_fill(out, (size_t)size, (unsigned)(rank + size));
    MPI_Improbe(left, 99, MPI_COMM_WORLD, &found, &message, &status);
    if (found)
        wrong("a probe found what nobody sent");
    MPI_Isend(out, size, MPI_BYTE, right, 7, MPI_COMM_WORLD, &request);
    while (!found)
        MPI_Improbe(source, tag, MPI_COMM_WORLD, &found, &message, &status);
    expect(&status, left, 7, size);
    MPI_Mrecv(in, size, MPI_BYTE, &message, &status);
    pattern_check("matched probe", in, (size_t)size, (unsigned)(left + size));
    MPI_Wait(&request, MPI_STATUS_IGNORE);

    MPI_Isend(out, size, MPI_BYTE, right, 8, MPI_COMM_WORLD, &request);
    for (found = 0; !found;)
        MPI_Iprobe(left, 8, MPI_COMM_WORLD, &found, &status);
    expect(&status, left, 8, size);
    memset(in, 0, (size_t)size);
    MPI_Recv(in, size, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
    pattern_check("probe", in, (size_t)size, (unsigned)(left + size));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(out);
    free(in);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void synchronous(int size)
{
    unsigned char *out = pattern_buffer((size_t)size), *in = pattern_buffer((size_t)size);
    MPI_Request request;
    int done = 0;
    pattern_fill(out, (size_t)size, (unsigned)(rank * 3 + size));
    MPI_Issend(out, size, MPI_BYTE, right, 11, MPI_COMM_WORLD, &request);
    for (int i = 0; i < 100; i++)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD); /* nobody has received yet */
    if (done)
        wrong("a synchronous send ended before its receive began");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(in, size, MPI_BYTE, left, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    pattern_check("synchronous", in, (size_t)size, (unsigned)(left * 3 + size));
    free(out);
    free(in);
}

/* The rest of the message is dropped, what fits is there, and the next message is whole. */
static void truncated(int size)
{
    unsigned char *out = pattern_buffer((size_t)size), *in = pattern_buffer((size_t)size);
    MPI_Request request[2];
    int class, error;
    pattern_fill(out, (size_t)size, (unsigned)rank);
    MPI_Isend(out, size, MPI_BYTE, right, 12, MPI_COMM_WORLD, &request[0]);
    MPI_Isend(out, size, MPI_BYTE, right, 13, MPI_COMM_WORLD, &request[1]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    error = MPI_Recv(in, size / 2, MPI_BYTE, left, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Error_class(error, &class);
    if (class != MPI_ERR_TRUNCATE)
        wrong("a message that is too long was not reported");
    MPI_Recv(in, size, MPI_BYTE, left, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    pattern_check("after a truncated one", in, (size_t)size, (unsigned)left);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    free(out);
    free(in);
}

static void cancelled(void)
{
    unsigned char in[64];
    MPI_Request request;
    MPI_Status status;
    int flag;
    MPI_Irecv(in, sizeof(in), MPI_BYTE, left, 14, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    if (!flag)
        wrong("a receive could not be cancelled");
}

/* Sends every third long, and receives into every second place; `size` longs. */
static void pieces(int size)
{
    long *out = calloc((size_t)size * 3, sizeof(long)), *in = calloc((size_t)size * 2, sizeof(long));
    MPI_Datatype thirds, halves;
    if (!out || !in)
        wrong("no memory");
    for (int i = 0; i < size * 3; i++)
        out[i] = rank * 1000000L + i;
    MPI_Type_vector(size, 1, 3, MPI_LONG, &thirds);
    MPI_Type_vector(size, 1, 2, MPI_LONG, &halves);
    MPI_Type_commit(&thirds);
    MPI_Type_commit(&halves);
    MPI_Sendrecv(out, 1, thirds, right, 15, in, 1, halves, left, 15, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < size * 2; i++)
        if (in[i] != (i % 2 ? 0 : left * 1000000L + i / 2 * 3))
            wrong("a piece");
    MPI_Type_free(&thirds);
    MPI_Type_free(&halves);
    free(out);
    free(in);
}

/* Posts the receives from last to first. Then receives messages of one tag in the order in which they were sent. */
static void orders(int size)
{
    unsigned char *out = pattern_buffer((size_t)size * BURST), *in = pattern_buffer((size_t)size * BURST);
    MPI_Request request[2 * BURST];
    for (int same = 0; same < 2; same++) {
        memset(in, 0, (size_t)size * BURST);
        for (int i = 0; i < BURST; i++) {
            pattern_fill(out + (size_t)i * (size_t)size, (size_t)size, (unsigned)(rank + i));
            MPI_Isend(out + (size_t)i * (size_t)size, size, MPI_BYTE, right, same ? 500 : 100 + i, MPI_COMM_WORLD,
                      &request[i]);
        }
        for (int k = 0; k < BURST; k++) {
            int i = same ? k : BURST - 1 - k;
            MPI_Irecv(in + (size_t)i * (size_t)size, size, MPI_BYTE, left, same ? 500 : 100 + i, MPI_COMM_WORLD,
                      &request[BURST + k]);
        }
        MPI_Waitall(2 * BURST, request, MPI_STATUSES_IGNORE);
        for (int i = 0; i < BURST; i++)
            pattern_check("burst", in + (size_t)i * (size_t)size, (size_t)size, (unsigned)(left + i));
    }
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    left = (rank + ranks - 1) % ranks;
    right = (rank + 1) % ranks;
    for (int i = 0; i < SIZES; i++) {
        for (int turn = 0; turn < 20; turn++)
            probes(sizes[i], turn % 2);
        synchronous(sizes[i]);
        if (sizes[i])
            truncated(sizes[i]);
        pieces(sizes[i] / 8);
        orders(sizes[i]);
    }
    cancelled();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("matching is right on %d ranks\n", ranks);
    MPI_Finalize();
    return 0;
}
