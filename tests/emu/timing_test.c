/*
 * The model of time, read from its virtual clock: exact, whatever the machine does meanwhile. The parameters are
 * unusual numbers, so that no cost can be mistaken for another one.
 */
#include "emu.h"

#define PARAMS                                                                                                         \
    "mailbox_latency_ns=811,mailbox_gap_ns=1300,dma_setup_ns=1117,dma_bandwidth=2000000000,register_ns=10007,"         \
    "deregister_ns=2003,cpu_call_ns=151,cpu_poll_ns=71,cpu_copy_bandwidth=500000000"
enum { LATENCY = 811, GAP = 1300, SETUP = 1117, REGISTER = 10007, DEREGISTER = 2003, CALL = 151, POLL = 71 };
enum { AREA = 1 << 20 };

static struct unimem_board *a, *b;

static uint64_t now(struct unimem_board *board)
{
    return unimem_emu_now(board);
}

static void open_two(uint32_t node_of_b)
{
    board_fresh("virtual", PARAMS);
    a = board_open(0);
    b = board_open(node_of_b);
    assert_int_equal(now(a), 0);
    assert_int_equal(now(b), 0);
}

static void close_two(void)
{
    unimem_close(a);
    unimem_close(b);
}

static void a_message_takes_its_latency(void **state)
{
    (void)state;
    open_two(1);
    struct unimem_mailbox *to_b = mailbox_open(b), *to_a = mailbox_open(a);
    struct unimem_mailbox_address b_address = address_of(to_b), a_address = address_of(to_a);
    char message[UNIMEM_MESSAGE_SIZE];
    uint64_t t = 0;
    for (int round = 0; round < 100; round++) { /* ping-pong: half a round trip is call + latency + call */
        assert_int_equal(unimem_mailbox_send(a, &b_address, "p", 1), 0);
        assert_int_equal(now(a), t + CALL);
        receive_patiently(to_b, message);
        t += CALL + LATENCY + CALL;
        assert_int_equal(now(b), t);
        assert_int_equal(unimem_mailbox_send(b, &a_address, "p", 1), 0);
        receive_patiently(to_a, message);
        t += CALL + LATENCY + CALL;
        assert_int_equal(now(a), t);
        unimem_emu_compute(a, GAP); /* so that the rate does not matter */
        unimem_emu_compute(b, GAP);
        t += GAP;
    }
    close_two();
}

static void messages_leave_at_their_rate(void **state)
{
    (void)state;
    open_two(1);
    struct unimem_mailbox *mailbox = mailbox_open(b);
    struct unimem_mailbox_address address = address_of(mailbox);
    char message[UNIMEM_MESSAGE_SIZE];
    enum { BURST = 40 };
    for (int i = 0; i < BURST; i++)
        assert_int_equal(unimem_mailbox_send(a, &address, "p", 1), 0);
    assert_int_equal(now(a), BURST * CALL); /* the sender does not wait for the wire */
    for (int i = 0; i < BURST; i++) {
        receive_patiently(mailbox, message);
        assert_int_equal(now(b), CALL + (uint64_t)i * GAP + LATENCY + CALL);
    }
    uint64_t t = now(b);
    assert_int_equal(unimem_mailbox_receive(mailbox, message), -EAGAIN);
    assert_int_equal(now(b), t + POLL);
    close_two();
}

/* A poll of an empty queue takes POLL. A message that arrives meanwhile ends it at once; a later one is not seen. */
static void looking_for_nothing_takes_its_time(void **state)
{
    (void)state;
    open_two(1);
    struct unimem_mailbox *mailbox = mailbox_open(b);
    struct unimem_mailbox_address address = address_of(mailbox);
    char message[UNIMEM_MESSAGE_SIZE];
    for (uint64_t i = 1; i <= 10; i++) {
        assert_int_equal(unimem_mailbox_receive(mailbox, message), -EAGAIN);
        assert_int_equal(now(b), i * POLL);
    }
    unimem_emu_compute(a, 30 * POLL + 1 - CALL - LATENCY);
    assert_int_equal(unimem_mailbox_send(a, &address, "p", 1), 0);
    uint64_t arrival = now(a) + LATENCY;
    while (now(b) + POLL < arrival)
        assert_int_equal(unimem_mailbox_receive(mailbox, message), -EAGAIN);
    assert_int_equal(now(b) + 1, arrival); /* so the next poll ends early */
    assert_int_equal(unimem_mailbox_receive(mailbox, message), 0);
    assert_int_equal(now(b), arrival + CALL);
    close_two();
}

