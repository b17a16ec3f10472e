/* The rules of cmd/forward.h. */
#include "forward.h"
#include "mpi_env.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char list[] = "OMPI_MCA_mca_base_env_list";

extern char **environ;

/* The names of the variables, each with the text before it. */
static int names_of(const char *before, char *names, size_t size)
{
    size_t len = 0;
    names[0] = '\0';
    for (char **variable = environ; *variable; variable++) {
        const char *end = strchr(*variable, '=');
        if (!end || strncmp(*variable, "FI_", 3) != 0)
            continue;
        int n = snprintf(names + len, size - len, "%s%.*s", before, (int)(end - *variable), *variable);
        if (n < 0 || (size_t)n >= size - len)
            return -ENAMETOOLONG;
        len += (size_t)n;
    }
    return 0;
}

/* Open MPI 4 takes a list or -x, not both. It may be an option of the program: then it is safe, too. */
static bool has_own_way(char *const *command)
{
    if (getenv(list))
        return true;
    for (; *command; command++) {
        if (!strcmp(*command, "-x") || !strcmp(*command, "--x"))
            return true;
    }
    return false;
}

int um_cmd_forward(char *const *command, const struct um_cmd_mpi *mpi)
{
    static char names[UM_ENV_VALUE_MAX]; /* tens of KiB: not on the stack */
    if (mpi->kind != UM_MPI_OPENMPI || !um_cmd_env_goes_over_net())
        return 0;
    const bool own = has_own_way(command);
    int ret = names_of(own ? " -x " : ";", names, sizeof names);
    if (ret)
        fprintf(stderr, "unimem: the names of the variables FI_... are longer than %d bytes in all: unset some.\n",
                UM_ENV_VALUE_MAX - 1);
    else if (own)
        fprintf(stderr, "unimem: ranks on other hosts need these variables, too: mpiexec%s\n", names);
    else if (setenv(list, names + 1, 1) != 0)
        ret = -errno;
    return ret;
}
