/*
 * What the tests of death share: an endpoint with memory that peers may write, opened through the real libfabric, and
 * memory between processes in which each tells its address. Uses libfabric's interface only.
 *
 * A call that must succeed ends the process if it fails, with a message and status 1.
 */
#ifndef UM_TESTS_DEATH_MEMBER_H
#define UM_TESTS_DEATH_MEMBER_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { MEMBER_NAME = 64 };

/* What others have to know of a member. */
struct member_face {
    unsigned char name[MEMBER_NAME];
    uint64_t base, key;
    uint32_t ready; /* written last */
};

struct member_config {
    size_t bytes; /* bytes to export; 0: none */
    bool automatic;
    bool sleeps; /* fi_cq_sread can sleep on the queue */
};

struct member {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_cntr *writes;
    struct fid_ep *ep;
    struct fid_mr *mr;
    unsigned char *memory;
    size_t bytes;
};

/* Loads the providers, so that the processes forked from now on need not. */
void member_prepare(void);
void member_open(struct member *m, const struct member_config *config);
void member_close(struct member *m);
void member_tell(const struct member *m, struct member_face *face);
fi_addr_t member_meet(const struct member *m, const struct member_face *face);

/* Takes the next entry of the queue. Returns 1, or -1 for an error entry, whose error goes to *error_p: both store the
 * context. Returns 0 if there is none. */
int member_next(const struct member *m, void **context_p, int *error_p);

/* Memory shared with the processes forked from now on. */
void *member_share(size_t bytes);
/* Runs fn(arg) in a new process that ends with this one. */
pid_t member_fork(void (*fn)(void *arg), void *arg);
/* Kills the process (SIGKILL), if it has not ended, and waits for its end. */
void member_kill(pid_t pid);

double member_now(void);
void member_sleep(double seconds);
uint32_t member_look(const uint32_t *word);
void member_set(uint32_t *word, uint32_t value);
/* Waits until *word is at least value, with progress of m if it is not NULL. */
void member_await(const struct member *m, const uint32_t *word, uint32_t value);

void member_demand(bool holds, const char *what, long long value);
#define MEMBER_DEMAND(what) member_demand((what), #what, errno)
#define MEMBER_CALL(call)   member_must((call), #call)
void member_must(ssize_t ret, const char *what);

#endif
