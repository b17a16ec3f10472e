/* Passes variables to ranks on other hosts: Open MPI's ssh does not pass the environment on, hydra's launchers do. */
#ifndef UM_CMD_FORWARD_H
#define UM_CMD_FORWARD_H

#include "mpi_env.h"
#include "recognise.h"

/*
 * For a job of Open MPI over the machine net: appends libfabric's and unimem's variables, and LD_PRELOAD if it has the
 * heap, to OMPI_MCA_mca_base_env_list, the list of what the launcher passes on. If the command has -x instead, prints
 * on stderr what to add. Call it last, with the environment complete. Returns 0, or a negative errno after a message.
 */
int um_cmd_forward(char *const *command, const struct um_cmd_recognised *found, const struct um_cmd_environment *env);

#endif
