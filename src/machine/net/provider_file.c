/*
 * Loads a provider that libfabric has not loaded from its own file lib<name>-fi.so. library.h.
 *
 * Intel's libfabric has its providers as files, and loads those of the first folder of FI_PROVIDER_PATH only: if it
 * finds unimem there, it does not find tcp. Such a file exports fi_prov_ini (rdma/providers/fi_prov.h), which returns
 * the provider's functions for fi_getinfo(3) and fi_fabric(3).
 */
#include "machine/net/library.h"

#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <rdma/providers/fi_prov.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int take(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        um_log(UM_LOG_DEBUG, "the machine net: %s", error ? error : path);
        return -ENOENT;
    }
    void *symbol = dlsym(library, "fi_prov_ini");
    struct fi_provider *(*ini)(void);
    memcpy(&ini, &symbol, sizeof(ini));
    struct fi_provider *provider = symbol ? ini() : NULL;
    if (!provider || !provider->getinfo || !provider->fabric)
        return -ENOENT; /* the library stays loaded: it may have started something */
    um_net_api.getinfo = provider->getinfo;
    um_net_api.fabric = provider->fabric;
    um_log(UM_LOG_INFO, "the machine net takes the provider %s out of %s", provider->name, path);
    return 0;
}

/* Looks in that folder (len characters) and in two folders below it. */
static int take_from(const char *folder, size_t len, const char *provider)
{
    static const char *const below[] = {"", "/prov", "/libfabric"};
    char path[PATH_MAX];
    int ret = -ENOENT;
    for (size_t i = 0; ret && len && i < sizeof(below) / sizeof(below[0]); i++) {
        int n = snprintf(path, sizeof(path), "%.*s%s/lib%s-fi.so", (int)len, folder, below[i], provider);
        if (n > 0 && (size_t)n < sizeof(path))
            ret = take(path);
    }
    return ret;
}

int um_net_library_take_file(const char *provider)
{
    const char *list = getenv("FI_PROVIDER_PATH");
    Dl_info where;
    void *symbol;
    int ret = -ENOENT;
    for (const char *at = list ? list + (*list == '@') : ""; ret && *at; at += *at == ':') {
        const size_t len = strcspn(at, ":");
        ret = take_from(at, len, provider);
        at += len;
    }
    memcpy(&symbol, &um_net_api.freeinfo, sizeof(symbol));
    const char *slash = ret && dladdr(symbol, &where) && where.dli_fname ? strrchr(where.dli_fname, '/') : NULL;
    return slash ? take_from(where.dli_fname, (size_t)(slash - where.dli_fname), provider) : ret;
}
