/*
 * Adoption: the public calls, the memory file and the state.
 *
 * Owns: the memory file and the state, which lies in memory of its own so that no range can hold it. Must not know how
 * a page moves (move.c) or what forbids it (check.c). Threading: one lock around every call.
 */
#include "machine/shm/adopt/adopt.h"

#include "base/log.h"
#include "machine/shm/adopt/internal.h"
#include "machine/shm/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_once_t state_once = PTHREAD_ONCE_INIT;

static void state_create(void)
{
    struct um_shm_adopt_state *state =
        mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (state == MAP_FAILED)
        return;
    state->fd = -1;
    state->page = (size_t)sysconf(_SC_PAGESIZE);
    if (pthread_mutex_init(&state->lock, NULL) != 0 || um_shm_adopt_fork_watch() != 0) {
        munmap(state, sizeof(*state));
        return;
    }
    um_shm_adopt_state_set(state);
}

struct um_shm_adopt_state *um_shm_adopt_state_get(void)
{
    pthread_once(&state_once, state_create);
    return um_shm_adopt_state_if_any();
}

/* ---- the memory file ---- */

static int file_create(void)
{
    struct rlimit most; /* beyond it ftruncate would not only fail: SIGXFSZ would end the process */
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < um_shm_adopt_file_size)
        return -EFBIG;
    int fd = memfd_create("unimem-adopted", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, 0600) == 0 && ftruncate(fd, (off_t)um_shm_adopt_file_size) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    int error = errno;
    close(fd);
    return -error;
}

static int file_get(struct um_shm_adopt_state *state)
{
    struct stat st;
    if (state->fd >= 0)
        return state->fd;
    /* A space names one file: adopted memory lies in the heap's, if there is one. The duplicated descriptor outlives
     * the heap's.
     */
    int fd = um_shm_heap_fd();
    fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : fd;
    state->is_heaps = fd >= 0;
    if (fd < 0)
        fd = file_create();
    if (fd >= 0 && fstat(fd, &st) == 0) {
        state->dev = st.st_dev;
        state->ino = st.st_ino;
        state->fd = fd;
    }
    return fd;
}

int um_shm_adopt_fd(void)
{
    static bool logged;
    struct um_shm_adopt_state *state = um_shm_adopt_state_get();
    uint64_t mask;
    if (!state)
        return -ENOMEM;
    um_shm_adopt_lock(state, &mask);
    int fd = file_get(state);
    bool log = fd < 0 && !logged;
    logged = logged || log;
    um_shm_adopt_unlock(state, &mask);
    if (log)
        um_log(UM_LOG_WARN, "no file for adopted memory: %s; %s", strerror(-fd),
               fd == -EMFILE  ? "raise the limit of open files (ulimit -n)"
               : fd == -EFBIG ? "raise the limit of file sizes (ulimit -f unlimited)"
                              : "allow memfd_create in the container's seccomp profile");
    return fd;
}

/* ---- the calls ---- */

static int refuse(int error, const char **why_p, const char *why)
{
    *why_p = why;
    return error;
}

/*
 * Unmaps those parts of the given address space that no shadow uses: for pages that another registration had adopted
 * already, and for segments behind one that failed (which gave back its own part).
 */
static void given_trim(const struct um_shm_adopt_state *state, long count, bool failed)
{
    for (long i = 0; i < count && state->given.place; i++) {
        const struct um_shm_segment *seg = &state->segment[i];
        if (seg->kind == UM_SEGMENT_OURS || (failed && i > state->given.reached))
            munmap((void *)(state->given.place + (seg->start - state->given.start)), seg->end - seg->start);
    }
}

