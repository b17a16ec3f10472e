/* The driver: takes messages out of the mailboxes, and sends what is to be told. board.h. */
#include "machine/board/board.h"

static void take(struct um_board_port *port, const struct um_board_message_wire *message)
{
    switch (message->op & UM_BOARD_KIND_MASK) {
    case UM_BOARD_RECORD:
        um_board_rx_embedded(port, (const void *)message);
        break;
    case UM_BOARD_JOIN:
        um_board_rx_join(port, message);
        break;
    case UM_BOARD_DATA:
    case UM_BOARD_CLOSE:
    case UM_BOARD_ASK:
    case UM_BOARD_ARENAS:
    case UM_BOARD_TAKEN:
        um_board_rx_take(port, message);
        break;
    case UM_BOARD_SEEK:
        um_board_view_seek(port, (const void *)message);
        break;
    case UM_BOARD_UNSEEK:
        um_board_view_take(port, message);
        break;
    case UM_BOARD_SHOWN:
    case UM_BOARD_GONE:
        um_board_seek_take(port, message);
        break;
    default:
        um_board_lane_take(port, message);
    }
}

static void take_all(struct um_board_port *port)
{
    struct um_board_message_wire message;
    while (um_board_api.mailbox_receive(port->mailbox, &message) == 0)
        take(port, &message);
}

void um_board_drive(void)
{
    bool any; /* a message was sent, perhaps to a port of this process */
    do {
        any = false;
        for (struct um_board_port *port = um_board_ports(); port; port = port->next)
            take_all(port);
        for (struct um_board_lane *lane = um_board_lane_next(NULL), *next; lane; lane = next) {
            next = um_board_lane_next(lane);
            any |= um_board_lane_push(lane);
        }
        for (struct um_board_rx *rx = um_board_rx_next(NULL), *next; rx; rx = next) {
            next = um_board_rx_next(rx);
            any |= um_board_rx_push(rx);
        }
        any |= um_board_views_push();
        any |= um_board_seeks_push();
    } while (any);
}

bool um_board_holds_back(const struct um_board_port *port)
{
    for (const struct um_board_lane *lane = um_board_lane_next(NULL); lane; lane = um_board_lane_next(lane))
        if ((lane->port == port || !lane->port) && um_board_lane_holds_back(lane))
            return true;
    for (const struct um_board_rx *rx = um_board_rx_next(NULL); rx; rx = um_board_rx_next(rx))
        if (rx->port == port && um_board_rx_holds_back(rx))
            return true;
    return um_board_views_hold_back(port) || um_board_seeks_hold_back(port);
}
