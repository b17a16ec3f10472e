/* See cmd/info.h. The provider, and the libfabrics and MPIs within reach. */
#include "child.h"
#include "info.h"
#include "lib_dirs.h"
#include "provider.h"
#include "recognise.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 20000, SEEN_MAX = 64 };

/* The real paths already reported, so that nothing is reported twice. */
struct seen {
    char *path[SEEN_MAX];
    unsigned count;
};

struct search {
    struct um_cmd_report *report;
    struct seen dirs, launchers, libraries;
};

/* Adds a path to those seen. True if it exists and is new. */
static bool meet(struct seen *seen, const char *path)
{
    char *real = realpath(path, NULL);
    if (!real)
        return false;
    for (unsigned i = 0; i < seen->count; i++) {
        if (!strcmp(seen->path[i], real)) {
            free(real);
            return false;
        }
    }
    if (seen->count < SEEN_MAX)
        seen->path[seen->count++] = real;
    else
        free(real);
    return true;
}

static void forget(struct seen *seen)
{
    while (seen->count)
        free(seen->path[--seen->count]);
}

/* In the child: writes "1.17 /usr/lib/.../libfabric.so.1", or "!" and the loader's message. */
static void ask_library(void *arg, int out)
{
    Dl_info where;
    void *library = dlopen(arg, RTLD_NOW | RTLD_LOCAL);
    uint32_t (*version)(void) = library ? (uint32_t(*)(void))dlsym(library, "fi_version") : NULL;
    if (!library)
        dprintf(out, "!%s", dlerror());
    else if (version && dladdr((void *)version, &where))
        dprintf(out, "%u.%u %s", version() >> 16, version() & 0xffff, where.dli_fname);
}

static void add_libfabric(struct search *search, const char *path, bool by_name)
{
    static const char section[] = "libfabric";
    char text[PATH_MAX + 64];
    unsigned major = 0, minor = 0;
    int at = 0;
    um_cmd_child_run(ask_library, (void *)path, text, sizeof text, TIMEOUT_MS);
    if (sscanf(text, "%u.%u %n", &major, &minor, &at) < 2) {
        if (!by_name)
            return; /* a damaged library beside an MPI does not concern the user */
        struct um_cmd_row *row =
            um_cmd_report_add(search->report, section, "libfabric.so.1", UM_NO, "not on the loader's path");
        row->lost = "programs that do not bring their own; fi_info; and unimem itself, unless such a program loads it";
        row->remedy = "Debian: apt install libfabric1; or LD_LIBRARY_PATH";
        return;
    }
    if (!meet(&search->libraries, text + at))
        return;
    char version[32];
    snprintf(version, sizeof version, "%u.%u", major, minor);
    bool good = major > 1 || minor >= 17;
    struct um_cmd_row *row = um_cmd_report_add(search->report, section, version, good ? UM_YES : UM_NO, "%s%s",
                                               text + at, by_name ? ", the loader's choice" : "");
    if (!good) {
        row->lost = "programs that use this one";
        row->remedy = "libfabric 1.17 or later";
    }
}

static bool is_libfabric(const char *name)
{
    return !strcmp(name, "libfabric.so.1");
}

static bool visit_libfabric(const char *path, void *arg)
{
    add_libfabric(arg, path, false);
    return false;
}

static void find_libfabrics(struct search *search, const char *bin)
{
    um_cmd_lib_dirs_of_bin(bin, is_libfabric, visit_libfabric, search);
}

static void add_mpi(struct search *search, const char *launcher, const struct um_cmd_mpi *mpi)
{
    char name[64];
    const struct um_cmd_mpi_refusal *refusal = um_cmd_mpi_refusal_of(mpi);
    snprintf(name, sizeof name, "%s %s", um_cmd_mpi_title(mpi->kind), mpi->version);
    struct um_cmd_row *row = um_cmd_report_add(search->report, "MPI", name, refusal ? UM_NO : UM_YES, "%s%s%s",
                                               launcher, *mpi->device ? ", built for " : "", mpi->device);
    if (refusal) {
        row->lost = refusal->reason;
        row->remedy = refusal->remedy;
    }
}

