/* See cmd/provider.h. */
#include "provider.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool library_in(const char *dir)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/" UM_PROVIDER_LIBRARY, dir);
    return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0;
}

static int can_be_named(const char *dir)
{
    if (!strchr(dir, ':'))
        return 0;
    fprintf(stderr,
            "unimem: the path %s has a ':', where libfabric splits FI_PROVIDER_PATH: it cannot find %s there.\n"
            "  Build in a folder without one (meson setup /other/folder), or rename this one.\n",
            dir, UM_PROVIDER_LIBRARY);
    return -EINVAL;
}

/*
 * UM_PROVIDER_DIR: where the build installs the library. An executable in a build directory finds the library beside
 * itself instead, so that nothing has to be installed.
 */
int um_cmd_provider_dir(char *dir, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", dir, size - 1);
    if (n > 0) {
        dir[n] = '\0';
        char *slash = strrchr(dir, '/');
        if (slash && slash != dir)
            *slash = '\0';
        if (library_in(dir))
            return can_be_named(dir);
    } else {
        snprintf(dir, size, "(unknown: /proc is not mounted)");
    }
    if (library_in(UM_PROVIDER_DIR)) {
        snprintf(dir, size, "%s", UM_PROVIDER_DIR);
        return can_be_named(dir);
    }
    fprintf(stderr,
            "unimem: %s is neither in %s nor in %s.\n"
            "  In the source tree: ./quickstart (or `meson setup build && meson compile -C build`) builds it.\n"
            "  Installed: run `meson install -C build` again.\n",
            UM_PROVIDER_LIBRARY, dir, UM_PROVIDER_DIR);
    return -ENOENT;
}

/* True if the provider list (names separated by ',', layers by ';') names unimem. */
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

bool um_cmd_provider_is_another(const char *fi_provider)
{
    bool excludes = fi_provider[0] == '^';
    return names_unimem(fi_provider) == excludes;
}
