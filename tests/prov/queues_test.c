/* Completion queues, counters, event queues: formats, what is reported, wait fds. */
#include "pair.h"

#include <poll.h>
#include <unistd.h>

static unsigned char out[100000], in[100000];

static void every_format_is_a_prefix_of_the_largest(void **state)
{
    static const size_t bytes[] = {0, 8, 24, 40, 48};
    (void)state;
    for (int format = FI_CQ_FORMAT_CONTEXT; format <= FI_CQ_FORMAT_TAGGED; format++) {
        struct pair p;
        struct fi_cq_tagged_entry e[4];
        pair_open(&p, &(struct pair_config){.format = (enum fi_cq_format)format});
        for (int queued = 0; queued < 2; queued++) { /* straight into the array, and through the ring */
            memset(e, 0xcc, sizeof(e));
            assert_int_equal(fi_trecv(p.b.ep, in, 100, NULL, FI_ADDR_UNSPEC, 9, 0, &p), 0);
            PAIR_POST(&p, fi_tinjectdata(p.a.ep, out, 33, 5, p.a.other, 9));
            if (queued)
                pair_progress(&p);
            ssize_t ret;
            while ((ret = fi_cq_read(p.b.cq, e, 4)) == -FI_EAGAIN)
                pair_progress(&p);
            assert_int_equal(ret, 1);
            assert_ptr_equal(e[0].op_context, &p);
            if (format >= FI_CQ_FORMAT_MSG)
                assert_int_equal(e[0].len, 33);
            if (format >= FI_CQ_FORMAT_DATA)
                assert_int_equal(e[0].data, 5);
            if (format >= FI_CQ_FORMAT_TAGGED)
                assert_int_equal(e[0].tag, 9);
            const unsigned char *rest = (const unsigned char *)e + bytes[format];
            for (size_t i = bytes[format]; i < sizeof(e); i++, rest++)
                assert_int_equal(*rest, 0xcc);
        }
        pair_close(&p);
    }
}

static void a_batch_is_read_at_once_up_to_the_first_error(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e[16];
    struct fi_cq_err_entry err = {0};
    fi_addr_t source[16];
    size_t got = 0;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (uintptr_t i = 0; i < 10; i++)
        assert_int_equal(fi_trecv(p.b.ep, in, i == 6 ? 1 : 8, NULL, FI_ADDR_UNSPEC, i, 0, (void *)i), 0);
    for (uint64_t i = 0; i < 10; i++)
        PAIR_POST(&p, fi_tinject(p.a.ep, out, 8, p.a.other, i));
    while (got < 6) {
        ssize_t ret = fi_cq_readfrom(p.b.cq, e + got, 16 - got, source + got);
        if (ret > 0)
            got += (size_t)ret;
    }
    assert_int_equal(got, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(e[i].tag, i);
        assert_int_equal(source[i], p.b.other);
    }
    assert_int_equal(fi_cq_readerr(p.a.cq, &err, 0), -FI_EAGAIN);
    assert_int_equal(fi_cq_read(p.b.cq, e, 16), -FI_EAVAIL);
    assert_int_equal(fi_cq_read(p.b.cq, e, 16), -FI_EAVAIL);
    assert_int_equal(fi_cq_readerr(p.b.cq, &err, 0), 1);
    assert_int_equal(err.tag, 6);
    assert_string_equal(fi_cq_strerror(p.b.cq, err.prov_errno, NULL, NULL, 0),
                        "the message is larger than the receive buffer");
    for (got = 0; got < 3;) {
        ssize_t ret = fi_cq_read(p.b.cq, e + got, 16);
        if (ret > 0)
            got += (size_t)ret;
    }
    assert_int_equal(e[0].tag, 7);
    pair_close(&p);
}

