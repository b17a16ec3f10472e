/*
 * The calls of an OpenSHMEM library over libfabric, in its order: one endpoint for everything, opened for RMA, atomics
 * and events with automatic progress and offset addressing; counters bound after it was enabled; an untouched heap and
 * static data, then registered and bound to one counter of remote writes. quiet waits for the counters of puts and
 * gets; wait_until sleeps on the counter of remote writes. Four processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PES = 4, HEAP = 64 << 20, DATA_KEY = 0, HEAP_KEY = 1, BIG = 3 << 20, POLLS = 50 };

/* Symmetric: at the same offsets in every process. */
static struct {
    long sync, flag, words[PES], ack;
    unsigned char block[5000];
} data;
static unsigned char *heap;
static struct fid_mr *data_mr;
static struct fid_cntr *target; /* remote writes */

/* ---- opening ---- */

static void info_choose(struct team *t)
{
    struct fi_info hints = {.caps = FI_RMA | FI_ATOMIC | FI_RMA_EVENT, .addr_format = FI_FORMAT_UNSPEC};
    struct fi_fabric_attr fabric = {.prov_name = (char *)t->config.provider};
    struct fi_domain_attr domain = {.data_progress = FI_PROGRESS_AUTO,
                                    .resource_mgmt = FI_RM_ENABLED,
                                    .threading = FI_THREAD_DOMAIN,
                                    .mr_key_size = 1};
    struct fi_tx_attr tx = {.op_flags = FI_DELIVERY_COMPLETE, .inject_size = sizeof(long double)};
    struct fi_ep_attr ep = {.type = FI_EP_RDM};
    hints.fabric_attr = &fabric;
    hints.domain_attr = &domain;
    hints.tx_attr = &tx;
    hints.ep_attr = &ep;
    TEAM_CALL(t, fi_getinfo(FI_VERSION(1, 5), NULL, NULL, 0, &hints, &t->info));
    TEAM_DEMAND(t, t->info->domain_attr->mr_mode == 0 && t->info->mode == 0, "mr_mode and mode 0 are wanted");
    TEAM_DEMAND(t, t->info->tx_attr->inject_size >= 16 && t->info->ep_attr->max_msg_size >= BIG,
                "limits are too small");
}

/* Checks exactly what is used later, as a library does. */
static void matrix_check(struct team *t)
{
    static const enum fi_op base[] = {FI_SUM, FI_BAND, FI_BOR, FI_BXOR, FI_ATOMIC_WRITE, FI_MIN, FI_MAX, FI_PROD},
                            fetch[] = {FI_SUM, FI_BAND, FI_BOR, FI_BXOR, FI_ATOMIC_READ, FI_ATOMIC_WRITE},
                            compare[] = {FI_CSWAP,    FI_CSWAP_NE, FI_CSWAP_LE, FI_CSWAP_LT,
                                         FI_CSWAP_GE, FI_CSWAP_GT, FI_MSWAP};
    size_t count;
    for (enum fi_datatype d = FI_INT8; d <= FI_UINT64; d++) {
        for (size_t i = 0; i < sizeof(base) / sizeof(base[0]); i++)
            TEAM_CALL(t, fi_atomicvalid(t->ep, d, base[i], &count));
        for (size_t i = 0; i < sizeof(fetch) / sizeof(fetch[0]); i++)
            TEAM_CALL(t, fi_fetch_atomicvalid(t->ep, d, fetch[i], &count));
        for (size_t i = 0; i < sizeof(compare) / sizeof(compare[0]); i++)
            TEAM_CALL(t, fi_compare_atomicvalid(t->ep, d, compare[i], &count));
    }
    for (enum fi_datatype d = FI_FLOAT; d <= FI_LONG_DOUBLE_COMPLEX; d++)
        TEAM_CALL(t, fi_atomicvalid(t->ep, d, FI_SUM, &count));
}

