/* What the ranks of other hosts are given: Open MPI's ssh takes no environment along, hydra's launchers do. */
#ifndef UM_CMD_FORWARD_H
#define UM_CMD_FORWARD_H

#include "mpi.h"

/*
 * For a job of Open MPI over the machine net: names libfabric's and unimem's variables to the launcher in
 * OMPI_MCA_mca_base_env_list. Where the command or the user has a list, says on stderr what it shall have. Call it
 * last, with the environment complete. Returns 0, or a negative errno after a message.
 */
int um_cmd_forward(char *const *command, const struct um_cmd_mpi *mpi);

#endif