static void a_queue_grows_and_loses_nothing(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e[7];
    enum { COUNT = 5000 };
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (uintptr_t i = 0; i < COUNT; i++)
        assert_int_equal(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, i, 0, (void *)i), 0);
    for (uint64_t i = 0; i < COUNT; i++)
        PAIR_POST(&p, fi_tsend(p.a.ep, out, 8, NULL, p.a.other, i, NULL));
    for (int i = 0; i < 1000; i++)
        pair_progress(&p);
    uint64_t next = 0;
    while (next < COUNT) {
        ssize_t ret = fi_cq_read(p.b.cq, e, 7);
        for (ssize_t i = 0; i < ret; i++)
            assert_int_equal(e[i].tag, next++);
    }
    for (next = 0; next < COUNT;) {
        ssize_t ret = fi_cq_read(p.a.cq, e, 7);
        next += ret > 0 ? (uint64_t)ret : 0;
    }
    assert_int_equal(next, COUNT);
    pair_close(&p);
}

/* The caller posts, reads one completion, posts again: the queue is never empty when it reads. */
static void who_reads_only_own_completions_sees_what_comes(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e = {0};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, "stop"), 0);
    PAIR_POST(&p, fi_tinject(p.a.ep, out, 8, p.a.other, 1));
    uint64_t end = pair_now_ns() + PAIR_PATIENCE_MS * 1000000ull;
    while (!(e.flags & FI_RECV)) {
        assert_true(pair_now_ns() < end);
        PAIR_POST(&p, fi_tsend(p.b.ep, out, 8, NULL, p.b.other, 2, NULL));
        assert_int_equal(fi_cq_read(p.b.cq, &e, 1), 1);
        (void)fi_cq_read(p.a.cq, NULL, 0); /* receives the messages, and makes room in b's lane */
    }
    assert_string_equal(e.op_context, "stop");
    pair_close(&p);
}

static void selective_completion_reports_what_was_asked_for(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct iovec iov = {out, 64}, to = {in, 64};
    (void)state;
    pair_open(&p, &(struct pair_config){.selective = true, .counters = true});
    const struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1, .addr = p.a.other, .tag = 1, .context = "asked"};
    const struct fi_msg_tagged r = {.msg_iov = &to, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 1, .context = "r"};
    assert_int_equal(fi_trecv(p.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
    PAIR_POST(&p, fi_tsend(p.a.ep, out, 64, NULL, p.a.other, 1, NULL));
    pair_await_cntr(&p, p.b.cntr[CNTR_RECV], 1);
    pair_await_cntr(&p, p.a.cntr[CNTR_SEND], 1);
    pair_assert_quiet(&p, &p.a);
    pair_assert_quiet(&p, &p.b);
    assert_int_equal(fi_trecvmsg(p.b.ep, &r, FI_COMPLETION), 0);
    PAIR_POST(&p, fi_tsendmsg(p.a.ep, &m, FI_COMPLETION));
    pair_await(&p, &p.a, &e, NULL);
    assert_string_equal(e.op_context, "asked");
    pair_await(&p, &p.b, &e, NULL);
    assert_string_equal(e.op_context, "r");
    pair_close(&p);
}

static void the_default_flags_of_an_endpoint_count_for_calls_without_flags(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    uint64_t flags = FI_TRANSMIT;
    (void)state;
    pair_open(&p, &(struct pair_config){.selective = true, .tx_op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE});
    assert_int_equal(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags), 0);
    assert_true(flags == (FI_COMPLETION | FI_DELIVERY_COMPLETE));
    PAIR_POST(&p, fi_tsend(p.a.ep, out, 64, NULL, p.a.other, 1, NULL));
    pair_await(&p, &p.a, &e, NULL);
    flags = FI_TRANSMIT;
    assert_int_equal(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags), 0);
    PAIR_POST(&p, fi_tsend(p.a.ep, out, 64, NULL, p.a.other, 1, NULL));
    pair_assert_quiet(&p, &p.a);
    pair_close(&p);
}

