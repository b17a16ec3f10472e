/*
 * The sending end of a lane: claim, commit, growth, answers. Its beginning and end: lane_life.c. The memory that
 * it takes to grow: lane_memory.c. Its room: lane_room.c. Long bodies: lane_long.c.
 *
 * Owns: struct um_mem_lane. It writes records and bodies in the peer's memory, the sender's lines of the control block,
 * and the peer's bells. What it reads there was written by the peer: credit and answers are checked before use.
 * Threading: machine.h.
 */
#include "machine/mem/mem.h"

#include "base/atomic.h"
#include "base/log.h"

#include <errno.h>

static uint64_t record_word(uint32_t seq, uint8_t op, uint8_t flags, uint32_t len)
{
    return (uint64_t)seq | (uint64_t)op << 32 | (uint64_t)flags << 40 | (uint64_t)len << 48;
}

void um_mem_ring_set(struct um_mem_ring *ring, unsigned char *area, bool grown)
{
    *ring = (struct um_mem_ring){
        .records = (void *)(area + (grown ? UM_AREA_BIG_RECORDS : UM_AREA_SMALL_RECORDS)),
        .bytes = area + (grown ? UM_AREA_BIG_BYTES : UM_AREA_SMALL_BYTES),
        .record_count = grown ? UM_BIG_RECORDS : UM_SMALL_RECORDS,
        .byte_count = grown ? UM_BIG_BYTES : UM_SMALL_BYTES,
        .publish_bytes = (grown ? UM_BIG_BYTES : UM_SMALL_BYTES) / 4,
        .body_max = grown ? UM_BIG_BODY : UM_SMALL_BODY,
    };
}

void um_mem_ring_widen(struct um_mem_ring *ring, unsigned char *bytes)
{
    ring->bytes = bytes;
    ring->byte_count = UM_WIDE_BYTES;
    ring->publish_bytes = UM_WIDE_BYTES / 4;
}

struct um_mem_lane_shm *um_mem_lane_ctl(void *control, uint32_t number)
{
    return (struct um_mem_lane_shm *)(void *)((unsigned char *)control + UM_PAGE) + number;
}

uint64_t *um_mem_lane_sender(void *coherent, uint32_t number)
{
    return &um_mem_lane_ctl(coherent, number)->sender;
}

/* Rings the receiver's bell for this lane, and wakes it when it sleeps. Slow path: the lane was cold. */
void um_mem_lane_ring_bell(struct um_mem_lane *lane)
{
    struct um_mem_common_shm *peer = lane->link->common;
    uint64_t bit = (uint64_t)1 << (lane->number % 64);
    uint64_t word = (uint64_t)1 << (lane->number / 64);
    uint64_t *bell = &peer->bell[lane->number / 64];
    /* sync: bell-ring (partners bell-collect, bell-look). A sender may have died between setting the two bits. */
    if (!(um_load_relaxed_u64(bell) & bit))
        um_rmw_or_u64(bell, bit);
    if (!(um_load_relaxed_u64(&peer->bell_summary) & word))
        um_rmw_or_u64(&peer->bell_summary, word);
    um_mem_link_wake(lane->link);
}

static bool lane_is_held(const struct um_mem_lane *lane)
{
    /* sync: hold-look (partner hold-end) */
    return um_load_acquire_u32(&lane->ctl->state) & UM_LANE_HELD;
}

static inline void lane_ring_unless_hot(struct um_mem_lane *lane)
{
    if (!(um_load_relaxed_u32(&lane->ctl->state) & UM_LANE_HOT))
        um_mem_lane_ring_bell(lane);
}

/* Called after a commit. True if no empty poll came since the commit before; notes that in has_streamed. */
static inline bool note_polls(struct um_mem_lane *lane)
{
    const uint32_t polls = lane->link->port->empty_polls;
    if (polls != lane->polls) {
        lane->polls = polls;
        return false;
    }
    lane->has_streamed = true;
    return true;
}

/* Publishes a record where a store is not enough: membarrier does not reach one of the two sides, or memory is not
 * coherent. */
