/*
 * Sleeping on a port: the Dekker patterns between a sleeper and the peers that have news for it (wake.c).
 *
 * The sleeper makes its lanes cold, raises its flags, issues a barrier that also orders its peers (membarrier), and
 * looks again; only then does it sleep. A peer pays one plain load per message. Threading: machine.h; kick() from any
 * thread.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/cancel.h"

#include <errno.h>
#include <unistd.h>

int um_mem_wait_fd(const struct um_port *base)
{
    const struct um_mem_port *port = (const struct um_mem_port *)base;
    return port->wait_set >= 0 ? port->wait_set : port->wait_read;
}

static void lanes_want_wake(struct um_mem_port *port, uint32_t want)
{
    for (struct um_list *l = port->lanes_watched.next; l != &port->lanes_watched; l = l->next) {
        struct um_mem_lane_shm *ctl = UM_CONTAINER(l, struct um_mem_lane, watched)->ctl;
        um_store_relaxed_u32(&ctl->want_wake, want);
        um_mem_sender_publish(port, ctl);
    }
}

static void port_unarm(struct um_mem_port *port)
{
    um_store_relaxed_u32(&port->common->sleeping, 0);
    lanes_want_wake(port, 0);
}

static void port_drain(struct um_mem_port *port)
{
    UM_UNCANCELLED;
    char sink[64];
    while (read(port->wait_read, sink, sizeof(sink)) == (ssize_t)sizeof(sink))
        ;
}

/*
 * True if there is anything to do; to be called after the barrier. hot_count is 0, but the first `cooled` entries of
 * hot[] are the rx that were hot before: one with a record becomes hot again. Its new place in hot[] is never behind
 * its old one, so no entry is overwritten that is still to be looked at.
 */
static bool port_has_news(struct um_mem_port *port, uint32_t cooled)
{
    /* sync: bell-look (partner bell-ring) */
    bool news = um_load_acquire_u64(&port->common->bell_summary) != 0 || !um_list_is_empty(&port->events);
    for (uint32_t i = 0; i < cooled; i++) {
        struct um_mem_rx *rx = port->hot[i];
        if (um_mem_rx_has_record(rx)) {
            um_mem_rx_set_hot(rx);
            news = true;
        }
    }
    for (struct um_list *l = port->lanes_watched.next; l != &port->lanes_watched; l = l->next)
        news = news || um_mem_lane_has_news(UM_CONTAINER(l, struct um_mem_lane, watched));
    /* sync: room-look (partner taken-publish) */
    for (struct um_list *l = port->rx_crowded.next; l != &port->rx_crowded; l = l->next)
        news = news || um_mem_rx_has_room(UM_CONTAINER(l, struct um_mem_rx, crowded));
    return news;
}

int um_mem_arm(struct um_port *base)
{
    struct um_mem_port *port = (struct um_mem_port *)base;
    /* hot[] keeps its entries beyond hot_count, so it also serves as the list of the rx that were made cold */
    uint32_t count = 0;
    for (uint32_t i = port->hot_count; i-- > 0;) {
        struct um_mem_rx *rx = port->hot[i];
        if (rx->state == UM_RX_LEAVING)
            return -EAGAIN;
    }
    while (port->hot_count > 0) {
        struct um_mem_rx *rx = port->hot[port->hot_count - 1];
        um_mem_rx_set_cold(rx);
        count++;
    }
    um_store_relaxed_u32(&port->common->sleeping, port->sleeps += 2); /* sync: sleeper-arm (partner sleeper-wake) */
    lanes_want_wake(port, 1);
    um_mem_port_barrier(port); /* sync: news-recheck (partner news-wake) */
    if (!port_has_news(port, count))
        return 0;
    port_unarm(port);
    return -EAGAIN;
}

void um_mem_disarm(struct um_port *base)
{
    struct um_mem_port *port = (struct um_mem_port *)base;
    port_unarm(port);
    port_drain(port);
    if (port->mapper->serve)
        port->mapper->serve(port);
}

void um_mem_kick(struct um_port *base)
{
    UM_UNCANCELLED;
    const struct um_mem_port *port = (const struct um_mem_port *)base;
    char byte = 0;
    ssize_t written = write(port->wait_write, &byte, 1); /* a full pipe is readable already */
    (void)written;
}

int um_mem_watch_line(const struct um_port *base, const uint64_t **line_p, uint64_t *value_p)
{
    const struct um_mem_port *port = (const struct um_mem_port *)base;
    if (port->mapper->observe || port->hot_count > 1 || !um_list_is_empty(&port->events) ||
        !um_list_is_empty(&port->lanes_watched) || !um_list_is_empty(&port->rx_crowded) ||
        um_load_relaxed_u64(&port->common->bell_summary))
        return -EAGAIN;
    if (port->hot_count == 0)
        return 0;
    const struct um_mem_rx *rx = port->hot[0];
    uint64_t word = um_load_relaxed_u64(&rx->next->word); /* only compared: poll reads the record */
    if (rx->state != UM_RX_LIVE || um_mem_is_record(word, rx->head + 1))
        return -EAGAIN;
    *line_p = &rx->next->word;
    *value_p = word;
    return 1;
}
