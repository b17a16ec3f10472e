/* Mailboxes: size, order, depth, addresses, interrupts, senders that die. */
#include "emu.h"

#include "emu/lock.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 64 };

struct word3 {
    uint64_t word[3];
};

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void a_message_has_24_bytes_and_no_more(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address to = address_of(mailbox);
    unsigned char sent[25], got[24], zeroes[24] = {0};
    for (int i = 0; i < 25; i++)
        sent[i] = (unsigned char)(i + 1);
    assert_int_equal(unimem_mailbox_receive(mailbox, got), -EAGAIN);
    assert_int_equal(unimem_mailbox_send(board, &to, sent, 25), -EMSGSIZE);
    assert_int_equal(unimem_mailbox_send(board, &to, sent, SIZE_MAX), -EMSGSIZE);
    assert_int_equal(unimem_mailbox_receive(mailbox, got), -EAGAIN);
    for (size_t len = 0; len <= 24; len++) {
        assert_int_equal(unimem_mailbox_send(board, &to, sent, len), 0);
        memset(got, 0xee, sizeof(got));
        assert_int_equal(unimem_mailbox_receive(mailbox, got), 0);
        assert_memory_equal(got, sent, len);
        assert_memory_equal(got + len, zeroes, 24 - len);
    }
    unimem_mailbox_close(mailbox);
    unimem_close(board);
}

static void a_queue_has_its_depth(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address to = address_of(mailbox);
    struct unimem_info info;
    struct word3 got;
    unimem_get_info(board, &info);
    assert_int_equal(info.mailbox_depth, DEPTH);
    uint64_t sent = 0, received = 0;
    for (int round = 0; round < 5; round++) {
        int ret;
        while ((ret = unimem_mailbox_send(board, &to, &(struct word3){{sent, ~sent, 7}}, 24)) == 0)
            sent++;
        assert_int_equal(ret, -EAGAIN);
        assert_int_equal(sent - received, DEPTH);
        for (int i = 0; i < 13 * (round + 1) % DEPTH; i++, received++) {
            assert_int_equal(unimem_mailbox_receive(mailbox, &got), 0);
            assert_int_equal(got.word[0], received);
            assert_int_equal(got.word[1], ~received);
        }
    }
    unimem_mailbox_close(mailbox);
    unimem_close(board);
}

/* Sends COUNT numbered messages to the address that it reads. */
enum { COUNT = 20000, SENDERS = 3 };

static void sender(int from, int to, void *arg)
{
    struct unimem_mailbox_address there;
    uint64_t who = (uint64_t)(uintptr_t)arg;
    struct unimem_board *board = board_open((uint32_t)who);
    pipe_get(from, &there, sizeof(there));
    for (uint64_t i = 0; i < COUNT; i++)
        send_patiently(board, &there, &(struct word3){{who, i, who + i}});
    pipe_put(to, "d", 1);
    unimem_close(board);
}

static void messages_of_a_sender_keep_their_order(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address here = address_of(mailbox);
    struct child child[SENDERS];
    uint64_t next[SENDERS] = {0};
    for (uintptr_t i = 0; i < SENDERS; i++) {
        child[i] = child_start(sender, (void *)i);
        pipe_put(child[i].to, &here, sizeof(here));
    }
    for (int i = 0; i < SENDERS * COUNT; i++) {
        struct word3 got;
        receive_patiently(mailbox, &got);
        assert_in_range(got.word[0], 0, SENDERS - 1);
        assert_int_equal(got.word[1], next[got.word[0]]++);
        assert_int_equal(got.word[2], got.word[0] + got.word[1]);
    }
    for (int i = 0; i < SENDERS; i++)
        child_join(&child[i]);
    assert_int_equal(unimem_mailbox_receive(mailbox, &next), -EAGAIN);
    unimem_mailbox_close(mailbox);
    unimem_close(board);
}