static __attribute__((noinline)) void lane_publish_fenced(struct um_mem_lane *lane, struct um_mem_record_shm *record,
                                                          uint64_t word)
{
    struct um_mem_port *port = lane->link->port;
    if (word >> 40 & UM_FLAG_MACHINE) { /* nothing is published where bodies may lie in cells */
        uint32_t len = (uint32_t)(word >> 48), start = lane->bytes_head - um_mem_body_space(len);
        um_mem_publish(port, lane->ring.bytes + (start & (lane->ring.byte_count - 1)), len); /* before the record */
    }
    um_store_release_u64(&record->word, word); /* sync: record-commit (partners record-poll, record-look) */
    um_mem_publish(port, record, sizeof(*record));
    um_fence_full(); /* sync: cold-check (partner cold-recheck) */
    um_mem_receiver_observe(port, lane->ctl);
    (void)note_polls(lane);
    lane_ring_unless_hot(lane);
}

/*
 * In a stream the store that begins the next record would wait for its line, which the receiver read a round ago. So
 * the line is fetched between two messages, where that costs nothing. It is not fetched behind a lone message, after
 * which this process looks for an answer: the receiver waits for the next record in that line, and a fetch takes the
 * line away from it. (Half a round trip of 8 bytes: 164 ns with that fetch, 123 without it; where the two processors
 * share no cache, 500 and 342.)
 */
static inline void prefetch_next(struct um_mem_lane *lane)
{
    if (note_polls(lane))
        um_prefetch_for_write(lane->next);
}

static void lane_publish(struct um_mem_lane *lane, uint8_t op, uint8_t flags, uint32_t len)
{
    struct um_mem_record_shm *record = lane->next;
    lane->head++;
    lane->next = &lane->ring.records[lane->head & (lane->ring.record_count - 1)];
    const uint64_t word = record_word(lane->head, op, flags, len);
    if (__builtin_expect(lane->fence, 0)) {
        lane_publish_fenced(lane, record, word);
        return;
    }
    /* sync: record-commit (partners record-poll, record-look) */
    um_store_release_u64(&record->word, word);
    /* sync: cold-check (partner cold-recheck): the record above must be visible before the state below is read. */
    um_fence_compiler();
    prefetch_next(lane);
    lane_ring_unless_hot(lane);
}

/* Goes on in the big rings, if the receiver's memory cap allows it. One record of the small ring is reserved for GROW.
 */
static void lane_grow(struct um_mem_lane *lane)
{
    if (lane->grown || lane->grow_denied)
        return;
    lane->grown = um_mem_lane_take_share(lane);
    lane->grow_denied = !lane->grown;
    if (!lane->grown)
        return;
    lane_publish(lane, UM_OPCODE_GROW, 0, 0);
    um_mem_ring_set(&lane->ring, lane->area, true);
    lane->next = &lane->ring.records[lane->head & (lane->ring.record_count - 1)];
}

/* Goes on with its bodies in a wide ring, if the receiver has a free one. The caller has checked that there is room for
 * a record. */
static void lane_widen(struct um_mem_lane *lane)
{
    uint32_t ring;
    lane->widen_tried = true;
    if (um_mem_lane_take_wide(lane, &ring) != 0)
        return;
    lane_publish(lane, UM_OPCODE_WIDEN, 0, ring);
    um_mem_ring_widen(&lane->ring, lane->wide_map.base);
    um_mem_lane_touch_begin(lane);
    um_mem_lane_cell_begin(lane);
    lane->stores.front_bytes = lane->has_choice ? um_mem_lane_front_bytes() : 0;
}

/* Records that can be claimed now. */
static uint32_t lane_room(const struct um_mem_lane *lane)
{
    uint32_t used = lane->head - lane->consumed;
    uint32_t depth = lane->grown ? UM_BIG_RECORDS : UM_SMALL_RECORDS - 1;
    return used < depth ? depth - used : 0;
}

static bool lane_has_place(const struct um_mem_lane *lane, uint32_t body_len)
{
    return lane_room(lane) &&
           um_mem_lane_body_fits(lane, um_mem_body_start(&lane->ring, lane->bytes_head, body_len), body_len);
}

/*
 * Counts a reason to go on in a wide ring. True after 32 of them, when it is due: the lane has filled its big byte ring
 * some 8 to 32 times by then, and getting a wide ring's pages costs little beside that. When a sender comes back to the
 * lines of a ring of 128 KiB, they are up to three times as slow to write as those of a longer ring (docs/design.md).
 */
