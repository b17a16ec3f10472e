/* FI_MATCH_COMPLETE, and the flags that calls take. */
#include "pair.h"

enum { LEN = 100000 };
static unsigned char out[LEN], in[LEN];
static const size_t sizes[] = {0, 5, 5000, LEN};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Sends from a to b with these flags, tagged or not. */
static void send_match(struct pair *p, size_t len, bool tagged, uint64_t flags, void *context)
{
    struct iovec iov = {out, len};
    const struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = p->a.other, .context = context};
    const struct fi_msg_tagged t = {.msg_iov = &iov, .iov_count = 1, .addr = p->a.other, .tag = 7, .context = context};
    if (tagged)
        PAIR_POST(p, fi_tsendmsg(p->a.ep, &t, flags));
    else
        PAIR_POST(p, fi_sendmsg(p->a.ep, &m, flags));
}

static void post(struct pair *p, bool tagged, void *context)
{
    if (tagged)
        assert_int_equal(fi_trecv(p->b.ep, in, LEN, NULL, FI_ADDR_UNSPEC, 7, 0, context), 0);
    else
        assert_int_equal(fi_recv(p->b.ep, in, LEN, NULL, FI_ADDR_UNSPEC, context), 0);
}

/* Progress of the receiver does not complete the send, only a receive does. */
static void a_send_completes_when_it_is_matched(void **state)
{
    static const uint64_t levels[] = {FI_MATCH_COMPLETE, FI_MATCH_COMPLETE | FI_DELIVERY_COMPLETE};
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (size_t i = 0; i < SIZES * 2 * 2; i++) {
        size_t len = sizes[i / 4];
        bool tagged = i % 2;
        pair_fill(out, len, (unsigned)i);
        send_match(&p, len, tagged, levels[i / 2 % 2] | FI_COMPLETION, &p);
        for (int k = 0; k < 200; k++)
            pair_progress(&p);
        pair_assert_quiet(&p, &p.a);
        post(&p, tagged, in);
        pair_await(&p, &p.b, &e, NULL);
        assert_int_equal(e.len, len);
        pair_check(in, len, (unsigned)i);
        pair_await(&p, &p.a, &e, NULL);
        assert_ptr_equal(e.op_context, &p);
    }
    pair_close(&p);
}

static void a_posted_receive_completes_it_too(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){.tx_op_flags = FI_MATCH_COMPLETE});
    for (size_t i = 0; i < SIZES; i++) {
        post(&p, true, in);
        PAIR_POST(&p, fi_tsend(p.a.ep, out, sizes[i], NULL, p.a.other, 7, &p));
        pair_await(&p, &p.b, &e, NULL);
        pair_await(&p, &p.a, &e, NULL);
        /* an injected buffer can be reused at once */
        if (sizes[i] <= p.a.info->tx_attr->inject_size) {
            pair_fill(out, sizes[i], 1);
            send_match(&p, sizes[i], true, FI_MATCH_COMPLETE | FI_INJECT, &p);
            memset(out, 0, sizes[i]);
            pair_assert_quiet(&p, &p.a);
            post(&p, true, in);
            pair_await(&p, &p.b, &e, NULL);
            pair_check(in, sizes[i], 1);
            pair_await(&p, &p.a, &e, NULL);
        }
    }
    pair_close(&p);
}

static void a_peek_is_no_match_and_a_discard_is(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct fi_context context;
    const struct fi_msg_tagged look = {.addr = FI_ADDR_UNSPEC, .tag = 7, .context = &context};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (int way = 0; way < 3; way++) {
        send_match(&p, 5, true, FI_MATCH_COMPLETE, &p);
        for (int k = 0; k < 200; k++)
            pair_progress(&p);
        assert_int_equal(fi_trecvmsg(p.b.ep, &look, way == 1 ? FI_PEEK | FI_CLAIM : FI_PEEK), 0);
        pair_await(&p, &p.b, &e, NULL);
        pair_assert_quiet(&p, &p.a);
        if (way == 0) {
            post(&p, true, in);
        } else {
            assert_int_equal(fi_trecvmsg(p.b.ep, &look, way == 1 ? FI_CLAIM | FI_DISCARD : FI_PEEK | FI_DISCARD), 0);
        }
        pair_await(&p, &p.b, &e, NULL);
        pair_await(&p, &p.a, &e, NULL);
        assert_ptr_equal(e.op_context, &p);
    }
    pair_close(&p);
}

