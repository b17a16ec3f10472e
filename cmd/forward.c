/* See cmd/forward.h. */
#include "forward.h"
#include "heap.h"
#include "words.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char list[] = "OMPI_MCA_mca_base_env_list", delimiter[] = "OMPI_MCA_mca_base_env_list_delimiter";

extern char **environ;

static char names[UM_ENV_VALUE_MAX], given[UM_ENV_VALUE_MAX]; /* tens of KiB: not on the stack */
static bool is_set;                                           /* um_cmd_forward() set the list */

/* True if the name, perhaps with `=value`, is an entry of the list. */
static bool is_in(const char *entries, const char *between, const char *name, size_t len)
{
    while (*entries) {
        entries += strspn(entries, " ");
        if (strncmp(entries, name, len) == 0 && (entries[len] == '=' || !entries[len] || strchr(between, entries[len])))
            return true;
        entries += strcspn(entries, between);
        entries += *entries != '\0';
    }
    return false;
}

/* True for libfabric's and unimem's variables, for those of env (NULL: none), and for LD_PRELOAD if it has the
 * heap. */
static bool is_wanted(const char *variable, size_t len, const struct um_cmd_environment *env)
{
    static const char preload[] = "LD_PRELOAD";
    for (unsigned i = 0; env && i < env->count; i++) {
        if (strlen(env->var[i].name) == len && strncmp(variable, env->var[i].name, len) == 0)
            return true;
    }
    return strncmp(variable, "FI_", 3) == 0 ||
           (len == sizeof preload - 1 && strncmp(variable, preload, len) == 0 && um_cmd_heap_is_preloaded());
}

/*
 * Appends to `names` the wanted variables that are not in `entries`, each after the text `before`. is_list: for Open
 * MPI's list, which takes a variable whose value has a '=' only with that value. Returns 0 or -ENAMETOOLONG.
 */
static int names_append(const struct um_cmd_environment *env, const char *before, const char *entries,
                        const char *between, bool is_list)
{
    const size_t size = sizeof names;
    size_t used = strlen(names);
    for (char **variable = environ; *variable; variable++) {
        const size_t len = strcspn(*variable, "=");
        if (!(*variable)[len] || !is_wanted(*variable, len, env) || is_in(entries, between, *variable, len))
            continue;
        const char *value = *variable + len + 1;
        const bool is_whole = is_list && strchr(value, '=') && !strpbrk(value, between);
        int n =
            snprintf(names + used, size - used, "%s%.*s", used ? before : "", is_whole ? INT_MAX : (int)len, *variable);
        if (n < 0 || (size_t)n >= size - used)
            return -ENAMETOOLONG;
        used += (size_t)n;
    }
    return 0;
}

static int too_long(void)
{
    fprintf(stderr, "unimem: the names of the variables FI_... are longer than %d bytes in all: unset some.\n",
            UM_ENV_VALUE_MAX - 1);
    return -ENAMETOOLONG;
}

/* Appends the values of these options of the launcher to `given`, separated by ';'. */
static void given_add(char *const *words, const char *const *options, bool all_are_options)
{
    struct um_cmd_words at = {0};
    size_t used = strlen(given);
    for (; words && *words; words++) {
        const bool is_own = um_cmd_words_take(&at, *words) || all_are_options;
        if (!is_own || !um_cmd_words_is_option(*words, options))
            continue;
        int n = snprintf(given + used, sizeof given - used, "%s;", um_cmd_words_value(words));
        if (n > 0 && (size_t)n < sizeof given - used)
            used += (size_t)n;
    }
}

/* Says which of the wanted variables are not in `given`. before: what each needs before it; between: what separates
 * those that are given. */
static int advise(const char *how, const char *before, const char *between)
{
    if (names_append(NULL, before, given, between, false))
        return too_long();
    if (*names)
        fprintf(stderr, "unimem: ranks on other hosts need these variables, too: %s%s\n", how, names);
    return 0;
}

/*
 * True if Open MPI's launcher has the option -x: version 4 takes a list or -x, not both. If no launcher is found, every
 * word may be an option of one.
 */
