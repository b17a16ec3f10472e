/*
 * A forked child cannot use its parent's objects: every call returns -FI_EOPBADSTATE, closing is harmless, the parent
 * goes on as before. What the child opens itself works.
 */
#include "pair.h"

#include <pthread.h>
#include <rdma/fi_atomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY = 1 << 16, FORKS = 100, CHILD_SECONDS = 60 };

/* In a child: a check that fails ends it with a message. */
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "the child, line %d: %s\n", __LINE__, #what);                                              \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define REFUSED(call) CHECK((call) == -FI_EOPBADSTATE)

static unsigned char out[100000], in[100000];

struct family {
    struct pair p;
    struct fid_eq *eq;
    struct fid_mr *mr;
    unsigned char *memory; /* separate memory: what a parent had adopted is not adopted again */
};

static void family_open(struct family *f, const struct pair_config *config)
{
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
    f->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->memory != MAP_FAILED);
    pair_open(&f->p, config);
    assert_int_equal(fi_eq_open(f->p.a.fabric, &eq, &f->eq, NULL), 0);
    assert_int_equal(
        fi_mr_reg(f->p.a.domain, f->memory, MEMORY, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &f->mr, NULL), 0);
}

static void family_close(struct family *f)
{
    assert_int_equal(fi_close(&f->mr->fid), 0);
    assert_int_equal(fi_close(&f->eq->fid), 0);
    pair_close(&f->p);
    munmap(f->memory, MEMORY);
}

/* A child's stores to memory that its parent registered stay in the child. */
static void a_child_writes_into_memory_of_its_own(void **state)
{
    enum { LEN = 1 << 20 };
    struct pair p;
    struct fid_mr *mr, *beside;
    int status = -1;
    (void)state;
    unsigned char *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, LEN);
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_mr_reg(p.a.domain, memory, LEN / 2, FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct pair own;
        alarm(CHILD_SECONDS);
        memset(memory, 2, LEN);
        pair_open(&own, &(struct pair_config){0});
        CHECK(fi_mr_reg(own.a.domain, memory, LEN, FI_REMOTE_WRITE, 0, 8, 0, &beside, NULL) == 0);
        memset(memory, 3, LEN);
        CHECK(fi_close(&beside->fid) == 0);
        for (size_t i = LEN / 2; i < LEN; i++)
            CHECK(memory[i] == 3);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (size_t i = 0; i < LEN; i++)
        assert_int_equal(memory[i], 1);
    assert_int_equal(fi_close(&mr->fid), 0);
    for (size_t i = 0; i < LEN; i++)
        assert_int_equal(memory[i], 1);
    pair_close(&p);
    munmap(memory, LEN);
}

/* Messages both ways, a put and a get. */
static void family_works(struct family *f, unsigned seed)
{
    struct pair *p = &f->p;
    struct side *sides[2] = {&p->a, &p->b};
    struct fi_cq_tagged_entry e;
    const uint64_t key = fi_mr_key(f->mr);
    pair_fill(out, sizeof(out), seed);
    for (int i = 0; i < 2; i++) {
        struct side *from = sides[i], *to = sides[1 - i];
        for (size_t len = 8; len <= sizeof(out); len = len == 8 ? sizeof(out) : len + 1) {
            memset(in, 0, sizeof(in));
            PAIR_POST(p, fi_trecv(to->ep, in, len, NULL, FI_ADDR_UNSPEC, seed, 0, NULL));
            PAIR_POST(p, fi_tsend(from->ep, out, len, NULL, from->other, seed, NULL));
            pair_await(p, to, &e, NULL);
            pair_check(in, len, seed);
            pair_await(p, from, &e, NULL);
        }
    }
    PAIR_POST(p, fi_write(p->b.ep, out, MEMORY, NULL, p->b.other, 0, key, NULL));
    pair_await(p, &p->b, &e, NULL);
    pair_check(f->memory, MEMORY, seed);
    PAIR_POST(p, fi_read(p->b.ep, in, MEMORY, NULL, p->b.other, 0, key, NULL));
    pair_await(p, &p->b, &e, NULL);
    pair_check(in, MEMORY, seed);
}

