/*
 * unimem run [-v] -- CMD...: sets the environment in which MPICH runs over unimem and becomes CMD.
 *
 * It execs: signals, exit status and terminal are the program's own.
 */
#include "commands.h"
#include "mpich_env.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "usage: unimem run [-v] [--] PROGRAM [ARGUMENT...]\n"
                            "\n"
                            "Runs PROGRAM, usually mpiexec, with the environment that makes MPICH use unimem.\n"
                            "What you have set yourself wins. -v prints the environment first.\n"
                            "\n"
                            "  unimem run -- mpiexec -n 4 ./app\n";

static int env_apply(bool verbose)
{
    static struct um_env env; /* tens of KiB: not on the stack */
    if (um_env_fill(&env))
        return UM_EXIT_FAILED;
    for (unsigned i = 0; i < env.count; i++) {
        const struct um_env_var *var = &env.var[i];
        if (verbose)
            fprintf(stderr, "unimem: %s=%s (%s)\n", var->name, var->value, um_env_origin_text(var->origin));
        bool ours = var->origin == UM_ENV_SET || var->origin == UM_ENV_EXTENDED;
        if (ours && setenv(var->name, var->value, 1)) {
            fprintf(stderr, "unimem: cannot set %s: %s\n", var->name, strerror(errno));
            return UM_EXIT_FAILED;
        }
    }
    return UM_EXIT_OK;
}

int um_cmd_run(int argc, char **argv)
{
    bool verbose = false;
    int at = 1;

    for (; at < argc && argv[at][0] == '-'; at++) {
        if (!strcmp(argv[at], "--")) {
            at++;
            break;
        }
        if (!strcmp(argv[at], "-v") || !strcmp(argv[at], "--verbose")) {
            verbose = true;
        } else if (!strcmp(argv[at], "-h") || !strcmp(argv[at], "--help")) {
            fputs(usage, stdout);
            return UM_EXIT_OK;
        } else {
            return um_usage_error("run", "unknown option %s. Options of the program go after it; put `--` before it",
                                  argv[at]);
        }
    }
    if (at >= argc)
        return um_usage_error("run", "no program given. For example: unimem run -- mpiexec -n 4 ./app");

    int ret = env_apply(verbose);
    if (ret)
        return ret;
    execvp(argv[at], &argv[at]);

    bool missing = errno == ENOENT;
    fprintf(stderr, "unimem: cannot run %s: %s.%s\n", argv[at], strerror(errno),
            missing ? " Is it in PATH? ./quickstart puts MPICH's mpiexec into .venv/bin." : "");
    return missing ? UM_EXIT_NOTFOUND : UM_EXIT_NOEXEC;
}
