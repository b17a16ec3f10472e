/*
 * Spaces: what a domain exposes, in a table that peers read without asking (layout.h, docs/protocol.md section 9).
 *
 * Owns: struct um_mem_space, struct um_mem_exposed. entry.c writes what stands in the table. Must not know how memory
 * is made mapped (mapper.h). Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"

#include <errno.h>
#include <stdlib.h>

int um_mem_space_open(const struct um_machine *machine, const struct um_mapper *mapper,
                      const struct um_space_config *config, struct um_space **space_p)
{
    struct um_mem_space *space = calloc(1, sizeof(*space));
    if (!space)
        return -ENOMEM;
    space->base.machine = machine;
    space->mapper = mapper;
    space->adopt = config->adopt;
    um_thrift_init(&space->thrift, um_clock_ns());
    um_later_init(space);
    int ret = mapper->space_create(space);
    if (ret) {
        um_later_fini(space);
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
    um_later_fini(space);
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
        struct um_counter_shm *c = (void *)(space->memory + UM_COUNTER_OFFSET);
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
    struct um_counter_shm *c = (void *)((unsigned char *)space_memory + UM_COUNTER_OFFSET);
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

static bool is_range(const struct um_exposure *what)
{
    return what->base && what->len && what->len <= UINT64_MAX - what->base;
}

/* Why peers may map no memory of this space; NULL: they may. */
static const char *never_mapped(const struct um_mem_space *space, const struct um_exposure *what)
{
    if (!space->adopt)
        return "adoption is switched off";
    if (!space->mapper->adopt)
        return "this machine adopts no memory";
    return is_range(what) ? NULL : "it is not a range of memory";
}

/* Moves private memory so that peers can map it. False, and *why_p. */
static bool exposed_adopt(struct um_mem_space *space, struct um_mem_exposed *exposed, const char **why_p)
{
    const struct um_exposure *what = &exposed->what;
    if (!(what->access & UM_ACCESS_REMOTE_WRITE)) {
        *why_p = "only registrations for remote writing are adopted";
        return false;
    }
    um_mem_own_move_begin();
    exposed->adopted = space->mapper->adopt(space, what->base, what->len, &exposed->at, why_p) == 0;
    um_mem_own_move_end();
    return exposed->adopted;
}

/* Static data can be moved only while there is one thread: the space's own ends for a moment. */
static bool exposed_adopt_alone(struct um_mem_space *space, struct um_mem_exposed *exposed, const char **why_p)
{
    if (exposed_adopt(space, exposed, why_p))
        return true;
    if (!um_later_pause(space))
        return false;
    exposed_adopt(space, exposed, why_p);
    um_later_resume(space);
    return exposed->adopted;
}

/* Makes the region mapped if possible and returns its level. *why_p: how, or why not. */
static enum um_level exposed_map(struct um_mem_space *space, struct um_mem_exposed *exposed, const char **why_p)
{
    const struct um_mapper *mapper = space->mapper;
    uint64_t start = um_clock_ns();
    bool mapped = exposed_adopt_alone(space, exposed, why_p);
    if (mapped)
        *why_p = "";
    else if (mapper->share) {
        int ret = mapper->share(space, &exposed->what, &exposed->at, why_p);
        mapped = exposed->shared = ret == 0;
        exposed->at.file = ret == -EPERM ? UM_JOIN_HANDLE : exposed->at.file;
        *why_p = mapped ? "the program's own shared mapping" : *why_p;
    }
    exposed->cost_ns = um_clock_ns() - start;
    return mapped ? UM_LEVEL_MAPPED : UM_LEVEL_COPY;
}

/* The level that peers get; *why_p: why it is this one. */
static enum um_level exposed_prepare(struct um_mem_space *space, struct um_mem_exposed *exposed, const char **why_p)
{
    const struct um_exposure *what = &exposed->what;
    const struct um_mapper *mapper = space->mapper;
    if (is_range(what) && mapper->is_shareable && mapper->is_shareable(space, what->base, what->len, &exposed->at)) {
        *why_p = "from the heap";
        return UM_LEVEL_MAPPED;
    }
    *why_p = never_mapped(space, what);
    if (*why_p)
        return UM_LEVEL_COPY;
    if (um_later_take(space, exposed)) {
        *why_p = "it is moved when peers make enough use of it";
        return UM_LEVEL_COPY;
    }
    if (um_thrift_allows(&space->thrift, exposed->since_ns))
        return exposed_map(space, exposed, why_p);
    *why_p = "too much time went into moving memory whose registration ended at once";
    um_list_append(&space->thrift.waiting, &exposed->waiting);
    return UM_LEVEL_COPY;
}

