/*
 * One-sided operations on one word, or a few elements, in every form of call: completions, counters, errors and waiting
 * are the same whether the caller executes them at once, by the fast path, or the target does.
 */
#include "pair.h"

#include <rdma/fi_atomic.h>

enum { KEY = 3, AT = 8, LENGTH = 60, GUARD = 0x11 };

static unsigned char memory[4096] __attribute__((aligned(4096)));
static uint64_t operand = 5, compare, result;
static int context;

/* ---- the forms of call: on the word at addr ---- */

static ssize_t call_write(struct side *s, uint64_t addr, uint64_t flags)
{
    (void)flags;
    return fi_write(s->ep, &operand, 8, NULL, s->other, addr, KEY, &context);
}

static ssize_t call_inject_write(struct side *s, uint64_t addr, uint64_t flags)
{
    (void)flags;
    return fi_inject_write(s->ep, &operand, 8, s->other, addr, KEY);
}

static ssize_t call_read(struct side *s, uint64_t addr, uint64_t flags)
{
    (void)flags;
    return fi_read(s->ep, &result, 8, NULL, s->other, addr, KEY, &context);
}

static ssize_t rma_msg(struct side *s, uint64_t addr, uint64_t flags, bool read)
{
    const struct iovec iov = {read ? &result : &operand, 8};
    const struct fi_rma_iov there = {.addr = addr, .len = 8, .key = KEY};
    const struct fi_msg_rma m = {.msg_iov = &iov,
                                 .iov_count = 1,
                                 .addr = s->other,
                                 .rma_iov = &there,
                                 .rma_iov_count = 1,
                                 .context = &context,
                                 .data = 77};
    return read ? fi_readmsg(s->ep, &m, flags) : fi_writemsg(s->ep, &m, flags);
}

static ssize_t call_writemsg(struct side *s, uint64_t addr, uint64_t flags)
{
    return rma_msg(s, addr, flags, false);
}

static ssize_t call_readmsg(struct side *s, uint64_t addr, uint64_t flags)
{
    return rma_msg(s, addr, flags, true);
}

static ssize_t call_atomic(struct side *s, uint64_t addr, uint64_t flags)
{
    (void)flags;
    return fi_atomic(s->ep, &operand, 1, NULL, s->other, addr, KEY, FI_UINT64, FI_ATOMIC_WRITE, &context);
}

static ssize_t call_inject_atomic(struct side *s, uint64_t addr, uint64_t flags)
{
    (void)flags;
    return fi_inject_atomic(s->ep, &operand, 1, s->other, addr, KEY, FI_UINT64, FI_ATOMIC_WRITE);
}

static ssize_t call_fetch(struct side *s, uint64_t addr, uint64_t flags)
{
    (void)flags;
    return fi_fetch_atomic(s->ep, &operand, 1, NULL, &result, NULL, s->other, addr, KEY, FI_UINT64, FI_ATOMIC_WRITE,
                           &context);
}

static ssize_t call_compare(struct side *s, uint64_t addr, uint64_t flags)
{
    (void)flags;
    return fi_compare_atomic(s->ep, &operand, 1, NULL, &compare, NULL, &result, NULL, s->other, addr, KEY, FI_UINT64,
                             FI_CSWAP, &context);
}

static ssize_t atomic_msg(struct side *s, uint64_t addr, uint64_t flags, int kind)
{
    const struct fi_ioc in = {&operand, 1}, with = {&compare, 1};
    struct fi_ioc out = {&result, 1};
    const struct fi_rma_ioc there = {.addr = addr, .count = 1, .key = KEY};
    const struct fi_msg_atomic m = {.msg_iov = &in,
                                    .iov_count = 1,
                                    .addr = s->other,
                                    .rma_iov = &there,
                                    .rma_iov_count = 1,
                                    .datatype = FI_UINT64,
                                    .op = kind == 2 ? FI_CSWAP : FI_ATOMIC_WRITE,
                                    .context = &context};
    if (kind == 0)
        return fi_atomicmsg(s->ep, &m, flags);
    if (kind == 1)
        return fi_fetch_atomicmsg(s->ep, &m, &out, NULL, 1, flags);
    return fi_compare_atomicmsg(s->ep, &m, &with, NULL, 1, &out, NULL, 1, flags);
}

