/* The machine's own memory (unimem/fi_ext_unimem.h): allocation, and transfers by DMA from and to it. */
#include "pair.h"

#include <rdma/fi_atomic.h>

#include <unimem/fi_ext_unimem.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3000017, KEY = 7 };

static const uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;

static struct fi_unimem_memory_ops *memory_ops(const struct side *s)
{
    void *ops = NULL;
    assert_int_equal(fi_open_ops(&s->domain->fid, FI_UNIMEM_MEMORY_OPS, 0, &ops, NULL), 0);
    return ops;
}

static unsigned char *memory_new(const struct side *s, size_t len)
{
    void *memory = NULL;
    assert_int_equal(memory_ops(s)->alloc(s->domain, len, &memory), 0);
    return memory;
}

static void what_is_asked_for_wrongly_is_refused(void **state)
{
    struct pair p;
    void *ops = NULL, *memory = NULL;
    struct fid_mr *mr;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_open_ops(&p.a.domain->fid, "something else", 0, &ops, NULL), -FI_ENOSYS);
    assert_int_equal(fi_open_ops(&p.a.domain->fid, FI_UNIMEM_MEMORY_OPS, 1, &ops, NULL), -FI_EBADFLAGS);
    assert_null(ops);
    struct fi_unimem_memory_ops *m = memory_ops(&p.a);
    assert_true(m->size == sizeof(*m));
    assert_int_equal(m->alloc(p.a.domain, 0, &memory), -FI_EINVAL);
    assert_int_equal(m->alloc(p.a.domain, (size_t)1 << 60, &memory), -FI_ENOSPC);
    assert_null(memory);
    assert_int_equal(m->alloc(p.a.domain, 5000, &memory), 0);
    assert_int_equal((uintptr_t)memory % 4096, 0);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(((unsigned char *)memory)[i], 0);
    assert_int_equal(m->free(p.b.domain, memory), -FI_EINVAL); /* another domain's */
    assert_int_equal(m->free(p.a.domain, (char *)memory + 4096), -FI_EINVAL);
    assert_int_equal(fi_mr_reg(p.a.domain, (char *)memory + 100, 200, both, 0, KEY, 0, &mr, NULL), 0);
    assert_int_equal(m->free(p.a.domain, memory), -FI_EBUSY);
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(m->free(p.a.domain, memory), 0);
    assert_int_equal(m->free(p.a.domain, memory), -FI_EINVAL);
    assert_int_equal(m->alloc(p.a.domain, 100, &memory), 0); /* not freed: closing the domain does that */
    pair_close(&p);
}

/* Demands that the operation is complete at return, without progress of the target's endpoint. */
static void assert_done(const struct side *s, void *context)
{
    struct fi_cq_tagged_entry e = {0};
    assert_int_equal(fi_cq_read(s->cq, &e, 1), 1);
    assert_ptr_equal(e.op_context, context);
}

static void a_region_in_it_is_read_and_written_without_its_owner(void **state)
{
    static const size_t sizes[] = {0, 1, 8, 100, 4096, 70001, 1 << 20, BYTES};
    struct pair p;
    struct fid_mr *mr;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    unsigned char *remote = memory_new(&p.b, BYTES), *dmable = memory_new(&p.a, BYTES), *plain = malloc(BYTES);
    assert_int_equal(fi_mr_reg(p.b.domain, remote, BYTES, both, 0, KEY, 0, &mr, NULL), 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int k = 0; k < 2; k++) {
            size_t n = sizes[i], at = BYTES - n;
            unsigned char *local = k ? plain : dmable;
            pair_fill(local, n, (unsigned)(i + 3));
            memset(remote, 0, BYTES);
            assert_int_equal(fi_write(p.a.ep, local, n, NULL, p.a.other, at, KEY, local), 0);
            pair_check(remote + at, n, (unsigned)(i + 3));
            assert_done(&p.a, local);
            memset(local, 0, n);
            assert_int_equal(fi_read(p.a.ep, local, n, NULL, p.a.other, at, KEY, remote), 0);
            pair_check(local, n, (unsigned)(i + 3));
            assert_done(&p.a, remote);
        }
    }
    assert_int_equal(fi_close(&mr->fid), 0);
    free(plain);
    pair_close(&p);
}

