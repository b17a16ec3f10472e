/*
 * A cancelled thread (pthread_cancel) does not end within a call of the provider, except in a blocking one while it
 * sleeps (wait_test.c): elsewhere it would leave locks held.
 *
 * Here a thread has cancelled itself before it begins, so the first cancellation point would end it. It makes every
 * call off the data path, and the parts of the data path that make system calls: first contact, a death, logging. It
 * must complete; the main thread then uses the same objects, and would hang at a lock that was left held.
 */
#include "pair.h"

#include <pthread.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_eq.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 1 << 20, HEAP = 4 << 20, TURNS = 200000000 };

static unsigned char out[LARGE], in[LARGE];

static const struct pair_config safe = {.wait_obj = FI_WAIT_FD, .threading = FI_THREAD_SAFE, .counters = true};
static const struct pair_config automatic = {
    .wait_obj = FI_WAIT_UNSPEC, .progress = FI_PROGRESS_AUTO, .counters = true};

/* The objects that the thread uses, and its last step. */
struct job {
    struct pair p;
    struct pair_config config;
    struct fi_info *info;
    void *heap;
    unsigned char child[PAIR_ADDR_MAX]; /* name of another process's endpoint */
    pid_t pid;                          /* that process, which the thread kills */
    volatile int line;                  /* the line of its last step */
    bool failed;
};

