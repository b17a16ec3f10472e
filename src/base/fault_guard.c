/*
 * The handler of SIGSEGV and SIGBUS behind base/fault_guard.h, installed when the first guard is opened.
 *
 * Where nothing is mapped, a page of the pool fills the hole. Where there is a mapping (beyond the end of its file, or
 * without the right to write), the mapping is moved aside, and a page of the pool, with what can be read of the
 * mapping, stands in its place. At the end the stand-in is removed and the mapping comes back, unless the program has
 * mapped something else there meanwhile. A page of the pool is recognised by the tag behind it in the pool's memory,
 * which a second mapping made by mremap(2) shows. Owns: the list of guards, never freed, so that the handler can walk
 * it at any moment; the pool and the stand-ins. Threading: one spin lock, which the handler takes, too: a thread that
 * faults at a page that another thread is handling waits for it.
 */
#include "base/fault_guard.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { STAND_INS = 2 * (UM_FAULT_GUARD_MOST / 4096 + 2) };

static const uint64_t stand_in_mark = UINT64_C(0x9d1f3c58b7a2e604);

struct stand_in {
    uintptr_t at; /* 0: free; LOST: its reserved address range now belongs to other code */
    bool aside;   /* the mapping that was there has been moved aside */
};
enum { LOST = 1 };

/* Lies behind each page of the pool and identifies it. */
struct stand_in_tag {
    uint64_t mark, number;
};

static struct stand_in stand_ins[STAND_INS];
static size_t used; /* all stand-ins in use have lower indices */
static unsigned char *pool;
/*
 * Reserved address space: for each stand-in one page to move a mapping to, then two pages for a second view of the
 * pool. An address that the kernel chooses might lie in a hole that is about to fault.
 */
static unsigned char *asides;
static bool twin_lost; /* the range of the second view belongs to other code, or cannot be mapped: nothing is checked */
static uint64_t stand_in_lock; /* 1: held. Protects the pool, the stand-ins and the hit fields of the guards */
uint64_t um_fault_guard_news;
static uint64_t moving; /* the page that is being replaced at this moment, or 0 */
static uint64_t guards; /* the first guard of the list, which only grows */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before_segv, before_bus;
static uintptr_t page;

static struct um_fault_guard *first(void)
{
    return (struct um_fault_guard *)(uintptr_t)um_load_acquire_u64(
        &guards); /* sync: access-guards (partner access-guards) */
}

/* Returns whether the lock was free at once. */
static bool stand_ins_lock(void)
{
    bool at_once = true;
    while (!um_rmw_cas_u64(&stand_in_lock, 0, 1)) { /* sync: stand-in (partner stand-in) */
        at_once = false;
        sched_yield();
    }
    return at_once;
}

static void stand_ins_unlock(void)
{
    um_store_release_u64(&stand_in_lock, 0); /* sync: stand-in (partner stand-in) */
}

/* ---- the pool: shared memory, so that its pages can be mapped twice. Lock held. ---- */

static unsigned char *pool_page(uint64_t number)
{
    return pool + number * 2 * page;
}

static uint64_t number_of(const struct stand_in *s)
{
    return (uint64_t)(s - stand_ins);
}

static void *aside_of(const struct stand_in *s)
{
    return asides + number_of(s) * page;
}

/* Reserves the range (again). */
static bool aside_reserve(void *at, size_t len, int how)
{
    return mmap(at, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how, -1, 0) == at;
}

/* Moves the mapping that was set aside back to its place if wanted; else removes it. Reserves the page again. */
static void aside_end(struct stand_in *s, bool wanted)
{
    void *aside = aside_of(s);
    if (!wanted)
        s->at = aside_reserve(aside, page, MAP_FIXED) ? s->at : LOST;
    else if (mremap(aside, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)s->at) == (void *)s->at)
        s->at = aside_reserve(aside, page, MAP_FIXED_NOREPLACE) ? s->at : LOST;
    else
        s->at = LOST; /* the program's mapping stays there: another use of the page would destroy it */
    s->aside = false;
}

/* Maps len bytes of the pool, from that page on, a second time at a reserved address. */
static bool pool_place(uint64_t number, size_t len, void *at)
{
    const struct stand_in_tag tag = {stand_in_mark, number};
    unsigned char *from = pool_page(number);
    memcpy(from + page, &tag, sizeof(tag));
    return mremap(from, 0, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
}

/* Is that page of the pool mapped there, together with the tag behind it? */
static bool is_pool_page(const unsigned char *at, uint64_t number)
{
    struct stand_in_tag tag = {0};
    const struct iovec to = {.iov_base = &tag, .iov_len = sizeof(tag)},
                       from = {.iov_base = (void *)(at + page), .iov_len = sizeof(tag)};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)sizeof(tag) && tag.mark == stand_in_mark &&
           tag.number == number; /* the kernel reads: there may be no memory behind a page of the program */
}

