/*
 * Classifies the words behind a launcher (mpiexec, mpirun, ...): the launcher's options, the values of those, and
 * programs with their arguments. Knows the options of hydra (MPICH, Intel MPI), Open MPI and PRRTE, by name and number
 * of values, but not what they mean.
 */
#ifndef UM_CMD_WORDS_H
#define UM_CMD_WORDS_H

#include <stdbool.h>
#include <stdio.h>

/* The state of reading the words. All zero: the first word behind the launcher comes next. */
struct um_cmd_words {
    int values;      /* how many of the next words are values of the option before them */
    bool unsure;     /* the option before is not known: the next word may be its value */
    bool in_program; /* after the program, or a `--` before it, up to the next `:` */
};

/*
 * Returns where the words behind the launcher begin, or NULL if there is no launcher. argv: a command, ended by NULL.
 * launcher: the launcher's word in argv, or NULL for the first word that has the name of a launcher and can be run.
 */
char *const *um_cmd_words_behind(char *const *argv, const char *launcher);

/*
 * Reads the next word. Returns whether it is an option of the launcher. After an unknown option, a word that cannot be
 * run here is taken for its value.
 */
bool um_cmd_words_take(struct um_cmd_words *at, const char *word);

/*
 * True if the word is one of these options (without dashes, ended by NULL), after one `-` or two, with or without
 * `=VALUE`.
 */
bool um_cmd_words_is_option(const char *word, const char *const *options);

/* Opens a file that the launcher will read. NULL: it cannot be read, or is no regular file; what is read from a pipe
 * would be lost to the launcher. */
FILE *um_cmd_words_open(const char *path);

/* Returns the value of an option: what follows its `=`, or the next word; "" if there is none. */
const char *um_cmd_words_value(char *const *word);

/*
 * Returns where the launcher's option is that is one of these, or that names a file which has one of these (hydra's
 * -configfile, Open MPI's --app); NULL: there is none. words: from um_cmd_words_behind().
 */
char *const *um_cmd_words_find(char *const *words, const char *const *options);

#endif
