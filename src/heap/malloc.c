/*
 * The allocation calls: blocks of more than 32 KiB come from the heap's arenas, the others from the next allocator.
 *
 * jemalloc's functions are the next definitions of these names. dlsym() finds them when this library is initialised,
 * before any other (-z initfirst). Earlier calls, which the dynamic linker makes, are answered by mallocx(), which
 * needs no lookup. free() is jemalloc's itself: it finds a block's arena. Owns the arenas. Must not know where their
 * memory comes from. Threading: any.
 */
#include "heap/internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define UM_EXPORT __attribute__((visibility("default")))

enum { ARENAS_MAX = 4 }; /* number of threads that can allocate large blocks at a time without waiting */

/* bytes; a longer run of unused memory goes back to the system at once, a shorter one in the course of seconds. glibc's
 * malloc keeps as many at the end of its heap. */
enum { KEPT_MAX = 64 << 20 };

/* glibc's functions, used when there is no jemalloc. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static unsigned arena[ARENAS_MAX];
static unsigned arena_count; /* 0: the heap is off */

static struct {
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *block, size_t size);
    void *(*memalign)(size_t alignment, size_t size);
} next;

void um_heap_say(const char *text)
{
    char end[] = "\n", start[] = "unimem: heap: ";
    struct iovec line[] = {{start, sizeof(start) - 1}, {(void *)(uintptr_t)text, strlen(text)}, {end, 1}};
    ssize_t n = writev(STDERR_FILENO, line, 3);
    (void)n;
}

bool um_heap_is_on(void)
{
    return arena_count > 0;
}

void *um_heap_block(size_t size, int flags)
{
    unsigned cpu = arena_count > 1 ? (unsigned)sched_getcpu() : 0;
    void *block = mallocx(size, flags | UM_JE_NO_CACHE | UM_JE_ARENA(arena[cpu % arena_count]));
    if (!block)
        errno = ENOMEM;
    return block;
}

static bool ours(size_t size)
{
    return size > um_heap_small && arena_count > 0;
}

/* ---- before next is known ---- */

/* Registered before jemalloc's handlers, so that jemalloc's locks are taken first and released last. */
static void fork_watch(void)
{
    static bool done; /* set before there is a second thread */
    if (!done)
        done = um_heap_fork_watch() == 0;
}

static void *first_block(size_t size, int flags)
{
    fork_watch();
    void *block = mallocx(size ? size : 1, flags);
    if (!block)
        errno = ENOMEM;
    return block;
}

static bool reached; /* a call of malloc() came here: the name is this library's */

static void *first_malloc(size_t size)
{
    reached = true;
    return mallocx ? first_block(size, 0) : __libc_malloc(size);
}

static void *first_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!mallocx)
        return __libc_calloc(count, size);
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return first_block(bytes, UM_JE_ZERO);
}

static void *first_realloc(void *block, size_t size)
{
    if (!mallocx)
        return __libc_realloc(block, size);
    return block ? rallocx(block, size ? size : 1, 0) : first_block(size, 0);
}

static void *first_memalign(size_t alignment, size_t size)
{
    return mallocx ? first_block(size, UM_JE_ALIGN(alignment)) : __libc_memalign(alignment, size);
}

/* ---- the calls ---- */

UM_EXPORT void *malloc(size_t size)
{
    if (ours(size))
        return um_heap_block(size, 0);
    return next.malloc ? next.malloc(size) : first_malloc(size);
}

UM_EXPORT void *calloc(size_t nmemb, size_t size)
{
    size_t bytes;
    if (!__builtin_mul_overflow(nmemb, size, &bytes) && ours(bytes))
        return um_heap_block(bytes, UM_JE_ZERO);
    return next.calloc ? next.calloc(nmemb, size) : first_calloc(nmemb, size);
}

/* Moves a block that outgrows the small sizes to the heap; grows a block of the heap in place if possible. */
static void *grow(void *block, size_t size)
{
    size_t had = sallocx(block, 0);
    void *to =
        had > um_heap_small ? rallocx(block, size, UM_JE_NO_CACHE | UM_JE_ARENA(arena[0])) : um_heap_block(size, 0);
    if (!to) {
        errno = ENOMEM;
        return NULL;
    }
    if (had <= um_heap_small) {
        memcpy(to, block, had);
        dallocx(block, 0);
    }
    return to;
}

