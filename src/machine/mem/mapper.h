/*
 * What a machine of mapped memory needs from the system: memory that peers can map, identities, wake-ups, copies
 * between private memories.
 *
 * The lanes in mem/ are the same for every mapper; a mapper knows where memory comes from and how processes are
 * identified. Errors and threading: as machine.h. A mapper logs what a user can act on.
 */
#ifndef UM_MACHINE_MEM_MAPPER_H
#define UM_MACHINE_MEM_MAPPER_H

#include "machine/machine.h"

struct um_mem_port;
struct um_mem_space;
struct um_mem_window;

/* A peer's memory as this process sees it. */
struct um_mem_mapping {
    void *base;
    void *coherent; /* where the words that stay coherent are reached, at the same offsets; NULL: at base, too */
    size_t len;
    bool is_guarded; /* the mapper's */
    void *state;     /* the mapper's */
};

/* What a copy has to know of the peer. */
struct um_mem_copy_peer {
    uint64_t nonce_at;              /* um_mem_port_shm.nonce_at */
    uint64_t *proven_at;            /* ns; when the process was last seen to be the peer's */
    struct um_mem_doors_shm *doors; /* for a write: the doors of its port (gate.h); for a read: NULL */
};

/* The place of a region that peers can map. */
struct um_mem_place {
    uint32_t file;   /* as the mapper names it, for peers */
    uint64_t offset; /* of the region's first byte there */
};

/* Memory on its way to being mapped, a part at a time. All zero: nothing has moved. */
struct um_mem_partial {
    uint64_t done;  /* bytes that have moved */
    uint64_t place; /* the mapper's */
};

/* What is remembered of a peer from the first look at it on; all zero before. */
struct um_mem_mark {
    uint64_t file;  /* the file of its port's memory, as the mapper identifies it */
    uint32_t start; /* when its process began */
};

struct um_mem_mapper {
    /* Makes zeroed memory of size bytes that peers can map; fills port->addr, port->memory, port->coherent (as
     * um_mem_mapping has it), port->wake and port->nonce_at. */
    int (*create)(struct um_mem_port *port, size_t size);
    void (*destroy)(struct um_mem_port *port);
    /* Gives the pages back to the system; they read as zero afterwards, here and in every later mapping. */
    void (*punch)(struct um_mem_port *port, size_t offset, size_t len);

    /*
     * For memory that is not coherent: the port's own, and what attach() gave it. publish: from the return on, a peer
     * that observes the lines of the range sees what this process wrote into them, a whole line at once. observe: loads
     * of these lines find what was published last; what this process itself wrote there and did not publish may be
     * lost. Lines may also be published and observed at any other time. Both are ordered with all other accesses of the
     * calling thread. Such a port has port->fence and no barrier, so that every commit and every answer takes the way
     * that publishes. Words in struct um_mem_common_shm, um_mem_lane_shm.sender and spaces stay coherent: they are
     * never in such a range, nor are the doors of a port (gate.h), which are used on coherent memory only. On coherent
     * memory the machine's table has the plain functions in the place of the observed ones (mem.h). NULL: memory is
     * coherent.
     */
    void (*publish)(struct um_mem_port *port, const void *at, size_t len);
    /* NULL: publish is, too. */
    void (*observe)(struct um_mem_port *port, const void *at, size_t len);

    /* As machine.h. */
    int (*addr_check)(const struct um_mem_port *port, const struct um_addr *addr, bool is_last);
    /* Can the port of an address that passes the check be seen here? The address may lead elsewhere. Logs nothing.
     * NULL: always. */
    bool (*is_here)(const struct um_mem_port *port, const struct um_addr *addr);
    /* Maps len bytes at offset of a peer's port memory. -EHOSTUNREACH: what is in its place cannot be a port. */
    int (*attach)(struct um_mem_port *port, const struct um_addr *addr, size_t offset, size_t len,
                  struct um_mem_mapping *map_p);
    void (*detach)(struct um_mem_mapping *map);