static int adopt_locked(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end, const struct um_shm_tls *tls,
                        const char **why_p)
{
    if (file_get(state) < 0)
        return refuse(file_get(state), why_p, "the memory file cannot be made: see ulimit -n, ulimit -f, memfd_create");
    int ret = um_shm_check_begin(state, start, why_p);
    if (ret == 0)
        ret = um_shm_check_process(state, why_p);
    if (ret)
        return ret;
    long count = um_shm_check_ours(state, start, end);
    for (long i = 0; i < count; i++) {
        if (state->segment[i].start != state->segment[i].offset)
            return refuse(-EBUSY, why_p, "the program moved (mremap) memory away from there that is still registered");
    }
    if (count >= 0 && state->held)
        return refuse(-EBUSY, why_p, state->held);
    if (count >= 0)
        count = um_shm_check_range(state, start, end, tls, why_p);
    if (count < 0)
        return (int)count;
    size_t most = um_shm_adopt_forced.ranges ? um_shm_adopt_forced.ranges : UM_ADOPT_RANGES;
    size_t edges = state->count + 2 * (size_t)count + 4 * (state->live + 1);
    if (state->count + 2 * (size_t)count + 8 > most || edges > UM_ADOPT_EDGES)
        return refuse(-E2BIG, why_p, "too many ranges or registrations at a time (4096, 12000)");
    bool all_ours = true;
    for (long i = 0; i < count; i++)
        all_ours = all_ours && state->segment[i].kind == UM_SEGMENT_OURS;
    if (!all_ours)
        ret = um_shm_pages_in(state, count, why_p);
    if (ret == 0 || state->given.used)
        given_trim(state, count, ret != 0);
    return ret;
}

bool um_shm_adopt_is_heaps(void)
{
    return um_shm_adopt_fd() >= 0 && um_shm_adopt_state_get()->is_heaps;
}

bool um_shm_adopt_is_of_file(uint64_t dev, uint64_t ino)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_if_any();
    uint64_t mask;
    if (!state)
        return false;
    um_shm_adopt_lock(state, &mask);
    bool is = state->fd >= 0 && ino == state->ino && dev == state->dev;
    um_shm_adopt_unlock(state, &mask);
    return is;
}

/* The pages of a range of bytes. False: the range is empty, or not in user address space. */
static bool pages_of(const struct um_shm_adopt_state *state, uintptr_t base, size_t len, uintptr_t *start_p,
                     uintptr_t *end_p)
{
    uintptr_t mask = state->page - 1;
    if (len == 0 || base >= um_shm_adopt_file_size || len > um_shm_adopt_file_size - base)
        return false;
    *start_p = base & ~mask;
    *end_p = (base + len + mask) & ~mask;
    return true;
}

/* given: the range is one part of a registration, with address space for its shadow; NULL: it is a whole registration.
 */
static int adopt_range(struct um_shm_adopt_state *state, uintptr_t base, size_t len, const struct um_shm_given *given,
                       const char **why_p)
{
    uint64_t mask;
    struct um_shm_tls tls;
    uintptr_t start, end;
    if (!pages_of(state, base, len, &start, &end))
        return refuse(-EINVAL, why_p, "the range is empty or not a user's");
    if (um_shm_heap_touches(start, end))
        return refuse(-ENOTSUP, why_p, "a part of the memory is the shareable heap's, which stays what it is");
    um_shm_check_tls(&tls);
    um_shm_adopt_lock(state, &mask);
    state->given = given ? *given : (struct um_shm_given){0};
    int ret = adopt_locked(state, start, end, &tls, why_p);
    if (given && ret != 0 && !state->given.used)
        munmap((void *)given->place, given->end - given->start);
    state->given.place = 0;
    if (ret == 0) {
        um_shm_table_place(state, start, end, 0);
        um_shm_table_count(state, base, len, 1);
        state->live += !given || given->is_first;
        um_shm_table_join(state, start, end);
    } else
        um_shm_pages_out(state, start, end);
    um_shm_adopt_unlock(state, &mask);
    return ret;
}

int um_shm_adopt(uintptr_t base, size_t len, const char **why_p)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_get();
    return state ? adopt_range(state, base, len, NULL, why_p) : refuse(-ENOMEM, why_p, "no memory");
}

