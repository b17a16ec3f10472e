/*
 * The cache of core/window.h: sets of two, by a hash of the key. The number of sets doubles, up to a bound, while
 * current windows evict each other.
 */
#include "core/window.h"

#include <stdlib.h>

enum { UM_WINDOW_WAYS = 2, UM_WINDOW_SETS = 8, UM_WINDOW_SETS_MAX = 1024 };

struct um_core_windows {
    uint32_t sets; /* power of two */
    struct um_window *way[];
};

static struct um_core_windows *windows_new(uint32_t sets)
{
    struct um_core_windows *t = calloc(1, sizeof(*t) + (size_t)sets * UM_WINDOW_WAYS * sizeof(struct um_window *));
    if (t)
        t->sets = sets;
    return t;
}

static struct um_window **windows_set(struct um_core_windows *t, uint64_t key)
{
    uint64_t hash = (key * 0x9e3779b97f4a7c15u) >> 32;
    return &t->way[(hash & (t->sets - 1)) * UM_WINDOW_WAYS];
}

static void window_drop(struct um_core_peer *peer, struct um_window **way)
{
    if (!*way)
        return;
    if (peer->window == *way)
        peer->window = NULL;
    (*way)->machine->window_close(*way);
    *way = NULL;
}

/* Doubles the number of sets. */
static bool windows_grow(struct um_core_peer *peer)
{
    struct um_core_windows *old = peer->windows;
    struct um_core_windows *t = windows_new(old->sets * 2);
    if (!t)
        return false; /* slower, but correct */
    for (uint32_t i = 0; i < old->sets * UM_WINDOW_WAYS; i++) {
        if (!old->way[i])
            continue;
        struct um_window **set = windows_set(t, old->way[i]->region.key);
        set[set[0] ? 1 : 0] = old->way[i];
    }
    peer->windows = t;
    free(old);
    return true;
}

/* Returns a place for a new window of that key: an empty one, or that of a window that is not current; else grows the
 * cache and tries again; else evicts the older window. */
static struct um_window **windows_place(struct um_core_peer *peer, uint64_t key)
{
    for (;;) {
        struct um_window **set = windows_set(peer->windows, key);
        for (int i = 0; i < UM_WINDOW_WAYS; i++) {
            if (!set[i] || set[i]->region.key == key || !um_core_window_is_current(set[i]))
                return &set[i];
        }
        if (peer->windows->sets < UM_WINDOW_SETS_MAX && windows_grow(peer))
            continue;
        window_drop(peer, &set[0]);
        set[0] = set[1];
        set[1] = NULL;
        return &set[1];
    }
}

struct um_window *um_core_window_open(struct um_core_peer *peer, uint64_t key)
{
    struct um_window *w = NULL;
    if (peer->lost)
        return NULL;
    if (!peer->windows)
        peer->windows = windows_new(UM_WINDOW_SETS);
    if (!peer->windows)
        return NULL;
    struct um_window **set = windows_set(peer->windows, key);
    for (int i = 0; i < UM_WINDOW_WAYS; i++) {
        if (set[i] && set[i]->region.key == key && um_core_window_is_current(set[i])) {
            peer->window = set[i];
            return set[i];
        }
    }
    struct um_window **place = windows_place(peer, key);
    window_drop(peer, place);
    if (peer->link->machine->window_open(peer->link, key, &w) != 0)
        return NULL;
    if (w->region.len > UINT64_MAX - w->region.origin)
        w->level = UM_LEVEL_REMOTE; /* the region wraps around: its owner executes */
    um_core_window_set_level(w, w->level);
    *place = w;
    peer->window = w;
    if (w->level != UM_LEVEL_REMOTE || w->use)
        um_core_peer_expect(peer); /* there may never be a lane that reports the peer's death */
    return w;
}

struct um_window *um_core_window_renewed(struct um_core_peer *peer, const struct um_window *w)
{
    const uint64_t key = w->region.key;
    const uint16_t birth = w->birth;
    if (w->level == UM_LEVEL_OWN || um_core_window_is_gone(w))
        return NULL;
    struct um_window *now = um_core_window_open(peer, key);
    return now && now->level != UM_LEVEL_REMOTE && now->birth == birth ? now : NULL;
}

void um_core_windows_close(struct um_core_peer *peer)
{
    for (uint32_t i = 0; peer->windows && i < peer->windows->sets * UM_WINDOW_WAYS; i++)
        window_drop(peer, &peer->windows->way[i]);
    free(peer->windows);
    peer->windows = NULL;
}
