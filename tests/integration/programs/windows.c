/*
 * windows: one-sided operations of every rank on every rank, all results checked: MPI_Win_allocate, MPI_Win_create and
 * MPI_Win_create_dynamic, with fences, with post-start-complete-wait, and under MPI_Win_lock.
 *
 * Prints "windows are right on N ranks".
 */
#include "common.h"
#include <stdint.h>

enum { LARGEST = 70000, ROUNDS = 20 };
static const size_t sizes[] = {1, 8, 100, 4096, 16384, LARGEST};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static int rank, ranks;

/* A rank's memory: 3 counters, then a block of LARGEST bytes for each rank. */
struct window {
    MPI_Win win;
    unsigned char *memory;
    MPI_Aint *base; /* of each rank's memory, as a displacement in the window */
    const char *kind;
};

enum { HEAD = 64 };

static size_t memory_bytes(void)
{
    return HEAD + (size_t)ranks * LARGEST;
}

static MPI_Aint block(const struct window *w, int target, int of)
{
    return w->base[target] + HEAD + (MPI_Aint)of * LARGEST;
}

static void expect(const struct window *w, const char *what, uint64_t got, uint64_t want)
{
    if (got == want)
        return;
    fprintf(stderr, "DATA ERROR: %s, %s on rank %d: %llu, should be %llu\n", w->kind, what, rank,
            (unsigned long long)got, (unsigned long long)want);
    fail(3);
}

/* Each rank puts to every rank, and finds in its memory what all have put; then it gets what was put. */
static void check_fence(const struct window *w, size_t size)
{
    unsigned char *out = pattern_buffer(size), *in = pattern_buffer(size * (size_t)ranks);
    pattern_fill(out, size, (unsigned)(rank + size));
    MPI_Win_fence(0, w->win);
    for (int target = 0; target < ranks; target++)
        MPI_Put(out, (int)size, MPI_BYTE, target, block(w, target, rank), (int)size, MPI_BYTE, w->win);
    MPI_Win_fence(0, w->win);
    for (int from = 0; from < ranks; from++)
        pattern_check("put", w->memory + HEAD + (size_t)from * LARGEST, size, (unsigned)(from + (int)size));
    for (int target = 0; target < ranks; target++)
        MPI_Get(in + (size_t)target * size, (int)size, MPI_BYTE, target, block(w, target, (rank + target) % ranks),
                (int)size, MPI_BYTE, w->win);
    MPI_Win_fence(0, w->win);
    for (int target = 0; target < ranks; target++)
        pattern_check("get", in + (size_t)target * size, size, (unsigned)((rank + target) % ranks + (int)size));
    free(out);
    free(in);
}

/* Each rank exports its memory to the one before it, and puts to the one after it. */
static void check_post_start(const struct window *w, size_t size)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MPI_Group all, to, from;
    unsigned char *out = pattern_buffer(size);
    pattern_fill(out, size, (unsigned)(rank * 3 + 1));
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &next, &to);
    MPI_Group_incl(all, 1, &before, &from);
    MPI_Win_post(from, 0, w->win);
    MPI_Win_start(to, 0, w->win);
    MPI_Put(out, (int)size, MPI_BYTE, next, block(w, next, rank), (int)size, MPI_BYTE, w->win);
    MPI_Win_complete(w->win);
    MPI_Win_wait(w->win);
    pattern_check("put", w->memory + HEAD + (size_t)before * LARGEST, size, (unsigned)(before * 3 + 1));
    MPI_Group_free(&from);
    MPI_Group_free(&to);
    MPI_Group_free(&all);
    free(out);
}

/* Adds 1 by compare-and-swap, with as many tries as it takes. */
static void add_by_swap(const struct window *w, int target, MPI_Aint at)
{
    uint64_t seen = 0, expected, wanted;
    do {
        expected = seen;
        wanted = seen + 1;
        MPI_Compare_and_swap(&wanted, &expected, &seen, MPI_UINT64_T, target, at, w->win);
        MPI_Win_flush(target, w->win);
    } while (seen != expected);
}

