/* See cmd/heap.h. */
#include "heap.h"
#include "elf_file.h"
#include "lib_dirs.h"
#include "preload.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

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

int um_cmd_heap_preload(char *const *program, bool verbose)
{
    static const char who[] = "--heap";
    static char heap[PATH_MAX + sizeof HEAP_LIBRARY], jemalloc[PATH_MAX];
    const char *const paths[] = {heap, jemalloc};
    if (um_cmd_has_address_sanitizer(program)) {
        fprintf(stderr, "unimem: --heap: AddressSanitizer has an allocator of its own: the program runs with that.\n");
        return 0;
    }
    int ret = um_cmd_preload_find(who, HEAP_LIBRARY, heap, sizeof heap);
    if (ret)
        return ret;
    if (jemalloc_find(jemalloc)) {
        fprintf(stderr, "unimem: --heap needs jemalloc 5, and " JEMALLOC " is not installed: install the package "
                        "libjemalloc2 (apt install libjemalloc2), or name its folder in LD_LIBRARY_PATH.\n");
        return -ENOENT;
    }
    if (!um_cmd_preload_has(heap)) /* `unimem run` inside `unimem run` */
        ret = um_cmd_preload_add(who, paths, 2);
    if (ret == 0 && verbose)
        fprintf(stderr, "unimem: LD_PRELOAD=%s (--heap)\n", getenv("LD_PRELOAD"));
    return ret;
}

bool um_cmd_heap_is_preloaded(void)
{
    return um_cmd_preload_has(HEAP_LIBRARY);
}
