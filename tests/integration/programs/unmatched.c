/*
 * unmatched PATTERN COUNT SIZE: correct MPI programs that start many sends before a receive matches the first. Ranks
 * talk in pairs: 0 with 1, 2 with 3. Every received byte is compared; before a receive, the first and the last one are
 * zeroed.
 *
 *   both       both start COUNT sends, then receive them in order
 *   synchronous  the same with MPI_Issend
 *   reverse    the even rank starts COUNT sends, the odd one receives them in reverse order
 *   later      COUNT sends of tag 1, then one of tag 2, which is received first
 *   probe      the same; tag 2 is probed first
 *   windows    as both, with puts and fetching atomics between the sends
 */
#include "common.h"

struct pair {
    int me, other, count, size;
    unsigned char *out, *in;
    MPI_Request *request;
};

static void start(const struct pair *p,
                  int (*isend)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *), int i, int tag)
{
    isend(p->out, p->size, MPI_BYTE, p->other, tag, MPI_COMM_WORLD, &p->request[i]);
}

static void receive(const struct pair *p, int tag)
{
    MPI_Status status;
    int got = -1;
    p->in[0] = p->in[p->size - 1] = 0;
    MPI_Recv(p->in, p->size, MPI_BYTE, p->other, tag, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got != p->size) {
        fprintf(stderr, "DATA ERROR: %d bytes instead of %d\n", got, p->size);
        fail(3);
    }
    pattern_check("message", p->in, (size_t)p->size, (unsigned)p->other);
}

static void finish(const struct pair *p)
{
    MPI_Waitall(p->count, p->request, MPI_STATUSES_IGNORE);
}

static void both(const struct pair *p, const char *how)
{
    for (int i = 0; i < p->count; i++)
        start(p, how[0] == 's' ? MPI_Issend : MPI_Isend, i, i % 1000);
    for (int i = 0; i < p->count; i++)
        receive(p, i % 1000);
    finish(p);
}

static void reverse(const struct pair *p)
{
    if (p->me % 2 == 0) {
        for (int i = 0; i < p->count; i++)
            start(p, MPI_Isend, i, i);
        finish(p);
        return;
    }
    for (int i = p->count; i-- > 0;)
        receive(p, i);
}

static void later(const struct pair *p, const char *how)
{
    if (p->me % 2 == 0) {
        for (int i = 0; i < p->count; i++)
            start(p, MPI_Isend, i, 1);
        MPI_Send(p->out, p->size, MPI_BYTE, p->other, 2, MPI_COMM_WORLD);
        finish(p);
        return;
    }
    if (how[0] == 'p')
        MPI_Probe(p->other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    receive(p, 2);
    for (int i = 0; i < p->count; i++)
        receive(p, 1);
}

static void windows(const struct pair *p)
{
    long *base, one = 1, before;
    MPI_Win win;
    MPI_Win_allocate((MPI_Aint)sizeof(long) * (p->count + 1), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    memset(base, 0, sizeof(long) * (size_t)(p->count + 1));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < p->count; i++) {
        long value = i + 1;
        start(p, MPI_Isend, i, i % 1000);
        MPI_Put(&value, 1, MPI_LONG, p->other, i, 1, MPI_LONG, win);
        MPI_Fetch_and_op(&one, &before, MPI_LONG, p->other, p->count, MPI_SUM, win);
        MPI_Win_flush(p->other, win);
        if (before != i) {
            fprintf(stderr, "DATA ERROR: a counter had %ld instead of %d\n", before, i);
            fail(3);
        }
    }
    for (int i = 0; i < p->count; i++)
        receive(p, i % 1000);
    finish(p);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < p->count; i++) {
        if (base[i] != i + 1) {
            fprintf(stderr, "DATA ERROR: put %d brought %ld\n", i, base[i]);
            fail(3);
        }
    }
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    int size;
    struct pair p;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size % 2 || argc != 4) {
        fprintf(stderr, "usage: unmatched PATTERN COUNT SIZE, on an even number of ranks\n");
        fail(2);
    }
    const char *how = argv[1];
    p.other = p.me ^ 1;
    p.count = atoi(argv[2]);
    p.size = atoi(argv[3]);
    p.out = pattern_buffer((size_t)p.size);
    p.in = pattern_buffer((size_t)p.size);
    p.request = malloc((size_t)p.count * sizeof(MPI_Request));
    pattern_fill(p.out, (size_t)p.size, (unsigned)p.me);
    if (!strcmp(how, "both") || !strcmp(how, "synchronous"))
        both(&p, how);
    else if (!strcmp(how, "reverse"))
        reverse(&p);
    else if (!strcmp(how, "later") || !strcmp(how, "probe"))
        later(&p, how);
    else
        windows(&p);
    MPI_Barrier(MPI_COMM_WORLD);
    if (p.me == 0)
        printf("%s: %d sends of %d bytes are right on %d ranks\n", how, p.count, p.size, size);
    free(p.request);
    free(p.out);
    free(p.in);
    MPI_Finalize();
    return 0;
}
