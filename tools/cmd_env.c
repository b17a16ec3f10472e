/*
 * unimem env: prints what `unimem run` would set, as export lines for a POSIX shell: eval "$(unimem env)".
 */
#include "commands.h"
#include "mpich_env.h"

#include <stdio.h>
#include <string.h>

static const char usage[] = "usage: unimem env\n"
                            "\n"
                            "Prints the environment that makes MPICH use unimem, for a POSIX shell:\n"
                            "\n"
                            "  eval \"$(unimem env)\"\n"
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

int um_cmd_env(int argc, char **argv)
{
    static struct um_env env; /* tens of KiB: not on the stack */

    if (argc > 1 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) {
        fputs(usage, stdout);
        return UM_EXIT_OK;
    }
    if (argc > 1)
        return um_usage_error("env", "unexpected argument %s. To run a program use: unimem run -- PROGRAM", argv[1]);
    if (um_env_fill(&env))
        return UM_EXIT_FAILED;
    for (unsigned i = 0; i < env.count; i++) {
        const struct um_env_var *var = &env.var[i];
        if (var->origin != UM_ENV_SET && var->origin != UM_ENV_EXTENDED)
            continue;
        printf("export %s=", var->name);
        print_quoted(var->value);
        putchar('\n');
    }
    if (fflush(stdout)) {
        perror("unimem: cannot write the environment");
        return UM_EXIT_FAILED;
    }
    return UM_EXIT_OK;
}
