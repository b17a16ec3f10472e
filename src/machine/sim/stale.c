/*
 * Memory that is not coherent: each port works on private copies ("views") of its own memory and of that of its peers,
 * like a processor whose cache does not see the stores of others. A port that forgets to observe, or whose peer forgets
 * to publish, finds old bytes.
 *
 * publish() copies whole lines from the view to the memory, observe() copies them from the memory to the view. A line
 * that two sides write loses the words of one side. That is noticed, and ends the program, if one side publishes the
 * line between the other side's last copy of it and that side's publish. Bytes of a new view of a peer's memory are
 * arbitrary until they are observed.
 *
 * With UM_SIM_EVICT lines also move as in a real cache: with each call, one line that was used lately is written back
 * if it was changed, else read again. That finds words that tell of bytes before these are published. But it also hides
 * a missing publish, sooner or later, so tests need the mode without it, too.
 *
 * Owns: struct um_sim_view. Must not know what the lines mean, except which ones stay coherent. Threading: the caller
 * of a port serialises access to the port's views (machine.h); the lock is for the memory behind them.
 */
#include "machine/sim/internal.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    LATELY = 16,           /* lines used lately, which may move by themselves */
    NEXT = 3,              /* one of so many lines moves, from a line used lately on */
    UNSEEN = 0xa5,         /* what bytes of a new view of a peer's memory hold */
    UNSEEN_MAX = 16 << 10, /* bytes of a new view that hold it; the rest is zero: there may be thousands of lanes */
};

