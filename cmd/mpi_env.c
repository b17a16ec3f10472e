/* See cmd/mpi_env.h. */
#include "mpi_env.h"
#include "provider.h"

#include "machine/machines.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of a variable that names the provider to the MPI itself: it must agree with FI_PROVIDER. */
static const char the_provider[] = "unimem";

#define FOR(kind) (1u << UM_MPI_##kind)

/* The variables, in the order in which they are set and printed. */
static const struct plain {
    const char *name, *value;
    unsigned kinds;
    int from, until; /* the first version with it and the first without it; 0: all versions */
    bool is_free;    /* the job still uses unimem, and well, if the user has set another value */
} plain[] = {
    {"FI_PROVIDER", NULL, ~0u, 0, 0, false}, /* providers_for() */

    /* The netmod of MPICH that speaks libfabric. */
    {"MPIR_CVAR_CH4_NETMOD", "ofi", FOR(MPICH), 0, 0, false},
    /* Without it MPICH uses its own shared memory between ranks of one host, and no provider at all. */
    {"MPIR_CVAR_NOLOCAL", "1", FOR(MPICH), 0, 0, false},
    /* Without it MPICH 5.0 executes accumulates by messages: see man fi_unimem. */
    {"FI_UNIMEM_MPICH_ATOMICS", "1", FOR(MPICH), 0, 0, false},
    /*
     * MPICH allocates the buffers of a large collective anew in each call. If glibc's malloc returns them to the system
     * each time, zeroing and mapping the pages again takes several times as long as the MPI_Reduce itself. These are
     * the greatest values to which glibc raises both thresholds by itself.
     */
    {"MALLOC_MMAP_THRESHOLD_", "33554432", FOR(MPICH), 0, 0, true},
    {"MALLOC_TRIM_THRESHOLD_", "67108864", FOR(MPICH), 0, 0, true},

    /* The layer of Open MPI that leaves matching to the transport, and the transport that speaks libfabric. */
    {"OMPI_MCA_pml", "cm", FOR(OPENMPI), 0, 0, false},
    {"OMPI_MCA_mtl", "ofi", FOR(OPENMPI), 0, 0, false},
    {"OMPI_MCA_mtl_ofi_provider_include", the_provider, FOR(OPENMPI), 0, 5, false},
    {"OMPI_MCA_opal_common_ofi_provider_include", the_provider, FOR(OPENMPI), 5, 0, false},
    /*
     * One-sided communication: Open MPI chooses well by itself. It shares windows of MPI_Win_allocate between the ranks
     * of a host (osc/sm: nothing is faster); all others go to osc/rdma over btl/ofi, and that is unimem. Only osc/ucx
     * is excluded: it prints an error in every rank before it is skipped.
     */
    {"OMPI_MCA_osc", "^ucx", FOR(OPENMPI), 0, 0, true},

    /* Without it Intel MPI uses its own shared memory between ranks of one host, and no provider at all. */
    {"I_MPI_FABRICS", "ofi", FOR(INTEL), 0, 0, false},
    {"I_MPI_OFI_PROVIDER", the_provider, FOR(INTEL), 0, 0, false},

    {"SHMEM_OFI_PROVIDER", the_provider, FOR(SOS), 0, 0, false},
};

static_assert(1 + sizeof(plain) / sizeof(plain[0]) <= UM_ENV_MAX, "with FI_PROVIDER_PATH");

static bool applies(const struct plain *plain, const struct um_cmd_mpi *mpi)
{
    int major = um_cmd_mpi_major(mpi);
    if (mpi->kind != UM_MPI_NONE && !(plain->kinds & (1u << mpi->kind)))
        return false;
    return !major || ((!plain->from || major >= plain->from) && (!plain->until || major < plain->until));
}

static int var_format(struct um_cmd_env_var *var, const char *prefix, const char *dir, const char *rest)
{
    int n = snprintf(var->value, sizeof var->value, "%s%s%s%s", prefix, dir, rest ? ":" : "", rest ? rest : "");
    if (n >= 0 && (size_t)n < sizeof var->value)
        return 0;
    fprintf(stderr, "unimem: %s would be longer than %d bytes: shorten it.\n", var->name, UM_ENV_VALUE_MAX - 1);
    return -ENAMETOOLONG;
}

/*
 * True if dir is already the first directory of the list: `unimem run` inside `unimem run` must not make the list
 * longer.
 */
static bool list_begins_with(const char *list, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(list, dir, n) == 0 && (list[n] == '\0' || list[n] == ':');
}

/*
 * If the user has chosen another provider, FI_PROVIDER_PATH must stay as it is: once it is set, libfabric no longer
 * looks for its own loadable providers (verbs, efa, ...) in their usual places. Intel's libfabric has most of its
 * providers as such files: a new list names their folder, too.
 */