static void pieces_of_both_kinds_are_gathered_and_scattered(void **state)
{
    enum { PIECES = 5 };
    struct pair p;
    struct fid_mr *mr;
    struct iovec iov[PIECES];
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    unsigned char *remote = memory_new(&p.b, BYTES), *dmable = memory_new(&p.a, BYTES), *plain = malloc(BYTES);
    assert_int_equal(fi_mr_reg(p.b.domain, remote, BYTES, both, 0, KEY, 0, &mr, NULL), 0);
    struct fi_rma_iov target = {.addr = 5, .len = 0, .key = KEY};
    for (size_t i = 0; i < PIECES; i++) {
        iov[i] = (struct iovec){(i % 2 ? plain : dmable) + i * 500000, i * 100003};
        pair_fill(iov[i].iov_base, iov[i].iov_len, (unsigned)i);
        target.len += iov[i].iov_len;
    }
    const struct fi_msg_rma m = {
        .msg_iov = iov, .iov_count = PIECES, .addr = p.a.other, .rma_iov = &target, .rma_iov_count = 1};
    assert_int_equal(fi_writemsg(p.a.ep, &m, 0), 0);
    assert_done(&p.a, NULL);
    for (size_t i = 0, at = 5; i < PIECES; at += iov[i++].iov_len) {
        pair_check(remote + at, iov[i].iov_len, (unsigned)i);
        memset(iov[i].iov_base, 0, iov[i].iov_len);
    }
    assert_int_equal(fi_readmsg(p.a.ep, &m, 0), 0);
    assert_done(&p.a, NULL);
    for (size_t i = 0; i < PIECES; i++)
        pair_check(iov[i].iov_base, iov[i].iov_len, (unsigned)i);
    assert_int_equal(fi_close(&mr->fid), 0);
    free(plain);
    pair_close(&p);
}

static void a_region_that_was_closed_is_not_reached(void **state)
{
    struct pair p;
    struct fid_mr *mr, *other;
    struct fi_cq_err_entry e = {0};
    char word[8] = "written";
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    char *remote = (char *)memory_new(&p.b, 4096);
    assert_int_equal(fi_mr_reg(p.b.domain, remote, 4096, both, 0, 1, 0, &other, NULL), 0);
    for (int round = 0; round < 5; round++) {
        assert_int_equal(fi_mr_reg(p.b.domain, remote, 4096, both, 0, KEY, 0, &mr, NULL), 0);
        assert_int_equal(fi_write(p.a.ep, word, 8, NULL, p.a.other, 16, KEY, NULL), 0);
        assert_done(&p.a, NULL);
        assert_string_equal(remote + 16, word);
        memset(remote, 0, 100);
        assert_int_equal(fi_close(&mr->fid), 0);
        PAIR_POST(&p, fi_write(p.a.ep, word, 8, NULL, p.a.other, 16, KEY, word));
        pair_await_error(&p, &p.a, &e);
        assert_int_equal(e.err, FI_ENOKEY);
        assert_int_equal(remote[16], 0);
    }
    PAIR_POST(&p, fi_write(p.a.ep, word, 8, NULL, p.a.other, 4092, 1, word));
    pair_await_error(&p, &p.a, &e);
    assert_int_equal(e.err, FI_EACCES);
    assert_int_equal(fi_close(&other->fid), 0);
    pair_close(&p);
}