static void memory_register(struct team *t)
{
    struct fi_cntr_attr cntr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    const uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    heap = mmap(NULL, HEAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TEAM_DEMAND(t, heap != MAP_FAILED, "no memory");
    TEAM_CALL(t, fi_cntr_open(t->domain, &cntr, &target, NULL));
    TEAM_CALL(t, fi_mr_reg(t->domain, heap, HEAP, access, 0, HEAP_KEY, 0, &t->mr, NULL));
    TEAM_CALL(t, fi_mr_reg(t->domain, &data, sizeof(data), access, 0, DATA_KEY, 0, &data_mr, NULL));
    TEAM_CALL(t, fi_mr_bind(t->mr, &target->fid, FI_REMOTE_WRITE));
    TEAM_CALL(t, fi_mr_bind(data_mr, &target->fid, FI_REMOTE_WRITE));
    t->remote = target; /* closed after the regions */
}

static void open_all(struct team *t)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {0};
    struct fi_cntr_attr cntr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    info_choose(t);
    TEAM_CALL(t, fi_fabric(t->info->fabric_attr, &t->fabric, NULL));
    TEAM_CALL(t, fi_domain(t->fabric, t->info, &t->domain, NULL));
    TEAM_CALL(t, fi_av_open(t->domain, &av, &t->av, NULL));
    t->info->ep_attr->tx_ctx_cnt = 0;
    t->info->caps = FI_RMA | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_WRITE | FI_READ | FI_RECV | FI_RMA_EVENT;
    t->info->tx_attr->op_flags = 0;
    t->info->tx_attr->caps = FI_RMA | FI_ATOMIC;
    t->info->rx_attr->caps = t->info->caps;
    TEAM_CALL(t, fi_endpoint(t->domain, t->info, &t->ep, NULL));
    TEAM_CALL(t, fi_ep_bind(t->ep, &t->av->fid, 0));
    TEAM_CALL(t, fi_cq_open(t->domain, &cq, &t->cq, NULL));
    TEAM_CALL(t, fi_ep_bind(t->ep, &t->cq->fid, FI_SELECTIVE_COMPLETION | FI_TRANSMIT | FI_RECV));
    TEAM_CALL(t, fi_enable(t->ep));
    memory_register(t);
    TEAM_CALL(t, fi_cntr_open(t->domain, &cntr, &t->puts, NULL));
    TEAM_CALL(t, fi_cntr_open(t->domain, &cntr, &t->gets, NULL));
    TEAM_CALL(t, fi_ep_bind(t->ep, &t->puts->fid, FI_WRITE));
    TEAM_CALL(t, fi_ep_bind(t->ep, &t->gets->fid, FI_READ));
    matrix_check(t);
}

/* ---- the library's operations; an address of this process names the same place in the others ---- */

static uint64_t where(const void *p, uint64_t *key_p)
{
    const unsigned char *c = p;
    bool in_heap = c >= heap && c < heap + HEAP;
    *key_p = in_heap ? HEAP_KEY : DATA_KEY;
    return (uint64_t)(c - (in_heap ? heap : (const unsigned char *)&data));
}

static void drain(struct team *t, struct fid_cntr *cntr, uint64_t posted)
{
    for (int i = 0; i < POLLS; i++) {
        uint64_t done = fi_cntr_read(cntr);
        TEAM_DEMAND(t, fi_cntr_readerr(cntr) == 0, "an operation failed");
        if (done >= posted)
            return;
    }
    TEAM_CALL(t, fi_cntr_wait(cntr, posted, -1));
}

static void quiet(struct team *t)
{
    drain(t, t->puts, t->put_count);
    drain(t, t->gets, t->get_count);
}

static void put_scalar(struct team *t, void *to, const void *from, size_t len, int pe)
{
    uint64_t key, at = where(to, &key);
    t->put_count++;
    TEAM_POST(t, fi_inject_write(t->ep, from, len, t->peer[pe], at, key));
}

static void put_large(struct team *t, void *to, const void *from, size_t len, int pe)
{
    uint64_t key, at = where(to, &key);
    t->put_count++;
    TEAM_POST(t, fi_write(t->ep, from, len, NULL, t->peer[pe], at, key, NULL));
}

