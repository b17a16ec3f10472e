/* cmd/heap.h */
#include "heap.h"
#include "elf_file.h"
#include "lib_dirs.h"
#include "provider.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAP_LIBRARY "libunimem-heap.so"
#define JEMALLOC     "libjemalloc.so.2"

/* As the dynamic linker would find it: a program that is started has the paths of this one, or more. */
static int jemalloc_find(char *found)
{
    static const char own[] = "/proc/self/exe";
    struct um_cmd_elf elf;
    int ret = um_cmd_elf_open(own, &elf);
    if (ret)
        return ret;
    ret = um_cmd_lib_find(&elf, own, JEMALLOC, found);
    um_cmd_elf_close(&elf);
    return ret;
}

/* ld.so(8) splits the list at spaces and colons, and nothing escapes them. */
static int can_be_preloaded(const char *path)
{
    if (!strpbrk(path, " :"))
        return 0;
    fprintf(stderr,
            "unimem: --heap: the path %s has a space or ':', where LD_PRELOAD is split: use a folder without.\n", path);
    return -EINVAL;
}

static int libraries_find(char *heap, size_t size, char *jemalloc)
{
    char dir[PATH_MAX];
    int ret = um_cmd_provider_dir(dir, sizeof dir);
    if (ret)
        return ret;
    int n = snprintf(heap, size, "%s/" HEAP_LIBRARY, dir);
    if (n < 0 || (size_t)n >= size || access(heap, R_OK)) {
        fprintf(stderr, "unimem: --heap: " HEAP_LIBRARY " is not beside the provider, in %s: build or install again.\n",
                dir);
        return -ENOENT;
    }
    if (jemalloc_find(jemalloc)) {
        fprintf(stderr, "unimem: --heap needs jemalloc 5, and " JEMALLOC " is not installed: install the package "
                        "libjemalloc2 (apt install libjemalloc2), or name its folder in LD_LIBRARY_PATH.\n");
        return -ENOENT;
    }
    ret = can_be_preloaded(heap);
    return ret ? ret : can_be_preloaded(jemalloc);
}

int um_cmd_heap_preload(void)
{
    static char heap[PATH_MAX + sizeof HEAP_LIBRARY], jemalloc[PATH_MAX], list[8 * PATH_MAX];
    const char *own = getenv("LD_PRELOAD");
    int ret = libraries_find(heap, sizeof heap, jemalloc);
    if (ret || (own && strstr(own, heap))) /* `unimem run` inside `unimem run` */
        return ret;
    int n = snprintf(list, sizeof list, "%s%s%s:%s", own ? own : "", own && *own ? ":" : "", heap, jemalloc);
    if (n < 0 || (size_t)n >= sizeof list || setenv("LD_PRELOAD", list, 1)) {
        fprintf(stderr, "unimem: --heap: cannot extend LD_PRELOAD: it is too long.\n");
        return -ENAMETOOLONG;
    }
    return 0;
}

bool um_cmd_heap_is_preloaded(void)
{
    const char *own = getenv("LD_PRELOAD");
    return own && strstr(own, HEAP_LIBRARY);
}
