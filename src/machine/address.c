/* See address.h. */
#include "machine/address.h"

#include "base/log.h"

#include <errno.h>

int um_addr_header_check(const struct um_machine *machine, const struct um_addr *addr, bool is_logged)
{
    static struct um_log_limit none, old, other, lacks;
    const unsigned version = addr->word[0] & 0xff;
    if (version == UM_ADDR_VERSION && um_addr_has(machine, addr))
        return 0;
    if (!is_logged)
        return -EPROTO;
    if (addr->word[0] == 0)
        um_log_limited(&none, UM_LOG_WARN, "these bytes are not the address of a unimem endpoint");
    else if (version & 1)
        um_log_limited(&old, UM_LOG_WARN,
                       "an address of wire version 1: this process speaks version %u; use the same unimem in every "
                       "process",
                       (unsigned)UM_WIRE_VERSION);
    else if (version != UM_ADDR_VERSION)
        um_log_limited(&other, UM_LOG_WARN,
                       "a peer speaks wire version %u, this process %u: use the same unimem in every process",
                       version / 2, (unsigned)UM_WIRE_VERSION);
    else
        um_log_limited(&lacks, UM_LOG_WARN,
                       "an address has no part of the machine %s (its kinds are 0x%02x): give every process the same "
                       "FI_UNIMEM_MACHINE",
                       machine->name, (unsigned)(addr->word[0] >> UM_ADDR_KINDS_SHIFT & 0xff));
    return -EPROTO;
}
