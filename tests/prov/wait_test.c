/* Blocking calls wake whenever their event comes, and use next to no processor time meanwhile. */
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

static unsigned char out[100000], in[100000];
static int blocked_ms = 400; /* duration of a blocked call that is measured; ./check --long makes it longer */

struct sender {
    struct side *side;
    unsigned after_ms;
    size_t len;
    int signal;
};

static void *send_later(void *arg)
{
    struct sender *s = arg;
    struct fi_cq_tagged_entry e;
    usleep(s->after_ms * 1000);
    if (s->signal) {
        fi_cq_signal(s->side->cq);
        return NULL;
    }
    while (fi_tsend(s->side->ep, out, s->len, NULL, s->side->other, 1, NULL) == -FI_EAGAIN)
        fi_cq_read(s->side->cq, NULL, 0);
    while (fi_cq_sread(s->side->cq, &e, 1, NULL, -1) != 1)
        ;
    return NULL;
}

static void a_blocked_reader_wakes_for_a_message_and_burns_no_core(void **state)
{
    static const size_t lens[] = {8, 10000, 50000, 100000};
    (void)state;
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        struct pair p;
        struct fi_cq_tagged_entry e;
        pthread_t thread;
        pair_open(&p, &(struct pair_config){.wait_obj = FI_WAIT_UNSPEC});
        struct sender s = {.side = &p.a, .after_ms = 400, .len = lens[i]};
        assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
        uint64_t begin = pair_now_ns(), cpu = pair_cpu_ns();
        assert_int_equal(fi_cq_sread(p.b.cq, &e, 1, NULL, 50), -FI_EAGAIN);
        assert_true(pair_now_ns() - begin >= 49000000);
        assert_int_equal(pthread_create(&thread, NULL, send_later, &s), 0);
        ssize_t ret = fi_cq_sread(p.b.cq, &e, 1, NULL, PAIR_PATIENCE_MS);
        cpu = pair_cpu_ns() - cpu;
        assert_int_equal(ret, 1);
        assert_int_equal(e.len, lens[i]);
        assert_true(cpu < 200000000); /* of more than 450 ms */
        pthread_join(thread, NULL);
        pair_close(&p);
    }
}

/* Returns the voluntary context switches of all threads of this process. */
static uint64_t switches(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)usage.ru_nvcsw;
}

/*
 * Sleep ends five times a second while there are peers to look after, for each of up to three threads. Two progress
 * threads that were started together wake up together: each wait for a lock that the other one holds counts again.
 */
enum { WAKEUPS_PER_S = 80 };

/* Blocks in both ways, prints the cost, and says whether that was at most a hundredth of a core and few wake-ups. */
static bool blocks_cheaply(struct side *s, uint64_t threshold, const char *when)
{
    struct fi_cq_tagged_entry e;
    uint64_t begin = pair_now_ns(), cpu = pair_cpu_ns(), slept = switches();
    assert_int_equal(fi_cq_sread(s->cq, &e, 1, NULL, blocked_ms), -FI_EAGAIN);
    assert_int_equal(fi_cntr_wait(s->cntr[CNTR_RECV], threshold, blocked_ms), -FI_ETIMEDOUT);
    slept = switches() - slept;
    cpu = pair_cpu_ns() - cpu;
    uint64_t ms = (pair_now_ns() - begin) / 1000000;
    printf("%s: blocked for %llu ms: %llu us of a processor, %llu wake-ups\n", when, (unsigned long long)ms,
           (unsigned long long)cpu / 1000, (unsigned long long)slept);
    return cpu < ms * 10000 && slept <= ms * WAKEUPS_PER_S / 1000 + 2;
}

/* A waiting process sleeps soon, its progress thread included, even if there are peers to check. */
static void expect_at_most_a_hundredth_of_a_core(const struct pair_config *config)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    pair_open(&p, config);
    PAIR_TRY(blocks_cheaply(&p.b, 1, "nobody is known"));
    /* from now on there is a peer to look after, and an active lane */
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
    PAIR_POST(&p, fi_tinject(p.a.ep, out, 8, p.a.other, 1));
    pair_await(&p, &p.b, &e, NULL);
    PAIR_TRY(blocks_cheaply(&p.b, 2, "a peer is known"));
    /* and now its death matters: an answer and a message from it alone are awaited */
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 2, 0, NULL), 0);
    PAIR_POST(&p, fi_tsend(p.b.ep, out, sizeof(out), NULL, p.b.other, 3, NULL));
    PAIR_TRY(blocks_cheaply(&p.b, 2, "operations are pending"));
    pair_close(&p);
}

static void a_blocked_call_takes_at_most_a_hundredth_of_a_core(void **state)
{
    (void)state;
    expect_at_most_a_hundredth_of_a_core(&(struct pair_config){.counters = true});
    expect_at_most_a_hundredth_of_a_core(&(struct pair_config){.counters = true, .threading = FI_THREAD_SAFE});
    expect_at_most_a_hundredth_of_a_core(&(struct pair_config){.counters = true, .progress = FI_PROGRESS_AUTO});
}

