/*
 * Windows: a peer's regions as they are reached from here.
 *
 * Owns: struct um_mem_window. The peer controls its table: values are copied once and checked; a region with impossible
 * bounds is ignored. For regions of this process itself the private copy (own.c) is read instead of the table.
 * Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/fault_guard.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint32_t mappings; /* of the windows of this process */

/* In a forked child, to which no window of its parent is mapped. */
static void mappings_forget(void)
{
    um_store_relaxed_u32(&mappings, 0);
}

static void mappings_watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, mappings_forget);
}

/* Reads a consistent copy of an entry. False: it is not the key's, or it is being written. */
static bool region_read(const struct um_mem_region_shm *r, struct um_mem_uses_shm *uses, struct um_window *w,
                        struct um_mem_place *place_p)
{
    const uint64_t key = w->region.key;
    uint64_t changes = um_load_acquire_u64(&r->changes); /* sync: region-read (partner region-change) */
    uint64_t meta = um_load_relaxed_u64(&r->meta);
    if (changes % 2 || !(meta & UM_REGION_USED) || um_load_relaxed_u64(&r->key) != key)
        return false;
    w->region = (struct um_region_desc){
        .key = key,
        .base = um_load_relaxed_u64(&r->base),
        .len = um_load_relaxed_u64(&r->len),
        .origin = um_load_relaxed_u64(&r->origin),
        .counters = um_load_relaxed_u32(&r->counters),
        .access = (uint32_t)meta,
    };
    *place_p = (struct um_mem_place){.file = um_load_relaxed_u32(&r->file), .offset = um_load_relaxed_u64(&r->offset)};
    uint8_t level = (uint8_t)(meta >> UM_REGION_LEVEL_SHIFT);
    w->level = level <= UM_LEVEL_MAPPED ? (enum um_level)level : UM_LEVEL_REMOTE;
    w->changes = changes;
    w->changes_at = &r->changes;
    w->birth = (uint16_t)(meta >> UM_REGION_BIRTH_SHIFT);
    w->use = meta & UM_REGION_DEFERRED ? &uses->saved_ns[meta >> UM_REGION_USE_SHIFT & (UM_USES - 1)] : NULL;
    um_fence_full(); /* sync: region-read (partner region-change) */
    return um_load_relaxed_u64(&r->changes) == changes && w->region.len <= UINT64_MAX - w->region.base &&
           w->region.len <= UINT64_MAX - w->region.origin;
}

/* Finds the key's region in the peer's table. Level remote: there is none as long as the table does not change. */
static void region_find(const struct um_mem_link *link, struct um_window *w, struct um_mem_place *place_p)
{
    const struct um_mem_space_shm *shm = link->space.base;
    const struct um_mem_region_shm *table = (void *)((unsigned char *)link->space.base + UM_REGION_OFFSET);
    struct um_mem_uses_shm *uses = (void *)((unsigned char *)link->space.base + UM_USES_OFFSET);
    const uint64_t key = w->region.key;
    uint64_t changes = um_load_acquire_u64(&shm->changes); /* sync: table-read (partner table-change): before a look */
    for (uint32_t i = 0; i < UM_SEGMENTS * UM_SEGMENT_PROBE; i++) {
        if (region_read(&table[um_mem_region_place(key, i)], uses, w, place_p))
            return;
        w->region = (struct um_region_desc){.key = key}; /* another key's, or half written */
    }
    w->use = NULL;
    w->region = (struct um_region_desc){.key = key};
    w->level = UM_LEVEL_REMOTE;
    w->changes = changes;
    w->changes_at = &shm->changes;
}

static bool is_whole(const struct um_window *w)
{
    return w->region.len == UINT64_MAX; /* all memory: by system calls, which fail cleanly where there is none */
}

/* Sets how this process reaches a region of its own, which is here already. */
static void window_reach_own(const struct um_mem_port *port, struct um_window *w)
{
    bool copies = port->config.private_copy;
    if (!is_whole(w) && (w->level == UM_LEVEL_MAPPED || (w->level == UM_LEVEL_COPY && copies))) {
        w->guard = um_fault_guard_open();
        w->base = (unsigned char *)(uintptr_t)w->region.base;
        w->level = w->guard ? UM_LEVEL_OWN : copies ? UM_LEVEL_COPY : UM_LEVEL_REMOTE;
    } else if (!copies) {
        w->level = UM_LEVEL_REMOTE;
    }
}

