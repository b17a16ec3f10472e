/*
 * Spaces: what a domain exports, in a table that peers read without asking (layout.h, docs/protocol.md section 9).
 *
 * Owns: struct um_mem_space, struct um_mem_exported. entry.c writes the entries of the table. Must not know how memory
 * is made mapped (mapper.h). Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"

#include <errno.h>
#include <stdlib.h>

int um_mem_space_open(const struct um_machine *machine, const struct um_mem_mapper *mapper,
                      const struct um_space_config *config, struct um_space **space_p)
{
    struct um_mem_space *space = calloc(1, sizeof(*space));
    if (!space)
        return -ENOMEM;
    space->base.machine = machine;
    space->mapper = mapper;
    space->adopt = config->adopt;
    um_mem_budget_init(&space->budget, um_clock_ns());
    um_mem_deferred_init(space);
    int ret = mapper->space_create(space);
    if (ret) {
        um_mem_deferred_fini(space);
        free(space);
        return ret;
    }
    space->shm = (void *)space->memory;
    space->shm->magic = UM_SPACE_MAGIC;
    space->shm->version = UM_WIRE_VERSION;
    space->shm->nonce = space->nonce;
    um_store_relaxed_u32(&space->shm->memory, UM_NO_HANDLE);
    um_mem_own_space_add(space);
    um_store_release_u32(&space->shm->state, UM_PORT_OPEN); /* sync: space-ready (partner space-seen) */
    *space_p = &space->base;
    return 0;
}

void um_mem_space_close(struct um_space *base)
{
    struct um_mem_space *space = (struct um_mem_space *)base;
    um_mem_deferred_fini(space);
    um_store_release_u32(&space->shm->state, UM_PORT_CLOSED); /* sync: none (its regions are gone already) */
    um_mem_own_space_remove(space);
    space->mapper->space_destroy(space);
    free(space);
}

/* ---- counters ---- */

int um_mem_counter_open(struct um_space *base, uint32_t *number_p, const uint64_t **value_p)
{
    struct um_mem_space *space = (struct um_mem_space *)base;
    space->counters_used[0] |= 1; /* 0 is none */
    for (uint32_t word = 0; word < UM_COUNTERS / 64; word++) {
        uint64_t left = ~space->counters_used[word];
        if (!left)
            continue;
        uint32_t number = 64 * word + (uint32_t)__builtin_ctzll(left);
        struct um_mem_counter_shm *c = (void *)(space->memory + UM_COUNTER_OFFSET);
        space->counters_used[word] |= left & -left;
        um_store_relaxed_u64(&c[number].value, 0);
        *number_p = number;
        *value_p = &c[number].value;
        return 0;
    }
    return -ENOSPC;
}

void um_mem_counter_close(struct um_space *base, uint32_t number)
{
    struct um_mem_space *space = (struct um_mem_space *)base;
    space->counters_used[number / 64] &= ~((uint64_t)1 << number % 64);
}

void um_mem_count(void *space_memory, uint32_t number)
{
    struct um_mem_counter_shm *c = (void *)((unsigned char *)space_memory + UM_COUNTER_OFFSET);
    if (number && number < UM_COUNTERS)      /* what was counted is visible before */
        um_rmw_add_u64(&c[number].value, 1); /* sync: event-count (partner event-look) */
}

void um_mem_space_count(struct um_space *base, uint32_t counters, unsigned shift)
{
    struct um_mem_space *space = (struct um_mem_space *)base;
    um_mem_count(space->memory, counters >> shift & UM_COUNT_MASK);
}

static_assert(sizeof(struct um_locks_shm) == UM_COUNTER_OFFSET - UM_LOCK_OFFSET, "docs/protocol.md section 9");

struct um_locks_shm *um_mem_space_locks(struct um_space *base)
{
    struct um_mem_space *space = (struct um_mem_space *)base;
    return (void *)(space->memory + UM_LOCK_OFFSET);
}

/* ---- regions ---- */

