/*
 * wakeup PROVIDER cq|cntr [COUNT]: how long a sleeping process takes to notice what another one did.
 * wakeup PROVIDER cq|cntr idle SECONDS: what sleeping costs while nothing happens.
 *
 * One process sleeps in fi_cq_sread() for a message, or in fi_cntr_wait() on a counter of writes to its memory
 * (FI_RMA_EVENT); the other one sends, or writes, after 0.1 to 3 ms at random. A sample is from just before the
 * sender's call to the return of the sleeper's. Prints "figure METRIC cq|cntr VALUE": minimum, median, 90 and 99
 * percent, maximum in microseconds, and the sleeper's processor time as a part of the whole. In the other form the
 * sleeper stays blocked, without a timeout, until the sender ends that after SECONDS. It prints the same part (of the
 * process, so with any thread of the provider) and how often a second the process gave up its processor; each time is a
 * wake-up. Exit status: 0; 1 something failed; 77 the provider does not offer this.
 *
 * bench/compare runs it for several providers in turn.
 */
#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    COUNT = 2000,
    COUNT_MAX = 1000000,
    WARM = 20,
    NAME_MAX_LEN = 256,
    KEY = 7,
    PATIENCE_MS = 10000,
    IDLE_MAX_S = 3600,
    SKIPPED = 77
};

/* What the two processes share, apart from the fabric. */
struct shared {
    struct {
        char bytes[NAME_MAX_LEN];
        size_t len;
    } name[2];
    uint64_t key, address; /* of the sleeper's memory */
    uint64_t ready;        /* sleeper: rounds begun; no process waits for it within a sample */
    uint64_t stamp;        /* sender: before its call, ns */
    uint64_t joined[2];
    uint64_t sample[COUNT_MAX]; /* ns */
};

struct side {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_cntr *cntr;
    struct fid_mr *mr;
    struct fid_ep *ep;
    fi_addr_t other;
    uint64_t memory[8];
};

static struct shared *shared;
static bool counts;     /* fi_cntr_wait() instead of fi_cq_sread() */
static unsigned idle_s; /* seconds that the last round takes; 0: as long as any other */

static uint64_t now_ns(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void put(uint64_t *at, uint64_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static void await(const uint64_t *at, uint64_t value)
{
    uint64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE_MS * 1000000ull;
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < value) {
        if (now_ns(CLOCK_MONOTONIC) > end) {
            fprintf(stderr, "wakeup: the other process did not come\n");
            exit(1);
        }
        usleep(50);
    }
}

static void must(const char *what, ssize_t ret)
{
    if (ret >= 0)
        return;
    fprintf(stderr, "wakeup: %s: %s\n", what, fi_strerror((int)-ret));
    exit(1);
}

/* False: the provider does not offer this. */
static bool side_find(struct side *s, const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        exit(1);
    hints->fabric_attr->prov_name = strdup(provider);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = counts ? FI_MSG | FI_RMA | FI_RMA_EVENT : FI_MSG;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    int ret = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &s->info);
    fi_freeinfo(hints);
    return ret == 0;
}

/* Opens a counter of what the other process writes to this one's memory. False: the provider has none. */
static bool side_open_cntr(struct side *s)
{
    struct fi_cntr_attr cntr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    int ret = fi_cntr_open(s->domain, &cntr, &s->cntr, NULL);
    if (ret == -FI_ENOSYS)
        return false;
    must("fi_cntr_open", ret);
    must("fi_mr_reg", fi_mr_reg(s->domain, s->memory, sizeof(s->memory), FI_REMOTE_WRITE | FI_WRITE, 0, KEY,
                                FI_RMA_EVENT, &s->mr, NULL));
    if (s->info->domain_attr->mr_mode & FI_MR_ENDPOINT)
        must("fi_mr_bind", fi_mr_bind(s->mr, &s->ep->fid, 0));
    ret = fi_mr_bind(s->mr, &s->cntr->fid, FI_REMOTE_WRITE);
    if (ret == -FI_ENOSYS)
        return false;
    must("fi_mr_bind", ret);
    return true;
}

