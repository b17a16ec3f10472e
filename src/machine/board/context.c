/*
 * The process's context on the board: opened with its first port or piece of memory, closed with the last one. board.h.
 *
 * What was made on a handle ends with it: each part of the process's object is told. Owns: um_board.context. Threading:
 * under the process's lock.
 */
#include "machine/board/board.h"

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int um_board_probe(void)
{
    um_board_enter();
    int ret = um_board_library_load(um_board_library_file());
    um_board_leave();
    return ret;
}

/* Logs what an error of unimem_open() means, and the remedy. */
static void open_failed(int error)
{
    const char *board = getenv("UNIMEM_BOARD");
    const char *remedy =
        error == -ENOENT   ? ": none is there, and none can be started: is the program unimem-boardd installed "
                             "beside the library, or named by UNIMEM_EMU_SERVER?"
        : error == -EACCES ? ": it is another user's: give UNIMEM_BOARD another name"
        : error == -EBUSY  ? ": it has no context left: end other programs, or give UNIMEM_BOARD another name"
                           : "";
    um_log(UM_LOG_WARN, "the Unimem board \"%s\" cannot be opened: %s%s", board && *board ? board : "board",
           strerror(-error), remedy);
}

/* Forgets what was made on a handle that is closed. */
static void forget(void)
{
    um_board_reaches_forget();
    um_board_others_forget();
    um_board_memory_forget();
    um_board_views_forget();
    um_board_seeks_forget();
    um_board.context.handle = NULL;
}

/* A forked child has neither a context nor dmable memory: they belong to its parent. It opens a context of its own. */
static void forget_parents(void)
{
    um_board_slots_forget();
    um_board_arenas_forget();
    um_board.context.users = 0;
    forget();
}

/* Records and the directory go in one DMA each. */
static int check_limits(struct unimem_board *board)
{
    struct unimem_info info;
    um_board_api.get_info(board, &info);
    if (info.dma_size_max >= UM_BOARD_LINE + UM_BOARD_BODY_MAX)
        return 0;
    um_log(UM_LOG_WARN, "the Unimem board moves at most %" PRIu64 " bytes in one DMA; messages need %d",
           info.dma_size_max, UM_BOARD_LINE + UM_BOARD_BODY_MAX);
    return -ENOTSUP;
}

/* Opens the process's context. */
static int context_open(struct unimem_board **board_p)
{
    int ret = um_board_library_load(um_board_library_file());
    if (ret)
        return ret;
    ret = um_board_api.open(NULL, UNIMEM_NODE_ANY, board_p);
    if (ret) {
        open_failed(ret);
        return ret;
    }
    ret = check_limits(*board_p);
    if (ret)
        um_board_api.close(*board_p);
    return ret;
}

int um_board_begin(struct unimem_board **board_p)
{
    if (um_board.context.users && um_board.context.opened_by != getpid())
        forget_parents();
    int ret = um_board.context.users ? 0 : context_open(board_p);
    if (ret)
        return ret;
    if (!um_board.context.users)
        um_board.context.handle = *board_p;
    um_board.context.opened_by = getpid();
    um_board.context.users++;
    *board_p = um_board.context.handle;
    return 0;
}

void um_board_end(void)
{
    struct um_board_lane *lane;
    if (--um_board.context.users)
        return;
    while ((lane = um_board_lane_next(NULL)) != NULL)
        um_board_lane_free(lane);
    um_board_api.close(um_board.context.handle); /* this ends all dmable memory and registrations, too */
    forget();
}
