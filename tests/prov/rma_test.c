/* Registered memory, RMA. */
#include "pair.h"

#include "needs.h"

#include <sys/mman.h>

enum { LARGEST = 1000003 };
static unsigned char *local, *remote;

static int setup_buffers(void **state)
{
    (void)state;
    local = malloc(LARGEST);
    remote = malloc(LARGEST);
    return local && remote ? 0 : -1;
}

static int teardown_buffers(void **state)
{
    (void)state;
    free(local);
    free(remote);
    return 0;
}

static const uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;
static const size_t sizes[] = {0, 1, 16, 17, 4096, 16384, 16385, 100000, LARGEST};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Returns the address at which the peer finds byte 0 of the region. */
static uint64_t origin(const struct side *s)
{
    return s->info->domain_attr->mr_mode & (1 | FI_MR_VIRT_ADDR) ? (uintptr_t)remote : 0;
}

static void data_of_every_size_is_written_and_read(void **state)
{
    static const int modes[] = {0, 1 /* FI_MR_BASIC */, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY};
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        struct pair p;
        struct fid_mr *mr;
        struct fi_cq_tagged_entry e;
        pair_open(&p, &(struct pair_config){.mr_mode = modes[mode]});
        assert_int_equal(fi_mr_reg(p.b.domain, remote, LARGEST, both, 0, 0xabcdef, 0, &mr, NULL), 0);
        if (mode == 0)
            assert_int_equal(fi_mr_key(mr), 0xabcdef);
        uint64_t key = fi_mr_key(mr), base = origin(&p.b);
        for (int i = 0; i < SIZES; i++) {
            size_t n = sizes[i], at = LARGEST - n;
            pair_fill(local, n, (unsigned)i);
            memset(remote, 0, LARGEST);
            PAIR_POST(&p, fi_write(p.a.ep, local, n, NULL, p.a.other, base + at, key, local));
            pair_await(&p, &p.a, &e, NULL);
            assert_true(e.flags == (FI_RMA | FI_WRITE));
            assert_ptr_equal(e.op_context, local);
            pair_check(remote + at, n, (unsigned)i);
            memset(local, 0, n);
            PAIR_POST(&p, fi_read(p.a.ep, local, n, NULL, p.a.other, base + at, key, remote));
            pair_await(&p, &p.a, &e, NULL);
            assert_true(e.flags == (FI_RMA | FI_READ));
            pair_check(local, n, (unsigned)i);
        }
        pair_assert_quiet(&p, &p.b);
        assert_int_equal(fi_close(&mr->fid), 0);
        pair_close(&p);
    }
}

