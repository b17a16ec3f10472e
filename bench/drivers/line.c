/* measure.h: how long a cache line takes from process 0 to process 1, which shows how close their processors are. */
#include "measure.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TAG = 30001, BATCHES = 40, TRIPS = 50, PATIENCE = 1 << 14 };

struct words {
    _Alignas(128) _Atomic uint64_t of[2];
};
struct line {
    struct words process[2];
};

/* Maps a file for both processes; NULL: they cannot share one (they are on two hosts). */
static struct line *line_open(void)
{
    char name[64];
    const int me = link_rank();
    snprintf(name, sizeof(name), "/dev/shm/measure-line-%llu", (unsigned long long)measure_agree((uint64_t)getpid()));
    int fd = me == 0 ? open(name, O_RDWR | O_CREAT | O_EXCL, 0600) : -1;
    struct line *line = MAP_FAILED;
    link_barrier();
    if (me == 1)
        fd = open(name, O_RDWR);
    if (fd >= 0 && ftruncate(fd, sizeof(*line)) == 0)
        line = mmap(NULL, sizeof(*line), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    uint64_t have = line != MAP_FAILED, theirs = 0;
    if (me == 0) {
        link_recv(1, &theirs, sizeof(theirs), TAG);
        link_send(1, &have, sizeof(have), TAG);
        unlink(name);
    } else {
        link_send(0, &have, sizeof(have), TAG);
        link_recv(0, &theirs, sizeof(theirs), TAG);
    }
    if (have && theirs)
        return line;
    if (have)
        munmap(line, sizeof(*line));
    return NULL;
}

static void wait_for(_Atomic uint64_t *word, uint64_t value)
{
    for (unsigned n = 1; atomic_load_explicit(word, memory_order_acquire) != value; n++) {
        if (n % PATIENCE == 0) /* they may share a processor */
            sched_yield();
    }
}

static void trips(struct line *line, uint64_t from)
{
    _Atomic uint64_t *mine = line->process[link_rank()].of, *theirs = line->process[1 - link_rank()].of;
    for (uint64_t n = from; n < from + TRIPS; n++) {
        if (link_rank() == 1)
            wait_for(theirs, n);
        atomic_store_explicit(mine, n, memory_order_release);
        if (link_rank() == 0)
            wait_for(theirs, n);
    }
}

void measure_line(const char *metric)
{
    if (link_size() != 2)
        return;
    struct line *line = line_open();
    if (!line)
        return;
    for (int i = 0; i < BATCHES; i++) {
        const double begin = link_now();
        trips(line, 1 + (uint64_t)i * TRIPS);
        measure_sample[i] = (link_now() - begin) / TRIPS / 2 * 1e9;
    }
    munmap(line, sizeof(*line));
    if (link_rank() == 0)
        measure_figure(metric, 0, measure_median(BATCHES));
}
