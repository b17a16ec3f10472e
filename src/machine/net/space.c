/*
 * Spaces and windows of the machine over another provider: all regions are at level remote. net.h.
 *
 * The owner executes every access, so there is no table that peers read: what is exported is known to the layers above,
 * and a window says only that the peer must be asked. Threading: machine.h.
 */
#include "machine/net/net.h"

#include "machine/owner/counts.h"

#include <errno.h>
#include <stdlib.h>

struct space {
    struct um_space base;
    struct um_owner_counts counts;
};

static struct space *space_of(struct um_space *base)
{
    return (struct space *)base;
}

int um_net_space_open(const struct um_machine *machine, struct um_space **space_p)
{
    struct space *space = calloc(1, sizeof(*space));
    if (!space)
        return -ENOMEM;
    space->base.machine = machine;
    *space_p = &space->base;
    return 0;
}

void um_net_space_close(struct um_space *base)
{
    free(base);
}

int um_net_export(struct um_space *base, const struct um_region_desc *what, struct um_exported **exported_p)
{
    struct um_exported *exported = calloc(1, sizeof(*exported));
    (void)what;
    if (!exported)
        return -ENOMEM;
    exported->machine = base->machine;
    *exported_p = exported;
    return 0;
}

void um_net_unexport(struct um_space *base, struct um_exported *exported)
{
    (void)base;
    free(exported);
}

enum um_level um_net_exported_level(const struct um_exported *exported)
{
    (void)exported;
    return UM_LEVEL_REMOTE;
}

int um_net_counter_open(struct um_space *base, uint32_t *number_p, const uint64_t **value_p)
{
    return um_owner_counter_open(&space_of(base)->counts, number_p, value_p);
}

void um_net_counter_close(struct um_space *base, uint32_t number)
{
    um_owner_counter_close(&space_of(base)->counts, number);
}

/* The owner counts what it executes, by what the layers above know. */
void um_net_exported_set_counters(struct um_space *base, struct um_exported *exported, uint32_t counters)
{
    (void)base, (void)exported, (void)counters;
}

void um_net_port_set_counters(struct um_port *base, uint32_t counters)
{
    (void)base, (void)counters;
}

void um_net_space_count(struct um_space *base, uint32_t counters, unsigned shift)
{
    um_owner_count(&space_of(base)->counts, counters, shift);
}

struct um_locks_shm *um_net_space_locks(struct um_space *base)
{
    return &space_of(base)->counts.locks;
}

/* The window stays current: the peer is asked for each access, and knows what it exports. */
int um_net_window_open(struct um_link *base, uint64_t key, struct um_window **window_p)
{
    static const uint64_t never;
    static const uint32_t none;
    struct um_window *window = calloc(1, sizeof(*window));
    if (!window)
        return -ENOMEM;
    window->machine = base->machine;
    window->region.key = key;
    window->port_counters = &none;
    window->changes_at = &never;
    *window_p = window;
    return 0;
}

void um_net_window_close(struct um_window *window)
{
    free(window);
}
