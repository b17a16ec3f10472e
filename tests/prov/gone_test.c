/*
 * RMA and atomics on registered memory that the program has unmapped, truncated or made read-only: an error completion,
 * and everything goes on. The target is the process itself or a peer. meson varies who executes: the initiator, or the
 * owner, in records; with "auto" the threads of automatic progress.
 */
#include "needs.h"
#include "pair.h"

#include <rdma/fi_atomic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Far below the kernel's mappings, so that no other mapping lands in the ranges that are unmapped here. */
#define PLACE UINT64_C(0x200000000000)

enum { PAGES = 64 };

static size_t page;
static struct pair_config config;
static unsigned char out[PAGES * 65536], in[PAGES * 65536];

struct region {
    unsigned char *at;
    size_t len;
    int fd;
    struct fid_mr *mr;
};

enum kind { UNMAPPED, CUT_OFF, READ_ONLY, KINDS };
static const char *const names[KINDS] = {"unmapped", "cut off", "read-only"};

static void region_open(struct region *r, struct side *s, enum kind kind, size_t pages)
{
    *r = (struct region){.len = pages * page, .fd = -1};
    if (kind == CUT_OFF) {
        r->fd = memfd_create("gone", 0);
        assert_true(r->fd >= 0);
        assert_int_equal(ftruncate(r->fd, (off_t)r->len), 0);
    }
    static uintptr_t next = PLACE;
    next += (uintptr_t)1 << 30;
    r->at = mmap((void *)next, r->len, PROT_READ | PROT_WRITE,
                 kind == CUT_OFF ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, r->fd, 0);
    assert_true(r->at != MAP_FAILED);
    memset(r->at, 0x5a, r->len);
    if (kind == READ_ONLY)
        assert_int_equal(mprotect(r->at, r->len, PROT_READ), 0);
    assert_int_equal(fi_mr_reg(s->domain, r->at, r->len, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &r->mr, NULL), 0);
}

/* Takes away the second half; a read-only region was so from the beginning. */
static void region_lose(const struct region *r, enum kind kind)
{
    if (kind == UNMAPPED)
        assert_int_equal(munmap(r->at + r->len / 2, r->len / 2), 0);
    else if (kind == CUT_OFF)
        assert_int_equal(ftruncate(r->fd, (off_t)(r->len / 2)), 0);
}

static void region_close(const struct region *r)
{
    assert_int_equal(fi_close(&r->mr->fid), 0);
    munmap(r->at, r->len);
    if (r->fd >= 0)
        close(r->fd);
}

struct target {
    struct pair *p;
    fi_addr_t to;
    struct fid_mr *mr;
};

static void ends(struct pair *p, int err)
{
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry error = {.err = 0};
    if (err == 0) {
        pair_await(p, &p->a, &e, NULL);
        return;
    }
    pair_await_error(p, &p->a, &error);
    assert_int_equal(error.err, err);
}

static void writes(const struct target *t, size_t offset, size_t len, int err)
{
    PAIR_POST(t->p, fi_write(t->p->a.ep, out, len, NULL, t->to, offset, fi_mr_key(t->mr), NULL));
    ends(t->p, err);
}

static void reads(const struct target *t, size_t offset, size_t len, int err)
{
    PAIR_POST(t->p, fi_read(t->p->a.ep, in, len, NULL, t->to, offset, fi_mr_key(t->mr), NULL));
    ends(t->p, err);
}

static void updates(const struct target *t, size_t offset, size_t count, enum fi_datatype type, int err)
{
    const uint64_t key = fi_mr_key(t->mr);
    PAIR_POST(t->p, fi_atomic(t->p->a.ep, out, count, NULL, t->to, offset, key, type, FI_SUM, NULL));
    ends(t->p, err);
    PAIR_POST(t->p, fi_fetch_atomic(t->p->a.ep, out, count, NULL, in, NULL, t->to, offset, key, type, FI_SUM, NULL));
    ends(t->p, err);
}

static void all_fail(const struct target *t, const struct region *r, enum kind kind)
{
    const size_t half = r->len / 2;
    const size_t lens[] = {1, 8, 100, 4000, page + 1, half};
    const int read_err = kind == READ_ONLY ? 0 : FI_EFAULT;
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        writes(t, half, lens[i], FI_EFAULT);
        writes(t, r->len - lens[i], lens[i], FI_EFAULT);
        reads(t, half, lens[i], read_err);
    }
    writes(t, half - 4, 8, FI_EFAULT); /* across the edge */
    reads(t, 0, r->len, read_err);
    updates(t, half, 1, FI_UINT64, FI_EFAULT);
    updates(t, half, 100, FI_UINT32, FI_EFAULT);
    updates(t, half, 1, FI_DOUBLE_COMPLEX, FI_EFAULT);
    updates(t, half, half / sizeof(long double), FI_LONG_DOUBLE, FI_EFAULT);
}