static void a_receiver_that_closes_ends_it_with_an_error(void **state)
{
    struct pair p;
    struct fi_cq_err_entry err = {0};
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        pair_open(&p, &(struct pair_config){0});
        send_match(&p, sizes[i], true, FI_MATCH_COMPLETE, &p);
        for (int k = 0; k < 200; k++)
            pair_progress(&p);
        side_close_ep(&p.b);
        pair_await_error(&p, &p.a, &err);
        assert_ptr_equal(err.op_context, &p);
        assert_int_not_equal(err.err, 0);
        side_open_ep(&p.b, &(struct pair_config){0});
        pair_close(&p);
    }
}

static void flags_that_a_call_does_not_have_are_refused(void **state)
{
    struct pair p;
    struct iovec iov = {out, 8};
    struct fi_rma_iov there = {.len = 8};
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};
    struct fi_msg_tagged t = {.msg_iov = &iov, .iov_count = 1};
    struct fi_msg_rma r = {.msg_iov = &iov, .iov_count = 1, .rma_iov = &there, .rma_iov_count = 1};
    static const uint64_t wrong[] = {FI_TRIGGER, FI_MULTICAST, FI_RMA_EVENT, 1ULL << 62};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    m.addr = t.addr = r.addr = p.a.other;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(fi_sendmsg(p.a.ep, &m, wrong[i]), -FI_EBADFLAGS);
        assert_int_equal(fi_tsendmsg(p.a.ep, &t, wrong[i] | FI_COMPLETION), -FI_EBADFLAGS);
        assert_int_equal(fi_recvmsg(p.a.ep, &m, wrong[i]), -FI_EBADFLAGS);
        assert_int_equal(fi_trecvmsg(p.a.ep, &t, wrong[i]), -FI_EBADFLAGS);
        assert_int_equal(fi_writemsg(p.a.ep, &r, wrong[i]), -FI_EBADFLAGS);
        assert_int_equal(fi_readmsg(p.a.ep, &r, wrong[i]), -FI_EBADFLAGS);
    }
    assert_int_equal(fi_recvmsg(p.a.ep, &m, FI_INJECT), -FI_EBADFLAGS);
    assert_int_equal(fi_sendmsg(p.a.ep, &m, FI_PEEK), -FI_EBADFLAGS);
    assert_int_equal(fi_writemsg(p.a.ep, &r, FI_MATCH_COMPLETE), -FI_EOPNOTSUPP);
    assert_int_equal(fi_sendmsg(p.a.ep, &m, FI_COMMIT_COMPLETE), -FI_EOPNOTSUPP);
    pair_progress(&p);
    pair_assert_quiet(&p, &p.b);
    pair_close(&p);
}

static void default_flags_that_are_not_offered_are_refused(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    uint64_t flags = FI_TRANSMIT | FI_COMMIT_COMPLETE;
    assert_int_equal(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags), -FI_EOPNOTSUPP);
    flags = FI_TRANSMIT | FI_TRIGGER;
    assert_int_equal(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags), -FI_EBADFLAGS);
    flags = FI_RECV | FI_DELIVERY_COMPLETE;
    assert_int_equal(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags), -FI_EBADFLAGS);
    flags = FI_TRANSMIT | FI_MATCH_COMPLETE | FI_DELIVERY_COMPLETE;
    assert_int_equal(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags), 0);
    flags = FI_TRANSMIT;
    assert_int_equal(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags), 0);
    assert_true(flags == (FI_MATCH_COMPLETE | FI_DELIVERY_COMPLETE));
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_send_completes_when_it_is_matched),
        cmocka_unit_test(a_posted_receive_completes_it_too),
        cmocka_unit_test(a_peek_is_no_match_and_a_discard_is),
        cmocka_unit_test(a_receiver_that_closes_ends_it_with_an_error),
        cmocka_unit_test(flags_that_a_call_does_not_have_are_refused),
        cmocka_unit_test(default_flags_that_are_not_offered_are_refused),
    };
    return cmocka_run_group_tests_name("match", tests, NULL, NULL);
}