/* A DMA does not notify the owner, so the owner executes all accesses to a region that counts them. */
static void a_region_that_counts_is_left_to_its_owner(void **state)
{
    struct pair p;
    struct fid_mr *mr;
    struct fid_cntr *cntr;
    struct fi_cntr_attr attr = {0};
    struct fi_cq_tagged_entry e;
    uint64_t word = 5;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    unsigned char *remote = memory_new(&p.b, 4096);
    assert_int_equal(fi_cntr_open(p.b.domain, &attr, &cntr, NULL), 0);
    assert_int_equal(fi_mr_reg(p.b.domain, remote, 4096, both, 0, KEY, FI_RMA_EVENT, &mr, NULL), 0);
    assert_int_equal(fi_write(p.a.ep, &word, 8, NULL, p.a.other, 0, KEY, NULL), 0);
    assert_done(&p.a, NULL);
    assert_int_equal(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE), 0);
    for (uint64_t i = 1; i <= 3; i++) {
        PAIR_POST(&p, fi_write(p.a.ep, &word, 8, NULL, p.a.other, 0, KEY, NULL));
        pair_await(&p, &p.a, &e, NULL);
        pair_await_cntr(&p, cntr, i);
    }
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_close(&cntr->fid), 0);
    pair_close(&p);
}

static void atomics_are_the_owners(void **state)
{
    struct pair p;
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    uint64_t one = 1, before = 9;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    uint64_t *remote = (void *)memory_new(&p.b, 4096);
    assert_int_equal(fi_mr_reg(p.b.domain, remote, 4096, both, 0, KEY, 0, &mr, NULL), 0);
    for (uint64_t i = 0; i < 20; i++) { /* in turn with a put, while no atomic is pending */
        PAIR_POST(&p,
                  fi_fetch_atomic(p.a.ep, &one, 1, NULL, &before, NULL, p.a.other, 8, KEY, FI_UINT64, FI_SUM, NULL));
        pair_await(&p, &p.a, &e, NULL);
        assert_int_equal(before, i);
        PAIR_POST(&p, fi_write(p.a.ep, &one, 8, NULL, p.a.other, 16 + i * 8, KEY, NULL));
        pair_await(&p, &p.a, &e, NULL);
        assert_int_equal(remote[2 + i], 1);
    }
    assert_int_equal(remote[1], 20);
    assert_int_equal(fi_close(&mr->fid), 0);
    pair_close(&p);
}

static unsigned char *buffer_of(unsigned char *dmable, unsigned char *plain, int kind, size_t at)
{
    return (kind ? dmable : plain) + at;
}

static void messages_arrive_whole_from_and_in_either_kind(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 32768, 32769, 100000, 1 << 20, 2500001}; /* steps of 1 MiB */
    struct pair p;
    struct fi_cq_tagged_entry e;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    unsigned char *out = memory_new(&p.a, BYTES), *in = memory_new(&p.b, BYTES);
    unsigned char *out_plain = malloc(BYTES), *in_plain = malloc(BYTES);
    for (int kinds = 0; kinds < 16; kinds++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            size_t n = sizes[i] / 2, m = sizes[i] - n;
            struct iovec from[2] = {{buffer_of(out, out_plain, kinds & 1, 3), n},
                                    {buffer_of(out, out_plain, kinds & 2, BYTES / 2), m}};
            struct iovec to[2] = {{buffer_of(in, in_plain, kinds & 4, BYTES / 2 + 1), m},
                                  {buffer_of(in, in_plain, kinds & 8, 0), n}};
            pair_fill(out, BYTES, (unsigned)i);
            pair_fill(out_plain, BYTES, (unsigned)i);
            memset(in, 0, BYTES);
            memset(in_plain, 0, BYTES);
            PAIR_POST(&p, fi_trecvv(p.b.ep, to, NULL, 2, p.b.other, 1, 0, &p));
            PAIR_POST(&p, fi_tsendv(p.a.ep, from, NULL, 2, p.a.other, 1, &p));
            pair_await(&p, &p.b, &e, NULL);
            assert_int_equal(e.len, n + m);
            pair_await(&p, &p.a, &e, NULL);
            unsigned char *flat = malloc(2 * (n + m) + 1);
            memcpy(flat, from[0].iov_base, n);
            memcpy(flat + n, from[1].iov_base, m);
            memcpy(flat + n + m, to[0].iov_base, m);
            memcpy(flat + n + m + m, to[1].iov_base, n);
            assert_memory_equal(flat, flat + n + m, n + m);
            free(flat);
        }
    }
    free(out_plain);
    free(in_plain);
    pair_close(&p);
}

