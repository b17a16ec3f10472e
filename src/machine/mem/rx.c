/*
 * The receiving end of lanes: bells, poll, release. What it tells the sender is in rx_tell.c, its life in rx_life.c.
 *
 * Owns: struct um_mem_rx. Everything read from a record or a control block was written by a peer: it is copied once,
 * checked, then used. One bad record ends that lane (UM_REC_LEFT with EPROTO). Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    UM_BURST = 16,   /* records from one lane before the next one is looked at */
    UM_HOT_KEEP = 8, /* number of lanes that are polled however idle they are */
    /* Empty polls after which the credit is published: more than a round trip takes. Otherwise a peer that replies
     * would wait for the credit's line, which it reads before it writes a record. */
    UM_IDLE_PUBLISH = 256,
    UM_SWEEP = 2048,     /* empty polls between two serve() calls; vain looks at a lane between two sweeps */
    UM_SWEEP_LANES = 64, /* lanes that count for the latter, so that a sweep of more lanes comes as soon */
};

/* Ends the rx for an error of the sender, which may sleep and await an answer. */
static void rx_end_refused(struct um_mem_rx *rx)
{
    um_mem_rx_leave(rx, EPROTO);
    um_mem_rx_tell_sender(rx);
}

static void bell_take(struct um_mem_port *port, uint32_t number)
{
    if (number >= port->lanes)
        return;
    struct um_mem_rx *rx = port->rx[number];
    if (!rx) {
        if (um_mem_rx_join(port, number) != 0) {
            /* No memory now: look again at the next poll. sync: bell-again (partner bell-collect) */
            um_rmw_or_u64(&port->common->bell[number / 64], (uint64_t)1 << (number % 64));
            um_rmw_or_u64(&port->common->bell_summary, (uint64_t)1 << (number / 64));
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
    uint64_t words = um_rmw_swap_u64(&port->common->bell_summary, 0);
    while (words) {
        uint32_t w = (uint32_t)__builtin_ctzll(words);
        words &= words - 1;
        uint64_t bits = um_rmw_swap_u64(&port->common->bell[w], 0);
        while (bits) {
            uint32_t b = (uint32_t)__builtin_ctzll(bits);
            bits &= bits - 1;
            bell_take(port, w * 64 + b);
        }
    }
}

static inline void rx_advance(struct um_mem_rx *rx)
{
    rx->head++;
    rx->next = &rx->ring.records[rx->head & (rx->ring.record_count - 1)];
}

static void rx_go_on_grown(struct um_mem_rx *rx)
{
    rx->grown = true;
    um_mem_ring_set(&rx->ring, rx->port->memory + um_mem_port_lane_offset(rx->port->lanes, rx->number), true);
    rx_advance(rx);
}

/* True if the sender has the wide ring that its record names: it took the ring before it wrote the record. */
static bool rx_may_widen(const struct um_mem_rx *rx, uint32_t ring)
{
    return rx->grown && !rx->wide && ring < rx->port->wide_max &&
           um_load_relaxed_u32(&rx->port->common->wide[ring]) == rx->number + 1;
}

static void rx_go_on_widened(struct um_mem_rx *rx, uint32_t ring)
{
    rx->wide = rx->port->memory + um_mem_port_wide_offset(rx->port->lanes, ring);
    um_mem_ring_widen(&rx->ring, rx->wide);
    um_mem_rx_cell_begin(rx);
    rx_advance(rx);
}

static inline bool rx_is_next(const struct um_mem_rx *rx, uint64_t word)
{
    return um_mem_is_record(word, rx->head + 1);
}

/* True if it is a valid record for the layers above, as far as its first word tells, and its body, if it has one, is
 * neither long nor in a cell. */
static inline bool record_is_good(const struct um_mem_rx *rx, uint64_t word)
{
    const uint8_t op = (uint8_t)(word >> 32), flags = (uint8_t)(word >> 40);
    const uint32_t len = (uint32_t)(word >> 48);
    if (op == 0 || op > UM_OPCODE_MAX)
        return false;
    if (flags & UM_FLAG_MACHINE) {
        if (len == 0 || len > rx->ring.body_max)
            return false;
    }
    return true;
}

static inline bool record_is_in_cell(struct um_mem_rx *rx, uint64_t word)
{
    const uint8_t op = (uint8_t)(word >> 32), flags = (uint8_t)(word >> 40);
    const uint32_t len = (uint32_t)(word >> 48);
    return (op & UM_OPCODE_BODY_MAX) && flags & UM_FLAG_MACHINE && len & UM_LEN_CELL &&
           um_mem_cell_is_good(rx, op, len);
}

/* Returns the bytes of a long body; 0: the record has none, or is invalid. */
static inline uint32_t long_body_len(const struct um_mem_rx *rx, uint64_t word)
{
    const uint8_t op = (uint8_t)(word >> 32), flags = (uint8_t)(word >> 40);
    const uint32_t low = (uint32_t)(word >> 48), len = (uint32_t)(op >> UM_OP_UPPER_SHIFT) << UM_LEN_BITS | low;
    const bool is_long = flags & UM_FLAG_MACHINE && !(low & UM_LEN_CELL) && len > UM_BIG_BODY && len <= UM_LONG_BODY;
    return is_long && (op & UM_OP_MASK) != 0 && rx->wide ? len : 0;
}

/* Offers a record that is timed, or whose body lies at the begin of its ring. Returns its body. */
static __attribute__((noinline)) const void *rx_flagged_offer(struct um_mem_rx *rx, uint8_t flags, uint32_t len,
                                                              const void *body)
{
    if (flags & UM_FLAG_TIMED) {
        rx->offered_at = um_clock_ticks();
        return body;
    }
    rx->record_end = um_mem_ring_next_round(&rx->ring, rx->bytes_head - 1) + um_mem_body_space(len);
    if (rx->wide) {
        rx->front_at = rx->record_end;
        rx->ring.publish_bytes = UM_FRONT_PUBLISH;
    }
    return rx->ring.bytes;
}

/* Describes a good record. len: bytes of a body in a ring, or what the record has. is_in_cell is constant. */
static inline __attribute__((always_inline)) void record_offer(struct um_mem_rx *rx, uint64_t word, uint32_t len,
                                                               struct um_record *rec_p, const bool is_in_cell)
{
    const uint8_t flags = (uint8_t)(word >> 40);
    const void *body = NULL;
    um_mem_rx_not_idle(rx);
    rx->record_end = rx->bytes_head;
    if (flags & UM_FLAG_MACHINE) {
        if (is_in_cell) {
            body = um_mem_cell_offer(rx, (uint8_t)(word >> 32), &len);
        } else {
            const uint32_t start = um_mem_body_start(&rx->ring, rx->bytes_head, len);
            body = rx->ring.bytes + (start & (rx->ring.byte_count - 1));
            rx->record_end = start + um_mem_body_space(len);
        }
        rx->expects_body = len <= UM_BODY_ALIGN;
        if (__builtin_expect(flags & (is_in_cell ? UM_FLAG_TIMED : UM_FLAG_TIMED | UM_FLAG_FRONT), 0))
            body = rx_flagged_offer(rx, flags, len, body);
    }
    *rec_p = (struct um_record){
        .rx = &rx->base,
        .header = rx->next->header,
        .body = body,
        .len = len,
        .op = (uint8_t)(word >> 32),
        .flags = flags & (uint8_t)~UM_FLAG_MACHINE,
    };
}

/* Offers a record whose body is long or lies in a cell. False: it is none, or invalid. */
static __attribute__((noinline)) bool offer_other(struct um_mem_rx *rx, uint64_t word, struct um_record *rec_p)
{
    const uint32_t len = long_body_len(rx, word);
    if (len)
        record_offer(rx, word, len, rec_p, false);
    else if (record_is_in_cell(rx, word))
        record_offer(rx, word, (uint32_t)(word >> 48), rec_p, true);
    else
        return false;
    rec_p->op &= len ? UM_OP_MASK : UM_OPCODE_BODY_MAX;
    return true;
}

/* Handles a record that belongs to the machine, or is invalid. */
static void rx_take_other(struct um_mem_rx *rx, uint64_t word)
{
    static struct um_log_limit limit;
    const uint8_t op = (uint8_t)(word >> 32);
    const uint32_t len = (uint32_t)(word >> 48);
    um_mem_rx_not_idle(rx);
    if (op == UM_OPCODE_GROW && !rx->grown) {
        rx_go_on_grown(rx);
        return;
    }
    if (op == UM_OPCODE_WIDEN && rx_may_widen(rx, len)) {
        rx_go_on_widened(rx, len);
        return;
    }
    um_log_limited(&limit, UM_LOG_WARN,
                   "a peer wrote a record that cannot be (op 0x%02x, %u bytes); its lane is closed", op, len);
    rx_end_refused(rx);
}

/*
 * If there are many hot lanes, makes those cold that have been idle for half of the rounds since the last sweep. Their
 * senders ring the bell from then on. Vain looks count whether other lanes have records or not, so that a busy receiver
 * does not go on looking at idle lanes.
 */
static __attribute__((noinline)) void hot_sweep(struct um_mem_port *port)
{
    const uint32_t lanes = port->hot_count;
    port->vain_left = UM_SWEEP * (int32_t)(lanes < UM_SWEEP_LANES ? lanes : UM_SWEEP_LANES);
    port->vain_left += lanes == 0; /* none to look at */
    if (lanes <= UM_HOT_KEEP)
        return;
    const uint32_t limit = (uint32_t)port->vain_left / 2 / lanes;
    /* hot[] keeps its entries beyond hot_count, so it also serves as the list of the rx that were made cold */
    for (uint32_t i = lanes; i-- > 0;) {
        struct um_mem_rx *rx = port->hot[i];
        if (rx->state == UM_RX_LIVE && rx->idle > limit) {
            um_mem_rx_set_cold(rx);
            port->hot[port->hot_count] = rx;
        }
    }
    if (port->hot_count == lanes)
        return;
    um_mem_port_barrier(port); /* sync: cold-recheck (partner cold-check) */
    for (uint32_t i = port->hot_count; i < lanes; i++) {
        struct um_mem_rx *rx = port->hot[i];
        if (um_mem_rx_has_record(rx))
            um_mem_rx_set_hot(rx);
    }
}

/*
 * Prefetches the lines of the next body in each empty poll, so that they come together with the line of its record when
 * the sender has written them. A receiver that touches the body only after it has seen the record waits for two
 * transfers between the caches, one after the other. Done only while bodies are short: a prefetch would take the lines
 * of a long body away from a sender that is still writing it. It has no effect on what is read. (Half a round trip of
 * 64 bytes: 140 ns, 145 without it; of 512 bytes 226, 199 without it.)
 */
static inline void rx_expect_body(const struct um_mem_rx *rx)
{
    __builtin_prefetch(rx->body_next);
    __builtin_prefetch(rx->body_next + UM_LINE);
}

/* True if the next empty poll of this rx has to do more than count. */
static inline bool rx_is_idle_due(const struct um_mem_rx *rx)
{
    return rx->state == UM_RX_LEAVING || rx->idle == rx->idle_due;
}

/* An empty poll of a lane. While it stays idle, it begins to prefetch its next body, fetches lines for the next long
 * message of this port, then publishes its credit, then only counts. */
static void rx_idle(struct um_mem_rx *rx)
{
    const bool due = rx->idle == rx->idle_due;
    rx->idle++;
    if (rx->state == UM_RX_LEAVING) {
        /* closing was seen before this poll found the ring empty: nothing can come any more */
        um_mem_rx_leave(rx, 0);
    } else if (due && rx->idle_due < UM_IDLE_PUBLISH) {
        /* not from rx->next on: the line behind that is the one of the sender's next record */
        rx->body_next = rx->expects_body ? rx->ring.bytes + (rx->bytes_head & (rx->ring.byte_count - 1))
                                         : (const unsigned char *)rx->ring.records;
        rx->idle_due = um_mem_lane_fetch_next(rx->port) ? rx->idle_due + 1 : UM_IDLE_PUBLISH;
    } else if (due) {
        rx->idle_due = UINT32_MAX;
        if (rx->head != rx->published || rx->bytes_head != rx->bytes_published)
            um_mem_rx_publish(rx);
    }
}

/* Polls every hot lane, beginning with the one whose turn it is. observe: memory is not coherent. */
static inline __attribute__((always_inline)) int poll_each(struct um_mem_port *port, struct um_record *rec_p,
                                                           const bool observe)
{
    if (__builtin_expect(port->vain_left <= 0, 0))
        hot_sweep(port);
    for (uint32_t left = port->hot_count; left > 0; left--) {
        if (port->hot_next >= port->hot_count)
            port->hot_next = 0;
        struct um_mem_rx *rx = port->hot[port->hot_next];
        if (observe)
            um_mem_observe(port, rx->next, sizeof(*rx->next));
        uint64_t word = um_load_acquire_u64(&rx->next->word); /* sync: record-poll (partner record-commit) */
        if (rx_is_next(rx, word)) {
            if (++port->burst >= UM_BURST) {
                port->burst = 0;
                port->hot_next++;
            }
            if (record_is_good(rx, word)) {
                record_offer(rx, word, (uint32_t)(word >> 48), rec_p, false);
                if (observe && rec_p->body)
                    um_mem_observe(port, rec_p->body, rec_p->len);
                return 1;
            }
            if (!observe && offer_other(rx, word, rec_p))
                return 1;
            rx_take_other(rx, word);
            left++;
            if (port->hot_count == 0)
                break;
            continue;
        }
        if (!observe && port->hot_count <= UM_HOT_KEEP)
            rx_expect_body(rx);
        rx_idle(rx);
        port->burst = 0;
        port->vain_left--;
        if (++port->hot_next >= port->hot_count)
            port->hot_next = 0;
    }
    if (++port->empty_polls >= UM_SWEEP) {
        port->empty_polls = 0;
        if (port->mapper->serve)
            port->mapper->serve(port);
    }
    return um_list_is_empty(&port->events) ? 0 : um_mem_event_offer(port, rec_p);
}

static __attribute__((noinline)) int poll_lanes(struct um_mem_port *port, struct um_record *rec_p)
{
    return poll_each(port, rec_p, false);
}

int um_mem_poll_observed(struct um_port *base, struct um_record *rec_p)
{
    struct um_mem_port *port = (struct um_mem_port *)base;
    if (um_load_relaxed_u64(&port->common->bell_summary) != 0)
        um_mem_bells_collect(port);
    if (!um_list_is_empty(&port->events))
        return um_mem_event_offer(port, rec_p);
    return poll_each(port, rec_p, true);
}

static __attribute__((noinline)) int poll_rung(struct um_mem_port *port, struct um_record *rec_p)
{
    um_mem_bells_collect(port);
    if (!um_list_is_empty(&port->events))
        return um_mem_event_offer(port, rec_p);
    return poll_lanes(port, rec_p);
}

/* There is a record in the lane whose turn it is. */
static __attribute__((noinline)) int poll_record(struct um_mem_port *port, struct um_record *rec_p,
                                                 struct um_mem_rx *rx, uint64_t word)
{
    if (!record_is_good(rx, word) || port->burst >= UM_BURST - 1)
        return poll_lanes(port, rec_p);
    port->burst++;
    record_offer(rx, word, (uint32_t)(word >> 48), rec_p, false);
    return 1;
}

/*
 * The usual cases: a record in the lane whose turn it is, or nothing in the only lane. The functions above handle all
 * others, by tail calls, so that this one saves no registers.
 */
int um_mem_poll(struct um_port *base, struct um_record *rec_p)
{
    struct um_mem_port *port = (struct um_mem_port *)base;
    if (__builtin_expect(um_load_relaxed_u64(&port->common->bell_summary) != 0, 0))
        return poll_rung(port, rec_p);
    if (__builtin_expect(!um_list_is_empty(&port->events), 0))
        return um_mem_event_offer(port, rec_p);
    if (port->hot_next >= port->hot_count)
        return poll_lanes(port, rec_p);
    struct um_mem_rx *rx = port->hot[port->hot_next];
    uint64_t word = um_load_acquire_u64(&rx->next->word); /* sync: record-poll (partner record-commit) */
    if (rx_is_next(rx, word))
        return poll_record(port, rec_p, rx, word);
    if (port->hot_count > 1 || rx_is_idle_due(rx) || port->empty_polls >= UM_SWEEP - 1)
        return poll_lanes(port, rec_p);
    rx_expect_body(rx);
    rx->idle++;
    port->burst = 0;
    port->empty_polls++;
    return 0;
}

/* The body of a timed record was taken: stores the time for the sender, which reads it with the credit. */
static void rx_loads_end(struct um_mem_rx *rx, const struct um_record *rec, bool is_in_cell)
{
    const bool is_other = rec->flags & UM_FLAG_KIND && !is_in_cell;
    if (rec->body && rec->len >= UM_NONTEMPORAL_MIN)
        um_store_relaxed_u64(&rx->ctl->loads,
                             um_mem_loads_add(&rx->loads, is_other, um_clock_ticks() - rx->offered_at, rec->len));
}

/* True if enough was consumed since the credit was published last. */
static inline bool rx_is_credit_due(const struct um_mem_rx *rx)
{
    return rx->head - rx->published >= rx->ring.record_count / 4 ||
           rx->bytes_head - rx->bytes_published >= rx->ring.publish_bytes;
}

/* A record that was timed, or with which a block passes, was released. Returns whether to publish the credit. */
static __attribute__((noinline)) bool rx_flagged_end(struct um_mem_rx *rx, const struct um_record *rec)
{
    const bool is_in_cell = rx->reads && rx->cell_record == rx->head - 1;
    if (rec->flags & UM_FLAG_TIMED)
        rx_loads_end(rx, rec, is_in_cell);
    if (is_in_cell)
        um_mem_cell_release(rx, rec->flags);
    return rec->flags & (UM_FLAG_ACK | UM_FLAG_TIMED) || rx_is_credit_due(rx);
}

void um_mem_release(struct um_port *base, const struct um_record *rec)
{
    enum { FLAGGED = UM_FLAG_TIMED | UM_FLAG_PASS };
    struct um_mem_rx *rx = (struct um_mem_rx *)rec->rx;
    if (rec->op >= UM_OPCODE_MACHINE) {
        um_mem_event_release((struct um_mem_port *)base, rec);
        return;
    }
    rx_advance(rx);
    rx->bytes_head = rx->record_end;
    if (rec->flags & (UM_FLAG_ACK | FLAGGED) || rx_is_credit_due(rx)) {
        if (__builtin_expect(rec->flags & FLAGGED, 0) && !rx_flagged_end(rx, rec))
            return;
        um_mem_rx_publish(rx);
    }
}

void um_mem_rx_refuse(struct um_rx *base)
{
    struct um_mem_rx *rx = (struct um_mem_rx *)base;
    rx_end_refused(rx);
}

void um_mem_rx_origin(const struct um_rx *base, struct um_addr *addr_p)
{
    const struct um_mem_rx *rx = (const struct um_mem_rx *)base;
    *addr_p = rx->origin;
}

bool um_mem_rx_is_closing(struct um_rx *base)
{
    struct um_mem_rx *rx = (struct um_mem_rx *)base;
    um_fence_acquire(); /* sync: closing-after (partner lane-closing): behind the loads from the sender's memory */
    um_mem_sender_observe(rx->port, rx->ctl);
    return um_load_relaxed_u32(&rx->ctl->closing) != 0;
}

struct um_progress_words *um_mem_rx_progress(struct um_rx *base)
{
    struct um_mem_rx *rx = (struct um_mem_rx *)base;
    return rx->port->mapper->observe ? NULL : rx->ctl->progress;
}
