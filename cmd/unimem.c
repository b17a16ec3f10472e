/*
 * unimem: the command beside the provider. This file owns the table of sub-commands and the messages about them;
 * each sub-command stands in a file of its name (run.c, env.c, info.c).
 */
#include "commands.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    const char *summary;
    int (*main)(int argc, char **argv);
} commands[] = {
    {"run", "run a program, usually mpiexec, with its MPI over unimem", um_cmd_run},
    {"env", "print that environment for the shell", um_cmd_env},
    {"info", "say what this machine offers, and how to get what is missing", um_cmd_info},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *out)
{
    fputs("usage: unimem COMMAND [ARGUMENT...]\n\nCommands:\n", out);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n"
          "  --help     this text; `unimem COMMAND --help` for one command\n"
          "  --version  the version\n"
          "\n"
          "Example:\n"
          "  unimem run -- mpiexec -n 4 ./app\n",
          out);
}

int um_cmd_usage_error(const char *name, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "unimem%s%s: ", name ? " " : "", name ? name : "");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, ".\nTry: unimem %s%s--help\n", name ? name : "", name ? " " : "");
    return UM_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return um_cmd_usage_error(NULL, "no command given");
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_help(stdout);
        return UM_EXIT_OK;
    }
    if (!strcmp(name, "--version")) {
        puts("unimem " UM_VERSION);
        return UM_EXIT_OK;
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (!strcmp(name, commands[i].name))
            return commands[i].main(argc - 1, argv + 1);
    }
    return um_cmd_usage_error(NULL, "unknown command %s", name);
}