/*
 * Is the stand-in still in place? The program may have unmapped it, or mapped something else over it. The range of the
 * second view normally holds the pool's last page; a failed mremap(2) may or may not have unmapped it.
 */
static bool is_in_place(const struct stand_in *s)
{
    unsigned char *twin = asides + STAND_INS * page;
    if (twin_lost)
        return true;
    if (mremap((void *)s->at, 0, 2 * page, MREMAP_MAYMOVE | MREMAP_FIXED, twin) == twin) {
        const bool is = is_pool_page(twin, number_of(s));
        (void)pool_place(STAND_INS, 2 * page, twin);
        return is;
    }
    const bool is_other = errno == EFAULT || errno == EINVAL; /* nothing is mapped there; private memory is */
    if (!is_pool_page(twin, STAND_INS))
        twin_lost = !aside_reserve(twin, 2 * page, MAP_FIXED_NOREPLACE) || !pool_place(STAND_INS, 2 * page, twin);
    return !is_other;
}

/* Maps the pool and reserves the ranges; in a forked child again, at the same addresses. */
static bool pool_map(void)
{
    const int how = MAP_ANONYMOUS | MAP_NORESERVE | (pool ? MAP_FIXED : 0);
    void *got = mmap(pool, 2 * page * (STAND_INS + 1), PROT_READ | PROT_WRITE, MAP_SHARED | how, -1, 0);
    void *empty = mmap(asides, (STAND_INS + 2) * page, PROT_NONE, MAP_PRIVATE | how, -1, 0);
    if (got == MAP_FAILED || empty == MAP_FAILED)
        return false;
    pool = got;
    asides = empty;
    unsigned char *twin = asides + STAND_INS * page;
    twin_lost = !pool_place(STAND_INS, 2 * page, twin) || !is_pool_page(twin, STAND_INS);
    return true;
}

/* ---- stand-ins. Lock held. ---- */

static bool hole_fill(struct stand_in *s)
{
    void *got =
        mmap((void *)s->at, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED && got != (void *)s->at)
        munmap(got, page); /* a kernel before 4.17 */
    if (got != (void *)s->at)
        return false;
    if (pool_place(number_of(s), page, got))
        return true;
    munmap(got, page);
    return false;
}

static bool mapping_replace(struct stand_in *s)
{
    const struct iovec to = {.iov_base = pool_page(number_of(s)), .iov_len = page},
                       from = {.iov_base = (void *)s->at, .iov_len = page};
    ssize_t read = process_vm_readv(getpid(), &to, 1, &from, 1, 0); /* as much as can be read */
    (void)read;
    um_store_relaxed_u64(&moving, s->at);
    s->aside = mremap((void *)s->at, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, aside_of(s)) == aside_of(s);
    const bool done = s->aside && pool_place(number_of(s), page, (void *)s->at);
    if (s->aside && !done)
        aside_end(s, true);
    else if (!done && !aside_reserve(aside_of(s), page, MAP_FIXED_NOREPLACE))
        s->at = LOST; /* it may belong to other code: not used any more */
    um_store_relaxed_u64(&moving, 0);
    return done;
}

static void news_add(int64_t more)
{
    um_store_relaxed_u64(&um_fault_guard_news, um_load_relaxed_u64(&um_fault_guard_news) + (uint64_t)more);
}

/*
 * Marks every access whose range has that page: which one belongs to this thread, or has touched the page, is not
 * known.
 */
static void guards_tell(uintptr_t at)
{
    for (struct um_fault_guard *g = first(); g; g = g->next) {
        const uint64_t base = um_load_relaxed_u64(&g->base), len = um_load_relaxed_u64(&g->len);
        if (len == 0 || at + page <= base || at >= base + len)
            continue;
        news_add(g->hit == 0);
        g->hit = base; /* the base, so that an access that begins meanwhile is not taken for it */
    }
}

static void guard_forget(struct um_fault_guard *g)
{
    news_add(-(int64_t)(g->hit != 0));
    g->hit = 0;
}

static void stand_in_free(struct stand_in *s)
{
    (void)madvise(pool_page(number_of(s)), page, MADV_REMOVE); /* the next stand-in finds zeroes */
    s->at = s->at == LOST ? LOST : 0;
    news_add(-1);
    while (used > 0 && stand_ins[used - 1].at <= LOST)
        used--;
}

static void stand_in_end(struct stand_in *s)
{
    const bool there = is_in_place(s);
    if (s->aside)
        aside_end(s, there); /* not in place: the program removed what was mapped there */
    else if (there)
        munmap((void *)s->at, page);
}

