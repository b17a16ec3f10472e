/*
 * Finding the program that `unimem run` becomes, and becoming it; when that fails, what is wrong with the file and what
 * to do. Knows nothing of MPIs.
 */
#ifndef UM_CMD_LAUNCH_H
#define UM_CMD_LAUNCH_H

/* The file that the shell would run for this word, into path (PATH_MAX bytes). Returns 0 or -ENOENT. */
int um_cmd_find_in_path(const char *word, char *path);

/* The same for the program itself: returns 0, or UM_EXIT_NOTFOUND or UM_EXIT_NOEXEC after a message. */
int um_cmd_launch_find(const char *word, char *path);

/*
 * Becomes the program. A text without `#!` is run by sh, as shells do; other files that the kernel refuses are not.
 * Returns only when it fails: UM_EXIT_NOTFOUND or UM_EXIT_NOEXEC after a message.
 */
int um_cmd_launch(const char *path, char **argv);

#endif
