/*
 * A transfer under way, as a member of the operation that it belongs to: polled and cancelled with the operation.
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
    size_t len;                   /* bytes that the transfer moves */
    struct um_list link; /* in um_core_region.copying of the region that the transfer writes to, if there is one */
};

/* Calls transfer_start(). region: where the transfer writes in this process; NULL: in no region. */
int um_core_copying_start(struct um_core_copying *c, struct um_link *link, const struct um_copy *copy,
                          struct um_core_region *region);
/* Calls transfer_poll(). */
int um_core_copying_poll(struct um_core_copying *c);
/* Cancels the transfer, if there is one: after the return no byte moves. */
void um_core_copying_cancel(struct um_core_copying *c);

#endif
