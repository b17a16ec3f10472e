/*
 * Ports of mapped memory: opening, closing, housekeeping.
 *
 * Owns: struct um_mem_port, the layout of the port's memory. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    UM_TICK_LANES = 40,                  /* lanes whose senders are checked per second, at least */
    UM_MEMORY_DEFAULT = 64 * 1024 * 1024 /* bytes of grown lanes */
};

static void port_memory_init(struct um_mem_port *port)
{
    struct um_mem_port_shm *shm = (void *)port->memory;
    uint64_t memory_max = port->config.memory_max ? port->config.memory_max : UM_MEMORY_DEFAULT;
    const uint64_t wide_max = memory_max / 2 / UM_WIDE_BYTES;
    port->shm = shm;
    if (!port->coherent)
        port->coherent = port->memory;
    port->common = &((struct um_mem_port_shm *)port->coherent)->common;
    shm->magic = UM_PORT_MAGIC;
    shm->version = UM_WIRE_VERSION;
    shm->lanes = port->lanes;
    shm->lane_offset = UM_PAGE;
    shm->area_offset = um_mem_port_area_offset(port->lanes);
    shm->area_stride = UM_AREA_SIZE;
    shm->nonce = um_mem_nonce(&port->addr);
    shm->want_fence = port->mapper->barrier == NULL || port->fence;
    shm->space = port->space ? port->space->handle : UM_NO_HANDLE;
    shm->space_nonce = port->space ? port->space->nonce : 0;
    shm->grown_max = memory_max / UM_AREA_SIZE;
    port->wide_max = wide_max < UM_WIDE_RINGS ? (uint32_t)wide_max : UM_WIDE_RINGS;
    shm->wide_max = port->wide_max;
    shm->wake = port->wake;
    shm->nonce_at = port->nonce_at;
    um_mem_publish(port, shm, offsetof(struct um_mem_port_shm, common)); /* before the state */
    um_store_release_u32(&shm->state, UM_PORT_OPEN);                     /* sync: port-ready (partner port-seen) */
    um_mem_publish(port, &shm->state, UM_LINE);
}

static int port_pipe_open(struct um_mem_port *port)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        int error = errno;
        um_log(UM_LOG_WARN, "no pipe for wake-ups: %s; raise the limit of open files (ulimit -n)", strerror(error));
        return -error;
    }
    port->wait_read = fds[0];
    port->wait_write = fds[1];
    return 0;
}

int um_mem_port_open(const struct um_machine *machine, const struct um_mem_mapper *mapper,
                     const struct um_port_config *config, struct um_port **port_p)
{
    UM_UNCANCELLED;
    struct um_mem_port *port = calloc(1, sizeof(*port));
    if (!port)
        return -ENOMEM;
    port->port.machine = machine;
    port->mapper = mapper;
    port->config = *config;
    port->space = (struct um_mem_space *)config->space;
    port->sleeps = 1;
    port->wait_set = -1;
    port->lanes = config->lanes_max ? config->lanes_max : UM_LANES_DEFAULT;
    if (port->lanes > UM_LANES_LIMIT)
        port->lanes = UM_LANES_LIMIT;
    um_list_init(&port->events);
    um_list_init(&port->lanes_watched);
    um_list_init(&port->rx_crowded);
    port->rx = calloc(port->lanes, sizeof(struct um_mem_rx *));
    port->hot = calloc(port->lanes, sizeof(struct um_mem_rx *));
    int ret = -ENOMEM;
    if (!port->rx || !port->hot)
        goto free_arrays;
    ret = port_pipe_open(port);
    if (ret)
        goto free_arrays;
    ret = mapper->create(port, um_mem_port_memory_size(port->lanes));
    if (ret)
        goto close_pipe;
    port_memory_init(port);
    um_mem_own_port_add(port);
    *port_p = &port->port;
    return 0;

close_pipe:
    close(port->wait_read);
    close(port->wait_write);
free_arrays:
    free(port->rx);
    free(port->hot);
    free(port);
    return ret;
}

