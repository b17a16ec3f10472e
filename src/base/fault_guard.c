/*
 * The handler of SIGSEGV and SIGBUS behind base/fault_guard.h, installed when the first guard is opened.
 *
 * Where nothing is mapped, anonymous memory fills the hole. Where there is a mapping (beyond the end of its file, or
 * without the right to write), it is moved aside, and a copy of what can be read of it stands in its place. At the end
 * the copy goes and the mapping comes back. Owns: the list of guards, never freed, so that the handler can walk it at
 * any moment; the list of what stands in for something.
 */
#include "base/fault_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { STAND_INS = 2 * (UM_FAULT_GUARD_MOST / 4096 + 2) };
enum { FREE, BUSY, USED };

struct stand_in {
    uint64_t state;
    uintptr_t at;
    size_t len;
    void *aside; /* the mapping that was there; NULL: there was none */
};

static struct stand_in stand_ins[STAND_INS];
static uint64_t guards; /* the first; grows only */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before_segv, before_bus;
static uintptr_t page;

static struct um_fault_guard *first(void)
{
    return (struct um_fault_guard *)(uintptr_t)um_load_acquire_u64(
        &guards); /* sync: access-guards (partner access-guards) */
}

/* ---- in the handler ---- */

static bool hole_fill(struct stand_in *s)
{
    void *got = mmap((void *)s->at, s->len, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED && got != (void *)s->at)
        munmap(got, s->len); /* a kernel before 4.17 */
    s->aside = NULL;
    return got == (void *)s->at;
}

static bool mapping_replace(struct stand_in *s)
{
    void *aside = mmap(NULL, s->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *copy = mmap(NULL, s->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (aside == MAP_FAILED || copy == MAP_FAILED)
        return false; /* out of address space: it dies as it would have */
    const struct iovec to = {.iov_base = copy, .iov_len = s->len},
                       from = {.iov_base = (void *)s->at, .iov_len = s->len};
    ssize_t read = process_vm_readv(getpid(), &to, 1, &from, 1, 0); /* as far as it goes */
    (void)read;
    if (mremap((void *)s->at, s->len, s->len, MREMAP_MAYMOVE | MREMAP_FIXED, aside) != aside) {
        munmap(aside, s->len);
        munmap(copy, s->len);
        return false;
    }
    s->aside = aside;
    if (mremap(copy, s->len, s->len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)s->at) == (void *)s->at)
        return true;
    (void)mremap(aside, s->len, s->len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)s->at);
    return false;
}

/* One page: what lies beside it may be as it should, and in use. */
static bool stand_in(uintptr_t at)
{
    struct stand_in *s = NULL;
    for (size_t i = 0; i < STAND_INS && !s; i++) {
        if (um_rmw_cas_u64(&stand_ins[i].state, FREE, BUSY)) /* sync: none (it is ours then) */
            s = &stand_ins[i];
    }
    if (!s)
        return false;
    s->at = at;
    s->len = page;
    bool done = hole_fill(s) || mapping_replace(s);
    um_store_release_u64(&s->state, done ? USED : FREE); /* sync: stand-in (partner stand-in) */
    return done;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = number == SIGBUS ? &before_bus : &before_segv;
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(number, info, context);
    else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
        before->sa_handler(number);
    else if (info->si_code > 0 || before->sa_handler == SIG_DFL)
        signal(number, SIG_DFL); /* the access is tried again, and ends the process */
    if (info->si_code <= 0 && before->sa_handler == SIG_DFL && !(before->sa_flags & SA_SIGINFO))
        raise(number); /* somebody sent it: nothing is tried again */
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    const uint64_t at = (uintptr_t)info->si_addr;
    struct um_fault_guard *g = info->si_code > 0 ? first() : NULL; /* else somebody sent it */
    while (g && at - um_load_relaxed_u64(&g->base) >= um_load_relaxed_u64(&g->len))
        g = g->next;
    if (g && stand_in(at & ~(page - 1)))
        um_store_relaxed_u64(&g->hit, 1);
    else
        pass_on(number, info, context);
    errno = error;
}

/* ---- outside ---- */

void um_fault_guard_mend(struct um_fault_guard *g)
{
    g->hit = 0;
    for (size_t i = 0; i < STAND_INS; i++) {
        struct stand_in *s = &stand_ins[i];
        /* sync: stand-in (partner stand-in): of another guard's, too: it meets its fault again */
        if (um_load_acquire_u64(&s->state) != USED || !um_rmw_cas_u64(&s->state, USED, BUSY))
            continue;
        if (s->aside)
            (void)mremap(s->aside, s->len, s->len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)s->at);
        else
            munmap((void *)s->at, s->len);
        um_store_release_u64(&s->state, FREE); /* sync: stand-in (partner stand-in) */
    }
}

/* In a child: other threads' accesses are not its own, and one of them may have held the lock. */
static void forget(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (struct um_fault_guard *g = first(); g; g = g->next)
        g->len = 0;
}

/* Lock held. */
static bool install(void)
{
    static bool installed;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    if (installed)
        return true;
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    installed = pthread_atfork(NULL, NULL, forget) == 0 && sigaction(SIGBUS, &action, &before_bus) == 0 &&
                sigaction(SIGSEGV, &action, &before_segv) == 0;
    return installed;
}

/* Lock held. One that nobody uses, or a new one. */
static struct um_fault_guard *spare(void)
{
    struct um_fault_guard *g = first();
    while (g && g->used)
        g = g->next;
    if (!g && (g = calloc(1, sizeof(*g))) != NULL) {
        g->next = first();
        um_store_release_u64(&guards, (uintptr_t)g); /* sync: access-guards (partner access-guards) */
    }
    return g;
}

struct um_fault_guard *um_fault_guard_open(void)
{
    pthread_mutex_lock(&lock);
    struct um_fault_guard *g = install() ? spare() : NULL;
    if (g)
        g->used = true;
    pthread_mutex_unlock(&lock);
    return g;
}

void um_fault_guard_close(struct um_fault_guard *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&lock);
    g->len = 0;
    g->used = false;
    pthread_mutex_unlock(&lock);
}
