/* Opening and closing in every order, under traffic, with threads. */
#include "pair.h"

#include <pthread.h>
#include <sched.h>

static unsigned char out[200000], in[200000];

static void nothing_is_closed_while_it_is_in_use(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    assert_int_equal(fi_close(&p.a.fabric->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&p.a.domain->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&p.a.av->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&p.a.cq->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&p.a.cntr[0]->fid), -FI_EBUSY);
    pair_close(&p);
}

static void an_endpoint_that_is_not_enabled_refuses(void **state)
{
    struct pair p;
    struct fid_ep *ep;
    unsigned char name[PAIR_ADDR_MAX];
    size_t len = 3;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_endpoint(p.a.domain, p.a.info, &ep, NULL), 0);
    assert_int_equal(fi_enable(ep), -FI_ENOAV);
    assert_int_equal(fi_ep_bind(ep, &p.a.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(ep, &p.a.av->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_enable(ep), -FI_ENOCQ);
    assert_int_equal(fi_ep_bind(ep, &p.a.cq->fid, FI_TRANSMIT), 0);
    assert_int_equal(fi_enable(ep), -FI_ENOCQ);
    assert_int_equal(fi_ep_bind(ep, &p.b.cq->fid, FI_RECV), -FI_EINVAL); /* of another domain */
    assert_int_equal(fi_ep_bind(ep, &p.a.cq->fid, FI_RECV), 0);
    assert_int_equal(fi_send(ep, out, 1, NULL, p.a.other, NULL), -FI_EOPBADSTATE);
    assert_int_equal(fi_recv(ep, in, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPBADSTATE);
    assert_int_equal(fi_getname(&ep->fid, name, &len), -FI_ETOOSMALL); /* an endpoint has a name before it is enabled */
    assert_int_equal(len, pair_addr());
    assert_int_equal(fi_enable(ep), 0);
    assert_int_equal(fi_enable(ep), 0);
    assert_int_equal(fi_shutdown(ep, 0), -FI_ENOSYS);
    assert_int_equal(fi_close(&ep->fid), 0);
    pair_close(&p);
}

static void other_kinds_of_objects_are_refused(void **state)
{
    struct pair p;
    struct fid_ep *ep;
    struct fid_stx *stx;
    struct fid_poll *set;
    struct fi_poll_attr poll_attr = {0};
    struct fi_cq_attr cq_attr = {.wait_obj = FI_WAIT_MUTEX_COND};
    struct fid_cq *cq;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_scalable_ep(p.a.domain, p.a.info, &ep, NULL), -FI_ENOSYS);
    assert_int_equal(fi_stx_context(p.a.domain, p.a.info->tx_attr, &stx, NULL), -FI_ENOSYS);
    assert_int_equal(fi_srx_context(p.a.domain, p.a.info->rx_attr, &ep, NULL), -FI_ENOSYS);
    assert_int_equal(fi_poll_open(p.a.domain, &poll_attr, &set), -FI_ENOSYS);
    assert_int_equal(fi_cq_open(p.a.domain, &cq_attr, &cq, NULL), -FI_ENOSYS);
    p.a.info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
    assert_int_equal(fi_endpoint(p.a.domain, p.a.info, &ep, NULL), -FI_ENOSYS);
    p.a.info->ep_attr->tx_ctx_cnt = 1;
    pair_close(&p);
}

static void a_message_survives_its_sender(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    PAIR_POST(&p, fi_tinject(p.a.ep, "last words", 10, p.a.other, 1));
    side_close_ep(&p.a);
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
    pair_await(&p, &p.b, &e, NULL);
    assert_memory_equal(in, "last words", 10);
    pair_close(&p);
}

/* The message has been sent, although its delivery is not known yet: closing need not wait. */
static void closing_does_not_wait_for_a_message_that_is_out(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){.tx_op_flags = FI_DELIVERY_COMPLETE});
    PAIR_POST(&p, fi_tsend(p.a.ep, "on its way", 11, NULL, p.a.other, 1, NULL));
    uint64_t begin = pair_now_ns();
    side_close_ep(&p.a);
    assert_true(pair_now_ns() - begin < 2000000000);
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
    pair_await(&p, &p.b, &e, NULL);
    assert_string_equal(in, "on its way");
    pair_close(&p);
}

