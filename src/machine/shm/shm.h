/*
 * Private to the shm mapper: one host's memory. The address, and what identity, mapper and copy share.
 *
 * Must not know lanes. Threading: machine.h; the process-wide facts are found once.
 */
#ifndef UM_MACHINE_SHM_SHM_H
#define UM_MACHINE_SHM_SHM_H

#include "machine/mem/mem.h"
#include "machine/shm/detour.h"

#define UM_SHM_PORT_NAME "unimem-port" /* as /proc shows the memory of ports */

/* The low half of a lane's sender word says what the high half is: a pid, or the number of a contact. */
enum { UM_SHM_SENDER_PID = 1, UM_SHM_SENDER_CONTACT = 3 };

/*
 * The address of a port: docs/protocol.md section 2. All but the nonce are hints where to look for the port. Only its
 * memory, with the nonce in it, proves that it is the right one.
 */
struct um_shm_addr {
    uint8_t version; /* with kinds the header: address.h */
    uint8_t kinds;
    uint16_t partition; /* processes of different partitions do not share memory */
    uint32_t boot;      /* hash of the kernel's boot id: distinguishes hosts */
    uint32_t process;   /* um_shm_process() */
    uint16_t memory_fd; /* the port's memory, openable through /proc/PID/fd */
    uint16_t pid_space; /* low bits of the pid namespace's inode */
    uint64_t nonce;     /* random; also lies in the port's memory, and at um_mem_port_shm.nonce_at in its process */
};
static_assert(sizeof(struct um_shm_addr) == sizeof(uint64_t) * UM_ADDR_LOCAL_WORDS, "docs/protocol.md section 2");
static_assert(offsetof(struct um_shm_addr, nonce) == 16, "docs/protocol.md section 2");

/* A pid has at most 22 bits (PID_MAX_LIMIT of Linux). The other bits hold the low bits of the start time. */
enum { UM_SHM_PID_BITS = 22 };

/* The pid, in the process's own pid namespace, and the low bits of its start time (proc(5), stat field 22). */
static inline uint32_t um_shm_process(uint32_t pid, uint32_t start)
{
    return pid | start << UM_SHM_PID_BITS;
}

static inline uint32_t um_shm_pid(const struct um_shm_addr *addr)
{
    return addr->process & ((UINT32_C(1) << UM_SHM_PID_BITS) - 1);
}

/* What is the same for every port of this process. */
struct um_shm_self {
    uint32_t boot;
    uint32_t pid;
    uint32_t start;
    uint16_t pid_space;
};

/* 0, or an error already logged. May be called in a forked child, too. */
int um_shm_self_get(struct um_shm_self *self_p);
/* Random bits; never 0. */
uint64_t um_shm_nonce(void);
static inline const struct um_shm_addr *um_shm_addr_of(const struct um_addr *addr)
{
    return (const struct um_shm_addr *)(const void *)addr;
}
int um_shm_addr_check(const struct um_mem_port *port, const struct um_addr *addr, bool is_last);
bool um_shm_is_here(const struct um_mem_port *port, const struct um_addr *addr);
/* mark: as in mapper.h; NULL: only the process is looked at. */
bool um_shm_alive(struct um_mem_port *port, const struct um_addr *addr, struct um_mem_mark *mark);
bool um_shm_sender_alive(struct um_mem_port *port, uint64_t sender);
/* Is the address one of another pid namespace? */
bool um_shm_is_apart(const struct um_mem_port *port, const struct um_addr *addr);

int um_shm_copy(struct um_mem_port *port, const struct um_addr *addr, const struct um_copy *copy,
                const struct um_mem_copy_peer *known);

/* Creates, sizes and seals memory without a name. The descriptor, or a negative errno, logged. */
int um_shm_memory_create(size_t size);
/* Maps a part of such a file, this process's or a peer's. Pages are allocated when they are touched, also where
 * mlockall(2) locks new mappings. NULL: *why_p says why. */
void *um_shm_map(size_t len, int prot, int fd, off_t offset, const char **why_p);
/* A part of a file, in bytes; page-aligned. */
struct um_shm_part {
    size_t offset;
    size_t len;
    bool read_only;
    uint64_t *stale; /* not NULL: the file may be one that can shrink; if it does, this becomes UINT64_MAX (fault.h) */
};
/* A file of a peer: its descriptor number in the peer's process, and, where that cannot be opened, the enum
 * um_shm_contact_file that it was passed as (contact.h). */
struct um_shm_file {
    uint32_t number;
    uint32_t passed;
};
/*
 * Makes *map_p of the len bytes that are mapped at base, without the first inset bytes; on failure unmaps them. stale:
 * as in struct um_shm_part. 0; the errors of um_shm_shrink_guard().
 */
int um_shm_mapping_keep(unsigned char *base, size_t len, size_t inset, uint64_t *stale, struct um_mem_mapping *map_p);
/* Maps a part of a peer's file. Errors as lane_open's, logged, except -EHOSTUNREACH: this file cannot be mapped. */
int um_shm_peer_map(struct um_mem_port *port, const struct um_addr *addr, const struct um_shm_file *file,
                    const struct um_shm_part *part, struct um_mem_mapping *map_p);
void um_shm_detach(struct um_mem_mapping *map);
/* Opens a peer's wake-up pipe, which has that number in its process. A descriptor, or a negative errno. */
int um_shm_peer_pipe_open(struct um_mem_port *port, const struct um_addr *addr, uint32_t wake);

/* space.c */
int um_shm_space_create(struct um_mem_space *space);
void um_shm_space_destroy(struct um_mem_space *space);
int um_shm_space_adopt(struct um_mem_space *space, uint64_t base, uint64_t len, struct um_mem_place *place_p,
                       const char **why_p);
bool um_shm_is_shareable(struct um_mem_space *space, uint64_t base, uint64_t len, struct um_mem_place *place_p);
int um_shm_share(struct um_mem_space *space, const struct um_region_desc *what, struct um_mem_place *place_p,
                 const char **why_p);
void um_shm_unshare(struct um_mem_space *space, const struct um_mem_place *place);
bool um_shm_can_wait(struct um_mem_space *space, uint64_t base, uint64_t len);
int um_shm_space_adopt_more(struct um_mem_space *space, const struct um_region_desc *what,
                            struct um_mem_partial *partial, struct um_mem_place *place_p, const char **why_p);
void um_shm_partial_end(struct um_mem_space *space, const struct um_region_desc *what, struct um_mem_partial *partial);
uint64_t um_shm_contents(struct um_mem_space *space, uint64_t base, uint64_t len);
void um_shm_disown(struct um_mem_space *space, uint64_t base, uint64_t len);
int um_shm_space_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t handle,
                        struct um_mem_mapping *map_p);
int um_shm_window_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t adopted,
                         const struct um_mem_place *place, struct um_mem_window *window);
int um_shm_memory_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t adopted, uint64_t at,
                         size_t len, struct um_mem_mapping *map_p);
bool um_shm_is_own(const struct um_mem_port *port, const struct um_addr *addr);

/* State of one port. */
struct um_shm_port {
    int memory_fd;
    size_t size;
    uint64_t *nonce;                  /* what um_mem_port_shm.nonce_at points to */
    struct um_shm_contacts *contacts; /* NULL: peers of this pid namespace only */
    struct um_shm_detour detour;
    bool copy_refused_logged;
};

#endif