/* Demands that no stand-in was left in the place of the missing memory. */
static void nothing_is_left(const struct region *r, enum kind kind)
{
    unsigned char resident[1];
    char *lost = (char *)r->at + r->len / 2;
    if (kind == UNMAPPED)
        assert_int_equal(mincore(lost, page, resident), -1);
    if (kind == READ_ONLY) {
        for (size_t i = 0; i < r->len; i++)
            assert_int_equal(r->at[i], 0x5a);
        assert_int_equal(write(STDOUT_FILENO, "", 0), 0);
    }
    if (kind == CUT_OFF) {
        assert_int_equal(ftruncate(r->fd, (off_t)r->len), 0); /* the second half comes back, empty */
        for (size_t i = 0; i < r->len / 2; i++)
            assert_int_equal(lost[i], 0);
        memset(lost, 1, r->len / 2);
        assert_int_equal(pread(r->fd, in, 1, (off_t)(r->len - 1)), 1);
        assert_int_equal(in[0], 1);
    }
}

static void lost_memory(enum kind kind, bool self, size_t pages)
{
    struct pair p;
    struct region r;
    fi_addr_t to;
    memset(out, 0x5a, sizeof(out)); /* each sum differs from what stands there */
    pair_open(&p, &config);
    struct side *owner = self ? &p.a : &p.b;
    assert_int_equal(fi_av_insert(p.a.av, owner->name, 1, &to, 0, NULL), 1);
    printf("%s, %s, %zu pages\n", names[kind], self ? "one's own" : "a peer's", pages);
    region_open(&r, owner, kind, pages);
    const struct target t = {.p = &p, .to = to, .mr = r.mr};
    if (kind != READ_ONLY) {
        writes(&t, 0, r.len, 0);
        reads(&t, 0, r.len, 0);
        updates(&t, 0, 1, FI_UINT64, 0);
    }
    region_lose(&r, kind);
    all_fail(&t, &r, kind);
    if (kind != READ_ONLY) { /* what is left works as before */
        writes(&t, 0, 8, 0);
        reads(&t, 0, r.len / 2, 0);
        updates(&t, 0, 1, FI_UINT64, 0);
    }
    nothing_is_left(&r, kind);
    region_close(&r);
    PAIR_POST(&p, fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
    PAIR_POST(&p, fi_tsend(p.a.ep, out, 8, NULL, p.a.other, 1, NULL));
    ends(&p, 0);
    pair_close(&p);
}

/* The provider's handler does not hide the program's own faults. */
static void own_faults_stay(void)
{
    struct pair p;
    struct region r;
    fi_addr_t to;
    int status = 0;
    pair_open(&p, &config);
    assert_int_equal(fi_av_insert(p.a.av, p.a.name, 1, &to, 0, NULL), 1);
    region_open(&r, &p.a, READ_ONLY, 4);
    const struct target t = {.p = &p, .to = to, .mr = r.mr};
    writes(&t, 0, 8, FI_EFAULT); /* the handler is there */
    pid_t pid = fork();
    if (pid == 0) {
        *(volatile unsigned char *)r.at = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    region_close(&r);
    pair_close(&p);
}

static void memory_that_is_gone_is_an_error(void **state)
{
    (void)state;
    needs(has_private_copy()); /* by which the fault guard reads what it replaces */
    /* cmocka sets its signal handlers anew for each test, which removes the provider's: so there is only one test */
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    page = (size_t)sysconf(_SC_PAGESIZE);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int self = 0; self < 2; self++) {
            /* adopted memory lives on in its file: peers that have it mapped do not notice */
            if (kind == UNMAPPED && !self && !getenv("FI_UNIMEM_ADOPT"))
                continue;
            lost_memory(kind, self, 4);
            lost_memory(kind, self, PAGES);
        }
    }
    own_faults_stay();
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "auto") == 0)
        config.progress = FI_PROGRESS_AUTO;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_gone_is_an_error),
    };
    return needs_status(cmocka_run_group_tests_name("prov/gone", tests, NULL, NULL));
}