/* Attaches a peer's region, unless the windows of this process have as many mappings as they may. False: not mapped. */
static bool window_map(const struct um_mem_link *link, struct um_mem_window *mw, const struct um_mem_place *place)
{
    struct um_mem_port *port = link->port;
    const struct um_mem_space_shm *shm = link->space.base;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool mapped = false;
    pthread_once(&once, mappings_watch_forks);
    if (um_rmw_add_u32(&mappings, 1) < UM_WINDOW_MAPPINGS) /* sync: none (a number) */
        mapped = port->mapper->window_attach(port, &link->addr, um_load_relaxed_u32(&shm->memory), place, mw) == 0;
    if (!mw->map.base)
        um_rmw_add_u32(&mappings, UINT32_MAX); /* sync: none (a number) */
    return mapped;
}

/* Maps what the level promises, or lowers the level. A region whose file this process maps itself (UM_JOIN_HANDLE) may
 * get a higher one. */
static void window_attach(const struct um_mem_link *link, struct um_mem_window *mw, const struct um_mem_place *place)
{
    struct um_window *w = &mw->window;
    bool copies = link->port->config.private_copy && !link->is_apart;
    if (w->level == UM_LEVEL_MAPPED || (w->level == UM_LEVEL_COPY && place->file == UM_JOIN_HANDLE))
        w->level = window_map(link, mw, place) ? UM_LEVEL_MAPPED : UM_LEVEL_COPY;
    if (w->level == UM_LEVEL_COPY && !copies)
        w->level = UM_LEVEL_REMOTE;
}

int um_mem_window_open(struct um_link *base, uint64_t key, struct um_window **window_p)
{
    struct um_mem_link *link = (struct um_mem_link *)base;
    int ret = um_mem_link_map_space(link);
    if (ret)
        return ret;
    struct um_mem_window *mw = calloc(1, sizeof(*mw));
    if (!mw)
        return -ENOMEM;
    mw->window.machine = base->machine;
    mw->link = link;
    mw->window.region.key = key;
    mw->window.port_counters = &link->common->counters;
    mw->window.locks = link->is_apart ? NULL : (void *)((unsigned char *)link->space.base + UM_LOCK_OFFSET);
    if (um_mem_is_own(link)) {
        um_mem_own_find(&link->addr, &mw->window);
        window_reach_own(link->port, &mw->window);
    } else {
        struct um_mem_place place;
        region_find(link, &mw->window, &place);
        window_attach(link, mw, &place);
    }
    *window_p = &mw->window;
    return 0;
}

void um_mem_window_close(struct um_window *window)
{
    struct um_mem_window *mw = (struct um_mem_window *)window;
    um_fault_guard_close(window->guard);
    if (mw->map.base) {
        mw->link->port->mapper->detach(&mw->map);
        um_rmw_add_u32(&mappings, UINT32_MAX); /* sync: none (a number) */
    }
    free(mw);
}

void um_mem_window_count(struct um_window *window, unsigned shift)
{
    struct um_mem_link *link = ((struct um_mem_window *)window)->link;
    uint32_t port = um_load_relaxed_u32(window->port_counters);
    um_mem_count(link->space.base, window->region.counters >> shift & UM_COUNT_MASK);
    um_mem_count(link->space.base, port >> shift & UM_COUNT_MASK);
    um_fence_full(); /* sync: event-wake (partner event-look): counted before it is seen whether the peer sleeps */
    um_mem_link_wake(link);
}

void um_mem_window_use(struct um_window *window, uint64_t saved_ns)
{
    struct um_mem_space_shm *shm = ((struct um_mem_window *)window)->link->space.base;
    const struct um_mem_uses_shm *uses = (void *)((unsigned char *)shm + UM_USES_OFFSET);
    bool ask;
    if (saved_ns == UM_USE_MUST) {
        const uint64_t bit = UINT64_C(1) << (window->use - uses->saved_ns);
        ask = !(um_load_relaxed_u64(&shm->must) & bit) &&
              !(um_rmw_or_u64(&shm->must, bit) & bit); /* sync: use-told (partner use-look) */
    } else {
        uint64_t before = um_rmw_add_u64(window->use, saved_ns); /* sync: use-told (partner use-look) */
        ask = before >> UM_USE_STEP_SHIFT != (before + saved_ns) >> UM_USE_STEP_SHIFT;
    }
    if (!ask)
        return;
    um_rmw_add_u32(&shm->asked, 1); /* sync: use-told (partner use-look): after what is to be seen */
    syscall(SYS_futex, &shm->asked, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
