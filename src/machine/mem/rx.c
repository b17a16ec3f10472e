/*
 * The receiving end of lanes: bells, poll, release, credit, answers, joining and leaving senders.
 *
 * Owns: struct um_rx and the list of polled lanes. Everything read from a record or a control block was written by a
 * peer: it is copied once, checked, then used. One bad record ends that lane (UM_REC_LEFT with EPROTO).
 * Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    UM_BURST = 16,        /* records from one lane before the next one is looked at */
    UM_HOT_KEEP = 8,      /* so many lanes are polled however idle they are */
    UM_IDLE_PUBLISH = 64, /* empty polls after which the credit is published */
    UM_SWEEP = 2048,      /* empty polls between two looks for idle lanes */
};

bool um_mem_rx_has_record(const struct um_rx *rx)
{
    /* sync: record-look (partner record-commit) */
    return um_mem_is_record(um_load_acquire_u64(&rx->next->word), rx->head + 1);
}

static void rx_wake_sender(struct um_rx *rx)
{
    /* sync: news-wake (partner news-recheck): what was just published must be visible before want_wake is read. */
    if (rx->port->fence || um_load_relaxed_u32(&rx->ctl->want_fence))
        um_fence_full();
    else
        um_fence_compiler();
    if (um_load_relaxed_u32(&rx->ctl->want_wake))
        um_mem_wake(rx->port, &rx->origin, &rx->wake_handle);
}

void um_mem_rx_publish(struct um_rx *rx)
{
    rx->published = rx->head;
    rx->bytes_published = rx->bytes_head;
    /* sync: credit-publish (partners credit-take, news-look): our reads of the records come before. */
    um_store_release_u64(&rx->ctl->credit, (uint64_t)rx->bytes_head << 32 | rx->head);
    rx_wake_sender(rx);
}

static void rx_set_state(struct um_rx *rx, uint32_t flags)
{
    uint32_t state = um_load_relaxed_u32(&rx->ctl->state);
    um_store_relaxed_u32(&rx->ctl->state, (state & ~(uint32_t)0xff) | flags);
}

void um_mem_rx_set_hot(struct um_rx *rx)
{
    if (rx->is_hot)
        return;
    struct um_mem_port *port = rx->port;
    rx->is_hot = true;
    rx->idle = 0;
    rx->hot_index = port->hot_count;
    port->hot[port->hot_count++] = rx;
    rx_set_state(rx, UM_LANE_HOT);
}

static void rx_drop_hot(struct um_rx *rx, uint32_t flags)
{
    struct um_mem_port *port = rx->port;
    if (rx->is_hot) {
        struct um_rx *last = port->hot[--port->hot_count];
        port->hot[rx->hot_index] = last;
        last->hot_index = rx->hot_index;
        rx->is_hot = false;
    }
    rx_set_state(rx, flags);
}

void um_mem_rx_set_cold(struct um_rx *rx)
{
    if (rx->head != rx->published || rx->bytes_head != rx->bytes_published)
        um_mem_rx_publish(rx);
    rx_drop_hot(rx, 0);
}

void um_mem_rx_leave(struct um_rx *rx, int error)
{
    if (rx->state == UM_RX_ZOMBIE)
        return;
    rx_drop_hot(rx, error == EPROTO ? UM_LANE_REFUSED : 0);
    rx->state = UM_RX_ZOMBIE;
    rx->error = error;
    if (um_list_is_empty(&rx->event))
        um_list_append(&rx->port->events, &rx->event);
}

/* The same, for what the sender did; it may sleep and await an answer. */
static void rx_end_refused(struct um_rx *rx)
{
    um_mem_rx_leave(rx, EPROTO);
    rx_wake_sender(rx);
}

