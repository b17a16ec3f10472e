/*
 * link.h over libfabric: tagged messages of a reliable datagram endpoint; one-sided operations as in team.h. As with
 * MPICH, messages that fit are injected, and longer ones complete when they are delivered (FI_DELIVERY_COMPLETE).
 */
#include "link.h"

#include "base/atomic.h"
#include "team.h"

#include <rdma/fi_tagged.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES = 16, LOOKS = 1 << 16, NAP_US = 200 };

/* The context of an operation points to the count of pending operations that includes it. */
struct link_batch {
    long pending;
};

static struct team *team;
static const struct link_config *config;
static void (*run_body)(void);
static unsigned char *arena[2];
static size_t inject_size;
static uint64_t rests;
static bool crowded; /* more processes than processors */

int link_rank(void)
{
    return team->rank;
}

int link_size(void)
{
    return team->size;
}

unsigned char *link_arena(bool received)
{
    return arena[received];
}

void link_abort(void)
{
}

/* ---- completions ---- */

static void error_report(void)
{
    struct fi_cq_err_entry e = {0};
    ssize_t ret = fi_cq_readerr(team->cq, &e, 0);
    link_fail("an operation failed: %s", ret == 1 ? fi_strerror(e.err) : "no error entry");
}

/* Takes completions. False: there was none. */
static bool look(void)
{
    struct fi_cq_tagged_entry entry[ENTRIES];
    ssize_t n = fi_cq_read(team->cq, entry, ENTRIES);
    if (n == -FI_EAGAIN) {
        if (crowded)
            sched_yield();
        return false;
    }
    if (n < 0)
        error_report();
    for (ssize_t i = 0; i < n; i++) {
        if (entry[i].op_context)
            --*(long *)entry[i].op_context;
    }
    return true;
}

/* For a loop that waits: takes completions; ends the program if none has come for LINK_PATIENCE_S. */
static void look_patiently(uint64_t *turns, double *since)
{
    if (look())
        *turns = 0;
    if (++*turns % LOOKS)
        return;
    double now = link_now();
    if (*turns == LOOKS)
        *since = now;
    else if (now > *since + LINK_PATIENCE_S)
        link_fail("nothing completes for %d s", LINK_PATIENCE_S);
}

static void await(const long *pending)
{
    uint64_t turns = 0;
    double since = 0;
    while (*pending > 0)
        look_patiently(&turns, &since);
}

