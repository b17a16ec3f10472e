/* Processes, ports and memory of a board that go away: what was sent before arrives, what is gone is not reached, and
 * nothing is kept of it. The peer is a context of its own that uses the board's interface alone. */
#include "conform.h"
#include "needs.h"

#include "machine/board/board.h"

#include <sys/mman.h>

enum { BYTES = 100000, LANE = 1 << UM_BOARD_NUMBER_BITS };

static struct unimem_board *peer;
static struct unimem_mailbox *mailbox;
static struct unimem_mailbox_address peer_at;
static struct um_port *port;
static struct um_link *link;

static void *dmable(size_t len)
{
    void *memory;
    assert_int_equal(um_board_api.alloc_dmable(peer, len, &memory), 0);
    return memory;
}

/* Opens the port, and the peer. */
static void both_open(void)
{
    port = port_new(0);
    assert_int_equal(um_board_api.open(NULL, UNIMEM_NODE_ANY, &peer), 0);
    assert_int_equal(um_board_api.mailbox_open(peer, &mailbox), 0);
    um_board_api.mailbox_get_address(mailbox, &peer_at);
}

static struct um_link *link_to_peer(void)
{
    struct um_link *to;
    const struct um_addr addr = um_board_addr(&peer_at);
    assert_int_equal(machine->link_open(port, &addr, &to), 0);
    return to;
}

static void peer_send(const void *message)
{
    const struct um_addr addr = addr_of(port);
    const struct unimem_mailbox_address to = um_board_mailbox(&addr);
    assert_int_equal(um_board_api.mailbox_send(peer, &to, message, UNIMEM_MESSAGE_SIZE), 0);
}

/* Receives messages until one has this op. */
static struct um_board_message_wire peer_receive(uint16_t op)
{
    struct um_board_message_wire message;
    for (uint64_t end = now_ms() + PATIENCE; now_ms() < end; machine->tick(port))
        while (um_board_api.mailbox_receive(mailbox, &message) == 0)
            if ((message.op & UM_BOARD_KIND_MASK) == op)
                return message;
    fail_msg("no message %d came", op);
    return message;
}

/* The peer opens a lane into the port. Returns the port's number of it. */
static uint32_t peer_join(void)
{
    struct um_record rec;
    peer_send(&(struct um_board_message_wire){.op = UM_BOARD_JOIN,
                                              .token = (uint16_t)peer_at.node,
                                              .number = LANE,
                                              .value = peer_at.context,
                                              .more = (uint64_t)peer_at.generation << 32 | peer_at.mailbox});
    assert_true(poll_now(port, &rec));
    assert_int_equal(rec.op, UM_REC_JOINED);
    machine->release(port, &rec);
    return peer_receive(UM_BOARD_GRANT).value;
}

/* ---- the last messages ---- */

static __typeof__(unimem_context_alive) *alive_of_library;
static uint32_t last_to;

/* Another process may run between two steps of a tick: here, just before the port asks whether the peer is there, the
 * peer sends a record and ends. */
static int alive_after_the_last_message(struct unimem_board *board, uint32_t node, uint32_t context)
{
    if (peer && context == peer_at.context) {
        peer_send(&(struct um_board_embedded_wire){.kind = UM_BOARD_RECORD, .op = 1, .number = last_to});
        um_board_api.close(peer);
        peer = NULL;
    }
    return alive_of_library(board, node, context);
}

static void the_last_message_of_a_sender_that_ends_arrives(void **state)
{
    (void)state;
    struct um_record rec;
    both_open();
    last_to = peer_join();
    alive_of_library = um_board_api.context_alive;
    um_board_api.context_alive = alive_after_the_last_message;
    machine->tick(port);
    um_board_api.context_alive = alive_of_library;
    assert_null(peer);
    assert_true(poll_now(port, &rec));
    assert_int_equal(rec.op, 1);
    struct um_rx *rx = rec.rx;
    machine->release(port, &rec);
    assert_int_equal(expect_death(port, rx), ECONNRESET);
    machine->port_close(port);
}

/* ---- lanes ---- */

static void a_lane_that_is_refused_is_told_of(void **state)
{
    (void)state;
    struct um_lane *lane;
    struct um_port *to = port_new(1), *second = port_new(0);
    struct path first = path_joined(second, to);
    const struct um_addr addr = addr_of(to);
    port = port_new(0);
    assert_int_equal(machine->link_open(port, &addr, &link), 0);
    log_count = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(machine->lane_open(link, &lane), -EAGAIN);
    assert_int_equal(log_count, 1); /* however often it asks */
    assert_non_null(strstr(logged, "FI_UNIMEM_LANES"));
    machine->link_close(link);
    path_close(&first);
    machine->port_close(second);
    machine->port_close(to);
    machine->port_close(port);
}

