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
 * Sets the level, and at_once: what loads and stores may do with the region (enum um_access), 0 below UM_LEVEL_MAPPED.
 * So the fast paths need one test instead of two.
 */
static inline void um_core_window_set_level(struct um_window *w, enum um_level level)
{
    w->level = level;
    w->at_once = level >= UM_LEVEL_MAPPED ? w->region.access : 0;
}

static inline bool um_core_window_is_current(const struct um_window *w)
{
    /* sync: region-current (partners region-change, table-change, own-change) */
    return um_load_acquire_u64(w->changes_at) == w->changes;
}

/* Has the memory disappeared while the window was used? Then the access had no effect and must be repeated. */
static inline bool um_core_window_is_gone(const struct um_window *w)
{
    return um_load_relaxed_u64(&w->changes) == UINT64_MAX;
}

/* After an access: did the access end before the registration did, and was the memory there? */
static inline bool um_core_window_was_current(const struct um_window *w)
{
    um_fence_acquire();
    um_fence_compiler(); /* sync: region-held (partner region-end): stores before the look, by the owner's barrier */
    return um_core_window_is_current(w);
}

/*
 * For an operation during which the table's entry changed. Closes the window and returns the region's new window, if
 * the registration lives: the operation was in time. NULL: the registration has ended, or its memory is gone.
 */
struct um_window *um_core_window_renewed(struct um_core_peer *peer, const struct um_window *w);

/* The slow path of um_core_window_find(). */
struct um_window *um_core_window_open(struct um_core_peer *peer, uint64_t key);
void um_core_windows_close(struct um_core_peer *peer);

/* Returns the window of the region under that key, valid until the next call. NULL or level remote: only the peer
 * itself can reach the region. */
static inline struct um_window *um_core_window_find(struct um_core_peer *peer, uint64_t key)
{
    struct um_window *w = peer->window;
    if (__builtin_expect(w && w->region.key == key && um_core_window_is_current(w), 1))
        return w;
    return um_core_window_open(peer, key);
}

/* Does the peer count accesses through the window? */
static inline bool um_core_window_has_counters(const struct um_window *w)
{
    return (w->region.counters | um_load_relaxed_u32(w->port_counters)) != 0;
}

/* Counts an operation through a window, if the peer asked for it. */
static inline void um_core_window_count(struct um_window *w, unsigned shift)
{
    if (__builtin_expect(um_core_window_has_counters(w), 0))
        w->machine->window_count(w, shift);
}

/*
 * For an operation that needs a higher level than the window has. -EAGAIN: the owner is notified, and will raise the
 * level without a call of its program. 0: the level stays; the owner must execute the operation.
 */
static inline int um_core_window_await(struct um_window *w)
{
    if (__builtin_expect(!w || !w->use, 1))
        return 0;
    w->machine->window_use(w, UM_USE_MUST);
    return -EAGAIN;
}

/* An address before the region gives an offset larger than any length, because um_core_window_open() accepts no region
 * that wraps around. */
static inline bool um_core_window_contains(const struct um_window *w, uint64_t addr, uint64_t len, uint64_t *offset_p)
{
    uint64_t offset = addr - w->region.origin;
    if (__builtin_expect(offset > w->region.len || len > w->region.len - offset, 0))
        return false;
    *offset_p = offset;
    return true;
}

/* 0 and the offset of the first byte; -EACCES: not that access; -ERANGE: out of bounds. */
static inline int um_core_window_check(const struct um_window *w, uint64_t addr, uint64_t len, uint32_t access,
                                       uint64_t *offset_p)
{
    if (__builtin_expect((w->region.access & access) != access, 0))
        return -EACCES;
    return um_core_window_contains(w, addr, len, offset_p) ? 0 : -ERANGE;
}

/* The same for the fast paths: are loads and stores allowed, now? A lost peer has no windows. */
static inline bool um_core_window_check_at_once(const struct um_core_peer *peer, const struct um_window *w,
                                                uint64_t addr, uint64_t len, uint32_t access, uint64_t *offset_p)
{
    return w && (w->at_once & access) == access && peer->unfinished == 0 &&
           um_core_window_contains(w, addr, len, offset_p);
}

#endif