static int fill_provider_path(struct um_cmd_env_var *var, const struct um_cmd_environment *env,
                              const struct um_cmd_mpi *mpi)
{
    const char *own = getenv(var->name);
    bool brings = mpi->kind == UM_MPI_INTEL && *mpi->providers && !strchr(mpi->providers, ':');

    if (env->other_provider) {
        var->origin = own ? UM_ENV_KEPT : UM_ENV_UNUSED;
        return own ? var_format(var, "", own, NULL) : 0;
    }
    if (!own || !*own) {
        var->origin = UM_ENV_SET;
        return var_format(var, "", env->dir, brings ? mpi->providers : NULL);
    }
    /* A leading '@' asks libfabric to prefer providers by their order in the list: it must stay in front. */
    const char *at = own[0] == '@' ? "@" : "";
    const char *list = own + strlen(at);
    if (list_begins_with(list, env->dir)) {
        var->origin = UM_ENV_KEPT;
        return var_format(var, at, list, NULL);
    }
    var->origin = UM_ENV_EXTENDED;
    return var_format(var, at, env->dir, *list ? list : NULL);
}

bool um_cmd_env_goes_over_net(void)
{
    const char *names = getenv("FI_UNIMEM_MACHINE"), *use = getenv("FI_UNIMEM_NET");
    struct um_machines machines;
    bool has_net = false;
    if (!names || (use && !strcmp(use, "off")) || um_machines_named(names, &machines) != 0)
        return false;
    for (uint32_t i = 0; i < machines.count; i++)
        has_net |= !strcmp(machines.at[i]->name, "net");
    return has_net;
}

/*
 * In libfabric before 1.18 tcp is two providers, one upon the other, and the upper one does not find the lower one if
 * FI_PROVIDER leaves it out. So FI_PROVIDER names unimem and net's provider, by the part before its ';'. Other
 * variables tell Open MPI to take unimem alone.
 */
static const char *providers_for(const struct um_cmd_mpi *mpi)
{
    static char both[64];
    const char *use = getenv("FI_UNIMEM_NET");
    if ((mpi->kind != UM_MPI_OPENMPI && mpi->kind != UM_MPI_SOS) || !um_cmd_env_goes_over_net())
        return "unimem";
    if (!use || !*use || !strcmp(use, "auto") || !strcmp(use, "on"))
        use = "tcp";
    snprintf(both, sizeof both, "%s,%.*s", the_provider, (int)strcspn(use, ";"), use);
    return both;
}

static int fill_plain(struct um_cmd_env_var *var, const struct plain *plain, const struct um_cmd_environment *env,
                      const struct um_cmd_mpi *mpi)
{
    const char *own = getenv(var->name), *value = plain->value ? plain->value : providers_for(mpi);
    bool is_extended = false;
    if (own && !strcmp(plain->name, "FI_PROVIDER")) {
        is_extended = !strcmp(own, the_provider) && strcmp(value, own) != 0;
        if (is_extended || !*own)
            own = NULL; /* libfabric ignores an empty value, too */
    }
    if (value == the_provider && env->other_provider) {
        /* Open MPI and Intel MPI leave out some providers by default: name the user's, if the value is one name. */
        bool is_name = !strpbrk(env->other_provider, "^,");
        value = is_name ? env->other_provider : NULL;
    }
    var->ours = plain->is_free ? NULL : value;
    var->origin = own ? UM_ENV_KEPT : is_extended ? UM_ENV_EXTENDED : value ? UM_ENV_SET : UM_ENV_UNUSED;
    return own || value ? var_format(var, "", own ? own : value, NULL) : 0;
}

int um_cmd_env_fill(struct um_cmd_environment *env, const struct um_cmd_mpi *mpi)
{
    const char *provider = getenv("FI_PROVIDER");
    int ret = um_cmd_provider_dir(env->dir, sizeof env->dir);
    if (ret)
        return ret;

    env->other_provider = provider && *provider && um_cmd_provider_is_another(provider) ? provider : NULL;
    env->count = 0;
    struct um_cmd_env_var *var = &env->var[env->count++];
    *var = (struct um_cmd_env_var){.name = "FI_PROVIDER_PATH"};
    ret = fill_provider_path(var, env, mpi);
    for (size_t i = 0; !ret && i < sizeof plain / sizeof plain[0]; i++) {
        if (!applies(&plain[i], mpi))
            continue;
        var = &env->var[env->count++];
        *var = (struct um_cmd_env_var){.name = plain[i].name};
        ret = fill_plain(var, &plain[i], env, mpi);
    }
    return ret;
}

int um_cmd_env_apply(const struct um_cmd_environment *env)
{
    for (unsigned i = 0; i < env->count; i++) {
        const struct um_cmd_env_var *var = &env->var[i];
        const bool ours = var->origin == UM_ENV_SET || var->origin == UM_ENV_EXTENDED;
        if (!ours || setenv(var->name, var->value, 1) == 0)
            continue;
        const int error = errno;
        fprintf(stderr, "unimem: cannot set %s: %s\n", var->name, strerror(error));
        return -error;
    }
    return 0;
}

bool um_cmd_env_differs(const struct um_cmd_env_var *var)
{
    return var->origin == UM_ENV_KEPT && var->ours && strcmp(var->value, var->ours) != 0;
}

const char *um_cmd_env_origin_text(enum um_cmd_env_origin origin)
{
    switch (origin) {
    case UM_ENV_SET:
        return "set";
    case UM_ENV_EXTENDED:
        return "yours, extended";
    case UM_ENV_KEPT:
        return "yours, kept";
    case UM_ENV_UNUSED:
        return "left unset: FI_PROVIDER names another provider";
    }
    return "?";
}
