/*
 * measure: what the measurements share: options, buffers, samples, and how a figure is printed. Knows no link but by
 * link.h. Threading: one thread a process.
 */
#ifndef UM_BENCH_MEASURE_H
#define UM_BENCH_MEASURE_H

#include "link.h"

enum { MEASURE_CASES = 32, MEASURE_SAMPLES = 1 << 17, MEASURE_WINDOW = 64 };
enum { MEASURE_TAG_FLOOR = 0x7e57 }; /* of messages that bench/floor completes at once; of no others */

struct measure_options {
    size_t value[MEASURE_CASES]; /* of the cases: sizes, depths, numbers of senders */
    int values;
    double seconds; /* about what one figure may take */
    size_t cold;    /* 0: one buffer again and again; else bytes over which buffers rotate */
    int pieces;     /* iovec: entries of a list */
    double compute; /* computing: microseconds between two calls */
    const char *kind;
    bool is_floor; /* --kind floor: the messages are those of bench/floor, and their data must not arrive */
    int used; /* places of messages that are written before they are sent and read when they are there; 0: none is */
};
extern struct measure_options measure_options;

/* One kind of measurement: called in every process; measure_figure() in process 0 only. */
struct measure {
    const char *name, *cases; /* cases: what measure_options.value holds, for --help */
    void (*body)(void);
    size_t (*window)(void); /* bytes to expose; or NULL */
    int in_flight;          /* messages at a time, which have places of their own with --kind used; 0: no such kind */
    bool is_fixed;          /* no buffers by case: the arena is small */
};
extern const struct measure measure_latency, measure_stream, measure_both, measure_rate, measure_computing,
    measure_depth, measure_pieces, measure_senders, measure_rma, measure_accumulate, measure_collective;

/* "figure METRIC CASE VALUE" on stdout. */
void measure_figure(const char *metric, size_t which, double value);

/* The figure: ns that a cache line takes from one of two processes to the other one; nothing where they share no
 * memory, or are more. */
void measure_line(const char *metric);

/* Ends the program unless there are two processes. */
void measure_two(void);

/* Process 0's number, in every process. */
uint64_t measure_agree(uint64_t mine);
/* How often something that took `once` seconds is to be repeated; agreed upon. */
int measure_count(double once, double seconds, int least, int most);

/* ---- samples: each process has its own ---- */

extern double measure_sample[MEASURE_SAMPLES];
/* Sorts the first `count`; the value that the part of them does not exceed. */
double measure_part(int count, double part);
double measure_median(int count);

/* ---- buffers ---- */

/* The place of message number n: warm, always the first one. */
size_t measure_place(size_t len, uint64_t n);
/* Byte `at` of what process r sends. */
unsigned char measure_byte(size_t at, int r);
/*
 * --kind used: each message is written before it is sent and read when it is there, as by a program: a byte of each
 * cache line, which keeps its value. Otherwise these do nothing, and the lines stay in both caches from one message to
 * the next, which no program sees.
 */
void measure_write(size_t place, size_t len);
void measure_read(size_t place, size_t len);
/* Before a message that is checked, and after it. */
void measure_clear(size_t place, size_t len);
void measure_check(size_t place, size_t len, int from);

#endif
