/*
 * compare_LINK MEASUREMENT --cases N,... [options]: one measurement over one link (link.h). bench/compare runs it.
 *
 *   latency      half round trips by size (us: median of batches; p50_us, p99_us, p999_us: of single ones)
 *   stream       64 messages in flight, one acknowledgement, by size
 *   both         the same in both directions at once
 *   rate         the same by all pairs of processes at once
 *                latency, stream, both, rate: with --kind used each message is written before it is sent, and read when
 *                it has arrived; all but latency: --kind floor is for the provider bench/floor, which moves no message
 *   computing    one body by size, while --kind sender|receiver computes between its calls; used-sender|used-receiver:
 *                and the body is written before it is sent, and read when it has arrived
 *   depth        half round trips of 8 bytes behind so many others: posted receives, unexpected messages (--kind
 *                posted|unexpected)
 *   pieces       messages of --pieces pieces against as many messages, by bytes in total
 *   senders      so many senders to one process: --kind active, or idle (all but one of them)
 *   rma          puts and gets by size
 *   accumulate   sums of chars, ints, doubles by size; fetch-and-add, compare-and-swap
 *   collective   MPI only: by bytes a process gives
 *
 *   --link NAME      the provider (fabric), the way to copy (bare)
 *   --processes N    fabric, bare
 *   --cpus A,B,...   process r is pinned to the r-th of them
 *   --seconds S      about the time for a figure
 *   --cold BYTES     buffers rotate over so many bytes, instead of the same one each time
 *   --limit S        seconds after which the run counts as hung
 *
 * Prints "figure METRIC CASE VALUE" for each figure. The data are checked. Exit status: 0; 1 with a reason on stderr; 2
 * wrong use.
 */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPUS = 128, ROOM = 1 << 20, SLACK = 1 << 16, PERIOD = 1 << 16 };

static const struct measure *const all[] = {
    &measure_latency,    &measure_stream, &measure_both,    &measure_rate, &measure_computing,
    &measure_depth,      &measure_pieces, &measure_senders, &measure_rma,  &measure_accumulate,
#ifdef LINK_MPI
    &measure_collective,
#endif
};

static const struct measure *measure;
static int cpu[CPUS];
static struct link_config config = {.name = "", .size = 2, .cpu = cpu, .limit = 120};

static double number(const char *name, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || value < 0)
        link_fail("%s: %s is not a number of 0 or more", name, text);
    return value;
}

/* Reads a list of numbers. Returns how many there are. */
static int numbers(const char *name, char *text, double *value, int most)
{
    int n = 0;
    for (char *rest, *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (n == most)
            link_fail("%s: more than %d", name, most);
        value[n++] = number(name, word);
    }
    return n;
}

static void option(const char *name, char *value)
{
    struct measure_options *o = &measure_options;
    double list[CPUS];
    if (!strcmp(name, "--cases")) {
        o->values = numbers(name, value, list, MEASURE_CASES);
        for (int i = 0; i < o->values; i++)
            o->value[i] = (size_t)list[i];
    } else if (!strcmp(name, "--cpus")) {
        config.cpus = numbers(name, value, list, CPUS);
        for (int i = 0; i < config.cpus; i++)
            cpu[i] = (int)list[i];
    } else if (!strcmp(name, "--link")) {
        config.name = value;
    } else if (!strcmp(name, "--processes")) {
        config.size = (int)number(name, value);
    } else if (!strcmp(name, "--seconds")) {
        o->seconds = number(name, value);
    } else if (!strcmp(name, "--cold")) {
        o->cold = (size_t)number(name, value);
    } else if (!strcmp(name, "--pieces")) {
        o->pieces = (int)number(name, value);
    } else if (!strcmp(name, "--compute")) {
        o->compute = number(name, value);
    } else if (!strcmp(name, "--kind")) {
        o->kind = value;
        o->is_floor = strcmp(value, "floor") == 0;
        o->used = strncmp(value, "used", strlen("used")) == 0 ? measure->in_flight : 0;
    } else if (!strcmp(name, "--limit")) {
        config.limit = (unsigned)number(name, value);
    } else {
        link_fail("unknown option %s", name);
    }
}

static const struct measure *chosen(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(all) / sizeof(all[0]); i++) {
        if (!strcmp(argv[1], all[i]->name))
            return all[i];
    }
    fprintf(stderr, "usage: %s MEASUREMENT --cases N,... [options]; measurements:\n", argv[0]);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        fprintf(stderr, "  %-11s cases: %s\n", all[i]->name, all[i]->cases);
    exit(2);
}

/* Fills the arenas, by copies of the first PERIOD bytes, after which measure_byte() repeats itself: arenas may be many
 * times as large as the last-level cache. */
static void fill(void)
{
    unsigned char *out = link_arena(false);
    memset(link_arena(true), 0, config.arena);
    for (size_t i = 0; i < config.arena && i < PERIOD; i++)
        out[i] = measure_byte(i, link_rank());
    for (size_t at = PERIOD; at < config.arena; at += PERIOD)
        memcpy(out + at, out, config.arena - at < PERIOD ? config.arena - at : PERIOD);
}

static void body(void)
{
    fill();
    link_barrier();
    if (!measure->window)
        measure_line("line_before_ns");
    measure->body();
    if (!measure->window)
        measure_line("line_after_ns");
    link_barrier();
}

int main(int argc, char **argv)
{
    measure = chosen(argc, argv);
    measure_options = (struct measure_options){.seconds = 0.1, .pieces = 6, .compute = 1000, .kind = ""};
    for (int i = 2; i < argc; i += 2) {
        if (i + 1 == argc)
            link_fail("%s: an option without its value", argv[i]);
        option(argv[i], argv[i + 1]);
    }
    if (measure_options.values == 0)
        link_fail("--cases is missing");
    size_t largest = ROOM;
    for (int i = 0; !measure->is_fixed && i < measure_options.values; i++) {
        if (measure_options.value[i] > largest)
            largest = measure_options.value[i];
    }
    if (measure_options.used)
        largest *= (size_t)measure_options.used;
    config.arena = (measure_options.cold > largest ? measure_options.cold : largest) + SLACK;
    config.window = measure->window ? measure->window() : 0;
    return link_run(&config, &argc, &argv, body);
}