/* The peer ends without having looked at the request for a lane. */
static void a_lane_that_nobody_grants_ends(void **state)
{
    struct um_lane *lane;
    (void)state;
    for (int is_closed = 0; is_closed < 2; is_closed++) {
        int ret;
        both_open();
        link = link_to_peer();
        assert_int_equal(machine->lane_open(link, &lane), -EAGAIN);
        if (is_closed) /* the process goes on, and has dmable memory */
            um_board_api.mailbox_close(mailbox);
        else
            um_board_api.close(peer);
        const uint64_t end = now_ms() + PATIENCE;
        do {
            assert_true(now_ms() < end);
            sleep_us(1000);
            machine->tick(port);
            ret = machine->lane_open(link, &lane);
        } while (ret == -EAGAIN);
        assert_int_equal(ret, -ECONNREFUSED);
        machine->link_close(link);
        machine->port_close(port);
        if (is_closed)
            um_board_api.close(peer);
    }
}

/* The program has closed the link meanwhile, so nobody asks for the lane any more. */
static void a_lane_that_nobody_wants_is_freed(void **state)
{
    struct um_lane *lane;
    (void)state;
    both_open();
    link = link_to_peer();
    assert_int_equal(machine->lane_open(link, &lane), -EAGAIN);
    um_board_api.close(peer);
    machine->link_close(link);
    for (uint64_t end = now_ms() + PATIENCE; um_board_lane_next(NULL); sleep_us(1000)) {
        assert_true(now_ms() < end);
        machine->tick(port);
    }
    machine->port_close(port);
}

static bool is_address_given_again(size_t len)
{
    void *at[21];
    const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *before = mmap(NULL, len, protection, flags, -1, 0);
    bool is_again = false;
    munmap(before, len);
    for (int i = 0; i < 21; i++) {
        at[i] = mmap(NULL, len, protection, flags, -1, 0);
        is_again = is_again || at[i] == before;
    }
    for (int i = 0; i < 21; i++)
        munmap(at[i], len);
    return is_again;
}

/* The peer has freed the ring of one lane, and its memory becomes that of another one, before the first lane ends. */
static void a_lane_uses_the_ring_that_it_was_granted(void **state)
{
    struct um_link *links[2];
    struct um_lane *lanes[2];
    void *ring = NULL;
    (void)state;
    needs(is_address_given_again(UM_BOARD_RING));
    both_open();
    for (int i = 0; i < 2; i++) {
        void *before = ring;
        if (ring)
            assert_int_equal(um_board_api.free_dmable(peer, ring), 0);
        for (int tries = 0; tries < 20 && (tries == 0 || (before && ring != before)); tries++)
            ring = dmable(UM_BOARD_RING); /* what lies elsewhere ends with the context */
        if (before)
            assert_ptr_equal(ring, before);
        links[i] = link_to_peer();
        assert_int_equal(machine->lane_open(links[i], &lanes[i]), -EAGAIN);
        const struct um_board_message_wire join = peer_receive(UM_BOARD_JOIN);
        peer_send(&(struct um_board_message_wire){
            .op = UM_BOARD_GRANT, .number = join.number, .value = LANE + 1 + (uint32_t)i, .more = (uintptr_t)ring});
        assert_int_equal(lane_open_now(links[i], &lanes[i]), 0);
        message_send(lanes[i], MESSAGE(7, .body_len = 1000));
        assert_int_equal(peer_receive(UM_BOARD_DATA).value, 1);
    }
    assert_int_equal(((const struct um_board_record_wire *)ring)->len, 1000);
    for (int i = 0; i < 2; i++) {
        machine->lane_close(lanes[i]);
        machine->link_close(links[i]);
    }
    machine->port_close(port);
    um_board_api.close(peer);
}

/* ---- memory ---- */