/* A rendezvous needs a receive. The program cannot post one for its own message while it closes the endpoint. */
static void closing_does_not_wait_for_a_message_to_the_endpoint_itself(void **state)
{
    struct pair p;
    fi_addr_t self;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_av_insert(p.a.av, p.a.name, 1, &self, 0, NULL), 1);
    PAIR_POST(&p, fi_tsend(p.a.ep, out, sizeof(out), NULL, self, 1, NULL));
    const uint64_t begin = pair_now_ns();
    side_close_ep(&p.a);
    assert_in_range(pair_now_ns() - begin, 0, UINT64_C(2000000000));
    pair_close(&p);
}

static void a_send_to_a_closed_endpoint_fails(void **state)
{
    static const size_t lens[] = {8, 100000};
    (void)state;
    for (int used = 0; used < 2; used++) {
        for (int i = 0; i < 2; i++) {
            struct pair p;
            struct fi_cq_tagged_entry e;
            struct fi_cq_err_entry err = {0};
            ssize_t ret;
            pair_open(&p, &(struct pair_config){.tx_op_flags = FI_DELIVERY_COMPLETE});
            if (used) {
                assert_int_equal(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
                PAIR_POST(&p, fi_inject(p.a.ep, out, 8, p.a.other));
                pair_await(&p, &p.b, &e, NULL);
            }
            side_close_ep(&p.b);
            while ((ret = fi_tsend(p.a.ep, out, lens[i], NULL, p.a.other, 1, &p)) == -FI_EAGAIN)
                (void)fi_cq_read(p.a.cq, NULL, 0);
            if (ret == 0) {
                pair_await_error(&p, &p.a, &err);
                ret = -err.err;
                assert_ptr_equal(err.op_context, &p);
            }
            assert_true(ret == -FI_ESHUTDOWN || ret == -FI_ECONNREFUSED || ret == -FI_ECONNRESET);
            pair_close(&p);
        }
    }
}

/* Both ends close and come back while messages are on their way; what arrives is whole. */
static void endpoints_close_and_reopen_under_traffic(void **state)
{
    struct pair p;
    const struct pair_config config = {0};
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err;
    (void)state;
    pair_open(&p, &config);
    pair_fill(out, sizeof(out), 1);
    for (int round = 0; round < 40; round++) {
        size_t len = round % 4 == 3 ? 30000 : 300;
        for (int i = 0; i < 100; i++) {
            (void)fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL);
            (void)fi_tsend(p.a.ep, out, len, NULL, p.a.other, 1, NULL);
            ssize_t ret = fi_cq_read(p.b.cq, &e, 1);
            if (ret == 1 && e.flags & FI_RECV && e.op_context == NULL)
                pair_check(in, e.len, 1);
            else if (ret == -FI_EAVAIL)
                assert_int_equal(fi_cq_readerr(p.b.cq, &err, 0), 1);
            if (fi_cq_read(p.a.cq, &e, 1) == -FI_EAVAIL)
                assert_int_equal(fi_cq_readerr(p.a.cq, &err, 0), 1);
        }
        struct side *s = round % 2 ? &p.a : &p.b, *other = round % 2 ? &p.b : &p.a;
        for (int i = 0; i < 1000; i++) { /* a large message needs progress of both: let it end */
            while (fi_cq_read(p.a.cq, &e, 1) == 1 || fi_cq_read(p.b.cq, &e, 1) == 1)
                ;
        }
        side_close_ep(s);
        side_open_ep(s, &config);
        assert_int_equal(fi_av_remove(other->av, &other->other, 1, 0), 0);
        assert_int_equal(fi_av_insert(other->av, s->name, 1, &other->other, 0, NULL), 1);
    }
    pair_close(&p);
}

/* Two threads share an endpoint pair: one sends and reads, the other receives and reads. */
struct worker {
    struct side *side;
    int sends;
    int count;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct fi_cq_tagged_entry e;
    uint64_t value;
    for (int i = 0; i < w->count; i++) {
        struct fid_ep *ep = w->side->ep;
        value = (uint64_t)i;
        if (w->sends) {
            while (fi_tinject(ep, &value, sizeof(value), w->side->other, 1) == -FI_EAGAIN)
                sched_yield();
        } else {
            while (fi_trecv(ep, &value, sizeof(value), NULL, w->side->other, 1, 0, NULL) == -FI_EAGAIN)
                sched_yield();
            while (fi_cq_sread(w->side->cq, &e, 1, NULL, -1) != 1)
                ;
            assert_int_equal(value, i);
        }
    }
    return NULL;
}

