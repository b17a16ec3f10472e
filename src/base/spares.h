/*
 * Blocks of memory of many sizes that are used again: the block freed last is given out first, because it is likely to
 * be in a cache. The C library gives the end of its heap back to the system whenever enough of it is free; each page
 * then costs a fault when the heap grows again.
 *
 * Owns: the blocks that are free, up to a bound. Must not know what the blocks hold. Threading: the caller serialises.
 */
#ifndef UM_BASE_SPARES_H
#define UM_BASE_SPARES_H

#include <stddef.h>

enum {
    UM_SPARES_SHIFT_MIN = 8,  /* a block of the first class has 2^8 bytes, of the next 2^9, ... */
    UM_SPARES_SHIFT_MAX = 17, /* larger blocks are not kept */
    UM_SPARES_CLASSES = UM_SPARES_SHIFT_MAX - UM_SPARES_SHIFT_MIN + 1
};

struct um_spare {
    struct um_spare *next;
};

struct um_spares {
    struct um_spare *free[UM_SPARES_CLASSES];
    size_t kept, kept_max; /* bytes of the free blocks, and the bound */
};

/* kept_max: the most bytes of free blocks to keep. */
void um_spares_init(struct um_spares *spares, size_t kept_max);
/* Gives the free blocks back to the C library. Blocks in use stay valid; free(3) frees them. */
void um_spares_fini(struct um_spares *spares);

/* Returns the bytes that a block of len bytes takes. */
size_t um_spares_size(size_t len);
/* Returns a block of at least len bytes, of undefined content and aligned for any type; NULL: no memory. */
void *um_spares_alloc(struct um_spares *spares, size_t len);
/* Takes the block back. len: as passed to um_spares_alloc(). */
void um_spares_release(struct um_spares *spares, void *block, size_t len);

#endif
