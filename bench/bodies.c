/*
 * bodies: latency and bandwidth of large messages between two processes, each on a processor of its own, by some way.
 *
 *   bodies [--way ring|readv|one|both|PROVIDER] [--sizes BYTES,...] [--seconds S] [--cpus A,B] [--compute US]
 *
 * The first four are what the machine can do without a library: the sender copies into a ring of 4 x 32 KiB in shared
 * memory while the receiver copies out of it; the receiver copies by process_vm_readv(2), 1 MiB a call; the buffers lie
 * in memory that both have mapped, and the receiver copies, or each a half. Any other word is a provider of libfabric:
 * tagged messages.
 *
 * For each size a line: bytes; half a round trip (us); MB/s of a stream from one buffer into one buffer; MB/s of a
 * stream from many buffers into many (32 MiB on either side, or one body). Each figure is the better quartile of the
 * samples, because other programs disturb the rest. --seconds: how long each of the three may take.
 * --compute: the sender of the round trips computes so long between posting and its next call, and what is printed is
 * the time until the receiver has the body (us, both on one clock), for the first two figures; the others are 0.
 * Every body is checked by samples of its bytes; a wrong byte ends it with status 1.
 */
#include "bodies.h"

#include "base/atomic.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COLD = 32 << 20, SAMPLES = 2000, SIZES = 32, WARM_UP = 16, BATCH_BYTES = 2 << 20, BATCH_MAX = 64 };

static unsigned char *out, *in; /* COLD bytes each */
static double sample[SAMPLES];
static const struct bodies_way *way = &bodies_fabric;

