/*
 * Libraries whose start-up code takes long: UCX's libucs measures the processor's clock for 50 ms, and every MPI that
 * was built with UCX loads it. A query of an MPI library's version needs none of that.
 */
#ifndef UM_CMD_STARTUP_H
#define UM_CMD_STARTUP_H

/*
 * Looks for such a library among those that the library at path needs, itself or through others. Returns 0 and, in
 * found (PATH_MAX bytes), the file that the dynamic linker would take, or -ENOENT. Reads files only.
 */
int um_cmd_startup_find(const char *path, char *found);

/*
 * Loads a copy of the library `slow` without its start-up code. A library that is loaded afterwards and needs one of
 * that name gets this copy. Only for a child process that soon ends: calls into the copy may crash. Returns 0 or a
 * negative errno; then the library itself will be loaded, as usual.
 */
int um_cmd_startup_skip(const char *slow);

#endif
