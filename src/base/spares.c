/* Classes and their free blocks of base/spares.h. */
#include "base/spares.h"

#include <stdlib.h>

/* Returns the class of blocks of len bytes; UM_SPARES_CLASSES: there is none. */
static unsigned class_of(size_t len)
{
    unsigned class = 0;
    while (class < UM_SPARES_CLASSES && (size_t)1 << (UM_SPARES_SHIFT_MIN + class) < len)
        class ++;
    return class;
}

static size_t size_of(unsigned class)
{
    return (size_t)1 << (UM_SPARES_SHIFT_MIN + class);
}

void um_spares_init(struct um_spares *spares, size_t kept_max)
{
    *spares = (struct um_spares){.kept_max = kept_max};
}

void um_spares_fini(struct um_spares *spares)
{
    for (unsigned class = 0; class < UM_SPARES_CLASSES; class ++) {
        while (spares->free[class]) {
            struct um_spare *first = spares->free[class];
            spares->free[class] = first->next;
            free(first);
        }
    }
    spares->kept = 0;
}

size_t um_spares_size(size_t len)
{
    const unsigned class = class_of(len);
    return class == UM_SPARES_CLASSES ? len : size_of(class);
}

void *um_spares_alloc(struct um_spares *spares, size_t len)
{
    const unsigned class = class_of(len);
    if (class == UM_SPARES_CLASSES)
        return malloc(len);
    struct um_spare *first = spares->free[class];
    if (!first)
        return malloc(size_of(class));
    spares->free[class] = first->next;
    spares->kept -= size_of(class);
    return first;
}

void um_spares_release(struct um_spares *spares, void *block, size_t len)
{
    const unsigned class = class_of(len);
    if (class == UM_SPARES_CLASSES || size_of(class) > spares->kept_max - spares->kept) {
        free(block);
        return;
    }
    struct um_spare *first = block;
    first->next = spares->free[class];
    spares->free[class] = first;
    spares->kept += size_of(class);
}
