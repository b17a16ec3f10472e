/* hosts.h. */
#include "hosts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of hydra (MPICH, Intel MPI), Open MPI and PRRTE, behind one '-' or two. */
static const char *const options[] = {"H",        "host",         "hosts",       "f",
                                      "hostfile", "machine",      "machinefile", "default-hostfile",
                                      "add-host", "add-hostfile", NULL};

/* Set to a file or a list of hosts: by the user, or by a batch system for more than one host (below). */
static const char *const lists[] = {"HYDRA_HOST_FILE",
                                    "I_MPI_HYDRA_HOST_FILE",
                                    "I_MPI_HYDRA_HOSTS_GROUP",
                                    "OMPI_MCA_orte_default_hostfile",
                                    "PRTE_MCA_prte_default_hostfile",
                                    NULL};

/* Slurm, Flux: a number of hosts. */
static const char *const numbers[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES", "FLUX_JOB_NNODES", NULL};

/* PBS, Grid Engine: a file, each line of which begins with a host. */
static const char *const files[] = {"PBS_NODEFILE", "PE_HOSTFILE", NULL};

static bool is_host_option(const char *word)
{
    if (*word != '-')
        return false;
    word += word[1] == '-' ? 2 : 1;
    const size_t len = strcspn(word, "=");
    for (const char *const *o = options; *o; o++) {
        if (strlen(*o) == len && !strncmp(word, *o, len))
            return true;
    }
    return false;
}

static bool has_two_hosts(const char *path)
{
    char first[256], next[256];
    bool differs = false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    for (bool has = fscanf(file, "%255s%*[^\n]", first) == 1; has && !differs;) {
        has = fscanf(file, "%255s%*[^\n]", next) == 1;
        differs = has && strcmp(first, next) != 0;
    }
    fclose(file);
    return differs;
}

/* LSF: "host ranks host ranks ...". */
static bool has_four_words(const char *text)
{
    char word[4][256];
    return sscanf(text, "%255s %255s %255s %255s", word[0], word[1], word[2], word[3]) == 4;
}

static const char *named_by_environment(void)
{
    const char *value;
    for (const char *const *name = lists; *name; name++) {
        if ((value = getenv(*name)) && *value)
            return *name;
    }
    for (const char *const *name = numbers; *name; name++) {
        if ((value = getenv(*name)) && strtoul(value, NULL, 10) > 1)
            return *name;
    }
    for (const char *const *name = files; *name; name++) {
        if ((value = getenv(*name)) && has_two_hosts(value))
            return *name;
    }
    value = getenv("LSB_MCPU_HOSTS");
    return value && has_four_words(value) ? "LSB_MCPU_HOSTS" : NULL;
}

const char *um_cmd_hosts_named(char *const *argv, const char *first, const char *end)
{
    while (first && *argv && *argv != first)
        argv++;
    for (; *argv && *argv != end; argv++) {
        if (is_host_option(*argv))
            return *argv;
    }
    return named_by_environment();
}
