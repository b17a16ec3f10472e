/* library.h. */
#include "machine/net/library.h"

#include "base/log.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libfabric.so.1"

struct um_net_library um_net_api;
static int loaded = -ENOENT;

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"fi_getinfo", offsetof(struct um_net_library, getinfo)},
    {"fi_freeinfo", offsetof(struct um_net_library, freeinfo)},
    {"fi_dupinfo", offsetof(struct um_net_library, dupinfo)},
    {"fi_fabric", offsetof(struct um_net_library, fabric)},
    {"fi_strerror", offsetof(struct um_net_library, strerror)},
};
static_assert(sizeof(symbols) / sizeof(symbols[0]) == sizeof(struct um_net_library) / sizeof(void *), "all of them");

/* A libfabric that is in the process already has this name, so dlopen(3) finds it: it has loaded this provider. */
static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        um_log(UM_LOG_WARN, "the machine net finds no libfabric: %s", error ? error : "no reason given");
        return;
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *function = dlsym(library, symbols[i].name);
        if (!function) {
            um_log(UM_LOG_WARN, "the machine net cannot use this %s: it has no %s", LIBRARY, symbols[i].name);
            return;
        }
        memcpy((char *)&um_net_api + symbols[i].offset, &function, sizeof(function));
    }
    loaded = 0;
}

int um_net_library_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return loaded;
}