static void find_mpis(struct search *search, const char *bin)
{
    struct dirent **entries;
    char path[PATH_MAX];
    struct um_cmd_mpi mpi;
    int count = scandir(bin, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (um_cmd_launcher_name(name) && snprintf(path, sizeof path, "%s/%s", bin, name) < (int)sizeof path &&
            access(path, X_OK) == 0 && meet(&search->launchers, path) && um_cmd_recognise_launcher(path, &mpi) == 0 &&
            (!*mpi.library || meet(&search->libraries, mpi.library)))
            add_mpi(search, path, &mpi);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

/*
 * Visits the folders of programs that a user may mean: those of the active virtual environment, of PATH, and of .venv*
 * here and in this checkout.
 */
static void each_bin(struct search *search, void (*visit)(struct search *search, const char *bin))
{
    static const char *const patterns[] = {".venv*/bin", "%s/../.venv*/bin"};
    char path[2 * PATH_MAX], exe[PATH_MAX];
    const char *list = getenv("PATH"), *venv = getenv("VIRTUAL_ENV");
    glob_t found;

    forget(&search->dirs);
    if (venv && snprintf(path, sizeof path, "%s/bin", venv) < (int)sizeof path && meet(&search->dirs, path))
        visit(search, path);
    while (list && *list) {
        size_t n = strcspn(list, ":");
        if (n && snprintf(path, sizeof path, "%.*s", (int)n, list) < (int)sizeof path && meet(&search->dirs, path))
            visit(search, path);
        list += n + (list[n] == ':');
    }
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    if (strrchr(exe, '/'))
        *strrchr(exe, '/') = '\0';
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        snprintf(path, sizeof path, patterns[i], exe);
        if (glob(path, 0, NULL, &found))
            continue;
        for (size_t j = 0; j < found.gl_pathc; j++) {
            if (meet(&search->dirs, found.gl_pathv[j]))
                visit(search, found.gl_pathv[j]);
        }
        globfree(&found);
    }
}

bool um_cmd_info_provider(struct um_cmd_report *report)
{
    static const char section[] = "Provider";
    char dir[PATH_MAX], path[PATH_MAX + 32], text[1024];
    struct um_cmd_row *row;
    if (um_cmd_provider_dir(dir, sizeof dir)) {
        row = um_cmd_report_add(report, section, UM_PROVIDER_LIBRARY, UM_NO,
                                "not found, or in a place that cannot be named");
        row->lost = "everything: unimem cannot run";
        row->remedy = "see the message above";
        return false;
    }
    snprintf(path, sizeof path, "%s/%s", dir, UM_PROVIDER_LIBRARY);
    int ret = um_cmd_child_run(ask_library, path, text, sizeof text, TIMEOUT_MS);
    if (ret < 0 || text[0] == '!') {
        row = um_cmd_report_add(report, section, UM_PROVIDER_LIBRARY, UM_NO, "cannot be loaded: %s",
                                ret < 0 ? strerror(-ret) : text + 1);
        row->lost = "everything but programs that bring what it needs themselves";
        row->remedy = "Debian: apt install libfabric1";
        return false;
    }
    um_cmd_report_add(report, section, UM_PROVIDER_LIBRARY, UM_YES, "%s, version %s", dir, UM_VERSION);
    return true;
}

void um_cmd_info_software(struct um_cmd_report *report)
{
    static struct search search;
    search = (struct search){.report = report};
    unsigned before;

    add_libfabric(&search, "libfabric.so.1", true);
    each_bin(&search, find_libfabrics);
    before = report->count;
    each_bin(&search, find_mpis);
    if (report->count == before) {
        struct um_cmd_row *row =
            um_cmd_report_add(report, "MPI", "any", UM_NO, "none in PATH, nor in .venv of this folder");
        row->lost = "only programs that call libfabric themselves can use unimem";
        row->remedy = "./quickstart puts MPICH into .venv; Debian: apt install openmpi-bin; pip install mpich";
    }
    forget(&search.dirs);
    forget(&search.launchers);
    forget(&search.libraries);
}
