/*
 * Sleeping over a machine that cannot wake: blocking calls and the fd of FI_WAIT_FD look by the clock, and miss
 * nothing. The provider is one that is built for this (tests/prov/unwoken).
 */
#include "pair.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static unsigned char out[100000], in[100000];

struct sender {
    struct pair *pair;
    size_t len;
};

/* Sends when the reader sleeps. Automatic or not, this side makes progress by its own calls. */
static void *send_later(void *arg)
{
    const struct sender *s = arg;
    struct side *a = &s->pair->a;
    struct fi_cq_tagged_entry e;
    usleep(100000);
    while (fi_tsend(a->ep, out, s->len, NULL, a->other, 1, NULL) == -FI_EAGAIN)
        fi_cq_read(a->cq, NULL, 0);
    while (fi_cq_sread(a->cq, &e, 1, NULL, -1) != 1)
        ;
    return NULL;
}

static void run_beside(struct sender *s, pthread_t *thread)
{
    assert_int_equal(pthread_create(thread, NULL, send_later, s), 0);
}

/* Eager and by rendezvous: the reader has to find the announcement, its peer the answer. */
static void a_blocked_reader_finds_what_comes(void **state)
{
    static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
    static const size_t lens[] = {8, sizeof(out)};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct pair p;
        struct fi_cq_tagged_entry e;
        pthread_t thread;
        struct sender s = {.pair = &p, .len = lens[i % 2]};
        pair_open(&p, &(struct pair_config){.progress = kinds[i / 2]});
        pair_fill(out, sizeof(out), (unsigned)i);
        assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
        run_beside(&s, &thread);
        assert_int_equal(fi_cq_sread(p.b.cq, &e, 1, NULL, -1), 1);
        assert_int_equal(e.len, s.len);
        pair_check(in, s.len, (unsigned)i);
        pthread_join(thread, NULL);
        pair_close(&p);
    }
}

static void a_blocked_wait_for_a_counter_finds_what_comes(void **state)
{
    struct pair p;
    pthread_t thread;
    struct sender s = {.pair = &p, .len = 8};
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
    run_beside(&s, &thread);
    assert_int_equal(fi_cntr_wait(p.b.cntr[CNTR_RECV], 1, -1), 0);
    pthread_join(thread, NULL);
    pair_close(&p);
}

/* True if a blocked call sleeps: one that only polled would use a processor all of the time. */
static bool sleeps(struct side *s)
{
    struct fi_cq_tagged_entry e;
    uint64_t begin = pair_now_ns(), cpu = pair_cpu_ns();
    assert_int_equal(fi_cq_sread(s->cq, &e, 1, NULL, 1000), -FI_EAGAIN);
    cpu = pair_cpu_ns() - cpu;
    begin = pair_now_ns() - begin;
    printf("blocked for %llu ms: %llu us of a processor\n", (unsigned long long)begin / 1000000,
           (unsigned long long)cpu / 1000);
    assert_true(begin >= 999000000);
    return cpu < begin / 20;
}

static void a_blocked_call_sleeps_between_its_looks(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.wait_obj = FI_WAIT_UNSPEC});
    PAIR_TRY(sleeps(&p.b));
    pair_close(&p);
}

/* Waits until something has come. Each time that the fd may be waited on, it must become readable. */
static void await_by_fd(struct side *s, int fd, struct fi_cq_tagged_entry *e)
{
    struct fid *fids[] = {&s->cq->fid};
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    const uint64_t end = pair_now_ns() + PAIR_PATIENCE_MS * UINT64_C(1000000);
    ssize_t got;
    while ((got = fi_cq_read(s->cq, e, 1)) == -FI_EAGAIN) {
        assert_true(pair_now_ns() < end);
        if (fi_trywait(s->fabric, fids, 1) == 0)
            assert_int_equal(poll(&pfd, 1, PAIR_PATIENCE_MS), 1);
    }
    assert_int_equal(got, 1);
}

static void the_wait_fd_becomes_readable_in_time(void **state)
{
    static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct pair p;
        struct fi_cq_tagged_entry e;
        pthread_t thread;
        struct sender s = {.pair = &p, .len = sizeof(out)};
        int fd = -1;
        pair_open(&p, &(struct pair_config){.wait_obj = FI_WAIT_FD, .progress = kinds[i]});
        assert_int_equal(fi_control(&p.b.cq->fid, FI_GETWAIT, &fd), 0);
        assert_true(fd >= 0);
        assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
        run_beside(&s, &thread);
        await_by_fd(&p.b, fd, &e);
        assert_int_equal(e.len, sizeof(out));
        pthread_join(thread, NULL);
        pair_close(&p);
    }
}

int main(void)
{
    alarm(PAIR_PATIENCE_MS / 1000 * 3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blocked_reader_finds_what_comes),
        cmocka_unit_test(a_blocked_wait_for_a_counter_finds_what_comes),
        cmocka_unit_test(a_blocked_call_sleeps_between_its_looks),
        cmocka_unit_test(the_wait_fd_becomes_readable_in_time),
    };
    return cmocka_run_group_tests_name("prov/unwoken", tests, NULL, NULL);
}
