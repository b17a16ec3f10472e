/* process.h: the object and its lock. */
#include "machine/board/process.h"

#include "base/cancel.h"

struct um_board_process um_board;

/* For a forked child: another thread of the parent may have held the lock. */
static void lock_renew(void)
{
    um_board.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* Sets what is not zero at first. */
static void process_begin(void)
{
    lock_renew();
    (void)pthread_atfork(NULL, NULL, lock_renew);
    um_board.config.step = UM_BOARD_STEPS - 1;
    um_list_init(&um_board.reaches.list);
    um_list_init(&um_board.memory.arenas);
    um_list_init(&um_board.others.list);
    um_list_init(&um_board.views.list);
}

void um_board_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, process_begin);
    const int before = um_cancel_disable(); /* the library may call functions that are cancellation points */
    pthread_mutex_lock(&um_board.lock);
    um_board.cancel_before = before;
}

void um_board_leave(void)
{
    const int before = um_board.cancel_before;
    pthread_mutex_unlock(&um_board.lock);
    um_cancel_restore(&before);
}
