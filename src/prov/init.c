/*
 * The plug-in: entry point, name and version, and what takes log lines from the layers below to libfabric's log.
 *
 * Owns: struct fi_provider. Must not know any other object.
 * Threading: libfabric calls the entry point once, under its own lock. Logging may come from any thread.
 */
#include "prov/prov.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

extern int um_prov_info_get(uint32_t version, const char *node, const char *service, uint64_t flags,
                            const struct fi_info *hints, struct fi_info **info);

static void um_prov_cleanup(void)
{
    um_log_set_sink(NULL);
}

struct fi_provider um_prov_provider = {
    .name = UM_PROV_NAME,
    .version = FI_VERSION(0, 1),
    .getinfo = um_prov_info_get,
    .fabric = um_prov_fabric_open,
    .cleanup = um_prov_cleanup,
};

/*
 * libfabric prints nothing unless FI_LOG_LEVEL is set. The user should act on a warning, so without FI_LOG_LEVEL it
 * goes to stderr directly; with it, libfabric decides.
 */
static void um_prov_log_to_libfabric(enum um_log_level level, const char *text)
{
    static const enum fi_log_level levels[] = {
        [UM_LOG_WARN] = FI_LOG_WARN, [UM_LOG_INFO] = FI_LOG_INFO, [UM_LOG_DEBUG] = FI_LOG_DEBUG};
    if (fi_log_enabled(&um_prov_provider, levels[level], FI_LOG_CORE))
        fi_log(&um_prov_provider, levels[level], FI_LOG_CORE, UM_PROV_NAME, 0, "%s\n", text);
    else if (level == UM_LOG_WARN && !getenv("FI_LOG_LEVEL"))
        fprintf(stderr, "unimem: warning: %s\n", text);
}

FI_EXT_INI
{
    /* Clients ask for the API version of the libfabric that runs, so the provider reports that version, not the one it
     * was built with. */
    um_prov_provider.fi_version = fi_version();
    um_log_set_sink(um_prov_log_to_libfabric);
    um_prov_env_define();
    return &um_prov_provider;
}