static void pieces_are_written_and_read(void **state)
{
    struct pair p;
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    struct iovec iov[3];
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_mr_reg(p.b.domain, remote, LARGEST, both, 0, 1, 0, &mr, NULL), 0);
    for (int i = 0; i < SIZES; i++) {
        size_t n = sizes[i];
        struct fi_rma_iov target = {.addr = 0, .len = n, .key = 1};
        for (size_t k = 0; k < 3; k++)
            iov[k] = (struct iovec){local + n * k / 3, n * (k + 1) / 3 - n * k / 3};
        const struct fi_msg_rma m = {
            .msg_iov = iov, .iov_count = 3, .addr = p.a.other, .rma_iov = &target, .rma_iov_count = 1};
        pair_fill(local, n, 1);
        PAIR_POST(&p, fi_writemsg(p.a.ep, &m, FI_DELIVERY_COMPLETE));
        pair_await(&p, &p.a, &e, NULL);
        pair_check(remote, n, 1);
        memset(local, 0, n);
        PAIR_POST(&p, fi_readmsg(p.a.ep, &m, 0));
        pair_await(&p, &p.a, &e, NULL);
        pair_check(local, n, 1);
        target.len++;
        assert_int_equal(fi_writemsg(p.a.ep, &m, 0), -FI_EINVAL);
    }
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static void data_with_a_write_tells_the_target(void **state)
{
    struct pair p;
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_mr_reg(p.b.domain, remote, LARGEST, both, 0, 1, 0, &mr, NULL), 0);
    for (int i = 0; i < SIZES; i++) {
        pair_fill(local, sizes[i], 2);
        PAIR_POST(&p, fi_writedata(p.a.ep, local, sizes[i], NULL, 0xfeedfacecafebeef, p.a.other, 0, 1, local));
        pair_await(&p, &p.b, &e, NULL);
        assert_true(e.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
        assert_true(e.data == 0xfeedfacecafebeef);
        assert_int_equal(e.len, sizes[i]);
        assert_null(e.op_context);
        pair_check(remote, sizes[i], 2);
        pair_await(&p, &p.a, &e, NULL);
    }
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

/* True: the initiator executes; false (FI_UNIMEM_COPY=0): the target does. */
static bool mapped;

static void injected_writes_count_when_they_are_there(void **state)
{
    struct pair p;
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true, .tx_op_flags = FI_DELIVERY_COMPLETE});
    size_t most = p.a.info->tx_attr->inject_size;
    mapped = !getenv("FI_UNIMEM_COPY");
    assert_int_equal(fi_mr_reg(p.b.domain, remote, LARGEST, both, 0, 1, 0, &mr, NULL), 0);
    uint64_t count = 0;
    for (size_t n = 0; n <= most; n = n ? n * 3 < most || n == most ? n * 3 : most : 1) {
        pair_fill(local, n, 5);
        PAIR_POST(&p, fi_inject_write(p.a.ep, local, n, p.a.other, 3, 1));
        memset(local, 0, n);
        if (mapped)
            assert_int_equal(fi_cntr_read(p.a.cntr[CNTR_WRITE]), ++count); /* although the target made no progress */
        else
            pair_await_cntr(&p, p.a.cntr[CNTR_WRITE], ++count);
        pair_check(remote + 3, n, 5);
    }
    PAIR_POST(&p, fi_inject_writedata(p.a.ep, "x", 1, 31, p.a.other, 0, 1));
    pair_await(&p, &p.b, &e, NULL);
    assert_int_equal(e.data, 31);
    pair_await_cntr(&p, p.a.cntr[CNTR_WRITE], ++count);
    pair_assert_quiet(&p, &p.a);
    assert_int_equal(fi_inject_write(p.a.ep, local, most + 1, p.a.other, 0, 1), -FI_EINVAL);
    PAIR_POST(&p, fi_read(p.a.ep, local, 8, NULL, p.a.other, 0, 1, NULL));
    pair_await_cntr(&p, p.a.cntr[CNTR_READ], 1);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static void await_refusal(struct pair *p, int err, int prov_errno)
{
    struct fi_cq_err_entry e = {0};
    pair_await_error(p, &p->a, &e);
    assert_int_equal(e.err, err);
    assert_int_equal(e.prov_errno, prov_errno);
    assert_ptr_equal(e.op_context, local);
}

static void what_is_not_allowed_fails_at_the_initiator(void **state)
{
    static const size_t lens[] = {8, 5000, 200000};
    struct pair p;
    struct fid_mr *readable, *writable;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    assert_int_equal(fi_mr_reg(p.b.domain, remote, 300000, FI_REMOTE_READ, 0, 1, 0, &readable, NULL), 0);
    assert_int_equal(fi_mr_reg(p.b.domain, remote, 300000, FI_REMOTE_WRITE, 0, 2, 0, &writable, NULL), 0);
    uint64_t failures = 0;
    for (int i = 0; i < 3; i++) {
        size_t n = lens[i];
        memset(remote, 7, 300000);
        pair_fill(local, n, 0);
        PAIR_POST(&p, fi_write(p.a.ep, local, n, NULL, p.a.other, 0, 99, local));
        await_refusal(&p, FI_ENOKEY, EKEYREJECTED);
        PAIR_POST(&p, fi_write(p.a.ep, local, n, NULL, p.a.other, 0, 1, local));
        await_refusal(&p, FI_EACCES, EACCES);
        PAIR_POST(&p, fi_read(p.a.ep, local, n, NULL, p.a.other, 0, 2, local));
        await_refusal(&p, FI_EACCES, EACCES);
        PAIR_POST(&p, fi_write(p.a.ep, local, n, NULL, p.a.other, 300000 - n + 1, 2, local));
        await_refusal(&p, FI_EACCES, ERANGE);
        PAIR_POST(&p, fi_write(p.a.ep, local, n, NULL, p.a.other, UINT64_MAX - 3, 2, local));
        await_refusal(&p, FI_EACCES, ERANGE);
        failures += 4;
        for (size_t k = 0; k < 300000; k++)
            assert_int_equal(remote[k], 7);
    }
    assert_int_equal(fi_cntr_readerr(p.a.cntr[CNTR_WRITE]), failures);
    assert_int_equal(fi_cntr_read(p.a.cntr[CNTR_WRITE]), 0);
    assert_int_equal(fi_close(&writable->fid), 0);
    PAIR_POST(&p, fi_write(p.a.ep, local, 8, NULL, p.a.other, 0, 2, local)); /* revoked */
    await_refusal(&p, FI_ENOKEY, EKEYREJECTED);
    assert_int_equal(fi_close(&readable->fid), 0);
    pair_close(&p);
}

