/* See cmd/recognise.h. */
#include "recognise.h"
#include "elf_file.h"
#include "launch.h"
#include "lib_dirs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS_MAX = 256 }; /* bounds the arguments that are looked at */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool um_cmd_launcher_name(const char *path)
{
    static const char *const names[] = {"mpiexec", "mpirun", "orterun", "prterun", "ompirun", "oshrun", "shmemrun"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *name = last_part(path);
        size_t n = strlen(names[i]);
        if (begins(name, names[i]) && (name[n] == '\0' || strchr("._-", name[n])))
            return true;
    }
    return false;
}

/*
 * The process manager of a launcher: if several MPIs share a folder (/usr/bin), the library must belong to the same
 * one.
 */
enum family { ANY, HYDRA, INTEL_HYDRA, OPENMPI };

static enum family family_of(const char *launcher)
{
    static const struct {
        const char *bytes;
        enum family family;
    } marks[] = {{"Intel(R) MPI", INTEL_HYDRA},
                 {"HYDRA_", HYDRA},
                 {"OPAL_PREFIX", OPENMPI},
                 {"prte_", OPENMPI},
                 {"orte_init", OPENMPI}};
    enum family family = ANY;
    struct um_cmd_elf elf;
    if (um_cmd_elf_open(launcher, &elf))
        return ANY; /* a script: the files beside it decide */
    for (size_t i = 0; family == ANY && i < sizeof marks / sizeof marks[0]; i++) {
        if (um_cmd_elf_holds(&elf, marks[i].bytes, strlen(marks[i].bytes)))
            family = marks[i].family;
    }
    um_cmd_elf_close(&elf);
    return family;
}

static bool fits(enum family family, enum um_cmd_mpi_kind kind)
{
    switch (family) {
    case HYDRA:
        return kind == UM_MPI_MPICH || kind == UM_MPI_SOS;
    case INTEL_HYDRA:
        return kind == UM_MPI_INTEL;
    case OPENMPI:
        return kind == UM_MPI_OPENMPI;
    default:
        return kind != UM_MPI_OSHMEM; /* Open MPI brings it along beside its libmpi */
    }
}

struct beside {
    enum family family;
    struct um_cmd_mpi *mpi;
};

static bool try_library(const char *path, void *arg)
{
    struct beside *beside = arg;
    struct um_cmd_mpi mpi;
    if (um_cmd_mpi_probe(path, &mpi) || !fits(beside->family, mpi.kind))
        return false;
    *beside->mpi = mpi;
    return true;
}

/* Finds the library that belongs to the folder of this file: in ../lib and the like. */
static int look_beside(const char *file, enum family family, struct um_cmd_mpi *mpi)
{
    struct beside beside = {.family = family, .mpi = mpi};
    char bin[PATH_MAX];
    snprintf(bin, sizeof bin, "%.*s", (int)(last_part(file) - file), file);
    return um_cmd_lib_dirs_of_bin(*bin ? bin : "./", um_cmd_mpi_library_name, try_library, &beside) ? 0 : -ENOENT;
}

int um_cmd_recognise_launcher(const char *path, struct um_cmd_mpi *mpi)
{
    char real[PATH_MAX];
    if (!realpath(path, real))
        return -ENOENT;
    enum family family = family_of(real);
    /*
     * A symbolic link may lead out of the folder (Debian's alternatives) or into it (a module's bin): both ends are
     * tried.
     */
    if (look_beside(path, family, mpi) == 0 || look_beside(real, family, mpi) == 0)
        return 0;
    if (family == ANY)
        return -ENOENT;
    /* The library was not found, but the launcher's own bytes identify the MPI. */
    enum um_cmd_mpi_kind kind = family == HYDRA ? UM_MPI_MPICH : family == OPENMPI ? UM_MPI_OPENMPI : UM_MPI_INTEL;
    *mpi = (struct um_cmd_mpi){.kind = kind, .has_ofi = true};
    return 0;
}