/* The same of all threads but the calling one. */
static uint64_t switches_of_others(void)
{
    struct rusage usage;
    const uint64_t all = switches();
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return all - (uint64_t)usage.ru_nvcsw;
}

enum { REFUSALS = 300 };

/*
 * A caller that repeats a refused call until it is accepted must not wake the progress threads each time: they would
 * take the processor from the peer that the caller waits for.
 */
static void a_refused_call_wakes_no_progress_thread(void **state)
{
    const struct iovec iov = {.iov_base = out, .iov_len = 8};
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){.progress = FI_PROGRESS_AUTO});
    PAIR_POST(&p, fi_tsend(p.a.ep, out, sizeof(out), NULL, p.a.other, 1, NULL)); /* pending until it is received */
    usleep(50000);
    const struct fi_msg_tagged fenced = {.msg_iov = &iov, .iov_count = 1, .addr = p.a.other, .tag = 2};
    uint64_t begin = pair_now_ns(), slept = switches_of_others();
    for (int i = 0; i < REFUSALS; i++) {
        assert_int_equal(fi_tsendmsg(p.a.ep, &fenced, FI_FENCE), -FI_EAGAIN);
        usleep(200); /* a progress thread that was woken goes to sleep again */
    }
    slept = switches_of_others() - slept;
    const uint64_t ms = (pair_now_ns() - begin) / 1000000;
    printf("%d refused calls in %llu ms: %llu wake-ups\n", REFUSALS, (unsigned long long)ms, (unsigned long long)slept);
    assert_true(slept <= ms * WAKEUPS_PER_S / 1000 + REFUSALS / 10);
    PAIR_POST(&p, fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL));
    pair_await(&p, &p.b, &e, NULL);
    pair_await(&p, &p.a, &e, NULL);
    pair_close(&p);
}

enum { ROUNDS = 3000, DELAYS_NS = 15000 };

static void receive_one(struct side *s, unsigned char *to)
{
    struct fi_cq_tagged_entry e;
    assert_int_equal(fi_trecv(s->ep, to, 8, NULL, s->other, 1, 0, NULL), 0);
    assert_int_equal(fi_cq_sread(s->cq, &e, 1, NULL, PAIR_PATIENCE_MS), 1);
}

static void *answer_late(void *arg)
{
    struct side *s = arg;
    static unsigned char buffer[8];
    for (unsigned i = 0; i < ROUNDS; i++) {
        receive_one(s, buffer);
        for (uint64_t until = pair_now_ns() + i * 37 % DELAYS_NS; pair_now_ns() < until;)
            ;
        while (fi_tinject(s->ep, out, 8, s->other, 1) == -FI_EAGAIN)
            fi_cq_read(s->cq, NULL, 0);
    }
    return NULL;
}

/* A message comes while the reader spins, as it goes to sleep, when it sleeps. One that is missed ends the test by its
 * timeout. (Over net a queue without a wait object may look by the clock: wait_none_test.c.) */
static void a_message_wakes_at_whatever_moment_it_comes(void **state)
{
    static const enum fi_progress kinds[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct pair p;
        pthread_t thread;
        pair_open(&p, &(struct pair_config){.progress = kinds[i],
                                            .wait_obj = pair_is_over_net() ? FI_WAIT_UNSPEC : FI_WAIT_NONE});
        pair_progress(&p);
        assert_int_equal(pthread_create(&thread, NULL, answer_late, &p.b), 0);
        for (unsigned k = 0; k < ROUNDS; k++) {
            while (fi_tinject(p.a.ep, out, 8, p.a.other, 1) == -FI_EAGAIN)
                fi_cq_read(p.a.cq, NULL, 0);
            receive_one(&p.a, in);
        }
        pthread_join(thread, NULL);
        pair_close(&p);
    }
}

static void a_signal_unblocks_a_reader(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    pthread_t thread;
    (void)state;
    pair_open(&p, &(struct pair_config){.wait_obj = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE});
    struct sender s = {.side = &p.b, .after_ms = 50, .signal = 1};
    uint64_t begin = pair_now_ns();
    assert_int_equal(pthread_create(&thread, NULL, send_later, &s), 0);
    assert_int_equal(fi_cq_sread(p.b.cq, &e, 1, NULL, PAIR_PATIENCE_MS), -FI_EAGAIN);
    assert_true(pair_now_ns() - begin < PAIR_PATIENCE_MS * 500000ull);
    pthread_join(thread, NULL);
    pair_close(&p);
}

static void ignore(int number)
{
    (void)number;
}

/* Programs treat any error of fi_cntr_wait as fatal. */
static void a_handled_signal_ends_no_wait_for_a_counter(void **state)
{
    struct pair p;
    const struct itimerval often = {.it_interval = {.tv_usec = 20000}, .it_value = {.tv_usec = 20000}}, never = {0};
    const struct sigaction handler = {.sa_handler = ignore}, usual = {.sa_handler = SIG_DFL};
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    sigaction(SIGALRM, &handler, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    const uint64_t begin = pair_now_ns();
    const int ret = fi_cntr_wait(p.b.cntr[CNTR_RECV], 1, 300);
    const uint64_t took = pair_now_ns() - begin;
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &usual, NULL);
    assert_int_equal(ret, -FI_ETIMEDOUT);
    assert_true(took >= UINT64_C(299000000));
    pair_close(&p);
}