static ssize_t call_atomicmsg(struct side *s, uint64_t addr, uint64_t flags)
{
    return atomic_msg(s, addr, flags, 0);
}

static ssize_t call_fetchmsg(struct side *s, uint64_t addr, uint64_t flags)
{
    return atomic_msg(s, addr, flags, 1);
}

static ssize_t call_comparemsg(struct side *s, uint64_t addr, uint64_t flags)
{
    return atomic_msg(s, addr, flags, 2);
}

enum { WRITES = 1, FETCHES = 2, INJECTS = 4, MSG = 8, ATOMIC = 16 };
static const struct form {
    const char *name;
    ssize_t (*call)(struct side *s, uint64_t addr, uint64_t flags);
    unsigned is;
} forms[] = {
    {"fi_write", call_write, WRITES},
    {"fi_writemsg", call_writemsg, WRITES | MSG},
    {"fi_inject_write", call_inject_write, WRITES | INJECTS},
    {"fi_read", call_read, FETCHES},
    {"fi_readmsg", call_readmsg, FETCHES | MSG},
    {"fi_atomic", call_atomic, ATOMIC | WRITES},
    {"fi_atomicmsg", call_atomicmsg, ATOMIC | WRITES | MSG},
    {"fi_inject_atomic", call_inject_atomic, ATOMIC | WRITES | INJECTS},
    {"fi_fetch_atomic", call_fetch, ATOMIC | WRITES | FETCHES},
    {"fi_fetch_atomicmsg", call_fetchmsg, ATOMIC | WRITES | FETCHES | MSG},
    {"fi_compare_atomic", call_compare, ATOMIC | WRITES | FETCHES},
    {"fi_compare_atomicmsg", call_comparemsg, ATOMIC | WRITES | FETCHES | MSG},
};
enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

/* ---- */

static uint64_t *word(void)
{
    return (uint64_t *)(void *)(memory + AT);
}

static struct fid_mr *export(struct pair *p, uint64_t access)
{
    struct fid_mr *mr;
    memset(memory, GUARD, sizeof(memory));
    compare = *word();
    result = 0;
    assert_int_equal(fi_mr_reg(p->b.domain, memory, LENGTH, access, 0, KEY, 0, &mr, NULL), 0);
    return mr;
}

/* Waits until the counter of this form has counted, and checks that no other has. */
static void expect_counts(struct pair *p, const struct form *f, uint64_t counted[CNTR_KINDS])
{
    counted[f->is & FETCHES ? CNTR_READ : CNTR_WRITE]++;
    for (int i = 0; i < CNTR_KINDS; i++)
        pair_await_cntr(p, p->a.cntr[i], counted[i]);
}

static void expect_effect(const struct form *f)
{
    const uint64_t before = 0x1111111111111111;
    assert_int_equal(*word(), f->is & WRITES ? operand : before);
    if (f->is & FETCHES)
        assert_int_equal(result, before);
    memset(memory, GUARD, sizeof(memory));
    result = 0;
}

static void expect_event(struct pair *p, const struct form *f)
{
    struct fi_cq_tagged_entry e;
    pair_await(p, &p->a, &e, NULL);
    assert_ptr_equal(e.op_context, &context);
    assert_int_equal(e.flags, (f->is & ATOMIC ? FI_ATOMIC : FI_RMA) | (f->is & FETCHES ? FI_READ : FI_WRITE));
}

