/*
 * What a machine of mapped memory needs from below: memory that peers can map, identities, wake-ups, private copies.
 *
 * The lanes in mem/ are the same for every mapper; a mapper knows where memory comes from and who is who.
 * Errors and threading: as machine.h. A mapper logs what a user can act on.
 */
#ifndef UM_MACHINE_MEM_MAPPER_H
#define UM_MACHINE_MEM_MAPPER_H

#include "machine/machine.h"

struct um_mem_port;

/* A peer's memory as this process sees it. */
struct um_mapping {
    void *base;
    size_t len;
};

/* A copy between a peer's private memory and this process's. */
struct um_copy {
    bool write; /* to the peer */
    const struct um_piece *remote;
    size_t remote_count;
    const struct iovec *local;
    size_t local_count;
    size_t len; /* bytes */
};

struct um_mapper {
    /* Makes zeroed memory of size bytes that peers can map; fills port->addr and port->memory. */
    int (*create)(struct um_mem_port *port, size_t size);
    void (*destroy)(struct um_mem_port *port);
    /* Gives the pages back; they read as zero afterwards. */
    void (*punch)(struct um_mem_port *port, size_t offset, size_t len);

    int (*addr_check)(const struct um_mem_port *port, const struct um_addr *addr);
    /* Maps len bytes at offset of a peer's port memory. */
    int (*attach)(struct um_mem_port *port, const struct um_addr *addr, size_t offset, size_t len,
                  struct um_mapping *map_p);
    void (*detach)(struct um_mapping *map);

    /* Makes zeroed memory of UM_SPACE_SIZE bytes that peers can map; fills memory, handle and nonce of the space. */
    int (*space_create)(struct um_space *space);
    void (*space_destroy)(struct um_space *space);
    /* Can peers map this memory as it is? Then memory of the space's header names what they map. NULL: never. */
    bool (*is_shareable)(struct um_space *space, uint64_t base, uint64_t len);
    /*
     * Makes private memory of this process such that peers can map it, and names what they map in memory of the space's
     * header. Otherwise a negative errno, *why_p in words, and nothing has changed. Counted; disown() gives one count
     * back. NULL: never.
     */
    int (*adopt)(struct um_space *space, uint64_t base, uint64_t len, const char **why_p);
    void (*disown)(struct um_space *space, uint64_t base, uint64_t len);
    /* Maps the space of a peer by the handle in its port. */
    int (*space_attach)(struct um_mem_port *port, const struct um_addr *addr, uint32_t handle,
                        struct um_mapping *map_p);
    /*
     * Makes a peer's adopted region reachable here; memory: as its space names it. *base_p: the region's first byte;
     * *map_p: what detach() is to end, if anything.
     */
    int (*window_attach)(struct um_mem_port *port, const struct um_addr *addr, uint32_t memory,
                         const struct um_exposure *region, struct um_mapping *map_p, unsigned char **base_p);
    /* Is the peer's memory this process's own? */
    bool (*is_own)(const struct um_mem_port *port, const struct um_addr *addr);
    /* Does the peer's process have no number here? Then there are no private copies, and no locks that name it. NULL:
     * never. */
    bool (*is_apart)(const struct um_mem_port *port, const struct um_addr *addr);
    /* Gives peers what they asked for; bounded. Called at ticks, at times while nothing comes, and after a sleep; sets
     * port->wait_set if asking is to end a sleep. NULL: nobody asks. */
    void (*serve)(struct um_mem_port *port);

    bool (*alive)(struct um_mem_port *port, const struct um_addr *addr);
    /* Does the process that claimed a lane (um_lane_shm.owner) still live? For claims that never got ready. */
    bool (*owner_alive)(struct um_mem_port *port, uint64_t owner);
    /* What this process writes there, in a lane of that peer (attached before). */
    uint64_t (*owner_word)(const struct um_mem_port *port, const struct um_addr *addr);

    /*
     * What it takes to make the peer's wait fd readable, if it is still the peer's (the caller sees to that); drop()
     * ends it. A negative errno, logged.
     */
    int (*wake_open)(struct um_mem_port *port, const struct um_addr *addr, int *handle_p);
    void (*wake)(struct um_mem_port *port, const struct um_addr *addr, int handle);
    void (*wake_drop)(int handle);

    /* As link_read and link_write. */
    int (*copy)(struct um_mem_port *port, const struct um_addr *addr, const struct um_copy *copy);

    /* Orders this thread's earlier stores before its later loads, and the same in every peer. NULL: peers must fence.
     */
    void (*barrier)(void);

    /* Fault injection (sim): true makes a claim or a poll behave as if the lane were full or empty. NULL: never. */
    bool (*stall)(struct um_mem_port *port);
};

#endif
