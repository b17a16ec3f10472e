/*
 * The environment in which MPICH (and any libfabric program) runs over unimem.
 *
 * Owns the list of variables and the rule by which they are chosen: what the user has set wins. Knows nothing of how
 * the list is used (exported into this process by `unimem run`, printed by `unimem env`).
 */
#ifndef UM_TOOLS_MPICH_ENV_H
#define UM_TOOLS_MPICH_ENV_H

#include <limits.h>

enum { UM_ENV_MAX = 8, UM_ENV_VALUE_MAX = 4 * PATH_MAX };

enum um_env_origin {
    UM_ENV_SET,      /* ours: the user has none */
    UM_ENV_EXTENDED, /* the user's, with ours added in front */
    UM_ENV_KEPT,     /* the user's: it wins */
    UM_ENV_UNUSED    /* neither: not needed with what the user has chosen */
};

struct um_env_var {
    const char *name;
    enum um_env_origin origin;
    char value[UM_ENV_VALUE_MAX]; /* the value in effect; empty for UM_ENV_UNUSED */
};

struct um_env {
    unsigned count;
    struct um_env_var var[UM_ENV_MAX];
};

/*
 * Fills env for this process's present environment. Returns 0, or a negative errno after a message on stderr
 * (-ENOENT: libunimem-fi.so was not found; -ENAMETOOLONG: a path does not fit).
 */
int um_env_fill(struct um_env *env);

/* What happened to a variable, for people. */
const char *um_env_origin_text(enum um_env_origin origin);

#endif