/* Opens all objects. False: the provider has no such wait object. */
static bool side_open(struct side *s, int number)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_UNSPEC};
    must("fi_fabric", fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
    must("fi_domain", fi_domain(s->fabric, s->info, &s->domain, NULL));
    must("fi_av_open", fi_av_open(s->domain, &av, &s->av, NULL));
    int ret = fi_cq_open(s->domain, &cq, &s->cq, NULL);
    if (ret == -FI_ENOSYS)
        return false;
    must("fi_cq_open", ret);
    must("fi_endpoint", fi_endpoint(s->domain, s->info, &s->ep, NULL));
    must("fi_ep_bind", fi_ep_bind(s->ep, &s->av->fid, 0));
    must("fi_ep_bind", fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
    must("fi_enable", fi_enable(s->ep));
    if (counts && !side_open_cntr(s))
        return false;
    shared->name[number].len = NAME_MAX_LEN;
    must("fi_getname", fi_getname(&s->ep->fid, shared->name[number].bytes, &shared->name[number].len));
    return true;
}

/* Exchanges addresses. When this returns, both processes have an endpoint. */
static void side_join(struct side *s, int number)
{
    put(&shared->joined[number], 1);
    await(&shared->joined[!number], 1);
    must("fi_av_insert", fi_av_insert(s->av, shared->name[!number].bytes, 1, &s->other, 0, NULL) == 1 ? 0 : -FI_EOTHER);
}

static void pin(int number)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(number % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

/* ---- the sleeper ---- */

static void sleep_once(struct side *s, uint64_t round)
{
    const int timeout = idle_s ? -1 : PATIENCE_MS;
    struct fi_cq_msg_entry entry;
    ssize_t ret;
    if (counts) {
        put(&shared->ready, round);
        while ((ret = fi_cntr_wait(s->cntr, round, timeout)) == -FI_EAGAIN || ret == -FI_EINTR)
            ;
        must("fi_cntr_wait", ret);
        return;
    }
    must("fi_recv", fi_recv(s->ep, s->memory, sizeof(s->memory), NULL, FI_ADDR_UNSPEC, NULL));
    put(&shared->ready, round);
    uint64_t end = now_ns(CLOCK_MONOTONIC) + idle_s * 1000000000ull + PATIENCE_MS * 1000000ull;
    while ((ret = fi_cq_sread(s->cq, &entry, 1, NULL, timeout)) == -FI_EAGAIN && now_ns(CLOCK_MONOTONIC) < end)
        ;
    must("fi_cq_sread", ret);
}

static void figure(const char *metric, double value)
{
    printf("figure %s %s %.6g\n", metric, counts ? "cntr" : "cq", value);
}

static uint64_t switches(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_nvcsw;
}

static void sleeper_run_idle(struct side *s)
{
    for (uint64_t round = 1; round <= WARM; round++)
        sleep_once(s, round);
    uint64_t wall = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), slept = switches();
    sleep_once(s, WARM + 1);
    wall = now_ns(CLOCK_MONOTONIC) - wall;
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    figure("cpu", (double)cpu / (double)wall);
    figure("wakeups_s", (double)(switches() - slept) * 1e9 / (double)wall);
    put(&shared->ready, WARM + 2);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void sleeper_run(struct side *s, uint64_t count)
{
    uint64_t wall = 0, cpu = 0;
    for (uint64_t round = 1; round <= WARM + count; round++) {
        if (round == WARM + 1) {
            wall = now_ns(CLOCK_MONOTONIC);
            cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
        }
        sleep_once(s, round);
        uint64_t now = now_ns(CLOCK_MONOTONIC);
        if (round > WARM)
            shared->sample[round - WARM - 1] = now - __atomic_load_n(&shared->stamp, __ATOMIC_ACQUIRE);
    }
    wall = now_ns(CLOCK_MONOTONIC) - wall;
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    qsort(shared->sample, count, sizeof(shared->sample[0]), compare);
    const uint64_t *t = shared->sample;
    figure("min_us", (double)t[0] / 1e3);
    figure("p50_us", (double)t[count / 2] / 1e3);
    figure("p90_us", (double)t[count * 9 / 10] / 1e3);
    figure("p99_us", (double)t[count * 99 / 100] / 1e3);
    figure("max_us", (double)t[count - 1] / 1e3);
    figure("cpu", (double)cpu / (double)wall);
    put(&shared->ready, WARM + count + 1);
}

/* ---- the sender ---- */

/* Sends, and makes progress as long as the provider needs it. */
static void send_once(struct side *s)
{
    struct fi_cq_msg_entry entry;
    ssize_t ret;
    put(&shared->stamp, now_ns(CLOCK_MONOTONIC));
    do {
        ret = counts ? fi_write(s->ep, s->memory, 8, fi_mr_desc(s->mr), s->other, shared->address, shared->key, NULL)
                     : fi_send(s->ep, s->memory, 8, NULL, s->other, NULL);
        if (ret == -FI_EAGAIN)
            (void)fi_cq_read(s->cq, NULL, 0);
    } while (ret == -FI_EAGAIN);
    must(counts ? "fi_write" : "fi_send", ret);
    while ((ret = fi_cq_read(s->cq, &entry, 1)) == -FI_EAGAIN)
        ;
    must("fi_cq_read", ret);
}

static void sender_run(struct side *s, uint64_t count)
{
    unsigned seed = 1;
    for (uint64_t round = 1; round <= WARM + count; round++) {
        await(&shared->ready, round);
        if (idle_s && round > WARM)
            sleep(idle_s);
        else
            usleep(100 + (unsigned)rand_r(&seed) % 2900);
        send_once(s);
    }
    await(&shared->ready, WARM + count + 1);
}

/* ---- */

static int run(int number, const char *provider, uint64_t count)
{
    static struct side s;
    pin(number);
    if (!side_find(&s, provider) || !side_open(&s, number))
        return SKIPPED;
    if (number == 0 && counts) {
        shared->key = fi_mr_key(s.mr);
        shared->address = s.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)s.memory : 0;
    }
    side_join(&s, number);
    if (number == 0 && idle_s)
        sleeper_run_idle(&s);
    else if (number == 0)
        sleeper_run(&s, count);
    else
        sender_run(&s, count);
    struct fid *fids[] = {
        &s.ep->fid,    s.mr ? &s.mr->fid : NULL, s.cntr ? &s.cntr->fid : NULL, &s.cq->fid, &s.av->fid, &s.domain->fid,
        &s.fabric->fid};
    for (size_t i = 0; i < sizeof(fids) / sizeof(fids[0]); i++)
        must("fi_close", fids[i] ? fi_close(fids[i]) : 0);
    return 0;
}

int main(int argc, char **argv)
{
    const bool idle = argc == 5 && strcmp(argv[3], "idle") == 0;
    uint64_t count = idle ? 1 : argc == 4 ? strtoull(argv[3], NULL, 10) : COUNT;
    counts = argc >= 3 && strcmp(argv[2], "cntr") == 0;
    idle_s = idle ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
    if (argc < 3 || (argc > 4 && !idle) || (!counts && strcmp(argv[2], "cq") != 0) || count == 0 || count > COUNT_MAX ||
        (idle && (idle_s == 0 || idle_s > IDLE_MAX_S))) {
        fprintf(stderr, "usage: wakeup PROVIDER cq|cntr [COUNT, at most %d | idle SECONDS, at most %d]\n", COUNT_MAX,
                IDLE_MAX_S);
        return 2;
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    fflush(stdout);
    pid_t pid = fork(); /* before libfabric is touched: each process has its own */
    if (pid < 0)
        return 1;
    if (pid == 0)
        return run(1, argv[1], count);
    int result = run(0, argv[1], count), status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 1;
    return result ? result : WEXITSTATUS(status);
}
