/* Preloading the sched_yield() that is seldom a system call (src/yield): `unimem run` does so for MPICH. */
#ifndef UM_CMD_YIELD_H
#define UM_CMD_YIELD_H

#include "mpi_env.h"
#include "recognise.h"

#include <stdbool.h>

/*
 * Appends the library to LD_PRELOAD if the job gains by it: MPICH over unimem, no program with the shared library of
 * AddressSanitizer. Without the library, or with a path that LD_PRELOAD cannot hold, it prints a message; the job then
 * runs, but slower. verbose: also prints the new LD_PRELOAD.
 */
void um_cmd_yield_preload(char *const *program, const struct um_cmd_recognised *found,
                          const struct um_cmd_environment *env, bool verbose);

#endif
