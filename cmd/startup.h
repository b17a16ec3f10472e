/*
 * Libraries whose code at loading takes long: UCX's libucs measures the processor's clock for 50 ms, and every MPI that
 * was built with UCX loads it. A query of an MPI library's version needs none of that.
 */
#ifndef UM_CMD_STARTUP_H
#define UM_CMD_STARTUP_H

/*
 * Does the library at path need such a library, itself or by others that it needs? Returns 0 and the file that the
 * dynamic linker would take in found (PATH_MAX bytes), or -ENOENT. Reads files only.
 */
int um_cmd_startup_find(const char *path, char *found);

/*
 * Loads a copy of the library `slow` that has no code to run at loading. A library that is loaded afterwards and needs
 * one of that name gets this copy. Only for a child process that soon ends: calls into the copy may crash. Returns 0 or
 * a negative errno; then the library itself will be loaded, as always.
 */
int um_cmd_startup_skip(const char *slow);

#endif
