/*
 * The handler of SIGBUS. It is installed when the first such file is mapped; other signals go to the previous handler.
 * If the program later installs a handler that does not pass signals on, the protection is gone. See fault.h.
 *
 * Owns: the list of guarded mappings. Nodes are never freed, so that the handler can walk it at any moment.
 */
#include "machine/shm/fault.h"

#include "base/atomic.h"
#include "base/fault_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct shrink_guard {
    struct shrink_guard *next; /* constant once it is in the list */
    uint64_t base, len;        /* len 0: not in use */
    uint64_t stale;            /* address of the word to write to */
    uint64_t pid;              /* a forked child has none of these mappings */
};

static uint64_t guards; /* the first node; grows only */
static pthread_mutex_t guards_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;

static struct shrink_guard *first(void)
{
    return (struct shrink_guard *)(uintptr_t)um_load_acquire_u64(&guards); /* sync: guard-list (partner guard-list) */
}

static struct shrink_guard *find(uint64_t at)
{
    const uint64_t pid = (uint64_t)getpid();
    for (struct shrink_guard *g = first(); g; g = g->next) {
        uint64_t len = um_load_acquire_u64(&g->len); /* sync: guard-use (partner guard-use) */
        if (at - um_load_relaxed_u64(&g->base) < len && um_load_relaxed_u64(&g->pid) == pid)
            return g;
    }
    return NULL;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    int error = errno;
    struct shrink_guard *g = info->si_code == BUS_ADRERR ? find((uintptr_t)info->si_addr) : NULL;
    void *base = g ? (void *)(uintptr_t)um_load_relaxed_u64(&g->base) : NULL;
    if (base && mmap(base, um_load_relaxed_u64(&g->len), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == base)
        um_store_relaxed_u64((uint64_t *)(uintptr_t)um_load_relaxed_u64(&g->stale), UINT64_MAX);
    else
        um_fault_guard_pass_on(&before, number, info, context);
    errno = error;
}

/* In a child: another thread of the parent may have held the lock, and none of the mappings is there. */
static void forget(void)
{
    guards_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (struct shrink_guard *g = first(); g; g = g->next)
        um_store_relaxed_u64(&g->len, 0);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget);
}

/* Lock held. */
static int install(void)
{
    static bool installed;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    if (!installed && sigaction(SIGBUS, &action, &before) != 0)
        return -errno;
    installed = true;
    return 0;
}

/* Lock held. A node that nobody uses, or a new one. */
static struct shrink_guard *spare(void)
{
    for (struct shrink_guard *g = first(); g; g = g->next) {
        if (um_load_relaxed_u64(&g->len) == 0)
            return g;
    }
    struct shrink_guard *g = calloc(1, sizeof(*g));
    if (g) {
        g->next = first();
        um_store_release_u64(&guards, (uintptr_t)g); /* sync: guard-list (partner guard-list) */
    }
    return g;
}

int um_shm_shrink_guard(void *base, size_t len, uint64_t *stale)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&guards_lock);
    int ret = install();
    struct shrink_guard *g = ret == 0 ? spare() : NULL;
    if (g) {
        um_store_relaxed_u64(&g->base, (uintptr_t)base);
        um_store_relaxed_u64(&g->stale, (uintptr_t)stale);
        um_store_relaxed_u64(&g->pid, (uint64_t)getpid());
        um_store_release_u64(&g->len, len); /* sync: guard-use (partner guard-use) */
    }
    pthread_mutex_unlock(&guards_lock);
    return ret == 0 && !g ? -ENOMEM : ret;
}

void um_shm_shrink_forget(const void *base)
{
    pthread_mutex_lock(&guards_lock);
    struct shrink_guard *g = find((uintptr_t)base);
    if (g)
        um_store_relaxed_u64(&g->len, 0);
    pthread_mutex_unlock(&guards_lock);
}
