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

/* What was executed through a window counts where the peer asked for it. */
static inline void um_window_count(struct um_window *w, unsigned shift)
{
    if (__builtin_expect((w->region.counters | um_load_relaxed_u32(w->port_counters)) != 0, 0))
        w->machine->window_count(w, shift);
}

/* 0 and the offset of the first byte; -EACCES: not that access; -ERANGE: out of bounds. */
static inline int um_window_check(const struct um_window *w, uint64_t addr, uint64_t len, uint32_t access,
                                  uint64_t *offset_p)
{
    uint64_t offset = addr - w->region.origin;
    if (__builtin_expect((w->region.access & access) != access, 0))
        return -EACCES;
    if (__builtin_expect(addr < w->region.origin || offset > w->region.len || len > w->region.len - offset, 0))
        return -ERANGE;
    *offset_p = offset;
    return 0;
}

#endif