/* The peer still knows the memory that was freed; the new one may lie at the same address. */
static void memory_that_was_freed_and_taken_again_is_reached(void **state)
{
    struct pair p;
    struct fid_mr *mr;
    struct fi_cq_tagged_entry e;
    char word[8] = "written";
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    unsigned char *in = malloc(BYTES);
    for (int round = 0; round < 20; round++) {
        size_t len = (size_t)(round % 3 + 1) * 100000;
        unsigned char *remote = memory_new(&p.b, len), *out = memory_new(&p.a, len);
        assert_int_equal(fi_mr_reg(p.b.domain, remote, len, both, 0, KEY, 0, &mr, NULL), 0);
        assert_int_equal(fi_write(p.a.ep, word, 8, NULL, p.a.other, len - 8, KEY, NULL), 0);
        assert_done(&p.a, NULL);
        assert_string_equal((char *)remote + len - 8, word);
        pair_fill(out, len, (unsigned)round);
        PAIR_POST(&p, fi_trecv(p.b.ep, in, len, NULL, p.b.other, 1, 0, NULL));
        PAIR_POST(&p, fi_tsend(p.a.ep, out, len, NULL, p.a.other, 1, NULL));
        pair_await(&p, &p.b, &e, NULL);
        pair_check(in, len, (unsigned)round);
        pair_await(&p, &p.a, &e, NULL);
        assert_int_equal(fi_close(&mr->fid), 0);
        assert_int_equal(memory_ops(&p.a)->free(p.a.domain, out), 0);
        assert_int_equal(memory_ops(&p.b)->free(p.b.domain, remote), 0);
    }
    free(in);
    pair_close(&p);
}

static void put_and_get(struct pair *p)
{
    struct fid_mr *mr;
    char word[8] = "written";
    char *remote = (char *)memory_new(&p->b, 4096);
    assert_int_equal(fi_mr_reg(p->b.domain, remote, 4096, both, 0, KEY, 0, &mr, NULL), 0);
    assert_int_equal(fi_write(p->a.ep, word, 8, NULL, p->a.other, 16, KEY, NULL), 0);
    assert_done(&p->a, NULL);
    assert_string_equal(remote + 16, word);
    assert_int_equal(fi_close(&mr->fid), 0);
}

static void a_forked_child_has_a_board_of_its_own(void **state)
{
    struct pair p, childs;
    int status = -1;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    put_and_get(&p);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* else cmocka's handler would go on with the next test, in both processes */
        alarm(30);
        pair_open(&childs, &(struct pair_config){0});
        put_and_get(&childs);
        pair_close(&childs);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    put_and_get(&p);
    pair_close(&p);
}

/* The machine shm has no special memory to allocate. */
static void another_machine_has_none(void **state)
{
    struct pair p;
    void *ops = NULL;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_open_ops(&p.a.domain->fid, FI_UNIMEM_MEMORY_OPS, 0, &ops, NULL), -FI_ENOSYS);
    assert_null(ops);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest without[] = {cmocka_unit_test(another_machine_has_none)};
    const struct CMUnitTest with[] = {
        cmocka_unit_test(what_is_asked_for_wrongly_is_refused),
        cmocka_unit_test(a_region_in_it_is_read_and_written_without_its_owner),
        cmocka_unit_test(pieces_of_both_kinds_are_gathered_and_scattered),
        cmocka_unit_test(a_region_that_was_closed_is_not_reached),
        cmocka_unit_test(a_region_that_counts_is_left_to_its_owner),
        cmocka_unit_test(atomics_are_the_owners),
        cmocka_unit_test(messages_arrive_whole_from_and_in_either_kind),
        cmocka_unit_test(memory_that_was_freed_and_taken_again_is_reached),
        cmocka_unit_test(a_forked_child_has_a_board_of_its_own),
    };
    const char *machine = getenv("FI_UNIMEM_MACHINE");
    if (machine && strcmp(machine, "board") == 0)
        return cmocka_run_group_tests_name("prov/dmable", with, NULL, NULL);
    return cmocka_run_group_tests_name("prov/dmable", without, NULL, NULL);
}
