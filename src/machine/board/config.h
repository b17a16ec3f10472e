/*
 * The parameters of the machine over a board that a user can choose. They hold for the process: a process is one
 * context.
 *
 * Threading: set before the machine is used, or again with the same values.
 */
#ifndef UM_MACHINE_BOARD_CONFIG_H
#define UM_MACHINE_BOARD_CONFIG_H

#include "machine/machine.h"

/*
 * How far the machine goes beyond the simplest way to carry records over a board. Each step includes those before it.
 * The first three are the steps of the poster, the others what it calls future work.
 */
enum um_board_step {
    UM_BOARD_NAIVE,    /* the receiver is asked before every record, and its ring is registered for each DMA alone */
    UM_BOARD_CACHE,    /* a ring is registered once */
    UM_BOARD_DMABLE,   /* the receiver offers a body after one copy out of its ring, not two */
    UM_BOARD_EAGER,    /* the receiver is not asked: the sender may write into the granted ring */
    UM_BOARD_EMBEDDED, /* a record that fits into a mailbox message goes in one */
    UM_BOARD_DIRECT,   /* large bodies go by DMA from and to the application's dmable memory */
    UM_BOARD_NATIVE,   /* registered memory that is dmable is read and written by DMA, without its owner */
    UM_BOARD_STEPS
};

enum { UM_BOARD_PARAMS = 2 };
extern const struct um_machine_param um_board_params[UM_BOARD_PARAMS];

/* The parameters: machine.h, um_machine_param.set. */
int um_board_set_library(const char *file);
int um_board_set_step(const char *name);

/* Return what was chosen, else the default (valid after the first um_board_enter()). File NULL: the library is looked
 * for (library.h). */
enum um_board_step um_board_step_get(void);
const char *um_board_library_file(void);

#endif