/* This thread is also the receiver's: a message counts as delivered only after the receiver has made progress. */
static void delivery_complete_waits_for_the_receiver(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){.tx_op_flags = FI_DELIVERY_COMPLETE});
    assert_int_equal(fi_trecv(p.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
    PAIR_POST(&p, fi_tsend(p.a.ep, out, 64, NULL, p.a.other, 1, NULL));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(fi_cq_read(p.a.cq, &e, 1), -FI_EAGAIN);
    pair_await(&p, &p.a, &e, NULL);
    pair_await(&p, &p.b, &e, NULL);
    pair_close(&p);
}

static void levels_that_cannot_be_kept_are_refused(void **state)
{
    struct pair p;
    struct iovec iov = {out, 8};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    const struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = p.a.other};
    assert_int_equal(fi_sendmsg(p.a.ep, &m, FI_COMMIT_COMPLETE), -FI_EOPNOTSUPP);
    pair_close(&p);
}

static void a_fenced_operation_waits_for_those_before_it(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct iovec iov = {out, 8};
    (void)state;
    pair_open(&p, &(struct pair_config){.tx_op_flags = FI_DELIVERY_COMPLETE});
    const struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = p.a.other, .context = "fenced"};
    PAIR_POST(&p, fi_send(p.a.ep, out, 8, NULL, p.a.other, "first"));
    assert_int_equal(fi_sendmsg(p.a.ep, &m, FI_FENCE), -FI_EAGAIN);
    PAIR_POST(&p, fi_sendmsg(p.a.ep, &m, FI_FENCE));
    pair_await(&p, &p.a, &e, NULL);
    assert_string_equal(e.op_context, "first");
    pair_await(&p, &p.a, &e, NULL);
    assert_string_equal(e.op_context, "fenced");
    pair_close(&p);
}

static void counters_count_successes_and_failures(void **state)
{
    struct pair p;
    struct fi_cq_err_entry err = {0};
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    assert_int_equal(fi_recv(p.b.ep, in, 4, NULL, FI_ADDR_UNSPEC, NULL), 0);
    PAIR_POST(&p, fi_inject(p.a.ep, out, 8, p.a.other)); /* truncated */
    assert_int_equal(fi_cntr_read(p.a.cntr[CNTR_SEND]), 1);
    pair_await_error(&p, &p.b, &err);
    assert_int_equal(fi_cntr_read(p.b.cntr[CNTR_RECV]), 0);
    assert_int_equal(fi_cntr_readerr(p.b.cntr[CNTR_RECV]), 1);
    assert_int_equal(fi_cntr_add(p.a.cntr[CNTR_SEND], 10), 0);
    assert_int_equal(fi_cntr_read(p.a.cntr[CNTR_SEND]), 11);
    assert_int_equal(fi_cntr_set(p.a.cntr[CNTR_SEND], 3), 0);
    assert_int_equal(fi_cntr_adderr(p.a.cntr[CNTR_SEND], 2), 0);
    assert_int_equal(fi_cntr_readerr(p.a.cntr[CNTR_SEND]), 2);
    assert_int_equal(fi_cntr_seterr(p.a.cntr[CNTR_SEND], 0), 0);
    assert_int_equal(fi_cntr_wait(p.a.cntr[CNTR_SEND], 3, 0), 0);
    assert_int_equal(fi_cntr_wait(p.a.cntr[CNTR_SEND], 4, 20), -FI_ETIMEDOUT);
    assert_int_equal(fi_close(&p.a.cntr[CNTR_SEND]->fid), -FI_EBUSY);
    pair_close(&p);
}

