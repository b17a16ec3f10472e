/*
 * What a space says of one region: its entry in the table that peers read (layout.h, docs/protocol.md section 9), and a
 * line in the log.
 *
 * Owns: the words of the entries, and the header's changes. They are written here and read by peers (window.c): an
 * entry is a sequence lock, and its word `changes` tells a peer that what it knows is no longer current. Threading:
 * machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/log.h"

#include <inttypes.h>

/* The entry is for the peers: this process never reads it. */
void um_mem_region_write(struct um_mem_space *space, const struct um_mem_exported *exported, bool is_there)
{
    const struct um_mem_exported nothing = {.level = UM_LEVEL_REMOTE, .at = {.file = UM_NO_HANDLE}},
                                 *e = is_there ? exported : &nothing;
    const uint64_t level = (uint64_t)e->level << UM_REGION_LEVEL_SHIFT | (uint64_t)e->birth << UM_REGION_BIRTH_SHIFT |
                           (e->is_deferred ? UM_REGION_DEFERRED | (uint64_t)e->use << UM_REGION_USE_SHIFT : 0);
    struct um_mem_region_shm *r = exported->region;
    um_store_relaxed_u64(&r->changes, space->changes + 1);
    um_fence_full(); /* sync: region-change (partners region-read, region-current): odd before anything else is seen */
    um_store_relaxed_u64(&r->meta, e->what.access | level | (is_there ? UM_REGION_USED : 0));
    um_store_relaxed_u64(&r->key, e->what.key);
    um_store_relaxed_u64(&r->base, e->what.base);
    um_store_relaxed_u64(&r->len, e->what.len);
    um_store_relaxed_u64(&r->origin, e->what.origin);
    um_store_relaxed_u32(&r->counters, e->what.counters);
    um_store_relaxed_u32(&r->file, e->at.file);
    um_store_relaxed_u64(&r->offset, e->at.offset);
    space->changes += 2;
    um_store_release_u64(&r->changes, space->changes); /* sync: region-change (partners region-read, region-current) */
    /* sync: table-change (partners table-read, region-current): a peer that did not find a key looks again. */
    um_store_release_u64(&space->shm->changes, space->changes);
}

void um_mem_region_show(struct um_mem_space *space, const struct um_mem_exported *exported, bool is_there)
{
    pthread_mutex_lock(&space->deferred.lock);
    um_mem_region_write(space, exported, is_there);
    pthread_mutex_unlock(&space->deferred.lock);
}

static const char *level_name(enum um_level level)
{
    return level == UM_LEVEL_MAPPED ? "mapped" : level == UM_LEVEL_COPY ? "copy" : "remote";
}

void um_mem_exported_log(const struct um_mem_exported *exported, const char *why)
{
    const struct um_region_desc *what = &exported->what;
    if (!why)
        why = ""; /* not every refusal has a reason */
    um_log(UM_LOG_INFO, "registration of %" PRIu64 " bytes at 0x%" PRIx64 ", key 0x%" PRIx64 ": %s%s%s", what->len,
           what->base, what->key, level_name(exported->level), *why ? ": " : "", why);
}
