/* See pair.h. */
#include "pair.h"

#include <time.h>

uint64_t pair_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t pair_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool pair_is_over_net(void)
{
    const char *machine = getenv("FI_UNIMEM_MACHINE");
    return machine && strstr(machine, "net");
}

size_t pair_addr(void)
{
    const char *machine = getenv("FI_UNIMEM_MACHINE");
    return pair_is_over_net() ? 64 : machine && strstr(machine, "board") ? 40 : 24;
}

void pair_fill(void *buf, size_t len, unsigned seed)
{
    unsigned char *b = buf;
    for (size_t i = 0; i < len; i++)
        b[i] = (unsigned char)(i * 31 + (i >> 8) + seed);
}

void pair_check(const void *buf, size_t len, unsigned seed)
{
    const unsigned char *b = buf;
    for (size_t i = 0; i < len; i++) {
        if (b[i] != (unsigned char)(i * 31 + (i >> 8) + seed))
            fail_msg("byte %zu of %zu is wrong", i, len);
    }
}

struct fi_info *pair_hints(const struct pair_config *config)
{
    struct fi_info *hints = fi_allocinfo();
    assert_non_null(hints);
    hints->fabric_attr->prov_name = strdup("unimem");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = config->caps;
    hints->domain_attr->threading = config->threading ? config->threading : FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = config->progress;
    hints->domain_attr->av_type = config->av_type;
    hints->domain_attr->mr_mode = config->mr_mode;
    hints->tx_attr->op_flags = config->tx_op_flags;
    return hints;
}

void side_open_ep(struct side *s, const struct pair_config *config)
{
    static const uint64_t kinds[CNTR_KINDS] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
    size_t len = sizeof(s->name);
    assert_int_equal(fi_endpoint(s->domain, s->info, &s->ep, NULL), 0);
    assert_int_equal(fi_ep_bind(s->ep, &s->av->fid, 0), 0);
    assert_int_equal(
        fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV | (config->selective ? FI_SELECTIVE_COMPLETION : 0)), 0);
    for (int i = 0; i < CNTR_KINDS && config->counters; i++)
        assert_int_equal(fi_ep_bind(s->ep, &s->cntr[i]->fid, kinds[i]), 0);
    assert_int_equal(fi_enable(s->ep), 0);
    assert_int_equal(fi_getname(&s->ep->fid, s->name, &len), 0);
    assert_int_equal(len, pair_addr());
}

void side_open(struct side *s, const struct pair_config *config)
{
    struct fi_info *hints = pair_hints(config);
    struct fi_av_attr av = {.type = config->av_type};
    struct fi_cq_attr cq = {.format = config->format ? config->format : FI_CQ_FORMAT_TAGGED,
                            .wait_obj = config->wait_obj};
    struct fi_cntr_attr cntr = {.wait_obj = config->wait_obj};
    memset(s, 0, sizeof(*s));
    s->other = FI_ADDR_NOTAVAIL;
    assert_int_equal(fi_getinfo(PAIR_API, NULL, NULL, 0, hints, &s->info), 0);
    fi_freeinfo(hints);
    assert_int_equal(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), 0);
    assert_int_equal(fi_domain(s->fabric, s->info, &s->domain, NULL), 0);
    assert_int_equal(fi_av_open(s->domain, &av, &s->av, NULL), 0);
    assert_int_equal(fi_cq_open(s->domain, &cq, &s->cq, NULL), 0);
    for (int i = 0; i < CNTR_KINDS && config->counters; i++)
        assert_int_equal(fi_cntr_open(s->domain, &cntr, &s->cntr[i], NULL), 0);
    side_open_ep(s, config);
}

void side_close_ep(struct side *s)
{
    if (s->ep)
        assert_int_equal(fi_close(&s->ep->fid), 0);
    s->ep = NULL;
}

void side_close(struct side *s)
{
    side_close_ep(s);
    for (int i = 0; i < CNTR_KINDS; i++) {
        if (s->cntr[i])
            assert_int_equal(fi_close(&s->cntr[i]->fid), 0);
    }
    assert_int_equal(fi_close(&s->cq->fid), 0);
    assert_int_equal(fi_close(&s->av->fid), 0);
    assert_int_equal(fi_close(&s->domain->fid), 0);
    assert_int_equal(fi_close(&s->fabric->fid), 0);
    fi_freeinfo(s->info);
}

void pair_open(struct pair *p, const struct pair_config *config)
{
    side_open(&p->a, config);
    side_open(&p->b, config);
    if (config->strangers)
        return;
    assert_int_equal(fi_av_insert(p->a.av, p->b.name, 1, &p->a.other, 0, NULL), 1);
    assert_int_equal(fi_av_insert(p->b.av, p->a.name, 1, &p->b.other, 0, NULL), 1);
}

void pair_close(struct pair *p)
{
    side_close(&p->a);
    side_close(&p->b);
}

void pair_progress(struct pair *p)
{
    (void)fi_cq_read(p->a.cq, NULL, 0);
    (void)fi_cq_read(p->b.cq, NULL, 0);
}

/* Calls fi_cq_readfrom until it returns something else than -FI_EAGAIN, and returns that. */
static ssize_t await_any(struct pair *p, struct side *s, struct fi_cq_tagged_entry *entry, fi_addr_t *source)
{
    uint64_t end = pair_now_ns() + PAIR_PATIENCE_MS * 1000000ull;
    for (;;) {
        ssize_t ret = fi_cq_readfrom(s->cq, entry, 1, source);
        if (ret != -FI_EAGAIN)
            return ret;
        pair_progress(p);
        if (pair_now_ns() > end)
            fail_msg("no completion in %d ms", PAIR_PATIENCE_MS);
    }
}

void pair_await(struct pair *p, struct side *s, struct fi_cq_tagged_entry *entry, fi_addr_t *source)
{
    fi_addr_t ignored;
    memset(entry, 0, sizeof(*entry));
    int ret = await_any(p, s, entry, source ? source : &ignored);
    if (ret == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {.err_data_size = 0};
        fi_cq_readerr(s->cq, &error, 0);
        fail_msg("an error: %s", fi_cq_strerror(s->cq, error.prov_errno, NULL, NULL, 0));
    }
    assert_int_equal(ret, 1);
}

void pair_await_error(struct pair *p, struct side *s, struct fi_cq_err_entry *entry)
{
    struct fi_cq_tagged_entry none;
    fi_addr_t source;
    assert_int_equal(await_any(p, s, &none, &source), -FI_EAVAIL);
    assert_int_equal(fi_cq_readerr(s->cq, entry, 0), 1);
}

void pair_assert_quiet(struct pair *p, struct side *s)
{
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 200; i++) {
        pair_progress(p);
        assert_int_equal(fi_cq_read(s->cq, &entry, 1), -FI_EAGAIN);
    }
}

void pair_await_cntr(struct pair *p, struct fid_cntr *cntr, uint64_t value)
{
    uint64_t end = pair_now_ns() + PAIR_PATIENCE_MS * 1000000ull;
    while (fi_cntr_read(cntr) < value) {
        pair_progress(p);
        if (pair_now_ns() > end)
            fail_msg("the counter is still below %llu", (unsigned long long)value);
    }
    assert_int_equal(fi_cntr_read(cntr), value);
}