static void a_full_queue_costs_looks(void **state)
{
    (void)state;
    open_two(1);
    struct unimem_mailbox *mailbox = mailbox_open(b);
    struct unimem_mailbox_address address = address_of(mailbox);
    while (unimem_mailbox_send(a, &address, "p", 1) == 0)
        ;
    uint64_t t = now(a);
    for (int i = 0; i < 10; i++)
        assert_int_equal(unimem_mailbox_send(a, &address, "p", 1), -EAGAIN);
    assert_int_equal(now(a), t + 10 * POLL);
    close_two();
}

static struct unimem_remote offered(struct unimem_board *board, void **memory_p)
{
    struct unimem_info info;
    *memory_p = dmable(board, AREA);
    unimem_get_info(board, &info);
    return (struct unimem_remote){info.node, info.context, (uintptr_t)*memory_p};
}

static void a_dma_takes_setup_and_bytes(void **state)
{
    (void)state;
    open_two(1);
    void *there, *here = dmable(a, AREA);
    struct unimem_remote at = offered(b, &there);
    uint64_t dma, t = 0;
    assert_int_equal(unimem_register(a, &at, AREA), 0);
    assert_int_equal(now(a), t += REGISTER);
    static const size_t lens[] = {1, 2, 3, 64, 4096, AREA};
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        assert_int_equal(unimem_dma_write(a, &at, here, lens[i], &dma), 0);
        assert_int_equal(now(a), t + CALL);
        assert_int_equal(dma_wait(a, dma), 0);
        t += CALL + SETUP + (lens[i] + 1) / 2 + CALL; /* two bytes a nanosecond, rounded up */
        assert_int_equal(now(a), t);
        assert_int_equal(unimem_dma_read(a, here, &at, lens[i], &dma), 0);
        assert_int_equal(dma_wait(a, dma), 0);
        t += CALL + SETUP + (lens[i] + 1) / 2 + CALL;
        assert_int_equal(now(a), t);
    }
    assert_int_equal(unimem_deregister(a, &at), 0);
    assert_int_equal(now(a), t + DEREGISTER);
    assert_int_equal(now(b), 0); /* the target's processor takes no part in it */
    close_two();
}

