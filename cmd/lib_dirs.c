/* See cmd/lib_dirs.h. */
#include "lib_dirs.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* UM_TRIPLET: Debian's name of the architecture ("x86_64-linux-gnu"). */
static const char *const below_prefix[] = {
    "lib",
    "lib64",
    "lib/" UM_TRIPLET,
    "lib/" UM_TRIPLET "/openmpi/lib",
    "lib/" UM_TRIPLET "/mpich/lib",
    "lib/release", /* Intel MPI before 2021.11 */
    "lib/mpich",
    "lib/openmpi",
    "lib/mpich/lib",
    "lib/openmpi/lib",
    "libfabric/lib",
    "opt/mpi/libfabric/lib",
};
enum { BELOW_PREFIX = sizeof below_prefix / sizeof below_prefix[0], SEEN_MAX = 64 };

struct walk {
    bool (*wanted)(const char *name);
    um_cmd_lib_visit_fn *visit;
    void *arg;
    char *seen[SEEN_MAX]; /* real paths, freed at the end */
    unsigned seen_count;
};

static bool visit_once(struct walk *walk, const char *path)
{
    char *real = realpath(path, NULL);
    if (!real)
        return false;
    for (unsigned i = 0; i < walk->seen_count; i++) {
        if (!strcmp(walk->seen[i], real)) {
            free(real);
            return false;
        }
    }
    bool found = walk->visit(real, walk->arg);
    if (walk->seen_count < SEEN_MAX)
        walk->seen[walk->seen_count++] = real;
    else
        free(real);
    return found;
}

/* A global, because scandir() gives its filter nothing but the entry; this program has one thread. */
static bool (*wanted_now)(const char *name);

static int is_wanted(const struct dirent *entry)
{
    return wanted_now(entry->d_name);
}

static bool walk_dir(struct walk *walk, const char *dir)
{
    struct dirent **entries;
    char path[PATH_MAX];
    bool found = false;
    wanted_now = walk->wanted;
    int count = scandir(dir, &entries, is_wanted, alphasort);
    for (int i = 0; i < count; i++) {
        if (!found && snprintf(path, sizeof path, "%s/%s", dir, entries[i]->d_name) < (int)sizeof path)
            found = visit_once(walk, path);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return found;
}

bool um_cmd_lib_dirs_of_bin(const char *bin, bool (*wanted)(const char *name), um_cmd_lib_visit_fn *visit, void *arg)
{
    struct walk walk = {.wanted = wanted, .visit = visit, .arg = arg};
    char dir[PATH_MAX];
    bool found = false;
    for (unsigned i = 0; !found && i < BELOW_PREFIX; i++) {
        if (snprintf(dir, sizeof dir, "%s/../%s", bin, below_prefix[i]) < (int)sizeof dir)
            found = walk_dir(&walk, dir);
    }
    for (unsigned i = 0; i < walk.seen_count; i++)
        free(walk.seen[i]);
    return found;
}

/* Looks in one folder of a search path, of n bytes, with $ORIGIN replaced by the folder of the program. */
static bool in_dir(const char *dir, size_t n, const char *origin, const char *name, char *found)
{
    static const char *const origins[] = {"$ORIGIN", "${ORIGIN}"};
    const char *before = "";
    for (size_t i = 0; i < 2; i++) {
        size_t length = strlen(origins[i]);
        if (n >= length && !strncmp(dir, origins[i], length)) {
            before = origin;
            dir += length;
            n -= length;
            break;
        }
    }
    int size = snprintf(found, PATH_MAX, "%s%.*s/%s", before, (int)n, dir, name);
    return size < PATH_MAX && access(found, R_OK) == 0;
}

static bool in_list(const char *list, const char *origin, const char *name, char *found)
{
    while (list && *list) {
        size_t n = strcspn(list, ":");
        if (n && in_dir(list, n, origin, name, found))
            return true;
        list += n + (list[n] == ':');
    }
    return false;
}

int um_cmd_lib_find(const struct um_cmd_elf *elf, const char *path, const char *name, char *found)
{
    static const char system[] =
        "/usr/local/lib:/usr/local/lib64:/lib/" UM_TRIPLET ":/usr/lib/" UM_TRIPLET ":/lib64:/usr/lib64:/lib:/usr/lib";
    char origin[PATH_MAX];
    if (!realpath(path, origin))
        return -ENOENT;
    char *slash = strrchr(origin, '/');
    *slash = '\0';
    bool ok = in_list(elf->rpath, origin, name, found) || in_list(getenv("LD_LIBRARY_PATH"), origin, name, found) ||
              in_list(elf->runpath, origin, name, found) || in_list(system, origin, name, found);
    return ok ? 0 : -ENOENT;
}
