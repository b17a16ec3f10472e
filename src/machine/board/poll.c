/* The receiving operations of machine.h: records, answers, holds. board.h. */
#include "machine/board/board.h"

#include <errno.h>
#include <string.h>

enum { CREDIT_LINES = UM_BOARD_LINES / 4, CREDIT_RECORDS = UM_BOARD_EMBEDS / 2, IDLE_POLLS = 256 };

/* ---- records ---- */

static const struct um_board_record_wire *record_at(const struct um_board_rx *rx)
{
    return (const void *)(rx->ring + (size_t)(rx->lines_released % UM_BOARD_LINES) * UM_BOARD_LINE);
}

/* Returns the next record if it came inside a message; NULL: it lies in the ring. */
static const struct um_board_record_wire *embedded_next(const struct um_board_rx *rx)
{
    const struct um_board_record_wire *record = &rx->embed[rx->embeds_out % UM_BOARD_EMBEDS];
    return rx->embeds_in != rx->embeds_out && record->len == rx->released + 1 ? record : NULL;
}

/* Returns the body, copied out of dmable memory. */
static const void *body_view(struct um_board_rx *rx, const struct um_board_record_wire *record, uint32_t len)
{
    if (rx->copied == rx->released + 1)
        return rx->scratch;
    um_board_api.copy(um_board_handle(), rx->scratch, record + 1, len);
    if (um_board_step_get() < UM_BOARD_DMABLE)
        um_board_api.copy(um_board_handle(), rx->scratch + UM_BOARD_BODY_MAX, rx->scratch, len);
    rx->copied = rx->released + 1;
    return rx->scratch;
}

/* Describes the next record. The sender can still write the ring, so each value is read once. False: the record breaks
 * the format. */
static bool record_view(struct um_board_rx *rx, struct um_record *rec_p)
{
    const struct um_board_record_wire *kept = embedded_next(rx);
    if (kept) {
        *rec_p = (struct um_record){.rx = &rx->base,
                                    .header = kept->header,
                                    .len = kept->body,
                                    .op = kept->op,
                                    .flags = kept->flags & (UM_FLAG_MASK | UM_FLAG_ACK)};
        return true;
    }
    const struct um_board_record_wire *record = record_at(rx);
    uint32_t len = record->len;
    uint8_t op = record->op, flags = record->flags;
    bool body = record->body != 0;
    if (op >= UM_OPCODE_MACHINE || (body && (!len || len > UM_BOARD_BODY_MAX)))
        return false;
    *rec_p = (struct um_record){.rx = &rx->base,
                                .header = record->header,
                                .body = body ? body_view(rx, record, len) : NULL,
                                .len = len,
                                .op = op,
                                .flags = flags & (UM_FLAG_MASK | UM_FLAG_ACK)};
    return true;
}

/* Offers what this rx has next; false: nothing. */
static bool offer(struct um_board_rx *rx, struct um_record *rec_p)
{
    static const unsigned char nothing[UM_HEADER_MAX];
    if (rx->left_told || !rx->ring)
        return false;
    *rec_p = (struct um_record){.rx = &rx->base, .header = nothing, .op = UM_REC_JOINED};
    if (!rx->joined_told)
        return true;
    if (!rx->refused && rx->arrived != rx->released) {
        if (record_view(rx, rec_p))
            return true;
        um_board_rx_fail(rx, EPROTO);
    }
    if (!rx->refused && !rx->closed)
        return false;
    *rec_p = (struct um_record){.rx = &rx->base, .header = nothing, .op = UM_REC_LEFT, .len = (uint32_t)rx->error};
    return true;
}

/* Offers a record of the first rx that has one, in the order of slots, from the cursor around. */
static int poll_from(struct um_board_port *port, struct um_record *rec_p)
{
    for (int round = 0; round < 2; round++)
        for (struct um_board_rx *rx = um_board_rx_next(NULL); rx; rx = um_board_rx_next(rx)) {
            bool before = (rx->number & 0xffff) < port->cursor;
            if (rx->port != port || before != (round == 1) || !offer(rx, rec_p))
                continue;
            port->cursor = rx->number & 0xffff;
            return 1;
        }
    return 0;
}

/* Ends the wait for more records in lanes whose caller announced more, but committed none since the last poll. */
static void end_of_more(const struct um_board_port *port)
{
    for (struct um_board_lane *lane = um_board_lane_next(NULL); lane; lane = um_board_lane_next(lane)) {
        if (lane->port == port && lane->committed == lane->committed_seen)
            lane->more = false;
        lane->committed_seen = lane->committed;
    }
}

