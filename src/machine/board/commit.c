/* Claims and commits records: where a record is written, and whether it goes in a message or by DMA. board.h. */
#include "machine/board/board.h"

#include <errno.h>
#include <string.h>

static bool has_room(const struct um_board_lane *lane, uint32_t lines)
{
    return lane->lines_committed - lane->lines_consumed + lines <= UM_BOARD_LINES;
}

int um_board_claim(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p)
{
    struct um_board_lane *lane = (struct um_board_lane *)base;
    int ret = 0;
    if (body_len > UM_BOARD_BODY_MAX)
        return -EMSGSIZE;
    uint32_t lines = um_board_lines(body_len);
    um_board_enter();
    if (!lane->more || !has_room(lane, lines))
        um_board_drive();
    if (lane->more && !has_room(lane, lines)) {
        lane->more = false;
        um_board_drive();
    }
    if (lane->ended)
        ret = -EPIPE;
    else if (!has_room(lane, lines))
        ret = -EAGAIN;
    um_board_leave();
    if (ret)
        return ret;
    struct um_board_record_wire *record = (void *)lane->scratch;
    memset(record->header, 0, sizeof(record->header)); /* embed() does not send words that the caller does not write */
    lane->claimed = lines;
    *slot_p = (struct um_slot){.header = record->header, .body = body_len ? record + 1 : NULL, .body_len = body_len};
    return 0;
}

int um_board_claim_message(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p)
{
    struct um_board_lane *lane = (struct um_board_lane *)base;
    int ret = um_board_claim(base, body_len, slot_p);
    lane->was_held = lane->held;
    if (ret || !lane->held)
        return ret;
    lane->more = false; /* so that the next claim runs the driver, which sees the end of the hold */
    return -EAGAIN;
}

/* Sends the record inside a message. False: it does not fit, or must stay behind earlier records, or the mailbox is
 * full. */
static bool embed(struct um_board_lane *lane, const struct um_board_record_wire *record)
{
    struct um_board_embedded_wire message = {.kind = (uint16_t)(UM_BOARD_RECORD | record->len << UM_BOARD_LEN_SHIFT),
                                             .op = record->op,
                                             .flags = record->flags,
                                             .number = lane->rx};
    unsigned words = 0;
    if (um_board_step_get() < UM_BOARD_EMBEDDED || record->body || record->len > UM_BOARD_LEN_MAX ||
        lane->told != lane->committed || lane->committed - lane->consumed >= UM_BOARD_EMBEDS)
        return false;
    for (unsigned i = 0; i < UM_HEADER_MAX / 8; i++) {
        uint64_t word;
        memcpy(&word, record->header + (size_t)i * 8, 8);
        if (word && words == 2)
            return false;
        if (word) {
            message.kind |= (uint16_t)(1u << (UM_BOARD_WORDS_SHIFT + i));
            message.word[words++] = word;
        }
    }
    int ret = um_board_api.mailbox_send(um_board_handle(), &lane->peer, &message, sizeof(message));
    lane->ended |= ret && ret != -EAGAIN;
    return ret == 0;
}

/* Copies the record to staging memory, which the engine reaches. */
static void stage(struct um_board_lane *lane, const struct um_board_record_wire *record)
{
    struct um_board_record_wire *to = um_board_lane_staged(lane, lane->lines_committed);
    *to = *record;
    if (record->body)
        um_board_api.copy(um_board_handle(), to + 1, record + 1, record->len);
    lane->lines_committed += lane->claimed;
    lane->committed++;
}

void um_board_commit(struct um_lane *base, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len)
{
    struct um_board_lane *lane = (struct um_board_lane *)base;
    struct um_board_record_wire *record = (void *)lane->scratch;
    record->len = slot->body_len ? slot->body_len : len;
    record->op = op;
    record->flags = flags;
    record->body = slot->body_len != 0;
    um_board_enter();
    if (!lane->ended && embed(lane, record)) {
        lane->committed++;
        lane->started++;
        lane->moved++;
        lane->told++;
    } else {
        stage(lane, record);
    }
    lane->more = slot->more;
    lane->claimed = 0;
    um_board_lane_push(lane);
    if (!lane->more && lane->told != lane->committed)
        um_board_drive(); /* a mailbox is full: empties the mailboxes of this process meanwhile */
    um_board_leave();
}

void um_board_abort(struct um_lane *base, const struct um_slot *slot)
{
    struct um_board_lane *lane = (struct um_board_lane *)base;
    (void)slot;
    lane->claimed = 0;
}
