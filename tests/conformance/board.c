/* What the machine over a board refuses, as the contract permits: it reaches no private memory. */
#include "conform.h"

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

/* Asks the port for a notice (SEEK), by the board's interface alone, in a context of its own. Returns the notice. */
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

/* The request (SEEK) is in the mailbox when the port begins to close. The port takes it out while it sends its last
 * messages. */
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
    machine->unexport(space, exported); /* notifies no peer of the closed port */
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

GROUP(board, T(private_memory_is_refused), T(regions_are_left_to_their_owner),
      T(who_asks_a_port_that_closes_hears_that_it_has), T(there_is_no_line_to_wait_for));
