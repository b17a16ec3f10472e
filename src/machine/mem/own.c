/*
 * A private copy of what this process exports: its ports, its spaces and their regions.
 *
 * Peers can write every word of the tables that they map. So this process decides everything about its own regions (RMA
 * to itself, the choice of a place in the table) by this copy, never by the shared one. Owns: the lists of ports and
 * spaces of the process, the places of regions, the word that tells this process's windows on itself that something
 * changed. Must not know how memory is made mapped (mapper.h). Threading: any thread; one lock for the process.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static struct um_list own_spaces = {&own_spaces, &own_spaces};
static struct um_list own_ports = {&own_ports, &own_ports};
static unsigned own_movers;
static uint32_t own_moves;                         /* odd while pages of this process move */
static _Alignas(UM_LINE) uint64_t own_changes = 1; /* another number after each change of what is exported */

/* ---- children ---- */

/*
 * In a forked child, which has no ports and spaces: they belong to the parent, and their memory is not mapped here. The
 * lock is made anew because another thread of the parent may have held it.
 */
static void own_forget(void)
{
    own_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    um_list_init(&own_spaces);
    um_list_init(&own_ports);
    um_mem_gate_forget();
    own_movers = 0;
    own_moves &= ~UINT32_C(1);
}

static void own_watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, own_forget);
}

static void own_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, own_watch_forks);
}

/* ---- ports and spaces ---- */

void um_mem_own_port_add(struct um_mem_port *port)
{
    own_prepare();
    pthread_mutex_lock(&own_lock);
    um_list_append(&own_ports, &port->of_process);
    pthread_mutex_unlock(&own_lock);
    um_mem_gate_add(&port->gated, &port->shm->doors);
}

void um_mem_own_port_remove(struct um_mem_port *port)
{
    um_mem_gate_remove(&port->gated);
    pthread_mutex_lock(&own_lock);
    um_list_unlink(&port->of_process);
    pthread_mutex_unlock(&own_lock);
}

void um_mem_own_space_add(struct um_mem_space *space)
{
    own_prepare();
    pthread_mutex_lock(&own_lock);
    um_store_relaxed_u32(&space->shm->moving, own_moves);
    um_list_append(&own_spaces, &space->of_process);
    pthread_mutex_unlock(&own_lock);
}

void um_mem_own_space_remove(struct um_mem_space *space)
{
    pthread_mutex_lock(&own_lock);
    um_list_unlink(&space->of_process);
    pthread_mutex_unlock(&own_lock);
    for (uint32_t s = 0; s < UM_SEGMENTS; s++)
        free(space->place[s]);
}

/* Lock held. The space of the port with that address, which is this process's; NULL: no such port, or it has none. */
static struct um_mem_space *space_of(const struct um_addr *addr)
{
    for (struct um_list *l = own_ports.next; l != &own_ports; l = l->next) {
        const struct um_mem_port *port = UM_CONTAINER(l, struct um_mem_port, of_process);
        if (memcmp(&port->addr, addr, sizeof(*addr)) == 0)
            return port->space;
    }
    return NULL;
}

int um_mem_own_space_handle(const struct um_addr *addr, uint32_t *handle_p)
{
    pthread_mutex_lock(&own_lock);
    const struct um_mem_space *space = space_of(addr);
    if (space)
        *handle_p = space->handle;
    pthread_mutex_unlock(&own_lock);
    return space ? 0 : -ENOENT;
}

/* ---- places of regions ---- */

/* The private copy of the i-th place of a key, whose segment must exist. */
static struct um_mem_exported **place_at(struct um_mem_space *space, uint64_t key, uint32_t i)
{
    uint32_t s = i / UM_SEGMENT_PROBE;
    return &space->place[s][um_mem_region_place(key, i) - um_mem_segment_begin(s)];
}