/* Posts an operation: repeats the call while it returns -FI_EAGAIN. */
#define POST(call)                                                                                                     \
    do {                                                                                                               \
        uint64_t turns_ = 0;                                                                                           \
        double since_ = 0;                                                                                             \
        ssize_t ret_;                                                                                                  \
        while ((ret_ = (call)) == -FI_EAGAIN)                                                                          \
            look_patiently(&turns_, &since_);                                                                          \
        if (ret_)                                                                                                      \
            link_fail("%.*s: %s", (int)strcspn(#call, "("), #call, fi_strerror((int)-ret_));                           \
    } while (0)

/* ---- messages ---- */

struct link_batch *link_batch_open(int most)
{
    struct link_batch *b = calloc(1, sizeof(*b));
    (void)most;
    if (!b)
        link_fail("no memory");
    return b;
}

void link_batch_close(struct link_batch *b)
{
    free(b);
}

static void post_send(long *pending, int to, const void *buf, size_t len, int tag)
{
    if (len <= inject_size) {
        POST(fi_tinject(team->ep, buf, len, team->peer[to], (uint64_t)tag));
        return;
    }
    POST(fi_tsend(team->ep, buf, len, NULL, team->peer[to], (uint64_t)tag, pending));
    ++*pending;
}

static void post_recv(long *pending, int from, void *buf, size_t len, int tag)
{
    fi_addr_t source = from == LINK_ANY ? FI_ADDR_UNSPEC : team->peer[from];
    POST(fi_trecv(team->ep, buf, len, NULL, source, (uint64_t)tag, 0, pending));
    ++*pending;
}

void link_send(int to, const void *buf, size_t len, int tag)
{
    long pending = 0;
    post_send(&pending, to, buf, len, tag);
    await(&pending);
}

void link_recv(int from, void *buf, size_t len, int tag)
{
    long pending = 0;
    post_recv(&pending, from, buf, len, tag);
    await(&pending);
}

void link_post_send(struct link_batch *b, int to, const void *buf, size_t len, int tag)
{
    post_send(&b->pending, to, buf, len, tag);
}

void link_post_recv(struct link_batch *b, int from, void *buf, size_t len, int tag)
{
    post_recv(&b->pending, from, buf, len, tag);
}

void link_post_pieces(struct link_batch *b, int to, const struct iovec *piece, int pieces, int tag)
{
    if ((size_t)pieces > team->info->tx_attr->iov_limit)
        link_refuse("%d pieces, it takes %zu", pieces, team->info->tx_attr->iov_limit);
    if (pieces == 1)
        POST(fi_tsend(team->ep, piece->iov_base, piece->iov_len, NULL, team->peer[to], (uint64_t)tag, &b->pending));
    else
        POST(fi_tsendv(team->ep, piece, NULL, (size_t)pieces, team->peer[to], (uint64_t)tag, &b->pending));
    b->pending++;
}

void link_wait(struct link_batch *b)
{
    await(&b->pending);
}

void link_barrier(void)
{
    team_barrier(team);
}

void link_rest(void)
{
    uint64_t *arrived = &team->shared->cell[0], all = ++rests * (uint64_t)team->size;
    um_rmw_add_u64(arrived, 1);
    while (um_load_acquire_u64(arrived) < all) {
        team_progress(team);
        usleep(NAP_US);
    }
}

/* ---- one-sided operations ---- */

static const enum fi_datatype datatype[LINK_TYPES] = {FI_INT8, FI_INT32, FI_DOUBLE};
static const size_t width[LINK_TYPES] = {1, 4, 8};

void link_put(int to, size_t offset, const void *buf, size_t len)
{
    uint64_t at = team_at(team, to, offset), key = team_key(team, to);
    if (len <= inject_size)
        TEAM_POST(team, fi_inject_write(team->ep, buf, len, team->peer[to], at, key));
    else
        TEAM_POST(team, fi_write(team->ep, buf, len, NULL, team->peer[to], at, key, NULL));
    team->put_count++;
}

void link_get(int to, size_t offset, void *buf, size_t len)
{
    uint64_t at = team_at(team, to, offset), key = team_key(team, to);
    TEAM_POST(team, fi_read(team->ep, buf, len, NULL, team->peer[to], at, key, NULL));
    team->get_count++;
}

void link_accumulate(int to, size_t offset, const void *buf, size_t len, enum link_type type)
{
    uint64_t at = team_at(team, to, offset), key = team_key(team, to);
    const unsigned char *from = buf;
    size_t most = 0;
    if (fi_atomicvalid(team->ep, datatype[type], FI_SUM, &most) || most == 0)
        link_refuse("sums of this type");
    for (size_t left = len / width[type], part; left > 0; left -= part) {
        part = left < most ? left : most;
        TEAM_POST(team, fi_atomic(team->ep, from, part, NULL, team->peer[to], at, key, datatype[type], FI_SUM, NULL));
        team->put_count++;
        from += part * width[type];
        at += part * width[type];
    }
}

void link_fetch_add(int to, size_t offset, uint64_t *before)
{
    static const uint64_t one = 1;
    uint64_t at = team_at(team, to, offset), key = team_key(team, to);
    TEAM_POST(team,
              fi_fetch_atomic(team->ep, &one, 1, NULL, before, NULL, team->peer[to], at, key, FI_UINT64, FI_SUM, NULL));
    team->get_count++;
}

void link_compare_swap(int to, size_t offset, const uint64_t *value, uint64_t *before)
{
    static uint64_t expected, next;
    uint64_t at = team_at(team, to, offset), key = team_key(team, to);
    expected = *value;
    next = expected + 1;
    TEAM_POST(team, fi_compare_atomic(team->ep, &next, 1, NULL, &expected, NULL, before, NULL, team->peer[to], at, key,
                                      FI_UINT64, FI_CSWAP, NULL));
    team->get_count++;
}

void link_flush(int to)
{
    (void)to;
    team_wait_puts(team, 0);
    team_wait_gets(team, 0);
}

/* ---- the processes ---- */

static int info_get(struct team *t, uint64_t op_flags)
{
    struct fi_info *hints = fi_allocinfo();
    TEAM_DEMAND(t, hints != NULL, "no memory");
    hints->fabric_attr->prov_name = strdup(config->name);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->tx_attr->op_flags = op_flags;
    int ret = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &t->info);
    fi_freeinfo(hints);
    return ret;
}

/* Opens an endpoint for messages: each operation that is not injected has an entry in the completion queue. A provider
 * without FI_DELIVERY_COMPLETE is measured without it. */
static void open_for_messages(struct team *t)
{
    int ret = info_get(t, FI_DELIVERY_COMPLETE);
    if (ret == -FI_ENODATA) {
        ret = info_get(t, 0);
        if (ret == 0 && t->rank == 0)
            printf("note: without FI_DELIVERY_COMPLETE\n");
    }
    TEAM_DEMAND(t, ret == 0, "provider %s: fi_getinfo: %s", config->name, fi_strerror(-ret));
    team_endpoint_open(t, FI_CQ_FORMAT_TAGGED, 0);
}

static void prepare(int rank)
{
    link_pin(config, rank);
}

static void member_body(struct team *t, void *arg)
{
    (void)arg;
    team = t;
    inject_size = t->info->tx_attr->inject_size;
    crowded = t->size > (config->cpus > 0 ? config->cpus : (int)sysconf(_SC_NPROCESSORS_ONLN));
    for (int received = 0; received < 2; received++) {
        arena[received] = aligned_alloc(4096, (config->arena + 4095) & ~(size_t)4095);
        TEAM_DEMAND(t, arena[received] != NULL, "no memory");
    }
    run_body();
}

int link_run(const struct link_config *c, int *argc, char ***argv, void (*body)(void))
{
    (void)argc, (void)argv;
    struct team_config how = {.provider = c->name, .size = c->size, .bytes = c->window, .timeout = (int)c->limit};
    config = c;
    run_body = body;
    if (c->window == 0)
        how.open = open_for_messages;
    return team_run(&how, prepare, member_body, NULL);
}
