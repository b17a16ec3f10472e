/* FI_RMA_EVENT: peers' accesses to registered memory are counted at the target, and wake sleepers on the counter. */
#include "pair.h"

#include <pthread.h>

enum { KEY = 5, BYTES = 5000 };

static unsigned char remote[BYTES], local[BYTES];
static const uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;

static struct fid_cntr *cntr_new(struct side *s)
{
    struct fid_cntr *cntr;
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    assert_int_equal(fi_cntr_open(s->domain, &attr, &cntr, NULL), 0);
    return cntr;
}

static struct fid_mr *mr_new(struct side *s)
{
    struct fid_mr *mr;
    assert_int_equal(fi_mr_reg(s->domain, remote, BYTES, both, 0, KEY, FI_RMA_EVENT, &mr, NULL), 0);
    return mr;
}

static void a_region_counts_writes_and_reads_apart(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true, .selective = true});
    struct fid_mr *mr = mr_new(&p.b);
    struct fid_cntr *writes = cntr_new(&p.b), *reads = cntr_new(&p.b);
    PAIR_POST(&p, fi_inject_write(p.a.ep, local, 8, p.a.other, 0, KEY)); /* not counted: no counter is bound yet */
    pair_await_cntr(&p, p.a.cntr[CNTR_WRITE], 1);
    assert_int_equal(fi_mr_bind(mr, &writes->fid, FI_REMOTE_WRITE), 0);
    assert_int_equal(fi_mr_bind(mr, &reads->fid, FI_REMOTE_READ), 0);
    assert_int_equal(fi_mr_bind(mr, &reads->fid, FI_REMOTE_READ), -FI_EINVAL);
    assert_int_equal(fi_mr_bind(mr, &reads->fid, FI_SEND), -FI_EBADFLAGS);
    assert_int_equal(fi_close(&writes->fid), -FI_EBUSY);
    for (uint64_t i = 1; i <= 10; i++) {
        PAIR_POST(&p, fi_inject_write(p.a.ep, local, 8, p.a.other, i, KEY));
        pair_await_cntr(&p, writes, i);
        PAIR_POST(&p, fi_write(p.a.ep, local, BYTES, NULL, p.a.other, 0, KEY, NULL));
        pair_await_cntr(&p, writes, i + 1);
        PAIR_POST(&p, fi_read(p.a.ep, local, BYTES - i, NULL, p.a.other, 0, KEY, NULL));
        pair_await_cntr(&p, reads, i);
        assert_int_equal(fi_cntr_set(writes, i), 0);
        assert_int_equal(fi_cntr_read(writes), i);
    }
    assert_int_equal(fi_cntr_add(writes, 7), 0);
    assert_int_equal(fi_cntr_read(writes), 17);
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_close(&writes->fid), 0);
    assert_int_equal(fi_close(&reads->fid), 0);
    pair_close(&p);
}

static void an_endpoint_counts_what_comes_by_way_of_it(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true, .selective = true});
    struct fid_mr *mr = mr_new(&p.b);
    struct fid_cntr *cntr = cntr_new(&p.b);
    assert_int_equal(fi_ep_bind(p.b.ep, &cntr->fid, 0), 0);    /* counts nothing */
    assert_int_equal(fi_ep_bind(p.b.ep, &cntr->fid, both), 0); /* after it was enabled */
    for (uint64_t i = 1; i <= 10; i++) {
        PAIR_POST(&p, fi_inject_write(p.a.ep, local, 8, p.a.other, i, KEY));
        PAIR_POST(&p, fi_read(p.a.ep, local, 8, NULL, p.a.other, 0, KEY, NULL));
        pair_await_cntr(&p, cntr, 2 * i);
    }
    PAIR_POST(&p, fi_write(p.a.ep, local, 8, NULL, p.a.other, BYTES, KEY, NULL)); /* out of bounds */
    struct fi_cq_err_entry error;
    pair_await_error(&p, &p.a, &error);
    assert_int_equal(fi_cntr_read(cntr), 20);
    assert_int_equal(fi_close(&mr->fid), 0);
    side_close_ep(&p.b);
    assert_int_equal(fi_close(&cntr->fid), 0);
    side_open_ep(&p.b, &(struct pair_config){.counters = true, .selective = true});
    pair_close(&p);
}

struct waiter {
    struct fid_cntr *cntr;
    uint64_t threshold;
    int ret;
};

static void *wait_for_it(void *arg)
{
    struct waiter *w = arg;
    w->ret = fi_cntr_wait(w->cntr, w->threshold, PAIR_PATIENCE_MS);
    return NULL;
}

/* True if the wait sleeps and does not poll: the whole process uses next to no processor time while it waits in
 * vain. */
static bool sleeps(struct fid_cntr *cntr, uint64_t threshold)
{
    uint64_t cpu = pair_cpu_ns();
    assert_int_equal(fi_cntr_wait(cntr, threshold, 1000), -FI_ETIMEDOUT);
    return pair_cpu_ns() - cpu < 10000000;
}

static void a_sleeper_is_woken_by_a_store(const struct pair_config *config)
{
    struct pair p;
    pair_open(&p, config);
    struct fid_mr *mr = mr_new(&p.b);
    struct fid_cntr *cntr = cntr_new(&p.b);
    assert_int_equal(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE), 0);
    for (uint64_t i = 1; i <= 40; i++) {
        struct waiter w = {.cntr = cntr, .threshold = i};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &w), 0);
        for (uint64_t until = pair_now_ns() + i % 2 * i * 100000 + i * 500; pair_now_ns() < until;)
            ;
        PAIR_POST(&p, fi_inject_write(p.a.ep, local, 8, p.a.other, 0, KEY));
        pthread_join(thread, NULL);
        assert_int_equal(w.ret, 0);
    }
    PAIR_TRY(sleeps(cntr, 41));
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_close(&cntr->fid), 0);
    pair_close(&p);
}

static void who_sleeps_on_a_count_is_woken(void **state)
{
    (void)state;
    a_sleeper_is_woken_by_a_store(&(struct pair_config){.threading = FI_THREAD_SAFE});
}

static void who_sleeps_on_a_count_is_woken_with_automatic_progress(void **state)
{
    (void)state;
    a_sleeper_is_woken_by_a_store(&(struct pair_config){.threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_AUTO});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_region_counts_writes_and_reads_apart),
        cmocka_unit_test(an_endpoint_counts_what_comes_by_way_of_it),
        cmocka_unit_test(who_sleeps_on_a_count_is_woken),
        cmocka_unit_test(who_sleeps_on_a_count_is_woken_with_automatic_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
