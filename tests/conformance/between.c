/* Conformance: two processes on a machine where the peer gives a lane when it makes progress. */
#include "conform.h"
#include "needs.h"

static struct um_port *b;
static struct um_link *link;

enum { COUNT = 2000 };

/* Sends COUNT messages to the parent's port. Returns NULL, or what went wrong. */
static const char *send_all(struct parent *parent, struct um_port *port, struct um_lane **lane_p)
{
    struct um_addr addr;
    struct um_lane *lane = NULL;
    int ret;
    pipe_get(parent->from_parent, &addr, sizeof(addr));
    if (machine->link_open(port, &addr, &link))
        return "link_open";
    uint64_t end = now_ms() + PATIENCE;
    while ((ret = machine->lane_open(link, &lane)) == -EAGAIN && now_ms() < end)
        ;
    if (ret)
        return "lane_open";
    for (uint64_t i = 0; i < COUNT;) {
        ret = message_try(lane, MESSAGE(i, .body_len = i % 9 * 300));
        if (ret && (ret != -EAGAIN || now_ms() > end))
            return "claim";
        i += ret == 0;
    }
    *lane_p = lane;
    return NULL;
}

/* After the last message it makes no call, and its port is armed: the machine takes it for asleep. */
static const char *sender(struct parent *parent)
{
    struct um_port *port = port_new(0);
    struct um_lane *lane;
    struct um_record rec;
    const char *wrong = send_all(parent, port, &lane);
    if (wrong)
        return wrong;
    uint64_t end = now_ms() + PATIENCE;
    while (machine->arm(port) == -EAGAIN) { /* a full mailbox of the peer prevents sleep */
        if (machine->poll(port, &rec) || now_ms() > end)
            return "arm";
    }
    char c;
    pipe_get(parent->from_parent, &c, 1);
    machine->disarm(port);
    machine->lane_close(lane);
    machine->link_close(link);
    machine->port_close(port);
    return NULL;
}

/* Closes everything immediately after the last message. Over a board that ends its context, too. */
static const char *leaver(struct parent *parent)
{
    struct um_port *port = port_new(0);
    struct um_lane *lane;
    const char *wrong = send_all(parent, port, &lane);
    if (wrong)
        return wrong;
    machine->lane_close(lane);
    machine->link_close(link);
    machine->port_close(port);
    return NULL;
}

/* Waits for the next record. */
static void take(struct um_record *rec)
{
    for (uint64_t end = now_ms() + PATIENCE; machine->poll(b, rec) == 0;)
        assert_true(now_ms() < end);
}

static void records_travel_between_processes(void **state)
{
    (void)state;
    struct child child = child_start(sender, NULL);
    b = port_new(0);
    struct um_addr addr = addr_of(b);
    struct um_record rec;
    pipe_put(child.to_child, &addr, sizeof(addr));
    take(&rec);
    assert_int_equal(rec.op, UM_REC_JOINED);
    machine->release(b, &rec);
    for (uint64_t i = 0; i < COUNT; i++) {
        take(&rec);
        assert_true(message_is(&rec, MESSAGE(i, .body_len = i % 9 * 300)));
        machine->release(b, &rec);
    }
    pipe_put(child.to_child, "e", 1);
    take(&rec);
    assert_int_equal(rec.op, UM_REC_LEFT);
    assert_int_equal(rec.len, 0);
    machine->release(b, &rec);
    child_join(&child);
    machine->port_close(b);
}

static void what_was_sent_before_the_last_port_closed_arrives(void **state)
{
    (void)state;
    struct child child = child_start(leaver, NULL);
    b = port_new(0);
    struct um_addr addr = addr_of(b);
    struct um_record rec;
    pipe_put(child.to_child, &addr, sizeof(addr));
    take(&rec);
    assert_int_equal(rec.op, UM_REC_JOINED);
    machine->release(b, &rec);
    for (uint64_t i = 0; i < COUNT; i++) {
        take(&rec);
        assert_true(message_is(&rec, MESSAGE(i, .body_len = i % 9 * 300)));
        machine->release(b, &rec);
        if (i + 70 >= COUNT) /* the sender has finished; its last messages wait for room */
            sleep_us(1000);
    }
    take(&rec);
    assert_int_equal(rec.op, UM_REC_LEFT);
    assert_int_equal(rec.len, 0);
    machine->release(b, &rec);
    child_join(&child);
    machine->port_close(b);
}

static void a_sender_that_dies_leaves_with_an_error(void **state)
{
    (void)state;
    if (machine == &um_machine_board)
        needs(has_robust_locks()); /* the emulated board's mailboxes have robust locks */
    struct child child = child_start(sender, NULL);
    b = port_new(0);
    struct um_addr addr = addr_of(b);
    struct um_record rec;
    uint64_t got = 0;
    pipe_put(child.to_child, &addr, sizeof(addr));
    take(&rec);
    assert_int_equal(rec.op, UM_REC_JOINED);
    machine->release(b, &rec);
    for (; got < 10; got++) {
        take(&rec);
        assert_true(message_is(&rec, MESSAGE(got, .body_len = got % 9 * 300)));
        machine->release(b, &rec);
    }
    child_kill(&child);
    for (uint64_t end = now_ms() + PATIENCE;; machine->tick(b)) {
        assert_true(now_ms() < end);
        if (!machine->poll(b, &rec))
            continue;
        if (rec.op == UM_REC_LEFT)
            break;
        assert_true(message_is(&rec, MESSAGE(got, .body_len = got % 9 * 300)));
        machine->release(b, &rec);
        got++;
    }
    assert_int_not_equal(rec.len, 0);
    machine->release(b, &rec);
    child_reap(&child);
    machine->port_close(b);
}

GROUP(between, T(records_travel_between_processes), T(what_was_sent_before_the_last_port_closed_arrives),
      T(a_sender_that_dies_leaves_with_an_error));
