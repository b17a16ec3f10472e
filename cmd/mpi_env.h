/*
 * The environment in which a libfabric program, above all an MPI, runs over unimem.
 *
 * Owns the list of variables and the rule by which they are chosen: what the user has set wins. Does not know how the
 * MPI was recognised, or how the list is used (exported into this process by `unimem run`, printed by `unimem env`).
 */
#ifndef UM_CMD_MPI_ENV_H
#define UM_CMD_MPI_ENV_H

#include "mpi.h"

#include <limits.h>
#include <stdbool.h>

enum { UM_ENV_MAX = 16, UM_ENV_VALUE_MAX = 4 * PATH_MAX };

enum um_cmd_env_origin {
    UM_ENV_SET,      /* set by unimem: the user has not set it */
    UM_ENV_EXTENDED, /* the user's, with unimem's added in front */
    UM_ENV_KEPT,     /* the user's: it wins */
    UM_ENV_UNUSED    /* not set: not needed with what the user has chosen */
};

struct um_cmd_env_var {
    const char *name;
    enum um_cmd_env_origin origin;
    const char *ours;             /* the value that unimem needs; NULL: composed of paths, or others work, too */
    char value[UM_ENV_VALUE_MAX]; /* the value in effect; empty for UM_ENV_UNUSED */
};

struct um_cmd_environment {
    unsigned count;
    struct um_cmd_env_var var[UM_ENV_MAX];
    char dir[PATH_MAX]; /* the folder of libunimem-fi.so */
    /* The user's FI_PROVIDER if it chooses other providers, so that unimem is not used; else NULL. */
    const char *other_provider;
};

/*
 * Fills env for this process's present environment and this MPI. Kind UM_MPI_NONE: with the variables of all MPIs (each
 * ignores those of the others). Returns 0, or a negative errno after a message on stderr (as um_cmd_provider_dir;
 * -ENAMETOOLONG: a path does not fit).
 */
int um_cmd_env_fill(struct um_cmd_environment *env, const struct um_cmd_mpi *mpi);

/* Sets the variables in this process. Returns 0, or a negative errno after a message. */
int um_cmd_env_apply(const struct um_cmd_environment *env);

/* True if net is among the machines that the environment names, and not switched off. */
bool um_cmd_env_goes_over_net(void);

/* True if the value is the user's and not the one that unimem needs. */
bool um_cmd_env_differs(const struct um_cmd_env_var *var);

/* Returns a text that says what happened to a variable. */
const char *um_cmd_env_origin_text(enum um_cmd_env_origin origin);

#endif
