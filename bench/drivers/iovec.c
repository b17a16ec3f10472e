/*
 * iovec: one message of several buffers against as many messages of one buffer.
 *
 *   iovec [-p PROVIDER] [-e ENTRIES] [-s SIZES] [-r REPEATS] [-t SECONDS] [-c CPU,CPU] [-f]
 *
 * Process 0 sends groups of ENTRIES buffers to process 1: each group by one fi_tsendmsg, received by one fi_trecvmsg of
 * as many buffers (-f: of one buffer); or by ENTRIES fi_tsendmsg of one buffer each, received one by one. SIZES: bytes
 * of a group. Up to 64 groups are in flight. The two ways alternate, each for SECONDS, REPEATS times; every byte of the
 * last groups is checked. -c: the processors of the two processes. Prints a CSV line for each size: bytes, entries,
 * groups a second by iovec, groups a second by single sends (medians), and the first divided by the second.
 */
#include "team.h"

#include <rdma/fi_tagged.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES_MAX = 32, SIZES_MAX = 32, REPEATS_MAX = 99, BATCH_MAX = 32, GAP = 64, TAG = 1, TAG_ACK = 2 };
enum { BYTES_MAX = 4 << 20, ROOM = 64 << 20 };

enum way { BY_LIST, BY_SENDS, WAYS };

struct iovec_run {
    size_t size[SIZES_MAX], sizes;
    uint32_t entries;
    int repeats;
    double seconds;
    bool flat;
    unsigned char *memory; /* ordinary, not registered */
    /* of the current size */
    size_t bytes, stride; /* of a group's memory */
    uint32_t batch;       /* groups; two batches are in flight */
    uint64_t waiting;     /* completions that are still to come */
    uint64_t acks;
    char ack_context;
};

static int cpus[2] = {-1, -1};

static size_t piece_len(const struct iovec_run *run, uint32_t i)
{
    return run->bytes / run->entries + (i < run->bytes % run->entries);
}

/* Writes the pieces of a group, which lie apart from each other, to iov. */
static void group_at(const struct iovec_run *run, uint64_t group, struct iovec *iov)
{
    unsigned char *at = run->memory + group % (2 * run->batch) * run->stride;
    for (uint32_t i = 0; i < run->entries; i++) {
        iov[i] = (struct iovec){.iov_base = at, .iov_len = piece_len(run, i)};
        at += (iov[i].iov_len + GAP - 1) / GAP * GAP + GAP;
    }
}

static void look(struct team *t, struct iovec_run *run)
{
    struct fi_cq_entry entries[16];
    ssize_t ret = fi_cq_read(t->cq, entries, 16);
    if (ret == -FI_EAGAIN)
        return;
    TEAM_DEMAND(t, ret > 0, "fi_cq_read: %s", fi_strerror((int)-ret));
    for (ssize_t i = 0; i < ret; i++) {
        if (entries[i].op_context == &run->ack_context)
            run->acks++;
        else
            run->waiting--;
    }
}

