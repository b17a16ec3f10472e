/*
 * A link: what carries the messages between the processes of a benchmark. The measurements (measure.h) are written once
 * over this interface; each implementation, linked with them, is a program of its own:
 *
 *   link_fabric.c   libfabric: tagged messages, RMA and atomics of the named provider
 *   link_mpi.c      MPI
 *   link_bare.c     no library: what the memory and the processors can do
 *
 * A failure is reported on stderr, "measure: ...", and ends the program with status 1; what a link does not offer is
 * reported as "measure: not offered: ...". Threading: one thread per process.
 */
#ifndef UM_BENCH_LINK_H
#define UM_BENCH_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { LINK_ANY = -1, LINK_PATIENCE_S = 20, LINK_PIECES = 16 };

struct link_config {
    const char *name; /* fabric: the provider; bare: the way to copy; MPI: ignored */
    int size;         /* processes; MPI: as the launcher started them */
    const int *cpu;   /* process r is pinned to cpu[r % cpus]; none: it is not pinned */
    int cpus;
    size_t window;  /* bytes of memory that each process gives the others for one-sided operations; 0: none */
    size_t arena;   /* bytes of link_arena() */
    unsigned limit; /* seconds until the run counts as hung */
};

/* Starts the processes, or joins those that a launcher has started; calls body in each. Returns the exit status. */
int link_run(const struct link_config *config, int *argc, char ***argv, void (*body)(void));

int link_rank(void);
int link_size(void);

/* Returns memory for messages, of the kind from which this link copies best: config->arena bytes for what is sent, and
 * as many for what is received. It consists of whole pages, which are written before the measurement. */
unsigned char *link_arena(bool received);

/* ---- messages; tags are 0 to 32767, as every MPI has them ---- */

/* send: returns when the buffer may be reused. recv: returns with the message, which has len bytes. Neither affects the
 * operations of a batch. */
void link_send(int to, const void *buf, size_t len, int tag);
void link_recv(int from, void *buf, size_t len, int tag);

/* Operations that are waited for together, at most `most` at a time. */
struct link_batch;
struct link_batch *link_batch_open(int most);
void link_batch_close(struct link_batch *b);
void link_post_send(struct link_batch *b, int to, const void *buf, size_t len, int tag);
void link_post_recv(struct link_batch *b, int from, void *buf, size_t len, int tag);
/* Posts one message of at most LINK_PIECES pieces, which has a completion. One piece is an ordinary send. */
void link_post_pieces(struct link_batch *b, int to, const struct iovec *piece, int pieces, int tag);
/* Returns when all posted operations have ended. */
void link_wait(struct link_batch *b);

/* Returns when all processes have called it. While it waits it makes progress for the others. rest: the same, but it
 * sleeps in between, so that a waiting process leaves its processor to others. */
void link_barrier(void);
void link_rest(void);

/* ---- one-sided operations on the windows ---- */

enum link_type { LINK_CHAR, LINK_INT, LINK_DOUBLE, LINK_TYPES };

void link_put(int to, size_t offset, const void *buf, size_t len);
void link_get(int to, size_t offset, void *buf, size_t len);
/* Adds `len` bytes of elements. */
void link_accumulate(int to, size_t offset, const void *buf, size_t len, enum link_type type);
/* 64 bits: adds 1; compares with *value and swaps in *value + 1. Both store the old value in *before. */
void link_fetch_add(int to, size_t offset, uint64_t *before);
void link_compare_swap(int to, size_t offset, const uint64_t *value, uint64_t *before);
/* Returns when all operations on that process's window have been executed. */
void link_flush(int to);

/* Called before the process ends with an error: ends the others, if nothing else does. */
void link_abort(void);

/* ---- for all of them (measure.c) ---- */

double link_now(void); /* seconds, one clock for all processes of the host */
void link_pin(const struct link_config *config, int rank);
void link_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void link_refuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn)); /* not offered */

#endif