/* Lanes that may not grow: an inject of 16 KiB goes by rendezvous, and may fail long after its call has returned. */
static void an_inject_that_fails_later_is_told(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry error;
    (void)state;
    setenv("FI_UNIMEM_LANE_MEMORY", "65536", 1);
    pair_open(&p, &(struct pair_config){.counters = true});
    unsetenv("FI_UNIMEM_LANE_MEMORY");
    bool at_once = strcmp(p.a.info->domain_attr->name, "unimem") != 0; /* lanes of board and net do not get smaller */
    PAIR_POST(&p, fi_tinject(p.a.ep, out, at_once ? 8192 : 16384, p.a.other, 1));
    assert_int_equal(fi_cntr_read(p.a.cntr[CNTR_SEND]), at_once);
    assert_int_equal(fi_trecv(p.b.ep, in, 16384, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
    pair_await_cntr(&p, p.a.cntr[CNTR_SEND], 1);
    assert_int_equal(fi_cq_read(p.a.cq, &e, 1), -FI_EAGAIN); /* the one that succeeded has no entry */
    if (at_once) {
        pair_close(&p);
        return;
    }
    PAIR_POST(&p, fi_tinject(p.a.ep, out, 16384, p.a.other, 2));
    side_close_ep(&p.b);
    pair_await_error(&p, &p.a, &error);
    assert_int_equal(error.flags, FI_SEND | FI_TAGGED);
    assert_int_equal(error.err, FI_ECONNRESET);
    assert_int_equal(fi_cntr_read(p.a.cntr[CNTR_SEND]), 1);
    assert_int_equal(fi_cntr_readerr(p.a.cntr[CNTR_SEND]), 1);
    side_open_ep(&p.b, &(struct pair_config){.counters = true});
    pair_close(&p);
}

static void a_counter_can_be_bound_after_the_endpoint_was_enabled(void **state)
{
    struct pair p;
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *cntr;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_cntr_open(p.a.domain, &attr, &cntr, NULL), 0);
    assert_int_equal(fi_ep_bind(p.a.ep, &cntr->fid, FI_SEND | FI_WRITE), 0);
    assert_int_equal(fi_ep_bind(p.a.ep, &cntr->fid, FI_SEND), -FI_EINVAL);
    PAIR_POST(&p, fi_inject(p.a.ep, out, 8, p.a.other));
    assert_int_equal(fi_cntr_wait(cntr, 1, PAIR_PATIENCE_MS), 0);
    side_close_ep(&p.a);
    assert_int_equal(fi_close(&cntr->fid), 0);
    pair_close(&p);
}

/* ---- sleeping ---- */

static int wait_readable(int fd, int ms)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    return poll(&pfd, 1, ms);
}

static void the_wait_fd_tells_of_a_message(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    int fd = -1;
    enum fi_wait_obj obj;
    (void)state;
    pair_open(&p, &(struct pair_config){.wait_obj = FI_WAIT_FD});
    struct fid *fids[] = {&p.b.cq->fid};
    assert_int_equal(fi_control(&p.b.cq->fid, FI_GETWAIT, &fd), 0);
    assert_int_equal(fi_control(&p.b.cq->fid, FI_GETWAITOBJ, &obj), 0);
    assert_int_equal(obj, FI_WAIT_FD);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
        int ret;
        while ((ret = fi_trywait(p.b.fabric, fids, 1)) == -FI_EAGAIN)
            assert_int_equal(fi_cq_read(p.b.cq, &e, 1), -FI_EAGAIN);
        assert_int_equal(ret, 0);
        if (i == 0) /* later there is a peer to check, which ends sleep from time to time */
            assert_int_equal(wait_readable(fd, 50), 0);
        PAIR_POST(&p, fi_tinject(p.a.ep, out, 8, p.a.other, 1));
        assert_int_equal(wait_readable(fd, PAIR_PATIENCE_MS), 1);
        while (fi_cq_read(p.b.cq, &e, 1) == -FI_EAGAIN)
            ;
    }
    /* an event that waits to be read forbids sleeping */
    PAIR_POST(&p, fi_tinject(p.a.ep, out, 8, p.a.other, 1));
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
    assert_int_equal(fi_trywait(p.b.fabric, fids, 1), -FI_EAGAIN);
    pair_close(&p);
}