static bool is_range(const struct um_region_desc *what)
{
    return what->base && what->len && what->len <= UINT64_MAX - what->base;
}

/* Why peers may not map this memory; NULL: they may. */
static const char *never_mapped(const struct um_mem_space *space, const struct um_region_desc *what)
{
    if (!space->adopt)
        return "adoption is switched off";
    if (!space->mapper->adopt)
        return "this machine adopts no memory";
    return is_range(what) ? NULL : "it is not a range of memory";
}

/* Moves private memory so that peers can map it. False: *why_p says why not. */
static bool exported_adopt(struct um_mem_space *space, struct um_mem_exported *exported, const char **why_p)
{
    const struct um_region_desc *what = &exported->what;
    if (!(what->access & UM_ACCESS_REMOTE_WRITE)) {
        *why_p = "only registrations for remote writing are adopted";
        return false;
    }
    um_mem_own_move_begin();
    exported->adopted = space->mapper->adopt(space, what->base, what->len, &exported->at, why_p) == 0;
    um_mem_own_move_end();
    return exported->adopted;
}

/* Static data can be moved only while the process has one thread: after a failure ends the space's own thread, and
 * tries again. Not where that cannot help: the end of the thread takes as long as the part that it is moving. */
static bool exported_adopt_alone(struct um_mem_space *space, struct um_mem_exported *exported, const char **why_p)
{
    if (exported_adopt(space, exported, why_p))
        return true;
    if (!(exported->what.access & UM_ACCESS_REMOTE_WRITE) || !um_mem_deferred_pause(space))
        return false;
    exported_adopt(space, exported, why_p);
    um_mem_deferred_resume(space);
    return exported->adopted;
}

/* Makes the region mapped if possible and returns its level. *why_p: how, or why not. */
static enum um_level exported_map(struct um_mem_space *space, struct um_mem_exported *exported, const char **why_p)
{
    const struct um_mem_mapper *mapper = space->mapper;
    uint64_t start = um_clock_ns();
    bool mapped = exported_adopt_alone(space, exported, why_p);
    if (mapped)
        *why_p = "";
    else if (mapper->share) {
        int ret = mapper->share(space, &exported->what, &exported->at, why_p);
        mapped = exported->shared = ret == 0;
        exported->at.file = ret == -EPERM ? UM_JOIN_HANDLE : exported->at.file;
        *why_p = mapped ? "the program's own shared mapping" : *why_p;
    }
    exported->cost_ns = um_clock_ns() - start;
    return mapped ? UM_LEVEL_MAPPED : UM_LEVEL_COPY;
}

/* Returns the level that peers get; *why_p: why it is this one. */
static enum um_level exported_prepare(struct um_mem_space *space, struct um_mem_exported *exported, const char **why_p)
{
    const struct um_region_desc *what = &exported->what;
    const struct um_mem_mapper *mapper = space->mapper;
    if (is_range(what) && mapper->is_shareable && mapper->is_shareable(space, what->base, what->len, &exported->at)) {
        *why_p = "from the heap";
        return UM_LEVEL_MAPPED;
    }
    *why_p = never_mapped(space, what);
    if (*why_p)
        return UM_LEVEL_COPY;
    if (um_mem_deferred_take(space, exported)) {
        *why_p = "it is moved when peers make enough use of it";
        return UM_LEVEL_COPY;
    }
    if (um_mem_budget_allows(&space->budget, exported->since_ns))
        return exported_map(space, exported, why_p);
    *why_p = "too much time went into moving memory whose registration ended at once";
    um_list_append(&space->budget.waiting, &exported->waiting);
    return UM_LEVEL_COPY;
}

/* Moves a region that was not moved at registration, if it is worth it now. */
static void waiting_adopt(struct um_mem_space *space, uint64_t now)
{
    struct um_mem_exported *exported = um_mem_budget_ripe(&space->budget, now);
    const char *why = "";
    if (!exported)
        return;
    um_mem_own_list(exported, exported_map(space, exported, &why), exported->what.counters);
    if (exported->level == UM_LEVEL_MAPPED || exported->at.file == UM_JOIN_HANDLE)
        um_mem_region_show(space, exported, true);
    um_mem_exported_log(exported, why);
}

