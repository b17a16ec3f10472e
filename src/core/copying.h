/*
 * A transfer under way, held by the operation that it belongs to: moved on, ended, and given up with it.
 *
 * Owns: the machine's transfer. Threading: core.h.
 */
#ifndef UM_CORE_COPYING_H
#define UM_CORE_COPYING_H

#include "base/list.h"
#include "machine/machine.h"

struct um_core_region;

struct um_core_copying {
    struct um_transfer *transfer; /* NULL: none is under way, and the other members mean nothing */
    size_t len;                   /* bytes that it moves */
    struct um_list link;          /* in um_core_region.copying of the region that it writes to, if there is one */
};

/* transfer_start(), of this process's memory in a region (NULL: in none). */
int um_core_copying_start(struct um_core_copying *c, struct um_link *link, const struct um_copy *copy,
                          struct um_core_region *region);
/* transfer_poll(). */
int um_core_copying_poll(struct um_core_copying *c);
/* If there is one: no byte moves from the return on. */
void um_core_copying_cancel(struct um_core_copying *c);

#endif
