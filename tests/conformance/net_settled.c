/*
 * The machine over another provider, in a form that the suite can test.
 *
 * The suite calls two ports from one thread and expects to see at once what the other side did. Over sockets that needs
 * calls on both sides. `um_machine_net_settled` is um_machine_net with one difference: before each call that tells what
 * came, all ports of the process are driven until nothing moves any more. A port that sleeps is driven only when its
 * descriptor is readable, and is then kept awake: so an event that does not wake a port remains unnoticed.
 */
#include "conform.h"

#include "net.h"

#include "machine/net/config.h"
#include "machine/net/net.h"

#include <pthread.h>

enum { PORTS = 512, QUIET = 3, STUCK = 300 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct um_net_port *port;
    bool is_armed;
} ports[PORTS];
static size_t ports_end;

/* True if the port waits for something, even if nothing moves just now. */
static bool is_pending(const struct um_net_port *port)
{
    for (uint32_t i = 0; i < port->lanes.end; i++) {
        const struct um_net_lane *lane = port->lanes.at[i];
        if (lane && lane->state == UM_NET_ASKING && !lane->ended)
            return true;
    }
    return port->inner.sending > 0 || !um_list_is_empty(&port->work);
}

static bool drive_one(size_t i)
{
    struct um_net_port *port = ports[i].port;
    if (!port || (ports[i].is_armed && !is_readable(port->wait_fd, 0)))
        return false;
    if (ports[i].is_armed)
        um_net_kick(&port->base);
    return um_net_drive(port);
}

/* Drives all ports until nothing moves any more. The caller has the lock. */
static void settle(void)
{
    uint64_t moved = now_ms();
    for (int quiet = 0; quiet < QUIET;) {
        bool any = false, pending = false;
        for (size_t i = 0; i < ports_end; i++) {
            any |= drive_one(i);
            pending |= ports[i].port && is_pending(ports[i].port);
        }
        if (any)
            moved = now_ms();
        quiet = any || (pending && now_ms() < moved + STUCK) ? 0 : quiet + 1;
    }
}

static void begin(void)
{
    pthread_mutex_lock(&lock);
    settle();
}

static void end(void)
{
    pthread_mutex_unlock(&lock);
}

static size_t index_of(const struct um_port *port)
{
    size_t i = 0;
    while (i < ports_end && ports[i].port != (const struct um_net_port *)port)
        i++;
    return i;
}

static int port_open(const struct um_port_config *config, struct um_port **port_p)
{
    pthread_mutex_lock(&lock);
    int ret = um_net_port_open(&um_machine_net_settled, config, port_p);
    if (ret == 0) {
        size_t i = index_of(NULL);
        if (i == PORTS)
            abort();
        ports_end += i == ports_end;
        ports[i].port = (struct um_net_port *)*port_p;
        ports[i].is_armed = false;
        if (ports[i].port->is_open) /* that of its lanes; some inner providers have a smaller one */
            um_machine_net_settled.body_max = ports[i].port->inner.body_max;
    }
    end();
    return ret;
}

static void port_close(struct um_port *port)
{
    begin();
    ports[index_of(port)].port = NULL;
    um_net_port_close(port);
    end();
}

static int space_open(const struct um_space_config *config, struct um_space **space_p)
{
    (void)config;
    return um_net_space_open(&um_machine_net_settled, space_p);
}

static int arm(struct um_port *port)
{
    begin();
    int ret = um_net_arm(port);
    ports[index_of(port)].is_armed = ret == 0;
    end();
    return ret;
}

static void disarm(struct um_port *port)
{
    pthread_mutex_lock(&lock);
    ports[index_of(port)].is_armed = false;
    um_net_disarm(port);
    end();
}

/* Tries: a computer with other work may not have made the connection yet. */
enum { OPENS = 20 };

