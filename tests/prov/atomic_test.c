/* Atomics through the real libfabric: the whole matrix, every form of call, completions, counters, limits. */
#include "pair.h"

#include <rdma/fi_atomic.h>

enum { TYPES = 16, OPS = 20, BEYOND = 24, ROOM = 3 << 20, KEY = 9, DIFF = 19 /* libfabric 2's FI_DIFF */ };
enum kind { BASE, FETCH, COMPARE };

static unsigned char *target, *operand, *compare, *result;

static int setup_buffers(void **state)
{
    (void)state;
    target = aligned_alloc(64, ROOM);
    operand = malloc(ROOM);
    compare = malloc(ROOM);
    result = malloc(ROOM);
    return target && operand && compare && result ? 0 : -1;
}

static int teardown_buffers(void **state)
{
    (void)state;
    free(target);
    free(operand);
    free(compare);
    free(result);
    return 0;
}

static const size_t size_of[TYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16, 16, 32, 16, 16};

/* Stores a small number as an element of the datatype. */
static void put(int type, void *to, int value)
{
    float f[2] = {(float)value, 0};
    double d[2] = {value, 0};
    long double l[2];
    uint64_t u[2] = {(uint64_t)(int64_t)value, 0};
    memset(l, 0, sizeof(l));
    l[0] = value;
    const void *from = type == FI_FLOAT || type == FI_FLOAT_COMPLEX               ? (void *)f
                       : type == FI_DOUBLE || type == FI_DOUBLE_COMPLEX           ? (void *)d
                       : type == FI_LONG_DOUBLE || type == FI_LONG_DOUBLE_COMPLEX ? (void *)l
                                                                                  : (void *)u;
    memcpy(to, from, size_of[type]);
}

static int get(int type, const void *from)
{
    float f;
    double d;
    long double l;
    uint64_t u = 0;
    switch (type) {
    case FI_FLOAT:
    case FI_FLOAT_COMPLEX:
        memcpy(&f, from, sizeof(f));
        return (int)f;
    case FI_DOUBLE:
    case FI_DOUBLE_COMPLEX:
        memcpy(&d, from, sizeof(d));
        return (int)d;
    case FI_LONG_DOUBLE:
    case FI_LONG_DOUBLE_COMPLEX:
        memcpy(&l, from, sizeof(l));
        return (int)l;
    default:
        memcpy(&u, from, size_of[type] < 8 ? size_of[type] : 8);
        return (int)u;
    }
}

/* Returns what becomes of 5 with operand 3, compared with 5 where the operation compares. See fi_atomic(3). */
static int outcome(int op)
{
    static const int of[OPS] = {
        [FI_MIN] = 3,         [FI_MAX] = 5,          [FI_SUM] = 8,      [FI_PROD] = 15,    [FI_LOR] = 1,
        [FI_LAND] = 1,        [FI_BOR] = 7,          [FI_BAND] = 1,     [FI_LXOR] = 0,     [FI_BXOR] = 6,
        [FI_ATOMIC_READ] = 5, [FI_ATOMIC_WRITE] = 3, [FI_CSWAP] = 3,    [FI_CSWAP_NE] = 5, [FI_CSWAP_LE] = 3,
        [FI_CSWAP_LT] = 5,    [FI_CSWAP_GE] = 3,     [FI_CSWAP_GT] = 5, [FI_MSWAP] = 1,    [DIFF] = 2};
    return of[op];
}

static int valid(struct fid_ep *ep, enum kind kind, int type, int op, size_t *count)
{
    return kind == BASE    ? fi_atomicvalid(ep, (enum fi_datatype)type, (enum fi_op)op, count)
           : kind == FETCH ? fi_fetch_atomicvalid(ep, (enum fi_datatype)type, (enum fi_op)op, count)
                           : fi_compare_atomicvalid(ep, (enum fi_datatype)type, (enum fi_op)op, count);
}