static bool lane_count_reason(struct um_mem_lane *lane)
{
    enum { REASONS = 32 };
    return ++lane->wide_reasons >= REASONS && lane_room(lane) > 1;
}

/*
 * Called after a look for credit, because what was known for bodies was not enough: one that found some is a reason. It
 * is not with short bodies that come alone, which are as fast in either ring. While a lane waits for its receiver,
 * nothing is counted.
 */
static bool lane_is_wide_due(struct um_mem_lane *lane, uint32_t bytes_before, uint32_t body_len)
{
    if (!lane->grown || lane->widen_tried || lane->bytes_consumed == bytes_before)
        return false;
    const bool is_ahead = lane->bytes_head - lane->bytes_consumed > UM_BIG_BYTES / 2; /* of its receiver */
    if (!lane->has_streamed && !is_ahead && body_len < UM_NONTEMPORAL_MIN)
        return false;
    lane->has_streamed = false;
    return lane_count_reason(lane);
}

/* Reads the credit again because what is known is not enough, at least once in each round of the ring; goes on in a
 * wide ring when that is due. False: the peer wrote an impossible value. */
static bool lane_look_for_credit(struct um_mem_lane *lane, uint32_t body_len)
{
    const uint32_t bytes_before = lane->bytes_consumed;
    if (!um_mem_lane_refresh_credit(lane))
        return false;
    if (__builtin_expect(lane->is_fresh, 0))
        um_mem_lane_touch_end(lane);
    if (lane_is_wide_due(lane, bytes_before, body_len))
        lane_widen(lane);
    return true;
}

/* The slow path of a claim: looks for credit, and grows a lane that is full. */
static int lane_make_room(struct um_mem_lane *lane, uint32_t body_len)
{
    if (!lane_look_for_credit(lane, body_len)) {
        static struct um_log_limit limit;
        um_log_limited(&limit, UM_LOG_WARN, "a peer wrote an impossible credit; its lane is closed");
        return -EPIPE;
    }
    if (lane_has_place(lane, body_len))
        return 0;
    if (!lane->grown)
        lane_grow(lane);
    return lane_has_place(lane, body_len) ? 0 : -EAGAIN;
}

/* Claims a body of UM_NONTEMPORAL_MIN bytes or more. In a stream it mostly takes ordinary stores, into the ring, or
 * into a cell if there is a stream in the other direction as well. A body that is shorter than a record may be begins
 * no block there: it would take a whole one for itself. */
static inline void lane_long_claim(struct um_mem_lane *lane, uint32_t start, bool begins, struct um_slot *slot)
{
    const bool takes = slot->body_len <= lane->ring.body_max || um_mem_cell_takes_long(lane, slot->body_len);
    const bool is_first = begins || um_mem_lane_begins_promised(lane);
    const bool is_lone = lane->lone_goes_on || (is_first && um_mem_lane_is_alone(lane));
    struct um_mem_cell *cell = takes ? lane->writes : NULL;
    if (!cell && takes && (is_lone || (lane->exchanges && slot->body_len >= lane->ring.body_max)))
        cell = um_mem_cell_pick(lane);
    const bool is_plain = cell ? !is_lone
                               : !lane->lone_goes_on && !lane->is_fresh &&
                                     um_mem_stores_stay(&lane->stores, slot->body_len, lane->ring.byte_count);
    lane->goes_front = false;
    if (!is_plain) {
        um_mem_lane_long_claim(lane, cell, start, slot);
    } else {
        slot->is_nontemporal = lane->is_lone = false;
        lane->claimed = NULL;
        lane->timed = NULL;
        if (cell)
            um_mem_cell_claim(lane, cell, slot);
    }
    if (!lane->claimed && um_mem_stores_want_front(&lane->stores))
        um_mem_lane_claim_in_front(lane, start, slot);
}

