/* The receiving end of a lane: what it tells the sender, and what the sender tells it. board.h. */
#include "machine/board/board.h"

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is told to the sender ---- */

/* Sends a message about the rx. True: it was sent, or the peer is gone. */
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
        const struct um_answer *answer = &rx->answers[rx->answers_out % UM_ANSWERS];
        struct um_board_message_wire message = {
            .op = UM_BOARD_ANSWER, .number = rx->lane, .value = (uint32_t)answer->status, .more = answer->token};
        if (!tell(rx, &message))
            break;
        rx->answers_out++;
        any = true;
    }
    return any;
}

/* Below UM_BOARD_EAGER: tells the sender that it may write what it asked for. */
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

void um_board_rx_free(struct um_board_rx *rx)
{
    if (rx->ring) {
        um_board_ring_put(rx->ring, !rx->closed);
        rx->port->rx_used--;
    }
    free(rx->scratch);
    um_board_rx_delete(rx);
}

bool um_board_rx_push(struct um_board_rx *rx)
{
    bool any = false;
    if (!rx->granted) {
        struct um_board_message_wire message = {
            .op = UM_BOARD_GRANT, .number = rx->lane, .value = rx->ring ? rx->number : 0, .more = (uintptr_t)rx->ring};
        any = rx->granted = tell(rx, &message);
        rx->closed |= rx->end_told; /* a sender that did not get GRANT sends nothing */
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

void um_board_credit_due(struct um_board_port *port)
{
    for (struct um_board_rx *rx = um_board_rx_next(NULL); rx; rx = um_board_rx_next(rx))
        if (rx->port == port)
            rx->credit_due = rx->released;
}

/* ---- what the sender tells ---- */

/* Once: a sender that is refused asks again. */
static void tell_full(struct um_board_port *port)
{
    if (!port->full_logged)
        um_log(UM_LOG_WARN,
               "all %" PRIu32
               " lanes into an endpoint are taken: messages of another sender wait until one leaves; set "
               "FI_UNIMEM_LANES to at least the number of processes",
               port->rx_max);
    port->full_logged = true;
}

void um_board_rx_join(struct um_board_port *port, const struct um_board_message_wire *message)
{
    struct unimem_mailbox_address peer = {.node = message->token,
                                          .context = message->value,
                                          .mailbox = (uint32_t)message->more,
                                          .generation = (uint32_t)(message->more >> 32)};
    struct um_board_rx *rx = um_board_rx_new(port->base.machine);
    if (!rx)
        return; /* no memory even to deny the lane */
    rx->port = port;
    rx->peer = peer;
    rx->lane = message->number;
    rx->scratch = aligned_alloc(UM_BOARD_LINE, (size_t)2 * UM_BOARD_BODY_MAX);
    if (port->rx_used == port->rx_max)
        tell_full(port);
    else if (rx->scratch && !port->closing)
        rx->ring = um_board_ring_get();
    port->rx_used += rx->ring != NULL;
}

void um_board_rx_fail(struct um_board_rx *rx, int error)
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
        um_board_rx_fail(rx, EPROTO);
    else
        rx->arrived = message->value;
}

void um_board_rx_embedded(struct um_board_port *port, const struct um_board_embedded_wire *message)
{
    struct um_board_rx *rx = um_board_rx_of(message->number);
    if (!rx || rx->port != port || rx->closed || rx->refused)
        return;
    if (rx->embeds_in - rx->embeds_out == UM_BOARD_EMBEDS || message->op >= UM_OPCODE_MACHINE) {
        um_board_rx_fail(rx, EPROTO);
        return;
    }
    struct um_board_record_wire *record = &rx->embed[rx->embeds_in++ % UM_BOARD_EMBEDS];
    *record = (struct um_board_record_wire){.len = ++rx->arrived,
                                            .op = message->op,
                                            .flags = message->flags,
                                            .body = (uint16_t)(message->kind >> UM_BOARD_LEN_SHIFT)};
    for (unsigned i = 0, next = 0; i < UM_HEADER_MAX / 8 && next < 2; i++)
        if (message->kind >> (UM_BOARD_WORDS_SHIFT + i) & 1)
            memcpy(record->header + (size_t)i * 8, &message->word[next++], 8);
}
