/*
 * Virtual time among processes: the order in which the host runs them must not show. The same program runs with random
 * delays in its processes, and must have the same times and the same order of messages.
 */
#include "emu.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#define PARAMS "mailbox_latency_ns=811,mailbox_gap_ns=130,dma_setup_ns=1117,cpu_call_ns=151,cpu_poll_ns=71"
enum { LATENCY = 811, CALL = 151, POLL = 71, ROUNDS = 120, SENDERS = 3, PIECE = 3000, RUNS = 5 };

/* ---- a program ---- */

static uint64_t seed; /* of the random delays; nothing else may depend on it */

static uint64_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Delays this process now and then. */
static void dawdle(void)
{
    uint64_t dice = random_next(&seed) % 64;
    if (dice == 0)
        pause_ms();
    else if (dice < 8)
        sched_yield();
}

static uint64_t mixed(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(1099511628211);
}

struct meeting {
    struct unimem_mailbox_address inbox;
    struct unimem_remote memory;
    uint64_t number;
};

/* Makes one DMA, then sends a message, with retries while the queue is full. Returns a hash of the times of that. */
static uint64_t sender_round(struct unimem_board *board, const struct meeting *with, void *here, uint64_t hash)
{
    uint64_t dma, message[3] = {with->number, hash};
    struct unimem_remote to = with->memory;
    to.address += with->number * PIECE;
    demand(unimem_dma_write(board, &to, here, PIECE, &dma) == 0);
    while (unimem_dma_poll(board, dma) == -EINPROGRESS)
        dawdle();
    while (unimem_mailbox_send(board, &with->inbox, message, sizeof(message)) == -EAGAIN)
        hash = mixed(hash, unimem_emu_now(board));
    dawdle();
    return mixed(hash, unimem_emu_now(board));
}

static void sender(int from, int to, void *arg)
{
    struct meeting with;
    uint64_t hash = 1;
    (void)arg;
    pipe_get(from, &with, sizeof(with));
    struct unimem_board *board = board_open((uint32_t)with.number % 2 + 1); /* two of them share a node's engine */
    void *here = dmable(board, PIECE);
    demand(unimem_register(board, &with.memory, SENDERS * PIECE) == 0);
    seed += with.number;
    pipe_put(to, "r", 1);
    pipe_get(from, &hash, sizeof(hash));
    unimem_emu_compute(board, 1000000 - unimem_emu_now(board)); /* all begin at the same time */
    for (int i = 0; i < ROUNDS; i++)
        hash = sender_round(board, &with, here, hash);
    pipe_put(to, &hash, sizeof(hash));
    unimem_close(board);
}

/* Receives all messages. Returns a hash of their bytes, order and times. */
static uint64_t receive_all(struct unimem_board *board, struct unimem_mailbox *mailbox)
{
    uint64_t hash = 1, message[3];
    for (int i = 0; i < SENDERS * ROUNDS; i++) {
        receive_patiently(mailbox, message);
        hash = mixed(mixed(mixed(hash, message[0]), message[1]), unimem_emu_now(board));
        if (message[0] == 1) /* a slow receiver: the queue fills up */
            unimem_emu_compute(board, 9000);
        dawdle();
    }
    return hash;
}

/* Runs the program with the delays of this seed. Returns a hash of the result; 0: a context was given up, so the run
 * does not count. */
static uint64_t run_once(uint64_t with_seed)
{
    struct child children[SENDERS];
    struct unimem_info info;
    uint64_t hash, theirs;
    seed = with_seed;
    board_fresh("virtual", PARAMS ",mailbox_depth=2");
    struct unimem_board *board = board_open(0);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    void *memory = dmable(board, SENDERS * PIECE);
    unimem_get_info(board, &info);
    struct meeting with = {address_of(mailbox), {info.node, info.context, (uintptr_t)memory}, 0};
    for (with.number = 0; with.number < SENDERS; with.number++) {
        char ready;
        children[with.number] = child_start(sender, NULL);
        pipe_put(children[with.number].to, &with, sizeof(with));
        pipe_get(children[with.number].from, &ready, 1); /* so that contexts have the same slots in every run */
    }
    unimem_emu_compute(board, 1000000);
    for (int i = 0; i < SENDERS; i++)
        pipe_put(children[i].to, &(uint64_t){1}, sizeof(uint64_t));
    hash = receive_all(board, mailbox);
    for (int i = 0; i < SENDERS; i++) {
        pipe_get(children[i].from, &theirs, sizeof(theirs));
        hash = mixed(hash, theirs);
        child_join(&children[i]);
    }
    hash = unimem_emu_given_up(board) ? 0 : hash;
    unimem_close(board);
    return hash;
}

static void the_host_does_not_decide_who_is_first(void **state)
{
    (void)state;
    uint64_t first = 0;
    for (int good = 0, tries = 0; good < RUNS; tries++) {
        assert_in_range(tries, 0, 10 * RUNS); /* the host may give a process no time for EMU_PATIENCE_MS */
        uint64_t hash = run_once((uint64_t)tries * 1000 + 7);
        if (!hash)
            continue;
        if (!good++)
            first = hash;
        assert_int_equal(hash, first);
    }
}

/* ---- in one process ---- */

static struct unimem_board *a, *b, *c;

