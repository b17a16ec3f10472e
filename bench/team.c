/* team.h. */
#include "team.h"

#include "base/atomic.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEAM_API FI_VERSION(1, 17)

double team_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void team_fail(const struct team *t, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "process %d of %d: %s\n", t->rank, t->size, text);
    fflush(NULL);
    _exit(1);
}

/* ---- waiting ---- */

static void demand_no_error(struct team *t)
{
    struct fi_cq_err_entry e = {0};
    if (fi_cntr_readerr(t->puts) == 0 && fi_cntr_readerr(t->gets) == 0)
        return;
    ssize_t ret = fi_cq_readerr(t->cq, &e, 0);
    team_fail(t, "an operation failed: %s", ret == 1 ? fi_strerror(e.err) : "no error entry");
}

void team_progress(struct team *t)
{
    (void)fi_cntr_read(t->puts);
    (void)fi_cntr_read(t->gets);
}

void team_turn(struct team *t, uint32_t turn)
{
    team_progress(t);
    if (turn % 64)
        return;
    demand_no_error(t);
    sched_yield();
}

static void wait_cntr(struct team *t, struct fid_cntr *cntr, uint64_t least)
{
    for (uint32_t turn = 1; fi_cntr_read(cntr) < least; turn++)
        team_turn(t, turn);
}

void team_wait_puts(struct team *t, uint64_t most)
{
    if (t->put_count > most)
        wait_cntr(t, t->puts, t->put_count - most);
}

void team_wait_gets(struct team *t, uint64_t most)
{
    if (t->get_count > most)
        wait_cntr(t, t->gets, t->get_count - most);
}

void team_barrier(struct team *t)
{
    struct team_shared *s = t->shared;
    team_wait_puts(t, 0);
    team_wait_gets(t, 0);
    uint32_t turn = um_load_acquire_u32(&s->turn);
    if (um_rmw_add_u32(&s->arrived, 1) + 1 == (uint32_t)t->size) {
        um_store_relaxed_u32(&s->arrived, 0);
        um_store_release_u32(&s->turn, turn + 1);
        return;
    }
    for (uint32_t turns = 0; um_load_acquire_u32(&s->turn) == turn;
         turns += 64) /* most members wait for long: yield each time */
        team_turn(t, turns);
}

uint64_t team_at(const struct team *t, int rank, size_t offset)
{
    return t->shared->member[rank].base + offset;
}

uint64_t team_key(const struct team *t, int rank)
{
    return t->shared->member[rank].key;
}

/* ---- one member ---- */

static struct fi_info *info_get(struct team *t)
{
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    TEAM_DEMAND(t, hints != NULL, "no memory");
    hints->fabric_attr->prov_name = t->config.provider ? strdup(t->config.provider) : NULL;
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_RMA | FI_ATOMIC | t->config.caps;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    int ret = fi_getinfo(TEAM_API, NULL, NULL, 0, hints, &info);
    TEAM_DEMAND(t, ret == 0, "provider %s: no RMA and atomics here: %s",
                t->config.provider ? t->config.provider : "(any)", fi_strerror(-ret));
    fi_freeinfo(hints);
    return info;
}

void team_endpoint_open(struct team *t, enum fi_cq_format format, uint64_t cq_flags)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = format, .wait_obj = FI_WAIT_NONE};
    struct fi_cntr_attr cntr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE};
    TEAM_CALL(t, fi_fabric(t->info->fabric_attr, &t->fabric, NULL));
    TEAM_CALL(t, fi_domain(t->fabric, t->info, &t->domain, NULL));
    TEAM_CALL(t, fi_av_open(t->domain, &av, &t->av, NULL));
    TEAM_CALL(t, fi_cq_open(t->domain, &cq, &t->cq, NULL));
    TEAM_CALL(t, fi_cntr_open(t->domain, &cntr, &t->puts, NULL));
    TEAM_CALL(t, fi_cntr_open(t->domain, &cntr, &t->gets, NULL));
    TEAM_CALL(t, fi_endpoint(t->domain, t->info, &t->ep, NULL));
    TEAM_CALL(t, fi_ep_bind(t->ep, &t->av->fid, 0));
    TEAM_CALL(t, fi_ep_bind(t->ep, &t->cq->fid, FI_TRANSMIT | FI_RECV | cq_flags));
    TEAM_CALL(t, fi_ep_bind(t->ep, &t->puts->fid, FI_WRITE));
    TEAM_CALL(t, fi_ep_bind(t->ep, &t->gets->fid, FI_READ));
    TEAM_CALL(t, fi_enable(t->ep));
}