/* Puts from a bounce buffer, which the completion gives back. */
static void put_bounced(struct team *t, void *to, const void *from, size_t len, int pe)
{
    static unsigned char bounce[sizeof(data.block)];
    struct fi_cq_entry e;
    uint64_t key, at = where(to, &key);
    const struct iovec iov = {.iov_base = bounce, .iov_len = len};
    const struct fi_rma_iov rma = {.addr = at, .len = len, .key = key};
    const struct fi_msg_rma m = {
        .msg_iov = &iov, .iov_count = 1, .addr = t->peer[pe], .rma_iov = &rma, .rma_iov_count = 1, .context = bounce};
    memcpy(bounce, from, len);
    t->put_count++;
    TEAM_POST(t, fi_writemsg(t->ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE));
    ssize_t ret;
    while ((ret = fi_cq_read(t->cq, &e, 1)) == -FI_EAGAIN)
        ;
    TEAM_DEMAND(t, ret == 1 && e.op_context == bounce, "no completion of a put that asked for one: %zd", ret);
}

static void get(struct team *t, void *to, const void *from, size_t len, int pe)
{
    uint64_t key, at = where(from, &key);
    t->get_count++;
    TEAM_POST(t, fi_read(t->ep, to, len, NULL, t->peer[pe], at, key, NULL));
    drain(t, t->gets, t->get_count);
}

static void add(struct team *t, long *to, long operand, int pe)
{
    uint64_t key, at = where(to, &key);
    t->put_count++;
    TEAM_POST(t, fi_inject_atomic(t->ep, &operand, 1, t->peer[pe], at, key, FI_INT64, FI_SUM));
}

static long fetch(struct team *t, long *to, enum fi_op op, long operand, int pe)
{
    long before = -1;
    uint64_t key, at = where(to, &key);
    t->get_count++;
    TEAM_POST(t, fi_fetch_atomic(t->ep, &operand, 1, NULL, &before, NULL, t->peer[pe], at, key, FI_INT64, op, NULL));
    drain(t, t->gets, t->get_count);
    return before;
}

/* Fetches by an atomic read with FI_INJECT, and without the operand, which is not read. */
static long fetch_nbi(struct team *t, long *from, int pe)
{
    long value = -1;
    uint64_t key, at = where(from, &key);
    const struct fi_ioc none = {.addr = NULL, .count = 1};
    struct fi_ioc result = {.addr = &value, .count = 1};
    const struct fi_rma_ioc rma = {.addr = at, .count = 1, .key = key};
    const struct fi_msg_atomic m = {.msg_iov = &none,
                                    .iov_count = 1,
                                    .addr = t->peer[pe],
                                    .rma_iov = &rma,
                                    .rma_iov_count = 1,
                                    .datatype = FI_INT64,
                                    .op = FI_ATOMIC_READ};
    t->get_count++;
    TEAM_POST(t, fi_fetch_atomicmsg(t->ep, &m, &result, NULL, 1, FI_INJECT));
    drain(t, t->gets, t->get_count);
    return value;
}

static long swap_if(struct team *t, long *to, enum fi_op op, long compare, long operand, int pe)
{
    long before = -1;
    uint64_t key, at = where(to, &key);
    t->get_count++;
    TEAM_POST(t, fi_compare_atomic(t->ep, &operand, 1, NULL, &compare, NULL, &before, NULL, t->peer[pe], at, key,
                                   FI_INT64, op, NULL));
    drain(t, t->gets, t->get_count);
    return before;
}

/* Sleeps until another process writes here. Checks the value between reading the counter and waiting for the next
 * count.
 */
static void wait_until(struct team *t, const long *var, long value)
{
    while (__atomic_load_n(var, __ATOMIC_ACQUIRE) != value) {
        uint64_t seen = fi_cntr_read(target);
        if (__atomic_load_n(var, __ATOMIC_ACQUIRE) == value)
            return;
        TEAM_CALL(t, fi_cntr_wait(target, seen + 1, -1));
    }
}

