/* See cmd/forward.h. */
#include "forward.h"
#include "heap.h"
#include "words.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char list[] = "OMPI_MCA_mca_base_env_list", delimiter[] = "OMPI_MCA_mca_base_env_list_delimiter";

extern char **environ;

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

/* True for libfabric's and unimem's variables, and for LD_PRELOAD if it has the heap. */
static bool is_wanted(const char *variable, size_t len)
{
    static const char preload[] = "LD_PRELOAD";
    return strncmp(variable, "FI_", 3) == 0 ||
           (len == sizeof preload - 1 && strncmp(variable, preload, len) == 0 && um_cmd_heap_is_preloaded());
}

/*
 * Appends the names of the wanted variables that are not in `entries`, each after the text `before`. Returns 0 or
 * -ENAMETOOLONG.
 */
static int names_append(char *names, size_t size, const char *before, const char *entries, const char *between)
{
    size_t used = strlen(names);
    for (char **variable = environ; *variable; variable++) {
        const size_t len = strcspn(*variable, "=");
        if (!(*variable)[len] || !is_wanted(*variable, len) || is_in(entries, between, *variable, len))
            continue;
        int n = snprintf(names + used, size - used, "%s%.*s", used ? before : "", (int)len, *variable);
        if (n < 0 || (size_t)n >= size - used)
            return -ENAMETOOLONG;
        used += (size_t)n;
    }
    return 0;
}

/*
 * True if the launcher has the option -x: Open MPI 4 takes a list or -x, not both. If no launcher is found, every word
 * may be an option of one.
 */
static bool has_x(char *const *command, const char *launcher)
{
    static const char *const x[] = {"x", NULL};
    char *const *own = um_cmd_words_behind(command, launcher);
    struct um_cmd_words at = {0};
    for (char *const *word = own ? own : command; *word; word++) {
        const bool is_own = um_cmd_words_take(&at, *word) || !own;
        if (is_own && um_cmd_words_is_option(*word, x))
            return true;
    }
    return false;
}

static int too_long(void)
{
    fprintf(stderr, "unimem: the names of the variables FI_... are longer than %d bytes in all: unset some.\n",
            UM_ENV_VALUE_MAX - 1);
    return -ENAMETOOLONG;
}

int um_cmd_forward(char *const *command, const struct um_cmd_recognised *found, const struct um_cmd_environment *env)
{
    static char names[UM_ENV_VALUE_MAX]; /* tens of KiB: not on the stack */
    const char *own = getenv(list), *between = getenv(delimiter);
    if (found->mpi.kind != UM_MPI_OPENMPI || env->other_provider || !um_cmd_env_goes_over_net())
        return 0;
    if (!own)
        own = "";
    if (!between || !*between)
        between = ";";
    if (!*own && has_x(command, found->launcher_word)) {
        if (names_append(names, sizeof names, " -x ", "", between))
            return too_long();
        fprintf(stderr, "unimem: ranks on other hosts need these variables, too: mpiexec -x %s\n", names);
        return 0;
    }
    if (snprintf(names, sizeof names, "%s", own) >= (int)sizeof names ||
        names_append(names, sizeof names, between, own, between))
        return too_long();
    return setenv(list, names, 1) == 0 ? 0 : -errno;
}