/* What a counter has counted since it was read forbids sleeping, also what it counted in the call that posted it. */
static void an_unread_count_forbids_sleeping(void **state)
{
    struct pair p;
    struct fid_cntr *cntr;
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_FD};
    (void)state;
    pair_open(&p, &(struct pair_config){.wait_obj = FI_WAIT_FD});
    assert_int_equal(fi_cntr_open(p.a.domain, &attr, &cntr, NULL), 0);
    struct fid *fids[] = {&cntr->fid};
    assert_int_equal(fi_ep_bind(p.a.ep, &cntr->fid, FI_SEND), 0);
    while (fi_trywait(p.a.fabric, fids, 1) == -FI_EAGAIN)
        assert_int_equal(fi_cntr_read(cntr), 0);
    PAIR_POST(&p, fi_tinject(p.a.ep, out, 8, p.a.other, 1));
    assert_int_equal(fi_trywait(p.a.fabric, fids, 1), -FI_EAGAIN);
    assert_int_equal(fi_cntr_read(cntr), 1);
    assert_int_equal(fi_trywait(p.a.fabric, fids, 1), 0);
    assert_int_equal(fi_cntr_adderr(cntr, 1), 0);
    assert_int_equal(fi_trywait(p.a.fabric, fids, 1), -FI_EAGAIN);
    assert_int_equal(fi_cntr_readerr(cntr), 1);
    assert_int_equal(fi_trywait(p.a.fabric, fids, 1), 0);
    assert_int_equal(fi_cntr_set(cntr, 0), 0);
    PAIR_POST(&p, fi_tinject(p.a.ep, out, 8, p.a.other, 1)); /* now it is again what it was when it was read */
    assert_int_equal(fi_trywait(p.a.fabric, fids, 1), -FI_EAGAIN);
    assert_int_equal(fi_cntr_read(cntr), 1);
    assert_int_equal(fi_trywait(p.a.fabric, fids, 1), 0); /* the number of errors was not set */
    assert_int_equal(fi_cntr_read(cntr), 1);              /* is not armed any more */
    side_close_ep(&p.a);
    assert_int_equal(fi_close(&cntr->fid), 0);
    side_open_ep(&p.a, &(struct pair_config){.wait_obj = FI_WAIT_FD});
    pair_close(&p);
}

static void automatic_progress_needs_no_calls(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    int fd = -1;
    (void)state;
    pair_open(&p, &(struct pair_config){
                      .wait_obj = FI_WAIT_FD, .progress = FI_PROGRESS_AUTO, .tx_op_flags = FI_DELIVERY_COMPLETE});
    assert_int_equal(fi_control(&p.a.cq->fid, FI_GETWAIT, &fd), 0);
    struct fid *fids[] = {&p.a.cq->fid};
    for (int i = 0; i < 50; i++) {
        size_t len = i % 2 ? 100000 : 100;
        memset(in, 0, len);
        pair_fill(out, len, (unsigned)i);
        assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
        while (fi_tsend(p.a.ep, out, len, NULL, p.a.other, 1, NULL) == -FI_EAGAIN)
            usleep(100);
        /* nobody calls anything on b */
        if (fi_trywait(p.a.fabric, fids, 1) == 0)
            assert_int_equal(wait_readable(fd, PAIR_PATIENCE_MS), 1);
        while (fi_cq_read(p.a.cq, &e, 1) == -FI_EAGAIN)
            ;
        assert_int_equal(fi_cq_sread(p.b.cq, &e, 1, NULL, 0), 1); /* delivered: b has it without waiting */
        pair_check(in, len, (unsigned)i);
    }
    pair_close(&p);
}

