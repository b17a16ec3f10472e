/*
 * Mailboxes: queues in the board's memory, each under its lock.
 *
 * A message is written before the tail moves, so a sender that dies at any step leaves the queue whole. The interrupt
 * is a datagram to a socket without a file. It is sent before the tail moves, under the lock: a sender that dies in
 * between leaves an interrupt without a message, but never a message without its interrupt.
 */
#include "emu/board.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct unimem_mailbox {
    struct unimem_board *board;
    struct emu_mailbox_shm *shm;
    uint32_t number, generation;
    int fd;
    struct unimem_mailbox *next; /* in the list of the handle */
};

int unimem_mailbox_open(struct unimem_board *board, struct unimem_mailbox **mailbox_p)
{
    struct emu_request_wire request = {.op = EMU_OP_MAILBOX_OPEN};
    struct emu_reply_wire reply;
    struct sockaddr_un address;
    struct unimem_mailbox *mailbox = calloc(1, sizeof(*mailbox));
    if (!mailbox)
        return -ENOMEM;
    int ret = emu_ask(board, &request, &reply);
    if (ret)
        goto free_mailbox;
    *mailbox = (struct unimem_mailbox){board, &board->shm->mailboxes[reply.first], reply.first, reply.second, -1, NULL};
    mailbox->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t len = emu_interrupt_address(&address, board->shm->tag, mailbox->number, mailbox->generation);
    if (mailbox->fd < 0 || bind(mailbox->fd, (struct sockaddr *)&address, len) < 0) {
        ret = -errno;
        goto end_mailbox;
    }
    pthread_mutex_lock(&board->lock);
    mailbox->next = board->mailboxes;
    board->mailboxes = mailbox;
    pthread_mutex_unlock(&board->lock);
    *mailbox_p = mailbox;
    return 0;

end_mailbox:
    if (mailbox->fd >= 0)
        close(mailbox->fd);
    request = (struct emu_request_wire){.op = EMU_OP_MAILBOX_CLOSE, .first = reply.first, .second = reply.second};
    emu_ask(board, &request, &reply);
free_mailbox:
    free(mailbox);
    return ret;
}

void unimem_mailbox_close(struct unimem_mailbox *mailbox)
{
    struct emu_request_wire request = {
        .op = EMU_OP_MAILBOX_CLOSE, .first = mailbox->number, .second = mailbox->generation};
    struct emu_reply_wire reply;
    struct unimem_board *board = mailbox->board;
    emu_ask(board, &request, &reply);
    pthread_mutex_lock(&board->lock);
    struct unimem_mailbox **link = &board->mailboxes;
    while (*link != mailbox)
        link = &(*link)->next;
    *link = mailbox->next;
    pthread_mutex_unlock(&board->lock);
    close(mailbox->fd);
    free(mailbox);
}

void emu_mailboxes_fini(struct unimem_board *board)
{
    while (board->mailboxes) {
        struct unimem_mailbox *mailbox = board->mailboxes;
        board->mailboxes = mailbox->next;
        close(mailbox->fd);
        free(mailbox);
    }
}

void unimem_mailbox_get_address(const struct unimem_mailbox *mailbox, struct unimem_mailbox_address *address_p)
{
    *address_p = (struct unimem_mailbox_address){.node = mailbox->board->node,
                                                 .context = mailbox->board->context,
                                                 .mailbox = mailbox->number,
                                                 .generation = mailbox->generation};
}

/* False: not now (no descriptor is left), and the mailbox stays armed. */
static bool interrupt(struct unimem_board *board, uint32_t number, uint32_t generation)
{
    struct sockaddr_un address;
    socklen_t len = emu_interrupt_address(&address, board->shm->tag, number, generation);
    if (sendto(board->interrupt_fd, "i", 1, MSG_NOSIGNAL, (struct sockaddr *)&address, len) == 1 || errno != EAGAIN)
        return true; /* refused: its process has ended */
    /* Either its queue is full, so that it is readable already; or the datagrams that other sleepers have not taken
     * fill this socket's buffer. A new socket has an empty one. */
    const int fresh = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fresh < 0)
        return false;
    sendto(fresh, "i", 1, MSG_NOSIGNAL, (struct sockaddr *)&address, len);
    dup3(fresh, board->interrupt_fd, O_CLOEXEC); /* in one step: other threads send by that number */
    close(fresh);
    return true;
}

/* Under the mailbox's lock. */
static int put(struct unimem_board *board, const struct unimem_mailbox_address *to,
               const struct emu_message_shm *message)
{
    struct emu_mailbox_shm *mailbox = &board->shm->mailboxes[to->mailbox];
    if (!to->generation || mailbox->generation != to->generation || mailbox->context != to->context ||
        mailbox->node != to->node)
        return -ENXIO;
    if (mailbox->tail - mailbox->head >= board->params->mailbox_depth)
        return -EAGAIN;
    struct emu_message_shm *place = emu_message_at(board->shm, to->mailbox, mailbox->tail);
    *place = *message;
    /* The message leaves the node when the processor time of this call is over. */
    place->arrival = emu_node_send(&board->shm->nodes[board->node], board->params, message->arrival);
    if (mailbox->armed && interrupt(board, to->mailbox, to->generation)) {
        mailbox->armed = 0;
        emu_clock_wake(board->shm, mailbox->context, place->arrival);
    }
    emu_lock_step(); /* a sender that dies before this has sent nothing */
    mailbox->tail++;
    return 0;
}

