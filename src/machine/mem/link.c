/*
 * Links: a port's handles on its peers, what is mapped here of a peer's memory, and copies between private memories.
 *
 * Owns: struct um_mem_link. What the peer's port says of itself is checked before use. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

/* A peer's pages are missing for milliseconds while it moves them: how often one call looks, and how often it retries,
 * before it returns -EAGAIN. */
enum { UM_MOVE_LOOKS = 1000, UM_MOVE_TRIES = 8 };

int um_mem_link_open(struct um_port *base, const struct um_addr *addr, struct um_link **link_p)
{
    struct um_mem_port *port = (struct um_mem_port *)base;
    int ret = port->mapper->addr_check(port, addr, true);
    if (ret)
        return ret;
    struct um_mem_link *link = calloc(1, sizeof(*link));
    if (!link)
        return -ENOMEM;
    link->port = port;
    (void)um_addr_part(base->machine, addr, &link->addr);
    link->wake_handle = -1;
    link->is_apart = port->mapper->is_apart && port->mapper->is_apart(port, addr);
    link->base.machine = base->machine;
    *link_p = &link->base;
    return 0;
}

void um_mem_link_close(struct um_link *base)
{
    struct um_mem_link *link = (struct um_mem_link *)base;
    um_mem_link_cell_end(link);
    if (link->control.base)
        link->port->mapper->detach(&link->control);
    if (link->space.base)
        link->port->mapper->detach(&link->space);
    um_mem_frames_close(link->frames, link->port->mapper);
    link->port->mapper->wake_drop(link->wake_handle);
    free(link);
}

bool um_mem_link_alive(struct um_link *base)
{
    struct um_mem_link *link = (struct um_mem_link *)base;
    return link->port->mapper->alive(link->port, &link->addr, &link->mark);
}

void um_mem_link_wake(struct um_mem_link *link)
{
    struct um_mem_common_shm *peer = link->common;
    /*
     * sync: sleeper-wake (partner sleeper-arm). Wake first, then write: if this process dies in between, the sleeper is
     * awake all the same. If it could not be woken (no descriptor is left here) the word stays: another peer may wake
     * the sleeper.
     */
    uint32_t sleeping = um_load_relaxed_u32(&peer->sleeping);
    if (sleeping & 1 && um_mem_wake(link->port, &link->addr, &link->wake_handle))
        um_rmw_cas_u32(&peer->sleeping, sleeping, sleeping + 1);
}

/* Checks what the peer's port says of itself. */
static int peer_port_check(const struct um_mem_link *link, const struct um_mem_port_shm *peer, uint32_t lanes)
{
    if (peer->magic != UM_PORT_MAGIC || peer->nonce != um_mem_nonce(&link->addr))
        return -EHOSTUNREACH; /* another port, or another file, is in its place */
    if (peer->version != UM_WIRE_VERSION) {
        static struct um_log_limit limit;
        um_log_limited(&limit, UM_LOG_WARN,
                       "a peer speaks wire version %u, this process %u: use the same unimem in every process",
                       peer->version, (unsigned)UM_WIRE_VERSION);
        return -EPROTO;
    }
    if (um_load_acquire_u32(&peer->state) != UM_PORT_OPEN) /* sync: port-seen (partner port-ready) */
        return -ECONNREFUSED;
    if (peer->lanes != lanes || peer->area_stride != UM_AREA_SIZE || peer->lane_offset != UM_PAGE ||
        peer->area_offset != um_mem_port_area_offset(lanes))
        return -EPROTO;
    return 0;
}

