/*
 * The machines there are, and those that an endpoint uses: a list of names, as a user gives it.
 *
 * The layers above know no machine by its name; a new machine is declared here and listed in offered.c
 * (docs/machine.md, Steps). Threading: any.
 */
#ifndef UM_MACHINE_MACHINES_H
#define UM_MACHINE_MACHINES_H

#include "machine/machine.h"

extern const struct um_machine um_machine_shm;
extern const struct um_machine um_machine_sim;         /* for tests */
extern const struct um_machine um_machine_sim_unwoken; /* the same, as a machine that does not wake */
extern const struct um_machine um_machine_board;
extern const struct um_machine um_machine_net;

/* Those that a user can choose, the default first; NULL ends them. */
extern const struct um_machine *const um_machines_offered[];

/* The machines that an endpoint uses, the one that it prefers first. */
enum { UM_MACHINES_MAX = 2 };
struct um_machines {
    const struct um_machine *at[UM_MACHINES_MAX];
    uint32_t count;
};

/* Of a list of names with commas ("shm", "board,shm"), in its order. -EINVAL: a name is none of an offered machine, or
 * stands there twice; um_machines_add()'s errors. */
int um_machines_named(const char *names, struct um_machines *machines_p);
/* -EINVAL: it is among them, or there is no room; -EADDRINUSE: its part of an address has a word in common with that of
 * one of them, so they cannot be used together (logged). */
int um_machines_add(struct um_machines *machines, const struct um_machine *machine);
/* What um_machines_named() takes, in words. */
void um_machines_allowed(char *text, size_t size);

#endif