int unimem_mailbox_send(struct unimem_board *board, const struct unimem_mailbox_address *to, const void *message,
                        size_t len)
{
    if (len > UNIMEM_MESSAGE_SIZE)
        return -EMSGSIZE;
    if (to->mailbox >= EMU_MAILBOXES)
        return -ENXIO;
    struct emu_message_shm filled = {.sender = board->context};
    if (len)
        memcpy(filled.bytes, message, len);
    uint64_t begin = emu_clock_turn(&board->clock);
    filled.arrival = begin + emu_cost_of(board->params, 0);
    emu_lock_take(&board->shm->mailboxes[to->mailbox].lock);
    int ret = put(board, to, &filled);
    emu_lock_give(&board->shm->mailboxes[to->mailbox].lock);
    emu_clock_end(&board->clock, begin, emu_cost_of(board->params, ret));
    return ret;
}

/*
 * Returns the place of the message that is to be taken first. In virtual time that is the one that arrives first, and
 * of messages that arrive at the same time the one from the lowest slot: the order in which the host ran the senders
 * does not matter. Under the mailbox's lock.
 */
static uint64_t first_of(const struct unimem_mailbox *mailbox)
{
    const struct unimem_board *board = mailbox->board;
    uint64_t first = mailbox->shm->head, best = UINT64_MAX;
    for (uint64_t i = first; board->params->timing == EMU_TIMING_VIRTUAL && i != mailbox->shm->tail; i++) {
        const struct emu_message_shm *message = emu_message_at(board->shm, mailbox->number, i);
        const struct emu_message_shm *before = emu_message_at(board->shm, mailbox->number, first);
        if (message->arrival > best ||
            (message->arrival == best && emu_slot(message->sender) >= emu_slot(before->sender)))
            continue;
        best = message->arrival;
        first = i;
    }
    return first;
}

/* Removes the message at a place; the messages before it move up. Under the mailbox's lock. */
static void remove_at(struct unimem_mailbox *mailbox, uint64_t place)
{
    struct unimem_board *board = mailbox->board;
    for (; place != mailbox->shm->head; place--)
        *emu_message_at(board->shm, mailbox->number, place) = *emu_message_at(board->shm, mailbox->number, place - 1);
    mailbox->shm->head++;
}

/* Under the mailbox's lock. message NULL: only looks. *begin_p: on success, not before the arrival of the message. */
static int take(struct unimem_mailbox *mailbox, void *message, uint64_t *begin_p)
{
    struct unimem_board *board = mailbox->board;
    if (mailbox->shm->generation != mailbox->generation)
        return -EIO; /* only a server that has ended this context does that */
    if (mailbox->shm->head == mailbox->shm->tail)
        return -EAGAIN;
    uint64_t place = first_of(mailbox);
    const struct emu_message_shm *first = emu_message_at(board->shm, mailbox->number, place);
    if (!emu_clock_reached(&board->clock, begin_p, first->arrival))
        return -EAGAIN;
    if (!message)
        return 0;
    memcpy(message, first->bytes, UNIMEM_MESSAGE_SIZE);
    remove_at(mailbox, place);
    return 0;
}

static int take_locked(struct unimem_mailbox *mailbox, void *message, uint64_t *begin_p)
{
    emu_lock_take(&mailbox->shm->lock);
    int ret = take(mailbox, message, begin_p);
    emu_lock_give(&mailbox->shm->lock);
    return ret;
}

int unimem_mailbox_receive(struct unimem_mailbox *mailbox, void *message)
{
    struct emu_clock *clock = &mailbox->board->clock;
    const struct emu_params *params = mailbox->board->params;
    uint64_t begin = emu_clock_look(clock);
    int ret = 0;
    /* A sender can notice that there is room, so in virtual time this waits for the context's turn. */
    if (params->timing == EMU_TIMING_VIRTUAL) {
        ret = take_locked(mailbox, NULL, &begin);
        if (!ret)
            begin = emu_clock_take(clock, begin);
    }
    if (!ret)
        ret = take_locked(mailbox, message, &begin);
    emu_clock_end(clock, begin, emu_cost_of(params, ret));
    return ret;
}

int unimem_mailbox_fd(const struct unimem_mailbox *mailbox)
{
    return mailbox->fd;
}

int unimem_mailbox_arm(struct unimem_mailbox *mailbox)
{
    emu_lock_take(&mailbox->shm->lock);
    bool empty = mailbox->shm->head == mailbox->shm->tail;
    if (empty) {
        mailbox->shm->armed = 1;
        emu_clock_sleep(&mailbox->board->clock);
    }
    emu_lock_give(&mailbox->shm->lock);
    return empty ? 0 : -EAGAIN;
}

void unimem_mailbox_disarm(struct unimem_mailbox *mailbox)
{
    char bytes[8];
    emu_lock_take(&mailbox->shm->lock);
    mailbox->shm->armed = 0;
    emu_lock_give(&mailbox->shm->lock);
    while (recv(mailbox->fd, bytes, sizeof(bytes), MSG_DONTWAIT) >= 0)
        ;
}
