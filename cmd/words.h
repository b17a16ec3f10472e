/*
 * The words behind a launcher (mpiexec, mpirun, ...): which are options of its own, which are values of those, and
 * which are a program and what that is given. Knows the options of hydra (MPICH, Intel MPI), Open MPI and PRRTE, by
 * name and number of values, and nothing of what they mean.
 */
#ifndef UM_CMD_WORDS_H
#define UM_CMD_WORDS_H

#include <stdbool.h>

/* How far the words are read. Zero: the first word behind the launcher comes next. */
struct um_cmd_words {
    int values;      /* so many of the next words belong to the option before them */
    bool unsure;     /* the option before is not known: the next word may be its value */
    bool in_program; /* behind the program, or a `--` before it, up to the next `:` */
};

/*
 * argv: a command, ended by NULL; launcher: the launcher's word in it, or NULL for the first one that has the name of
 * a launcher and can be run. Returns where the words behind it begin, or NULL if there is none.
 */
char *const *um_cmd_words_behind(char *const *argv, const char *launcher);

/*
 * Reads the next word. Returns whether it is an option of the launcher. Behind an option that is not known a word that
 * cannot be run here is a value.
 */
bool um_cmd_words_take(struct um_cmd_words *at, const char *word);

/* Is the word one of these options (without dashes, ended by NULL), behind one `-` or two, with or without `=VALUE`? */
bool um_cmd_words_is_option(const char *word, const char *const *options);

#endif