static int segment_add(struct um_mem_space *space, uint32_t s)
{
    struct um_mem_exported **segment = calloc((size_t)UM_SEGMENT_FIRST << s, sizeof(struct um_mem_exported *));
    if (!segment)
        return -ENOMEM;
    pthread_mutex_lock(&own_lock);
    space->place[s] = segment;
    pthread_mutex_unlock(&own_lock);
    return 0;
}

int um_mem_own_place(struct um_mem_space *space, struct um_mem_exported *exported)
{
    struct um_mem_region_shm *table = (void *)(space->memory + UM_REGION_OFFSET);
    uint64_t key = exported->what.key;
    for (uint32_t i = 0; i < UM_SEGMENTS * UM_SEGMENT_PROBE; i++) {
        if (!space->place[i / UM_SEGMENT_PROBE] && segment_add(space, i / UM_SEGMENT_PROBE) != 0)
            return -ENOMEM;
        struct um_mem_exported **place = place_at(space, key, i);
        if (*place)
            continue;
        exported->place = place;
        exported->region = &table[um_mem_region_place(key, i)];
        return 0;
    }
    return 0;
}

/* Lock held. Windows of this process on itself are no longer current: they are looked up again. */
static void changed(void)
{
    um_store_release_u64(&own_changes, own_changes + 1); /* sync: own-change (partner region-current) */
}

void um_mem_own_list(struct um_mem_exported *exported, enum um_level level, uint32_t counters)
{
    pthread_mutex_lock(&own_lock);
    um_store_relaxed_u32(&exported->level, level);
    exported->what.counters = counters;
    if (exported->place)
        *exported->place = exported;
    changed();
    pthread_mutex_unlock(&own_lock);
}

void um_mem_own_unlist(struct um_mem_exported *exported)
{
    pthread_mutex_lock(&own_lock);
    if (exported->place)
        *exported->place = NULL;
    changed();
    pthread_mutex_unlock(&own_lock);
}

/* Lock held. */
static const struct um_mem_exported *exported_find(struct um_mem_space *space, uint64_t key)
{
    for (uint32_t i = 0; i < UM_SEGMENTS * UM_SEGMENT_PROBE && space->place[i / UM_SEGMENT_PROBE]; i++) {
        const struct um_mem_exported *exported = *place_at(space, key, i);
        if (exported && exported->what.key == key)
            return exported;
    }
    return NULL;
}

void um_mem_own_find(const struct um_addr *addr, struct um_window *w)
{
    pthread_mutex_lock(&own_lock);
    struct um_mem_space *space = space_of(addr);
    const struct um_mem_exported *exported = space ? exported_find(space, w->region.key) : NULL;
    w->level = UM_LEVEL_REMOTE;
    if (exported) {
        w->region = exported->what;
        w->level = exported->level;
    }
    w->changes = own_changes;
    w->changes_at = &own_changes;
    pthread_mutex_unlock(&own_lock);
}

/* ---- pages that move ---- */

/*
 * Pages move for the whole process, whichever domain asked for it. So the word `moving` of every space changes, and a
 * peer that finds pages missing knows why (link.c). Lock held.
 */
static void spaces_tell(void)
{
    own_moves++;
    for (struct um_list *l = own_spaces.next; l != &own_spaces; l = l->next) {
        uint32_t *moving = &UM_CONTAINER(l, struct um_mem_space, of_process)->shm->moving;
        um_store_release_u32(moving, own_moves); /* sync: pages-moving (partner pages-away) */
    }
    um_fence_full(); /* sync: pages-moving (partner pages-away): the words change before anything moves */
}

void um_mem_own_move_begin(void)
{
    pthread_mutex_lock(&own_lock);
    if (own_movers++ == 0)
        spaces_tell();
    pthread_mutex_unlock(&own_lock);
}

void um_mem_own_move_end(void)
{
    pthread_mutex_lock(&own_lock);
    if (--own_movers == 0)
        spaces_tell();
    pthread_mutex_unlock(&own_lock);
}
