/*
 * A team: processes of one program that know each other, each with one endpoint and one piece of registered memory.
 *
 * What one-sided programs share: forking, opening the named provider, the exchange of addresses and keys through shared
 * memory, a barrier in which every member makes progress (providers that execute RMA at the target need it). Knows only
 * libfabric's interface, no provider. A member that finds an error reports it and ends with status 1; then the others
 * are ended and team_run() returns 1. Threading: one thread per member.
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
    size_t bytes;         /* of the memory that each member registers for the others */
    uint64_t caps;        /* beyond FI_RMA | FI_ATOMIC; FI_RMA_EVENT: `remote` counts */
    int timeout;          /* seconds until the run counts as hung; 0: 300 */
    /* NULL, or opens the endpoint, and registers memory if the program needs any, in place of the team, which then
     * exchanges the addresses. */
    void (*open)(struct team *t);
};

struct team_member {
    uint8_t name[TEAM_NAME];
    uint64_t base, key; /* of its memory: the address for RMA at which it begins, and its key */
    int32_t pid;
};

/* A few pages that the processes share. Each member writes its own entry; words are changed by fetch-and-add. */
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
 * Runs body in config->size new processes. prepare (may be NULL) is called in each before the first call of libfabric:
 * the place to set the environment. Returns 0 if each body returned; the team's memory and endpoint are open until
 * then.
 */
int team_run(const struct team_config *config, void (*prepare)(int rank), void (*body)(struct team *t, void *arg),
             void *arg);

/*
 * For a program's config->open, once t->info is set: opens fabric, domain, queues, counters and the endpoint, and
 * enables it. cq_flags: beyond FI_TRANSMIT | FI_RECV.
 */
void team_endpoint_open(struct team *t, enum fi_cq_format format, uint64_t cq_flags);

/* Reports what is wrong and ends this member with status 1, and so the run. */
void team_fail(const struct team *t, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* TEAM_DEMAND(t, condition, format, ...): fails unless the condition holds. */
#define TEAM_DEMAND(t, condition, ...)                                                                                 \
    do {                                                                                                               \
        if (__builtin_expect(!(condition), 0))                                                                         \
            team_fail((t), __VA_ARGS__);                                                                               \
    } while (0)

/* Returns when all members are here and all operations posted before have ended. */
void team_barrier(struct team *t);
/* Makes progress once, by reading both counters. */
void team_progress(struct team *t);
/* The same, with a yield now and then; ends the member if an operation has failed. For the body of a loop. */
void team_turn(struct team *t, uint32_t turn);
/* Waits until at most `most` of the posted operations have not ended. */
void team_wait_puts(struct team *t, uint64_t most);
void team_wait_gets(struct team *t, uint64_t most);
/* Returns the address of an offset in a member's memory, for RMA. */
uint64_t team_at(const struct team *t, int rank, size_t offset);
uint64_t team_key(const struct team *t, int rank);

double team_now(void);

/* Makes a call that must return 0. */
#define TEAM_CALL(t, call)                                                                                             \
    do {                                                                                                               \
        int team_err = (call);                                                                                         \
        if (team_err != 0)                                                                                             \
            team_fail(t, "%s: %s", #call, fi_strerror(-team_err));                                                     \
    } while (0)

/* Repeats the call while it returns -FI_EAGAIN; any other error ends the run. */
#define TEAM_POST(t, call)                                                                                             \
    do {                                                                                                               \
        ssize_t team_ret;                                                                                              \
        for (uint32_t team_turns = 1; (team_ret = (call)) == -FI_EAGAIN; team_turns++)                                 \
            team_turn(t, team_turns);                                                                                  \
        if (__builtin_expect(team_ret != 0, 0))                                                                        \
            team_fail(t, "%s: %s", #call, fi_strerror((int)-team_ret));                                                \
    } while (0)

#endif
