/* What the ranks of other hosts are given: Open MPI's ssh takes no environment along, hydra's launchers do. */
#ifndef UM_CMD_FORWARD_H
#define UM_CMD_FORWARD_H

#include "mpi_env.h"
#include "recognise.h"

/*
 * For a job of Open MPI over the machine net: names libfabric's and unimem's variables, and LD_PRELOAD if it has the
 * heap, to the launcher in OMPI_MCA_mca_base_env_list, behind what the user has there. Where the command has -x
 * instead, says on stderr what to add. Call it last, with the environment complete. Returns 0, or a negative errno
 * after a message.
 */
int um_cmd_forward(char *const *command, const struct um_cmd_recognised *found, const struct um_cmd_environment *env);

#endif
