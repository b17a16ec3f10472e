/*
 * Conformance: copies that may go on after the call that started them. A machine whose copies end in that call has
 * moved all bytes at its return, and passes as well.
 */
#include "conform.h"
#include "needs.h"

enum { BYTES = 100000, MANY = 8, POLLS = 300 };

static struct um_port *a, *b;
static struct um_link *link;
static unsigned char plain[MANY * BYTES], *remote, local[MANY * BYTES], kept[BYTES];

static void open_link(void)
{
    uint64_t seed = 99;
    remote = memory_begin(plain, sizeof(plain));
    a = port_new(0);
    b = port_new(0);
    struct um_addr addr = addr_of(b);
    assert_int_equal(machine->link_open(a, &addr, &link), 0);
    for (size_t i = 0; i < sizeof(plain); i++) {
        remote[i] = (unsigned char)chance(&seed, 256);
        local[i] = (unsigned char)(remote[i] ^ 0x5a);
    }
}

static void close_link(bool peer_too)
{
    machine->link_close(link);
    if (peer_too)
        machine->port_close(b);
    machine->port_close(a);
    memory_end();
}

/* Starts a transfer of part `number` of both memories. */
static int start(int number, bool write, const struct um_window *window, struct um_transfer **transfer_p)
{
    const struct um_piece piece = {.addr = (uintptr_t)(remote + (size_t)number * BYTES), .len = BYTES};
    const struct iovec entry = {.iov_base = local + (size_t)number * BYTES, .iov_len = BYTES};
    struct um_copy copy = COPY(&piece, 1, &entry, 1, BYTES);
    copy.write = write;
    copy.window = window;
    return machine->transfer_start(link, &copy, transfer_p);
}

/* Gives the machine many calls in which it may move bytes. */
static void poll_often(void)
{
    struct um_record rec;
    for (int i = 0; i < POLLS; i++)
        assert_int_equal(machine->poll(a, &rec), 0);
}

static void what_can_be_polled_can_be_cancelled(void **state)
{
    (void)state;
    assert_int_equal(machine->transfer_poll == NULL, machine->transfer_cancel == NULL);
}

static void many_at_a_time_end_with_all_their_bytes(void **state)
{
    (void)state;
    struct um_transfer *transfer[MANY];
    int ret[MANY], under_way = 0;
    needs(!has_processes || has_private_copy());
    open_link();
    for (int i = 0; i < MANY; i++) {
        ret[i] = start(i, i % 2, NULL, &transfer[i]);
        assert_true(ret[i] == 0 || (ret[i] == -EINPROGRESS && machine->transfer_poll));
        under_way += ret[i] != 0;
    }
    for (uint64_t end = now_ms() + PATIENCE; under_way > 0;) {
        assert_true(now_ms() < end);
        for (int i = 0; i < MANY; i++) {
            if (ret[i] != -EINPROGRESS)
                continue;
            ret[i] = machine->transfer_poll(transfer[i]);
            under_way -= ret[i] != -EINPROGRESS;
        }
    }
    for (int i = 0; i < MANY; i++)
        assert_int_equal(ret[i], 0);
    assert_memory_equal(local, remote, sizeof(plain));
    close_link(true);
}

static void no_byte_moves_after_a_cancel(void **state)
{
    (void)state;
    needs(!has_processes || has_private_copy());
    for (int polls = 0; polls < 4; polls++) {
        struct um_transfer *transfer;
        open_link();
        int ret = start(0, false, NULL, &transfer);
        for (int i = 0; i < polls && ret == -EINPROGRESS; i++)
            ret = machine->transfer_poll(transfer);
        if (ret == -EINPROGRESS)
            machine->transfer_cancel(transfer);
        else
            assert_memory_equal(local, remote, BYTES);
        memset(local, 0x77, BYTES);
        memset(kept, 0x77, BYTES);
        poll_often();
        assert_memory_equal(local, kept, BYTES);
        close_link(true);
    }
}

static void a_transfer_ends_with_its_peer(void **state)
{
    (void)state;
    struct um_transfer *transfer;
    needs(!has_processes || has_private_copy());
    open_link();
    int ret = start(0, true, NULL, &transfer);
    machine->port_close(b);
    memset(remote, 0x33, BYTES);
    memset(kept, 0x33, BYTES);
    poll_often();
    for (uint64_t end = now_ms() + PATIENCE; ret == -EINPROGRESS && now_ms() < end;) {
        ret = machine->transfer_poll(transfer);
        assert_int_not_equal(ret, 0);
    }
    assert_true(ret == 0 || ret == -ESRCH);
    assert_memory_equal(remote, kept, BYTES);
    close_link(false);
}

/* Waits for a window above level remote: over a board the initiator first reads where the owner's regions are. */
static struct um_window *window_await(uint64_t key)
{
    struct um_window *w;
    struct um_record rec;
    for (uint64_t end = now_ms() + PATIENCE; now_ms() < end;) {
        int ret = machine->window_open(link, key, &w);
        if (ret == 0 && w->level != UM_LEVEL_REMOTE)
            return w;
        assert_true(ret == 0 || ret == -ENOENT);
        if (ret == 0)
            machine->window_close(w);
        assert_int_equal(machine->poll(a, &rec), 0);
        assert_int_equal(machine->poll(b, &rec), 0);
    }
    fail_msg("no window through which the initiator can copy");
    return NULL;
}

/* The owner has closed the registration, and may use the memory for something else. */
static void a_transfer_ends_with_its_region(void **state)
{
    (void)state;
    static const struct um_space_config config = {.adopt = false};
    struct um_space *space;
    struct um_exported *exported;
    struct um_window *window;
    struct um_transfer *transfer;
    needs(!has_processes || has_private_copy());
    open_link();
    machine->port_close(b);
    machine->link_close(link);
    assert_int_equal(machine->space_open(&config, &space), 0);
    struct um_port_config port_config = {.space = space, .private_copy = true};
    assert_int_equal(machine->port_open(&port_config, &b), 0);
    struct um_addr addr = addr_of(b);
    assert_int_equal(machine->link_open(a, &addr, &link), 0);
    const struct um_region_desc what = {.key = 7,
                                        .base = (uintptr_t)remote,
                                        .len = BYTES,
                                        .origin = (uintptr_t)remote,
                                        .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    assert_int_equal(machine->export(space, &what, &exported), 0);
    window = window_await(7);
    int ret = start(0, true, window, &transfer);
    machine->unexport(space, exported);
    memset(remote, 0x44, BYTES);
    memset(kept, 0x44, BYTES);
    poll_often();
    for (uint64_t end = now_ms() + PATIENCE; ret == -EINPROGRESS && now_ms() < end;) {
        ret = machine->transfer_poll(transfer);
        assert_int_not_equal(ret, 0);
    }
    assert_true(ret == 0 || ret == -EKEYREJECTED);
    assert_memory_equal(remote, kept, BYTES);
    machine->window_close(window);
    close_link(true);
    machine->space_close(space);
}

GROUP(transfer, T(what_can_be_polled_can_be_cancelled), T(many_at_a_time_end_with_all_their_bytes),
      T(no_byte_moves_after_a_cancel), T(a_transfer_ends_with_its_peer), T(a_transfer_ends_with_its_region));
