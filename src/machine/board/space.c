/*
 * Spaces of the machine over a board. Nothing is mapped: every region is left to its owner, who executes.
 *
 * That is the lowest level of the contract (UM_LEVEL_REMOTE). Windows on dmable regions, through DMA, are not built
 * yet. Owns: the counters and locks that the owner itself uses. Threading: as machine.h; nothing here is shared.
 */
#include "machine/board/board.h"

#include "base/lock.h"

#include <errno.h>
#include <stdlib.h>

enum { COUNTERS = 256 };

struct um_space {
    struct um_locks_shm locks;
    uint64_t counts[COUNTERS + 1]; /* number 0 is none */
    bool used[COUNTERS + 1];
};

struct um_exposed {
    uint32_t counters;
};

int um_board_space_open(const struct um_space_config *config, struct um_space **space_p)
{
    (void)config;
    struct um_space *space = calloc(1, sizeof(*space));
    if (!space)
        return -ENOMEM;
    *space_p = space;
    return 0;
}

void um_board_space_close(struct um_space *space)
{
    free(space);
}

int um_board_expose(struct um_space *space, const struct um_exposure *what, struct um_exposed **exposed_p)
{
    (void)space;
    struct um_exposed *exposed = calloc(1, sizeof(*exposed));
    if (!exposed)
        return -ENOMEM;
    exposed->counters = what->counters;
    *exposed_p = exposed;
    return 0;
}

void um_board_conceal(struct um_space *space, struct um_exposed *exposed)
{
    (void)space;
    free(exposed);
}

enum um_level um_board_exposed_level(const struct um_exposed *exposed)
{
    (void)exposed;
    return UM_LEVEL_REMOTE;
}

int um_board_counter_open(struct um_space *space, uint32_t *number_p, const uint64_t **value_p)
{
    for (uint32_t number = 1; number <= COUNTERS; number++) {
        if (space->used[number])
            continue;
        space->used[number] = true;
        space->counts[number] = 0;
        *number_p = number;
        *value_p = &space->counts[number];
        return 0;
    }
    return -ENOSPC;
}

void um_board_counter_close(struct um_space *space, uint32_t number)
{
    space->used[number] = false;
}

/* Peers read none of this: the owner counts what it executes, by what its own table says. */
void um_board_exposed_set_counters(struct um_space *space, struct um_exposed *exposed, uint32_t counters)
{
    (void)space;
    exposed->counters = counters;
}

void um_board_port_set_counters(struct um_port *port, uint32_t counters)
{
    (void)port;
    (void)counters;
}

void um_board_space_count(struct um_space *space, uint32_t counters, unsigned shift)
{
    uint32_t number = counters >> shift & UM_COUNT_MASK;
    if (number && number <= COUNTERS)
        um_store_relaxed_u64(&space->counts[number], um_load_relaxed_u64(&space->counts[number]) + 1);
}

struct um_locks_shm *um_board_space_locks(struct um_space *space)
{
    return &space->locks;
}

/* Ask the owner. */
int um_board_window_open(struct um_link *link, uint64_t key, struct um_window **window_p)
{
    (void)link;
    (void)key;
    (void)window_p;
    return -ENOENT;
}

void um_board_window_close(struct um_window *window)
{
    (void)window;
}

void um_board_window_count(struct um_window *window, unsigned shift)
{
    (void)window;
    (void)shift;
}
