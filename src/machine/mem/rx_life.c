/*
 * The life of the receiving end of a lane: it joins, is polled or left to its bell, leaves, and is given to the next
 * sender.
 *
 * Owns: the list of polled lanes, the events of joining and leaving. The sender wrote what the control block says of
 * it: that is copied once and checked. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void rx_set_state(struct um_mem_rx *rx, uint32_t flags)
{
    uint32_t state = um_load_relaxed_u32(&rx->ctl->state);
    if (rx->held)
        flags |= UM_LANE_HELD;
    if (rx->wants_announced)
        flags |= UM_LANE_ANNOUNCE;
    um_store_relaxed_u32(&rx->ctl->state, (state & ~(uint32_t)0xff) | flags);
    um_mem_receiver_publish(rx->port, rx->ctl);
}

bool um_mem_rx_has_record(const struct um_mem_rx *rx)
{
    um_mem_observe(rx->port, rx->next, sizeof(*rx->next));
    /* sync: record-look (partner record-commit) */
    return um_mem_is_record(um_load_acquire_u64(&rx->next->word), rx->head + 1);
}

void um_mem_rx_set_hot(struct um_mem_rx *rx)
{
    if (rx->is_hot)
        return;
    struct um_mem_port *port = rx->port;
    rx->is_hot = true;
    um_mem_rx_not_idle(rx);
    rx->hot_index = port->hot_count;
    port->hot[port->hot_count++] = rx;
    rx_set_state(rx, UM_LANE_HOT);
}

static void rx_drop_hot(struct um_mem_rx *rx, uint32_t flags)
{
    struct um_mem_port *port = rx->port;
    if (rx->is_hot) {
        struct um_mem_rx *last = port->hot[--port->hot_count];
        port->hot[rx->hot_index] = last;
        last->hot_index = rx->hot_index;
        rx->is_hot = false;
    }
    rx_set_state(rx, flags);
}

void um_mem_rx_set_cold(struct um_mem_rx *rx)
{
    if (rx->head != rx->published || rx->bytes_head != rx->bytes_published)
        um_mem_rx_publish(rx);
    rx_drop_hot(rx, 0);
}

void um_mem_rx_leave(struct um_mem_rx *rx, int error)
{
    if (rx->state == UM_RX_ZOMBIE)
        return;
    um_mem_rx_cell_end(rx);
    rx_drop_hot(rx, error == EPROTO ? UM_LANE_REFUSED : 0);
    rx->state = UM_RX_ZOMBIE;
    rx->error = error;
    um_list_unlink(&rx->crowded);
    if (um_list_is_empty(&rx->event))
        um_list_append(&rx->port->events, &rx->event);
}

/* Gives back the wide rings that the sender took: at most one, or more if it ignores the protocol. */
static void rx_give_wide_back(const struct um_mem_rx *rx)
{
    struct um_mem_port *port = rx->port;
    for (uint32_t i = 0; i < UM_WIDE_RINGS; i++) {
        if (um_load_relaxed_u32(&port->common->wide[i]) != rx->number + 1)
            continue;
        port->mapper->punch(port, um_mem_port_wide_offset(port->lanes, i), UM_WIDE_SPACE);
        um_store_release_u32(&port->common->wide[i], 0); /* sync: wide-give (partner wide-take) */
    }
}

/* Frees the lane for the next sender. Record numbers go on from where they are, so that no old record is ever taken. */
static void rx_recycle(struct um_mem_rx *rx)
{
    struct um_mem_port *port = rx->port;
    struct um_mem_lane_shm *ctl = rx->ctl;
    uint32_t state = um_load_relaxed_u32(&ctl->state);
    const uint64_t area = um_mem_port_lane_offset(port->lanes, rx->number);
    /* Before the memory is given back: a sender that was taken for dead, and lives, is to use it no more. */
    um_store_relaxed_u32(&ctl->state, ((state >> UM_LANE_INC_SHIFT) + 1) << UM_LANE_INC_SHIFT);
    /* Records of a refused sender were not taken: the next sender's rx must not find them. */
    if (rx->error)
        port->mapper->punch(port, area, UM_AREA_SIZE); /* it may have grown without a GROW record */
    else if (rx->grown)
        port->mapper->punch(port, area + UM_AREA_BIG_RECORDS, UM_AREA_SIZE - UM_AREA_BIG_RECORDS);
    /* sync: grown-give (partner grown-take): whatever the sender did, its share is free now. */
    um_rmw_and_u64(&port->common->grown[rx->number / 64], ~((uint64_t)1 << rx->number % 64));
    rx_give_wide_back(rx);
    um_store_relaxed_u64(&ctl->credit, (uint64_t)rx->bytes_head << 32 | rx->head);
    um_store_relaxed_u64(&ctl->loads, 0);
    for (int i = 0; i < UM_PROGRESS_WORDS; i++)
        um_store_relaxed_u64(&ctl->progress[i].receiver, 0);
    um_mem_receiver_publish(port, ctl);
    /* sync: lane-recycle (partners lane-claim, incarnation-seen): whoever claims the lane sees the new incarnation. */
    um_store_release_u64(um_mem_lane_sender(port->coherent, rx->number), 0);
    um_mem_rx_cell_end(rx);
    port->mapper->wake_drop(rx->wake_handle);
    um_list_unlink(&rx->event);
    um_list_unlink(&rx->crowded);
    port->rx[rx->number] = NULL;
    free(rx);
}

