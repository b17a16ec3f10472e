/* Sleeping. net.h. */
#include "machine/net/net.h"

#include "base/cancel.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A port that is not woken by all that it waits for looks again after LOOK_NS. One that is woken by nothing (wait_none)
 * looks LOOK_FIRST_NS after the last message but PROBEs, then a quarter later each time that it slept in vain, so
 * that two such sleepers in traffic do not wait for each other's late looks: LOOK_NS after 8 ms, LOOK_MAX_NS after
 * .13 s. */
enum { LOOK_FIRST_NS = 100000, LOOK_NS = 2000000, LOOK_MAX_NS = UM_WAIT_NONE_MS * 1000000 };

static int watch(const struct um_net_port *port, int fd)
{
    struct epoll_event readable = {.events = EPOLLIN};
    return fd < 0 ? -1 : epoll_ctl(port->wait_fd, EPOLL_CTL_ADD, fd, &readable);
}

int um_net_wait_init(struct um_net_port *port)
{
    port->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    port->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    port->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (port->wait_fd >= 0 && watch(port, port->kick_fd) == 0 && watch(port, port->timer_fd) == 0 &&
        (!port->is_open || port->inner.wait_none || watch(port, port->inner.own.fd) == 0))
        return 0;
    int ret = -errno;
    um_net_wait_fini(port);
    return ret;
}

void um_net_wait_fini(struct um_net_port *port)
{
    const int fds[] = {port->wait_fd, port->timer_fd, port->kick_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

int um_net_wait_fd(const struct um_port *base)
{
    return ((const struct um_net_port *)base)->wait_fd;
}

static void timer_set(struct um_net_port *port, long ns)
{
    const struct itimerspec once = {.it_value = {.tv_nsec = ns}};
    (void)timerfd_settime(port->timer_fd, 0, &once, NULL);
    port->is_timed = ns != 0;
}

/* Ends the time until the next look. If it has run out, the next one is longer. */
static void timer_end(struct um_net_port *port)
{
    const long later = port->look_ns / 4 * 5;
    uint64_t times;
    if (read(port->timer_fd, &times, sizeof(times)) > 0 && port->look_ns)
        port->look_ns = later < LOOK_MAX_NS ? later : LOOK_MAX_NS;
    timer_set(port, 0);
}

/* True if something is under way whose progress no event reports: messages that the inner provider does not accept now,
 * a connection to read a body by; without a descriptor, too, all that is sent and read. */
static bool must_look(const struct um_net_port *port)
{
    return !um_list_is_empty(&port->work) || port->bodies.tried_at ||
           (port->inner.wait_none &&
            (port->inner.sending || port->bodies.shown || !um_list_is_empty(&port->bodies.reads)));
}

/* Returns how long the port may sleep now; 0: until an event. */
static long look_in_ns(struct um_net_port *port)
{
    if (!port->inner.wait_none)
        return must_look(port) ? LOOK_NS : 0;
    if (!port->look_ns)
        port->look_ns = LOOK_FIRST_NS;
    return must_look(port) && port->look_ns > LOOK_NS ? LOOK_NS : port->look_ns;
}

/* True if neither the inner endpoint nor the one for bodies has an event that would not wake the port. */
static bool may_sleep(struct um_net_port *port)
{
    (void)um_net_bodies_look(port);
    return um_net_inner_may_sleep(&port->inner) && um_net_bodies_may_sleep(port);
}

/* No event reports that a peer was found gone while something was sent: then the port does not sleep. */
int um_net_arm(struct um_port *base)
{
    UM_UNCANCELLED;
    struct um_net_port *port = (struct um_net_port *)base;
    struct um_record rec;
    um_net_credit_due(port);
    if (um_net_poll_now(port, &rec) || um_net_lanes_news(port) || um_net_rxs_news(port) ||
        !um_list_is_empty(&port->fallen) || (port->is_open && !may_sleep(port)))
        return -EAGAIN;
    const long ns = look_in_ns(port);
    if (ns)
        timer_set(port, ns);
    port->bodies.tried_at = 0; /* a caller that still wants the read tries again */
    return 0;
}

void um_net_disarm(struct um_port *base)
{
    UM_UNCANCELLED;
    struct um_net_port *port = (struct um_net_port *)base;
    eventfd_t value;
    if (port->is_timed)
        timer_end(port);
    um_net_stir(port);
    (void)eventfd_read(port->kick_fd, &value);
    /* Drains the descriptor: takes what came, and what the inner provider has signalled. */
    um_net_drive(port);
    if (!port->is_open || may_sleep(port))
        return;
    um_net_drive_all(port);
    (void)may_sleep(port);
}

void um_net_kick(struct um_port *base)
{
    UM_UNCANCELLED;
    (void)eventfd_write(((struct um_net_port *)base)->kick_fd, 1);
}

/* Events come through sockets: there is no line to wait for. */
int um_net_watch_line(const struct um_port *base, const uint64_t **line_p, uint64_t *value_p)
{
    (void)base, (void)line_p, (void)value_p;
    return -EAGAIN;
}
