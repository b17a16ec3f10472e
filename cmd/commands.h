/*
 * The sub-commands of `unimem`, one file each, and the exit statuses they share.
 *
 * A sub-command gets its own arguments (argv[0] is its name) and returns the exit status of the process. It writes
 * results to stdout and everything else to stderr.
 */
#ifndef UM_CMD_COMMANDS_H
#define UM_CMD_COMMANDS_H

enum um_cmd_exit {
    UM_EXIT_OK = 0,
    UM_EXIT_FAILED = 1,    /* the command was understood but could not be done */
    UM_EXIT_USAGE = 2,     /* the command line is wrong */
    UM_EXIT_NOEXEC = 126,  /* the program to run cannot be executed (as in the shell) */
    UM_EXIT_NOTFOUND = 127 /* the program to run does not exist (as in the shell) */
};

int um_cmd_run(int argc, char **argv);
int um_cmd_env(int argc, char **argv);
int um_cmd_info(int argc, char **argv);

/* Reports a usage error of a sub-command: prints the message and what to do. Returns UM_EXIT_USAGE. */
int um_cmd_usage_error(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