static void an_engine_does_one_dma_at_a_time(void **state)
{
    (void)state;
    enum { N = 10, LEN = 20000, EACH = SETUP + LEN / 2 };
    open_two(1);
    void *there, *here = dmable(a, AREA);
    struct unimem_remote at = offered(b, &there);
    uint64_t dma[N];
    assert_int_equal(unimem_register(a, &at, AREA), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(unimem_dma_write(a, &at, here, LEN, &dma[i]), 0);
    assert_int_equal(now(a), REGISTER + N * CALL);
    uint64_t t = REGISTER + CALL;
    for (int i = 0; i < N; i++) {
        t += EACH;
        assert_int_equal(dma_wait(a, dma[i]), 0);
        assert_int_equal(now(a), t + CALL);
    }
    close_two();
}

/* Two contexts: on one node they share its engine, on two each has its own. */
static void contexts_of_a_node_share_its_engine(void **state)
{
    (void)state;
    enum { LEN = 20000, EACH = SETUP + LEN / 2 };
    for (uint32_t node = 0; node < 2; node++) {
        void *a_there, *b_there;
        uint64_t a_dma, b_dma;
        open_two(node);
        struct unimem_remote at_a = offered(a, &a_there), at_b = offered(b, &b_there);
        assert_int_equal(unimem_register(a, &at_b, LEN), 0);
        assert_int_equal(unimem_register(b, &at_a, LEN), 0);
        assert_int_equal(unimem_dma_write(a, &at_b, a_there, LEN, &a_dma), 0);
        assert_int_equal(unimem_dma_write(b, &at_a, b_there, LEN, &b_dma), 0);
        assert_int_equal(dma_wait(b, b_dma), 0);
        assert_int_equal(now(b), REGISTER + CALL + (node == 0 ? 2 : 1) * EACH + CALL);
        assert_int_equal(dma_wait(a, a_dma), 0);
        assert_int_equal(now(a), REGISTER + CALL + EACH + CALL);
        close_two();
    }
}

static void the_processor_copies_slowly(void **state)
{
    (void)state;
    static char from[AREA], to[AREA];
    open_two(1);
    from[AREA - 1] = 1;
    unimem_copy(a, to, from, AREA);
    assert_int_equal(to[AREA - 1], 1);
    assert_int_equal(now(a), CALL + 2 * AREA); /* half a byte a nanosecond */
    unimem_copy(a, to, from, 0);
    assert_int_equal(now(a), 2 * CALL + 2 * AREA);
    close_two();
}

static void what_fails_costs_nothing(void **state)
{
    (void)state;
    open_two(1);
    void *there, *here = dmable(a, AREA);
    struct unimem_remote at = offered(b, &there);
    uint64_t dma;
    assert_int_equal(unimem_dma_write(a, &at, here, 8, &dma), -EACCES);
    assert_int_equal(unimem_deregister(a, &at), -ENOENT);
    assert_int_equal(unimem_mailbox_send(a, &(struct unimem_mailbox_address){0}, "x", 1), -ENXIO);
    assert_int_equal(now(a), 0);
    close_two();
}

/* In another process: answers every message. Time travels with the messages. */
static void echo(int from, int to, void *arg)
{
    struct unimem_mailbox_address there;
    struct unimem_board *board = board_open(5);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address here = address_of(mailbox);
    char message[UNIMEM_MESSAGE_SIZE];
    (void)arg;
    pipe_get(from, &there, sizeof(there));
    pipe_put(to, &here, sizeof(here));
    for (int i = 0; i < 50; i++) {
        receive_patiently(mailbox, message);
        send_patiently(board, &there, message);
    }
    pipe_get(from, message, 1);
    unimem_close(board);
}

static void time_travels_between_processes(void **state)
{
    (void)state;
    board_fresh("virtual", "mailbox_latency_ns=700,mailbox_gap_ns=10,cpu_call_ns=33");
    struct child child = child_start(echo, NULL);
    struct unimem_board *board = board_open(0);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address here = address_of(mailbox), there;
    char message[UNIMEM_MESSAGE_SIZE] = "x";
    pipe_put(child.to, &here, sizeof(here));
    pipe_get(child.from, &there, sizeof(there));
    uint64_t t = 0;
    for (int i = 0; i < 50; i++) { /* the first round shows when the second process started */
        send_patiently(board, &there, message);
        receive_patiently(mailbox, message);
        if (i > 0)
            assert_int_equal(now(board), t + 2 * (33 + 700 + 33));
        t = now(board);
    }
    pipe_put(child.to, "e", 1);
    child_join(&child);
    unimem_close(board);
}

/* In real time an operation can only take too long, never too short: a test can check no more than that. */
static void in_real_time_nothing_is_too_early(void **state)
{
    (void)state;
    board_fresh("real", "mailbox_latency_ns=20000000,dma_setup_ns=30000000,register_ns=10000000,cpu_call_ns=1000000,"
                        "cpu_copy_bandwidth=1000000");
    a = board_open(0);
    b = board_open(1);
    struct unimem_mailbox *mailbox = mailbox_open(b);
    struct unimem_mailbox_address address = address_of(mailbox);
    char message[UNIMEM_MESSAGE_SIZE], text[10000] = "";
    void *there, *here = dmable(a, AREA);
    struct unimem_remote at = offered(b, &there);
    uint64_t t = now(a), dma;
    assert_int_equal(unimem_mailbox_send(a, &address, "p", 1), 0);
    receive_patiently(mailbox, message);
    assert_true(now(a) - t >= 22000000);
    t = now(a);
    assert_int_equal(unimem_register(a, &at, AREA), 0);
    assert_true(now(a) - t >= 10000000);
    t = now(a);
    assert_int_equal(unimem_dma_write(a, &at, here, 8, &dma), 0);
    assert_int_equal(dma_wait(a, dma), 0);
    assert_true(now(a) - t >= 31000000);
    t = now(a);
    unimem_copy(a, here, text, sizeof(text));
    assert_true(now(a) - t >= 11000000);
    close_two();
}

RUN("emu timing", T(a_message_takes_its_latency), T(messages_leave_at_their_rate),
    T(looking_for_nothing_takes_its_time), T(a_full_queue_costs_looks), T(a_dma_takes_setup_and_bytes),
    T(an_engine_does_one_dma_at_a_time), T(contexts_of_a_node_share_its_engine), T(the_processor_copies_slowly),
    T(what_fails_costs_nothing), T(time_travels_between_processes), T(in_real_time_nothing_is_too_early))
