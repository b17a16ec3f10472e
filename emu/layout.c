/* The names of emu/layout.h. The number of the user is part of the name of a board, so that users do not meet by
 * accident. */
#include "emu/layout.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static socklen_t length_of(const struct sockaddr_un *address)
{
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address->sun_path + 1));
}

socklen_t emu_server_address(struct sockaddr_un *address_p, const char *board)
{
    *address_p = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address_p->sun_path + 1, sizeof(address_p->sun_path) - 1, "unimem-board.%u.%s", geteuid(), board);
    return length_of(address_p);
}

socklen_t emu_interrupt_address(struct sockaddr_un *address_p, uint64_t tag, uint32_t mailbox, uint32_t generation)
{
    *address_p = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address_p->sun_path + 1, sizeof(address_p->sun_path) - 1, "unimem-mailbox.%016llx.%u.%u",
             (unsigned long long)tag, mailbox, generation);
    return length_of(address_p);
}
