/* Messages of `unimem run` and `unimem env` on stderr about the MPI and the chosen environment. */
#ifndef UM_CMD_ANNOUNCE_H
#define UM_CMD_ANNOUNCE_H

#include "mpi_env.h"
#include "recognise.h"

/* Finds the MPI that --mpi WORD names. Returns 0 or -EINVAL after a message; *found is set only on success. */
int um_cmd_announce_forced(const char *word, struct um_cmd_recognised *found);

/* Prints one line: which MPI, its version and library, the provider. */
void um_cmd_announce_choice(const struct um_cmd_recognised *found, const struct um_cmd_environment *env);

/* Prints a line if the user's FI_PROVIDER keeps unimem from being used; um_cmd_announce_choice says so as well. */
void um_cmd_announce_other_provider(const struct um_cmd_environment *env);

/*
 * Prints a line for each setting of the user that may keep the MPI from using unimem, and for a launcher of another
 * MPI.
 */
void um_cmd_announce_doubts(const struct um_cmd_recognised *found, const struct um_cmd_environment *env);

/* Prints a line if the command is one that starts programs without this environment (sudo). argv: ended by NULL. */
void um_cmd_announce_dropped(char *const *argv);

/* Prints every variable with its value and origin. */
void um_cmd_announce_all(const struct um_cmd_environment *env);

/* If this MPI cannot use unimem, prints why and what to do. Returns 0, or -ENOTSUP after the message. */
int um_cmd_announce_refusal(const struct um_cmd_mpi *mpi);

#endif