#define STEP(j, condition)                                                                                             \
    do {                                                                                                               \
        (j)->line = __LINE__;                                                                                          \
        if (!(condition)) {                                                                                            \
            (j)->failed = true;                                                                                        \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

static void both_progress(struct job *j)
{
    (void)fi_cq_read(j->p.a.cq, NULL, 0);
    (void)fi_cq_read(j->p.b.cq, NULL, 0);
}

/* Posts until it is no longer -FI_EAGAIN. */
#define POST(j, call)                                                                                                  \
    do {                                                                                                               \
        ssize_t posted;                                                                                                \
        while ((posted = (call)) == -FI_EAGAIN)                                                                        \
            both_progress(j);                                                                                          \
        STEP(j, posted == 0);                                                                                          \
    } while (0)

/* Returns whether a completion without an error comes. */
static bool comes(struct job *j, struct side *s)
{
    struct fi_cq_tagged_entry e;
    ssize_t ret = -FI_EAGAIN;
    for (int i = 0; i < TURNS && (ret = fi_cq_read(s->cq, &e, 1)) == -FI_EAGAIN; i++)
        both_progress(j);
    return ret == 1;
}

static void open_side(struct job *j, struct side *s)
{
    static const uint64_t kinds[CNTR_KINDS] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = j->config.wait_obj};
    struct fi_cntr_attr cntr = {.wait_obj = j->config.wait_obj};
    size_t len = sizeof(s->name);
    STEP(j, fi_fabric(j->info->fabric_attr, &s->fabric, NULL) == 0);
    STEP(j, fi_domain(s->fabric, j->info, &s->domain, NULL) == 0);
    STEP(j, fi_av_open(s->domain, &av, &s->av, NULL) == 0);
    STEP(j, fi_cq_open(s->domain, &cq, &s->cq, NULL) == 0);
    STEP(j, fi_endpoint(s->domain, j->info, &s->ep, NULL) == 0);
    STEP(j, fi_ep_bind(s->ep, &s->av->fid, 0) == 0);
    STEP(j, fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
    for (int i = 0; i < CNTR_KINDS; i++) {
        STEP(j, fi_cntr_open(s->domain, &cntr, &s->cntr[i], NULL) == 0);
        STEP(j, fi_ep_bind(s->ep, &s->cntr[i]->fid, kinds[i]) == 0);
    }
    STEP(j, fi_enable(s->ep) == 0);
    STEP(j, fi_getname(&s->ep->fid, s->name, &len) == 0);
}

static void open_both(struct job *j)
{
    open_side(j, &j->p.a);
    if (!j->failed)
        open_side(j, &j->p.b);
    if (j->failed)
        return;
    STEP(j, fi_av_insert(j->p.a.av, j->p.b.name, 1, &j->p.a.other, 0, NULL) == 1);
    STEP(j, fi_av_insert(j->p.b.av, j->p.a.name, 1, &j->p.b.other, 0, NULL) == 1);
}

static void messages(struct job *j)
{
    const size_t lens[] = {8, 5000, LARGE};
    for (size_t i = 0; i < 3; i++) {
        POST(j, fi_trecv(j->p.b.ep, in, lens[i], NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
        POST(j, fi_tsend(j->p.a.ep, out, lens[i], NULL, j->p.a.other, 1, NULL));
        STEP(j, comes(j, &j->p.a));
        STEP(j, comes(j, &j->p.b));
    }
    POST(j, fi_trecv(j->p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, in));
    STEP(j, fi_cancel(&j->p.b.ep->fid, in) == 0);
    struct fi_cq_err_entry error = {.err_data_size = 0};
    while (fi_cq_readerr(j->p.b.cq, &error, 0) == -FI_EAGAIN)
        both_progress(j);
    STEP(j, error.err == FI_ECANCELED);
}

/* RMA and atomics on memory of every kind of the other endpoint; and a key that nobody has. */
static void regions(struct job *j)
{
    static unsigned char data[65536];
    const uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    void *const at[] = {j->heap, data, NULL};
    const size_t len[] = {HEAP, sizeof(data), SIZE_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct fid_mr *mr;
        STEP(j, fi_mr_reg(j->p.b.domain, at[i], len[i], access, 0, 7 + i, 0, &mr, NULL) == 0);
        const uint64_t offset = at[i] ? 0 : (uintptr_t)data;
        POST(j, fi_write(j->p.a.ep, out, 100, NULL, j->p.a.other, offset, fi_mr_key(mr), NULL));
        STEP(j, comes(j, &j->p.a));
        POST(j, fi_read(j->p.a.ep, in, 50000, NULL, j->p.a.other, offset, fi_mr_key(mr), NULL));
        STEP(j, comes(j, &j->p.a));
        POST(j, fi_atomic(j->p.a.ep, out, 10, NULL, j->p.a.other, offset, fi_mr_key(mr), FI_UINT64, FI_SUM, NULL));
        STEP(j, comes(j, &j->p.a));
        STEP(j, fi_close(&mr->fid) == 0);
    }
    POST(j, fi_write(j->p.a.ep, out, 100, NULL, j->p.a.other, 0, 99, NULL));
    STEP(j, !comes(j, &j->p.a));
    struct fi_cq_err_entry error = {.err_data_size = 0};
    STEP(j, fi_cq_readerr(j->p.a.cq, &error, 0) == 1);
}

static void queues(struct job *j)
{
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
    struct fi_eq_entry entry = {.data = 1};
    struct fid_eq *eq;
    uint32_t event;
    struct fid *cq = &j->p.b.cq->fid;
    STEP(j, fi_eq_open(j->p.a.fabric, &attr, &eq, NULL) == 0);
    STEP(j, fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0) == sizeof(entry));
    STEP(j, fi_eq_read(eq, &event, &entry, sizeof(entry), 0) == sizeof(entry));
    STEP(j, fi_close(&eq->fid) == 0);
    (void)fi_trywait(j->p.b.fabric, &cq, 1);
    STEP(j, fi_cq_signal(j->p.b.cq) == 0);
    STEP(j, fi_cntr_add(j->p.b.cntr[CNTR_READ], 1) == 0);
    (void)fi_cntr_read(j->p.b.cntr[CNTR_READ]);
    both_progress(j);
}

/* A process dies while a large message to it is pending. One message to it went before, one is refused afterwards. */
static void death(struct job *j)
{
    struct side *a = &j->p.a;
    fi_addr_t to;
    struct fi_cq_tagged_entry e;
    ssize_t ret = -FI_EAGAIN;
    STEP(j, fi_av_insert(a->av, j->child, 1, &to, 0, NULL) == 1);
    POST(j, fi_tsend(a->ep, out, 8, NULL, to, 1, NULL));
    STEP(j, comes(j, a));
    POST(j, fi_tsend(a->ep, out, LARGE, NULL, to, 2, NULL));
    STEP(j, kill(j->pid, SIGKILL) == 0);
    for (int i = 0; i < TURNS && ret == -FI_EAGAIN; i++)
        ret = fi_cq_read(a->cq, &e, 1);
    struct fi_cq_err_entry error = {.err_data_size = 0};
    STEP(j, ret == -FI_EAVAIL && fi_cq_readerr(a->cq, &error, 0) == 1);
    STEP(j, fi_tsend(a->ep, out, 8, NULL, to, 1, NULL) < 0);
    STEP(j, fi_av_remove(a->av, &to, 1, 0) == 0);
}

static void close_side(struct job *j, struct side *s)
{
    STEP(j, fi_close(&s->ep->fid) == 0);
    for (int i = 0; i < CNTR_KINDS; i++)
        STEP(j, fi_close(&s->cntr[i]->fid) == 0);
    STEP(j, fi_close(&s->cq->fid) == 0);
    STEP(j, fi_close(&s->av->fid) == 0);
    STEP(j, fi_close(&s->domain->fid) == 0);
    STEP(j, fi_close(&s->fabric->fid) == 0);
}

static void close_both(struct job *j)
{
    close_side(j, &j->p.a);
    if (!j->failed)
        close_side(j, &j->p.b);
}

static void *cancelled(void *arg)
{
    static void (*const parts[])(struct job *) = {open_both, messages, regions, queues, death, close_both};
    struct job *j = arg;
    (void)pthread_cancel(pthread_self());
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !j->failed; i++)
        parts[i](j);
    j->line = j->failed ? j->line : 0;
    pthread_testcancel();
    return NULL; /* it was not cancelled: then this test shows nothing */
}

/* Forks a process with an endpoint, before this process has any object. */
static pid_t other_process(const struct pair_config *config, unsigned char *name)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static struct side s;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        side_open(&s, config);
        if (write(fds[1], s.name, pair_addr()) != (ssize_t)pair_addr())
            _exit(1);
        for (;;)
            (void)fi_cq_read(s.cq, NULL, 0);
    }
    assert_int_equal(read(fds[0], name, pair_addr()), pair_addr());
    close(fds[0]);
    close(fds[1]);
    return pid;
}

