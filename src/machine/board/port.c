/* Ports, links, sleeping. board.h. */
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

int um_board_port_open(const struct um_machine *machine, const struct um_port_config *config, struct um_port **port_p)
{
    struct um_board_port *port = calloc(1, sizeof(*port));
    if (!port)
        return -ENOMEM;
    port->base.machine = machine;
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

/* Waits until everything is told, but no longer than a second for peers that take nothing out of their mailboxes. */
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
    port->closing = true;
    port_flush(port);
    for (struct um_board_rx *rx = um_board_rx_next(NULL), *next; rx; rx = next) {
        next = um_board_rx_next(rx);
        if (rx->port == port)
            um_board_rx_free(rx);
    }
}

/* Ends the port's lanes. The driver goes on with those that have something to tell, while the process has a port. */
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

void um_board_port_close(struct um_port *base)
{
    struct um_board_port *port = (struct um_board_port *)base;
    um_board_enter();
    port_end_rxs(port);
    um_board_views_end(port); /* SEEKs up to now were answered; from now on nobody takes messages for this port */
    um_board_seeks_end(port);
    um_board_ports_remove(port);
    port_end_lanes(port);
    um_board_api.mailbox_close(port->mailbox);
    close(port->wait_fd);
    close(port->kick_fd);
    free(port);
    um_board_drive(); /* other ports of this process learn of it */
    um_board_end();
    um_board_leave();
}

/* ---- links ---- */

/* False: the process of that port has ended. */
static bool is_there(const struct unimem_mailbox_address *peer)
{
    return um_board_api.context_alive(um_board_handle(), peer->node, peer->context) == 1;
}

/* Gives back what is kept about a context that has ended. */
static void context_gone(const struct unimem_mailbox_address *peer)
{
    um_board_views_gone(peer->node, peer->context);
    um_board_reaches_gone(peer->node, peer->context);
    um_board_directory_forget(peer->node, peer->context);
}

int um_board_link_open(struct um_port *base, const struct um_addr *addr, struct um_link **link_p)
{
    int ret = um_board_addr_check(base, addr, true);
    if (ret)
        return ret;
    struct um_board_link *link = calloc(1, sizeof(*link));
    if (!link)
        return -ENOMEM;
    link->port = (struct um_board_port *)base;
    link->peer = um_board_mailbox(addr);
    link->base.machine = base->machine;
    *link_p = &link->base;
    return 0;
}

void um_board_link_close(struct um_link *base)
{
    struct um_board_link *link = (struct um_board_link *)base;
    um_board_enter();
    if (link->opening)
        link->opening->closed = true;
    if (link->seek)
        um_board_seek_close(link->seek);
    um_board_drive();
    if (!is_there(&link->peer))
        context_gone(&link->peer);
    um_board_leave();
    free(link);
}

bool um_board_link_alive(struct um_link *base)
{
    const struct um_board_link *link = (struct um_board_link *)base;
    UM_UNCANCELLED;
    return is_there(&link->peer);
}

/* ---- sleeping ---- */

int um_board_wait_fd(const struct um_port *port)
{
    return ((const struct um_board_port *)port)->wait_fd;
}

void um_board_disarm(struct um_port *base)
{
    struct um_board_port *port = (struct um_board_port *)base;
    eventfd_t value;
    um_board_enter();
    um_board_api.mailbox_disarm(port->mailbox);
    (void)eventfd_read(port->kick_fd, &value);
    um_board_leave();
}

/*
 * Looks for news and arms under one lock, because the thread of another port may run the driver, which empties the
 * mailbox. Nothing signals that a peer's full mailbox has room again, so a port with something to tell does not sleep.
 */
int um_board_arm(struct um_port *base)
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

void um_board_kick(struct um_port *port)
{
    UM_UNCANCELLED;
    (void)eventfd_write(((struct um_board_port *)port)->kick_fd, 1);
}

/* A sender that is found gone may have sent between the driver's last look at the mailbox and this one: the rx is
 * closed at the next tick, after the driver has run again. (In the emulator's virtual time that may be too early.) */
static void rx_tick(struct um_board_rx *rx)
{
    if (rx->closed)
        return;
    if (rx->gone) {
        rx->closed = true;
        rx->error = ECONNRESET;
        context_gone(&rx->peer);
    }
    rx->gone = !is_there(&rx->peer);
}

void um_board_tick(struct um_port *base)
{
    const struct um_board_port *port = (struct um_board_port *)base;
    const uint64_t now = um_clock_coarse_ns();
    um_board_enter();
    um_board_drive();
    for (struct um_board_rx *rx = um_board_rx_next(NULL); rx; rx = um_board_rx_next(rx))
        if (rx->port == port)
            rx_tick(rx);
    for (struct um_board_lane *lane = um_board_lane_next(NULL); lane; lane = um_board_lane_next(lane))
        if (lane->port == port)
            um_board_lane_probe(lane, now);
    um_board_leave();
}

/* Events come through a mailbox: there is no line to wait for. */
int um_board_watch_line(const struct um_port *port, const uint64_t **line_p, uint64_t *value_p)
{
    (void)port, (void)line_p, (void)value_p;
    return -EAGAIN;
}
