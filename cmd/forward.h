/* Passes variables to ranks on other hosts: Open MPI's ssh does not pass the environment on, hydra's launchers do. */
#ifndef UM_CMD_FORWARD_H
#define UM_CMD_FORWARD_H

#include "mpi_env.h"
#include "recognise.h"

/*
 * For a job over the machine net. Open MPI: appends libfabric's and unimem's variables, and LD_PRELOAD if it has the
 * heap, to OMPI_MCA_mca_base_env_list, the list of what the launcher passes on. Where the command does that by itself
 * (-x, --mca mca_base_env_list; hydra's -genvlist and the like), and where the command is not known to be Open MPI's,
 * prints on stderr what to add. command: ended by NULL; NULL: there is none, only tells. Call it last, with the
 * environment complete. Returns 0, or a negative errno after a message.
 */
int um_cmd_forward(char *const *command, const struct um_cmd_recognised *found, const struct um_cmd_environment *env);

/* Prints the list on stderr if um_cmd_forward() set it. */
void um_cmd_forward_announce(void);

#endif
