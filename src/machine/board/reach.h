/*
 * Memory of peers that this context's engine reaches: a cache of registrations, and single DMAs.
 *
 * A registration stays until another one needs its place, until a DMA finds that its memory was freed, or until its
 * context has ended.
 *
 * Owns: um_board.reaches. Threading: under the process's lock (process.h). No call waits.
 */
#ifndef UM_MACHINE_BOARD_REACH_H
#define UM_MACHINE_BOARD_REACH_H

#include "base/list.h"

#include <unimem/unimem.h>

#include <assert.h>
#include <stdbool.h>

/* A registration. */
struct um_board_reach {
    struct um_list link; /* the list's order: last used first */
    struct unimem_remote at;
    size_t len;
    uint32_t flights; /* number of DMAs under way that use it, and of other holds */
    uint32_t pins;    /* how many of these are long-term */
    bool stale;       /* the memory is gone: the registration ends when flights is 0 */
};

/* Returns a registration that covers this memory; NULL: none. */
struct um_board_reach *um_board_reach_find(const struct unimem_remote *at, size_t len);
/*
 * The same, but if there is none, registers exactly that range, and ends other registrations if needed. -EAGAIN: all
 * others are in use; -ENXIO: the context has ended; -EFAULT: the memory is not dmable (any more); -ENOMEM.
 */
int um_board_reach_try(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p);
void um_board_reach_drop(struct um_board_reach *reach);
/* Remembers the registration used last, to find it again without a search. */
struct um_board_hint {
    struct um_board_reach *reach;
    uint64_t ends; /* registrations that had ended when it was remembered */
};
void um_board_reach_remember(struct um_board_hint *hint, struct um_board_reach *reach);
/* Returns the remembered registration; NULL: it may have ended, or does not cover this memory. */
struct um_board_reach *um_board_reach_again(const struct um_board_hint *hint, const struct unimem_remote *at,
                                            size_t len);
/* Between hold and release the registration stays, though it may become stale. */
void um_board_reach_hold(struct um_board_reach *reach);
void um_board_reach_release(struct um_board_reach *reach);
/* Holds the registration long-term. False: more than half of the engine's table would be pinned. */
bool um_board_reach_pin(struct um_board_reach *reach);
void um_board_reach_unpin(struct um_board_reach *reach);

/* Ends the registrations of memory of a context that has ended. */
void um_board_reaches_gone(uint32_t node, uint32_t context);
/* True if no further registration can be pinned. */
bool um_board_reach_pins_full(void);

/* One DMA; local memory is dmable. begin: 0 or -EAGAIN. end: 0; -ENXIO, -EFAULT: the peer's memory is gone, and the
 * registration becomes stale. Both: -EIO. */
struct um_board_transfer {
    struct um_board_reach *reach;
    uint64_t address; /* the peer's */
    void *local;
    size_t len;
    bool write;
};
int um_board_dma_begin(const struct um_board_transfer *what, uint64_t *dma_p);
/* Ends what begin() began, if it is done: else -EINPROGRESS. */
int um_board_dma_end(struct um_board_reach *reach, uint64_t dma);

/* The process's context was closed: all of this is gone. */
void um_board_reaches_forget(void);

#endif
