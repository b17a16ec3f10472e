/*
 * The machines there are, and those that an endpoint uses: a list of names, as a user gives it.
 *
 * The layers above know no machine by its name; a new machine is added here and in machines.c. Threading: any.
 */
#ifndef UM_MACHINE_MACHINES_H
#define UM_MACHINE_MACHINES_H

#include "machine/machine.h"

extern const struct um_machine um_machine_shm;
extern const struct um_machine um_machine_sim; /* for tests */
extern const struct um_machine um_machine_board;

/* Those that a user can choose, the default first; NULL ends them. */
extern const struct um_machine *const um_machines_offered[];

/* The machines that an endpoint uses, the one that it prefers first. */
enum { UM_MACHINES_MAX = 2 };
struct um_machines {
    const struct um_machine *at[UM_MACHINES_MAX];
    uint32_t count;
};

/* Of a list of names with commas ("shm", "board,shm"), in its order. -EINVAL: a name is none of an offered machine, or
 * stands there twice. */
int um_machines_named(const char *names, struct um_machines *machines_p);

#endif
