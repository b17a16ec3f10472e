/*
 * Spaces of one host: the table is a memfd like a port's; adopted memory lies in one more, each page at its own
 * address.
 *
 * Owns nothing else. Threading: machine.h.
 */
#include "machine/shm/shm.h"

#include "base/atomic.h"
#include "base/log.h"
#include "machine/shm/adopt.h"
#include "machine/shm/contact.h"
#include "machine/shm/heap.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int um_shm_space_create(struct um_space *space)
{
    int fd = um_shm_memory_create(UM_SPACE_SIZE);
    if (fd < 0)
        return fd;
    void *base = mmap(NULL, UM_SPACE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        int error = errno;
        um_log(UM_LOG_WARN, "cannot map %d bytes of address space: %s; raise ulimit -v", (int)UM_SPACE_SIZE,
               strerror(error));
        close(fd);
        return -error;
    }
    madvise(base, UM_SPACE_SIZE, MADV_DONTFORK);
    space->memory = base;
    space->handle = (uint32_t)fd;
    space->nonce = um_shm_nonce();
    return 0;
}

void um_shm_space_destroy(struct um_space *space)
{
    munmap(space->memory, UM_SPACE_SIZE);
    close((int)space->handle);
}

int um_shm_adopt(struct um_space *space, uint64_t base, uint64_t len, const char **why_p)
{
    int fd = um_adopt_fd();
    if (fd < 0) {
        *why_p = "there is no file for adopted memory";
        return fd;
    }
    int ret = um_adopt((uintptr_t)base, (size_t)len, why_p);
    if (ret == 0)
        um_store_relaxed_u32(&space->shm->memory, (uint32_t)fd);
    return ret;
}

bool um_shm_is_shareable(struct um_space *space, uint64_t base, uint64_t len)
{
    bool is = um_shm_heap_holds((uintptr_t)base, (size_t)len) && um_adopt_is_heaps();
    if (is)
        um_store_relaxed_u32(&space->shm->memory, (uint32_t)um_adopt_fd());
    return is;
}

void um_shm_disown(struct um_space *space, uint64_t base, uint64_t len)
{
    (void)space;
    um_adopt_release((uintptr_t)base, (size_t)len);
}

int um_shm_space_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t handle, struct um_mapping *map_p)
{
    const struct um_shm_part part = {.offset = 0, .len = UM_SPACE_SIZE};
    const struct um_shm_file file = {.number = handle, .passed = UM_CONTACT_SPACE};
    return um_shm_peer_map(port, addr, &file, &part, map_p);
}

int um_shm_window_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t memory,
                         const struct um_exposure *region, struct um_mapping *map_p, unsigned char **base_p)
{
    const struct um_shm_file file = {.number = memory, .passed = UM_CONTACT_ADOPTED};
    const uint64_t first = region->base & ~(uint64_t)(UM_PAGE - 1);
    const uint64_t end = (region->base + region->len + UM_PAGE - 1) & ~(uint64_t)(UM_PAGE - 1);
    const struct um_shm_part part = {
        .offset = first, .len = end - first, .read_only = !(region->access & UM_ACCESS_REMOTE_WRITE)};
    int ret = memory == UM_NO_HANDLE || end <= first ? -ENOENT : um_shm_peer_map(port, addr, &file, &part, map_p);
    if (ret == 0)
        *base_p = (unsigned char *)map_p->base + (region->base - first);
    return ret;
}

bool um_shm_is_own(const struct um_mem_port *port, const struct um_addr *addr)
{
    const struct um_shm_addr *own = um_shm_addr_of(&port->addr);
    const struct um_shm_addr *peer = um_shm_addr_of(addr);
    return peer->pid == own->pid && peer->start == own->start && peer->pid_space == own->pid_space &&
           (uint32_t)getpid() == own->pid;
}