static inline __attribute__((always_inline)) int lane_claim(struct um_mem_lane *lane, uint32_t body_len,
                                                            struct um_slot *slot_p, bool begins)
{
    if (__builtin_expect(body_len > lane->ring.body_max, 0) && body_len > um_mem_lane_long_max(lane, true))
        return -EMSGSIZE;
    uint32_t start = um_mem_body_start(&lane->ring, lane->bytes_head, body_len);
    if (!lane_room(lane) || (body_len && !um_mem_lane_body_fits(lane, start, body_len))) {
        int ret = lane_make_room(lane, body_len);
        if (ret)
            return ret;
        start = um_mem_body_start(&lane->ring, lane->bytes_head, body_len);
    }
    slot_p->header = lane->next->header;
    slot_p->body_len = body_len;
    if (body_len) {
        slot_p->more = false;
        slot_p->body = lane->ring.bytes + (start & (lane->ring.byte_count - 1));
        lane->claim_bytes_end = start + um_mem_body_space(body_len);
        if (__builtin_expect(body_len >= UM_NONTEMPORAL_MIN, 0))
            lane_long_claim(lane, start, begins, slot_p);
    } else {
        slot_p->body = NULL;
    }
    return 0;
}

int um_mem_claim(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    if (__builtin_expect(um_mem_lane_is_ended(lane), 0))
        return -EPIPE;
    return lane_claim(lane, body_len, slot_p, false);
}

/* True if the lane is open, hot or not, and the receiver has neither held it nor asked for announcements. */
static bool lane_is_plain(const struct um_mem_lane *lane)
{
    uint32_t state = um_load_relaxed_u32(&lane->ctl->state);
    return (state & ~(uint32_t)UM_LANE_HOT) == lane->incarnation << UM_LANE_INC_SHIFT;
}

int um_mem_claim_message(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    if (__builtin_expect(!lane_is_plain(lane), 0)) {
        if (um_mem_lane_is_ended(lane))
            return -EPIPE;
        lane->was_held = lane_is_held(lane);
        if (lane->was_held)
            return -EAGAIN;
    }
    return lane_claim(lane, body_len, slot_p, true);
}

void um_mem_commit(struct um_lane *base, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    if (slot->body) {
        lane->bytes_head = lane->claim_bytes_end;
        flags |= UM_FLAG_MACHINE;
        len = slot->body_len;
        if (__builtin_expect(len >= UM_NONTEMPORAL_MIN, 0)) {
            const uint32_t end = um_mem_lane_long_commit(lane, slot);
            flags |= (uint8_t)end;
            len = end >> 8 & UINT16_MAX;
            op |= (uint8_t)(end >> 24);
        }
    }
    lane_publish(lane, op, flags, len);
}

void um_mem_abort(struct um_lane *base, const struct um_slot *slot)
{
    /* Nothing was published and the position moves only at commit, so the next claim gets the same place. */
    (void)base, (void)slot;
}

uint32_t um_mem_lane_body_max(struct um_lane *base, uint32_t wanted)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    if (wanted > lane->ring.body_max && !lane->grown) {
        um_mem_receiver_observe(lane->link->port, lane->ctl);
        if (!um_mem_lane_is_ended(lane))
            lane_grow(lane);
    }
    return lane->ring.body_max;
}

uint32_t um_mem_lane_part_max(struct um_lane *base, bool goes_on)
{
    const uint32_t usual = um_mem_lane_body_max(base, UM_BIG_BODY);
    const uint32_t most = um_mem_lane_long_max((struct um_mem_lane *)base, goes_on);
    return most > usual ? most : usual;
}

/* True if there is room for so many records with bodies of that length. It counts one body more: a body that would run
 * over the end of the ring begins at its front, which may take up to the space of another one. */
static bool lane_takes(const struct um_mem_lane *lane, uint32_t records, uint32_t body_len)
{
    const uint64_t used = lane->bytes_head - lane->bytes_consumed; /* from the peer: it may be more than the ring */
    const uint64_t bytes = ((uint64_t)records + 1) * um_mem_body_space(body_len);
    return lane_room(lane) >= records && used + bytes <= lane->ring.byte_count;
}

/* Has the lane no room for a message though nothing lies in its big ring? */
static bool lane_is_too_short(const struct um_mem_lane *lane)
{
    return lane->grown && !lane->widen_tried && lane->bytes_consumed == lane->bytes_head;
}

