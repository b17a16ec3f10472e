/* Ports, links, sleeping, and the table of the machine. board.h. */
#include "machine/board/board.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* ---- addresses ---- */

struct um_addr um_board_addr(const struct unimem_mailbox_address *address)
{
    struct um_addr addr = {{0}};
    addr.word[UM_BOARD_ADDR_FIRST] = (uint64_t)UM_BOARD_ADDR_VERSION << 48 | (uint64_t)(address->node & 0xffff) << 32 |
                                     address->context; /* node: as JOIN has it, 16 bits */
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

static void port_addr(const struct um_port *port, struct um_addr *addr_p)
{
    const struct um_addr addr = um_board_addr(&((const struct um_board_port *)port)->address);
    memcpy(&addr_p->word[UM_BOARD_ADDR_FIRST], &addr.word[UM_BOARD_ADDR_FIRST], sizeof(uint64_t) * UM_BOARD_ADDR_WORDS);
}

static int addr_check(const struct um_port *port, const struct um_addr *addr, bool is_last)
{
    const unsigned version = (unsigned)(addr->word[UM_BOARD_ADDR_FIRST] >> 48);
    (void)port;
    if (version == UM_BOARD_ADDR_VERSION)
        return 0;
    if (is_last)
        um_log(UM_LOG_WARN,
               "an address has no part of the board's machine that this process knows (0x%04x, ours is 0x%04x): "
               "give every process the same FI_UNIMEM_MACHINE and the same unimem",
               version, (unsigned)UM_BOARD_ADDR_VERSION);
    return -EPROTO;
}

/* ---- ports ---- */

static int wait_init(struct um_board_port *port)
{
    struct epoll_event readable = {.events = EPOLLIN};
    port->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    port->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (port->kick_fd >= 0 && port->wait_fd >= 0 &&
        epoll_ctl(port->wait_fd, EPOLL_CTL_ADD, port->kick_fd, &readable) == 0 &&
        epoll_ctl(port->wait_fd, EPOLL_CTL_ADD, um_board_api.mailbox_fd(port->mailbox), &readable) == 0)
        return 0;
    int ret = -errno;
    if (port->kick_fd >= 0)
        close(port->kick_fd);
    if (port->wait_fd >= 0)
        close(port->wait_fd);
    return ret;
}

/* Under the lock. */
static int port_begin(struct um_board_port *port)
{
    struct unimem_board *board;
    int ret = um_board_begin(&board);
    if (ret)
        return ret;
    ret = um_board_api.mailbox_open(board, &port->mailbox);
    if (ret) {
        um_log(UM_LOG_WARN, "the Unimem board gives no mailbox: %s", strerror(-ret));
        goto end_process;
    }
    ret = wait_init(port);
    if (ret) {
        um_log(UM_LOG_WARN, "an endpoint on the Unimem board cannot sleep: %s", strerror(-ret));
        goto close_mailbox;
    }
    um_board_api.mailbox_get_address(port->mailbox, &port->address);
    um_board_ports_add(port);
    return 0;

close_mailbox:
    um_board_api.mailbox_close(port->mailbox);
end_process:
    um_board_end();
    return ret;
}

static int port_open(const struct um_port_config *config, struct um_port **port_p)
{
    struct um_board_port *port = calloc(1, sizeof(*port));
    if (!port)
        return -ENOMEM;
    port->base.machine = &um_machine_board;
    port->rx_max = config->lanes_max ? config->lanes_max : UM_BOARD_LANES_MAX;
    port->space = (struct um_board_space *)config->space;
    port->copies = config->private_copy;
    um_board_enter();
    int ret = port_begin(port);
    um_board_leave();
    if (ret) {
        free(port);
        return ret;
    }
    *port_p = &port->base;
    return 0;
}

/* Until everything is told, but a peer that takes nothing out of its mailbox is not waited for longer than this. */
static void port_flush(const struct um_board_port *port)
{
    UM_UNCANCELLED;
    const struct timespec pause = {.tv_nsec = 50000};
    uint64_t end = um_clock_ns() + UINT64_C(1000000000);
    um_board_drive();
    while (um_board_holds_back(port) && um_clock_ns() < end) {
        um_board_leave();
        nanosleep(&pause, NULL);
        um_board_enter();
        um_board_drive();
    }
}

static void port_end_rxs(struct um_board_port *port)
{
    um_board_credit_due(port);
    for (struct um_board_rx *rx = um_board_rx_next(NULL); rx; rx = um_board_rx_next(rx))
        if (rx->port == port)
            rx->refused = true;
    port_flush(port);
    for (struct um_board_rx *rx = um_board_rx_next(NULL), *next; rx; rx = next) {
        next = um_board_rx_next(rx);
        if (rx->port == port)
            um_board_rx_free(rx);
    }
}

/* What is left of its lanes: the driver goes on with those that have something to tell, while the process has a port.
 */
static void port_end_lanes(const struct um_board_port *port)
{
    for (struct um_board_lane *lane = um_board_lane_next(NULL), *next; lane; lane = next) {
        next = um_board_lane_next(lane);
        if (lane->port != port)
            continue;
        if (lane->state == UM_LANE_OPEN && lane->closed)
            lane->port = NULL;
        else
            um_board_lane_free(lane);
    }
}

static void port_close(struct um_port *base)
{
    struct um_board_port *port = (struct um_board_port *)base;
    um_board_enter();
    port_end_rxs(port);
    um_board_views_end(port); /* what is asked until now has an answer; from now on nobody takes messages for it */
    um_board_seeks_end(port);
    um_board_ports_remove(port);
    port_end_lanes(port);
    um_board_api.mailbox_close(port->mailbox);
    close(port->wait_fd);
    close(port->kick_fd);
    free(port);
    um_board_drive(); /* others of this process learn of it */
    um_board_end();
    um_board_leave();
}

/* ---- links ---- */

static int link_open(struct um_port *base, const struct um_addr *addr, struct um_link **link_p)
{
    int ret = addr_check(base, addr, true);
    if (ret)
        return ret;
    struct um_board_link *link = calloc(1, sizeof(*link));
    if (!link)
        return -ENOMEM;
    link->port = (struct um_board_port *)base;
    link->peer = um_board_mailbox(addr);
    link->base.machine = &um_machine_board;
    *link_p = &link->base;
    return 0;
}

static void link_close(struct um_link *base)
{
    struct um_board_link *link = (struct um_board_link *)base;
    um_board_enter();
    if (link->opening)
        link->opening->closed = true;
    if (link->seek)
        um_board_seek_close(link->seek);
    um_board_drive();
    um_board_leave();
    free(link);
}

static bool link_alive(struct um_link *base)
{
    struct um_board_link *link = (struct um_board_link *)base;
    UM_UNCANCELLED;
    return um_board_api.context_alive(um_board_handle(), link->peer.node, link->peer.context) == 1;
}

/* ---- sleeping ---- */

static int wait_fd(const struct um_port *port)
{
    return ((const struct um_board_port *)port)->wait_fd;
}

static void disarm(struct um_port *base)
{
    UM_UNCANCELLED;
    struct um_board_port *port = (struct um_board_port *)base;
    eventfd_t value;
    um_board_api.mailbox_disarm(port->mailbox);
    (void)eventfd_read(port->kick_fd, &value);
}

/*
 * Looks and arms in one: another port's thread may run the driver, which empties the mailbox. Nothing tells when a
 * peer's full mailbox has room again, so who has something to tell does not sleep.
 */
static int arm(struct um_port *base)
{
    struct um_board_port *port = (struct um_board_port *)base;
    struct um_record rec;
    um_board_enter();
    um_board_credit_due(port);
    int ret = um_board_poll_now(port, &rec) || um_board_lanes_news(port) || um_board_rx_news(port) ||
              um_board_holds_back(port) || um_board_api.mailbox_arm(port->mailbox);
    um_board_leave();
    return ret ? -EAGAIN : 0;
}

static void kick(struct um_port *port)
{
    UM_UNCANCELLED;
    (void)eventfd_write(((struct um_board_port *)port)->kick_fd, 1);
}

static void tick(struct um_port *base)
{
    struct um_board_port *port = (struct um_board_port *)base;
    um_board_enter();
    um_board_drive();
    for (struct um_board_rx *rx = um_board_rx_next(NULL); rx; rx = um_board_rx_next(rx))
        if (rx->port == port && !rx->closed &&
            um_board_api.context_alive(um_board_handle(), rx->peer.node, rx->peer.context) != 1) {
            rx->closed = true;
            rx->error = ECONNRESET;
        }
    um_board_leave();
}

/* News is in a mailbox: there is no line to wait for. */
static int watch_line(const struct um_port *port, const uint64_t **line_p, uint64_t *value_p)
{
    (void)port, (void)line_p, (void)value_p;
    return -EAGAIN;
}

const struct um_machine um_machine_board = {
    .name = "board",
    .about = "a Unimem board",
    .params = um_board_params,
    .params_count = UM_BOARD_PARAMS,
    .body_max = UM_BOARD_BODY_MAX,
    .depth = UM_BOARD_LINES,
    .addr_first = UM_BOARD_ADDR_FIRST,
    .addr_words = UM_BOARD_ADDR_WORDS,
    .unconsumed_max = UM_BOARD_LINES + UM_BOARD_EMBEDS,
    .probe = um_board_probe,
    .port_open = port_open,
    .port_close = port_close,
    .port_addr = port_addr,
    .addr_check = addr_check,
    .link_open = link_open,
    .link_close = link_close,
    .link_alive = link_alive,
    .link_read = um_board_link_read,
    .link_write = um_board_link_write,
    .memory_alloc = um_board_memory_alloc,
    .memory_free = um_board_memory_free,
    .waits_better = um_board_waits_better,
    .space_open = um_board_space_open,
    .space_close = um_board_space_close,
    .expose = um_board_expose,
    .conceal = um_board_conceal,
    .exposed_level = um_board_exposed_level,
    .counter_open = um_board_counter_open,
    .counter_close = um_board_counter_close,
    .exposed_set_counters = um_board_exposed_set_counters,
    .port_set_counters = um_board_port_set_counters,
    .space_count = um_board_space_count,
    .space_locks = um_board_space_locks,
    .window_open = um_board_window_open,
    .window_close = um_board_window_close,
    .window_count = um_board_window_count,
    .lane_open = um_board_lane_open,
    .lane_close = um_board_lane_close,
    .claim = um_board_claim,
    .claim_message = um_board_claim_message,
    .commit = um_board_commit,
    .abort = um_board_abort,
    .lane_body_max = um_board_lane_body_max,
    .lane_committed = um_board_lane_committed,
    .lane_consumed = um_board_lane_consumed,
    .lane_reap = um_board_lane_reap,
    .lane_watch = um_board_lane_watch,
    .poll = um_board_poll,
    .release = um_board_release,
    .answer = um_board_answer,
    .gather = um_board_gather,
    .rx_hold = um_board_rx_hold,
    .rx_refuse = um_board_rx_refuse,
    .rx_origin = um_board_rx_origin,
    .wait_fd = wait_fd,
    .arm = arm,
    .disarm = disarm,
    .kick = kick,
    .watch_line = watch_line,
    .tick = tick,
};
