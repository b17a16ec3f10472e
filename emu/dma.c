/*
 * DMA. The bytes move when the program asks for the completion, not when the DMA begins, and the last ones move first:
 * the API promises neither an earlier time nor an order, and a program that relies on them must fail here as it would
 * on a board.
 *
 * Without timing the first poll says "not yet", and the second one moves the bytes, so that no program gets by without
 * polling again. With timing the first poll moves the bytes, which takes time of the caller, and a poll reports
 * completion when the model says so.
 */
#include "emu/board.h"
#include "emu/copy.h"

/* Returns the name of a DMA: its place + 1 in the lower 16 bits, its generation above. */
static uint64_t name_of(const struct unimem_board *board, const struct emu_flight *flight)
{
    return (uint64_t)flight->generation << 16 | (uint64_t)(flight - board->flights + 1);
}

static struct emu_flight *flight_place(struct unimem_board *board)
{
    for (uint32_t i = 0; i < board->flights_end; i++)
        if (!board->flights[i].used)
            return &board->flights[i];
    return board->flights_end < board->params->dma_depth ? &board->flights[board->flights_end++] : NULL;
}

/* A transfer that has no place yet. */
struct transfer {
    const struct unimem_remote *remote;
    void *local;
    size_t len;
    bool write;
};

/* Under the lock. */
static int flight_begin(struct unimem_board *board, const struct transfer *what, uint64_t at, uint64_t *dma_p)
{
    struct emu_area *area = emu_area_find(board, what->local, what->len);
    if (!area)
        return -EFAULT;
    struct emu_registration *registration = emu_registration_find(board, what->remote, what->len);
    if (!registration)
        return -EACCES;
    struct emu_flight *flight = flight_place(board);
    if (!flight)
        return -EAGAIN;
    *flight = (struct emu_flight){.used = true,
                                  .write = what->write,
                                  .generation = flight->generation + 1,
                                  .remote = registration,
                                  .offset = registration->offset + (what->remote->address - registration->at.address),
                                  .local_area = area,
                                  .local = what->local,
                                  .len = what->len};
    flight->done = emu_node_dma(&board->shm->nodes[board->node], board->params, at, what->len);
    area->flights++;
    registration->flights++;
    *dma_p = name_of(board, flight);
    return 0;
}

static int begin(struct unimem_board *board, const struct transfer *what, uint64_t *dma_p)
{
    if (!what->len || what->len > board->params->dma_size_max)
        return -EINVAL;
    uint64_t entered = emu_clock_turn(&board->clock), done_calling = entered + emu_cost_of(board->params, 0);
    pthread_mutex_lock(&board->lock);
    int ret = board->failed ? -EIO : flight_begin(board, what, done_calling, dma_p);
    pthread_mutex_unlock(&board->lock);
    emu_clock_end(&board->clock, entered, emu_cost_of(board->params, ret));
    return ret;
}

int unimem_dma_write(struct unimem_board *board, const struct unimem_remote *to, const void *from, size_t len,
                     uint64_t *dma_p)
{
    return begin(board, &(struct transfer){to, (void *)(uintptr_t)from, len, true}, dma_p);
}

int unimem_dma_read(struct unimem_board *board, void *to, const struct unimem_remote *from, size_t len, uint64_t *dma_p)
{
    return begin(board, &(struct transfer){from, to, len, false}, dma_p);
}

/* Checks that the remote memory is still what was registered. 0, -ENXIO or -EFAULT. */
static int remote_check(struct unimem_board *board, const struct emu_registration *remote)
{
    if (!emu_context_lives(board, remote->at.node, remote->at.context))
        return -ENXIO;
    emu_lock_take(&board->shm->tables);
    bool same = board->shm->areas[remote->slot] == remote->generation;
    emu_lock_give(&board->shm->tables);
    return same ? 0 : -EFAULT;
}

/* Moves the bytes. Under the lock. */
static int flight_move(struct unimem_board *board, const struct emu_flight *flight)
{
    const struct emu_registration *remote = flight->remote;
    struct emu_request_wire request = {.op = flight->write ? EMU_OP_WRITE : EMU_OP_READ,
                                       .first = remote->slot,
                                       .second = remote->generation,
                                       .address = (uintptr_t)flight->local,
                                       .offset = flight->offset,
                                       .len = flight->len};
    struct emu_reply_wire reply;
    int passed, ret = remote_check(board, remote);
    if (ret)
        return ret;
    if (!remote->base) {
        ret = emu_request(board, &request, &reply, &passed);
        return ret ? ret : reply.status;
    }
    unsigned char *there = remote->base + (flight->offset - remote->offset);
    if (flight->write)
        emu_copy_backwards(there, flight->local, flight->len);
    else
        emu_copy_backwards(flight->local, there, flight->len);
    return 0;
}

static void flight_end(struct emu_flight *flight)
{
    flight->used = false;
    flight->local_area->flights--;
    flight->remote->flights--;
}

/* Under the lock. *begin_p: on completion, not before the time at which the DMA was done. */
static int flight_poll(struct unimem_board *board, struct emu_flight *flight, uint64_t *begin_p)
{
    uint64_t timing = board->params->timing;
    bool first = !flight->polled;
    flight->polled = true;
    if (first && timing == EMU_TIMING_OFF)
        return -EINPROGRESS;
    int ret = first || timing == EMU_TIMING_OFF ? flight_move(board, flight) : 0;
    if (!ret && !emu_clock_reached(&board->clock, begin_p, flight->done))
        return -EINPROGRESS;
    flight_end(flight);
    return ret;
}

int unimem_dma_poll(struct unimem_board *board, uint64_t dma)
{
    uint64_t begin = emu_clock_begin(&board->clock), place = (dma & 0xffff) - 1;
    int ret = -EINVAL;
    pthread_mutex_lock(&board->lock);
    if (place < board->flights_end && board->flights[place].used && name_of(board, &board->flights[place]) == dma)
        ret = flight_poll(board, &board->flights[place], &begin);
    pthread_mutex_unlock(&board->lock);
    emu_clock_end(&board->clock, begin, emu_cost_of(board->params, ret));
    return ret;
}
