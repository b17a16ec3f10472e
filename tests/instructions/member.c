/* See member.h. */
#include "member.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4096, PATIENCE_S = 120 };

struct shared *shared;
struct fid_cq *cq;
struct fid_cntr *writes;
struct fid_ep *ep;
fi_addr_t peer[MEMBERS];
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_mr *mr;
static pid_t other;

void demand(ssize_t ret, ssize_t wanted, const char *what)
{
    if (ret == wanted)
        return;
    fprintf(stderr, "paths: %s: %zd instead of %zd\n", what, ret, wanted);
    exit(1);
}

#define MUST(call) demand((call), 0, #call)

static void find(const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        exit(1);
    hints->fabric_attr->prov_name = strdup(provider);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    MUST(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    fi_freeinfo(hints);
}

/* Every operation reports a completion, in the tagged format; a counter counts writes in addition. */
static void endpoint_open(void)
{
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    struct fi_cntr_attr cntr_attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE};
    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    MUST(fi_domain(fabric, info, &domain, NULL));
    MUST(fi_av_open(domain, &av_attr, &av, NULL));
    MUST(fi_cq_open(domain, &cq_attr, &cq, NULL));
    MUST(fi_cntr_open(domain, &cntr_attr, &writes, NULL));
    MUST(fi_endpoint(domain, info, &ep, NULL));
    MUST(fi_ep_bind(ep, &av->fid, 0));
    MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(ep, &writes->fid, FI_WRITE));
    MUST(fi_enable(ep));
}

static void memory_export(int self)
{
    void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    demand(at == MAP_FAILED, 0, "mmap");
    MUST(fi_mr_reg(domain, at, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, (uint64_t)self + 1, 0, &mr, NULL));
    shared->member[self].key = fi_mr_key(mr);
    shared->member[self].base = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)at : 0;
}

static uint32_t look(const uint32_t *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static void tell(uint32_t *at)
{
    __atomic_store_n(at, 1, __ATOMIC_RELEASE);
}

static void join(const char *provider, int self)
{
    size_t len = NAME;
    find(provider);
    endpoint_open();
    memory_export(self);
    MUST(fi_getname(&ep->fid, shared->member[self].name, &len));
    tell(&shared->member[self].ready);
    while (!look(&shared->member[!self].ready))
        sched_yield();
    for (int i = 0; i < MEMBERS; i++)
        demand(fi_av_insert(av, shared->member[i].name, 1, &peer[i], 0, NULL), 1, "fi_av_insert");
}

static void leave(void)
{
    struct fid *const fids[] = {&ep->fid, &mr->fid, &writes->fid, &cq->fid, &av->fid, &domain->fid, &fabric->fid};
    for (size_t i = 0; i < sizeof(fids) / sizeof(fids[0]); i++)
        MUST(fi_close(fids[i]));
    fi_freeinfo(info);
}

/* argv: MEMBER_OTHER, the provider, the descriptor of the shared memory. */
int member_serve(char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(PATIENCE_S);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[2]), 0);
    demand(shared == MAP_FAILED, 0, "mmap");
    join(argv[1], OTHER);
    while (!look(&shared->done)) {
        struct fi_cq_tagged_entry entry;
        (void)fi_cq_read(cq, &entry, 1);
        sched_yield();
    }
    leave();
    return 0;
}

static void serve_start(const char *program, const char *provider, int fd)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", fd);
    other = fork();
    if (other == 0) {
        execl(program, MEMBER_OTHER, provider, number, (char *)NULL);
        perror(program);
        _exit(1);
    }
    demand(other > 0, 1, "fork");
}

void member_open(const char *program, const char *provider)
{
    int fd = memfd_create("paths", 0); /* the other process inherits it */
    alarm(PATIENCE_S);
    demand(fd >= 0 && ftruncate(fd, sizeof(*shared)) == 0, 1, "memfd_create");
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    demand(shared == MAP_FAILED, 0, "mmap");
    serve_start(program, provider, fd);
    join(provider, SELF);
}

void member_close(void)
{
    int status;
    tell(&shared->done);
    demand(waitpid(other, &status, 0) == other && status == 0, 1, "the other process");
    leave();
}
