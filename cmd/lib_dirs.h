/* Where libraries lie: beside a folder of programs, and where the dynamic linker looks for what a program needs. */
#ifndef UM_CMD_LIB_DIRS_H
#define UM_CMD_LIB_DIRS_H

#include "elf_file.h"

#include <stdbool.h>

/* Returns true to end the search. */
typedef bool um_cmd_lib_visit_fn(const char *path, void *arg);

/*
 * Visits the files that `wanted` accepts by name, in the library folders that belong to a folder of programs: ../lib,
 * ../lib64, those of Debian's architectures, those of MPIs below them. Visits each file once, with symbolic links
 * resolved. Returns true if a visit did.
 */
bool um_cmd_lib_dirs_of_bin(const char *bin, bool (*wanted)(const char *name), um_cmd_lib_visit_fn *visit, void *arg);

/*
 * Finds the file that the dynamic linker would take for the library `name` that the program at path needs: in the
 * program's own search path, LD_LIBRARY_PATH, the system's folders. Returns 0 and the file in found (PATH_MAX bytes),
 * or -ENOENT.
 */
int um_cmd_lib_find(const struct um_cmd_elf *elf, const char *path, const char *name, char *found);

#endif
