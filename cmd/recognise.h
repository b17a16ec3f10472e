/*
 * Finds which MPI a command line runs. Looks at files only: at the launcher (mpiexec, mpirun, oshrun, ...) and what
 * lies beside it, and at the libraries that the program it starts was linked with. Runs none of them; cmd/mpi.h asks
 * the libraries.
 */
#ifndef UM_CMD_RECOGNISE_H
#define UM_CMD_RECOGNISE_H

#include "mpi.h"

struct um_cmd_recognised {
    struct um_cmd_mpi mpi;      /* kind UM_MPI_NONE: nothing was recognised */
    const char *from;           /* the word that identified the MPI (points into argv), or NULL */
    struct um_cmd_mpi launcher; /* the launcher's MPI; kind UM_MPI_NONE: no launcher was recognised */
    const char *launcher_word;
    const char *program_word; /* the program that is linked with an MPI or SHMEM library, or NULL */
};

/*
 * Fills *found for a command (ended by NULL). The program's own library decides, or the launcher's if no program is
 * linked with one (an interpreter, a script). Never fails: what cannot be read is not recognised.
 */
void um_cmd_recognise(char *const *argv, struct um_cmd_recognised *found);

/* Finds the MPI that a launcher at this path belongs to. Returns 0, or -ENOENT. *mpi is set only on success. */
int um_cmd_recognise_launcher(const char *path, struct um_cmd_mpi *mpi);

/* True if the last part of the path is the name of a launcher. */
bool um_cmd_launcher_name(const char *path);

/*
 * True if the launcher and the program belong to different MPIs that cannot start each other's processes. (MPICH and
 * Intel MPI can, and their launchers start SHMEM programs.)
 */
bool um_cmd_recognised_mismatch(const struct um_cmd_recognised *found);

#endif