void bodies_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("bodies: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(1);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void bodies_meet(struct bodies_side *s)
{
    uint64_t turn = s->shared->turn[s->self][0] + 1;
    um_store_release_u64(&s->shared->turn[s->self][0], turn);
    for (uint64_t i = 1; um_load_acquire_u64(&s->shared->turn[1 - s->self][0]) < turn; i++) {
        if (i % 1024 == 0)
            sched_yield();
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of times: a quarter of them are shorter. */
static double quartile(int count)
{
    qsort(sample, (size_t)count, sizeof(double), by_value);
    return sample[count / 4];
}

static unsigned char value_of(size_t at, int process)
{
    return (unsigned char)(at * 7 + (at >> 8) + (size_t)process);
}

static void check(const struct bodies_side *s, const unsigned char *body, size_t len)
{
    for (size_t i = 1; i < len; i += 61) {
        if (body[i] != value_of((size_t)(body - in) + i, 1 - s->self))
            bodies_fail("byte %zu of %zu is wrong", i, len);
    }
}

/* The first byte of a body says whether it is the last one. */
static void one(struct bodies_side *s, bool sends, size_t len, bool *last)
{
    const struct bodies_batch b = {.at = sends ? out : in, .len = len, .count = 1};
    if (sends) {
        out[0] = *last;
        way->post(s, &b);
        way->finish(s);
    } else {
        way->recv(s, &b);
        *last = in[0];
    }
}

/* Half round trips, us. */
static double latency(struct bodies_side *s, size_t len, double seconds)
{
    int count = 0;
    bodies_meet(s);
    double begin = now();
    for (bool last = false; !last; count++) {
        double from = now();
        if (count == WARM_UP)
            begin = from;
        last = s->self == 0 && count > WARM_UP + 10 && (count + 1 == SAMPLES + WARM_UP || from > begin + seconds);
        one(s, s->self == 0, len, &last);
        one(s, s->self == 1, len, &(bool){last});
        sample[count < WARM_UP ? 0 : count - WARM_UP] = (now() - from) / 2;
    }
    return quartile(count - WARM_UP) * 1e6;
}

/* From process 0 to process 1, MB/s. */
static double stream(struct bodies_side *s, size_t len, size_t stride, double seconds)
{
    size_t places = stride && stride < COLD ? COLD / stride : 1, place = 0;
    int batch = len < BATCH_BYTES / BATCH_MAX ? BATCH_MAX : len < BATCH_BYTES / 8 ? (int)(BATCH_BYTES / len) : 8;
    int count = 0;
    bodies_meet(s);
    double begin = now();
    for (bool last = false; !last; count++) {
        double from = now();
        if (place + (size_t)batch > places)
            place = 0;
        size_t at = place * stride;
        int fits = stride && (size_t)batch > places ? (int)places : batch;
        place += (size_t)fits;
        if (count == WARM_UP)
            begin = from;
        const struct bodies_batch b = {
            .at = (s->self == 0 ? out : in) + at, .len = len, .stride = stride, .count = fits};
        if (s->self == 0) {
            way->post(s, &b);
            way->finish(s);
        } else {
            way->recv(s, &b);
        }
        last = s->self == 1 && count > WARM_UP + 10 && (count + 1 == SAMPLES + WARM_UP || now() > begin + seconds);
        one(s, s->self == 1, 8, &last); /* the answer */
        sample[count < WARM_UP ? 0 : count - WARM_UP] = (now() - from) / fits;
    }
    return (double)len / quartile(count - WARM_UP) / 1e6;
}

/* Until the receiver has a body whose sender makes no call for `us` after each post, us. */
static void measure_computing(struct bodies_side *s, size_t len, double seconds, double us)
{
    int count = 0;
    double end = now() + seconds;
    double *sent = (double *)(void *)&s->shared->turn[0][4];
    for (bool last = false; !last; count++) {
        bodies_meet(s);
        last = s->self == 0 && count > 10 && (count == SAMPLES - 1 || now() > end);
        if (s->self == 0) {
            struct bodies_batch b = {.at = out, .len = len, .count = 1};
            out[0] = last;
            *sent = now();
            way->post(s, &b);
            while (now() < *sent + us * 1e-6)
                um_cpu_relax();
            way->finish(s);
        } else {
            one(s, false, len, &last);
            sample[count] = now() - *sent;
        }
    }
    bodies_meet(s);
    if (s->self == 1)
        printf("%zu %.3f 0 0\n", len, quartile(count) * 1e6);
}

static void measure(struct bodies_side *s, size_t len, double seconds)
{
    size_t stride = (len + 4095) & ~(size_t)4095;
    double us = latency(s, len, seconds);
    check(s, in, len);
    double warm = stream(s, len, 0, seconds), cold = stream(s, len, stride, seconds);
    if (s->self == 1) {
        for (size_t at = 0; stride < COLD && at + stride <= COLD; at += stride)
            check(s, in + at, len);
        printf("%zu %.3f %.1f %.1f\n", len, us, warm, cold);
    }
}

static unsigned char *buffer(const struct bodies_side *s, int process)
{
    unsigned char *p = way->is_mapped ? s->shared->memory + (size_t)(s->self * 2 + (process == s->self)) * COLD
                                      : aligned_alloc(4096, COLD);
    if (!p)
        bodies_fail("no memory");
    for (size_t i = 0; i < COLD; i++)
        p[i] = value_of(i, process);
    return p;
}

struct options {
    size_t size[SIZES];
    const char *provider;
    double seconds, compute;
    int cpu[2];
};

static const struct bodies_way *way_named(const char *name)
{
    static const struct bodies_way *const bare[] = {&bodies_ring, &bodies_readv, &bodies_one, &bodies_both};
    for (size_t i = 0; i < sizeof(bare) / sizeof(bare[0]); i++) {
        if (!strcmp(name, bare[i]->name))
            return bare[i];
    }
    return &bodies_fabric;
}

static void parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value)
            bodies_fail("%s: an option without its value", argv[i]);
        if (!strcmp(argv[i], "--way")) {
            o->provider = value;
            way = way_named(value);
        } else if (!strcmp(argv[i], "--seconds")) {
            o->seconds = strtod(value, NULL);
        } else if (!strcmp(argv[i], "--compute")) {
            o->compute = strtod(value, NULL);
        } else if (!strcmp(argv[i], "--cpus")) {
            if (sscanf(value, "%d,%d", &o->cpu[0], &o->cpu[1]) != 2)
                bodies_fail("--cpus wants two numbers");
        } else if (!strcmp(argv[i], "--sizes")) {
            int n = 0;
            memset(o->size, 0, sizeof(o->size));
            for (char *word = strtok(argv[i + 1], ","); word && n < SIZES - 1; word = strtok(NULL, ","))
                o->size[n++] = strtoul(word, NULL, 0);
        } else {
            bodies_fail("unknown option %s", argv[i]);
        }
    }
    for (int i = 0; o->size[i]; i++) {
        if (o->size[i] < 8 || o->size[i] > COLD)
            bodies_fail("a size is from 8 to %d", COLD);
    }
}

static void side_run(struct bodies_side *s, const struct options *o)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(o->cpu[s->self], &set);
    sched_setaffinity(0, sizeof(set), &set);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    s->shared->pid[s->self] = getpid();
    out = buffer(s, s->self);
    in = buffer(s, 1 - s->self);
    alarm(300);
    way->open(s, o->provider);
    for (int i = 0; o->size[i]; i++) {
        if (o->compute > 0)
            measure_computing(s, o->size[i], o->seconds, o->compute);
        else
            measure(s, o->size[i], o->seconds);
        fflush(stdout);
    }
    way->close(s);
}

int main(int argc, char **argv)
{
    static struct bodies_side s;
    static struct options o = {
        .size = {16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20},
        .provider = "unimem",
        .seconds = 0.1,
        .cpu = {0, 1},
    };
    parse(argc, argv, &o);
    s.shared = mmap(NULL, sizeof(*s.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s.shared == MAP_FAILED)
        bodies_fail("no memory");
    if (way->is_mapped) {
        s.shared->memory = mmap(NULL, (size_t)4 * COLD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (s.shared->memory == MAP_FAILED)
            bodies_fail("no memory");
    }
    pid_t child = fork();
    if (child < 0)
        bodies_fail("fork");
    s.self = child ? 1 : 0;
    if (s.self == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    side_run(&s, &o);
    if (s.self == 0)
        _exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}
