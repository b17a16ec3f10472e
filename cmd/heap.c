/* See cmd/heap.h. */
#include "heap.h"
#include "elf_file.h"
#include "lib_dirs.h"
#include "preload.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#define HEAP_LIBRARY "libunimem-heap.so"
#define JEMALLOC     "libjemalloc.so.2"

/* Finds jemalloc as the dynamic linker would: a program that is started has the search paths of this one, or more. */
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

int um_cmd_heap_preload(void)
{
    static const char who[] = "--heap";
    static char heap[PATH_MAX + sizeof HEAP_LIBRARY], jemalloc[PATH_MAX];
    const char *const paths[] = {heap, jemalloc};
    int ret = um_cmd_preload_find(who, HEAP_LIBRARY, heap, sizeof heap);
    if (ret)
        return ret;
    if (jemalloc_find(jemalloc)) {
        fprintf(stderr, "unimem: --heap needs jemalloc 5, and " JEMALLOC " is not installed: install the package "
                        "libjemalloc2 (apt install libjemalloc2), or name its folder in LD_LIBRARY_PATH.\n");
        return -ENOENT;
    }
    return um_cmd_preload_has(heap) ? 0 : um_cmd_preload_add(who, paths, 2); /* `unimem run` inside `unimem run` */
}

bool um_cmd_heap_is_preloaded(void)
{
    return um_cmd_preload_has(HEAP_LIBRARY);
}