static void run(const struct pair_config *config)
{
    struct job j = {.config = *config};
    struct fi_info *hints = pair_hints(config);
    pthread_t thread;
    void *result;
    j.pid = other_process(config, j.child);
    assert_int_equal(fi_getinfo(PAIR_API, NULL, NULL, 0, hints, &j.info), 0);
    fi_freeinfo(hints);
    j.heap = mmap(NULL, HEAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(j.heap, MAP_FAILED);
    memset(j.heap, 1, HEAP);
    assert_int_equal(pthread_create(&thread, NULL, cancelled, &j), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    if (j.line)
        fail_msg("the thread %s at line %d", j.failed ? "met an error" : "ended", j.line);
    assert_int_equal(waitpid(j.pid, NULL, 0), j.pid);
    munmap(j.heap, HEAP);
    fi_freeinfo(j.info);
}

/* Process-wide state, its locks included, still works for other objects. */
static void all_is_as_before(const struct pair_config *config)
{
    struct pair p;
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    pair_open(&p, config);
    assert_int_equal(fi_mr_reg(p.b.domain, in, LARGE, FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL), 0);
    PAIR_POST(&p, fi_write(p.a.ep, out, 100, NULL, p.a.other, 0, fi_mr_key(mr), NULL));
    pair_await(&p, &p.a, &e, NULL);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
    pid_t pid = fork(); /* the handlers take locks, too */
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_cancelled_thread_ends_in_no_call(void **state)
{
    (void)state;
    alarm(100); /* ends a hang at a lock that was left held */
    run(&safe);
    all_is_as_before(&safe);
    run(&automatic);
    all_is_as_before(&automatic);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancelled_thread_ends_in_no_call),
    };
    pair_fill(out, sizeof(out), 1);
    return cmocka_run_group_tests_name("prov/cancel", tests, NULL, NULL);
}
