/* The parameters of the machine over another provider, and the launcher's environment. config.h. */
#include "machine/net/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct {
    enum { USE_AUTO, USE_ON, USE_OFF } use;
    char provider[UM_NET_CHOICE_MAX]; /* "": none was named */
    char address[UM_NET_CHOICE_MAX];
    uint64_t timeout; /* seconds */
} chosen = {.timeout = UM_NET_TIMEOUT};

const struct um_machine_param um_net_params[UM_NET_PARAMS] = {
    {.key = "net",
     .help = "Whether, and over which provider, an endpoint with the machine net reaches other hosts. Allowed: auto, "
             "unless the launcher says that all ranks are on this host and another machine carries their messages; "
             "on; off; or the name of a libfabric provider, such as tcp or tcp;ofi_rxm (default: auto, over tcp)",
     .allowed = "auto, on, off, or the name of a libfabric provider that reaches other hosts",
     .set = um_net_set_use},
    {.key = "net_address",
     .help = "The address of this host that the machine net takes, as the inner provider has it: 10.1.2.3 (default: "
             "that of the first interface that is not the loopback)",
     .allowed = "an address or a host name of this host",
     .set = um_net_set_address},
    {.key = "net_timeout",
     .help =
         "Seconds for which the host of a peer may not answer before it counts as gone, and what waits for the peer "
         "ends with an error (a peer that computes or is stopped is on a host that answers). Allowed: 1 to 86400; "
         "0: for ever (default: 60)",
     .allowed = "a number of seconds from 0 to 86400",
     .set = um_net_set_timeout},
};

/* True if the value has only letters, digits, -, _, . and the others, is not empty, and not too long. */
static bool is_name(const char *value, const char *others)
{
    static const char common[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    for (const char *c = value; *c; c++) {
        if (!strchr(common, *c) && !strchr(others, *c))
            return false;
    }
    return *value && strlen(value) < UM_NET_CHOICE_MAX;
}

int um_net_set_use(const char *value)
{
    const bool is_word = !value || !strcmp(value, "auto") || !strcmp(value, "on") || !strcmp(value, "off");
    if (value && (!strncmp(value, "unimem", 6) || !strcmp(value, "shm") || !strcmp(value, "sm2")))
        return -EINVAL; /* it cannot carry itself, and these reach no other host */
    if (!is_word && !is_name(value, ";"))
        return -EINVAL;
    chosen.use = !value || !strcmp(value, "auto") ? USE_AUTO : strcmp(value, "off") ? USE_ON : USE_OFF;
    chosen.provider[0] = 0;
    if (!is_word)
        memcpy(chosen.provider, value, strlen(value) + 1);
    return 0;
}

int um_net_set_address(const char *value)
{
    if (value && !is_name(value, ":%"))
        return -EINVAL;
    chosen.address[0] = 0;
    if (value)
        memcpy(chosen.address, value, strlen(value) + 1);
    return 0;
}

int um_net_set_timeout(const char *value)
{
    char *end = NULL;
    const unsigned long seconds = value && *value >= '0' && *value <= '9' ? strtoul(value, &end, 10) : UM_NET_TIMEOUT;
    if (value && (!end || *end || seconds > UM_NET_TIMEOUT_MAX))
        return -EINVAL;
    chosen.timeout = seconds;
    return 0;
}

uint64_t um_net_chosen_timeout_ns(void)
{
    return chosen.timeout * 1000000000u;
}

const char *um_net_chosen_provider(void)
{
    return *chosen.provider ? chosen.provider : NULL;
}

const char *um_net_chosen_address(void)
{
    return *chosen.address ? chosen.address : NULL;
}

/* Returns the variable's positive number; 0: it is not set, or is no number. */
static unsigned long number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : 0;
}

bool um_net_job_is_on_one_host(void)
{
    /* Ranks here, ranks in all: of MPICH's and Intel's hydra; of Open MPI (PRRTE sets these for its jobs, too). */
    static const char *const sizes[][2] = {{"MPI_LOCALNRANKS", "PMI_SIZE"},
                                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"}};
    static const char *const hosts[] = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"};
    /* MPI_Comm_spawn started this process (hydra, Open MPI): others, which these numbers leave out, wait for it. */
    if (number_of("PMI_SPAWNED") || getenv("OMPI_PARENT_PORT"))
        return false;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const unsigned long here = number_of(sizes[i][0]), all = number_of(sizes[i][1]);
        if (here && all)
            return here == all;
    }
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        if (number_of(hosts[i]))
            return number_of(hosts[i]) == 1;
    }
    return false;
}

bool um_net_is_wanted(bool alone)
{
    if (chosen.use != USE_AUTO)
        return chosen.use == USE_ON;
    return alone || !um_net_job_is_on_one_host();
}
