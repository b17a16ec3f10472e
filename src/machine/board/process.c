/* The process's context on the board, its slots and rings, and the driver. board.h. */
#include "machine/board/board.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 1 << 12 };
static_assert(SLOTS <= 1 << UM_BOARD_NUMBER_BITS, "a slot fits into its number");

struct ring {
    struct ring *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int cancel_before; /* of the thread that holds it */
static struct unimem_board *handle;
static int users;
static pid_t opened_by;
static struct um_board_port *ports;
static struct um_board_lane *lanes[SLOTS];
static struct um_board_rx *rxs[SLOTS];
static uint32_t lanes_end, rxs_end; /* above the last that is used */
static uint32_t generation;
static struct ring *rings;

/* In a child: another thread of the parent may have held it. */
static void lock_renew(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void lock_watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, lock_renew);
}

void um_board_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, lock_watch_forks);
    const int before = um_cancel_disable(); /* what the library calls is its own affair */
    pthread_mutex_lock(&lock);
    cancel_before = before;
}

void um_board_leave(void)
{
    const int before = cancel_before;
    pthread_mutex_unlock(&lock);
    um_cancel_restore(&before);
}

int um_board_probe(void)
{
    um_board_enter();
    int ret = um_board_library_load(um_board_library_file());
    um_board_leave();
    return ret;
}

/* Says what an error of unimem_open() means, and what to do. */
static void open_failed(int error)
{
    const char *board = getenv("UNIMEM_BOARD");
    const char *remedy =
        error == -ENOENT   ? ": none is there, and none can be started: is the program unimem-boardd installed "
                             "beside the library, or named by UNIMEM_EMU_SERVER?"
        : error == -EACCES ? ": it is another user's: give UNIMEM_BOARD another name"
        : error == -EBUSY  ? ": it has no context left: end other programs, or give UNIMEM_BOARD another name"
                           : "";
    um_log(UM_LOG_WARN, "the Unimem board \"%s\" cannot be opened: %s%s", board && *board ? board : "board",
           strerror(-error), remedy);
}

/* What was made on a handle that is closed. */
static void forget(void)
{
    um_board_reaches_forget();
    um_board_directory_forget();
    um_board_views_forget();
    um_board_seeks_forget();
    rings = NULL;
    handle = NULL;
}

/* A forked child has no context, nor dmable memory: what there is its parent has. It opens one of its own. */
static void forget_parents(void)
{
    memset(lanes, 0, sizeof(lanes));
    memset(rxs, 0, sizeof(rxs));
    lanes_end = rxs_end = 0;
    ports = NULL;
    users = 0;
    um_board_memory_forget();
    forget();
}

int um_board_begin(struct unimem_board **board_p)
{
    if (users && opened_by != getpid())
        forget_parents();
    int ret = users ? 0 : um_board_library_load(um_board_library_file());
    if (ret)
        return ret;
    ret = users ? 0 : um_board_api.open(NULL, UNIMEM_NODE_ANY, &handle);
    if (ret) {
        open_failed(ret);
        return ret;
    }
    opened_by = getpid();
    users++;
    *board_p = handle;
    return 0;
}

void um_board_end(void)
{
    if (--users)
        return;
    while (lanes_end)
        um_board_lane_free(lanes[lanes_end - 1]);
    um_board_api.close(handle); /* and with it all dmable memory and registrations */
    forget();
}

struct unimem_board *um_board_handle(void)
{
    return handle;
}

struct um_board_port *um_board_ports(void)
{
    return ports;
}

void um_board_ports_add(struct um_board_port *port)
{
    port->next = ports;
    ports = port;
}

void um_board_ports_remove(struct um_board_port *port)
{
    struct um_board_port **link = &ports;
    while (*link != port)
        link = &(*link)->next;
    *link = port->next;
}

/* ---- slots ---- */

/* A number for a slot: never 0, and not soon again the same. */
static uint32_t number_for(uint32_t slot)
{
    generation = generation % 0xfffe + 1;
    return generation << UM_BOARD_NUMBER_BITS | slot;
}

