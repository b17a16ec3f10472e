/* Tagged and untagged messages: every call, sizes, order, truncation, cancelling, multi-receive. */
#include "pair.h"

static const size_t sizes[] = {0, 1, 8, 40, 41, 64, 1000, 4096, 4097, 16384, 16385, 65536, 300000, 3000001};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LARGEST = 3000001 };

static unsigned char *out, *in;

static int setup_buffers(void **state)
{
    (void)state;
    out = malloc(LARGEST);
    in = malloc(LARGEST);
    return out && in ? 0 : -1;
}

static int teardown_buffers(void **state)
{
    (void)state;
    free(out);
    free(in);
    return 0;
}

static void tagged_messages_of_every_size_arrive_whole(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (int i = 0; i < SIZES; i++) {
        for (int late = 0; late < 2; late++) { /* the receive before the message, and after it */
            pair_fill(out, sizes[i], (unsigned)i);
            memset(in, 0xee, sizes[i]);
            if (!late)
                assert_int_equal(fi_trecv(p.b.ep, in, LARGEST, NULL, p.b.other, 7, 0, in), 0);
            PAIR_POST(&p, fi_tsend(p.a.ep, out, sizes[i], NULL, p.a.other, 7, out));
            if (late) {
                pair_progress(&p);
                assert_int_equal(fi_trecv(p.b.ep, in, LARGEST, NULL, FI_ADDR_UNSPEC, 5, 2, in), 0);
            }
            pair_await(&p, &p.b, &e, NULL);
            assert_ptr_equal(e.op_context, in);
            assert_int_equal(e.len, sizes[i]);
            assert_int_equal(e.tag, 7);
            assert_true(e.flags == (FI_RECV | FI_TAGGED));
            pair_check(in, sizes[i], (unsigned)i);
            pair_await(&p, &p.a, &e, NULL);
            assert_ptr_equal(e.op_context, out);
            assert_true(e.flags == (FI_SEND | FI_TAGGED));
        }
    }
    pair_close(&p);
}

static void untagged_messages_of_every_size_arrive_whole(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    fi_addr_t source;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (int i = 0; i < SIZES; i++) {
        pair_fill(out, sizes[i], (unsigned)i);
        assert_int_equal(fi_recv(p.b.ep, in, LARGEST, NULL, FI_ADDR_UNSPEC, in), 0);
        PAIR_POST(&p, fi_senddata(p.a.ep, out, sizes[i], NULL, 0x1122334455667788, p.a.other, out));
        pair_await(&p, &p.b, &e, &source);
        assert_int_equal(e.len, sizes[i]);
        assert_true(e.flags == (FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA));
        assert_true(e.data == 0x1122334455667788);
        assert_int_equal(source, p.b.other);
        pair_check(in, sizes[i], (unsigned)i);
        pair_await(&p, &p.a, &e, NULL);
    }
    pair_close(&p);
}

static void pieces_are_gathered_and_scattered(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct iovec from[5], to[7];
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (int i = 0; i < SIZES; i++) {
        size_t n = sizes[i];
        pair_fill(out, n, 3);
        memset(in, 0, n);
        for (size_t k = 0; k < 5; k++)
            from[k] = (struct iovec){out + n * k / 5, n * (k + 1) / 5 - n * k / 5};
        for (size_t k = 0; k < 7; k++)
            to[k] = (struct iovec){in + n * k / 7, n * (k + 1) / 7 - n * k / 7};
        assert_int_equal(fi_trecvv(p.b.ep, to, NULL, 7, p.b.other, 1, 0, NULL), 0);
        PAIR_POST(&p, fi_tsendv(p.a.ep, from, NULL, 5, p.a.other, 1, NULL));
        pair_await(&p, &p.b, &e, NULL);
        assert_int_equal(e.len, n);
        pair_check(in, n, 3);
        pair_await(&p, &p.a, &e, NULL);

        const struct fi_msg send = {.msg_iov = from, .iov_count = 5, .addr = p.a.other, .data = 9};
        const struct fi_msg recv = {.msg_iov = to, .iov_count = 7, .addr = FI_ADDR_UNSPEC};
        memset(in, 0, n);
        assert_int_equal(fi_recvmsg(p.b.ep, &recv, 0), 0);
        PAIR_POST(&p, fi_sendmsg(p.a.ep, &send, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_MORE));
        pair_await(&p, &p.b, &e, NULL);
        assert_int_equal(e.data, 9);
        pair_check(in, n, 3);
        pair_await(&p, &p.a, &e, NULL);
    }
    pair_close(&p);
}

