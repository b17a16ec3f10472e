/* The rules of tools/mpich_env.h. */
#include "mpich_env.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROVIDER_LIBRARY "libunimem-fi.so"

/*
 * UM_PROVIDER_DIR: where the build installs the library. An executable in a build directory finds the library beside
 * itself instead, so that nothing has to be installed.
 */
static bool library_in(const char *dir)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/" PROVIDER_LIBRARY, dir);
    return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0;
}

static int find_library_dir(char *dir, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", dir, size - 1);
    if (n > 0) {
        dir[n] = '\0';
        char *slash = strrchr(dir, '/');
        if (slash && slash != dir)
            *slash = '\0';
        if (library_in(dir))
            return 0;
    } else {
        snprintf(dir, size, "(unknown: /proc is not mounted)");
    }
    if (library_in(UM_PROVIDER_DIR)) {
        snprintf(dir, size, "%s", UM_PROVIDER_DIR);
        return 0;
    }
    fprintf(stderr,
            "unimem: %s is neither in %s nor in %s.\n"
            "  In the source tree: ./quickstart (or `meson setup build && meson compile -C build`) builds it.\n"
            "  Installed: run `meson install -C build` again.\n",
            PROVIDER_LIBRARY, dir, UM_PROVIDER_DIR);
    return -ENOENT;
}

/* Does the provider list (names separated by ',', layers by ';') name unimem? */
static bool names_unimem(const char *list)
{
    static const char name[] = "unimem";
    for (const char *at = list; (at = strstr(at, name)); at++) {
        const char *end = at + sizeof name - 1;
        bool starts = at == list || at[-1] == ',' || at[-1] == '^';
        if (starts && (*end == '\0' || *end == ',' || *end == ';'))
            return true;
    }
    return false;
}

/*
 * Has the user chosen a provider that is not unimem? Then FI_PROVIDER_PATH must stay as it is: once it is set,
 * libfabric no longer looks for its own loadable providers (verbs, efa, ...) in their usual places.
 */
static bool user_chose_another(const char *fi_provider)
{
    bool excludes = fi_provider[0] == '^';
    return names_unimem(fi_provider) == excludes;
}

static int var_format(struct um_env_var *var, const char *prefix, const char *dir, const char *rest)
{
    int n = snprintf(var->value, sizeof var->value, "%s%s%s%s", prefix, dir, rest ? ":" : "", rest ? rest : "");
    if (n > 0 && (size_t)n < sizeof var->value)
        return 0;
    fprintf(stderr, "unimem: %s would be longer than %d bytes: shorten it.\n", var->name, UM_ENV_VALUE_MAX - 1);
    return -ENAMETOOLONG;
}

/* Is dir already the first directory of the list? (`unimem run` inside `unimem run` must not grow it.) */
static bool list_begins_with(const char *list, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(list, dir, n) == 0 && (list[n] == '\0' || list[n] == ':');
}

static int fill_provider_path(struct um_env_var *var, const char *dir)
{
    const char *provider = getenv("FI_PROVIDER");
    const char *own = getenv(var->name);

    if (provider && *provider && user_chose_another(provider)) {
        var->origin = own ? UM_ENV_KEPT : UM_ENV_UNUSED;
        return own ? var_format(var, "", own, NULL) : 0;
    }
    if (!own || !*own) {
        var->origin = UM_ENV_SET;
        return var_format(var, "", dir, NULL);
    }
    /* A leading '@' asks libfabric to prefer providers by their order in the list: it must stay in front. */
    const char *at = own[0] == '@' ? "@" : "";
    const char *list = own + strlen(at);
    if (list_begins_with(list, dir)) {
        var->origin = UM_ENV_KEPT;
        return var_format(var, at, list, NULL);
    }
    var->origin = UM_ENV_EXTENDED;
    return var_format(var, at, dir, *list ? list : NULL);
}

static int fill_plain(struct um_env_var *var, const char *value)
{
    const char *own = getenv(var->name);
    var->origin = own ? UM_ENV_KEPT : UM_ENV_SET;
    return var_format(var, "", own ? own : value, NULL);
}

int um_env_fill(struct um_env *env)
{
    static const struct {
        const char *name, *value;
    } plain[] = {
        {"FI_PROVIDER", "unimem"},
        /* The netmod of MPICH that speaks libfabric. */
        {"MPIR_CVAR_CH4_NETMOD", "ofi"},
        /* Otherwise MPICH uses its own shared memory between ranks of one host, and no provider at all. */
        {"MPIR_CVAR_NOLOCAL", "1"},
    };
    char dir[PATH_MAX];
    int ret = find_library_dir(dir, sizeof dir);
    if (ret)
        return ret;

    env->count = 0;
    struct um_env_var *var = &env->var[env->count++];
    *var = (struct um_env_var){.name = "FI_PROVIDER_PATH"};
    ret = fill_provider_path(var, dir);
    for (size_t i = 0; !ret && i < sizeof plain / sizeof plain[0]; i++) {
        var = &env->var[env->count++];
        *var = (struct um_env_var){.name = plain[i].name};
        ret = fill_plain(var, plain[i].value);
    }
    return ret;
}

const char *um_env_origin_text(enum um_env_origin origin)
{
    switch (origin) {
    case UM_ENV_SET:
        return "set";
    case UM_ENV_EXTENDED:
        return "yours, extended";
    case UM_ENV_KEPT:
        return "yours, kept";
    case UM_ENV_UNUSED:
        return "left unset: FI_PROVIDER names another provider";
    }
    return "?";
}
