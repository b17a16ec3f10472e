/*
 * pingpong: latency and bandwidth between two MPI ranks over the board in software, by the board's own clock.
 *
 *   pingpong [--max BYTES] [--min BYTES] [--copy BYTES_PER_SECOND]
 *
 * Prints a line for each size: bytes, half a round trip in us, MB/s of a window of messages answered by one. It asks
 * the library that FI_UNIMEM_BOARD_LIBRARY names for the time, which is the model's with UNIMEM_EMU_TIMING=virtual:
 * then the figures do not depend on the host. Every byte is checked.
 *
 * --copy: the receiver adds to the clock the time of copying the message once at this speed. MPICH copies active
 * messages in that way (out of its own buffer into the user's), with plain loads and stores that the model does not
 * see.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 2000, TURNS = 64, WINDOW = 16, BYTES = 8 << 20, TAG = 3 };

static uint64_t (*emu_now)(void *board);
static void (*emu_compute)(void *board, uint64_t ns);
static uint64_t (*emu_given_up)(void *board);
static double copy_speed; /* bytes a second; 0: --copy is not given */
static int rank;

static void fail(const char *what)
{
    fprintf(stderr, "pingpong: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void clock_find(void)
{
    const char *path = getenv("FI_UNIMEM_BOARD_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!library)
        fail(
            "FI_UNIMEM_BOARD_LIBRARY does not name the library that the provider has loaded: FI_UNIMEM_MACHINE=board?");
    *(void **)&emu_now = dlsym(library, "unimem_emu_now");
    *(void **)&emu_compute = dlsym(library, "unimem_emu_compute");
    *(void **)&emu_given_up = dlsym(library, "unimem_emu_given_up");
    if (!emu_now || !emu_compute || !emu_given_up || !emu_now(NULL))
        fail("no clock: UNIMEM_EMU_TIMING=virtual or real is needed");
}

static void fill(unsigned char *buf, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = (unsigned char)(i * 7 + seed);
}

static void check(const unsigned char *buf, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        if (buf[i] != (unsigned char)(i * 7 + seed))
            fail("a wrong byte");
}

static void copied(size_t len)
{
    if (copy_speed > 0)
        emu_compute(NULL, (uint64_t)((double)len / copy_speed * 1e9));
}

static void turn(unsigned char *out, unsigned char *in, size_t len)
{
    int n = (int)len, peer = 1 - rank;
    if (rank == 0) {
        MPI_Send(out, n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        MPI_Recv(in, n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        copied(len);
    } else {
        MPI_Recv(in, n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        copied(len);
        MPI_Send(out, n, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
    }
}

/*
 * The provider looks by the clock, every 25 ms and thousand calls, whether peers live, and until then asks for more
 * than it does later. This loop lets that phase end after a fixed number of turns, by the host's clock and by the
 * board's (bench/board/clock.c replaces the former).
 */
static void warm_up(unsigned char *out, unsigned char *in)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    for (int i = 0; i < WARM_UP; i++) {
        if (i == WARM_UP / 2) {
            nanosleep(&pause, NULL);
            emu_compute(NULL, (uint64_t)pause.tv_nsec);
        }
        turn(out, in, 0);
    }
}

/* Returns half a round trip, ns. */
static double latency(unsigned char *out, unsigned char *in, size_t len)
{
    int turns = len <= 65536 ? TURNS : TURNS / 8;
    uint64_t begin = emu_now(NULL);
    for (int i = 0; i < turns; i++)
        turn(out, in, len);
    double each = (double)(emu_now(NULL) - begin) / (2.0 * turns);
    check(in, len, (unsigned)(1 - rank));
    return each;
}

static void window(unsigned char *out, unsigned char *in, size_t len)
{
    MPI_Request request[WINDOW];
    char answer = 0;
    for (int i = 0; i < WINDOW; i++) {
        if (rank == 0)
            MPI_Isend(out, (int)len, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request[i]);
        else
            MPI_Irecv(in, (int)len, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request[i]);
    }
    for (int i = 0; i < WINDOW; i++) {
        MPI_Wait(&request[i], MPI_STATUS_IGNORE);
        if (rank == 1)
            copied(len);
    }
    if (rank == 0)
        MPI_Recv(&answer, 1, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&answer, 1, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD);
}

/* Returns MB/s, over many windows: where in a window the ring is full is a matter of chance. */
static double bandwidth(unsigned char *out, unsigned char *in, size_t len)
{
    int windows = len > 65536 ? 1 + (int)(BYTES / WINDOW / len) : 8;
    window(out, in, len);
    uint64_t begin = emu_now(NULL);
    for (int i = 0; i < windows; i++)
        window(out, in, len);
    uint64_t took = emu_now(NULL) - begin;
    if (rank == 1)
        check(in, len, 0);
    return (double)len * WINDOW * windows / (double)took * 1e3;
}

int main(int argc, char **argv)
{
    size_t max = 4 << 20, min = 0;
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--max") == 0)
            max = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--min") == 0)
            min = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--copy") == 0)
            copy_speed = strtod(argv[i + 1], NULL);
    }
    if (size != 2)
        fail("two ranks");
    unsigned char *out = malloc(max + 1), *in = malloc(max + 1);
    if (!out || !in)
        fail("no memory");
    clock_find();
    fill(out, max, (unsigned)rank);
    warm_up(out, in);
    uint64_t given_up = emu_given_up(NULL);
    for (size_t len = min; len <= max; len = len ? len * 2 : 1) {
        for (int i = 0; i < 3; i++)
            turn(out, in, len);
        double us = latency(out, in, len) / 1e3, mbs = bandwidth(out, in, len);
        if (rank == 0)
            printf("%zu %.3f %.2f\n", len, us, mbs);
    }
    if (emu_given_up(NULL) != given_up)
        fail("the host left a process without a processor for so long that the other one went on: not exact");
    MPI_Finalize();
    free(out);
    free(in);
    return 0;
}