/* Makes the lane free for the next sender. The records go on from where they are, so that no old one is ever taken. */
static void rx_recycle(struct um_rx *rx)
{
    struct um_mem_port *port = rx->port;
    struct um_lane_shm *ctl = rx->ctl;
    uint32_t state = um_load_relaxed_u32(&ctl->state);
    size_t area = port->area_offset + (size_t)rx->number * UM_AREA_SIZE;
    /* What a refused sender committed was not taken: the next one's receiver must not find it ahead of its own. */
    if (rx->error)
        port->mapper->punch(port, area, UM_AREA_SIZE); /* it may have grown without our knowing */
    else if (rx->grown)
        port->mapper->punch(port, area + UM_AREA_BIG_RECORDS, UM_AREA_SIZE - UM_AREA_BIG_RECORDS);
    /* sync: grown-give (partner grown-take): whatever the sender did with its share, it has none now. */
    um_rmw_and_u64(&port->shm->grown[rx->number / 64], ~((uint64_t)1 << rx->number % 64));
    um_store_relaxed_u64(&ctl->credit, (uint64_t)rx->bytes_head << 32 | rx->head);
    um_store_relaxed_u32(&ctl->state, ((state >> UM_LANE_INC_SHIFT) + 1) << UM_LANE_INC_SHIFT);
    /* sync: lane-recycle (partners lane-claim, incarnation-seen): whoever claims the lane sees the new incarnation. */
    um_store_release_u64(&ctl->owner, 0);
    port->mapper->wake_drop(rx->wake_handle);
    um_list_unlink(&rx->event);
    port->rx[rx->number] = NULL;
    free(rx);
}

void um_mem_rx_check_closing(struct um_rx *rx)
{
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

void um_mem_rx_sender_died(struct um_rx *rx)
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
    struct um_lane_shm *ctl = um_mem_lane_shm(port->memory, number);
    uint32_t incarnation = um_load_relaxed_u32(&ctl->state) >> UM_LANE_INC_SHIFT;
    /* sync: lane-join (partner lane-ready) */
    if (um_load_acquire_u32(&ctl->ready) != (uint32_t)(incarnation + 1) || um_load_relaxed_u64(&ctl->owner) == 0)
        return 0;
    struct um_rx *rx = calloc(1, sizeof(*rx));
    if (!rx)
        return -ENOMEM;
    uint64_t credit = um_load_relaxed_u64(&ctl->credit);
    rx->ctl = ctl;
    rx->port = port;
    rx->number = number;
    rx->origin = ctl->origin;
    rx->wake_handle = -1;
    rx->head = rx->published = (uint32_t)credit;
    rx->bytes_head = rx->bytes_published = (uint32_t)(credit >> 32);
    rx->answers = um_load_relaxed_u32(&ctl->answers);
    um_mem_ring_set(&rx->ring, port->memory + port->area_offset + (size_t)number * UM_AREA_SIZE, false);
    rx->next = &rx->ring.records[rx->head & (rx->ring.record_count - 1)];
    rx->state = UM_RX_JOINING;
    um_list_init(&rx->event);
    um_list_append(&port->events, &rx->event);
    port->rx[number] = rx;
    if (number >= port->lanes_high)
        port->lanes_high = number + 1;
    if (port->mapper->addr_check(port, &rx->origin) != 0)
        um_mem_rx_leave(rx, EPROTO);
    return 0;
}

static void bell_take(struct um_mem_port *port, uint32_t number)
{
    if (number >= port->lanes)
        return;
    struct um_rx *rx = port->rx[number];
    if (!rx) {
        if (um_mem_rx_join(port, number) != 0) {
            /* No memory now: look again at the next poll. sync: bell-again (partner bell-collect) */
            um_rmw_or_u64(&port->shm->bell[number / 64], (uint64_t)1 << (number % 64));
            um_rmw_or_u64(&port->shm->bell_summary, (uint64_t)1 << (number / 64));
        }
        return;
    }
    if (rx->state == UM_RX_LIVE || rx->state == UM_RX_LEAVING)
        um_mem_rx_set_hot(rx);
    um_mem_rx_check_closing(rx);
}