int um_board_poll_now(struct um_board_port *port, struct um_record *rec_p)
{
    end_of_more(port);
    um_board_drive();
    int ret = poll_from(port, rec_p);
    if (ret) {
        port->idle = 0;
    } else if (++port->idle == IDLE_POLLS) { /* not at once: an answer to what was just taken may be on its way */
        um_board_credit_due(port);
        um_board_drive();
    }
    return ret;
}

int um_board_poll(struct um_port *base, struct um_record *rec_p)
{
    um_board_enter();
    int ret = um_board_poll_now((struct um_board_port *)base, rec_p);
    um_board_leave();
    return ret;
}

static void record_release(struct um_board_rx *rx, const struct um_record *rec)
{
    uint32_t lines = 1 + (rec->body ? (rec->len + UM_BOARD_LINE - 1) / UM_BOARD_LINE : 0);
    uint32_t before = rx->lines_released / CREDIT_LINES, records = rx->released / CREDIT_RECORDS;
    if (embedded_next(rx))
        rx->embeds_out++;
    else
        rx->lines_released += lines;
    rx->released++;
    if ((rec->flags & UM_FLAG_ACK) || rx->lines_released / CREDIT_LINES != before ||
        rx->released / CREDIT_RECORDS != records)
        rx->credit_due = rx->released;
}

void um_board_release(struct um_port *base, const struct um_record *rec)
{
    struct um_board_port *port = (struct um_board_port *)base;
    struct um_board_rx *rx = (struct um_board_rx *)rec->rx;
    um_board_enter();
    if (rec->op == UM_REC_JOINED)
        rx->joined_told = true;
    else if (rec->op == UM_REC_LEFT)
        rx->left_told = true;
    else
        record_release(rx, rec);
    port->cursor = (rx->number & 0xffff) + 1;
    um_board_rx_push(rx);
    um_board_leave();
}

/* ---- answers, refusal, who sends ---- */

/* The sender tells how many answers it has taken; a wrong count only loses its own answers. */
static bool has_room(const struct um_board_rx *rx)
{
    return (int32_t)(rx->answers_in - rx->answers_taken) < UM_ANSWERS - UM_TOKENS;
}

int um_board_answer(struct um_rx *base, uint32_t token, int32_t status)
{
    struct um_board_rx *rx = (struct um_board_rx *)base;
    um_board_enter();
    um_board_drive();
    rx->crowded = (token >= UM_TOKENS && !has_room(rx)) || rx->answers_in - rx->answers_out == UM_ANSWERS;
    int ret = rx->crowded ? -EAGAIN : 0;
    if (ret == 0) {
        rx->answers[rx->answers_in++ % UM_ANSWERS] = (struct um_answer){token, status};
        um_board_rx_push(rx);
    }
    um_board_leave();
    return ret;
}

bool um_board_rx_news(const struct um_board_port *port)
{
    for (const struct um_board_rx *rx = um_board_rx_next(NULL); rx; rx = um_board_rx_next(rx))
        if (rx->port == port && rx->crowded && has_room(rx))
            return true;
    return false;
}

/* A lane that a peer opened is known as soon as the mailbox is read. */
bool um_board_gather(struct um_port *base)
{
    bool news = false;
    um_board_enter();
    um_board_drive();
    for (const struct um_board_rx *rx = um_board_rx_next(NULL); rx && !news; rx = um_board_rx_next(rx))
        news = rx->port == (struct um_board_port *)base && rx->ring && !rx->joined_told;
    um_board_leave();
    return news;
}

void um_board_rx_hold(struct um_rx *base, bool on)
{
    struct um_board_rx *rx = (struct um_board_rx *)base;
    um_board_enter();
    rx->held = on;
    um_board_rx_push(rx);
    um_board_leave();
}

void um_board_rx_refuse(struct um_rx *base)
{
    struct um_board_rx *rx = (struct um_board_rx *)base;
    um_board_enter();
    um_board_rx_fail(rx, EPROTO);
    um_board_drive();
    um_board_leave();
}

void um_board_rx_origin(const struct um_rx *base, struct um_addr *addr_p)
{
    const struct um_board_rx *rx = (const struct um_board_rx *)base;
    *addr_p = um_board_addr(&rx->peer);
}