static void keys_are_unique(void **state)
{
    struct pair p;
    struct fid_mr *mr, *other;
    const struct iovec two[2] = {{remote, 8}, {remote + 8, 8}};
    const struct fi_mr_attr attr = {.mr_iov = two, .iov_count = 1, .access = both, .requested_key = 6};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_mr_reg(p.b.domain, remote, 8, both, 0, 5, 0, &mr, NULL), 0);
    assert_int_equal(fi_mr_reg(p.b.domain, remote, 8, both, 0, 5, 0, &other, NULL), -FI_ENOKEY);
    assert_int_equal(fi_mr_regattr(p.b.domain, &attr, 0, &other), 0);
    assert_int_equal(fi_mr_key(other), 6);
    assert_int_equal(fi_close(&other->fid), 0);
    assert_int_equal(fi_mr_regv(p.b.domain, two, 2, both, 0, 7, 0, &other, NULL), -FI_EINVAL);
    assert_int_equal(fi_mr_bind(mr, &p.b.ep->fid, 0), 0);
    assert_int_equal(fi_mr_enable(mr), 0);
    assert_int_equal(fi_close(&p.b.domain->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_mr_reg(p.b.domain, remote, 8, both, 0, 5, 0, &mr, NULL), 0);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static void raw_keys_can_be_exchanged(void **state)
{
    struct pair p;
    struct fid_mr *mr;
    uint64_t base = 1, key = 0;
    uint8_t raw[64];
    size_t size = 0;
    (void)state;
    pair_open(&p, &(struct pair_config){.mr_mode = FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY});
    assert_int_equal(fi_mr_reg(p.b.domain, remote, 8, both, 0, 5, 0, &mr, NULL), 0);
    assert_int_equal(fi_mr_raw_attr(mr, &base, raw, &size, 0), -FI_ETOOSMALL);
    assert_int_equal(fi_mr_raw_attr(mr, &base, raw, &size, 0), 0);
    assert_true(base == (uintptr_t)remote);
    assert_int_equal(fi_mr_map_raw(p.a.domain, base, raw, size, &key, 0), 0);
    assert_int_equal(key, fi_mr_key(mr));
    assert_int_equal(fi_mr_unmap_key(p.a.domain, key), 0);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

/* As MPI's dynamic windows do. */
static void all_memory_can_be_registered_at_once(void **state)
{
    struct pair p;
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    int on_the_stack = 0, value = 77;
    (void)state;
    needs(has_madvise());
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_mr_reg(p.b.domain, NULL, UINTPTR_MAX, both, 0, 1, 0, &mr, NULL), 0);
    PAIR_POST(&p, fi_write(p.a.ep, &value, sizeof(value), NULL, p.a.other, (uintptr_t)&on_the_stack, 1, NULL));
    pair_await(&p, &p.a, &e, NULL);
    assert_int_equal(on_the_stack, 77);
    const uint64_t nowhere[] = {0, 8, UINT64_MAX - 3, UINT64_MAX / 2 + 1, (uintptr_t) "read only"};
    for (int i = 0; i < 5; i++) { /* a peer's mistake affects only that peer */
        struct fi_cq_err_entry error;
        PAIR_POST(&p, fi_write(p.a.ep, &value, sizeof(value), NULL, p.a.other, nowhere[i], 1, NULL));
        pair_await_error(&p, &p.a, &error);
        assert_int_equal(error.err, i == 2 ? FI_EACCES : FI_EFAULT);
    }
    PAIR_POST(&p, fi_read(p.a.ep, &value, sizeof(value), NULL, p.a.other, (uintptr_t) "still", 1, NULL));
    pair_await(&p, &p.a, &e, NULL);
    assert_memory_equal(&value, "stil", 4);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

/* The owner looks whether the memory is there only as far as it goes on: each look makes it resident. */
static void a_read_of_all_memory_touches_what_it_moves(void **state)
{
    enum { LEN = 64 << 20, PAGE = 4096 };
    static unsigned char resident[LEN / PAGE];
    const char *machines = getenv("FI_UNIMEM_MACHINE");
    struct pair p;
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    size_t touched = 0;
    (void)state;
    needs(has_madvise());
    char *from = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *to = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(from != MAP_FAILED && to != MAP_FAILED);
    madvise(from, LEN, MADV_NOHUGEPAGE);
    from[LEN - 1] = 77;
    setenv("FI_UNIMEM_COPY", "0", 1); /* the owner executes the read. Set from here on: this is the last test */
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_mr_reg(p.b.domain, NULL, UINTPTR_MAX, both, 0, 1, 0, &mr, NULL), 0);
    PAIR_POST(&p, fi_read(p.a.ep, to, LEN, NULL, p.a.other, (uintptr_t)from, 1, NULL));
    for (int i = 0; i < 4; i++)
        pair_progress(&p);
    assert_int_equal(mincore(from, LEN, resident), 0);
    for (size_t i = 0; i < LEN / PAGE; i++)
        touched += resident[i] & 1;
    if (!machines || !strstr(machines, "net")) /* net offers all of the memory at once */
        assert_in_range(touched, 1, LEN / PAGE / 2);
    pair_await(&p, &p.a, &e, NULL);
    assert_int_equal(to[LEN - 1], 77);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
    munmap(from, LEN);
    munmap(to, LEN);
}

/* rma_iov_count 0: nothing moves, whatever is registered; data that comes with it arrives. */
static void a_message_without_a_place_moves_nothing(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct fi_msg_rma m = {.addr = 0, .context = &p, .data = 0x77};
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    m.addr = p.a.other;
    PAIR_POST(&p, fi_writemsg(p.a.ep, &m, FI_COMPLETION));
    pair_await(&p, &p.a, &e, NULL);
    assert_ptr_equal(e.op_context, &p);
    assert_true(e.flags == (FI_RMA | FI_WRITE));
    PAIR_POST(&p, fi_readmsg(p.a.ep, &m, FI_COMPLETION));
    pair_await(&p, &p.a, &e, NULL);
    assert_true(e.flags == (FI_RMA | FI_READ));
    pair_assert_quiet(&p, &p.b);
    PAIR_POST(&p, fi_writemsg(p.a.ep, &m, FI_COMPLETION | FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE));
    pair_await(&p, &p.a, &e, NULL);
    pair_await(&p, &p.b, &e, NULL);
    assert_true(e.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
    assert_int_equal(e.data, 0x77);
    assert_int_equal(e.len, 0);
    pair_await_cntr(&p, p.a.cntr[CNTR_WRITE], 2);
    pair_await_cntr(&p, p.a.cntr[CNTR_READ], 1);
    const struct iovec iov = {.iov_base = &m, .iov_len = 1};
    m.msg_iov = &iov;
    m.iov_count = 1;
    assert_int_equal(fi_writemsg(p.a.ep, &m, 0), -FI_EINVAL); /* a byte, and no place for it */
    side_close_ep(&p.b);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_of_every_size_is_written_and_read),
        cmocka_unit_test(pieces_are_written_and_read),
        cmocka_unit_test(data_with_a_write_tells_the_target),
        cmocka_unit_test(injected_writes_count_when_they_are_there),
        cmocka_unit_test(what_is_not_allowed_fails_at_the_initiator),
        cmocka_unit_test(keys_are_unique),
        cmocka_unit_test(raw_keys_can_be_exchanged),
        cmocka_unit_test(all_memory_can_be_registered_at_once),
        cmocka_unit_test(a_message_without_a_place_moves_nothing),
        cmocka_unit_test(a_read_of_all_memory_touches_what_it_moves),
    };
    return needs_status(cmocka_run_group_tests_name("prov/rma", tests, setup_buffers, teardown_buffers));
}
