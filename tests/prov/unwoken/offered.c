/* The machine of a provider that is built for unwoken_test.c alone: one that cannot wake a sleeper. */
#include "machine/machines.h"

const struct um_machine *const um_machines_offered[] = {&um_machine_sim_unwoken, NULL};
