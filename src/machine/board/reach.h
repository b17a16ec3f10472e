/*
 * What the engine of this context reaches: a cache of registrations, and single DMAs.
 *
 * A registration stays until its place is wanted for another one, or it turns out to be of memory that was freed.
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
    struct um_list link; /* used last comes first */
    struct unimem_remote at;
    size_t len;
    uint32_t flights; /* DMAs under way that use it, and who else holds it */
    uint32_t pins;    /* of these, long-term ones */
    bool stale;       /* the memory is gone: the registration ends with its last use */
};

/* The registration that covers it; NULL: none. */
struct um_board_reach *um_board_reach_find(const struct unimem_remote *at, size_t len);
/*
 * The same, and if there is none: registers exactly that range, and ends other registrations if needed. -EAGAIN: all
 * are in use; -ENXIO the context does not live; -EFAULT not dmable (any more); -ENOMEM.
 */
int um_board_reach_try(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p);
void um_board_reach_drop(struct um_board_reach *reach);
/* Remembers the registration used last, to find it again without a search. */
struct um_board_hint {
    struct um_board_reach *reach;
    uint64_t ends; /* registrations that had ended when it was remembered */
};
void um_board_reach_remember(struct um_board_hint *hint, struct um_board_reach *reach);
/* NULL: it has ended, or does not cover this. */
struct um_board_reach *um_board_reach_again(const struct um_board_hint *hint, const struct unimem_remote *at,
                                            size_t len);
/* Between these two it stays, though it may become stale. */
void um_board_reach_hold(struct um_board_reach *reach);
void um_board_reach_release(struct um_board_reach *reach);
/* Holds it long-term. At most half of the engine's table may be pinned: false if it would be more. */
bool um_board_reach_pin(struct um_board_reach *reach);
void um_board_reach_unpin(struct um_board_reach *reach);

/* One DMA; local: dmable. 0; -EAGAIN; -ENXIO, -EFAULT: gone, and the registration with it; -EIO. */
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