/* ---- in parts ---- */

bool um_shm_adopt_can_wait(uintptr_t base, size_t len)
{
    const struct um_shm_adopt_state *state = um_shm_adopt_state_get();
    uintptr_t start, end;
    return state && pages_of(state, base, len, &start, &end) && um_shm_deferred_can_wait(state, start, end);
}

size_t um_shm_adopt_contents(uintptr_t base, size_t len)
{
    const struct um_shm_adopt_state *state = um_shm_adopt_state_get();
    uintptr_t start, end;
    return state && pages_of(state, base, len, &start, &end) ? um_shm_deferred_contents(state, start, end, len) : len;
}

int um_shm_adopt_more(uintptr_t base, size_t len, struct um_shm_adopt_part *part, const char **why_p)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_get();
    uintptr_t start, end, at;
    if (!state || !pages_of(state, base, len, &start, &end))
        return refuse(-EINVAL, why_p, "the range is empty or not a user's");
    at = part->done ? base + part->done : start;
    if (!part->place) {
        part->place = um_shm_place_reserve(at, end - at, PROT_NONE);
        if (!part->place)
            return refuse(-ENOMEM, why_p, "there is no address space left for it (ulimit -v)");
        part->place -= at - start;
    }
    uintptr_t to = at + um_shm_deferred_part(state, at, end);
    uintptr_t from = part->done ? at : base, upto = to < end ? to : base + len;
    const struct um_shm_given given = {
        .start = at, .end = to, .place = part->place + (at - start), .is_first = part->done == 0};
    int ret = adopt_range(state, from, upto - from, &given, why_p);
    if (ret == 0)
        part->done = upto - base;
    else { /* adopt_range() has given back this part's place */
        munmap((void *)(part->place + (to - start)), end - to);
        part->place = 0;
    }
    return ret;
}

void um_shm_adopt_part_end(uintptr_t base, size_t len, struct um_shm_adopt_part *part)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_get();
    uintptr_t start, end;
    if (!state || !part->place || !pages_of(state, base, len, &start, &end))
        return;
    uintptr_t to = base + part->done;
    if (part->done < len)
        munmap((void *)(part->place + (part->done ? to - start : 0)), end - (part->done ? to : start));
    part->place = 0;
}

void um_shm_adopt_release(uintptr_t base, size_t len)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_get();
    uint64_t mask;
    uintptr_t start, end;
    if (!state || !pages_of(state, base, len, &start, &end))
        return;
    um_shm_adopt_lock(state, &mask);
    um_shm_table_count(state, base, len, -1);
    state->live -= state->live > 0;
    um_shm_pages_out(state, start, end);
    um_shm_table_join(state, start, end);
    um_shm_adopt_unlock(state, &mask);
}

int um_shm_adopt_possible(const char **why_p)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_get();
    uint64_t mask;
    struct um_shm_mover mover;
    if (!state)
        return refuse(-ENOMEM, why_p, "no memory");
    um_shm_adopt_lock(state, &mask);
    int ret = um_shm_check_process(state, why_p);
    if (ret == 0)
        ret = um_shm_mover_open(state, &mover, why_p);
    if (ret == 0)
        um_shm_mover_close(&mover);
    um_shm_adopt_unlock(state, &mask);
    return ret;
}

void um_shm_adopt_stats_get(struct um_shm_adopt_stats *stats_p)
{
    struct um_shm_adopt_state *state = um_shm_adopt_state_get();
    uint64_t mask;
    *stats_p = (struct um_shm_adopt_stats){0};
    if (!state)
        return;
    um_shm_adopt_lock(state, &mask);
    stats_p->ranges = state->count;
    for (size_t i = 0; i < state->count; i++) {
        size_t bytes = state->table[i].end - state->table[i].start;
        stats_p->bytes += bytes;
        stats_p->stuck += state->table[i].count == 0 ? bytes : 0;
    }
    um_shm_adopt_unlock(state, &mask);
}