/* Maps the peer's first page, then, as the number of lanes is known, all control blocks. */
static int control_map(struct um_mem_link *link)
{
    struct um_mem_port *port = link->port;
    struct um_mem_mapping page;
    int ret = port->mapper->attach(port, &link->addr, 0, UM_PAGE, &page);
    if (ret)
        return ret;
    const struct um_mem_port_shm *peer = page.base;
    um_mem_page_observe(port, peer);
    uint32_t lanes = um_load_relaxed_u32(&peer->lanes);
    ret = lanes > 0 && lanes <= UM_LANES_LIMIT ? peer_port_check(link, peer, lanes)
          : peer->magic == UM_PORT_MAGIC       ? -EPROTO
                                               : -EHOSTUNREACH;
    port->mapper->detach(&page);
    if (ret)
        return ret;
    struct um_mem_mapping control;
    ret = port->mapper->attach(port, &link->addr, 0, um_mem_port_area_offset(lanes), &control);
    if (ret)
        return ret;
    um_mem_page_observe(port, control.base);
    ret = peer_port_check(link, control.base, lanes);
    if (ret) {
        port->mapper->detach(&control);
        return ret;
    }
    link->control = control;
    link->common = &((struct um_mem_port_shm *)um_mem_coherent(&control))->common;
    link->lanes = lanes;
    link->nonce_at = um_load_relaxed_u64(&((const struct um_mem_port_shm *)control.base)->nonce_at);
    return 0;
}

/* Checks that the mapped port is the peer's. As a rule this is the first look, while only the owner has written to it.
 */
static int control_prove(struct um_mem_link *link)
{
    if (um_mem_link_alive(&link->base))
        return 0;
    link->port->mapper->detach(&link->control);
    return -ECONNREFUSED;
}

int um_mem_link_map_control(struct um_mem_link *link)
{
    static struct um_log_limit elsewhere;
    if (link->control.base)
        return 0;
    int ret = control_map(link);
    if (ret == 0)
        ret = control_prove(link);
    if (ret == -EHOSTUNREACH)
        um_log_limited(&elsewhere, UM_LOG_WARN,
                       "an address leads to something else than its endpoint: the peer's process has closed it or "
                       "ended, and the process id or descriptor is another one's by now; or the peer is on another "
                       "host with the same boot id (a copy of a running virtual machine), which unimem cannot reach "
                       "this way");
    return ret;
}

/* True if this is the peer's space: another space, or another file, may have taken its place. */
static bool peer_space_is_right(const struct um_mem_space_shm *shm, uint64_t nonce)
{
    /* sync: space-seen (partner space-ready) */
    return um_load_acquire_u32(&shm->state) == UM_PORT_OPEN && shm->magic == UM_SPACE_MAGIC &&
           shm->version == UM_WIRE_VERSION && shm->nonce == nonce;
}

int um_mem_link_map_space(struct um_mem_link *link)
{
    struct um_mem_port *port = link->port;
    struct um_mem_mapping space;
    if (link->space.base)
        return 0;
    int ret = um_mem_link_map_control(link);
    if (ret)
        return ret;
    const struct um_mem_port_shm *peer = link->control.base;
    uint32_t handle = um_load_relaxed_u32(&peer->space);
    bool own = um_mem_is_own(link); /* then shared memory is not read */
    if (own && um_mem_own_space_handle(&link->addr, &handle) != 0)
        return -ENOENT;
    if (handle == UM_NO_HANDLE)
        return -ENOENT;
    ret = port->mapper->space_attach(port, &link->addr, handle, &space);
    if (ret)
        return ret;
    if (!own && !peer_space_is_right(space.base, um_load_relaxed_u64(&peer->space_nonce))) {
        port->mapper->detach(&space);
        return -ENOENT;
    }
    link->space = space;
    return 0;
}

/* ---- private copies ---- */

/*
 * Waits for a moment after a copy that found the peer's pages missing. 0: they may have been moving, try again;
 * -EAGAIN: the peer is moving them now, for an unknown time; -EFAULT: they do not exist.
 */
