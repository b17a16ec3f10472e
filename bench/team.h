/*
 * A team: processes of one program, each with one endpoint and one exposed piece of memory, that know each other.
 *
 * What one-sided programs share: forking, opening the provider named, exchange of addresses and keys through a page of
 * shared memory, a barrier in which every member makes progress (providers that execute RMA at the target need it).
 * Knows libfabric's interface only, no provider. A member that finds an error reports it and ends with status 1; then
 * the others are ended and team_run() returns 1. Threading: one thread a member.
 */
#ifndef UM_BENCH_TEAM_H
#define UM_BENCH_TEAM_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { TEAM_MAX = 128, TEAM_NAME = 512, TEAM_CELLS = 64 };

struct team;

struct team_config {
    const char *provider; /* NULL: libfabric chooses */
    int size;             /* processes, 1 to TEAM_MAX */
    size_t bytes;         /* memory that each one exposes */
    uint64_t caps;        /* beyond FI_RMA | FI_ATOMIC; FI_RMA_EVENT: `remote` counts */
    int timeout;          /* seconds until the run counts as hung; 0: 300 */
    /* Opens the endpoint, and registers memory if it wants any, instead of the team, up to the exchange of addresses;
     * or NULL. */
    void (*open)(struct team *t);
};

struct team_member {
    uint8_t name[TEAM_NAME];
    uint64_t base, key; /* where its memory begins for the others, and the key */
    int32_t pid;
};

/* One page or a few between the processes. Written by: members their own entry; words by fetch-and-add. */
struct team_shared {
    uint32_t arrived, turn; /* the barrier */
    uint32_t flag[TEAM_CELLS];
    uint64_t cell[TEAM_CELLS]; /* free for the program: zero at the start */
    double seconds[TEAM_MAX];
    struct team_member member[TEAM_MAX];
};

struct team {
    struct team_config config;
    int rank, size;
    struct team_shared *shared;
    unsigned char *memory; /* config.bytes, of malloc, zero */
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_cntr *puts;   /* writes and atomics that fetch nothing */
    struct fid_cntr *gets;   /* reads and atomics that fetch */
    struct fid_cntr *remote; /* what others write into this memory, and atomics that change it; or NULL */
    struct fid_ep *ep;
    struct fid_mr *mr;
    uint64_t put_count, get_count; /* posted */
    fi_addr_t peer[TEAM_MAX];
};

/*
 * Runs body in config->size new processes. prepare (may be NULL) is called in each before libfabric is asked for
 * anything: the place to set the environment. 0: each body returned, with the team's memory and endpoint still open.
 */
int team_run(const struct team_config *config, void (*prepare)(int rank), void (*body)(struct team *t, void *arg),
             void *arg);

/*
 * For a config->open of one's own, once t->info is set: fabric, domain, queues, counters and the endpoint, enabled.
 * cq_flags: beyond FI_TRANSMIT | FI_RECV.
 */
void team_endpoint_open(struct team *t, enum fi_cq_format format, uint64_t cq_flags);

/* Says what is wrong and ends this member with status 1, and the run with it. */
void team_fail(const struct team *t, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* TEAM_DEMAND(t, condition, format, ...): fails unless the condition holds. */
#define TEAM_DEMAND(t, condition, ...)                                                                                 \
    do {                                                                                                               \
        if (__builtin_expect(!(condition), 0))                                                                         \
            team_fail((t), __VA_ARGS__);                                                                               \
    } while (0)

/* Returns when all members are here and all operations posted before have ended. */
void team_barrier(struct team *t);
/* One turn of progress: both counters are read. */
void team_progress(struct team *t);
/* The same, with a yield now and then; ends the member if an operation has failed. For the body of a loop. */
void team_turn(struct team *t, uint32_t turn);
/* At most `most` of the operations posted have not ended yet. */
void team_wait_puts(struct team *t, uint64_t most);
void team_wait_gets(struct team *t, uint64_t most);
/* The address in the memory of a member, for RMA. */
uint64_t team_at(const struct team *t, int rank, size_t offset);
uint64_t team_key(const struct team *t, int rank);

double team_now(void);

/* A call that must return 0. */
#define TEAM_CALL(t, call)                                                                                             \
    do {                                                                                                               \
        int team_err = (call);                                                                                         \
        if (team_err != 0)                                                                                             \
            team_fail(t, "%s: %s", #call, fi_strerror(-team_err));                                                     \
    } while (0)

/* Posts until it is no longer -FI_EAGAIN; anything but 0 ends the run. */
#define TEAM_POST(t, call)                                                                                             \
    do {                                                                                                               \
        ssize_t team_ret;                                                                                              \
        for (uint32_t team_turns = 1; (team_ret = (call)) == -FI_EAGAIN; team_turns++)                                 \
            team_turn(t, team_turns);                                                                                  \
        if (__builtin_expect(team_ret != 0, 0))                                                                        \
            team_fail(t, "%s: %s", #call, fi_strerror((int)-team_ret));                                                \
    } while (0)

#endif
