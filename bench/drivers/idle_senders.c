/*
 * idle_senders: what idle senders cost their receiver, and how fairly it receives from many senders.
 *
 *   idle_senders [-p PROVIDER] [-n SENDERS] [-f SENDERS] [-r REPEATS] [-i PINGS] [-c CPU,CPU]
 *
 * Process 0 receives messages of 8 bytes from endpoints of process 1: a ping-pong and a stream from one endpoint, first
 * alone, then with SENDERS (-n) endpoints, of which the others have sent one message each. Then SENDERS (-f) endpoints
 * send at once, each as much as it can.
 *
 * -i: round trips of one measurement. -c: the processors of the two processes. Prints CSV lines:
 *
 *   idle,SENDERS,nanoseconds one way,nanoseconds of a message in a stream (medians)
 *   fair,SENDERS,messages received from the slowest,from the fastest,the first divided by the second
 */
#include "team.h"

#include <rdma/fi_tagged.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SENDERS_MAX = 4000, REPEATS_MAX = 99, WINDOW = 512, BATCH = 64 };

enum { TAG = 1, TAG_BACK = 2 };

struct senders_run {
    uint32_t idle, fair;
    int repeats;
    uint32_t pings; /* round trips of a measurement; a stream has ten times as many messages */
    /* process 0 */
    uint64_t inbox[WINDOW], next, taken, due; /* receives posted; messages received; messages waited for */
    struct fi_context context[WINDOW];
    uint64_t by_sender[SENDERS_MAX];
    /* process 1 */
    struct fid_ep *ep[SENDERS_MAX];
    struct fid_cq *cq;
    uint32_t count;
};

static int cpus[2] = {-1, -1};

/* ---- process 1: more endpoints ---- */

