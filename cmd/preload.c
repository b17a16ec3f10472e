/* See cmd/preload.h. */
#include "preload.h"
#include "elf_file.h"
#include "launch.h"
#include "provider.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char variable[] = "LD_PRELOAD";

int um_cmd_preload_find(const char *who, const char *library, char *path, size_t size)
{
    char dir[PATH_MAX];
    int ret = um_cmd_provider_dir(dir, sizeof dir);
    if (ret)
        return ret;
    int n = snprintf(path, size, "%s/%s", dir, library);
    if (n >= 0 && (size_t)n < size && access(path, R_OK) == 0)
        return 0;
    fprintf(stderr, "unimem: %s: %s is not beside the provider, in %s: build or install again.\n", who, library, dir);
    return -ENOENT;
}

/* ld.so(8) splits the list at spaces and colons, and nothing escapes them. */
static int can_be_preloaded(const char *who, const char *path)
{
    if (!strpbrk(path, " :"))
        return 0;
    fprintf(stderr, "unimem: %s: the path %s has a space or ':', where LD_PRELOAD is split: use a folder without.\n",
            who, path);
    return -EINVAL;
}

int um_cmd_preload_add(const char *who, const char *const *paths, size_t count)
{
    static char list[8 * PATH_MAX]; /* not on the stack */
    const char *own = getenv(variable);
    int used = snprintf(list, sizeof list, "%s", own ? own : "");
    for (size_t i = 0; i < count; i++) {
        int ret = can_be_preloaded(who, paths[i]);
        if (ret)
            return ret;
        if (used >= 0 && (size_t)used < sizeof list)
            used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", used ? ":" : "", paths[i]);
    }
    if (used >= 0 && (size_t)used < sizeof list && setenv(variable, list, 1) == 0)
        return 0;
    fprintf(stderr, "unimem: %s: cannot extend LD_PRELOAD: it is too long.\n", who);
    return -ENAMETOOLONG;
}

bool um_cmd_preload_has(const char *library)
{
    const char *own = getenv(variable);
    return own && strstr(own, library);
}

bool um_cmd_has_address_sanitizer(char *const *words)
{
    static const char *const asan[] = {"libasan.so", "libclang_rt.asan"}; /* gcc's, clang's */
    bool found = false;
    for (; *words && !found; words++) {
        char path[PATH_MAX];
        struct um_cmd_elf elf;
        if (um_cmd_find_in_path(*words, path) || um_cmd_elf_open(path, &elf))
            continue;
        for (unsigned i = 0; i < elf.needed_count; i++)
            found |=
                !strncmp(elf.needed[i], asan[0], strlen(asan[0])) || !strncmp(elf.needed[i], asan[1], strlen(asan[1]));
        um_cmd_elf_close(&elf);
    }
    return found;
}
