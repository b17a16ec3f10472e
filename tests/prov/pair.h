/*
 * Two endpoints in one process, each with a fabric and domain of its own, opened through the real libfabric.
 *
 * The loader finds the provider through FI_PROVIDER_PATH (meson sets it). A call that must succeed fails the test if it
 * does not. Waits are limited to PAIR_PATIENCE_MS, far more than they ever need.
 */
#ifndef UM_TESTS_PROV_PAIR_H
#define UM_TESTS_PROV_PAIR_H

/* cmocka wants these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PAIR_PATIENCE_MS = 20000, PAIR_ADDR_MAX = 64 };
/* Does FI_UNIMEM_MACHINE name net? */
bool pair_is_over_net(void);
/* Bytes of an address, with the machine that FI_UNIMEM_MACHINE names. */
size_t pair_addr(void);

#define PAIR_API FI_VERSION(1, 17)

/* How the endpoint differs from the default; zero means the default. */
struct pair_config {
    uint64_t caps; /* default: all listed */
    enum fi_cq_format format;
    enum fi_wait_obj wait_obj;
    enum fi_threading threading; /* default: FI_THREAD_DOMAIN */
    enum fi_progress progress;
    enum fi_av_type av_type;
    int mr_mode;
    uint64_t tx_op_flags;
    bool selective; /* bind with FI_SELECTIVE_COMPLETION */
    bool strangers; /* do not insert the other's address */
    bool counters;  /* bind a counter of each kind */
};

enum pair_cntr { CNTR_SEND, CNTR_RECV, CNTR_READ, CNTR_WRITE, CNTR_KINDS };

struct side {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_cntr *cntr[CNTR_KINDS];
    struct fid_ep *ep;
    unsigned char name[PAIR_ADDR_MAX];
    fi_addr_t other;
};

struct pair {
    struct side a, b;
};

struct fi_info *pair_hints(const struct pair_config *config);
void side_open(struct side *s, const struct pair_config *config);
void side_open_ep(struct side *s, const struct pair_config *config);
void side_close_ep(struct side *s);
void side_close(struct side *s);
void pair_open(struct pair *p, const struct pair_config *config);
void pair_close(struct pair *p);

/* Makes progress on both; completions stay queued. */
void pair_progress(struct pair *p);
/* Waits for the next completion of s, with progress of both. An error entry fails the test. */
void pair_await(struct pair *p, struct side *s, struct fi_cq_tagged_entry *entry, fi_addr_t *source);
/* Waits for the next entry, which must be an error. */
void pair_await_error(struct pair *p, struct side *s, struct fi_cq_err_entry *entry);
/* Demands that nothing more comes. */
void pair_assert_quiet(struct pair *p, struct side *s);
void pair_await_cntr(struct pair *p, struct fid_cntr *cntr, uint64_t value);

/* Repeats the call, with progress, until it does not return -FI_EAGAIN; then it must return 0. */
#define PAIR_POST(p, call)                                                                                             \
    do {                                                                                                               \
        ssize_t pair_ret;                                                                                              \
        while ((pair_ret = (call)) == -FI_EAGAIN)                                                                      \
            pair_progress(p);                                                                                          \
        assert_int_equal(pair_ret, 0);                                                                                 \
    } while (0)

enum { PAIR_TRIES = 3 };

/*
 * One of PAIR_TRIES measurements must hold. Other work on the machine makes a call dearer at times, and the time for
 * which a host takes a virtual processor away is charged to the thread that ran on it.
 */
#define PAIR_TRY(holds)                                                                                                \
    do {                                                                                                               \
        bool pair_held = false;                                                                                        \
        for (int pair_i = 0; pair_i < PAIR_TRIES && !pair_held; pair_i++)                                              \
            pair_held = (holds);                                                                                       \
        assert_true(pair_held);                                                                                        \
    } while (0)

uint64_t pair_now_ns(void);
/* CPU time of this process. */
uint64_t pair_cpu_ns(void);
void pair_fill(void *buf, size_t len, unsigned seed);
void pair_check(const void *buf, size_t len, unsigned seed);

#endif