static bool has_x(char *const *command, char *const *own, const char *const *x)
{
    if (own)
        return um_cmd_words_find(own, x) != NULL;
    for (; *command; command++) {
        if (um_cmd_words_is_option(*command, x))
            return true;
    }
    return false;
}

/* True if the launcher's words set the list (--mca mca_base_env_list NAMES), which then counts instead of the variable.
 * `given` becomes NAMES. */
static bool has_list(char *const *own)
{
    static const char *const pairs[] = {"mca", "gmca", "omca", "gomca", NULL};
    struct um_cmd_words at = {0};
    for (; own && *own; own++) {
        if (!um_cmd_words_take(&at, *own) || !um_cmd_words_is_option(*own, pairs) || !own[1] ||
            strcmp(own[1], list + strlen("OMPI_MCA_")) != 0)
            continue;
        snprintf(given, sizeof given, "%s", own[2] ? own[2] : "");
        return true;
    }
    return false;
}

/* What to give Open MPI's launcher where it is not known what it is given. */
static int advise_openmpi(const char *who)
{
    const char *listed = getenv(list), *between = getenv(delimiter);
    char how[128];
    snprintf(given, sizeof given, "%s", listed ? listed : "");
    snprintf(how, sizeof how, *given ? "add to OMPI_MCA_mca_base_env_list: " : "%smpiexec -x ", who);
    return advise(how, *given ? ";" : " -x ", between && *between ? between : ";");
}

static int forward_openmpi(char *const *command, const struct um_cmd_recognised *found)
{
    static const char *const x[] = {"x", NULL};
    const char *listed = getenv(list), *between = getenv(delimiter);
    char *const *own = um_cmd_words_behind(command, found->launcher_word);
    if (!listed)
        listed = "";
    if (!between || !*between)
        between = ";";
    if (has_list(own))
        return advise("add to mca_base_env_list: ", ";", between);
    if (!*listed && um_cmd_mpi_major(&found->mpi) < 5 && has_x(command, own, x)) {
        given_add(own ? own : command, x, !own);
        return advise("mpiexec -x ", " -x ", ";");
    }
    if (snprintf(names, sizeof names, "%s", listed) >= (int)sizeof names ||
        names_append(NULL, between, listed, between, true))
        return too_long();
    is_set = setenv(list, names, 1) == 0;
    return is_set ? 0 : -errno;
}

/*
 * hydra passes the whole environment on, unless it is told not to: then the MPI's variables have to be named, too. It
 * takes one such option for all ranks.
 */
static int forward_hydra(char *const *command, const struct um_cmd_recognised *found,
                         const struct um_cmd_environment *env)
{
    static const char *const narrow[] = {"genvnone", "genvlist", "envnone", "envlist", NULL};
    static const char *const lists[] = {"genvlist", "envlist", NULL}, *const set[] = {"genv", "env", NULL};
    static char listed[sizeof given];
    char *const *own = um_cmd_words_behind(command, found->launcher_word);
    char *const *option = own ? um_cmd_words_find(own, narrow) : NULL;
    if (!option)
        return 0;
    given_add(own, lists, false);
    snprintf(listed, sizeof listed, "%s", given);
    for (char *at = listed; (at = strchr(at, ';')) != NULL;)
        *at = ',';
    given_add(own, set, false);
    if (names_append(env, ",", given, ",;", false))
        return too_long();
    if (*names)
        fprintf(stderr, "unimem: ranks on other hosts need more variables: give -genvlist %s%s in place of %s\n",
                listed, names, *option);
    return 0;
}

int um_cmd_forward(char *const *command, const struct um_cmd_recognised *found, const struct um_cmd_environment *env)
{
    names[0] = given[0] = '\0';
    if (env->other_provider || !um_cmd_env_goes_over_net())
        return 0;
    switch (found->mpi.kind) {
    case UM_MPI_OPENMPI:
        return command ? forward_openmpi(command, found) : advise_openmpi("");
    case UM_MPI_MPICH:
    case UM_MPI_INTEL:
        return command ? forward_hydra(command, found, env) : 0;
    case UM_MPI_NONE:
        return advise_openmpi("Open MPI's ");
    default:
        return 0;
    }
}

void um_cmd_forward_announce(void)
{
    if (is_set)
        fprintf(stderr, "unimem: %s=%s (set)\n", list, names);
}
