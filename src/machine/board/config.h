/*
 * What a user can choose about the machine over a board. It holds for the process: a process is one context.
 *
 * Threading: set before the machine is used, or again with the same values.
 */
#ifndef UM_MACHINE_BOARD_CONFIG_H
#define UM_MACHINE_BOARD_CONFIG_H

struct um_board_config {
    const char *library; /* the file of the board's library; NULL: looked for (library.h) */
};

void um_board_configure(const struct um_board_config *config);

#endif
