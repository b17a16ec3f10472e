/* FI_PEEK, FI_CLAIM, FI_DISCARD. */
#include "pair.h"

static unsigned char out[100000], in[100000];

static struct fi_msg_tagged tagged(struct iovec *iov, uint64_t tag, void *context)
{
    return (struct fi_msg_tagged){
        .msg_iov = iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = tag, .ignore = 0, .context = context};
}

static const size_t sizes[] = {5, 5000, 100000};

static void a_peek_of_nothing_says_so(void **state)
{
    struct pair p;
    struct fi_cq_err_entry err = {0};
    struct fi_msg_tagged m = tagged(NULL, 3, &p);
    (void)state;
    m.iov_count = 0;
    pair_open(&p, &(struct pair_config){0});
    PAIR_POST(&p, fi_tinject(p.a.ep, "x", 1, p.a.other, 4)); /* another tag */
    pair_progress(&p);
    assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_PEEK), 0);
    pair_await_error(&p, &p.b, &err);
    assert_int_equal(err.err, FI_ENOMSG);
    assert_ptr_equal(err.op_context, &p);
    assert_int_equal(err.tag, 3);
    pair_close(&p);
}

static void a_peek_tells_about_a_message_and_leaves_it(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    fi_addr_t source;
    struct fi_context context;
    struct fi_msg_tagged m = tagged(NULL, 3, &context);
    (void)state;
    m.iov_count = 0;
    pair_open(&p, &(struct pair_config){.selective = true});
    for (size_t i = 0; i < 3; i++) {
        pair_fill(out, sizes[i], 1);
        PAIR_POST(&p, fi_tsenddata(p.a.ep, out, sizes[i], NULL, 42, p.a.other, 3, NULL));
        pair_progress(&p);
        for (int twice = 0; twice < 2; twice++) {
            assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_PEEK), 0);
            pair_await(&p, &p.b, &e, &source);
            assert_ptr_equal(e.op_context, &context);
            assert_int_equal(e.len, sizes[i]);
            assert_int_equal(e.tag, 3);
            assert_int_equal(e.data, 42);
            assert_int_equal(source, p.b.other);
            assert_true(e.flags == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA));
        }
        struct iovec iov = {in, sizeof(in)};
        const struct fi_msg_tagged r = tagged(&iov, 3, in);
        assert_int_equal(fi_trecvmsg(p.b.ep, &r, FI_COMPLETION), 0);
        pair_await(&p, &p.b, &e, NULL);
        pair_check(in, sizes[i], 1);
    }
    pair_close(&p);
}

static void a_claimed_message_belongs_to_who_claimed_it(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct fi_context context;
    struct iovec iov = {in, sizeof(in)};
    const struct fi_msg_tagged m = tagged(&iov, 3, &context);
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (size_t i = 0; i < 3; i++) {
        unsigned char other[8];
        pair_fill(out, sizes[i], 1);
        PAIR_POST(&p, fi_tsend(p.a.ep, out, sizes[i], NULL, p.a.other, 3, NULL));
        PAIR_POST(&p, fi_tinject(p.a.ep, "second", 6, p.a.other, 3));
        pair_progress(&p);
        assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_PEEK | FI_CLAIM), 0);
        pair_await(&p, &p.b, &e, NULL);
        assert_int_equal(e.len, sizes[i]);
        /* an ordinary receive takes the next one */
        assert_int_equal(fi_trecv(p.b.ep, other, sizeof(other), NULL, FI_ADDR_UNSPEC, 3, 0, other), 0);
        pair_await(&p, &p.b, &e, NULL);
        assert_memory_equal(other, "second", 6);
        assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_CLAIM), 0);
        pair_await(&p, &p.b, &e, NULL);
        assert_ptr_equal(e.op_context, &context);
        assert_int_equal(e.len, sizes[i]);
        pair_check(in, sizes[i], 1);
        pair_await(&p, &p.a, &e, NULL);
        assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_CLAIM), -FI_ENOMSG);
    }
    pair_close(&p);
}

static void discarded_messages_are_gone(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err = {0};
    struct fi_context context;
    struct iovec iov = {in, sizeof(in)};
    const struct fi_msg_tagged m = tagged(&iov, 3, &context);
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (size_t i = 0; i < 3; i++) {
        for (int claimed = 0; claimed < 2; claimed++) {
            PAIR_POST(&p, fi_tsend(p.a.ep, out, sizes[i], NULL, p.a.other, 3, NULL));
            pair_progress(&p);
            assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_PEEK | (claimed ? FI_CLAIM : FI_DISCARD)), 0);
            pair_await(&p, &p.b, &e, NULL);
            if (claimed) {
                assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_CLAIM | FI_DISCARD), 0);
                pair_await(&p, &p.b, &e, NULL);
            }
            pair_await(&p, &p.a, &e, NULL); /* the sender is done with it */
            assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_PEEK), 0);
            pair_await_error(&p, &p.b, &err);
            assert_int_equal(err.err, FI_ENOMSG);
        }
    }
    pair_close(&p);
}

/* The receiver calls like Open MPI: a peek, one read, and after an error entry the next peek. It never sees an empty
 * queue. */