static void *read_once(void *arg)
{
    struct fi_cq_tagged_entry e;
    const ssize_t ret = fi_cq_sread(((struct side *)arg)->cq, &e, 1, NULL, 50);
    return (void *)(intptr_t)ret;
}

static void a_small_stack_is_enough(void **state)
{
    struct pair p;
    pthread_t thread;
    pthread_attr_t attr;
    void *result;
    (void)state;
    pair_open(&p, &(struct pair_config){.wait_obj = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE});
    pthread_attr_init(&attr);
    const long least = sysconf(_SC_THREAD_STACK_MIN);
    assert_int_equal(pthread_attr_setstacksize(&attr, least > 32768 ? (size_t)least : 32768), 0);
    assert_int_equal(pthread_create(&thread, &attr, read_once, &p.b), 0);
    pthread_join(thread, &result);
    pthread_attr_destroy(&attr);
    assert_int_equal((intptr_t)result, -FI_EAGAIN);
    pair_close(&p);
}

enum { CANCELS = 60 };

static void *read_for_ever(void *arg)
{
    struct side *s = arg;
    struct fi_cq_tagged_entry e;
    for (;;)
        (void)fi_cq_sread(s->cq, &e, 1, NULL, -1);
    return NULL;
}

static void *wait_for_ever(void *arg)
{
    struct side *s = arg;
    (void)fi_cntr_wait(s->cntr[CNTR_READ], 1, -1);
    return NULL;
}

static void *wait_for_an_event(void *arg)
{
    struct fid_eq *eq = arg;
    struct fi_eq_entry entry;
    uint32_t event;
    (void)fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0);
    return NULL;
}

static void cancel(pthread_t thread)
{
    void *result;
    assert_int_equal(pthread_cancel(thread), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
}

/* A lock that was left held ends the test by its alarm. */
static void a_cancelled_thread_leaves_no_lock_held(void **state)
{
    struct pair p;
    struct fid_eq *eq;
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    const struct fi_eq_entry entry = {.data = 1};
    pthread_t reader, waiter, listener;
    (void)state;
    alarm(PAIR_PATIENCE_MS / 1000 * 3);
    pair_open(&p, &(struct pair_config){
                      .wait_obj = FI_WAIT_UNSPEC, .threading = FI_THREAD_SAFE, .counters = true, .selective = true});
    assert_int_equal(fi_eq_open(p.b.fabric, &attr, &eq, NULL), 0);
    for (unsigned i = 0; i < CANCELS; i++) {
        assert_int_equal(pthread_create(&reader, NULL, read_for_ever, &p.b), 0);
        assert_int_equal(pthread_create(&waiter, NULL, wait_for_ever, &p.b), 0);
        assert_int_equal(pthread_create(&listener, NULL, wait_for_an_event, eq), 0);
        for (uint64_t end = pair_now_ns() + i * 200000; pair_now_ns() < end;) { /* messages wake them over and over */
            PAIR_POST(&p, fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
            PAIR_POST(&p, fi_tinject(p.a.ep, out, 8, p.a.other, 1));
        }
        cancel(reader);
        cancel(waiter);
        cancel(listener);
        (void)fi_cq_read(p.b.cq, NULL, 0);
        (void)fi_cntr_read(p.b.cntr[CNTR_READ]);
        assert_int_equal(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0), sizeof(entry));
        uint32_t event;
        struct fi_eq_entry got;
        assert_int_equal(fi_eq_sread(eq, &event, &got, sizeof(got), -1, 0), sizeof(got));
    }
    PAIR_TRY(blocks_cheaply(&p.b, UINT64_MAX, "after the cancelled ones"));
    assert_int_equal(fi_close(&eq->fid), 0);
    pair_close(&p);
    alarm(0);
}

/* wait_test [MS]: how long a blocked call whose cost is measured takes. */
int main(int argc, char **argv)
{
    if (argc > 1)
        blocked_ms = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blocked_reader_wakes_for_a_message_and_burns_no_core),
        cmocka_unit_test(a_blocked_call_takes_at_most_a_hundredth_of_a_core),
        cmocka_unit_test(a_refused_call_wakes_no_progress_thread),
        cmocka_unit_test(a_message_wakes_at_whatever_moment_it_comes),
        cmocka_unit_test(a_signal_unblocks_a_reader),
        cmocka_unit_test(a_handled_signal_ends_no_wait_for_a_counter),
        cmocka_unit_test(a_small_stack_is_enough),
        cmocka_unit_test(a_cancelled_thread_leaves_no_lock_held),
    };
    return cmocka_run_group_tests_name("prov/wait", tests, NULL, NULL);
}
