/*
 * Tells which of the MPI (or SHMEM) libraries that the command knows a library file is, its version, and whether it can
 * use libfabric (OFI) at all. Knows nothing of command lines (cmd/recognise.h) or of variables (cmd/mpi_env.h).
 */
#ifndef UM_CMD_MPI_H
#define UM_CMD_MPI_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum um_cmd_mpi_kind {
    UM_MPI_NONE, /* not recognised */
    UM_MPI_MPICH,
    UM_MPI_OPENMPI,
    UM_MPI_INTEL,
    UM_MPI_SOS,    /* Sandia OpenSHMEM */
    UM_MPI_OSHMEM, /* the OpenSHMEM that comes with Open MPI: it has no OFI transport */
    UM_MPI_KINDS
};

struct um_cmd_mpi {
    enum um_cmd_mpi_kind kind;
    char version[32];         /* "5.0.2"; empty if unknown */
    char device[64];          /* MPICH: what it was built for, "ch4:ofi"; otherwise empty */
    bool has_ofi;             /* it can use libfabric, or that cannot be known */
    char library[PATH_MAX];   /* the library file, empty if there is none to look at */
    char providers[PATH_MAX]; /* Intel MPI: the folder of the libfabric providers that it brings along; else empty */
};

/* Returns "MPICH", for people; "mpich", for --mpi. */
const char *um_cmd_mpi_title(enum um_cmd_mpi_kind kind);
const char *um_cmd_mpi_word(enum um_cmd_mpi_kind kind);

/* Returns the kind that --mpi WORD names (mpich, openmpi, intel, sos), or UM_MPI_NONE. */
enum um_cmd_mpi_kind um_cmd_mpi_by_word(const char *word);

/* Returns the first number of the version, or 0. */
int um_cmd_mpi_major(const struct um_cmd_mpi *mpi);

/* True if a library of this file name belongs to an MPI or SHMEM (libmpi.so.12, libmpich.so.12, libsma.so.3, ...). */
bool um_cmd_mpi_library_name(const char *name);

/*
 * Asks the library at path what it is. A child process loads it and calls MPI_Get_library_version (allowed before
 * MPI_Init) or shmem_info_get_name; if that fails, the library's bytes are searched. Returns 0, or a negative errno
 * (-ENOEXEC: not a library of this machine; -ENOENT: of no known MPI). *mpi is set only on success.
 */
int um_cmd_mpi_probe(const char *path, struct um_cmd_mpi *mpi);

/* Why an MPI cannot use unimem, and what to do instead. */
struct um_cmd_mpi_refusal {
    const char *reason, *remedy;
};

/* Returns NULL if this MPI can use unimem. */
const struct um_cmd_mpi_refusal *um_cmd_mpi_refusal_of(const struct um_cmd_mpi *mpi);

#endif