static void who_only_peeks_sees_what_comes(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err = {0};
    struct fi_context context;
    struct fi_msg_tagged m = tagged(NULL, 3, &context);
    (void)state;
    m.iov_count = 0;
    pair_open(&p, &(struct pair_config){0});
    PAIR_POST(&p, fi_tinject(p.a.ep, "late", 4, p.a.other, 3));
    uint64_t end = pair_now_ns() + PAIR_PATIENCE_MS * 1000000ull;
    for (ssize_t ret = 0; ret != 1;) {
        assert_true(pair_now_ns() < end);
        assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_PEEK), 0);
        ret = fi_cq_read(p.b.cq, &e, 1);
        if (ret != 1) {
            assert_int_equal(ret, -FI_EAVAIL);
            assert_int_equal(fi_cq_readerr(p.b.cq, &err, 0), 1);
            assert_int_equal(err.err, FI_ENOMSG);
        }
    }
    assert_int_equal(e.len, 4);
    pair_close(&p);
}

/* Sends without progress of the receiver, which would take what has come. */
static void send_alone(struct pair *p, uint64_t tag)
{
    ssize_t ret;
    while ((ret = fi_tinject(p->a.ep, "x", 1, p->a.other, tag)) == -FI_EAGAIN)
        assert_int_equal(fi_cq_read(p->a.cq, NULL, 0), 0);
    assert_int_equal(ret, 0);
}

/* Receives half of the messages that come. Returns whether one of the others is still in its lane. */
static bool keeps_few(void)
{
    enum { BEFORE = 4, RECEIVES = 24 }; /* fewer messages than any lane holds */
    struct pair p;
    struct fi_cq_tagged_entry e;
    uint64_t sent = 0;
    ssize_t ret;
    pair_open(&p, &(struct pair_config){0});
    for (; sent < BEFORE; sent++)
        PAIR_POST(&p, fi_tinject(p.a.ep, "x", 1, p.a.other, sent));
    pair_progress(&p);
    for (uint64_t i = 0; i < RECEIVES; i++) {
        for (int k = 0; k < 2; k++, sent++)
            send_alone(&p, sent);
        assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, i, 0, NULL), 0);
        while (fi_cq_read(p.b.cq, &e, 1) != 1)
            assert_int_equal(fi_cq_read(p.a.cq, NULL, 0), 0);
        assert_int_equal(e.tag, i);
    }
    struct fi_msg_tagged m = tagged(NULL, RECEIVES + 6, &p); /* sent long before the last look */
    m.iov_count = 0;
    assert_int_equal(fi_trecvmsg(p.b.ep, &m, FI_PEEK), 0);
    while ((ret = fi_cq_read(p.b.cq, &e, 1)) == -FI_EAGAIN)
        ;
    pair_close(&p);
    return ret == -FI_EAVAIL;
}

/* Each read finds the completion of a message that had come before its receive. The progress beside such a read takes
 * fewer messages without a receive than the caller receives; otherwise their number would grow as long as the sender is
 * faster. The tick, forty times a second, takes all there are. */
static void who_receives_one_after_another_keeps_few(void **state)
{
    (void)state;
    PAIR_TRY(keeps_few());
}

static void to_discard_needs_a_peek_or_a_claim(void **state)
{
    struct pair p;
    unsigned char byte;
    const struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    const struct fi_msg_tagged tagged = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    const struct fi_msg plain = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    assert_int_equal(fi_trecvmsg(p.b.ep, &tagged, FI_DISCARD), -FI_EINVAL);
    assert_int_equal(fi_recvmsg(p.b.ep, &plain, FI_DISCARD), -FI_EINVAL);
    pair_close(&p);
}

/* One message was claimed: it is received by a buffer for one. */
static void what_was_claimed_is_not_for_a_buffer_of_many(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct fi_context context;
    const struct iovec iov = {.iov_base = in, .iov_len = sizeof(in)};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    const struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &context};
    PAIR_POST(&p, fi_inject(p.a.ep, "one", 3, p.a.other));
    pair_progress(&p);
    assert_int_equal(fi_recvmsg(p.b.ep, &m, FI_PEEK | FI_CLAIM), 0);
    pair_await(&p, &p.b, &e, NULL);
    assert_int_equal(e.len, 3);
    assert_int_equal(fi_recvmsg(p.b.ep, &m, FI_CLAIM | FI_MULTI_RECV), -FI_EINVAL);
    assert_int_equal(fi_recvmsg(p.b.ep, &m, FI_CLAIM), 0);
    pair_await(&p, &p.b, &e, NULL);
    assert_true(e.flags == (FI_MSG | FI_RECV));
    assert_memory_equal(in, "one", 3);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peek_of_nothing_says_so),
        cmocka_unit_test(a_peek_tells_about_a_message_and_leaves_it),
        cmocka_unit_test(a_claimed_message_belongs_to_who_claimed_it),
        cmocka_unit_test(discarded_messages_are_gone),
        cmocka_unit_test(to_discard_needs_a_peek_or_a_claim),
        cmocka_unit_test(what_was_claimed_is_not_for_a_buffer_of_many),
        cmocka_unit_test(who_only_peeks_sees_what_comes),
        cmocka_unit_test(who_receives_one_after_another_keeps_few),
    };
    return cmocka_run_group_tests_name("prov/peek", tests, NULL, NULL);
}