static void too_many_pieces_are_refused(void **state)
{
    struct pair p;
    struct iovec iov[33];
    (void)state;
    for (int i = 0; i < 33; i++)
        iov[i] = (struct iovec){out, 1};
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(p.a.info->tx_attr->iov_limit, 32);
    assert_int_equal(fi_sendv(p.a.ep, iov, NULL, 33, p.a.other, NULL), -FI_EINVAL);
    assert_int_equal(fi_trecvv(p.a.ep, iov, NULL, 33, p.a.other, 0, 0, NULL), -FI_EINVAL);
    pair_close(&p);
}

static void injected_messages_need_no_completion_and_free_their_buffer(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    size_t most = p.a.info->tx_attr->inject_size;
    assert_true(most >= 4096);
    for (size_t n = 0; n <= most; n = n ? n * 3 < most || n == most ? n * 3 : most : 1) {
        pair_fill(out, n, 8);
        PAIR_POST(&p, fi_tinjectdata(p.a.ep, out, n, 77, p.a.other, 5));
        memset(out, 0, n);
        assert_int_equal(fi_trecv(p.b.ep, in, n, NULL, p.b.other, 5, 0, NULL), 0);
        pair_await(&p, &p.b, &e, NULL);
        assert_int_equal(e.len, n);
        assert_int_equal(e.data, 77);
        pair_check(in, n, 8);
    }
    pair_fill(out, 100, 9);
    PAIR_POST(&p, fi_inject(p.a.ep, out, 100, p.a.other));
    assert_int_equal(fi_recv(p.b.ep, in, 100, NULL, p.b.other, NULL), 0);
    pair_await(&p, &p.b, &e, NULL);
    pair_check(in, 100, 9);
    assert_int_equal(fi_tinject(p.a.ep, out, most + 1, p.a.other, 5), -FI_EINVAL);
    pair_assert_quiet(&p, &p.a);
    pair_close(&p);
}

static void order_is_kept_across_sizes(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    enum { COUNT = 200 };
    static unsigned char small[COUNT][64];
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    pair_fill(out, LARGEST, 0);
    for (uintptr_t i = 0; i < COUNT; i++)
        assert_int_equal(fi_trecv(p.b.ep, small[i], 64, NULL, p.b.other, 0, ~0ull, (void *)i), 0);
    int sent = 0;
    for (uintptr_t i = 0, received = 0; received < COUNT;) {
        if (i < COUNT && fi_tsend(p.a.ep, out, i % 3 ? 8 : 40000, NULL, p.a.other, i, NULL) == 0)
            i++;
        struct fi_cq_err_entry err;
        ssize_t ret = fi_cq_read(p.b.cq, &e, 1);
        if (ret == 1) {
            assert_int_equal(e.tag, (uintptr_t)e.op_context);
            assert_int_equal(e.len, 8);
            received++;
        } else if (ret == -FI_EAVAIL) {
            assert_int_equal(fi_cq_readerr(p.b.cq, &err, 0), 1);
            assert_int_equal(err.err, FI_ETRUNC);
            assert_int_equal(err.tag, (uintptr_t)err.op_context);
            received++;
        }
        sent += fi_cq_read(p.a.cq, &e, 1) == 1;
    }
    while (sent < COUNT)
        sent += fi_cq_read(p.a.cq, &e, 1) == 1;
    pair_close(&p);
}

static void truncation_is_an_error_with_all_details(void **state)
{
    struct pair p;
    struct fi_cq_err_entry err = {0};
    struct fi_cq_tagged_entry e;
    const size_t lens[] = {30, 3000, 100000};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (int i = 0; i < 3; i++) {
        pair_fill(out, lens[i], 1);
        memset(in, 0xaa, lens[i]);
        assert_int_equal(fi_trecv(p.b.ep, in, 20, NULL, p.b.other, 0, 0xff, &p), 0);
        PAIR_POST(&p, fi_tsenddata(p.a.ep, out, lens[i], NULL, 123, p.a.other, 17, NULL));
        pair_await_error(&p, &p.b, &err);
        assert_int_equal(err.err, FI_ETRUNC);
        assert_int_equal(err.len, 20);
        assert_int_equal(err.olen, lens[i] - 20);
        assert_int_equal(err.tag, 17);
        assert_int_equal(err.data, 123);
        assert_ptr_equal(err.op_context, &p);
        assert_true(err.flags == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA));
        pair_check(in, 20, 1);
        assert_int_equal(in[20], 0xaa);
        pair_await(&p, &p.a, &e, NULL);
    }
    pair_close(&p);
}

static void a_cancelled_receive_completes_with_an_error(void **state)
{
    struct pair p;
    struct fi_cq_err_entry err = {0};
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &err), 0);
    assert_int_equal(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &e), 0);
    assert_int_equal(fi_cancel(&p.b.ep->fid, &err), 0);
    pair_await_error(&p, &p.b, &err);
    assert_int_equal(err.err, FI_ECANCELED);
    assert_ptr_equal(err.op_context, &err);
    assert_true(err.flags == (FI_RECV | FI_TAGGED));
    assert_int_equal(fi_cancel(&p.b.ep->fid, &err), -FI_ENOENT);
    assert_int_equal(fi_cancel(&p.b.ep->fid, &e), 0);
    pair_await_error(&p, &p.b, &err);
    assert_true(err.flags == (FI_RECV | FI_MSG));
    pair_close(&p);
}

