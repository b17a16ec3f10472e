/* Where the machine over a board does less than the contract allows: it reaches no private memory. */
#include "conform.h"

#include "needs.h"

#include "machine/board/board.h"

static struct um_port *a, *b;
static struct um_link *link;

static void open_link(void)
{
    a = port_new(0);
    b = port_new(0);
    struct um_addr addr = addr_of(b);
    assert_int_equal(machine->link_open(a, &addr, &link), 0);
}

static void close_link(void)
{
    machine->link_close(link);
    machine->port_close(b);
    machine->port_close(a);
}

static void private_memory_is_refused(void **state)
{
    (void)state;
    char bytes[8] = "abcdefg", other[8] = "";
    open_link();
    struct um_piece piece = {.addr = (uintptr_t)bytes, .len = sizeof(bytes)};
    struct iovec local = {.iov_base = other, .iov_len = sizeof(other)};
    assert_int_equal(copy_now(link, false, &COPY(&piece, 1, &local, 1, 8)), -EPERM);
    assert_int_equal(copy_now(link, true, &COPY(&piece, 1, &local, 1, 8)), -EPERM);
    assert_string_equal(other, "");
    assert_string_equal(bytes, "abcdefg");
    close_link();
}

static void regions_are_left_to_their_owner(void **state)
{
    (void)state;
    static char memory[64];
    const struct um_space_config config = {.adopt = true};
    const struct um_region_desc what = {
        .key = 5, .base = (uintptr_t)memory, .len = 64, .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    struct um_space *space;
    struct um_exported *exported;
    struct um_window *window = NULL;
    const uint64_t *value;
    uint32_t number;
    open_link();
    assert_int_equal(machine->space_open(&config, &space), 0);
    assert_int_equal(machine->export(space, &what, &exported), 0);
    assert_int_equal(machine->window_open(link, 5, &window), -ENOENT);
    assert_null(window);
    assert_int_equal(machine->counter_open(space, &number, &value), 0);
    assert_true(number > 0 && number <= UM_COUNT_MASK);
    machine->space_count(space, number << UM_COUNT_READ_SHIFT, UM_COUNT_READ_SHIFT);
    machine->space_count(space, number << UM_COUNT_READ_SHIFT, UM_COUNT_WRITE_SHIFT);
    assert_int_equal(*value, 1);
    machine->counter_close(space, number);
    assert_non_null(machine->space_locks(space));
    machine->unexport(space, exported);
    machine->space_close(space);
    close_link();
}

/* By the board's interface alone: a context of its own. Returns its notice. */
static const struct um_board_notice_wire *notice_ask(const struct um_port *port, struct unimem_board **asker_p)
{
    const struct um_addr addr = addr_of(port);
    const struct unimem_mailbox_address to = um_board_mailbox(&addr);
    struct unimem_mailbox_address from;
    struct unimem_mailbox *mailbox;
    void *area;
    assert_int_equal(um_board_api.open(NULL, UNIMEM_NODE_ANY, asker_p), 0);
    assert_int_equal(um_board_api.mailbox_open(*asker_p, &mailbox), 0);
    assert_int_equal(um_board_api.alloc_dmable(*asker_p, UM_BOARD_NOTICE_AREA, &area), 0);
    um_board_api.mailbox_get_address(mailbox, &from);
    const struct um_board_seek_wire seek = {.kind = UM_BOARD_SEEK,
                                            .node = (uint16_t)from.node,
                                            .context = from.context,
                                            .mailbox = from.mailbox,
                                            .generation = from.generation,
                                            .notice = (uintptr_t)area};
    assert_int_equal(um_board_api.mailbox_send(*asker_p, &to, &seek, sizeof(seek)), 0);
    return area;
}

/* The request is in the mailbox when the port begins to close, and is taken out while it sends its last messages. */
static void who_asks_a_port_that_closes_hears_that_it_has(void **state)
{
    (void)state;
    const struct um_space_config config = {.adopt = true};
    struct um_region_desc what = {.key = 5, .len = 64, .access = UM_ACCESS_REMOTE_READ};
    struct um_port_config with = {.private_copy = true};
    struct unimem_board *asker;
    struct um_space *space;
    struct um_exported *exported;
    void *memory;
    assert_int_equal(machine->space_open(&config, &space), 0);
    assert_int_equal(machine->memory_alloc(space, 4096, &memory), 0);
    what.base = (uintptr_t)memory;
    with.space = space;
    assert_int_equal(machine->export(space, &what, &exported), 0);
    assert_int_equal(machine->port_open(&with, &a), 0);
    const struct um_board_notice_wire *notice = notice_ask(a, &asker);
    machine->port_close(a);
    uint64_t changes = notice->changes;
    assert_true(changes || um_board_step_get() < UM_BOARD_NATIVE);
    assert_int_equal(notice->table, 0);
    machine->unexport(space, exported); /* tells nobody who asked that port */
    assert_int_equal(notice->changes, changes);
    machine->space_close(space);
    um_board_api.close(asker);
}

static void there_is_no_line_to_wait_for(void **state)
{
    (void)state;
    const uint64_t *line;
    uint64_t value;
    open_link();
    assert_int_equal(machine->watch_line(b, &line, &value), -EAGAIN);
    close_link();
}

/* ---- two processes: the peer gives a lane when it polls ---- */

enum { COUNT = 2000 };

/* Sends COUNT messages to the parent's port; NULL, or what went wrong. */
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

/* Stays quiet after the last message, and asleep as far as the machine knows. */
static const char *sender(struct parent *parent)
{
    struct um_port *port = port_new(0);
    struct um_lane *lane;
    struct um_record rec;
    const char *wrong = send_all(parent, port, &lane);
    if (wrong)
        return wrong;
    uint64_t end = now_ms() + PATIENCE;
    while (machine->arm(port) == -EAGAIN) { /* a full mailbox of the peer's keeps it from sleeping */
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

/* Closes all right after the last message, and with it its context. */
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

/* Until there is one. */
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
        if (i + 70 >= COUNT) /* the sender is through, its last messages wait for room */
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
    needs(has_robust_locks()); /* the emulated board's mailboxes have such */
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

GROUP(board, T(private_memory_is_refused), T(regions_are_left_to_their_owner),
      T(who_asks_a_port_that_closes_hears_that_it_has), T(there_is_no_line_to_wait_for),
      T(records_travel_between_processes), T(what_was_sent_before_the_last_port_closed_arrives),
      T(a_sender_that_dies_leaves_with_an_error));