static int lane_open(struct um_link *link, struct um_lane **lane_p)
{
    begin();
    int ret = um_net_lane_open(link, lane_p);
    for (int i = 0; i < OPENS && ret == -EAGAIN && ((struct um_net_link *)link)->opening; i++) {
        settle();
        ret = um_net_lane_open(link, lane_p);
    }
    end();
    return ret;
}

#define SETTLED(type, name, parameters, arguments)                                                                     \
    static type settled_##name parameters                                                                              \
    {                                                                                                                  \
        begin();                                                                                                       \
        type ret = um_net_##name arguments;                                                                            \
        end();                                                                                                         \
        return ret;                                                                                                    \
    }
#define DONE(name, parameters, arguments)                                                                              \
    static void settled_##name parameters                                                                              \
    {                                                                                                                  \
        begin();                                                                                                       \
        um_net_##name arguments;                                                                                       \
        end();                                                                                                         \
    }

SETTLED(int, link_open, (struct um_port * port, const struct um_addr *addr, struct um_link **link_p),
        (port, addr, link_p))
SETTLED(bool, link_alive, (struct um_link * link), (link))
SETTLED(int, claim, (struct um_lane * lane, uint32_t len, struct um_slot *slot_p), (lane, len, slot_p))
SETTLED(int, claim_message, (struct um_lane * lane, uint32_t len, struct um_slot *slot_p), (lane, len, slot_p))
SETTLED(uint32_t, lane_consumed, (const struct um_lane *lane), (lane))
SETTLED(int, lane_reap, (struct um_lane * lane, struct um_answer *answers, int max), (lane, answers, max))
SETTLED(int, poll, (struct um_port * port, struct um_record *rec_p), (port, rec_p))
SETTLED(bool, gather, (struct um_port * port), (port))
SETTLED(int, answer, (struct um_rx * rx, uint32_t token, int32_t status), (rx, token, status))
DONE(link_close, (struct um_link * link), (link))
DONE(lane_close, (struct um_lane * lane), (lane))
DONE(commit, (struct um_lane * lane, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len),
     (lane, slot, op, flags, len))
DONE(abort, (struct um_lane * lane, const struct um_slot *slot), (lane, slot))
DONE(lane_watch, (struct um_lane * lane, bool on), (lane, on))
DONE(release, (struct um_port * port, const struct um_record *rec), (port, rec))
DONE(rx_hold, (struct um_rx * rx, bool on), (rx, on))
DONE(rx_announce, (struct um_rx * rx, bool on), (rx, on))
DONE(rx_refuse, (struct um_rx * rx), (rx))
DONE(tick, (struct um_port * port), (port))

struct um_machine um_machine_net_settled;

bool net_choose(const char *name)
{
    if (strncmp(name, "net", 3) != 0 || (name[3] && name[3] != ':') || um_net_set_use(name[3] ? name + 4 : "on") ||
        um_net_set_address("127.0.0.1"))
        return false;
    struct um_machine m = um_machine_net;
    m.port_open = port_open;
    m.port_close = port_close;
    m.space_open = space_open;
    m.arm = arm;
    m.disarm = disarm;
    m.lane_open = lane_open;
    m.link_open = settled_link_open;
    m.link_close = settled_link_close;
    m.link_alive = settled_link_alive;
    m.lane_close = settled_lane_close;
    m.claim = settled_claim;
    m.claim_message = settled_claim_message;
    m.commit = settled_commit;
    m.abort = settled_abort;
    m.lane_consumed = settled_lane_consumed;
    m.lane_reap = settled_lane_reap;
    m.lane_watch = settled_lane_watch;
    m.poll = settled_poll;
    m.gather = settled_gather;
    m.release = settled_release;
    m.answer = settled_answer;
    m.rx_hold = settled_rx_hold;
    m.rx_announce = settled_rx_announce;
    m.rx_refuse = settled_rx_refuse;
    m.tick = settled_tick;
    um_machine_net_settled = m;
    return true;
}
