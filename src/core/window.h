/*
 * The windows of a peer: key → window, bounded, so that an operation finds one in a few loads.
 *
 * Owns: the cache. A window is used only while its region is what it was when the window was opened; a registration
 * that was closed, or made anew under the same key, is noticed at the next look. Threading: core.h.
 */
#ifndef UM_CORE_WINDOW_H
#define UM_CORE_WINDOW_H

#include "core/endpoint.h"

#include "base/atomic.h"

#include <errno.h>

/*
 * at_once: what loads and stores may do there (enum um_access), which is nothing below UM_LEVEL_MAPPED: the lean paths
 * ask one question instead of two.
 */
static inline void um_window_set_level(struct um_window *w, enum um_level level)
{
    w->level = level;
    w->at_once = level >= UM_LEVEL_MAPPED ? w->region.access : 0;
}

static inline bool um_window_is_current(const struct um_window *w)
{
    /* sync: region-current (partners region-change, table-change, own-change) */
    return um_load_acquire_u64(w->changes_at) == w->changes;
}

/* Its memory went away while it was used: what was done there was done to nothing, and is to be done again. */
static inline bool um_window_is_gone(const struct um_window *w)
{
    return um_load_relaxed_u64(&w->changes) == UINT64_MAX;
}

/* After an access: it was over before the registration ended, and its memory was there. */
static inline bool um_window_is_held(const struct um_window *w)
{
    um_fence_acquire();
    um_fence_compiler(); /* sync: region-held (partner region-end): stores before the look, by the owner's barrier */
    return um_window_is_current(w);
}

/*
 * The entry changed while an operation went through the window, which ends here: the region's new window, if the
 * registration lives (the operation was in time); NULL: it has ended, or its memory is gone.
 */
struct um_window *um_window_renewed(struct um_peer *peer, const struct um_window *w);

/* The slow side of um_window_find(). */
struct um_window *um_window_open(struct um_peer *peer, uint64_t key);
void um_windows_close(struct um_peer *peer);

/* The window of the region under that key; NULL or level remote: only the peer itself can reach it. Valid until the
 * next call. */
static inline struct um_window *um_window_find(struct um_peer *peer, uint64_t key)
{
    struct um_window *w = peer->window;
    if (__builtin_expect(w && w->region.key == key && um_window_is_current(w), 1))
        return w;
    return um_window_open(peer, key);
}

/* Does the peer count what is executed through the window? */
static inline bool um_window_has_counters(const struct um_window *w)
{
    return (w->region.counters | um_load_relaxed_u32(w->port_counters)) != 0;
}

/* What was executed through a window counts where the peer asked for it. */
static inline void um_window_count(struct um_window *w, unsigned shift)
{
    if (__builtin_expect(um_window_has_counters(w), 0))
        w->machine->window_count(w, shift);
}

/*
 * An operation that only its owner can execute as long as the window is what it is, though it becomes more: -EAGAIN,
 * and the owner is told, who need make no call for it. 0: it becomes no more.
 */
static inline int um_window_await(struct um_window *w)
{
    if (__builtin_expect(!w || !w->use, 1))
        return 0;
    w->machine->window_use(w, UM_USE_MUST);
    return -EAGAIN;
}

/* Of what lies before the region the offset is more than any length: um_window_open() takes none that wraps around. */
static inline bool um_window_contains(const struct um_window *w, uint64_t addr, uint64_t len, uint64_t *offset_p)
{
    uint64_t offset = addr - w->region.origin;
    if (__builtin_expect(offset > w->region.len || len > w->region.len - offset, 0))
        return false;
    *offset_p = offset;
    return true;
}

/* 0 and the offset of the first byte; -EACCES: not that access; -ERANGE: out of bounds. */
static inline int um_window_check(const struct um_window *w, uint64_t addr, uint64_t len, uint32_t access,
                                  uint64_t *offset_p)
{
    if (__builtin_expect((w->region.access & access) != access, 0))
        return -EACCES;
    return um_window_contains(w, addr, len, offset_p) ? 0 : -ERANGE;
}

/* The same for the lean paths: may this be done by loads and stores, now? A lost peer has no windows. */
static inline bool um_window_check_at_once(const struct um_peer *peer, const struct um_window *w, uint64_t addr,
                                           uint64_t len, uint32_t access, uint64_t *offset_p)
{
    return w && (w->at_once & access) == access && peer->unfinished == 0 && um_window_contains(w, addr, len, offset_p);
}

#endif