static void memory_expose(struct team *t)
{
    struct team_member *me = &t->shared->member[t->rank];
    const uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    t->memory = malloc(t->config.bytes);
    TEAM_DEMAND(t, t->memory != NULL, "no memory");
    memset(t->memory, 0, t->config.bytes);
    uint64_t flags = t->config.caps & FI_RMA_EVENT;
    TEAM_CALL(t,
              fi_mr_reg(t->domain, t->memory, t->config.bytes, access, 0, (uint64_t)t->rank + 1, flags, &t->mr, NULL));
    if (flags) {
        struct fi_cntr_attr cntr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
        TEAM_CALL(t, fi_cntr_open(t->domain, &cntr, &t->remote, NULL));
        TEAM_CALL(t, fi_mr_bind(t->mr, &t->remote->fid, FI_REMOTE_WRITE));
    }
    me->key = fi_mr_key(t->mr);
    me->base = t->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)t->memory : 0;
}

/* Exchanges the addresses. When this returns, all members have an endpoint. */
static void meet(struct team *t)
{
    size_t len = TEAM_NAME;
    t->shared->member[t->rank].pid = getpid();
    TEAM_CALL(t, fi_getname(&t->ep->fid, t->shared->member[t->rank].name, &len));
    team_barrier(t);
    for (int i = 0; i < t->size; i++)
        TEAM_DEMAND(t, fi_av_insert(t->av, t->shared->member[i].name, 1, &t->peer[i], 0, NULL) == 1, "fi_av_insert");
    team_barrier(t);
}

static void member_close(struct team *t)
{
    team_barrier(t);
    TEAM_CALL(t, fi_close(&t->ep->fid));
    if (t->mr)
        TEAM_CALL(t, fi_close(&t->mr->fid));
    if (t->remote)
        TEAM_CALL(t, fi_close(&t->remote->fid));
    struct fid *const rest[] = {&t->puts->fid, &t->gets->fid,   &t->cq->fid,
                                &t->av->fid,   &t->domain->fid, &t->fabric->fid};
    for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++)
        TEAM_CALL(t, fi_close(rest[i]));
    fi_freeinfo(t->info);
    free(t->memory);
}

static void member_run(struct team *t, void (*prepare)(int rank), void (*body)(struct team *t, void *arg), void *arg)
{
    if (prepare)
        prepare(t->rank);
    if (t->config.open) {
        t->config.open(t);
    } else {
        t->info = info_get(t);
        team_endpoint_open(t, FI_CQ_FORMAT_CONTEXT, FI_SELECTIVE_COMPLETION);
        memory_expose(t);
    }
    if (t->rank == 0)
        printf("provider %s, libfabric %u.%u, %d processes\n", t->info->fabric_attr->prov_name, FI_MAJOR(fi_version()),
               FI_MINOR(fi_version()), t->size);
    meet(t);
    body(t, arg);
    member_close(t);
    fflush(NULL);
}

/* ---- all members ---- */

static pid_t member_start(struct team *t, void (*prepare)(int rank), void (*body)(struct team *t, void *arg), void *arg)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS}; /* cmocka would go on with the next test */
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        signal(fatal[i], SIG_DFL);
    alarm((unsigned)(t->config.timeout ? t->config.timeout : 300));
    member_run(t, prepare, body, arg);
    _exit(0);
}

/* If a member fails, ends the others, which would wait for it. */
static int members_join(pid_t *pid, int size)
{
    int result = 0;
    for (int left = size; left > 0; left--) {
        int status = -1;
        pid_t gone = wait(&status);
        for (int i = 0; i < size; i++) {
            if (pid[i] == gone)
                pid[i] = 0;
        }
        if (gone > 0 && status == 0)
            continue;
        if (!result)
            fprintf(stderr, "a process ended with status 0x%x%s\n", (unsigned)status,
                    WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it was hung" : "");
        result = 1;
        for (int i = 0; i < size; i++) {
            if (pid[i])
                kill(pid[i], SIGKILL);
        }
    }
    return result;
}

int team_run(const struct team_config *config, void (*prepare)(int rank), void (*body)(struct team *t, void *arg),
             void *arg)
{
    struct team t = {.config = *config, .size = config->size};
    pid_t pid[TEAM_MAX] = {0};
    if (config->size < 1 || config->size > TEAM_MAX) {
        fprintf(stderr, "1 to %d processes, not %d\n", TEAM_MAX, config->size);
        return 1;
    }
    t.shared = mmap(NULL, sizeof(*t.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t.shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    for (t.rank = 0; t.rank < t.size; t.rank++) {
        pid[t.rank] = member_start(&t, prepare, body, arg);
        if (pid[t.rank] < 0) {
            perror("fork");
            for (int i = 0; i < t.rank; i++)
                kill(pid[i], SIGKILL);
            t.size = t.rank;
            break;
        }
    }
    int result = members_join(pid, t.size) || t.size < config->size;
    munmap(t.shared, sizeof(*t.shared));
    return result;
}