/* Cancels receives of every kind (tagged, untagged, multi-receive, directed): the untagged ones first. */
static void closing_cancels_what_is_posted(void **state)
{
    struct pair p;
    struct fi_cq_err_entry err = {0};
    struct fi_cq_tagged_entry e;
    char context[4];
    const struct iovec iov = {.iov_base = in + 100, .iov_len = 100};
    const struct fi_msg multi = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &context[2]};
    static const uint64_t flags[4] = {FI_RECV | FI_TAGGED, FI_RECV | FI_MSG, FI_RECV | FI_MSG | FI_MULTI_RECV,
                                      FI_RECV | FI_TAGGED};
    static const int order[4] = {1, 2, 0, 3};
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true, .selective = true});
    assert_int_equal(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &context[0]), 0);
    assert_int_equal(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &context[1]), 0);
    assert_int_equal(fi_recvmsg(p.b.ep, &multi, FI_MULTI_RECV), 0);
    assert_int_equal(fi_trecv(p.b.ep, in, 8, NULL, p.b.other, 2, 0, &context[3]), 0);
    side_close_ep(&p.b);
    for (int i = 0; i < 4; i++) {
        pair_await_error(&p, &p.b, &err);
        assert_int_equal(err.err, FI_ECANCELED);
        const int which = order[i];
        assert_ptr_equal(err.op_context, &context[which]);
        assert_true(err.flags == flags[which]);
    }
    assert_int_equal(fi_cq_read(p.b.cq, &e, 1), -FI_EAGAIN);
    assert_int_equal(fi_cntr_readerr(p.b.cntr[CNTR_RECV]), 4);
    pair_close(&p);
}

static void directed_receives_wait_for_their_source(void **state)
{
    struct pair p;
    struct side third;
    struct fi_cq_tagged_entry e;
    fi_addr_t from_third, to_b;
    fi_addr_t source;
    const struct pair_config config = {0};
    (void)state;
    pair_open(&p, &config);
    side_open(&third, &config);
    assert_int_equal(fi_av_insert(p.b.av, third.name, 1, &from_third, 0, NULL), 1);
    assert_int_equal(fi_av_insert(third.av, p.b.name, 1, &to_b, 0, NULL), 1);
    assert_int_equal(fi_trecv(p.b.ep, in, 8, NULL, from_third, 1, 0, "third"), 0);
    assert_int_equal(fi_trecv(p.b.ep, in + 8, 8, NULL, p.b.other, 1, 0, "a"), 0);
    PAIR_POST(&p, fi_tinject(p.a.ep, "a", 1, p.a.other, 1));
    pair_await(&p, &p.b, &e, &source);
    assert_string_equal(e.op_context, "a");
    assert_int_equal(source, p.b.other);
    PAIR_POST(&p, fi_tinject(third.ep, "3", 1, to_b, 1));
    pair_await(&p, &p.b, &e, &source);
    assert_string_equal(e.op_context, "third");
    assert_int_equal(source, from_third);
    side_close(&third);
    pair_close(&p);
}

static void without_the_capability_the_source_of_a_receive_is_ignored(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){.caps = FI_MSG | FI_TAGGED});
    assert_int_equal(fi_recv(p.b.ep, in, 8, NULL, 999, NULL), 0);
    PAIR_POST(&p, fi_inject(p.a.ep, "x", 1, p.a.other));
    pair_await(&p, &p.b, &e, NULL);
    pair_close(&p);
}

static void a_multi_receive_takes_messages_until_it_is_full(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    size_t least = 200, len = sizeof(least);
    const struct iovec iov = {in, 1000};
    const struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, len), 0);
    least = 0;
    assert_int_equal(fi_getopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &len), 0);
    assert_int_equal(least, 200);
    PAIR_POST(&p, fi_inject(p.a.ep, "early", 5, p.a.other)); /* before there is a buffer */
    pair_progress(&p);
    assert_int_equal(fi_recvmsg(p.b.ep, &msg, FI_MULTI_RECV), 0);
    pair_await(&p, &p.b, &e, NULL);
    assert_ptr_equal(e.buf, in);
    assert_memory_equal(e.buf, "early", 5);
    assert_true(e.flags == (FI_RECV | FI_MSG));
    int taken = 0;
    bool released = false;
    unsigned char *last = e.buf;
    while (!released) {
        pair_fill(out, 100, (unsigned)taken);
        PAIR_POST(&p, fi_inject(p.a.ep, out, 100, p.a.other));
        pair_await(&p, &p.b, &e, NULL);
        assert_ptr_equal(e.op_context, in);
        released = e.flags & FI_MULTI_RECV;
        if (!(e.flags & FI_RECV))
            break;
        assert_int_equal(e.len, 100);
        assert_true((unsigned char *)e.buf > last && (unsigned char *)e.buf + 100 <= in + 1000);
        pair_check(e.buf, 100, (unsigned)taken++);
        last = e.buf;
    }
    assert_in_range(taken, 7, 9);
    pair_close(&p);
}

