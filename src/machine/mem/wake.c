/*
 * Waking a peer's port, and the barrier between a sleeper and the peers that have news for it (wait.c has the pattern).
 *
 * Owns: the handles of peers' wake-up pipes. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"

/* sync: none (those who call it carry the labels) */
void um_mem_port_barrier(struct um_mem_port *port)
{
    if (port->mapper->barrier)
        port->mapper->barrier();
    else
        um_fence_full();
}

/*
 * Opens the wake-up pipe of the port at that address; on failure leaves *handle as it is. A port stores that it is
 * closed before it closes its pipe. So if the port is still open after its pipe was opened here, that was the port's
 * pipe, and not a file that the process has opened since under the same number.
 */
static void pipe_open(struct um_mem_port *port, const struct um_addr *addr, int *handle)
{
    struct um_mem_mapping page;
    int opened = -1;
    if (port->mapper->attach(port, addr, 0, UM_PAGE, &page) != 0)
        return;
    const struct um_mem_port_shm *peer = page.base;
    um_mem_page_observe(port, peer);
    bool is = peer->magic == UM_PORT_MAGIC && um_load_relaxed_u64(&peer->nonce) == um_mem_nonce(addr) &&
              port->mapper->wake_open(port, addr, um_load_relaxed_u32(&peer->wake), &opened) == 0;
    um_fence_full(); /* sync: wake-check (partner port-closing) */
    um_mem_page_observe(port, peer);
    if (is && um_load_acquire_u32(&peer->state) == UM_PORT_OPEN)
        *handle = opened;
    else if (is)
        port->mapper->wake_drop(opened);
    port->mapper->detach(&page);
}

bool um_mem_wake(struct um_mem_port *port, const struct um_addr *addr, int *handle)
{
    if (*handle < 0)
        pipe_open(port, addr, handle);
    if (*handle >= 0)
        port->mapper->wake(port, addr, *handle);
    return *handle >= 0;
}