static void threads_share_an_endpoint(void **state)
{
    (void)state;
    for (int automatic = 0; automatic < 2; automatic++) {
        struct pair p;
        pthread_t thread[4];
        pair_open(&p, &(struct pair_config){.threading = FI_THREAD_SAFE,
                                            .wait_obj = FI_WAIT_UNSPEC,
                                            .progress = automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL});
        struct worker w[4] = {{&p.a, 1, 3000}, {&p.a, 0, 3000}, {&p.b, 1, 3000}, {&p.b, 0, 3000}};
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(thread[i], NULL);
        pair_close(&p);
    }
}

/* Registers and releases memory, and inserts and removes addresses, until told to stop. */
struct registrar {
    struct side *side;
    uint64_t first_key;
    bool *stop;
    uint64_t rounds;
};

static void *register_much(void *arg)
{
    enum { REGIONS = 100 };
    struct registrar *r = arg;
    static char memory[REGIONS];
    struct fid_mr *mr[REGIONS];
    fi_addr_t extra;
    for (; !__atomic_load_n(r->stop, __ATOMIC_RELAXED); r->rounds++) {
        for (uint64_t i = 0; i < REGIONS; i++)
            assert_int_equal(
                fi_mr_reg(r->side->domain, &memory[i], 1, FI_REMOTE_READ, 0, r->first_key + i, 0, &mr[i], NULL), 0);
        assert_int_equal(fi_av_insert(r->side->av, r->side->name, 1, &extra, 0, NULL), 1);
        assert_int_equal(fi_av_remove(r->side->av, &extra, 1, 0), 0);
        for (int i = 0; i < REGIONS; i++)
            assert_int_equal(fi_close(&mr[i]->fid), 0);
    }
    return NULL;
}

/* FI_THREAD_DOMAIN is about data transfer calls alone. MPICH registers windows in one thread while another one is in
 * fi_cq_read(), which looks regions up for its peers. */
static void control_calls_come_from_any_thread(void **state)
{
    (void)state;
    enum { WRITES = 60000, THREADS = 2, KEY = 7 };
    struct pair p;
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    pthread_t thread[THREADS];
    bool stop = false;
    uint64_t target = 0;
    setenv("FI_UNIMEM_COPY", "0", 1); /* the target's progress executes each write */
    setenv("FI_UNIMEM_ADOPT", "0", 1);
    pair_open(&p, &(struct pair_config){.threading = FI_THREAD_DOMAIN});
    unsetenv("FI_UNIMEM_COPY");
    unsetenv("FI_UNIMEM_ADOPT");
    struct registrar r[THREADS] = {{&p.b, 1000, &stop, 0}, {&p.b, 2000, &stop, 0}};
    assert_int_equal(fi_mr_reg(p.b.domain, &target, sizeof(target), FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, register_much, &r[i]), 0);
    const uint64_t end = pair_now_ns() + UINT64_C(1500000000);
    for (uint64_t i = 1; i <= WRITES && pair_now_ns() < end; i++) {
        PAIR_POST(&p, fi_write(p.a.ep, &i, sizeof(i), NULL, p.a.other, 0, KEY, NULL));
        pair_await(&p, &p.a, &e, NULL);
        assert_int_equal(target, i);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(r[i].rounds > 0);
    }
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_closed_while_it_is_in_use),
        cmocka_unit_test(an_endpoint_that_is_not_enabled_refuses),
        cmocka_unit_test(other_kinds_of_objects_are_refused),
        cmocka_unit_test(a_message_survives_its_sender),
        cmocka_unit_test(closing_does_not_wait_for_a_message_that_is_out),
        cmocka_unit_test(closing_does_not_wait_for_a_message_to_the_endpoint_itself),
        cmocka_unit_test(a_send_to_a_closed_endpoint_fails),
        cmocka_unit_test(endpoints_close_and_reopen_under_traffic),
        cmocka_unit_test(threads_share_an_endpoint),
        cmocka_unit_test(control_calls_come_from_any_thread),
    };
    return cmocka_run_group_tests_name("prov/life", tests, NULL, NULL);
}