static int link_await_pages(struct um_mem_link *link, int try, uint32_t *seen_p)
{
    if (!link->space.base)
        return -EFAULT;
    const struct um_mem_space_shm *shm = link->space.base;
    um_fence_full(); /* sync: pages-away (partner pages-moving) */
    uint32_t moving = um_load_acquire_u32(&shm->moving);
    for (int i = 0; moving % 2 && i < UM_MOVE_LOOKS; i++) {
        um_cpu_relax();
        uint32_t now = um_load_acquire_u32(&shm->moving); /* sync: pages-away (partner pages-moving) */
        if (now != moving)
            break; /* moved, or moving the next ones: they were there in between */
    }
    bool news = try == 0 || moving != *seen_p;
    *seen_p = moving;
    if (!news && moving % 2 == 0)
        return -EFAULT;
    return news && try < UM_MOVE_TRIES ? 0 : -EAGAIN;
}

/*
 * Maps what a copy needs. The peer's port tells where its process holds the nonce, which proves whose memory is copied.
 * The space, at which a failed copy looks, is mapped beforehand, too: mapped later, it might come to lie where the
 * program has just unmapped a buffer of the copy, and the next try would take it for that buffer.
 */
static int link_copy_begin(struct um_mem_link *link)
{
    if (!link->port->config.private_copy || link->is_apart)
        return -EPERM;
    int ret = um_mem_link_map_control(link);
    if (ret == 0)
        (void)um_mem_link_map_space(link); /* a peer without a space moves no pages */
    return ret == -ECONNREFUSED || ret == -EHOSTUNREACH ? -ESRCH : ret ? -EPERM : 0;
}

int um_mem_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p)
{
    struct um_mem_link *link = (struct um_mem_link *)base;
    struct um_mem_port *port = link->port;
    uint32_t seen = 0;
    int refused = link_copy_begin(link);
    (void)transfer_p; /* a copy ends in this call */
    if (refused)
        return refused;
    const struct um_mem_copy_peer peer = {.nonce_at = link->nonce_at,
                                          .proven_at = &link->proven_at,
                                          .doors = copy->write ? &((struct um_mem_port_shm *)link->control.base)->doors
                                                               : NULL};
    for (int try = 0;; try++) {
        int ret = port->mapper->copy(port, &link->addr, copy, &peer);
        if (ret != -EFAULT)
            return ret;
        ret = link_await_pages(link, try, &seen);
        if (ret)
            return ret;
    }
}

/* ---- shareable memory ---- */

/* Shareable memory lies in the file that the peer's space names, each page at the offset of its address. That the peer
 * says so of an address proves nothing: a page that is not its memory reads as zero, and is nobody else's. */
static unsigned char *frame_map(struct um_mem_link *link, uint64_t number)
{
    const struct um_mem_mapper *mapper = link->port->mapper;
    const struct um_mem_space_shm *shm = link->space.base;
    struct um_mem_mapping map;
    if (mapper->memory_attach(link->port, &link->addr, um_load_relaxed_u32(&shm->memory), number << UM_FRAME_SHIFT,
                              (size_t)1 << UM_FRAME_SHIFT, &map) != 0)
        return NULL;
    unsigned char *base = map.base;
    /* if the peer has died, this may be the file of another process */
    if (um_mem_link_alive(&link->base) && um_mem_frames_add(&link->frames, number, &map) == 0)
        return base;
    mapper->detach(&map);
    return NULL;
}

void *um_mem_peer_memory(struct um_link *base, uint64_t addr, bool is_stored, size_t *len_p)
{
    struct um_mem_link *link = (struct um_mem_link *)base;
    const uint64_t number = addr >> UM_FRAME_SHIFT, offset = addr - (number << UM_FRAME_SHIFT);
    unsigned char *frame = um_mem_frames_find(link->frames, number);
    if (!frame && !link->frames_end && link->port->mapper->memory_attach) {
        frame = um_mem_link_map_space(link) == 0 ? frame_map(link, number) : NULL;
        link->frames_end = !frame;
    }
    const uint64_t left = (UINT64_C(1) << UM_FRAME_SHIFT) - offset;
    if (*len_p > left)
        *len_p = (size_t)left;
    if (frame && is_stored)
        um_mem_frames_populate(link->frames, number, offset, *len_p);
    return frame ? frame + offset : NULL;
}
