/*
 * unimem env [-v] [--mpi NAME]: prints what `unimem run` would set, as export lines for a POSIX shell:
 * eval "$(unimem env)".
 */
#include "announce.h"
#include "commands.h"
#include "forward.h"

#include <stdio.h>
#include <string.h>

static const char usage[] = "usage: unimem env [-v] [--mpi NAME]\n"
                            "\n"
                            "Prints the environment that makes MPIs use unimem, for a POSIX shell:\n"
                            "\n"
                            "  eval \"$(unimem env)\"\n"
                            "\n"
                            "  --mpi NAME     only for mpich, openmpi, intel or sos; without it the variables of all\n"
                            "  -v, --verbose  also every variable with its origin, on stderr\n"
                            "\n"
                            "What you have set yourself wins and is not printed.\n";

/* In single quotes everything is literal but the single quote itself. */
static void print_quoted(const char *text)
{
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
    putchar('\'');
}

static void print_exports(const struct um_cmd_environment *env)
{
    for (unsigned i = 0; i < env->count; i++) {
        const struct um_cmd_env_var *var = &env->var[i];
        if (var->origin != UM_ENV_SET && var->origin != UM_ENV_EXTENDED)
            continue;
        printf("export %s=", var->name);
        print_quoted(var->value);
        putchar('\n');
    }
}

int um_cmd_env(int argc, char **argv)
{
    static struct um_cmd_recognised found; /* tens of KiB each: not on the stack */
    static struct um_cmd_environment env;
    const char *word = "any";
    bool verbose = false;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
            fputs(usage, stdout);
            return UM_EXIT_OK;
        }
        if (!strcmp(argv[i], "-v") || !strcmp(argv[i], "--verbose"))
            verbose = true;
        else if (!strncmp(argv[i], "--mpi=", 6))
            word = argv[i] + 6;
        else if (!strcmp(argv[i], "--mpi"))
            word = i + 1 < argc ? argv[++i] : "";
        else
            return um_cmd_usage_error("env", "unexpected argument %s. To run a program use: unimem run -- PROGRAM",
                                      argv[i]);
    }
    if (um_cmd_announce_forced(word, &found))
        return UM_EXIT_USAGE;
    if (um_cmd_env_fill(&env, &found.mpi))
        return UM_EXIT_FAILED;
    if (env.other_provider)
        um_cmd_announce_choice(&found, &env);
    um_cmd_announce_doubts(&found, &env);
    if (verbose)
        um_cmd_announce_all(&env);
    print_exports(&env);
    if (um_cmd_env_apply(&env) || um_cmd_forward(NULL, &found, &env))
        return UM_EXIT_FAILED;
    if (fflush(stdout)) {
        perror("unimem: cannot write the environment");
        return UM_EXIT_FAILED;
    }
    return UM_EXIT_OK;
}
