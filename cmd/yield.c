/* See cmd/yield.h. */
#include "yield.h"
#include "preload.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* False if the user has set MPICH to another netmod or to its own shared memory: its waits then stay as they are. */
static bool runs_over_unimem(const struct um_cmd_environment *env)
{
    if (env->other_provider)
        return false;
    for (unsigned i = 0; i < env->count; i++) {
        const struct um_cmd_env_var *var = &env->var[i];
        if (strncmp(var->name, "MPIR_CVAR_", 10) == 0 && um_cmd_env_differs(var))
            return false;
    }
    return true;
}

void um_cmd_yield_preload(char *const *program, const struct um_cmd_recognised *found,
                          const struct um_cmd_environment *env, bool verbose)
{
    static const char who[] = "sched_yield", library[] = "libunimem-yield.so";
    static char path[PATH_MAX];
    const char *const paths[] = {path};
    if (found->mpi.kind != UM_MPI_MPICH || !runs_over_unimem(env) || um_cmd_preload_has(library) ||
        um_cmd_has_address_sanitizer(program))
        return;
    if (um_cmd_preload_find(who, library, path, sizeof path) == 0 && um_cmd_preload_add(who, paths, 1) == 0 && verbose)
        fprintf(stderr, "unimem: LD_PRELOAD=%s (sched_yield; --system-yield: not)\n", getenv("LD_PRELOAD"));
}
