/* copying.h. */
#include "core/copying.h"

#include "core/region.h"

#include <errno.h>

int um_core_copying_start(struct um_core_copying *c, struct um_link *link, const struct um_copy *copy,
                          struct um_core_region *region)
{
    int ret = link->machine->transfer_start(link, copy, &c->transfer);
    if (ret != -EINPROGRESS)
        return ret;
    c->len = copy->len;
    um_list_init(&c->link);
    if (region)
        um_list_append(&region->copying, &c->link);
    return ret;
}

int um_core_copying_poll(struct um_core_copying *c)
{
    int ret = c->transfer->machine->transfer_poll(c->transfer);
    if (ret != -EINPROGRESS) {
        c->transfer = NULL;
        um_list_unlink(&c->link);
    }
    return ret;
}

void um_core_copying_cancel(struct um_core_copying *c)
{
    if (!c->transfer)
        return;
    c->transfer->machine->transfer_cancel(c->transfer);
    c->transfer = NULL;
    um_list_unlink(&c->link);
}