/* All ranks add to the counters of all ranks at the same time: nothing may be lost. */
static void check_atomics(const struct window *w)
{
    const uint64_t one = 1;
    uint64_t before, sums[3], *own = (void *)w->memory;
    MPI_Win_lock_all(0, w->win);
    own[0] = own[1] = own[2] = 0;
    MPI_Win_sync(w->win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < ROUNDS * ranks; i++) {
        int target = (rank + i) % ranks;
        MPI_Accumulate(&one, 1, MPI_UINT64_T, target, w->base[target], 1, MPI_UINT64_T, MPI_SUM, w->win);
        MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, target, w->base[target] + 8, MPI_SUM, w->win);
        add_by_swap(w, target, w->base[target] + 16);
    }
    MPI_Win_flush_all(w->win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Get(sums, 3, MPI_UINT64_T, rank, w->base[rank], 3, MPI_UINT64_T, w->win);
    MPI_Win_unlock_all(w->win);
    for (int i = 0; i < 3; i++)
        expect(w,
               i == 0   ? "accumulate"
               : i == 1 ? "fetch-and-op"
                        : "compare-and-swap",
               sums[i], (uint64_t)ROUNDS * (uint64_t)ranks);
}

/* A counter under an exclusive lock, read and written by plain gets and puts; and an array that everybody adds to. */
static void check_locks(const struct window *w)
{
    uint64_t value, *own = (void *)w->memory;
    double add[100], *array = (void *)(w->memory + HEAD);
    own[0] = 0;
    for (int i = 0; i < 100; i++) {
        array[i] = 0;
        add[i] = i;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w->win);
        MPI_Get(&value, 1, MPI_UINT64_T, 0, w->base[0], 1, MPI_UINT64_T, w->win);
        MPI_Win_flush(0, w->win);
        value++;
        MPI_Put(&value, 1, MPI_UINT64_T, 0, w->base[0], 1, MPI_UINT64_T, w->win);
        MPI_Win_unlock(0, w->win);
        MPI_Win_lock(MPI_LOCK_SHARED, ranks - 1, 0, w->win);
        MPI_Accumulate(add, 100, MPI_DOUBLE, ranks - 1, w->base[ranks - 1] + HEAD, 100, MPI_DOUBLE, MPI_SUM, w->win);
        MPI_Win_unlock(ranks - 1, w->win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w->win);
    if (rank == 0)
        expect(w, "counter under a lock", own[0], (uint64_t)(ROUNDS * ranks));
    for (int i = 0; i < 100 && rank == ranks - 1; i++)
        expect(w, "sum of an array", (uint64_t)array[i], (uint64_t)(ROUNDS * ranks * i));
    MPI_Win_unlock(rank, w->win);
}

static void check_window(struct window *w, void *memory, MPI_Aint base)
{
    w->memory = memory;
    w->base = (void *)pattern_buffer((size_t)ranks * sizeof(MPI_Aint));
    MPI_Allgather(&base, 1, MPI_AINT, w->base, 1, MPI_AINT, MPI_COMM_WORLD);
    for (size_t i = 0; i < SIZES; i++)
        check_fence(w, sizes[i]);
    for (size_t i = 0; i < SIZES; i++)
        check_post_start(w, sizes[i]);
    check_atomics(w);
    check_locks(w);
    MPI_Barrier(MPI_COMM_WORLD);
    free(w->base);
}

static void check_allocate(void)
{
    struct window w = {.kind = "MPI_Win_allocate"};
    void *memory;
    MPI_Win_allocate((MPI_Aint)memory_bytes(), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &w.win);
    check_window(&w, memory, 0);
    MPI_Win_free(&w.win);
}

static void check_create(void)
{
    struct window w = {.kind = "MPI_Win_create"};
    void *memory = pattern_buffer(memory_bytes());
    MPI_Win_create(memory, (MPI_Aint)memory_bytes(), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
    check_window(&w, memory, 0);
    MPI_Win_free(&w.win);
    free(memory);
}

static void check_dynamic(void)
{
    struct window w = {.kind = "MPI_Win_create_dynamic"};
    void *memory = pattern_buffer(memory_bytes());
    MPI_Aint base;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
    MPI_Win_attach(w.win, memory, (MPI_Aint)memory_bytes());
    MPI_Get_address(memory, &base);
    check_window(&w, memory, base);
    MPI_Win_detach(w.win, memory);
    MPI_Win_free(&w.win);
    free(memory);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check_allocate();
    check_create();
    check_dynamic();
    if (rank == 0)
        printf("windows are right on %d ranks\n", ranks);
    MPI_Finalize();
    return 0;
}
