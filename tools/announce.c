/* tools/announce.h */
#include "announce.h"
#include "provider.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int um_announce_forced(const char *word, struct um_recognised *found)
{
    enum um_mpi_kind kind = um_mpi_by_word(word);
    if (!kind && strcmp(word, "any") != 0) {
        fprintf(stderr, "unimem: --mpi %s: known are mpich, openmpi, intel, sos, and any for the variables of all.\n",
                word);
        return -EINVAL;
    }
    *found = (struct um_recognised){.mpi = {.kind = kind, .has_ofi = true}};
    return 0;
}

/* "MPICH 5.0.2 (/.../libmpi.so.12)" */
static void print_mpi(const struct um_mpi *mpi)
{
    fprintf(stderr, "%s%s%s", um_mpi_title(mpi->kind), *mpi->version ? " " : "", mpi->version);
    if (*mpi->library)
        fprintf(stderr, " (%s)", mpi->library);
}

void um_announce_choice(const struct um_recognised *found, const struct um_env *env)
{
    fputs("unimem: ", stderr);
    if (found->mpi.kind)
        print_mpi(&found->mpi);
    else
        fputs("no MPI recognised in this command: set up for all that unimem knows,", stderr);
    if (env->other_provider)
        fprintf(stderr, "; FI_PROVIDER=%s is yours and wins: libunimem-fi.so will not be used\n", env->other_provider);
    else
        fprintf(stderr, " over %s/%s\n", env->dir, UM_PROVIDER_LIBRARY);
}

void um_announce_doubts(const struct um_recognised *found, const struct um_env *env)
{
    if (um_recognised_mismatch(found))
        fprintf(stderr,
                "unimem: %s belongs to %s, but %s is linked with %s: its ranks may not find each other. Use the\n"
                "  launcher of the MPI that the program was built with.\n",
                found->launcher_word, um_mpi_title(found->launcher.kind), found->program_word,
                um_mpi_title(found->mpi.kind));
    for (unsigned i = 0; i < env->count; i++) {
        const struct um_env_var *var = &env->var[i];
        bool differs = var->origin == UM_ENV_KEPT && var->ours && strcmp(var->value, var->ours) != 0;
        /* FI_PROVIDER has its place in the line before, and another provider may well want other settings. */
        if (differs && !env->other_provider && strcmp(var->name, "FI_PROVIDER") != 0)
            fprintf(stderr, "unimem: %s=%s is yours and wins over %s: unimem may not be used\n", var->name, var->value,
                    var->ours);
    }
}

void um_announce_all(const struct um_env *env)
{
    for (unsigned i = 0; i < env->count; i++) {
        const struct um_env_var *var = &env->var[i];
        fprintf(stderr, "unimem: %s=%s (%s)\n", var->name, var->value, um_env_origin_text(var->origin));
    }
}

int um_announce_refusal(const struct um_mpi *mpi)
{
    const struct um_mpi_refusal *refusal = um_mpi_refusal(mpi);
    if (!refusal)
        return 0;
    fputs("unimem: ", stderr);
    print_mpi(mpi);
    fprintf(stderr, "%s%s cannot use unimem: %s.\nWhat to do: %s.\n", *mpi->device ? ", built for " : "", mpi->device,
            refusal->reason, refusal->remedy);
    return -ENOTSUP;
}