/* All report to the first process, which clears its word by a put to itself and answers. */
static void barrier_all(struct team *t)
{
    long zero = 0, one = 1;
    quiet(t);
    if (t->rank == 0) {
        wait_until(t, &data.sync, t->size - 1);
        put_scalar(t, &data.sync, &zero, sizeof(zero), 0);
        wait_until(t, &data.sync, 0);
        for (int pe = 1; pe < t->size; pe++)
            put_scalar(t, &data.sync, &one, sizeof(one), pe);
    } else {
        add(t, &data.sync, 1, 0);
        wait_until(t, &data.sync, 1);
        put_scalar(t, &data.sync, &zero, sizeof(zero), t->rank);
        wait_until(t, &data.sync, 0);
    }
}

/* ---- what is tested ---- */

/*
 * Returns a number of rounds: a fifth of count over a board, whose model takes five times as long. Each round is some
 * ten wake-ups one after the other; where many programs want a processor, each of them takes milliseconds.
 */
static long many(long count)
{
    const char *machine = getenv("FI_UNIMEM_MACHINE");
    return machine && strcmp(machine, "board") == 0 ? count / 5 : count;
}

static void barriers(struct team *t)
{
    for (int i = 0; i < many(300); i++) {
        long mine = i + 1;
        put_scalar(t, &data.words[t->rank], &mine, sizeof(mine), (t->rank + 1) % t->size);
        barrier_all(t);
        TEAM_DEMAND(t, data.words[(t->rank + t->size - 1) % t->size] == mine, "a put before a barrier came after it");
        barrier_all(t);
    }
}

static void fill(unsigned char *p, size_t len, int seed)
{
    for (size_t i = 0; i < len; i++)
        p[i] = (unsigned char)(i * 7 + (i >> 9) + (unsigned)seed);
}

/* Data, then a flag after a fence: a process that sees the flag sees the data. In the heap and in static data. */
static void ring(struct team *t)
{
    static unsigned char out[BIG], expected[BIG], back[BIG];
    int right = (t->rank + 1) % t->size, left = (t->rank + t->size - 1) % t->size;
    for (long i = 1; i <= 20; i++) {
        fill(out, BIG, t->rank * 100 + (int)i);
        fill(expected, BIG, left * 100 + (int)i);
        put_large(t, heap + 77, out, BIG, right);
        put_bounced(t, data.block, out, sizeof(data.block), right);
        quiet(t);
        put_scalar(t, &data.flag, &i, sizeof(i), right);
        wait_until(t, &data.flag, i);
        TEAM_DEMAND(t, memcmp(heap + 77, expected, BIG) == 0, "the flag came before the heap's data");
        TEAM_DEMAND(t, memcmp(data.block, expected, sizeof(data.block)) == 0, "the flag came before static data");
        get(t, back, heap + 77, BIG, right);
        TEAM_DEMAND(t, memcmp(back, out, BIG) == 0, "what is got is not what was put");
        barrier_all(t);
    }
}

static void atomics(struct team *t)
{
    long *counter = (long *)(heap + (32 << 20)), *last = counter + 1, drawn = 0;
    const long each = many(2000);
    for (long i = 0; i < each; i++) {
        add(t, &data.words[0], 1, 0);
        drawn += fetch(t, counter, FI_SUM, 1, 1);
        long seen = fetch_nbi(t, last, 2);
        while (swap_if(t, last, FI_CSWAP, seen, seen + 1, 2) != seen)
            seen = fetch_nbi(t, last, 2);
    }
    add(t, counter + 2, drawn, 1); /* tickets: each drawn once */
    (void)swap_if(t, counter + 3, FI_MSWAP, 1L << t->rank, -1L, 3);
    barrier_all(t);
    long all = each * t->size;
    if (t->rank == 0)
        TEAM_DEMAND(t, data.words[0] == all && data.words[1] == 0, "an add is missing: %ld", data.words[0]);
    if (t->rank == 1)
        TEAM_DEMAND(t, counter[0] == all && counter[2] == all * (all - 1) / 2, "a ticket is missing or there twice");
    if (t->rank == 2)
        TEAM_DEMAND(t, *last == all, "a swap is missing: %ld", *last);
    if (t->rank == 3)
        TEAM_DEMAND(t, counter[3] == (1L << t->size) - 1, "a masked swap is missing: %ld", counter[3]);
    barrier_all(t);
}

