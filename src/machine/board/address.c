/* Addresses: the board's part of them. board.h. */
#include "machine/address.h"
#include "machine/board/board.h"

#include "base/log.h"

#include <errno.h>

struct um_addr um_board_addr(const struct unimem_mailbox_address *address)
{
    struct um_addr addr = {{UM_ADDR_VERSION | (uint64_t)UM_ADDR_BOARD << UM_ADDR_KINDS_SHIFT}};
    addr.word[UM_BOARD_ADDR_FIRST] = (uint64_t)UM_BOARD_ADDR_VERSION << 48 | (uint64_t)(address->node & 0xffff) << 32 |
                                     address->context; /* the node has 16 bits, as in JOIN */
    addr.word[UM_BOARD_ADDR_FIRST + 1] = (uint64_t)address->generation << 32 | address->mailbox;
    return addr;
}

struct unimem_mailbox_address um_board_mailbox(const struct um_addr *addr)
{
    const uint64_t *part = &addr->word[UM_BOARD_ADDR_FIRST];
    return (struct unimem_mailbox_address){.node = (uint32_t)(part[0] >> 32) & 0xffff,
                                           .context = (uint32_t)part[0],
                                           .mailbox = (uint32_t)part[1],
                                           .generation = (uint32_t)(part[1] >> 32)};
}

void um_board_port_addr(const struct um_port *port, struct um_addr *addr_p)
{
    const struct um_addr addr = um_board_addr(&((const struct um_board_port *)port)->address);
    um_addr_set_part(port->machine, &addr, addr_p);
}

int um_board_addr_check(const struct um_port *port, const struct um_addr *addr, bool is_last)
{
    const unsigned version = (unsigned)(addr->word[UM_BOARD_ADDR_FIRST] >> 48);
    int ret = um_addr_header_check(port->machine, addr, is_last);
    if (ret)
        return ret;
    if (version == UM_BOARD_ADDR_VERSION)
        return 0;
    if (is_last)
        um_log(UM_LOG_WARN,
               "an address has no part of the board's machine that this process knows (0x%04x, ours is 0x%04x): "
               "give every process the same FI_UNIMEM_MACHINE and the same unimem",
               version, (unsigned)UM_BOARD_ADDR_VERSION);
    return -EPROTO;
}