    /* Makes zeroed memory of UM_SPACE_SIZE bytes that peers can map; fills memory, handle and nonce of the space. */
    int (*space_create)(struct um_mem_space *space);
    void (*space_destroy)(struct um_mem_space *space);
    /* Can peers map this memory as it is, without adoption? NULL: never. */
    bool (*is_shareable)(struct um_mem_space *space, uint64_t base, uint64_t len, struct um_mem_place *place_p);
    /*
     * Makes private memory of this process mappable by peers. On failure a negative errno, the reason in *why_p, and
     * nothing has changed. Each call counts; disown() gives one count back. NULL: never.
     */
    int (*adopt)(struct um_mem_space *space, uint64_t base, uint64_t len, struct um_mem_place *place_p,
                 const char **why_p);
    void (*disown)(struct um_mem_space *space, uint64_t base, uint64_t len);
    /*
     * The same in parts of some milliseconds, by another thread, while the program runs. can_wait: is the memory too
     * much to adopt at once, and can it be adopted later? adopt_more: moves the next part; *place_p is valid once it
     * has returned 0 and partial->done is len. On an error earlier parts stay moved, and the part may be tried again.
     * partial_end: no more parts follow; all that has moved is one count, for disown(base, done). contents: bytes that
     * would have to move. NULL: memory is always adopted at once.
     */
    bool (*can_wait)(struct um_mem_space *space, uint64_t base, uint64_t len);
    int (*adopt_more)(struct um_mem_space *space, const struct um_region_desc *what, struct um_mem_partial *partial,
                      struct um_mem_place *place_p, const char **why_p);
    void (*partial_end)(struct um_mem_space *space, const struct um_region_desc *what, struct um_mem_partial *partial);
    uint64_t (*contents)(struct um_mem_space *space, uint64_t base, uint64_t len);
    /*
     * Lets peers map memory that the program itself shares (a shared mapping of a file). -ENOENT: it is no such memory;
     * -EPERM with *why_p: only peers that map the file themselves can (their window_attach() finds out, from the
     * region's base); another negative errno with *why_p: peers cannot map it. Each call counts; unshare() gives one
     * count back. NULL: never. Not called where adopt is NULL.
     */
    int (*share)(struct um_mem_space *space, const struct um_region_desc *what, struct um_mem_place *place_p,
                 const char **why_p);
    void (*unshare)(struct um_mem_space *space, const struct um_mem_place *place);
    /* Maps the space of a peer by the handle in its port. */
    int (*space_attach)(struct um_mem_port *port, const struct um_addr *addr, uint32_t handle,
                        struct um_mem_mapping *map_p);
    /*
     * Makes a peer's mapped region reachable here; adopted: the memory of adopted pages, as the peer's space names it.
     * Fills base of the window (the region's first byte) and map (the mapping that detach() is to end, if any). If the
     * memory disappears, accesses end in a stand-in, and window.changes becomes UINT64_MAX: the window is no longer
     * current.
     */
    int (*window_attach)(struct um_mem_port *port, const struct um_addr *addr, uint32_t adopted,
                         const struct um_mem_place *place, struct um_mem_window *window);
    /*
     * Maps len bytes of a peer's shareable memory (is_shareable()), from the peer's virtual address `at` on; adopted:
     * as for window_attach(). at and len are multiples of 64 KiB. NULL: never.
     */
    int (*memory_attach)(struct um_mem_port *port, const struct um_addr *addr, uint32_t adopted, uint64_t at,
                         size_t len, struct um_mem_mapping *map_p);
    /* Is the peer's memory this process's own? NULL: never. */
    bool (*is_own)(const struct um_mem_port *port, const struct um_addr *addr);
    /* Is the peer's process invisible in this pid namespace? Then there are no copies between private memories, and no
     * locks that name it. NULL: never. */
    bool (*is_apart)(const struct um_mem_port *port, const struct um_addr *addr);
    /* Serves requests of peers; bounded. Called at ticks, sometimes while nothing arrives, and after a sleep.
     * port->wait_set is set if a request shall end a sleep. NULL: there are no requests. */
    void (*serve)(struct um_mem_port *port);

    bool (*alive)(struct um_mem_port *port, const struct um_addr *addr, struct um_mem_mark *mark);
    /* Does the process that claimed a lane (um_mem_lane_shm.sender) still live? For claims that no ready followed. */
    bool (*sender_alive)(struct um_mem_port *port, uint64_t sender);
    /* The word that this process writes into um_mem_lane_shm.sender of that peer's lanes (its memory is attached). */
    uint64_t (*sender_word)(const struct um_mem_port *port, const struct um_addr *addr);

    /*
     * Opens a handle that makes the peer's wait fd readable; wake_drop() closes it. wake: as the peer's port names it,
     * which may be another file by now: the caller makes sure that the port is still open afterwards. A negative errno,
     * logged.
     */
    int (*wake_open)(struct um_mem_port *port, const struct um_addr *addr, uint32_t wake, int *handle_p);
    void (*wake)(struct um_mem_port *port, const struct um_addr *addr, int handle);
    void (*wake_drop)(int handle);

    /* As transfer_start, but the copy ends in this call. */
    int (*copy)(struct um_mem_port *port, const struct um_addr *addr, const struct um_copy *copy,
                const struct um_mem_copy_peer *peer);

    /* Orders this thread's earlier stores before its later loads, and the same in every peer. NULL: peers must fence.
     */
    void (*barrier)(void);
};

#endif