/* Posts writes with data until the next one is not accepted. Returns how many were; *next counts on. */
static uint64_t flood(struct pair *p, uint64_t *next)
{
    const uint64_t before = *next;
    while (fi_inject_writedata(p->a.ep, out, 1, *next, p->a.other, 0, 1) == 0)
        ++*next;
    return *next - before;
}

/* Opens a pair and memory of b, which a has written to once already: no first contact is left. */
static struct fid_mr *flood_open(struct pair *p, const struct pair_config *config)
{
    /* pages of its own: beside other static data may lie what AddressSanitizer reads while they are moved */
    static _Alignas(65536) unsigned char target[65536];
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    pair_open(p, config);
    assert_int_equal(fi_mr_reg(p->b.domain, target, sizeof(target), FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), 0);
    PAIR_POST(p, fi_inject_writedata(p->a.ep, out, 1, 0, p->a.other, 0, 1));
    pair_await(p, &p->b, &e, NULL);
    return mr;
}

/* Reads the writes with data from `next` to `end`, in their order. */
static void flood_read(struct pair *p, uint64_t next, uint64_t end)
{
    struct fi_cq_tagged_entry e;
    for (; next < end; next++) {
        pair_await(p, &p->b, &e, NULL);
        assert_int_equal(e.data, next);
    }
}

/* The target reads one completion at a time, and finds one at each read: no more come into its queue than it reads. */
static void writes_with_data_come_no_faster_than_they_are_read(void **state)
{
    enum { READS = 3000, MORE = 1000 };
    struct pair p;
    struct fi_cq_tagged_entry e;
    uint64_t sent = 1, read = 1, waiting[2];
    (void)state;
    struct fid_mr *mr = flood_open(&p, &(struct pair_config){0});
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < READS; i++) {
            flood(&p, &sent);
            if (fi_cq_read(p.b.cq, &e, 1) != 1)
                continue;
            assert_int_equal(e.data, read);
            read++;
        }
        waiting[half] = sent - read; /* in the lane, too, which is full from the beginning */
    }
    assert_true(waiting[1] < waiting[0] + MORE);
    flood_read(&p, read, sent);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

/* A thread makes progress, and nobody reads. */
static void writes_with_data_wait_while_the_queue_is_very_full(void **state)
{
    enum { MOST = 65536 + 10000 /* a lane holds fewer */, QUIET_MS = 300 };
    struct pair p;
    uint64_t sent = 1;
    (void)state;
    struct fid_mr *mr = flood_open(&p, &(struct pair_config){.progress = FI_PROGRESS_AUTO, .wait_obj = FI_WAIT_FD});
    for (uint64_t last = pair_now_ns(); sent < 3 * MOST && pair_now_ns() - last < QUIET_MS * 1000000ull;) {
        if (flood(&p, &sent) > 0)
            last = pair_now_ns();
        else
            usleep(100);
    }
    assert_true(sent < MOST);
    flood_read(&p, 1, sent);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static void an_event_queue_gives_back_what_was_written(void **state)
{
    struct pair p;
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
    struct fid_eq *eq;
    struct fi_eq_entry entry = {.data = 5}, got;
    uint32_t event = 0;
    int fd = -1;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_eq_open(p.a.fabric, &attr, &eq, NULL), 0);
    assert_int_equal(fi_control(&eq->fid, FI_GETWAIT, &fd), 0);
    assert_int_equal(fi_eq_read(eq, &event, &got, sizeof(got), 0), -FI_EAGAIN);
    assert_int_equal(fi_eq_sread(eq, &event, &got, sizeof(got), 20, 0), -FI_EAGAIN);
    assert_int_equal(wait_readable(fd, 0), 0);
    assert_int_equal(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0), sizeof(entry));
    assert_int_equal(wait_readable(fd, 0), 1);
    assert_int_equal(fi_eq_read(eq, &event, &got, 1, 0), -FI_ETOOSMALL);
    assert_int_equal(fi_eq_read(eq, &event, &got, sizeof(got), FI_PEEK), sizeof(got));
    assert_int_equal(fi_eq_sread(eq, &event, &got, sizeof(got), -1, 0), sizeof(got));
    assert_int_equal(event, FI_NOTIFY);
    assert_int_equal(got.data, 5);
    assert_int_equal(wait_readable(fd, 0), 0);
    assert_int_equal(fi_close(&eq->fid), 0);
    pair_close(&p);
}

