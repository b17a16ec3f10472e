/*
 * Spaces of one host: the table is a memfd like a port's; adopted memory lies in another one, each page at the offset
 * of its address.
 *
 * Owns nothing else. Threading: machine.h.
 */
#include "machine/shm/shm.h"

#include "base/atomic.h"
#include "base/cancel.h"
#include "base/log.h"
#include "machine/shm/adopt/adopt.h"
#include "machine/shm/contact/contact.h"
#include "machine/shm/heap.h"
#include "machine/shm/shared.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int um_shm_space_create(struct um_mem_space *space)
{
    UM_UNCANCELLED;
    int fd = um_shm_memory_create(UM_SPACE_SIZE);
    if (fd < 0)
        return fd;
    const char *why;
    void *base = um_shm_map(UM_SPACE_SIZE, PROT_READ | PROT_WRITE, fd, 0, &why);
    if (!base) {
        um_log(UM_LOG_WARN, "cannot map %d bytes of address space: %s", (int)UM_SPACE_SIZE, why);
        close(fd);
        return -ENOMEM;
    }
    madvise(base, UM_SPACE_SIZE, MADV_DONTFORK);
    space->memory = base;
    space->handle = (uint32_t)fd;
    space->nonce = um_shm_nonce();
    return 0;
}

void um_shm_space_destroy(struct um_mem_space *space)
{
    UM_UNCANCELLED;
    munmap(space->memory, UM_SPACE_SIZE);
    close((int)space->handle);
}

/* The place of adopted memory, or of the heap's: one file, each page at the offset of its address. */
static struct um_mem_place adopted_place(struct um_mem_space *space, uint64_t base)
{
    const struct um_mem_place place = {.file = (uint32_t)um_shm_adopt_fd(), .offset = base};
    um_store_relaxed_u32(&space->shm->memory, place.file);
    return place;
}

int um_shm_space_adopt(struct um_mem_space *space, uint64_t base, uint64_t len, struct um_mem_place *place_p,
                       const char **why_p)
{
    int fd = um_shm_adopt_fd();
    if (fd < 0) {
        *why_p = "there is no file for adopted memory";
        return fd;
    }
    int ret = um_shm_adopt((uintptr_t)base, (size_t)len, why_p);
    if (ret == 0)
        *place_p = adopted_place(space, base);
    return ret;
}

/* space->mapper_state: the descriptor of the heap's file + 1, once it is known that adoption uses that file, too. To
 * find that out takes system calls. */
bool um_shm_is_shareable(struct um_mem_space *space, uint64_t base, uint64_t len, struct um_mem_place *place_p)
{
    if (!um_shm_heap_holds((uintptr_t)base, (size_t)len))
        return false;
    if (space->mapper_state) {
        *place_p = (struct um_mem_place){.file = (uint32_t)((uintptr_t)space->mapper_state - 1), .offset = base};
        return true;
    }
    if (!um_shm_adopt_is_heaps())
        return false;
    *place_p = adopted_place(space, base);
    space->mapper_state = (void *)(uintptr_t)(place_p->file + UINT64_C(1));
    return true;
}

int um_shm_share(struct um_mem_space *space, const struct um_region_desc *what, struct um_mem_place *place_p,
                 const char **why_p)
{
    int fd;
    bool writable = what->access & UM_ACCESS_REMOTE_WRITE;
    (void)space;
    int ret = um_shm_shared_find((uintptr_t)what->base, (size_t)what->len, writable, &fd, &place_p->offset, why_p);
    if (ret == 0)
        place_p->file = (uint32_t)fd;
    return ret;
}

void um_shm_unshare(struct um_mem_space *space, const struct um_mem_place *place)
{
    (void)space;
    um_shm_shared_drop((int)place->file);
}

bool um_shm_can_wait(struct um_mem_space *space, uint64_t base, uint64_t len)
{
    (void)space;
    return um_shm_adopt_can_wait((uintptr_t)base, (size_t)len);
}

int um_shm_space_adopt_more(struct um_mem_space *space, const struct um_region_desc *what,
                            struct um_mem_partial *partial, struct um_mem_place *place_p, const char **why_p)
{
    struct um_shm_adopt_part part = {.done = (size_t)partial->done, .place = (uintptr_t)partial->place};
    int fd = um_shm_adopt_fd();
    *why_p = "there is no file for adopted memory";
    int ret = fd < 0 ? fd : um_shm_adopt_more((uintptr_t)what->base, (size_t)what->len, &part, why_p);
    *partial = (struct um_mem_partial){.done = part.done, .place = part.place};
    if (ret == 0)
        *place_p = adopted_place(space, what->base);
    return ret;
}

