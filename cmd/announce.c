/* See cmd/announce.h. */
#include "announce.h"
#include "provider.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int um_cmd_announce_forced(const char *word, struct um_cmd_recognised *found)
{
    enum um_cmd_mpi_kind kind = um_cmd_mpi_by_word(word);
    if (!kind && strcmp(word, "any") != 0) {
        bool missing = !*word || *word == '-'; /* the command line ends, or the next option follows */
        if (missing)
            fputs("unimem: --mpi needs a name", stderr);
        else
            fprintf(stderr, "unimem: --mpi %s: no such MPI is known", word);
        fputs(": mpich, openmpi, intel, sos, or any for the variables of all.\n", stderr);
        return -EINVAL;
    }
    *found = (struct um_cmd_recognised){.mpi = {.kind = kind, .has_ofi = true}};
    return 0;
}

/* "MPICH 5.0.2 (/.../libmpi.so.12)" */
static void print_mpi(const struct um_cmd_mpi *mpi)
{
    fprintf(stderr, "%s%s%s", um_cmd_mpi_title(mpi->kind), *mpi->version ? " " : "", mpi->version);
    if (*mpi->library)
        fprintf(stderr, " (%s)", mpi->library);
}

void um_cmd_announce_other_provider(const struct um_cmd_environment *env)
{
    if (env->other_provider)
        fprintf(stderr, "unimem: FI_PROVIDER=%s is yours and wins: libunimem-fi.so will not be used\n",
                env->other_provider);
}

void um_cmd_announce_choice(const struct um_cmd_recognised *found, const struct um_cmd_environment *env)
{
    fputs("unimem: ", stderr);
    if (found->mpi.kind)
        print_mpi(&found->mpi);
    else
        fputs("no MPI recognised in this command: set up for all that unimem knows", stderr);
    if (env->other_provider)
        fprintf(stderr, "; FI_PROVIDER=%s is yours and wins: libunimem-fi.so will not be used\n", env->other_provider);
    else
        fprintf(stderr, "%s over %s/%s\n", found->mpi.kind ? "" : ",", env->dir, UM_PROVIDER_LIBRARY);
}

void um_cmd_announce_doubts(const struct um_cmd_recognised *found, const struct um_cmd_environment *env)
{
    if (um_cmd_recognised_mismatch(found))
        fprintf(stderr,
                "unimem: %s belongs to %s, but %s is linked with %s: its ranks may not find each other. Use the\n"
                "  launcher of the MPI that the program was built with.\n",
                found->launcher_word, um_cmd_mpi_title(found->launcher.kind), found->program_word,
                um_cmd_mpi_title(found->mpi.kind));
    for (unsigned i = 0; i < env->count; i++) {
        const struct um_cmd_env_var *var = &env->var[i];
        bool differs = um_cmd_env_differs(var);
        /* A FI_PROVIDER of other providers was named in the line before, and these may need other settings. */
        if (differs && !env->other_provider && strcmp(var->name, "FI_PROVIDER") != 0)
            fprintf(stderr, "unimem: %s=%s is yours and wins over %s: unimem may not be used\n", var->name, var->value,
                    var->ours);
    }
}

void um_cmd_announce_dropped(char *const *argv)
{
    static const char *const programs[] = {"sudo", "doas", "pkexec", "ssh"};
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    bool keeps = argv[1] && (!strcmp(argv[1], "-E") || !strncmp(argv[1], "--preserve-env", 14));
    for (size_t i = 0; !keeps && i < sizeof programs / sizeof programs[0]; i++) {
        if (!strcmp(name, programs[i]))
            fprintf(stderr, "unimem: %s does not hand the environment on: put `unimem run --` behind it\n", name);
    }
}

void um_cmd_announce_all(const struct um_cmd_environment *env)
{
    for (unsigned i = 0; i < env->count; i++) {
        const struct um_cmd_env_var *var = &env->var[i];
        fprintf(stderr, "unimem: %s=%s (%s)\n", var->name, var->value, um_cmd_env_origin_text(var->origin));
    }
}

int um_cmd_announce_refusal(const struct um_cmd_mpi *mpi)
{
    const struct um_cmd_mpi_refusal *refusal = um_cmd_mpi_refusal_of(mpi);
    if (!refusal)
        return 0;
    fputs("unimem: ", stderr);
    print_mpi(mpi);
    fprintf(stderr, "%s%s cannot use unimem: %s.\nWhat to do: %s.\n", *mpi->device ? ", built for " : "", mpi->device,
            refusal->reason, refusal->remedy);
    return -ENOTSUP;
}
