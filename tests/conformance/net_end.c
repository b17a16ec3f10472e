/* The machine over another provider: peers that end, and peers that are only stopped, silent or out of reach. */
#include "net_two.h"

#include "machine/address.h"
#include "machine/net/config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)

/* Opens a lane to the parent, sends one message, and makes no calls until told to go on; then sends another one. */
static const char *quiet(struct parent *parent)
{
    struct um_port *port = port_new(0);
    struct um_addr addr, own = addr_of(port);
    struct um_link *link;
    struct um_lane *lane;
    struct um_record rec;
    uint64_t end = now_ms() + PATIENCE;
    int ret;
    char c;
    pipe_get(parent->from_parent, &addr, sizeof(addr));
    pipe_put(parent->to_parent, &own, sizeof(own));
    if (machine->link_open(port, &addr, &link))
        return "link_open";
    while ((ret = machine->lane_open(link, &lane)) == -EAGAIN && now_ms() < end)
        ;
    if (ret || message_try(lane, MESSAGE(1)))
        return "lane_open";
    while (!machine->poll(port, &rec)) /* the parent's lane */
        if (now_ms() > end)
            return "the parent opens no lane";
    machine->release(port, &rec);
    for (int i = 0; i < 300; i++)
        (void)machine->poll(port, &rec);
    pipe_put(parent->to_parent, "r", 1);
    pipe_get(parent->from_parent, &c, 1);
    ret = message_try(lane, MESSAGE(2));
    if (ret)
        return ret == -EPIPE ? "the lane has ended" : "the lane is full";
    machine->lane_close(lane);
    machine->link_close(link);
    machine->port_close(port);
    return NULL;
}

/* Polls b, with ticks, until the next record comes, which must be of this kind. */
static struct um_record await(uint8_t op)
{
    struct um_record rec;
    uint64_t end = now_ms() + PATIENCE;
    while (!machine->poll(b, &rec)) {
        machine->tick(b);
        assert_true(now_ms() < end);
    }
    assert_int_equal(rec.op, op);
    return rec;
}

struct two {
    struct child child;
    struct um_addr addr; /* the child's */
    struct um_link *link;
    struct um_lane *lane;
    struct um_rx *rx;
};

/* Opens lanes between b and a child in both directions. At the return the child makes no calls. */
static struct two two_open(void)
{
    struct two t = {.child = child_start(quiet, NULL)};
    struct um_addr addr;
    char c;
    int ret;
    b = port_new(0);
    addr = addr_of(b);
    pipe_put(t.child.to_child, &addr, sizeof(addr));
    pipe_get(t.child.from_child, &addr, sizeof(addr));
    t.addr = addr;
    struct um_record rec = await(UM_REC_JOINED);
    t.rx = rec.rx;
    machine->release(b, &rec);
    assert_int_equal(machine->link_open(b, &addr, &t.link), 0);
    uint64_t end = now_ms() + PATIENCE;
    while ((ret = machine->lane_open(t.link, &t.lane)) == -EAGAIN)
        assert_true(now_ms() < end);
    assert_int_equal(ret, 0);
    rec = await(1);
    machine->release(b, &rec);
    while (!is_readable(t.child.from_child, 0)) {
        (void)machine->poll(b, &rec);
        assert_true(now_ms() < end);
    }
    pipe_get(t.child.from_child, &c, 1);
    return t;
}

/* An entry of b's list `work`: when it runs, the peer sends its last messages and is found gone, like a peer that exits
 * while b sends to it. */
static struct path falling;
static uint64_t last; /* messages that it sends before */

static bool send_and_fall(struct um_net_work *work)
{
    (void)work;
    for (uint64_t i = 0; i < last; i++)
        send_unseen(&falling, i);
    um_net_peer_fall(net_of(b), ((struct um_net_rx *)falling.rx)->peer, ECONNREFUSED);
    return true;
}

/* It happens while b drives, or while b is about to sleep. */
static void fall_while_told(uint64_t messages, bool sleeps)
{
    struct um_net_work work = {.push = send_and_fall};
    last = messages;
    open_two();
    falling = path_joined(a, b);
    expect_nothing(b);
    um_list_init(&work.link);
    um_net_work_add(net_of(b), &work);
    if (sleeps)
        assert_int_equal(um_net_arm(b), -EAGAIN);
    else
        assert_true(um_net_drive(net_of(b)));
    for (uint64_t i = 0; i < last; i++)
        expect_message(b, falling.rx, MESSAGE(i));
    expect_left(b, falling.rx, ECONNRESET);
    path_close(&falling);
    close_two();
}

