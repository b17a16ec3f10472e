/*
 * The life of the sending end of a lane: first contact, the end, and whether a sleeping port watches it.
 *
 * Owns: what the sender says of itself in the control block. What the receiver wrote there is checked before use.
 * Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/bytes.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Takes the first free lane of the peer's port. */
static int lane_take(struct um_mem_lane *lane, struct um_mem_link *link)
{
    void *coherent = um_mem_coherent(&link->control);
    uint64_t me = link->port->mapper->sender_word(link->port, &link->addr);
    for (uint32_t n = 0; n < link->lanes; n++) {
        uint64_t *sender = um_mem_lane_sender(coherent, n);
        /* sync: lane-claim (partners lane-recycle, lane-free, sender-look) */
        if (um_load_relaxed_u64(sender) == 0) {
            if (um_rmw_cas_u64(sender, 0, me)) {
                lane->ctl = um_mem_lane_ctl(link->control.base, n);
                lane->number = n;
                return 0;
            }
        }
    }
    if (!link->full_logged) { /* logged once: later tries fail for the same reason */
        link->full_logged = true;
        um_log(
            UM_LOG_WARN,
            "all %u lanes into a peer are taken: messages to it wait until another sender leaves; set FI_UNIMEM_LANES "
            "to at least the number of processes",
            link->lanes);
    }
    return -EAGAIN;
}

/* Writes the sender's address and its other words. The lane's records begin at the receiver's credit. */
static void lane_introduce(struct um_mem_lane *lane)
{
    struct um_mem_lane_shm *ctl = lane->ctl;
    um_mem_sender_observe(lane->link->port, ctl); /* another sender may have written that line since */
    um_mem_receiver_observe(lane->link->port, ctl);
    uint32_t state = um_load_acquire_u32(&ctl->state); /* sync: incarnation-seen (partner lane-recycle) */
    lane->incarnation = state >> UM_LANE_INC_SHIFT;
    uint64_t credit = um_load_relaxed_u64(&ctl->credit);
    lane->head = lane->consumed = lane->consumed_reported = (uint32_t)credit;
    lane->bytes_head = lane->bytes_consumed = (uint32_t)(credit >> 32);
    lane->answers_seen = lane->answers_told = um_load_relaxed_u32(&ctl->answers);
    um_store_relaxed_u32(&ctl->taken, lane->answers_seen);
    um_mem_ring_set(&lane->ring, lane->area, false);
    lane->next = &lane->ring.records[lane->head & (lane->ring.record_count - 1)];
    memcpy(ctl->origin, lane->link->port->addr.word, sizeof(ctl->origin));
    um_store_relaxed_u32(&ctl->want_wake, 0);
    um_store_relaxed_u32(&ctl->want_fence, lane->link->port->fence);
    um_store_relaxed_u32(&ctl->closing, 0);
    for (int i = 0; i < UM_PROGRESS_WORDS; i++)
        um_store_relaxed_u64(&ctl->progress[i].sender, 0);
    um_store_release_u32(&ctl->ready, lane->incarnation + 1); /* sync: lane-ready (partner lane-join) */
    um_mem_sender_publish(lane->link->port, ctl);
}

static struct um_mem_lane *lane_new(struct um_mem_link *link)
{
    struct um_mem_lane *lane = calloc(1, sizeof(*lane));
    if (!lane)
        return NULL;
    lane->base = (struct um_lane){.machine = link->base.machine, .body_max = UM_BIG_BODY};
    lane->link = link;
    lane->peer = link->control.base;
    lane->has_choice = UM_BYTES_NONTEMPORAL && !link->port->mapper->observe;
    um_list_init(&lane->watched);
    return lane;
}

int um_mem_lane_open(struct um_link *base, struct um_lane **lane_p)
{
    struct um_mem_link *link = (struct um_mem_link *)base;
    int ret = um_mem_link_map_control(link);
    if (ret)
        return ret;
    struct um_mem_port_shm *peer = link->control.base;
    struct um_mem_lane *lane = lane_new(link);
    if (!lane)
        return -ENOMEM;
    ret = lane_take(lane, link);
    um_mem_page_observe(link->port, peer); /* after the claim, for both looks at its state */
    /* sync: port-seen (partner port-ready): a port that is gone gives no lanes back. */
    if (ret == -EAGAIN && (um_load_acquire_u32(&peer->state) != UM_PORT_OPEN || !um_mem_link_alive(base)))
        ret = -ECONNREFUSED;
    if (ret)
        goto free_lane;
    ret = link->port->mapper->attach(link->port, &link->addr, um_mem_port_lane_offset(link->lanes, lane->number),
                                     UM_AREA_SIZE, &lane->area_map);
    if (ret)
        goto give_back;
    lane->area = lane->area_map.base;
    lane->fence = link->port->fence || peer->want_fence;
    /* sync: contact-check (partner port-closing): the claim above is visible before the state is read. */
    if (um_load_acquire_u32(&peer->state) != UM_PORT_OPEN) {
        ret = -ECONNREFUSED;
        goto detach_area;
    }
    lane_introduce(lane);
    um_fence_full(); /* the bell may be set already: the lane's contents must be visible before the bell is read */
    um_mem_lane_ring_bell(lane);
    link->lane = lane;
    *lane_p = &lane->base;
    return 0;

detach_area:
    link->port->mapper->detach(&lane->area_map);
give_back:
    um_store_release_u64(um_mem_lane_sender(um_mem_coherent(&link->control), lane->number), 0);
free_lane:
    free(lane);
    return ret;
}

void um_mem_lane_watch(struct um_lane *base, bool on)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    bool is_on = !um_list_is_empty(&lane->watched);
    if (on && !is_on) {
        um_list_append(&lane->link->port->lanes_watched, &lane->watched);
    } else if (!on && is_on) {
        um_list_unlink(&lane->watched);
        um_store_relaxed_u32(&lane->ctl->want_wake, 0);
        um_mem_sender_publish(lane->link->port, lane->ctl);
    }
}

void um_mem_lane_close(struct um_lane *base)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    um_mem_lane_watch(base, false);
    um_mem_lane_cell_end(lane);
    um_store_release_u32(&lane->ctl->closing, 1); /* sync: lane-closing (partners closing-seen, closing-after) */
    um_mem_sender_publish(lane->link->port, lane->ctl);
    um_fence_full(); /* also before what the program does next with memory that a receiver may still read */
    um_mem_lane_ring_bell(lane);
    if (lane->link->port->long_lane == lane)
        lane->link->port->long_lane = NULL;
    if (lane->wide_map.base)
        lane->link->port->mapper->detach(&lane->wide_map);
    lane->link->port->mapper->detach(&lane->area_map);
    free(lane);
}