struct um_sim_view {
    struct um_list node;   /* in the list of its port */
    unsigned char *base;   /* what the port works on */
    unsigned char *synced; /* what base held when each line was last copied, either way; at first as base */
    bool *is_synced;       /* for each line: it was copied */
    unsigned char *memory; /* the memory itself, which all ports share */
    size_t offset, len;    /* which part of a port's memory the view shows */
    size_t control_end;    /* offset in that memory where its control blocks end */
    size_t lately[LATELY]; /* offsets of lines in the view */
    uint32_t lately_count;
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- lines ---- */

static void stop(const char *why, const struct um_sim_view *view, size_t at)
{
    um_log(UM_LOG_WARN, "sim: %s, at offset %zu of a port's memory", why, view->offset + at);
    abort();
}

/* True for lines that several processes write by read-modify-write, or that windows look at: layout.h. */
static bool stays_coherent(const struct um_sim_view *view, size_t at)
{
    const size_t offset = view->offset + at;
    if (offset < UM_PAGE)
        return offset >= offsetof(struct um_mem_port_shm, common);
    return offset < view->control_end && (offset - UM_PAGE) % sizeof(struct um_mem_lane_shm) < UM_LINE;
}

static void line_publish(struct um_sim_view *view, size_t at)
{
    if (view->is_synced[at / UM_LINE] && memcmp(view->memory + at, view->synced + at, UM_LINE) != 0)
        stop("two sides write one line", view, at);
    memcpy(view->memory + at, view->base + at, UM_LINE);
    memcpy(view->synced + at, view->base + at, UM_LINE);
    view->is_synced[at / UM_LINE] = true;
}

static void line_observe(struct um_sim_view *view, size_t at)
{
    memcpy(view->base + at, view->memory + at, UM_LINE);
    memcpy(view->synced + at, view->base + at, UM_LINE);
    view->is_synced[at / UM_LINE] = true;
}

/* Moves a line that was used lately, or one of the two behind it, without a call for it. Other threads may look at the
 * memory before the next line moves. */
static void line_evict(struct sim_port *state, struct um_sim_view *view)
{
    const size_t at = view->lately[um_sim_random(state, LATELY)] + (size_t)UM_LINE * um_sim_random(state, NEXT);
    if (at >= view->len || stays_coherent(view, at))
        return;
    const bool is_changed = memcmp(view->base + at, view->synced + at, UM_LINE) != 0;
    pthread_mutex_lock(&memory_lock);
    if (is_changed)
        line_publish(view, at);
    else if (view->is_synced[at / UM_LINE]) /* else it may have been written with the bytes that it held */
        line_observe(view, at);
    pthread_mutex_unlock(&memory_lock);
    if (is_changed)
        sched_yield();
}

static void lines_move(struct um_mem_port *port, const void *place, size_t len,
                       void (*move)(struct um_sim_view *, size_t))
{
    struct sim_port *state = port->mapper_state;
    const unsigned char *from = place;
    struct um_sim_view *view = NULL;
    for (struct um_list *l = state->views.next; l != &state->views && !view; l = l->next) {
        struct um_sim_view *v = UM_CONTAINER(l, struct um_sim_view, node);
        if (from >= v->base && from + len <= v->base + v->len)
            view = v;
    }
    if (!view) {
        um_log(UM_LOG_WARN, "sim: memory is published or observed that is not shared");
        abort();
    }
    const size_t first = (size_t)(from - view->base) / UM_LINE * UM_LINE;
    if (state->evicts)
        line_evict(state, view);
    pthread_mutex_lock(&memory_lock);
    for (size_t at = first; at < (size_t)(from - view->base) + len; at += UM_LINE) {
        if (stays_coherent(view, at))
            stop("a line that stays coherent is published or observed", view, at);
        move(view, at);
        view->lately[view->lately_count++ % LATELY] = at;
    }
    pthread_mutex_unlock(&memory_lock);
}

void um_sim_publish(struct um_mem_port *port, const void *at, size_t len)
{
    lines_move(port, at, len, line_publish);
}

void um_sim_observe(struct um_mem_port *port, const void *at, size_t len)
{
    lines_move(port, at, len, line_observe);
}

/* ---- views ---- */

static void *bytes_new(size_t len)
{
    void *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return bytes == MAP_FAILED ? NULL : bytes;
}

static void bytes_free(void *bytes, size_t len)
{
    if (bytes)
        munmap(bytes, len);
}

static void view_free(struct um_sim_view *view)
{
    bytes_free(view->base, view->len);
    bytes_free(view->synced, view->len);
    bytes_free(view->is_synced, view->len / UM_LINE);
    free(view);
}

struct um_sim_view *um_sim_view_new(struct sim_port *state, const struct um_sim_part *part)
{
    struct um_sim_view *view = calloc(1, sizeof(*view));
    if (!view)
        return NULL;
    const size_t lane = sizeof(struct um_mem_lane_shm), rings = um_mem_port_memory_size(0) - UM_PAGE;
    const size_t lanes = (part->size - UM_PAGE - rings) / (lane + UM_AREA_SIZE);
    *view = (struct um_sim_view){
        .base = bytes_new(part->len),
        .synced = bytes_new(part->len),
        .is_synced = bytes_new(part->len / UM_LINE),
        .memory = part->memory,
        .offset = part->offset,
        .len = part->len,
        .control_end = UM_PAGE + lanes * lane,
    };
    if (!view->base || !view->synced || !view->is_synced) {
        view_free(view);
        return NULL;
    }
    if (!part->is_own) {
        const size_t len = part->len < UNSEEN_MAX ? part->len : UNSEEN_MAX;
        memset(view->base, UNSEEN, len);
        memset(view->synced, UNSEEN, len);
    }
    um_list_append(&state->views, &view->node);
    return view;
}

void *um_sim_view_base(const struct um_sim_view *view)
{
    return view->base;
}

void um_sim_view_end(struct um_sim_view *view)
{
    um_list_unlink(&view->node);
    view_free(view);
}

void um_sim_view_clear(struct um_sim_view *view, size_t offset, size_t len)
{
    pthread_mutex_lock(&memory_lock);
    memset(view->memory + offset, 0, len);
    memset(view->base + offset, 0, len);
    memset(view->synced + offset, 0, len);
    pthread_mutex_unlock(&memory_lock);
}