UM_EXPORT void *realloc(void *ptr, size_t size)
{
    if (ours(size))
        return ptr ? grow(ptr, size) : um_heap_block(size, 0);
    return next.realloc ? next.realloc(ptr, size) : first_realloc(ptr, size);
}

static void *aligned(size_t alignment, size_t size)
{
    if (ours(size))
        return um_heap_block(size, UM_JE_ALIGN(alignment));
    return next.memalign ? next.memalign(alignment, size) : first_memalign(alignment, size);
}

static bool is_power(size_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

UM_EXPORT void *memalign(size_t alignment, size_t size)
{
    if (is_power(alignment))
        return aligned(alignment, size);
    errno = EINVAL;
    return NULL;
}

UM_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

UM_EXPORT int posix_memalign(void **memptr, size_t alignment, size_t size)
{
    int error = errno;
    if (!is_power(alignment) || alignment < sizeof(void *))
        return EINVAL;
    void *block = aligned(alignment, size);
    errno = error;
    if (!block)
        return ENOMEM;
    *memptr = block;
    return 0;
}

UM_EXPORT void *valloc(size_t size)
{
    return aligned((size_t)sysconf(_SC_PAGESIZE), size);
}

UM_EXPORT void *pvalloc(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) & ~(page - 1);
    return aligned(page, whole < size ? size : whole);
}

/* ---- start ---- */

static bool same_library(const void *a, const void *b)
{
    Dl_info of_a, of_b;
    return dladdr(a, &of_a) && dladdr(b, &of_b) && of_a.dli_fbase == of_b.dli_fbase;
}

static void next_find(void)
{
    /* ISO C has no conversion from void * to a pointer to a function: dlsym(3) shows this way. */
    *(void **)&next.calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next.realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next.memalign = dlsym(RTLD_NEXT, "memalign");
    *(void **)&next.malloc = dlsym(RTLD_NEXT, "malloc");
}

/* jemalloc's default is 8 MiB. With it, the two temporary buffers of an MPI_Reduce of 4 MiB are new pages in each call,
 * and to zero and map these takes ten times as long as the MPI_Reduce. */
static void keep_unused(unsigned number)
{
    size_t most = KEPT_MAX, mib[3], depth = 3;
    if (mallctlnametomib("arena.0.oversize_threshold", mib, &depth) != 0)
        return;
    mib[1] = number;
    (void)mallctlbymib(mib, depth, NULL, NULL, &most, sizeof(most));
}

/* Makes an arena whose metadata lies in ordinary memory: the arena gets its hooks only after it was made. */
static bool arena_create(unsigned *number_p)
{
    um_heap_je_hooks *hooks = &um_heap_hooks;
    unsigned number;
    size_t size = sizeof(number), mib[3], depth = 3;
    if (mallctl("arenas.create", &number, &size, NULL, 0) != 0 ||
        mallctlnametomib("arena.0.extent_hooks", mib, &depth) != 0)
        return false;
    mib[1] = number;
    if (mallctlbymib(mib, depth, NULL, NULL, &hooks, sizeof(void *)) != 0)
        return false;
    keep_unused(number);
    *number_p = number;
    return true;
}

static const char *start(bool first)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned count = 0;
    if (!mallctl || !mallocx || !rallocx || !sallocx || !dallocx || !mallctlnametomib || !mallctlbymib)
        return "not shareable: libjemalloc.so.2 is not loaded; install the package libjemalloc2";
    if (!first)
        return "not shareable: another library asks to be initialised first (-z initfirst)";
    if (!reached || !same_library((void *)next.malloc, (void *)mallocx))
        return "not shareable: the program has an allocator of its own";
    fork_watch();
    while (count < ARENAS_MAX && count < (cpus > 1 ? (unsigned long)cpus : 1) && arena_create(&arena[count]))
        count++;
    arena_count = count;
    return count ? NULL : "not shareable: this jemalloc takes no extent hooks";
}

__attribute__((constructor)) static void heap_start(int argc, char **argv, char **envp)
{
    (void)argc;
    (void)argv;
    bool first = !environ;                         /* the C library has not been initialised either */
    environ = envp;                                /* jemalloc reads MALLOC_CONF now */
    void *(*volatile the_malloc)(size_t) = malloc; /* as the program calls it; its address may be the program's own */
    free(the_malloc(1));
    next_find();
    const char *why = start(first);
    if (why)
        um_heap_say(why);
}
