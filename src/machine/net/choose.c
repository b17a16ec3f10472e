/*
 * choose.h: the rule.
 *
 * tcp, by itself or, where it has no endpoint of type FI_EP_RDM, by ofi_rxm; the first interface that is not the
 * loopback, if there is one. It is safe to call fi_getinfo() here, while an endpoint is opened; it is not in a
 * provider's init and cleanup. FI_PROVIDER=unimem restricts the application, not this machine: with UM_NET_HIDDEN,
 * fi_getinfo() finds the other providers, too.
 */
#include "machine/net/choose.h"

#include "machine/net/config.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* OFI_GETINFO_HIDDEN, which is in no public header; since libfabric 1.10. */
#define UM_NET_HIDDEN (1ULL << 60)
#define UM_NET_API    FI_VERSION(1, 17)

#define PROVIDER "tcp"

/* Only tcp is asked for RMA, which reads bodies: rma.h. */
static struct fi_info *hints_new(const char *provider)
{
    struct fi_info *hints = um_net_api.dupinfo(NULL);
    if (!hints)
        return NULL;
    hints->caps = strcmp(provider, PROVIDER) == 0 ? FI_MSG | FI_RMA : FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->fabric_attr->prov_name = strdup(provider);
    if (hints->fabric_attr->prov_name)
        return hints;
    um_net_api.freeinfo(hints);
    return NULL;
}

static bool is_loopback(const struct fi_info *info)
{
    return info->domain_attr->name && !strcmp(info->domain_attr->name, "lo");
}

/* Returns the first fi_info of exactly that provider: a list for "tcp" has "tcp;ofi_rxm", too. One without a name comes
 * from a provider's own getinfo. */
static const struct fi_info *pick(const struct fi_info *list, const char *provider, bool loopback)
{
    for (const struct fi_info *info = list; info; info = info->next) {
        const char *name = info->fabric_attr->prov_name;
        if ((!name || strcmp(name, provider) == 0) && (loopback || !is_loopback(info)))
            return info;
    }
    return NULL;
}

/* -ENODATA: that provider has no endpoint that can be used; not logged. */
static int choose_from(const char *provider, const char *address, struct fi_info **info_p)
{
    struct fi_info *hints = hints_new(provider), *list = NULL;
    if (!hints)
        return -ENOMEM;
    int ret = um_net_api.getinfo(UM_NET_API, address, NULL, UM_NET_HIDDEN | (address ? FI_SOURCE : 0), hints, &list);
    um_net_api.freeinfo(hints);
    if (ret)
        return -ENODATA;
    const struct fi_info *found = pick(list, provider, address != NULL);
    if (!found)
        found = pick(list, provider, true);
    struct fi_info *info = found ? um_net_api.dupinfo(found) : NULL;
    um_net_api.freeinfo(list);
    if (!info)
        return found ? -ENOMEM : -ENODATA;
    if (!info->fabric_attr->prov_name && !(info->fabric_attr->prov_name = strdup(provider))) {
        um_net_api.freeinfo(info);
        return -ENOMEM;
    }
    *info_p = info;
    return 0;
}

static void none(const char *provider, const char *address)
{
    um_log(UM_LOG_WARN,
           "the machine net finds no endpoint of the libfabric provider %s%s%s: choose another one by FI_UNIMEM_NET "
           "(fi_info -t FI_EP_RDM lists them)%s",
           provider ? provider : PROVIDER, address ? " at the address " : "", address ? address : "",
           address ? ", or another address of this host by FI_UNIMEM_NET_ADDRESS" : "");
}

/* Chooses from the provider that was named, or from the first one by rule that is there. */
static int choose_among(const char *named, const char *address, struct fi_info **info_p)
{
    static const char *const by_rule[] = {PROVIDER, PROVIDER ";ofi_rxm"};
    int ret = -ENODATA;
    if (named)
        return choose_from(named, address, info_p);
    for (size_t i = 0; ret == -ENODATA && i < sizeof(by_rule) / sizeof(by_rule[0]); i++)
        ret = choose_from(by_rule[i], address, info_p);
    return ret;
}

/* True if libfabric has the provider, whatever the address. Then no provider file can help. */
static bool is_loaded(const char *named)
{
    struct fi_info *info;
    if (choose_among(named, NULL, &info) != 0)
        return false;
    um_net_api.freeinfo(info);
    return true;
}

static int choose(struct fi_info **info_p)
{
    static bool file_tried;
    const char *named = um_net_chosen_provider(), *address = um_net_chosen_address();
    int ret = um_net_library_load();
    if (ret)
        return ret;
    ret = choose_among(named, address, info_p);
    if (ret == -ENODATA && !file_tried && !is_loaded(named)) {
        file_tried = true;
        if (um_net_library_take_file(named ? named : PROVIDER) == 0)
            ret = choose_among(named, address, info_p);
    }
    if (ret == -ENODATA)
        none(named, address);
    return ret;
}

int um_net_info_choose(struct fi_info **info_p)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int ret = choose(info_p);
    pthread_mutex_unlock(&lock);
    return ret;
}