void um_mem_port_close(struct um_port *base)
{
    UM_UNCANCELLED;
    struct um_mem_port *port = (struct um_mem_port *)base;
    um_mem_own_port_remove(port);
    um_store_relaxed_u32(&port->common->counters, 0); /* late operations are not counted: the numbers will be reused */
    um_store_release_u32(&port->shm->state, UM_PORT_CLOSED);
    um_mem_publish(port, &port->shm->state, UM_LINE);
    um_fence_full(); /* sync: port-closing (partners contact-check, wake-check) */
    um_store_relaxed_u32(&port->common->sleeping,
                         0); /* peers must not write into the pipe, or into a file that gets its number */
    uint32_t free_run = 0;
    /* Beyond the lanes that ever joined, only senders in first contact have lanes. */
    for (uint32_t n = 0; n < port->lanes && (n < port->lanes_high || free_run < 64); n++) {
        struct um_mem_lane_shm *ctl = um_mem_lane_ctl(port->memory, n);
        struct um_mem_rx *rx = port->rx[n];
        free_run = um_load_relaxed_u64(um_mem_lane_sender(port->coherent, n)) ? 0 : free_run + 1;
        if (free_run && !rx)
            continue;
        uint32_t state = um_load_relaxed_u32(&ctl->state);
        um_store_release_u32(&ctl->state, (state & ~(uint32_t)UM_LANE_HOT) | UM_LANE_CLOSED);
        um_mem_receiver_publish(port, ctl);
        if (rx) {
            um_mem_rx_publish(rx); /* and wakes a sender that sleeps on this lane */
            port->mapper->wake_drop(rx->wake_handle);
            um_mem_rx_cell_end(rx);
            free(rx);
        }
    }
    port->mapper->destroy(port);
    close(port->wait_read);
    close(port->wait_write);
    free(port->rx);
    free(port->hot);
    free(port);
}

void um_mem_port_addr(const struct um_port *base, struct um_addr *addr_p)
{
    um_addr_set_part(base->machine, &((const struct um_mem_port *)base)->addr, addr_p);
}

void um_mem_port_set_counters(struct um_port *base, uint32_t counters)
{
    um_store_relaxed_u32(&((struct um_mem_port *)base)->common->counters, counters);
}

int um_mem_addr_check(const struct um_port *base, const struct um_addr *addr, bool is_last)
{
    const struct um_mem_port *port = (const struct um_mem_port *)base;
    struct um_addr part;
    int ret = port->mapper->addr_check(port, addr, is_last);
    if (ret || is_last || !port->mapper->is_here)
        return ret;
    (void)um_addr_part(base->machine, addr, &part);
    return port->mapper->is_here(port, &part) ? 0 : -EHOSTUNREACH;
}

/* Checks one lane: has its sender died? */
static void lane_tick(struct um_mem_port *port, uint32_t number)
{
    struct um_mem_rx *rx = port->rx[number];
    if (!rx) {
        struct um_mem_lane_shm *ctl = um_mem_lane_ctl(port->memory, number);
        uint64_t *sender_at = um_mem_lane_sender(port->coherent, number);
        uint64_t sender = um_load_acquire_u64(sender_at); /* sync: sender-look (partner lane-claim) */
        if (sender == 0 || port->mapper->sender_alive(port, sender))
            return;
        /* If the sender had introduced itself, its committed records are still delivered. */
        if (um_mem_rx_join(port, number) != 0 || port->rx[number])
            return;
        /* A claim whose claimer died before its introduction: the lane is free again. */
        uint32_t state = um_load_relaxed_u32(&ctl->state);
        um_store_relaxed_u32(&ctl->state, ((state >> UM_LANE_INC_SHIFT) + 1) << UM_LANE_INC_SHIFT);
        um_mem_receiver_publish(port, ctl);
        um_store_release_u64(sender_at, 0); /* sync: lane-free (partner lane-claim) */
        return;
    }
    um_mem_rx_check_closing(rx);
    rx = port->rx[number];
    if (!rx || port->mapper->alive(port, &rx->origin, &rx->mark))
        return;
    um_mem_rx_check_closing(rx); /* it may have left in good order after the look above */
    rx = port->rx[number];
    if (rx)
        um_mem_rx_sender_died(rx);
}

/* A sender takes the first free lane: beyond the lanes that ever joined, the search ends after 64 free ones in a row.
 */
bool um_mem_gather(struct um_port *base)
{
    struct um_mem_port *port = (struct um_mem_port *)base;
    uint32_t free_run = 0;
    for (uint32_t n = 0; n < port->lanes && (n < port->lanes_high || free_run < 64); n++) {
        /* sync: sender-look (partner lane-claim) */
        free_run = um_load_acquire_u64(um_mem_lane_sender(port->coherent, n)) ? 0 : free_run + 1;
        if (free_run == 0 && !port->rx[n])
            (void)um_mem_rx_join(port, n);
    }
    return !um_list_is_empty(&port->events);
}

void um_mem_tick(struct um_port *base)
{
    struct um_mem_port *port = (struct um_mem_port *)base;
    if (port->mapper->serve)
        port->mapper->serve(port);
    uint32_t high = port->lanes_high < port->lanes ? port->lanes_high + 1 : port->lanes;
    uint64_t now = um_clock_ns(), passed = now - port->tick_at;
    uint32_t looks = um_clock_share(high > UM_TICK_LANES ? high : UM_TICK_LANES, passed);
    port->tick_at = now;
    for (uint32_t i = 0; i < looks && i < high; i++) {
        if (port->tick_next >= high)
            port->tick_next = 0;
        uint32_t number = port->tick_next++;
        if (um_load_relaxed_u64(um_mem_lane_sender(port->coherent, number)) && number >= port->lanes_high)
            port->lanes_high = number + 1;
        lane_tick(port, number);
    }
}