/* Recognises the Python of a virtual environment: mpi4py takes the MPI that is installed there. */
static int recognise_python(const char *path, struct um_cmd_mpi *mpi)
{
    char mark[PATH_MAX + 16];
    if (!begins(last_part(path), "python"))
        return -ENOENT;
    int bin = (int)(last_part(path) - path);
    snprintf(mark, sizeof mark, "%.*s../pyvenv.cfg", bin, path);
    if (access(mark, F_OK)) {
        snprintf(mark, sizeof mark, "%.*s../conda-meta", bin, path);
        if (access(mark, F_OK))
            return -ENOENT;
    }
    return look_beside(path, ANY, mpi);
}

/* Returns what the name of a library says, if the library is not found. libmpi.so.12 may be MPICH's or Intel MPI's. */
static enum um_cmd_mpi_kind kind_of_name(const char *name)
{
    if (begins(name, "libsma.") || begins(name, "libshmem."))
        return UM_MPI_SOS;
    if (begins(name, "liboshmem."))
        return UM_MPI_OSHMEM;
    if (begins(name, "libmpich."))
        return UM_MPI_MPICH;
    return !strcmp(name, "libmpi.so.40") ? UM_MPI_OPENMPI : UM_MPI_NONE;
}

/* Returns 0 if the file is a program that was linked with an MPI or SHMEM library. */
static int recognise_program(const char *path, const struct um_cmd_mpi *launcher, struct um_cmd_mpi *mpi)
{
    struct um_cmd_elf elf;
    int ret = -ENOENT;
    if (um_cmd_elf_open(path, &elf))
        return -ENOENT;
    for (unsigned i = 0; ret && i < elf.needed_count; i++) {
        char library[PATH_MAX];
        if (!um_cmd_mpi_library_name(elf.needed[i]))
            continue;
        ret = um_cmd_lib_find(&elf, path, elf.needed[i], library);
        if (!ret)
            ret = um_cmd_mpi_probe(library, mpi);
        if (ret) {
            enum um_cmd_mpi_kind kind = kind_of_name(elf.needed[i]);
            *mpi = launcher->kind && (!kind || kind == launcher->kind)
                       ? *launcher
                       : (struct um_cmd_mpi){.kind = kind, .has_ofi = kind != UM_MPI_OSHMEM};
            ret = mpi->kind ? 0 : -ENOENT;
        }
    }
    um_cmd_elf_close(&elf);
    return ret;
}

static void look_at_word(const char *word, struct um_cmd_recognised *found)
{
    char path[PATH_MAX];
    struct um_cmd_mpi mpi;
    if (word[0] == '-' || um_cmd_find_in_path(word, path))
        return;
    if (!found->launcher_word && um_cmd_launcher_name(word)) {
        if (um_cmd_recognise_launcher(path, &found->launcher) == 0)
            found->launcher_word = word;
        return;
    }
    if (recognise_program(path, &found->launcher, &mpi) == 0) {
        found->mpi = mpi;
        found->program_word = found->from = word;
    } else if (!found->launcher_word && !found->mpi.kind && recognise_python(path, &mpi) == 0) {
        found->mpi = mpi;
        found->from = word;
    }
}

void um_cmd_recognise(char *const *argv, struct um_cmd_recognised *found)
{
    *found = (struct um_cmd_recognised){.mpi = {.kind = UM_MPI_NONE}};
    for (int i = 0; argv[i] && i < WORDS_MAX && !found->program_word; i++)
        look_at_word(argv[i], found);
    if (!found->program_word && found->launcher.kind) {
        found->mpi = found->launcher;
        found->from = found->launcher_word;
    }
}

bool um_cmd_recognised_mismatch(const struct um_cmd_recognised *found)
{
    if (!found->program_word || !found->launcher.kind)
        return false;
    return (found->launcher.kind == UM_MPI_OPENMPI) != (found->mpi.kind == UM_MPI_OPENMPI) &&
           found->mpi.kind != UM_MPI_SOS && found->mpi.kind != UM_MPI_OSHMEM;
}