static void child_succeeded(pid_t pid)
{
    int status = -1;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- in the child ---- */

static void child_moves_nothing(struct side *s)
{
    struct iovec iov = {.iov_base = out, .iov_len = 8};
    struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1};
    struct fi_msg_tagged tmsg = {.msg_iov = &iov, .iov_count = 1};
    struct fi_msg_rma rma = {.msg_iov = &iov, .iov_count = 1};
    size_t count;
    REFUSED(fi_send(s->ep, out, 8, NULL, s->other, NULL));
    REFUSED(fi_sendv(s->ep, &iov, NULL, 1, s->other, NULL));
    REFUSED(fi_sendmsg(s->ep, &msg, 0));
    REFUSED(fi_inject(s->ep, out, 8, s->other));
    REFUSED(fi_senddata(s->ep, out, 8, NULL, 1, s->other, NULL));
    REFUSED(fi_recv(s->ep, in, 8, NULL, s->other, NULL));
    REFUSED(fi_recvmsg(s->ep, &msg, 0));
    REFUSED(fi_tsend(s->ep, out, sizeof(out), NULL, s->other, 1, NULL));
    REFUSED(fi_tsendmsg(s->ep, &tmsg, 0));
    REFUSED(fi_tinject(s->ep, out, 8, s->other, 1));
    REFUSED(fi_tinjectdata(s->ep, out, 8, 1, s->other, 1));
    REFUSED(fi_trecv(s->ep, in, 8, NULL, s->other, 1, 0, NULL));
    REFUSED(fi_trecvmsg(s->ep, &tmsg, FI_PEEK));
    REFUSED(fi_write(s->ep, out, 8, NULL, s->other, 0, 7, NULL));
    REFUSED(fi_read(s->ep, in, 8, NULL, s->other, 0, 7, NULL));
    REFUSED(fi_inject_write(s->ep, out, 8, s->other, 0, 7));
    REFUSED(fi_writemsg(s->ep, &rma, 0));
    REFUSED(fi_atomic(s->ep, out, 1, NULL, s->other, 0, 7, FI_UINT64, FI_SUM, NULL));
    REFUSED(fi_inject_atomic(s->ep, out, 1, s->other, 0, 7, FI_UINT64, FI_SUM));
    REFUSED(fi_fetch_atomic(s->ep, out, 1, NULL, in, NULL, s->other, 0, 7, FI_UINT64, FI_SUM, NULL));
    REFUSED(fi_compare_atomic(s->ep, out, 1, NULL, in, NULL, in, NULL, s->other, 0, 7, FI_UINT64, FI_CSWAP, NULL));
    REFUSED(fi_atomicvalid(s->ep, FI_UINT64, FI_SUM, &count));
    REFUSED(fi_cancel(&s->ep->fid, NULL));
    REFUSED(fi_enable(s->ep));
}

