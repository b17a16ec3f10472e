/* See cmd/hosts.h. */
#include "hosts.h"
#include "words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options that name hosts: of hydra (MPICH, Intel MPI), Open MPI and PRRTE. */
static const char *const options[] = {
    "H",        "host",         "hosts",    "hostlist",    "hosts-group", "f",
    "hostfile", "machine",      "machines", "machinelist", "machinefile", "default-hostfile",
    "add-host", "add-hostfile", NULL};

/* Variables that the user, or a batch system for more than one host, sets to a file or a list of hosts. */
static const char *const lists[] = {"HYDRA_HOST_FILE",
                                    "I_MPI_HYDRA_HOST_FILE",
                                    "I_MPI_HYDRA_HOSTS_GROUP",
                                    "OMPI_MCA_orte_default_hostfile",
                                    "PRTE_MCA_prte_default_hostfile",
                                    NULL};

/* Variables of Slurm and Flux: a number of hosts. */
static const char *const numbers[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES", "FLUX_JOB_NNODES", NULL};

/* Variables of PBS and Grid Engine: a file, each line of which begins with a host. */
static const char *const files[] = {"PBS_NODEFILE", "PE_HOSTFILE", NULL};

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

/* True if LSF's text "host ranks host ranks ..." names two hosts. */
static bool has_four_words(const char *text)
{
    char word[4][256];
    return sscanf(text, "%255s %255s %255s %255s", word[0], word[1], word[2], word[3]) == 4;
}

/* True if a list, NAME[:RANKS],..., or the file of that name has two hosts. */
static bool has_two_names(const char *value)
{
    const size_t first = strcspn(value, ":,");
    for (const char *next = strchr(value, ','); next; next = strchr(next, ',')) {
        next++;
        if (strcspn(next, ":,") != first || strncmp(next, value, first) != 0)
            return true;
    }
    return has_two_hosts(value);
}

/* Returns the variable of a batch system that says that there are several hosts, or NULL. */
static const char *named_by_batch_system(void)
{
    const char *value;
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

const char *um_cmd_hosts_named(char *const *argv, const char *launcher, bool *are_several_p)
{
    char *const *words = um_cmd_words_behind(argv, launcher);
    char *const *option = words ? um_cmd_words_find(words, options) : NULL;
    const char *by, *value;
    if (option) {
        *are_several_p = has_two_names(um_cmd_words_value(option));
        return *option;
    }
    for (const char *const *name = lists; *name; name++) {
        if ((value = getenv(*name)) && *value) {
            *are_several_p = has_two_names(value);
            return *name;
        }
    }
    by = named_by_batch_system();
    *are_several_p = by != NULL;
    return by;
}
