/*
 * Which MPI does a command line run? Looks at files only: at the launcher (mpiexec, mpirun, oshrun, ...) and what lies
 * beside it, and at the libraries that the program it starts was linked with. Runs none of them; the libraries found
 * are asked by cmd/mpi.h.
 */
#ifndef UM_CMD_RECOGNISE_H
#define UM_CMD_RECOGNISE_H

#include "mpi.h"

struct um_cmd_recognised {
    struct um_cmd_mpi mpi;      /* kind UM_MPI_NONE: nothing was recognised */
    const char *from;           /* the word of the command line that told (points into argv), or NULL */
    struct um_cmd_mpi launcher; /* of the launcher alone; kind UM_MPI_NONE if there is none */
    const char *launcher_word;
    const char *program_word; /* the program that is linked with an MPI or SHMEM library, or NULL */
};

/*
 * argv: the command, ended by NULL. The program's own library decides, the launcher's if there is no such program
 * (an interpreter, a script). Never fails: what cannot be read is not recognised.
 */
void um_cmd_recognise(char *const *argv, struct um_cmd_recognised *found);

/* The MPI that a launcher at this path belongs to. Returns 0, or -ENOENT. *mpi is set only on success. */
int um_cmd_recognise_launcher(const char *path, struct um_cmd_mpi *mpi);

/* Is this the name of a launcher? The last part of the path counts. */
bool um_cmd_launcher_name(const char *path);

/*
 * Do the launcher and the program belong to different MPIs that cannot start each other's processes? (MPICH and Intel
 * MPI can, and their launchers start SHMEM programs.)
 */
bool um_cmd_recognised_mismatch(const struct um_cmd_recognised *found);

#endif
