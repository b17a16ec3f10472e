/*
 * Finds the program that `unimem run` becomes, and becomes it; if that fails, says what is wrong with the file and what
 * to do. Knows nothing of MPIs.
 */
#ifndef UM_CMD_LAUNCH_H
#define UM_CMD_LAUNCH_H

/* Writes to path (PATH_MAX bytes) the file that the shell would run for this word. Returns 0 or -ENOENT. */
int um_cmd_find_in_path(const char *word, char *path);

/*
 * Does the same for the program that `unimem run` becomes. Returns 0, or UM_EXIT_NOTFOUND or UM_EXIT_NOEXEC after a
 * message.
 */
int um_cmd_launch_find(const char *word, char *path);

/*
 * Becomes the program. A text without `#!` is run by sh, as shells do; other files that the kernel refuses are not run.
 * Returns only if it fails: UM_EXIT_NOTFOUND or UM_EXIT_NOEXEC after a message.
 */
int um_cmd_launch(const char *path, char **argv);

#endif
