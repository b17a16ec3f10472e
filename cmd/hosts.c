/* See cmd/hosts.h. */
#include "hosts.h"
#include "words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options of hydra (MPICH, Intel MPI), Open MPI and PRRTE whose value is a list of hosts, or a file of them. */
#define LISTS "H", "host", "hosts", "hostlist", "hosts-group", "machine", "machines", "machinelist", "add-host"
#define FILES "f", "hostfile", "machinefile", "default-hostfile", "add-hostfile"
static const char *const options[] = {LISTS, FILES, NULL}, *const list_options[] = {LISTS, NULL};

/* Variables that the user, or a batch system for more than one host, sets to a list of hosts, or to a file of them. */
static const char list_variable[] = "I_MPI_HYDRA_HOSTS_GROUP";
static const char *const file_variables[] = {"HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE",
                                             "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", NULL};

/* Variables of Slurm and Flux: a number of hosts. */
static const char *const numbers[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES", "FLUX_JOB_NNODES", NULL};

/* Variables of PBS and Grid Engine: a file, each line of which begins with a host. */
static const char *const files[] = {"PBS_NODEFILE", "PE_HOSTFILE", NULL};

/* The hosts that were named so far. */
struct hosts {
    char first[256];
    bool are_several;
};

/* Adds the host at the beginning of the text: NAME, NAME:RANKS, [ADDRESS of IPv6]:RANKS, or NAME[RANGE], which is
 * several. Returns what follows it. */
static const char *host_add(struct hosts *hosts, const char *text)
{
    size_t len = *text == '[' ? strcspn(text, "]") : strcspn(text, ":, \t\r\n[");
    if (*text != '[' && text[len] == '[')
        hosts->are_several = true;
    if (len >= sizeof hosts->first)
        len = sizeof hosts->first - 1;
    if (!*hosts->first)
        memcpy(hosts->first, text, len);
    else if (len && (strncmp(hosts->first, text, len) != 0 || hosts->first[len]))
        hosts->are_several = true;
    return text + len;
}

static void list_add(struct hosts *hosts, const char *list)
{
    while (list) {
        list = strchr(host_add(hosts, list), ',');
        list += list != NULL;
    }
}

/* Each line of the file begins with a host; those that begin with # are comments. */
static void file_add(struct hosts *hosts, const char *path)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = um_cmd_words_open(path);
    if (!file)
        return;
    while (getline(&line, &size, file) > 0) {
        const char *word = line + strspn(line, " \t");
        if (*word != '#')
            (void)host_add(hosts, word);
    }
    free(line);
    fclose(file);
}

/* True if LSF's text "host ranks host ranks ..." names two hosts. */
static bool has_four_words(const char *text)
{
    char word[4][256];
    return sscanf(text, "%255s %255s %255s %255s", word[0], word[1], word[2], word[3]) == 4;
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
        struct hosts hosts = {.are_several = false};
        if ((value = getenv(*name)))
            file_add(&hosts, value);
        if (hosts.are_several)
            return *name;
    }
    value = getenv("LSB_MCPU_HOSTS");
    return value && has_four_words(value) ? "LSB_MCPU_HOSTS" : NULL;
}

/* Returns the variable that names hosts, or NULL. */
static const char *named_by_user(struct hosts *hosts)
{
    const char *value = getenv(list_variable);
    if (value && *value) {
        list_add(hosts, value);
        return list_variable;
    }
    for (const char *const *name = file_variables; *name; name++) {
        if ((value = getenv(*name)) && *value) {
            file_add(hosts, value);
            return *name;
        }
    }
    return NULL;
}

/* Returns the first option that names hosts, or NULL; adds the hosts of all. */
static const char *named_by_options(struct hosts *hosts, char *const *words)
{
    const char *first = NULL;
    char *const *option;
    while ((option = um_cmd_words_find(words, options)) != NULL) {
        const char *value = um_cmd_words_value(option);
        if (um_cmd_words_is_option(*option, list_options))
            list_add(hosts, value);
        else if (um_cmd_words_is_option(*option, options)) /* else it names a file with more options */
            file_add(hosts, value);
        first = first ? first : *option;
        words = option + (strchr(*option, '=') || !option[1] ? 1 : 2);
    }
    return first;
}

const char *um_cmd_hosts_named(char *const *argv, const char *launcher, bool *are_several_p)
{
    struct hosts hosts = {.are_several = false};
    char *const *words = um_cmd_words_behind(argv, launcher);
    const char *by = words ? named_by_options(&hosts, words) : NULL;
    if (!by)
        by = named_by_user(&hosts);
    *are_several_p = hosts.are_several;
    if (by)
        return by;
    by = named_by_batch_system();
    *are_several_p = by != NULL;
    return by;
}