static void an_address_is_never_another_mailboxes(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0), *other = board_open(1);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address to = address_of(mailbox), wrong;
    assert_int_equal(to.node, 0);
    for (int field = 0; field < 4; field++) {
        wrong = to;
        *(field == 0   ? &wrong.node
          : field == 1 ? &wrong.context
          : field == 2 ? &wrong.mailbox
                       : &wrong.generation) += 1;
        assert_int_equal(unimem_mailbox_send(other, &wrong, "x", 1), -ENXIO);
    }
    wrong = to;
    wrong.mailbox = UINT32_MAX;
    assert_int_equal(unimem_mailbox_send(other, &wrong, "x", 1), -ENXIO);
    assert_int_equal(unimem_mailbox_send(other, &(struct unimem_mailbox_address){0}, "x", 1), -ENXIO);
    assert_int_equal(unimem_mailbox_send(other, &to, "x", 1), 0);
    unimem_mailbox_close(mailbox);
    assert_int_equal(unimem_mailbox_send(other, &to, "x", 1), -ENXIO);
    mailbox = mailbox_open(board);
    struct unimem_mailbox_address again = address_of(mailbox);
    assert_int_equal(again.mailbox, to.mailbox); /* otherwise the test shows nothing */
    assert_int_equal(unimem_mailbox_send(other, &to, "x", 1), -ENXIO);
    struct word3 got;
    assert_int_equal(unimem_mailbox_receive(mailbox, &got), -EAGAIN);
    unimem_close(board); /* and with it the mailbox that is still open */
    assert_int_equal(unimem_mailbox_send(other, &again, "x", 1), -ENXIO);
    unimem_close(other);
}

static void late_sender(int from, int to, void *arg)
{
    struct unimem_mailbox_address there = *(struct unimem_mailbox_address *)arg;
    struct unimem_board *board = board_open(1);
    char c;
    while (read(from, &c, 1) == 1) {
        send_patiently(board, &there, &(struct word3){{1, 2, 3}});
        pipe_put(to, &c, 1);
    }
    unimem_close(board);
}

static void an_armed_mailbox_interrupts(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address here = address_of(mailbox);
    struct child child = child_start(late_sender, &here);
    int fd = unimem_mailbox_fd(mailbox);
    struct word3 got;
    char c = 'x';
    for (int round = 0; round < 20; round++) {
        assert_false(readable(fd));
        if (round % 4) {
            assert_int_equal(unimem_mailbox_arm(mailbox), 0);
            assert_int_equal(unimem_mailbox_arm(mailbox), 0);
        }
        assert_false(readable(fd));
        pipe_put(child.to, &c, 1);
        pipe_get(child.from, &c, 1);
        assert_int_equal(readable(fd), round % 4 != 0); /* not armed: no interrupt */
        assert_int_equal(unimem_mailbox_arm(mailbox), -EAGAIN);
        unimem_mailbox_disarm(mailbox);
        assert_false(readable(fd));
        receive_patiently(mailbox, &got);
    }
    assert_int_equal(unimem_mailbox_arm(mailbox), 0);
    unimem_mailbox_disarm(mailbox);
    pipe_put(child.to, &c, 1);
    pipe_get(child.from, &c, 1);
    assert_false(readable(fd)); /* disarmed */
    close(child.to);
    child.to = dup(child.from);
    child_join(&child);
    unimem_mailbox_close(mailbox);
    unimem_close(board);
}

/* The interrupts that sleepers have not taken yet fill the buffer of the sender's socket. */
static void any_number_of_sleepers_is_woken(void **state)
{
    enum { SLEEPERS = 600 };
    (void)state;
    board_fresh("off", NULL);
    struct unimem_board *sender = board_open(0), *board = board_open(0);
    struct unimem_mailbox *mailbox[SLEEPERS];
    for (int i = 0; i < SLEEPERS; i++) {
        mailbox[i] = mailbox_open(board);
        assert_int_equal(unimem_mailbox_arm(mailbox[i]), 0);
    }
    for (int i = 0; i < SLEEPERS; i++) {
        struct unimem_mailbox_address to = address_of(mailbox[i]);
        assert_int_equal(unimem_mailbox_send(sender, &to, &(struct word3){{1, 2, 3}}, 24), 0);
    }
    for (int i = 0; i < SLEEPERS; i++) {
        assert_true(readable(unimem_mailbox_fd(mailbox[i])));
        unimem_mailbox_close(mailbox[i]);
    }
    unimem_close(board);
    unimem_close(sender);
}

/* ---- a tiny queue, and everybody sends to everybody ---- */

enum { ALL = 5, EACH = 300 };

static void drain(struct unimem_mailbox *mailbox, uint64_t next[ALL], int *got_p)
{
    struct word3 got;
    sched_yield();
    while (unimem_mailbox_receive(mailbox, &got) == 0) {
        demand(got.word[0] < ALL && got.word[1] == next[got.word[0]]++);
        ++*got_p;
    }
}

