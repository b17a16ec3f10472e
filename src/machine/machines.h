/*
 * The machines of this build, and the machines that an endpoint uses, which a user gives as a list of names.
 *
 * The layers above know no machine by its name. A new machine is declared here and listed in offered.c
 * (docs/machine.md, Steps). Threading: any.
 */
#ifndef UM_MACHINE_MACHINES_H
#define UM_MACHINE_MACHINES_H

#include "machine/machine.h"

extern const struct um_machine um_machine_shm;
extern const struct um_machine um_machine_sim;         /* for tests */
extern const struct um_machine um_machine_sim_unwoken; /* sim, as a machine that does not wake */
extern const struct um_machine um_machine_board;
extern const struct um_machine um_machine_net;

/* The machines that a user can choose, the default first; NULL ends the list. */
extern const struct um_machine *const um_machines_offered[];

/* The machines that an endpoint uses, the preferred one first. */
enum { UM_MACHINES_MAX = 2 };
struct um_machines {
    const struct um_machine *at[UM_MACHINES_MAX];
    uint32_t count;
};

/* Returns the machines of a list of names with commas ("shm", "board,shm"), in the order of the list. -EINVAL: a name
 * is not that of an offered machine, or occurs twice; the errors of um_machines_add(). */
int um_machines_named(const char *names, struct um_machines *machines_p);
/* Adds a machine. -EINVAL: the list has it already, or is full; -EADDRINUSE: its part of an address has a word in
 * common with the part of a machine in the list, so they cannot be used together (logged). */
int um_machines_add(struct um_machines *machines, const struct um_machine *machine);
/* Writes what um_machines_named() accepts, as a text for users. */
void um_machines_allowed(char *text, size_t size);

#endif