void um_mem_bells_collect(struct um_mem_port *port)
{
    /* sync: bell-collect (partners bell-ring, bell-again) */
    uint64_t words = um_rmw_swap_u64(&port->shm->bell_summary, 0);
    while (words) {
        uint32_t w = (uint32_t)__builtin_ctzll(words);
        words &= words - 1;
        uint64_t bits = um_rmw_swap_u64(&port->shm->bell[w], 0);
        while (bits) {
            uint32_t b = (uint32_t)__builtin_ctzll(bits);
            bits &= bits - 1;
            bell_take(port, w * 64 + b);
        }
    }
}

/* Offers JOINED or LEFT. */
static int event_offer(struct um_mem_port *port, struct um_record *rec_p)
{
    struct um_rx *rx = UM_CONTAINER(um_list_first(&port->events), struct um_rx, event);
    bool joining = rx->state == UM_RX_JOINING;
    *rec_p = (struct um_record){
        .rx = rx,
        .op = joining ? UM_REC_JOINED : UM_REC_LEFT,
        .len = (uint32_t)rx->error,
    };
    return 1;
}

static void event_release(struct um_mem_port *port, const struct um_record *rec)
{
    struct um_rx *rx = rec->rx;
    um_list_unlink(&rx->event);
    if (rec->op == UM_REC_JOINED) {
        if (rx->state == UM_RX_ZOMBIE) { /* refused in between: its end is still to be told */
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

static void rx_go_on_grown(struct um_rx *rx)
{
    rx->grown = true;
    um_mem_ring_set(&rx->ring, rx->port->memory + rx->port->area_offset + (size_t)rx->number * UM_AREA_SIZE, true);
    rx->head++;
    rx->next = &rx->ring.records[rx->head & (rx->ring.record_count - 1)];
}

/* Checks a record and describes it. 1 offered, 0 nothing to offer (it was the machine's own, or the lane was ended). */
static int rx_offer(struct um_rx *rx, uint64_t word, struct um_record *rec_p)
{
    uint8_t op = (uint8_t)(word >> 32);
    uint8_t flags = (uint8_t)(word >> 40);
    uint32_t len = (uint32_t)(word >> 48);
    const void *body = NULL;
    rx->idle = 0;
    if (op == UM_OP_GROW && !rx->grown) {
        rx_go_on_grown(rx);
        return 0;
    }
    if (op == 0 || op >= UM_OP_MACHINE)
        goto bad;
    rx->record_end = rx->bytes_head;
    if (flags & UM_FLAG_MACHINE) {
        if (len == 0 || len > rx->ring.body_max)
            goto bad;
        uint32_t start = um_body_start(&rx->ring, rx->bytes_head, len);
        body = rx->ring.bytes + (start & (rx->ring.byte_count - 1));
        rx->record_end = start + um_body_space(len);
    }
    *rec_p = (struct um_record){
        .rx = rx,
        .head = rx->next->head,
        .body = body,
        .len = len,
        .op = op,
        .flags = flags & (UM_FLAG_MASK | UM_FLAG_ACK),
    };
    return 1;
bad:
    um_log(UM_LOG_WARN, "a peer wrote a record that cannot be (op 0x%02x, %u bytes); its lane is closed", op, len);
    rx_end_refused(rx);
    return 0;
}

/* Lanes idle for long are no longer polled when there are many; their senders ring from then on. */
static void hot_sweep(struct um_mem_port *port)
{
    struct um_rx *cooled[64];
    uint32_t count = 0;
    for (uint32_t i = port->hot_count; i-- > 0 && count < 64;) {
        struct um_rx *rx = port->hot[i];
        if (rx->state == UM_RX_LIVE && rx->idle > UM_SWEEP / 2) {
            um_mem_rx_set_cold(rx);
            cooled[count++] = rx;
        }
    }
    if (count == 0)
        return;
    um_mem_port_barrier(port); /* sync: cold-recheck (partner cold-check) */
    for (uint32_t i = 0; i < count; i++) {
        if (um_mem_rx_has_record(cooled[i]))
            um_mem_rx_set_hot(cooled[i]);
    }
}

static void rx_idle(struct um_rx *rx)
{
    rx->idle++;
    if (rx->state == UM_RX_LEAVING) {
        /* closing was seen before this poll found the ring empty: nothing can come any more */
        um_mem_rx_leave(rx, 0);
    } else if (rx->idle == UM_IDLE_PUBLISH && (rx->head != rx->published || rx->bytes_head != rx->bytes_published)) {
        um_mem_rx_publish(rx);
    }
}

static bool poll_is_stalled(struct um_mem_port *port)
{
    return port->mapper->stall && port->mapper->stall(port);
}

int um_mem_poll(struct um_port *base, struct um_record *rec_p)
{
    struct um_mem_port *port = (struct um_mem_port *)base;
    if (um_load_relaxed_u64(&port->shm->bell_summary))
        um_mem_bells_collect(port);
    if (!um_list_is_empty(&port->events))
        return event_offer(port, rec_p);
    if (poll_is_stalled(port))
        return 0;
    for (uint32_t left = port->hot_count; left > 0; left--) {
        if (port->hot_next >= port->hot_count)
            port->hot_next = 0;
        struct um_rx *rx = port->hot[port->hot_next];
        uint64_t word = um_load_acquire_u64(&rx->next->word); /* sync: record-poll (partner record-commit) */
        if (um_mem_is_record(word, rx->head + 1)) {
            if (++port->burst >= UM_BURST) {
                port->burst = 0;
                port->hot_next++;
            }
            if (rx_offer(rx, word, rec_p))
                return 1;
            left++; /* it was the machine's own: look again */
            if (port->hot_count == 0)
                break;
            continue;
        }
        rx_idle(rx);
        port->burst = 0;
        port->hot_next++;
    }
    if (++port->empty_polls >= UM_SWEEP) {
        port->empty_polls = 0;
        if (port->hot_count > UM_HOT_KEEP)
            hot_sweep(port);
    }
    return um_list_is_empty(&port->events) ? 0 : event_offer(port, rec_p);
}

void um_mem_release(struct um_port *base, const struct um_record *rec)
{
    struct um_rx *rx = rec->rx;
    if (rec->op >= UM_OP_MACHINE) {
        event_release((struct um_mem_port *)base, rec);
        return;
    }
    rx->head++;
    rx->bytes_head = rx->record_end;
    rx->next = &rx->ring.records[rx->head & (rx->ring.record_count - 1)];
    if ((rec->flags & UM_FLAG_ACK) || rx->head - rx->published >= rx->ring.record_count / 4 ||
        rx->bytes_head - rx->bytes_published >= rx->ring.byte_count / 4)
        um_mem_rx_publish(rx);
}

void um_mem_answer(struct um_rx *rx, uint16_t token, int32_t status)
{
    uint32_t k = rx->answers++;
    uint64_t word = (uint64_t)(uint32_t)status | (uint64_t)token << 32 | (uint64_t)(uint16_t)k << 48;
    um_store_relaxed_u64(&rx->ctl->answer[k % UM_TOKENS], word);
    um_store_release_u32(&rx->ctl->answers, k + 1); /* sync: answer-give (partners answer-take, news-look) */
    rx_wake_sender(rx);
}

void um_mem_rx_refuse(struct um_rx *rx)
{
    rx_end_refused(rx);
}

void um_mem_rx_origin(const struct um_rx *rx, struct um_addr *addr_p)
{
    *addr_p = rx->origin;
}

void um_mem_rx_set_user(struct um_rx *rx, void *user)
{
    rx->user = user;
}

void *um_mem_rx_user(const struct um_rx *rx)
{
    return rx->user;
}