/* Regions that were not moved at registration may be worth it now. */
static void waiting_adopt(struct um_mem_space *space, uint64_t now)
{
    struct um_mem_exposed *exposed = um_thrift_ripe(&space->thrift, now);
    const char *why = "";
    if (!exposed)
        return;
    um_mem_own_list(exposed, exposed_map(space, exposed, &why), exposed->what.counters);
    if (exposed->level == UM_LEVEL_MAPPED)
        um_mem_region_show(space, exposed, true);
    um_mem_exposed_log(exposed, why);
}

int um_mem_expose(struct um_space *base, const struct um_exposure *what, struct um_exposed **exposed_p)
{
    struct um_mem_space *space = (struct um_mem_space *)base;
    struct um_mem_exposed *exposed = calloc(1, sizeof(*exposed));
    const char *why = "the table of regions is full";
    if (!exposed)
        return -ENOMEM;
    *exposed = (struct um_mem_exposed){.base = {.machine = base->machine},
                                       .what = *what,
                                       .level = UM_LEVEL_REMOTE,
                                       .at = {.file = UM_NO_HANDLE},
                                       .since_ns = um_clock_ns()};
    um_list_init(&exposed->waiting);
    um_list_init(&exposed->later);
    exposed->birth = space->births++;
    waiting_adopt(space, exposed->since_ns);
    if (um_mem_own_place(space, exposed) != 0) {
        free(exposed);
        return -ENOMEM;
    }
    enum um_level level = exposed->region ? exposed_prepare(space, exposed, &why) : UM_LEVEL_REMOTE;
    pthread_mutex_lock(&space->later.lock);
    if (exposed->region) {
        um_mem_own_list(exposed, level, what->counters);
        um_mem_region_write(space, exposed, true);
        um_later_begin(space, exposed);
    }
    um_mem_exposed_log(exposed, why);
    pthread_mutex_unlock(&space->later.lock);
    *exposed_p = &exposed->base;
    return 0;
}

enum um_level um_mem_exposed_level(const struct um_exposed *base)
{
    const struct um_mem_exposed *exposed = (const struct um_mem_exposed *)base;
    return (enum um_level)um_load_relaxed_u32(&exposed->level);
}

void um_mem_exposed_set_counters(struct um_space *space_base, struct um_exposed *exposed_base, uint32_t counters)
{
    struct um_mem_space *space = (struct um_mem_space *)space_base;
    struct um_mem_exposed *exposed = (struct um_mem_exposed *)exposed_base;
    pthread_mutex_lock(&space->later.lock); /* its level may be changing */
    um_mem_own_list(exposed, exposed->level, counters);
    if (exposed->region)
        um_mem_region_write(space, exposed, true);
    pthread_mutex_unlock(&space->later.lock);
}

void um_mem_conceal(struct um_space *space_base, struct um_exposed *exposed_base)
{
    struct um_mem_space *space = (struct um_mem_space *)space_base;
    struct um_mem_exposed *exposed = (struct um_mem_exposed *)exposed_base;
    um_later_end(space, exposed);
    um_mem_own_unlist(exposed);
    um_list_unlink(&exposed->waiting);
    if (exposed->region)
        um_mem_region_show(space, exposed, false);
    /* sync: region-end (partner region-held): a store that a peer regards as done becomes visible before the pages are
     * copied. Where membarrier is refused, the first steps of giving pages back take longer than a store can be
     * delayed. */
    if (exposed->adopted && space->mapper->barrier)
        space->mapper->barrier();
    um_later_give_back(space, exposed);
    uint64_t start = um_clock_ns();
    if (exposed->adopted) {
        um_mem_own_move_begin();
        space->mapper->disown(space, exposed->what.base, exposed->what.len);
        um_mem_own_move_end();
    }
    if (exposed->shared)
        space->mapper->unshare(space, &exposed->at);
    if (exposed->adopted || exposed->shared)
        um_thrift_ended(&space->thrift, exposed, start, exposed->cost_ns + um_clock_ns() - start);
    free(exposed);
}