static void a_message_too_large_for_the_rest_ends_a_multi_receive(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    size_t least = 1;
    const struct iovec first = {in, 256}, second = {in + 256, 4096};
    const struct fi_msg one = {.msg_iov = &first, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = "one"};
    const struct fi_msg two = {.msg_iov = &second, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = "two"};
    (void)state;
    pair_open(&p, &(struct pair_config){.selective = true});
    assert_int_equal(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
    assert_int_equal(fi_recvmsg(p.b.ep, &one, FI_MULTI_RECV), 0); /* not even with FI_COMPLETION */
    assert_int_equal(fi_recvmsg(p.b.ep, &two, FI_MULTI_RECV | FI_COMPLETION), 0);
    PAIR_POST(&p, fi_inject(p.a.ep, out, 200, p.a.other));
    PAIR_POST(&p, fi_inject(p.a.ep, out, 200, p.a.other));
    pair_await(&p, &p.b, &e, NULL); /* the end of the first buffer is reported nevertheless */
    assert_string_equal(e.op_context, "one");
    assert_true(e.flags == FI_MULTI_RECV);
    pair_await(&p, &p.b, &e, NULL);
    assert_string_equal(e.op_context, "two");
    assert_ptr_equal(e.buf, in + 256);
    pair_close(&p);
}

static void many_messages_fill_the_lane_and_come_out_right(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    enum { COUNT = 20000 };
    uint64_t value;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (uint64_t i = 0; i < COUNT; i++)
        PAIR_POST(&p, fi_tinject(p.a.ep, &i, sizeof(i), p.a.other, i));
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(fi_trecv(p.b.ep, &value, sizeof(value), NULL, p.b.other, 0, ~0ull, NULL), 0);
        pair_await(&p, &p.b, &e, NULL);
        assert_int_equal(value, i);
        assert_int_equal(e.tag, i);
    }
    pair_close(&p);
}

static void who_was_opened_to_receive_does_not_send(void **state)
{
    struct pair p;
    unsigned char byte = 1;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    struct fi_info *info = fi_dupinfo(p.a.info);
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
    struct fid_ep *ep;
    struct fid_cq *cq;
    info->caps = FI_TAGGED | FI_MSG | FI_RECV;
    assert_int_equal(fi_endpoint(p.a.domain, info, &ep, NULL), 0);
    assert_int_equal(fi_cq_open(p.a.domain, &cq_attr, &cq, NULL), 0);
    assert_int_equal(fi_ep_bind(ep, &p.a.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(ep, &cq->fid, FI_RECV), 0);
    assert_int_equal(fi_enable(ep), 0);
    assert_int_equal(fi_send(ep, &byte, 1, NULL, p.a.other, NULL), -FI_EOPNOTSUPP);
    assert_int_equal(fi_tsend(ep, &byte, 1, NULL, p.a.other, 3, NULL), -FI_EOPNOTSUPP);
    assert_int_equal(fi_close(&ep->fid), 0);
    assert_int_equal(fi_close(&cq->fid), 0);
    fi_freeinfo(info);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tagged_messages_of_every_size_arrive_whole),
        cmocka_unit_test(untagged_messages_of_every_size_arrive_whole),
        cmocka_unit_test(pieces_are_gathered_and_scattered),
        cmocka_unit_test(too_many_pieces_are_refused),
        cmocka_unit_test(injected_messages_need_no_completion_and_free_their_buffer),
        cmocka_unit_test(order_is_kept_across_sizes),
        cmocka_unit_test(truncation_is_an_error_with_all_details),
        cmocka_unit_test(a_cancelled_receive_completes_with_an_error),
        cmocka_unit_test(closing_cancels_what_is_posted),
        cmocka_unit_test(directed_receives_wait_for_their_source),
        cmocka_unit_test(without_the_capability_the_source_of_a_receive_is_ignored),
        cmocka_unit_test(a_multi_receive_takes_messages_until_it_is_full),
        cmocka_unit_test(a_message_too_large_for_the_rest_ends_a_multi_receive),
        cmocka_unit_test(who_was_opened_to_receive_does_not_send),
        cmocka_unit_test(many_messages_fill_the_lane_and_come_out_right),
    };
    return cmocka_run_group_tests_name("prov/messages", tests, setup_buffers, teardown_buffers);
}
