/*
 * What a user can choose about the machine over a board. It holds for the process: a process is one context.
 *
 * Threading: set before the machine is used, or again with the same values.
 */
#ifndef UM_MACHINE_BOARD_CONFIG_H
#define UM_MACHINE_BOARD_CONFIG_H

#include "machine/machine.h"

/*
 * How far it goes beyond the simplest way to carry records over a board: each step holds those before it. The first
 * three are the steps of the poster, the others what it calls future work.
 */
enum um_board_step {
    UM_BOARD_NAIVE,    /* a record asks its receiver first, and every DMA registers its target and takes that back */
    UM_BOARD_CACHE,    /* a ring is registered once */
    UM_BOARD_DMABLE,   /* the receiver takes a body out of the memory that it came into, without a copy in between */
    UM_BOARD_EAGER,    /* nobody is asked: the ring was given to the sender before */
    UM_BOARD_EMBEDDED, /* what fits into a mailbox message goes in one */
    UM_BOARD_DIRECT,   /* large bodies go by DMA from and to the application's dmable memory */
    UM_BOARD_NATIVE,   /* registered memory that is dmable is read and written by DMA, without its owner */
    UM_BOARD_STEPS
};

enum { UM_BOARD_PARAMS = 2 };
extern const struct um_machine_param um_board_params[UM_BOARD_PARAMS];

/* The parameters: machine.h, um_machine_param.set. */
int um_board_set_library(const char *file);
int um_board_set_step(const char *name);

/* What was chosen, or the defaults after the first um_board_enter(); library NULL: it is looked for (library.h). */
enum um_board_step um_board_step_get(void);
const char *um_board_library_file(void);

#endif