static void what_a_peer_sent_before_it_fell_comes(void **state)
{
    (void)state;
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        fall_while_told(3, sleeps);
        fall_while_told(0, sleeps);
    }
}

enum { LOOK = 1100, LOOKS_MAX = 64 }; /* LOOK: messages, more than one look takes; LOOKS_MAX: CUTS_MAX in drive.c */

static void flood(const struct path *p)
{
    const struct um_net_head_wire stray = {.version = UM_NET_VERSION};
    for (int i = 0; i < LOOK; i++) {
        (void)um_net_tell(net_of(p->from), ((struct um_net_lane *)p->lane)->peer, &stray, sizeof(stray));
        if (i % 16 == 0)
            um_net_drive(net_of(p->from));
    }
}

/* A peer that is gone is ended when a look has emptied the inner queue, at the latest after LOOKS_MAX looks. */
static void others_that_send_without_end_put_the_end_of_a_peer_off_for_a_while(void **state)
{
    (void)state;
    open_two();
    struct um_port *c = port_new(0);
    struct path many = path_joined(a, b), p = path_joined(c, b);
    const struct um_net_rx *rx = (const struct um_net_rx *)p.rx;
    int looks = 0;
    for (int cuts = 0; cuts < LOOKS_MAX - 1; cuts++) {
        flood(&many);
        um_net_drive(net_of(b));
    }
    assert_int_equal(net_of(b)->cuts, LOOKS_MAX - 1);
    um_net_peer_fall(net_of(b), rx->peer, ECONNREFUSED);
    for (; !rx->closed && looks < 2 * LOOKS_MAX; looks++) {
        flood(&many);
        um_net_drive(net_of(b));
    }
    assert_int_equal(looks, LOOKS_MAX);
    assert_int_equal(net_of(b)->cuts, 2 * LOOKS_MAX - 1);
    expect_left(b, p.rx, ECONNRESET);
    path_close(&p);
    path_end(&many);
    machine->port_close(c);
    close_two();
}

static void a_peer_that_is_killed_is_gone_for_all(void **state)
{
    (void)state;
    struct um_slot slot;
    struct um_answer answer;
    struct two t = two_open();
    assert_true(machine->link_alive(t.link));
    message_send(t.lane, MESSAGE(5)); /* which it will never take */
    child_kill(&t.child);
    expect_death(b, t.rx);
    uint64_t end = now_ms() + PATIENCE;
    while (machine->lane_reap(t.lane, &answer, 1) == 0) {
        machine->tick(b);
        assert_true(now_ms() < end);
    }
    assert_int_equal(machine->lane_reap(t.lane, &answer, 1), -EPIPE);
    assert_int_equal(machine->claim(t.lane, 0, &slot), -EPIPE);
    assert_false(machine->link_alive(t.link));
    machine->lane_close(t.lane);
    assert_int_equal(machine->lane_open(t.link, &t.lane), -ECONNREFUSED);
    machine->link_close(t.link);
    machine->port_close(b);
    child_reap(&t.child);
}

/* The lane to it has ended and is not asked about any more: only its TCP port tells that nobody is there. */
static void a_peer_that_closed_in_good_order_is_gone(void **state)
{
    (void)state;
    struct two t = two_open();
    pipe_put(t.child.to_child, "g", 1);
    struct um_record rec = await(1);
    machine->release(b, &rec);
    rec = await(UM_REC_LEFT);
    assert_int_equal(rec.len, 0);
    machine->release(b, &rec);
    child_join(&t.child);
    for (uint64_t end = now_ms() + PATIENCE; machine->link_alive(t.link); sleep_us(10000)) {
        assert_true(now_ms() < end);
        machine->tick(b);
        assert_int_equal(machine->poll(b, &rec), 0);
    }
    machine->lane_close(t.lane);
    machine->link_close(t.link);
    machine->port_close(b);
}

enum { CROWD = 5000, CROWD_FILES = 64 };

/* Opens connections to the peer's port until its queue is full, and a few more. Returns how many; they are in fds. */
static int crowd_in(const struct um_addr *addr, int *fds)
{
    const struct um_net_addr_wire part = um_net_addr_part(addr);
    const struct timespec pause = {.tv_nsec = 200000000};
    struct rlimit files;
    struct sockaddr_in to;
    int count = 0, waiting = 0;
    memcpy(&to, part.name, sizeof(to));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    while (count < CROWD && waiting < CROWD_FILES) {
        fds[count] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fds[count] < 0)
            break;
        (void)connect(fds[count++], (const struct sockaddr *)&to, sizeof(to));
        struct pollfd fd = {.fd = fds[count - 1], .events = POLLOUT};
        waiting += poll(&fd, 1, 0) == 0;
    }
    nanosleep(&pause, NULL);
    return count;
}

