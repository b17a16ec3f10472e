/* See cmd/hosts.h. */
#include "hosts.h"
#include "words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Options that name hosts: of hydra (MPICH, Intel MPI), Open MPI and PRRTE. */
static const char *const options[] = {
    "H",        "host",         "hosts",    "hostlist",    "hosts-group", "f",
    "hostfile", "machine",      "machines", "machinelist", "machinefile", "default-hostfile",
    "add-host", "add-hostfile", NULL};

/* Options that name a file with more words of the launcher: hydra's, Open MPI's. */
static const char *const more[] = {"configfile", "app", NULL};

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

/*
 * True if a line of such a file names hosts. Each line is a part of the job, as on the command line before a `:`; a
 * line that ends in a backslash goes on.
 */
static bool line_names_hosts(struct um_cmd_words *at, char *line)
{
    static const char blanks[] = " \t\r\n";
    bool named = false, goes_on = false;
    char *rest;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, blanks, &rest); word; word = strtok_r(NULL, blanks, &rest)) {
        goes_on = !strcmp(word, "\\");
        if (!goes_on && um_cmd_words_take(at, word))
            named |= um_cmd_words_is_option(word, options);
    }
    if (!goes_on)
        *at = (struct um_cmd_words){0};
    return named;
}

/* Reads regular files only: what is read from a pipe would be lost to the launcher. */
static bool file_names_hosts(const char *path)
{
    struct um_cmd_words at = {0};
    struct stat st;
    char *line = NULL;
    size_t size = 0;
    bool named = false;
    FILE *file = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
    if (!file)
        return false;
    while (!named && getline(&line, &size, file) > 0)
        named = line_names_hosts(&at, line);
    free(line);
    fclose(file);
    return named;
}

static const char *value_of(char *const *word)
{
    const char *equals = strchr(*word, '=');
    if (equals)
        return equals + 1;
    return word[1] ? word[1] : "";
}

static const char *named_by_words(char *const *word)
{
    struct um_cmd_words at = {0};
    for (; *word; word++) {
        if (!um_cmd_words_take(&at, *word))
            continue;
        if (um_cmd_words_is_option(*word, options) ||
            (um_cmd_words_is_option(*word, more) && file_names_hosts(value_of(word))))
            return *word;
    }
    return NULL;
}

const char *um_cmd_hosts_named(char *const *argv, const char *launcher)
{
    char *const *words = um_cmd_words_behind(argv, launcher);
    const char *by = words ? named_by_words(words) : NULL;
    return by ? by : named_by_environment();
}