bool um_mem_lane_has_room(struct um_lane *base, uint32_t records, uint32_t body_len)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    lane->promised_to = lane->head;
    um_mem_receiver_observe(lane->link->port, lane->ctl);
    if (!lane_is_plain(lane) || (uint64_t)records * body_len > UM_ROOM_MAX ||
        (body_len > lane->ring.body_max && body_len > um_mem_lane_long_max(lane, false)))
        return false;
    const bool takes = lane_takes(lane, records, body_len) ||
                       (lane_look_for_credit(lane, body_len) && lane_takes(lane, records, body_len));
    lane->promised_from = lane->head;
    lane->promised_to = lane->head + (takes ? records : 0);
    lane->promised_len = body_len;
    if (!takes && lane_is_too_short(lane) && lane_count_reason(lane))
        lane_widen(lane);
    return takes;
}

uint32_t um_mem_lane_committed(const struct um_lane *base)
{
    const struct um_mem_lane *lane = (const struct um_mem_lane *)base;
    return lane->head;
}

uint32_t um_mem_lane_consumed(const struct um_lane *base)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    const uint32_t bytes = lane->bytes_consumed;
    /* An impossible value leaves the last good one; the next claim ends the lane. */
    (void)um_mem_lane_refresh_credit(lane);
    lane->bytes_consumed = bytes; /* claims run out of it once in a round of the ring: lane_is_wide_due() */
    lane->consumed_reported = lane->consumed;
    if (lane->was_held)
        lane->was_held = lane_is_held(lane); /* the end of the hold is reported once */
    return lane->consumed;
}

/* Tells the receiver how many answers were taken: their places are free again. The receiver may sleep and wait for
 * that. */
static void lane_tell_taken(struct um_mem_lane *lane)
{
    lane->answers_told = lane->answers_seen;
    /* sync: taken-publish (partners taken-look, room-look): our reads of the answers come before. */
    um_store_release_u32(&lane->ctl->taken, lane->answers_seen);
    um_mem_sender_publish(lane->link->port, lane->ctl);
    if (lane->fence)
        um_fence_full();
    else
        um_fence_compiler();
    um_mem_link_wake(lane->link);
}

/* Observes the answers behind the last one seen; to be called after the look at their number. */
static void lane_observe_answers(struct um_mem_lane *lane, uint32_t count)
{
    struct um_mem_port *port = lane->link->port;
    const struct um_mem_answer_shm *answer = lane->ctl->answer;
    uint32_t first = lane->answers_seen % UM_ANSWERS;
    uint32_t behind = first + count > UM_ANSWERS ? first + count - UM_ANSWERS : 0;
    um_mem_observe(port, &answer[first], (count - behind) * sizeof(*answer));
    if (behind)
        um_mem_observe(port, answer, behind * sizeof(*answer));
}

int um_mem_lane_reap(struct um_lane *base, struct um_answer *answers, int max)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    uint32_t given = um_load_acquire_u32(&lane->ctl->answers); /* sync: answer-take (partner answer-give) */
    uint32_t news = given - lane->answers_seen;
    if (news == 0)
        return um_mem_lane_is_ended(lane) ? -EPIPE : 0;
    if (news > UM_ANSWERS)
        return -EPIPE;
    int count = 0;
    if (__builtin_expect(lane->fence, 0))
        lane_observe_answers(lane, news);
    while (count < max && lane->answers_seen != given) {
        const struct um_mem_answer_shm *a = &lane->ctl->answer[lane->answers_seen % UM_ANSWERS];
        answers[count++] = (struct um_answer){.token = um_load_relaxed_u32(&a->token),
                                              .status = (int32_t)um_load_relaxed_u32((const uint32_t *)&a->status)};
        lane->answers_seen++;
    }
    if (lane->answers_seen - lane->answers_told >= UM_ANSWERS / 4)
        lane_tell_taken(lane);
    return count;
}

bool um_mem_lane_has_news(const struct um_mem_lane *lane)
{
    um_mem_receiver_observe(lane->link->port, lane->ctl);
    /* sync: news-look (partners credit-publish, answer-give) */
    uint32_t consumed = (uint32_t)um_load_acquire_u64(&lane->ctl->credit);
    uint32_t answers = um_load_acquire_u32(&lane->ctl->answers);
    return consumed != lane->consumed_reported || answers != lane->answers_seen || um_mem_lane_is_ended(lane) ||
           (lane->was_held && !lane_is_held(lane));
}

struct um_progress_words *um_mem_lane_progress(struct um_lane *base)
{
    struct um_mem_lane *lane = (struct um_mem_lane *)base;
    return lane->link->port->mapper->observe ? NULL : lane->ctl->progress;
}