/* A stopped peer takes nothing out of its sockets and accepts no connection. Its host completes connections for it.
 * When the queue of its port is full, the host still refuses connections to other ports. A port that never had a
 * connection does not take the peer for dead either. */
static void a_peer_that_is_stopped_is_not_dead(void **state)
{
    static int fds[CROWD];
    (void)state;
    struct um_record rec;
    struct two t = two_open();
    struct um_port *late = port_new(0);
    struct um_link *link;
    struct um_lane *lane;
    assert_int_equal(machine->link_open(late, &t.addr, &link), 0);
    assert_int_equal(kill(t.child.pid, SIGSTOP), 0);
    assert_int_equal(um_net_set_timeout("3"), 0);
    const int crowd = crowd_in(&t.addr, fds);
    for (uint64_t end = now_ms() + (uint64_t)(effort > 1 ? 60 : 7) * SEC; now_ms() < end; sleep_us(20000)) {
        machine->tick(b);
        assert_int_equal(machine->poll(b, &rec), 0);
        assert_true(machine->link_alive(t.link));
        assert_int_equal(machine->lane_open(link, &lane), -EAGAIN);
        machine->tick(late);
        assert_true(machine->link_alive(link));
    }
    for (int i = 0; i < crowd; i++)
        close(fds[i]);
    assert_int_equal(um_net_set_timeout(NULL), 0);
    machine->link_close(link);
    machine->port_close(late);
    message_send(t.lane, MESSAGE(5));
    assert_int_equal(kill(t.child.pid, SIGCONT), 0);
    pipe_put(t.child.to_child, "g", 1);
    rec = await(1);
    assert_int_equal(message_number(&rec), 2);
    machine->release(b, &rec);
    rec = await(UM_REC_LEFT);
    assert_int_equal(rec.len, 0);
    machine->release(b, &rec);
    machine->lane_close(t.lane);
    machine->link_close(t.link);
    child_join(&t.child);
    machine->port_close(b);
}

/* Knocks at that address, with a clock that advances by `step` ns for each look, for at most `most` ns. Returns the
 * time (ns) after which the peer counts as dead; 0: it does not. */
static uint64_t knock_at(const char *address, uint64_t step, uint64_t most)
{
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {inet_addr(address)}};
    struct um_net_addr_wire part = {.len = sizeof(to), .format = FI_SOCKADDR_IN};
    struct um_net_peer peer = {.knock = {.port = {.fd = -1}, .host = {.fd = -1}}};
    const uint64_t start = SECOND_NS;
    uint64_t passed = 0;
    bool is_dead = false;
    memcpy(part.name, &to, sizeof(to));
    memcpy(&peer.addr.word[UM_NET_ADDR_FIRST], &part, sizeof(part));
    while (passed < most && !(is_dead = um_net_knock(&peer, start + passed)))
        passed += step;
    um_net_knock_end(&peer.knock);
    return is_dead ? passed : 0;
}

/* Nobody can connect to a multicast address: the kernel reports at once that it cannot be reached. */
static void who_is_out_of_reach_is_given_up_after_the_time_that_was_chosen(void **state)
{
    static const char nowhere[] = "224.0.0.1";
    (void)state;
    assert_int_equal(um_net_set_timeout("60"), 0);
    assert_in_range(knock_at(nowhere, SECOND_NS / 2, 1000 * SECOND_NS), 60 * SECOND_NS, 63 * SECOND_NS);
    assert_in_range(knock_at(nowhere, 9 * SECOND_NS, 1000 * SECOND_NS), 60 * SECOND_NS, 99 * SECOND_NS);
    assert_int_equal(um_net_set_timeout("1"), 0);
    assert_in_range(knock_at(nowhere, SECOND_NS / 2, 1000 * SECOND_NS), SECOND_NS, 4 * SECOND_NS);
    assert_int_equal(um_net_set_timeout("0"), 0);
    assert_int_equal(knock_at(nowhere, SECOND_NS, 1000 * SECOND_NS), 0);
    assert_int_equal(um_net_set_timeout(NULL), 0);
}

GROUP(net_end, T(what_a_peer_sent_before_it_fell_comes),
      T(others_that_send_without_end_put_the_end_of_a_peer_off_for_a_while), T(a_peer_that_is_killed_is_gone_for_all),
      T(a_peer_that_closed_in_good_order_is_gone), T(a_peer_that_is_stopped_is_not_dead),
      T(who_is_out_of_reach_is_given_up_after_the_time_that_was_chosen));
