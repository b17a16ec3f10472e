/*
 * What a process has once, because it is one context of the board: one object, with a part for each file that owns one.
 *
 * A file touches the part that it owns; it asks the functions of the owner for what stands in another one. Threading:
 * all of it is under the lock, which um_board_enter() takes; no call holds it while waiting for a peer. A forked child
 * begins with what its parent had, under a lock of its own, and drops that when it opens a context (context.c).
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
    int cancel_before; /* of the thread that holds it */

    struct { /* config.c */
        enum um_board_step step;
        char library[PATH_MAX]; /* "": none was named */
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
        uint32_t lanes_end, rxs_end; /* above the last that is used */
        uint32_t generation;
    } slots;

    struct { /* reach.c: registrations */
        struct um_list list;
        uint32_t pinned;
        uint64_t ends; /* those that have ended */
    } reaches;

    struct { /* memory.c: all of it dmable, but the list */
        struct um_list arenas;
        struct um_board_arena_wire *directory; /* zero at the start; NULL: none yet */
        uint32_t version;                      /* of the directory */
        struct um_board_ring *rings;           /* that are free */
        struct um_board_scratch *scratch;
    } memory;

    struct { /* others.c: other contexts, of which something was told */
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
        uint32_t end;    /* above the last one */
        uint32_t unsaid; /* those that have something to tell */
    } seeks;
};
extern struct um_board_process um_board;

void um_board_enter(void);
void um_board_leave(void);

/* The context; NULL: none is open. */
static inline struct unimem_board *um_board_handle(void)
{
    return um_board.context.handle;
}

#endif