void um_shm_partial_end(struct um_mem_space *space, const struct um_region_desc *what, struct um_mem_partial *partial)
{
    struct um_shm_adopt_part part = {.done = (size_t)partial->done, .place = (uintptr_t)partial->place};
    (void)space;
    um_shm_adopt_part_end((uintptr_t)what->base, (size_t)what->len, &part);
    partial->place = 0;
}

uint64_t um_shm_contents(struct um_mem_space *space, uint64_t base, uint64_t len)
{
    (void)space;
    return um_shm_adopt_contents((uintptr_t)base, (size_t)len);
}

void um_shm_disown(struct um_mem_space *space, uint64_t base, uint64_t len)
{
    (void)space;
    um_shm_adopt_release((uintptr_t)base, (size_t)len);
}

int um_shm_space_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t handle,
                        struct um_mem_mapping *map_p)
{
    const struct um_shm_part part = {.offset = 0, .len = UM_SPACE_SIZE};
    const struct um_shm_file file = {.number = handle, .passed = UM_CONTACT_SPACE};
    int ret = um_shm_peer_map(port, addr, &file, &part, map_p);
    return ret == -EHOSTUNREACH ? -ECONNREFUSED : ret; /* the peer's port was found, so it has ended since */
}

/* Reaches the region through a mapping that this process has of the same file. */
static int window_join(const struct um_mem_port *port, const struct um_addr *addr, struct um_mem_window *window)
{
    struct um_window *w = &window->window;
    const uint64_t inset = w->region.base % (uint64_t)sysconf(_SC_PAGESIZE), len = inset + w->region.len;
    if (um_shm_is_apart(port, addr) || len < inset)
        return -ENOENT;
    unsigned char *base = um_shm_shared_join(um_shm_pid(um_shm_addr_of(addr)), (uintptr_t)(w->region.base - inset), len,
                                             w->region.access & UM_ACCESS_REMOTE_WRITE);
    if (!base)
        return -ENOENT;
    int ret = um_shm_mapping_keep(base, len, inset, &w->changes, &window->map);
    if (ret == 0)
        w->base = base + inset;
    return ret;
}

int um_shm_window_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t adopted,
                         const struct um_mem_place *place, struct um_mem_window *window)
{
    struct um_window *w = &window->window;
    if (place->file == UM_JOIN_HANDLE)
        return window_join(port, addr, window);
    const bool is_adopted = place->file == adopted;
    const struct um_shm_file file = {.number = place->file, .passed = UM_CONTACT_ADOPTED};
    const uint64_t inset = place->offset % UM_PAGE;
    const struct um_shm_part part = {.offset = place->offset - inset,
                                     .len = inset + w->region.len,
                                     .read_only = !(w->region.access & UM_ACCESS_REMOTE_WRITE),
                                     .stale = is_adopted ? NULL : &w->changes};
    if (place->file > INT_MAX || part.len < inset || part.offset + part.len < part.len ||
        (!is_adopted && um_shm_is_apart(port, addr)))
        return -ENOENT;
    int ret = um_shm_peer_map(port, addr, &file, &part, &window->map);
    if (ret == 0)
        w->base = (unsigned char *)window->map.base + inset;
    return ret;
}

int um_shm_memory_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t adopted, uint64_t at,
                         size_t len, struct um_mem_mapping *map_p)
{
    const struct um_shm_file file = {.number = adopted, .passed = UM_CONTACT_ADOPTED};
    const struct um_shm_part part = {.offset = at, .len = len};
    if (adopted > INT_MAX || at + len < at)
        return -ENOENT;
    int ret = um_shm_peer_map(port, addr, &file, &part, map_p);
    if (ret == 0) /* a core dump would fill the holes of the peer's file */
        madvise(map_p->base, map_p->len, MADV_DONTDUMP);
    return ret;
}

bool um_shm_is_own(const struct um_mem_port *port, const struct um_addr *addr)
{
    const struct um_shm_addr *own = um_shm_addr_of(&port->addr);
    const struct um_shm_addr *peer = um_shm_addr_of(addr);
    return peer->boot == own->boot && peer->process == own->process && peer->pid_space == own->pid_space &&
           (uint32_t)getpid() == um_shm_pid(own);
}