/*
 * A request is delivered and answered before its sender polls again: the sender sees the request's completion first. On
 * machines that need the sender's progress for the delivery, the sender polls in between.
 */
static void a_send_completes_before_the_reply_to_it_is_received(void **state)
{
    static const size_t sizes[] = {8, 4096, 100000};
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.tx_op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE});
    for (size_t i = 0; i < 3; i++) {
        struct fi_cq_tagged_entry e[4];
        size_t got = 0;
        assert_int_equal(fi_trecv(p.b.ep, in, sizes[i], NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
        assert_int_equal(fi_trecv(p.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, NULL), 0);
        PAIR_POST(&p, fi_tsend(p.a.ep, out, sizes[i], NULL, p.a.other, 1, NULL));
        for (int tries = 0; fi_cq_read(p.b.cq, &e[2], 1) != 1; tries++) {
            if (tries > 20000 && got == 0)
                got = fi_cq_read(p.a.cq, e, 1) == 1;
            usleep(10);
        }
        ssize_t posted;
        while ((posted = fi_tinject(p.b.ep, "reply", 6, p.b.other, 2)) == -FI_EAGAIN) {
            assert_string_equal(p.a.info->domain_attr->name, "net"); /* where the first contact needs both sides */
            assert_int_equal(fi_cq_read(p.b.cq, &e[2], 1), -FI_EAGAIN);
            got += got == 0 && fi_cq_read(p.a.cq, e, 1) == 1;
        }
        assert_int_equal(posted, 0);
        while (got < 2) {
            ssize_t ret = fi_cq_read(p.a.cq, &e[got], 4 - got);
            assert_true(ret > 0 || ret == -FI_EAGAIN);
            got += ret > 0 ? (size_t)ret : 0;
        }
        assert_true(e[0].flags & FI_SEND);
        assert_true(e[1].flags & FI_RECV);
    }
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_send_completes_before_the_reply_to_it_is_received),
        cmocka_unit_test(every_format_is_a_prefix_of_the_largest),
        cmocka_unit_test(a_batch_is_read_at_once_up_to_the_first_error),
        cmocka_unit_test(a_queue_grows_and_loses_nothing),
        cmocka_unit_test(who_reads_only_own_completions_sees_what_comes),
        cmocka_unit_test(selective_completion_reports_what_was_asked_for),
        cmocka_unit_test(the_default_flags_of_an_endpoint_count_for_calls_without_flags),
        cmocka_unit_test(delivery_complete_waits_for_the_receiver),
        cmocka_unit_test(levels_that_cannot_be_kept_are_refused),
        cmocka_unit_test(a_fenced_operation_waits_for_those_before_it),
        cmocka_unit_test(counters_count_successes_and_failures),
        cmocka_unit_test(an_inject_that_fails_later_is_told),
        cmocka_unit_test(a_counter_can_be_bound_after_the_endpoint_was_enabled),
        cmocka_unit_test(the_wait_fd_tells_of_a_message),
        cmocka_unit_test(an_unread_count_forbids_sleeping),
        cmocka_unit_test(automatic_progress_needs_no_calls),
        cmocka_unit_test(writes_with_data_come_no_faster_than_they_are_read),
        cmocka_unit_test(writes_with_data_wait_while_the_queue_is_very_full),
        cmocka_unit_test(an_event_queue_gives_back_what_was_written),
    };
    return cmocka_run_group_tests_name("prov/queues", tests, NULL, NULL);
}