#define POST(t, run, call)                                                                                             \
    do {                                                                                                               \
        ssize_t post_ret;                                                                                              \
        while ((post_ret = (call)) == -FI_EAGAIN)                                                                      \
            look(t, run);                                                                                              \
        TEAM_DEMAND(t, post_ret == 0, "%s: %s", #call, fi_strerror((int)-post_ret));                                   \
    } while (0)

static void post(struct team *t, struct iovec_run *run, const struct iovec *iov, uint32_t count)
{
    const struct fi_msg_tagged m = {
        .msg_iov = iov, .iov_count = count, .addr = t->peer[1 - t->rank], .tag = TAG, .context = run};
    if (t->rank == 0)
        POST(t, run, fi_tsendmsg(t->ep, &m, FI_COMPLETION));
    else
        POST(t, run, fi_trecvmsg(t->ep, &m, FI_COMPLETION));
    run->waiting++;
}

static void group_post(struct team *t, struct iovec_run *run, enum way way, uint64_t group)
{
    struct iovec iov[ENTRIES_MAX];
    group_at(run, group, iov);
    if (way == BY_LIST && run->flat && t->rank == 1) {
        iov[0].iov_len = run->bytes;
        post(t, run, iov, 1);
    } else if (way == BY_LIST) {
        post(t, run, iov, run->entries);
    } else {
        for (uint32_t i = 0; i < run->entries; i++)
            post(t, run, &iov[i], 1);
    }
}

static void ack(struct team *t, struct iovec_run *run)
{
    const struct fi_msg_tagged m = {.addr = t->peer[1 - t->rank], .tag = TAG_ACK, .context = &run->ack_context};
    if (t->rank == 0)
        POST(t, run, fi_trecvmsg(t->ep, &m, FI_COMPLETION));
    else
        POST(t, run, fi_tsendmsg(t->ep, &m, 0));
}

static void groups_send(struct team *t, struct iovec_run *run, enum way way, uint64_t batches)
{
    run->acks = 0;
    ack(t, run);
    ack(t, run);
    for (uint64_t b = 0; b < batches; b++) {
        while (b >= run->acks + 2)
            look(t, run);
        if (b >= 2)
            ack(t, run);
        for (uint32_t i = 0; i < run->batch; i++)
            group_post(t, run, way, b * run->batch + i);
    }
    while (run->waiting || run->acks < batches)
        look(t, run);
}

static void groups_receive(struct team *t, struct iovec_run *run, enum way way, uint64_t batches)
{
    const uint64_t each = (uint64_t)run->batch * (way == BY_LIST ? 1 : run->entries);
    for (uint64_t b = 0; b < batches; b++) {
        const uint64_t posted = b + 2 < batches ? 2 : batches - b; /* batches, this one included */
        while (run->waiting > (posted - 1) * each)
            look(t, run);
        for (uint32_t i = 0; b + 2 < batches && i < run->batch; i++)
            group_post(t, run, way, (b + 2) * run->batch + i);
        ack(t, run);
    }
}

static void memory_fill(const struct team *t, const struct iovec_run *run)
{
    struct iovec iov[ENTRIES_MAX];
    for (uint64_t g = 0; g < 2 * run->batch; g++) {
        group_at(run, g, iov);
        for (uint32_t i = 0; i < run->entries; i++)
            memset(iov[i].iov_base, t->rank == 0 ? (int)(g * 7 + i + 1) : 0, iov[i].iov_len);
    }
}

static void memory_check(struct team *t, const struct iovec_run *run, enum way way)
{
    struct iovec iov[ENTRIES_MAX];
    for (uint64_t g = 0; g < 2 * run->batch; g++) {
        group_at(run, g, iov);
        const unsigned char *flat = iov[0].iov_base;
        for (uint32_t i = 0; i < run->entries; i++) {
            const unsigned char *at = run->flat && way == BY_LIST ? flat : iov[i].iov_base;
            for (size_t k = 0; k < iov[i].iov_len; k++)
                TEAM_DEMAND(t, at[k] == (unsigned char)(g * 7 + i + 1), "byte %zu of buffer %u is wrong", k, i);
            flat += iov[i].iov_len;
        }
    }
}

/* Moves so many batches between two barriers. Returns the seconds. */
static double batches_move(struct team *t, struct iovec_run *run, enum way way, uint64_t batches)
{
    if (t->rank == 1) {
        for (uint64_t g = 0; g < run->batch * (batches < 2 ? batches : 2); g++)
            group_post(t, run, way, g);
    }
    team_barrier(t);
    const double began = team_now();
    if (t->rank == 0)
        groups_send(t, run, way, batches);
    else
        groups_receive(t, run, way, batches);
    const double took = team_now() - began;
    team_barrier(t);
    return took;
}

/* Returns the value of process 0 in both processes. */
static uint64_t agree(struct team *t, uint64_t value)
{
    if (t->rank == 0)
        t->shared->cell[0] = value;
    team_barrier(t);
    value = t->shared->cell[0];
    team_barrier(t);
    return value;
}

/* Returns groups a second, over about `seconds`; valid in process 0. */
static double rate(struct team *t, struct iovec_run *run, enum way way)
{
    double took = 0;
    memory_fill(t, run);
    for (uint64_t batches = agree(t, 4), next;; batches = next) {
        took = batches_move(t, run, way, batches);
        next = agree(t, took >= run->seconds / 2 ? 0 : took < run->seconds / 20 ? batches * 8 : batches * 2);
        if (next == 0) {
            if (t->rank == 1)
                memory_check(t, run, way);
            return (double)(batches * run->batch) / took;
        }
    }
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void size_measure(struct team *t, struct iovec_run *run, size_t bytes)
{
    static double rates[WAYS][REPEATS_MAX];
    run->bytes = bytes;
    run->stride = bytes + (size_t)(2 * GAP) * ENTRIES_MAX;
    run->batch = bytes * BATCH_MAX <= BYTES_MAX ? BATCH_MAX
                 : bytes >= BYTES_MAX / 2       ? 2
                                                : (uint32_t)(BYTES_MAX / bytes);
    for (int r = 0; r < run->repeats; r++) {
        for (int way = 0; way < WAYS; way++)
            rates[way][r] = rate(t, run, (enum way)way);
    }
    if (t->rank != 0)
        return;
    for (int way = 0; way < WAYS; way++)
        qsort(rates[way], (size_t)run->repeats, sizeof(double), rising);
    const double list = rates[BY_LIST][run->repeats / 2], sends = rates[BY_SENDS][run->repeats / 2];
    printf("%zu,%u,%.0f,%.0f,%.2f\n", bytes, run->entries, list, sends, list / sends);
    fflush(stdout);
}

static void run_all(struct team *t, void *arg)
{
    struct iovec_run *run = arg;
    TEAM_DEMAND(t, run->entries <= t->info->tx_attr->iov_limit && run->entries <= t->info->rx_attr->iov_limit,
                "the provider takes lists of %zu buffers", t->info->tx_attr->iov_limit);
    run->memory = malloc(ROOM);
    TEAM_DEMAND(t, run->memory != NULL, "no memory");
    if (t->rank == 0)
        printf("bytes,entries,iovec_per_s,sends_per_s,ratio\n");
    for (size_t i = 0; i < run->sizes; i++)
        size_measure(t, run, run->size[i]);
    free(run->memory);
}

static void pin(int rank)
{
    cpu_set_t set;
    if (cpus[rank] < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpus[rank], &set);
    if (sched_setaffinity(0, sizeof(set), &set))
        perror("sched_setaffinity");
}

static int sizes_read(struct iovec_run *run, char *list)
{
    char *end;
    for (run->sizes = 0; *list && run->sizes < SIZES_MAX; list = *end == ',' ? end + 1 : end) {
        run->size[run->sizes] = strtoul(list, &end, 0);
        if (end == list || run->size[run->sizes] < 1 || run->size[run->sizes++] > BYTES_MAX)
            return -1;
    }
    return run->sizes && !*list ? 0 : -1;
}

static int options_read(struct iovec_run *run, struct team_config *config, int argc, char **argv)
{
    int c, bad = 0;
    while ((c = getopt(argc, argv, "p:e:s:r:t:c:f")) != -1) {
        if (c == 'p')
            config->provider = optarg;
        else if (c == 'e')
            run->entries = (uint32_t)atoi(optarg);
        else if (c == 's')
            bad |= sizes_read(run, optarg);
        else if (c == 'r')
            run->repeats = atoi(optarg);
        else if (c == 't')
            run->seconds = atof(optarg);
        else if (c == 'c')
            bad |= sscanf(optarg, "%d,%d", &cpus[0], &cpus[1]) != 2;
        else if (c == 'f')
            run->flat = true;
        else
            return -1;
    }
    return bad || run->entries < 1 || run->entries > ENTRIES_MAX || run->repeats < 1 || run->repeats > REPEATS_MAX ? -1
                                                                                                                   : 0;
}

int main(int argc, char **argv)
{
    static char sizes[] = "48,64,256,1024,4096,16384,32768,65536,98304,131072,262144,1048576,4194304";
    static struct iovec_run run = {.entries = 6, .repeats = 5, .seconds = 0.2};
    struct team_config config = {.size = 2, .bytes = 4096, .caps = FI_TAGGED};
    sizes_read(&run, sizes);
    if (options_read(&run, &config, argc, argv)) {
        fprintf(stderr,
                "usage: iovec [-p PROVIDER] [-e ENTRIES] [-s SIZES] [-r REPEATS] [-t SECONDS] [-c CPU,CPU] [-f]\n"
                "up to %d ENTRIES; SIZES up to %d, commas between\n",
                ENTRIES_MAX, BYTES_MAX);
        return 2;
    }
    return team_run(&config, pin, run_all, &run);
}