/* fi_*msg reports a completion with FI_COMPLETION, the other forms as the endpoint was bound; injections never do. */
static void each_operation_has_its_effect_counts_once_and_reports_when_asked(void **state)
{
    (void)state;
    for (int selective = 0; selective < 2; selective++) {
        struct pair p;
        uint64_t counted[CNTR_KINDS] = {0};
        pair_open(&p, &(struct pair_config){.counters = true, .selective = selective});
        struct fid_mr *mr = export(&p, FI_REMOTE_READ | FI_REMOTE_WRITE);
        for (int i = 0; i < FORMS; i++) {
            const struct form *f = &forms[i];
            for (int asked = 0; asked < (f->is & MSG ? 2 : 1); asked++) {
                PAIR_POST(&p, f->call(&p.a, AT, asked ? FI_COMPLETION : 0));
                expect_counts(&p, f, counted);
                expect_effect(f);
                if (!(f->is & INJECTS) && (!selective || asked))
                    expect_event(&p, f);
                pair_assert_quiet(&p, &p.a);
            }
        }
        assert_int_equal(fi_close(&mr->fid), 0);
        pair_close(&p);
    }
}

static void expect_refusal(struct pair *p, const struct form *f, uint64_t addr, int prov_errno)
{
    struct fi_cq_err_entry e = {0};
    PAIR_POST(p, f->call(&p->a, addr, FI_COMPLETION));
    pair_await_error(p, &p->a, &e);
    assert_int_equal(e.prov_errno, prov_errno);
    for (size_t i = 0; i < sizeof(memory); i++)
        assert_int_equal(memory[i], GUARD);
    assert_int_equal(result, 0);
}

