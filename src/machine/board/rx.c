/* Receiving: lanes that peers asked for, records, answers, credit. board.h. */
#include "machine/board/board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CREDIT_LINES = UM_BOARD_LINES / 4, CREDIT_RECORDS = UM_BOARD_EMBEDS / 2, IDLE_POLLS = 256 };

/* ---- what is told to the sender ---- */

/* True: it went, or nobody is there to hear it. */
static bool tell(struct um_board_rx *rx, const struct um_board_message_wire *message)
{
    int ret = um_board_api.mailbox_send(um_board_handle(), &rx->peer, message, sizeof(*message));
    if (ret && ret != -EAGAIN)
        rx->end_told = true;
    return ret != -EAGAIN;
}

static bool push_answers(struct um_board_rx *rx)
{
    bool any = false;
    while (rx->answers_in != rx->answers_out) {
        const struct um_answer *answer = &rx->answers[rx->answers_out % UM_BOARD_ANSWERS];
        struct um_board_message_wire message = {
            .op = UM_BOARD_ANSWER, .number = rx->lane, .value = (uint32_t)answer->status, .more = answer->token};
        if (!tell(rx, &message))
            break;
        rx->answers_out++;
        any = true;
    }
    return any;
}

/* Before UM_BOARD_EAGER: the sender may write what it asked for. */
static bool push_go(struct um_board_rx *rx)
{
    struct um_board_message_wire message = {.op = UM_BOARD_GO, .number = rx->lane, .value = rx->ask_seen};
    if (rx->ask_seen == rx->ask_told || !tell(rx, &message))
        return false;
    rx->ask_told = rx->ask_seen;
    return true;
}

static bool push_credit(struct um_board_rx *rx)
{
    struct um_board_message_wire message = {
        .op = UM_BOARD_CREDIT, .number = rx->lane, .value = rx->released, .held = rx->held, .more = rx->lines_released};
    if ((rx->credit_due == rx->credit_told && rx->held == rx->held_told) || !tell(rx, &message))
        return false;
    rx->held_told = rx->held;
    rx->credit_told = rx->credit_due = rx->released;
    return true;
}

bool um_board_rx_holds_back(const struct um_board_rx *rx)
{
    if (rx->end_told)
        return false;
    return !rx->granted || rx->answers_in != rx->answers_out || rx->credit_due != rx->credit_told ||
           rx->ask_seen != rx->ask_told || rx->held != rx->held_told || rx->refused;
}

bool um_board_rx_push(struct um_board_rx *rx)
{
    bool any = false;
    if (!rx->granted) {
        struct um_board_message_wire message = {
            .op = UM_BOARD_GRANT, .number = rx->lane, .value = rx->ring ? rx->number : 0, .more = (uintptr_t)rx->ring};
        any = rx->granted = tell(rx, &message);
        rx->closed |= rx->end_told; /* who did not hear of the lane sends nothing */
        if (any && !rx->ring) {
            um_board_rx_free(rx);
            return true;
        }
    }
    if (rx->granted) {
        any |= push_go(rx);
        any |= push_answers(rx);
        any |= push_credit(rx);
    }
    if (rx->granted && rx->refused && !rx->end_told && rx->answers_in == rx->answers_out) {
        struct um_board_message_wire message = {.op = UM_BOARD_ENDED, .number = rx->lane};
        any |= rx->end_told = tell(rx, &message);
    }
    if (rx->left_told && rx->closed)
        um_board_rx_free(rx);
    return any;
}

/* ---- what the sender tells ---- */

void um_board_rx_join(struct um_board_port *port, const struct um_board_message_wire *message)
{
    struct unimem_mailbox_address peer = {.node = message->token,
                                          .context = message->value,
                                          .mailbox = (uint32_t)message->more,
                                          .generation = (uint32_t)(message->more >> 32)};
    struct um_board_rx *rx = um_board_rx_new();
    if (!rx)
        return; /* not even memory to say no */
    rx->port = port;
    rx->peer = peer;
    rx->lane = message->number;
    rx->scratch = aligned_alloc(UM_BOARD_LINE, (size_t)2 * UM_BOARD_BODY_MAX);
    if (port->rx_used < port->rx_max && rx->scratch)
        rx->ring = um_board_ring_get();
    port->rx_used += rx->ring != NULL;
}

static void refuse(struct um_board_rx *rx, int error)
{
    if (rx->refused)
        return;
    rx->refused = true;
    rx->error = error;
}

void um_board_rx_take(struct um_board_port *port, const struct um_board_message_wire *message)
{
    struct um_board_rx *rx = um_board_rx_of(message->number);
    if (!rx || rx->port != port || rx->closed)
        return;
    if (message->op == UM_BOARD_CLOSE)
        rx->closed = true;
    else if (message->op == UM_BOARD_ASK)
        rx->ask_seen = message->value;
    else if (message->op == UM_BOARD_TAKEN)
        rx->answers_taken = message->value;
    else if (message->op == UM_BOARD_ARENAS)
        um_board_reach_told(rx->peer.node, rx->peer.context, message->more, message->value);
    else if (message->value - rx->released > UM_BOARD_LINES + UM_BOARD_EMBEDS)
        refuse(rx, EPROTO);
    else
        rx->arrived = message->value;
}

