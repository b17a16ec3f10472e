/*
 * The state of the process as one context of the board: one object, with a part for each file that owns one.
 *
 * A file touches only the part that it owns, and reaches other parts by the functions of their owners. Threading: the
 * lock guards all of it; um_board_enter() takes it. No call holds it while it waits for a peer. A forked child begins
 * with the parent's state, under a new lock, and drops that state when it opens a context (context.c).
 */
#ifndef UM_MACHINE_BOARD_PROCESS_H
#define UM_MACHINE_BOARD_PROCESS_H

#include "base/list.h"
#include "machine/board/config.h"
#include "machine/board/wire.h"

#include <limits.h>
#include <pthread.h>
#include <sys/types.h>

enum { UM_BOARD_SLOTS = 1 << 12 };
static_assert(UM_BOARD_SLOTS <= 1 << UM_BOARD_NUMBER_BITS, "a slot fits into its number");

struct um_board_process {
    /* process.c */
    pthread_mutex_t lock;
    int cancel_before; /* cancel state of the thread that holds the lock, before it took it */

    struct { /* config.c */
        enum um_board_step step;
        char library[PATH_MAX]; /* "": the user named none */
    } config;

    struct { /* context.c */
        struct unimem_board *handle;
        int users;
        pid_t opened_by;
    } context;

    struct { /* slots.c */
        struct um_board_port *ports;
        struct um_board_lane *lane[UM_BOARD_SLOTS];
        struct um_board_rx *rx[UM_BOARD_SLOTS];
        uint32_t lanes_end, rxs_end; /* 1 above the last slot in use */
        uint32_t generation;
    } slots;

    struct { /* reach.c: registrations */
        struct um_list list;
        uint32_t pinned;
        uint64_t ends; /* how many have ended */
    } reaches;

    struct { /* memory.c: dmable memory */
        struct um_list arenas;
        struct um_board_arena_wire *directory; /* dmable, zero at first; NULL: none yet */
        uint32_t version;                      /* of the directory */
        struct um_board_ring *rings;           /* free ones */
        struct um_board_scratch *scratch;
    } memory;

    struct { /* others.c: other contexts that told of their directory */
        struct um_list list;
        uint32_t count;
    } others;

    struct { /* view.c */
        struct um_list list;
        uint32_t count, number, unsent;
    } views;

    struct {                               /* seek.c */
        struct um_board_notice_wire *area; /* UM_BOARD_NOTICES, dmable */
        struct um_board_seek *seek[UM_BOARD_NOTICES];
        uint32_t end;    /* 1 above the last one in use */
        uint32_t unsaid; /* seeks that have something to tell */
    } seeks;
};
extern struct um_board_process um_board;

void um_board_enter(void);
void um_board_leave(void);

/* Returns the context; NULL: none is open. */
static inline struct unimem_board *um_board_handle(void)
{
    return um_board.context.handle;
}

#endif