static void what_arrives_first_is_taken_first(void **state)
{
    (void)state;
    char message[UNIMEM_MESSAGE_SIZE];
    board_fresh("virtual", PARAMS);
    a = board_open(0);
    b = board_open(1);
    c = board_open(2);
    struct unimem_mailbox *mailbox = mailbox_open(c);
    struct unimem_mailbox_address address = address_of(mailbox);
    unimem_emu_compute(a, 10000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(unimem_mailbox_send(a, &address, (char[]){'a', (char)('0' + i)}, 2), 0);
    assert_int_equal(unimem_mailbox_send(b, &address, "b0", 2), 0); /* later in the host's time */
    unimem_emu_compute(b, 10000 - CALL);
    for (int i = 1; i < 4; i++)
        assert_int_equal(unimem_mailbox_send(b, &address, (char[]){'b', (char)('0' + i)}, 2), 0);
    static const char order[][3] = {"b0", "a0", "b1", "a1", "b2", "a2", "b3"}; /* at one time the lower slot is first */
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        receive_patiently(mailbox, message);
        assert_string_equal(message, order[i]);
    }
    assert_int_equal(unimem_mailbox_receive(mailbox, message), -EAGAIN);
    unimem_close(a);
    unimem_close(b);
    unimem_close(c);
}

/* ---- contexts that are not waited for ---- */

/* Makes one call at time 0, and reports it. A letter from the test then says what to do: d to die, or another one to
 * make a second call and report its time. */
static void one_call(int from, int to, void *arg)
{
    struct unimem_board *board = board_open(1);
    char what = 0;
    (void)arg;
    unimem_emu_compute(board, 1);
    pipe_put(to, "c", 1);
    pipe_get(from, &what, 1);
    if (what == 'd')
        raise(SIGKILL);
    unimem_emu_compute(board, 1);
    uint64_t now = unimem_emu_now(board);
    pipe_put(to, &now, sizeof(now));
    unimem_close(board);
}

static struct child open_with_a_child(struct unimem_board **board_p, struct unimem_mailbox **mailbox_p)
{
    char called;
    board_fresh("virtual", PARAMS);
    struct child child = child_start(one_call, NULL);
    pipe_get(child.from, &called, 1);
    *board_p = board_open(0);
    *mailbox_p = mailbox_open(*board_p);
    return child;
}

static void who_makes_no_call_for_long_is_given_up(void **state)
{
    (void)state;
    struct unimem_board *board;
    struct unimem_mailbox *mailbox;
    struct child child = open_with_a_child(&board, &mailbox);
    char message[UNIMEM_MESSAGE_SIZE];
    uint64_t late;
    while (unimem_emu_now(board) + POLL < 1 + CALL + LATENCY) /* until then no message of the child can come */
        assert_int_equal(unimem_mailbox_receive(mailbox, message), -EAGAIN);
    assert_int_equal(unimem_emu_given_up(board), 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(unimem_mailbox_receive(mailbox, message), -EAGAIN);
    assert_int_equal(unimem_emu_given_up(board), 1);
    pipe_put(child.to, "g", 1); /* the child joins again, but not in the past */
    pipe_get(child.from, &late, sizeof(late));
    assert_in_range(late, unimem_emu_now(board) - POLL + 1, unimem_emu_now(board) + 1);
    child_join(&child);
    unimem_close(board);
}

static void the_dead_are_not_waited_for(void **state)
{
    (void)state;
    struct unimem_board *board;
    struct unimem_mailbox *mailbox;
    struct child child = open_with_a_child(&board, &mailbox);
    char message[UNIMEM_MESSAGE_SIZE];
    child_kill(&child);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(unimem_mailbox_receive(mailbox, message), -EAGAIN);
    assert_int_equal(unimem_emu_given_up(board), 0); /* the child's end was noticed before it was given up */
    unimem_close(board);
}

/* Sleeps until the interrupt, and reports when it came. */
static void sleeper(int from, int to, void *arg)
{
    struct unimem_board *board = board_open(1);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address here = address_of(mailbox);
    char message[UNIMEM_MESSAGE_SIZE];
    struct pollfd interrupt = {.fd = unimem_mailbox_fd(mailbox), .events = POLLIN};
    (void)from, (void)arg;
    unimem_emu_compute(board, 1);
    demand(unimem_mailbox_arm(mailbox) == 0);
    pipe_put(to, &here, sizeof(here));
    demand(poll(&interrupt, 1, 20000) == 1);
    receive_patiently(mailbox, message);
    uint64_t now = unimem_emu_now(board);
    pipe_put(to, &now, sizeof(now));
    unimem_close(board);
}

static void who_sleeps_is_woken_at_the_arrival(void **state)
{
    (void)state;
    struct unimem_mailbox_address there;
    char message[UNIMEM_MESSAGE_SIZE];
    uint64_t woken;
    board_fresh("virtual", PARAMS);
    struct child child = child_start(sleeper, NULL);
    pipe_get(child.from, &there, sizeof(there));
    struct unimem_board *board = board_open(0);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(unimem_mailbox_receive(mailbox, message), -EAGAIN);
    uint64_t sent = unimem_emu_now(board);
    assert_in_range(sent, 1000 * POLL, 1001 * POLL);
    assert_int_equal(unimem_mailbox_send(board, &there, "w", 1), 0);
    for (int i = 0; i < 1000; i++) /* from the arrival on it takes part again: no later poll is answered without it */
        assert_int_equal(unimem_mailbox_receive(mailbox, message), -EAGAIN);
    pipe_get(child.from, &woken, sizeof(woken));
    assert_int_equal(woken, sent + CALL + LATENCY + CALL);
    assert_int_equal(unimem_emu_given_up(board), 0);
    child_join(&child);
    unimem_close(board);
}

RUN("emu order", T(the_host_does_not_decide_who_is_first), T(what_arrives_first_is_taken_first),
    T(who_makes_no_call_for_long_is_given_up), T(the_dead_are_not_waited_for), T(who_sleeps_is_woken_at_the_arrival))