int um_mem_export(struct um_space *base, const struct um_region_desc *what, struct um_exported **exported_p)
{
    struct um_mem_space *space = (struct um_mem_space *)base;
    struct um_mem_exported *exported = calloc(1, sizeof(*exported));
    const char *why = "the table of regions is full";
    if (!exported)
        return -ENOMEM;
    *exported = (struct um_mem_exported){.base = {.machine = base->machine},
                                         .what = *what,
                                         .level = UM_LEVEL_REMOTE,
                                         .at = {.file = UM_NO_HANDLE},
                                         .since_ns = um_clock_ns()};
    um_list_init(&exported->waiting);
    um_list_init(&exported->deferred);
    exported->birth = space->births++;
    waiting_adopt(space, exported->since_ns);
    if (um_mem_own_place(space, exported) != 0) {
        free(exported);
        return -ENOMEM;
    }
    enum um_level level = exported->region ? exported_prepare(space, exported, &why) : UM_LEVEL_REMOTE;
    pthread_mutex_lock(&space->deferred.lock);
    if (exported->region) {
        um_mem_own_list(exported, level, what->counters);
        um_mem_region_write(space, exported, true);
        um_mem_deferred_begin(space, exported);
    }
    um_mem_exported_log(exported, why);
    pthread_mutex_unlock(&space->deferred.lock);
    *exported_p = &exported->base;
    return 0;
}

enum um_level um_mem_exported_level(const struct um_exported *base)
{
    const struct um_mem_exported *exported = (const struct um_mem_exported *)base;
    return (enum um_level)um_load_relaxed_u32(&exported->level);
}

void um_mem_exported_set_counters(struct um_space *space_base, struct um_exported *exported_base, uint32_t counters)
{
    struct um_mem_space *space = (struct um_mem_space *)space_base;
    struct um_mem_exported *exported = (struct um_mem_exported *)exported_base;
    pthread_mutex_lock(&space->deferred.lock); /* its level may be changing */
    um_mem_own_list(exported, exported->level, counters);
    if (exported->region)
        um_mem_region_write(space, exported, true);
    pthread_mutex_unlock(&space->deferred.lock);
}

void um_mem_unexport(struct um_space *space_base, struct um_exported *exported_base)
{
    struct um_mem_space *space = (struct um_mem_space *)space_base;
    struct um_mem_exported *exported = (struct um_mem_exported *)exported_base;
    um_mem_deferred_end(space, exported);
    um_mem_own_unlist(exported);
    um_list_unlink(&exported->waiting);
    if (exported->region)
        um_mem_region_show(space, exported, false);
    /* sync: region-end (partner region-held): a store that a peer regards as done becomes visible before the pages are
     * copied. Where membarrier is refused, the first steps of giving pages back take longer than a store can be
     * delayed. */
    if (exported->adopted && space->mapper->barrier)
        space->mapper->barrier();
    um_mem_deferred_give_back(space, exported);
    uint64_t start = um_clock_ns();
    if (exported->adopted) {
        um_mem_own_move_begin();
        space->mapper->disown(space, exported->what.base, exported->what.len);
        um_mem_own_move_end();
    }
    if (exported->shared)
        space->mapper->unshare(space, &exported->at);
    if (exported->adopted || exported->shared)
        um_mem_budget_ended(&space->budget, exported, start, exported->cost_ns + um_clock_ns() - start);
    free(exported);
}

bool um_mem_is_shareable(struct um_space *base, const void *memory, size_t len)
{
    struct um_mem_space *space = (struct um_mem_space *)base;
    struct um_mem_place place;
    return space->mapper->is_shareable && space->mapper->memory_attach &&
           space->mapper->is_shareable(space, (uint64_t)(uintptr_t)memory, len, &place);
}
