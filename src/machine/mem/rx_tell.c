/*
 * What the receiving end of a lane tells its sender: credit, answers, a hold. Each is a store into the receiver's line
 * of the control block, after which a sender that sleeps and awaits it is woken.
 *
 * Owns nothing. Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"

#include <errno.h>

static inline void rx_wake_if_wanted(struct um_mem_rx *rx)
{
    if (um_load_relaxed_u32(&rx->ctl->want_wake))
        um_mem_wake(rx->port, &rx->origin, &rx->wake_handle);
}

/* Tells the sender where stores are not enough: membarrier does not reach one of the two sides, or memory is not
 * coherent. */
static __attribute__((noinline)) void rx_tell_fenced(struct um_mem_rx *rx)
{
    um_mem_receiver_publish(rx->port, rx->ctl);
    um_fence_full(); /* sync: news-wake (partner news-recheck) */
    um_mem_sender_observe(rx->port, rx->ctl);
    rx_wake_if_wanted(rx);
}

void um_mem_rx_tell_sender(struct um_mem_rx *rx)
{
    if (__builtin_expect(rx->port->fence || um_load_relaxed_u32(&rx->ctl->want_fence), 0)) {
        rx_tell_fenced(rx);
        return;
    }
    /* sync: news-wake (partner news-recheck): what was just written must be visible before want_wake is read. */
    um_fence_compiler();
    rx_wake_if_wanted(rx);
}

void um_mem_rx_publish(struct um_mem_rx *rx)
{
    if (rx->ring.publish_bytes == UM_FRONT_PUBLISH && rx->bytes_head - rx->front_at > UM_WIDE_BYTES / 2)
        rx->ring.publish_bytes = UM_WIDE_BYTES / 4; /* the front is no longer used */
    rx->published = rx->head;
    rx->bytes_published = rx->bytes_head;
    /* sync: credit-publish (partners credit-take, loads-take, news-look): our reads of the records come before. */
    um_store_release_u64(&rx->ctl->credit, (uint64_t)rx->bytes_head << 32 | rx->head);
    um_mem_rx_tell_sender(rx);
}

bool um_mem_rx_has_room(const struct um_mem_rx *rx)
{
    um_mem_sender_observe(rx->port, rx->ctl);
    /* sync: taken-look (partner taken-publish). A wrong value overwrites only that sender's own answers. */
    uint32_t taken = um_load_acquire_u32(&rx->ctl->taken);
    return (int32_t)(rx->answers - taken) < UM_ANSWERS - UM_TOKENS;
}

int um_mem_answer(struct um_rx *base, uint32_t token, int32_t status)
{
    struct um_mem_rx *rx = (struct um_mem_rx *)base;
    if (token >= UM_TOKENS) {
        if (!um_mem_rx_has_room(rx)) {
            if (um_list_is_empty(&rx->crowded))
                um_list_append(&rx->port->rx_crowded, &rx->crowded);
            return -EAGAIN;
        }
        um_list_unlink(&rx->crowded);
    }
    uint32_t k = rx->answers++;
    struct um_mem_answer_shm *a = &rx->ctl->answer[k % UM_ANSWERS];
    um_store_relaxed_u32(&a->token, token);
    um_store_relaxed_u32((uint32_t *)&a->status, (uint32_t)status);
    um_mem_publish(rx->port, a, sizeof(*a));        /* before its number */
    um_store_release_u32(&rx->ctl->answers, k + 1); /* sync: answer-give (partners answer-take, news-look) */
    um_mem_rx_tell_sender(rx);
    return 0;
}

/* Sets or clears a flag of the lane's state. False: it already was so, or the rx has ended. */
static bool rx_set_flag(struct um_mem_rx *rx, bool *is_on, uint32_t flag, bool on)
{
    if (*is_on == on || rx->state == UM_RX_ZOMBIE)
        return false;
    *is_on = on;
    uint32_t state = um_load_relaxed_u32(&rx->ctl->state);
    /* sync: hold-end (partner hold-look); a sender that is asked to announce looks at the flag alone */
    um_store_release_u32(&rx->ctl->state, on ? state | flag : state & ~flag);
    um_mem_receiver_publish(rx->port, rx->ctl);
    return true;
}

void um_mem_rx_hold(struct um_rx *base, bool on)
{
    struct um_mem_rx *rx = (struct um_mem_rx *)base;
    if (rx_set_flag(rx, &rx->held, UM_LANE_HELD, on) && !on)
        um_mem_rx_tell_sender(rx);
}

/* No sender waits for the end of this request, so none is woken. */
void um_mem_rx_announce(struct um_rx *base, bool on)
{
    struct um_mem_rx *rx = (struct um_mem_rx *)base;
    (void)rx_set_flag(rx, &rx->wants_announced, UM_LANE_ANNOUNCE, on);
}