static void child_asks_nothing(struct family *f, struct side *s)
{
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry error = {.err = 0};
    struct fi_eq_entry event;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
    struct fid *fids[] = {&s->cq->fid};
    struct fid_mr *mr;
    struct fid_cq *cq;
    struct fid_domain *domain;
    unsigned char name[PAIR_ADDR_MAX];
    size_t len = sizeof(name);
    fi_addr_t addr;
    uint32_t what;
    REFUSED(fi_cq_read(s->cq, &e, 1));
    REFUSED(fi_cq_readfrom(s->cq, &e, 1, &addr));
    REFUSED(fi_cq_readerr(s->cq, &error, 0));
    REFUSED(fi_cq_sread(s->cq, &e, 1, NULL, -1));
    REFUSED(fi_cq_signal(s->cq));
    REFUSED(fi_trywait(s->fabric, fids, 1));
    CHECK(fi_cntr_read(s->cntr[CNTR_SEND]) == 0);
    CHECK(fi_cntr_readerr(s->cntr[CNTR_SEND]) == 1);
    REFUSED(fi_cntr_add(s->cntr[CNTR_SEND], 1));
    REFUSED(fi_cntr_wait(s->cntr[CNTR_SEND], 1, -1));
    REFUSED(fi_eq_read(f->eq, &what, &event, sizeof(event), 0));
    REFUSED(fi_eq_sread(f->eq, &what, &event, sizeof(event), -1, 0));
    REFUSED(fi_av_insert(s->av, s->name, 1, &addr, 0, NULL));
    REFUSED(fi_av_remove(s->av, &s->other, 1, 0));
    REFUSED(fi_av_lookup(s->av, s->other, name, &len));
    REFUSED(fi_getname(&s->ep->fid, name, &len));
    REFUSED(fi_mr_reg(s->domain, out, 8, FI_REMOTE_READ, 0, 9, 0, &mr, NULL));
    REFUSED(fi_mr_bind(f->mr, &s->cntr[CNTR_SEND]->fid, FI_REMOTE_WRITE));
    REFUSED(fi_cq_open(s->domain, &cq_attr, &cq, NULL));
    REFUSED(fi_domain(s->fabric, s->info, &domain, NULL));
}

/* Closes in an order that would be refused in the parent. */
static void child_closes(struct family *f)
{
    struct side *sides[2] = {&f->p.a, &f->p.b};
    for (int i = 0; i < 2; i++) {
        CHECK(fi_close(&sides[i]->fabric->fid) == 0);
        CHECK(fi_close(&sides[i]->domain->fid) == 0);
        CHECK(fi_close(&sides[i]->av->fid) == 0);
        CHECK(fi_close(&sides[i]->cq->fid) == 0);
        for (int k = 0; k < CNTR_KINDS && sides[i]->cntr[k]; k++)
            CHECK(fi_close(&sides[i]->cntr[k]->fid) == 0);
        CHECK(fi_close(&sides[i]->ep->fid) == 0);
    }
    CHECK(fi_close(&f->mr->fid) == 0);
    CHECK(fi_close(&f->eq->fid) == 0);
}

/* The child's objects cannot be combined with the parent's. */
static void child_mixes_nothing(struct family *theirs, struct side *own)
{
    struct fid *fids[] = {&theirs->p.a.cq->fid};
    struct fid_ep *ep;
    REFUSED(fi_trywait(own->fabric, fids, 1));
    CHECK(fi_endpoint(own->domain, own->info, &ep, NULL) == 0);
    CHECK(fi_ep_bind(ep, &theirs->p.a.cq->fid, FI_TRANSMIT) == -FI_EINVAL);
    CHECK(fi_ep_bind(ep, &theirs->p.a.av->fid, 0) == -FI_EINVAL);
    CHECK(fi_ep_bind(ep, &theirs->eq->fid, 0) == -FI_EINVAL);
    CHECK(fi_close(&ep->fid) == 0);
}

/* ---- tests ---- */

static void a_child_is_refused_and_closes(void **state)
{
    struct family f;
    (void)state;
    family_open(&f, &(struct pair_config){.counters = true, .wait_obj = FI_WAIT_FD});
    PAIR_POST(&f.p, fi_trecv(f.p.a.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 99, 0, NULL)); /* stays posted */
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CHILD_SECONDS);
        child_moves_nothing(&f.p.a);
        child_asks_nothing(&f, &f.p.a);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            child_moves_nothing(&f.p.b);
            child_closes(&f);
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        child_closes(&f);
        _exit(0);
    }
    child_succeeded(pid);
    family_works(&f, 1);
    family_close(&f);
}

