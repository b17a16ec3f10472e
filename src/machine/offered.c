/*
 * The machines that a user can choose. This list has a file of its own, so that a test can build a provider with other
 * machines (tests/prov/unwoken).
 */
#include "machine/machines.h"

const struct um_machine *const um_machines_offered[] = {&um_machine_shm, &um_machine_board, &um_machine_net, NULL};