/* Puts a stand-in at one page. Not at its neighbours, which may be intact and in use. */
static bool stand_in(uintptr_t at)
{
    struct stand_in *s = NULL;
    for (size_t i = 0; i < STAND_INS && (i < used || !s); i++) {
        if (stand_ins[i].at == at && is_in_place(&stand_ins[i])) /* of another thread, or protected by the program */
            return mprotect((void *)at, page, PROT_READ | PROT_WRITE) == 0;
        if (stand_ins[i].at == at) {
            stand_in_end(&stand_ins[i]);
            stand_in_free(&stand_ins[i]);
        }
        if (!s && !stand_ins[i].at)
            s = &stand_ins[i];
    }
    if (!s)
        return false;
    s->at = at;
    news_add(1);
    if (used <= (size_t)(s - stand_ins))
        used = (size_t)(s - stand_ins) + 1;
    bool done = hole_fill(s) || mapping_replace(s);
    if (!done)
        stand_in_free(s);
    return done;
}

/* ---- in the handler ---- */

void um_fault_guard_pass_on(const struct sigaction *before, int number, siginfo_t *info, void *context)
{
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(number, info, context);
    else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
        before->sa_handler(number);
    else if (info->si_code > 0 || before->sa_handler == SIG_DFL)
        signal(number, SIG_DFL); /* the access is tried again, and ends the process */
    if (info->si_code <= 0 && before->sa_handler == SIG_DFL && !(before->sa_flags & SA_SIGINFO))
        raise(number); /* a process sent the signal: no access is tried again */
}

/* Is a guarded access under way at this address? */
static bool is_guarded(uintptr_t at)
{
    const struct um_fault_guard *g = first();
    while (g && at - um_load_relaxed_u64(&g->base) >= um_load_relaxed_u64(&g->len))
        g = g->next;
    return g;
}

/* Returns whether the access can be tried again: there is a stand-in now, or another thread may have changed the
 * mapping meanwhile. */
static bool fault_take(uintptr_t at)
{
    const uintptr_t start = at & ~(page - 1);
    const bool guarded = is_guarded(at);
    if (!guarded && (!start || um_load_relaxed_u64(&moving) != start))
        return false; /* 0 means that no page is being replaced; nothing is ever mapped at address 0 */
    bool done = !stand_ins_lock() || !guarded;
    if (!done) {
        guards_tell(start);
        done = stand_in(start);
    }
    stand_ins_unlock();
    return done;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    if (info->si_code <= 0 || !fault_take((uintptr_t)info->si_addr)) /* si_code <= 0: sent by kill() */
        um_fault_guard_pass_on(number == SIGBUS ? &before_bus : &before_segv, number, info, context);
    errno = error;
}

/* ---- outside ---- */

/* Removes all stand-ins and restores the mappings. Marks the accesses that did not fault because of a stand-in. */
static void stand_ins_mend(void)
{
    while (used > 0) {
        struct stand_in *s = &stand_ins[used - 1];
        const uintptr_t at = s->at;
        stand_in_end(s);
        guards_tell(at);
        stand_in_free(s);
    }
}

static bool is_stood_in(const struct um_fault_guard *g)
{
    for (size_t i = 0; i < used; i++) {
        if (stand_ins[i].at > LOST && stand_ins[i].at + page > g->base && stand_ins[i].at < g->base + g->len)
            return true;
    }
    return false;
}

bool um_fault_guard_settle(struct um_fault_guard *g)
{
    (void)stand_ins_lock();
    const bool met = g->hit == g->base || is_stood_in(g);
    g->len = 0;
    if (met)
        stand_ins_mend();
    for (g = first(); g; g = g->next) {
        if (um_load_relaxed_u64(&g->len) == 0)
            guard_forget(g);
    }
    stand_ins_unlock();
    return met;
}

/*
 * In a forked child: accesses of other threads do not exist here, and one of them may have held the lock. Their
 * stand-ins are removed. The pool's pages are shared with the parent, so the child gets new ones.
 */
static void forget(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    stand_in_lock = moving = 0;
    um_fault_guard_news = 0;
    for (struct um_fault_guard *g = first(); g; g = g->next)
        g->len = g->hit = 0;
    for (; used > 0; used--) {
        if (stand_ins[used - 1].at > LOST)
            stand_in_end(&stand_ins[used - 1]);
        stand_ins[used - 1] = (struct stand_in){0};
    }
    (void)pool_map();
}

/* Installs the handlers, once. Lock held. */
static bool install(void)
{
    static bool installed;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    if (installed)
        return true;
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    installed = (pool || pool_map()) && pthread_atfork(NULL, NULL, forget) == 0 &&
                sigaction(SIGBUS, &action, &before_bus) == 0 && sigaction(SIGSEGV, &action, &before_segv) == 0;
    return installed;
}

/* Returns a guard that is not in use, or a new one. Lock held. */
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
