/*
 * measure: what the measurements share: options, buffers, samples, and how a figure is printed. Knows links only by
 * link.h. Threading: one thread per process.
 */
#ifndef UM_BENCH_MEASURE_H
#define UM_BENCH_MEASURE_H

#include "link.h"

enum { MEASURE_CASES = 32, MEASURE_SAMPLES = 1 << 17, MEASURE_WINDOW = 64 };
enum { MEASURE_TAG_FLOOR = 0x7e57 }; /* of the messages that bench/floor completes at once, and of no others */

struct measure_options {
    size_t value[MEASURE_CASES]; /* of the cases: sizes, depths, numbers of senders */
    int values;
    double seconds; /* about the time for one figure */
    size_t cold;    /* 0: one buffer again and again; else bytes over which buffers rotate */
    int pieces;     /* iovec: entries of a list */
    double compute; /* computing: microseconds between two calls */
    const char *kind;
    bool is_floor; /* --kind floor: the messages are those of bench/floor, and their data must not arrive */
    int used; /* --kind used: number of places of messages, which are written before sending and read after; else 0 */
};
extern struct measure_options measure_options;

/* One kind of measurement. body is called in every process, and calls measure_figure() only in process 0. */
struct measure {
    const char *name, *cases; /* cases: what measure_options.value holds, for the usage message */
    void (*body)(void);
    size_t (*window)(void); /* NULL, or returns the bytes of the window for one-sided operations */
    int in_flight;          /* messages at a time, which have places of their own with --kind used; 0: no such kind */
    bool is_fixed;          /* the cases are not sizes of buffers: a small arena is enough */
};
extern const struct measure measure_latency, measure_stream, measure_both, measure_rate, measure_computing,
    measure_depth, measure_pieces, measure_senders, measure_rma, measure_accumulate, measure_collective;

/* "figure METRIC CASE VALUE" on stdout. */
void measure_figure(const char *metric, size_t which, double value);

/* Prints the figure "ns that a cache line takes from one of two processes to the other one"; nothing if they share no
 * memory, or if there are more processes. */
void measure_line(const char *metric);

/* Ends the program unless there are two processes. */
void measure_two(void);

/* Returns process 0's number in every process. */
uint64_t measure_agree(uint64_t mine);
/* Returns how often something that took `once` seconds is to be repeated; the same number in every process. */
int measure_count(double once, double seconds, int least, int most);

/* ---- samples: each process has its own ---- */

extern double measure_sample[MEASURE_SAMPLES];
/* Sorts the first `count` samples. Returns the value that `part` (0 to 1) of them do not exceed. */
double measure_part(int count, double part);
double measure_median(int count);

/* ---- buffers ---- */

/* Returns the place of message number n, an offset in an arena: always the first one, unless --cold or --kind used. */
size_t measure_place(size_t len, uint64_t n);
/* Returns byte `at` of what process r sends. */
unsigned char measure_byte(size_t at, int r);
/*
 * --kind used: each message is written before it is sent and read when it has arrived, as by a program: one byte of
 * each cache line, which keeps its value. Otherwise these do nothing, and the lines stay in both caches from one
 * message to the next, which does not happen to a program.
 */
void measure_write(size_t place, size_t len);
void measure_read(size_t place, size_t len);
/* clear: before a message that is checked. check: after it. */
void measure_clear(size_t place, size_t len);
void measure_check(size_t place, size_t len, int from);

#endif
