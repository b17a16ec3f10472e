/* library.h. */
#include "machine/board/library.h"

#include "base/log.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct um_board_library um_board_api;

struct symbol {
    const char *name;
    size_t offset;
};

static const struct symbol symbols[] = {
    {"unimem_version", offsetof(struct um_board_library, version)},
    {"unimem_open", offsetof(struct um_board_library, open)},
    {"unimem_close", offsetof(struct um_board_library, close)},
    {"unimem_get_info", offsetof(struct um_board_library, get_info)},
    {"unimem_context_alive", offsetof(struct um_board_library, context_alive)},
    {"unimem_mailbox_open", offsetof(struct um_board_library, mailbox_open)},
    {"unimem_mailbox_close", offsetof(struct um_board_library, mailbox_close)},
    {"unimem_mailbox_get_address", offsetof(struct um_board_library, mailbox_get_address)},
    {"unimem_mailbox_send", offsetof(struct um_board_library, mailbox_send)},
    {"unimem_mailbox_receive", offsetof(struct um_board_library, mailbox_receive)},
    {"unimem_mailbox_fd", offsetof(struct um_board_library, mailbox_fd)},
    {"unimem_mailbox_arm", offsetof(struct um_board_library, mailbox_arm)},
    {"unimem_mailbox_disarm", offsetof(struct um_board_library, mailbox_disarm)},
    {"unimem_alloc_dmable", offsetof(struct um_board_library, alloc_dmable)},
    {"unimem_free_dmable", offsetof(struct um_board_library, free_dmable)},
    {"unimem_copy", offsetof(struct um_board_library, copy)},
    {"unimem_register", offsetof(struct um_board_library, enter)},
    {"unimem_deregister", offsetof(struct um_board_library, deregister)},
    {"unimem_dma_write", offsetof(struct um_board_library, dma_write)},
    {"unimem_dma_read", offsetof(struct um_board_library, dma_read)},
    {"unimem_dma_poll", offsetof(struct um_board_library, dma_poll)},
};
static_assert(sizeof(symbols) / sizeof(symbols[0]) == sizeof(struct um_board_library) / sizeof(void *), "all of them");

#define REMEDY                                                                                                         \
    "Install one (the packages libunimem1 and unimem-boardd hold a board in software), or name its file in "           \
    "FI_UNIMEM_BOARD_LIBRARY"

/* Loads the library from a directory relative to that of the file that holds this code. NULL: it is not there, or its
 * path is too long. */
static void *open_near(const char *relative)
{
    char path[PATH_MAX];
    Dl_info own;
    const char *slash;
    if (!dladdr((void *)(uintptr_t)um_board_library_load, &own) || !own.dli_fname ||
        !(slash = strrchr(own.dli_fname, '/')))
        return NULL;
    int dir = (int)(slash - own.dli_fname);
    int n = snprintf(path, sizeof(path), "%.*s/%s%s", dir, own.dli_fname, relative, UM_BOARD_LIBRARY);
    return n > 0 && (size_t)n < sizeof(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *library_open(const char *path, char why[PATH_MAX])
{
    void *library = path ? NULL : open_near("");
    if (!library)
        library = dlopen(path ? path : UM_BOARD_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        snprintf(why, PATH_MAX, "%s", error ? error : "no reason given");
    }
    return library || path ? library : open_near("../");
}

/* Looks up all functions. -ENOENT: one is missing: *missing_p is its name. */
static int functions_find(void *library, struct um_board_library *api_p, const char **missing_p)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *function = dlsym(library, symbols[i].name);
        if (!function) {
            *missing_p = symbols[i].name;
            return -ENOENT;
        }
        memcpy((char *)api_p + symbols[i].offset, &function, sizeof(function));
    }
    return 0;
}

static int load(const char *path)
{
    char why[PATH_MAX] = "";
    const char *missing = NULL;
    struct um_board_library api;
    void *library = library_open(path, why);
    if (!library) {
        um_log(UM_LOG_WARN, "the library of a Unimem board cannot be loaded: %s. " REMEDY, why);
        return -ENOENT;
    }
    int ret = functions_find(library, &api, &missing);
    if (ret) {
        um_log(UM_LOG_WARN, "%s is no library of a Unimem board: it has no %s. " REMEDY, path ? path : UM_BOARD_LIBRARY,
               missing);
    } else if (api.version() != UNIMEM_API_VERSION) {
        um_log(UM_LOG_WARN, "the Unimem board's library has version %u of the interface, this provider wants %u",
               (unsigned)api.version(), (unsigned)UNIMEM_API_VERSION);
        ret = -EPROTO;
    }
    if (ret)
        dlclose(library);
    else
        um_board_api = api;
    return ret;
}

/* A library that failed is not tried again under the same name: fi_getinfo() asks several times. */
int um_board_library_load(const char *path)
{
    static char failed[PATH_MAX];
    static int error;
    if (um_board_api.version)
        return 0;
    if (error && strcmp(failed, path ? path : "") == 0)
        return error;
    snprintf(failed, sizeof(failed), "%s", path ? path : "");
    return error = load(path);
}
