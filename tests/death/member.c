/* member.h. */
#include "member.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMBER_HANG 60.0

void member_demand(bool holds, const char *what, long long value)
{
    if (holds)
        return;
    fprintf(stderr, "process %d: does not hold: %s (%lld)\n", (int)getpid(), what, value);
    fflush(NULL);
    _exit(1);
}

void member_must(ssize_t ret, const char *what)
{
    if (ret == 0)
        return;
    fprintf(stderr, "process %d: %s: %zd (%s)\n", (int)getpid(), what, ret, fi_strerror((int)-ret));
    fflush(NULL);
    _exit(1);
}

/* ---- time, and words between processes ---- */

double member_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void member_sleep(double seconds)
{
    const time_t whole = (time_t)seconds;
    const struct timespec ts = {.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)};
    nanosleep(&ts, NULL);
}

uint32_t member_look(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void member_set(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void member_await(const struct member *m, const uint32_t *word, uint32_t value)
{
    const double until = member_now() + MEMBER_HANG;
    while (member_look(word) < value) {
        if (m)
            (void)fi_cntr_read(m->writes); /* makes progress; completions stay in the queue */
        member_sleep(.00005);
        member_demand(member_now() < until, "waits for another process for too long", value);
    }
}

/* ---- processes ---- */

void *member_share(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MEMBER_DEMAND(at != MAP_FAILED);
    return at;
}

pid_t member_fork(void (*fn)(void *arg), void *arg)
{
    const pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    MEMBER_DEMAND(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        signal(fatal[i], SIG_DFL);
    fn(arg);
    fflush(NULL);
    _exit(0);
}

void member_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- the endpoint ---- */

static void find(struct member *m, const struct member_config *config)
{
    struct fi_info *hints = fi_allocinfo();
    MEMBER_DEMAND(hints != NULL);
    hints->fabric_attr->prov_name = strdup("unimem");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = config->automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    MEMBER_CALL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &m->info));
    fi_freeinfo(hints);
}

void member_prepare(void)
{
    struct member m;
    find(&m, &(struct member_config){.bytes = 0});
    fi_freeinfo(m.info);
}

static void export(struct member *m, size_t bytes)
{
    m->bytes = bytes;
    m->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MEMBER_DEMAND(m->memory != MAP_FAILED);
    MEMBER_CALL(fi_mr_reg(m->domain, m->memory, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &m->mr, NULL));
}

void member_open(struct member *m, const struct member_config *config)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = config->sleeps ? FI_WAIT_UNSPEC : FI_WAIT_NONE};
    struct fi_cntr_attr cntr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE};
    *m = (struct member){.bytes = 0};
    find(m, config);
    MEMBER_CALL(fi_fabric(m->info->fabric_attr, &m->fabric, NULL));
    MEMBER_CALL(fi_domain(m->fabric, m->info, &m->domain, NULL));
    MEMBER_CALL(fi_av_open(m->domain, &av, &m->av, NULL));
    MEMBER_CALL(fi_cq_open(m->domain, &cq, &m->cq, NULL));
    MEMBER_CALL(fi_cntr_open(m->domain, &cntr, &m->writes, NULL));
    MEMBER_CALL(fi_endpoint(m->domain, m->info, &m->ep, NULL));
    MEMBER_CALL(fi_ep_bind(m->ep, &m->av->fid, 0));
    MEMBER_CALL(fi_ep_bind(m->ep, &m->cq->fid, FI_TRANSMIT | FI_RECV));
    MEMBER_CALL(fi_ep_bind(m->ep, &m->writes->fid, FI_WRITE));
    MEMBER_CALL(fi_enable(m->ep));
    if (config->bytes)
        export(m, config->bytes);
}

void member_close(struct member *m)
{
    struct fid *const rest[] = {&m->writes->fid, &m->cq->fid, &m->av->fid, &m->domain->fid, &m->fabric->fid};
    MEMBER_CALL(fi_close(&m->ep->fid));
    if (m->mr)
        MEMBER_CALL(fi_close(&m->mr->fid));
    for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++)
        MEMBER_CALL(fi_close(rest[i]));
    fi_freeinfo(m->info);
    if (m->memory)
        munmap(m->memory, m->bytes);
}

void member_tell(const struct member *m, struct member_face *face)
{
    size_t len = MEMBER_NAME;
    MEMBER_CALL(fi_getname(&m->ep->fid, face->name, &len));
    face->base = (uintptr_t)m->memory;
    face->key = m->mr ? fi_mr_key(m->mr) : 0;
    member_set(&face->ready, member_look(&face->ready) + 1);
}

fi_addr_t member_meet(const struct member *m, const struct member_face *face)
{
    fi_addr_t addr;
    MEMBER_DEMAND(fi_av_insert(m->av, face->name, 1, &addr, 0, NULL) == 1);
    return addr;
}

int member_next(const struct member *m, void **context_p, int *error_p)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    ssize_t ret = fi_cq_read(m->cq, &entry, 1);
    *error_p = 0;
    if (ret == 1) {
        *context_p = entry.op_context;
        return 1;
    }
    if (ret == -FI_EAGAIN)
        return 0;
    member_demand(ret == -FI_EAVAIL, "fi_cq_read", ret);
    member_demand(fi_cq_readerr(m->cq, &error, 0) == 1, "fi_cq_readerr", 0);
    *context_p = error.op_context;
    *error_p = error.err;
    return -1;
}
