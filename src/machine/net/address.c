/* Addresses: the part of the machine over another provider. net.h. */
#include "machine/net/net.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

void um_net_addr_set(const struct um_net_port *port, struct um_addr *addr_p)
{
    struct um_addr addr = {{0}};
    memcpy(&addr.word[UM_NET_ADDR_FIRST], &port->name, sizeof(port->name));
    um_addr_set_part(port->base.machine, &addr, addr_p);
}

struct um_net_addr_wire um_net_addr_part(const struct um_addr *addr)
{
    struct um_net_addr_wire part;
    memcpy(&part, &addr->word[UM_NET_ADDR_FIRST], sizeof(part));
    return part;
}

static bool is_whole(const struct um_net_addr_wire *part)
{
    static const unsigned char zero[UM_NET_NAME_MAX];
    return part->len && part->len <= UM_NET_NAME_MAX && part->nonce &&
           memcmp(part->name + part->len, zero, sizeof(zero) - part->len) == 0;
}

/* Returns 0, or a negative errno: why this port cannot reach an address with this part. */
static int part_check(const struct um_net_port *port, const struct um_net_addr_wire *part, bool is_logged)
{
    static struct um_log_limit broken, other, closed;
    const struct um_net_addr_wire *own = &port->name;
    if (!is_whole(part)) {
        if (is_logged)
            um_log_limited(&broken, UM_LOG_WARN, "an address has no part of the machine net that makes sense");
        return -EPROTO;
    }
    if (!port->is_open) {
        if (is_logged)
            um_log_limited(
                &closed, UM_LOG_WARN,
                "a peer is on another host, and the machine net is off in this process: set FI_UNIMEM_NET=on "
                "(the launcher says that all ranks are on this host, or FI_UNIMEM_NET=off is set)");
        return -EHOSTUNREACH;
    }
    if (part->inner == own->inner && part->format == own->format && part->len == own->len)
        return 0;
    if (is_logged)
        um_log_limited(
            &other, UM_LOG_WARN,
            "a peer uses another libfabric provider below unimem than this process (%s), or another version of "
            "unimem: give every process the same FI_UNIMEM_NET, an FI_UNIMEM_NET_ADDRESS of the same kind, "
            "and the same unimem",
            port->inner.info->fabric_attr->prov_name);
    return -EPROTO;
}

int um_net_addr_check(const struct um_port *base, const struct um_addr *addr, bool is_last)
{
    const struct um_net_addr_wire part = um_net_addr_part(addr);
    int ret = um_addr_header_check(base->machine, addr, is_last);
    return ret ? ret : part_check((const struct um_net_port *)base, &part, is_last);
}