/* Puts data, then its signal, which is an atomic of its own. */
static void signals(struct team *t)
{
    int right = (t->rank + 1) % t->size;
    for (long i = 1; i <= many(200); i++) {
        put_scalar(t, heap + 8, &i, sizeof(i), right);
        drain(t, t->puts, t->put_count);
        uint64_t key, at = where(&data.ack, &key);
        const struct fi_ioc from = {.addr = &i, .count = 1};
        const struct fi_rma_ioc to = {.addr = at, .count = 1, .key = key};
        const struct fi_msg_atomic m = {.msg_iov = &from,
                                        .iov_count = 1,
                                        .addr = t->peer[right],
                                        .rma_iov = &to,
                                        .rma_iov_count = 1,
                                        .datatype = FI_UINT64,
                                        .op = FI_ATOMIC_WRITE};
        t->put_count++;
        TEAM_POST(t, fi_atomicmsg(t->ep, &m, FI_DELIVERY_COMPLETE | FI_INJECT));
        wait_until(t, &data.ack, i);
        TEAM_DEMAND(t, *(long *)(heap + 8) == i, "the signal came before its data");
        barrier_all(t);
    }
}

/* A fetching atomic also wakes a process that sleeps on the memory: by a window (heap), and by its owner (static data).
 */
static void fetchers(struct team *t)
{
    long *flags[] = {&data.flag, (long *)(heap + (16 << 20))};
    int right = (t->rank + 1) % t->size;
    for (int i = 0; i < 2; i++) {
        for (long round = 0; round < many(100); round++) {
            (void)fetch(t, flags[i], FI_SUM, 1, right);
            wait_until(t, flags[i], 3 * round + 1);
            barrier_all(t);
            (void)swap_if(t, flags[i], FI_CSWAP, 3 * round + 1, 3 * round + 2, right);
            wait_until(t, flags[i], 3 * round + 2);
            barrier_all(t);
            (void)fetch(t, flags[i], FI_ATOMIC_WRITE, 3 * round + 3, right);
            wait_until(t, flags[i], 3 * round + 3);
            barrier_all(t);
        }
    }
}

typedef void (*test_body)(struct team *);

static void run(struct team *t, void *arg)
{
    test_body body = *(test_body *)arg;
    body(t);
    barrier_all(t);
    quiet(t);
    team_barrier(t);
    TEAM_CALL(t, fi_close(&data_mr->fid));
}

static void run_team(test_body body)
{
    const struct team_config config = {.provider = "unimem", .size = PES, .timeout = 100, .open = open_all};
    assert_int_equal(team_run(&config, NULL, run, &body), 0);
}

static void barriers_of_adds_and_sleepers(void **state)
{
    (void)state;
    run_team(barriers);
}

static void puts_are_there_when_their_flag_is(void **state)
{
    (void)state;
    run_team(ring);
}

static void atomics_are_all_there(void **state)
{
    (void)state;
    run_team(atomics);
}

static void signals_follow_their_data(void **state)
{
    (void)state;
    run_team(signals);
}

static void atomics_that_fetch_wake_who_waits(void **state)
{
    (void)state;
    run_team(fetchers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_of_adds_and_sleepers),
        cmocka_unit_test(puts_are_there_when_their_flag_is),
        cmocka_unit_test(atomics_are_all_there),
        cmocka_unit_test(signals_follow_their_data),
        cmocka_unit_test(atomics_that_fetch_wake_who_waits),
    };
    return cmocka_run_group_tests_name("prov/shmem like", tests, NULL, NULL);
}
