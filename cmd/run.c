/*
 * unimem run [-q] [-v] [--heap] [--system-yield] [--mpi NAME] [--machine NAME] -- CMD...: recognises the MPI of CMD,
 * sets the environment in which that MPI runs over unimem, and becomes CMD.
 *
 * It execs: signals, exit status and terminal are the program's own.
 */
#include "announce.h"
#include "commands.h"
#include "forward.h"
#include "heap.h"
#include "hosts.h"
#include "launch.h"
#include "yield.h"

#include "machine/machines.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: unimem run [-q] [-v] [--heap] [--system-yield] [--mpi NAME] [--machine NAME] [--] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs PROGRAM, usually mpiexec, with the environment that makes its MPI use unimem. The MPI is recognised from\n"
    "the launcher and from the program that it starts; one line says which it is.\n"
    "\n"
    "  --mpi NAME     take it for mpich, openmpi, intel, sos, or any (the variables of all)\n"
    "  --machine NAME what carries the messages: shm, the memory of this host (default); board, a Unimem board;\n"
    "                 net, another libfabric provider; shm,board: shm where it reaches, else the board.\n"
    "                 Where the launcher's options or the batch system name hosts, the default is shm,net\n"
    "  --heap         give it a heap whose blocks over 32 KiB peers can map as they are (needs jemalloc)\n"
    "  --system-yield MPICH: each sched_yield() is a system call, also where nobody else wants the processor\n"
    "  -q, --quiet    only warnings and errors\n"
    "  -v, --verbose  every variable, and whether it is yours\n"
    "\n"
    "What you have set yourself wins.\n"
    "\n"
    "  unimem run -- mpiexec -n 4 ./app\n";

struct options {
    bool quiet, verbose, help, heap, system_yield;
    const char *mpi, *machine;
    int at; /* where the program begins in argv */
};

/* Returns 0 or UM_EXIT_USAGE after a message. With --mpi *found is set. */
static int parse(int argc, char **argv, struct options *o, struct um_cmd_recognised *found)
{
    for (o->at = 1; o->at < argc && argv[o->at][0] == '-'; o->at++) {
        const char *word = argv[o->at];
        if (!strcmp(word, "--")) {
            o->at++;
            break;
        }
        if (!strcmp(word, "-v") || !strcmp(word, "--verbose"))
            o->verbose = true;
        else if (!strcmp(word, "-q") || !strcmp(word, "--quiet"))
            o->quiet = true;
        else if (!strcmp(word, "-h") || !strcmp(word, "--help"))
            o->help = true;
        else if (!strcmp(word, "--heap"))
            o->heap = true;
        else if (!strcmp(word, "--system-yield"))
            o->system_yield = true;
        else if (!strncmp(word, "--mpi=", 6))
            o->mpi = word + 6;
        else if (!strcmp(word, "--mpi"))
            o->mpi = o->at + 1 < argc ? argv[++o->at] : "";
        else if (!strncmp(word, "--machine=", 10))
            o->machine = word + 10;
        else if (!strcmp(word, "--machine"))
            o->machine = o->at + 1 < argc ? argv[++o->at] : "";
        else
            return um_cmd_usage_error(
                "run", "unknown option %s. Options of the program go after it; put `--` before it", word);
    }
    struct um_machines machines;
    char allowed[128];
    um_machines_allowed(allowed, sizeof(allowed));
    if (o->machine && um_machines_named(o->machine, &machines))
        return um_cmd_usage_error("run", "--machine %s: allowed: %s", o->machine, allowed);
    if (o->mpi && um_cmd_announce_forced(o->mpi, found))
        return UM_EXIT_USAGE;
    if (o->at >= argc && !o->help)
        return um_cmd_usage_error("run", "no program given. For example: unimem run -- mpiexec -n 4 ./app");
    if (!o->help && !*argv[o->at])
        return um_cmd_usage_error("run",
                                  "the name of the program is empty (a variable of your shell that is not set?)");
    return 0;
}

/* Sets a variable of the machines, for that reason; is_told: says so. */
static int variable_set(const char *name, const char *value, const char *by, bool is_told)
{
    if (setenv(name, value, 1)) {
        fprintf(stderr, "unimem: cannot set %s: %s\n", name, strerror(errno));
        return UM_EXIT_FAILED;
    }
    if (is_told)
        fprintf(stderr, "unimem: %s=%s (%s)\n", name, value, by);
    return UM_EXIT_OK;
}

/*
 * Sets FI_UNIMEM_MACHINE. --machine overrides a variable that was set before. Where several hosts are named, net is on
 * in all processes, also if all ranks are on one host now: MPI_Comm_spawn may start others on another one.
 */
static int machine_set(const struct options *o, char *const *program, const struct um_cmd_recognised *found)
{
    const char *use = getenv("FI_UNIMEM_NET"), *by = NULL;
    bool are_several = false;
    int ret = UM_EXIT_OK;
    if (!use || strcmp(use, "off") != 0)
        by = um_cmd_hosts_named(program, found->launcher_word, &are_several);
    if (o->machine)
        ret = variable_set("FI_UNIMEM_MACHINE", o->machine, "--machine", o->verbose);
    else if (by && !getenv("FI_UNIMEM_MACHINE"))
        ret = variable_set("FI_UNIMEM_MACHINE", "shm,net", by, o->verbose || !o->quiet);
    if (ret == UM_EXIT_OK && are_several && !use && um_cmd_env_goes_over_net())
        ret = variable_set("FI_UNIMEM_NET", "on", by, o->verbose);
    return ret;
}

static int prepare(const struct options *o, char **program, struct um_cmd_recognised *found)
{
    static struct um_cmd_environment env; /* tens of KiB: not on the stack */

    if (!o->mpi)
        um_cmd_recognise(program, found);
    int ret = machine_set(o, program, found); /* first: the other variables depend on it */
    if (ret != UM_EXIT_OK)
        return ret;
    if (um_cmd_announce_refusal(&found->mpi) || um_cmd_env_fill(&env, &found->mpi))
        return UM_EXIT_FAILED;
    if (!o->quiet)
        um_cmd_announce_choice(found, &env);
    else
        um_cmd_announce_other_provider(&env);
    um_cmd_announce_doubts(found, &env);
    um_cmd_announce_dropped(program);
    if (o->verbose)
        um_cmd_announce_all(&env);
    if (um_cmd_env_apply(&env))
        return UM_EXIT_FAILED;
    if (o->heap && um_cmd_heap_preload(program, o->verbose))
        return UM_EXIT_FAILED; /* late: whatever runs before the program does not need it */
    if (!o->system_yield)
        um_cmd_yield_preload(program, found, &env, o->verbose);
    if (um_cmd_forward(program, found, &env))
        return UM_EXIT_FAILED;
    if (o->verbose)
        um_cmd_forward_announce();
    return UM_EXIT_OK;
}

int um_cmd_run(int argc, char **argv)
{
    static struct um_cmd_recognised found; /* tens of KiB: not on the stack */
    struct options o = {.quiet = false};
    int ret = parse(argc, argv, &o, &found);
    if (ret)
        return ret;
    if (o.help) {
        fputs(usage, stdout);
        return UM_EXIT_OK;
    }
    char **program = &argv[o.at], path[PATH_MAX];
    ret = um_cmd_launch_find(program[0], path);
    if (!ret)
        ret = prepare(&o, program, &found);
    if (ret)
        return ret;
    return um_cmd_launch(path, program);
}