static void senders_open(struct team *t, struct senders_run *run, uint32_t count)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE};
    if (!run->cq)
        TEAM_CALL(t, fi_cq_open(t->domain, &attr, &run->cq, NULL));
    for (; run->count < count; run->count++) {
        struct fid_ep **ep = &run->ep[run->count];
        TEAM_CALL(t, fi_endpoint(t->domain, t->info, ep, NULL));
        TEAM_CALL(t, fi_ep_bind(*ep, &t->av->fid, 0));
        TEAM_CALL(t, fi_ep_bind(*ep, &run->cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
        TEAM_CALL(t, fi_enable(*ep));
    }
}

static void senders_close(struct team *t, struct senders_run *run)
{
    while (run->count > 0)
        TEAM_CALL(t, fi_close(&run->ep[--run->count]->fid));
    if (run->cq)
        TEAM_CALL(t, fi_close(&run->cq->fid));
}

static bool send_try(struct team *t, struct fid_ep *ep, struct fid_cq *cq, uint64_t value)
{
    struct fi_cq_entry entry;
    const ssize_t ret = fi_tinject(ep, &value, sizeof(value), t->peer[1 - t->rank], t->rank ? TAG : TAG_BACK);
    if (ret == -FI_EAGAIN)
        (void)fi_cq_read(cq, &entry, 1);
    TEAM_DEMAND(t, ret == 0 || ret == -FI_EAGAIN, "fi_tinject: %s", fi_strerror((int)-ret));
    return ret == 0;
}

static void send_one(struct team *t, uint64_t value)
{
    while (!send_try(t, t->ep, t->cq, value))
        ;
}

/* ---- receiving ---- */

static void window_fill(struct team *t, struct senders_run *run)
{
    for (; run->next < run->taken + WINDOW; run->next++) {
        const struct iovec iov = {.iov_base = &run->inbox[run->next % WINDOW], .iov_len = 8};
        const struct fi_msg_tagged m = {.msg_iov = &iov,
                                        .iov_count = 1,
                                        .addr = FI_ADDR_UNSPEC,
                                        .tag = t->rank ? TAG_BACK : TAG,
                                        .context = &run->context[run->next % WINDOW]};
        TEAM_POST(t, fi_trecvmsg(t->ep, &m, FI_COMPLETION));
    }
}

/* Waits for `count` more messages. */
static void take(struct team *t, struct senders_run *run, uint64_t count)
{
    struct fi_cq_entry entries[BATCH];
    run->due += count;
    while (run->taken < run->due) {
        const ssize_t ret = fi_cq_read(t->cq, entries, BATCH);
        if (ret == -FI_EAGAIN)
            continue;
        TEAM_DEMAND(t, ret > 0, "fi_cq_read: %s", fi_strerror((int)-ret));
        for (ssize_t i = 0; i < ret; i++)
            run->by_sender[run->inbox[(struct fi_context *)entries[i].op_context - run->context] % SENDERS_MAX]++;
        run->taken += (uint64_t)ret;
        window_fill(t, run);
    }
}

/* ---- idle ones ---- */

static double pings(struct team *t, struct senders_run *run)
{
    const double began = team_now();
    for (uint32_t i = 0; i < run->pings; i++) {
        if (t->rank == 1)
            send_one(t, 0);
        take(t, run, 1);
        if (t->rank == 0)
            send_one(t, 0);
    }
    return (team_now() - began) / run->pings / 2;
}

static double stream(struct team *t, struct senders_run *run)
{
    const double began = team_now();
    const uint64_t count = (uint64_t)run->pings * 10;
    for (uint64_t i = 0; t->rank == 1 && i < count; i++)
        send_one(t, 0);
    if (t->rank == 0)
        take(t, run, count);
    else
        take(t, run, 1);
    if (t->rank == 0)
        send_one(t, 0);
    return (team_now() - began) / (double)count;
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void idle_measure(struct team *t, struct senders_run *run, uint32_t senders)
{
    static double took[2][REPEATS_MAX];
    window_fill(t, run);
    if (t->rank == 1) {
        senders_open(t, run, senders - 1);
        for (uint32_t i = 0; i < run->count; i++)
            while (!send_try(t, run->ep[i], run->cq, i))
                ;
    } else {
        take(t, run, senders - 1);
    }
    for (int r = -1; r < run->repeats; r++) {
        const double ping = pings(t, run), each = stream(t, run);
        if (r >= 0) {
            took[0][r] = ping;
            took[1][r] = each;
        }
    }
    for (int i = 0; i < 2; i++)
        qsort(took[i], (size_t)run->repeats, sizeof(double), rising);
    if (t->rank == 0)
        printf("idle,%u,%.1f,%.1f\n", senders, took[0][run->repeats / 2] * 1e9, took[1][run->repeats / 2] * 1e9);
    fflush(stdout);
}

/* ---- all at once ---- */

/* Words between the two: 0: enough was received; 1: the number of messages in the end; 2: their number before. */
static volatile uint64_t *cell(const struct team *t, int i)
{
    return &t->shared->cell[i];
}

static void fair_receive(struct team *t, struct senders_run *run)
{
    uint64_t least = UINT64_MAX, most = 0;
    take(t, run, run->pings); /* then all send */
    memset(run->by_sender, 0, sizeof(run->by_sender));
    take(t, run, (uint64_t)run->pings * 20);
    for (uint32_t i = 0; i < run->fair; i++) {
        least = run->by_sender[i] < least ? run->by_sender[i] : least;
        most = run->by_sender[i] > most ? run->by_sender[i] : most;
    }
    *cell(t, 0) = 1;
    printf("fair,%u,%llu,%llu,%.2f\n", run->fair, (unsigned long long)least, (unsigned long long)most,
           (double)least / (double)most);
    while (*cell(t, 1) == 0)
        sched_yield();
    take(t, run, *cell(t, 1) - run->due);
}

static void fair_send(struct team *t, struct senders_run *run, uint64_t taken_before)
{
    uint64_t sent = 0;
    senders_open(t, run, run->fair);
    while (*cell(t, 0) == 0) {
        for (uint32_t i = 0; i < run->fair; i++)
            sent += send_try(t, run->ep[i], run->cq, i);
    }
    *cell(t, 1) = taken_before + sent;
}

static void run_all(struct team *t, void *arg)
{
    struct senders_run *run = arg;
    idle_measure(t, run, 1);
    idle_measure(t, run, run->idle);
    if (t->rank == 0)
        *cell(t, 2) = run->due;
    team_barrier(t);
    if (t->rank == 0)
        fair_receive(t, run);
    else
        fair_send(t, run, *cell(t, 2));
    team_barrier(t);
    senders_close(t, run);
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

static int options_read(struct senders_run *run, struct team_config *config, int argc, char **argv)
{
    int c, bad = 0;
    while ((c = getopt(argc, argv, "p:n:f:r:i:c:")) != -1) {
        if (c == 'p')
            config->provider = optarg;
        else if (c == 'n')
            run->idle = (uint32_t)atoi(optarg);
        else if (c == 'f')
            run->fair = (uint32_t)atoi(optarg);
        else if (c == 'r')
            run->repeats = atoi(optarg);
        else if (c == 'i')
            run->pings = (uint32_t)atoi(optarg);
        else if (c == 'c')
            bad |= sscanf(optarg, "%d,%d", &cpus[0], &cpus[1]) != 2;
        else
            return -1;
    }
    return bad || run->pings < 1 || run->idle < 1 || run->idle > SENDERS_MAX || run->fair < 1 ||
                   run->fair > SENDERS_MAX || run->repeats < 1 || run->repeats > REPEATS_MAX
               ? -1
               : 0;
}

int main(int argc, char **argv)
{
    static struct senders_run run = {.idle = 1000, .fair = 64, .repeats = 5, .pings = 20000};
    struct team_config config = {.size = 2, .bytes = 4096, .caps = FI_TAGGED};
    if (options_read(&run, &config, argc, argv)) {
        fprintf(stderr,
                "usage: idle_senders [-p PROVIDER] [-n SENDERS] [-f SENDERS] [-r REPEATS] [-i PINGS] [-c CPU,CPU]\n"
                "up to %d senders\n",
                SENDERS_MAX);
        return 2;
    }
    return team_run(&config, pin, run_all, &run);
}