/* An initiator has looked for the window before the owner's fi_close(), and starts the copy after it. */
static void a_window_that_ended_reaches_no_later_memory(void **state)
{
    const struct um_space_config config = {.adopt = true};
    struct um_region_desc what = {.key = 5, .len = BYTES, .access = UM_ACCESS_REMOTE_WRITE | UM_ACCESS_REMOTE_READ};
    struct um_port_config with = {.private_copy = true};
    struct um_space *space;
    struct um_exported *exported;
    struct um_window *w = NULL;
    struct um_port *owner;
    void *memory, *later;
    uint64_t word = 7;
    (void)state;
    assert_int_equal(machine->space_open(&config, &space), 0);
    assert_int_equal(machine->memory_alloc(space, BYTES, &memory), 0);
    what.base = (uintptr_t)memory;
    with.space = space;
    assert_int_equal(machine->export(space, &what, &exported), 0);
    assert_int_equal(machine->port_open(&with, &owner), 0);
    port = port_new(0);
    const struct um_addr addr = addr_of(owner);
    assert_int_equal(machine->link_open(port, &addr, &link), 0);
    for (uint64_t end = now_ms() + PATIENCE; !w || w->level != UM_LEVEL_COPY; machine->tick(port)) {
        assert_true(now_ms() < end);
        if (w)
            machine->window_close(w);
        assert_int_equal(machine->window_open(link, 5, &w), 0);
    }
    const struct um_piece piece = {.addr = w->region.base, .len = 8};
    const struct iovec local = {.iov_base = &word, .iov_len = 8};
    struct um_copy copy = COPY(&piece, 1, &local, 1, 8);
    copy.window = w;
    assert_int_equal(copy_now(link, true, &copy), 0);
    assert_int_equal(*(uint64_t *)memory, 7);
    machine->unexport(space, exported);
    assert_int_equal(machine->memory_free(space, memory), 0);
    assert_int_equal(machine->memory_alloc(space, BYTES, &later), 0);
    *(uint64_t *)later = 1;
    assert_int_equal(copy_now(link, true, &copy), -EAGAIN);
    assert_int_equal(*(uint64_t *)later, 1);
    machine->window_close(w);
    machine->link_close(link);
    machine->port_close(port);
    machine->port_close(owner);
    machine->space_close(space);
}

static bool is_registered(uint32_t context)
{
    for (struct um_list *l = um_board.reaches.list.next; l != &um_board.reaches.list; l = l->next)
        if (UM_CONTAINER(l, struct um_board_reach, link)->at.context == context)
            return true;
    return false;
}

static void memory_of_a_process_that_ended_is_not_kept(void **state)
{
    struct um_board_reach *reach;
    (void)state;
    both_open();
    link = link_to_peer();
    const struct unimem_remote at = {peer_at.node, peer_at.context, (uintptr_t)dmable(BYTES)};
    um_board_enter();
    assert_int_equal(um_board_reach_get(&at, BYTES, &reach), 0); /* as a transfer does */
    um_board_leave();
    assert_true(is_registered(peer_at.context));
    um_board_api.close(peer);
    machine->link_close(link);
    assert_false(is_registered(peer_at.context));
    machine->port_close(port);
}

/* More processes have looked at what the port exports, and were killed, than notices can be pinned. */
static void who_looked_and_ended_takes_no_place(void **state)
{
    const struct um_space_config config = {.adopt = true};
    struct um_port_config with = {.private_copy = true};
    struct unimem_info info;
    struct um_space *space;
    (void)state;
    assert_int_equal(machine->space_open(&config, &space), 0);
    with.space = space;
    assert_int_equal(machine->port_open(&with, &port), 0);
    um_board_api.get_info(um_board_handle(), &info);
    for (unsigned i = 0; i < info.registrations_max / 2 + 2; i++) {
        assert_int_equal(um_board_api.open(NULL, UNIMEM_NODE_ANY, &peer), 0);
        assert_int_equal(um_board_api.mailbox_open(peer, &mailbox), 0);
        um_board_api.mailbox_get_address(mailbox, &peer_at);
        const struct um_board_seek_wire seek = {.kind = UM_BOARD_SEEK,
                                                .node = (uint16_t)peer_at.node,
                                                .context = peer_at.context,
                                                .mailbox = peer_at.mailbox,
                                                .generation = peer_at.generation,
                                                .notice = (uintptr_t)dmable(UM_BOARD_NOTICE_AREA)};
        peer_send(&seek);
        assert_int_not_equal(peer_receive(UM_BOARD_SHOWN).value, UM_BOARD_NO_ROOM);
        um_board_api.close(peer);
    }
    machine->port_close(port);
    machine->space_close(space);
}

GROUP(board_gone, T(the_last_message_of_a_sender_that_ends_arrives), T(a_lane_that_is_refused_is_told_of),
      T(a_lane_that_nobody_grants_ends), T(a_lane_that_nobody_wants_is_freed),
      T(a_lane_uses_the_ring_that_it_was_granted), T(a_window_that_ended_reaches_no_later_memory),
      T(memory_of_a_process_that_ended_is_not_kept), T(who_looked_and_ended_takes_no_place));
