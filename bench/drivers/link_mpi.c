/* link.h over MPI: calls what a program would call, and nothing that only one implementation has. */
#include "link.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAP_US = 200, LAST_WORDS_US = 300000 };

struct link_batch {
    int most, count;
    MPI_Request request[];
};

static int rank, size;
static unsigned char *arena[2];
static MPI_Win win = MPI_WIN_NULL;

int link_rank(void)
{
    return rank;
}

int link_size(void)
{
    return size;
}

unsigned char *link_arena(bool received)
{
    return arena[received];
}

/* mpiexec may drop output that it has not forwarded yet when it learns of an abort: it gets some time before. */
void link_abort(void)
{
    int is_open = 0, is_closed = 0;
    MPI_Initialized(&is_open);
    MPI_Finalized(&is_closed);
    usleep(LAST_WORDS_US);
    if (is_open && !is_closed)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- messages ---- */

struct link_batch *link_batch_open(int most)
{
    struct link_batch *b = calloc(1, sizeof(*b) + (size_t)most * sizeof(b->request[0]));
    if (!b)
        link_fail("no memory");
    b->most = most;
    return b;
}

void link_batch_close(struct link_batch *b)
{
    free(b);
}

void link_send(int to, const void *buf, size_t len, int tag)
{
    MPI_Send(buf, (int)len, MPI_BYTE, to, tag, MPI_COMM_WORLD);
}

void link_recv(int from, void *buf, size_t len, int tag)
{
    MPI_Recv(buf, (int)len, MPI_BYTE, from == LINK_ANY ? MPI_ANY_SOURCE : from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static MPI_Request *next(struct link_batch *b)
{
    if (b->count == b->most)
        link_fail("more than %d operations in a batch", b->most);
    return &b->request[b->count++];
}

void link_post_send(struct link_batch *b, int to, const void *buf, size_t len, int tag)
{
    MPI_Isend(buf, (int)len, MPI_BYTE, to, tag, MPI_COMM_WORLD, next(b));
}

void link_post_recv(struct link_batch *b, int from, void *buf, size_t len, int tag)
{
    int source = from == LINK_ANY ? MPI_ANY_SOURCE : from;
    MPI_Irecv(buf, (int)len, MPI_BYTE, source, tag, MPI_COMM_WORLD, next(b));
}

void link_post_pieces(struct link_batch *b, int to, const struct iovec *piece, int pieces, int tag)
{
    MPI_Datatype type;
    MPI_Aint at[LINK_PIECES];
    int len[LINK_PIECES];
    if (pieces == 1) {
        link_post_send(b, to, piece->iov_base, piece->iov_len, tag);
        return;
    }
    for (int i = 0; i < pieces; i++) {
        MPI_Get_address(piece[i].iov_base, &at[i]);
        len[i] = (int)piece[i].iov_len;
    }
    MPI_Type_create_hindexed(pieces, len, at, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Isend(MPI_BOTTOM, 1, type, to, tag, MPI_COMM_WORLD, next(b));
    MPI_Type_free(&type);
}

void link_wait(struct link_batch *b)
{
    MPI_Waitall(b->count, b->request, MPI_STATUSES_IGNORE);
    b->count = 0;
}

void link_barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

void link_rest(void)
{
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
        usleep(NAP_US);
}

/* ---- one-sided operations ---- */

static const MPI_Datatype *datatype(enum link_type type)
{
    static MPI_Datatype all[LINK_TYPES];
    all[LINK_CHAR] = MPI_CHAR;
    all[LINK_INT] = MPI_INT;
    all[LINK_DOUBLE] = MPI_DOUBLE;
    return &all[type];
}

void link_put(int to, size_t offset, const void *buf, size_t len)
{
    MPI_Put(buf, (int)len, MPI_BYTE, to, (MPI_Aint)offset, (int)len, MPI_BYTE, win);
}

void link_get(int to, size_t offset, void *buf, size_t len)
{
    MPI_Get(buf, (int)len, MPI_BYTE, to, (MPI_Aint)offset, (int)len, MPI_BYTE, win);
}

void link_accumulate(int to, size_t offset, const void *buf, size_t len, enum link_type type)
{
    static const size_t width[LINK_TYPES] = {1, sizeof(int), sizeof(double)};
    int count = (int)(len / width[type]);
    MPI_Accumulate(buf, count, *datatype(type), to, (MPI_Aint)offset, count, *datatype(type), MPI_SUM, win);
}

void link_fetch_add(int to, size_t offset, uint64_t *before)
{
    static const uint64_t one = 1;
    MPI_Fetch_and_op(&one, before, MPI_UINT64_T, to, (MPI_Aint)offset, MPI_SUM, win);
}

void link_compare_swap(int to, size_t offset, const uint64_t *value, uint64_t *before)
{
    static uint64_t expected, changed;
    expected = *value;
    changed = expected + 1;
    MPI_Compare_and_swap(&changed, &expected, before, MPI_UINT64_T, to, (MPI_Aint)offset, win);
}

void link_flush(int to)
{
    MPI_Win_flush(to, win);
}

/* ---- the processes ---- */

/* Returns the rank, from variables of the launcher: a process is pinned before MPI_Init, which starts threads and
 * touches memory. */
static int rank_by_launcher(void)
{
    static const char *const variable[] = {"PMI_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof(variable) / sizeof(variable[0]); i++) {
        const char *text = getenv(variable[i]);
        if (text)
            return atoi(text);
    }
    link_fail("no launcher of MPI has said which process this is");
}

int link_run(const struct link_config *config, int *argc, char ***argv, void (*body)(void))
{
    void *memory;
    alarm(config->limit);
    link_pin(config, rank_by_launcher());
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int received = 0; received < 2; received++) {
        arena[received] = aligned_alloc(4096, (config->arena + 4095) & ~(size_t)4095);
        if (!arena[received])
            link_fail("no memory");
    }
    if (config->window) {
        MPI_Win_allocate((MPI_Aint)config->window, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
        memset(memory, 0, config->window);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    }
    body();
    if (config->window) {
        MPI_Win_unlock_all(win);
        MPI_Win_free(&win);
    }
    free(arena[0]);
    free(arena[1]);
    MPI_Finalize();
    return 0;
}