static uint32_t slot_of(uint32_t number)
{
    return number & ((1u << UM_BOARD_NUMBER_BITS) - 1);
}

struct um_board_lane *um_board_lane_new(void)
{
    uint32_t slot = 0;
    while (slot < lanes_end && lanes[slot])
        slot++;
    struct um_board_lane *lane = slot < SLOTS ? calloc(1, sizeof(*lane)) : NULL;
    if (!lane)
        return NULL;
    lane->base = (struct um_lane){.machine = &um_machine_board, .body_max = UM_BOARD_BODY_MAX};
    lane->number = number_for(slot);
    lanes[slot] = lane;
    if (slot == lanes_end)
        lanes_end++;
    return lane;
}

struct um_board_lane *um_board_lane_of(uint32_t number)
{
    struct um_board_lane *lane = slot_of(number) < lanes_end ? lanes[slot_of(number)] : NULL;
    return lane && lane->number == number ? lane : NULL;
}

void um_board_lane_free(struct um_board_lane *lane)
{
    if (lane) {
        um_board_lane_settle(lane);
        um_board_lane_forget_ring(lane); /* its memory may be another's soon */
        if (lane->staging)
            um_board_ring_put(lane->staging, false);
        free(lane->scratch);
        lanes[slot_of(lane->number)] = NULL;
        free(lane);
    }
    while (lanes_end && !lanes[lanes_end - 1])
        lanes_end--;
}

struct um_board_lane *um_board_lane_next(const struct um_board_lane *lane)
{
    for (uint32_t slot = lane ? slot_of(lane->number) + 1 : 0; slot < lanes_end; slot++)
        if (lanes[slot])
            return lanes[slot];
    return NULL;
}

struct um_board_rx *um_board_rx_new(void)
{
    uint32_t slot = 0;
    while (slot < rxs_end && rxs[slot])
        slot++;
    struct um_board_rx *rx = slot < SLOTS ? calloc(1, sizeof(*rx)) : NULL;
    if (!rx)
        return NULL;
    rx->base.machine = &um_machine_board;
    rx->number = number_for(slot);
    rxs[slot] = rx;
    if (slot == rxs_end)
        rxs_end++;
    return rx;
}

struct um_board_rx *um_board_rx_of(uint32_t number)
{
    struct um_board_rx *rx = slot_of(number) < rxs_end ? rxs[slot_of(number)] : NULL;
    return rx && rx->number == number ? rx : NULL;
}

void um_board_rx_free(struct um_board_rx *rx)
{
    if (rx->ring) {
        um_board_ring_put(rx->ring, !rx->closed);
        rx->port->rx_used--;
    }
    free(rx->scratch);
    rxs[slot_of(rx->number)] = NULL;
    free(rx);
    while (rxs_end && !rxs[rxs_end - 1])
        rxs_end--;
}

struct um_board_rx *um_board_rx_next(const struct um_board_rx *rx)
{
    for (uint32_t slot = rx ? slot_of(rx->number) + 1 : 0; slot < rxs_end; slot++)
        if (rxs[slot])
            return rxs[slot];
    return NULL;
}

/* ---- rings ---- */

unsigned char *um_board_ring_get(void)
{
    void *memory = rings;
    if (memory)
        rings = rings->next;
    else if (um_board_api.alloc_dmable(handle, UM_BOARD_RING, &memory))
        return NULL;
    return memory;
}

void um_board_ring_put(unsigned char *memory, bool lost)
{
    struct ring *ring = (struct ring *)(void *)memory;
    if (lost) {
        um_board_api.free_dmable(handle, memory);
        return;
    }
    ring->next = rings;
    rings = ring;
}

/* ---- the driver ---- */

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
    bool any; /* something was told, perhaps to a port of this process */
    do {
        any = false;
        for (struct um_board_port *port = ports; port; port = port->next)
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
