/*
 * The memory of the blocks: the memory file, and jemalloc's extent hooks over it.
 *
 * Owns the file and the list of shareable runs; memory is only ever added to the list. Extents that are not in it are
 * ordinary private memory: there was no file for them. Shareable and private extents never merge.
 * Must not know who allocates. Threading: one lock; it is held during a fork.
 */
#include "heap/internal.h"

#include "base/cancel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct um_heap_state um_heap = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

#if defined(__x86_64__)
static const off_t file_size = (off_t)1 << 47; /* an offset for every user address */
#else
static const off_t file_size = (off_t)1 << 48;
#endif

/* ---- the file. malloc is not a cancellation point ---- */

static int file_create(void)
{
    UM_UNCANCELLED;
    struct rlimit most; /* beyond the limit ftruncate() does not only fail: SIGXFSZ ends the process */
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < (rlim_t)file_size)
        return -EFBIG;
    int fd = memfd_create("unimem-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, 0600) == 0 && ftruncate(fd, file_size) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    int error = errno;
    close(fd);
    return -error;
}

/* Duplicates the descriptor to a high number: programs expect low ones to be free, and some close all of them. */
static int file_number_high(int fd)
{
    UM_UNCANCELLED;
    struct rlimit most;
    rlim_t limit = getrlimit(RLIMIT_NOFILE, &most) == 0 && most.rlim_cur < 1024 ? most.rlim_cur : 1024;
    int high = limit > 64 ? fcntl(fd, F_DUPFD_CLOEXEC, (int)limit - 32) : -1;
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

bool um_heap_file_is_ours(void)
{
    struct stat st;
    return um_heap.fd >= 0 && fstat(um_heap.fd, &st) == 0 && st.st_dev == um_heap.dev && st.st_ino == um_heap.ino;
}

static const char *advice(int error)
{
    return error == -EMFILE  ? "raise the limit of open files (ulimit -n)"
           : error == -EFBIG ? "raise the limit of file sizes (ulimit -f unlimited)"
                             : "allow memfd_create in the container's seccomp profile";
}

int um_heap_file_new(void)
{
    static bool said;
    struct stat st;
    int fd = file_create();
    um_heap.fd = -1;
    if (fd >= 0) {
        fd = file_number_high(fd);
        fstat(fd, &st);
        um_heap.dev = st.st_dev;
        um_heap.ino = st.st_ino;
        um_heap.fd = fd;
    } else if (!said) {
        said = true;
        um_heap_say("the heap is not shareable, there is no file for it:");
        um_heap_say(advice(fd));
    }
    return fd;
}

/* Returns the descriptor or a negative errno. If the program has closed the file, makes no new file: peers may know the
 * old file. */
static int file_get(void)
{
    if (um_heap.fd < 0)
        return um_heap_file_new();
    return um_heap_file_is_ours() ? um_heap.fd : -EBADF;
}

int unimem_heap_fd(void)
{
    if (!um_heap_is_on())
        return -ENOTSUP;
    pthread_mutex_lock(&um_heap.lock);
    int fd = file_get();
    pthread_mutex_unlock(&um_heap.lock);
    return fd;
}

/* ---- the list of runs ---- */

/* Returns the index of the first run that ends after an address. */
static size_t run_find(uintptr_t at)
{
    size_t low = 0, high = um_heap.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (um_heap.run[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool run_room(void)
{
    if (!um_heap.run) {
        void *place = mmap(NULL, UM_HEAP_RUNS * sizeof(*um_heap.run), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        um_heap.run = place == MAP_FAILED ? NULL : place;
    }
    return um_heap.run && um_heap.count < UM_HEAP_RUNS;
}

static void run_insert(size_t i, uintptr_t start, uintptr_t end)
{
    memmove(&um_heap.run[i + 1], &um_heap.run[i], (um_heap.count - i) * sizeof(*um_heap.run));
    um_heap.run[i] = (struct um_heap_run){.start = start, .end = end};
    um_heap.count++;
}

static void run_delete(size_t i)
{
    um_heap.count--;
    memmove(&um_heap.run[i], &um_heap.run[i + 1], (um_heap.count - i) * sizeof(*um_heap.run));
}

static void run_add(uintptr_t start, uintptr_t end)
{
    size_t i = run_find(start);
    bool below = i > 0 && um_heap.run[i - 1].end == start;
    bool above = i < um_heap.count && um_heap.run[i].start == end;
    if (below && above) {
        um_heap.run[i - 1].end = um_heap.run[i].end;
        run_delete(i);
    } else if (below)
        um_heap.run[i - 1].end = end;
    else if (above)
        um_heap.run[i].start = start;
    else
        run_insert(i, start, end);
}

/* Is all of [start, end) shareable? */
static bool run_holds(uintptr_t start, uintptr_t end)
{
    size_t i = run_find(start);
    return i < um_heap.count && um_heap.run[i].start <= start && um_heap.run[i].end >= end;
}

bool unimem_heap_next(uintptr_t at, uintptr_t *start_p, uintptr_t *end_p)
{
    pthread_mutex_lock(&um_heap.lock);
    size_t i = run_find(at);
    bool found = i < um_heap.count;
    if (found) {
        *start_p = um_heap.run[i].start;
        *end_p = um_heap.run[i].end;
    }
    pthread_mutex_unlock(&um_heap.lock);
    return found;
}

/* ---- extents ---- */

/* Reserves address space, exactly at `at`, or anywhere if it is NULL. */
static char *place_reserve(void *at, size_t size, size_t alignment)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t more = at || alignment <= page ? 0 : alignment - page;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (size > SIZE_MAX - more)
        return NULL;
    char *place = mmap(at, size + more, PROT_NONE, flags, -1, 0);
    if (place == MAP_FAILED)
        return NULL;
    if (at && place != at) {
        munmap(place, size);
        return NULL;
    }
    size_t skip = -(uintptr_t)place & (alignment - 1);
    if (more && skip)
        munmap(place, skip);
    if (more > skip)
        munmap(place + skip + size, more - skip);
    return place + (more ? skip : 0);
}

/*
 * Maps the file over a reserved place. Refuses a place where the file has pages already: the provider's adopted pages
 * lie in the file, too, and the program may have unmapped or moved some that are still registered.
 */
static bool place_share(char *place, size_t size)
{
    const off_t start = (off_t)(uintptr_t)place;
    int fd = run_room() ? file_get() : -ENOMEM;
    if (fd < 0)
        return false;
    off_t data = lseek(fd, start, SEEK_DATA);
    if (data >= 0 ? data < start + (off_t)size : errno != ENXIO)
        return false;
    if (mmap(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, start) == MAP_FAILED)
        return false;
    run_add((uintptr_t)place, (uintptr_t)place + size);
    return true;
}

/* Maps fresh private memory over whatever was there. */
static bool place_private(void *at, size_t size)
{
    return mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) !=
           MAP_FAILED;
}

static void *extent_alloc(um_heap_je_hooks *hooks, void *at, size_t size, size_t alignment, bool *zero, bool *commit,
                          unsigned arena)
{
    int error = errno;
    (void)hooks;
    (void)arena;
    pthread_mutex_lock(&um_heap.lock);
    char *place = place_reserve(at, size, alignment);
    if (place && !place_share(place, size) && !place_private(place, size)) {
        munmap(place, size);
        place = NULL;
    }
    pthread_mutex_unlock(&um_heap.lock);
    errno = error;
    if (place)
        *zero = *commit = true;
    return place;
}

/* Gives the pages back; they read as zero then. MADV_REMOVE punches a hole in the file, and needs no descriptor. */
static bool pages_purge(uintptr_t start, uintptr_t end)
{
    if (run_holds(start, end))
        return madvise((void *)start, end - start, MADV_REMOVE) == 0;
    return place_private((void *)start, end - start);
}

static bool extent_purge(um_heap_je_hooks *hooks, void *at, size_t size, size_t offset, size_t len, unsigned arena)
{
    uintptr_t start = (uintptr_t)at + offset;
    int error = errno;
    (void)hooks;
    (void)size;
    (void)arena;
    pthread_mutex_lock(&um_heap.lock);
    bool purged = pages_purge(start, start + len);
    pthread_mutex_unlock(&um_heap.lock);
    errno = error;
    return !purged;
}

static bool extent_split(um_heap_je_hooks *hooks, void *at, size_t size, size_t size_a, size_t size_b, bool committed,
                         unsigned arena)
{
    (void)hooks;
    (void)at;
    (void)size;
    (void)size_a;
    (void)size_b;
    (void)committed;
    (void)arena;
    return false;
}

static bool extent_merge(um_heap_je_hooks *hooks, void *a, size_t size_a, void *b, size_t size_b, bool committed,
                         unsigned arena)
{
    (void)hooks;
    (void)committed;
    (void)arena;
    pthread_mutex_lock(&um_heap.lock);
    bool alike = run_holds((uintptr_t)a, (uintptr_t)a + size_a) == run_holds((uintptr_t)b, (uintptr_t)b + size_b);
    pthread_mutex_unlock(&um_heap.lock);
    return !alike;
}

/*
 * No dalloc: an extent that is not needed is purged, and its addresses stay the arena's. (When a part is unmapped,
 * jemalloc 5.3 merges what lies behind it with whatever the kernel maps there next, even for another arena.)
 */
um_heap_je_hooks um_heap_hooks = {
    .alloc = extent_alloc,
    .purge_forced = extent_purge,
    .split = extent_split,
    .merge = extent_merge,
};