static void one_of_all(int from, int to, void *arg)
{
    uint64_t me = (uint64_t)(uintptr_t)arg, next[ALL] = {0};
    struct unimem_mailbox_address all[ALL];
    struct unimem_board *board = board_open((uint32_t)me);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address here = address_of(mailbox);
    int got = 0;
    pipe_put(to, &here, sizeof(here));
    pipe_get(from, all, sizeof(all));
    for (uint64_t i = 0; i < EACH; i++)
        for (uint64_t peer = 0; peer < ALL; peer++)
            while (unimem_mailbox_send(board, &all[peer], &(struct word3){{me, i}}, 16) == -EAGAIN)
                drain(mailbox, next, &got);
    while (got < ALL * EACH)
        drain(mailbox, next, &got);
    pipe_put(to, "d", 1);
    pipe_get(from, &here, 1);
    unimem_mailbox_close(mailbox);
    unimem_close(board);
}

static void all_to_all_through_a_tiny_queue_ends(void **state)
{
    (void)state;
    board_fresh("off", "mailbox_depth=1");
    struct unimem_mailbox_address all[ALL];
    struct child child[ALL];
    char c;
    for (uintptr_t i = 0; i < ALL; i++)
        child[i] = child_start(one_of_all, (void *)i);
    for (int i = 0; i < ALL; i++)
        pipe_get(child[i].from, &all[i], sizeof(all[i]));
    for (int i = 0; i < ALL; i++)
        pipe_put(child[i].to, all, sizeof(all));
    for (int i = 0; i < ALL; i++)
        pipe_get(child[i].from, &c, 1);
    for (int i = 0; i < ALL; i++)
        pipe_put(child[i].to, "abcdefghijklmnop", sizeof(all[0]));
    for (int i = 0; i < ALL; i++)
        child_join(&child[i]);
}

/* ---- senders that die ---- */

static void endless_sender(int from, int to, void *arg)
{
    struct unimem_mailbox_address there = *(struct unimem_mailbox_address *)arg;
    struct unimem_board *board = board_open(1);
    (void)from;
    pipe_put(to, "r", 1);
    for (uint64_t i = 0;; i++)
        while (unimem_mailbox_send(board, &there, &(struct word3){{i, ~i, i * 3}}, 24) != 0)
            ;
}

static void spin_us(unsigned us)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < (long)us * 1000);
}

/* The queue is deep, so that the sender is killed while it sends, not while the queue is full. */
static void a_sender_that_dies_leaves_the_queue_whole(void **state)
{
    (void)state;
    needs(has_robust_locks());
    board_fresh("off", "mailbox_depth=4096");
    struct unimem_board *board = board_open(0);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    struct unimem_mailbox_address here = address_of(mailbox);
    for (unsigned round = 0; round < 250; round++) {
        struct child child = child_start(endless_sender, &here);
        struct word3 got;
        char c;
        pipe_get(child.from, &c, 1);
        receive_patiently(mailbox, &got); /* the sender is running */
        spin_us(round * 7 % 150);
        child_kill(&child);
        for (uint64_t next = 1; unimem_mailbox_receive(mailbox, &got) == 0; next++) {
            assert_int_equal(got.word[0], next);
            assert_int_equal(got.word[1], ~next);
            assert_int_equal(got.word[2], next * 3);
        }
    }
    unimem_mailbox_close(mailbox);
    unimem_close(board);
}

/* A holder that dies with the lock: the test above meets that case only by chance. */
static void lock_and_die(int from, int to, void *arg)
{
    (void)from;
    emu_lock_take(arg);
    pipe_put(to, "l", 1);
    raise(SIGKILL);
}

static void a_lock_outlives_its_holder(void **state)
{
    (void)state;
    needs(has_robust_locks());
    struct emu_lock_shm *lock = mmap(NULL, sizeof(*lock), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(lock, MAP_FAILED);
    assert_int_equal(emu_lock_init(lock), 0);
    for (int i = 0; i < 3; i++) {
        struct child child = child_start(lock_and_die, lock);
        char c;
        pipe_get(child.from, &c, 1);
        alarm(60); /* if the lock died with its holder, the call would wait for ever */
        emu_lock_take(lock);
        emu_lock_give(lock);
        alarm(0);
        child_kill(&child);
    }
    munmap(lock, sizeof(*lock));
}

RUN("emu mailbox", T(a_message_has_24_bytes_and_no_more), T(a_queue_has_its_depth),
    T(messages_of_a_sender_keep_their_order), T(an_address_is_never_another_mailboxes), T(an_armed_mailbox_interrupts),
    T(any_number_of_sleepers_is_woken), T(all_to_all_through_a_tiny_queue_ends),
    T(a_sender_that_dies_leaves_the_queue_whole), T(a_lock_outlives_its_holder))