static ssize_t post(struct side *s, enum kind kind, int type, int op, size_t count, uint64_t addr, int form)
{
    struct fi_ioc in[2] = {{.addr = operand, .count = count / 2},
                           {.addr = operand + count / 2 * size_of[type], .count = count - count / 2}};
    struct fi_ioc cmp = {.addr = compare, .count = count}, out = {.addr = result, .count = count};
    const struct fi_rma_ioc to = {.addr = addr, .count = count, .key = KEY};
    const struct fi_msg_atomic m = {.msg_iov = in,
                                    .iov_count = op == FI_ATOMIC_READ ? 0 : 2,
                                    .addr = s->other,
                                    .rma_iov = &to,
                                    .rma_iov_count = 1,
                                    .datatype = (enum fi_datatype)type,
                                    .op = (enum fi_op)op,
                                    .context = target};
    const enum fi_datatype t = (enum fi_datatype)type;
    const enum fi_op o = (enum fi_op)op;
    const void *buf = op == FI_ATOMIC_READ ? NULL : operand;
    switch (kind * 3 + form) {
    case BASE * 3 + 0:
        return fi_atomic(s->ep, buf, count, NULL, s->other, addr, KEY, t, o, target);
    case BASE * 3 + 1:
        return fi_atomicv(s->ep, in, NULL, 2, s->other, addr, KEY, t, o, target);
    case BASE * 3 + 2:
        return fi_atomicmsg(s->ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    case FETCH * 3 + 0:
        return fi_fetch_atomic(s->ep, buf, count, NULL, result, NULL, s->other, addr, KEY, t, o, target);
    case FETCH * 3 + 1:
        return fi_fetch_atomicv(s->ep, in, NULL, m.iov_count, &out, NULL, 1, s->other, addr, KEY, t, o, target);
    case FETCH * 3 + 2:
        return fi_fetch_atomicmsg(s->ep, &m, &out, NULL, 1, FI_COMPLETION);
    case COMPARE * 3 + 0:
        return fi_compare_atomic(s->ep, buf, count, NULL, compare, NULL, result, NULL, s->other, addr, KEY, t, o,
                                 target);
    case COMPARE * 3 + 1:
        return fi_compare_atomicv(s->ep, in, NULL, 2, &cmp, NULL, 1, &out, NULL, 1, s->other, addr, KEY, t, o, target);
    default:
        return fi_compare_atomicmsg(s->ep, &m, &cmp, NULL, 1, &out, NULL, 1, FI_COMPLETION | FI_INJECT);
    }
}

static struct fid_mr *export(struct side *owner, uint64_t access)
{
    struct fid_mr *mr;
    assert_int_equal(fi_mr_reg(owner->domain, target, ROOM, access, 0, KEY, 0, &mr, NULL), 0);
    return mr;
}

static const uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;

/* count is at most what an inject takes, so that every form of call can be used with every datatype. */
static void check_pair(struct pair *p, enum kind kind, int type, int op, int form, size_t count, uint64_t addr)
{
    struct fi_cq_tagged_entry e;
    size_t size = size_of[type];
    for (size_t i = 0; i < count; i++) {
        put(type, target + addr + i * size, 5);
        put(type, operand + i * size, 3);
        put(type, compare + i * size, 5);
        put(type, result + i * size, 77);
    }
    PAIR_POST(p, post(&p->a, kind, type, op, count, addr, form));
    pair_await(p, &p->a, &e, NULL);
    assert_true(e.flags == (FI_ATOMIC | (kind == BASE ? FI_WRITE : FI_READ)));
    assert_ptr_equal(e.op_context, target);
    for (size_t i = 0; i < count; i++) {
        if (get(type, target + addr + i * size) != outcome(op))
            fail_msg("kind %d type %d op %d form %d: %d", kind, type, op, form, get(type, target + addr + i * size));
        assert_int_equal(get(type, result + i * size), kind == BASE ? 77 : 5);
    }
}

static void every_pair_that_is_valid_works_and_no_other(void **state)
{
    static const uint64_t flags[] = {0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC};
    struct pair p;
    int works = 0;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    struct fid_mr *mr = export(&p.b, both);
    for (int n = 0; n < BEYOND * BEYOND * 3; n++) {
        int type = n / 3 / BEYOND, op = n / 3 % BEYOND;
        enum kind kind = (enum kind)(n % 3);
        struct fi_atomic_attr attr = {0};
        size_t count = 0;
        int ret = valid(p.a.ep, kind, type, op, &count);
        assert_int_equal(fi_query_atomic(p.a.domain, (enum fi_datatype)type, (enum fi_op)op, &attr, flags[kind]), ret);
        if (ret == 0) {
            works++;
            assert_true(type < TYPES && op < OPS);
            assert_int_equal(attr.size, size_of[type]);
            assert_int_equal(attr.count, count);
            assert_true(count * size_of[type] >= 65536);
            for (int form = 0; form < 3; form++) {
                check_pair(&p, kind, type, op, form, 1 + (size_t)(n % 7), 64);
                check_pair(&p, kind, type, op, form, 3, 67);
            }
        } else {
            assert_int_equal(ret, -FI_EOPNOTSUPP);
            for (int form = 0; form < 3 && type < TYPES; form++)
                assert_int_equal(post(&p.a, kind, type, op, 1, 0, form), -FI_EOPNOTSUPP);
        }
    }
    assert_int_equal(works, 10 * (12 + 13 + 7) + 3 * (9 + 10 + 6) + 3 * (7 + 8 + 2));
    struct fi_atomic_attr attr;
    assert_int_equal(fi_query_atomic(p.a.domain, FI_INT8, FI_SUM, &attr, FI_TAGGED), -FI_EOPNOTSUPP);
    assert_int_equal(fi_query_atomic(p.a.domain, FI_INT8, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC),
                     -FI_EINVAL);
    assert_int_equal(fi_query_atomic(p.a.domain, FI_INT8, FI_SUM, &attr, FI_READ), -FI_EINVAL);
    pair_assert_quiet(&p, &p.b);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static void the_largest_count_works_and_one_more_does_not(void **state)
{
    struct pair p;
    size_t count;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    struct fid_mr *mr = export(&p.b, both);
    for (int kind = BASE; kind <= COMPARE; kind++) {
        int op = kind == COMPARE ? FI_CSWAP : FI_SUM;
        for (int type = FI_UINT8; type < TYPES; type += 6) {
            assert_int_equal(valid(p.a.ep, (enum kind)kind, type, op, &count), 0);
            for (int form = 0; form < 2; form++)
                check_pair(&p, (enum kind)kind, type, op, form, count, 64);
            for (int form = 0; form < 3; form++)
                assert_int_equal(post(&p.a, (enum kind)kind, type, op, count + 1, 64, form), -FI_EINVAL);
            assert_int_equal(post(&p.a, (enum kind)kind, type, op, 0, 64, 0), -FI_EINVAL);
        }
    }
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static void lists_that_do_not_agree_are_refused(void **state)
{
    struct pair p;
    struct fi_ioc in = {operand, 4}, out = {result, 4}, many[40];
    struct fi_rma_ioc to[2] = {{.count = 4, .key = KEY}, {.count = 4, .key = KEY}};
    struct fi_msg_atomic m = {
        .msg_iov = &in, .iov_count = 1, .rma_iov = to, .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    m.addr = p.a.other;
    m.rma_iov_count = 2;
    assert_int_equal(fi_atomicmsg(p.a.ep, &m, 0), -FI_EINVAL);
    m.rma_iov_count = 0;
    assert_int_equal(fi_atomicmsg(p.a.ep, &m, 0), -FI_EINVAL);
    m.rma_iov_count = 1;
    to[0].count = 5;
    assert_int_equal(fi_atomicmsg(p.a.ep, &m, 0), -FI_EINVAL);
    to[0].count = 3;
    assert_int_equal(fi_atomicmsg(p.a.ep, &m, 0), -FI_EINVAL);
    to[0].count = 4;
    out.count = 3;
    assert_int_equal(fi_fetch_atomicmsg(p.a.ep, &m, &out, NULL, 1, 0), -FI_EINVAL);
    out.count = SIZE_MAX;
    assert_int_equal(fi_fetch_atomicmsg(p.a.ep, &m, &out, NULL, 1, 0), -FI_EINVAL);
    out.count = 4;
    m.op = FI_CSWAP;
    assert_int_equal(fi_compare_atomicmsg(p.a.ep, &m, &in, NULL, 0, &out, NULL, 1, 0), -FI_EINVAL);
    m.op = FI_SUM;
    for (int i = 0; i < 40; i++)
        many[i] = (struct fi_ioc){operand + i * 8, 1};
    m.msg_iov = many;
    m.iov_count = to[0].count = 33;
    assert_int_equal(fi_atomicmsg(p.a.ep, &m, 0), -FI_EINVAL);
    assert_int_equal(fi_atomicmsg(p.a.ep, &m, FI_MATCH_COMPLETE), -FI_EINVAL);
    m.iov_count = to[0].count = 32;
    assert_int_equal(fi_atomicmsg(p.a.ep, &m, FI_COMMIT_COMPLETE), -FI_EOPNOTSUPP);
    pair_close(&p);
}

static void counters_tell_updates_from_fetches_and_injections_count_when_done(void **state)
{
    struct pair p;
    uint64_t one = 1, old = 0;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true, .selective = true, .tx_op_flags = FI_DELIVERY_COMPLETE});
    struct fid_mr *mr = export(&p.b, both);
    uint64_t *words = (uint64_t *)(void *)target;
    size_t most = p.a.info->tx_attr->inject_size;
    memset(target, 0, ROOM);
    for (uint64_t i = 1; i <= 20; i++) {
        PAIR_POST(&p, fi_inject_atomic(p.a.ep, &one, 1, p.a.other, 8, KEY, FI_UINT64, FI_SUM));
        pair_await_cntr(&p, p.a.cntr[CNTR_WRITE], i);
        assert_int_equal(words[1], i);
    }
    memset(operand, 0xff, most);
    PAIR_POST(&p, fi_inject_atomic(p.a.ep, operand, most, p.a.other, 64, KEY, FI_UINT8, FI_BXOR));
    memset(operand, 0, most);
    pair_await_cntr(&p, p.a.cntr[CNTR_WRITE], 21);
    for (size_t i = 0; i < most; i++)
        assert_int_equal(target[64 + i], 0xff);
    assert_int_equal(fi_inject_atomic(p.a.ep, operand, most + 1, p.a.other, 64, KEY, FI_UINT8, FI_BXOR), -FI_EINVAL);
    assert_int_equal(fi_cntr_read(p.a.cntr[CNTR_READ]), 0);
    PAIR_POST(&p, fi_fetch_atomic(p.a.ep, &one, 1, NULL, &old, NULL, p.a.other, 8, KEY, FI_UINT64, FI_SUM, NULL));
    pair_await_cntr(&p, p.a.cntr[CNTR_READ], 1);
    assert_int_equal(old, 20);
    PAIR_POST(&p, fi_compare_atomic(p.a.ep, &one, 1, NULL, &one, NULL, &old, NULL, p.a.other, 8, KEY, FI_UINT64,
                                    FI_CSWAP, NULL));
    pair_await_cntr(&p, p.a.cntr[CNTR_READ], 2);
    assert_int_equal(old, 21);
    assert_int_equal(fi_cntr_read(p.a.cntr[CNTR_WRITE]), 21);
    pair_assert_quiet(&p, &p.a); /* nobody asked for an event */
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static void await_refusal(struct pair *p, int err, int prov_errno)
{
    struct fi_cq_err_entry e = {0};
    pair_await_error(p, &p->a, &e);
    assert_int_equal(e.err, err);
    assert_int_equal(e.prov_errno, prov_errno);
    assert_true(e.flags & FI_ATOMIC);
}

static void what_is_not_allowed_fails_at_the_initiator(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    memset(target, 7, ROOM);
    memset(operand, 3, ROOM);
    PAIR_POST(&p, post(&p.a, BASE, FI_UINT64, FI_SUM, 1, 0, 0));
    await_refusal(&p, FI_ENOKEY, EKEYREJECTED);
    struct fid_mr *mr = export(&p.b, FI_REMOTE_READ);
    PAIR_POST(&p, post(&p.a, BASE, FI_UINT64, FI_SUM, 1, 0, 0));
    await_refusal(&p, FI_EACCES, EACCES);
    PAIR_POST(&p, post(&p.a, FETCH, FI_UINT64, FI_SUM, 1, 0, 0));
    await_refusal(&p, FI_EACCES, EACCES);
    PAIR_POST(&p, post(&p.a, FETCH, FI_UINT64, FI_ATOMIC_READ, 1, ROOM - 7, 0));
    await_refusal(&p, FI_EACCES, ERANGE);
    assert_int_equal(fi_close(&mr->fid), 0);
    mr = export(&p.b, FI_REMOTE_WRITE);
    PAIR_POST(&p, post(&p.a, FETCH, FI_UINT64, FI_ATOMIC_READ, 1, 0, 0));
    await_refusal(&p, FI_EACCES, EACCES);
    PAIR_POST(&p, post(&p.a, COMPARE, FI_UINT64, FI_CSWAP, 30000, 0, 0));
    await_refusal(&p, FI_EACCES, EACCES);
    assert_int_equal(fi_cntr_readerr(p.a.cntr[CNTR_WRITE]), 2);
    assert_int_equal(fi_cntr_readerr(p.a.cntr[CNTR_READ]), 4);
    for (int i = 0; i < ROOM; i++)
        assert_int_equal(target[i], 7);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

/* A fenced atomic waits for what came before; atomics to one place take effect in the order of the calls. */
static void order_is_kept(void **state)
{
    enum { N = 500 };
    struct pair p;
    static uint64_t value[N], old[N];
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    struct fid_mr *mr = export(&p.b, both);
    memset(target, 0, ROOM);
    for (uint64_t i = 0; i < N; i++) {
        struct fi_ioc in = {&value[i], 1}, out = {&old[i], 1};
        const struct fi_rma_ioc to = {.count = 1, .key = KEY};
        const struct fi_msg_atomic m = {.msg_iov = &in,
                                        .iov_count = 1,
                                        .addr = p.a.other,
                                        .rma_iov = &to,
                                        .rma_iov_count = 1,
                                        .datatype = FI_UINT64,
                                        .op = FI_ATOMIC_WRITE};
        value[i] = i + 1;
        PAIR_POST(&p, fi_fetch_atomicmsg(p.a.ep, &m, &out, NULL, 1, i % 50 == 49 ? FI_FENCE : 0));
        for (ssize_t ret; (ret = fi_cq_read(p.a.cq, &e, 1)) != -FI_EAGAIN;)
            assert_int_equal(ret, 1);
    }
    for (int quiet = 0; quiet < 300; quiet++) {
        pair_progress(&p);
        if (fi_cq_read(p.a.cq, &e, 1) == 1)
            quiet = 0;
    }
    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(old[i], i);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static void an_endpoint_reaches_its_own_memory_at_once(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    uint64_t one = 1, old = 0;
    fi_addr_t self;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    assert_int_equal(fi_av_insert(p.a.av, p.a.name, 1, &self, 0, NULL), 1);
    struct fid_mr *mr = export(&p.a, both);
    uint64_t *words = (uint64_t *)(void *)target;
    *words = 41;
    PAIR_POST(&p, fi_fetch_atomic(p.a.ep, &one, 1, NULL, &old, NULL, self, 0, KEY, FI_UINT64, FI_SUM, &e));
    if (getenv("FI_UNIMEM_ADOPT")) /* windows are switched off: the owner's progress executes it */
        pair_await_cntr(&p, p.a.cntr[CNTR_READ], 1);
    assert_int_equal(old, 41);
    assert_int_equal(*words, 42);
    assert_int_equal(fi_cq_read(p.a.cq, &e, 1), 1);
    assert_ptr_equal(e.op_context, &e);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

/* With FI_UNIMEM_MPICH_ATOMICS the answers of fi_*valid change; the operations that can be called do not. */
static void mpich_is_told_what_it_wants_to_hear(void **state)
{
    struct pair p;
    size_t count = 0;
    uint64_t one = 1, old;
    (void)state;
    assert_int_equal(setenv("FI_UNIMEM_MPICH_ATOMICS", "1", 1), 0);
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_compare_atomicvalid(p.a.ep, FI_UINT64, FI_MIN, &count), 0);
    assert_true(count > 0);
    assert_int_equal(fi_atomicvalid(p.a.ep, FI_DOUBLE, FI_ATOMIC_READ, &count), 0);
    assert_int_equal(fi_fetch_atomicvalid(p.a.ep, FI_INT32, FI_CSWAP, &count), 0);
    assert_int_equal(fi_atomicvalid(p.a.ep, FI_DOUBLE, FI_BOR, &count), -FI_EOPNOTSUPP); /* has no form at all */
    assert_int_equal(fi_atomic(p.a.ep, &one, 1, NULL, p.a.other, 0, KEY, FI_UINT64, FI_CSWAP, NULL), -FI_EOPNOTSUPP);
    assert_int_equal(
        fi_compare_atomic(p.a.ep, &one, 1, NULL, &one, NULL, &old, NULL, p.a.other, 0, KEY, FI_UINT64, FI_MIN, NULL),
        -FI_EOPNOTSUPP);
    pair_close(&p);
    assert_int_equal(unsetenv("FI_UNIMEM_MPICH_ATOMICS"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_that_is_valid_works_and_no_other),
        cmocka_unit_test(the_largest_count_works_and_one_more_does_not),
        cmocka_unit_test(lists_that_do_not_agree_are_refused),
        cmocka_unit_test(counters_tell_updates_from_fetches_and_injections_count_when_done),
        cmocka_unit_test(what_is_not_allowed_fails_at_the_initiator),
        cmocka_unit_test(order_is_kept),
        cmocka_unit_test(an_endpoint_reaches_its_own_memory_at_once),
        cmocka_unit_test(mpich_is_told_what_it_wants_to_hear),
    };
    return cmocka_run_group_tests_name("prov/atomic", tests, setup_buffers, teardown_buffers);
}
