/*
 * What the engine of this context reaches: a cache of registrations, and where peers have dmable memory.
 *
 * A registration stays until its place is wanted for another one, or it turns out to be of memory that was freed. What
 * a peer has to offer it tells by a directory in its own dmable memory: its address and version come by message, its
 * content by DMA when something is looked for that no registration covers.
 *
 * Owns: the registrations of the process, what is known of other contexts, and the dmable memory in which DMAs of the
 * machine itself end. Threading: under the process's lock (board.h). Calls wait for the engine at most, for no peer.
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
    uint32_t pins;    /* of these, for long */
    bool stale;       /* the memory is gone: it ends with the last of these */
};

/* A piece of dmable memory that peers may register, in the directory of its owner. */
struct um_board_arena_wire {
    uint64_t base, len, zero;
    uint64_t check; /* um_board_check() of the words before; else: none */
};
static_assert(sizeof(struct um_board_arena_wire) == 32, "docs/protocol.md section 10");
enum { UM_BOARD_ARENAS_MAX = 256, UM_BOARD_DIRECTORY = UM_BOARD_ARENAS_MAX * 32 };

/* The registration that covers it; NULL: none. */
struct um_board_reach *um_board_reach_find(const struct unimem_remote *at, size_t len);
/*
 * The same, and if there is none: makes it, of exactly that, and ends others for it if it must. -EAGAIN: all are in
 * use; -ENXIO the context does not live; -EFAULT not dmable (any more); -ENOMEM.
 */
int um_board_reach_get(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p);
void um_board_reach_drop(struct um_board_reach *reach);
/* The one that was used last, for who will use it again: found without a search, however many there are. */
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
/* Holds it for long. Of all that the engine's table has room for, at most half may be: false if it would be more. */
bool um_board_reach_pin(struct um_board_reach *reach);
void um_board_reach_unpin(struct um_board_reach *reach);

/* A registration that covers this memory of a peer, which its directory tells of. -EPERM: none does. */
int um_board_reach_peer(const struct unimem_remote *at, size_t len, struct um_board_reach **reach_p);
/* Where a context, by its number, has its directory, and that it has changed. */
void um_board_reach_told(uint32_t node, uint32_t number, uint64_t directory, uint32_t version);
/* What is known of a context may be wrong: look again. */
void um_board_reach_doubt(uint32_t node, uint32_t number);

/* One DMA, to its end; local: dmable. 0; -EAGAIN; -ENXIO, -EFAULT: gone, and the registration with it; -EIO. */
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
int um_board_dma_now(const struct um_board_transfer *what);

/* Dmable memory for DMAs of the machine itself: each part by itself is free between two calls. NULL: there is none. */
enum { UM_BOARD_BOUNCES = 4, UM_BOARD_BOUNCE = 1 << 18, UM_BOARD_SCRATCH = 1 << 12 };
struct um_board_scratch {
    unsigned char notice[64];
    _Alignas(64) unsigned char small[UM_BOARD_SCRATCH];
    _Alignas(64) unsigned char directory[UM_BOARD_DIRECTORY];
    _Alignas(4096) unsigned char bounce[UM_BOARD_BOUNCES][UM_BOARD_BOUNCE];
};
struct um_board_scratch *um_board_scratch(void);

/* The process's context was closed: all of this is gone. */
void um_board_reaches_forget(void);

#endif
