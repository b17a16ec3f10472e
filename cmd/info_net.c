/* See cmd/info.h. How other hosts are reached. */
#include "child.h"
#include "info.h"

#include "base/log.h"
#include "machine/net/config.h"
#include "machine/net/inner.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char section[] = "Other hosts (shm,net)";

enum { TIMEOUT_MS = 20000, VARIABLE = 64 };

static char why_not[512];

static void keep(enum um_log_level level, const char *text)
{
    if (level <= UM_LOG_WARN)
        snprintf(why_not, sizeof why_not, "%s", text);
}

/* In the child: writes "tcp at 10.1.2.3 (eth0)", or "!" and why there is no provider. */
static void ask(void *arg, int out)
{
    struct um_net_inner inner;
    struct um_net_addr_wire name;
    char address[UM_NET_NAME_TEXT];
    (void)arg;
    um_log_set_sink(keep);
    if (um_net_inner_open(&inner, false) != 0 || um_net_inner_name(&inner, &name) != 0) {
        dprintf(out, "!%s", why_not);
        return;
    }
    um_net_name_text(&name, address);
    dprintf(out, "%s at %s (%s)", inner.info->fabric_attr->prov_name, address,
            inner.info->domain_attr->name ? inner.info->domain_attr->name : "no name");
    um_net_inner_close(&inner);
}

/* Returns the first parameter whose value is refused, with its variable in name; NULL: none is. */
static const struct um_machine_param *settings_take(char name[VARIABLE])
{
    static const char prefix[] = "FI_UNIMEM_";
    for (size_t i = 0; i < UM_NET_PARAMS; i++) {
        snprintf(name, VARIABLE, "%s%s", prefix, um_net_params[i].key);
        for (char *c = name + sizeof prefix - 1; *c; c++)
            *c = (char)toupper((unsigned char)*c);
        if (um_net_params[i].set(getenv(name)) != 0)
            return &um_net_params[i];
    }
    return NULL;
}

void um_cmd_info_net(struct um_cmd_report *report)
{
    char text[600];
    char name[VARIABLE];
    const struct um_machine_param *wrong = settings_take(name);
    if (wrong) {
        struct um_cmd_row *row =
            um_cmd_report_add(report, section, "provider", UM_NO, "%s=%.60s is refused", name, getenv(name));
        row->lost = "every program that uses unimem: it refuses to start";
        row->remedy = wrong->allowed;
        return;
    }
    if (!um_net_is_wanted(true)) {
        um_cmd_report_add(report, section, "provider", UM_PLAIN, "switched off by FI_UNIMEM_NET=off");
        return;
    }
    um_cmd_child_run(ask, NULL, text, sizeof text, TIMEOUT_MS);
    if (*text && *text != '!') {
        um_cmd_report_add(report, section, "provider", UM_YES, "%s", text);
        return;
    }
    struct um_cmd_row *row =
        um_cmd_report_add(report, section, "provider", UM_NO, "%s", *text ? text + 1 : "libfabric does not answer");
    row->lost = "peers on other hosts, for programs that use the loader's libfabric";
    row->remedy = "docs/hosts.md";
}