void um_mem_rx_check_closing(struct um_mem_rx *rx)
{
    um_mem_sender_observe(rx->port, rx->ctl);
    if (!um_load_acquire_u32(&rx->ctl->closing)) /* sync: closing-seen (partner lane-closing) */
        return;
    if (rx->state == UM_RX_ZOMBIE) {
        if (um_list_is_empty(&rx->event))
            rx_recycle(rx);
    } else if (rx->state == UM_RX_LIVE) {
        rx->state = UM_RX_LEAVING;
        um_mem_rx_set_hot(rx); /* the poll that finds its ring empty ends it */
    }
}

void um_mem_rx_sender_died(struct um_mem_rx *rx)
{
    if (rx->state == UM_RX_ZOMBIE) {
        if (um_list_is_empty(&rx->event))
            rx_recycle(rx);
    } else if (rx->state == UM_RX_LIVE) {
        if (um_mem_rx_has_record(rx))
            um_mem_rx_set_hot(rx); /* what it committed is still delivered; a later tick comes here again */
        else
            um_mem_rx_leave(rx, EOWNERDEAD);
    }
}

int um_mem_rx_join(struct um_mem_port *port, uint32_t number)
{
    struct um_mem_lane_shm *ctl = um_mem_lane_ctl(port->memory, number);
    uint32_t incarnation = um_load_relaxed_u32(&ctl->state) >> UM_LANE_INC_SHIFT;
    um_mem_sender_observe(port, ctl);
    /* sync: lane-join (partner lane-ready) */
    if (um_load_acquire_u32(&ctl->ready) != (uint32_t)(incarnation + 1) ||
        um_load_relaxed_u64(um_mem_lane_sender(port->coherent, number)) == 0)
        return 0;
    struct um_addr origin = {{0}};
    struct um_mem_rx *rx = calloc(1, sizeof(*rx));
    if (!rx)
        return -ENOMEM;
    uint64_t credit = um_load_relaxed_u64(&ctl->credit);
    rx->base.machine = port->port.machine;
    rx->ctl = ctl;
    rx->port = port;
    rx->number = number;
    memcpy(origin.word, ctl->origin, sizeof(ctl->origin));
    (void)um_addr_part(port->port.machine, &origin, &rx->origin);
    rx->wake_handle = -1;
    rx->head = rx->published = (uint32_t)credit;
    rx->bytes_head = rx->bytes_published = (uint32_t)(credit >> 32);
    rx->answers = um_load_relaxed_u32(&ctl->answers);
    um_mem_ring_set(&rx->ring, port->memory + um_mem_port_lane_offset(port->lanes, number), false);
    rx->next = &rx->ring.records[rx->head & (rx->ring.record_count - 1)];
    rx->body_next = (const unsigned char *)rx->next;
    rx->state = UM_RX_JOINING;
    um_list_init(&rx->event);
    um_list_init(&rx->crowded);
    um_list_append(&port->events, &rx->event);
    port->rx[number] = rx;
    if (number >= port->lanes_high)
        port->lanes_high = number + 1;
    if (port->mapper->addr_check(port, &origin, true) != 0)
        um_mem_rx_leave(rx, EPROTO);
    else /* the first look at the sender's port, while only its owner has written to it */
        (void)port->mapper->alive(port, &rx->origin, &rx->mark);
    return 0;
}

/* Offers JOINED or LEFT. */
int um_mem_event_offer(struct um_mem_port *port, struct um_record *rec_p)
{
    struct um_mem_rx *rx = UM_CONTAINER(um_list_first(&port->events), struct um_mem_rx, event);
    bool joining = rx->state == UM_RX_JOINING;
    *rec_p = (struct um_record){
        .rx = &rx->base,
        .op = joining ? UM_REC_JOINED : UM_REC_LEFT,
        .len = (uint32_t)rx->error,
    };
    return 1;
}

void um_mem_event_release(struct um_mem_port *port, const struct um_record *rec)
{
    struct um_mem_rx *rx = (struct um_mem_rx *)rec->rx;
    um_list_unlink(&rx->event);
    if (rec->op == UM_REC_JOINED) {
        if (rx->state == UM_RX_ZOMBIE) { /* refused in between: its end must still be reported */
            um_list_append(&port->events, &rx->event);
            return;
        }
        rx->state = UM_RX_LIVE;
        um_mem_rx_set_hot(rx);
        um_mem_rx_check_closing(rx);
    } else if (rx->error == EPROTO) {
        um_mem_rx_check_closing(rx); /* its sender may still write: the lane is free when it closes or dies */
    } else {
        rx_recycle(rx);
    }
}