void um_board_rx_embedded(struct um_board_port *port, const struct um_board_embedded_wire *message)
{
    struct um_board_rx *rx = um_board_rx_of(message->number);
    if (!rx || rx->port != port || rx->closed || rx->refused)
        return;
    if (rx->embeds_in - rx->embeds_out == UM_BOARD_EMBEDS || message->op >= UM_OP_MACHINE) {
        refuse(rx, EPROTO);
        return;
    }
    struct um_board_record_wire *record = &rx->embed[rx->embeds_in++ % UM_BOARD_EMBEDS];
    *record = (struct um_board_record_wire){.len = ++rx->arrived,
                                            .op = message->op,
                                            .flags = message->flags,
                                            .body = (uint16_t)(message->kind >> UM_BOARD_LEN_SHIFT)};
    for (unsigned i = 0, next = 0; i < UM_HEAD_MAX / 8 && next < 2; i++)
        if (message->kind >> (UM_BOARD_WORDS_SHIFT + i) & 1)
            memcpy(record->head + (size_t)i * 8, &message->word[next++], 8);
}

/* ---- records ---- */

static const struct um_board_record_wire *record_at(const struct um_board_rx *rx)
{
    return (const void *)(rx->ring + (size_t)(rx->lines_released % UM_BOARD_LINES) * UM_BOARD_LINE);
}

/* The next record came inside a message: where it was kept; NULL: it lies in the ring. */
static const struct um_board_record_wire *embedded_next(const struct um_board_rx *rx)
{
    const struct um_board_record_wire *record = &rx->embed[rx->embeds_out % UM_BOARD_EMBEDS];
    return rx->embeds_in != rx->embeds_out && record->len == rx->released + 1 ? record : NULL;
}

/* The body, copied out of dmable memory. */
static const void *body_view(struct um_board_rx *rx, const struct um_board_record_wire *record, uint32_t len)
{
    if (rx->copied == rx->released + 1)
        return rx->scratch;
    um_board_api.copy(um_board_handle(), rx->scratch, record + 1, len);
    if (um_board_step() < UM_BOARD_DMABLE)
        um_board_api.copy(um_board_handle(), rx->scratch + UM_BOARD_BODY_MAX, rx->scratch, len);
    rx->copied = rx->released + 1;
    return rx->scratch;
}

/* A record as it stands in the ring, where its sender can still write: read once. False: it breaks the format. */
static bool record_view(struct um_board_rx *rx, struct um_record *rec_p)
{
    const struct um_board_record_wire *kept = embedded_next(rx);
    if (kept) {
        *rec_p = (struct um_record){.rx = &rx->base,
                                    .head = kept->head,
                                    .len = kept->body,
                                    .op = kept->op,
                                    .flags = kept->flags & (UM_FLAG_MASK | UM_FLAG_ACK)};
        return true;
    }
    const struct um_board_record_wire *record = record_at(rx);
    uint32_t len = record->len;
    uint8_t op = record->op, flags = record->flags;
    bool body = record->body != 0;
    if (op >= UM_OP_MACHINE || (body && (!len || len > UM_BOARD_BODY_MAX)))
        return false;
    *rec_p = (struct um_record){.rx = &rx->base,
                                .head = record->head,
                                .body = body ? body_view(rx, record, len) : NULL,
                                .len = len,
                                .op = op,
                                .flags = flags & (UM_FLAG_MASK | UM_FLAG_ACK)};
    return true;
}

/* What this rx has to offer. */
static bool offer(struct um_board_rx *rx, struct um_record *rec_p)
{
    static const unsigned char nothing[UM_HEAD_MAX];
    if (rx->left_told || !rx->ring)
        return false;
    *rec_p = (struct um_record){.rx = &rx->base, .head = nothing, .op = UM_REC_JOINED};
    if (!rx->joined_told)
        return true;
    if (!rx->refused && rx->arrived != rx->released) {
        if (record_view(rx, rec_p))
            return true;
        refuse(rx, EPROTO);
    }
    if (!rx->refused && !rx->closed)
        return false;
    *rec_p = (struct um_record){.rx = &rx->base, .head = nothing, .op = UM_REC_LEFT, .len = (uint32_t)rx->error};
    return true;
}

/* The first from a number on, in the order of slots, round and round. */
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

void um_board_credit_due(struct um_board_port *port)
{
    for (struct um_board_rx *rx = um_board_rx_next(NULL); rx; rx = um_board_rx_next(rx))
        if (rx->port == port)
            rx->credit_due = rx->released;
}

/* A lane that was to get more and got none since the last look gets none soon. */
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

/* ---- answers, refusal, the user's pointer ---- */

/* The sender keeps what it has not reaped: who tells wrongly what it has loses its own answers. */
static bool has_room(const struct um_board_rx *rx)
{
    return (int32_t)(rx->answers_in - rx->answers_taken) < UM_BOARD_ANSWERS - UM_TOKENS;
}

int um_board_answer(struct um_rx *base, uint32_t token, int32_t status)
{
    struct um_board_rx *rx = (struct um_board_rx *)base;
    um_board_enter();
    um_board_drive();
    rx->crowded = (token >= UM_TOKENS && !has_room(rx)) || rx->answers_in - rx->answers_out == UM_BOARD_ANSWERS;
    int ret = rx->crowded ? -EAGAIN : 0;
    if (ret == 0) {
        rx->answers[rx->answers_in++ % UM_BOARD_ANSWERS] = (struct um_answer){token, status};
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

/* Who sent a message to open a lane is known as soon as the mailbox is read. */
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
    refuse(rx, EPROTO);
    um_board_drive();
    um_board_leave();
}

void um_board_rx_origin(const struct um_rx *base, struct um_addr *addr_p)
{
    const struct um_board_rx *rx = (const struct um_board_rx *)base;
    *addr_p = um_board_addr(&rx->peer);
}