/* Whole words beyond the end and before the beginning, and one that ends four bytes too late. */
static void what_is_out_of_bounds_is_refused_and_changes_nothing(void **state)
{
    static const uint64_t outside[] = {56, 64, 2048, (uint64_t)0 - 8};
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    struct fid_mr *mr = export(&p, FI_REMOTE_READ | FI_REMOTE_WRITE);
    for (int i = 0; i < FORMS; i++) {
        for (size_t k = 0; k < sizeof(outside) / sizeof(outside[0]); k++)
            expect_refusal(&p, &forms[i], outside[k], ERANGE);
    }
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static void what_is_not_allowed_is_refused_and_changes_nothing(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    for (int writable = 0; writable < 2; writable++) {
        struct fid_mr *mr = export(&p, writable ? FI_REMOTE_WRITE : FI_REMOTE_READ);
        for (int i = 0; i < FORMS; i++) {
            if (forms[i].is & (writable ? FETCHES : WRITES))
                expect_refusal(&p, &forms[i], AT, EACCES);
        }
        assert_int_equal(fi_close(&mr->fid), 0);
    }
    pair_close(&p);
}

/* A message with delivery complete to an endpoint without progress stays pending. */
static void a_fenced_operation_waits_for_what_is_pending(void **state)
{
    (void)state;
    for (int i = 0; i < FORMS; i++) {
        struct pair p;
        struct fi_cq_tagged_entry e;
        uint64_t in;
        if (!(forms[i].is & MSG))
            continue;
        pair_open(&p, &(struct pair_config){.counters = true, .tx_op_flags = FI_DELIVERY_COMPLETE});
        struct fid_mr *mr = export(&p, FI_REMOTE_READ | FI_REMOTE_WRITE);
        PAIR_POST(&p, forms[i].call(&p.a, AT, FI_FENCE)); /* nothing is pending */
        pair_await(&p, &p.a, &e, NULL);
        expect_effect(&forms[i]);
        PAIR_POST(&p, fi_trecv(p.b.ep, &in, 8, NULL, p.b.other, 1, 0, NULL));
        PAIR_POST(&p, fi_tsend(p.a.ep, &operand, 8, NULL, p.a.other, 1, NULL));
        for (int k = 0; k < 10; k++)
            assert_int_equal(forms[i].call(&p.a, AT, FI_FENCE), -FI_EAGAIN);
        assert_int_equal(*word(), 0x1111111111111111);
        PAIR_POST(&p, forms[i].call(&p.a, AT, FI_FENCE));
        pair_await(&p, &p.a, &e, NULL);
        assert_true(e.flags & FI_SEND); /* it came first */
        pair_await(&p, &p.a, &e, NULL);
        expect_effect(&forms[i]);
        assert_int_equal(fi_close(&mr->fid), 0);
        pair_close(&p);
    }
}

static void flags_that_cannot_be_kept_are_refused(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    struct fid_mr *mr = export(&p, FI_REMOTE_READ | FI_REMOTE_WRITE);
    for (int i = 0; i < FORMS; i++) {
        if (!(forms[i].is & MSG))
            continue;
        assert_int_equal(forms[i].call(&p.a, AT, FI_COMMIT_COMPLETE), -FI_EOPNOTSUPP);
        assert_int_equal(forms[i].call(&p.a, AT, FI_MATCH_COMPLETE), -FI_EOPNOTSUPP);
    }
    pair_assert_quiet(&p, &p.a);
    expect_effect(&(struct form){.is = 0});
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

/* ---- a few elements ---- */

enum { FEW_MAX = 6 };
static const uint32_t few_operand[FEW_MAX] = {10, 20, 30, 40, 50, 60};
static const uint32_t few_compare[FEW_MAX] = {0x11111111, 7, 0x11111111, 7, 0x11111111, 7};
static uint32_t few_result[FEW_MAX];

/* Calls fi_*atomic (pieces 0), or fi_*atomicmsg with lists of so many pieces. */
static ssize_t call_few(struct side *s, int kind, size_t count, size_t pieces)
{
    struct fi_ioc in[2], with[2], out[2];
    const size_t cut = pieces == 2 ? count / 2 : 0;
    for (size_t i = 0; i < 2; i++) {
        const size_t at = i && pieces == 2 ? cut : 0, n = pieces == 1 ? count : i ? count - cut : cut;
        in[i] = (struct fi_ioc){(void *)(uintptr_t)(few_operand + at), n};
        with[i] = (struct fi_ioc){(void *)(uintptr_t)(few_compare + at), n};
        out[i] = (struct fi_ioc){few_result + at, n};
    }
    const struct fi_rma_ioc there = {.addr = AT, .count = count, .key = KEY};
    const struct fi_msg_atomic m = {.msg_iov = in,
                                    .iov_count = pieces,
                                    .addr = s->other,
                                    .rma_iov = &there,
                                    .rma_iov_count = 1,
                                    .datatype = FI_UINT32,
                                    .op = kind == 2 ? FI_CSWAP : FI_SUM,
                                    .context = &context};
    if (pieces && kind == 0)
        return fi_atomicmsg(s->ep, &m, FI_COMPLETION);
    if (pieces && kind == 1)
        return fi_fetch_atomicmsg(s->ep, &m, out, NULL, pieces, FI_COMPLETION);
    if (pieces)
        return fi_compare_atomicmsg(s->ep, &m, with, NULL, pieces, out, NULL, pieces, FI_COMPLETION);
    if (kind == 0)
        return fi_atomic(s->ep, few_operand, count, NULL, s->other, AT, KEY, FI_UINT32, FI_SUM, &context);
    if (kind == 1)
        return fi_fetch_atomic(s->ep, few_operand, count, NULL, few_result, NULL, s->other, AT, KEY, FI_UINT32, FI_SUM,
                               &context);
    return fi_compare_atomic(s->ep, few_operand, count, NULL, few_compare, NULL, few_result, NULL, s->other, AT, KEY,
                             FI_UINT32, FI_CSWAP, &context);
}

static void expect_few(int kind, size_t count)
{
    const uint32_t *at = (const uint32_t *)(const void *)(memory + AT), before = 0x11111111;
    for (size_t i = 0; i < FEW_MAX; i++) {
        const bool swaps = few_compare[i] == before;
        const uint32_t after = kind == 2 ? (swaps ? few_operand[i] : before) : before + few_operand[i];
        assert_int_equal(at[i], i < count ? after : before);
        assert_int_equal(few_result[i], kind > 0 && i < count ? before : 0);
    }
    memset(memory, GUARD, sizeof(memory));
    memset(few_result, 0, sizeof(few_result));
}

static void a_few_elements_are_like_one(void **state)
{
    static const uint64_t flags[] = {FI_ATOMIC | FI_WRITE, FI_ATOMIC | FI_READ, FI_ATOMIC | FI_READ};
    struct pair p;
    uint64_t counted[CNTR_KINDS] = {0};
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    struct fid_mr *mr = export(&p, FI_REMOTE_READ | FI_REMOTE_WRITE);
    for (size_t count = 2; count <= FEW_MAX; count++) {
        for (int n = 0; n < 9; n++) {
            struct fi_cq_tagged_entry e;
            const int kind = n % 3;
            PAIR_POST(&p, call_few(&p.a, kind, count, (size_t)n / 3));
            counted[kind ? CNTR_READ : CNTR_WRITE]++;
            for (int i = 0; i < CNTR_KINDS; i++)
                pair_await_cntr(&p, p.a.cntr[i], counted[i]);
            pair_await(&p, &p.a, &e, NULL);
            assert_ptr_equal(e.op_context, &context);
            assert_int_equal(e.flags, flags[kind]);
            expect_few(kind, count);
        }
        PAIR_POST(&p, fi_inject_atomic(p.a.ep, few_operand, count, p.a.other, AT, KEY, FI_UINT32, FI_SUM));
        pair_await_cntr(&p, p.a.cntr[CNTR_WRITE], ++counted[CNTR_WRITE]);
        expect_few(0, count);
        pair_assert_quiet(&p, &p.a);
    }
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

/* A write with data notifies its target, however small it is. Lengths must agree, and not exceed what can be
 * injected. */
static void messages_that_are_not_one_plain_word_are_not_missed(void **state)
{
    static unsigned char large[1 << 20];
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    struct fid_mr *mr = export(&p, FI_REMOTE_READ | FI_REMOTE_WRITE);
    PAIR_POST(&p, call_writemsg(&p.a, AT, FI_REMOTE_CQ_DATA));
    pair_await(&p, &p.b, &e, NULL);
    assert_int_equal(e.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    assert_int_equal(e.data, 77);
    pair_await(&p, &p.a, &e, NULL);
    expect_effect(&forms[1]);
    const size_t most = p.a.info->tx_attr->inject_size;
    assert_true(most < sizeof(large));
    struct iovec iov = {large, most + 1};
    struct fi_rma_iov there = {.len = most + 1, .key = KEY};
    const struct fi_msg_rma m = {
        .msg_iov = &iov, .iov_count = 1, .addr = p.a.other, .rma_iov = &there, .rma_iov_count = 1};
    assert_int_equal(fi_writemsg(p.a.ep, &m, FI_INJECT), -FI_EINVAL);
    assert_int_equal(fi_inject_write(p.a.ep, large, most + 1, p.a.other, 0, KEY), -FI_EINVAL);
    iov.iov_len = 8;
    there.len = 16;
    assert_int_equal(fi_writemsg(p.a.ep, &m, 0), -FI_EINVAL);
    assert_int_equal(fi_readmsg(p.a.ep, &m, 0), -FI_EINVAL);
    pair_assert_quiet(&p, &p.a);
    expect_effect(&(struct form){.is = 0});
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_operation_has_its_effect_counts_once_and_reports_when_asked),
        cmocka_unit_test(what_is_out_of_bounds_is_refused_and_changes_nothing),
        cmocka_unit_test(what_is_not_allowed_is_refused_and_changes_nothing),
        cmocka_unit_test(a_fenced_operation_waits_for_what_is_pending),
        cmocka_unit_test(flags_that_cannot_be_kept_are_refused),
        cmocka_unit_test(a_few_elements_are_like_one),
        cmocka_unit_test(messages_that_are_not_one_plain_word_are_not_missed),
    };
    return cmocka_run_group_tests_name("prov/fast", tests, NULL, NULL);
}