static void a_child_opens_its_own(void **state)
{
    struct family f;
    (void)state;
    family_open(&f, &(struct pair_config){0});
    family_works(&f, 2);
    pid_t pid = fork();
    if (pid == 0) {
        struct family own;
        alarm(CHILD_SECONDS);
        family_open(&own, &(struct pair_config){.wait_obj = FI_WAIT_FD}); /* a failed check ends it with a status */
        family_works(&own, 3);
        child_mixes_nothing(&f, &own.p.a);
        child_closes(&f);
        family_works(&own, 4);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            child_moves_nothing(&own.p.a);
            _exit(0);
        }
        child_succeeded(grandchild);
        family_close(&own);
        _exit(0);
    }
    child_succeeded(pid);
    family_works(&f, 5);
    family_close(&f);
}

/* A child's endpoint is one more peer of its parent's. */
static void a_child_talks_to_its_parent(void **state)
{
    struct family f;
    struct fi_cq_tagged_entry e;
    (void)state;
    family_open(&f, &(struct pair_config){0});
    PAIR_POST(&f.p, fi_trecv(f.p.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, 5, 0, NULL));
    pid_t pid = fork();
    if (pid == 0) {
        struct side own;
        fi_addr_t parent;
        ssize_t ret;
        alarm(CHILD_SECONDS);
        side_open(&own, &(struct pair_config){0});
        CHECK(fi_av_insert(own.av, f.p.a.name, 1, &parent, 0, NULL) == 1);
        while ((ret = fi_tsend(own.ep, "a child", 8, NULL, parent, 5, NULL)) == -FI_EAGAIN)
            (void)fi_cq_read(own.cq, NULL, 0);
        CHECK(ret == 0);
        while ((ret = fi_cq_read(own.cq, &e, 1)) == -FI_EAGAIN)
            ;
        CHECK(ret == 1);
        side_close(&own);
        _exit(0);
    }
    pair_await(&f.p, &f.p.a, &e, NULL);
    assert_string_equal(in, "a child");
    child_succeeded(pid);
    family_close(&f);
}

static bool busy_ends;

/* Registers, opens and closes over and over: some lock is held at nearly every moment. */
static void *be_busy(void *arg)
{
    struct family *f = arg;
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_NONE};
    struct fid_mr *mr;
    struct fid_eq *eq;
    while (!__atomic_load_n(&busy_ends, __ATOMIC_RELAXED)) {
        assert_int_equal(fi_mr_reg(f->p.a.domain, out, 4096, FI_REMOTE_READ, 0, 8, 0, &mr, NULL), 0);
        assert_int_equal(fi_eq_open(f->p.a.fabric, &attr, &eq, NULL), 0);
        (void)fi_cq_read(f->p.a.cq, NULL, 0);
        assert_int_equal(fi_close(&eq->fid), 0);
        assert_int_equal(fi_close(&mr->fid), 0);
    }
    return NULL;
}

static void another_thread_may_be_at_work(void **state)
{
    struct family f;
    pthread_t busy;
    (void)state;
    family_open(
        &f, &(struct pair_config){
                .counters = true, .wait_obj = FI_WAIT_FD, .threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_AUTO});
    assert_int_equal(pthread_create(&busy, NULL, be_busy, &f), 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(CHILD_SECONDS);
            child_moves_nothing(&f.p.a);
            child_asks_nothing(&f, &f.p.a);
            child_closes(&f);
            if (i % 10 == 0) {
                struct family own;
                family_open(&own, &(struct pair_config){0});
                family_works(&own, 6);
                family_close(&own);
            }
            _exit(0);
        }
        child_succeeded(pid);
    }
    __atomic_store_n(&busy_ends, true, __ATOMIC_RELAXED);
    pthread_join(busy, NULL);
    family_works(&f, 7);
    family_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_writes_into_memory_of_its_own),
        cmocka_unit_test(a_child_is_refused_and_closes),
        cmocka_unit_test(a_child_opens_its_own),
        cmocka_unit_test(a_child_talks_to_its_parent),
        cmocka_unit_test(another_thread_may_be_at_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
